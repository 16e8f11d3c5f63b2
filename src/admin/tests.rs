//! The router over a gateway without routes.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Uri};
use http_body_util::BodyExt;

use super::access::Access;
use super::computations::{Computation, PlaygroundApi};
use super::hosts::AllowedHosts;
use super::readiness::{Phase, Readiness};
use super::reload_history::{ConfigInfo, ReloadHistory, RunningConfig};
use super::service::AdminService;
use super::state::ProcessFacts;
use super::status_problem::StatusProblem;
use super::traffic_history::History;
use super::*;
use crate::clock::Clock;
use crate::http::body::RequestBody;
use crate::http::message::Request;
use crate::http::service::HttpService;
use crate::http::token_digest::TokenDigest;
use crate::limiter::Secret;
use crate::net::peer_address::PeerAddress;
use crate::proxy::Gateway;
use crate::proxy::ruleset::RulesetSpec;
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::telemetry::metrics::{RecentCounts, RequestMetrics, build_info};
use crate::telemetry::registry::{self, Registry};

fn state(registry: &Registry) -> AdminState {
    let clock = Arc::new(Clock::system());
    let context = BuildContext {
        workers: 0,
        registry: registry.clone(),
        clock: Arc::clone(&clock),
        secret: Secret::from_key([1, 2]),
    };
    let prepared = PreparedRuleset::new(RulesetSpec::default(), &context, None);
    let ruleset = prepared.migrate_buckets(clock.now());
    let metrics = Arc::new(RequestMetrics::new(registry));
    let now = clock.now();
    AdminState::new(AdminContext {
        registry: registry.clone(),
        readiness: Readiness::default(),
        gateway: Arc::new(Gateway::new(ruleset, Arc::clone(&clock), metrics, 0)),
        clock,
        hosts: AllowedHosts::without_names(),
        access: Access::new(
            AccessSpec {
                read: vec![TokenDigest::of("reader")],
                write: vec![TokenDigest::of("writer")],
            },
            None,
        ),
        reloads: ReloadHistory::new(RunningConfig {
            info: ConfigInfo {
                source: "test.yaml".to_owned(),
                text: "".into(),
                hash: "0".to_owned(),
                certificates: Arc::default(),
                lists: Arc::default(),
                saves_buckets: false,
            },
            loaded_at: now,
        }),
        facts: ProcessFacts {
            version: "0",
            revision: "0",
            workers: 0,
            started_at: now,
            started: tokio::time::Instant::now(),
        },
        recent: RecentCounts::new(registry, recent_events()),
        history: History::default(),
        snapshot_problem: StatusProblem::default(),
        unread_problem: StatusProblem::default(),
        upgrade_problem: StatusProblem::default(),
        restart_problem: StatusProblem::default(),
        playground: PlaygroundApi {
            play: Computation::new::<(), ()>(nothing),
            check: Computation::new::<(), ()>(nothing),
        },
    })
}

fn nothing(_: &[u8]) -> Result<Vec<u8>, ProblemDetails> {
    Ok(b"{}".to_vec())
}

/// Returns the status, the header fields and the body of a response.
fn respond(
    state: &AdminState,
    method: Method,
    path: &'static str,
) -> (StatusCode, HeaderMap, String) {
    let mut request = Request::new(RequestBody::empty());
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from_static(path);
    let hosts = AllowedHosts::without_names();
    let service = AdminService::new(
        router(state.clone()),
        HostCheck::new(hosts, state.admin_metrics.clone()),
        PeerAddress::Unix,
    );
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(async {
        let response = service.call(request).await.expect("infallible");
        let (head, body) = http::Response::from(response).into_parts();
        let body = body.collect().await.expect("in memory").to_bytes();
        let body = String::from_utf8(body.into()).expect("text");
        (head.status, head.headers, body)
    })
}

#[test]
fn readiness_follows_the_phase_and_liveness_does_not() {
    let state = state(&Registry::default());
    for (phase, status, body) in [
        (Phase::Starting, 503, "starting\n"),
        (Phase::Ready, 200, "ready\n"),
        (Phase::Draining, 503, "draining\n"),
    ] {
        state.readiness.set(phase);
        let (got, headers, text) = respond(&state, Method::GET, "/readyz");
        assert_eq!((got.as_u16(), &*text), (status, body));
        assert_eq!(headers.contains_key("retry-after"), status == 503);
        assert_eq!(respond(&state, Method::GET, "/livez").0, 200);
    }
}

#[test]
fn metrics_state_the_version_of_their_format() {
    let registry = Registry::default();
    let state = state(&registry);
    let _kept = build_info(&registry, "1.2.3", "abc");
    let (status, headers, body) = respond(&state, Method::GET, "/metrics");
    assert_eq!(
        (status, &headers["content-type"]),
        (
            StatusCode::OK,
            &HeaderValue::from_static(registry::CONTENT_TYPE)
        )
    );
    assert!(
        body.contains("sluicegate_build_info{version=\"1.2.3\",revision=\"abc\"} 1\n"),
        "{body}"
    );
}

#[test]
fn unknown_paths_are_404_and_other_methods_405() {
    let state = state(&Registry::default());
    assert_eq!(respond(&state, Method::GET, "/nothing").0, 404);
    assert_eq!(respond(&state, Method::POST, "/nothing").0, 404);
    let (status, headers, body) = respond(&state, Method::POST, "/livez");
    assert_eq!((status.as_u16(), &*body), (405, "only GET and HEAD\n"));
    assert_eq!(headers["allow"], "GET, HEAD");
}

#[test]
fn browsers_may_not_guess_media_types() {
    let state = state(&Registry::default());
    for path in [
        "/metrics",
        "/livez",
        "/readyz",
        "/v1/status",
        "/v1/openapi.json",
        "/v1/nothing",
        "/",
        "/nothing",
        "/assets/icon.svg",
    ] {
        for method in [Method::GET, Method::DELETE] {
            let (_, headers, _) = respond(&state, method, path);
            assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        }
    }
}

#[test]
fn head_has_the_length_of_the_body_and_no_body() {
    let state = state(&Registry::default());
    for (path, length) in [("/livez", "6"), ("/nothing", "43")] {
        let (_, headers, body) = respond(&state, Method::HEAD, path);
        assert_eq!(
            (&headers["content-length"], &*body),
            (&HeaderValue::from_static(length), "")
        );
    }
}
