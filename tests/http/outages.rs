//! All endpoints of an upstream fail, and work again: each has its share at once, whatever failed,
//! and however long.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::support::admin::{AdminClient, TOKENS, json};
use crate::support::client::get;
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step, answer, free_address, ok, refusing_address, reset};
use crate::support::wait_for;

fn config(endpoints: &[String], options: &str) -> String {
    format!(
        "{TOKENS}upstreams: {{ pool: {{ endpoints: {endpoints:?}{options} }} }}
routes: [{{ upstream: pool }}]
"
    )
}

/// The state of each address, and why, by the port.
fn states(gateway: &Gateway) -> BTreeMap<String, String> {
    let upstreams = AdminClient::writer(gateway).read("/v1/upstreams");
    let endpoints = upstreams["upstreams"][0]["endpoints"].as_array();
    let state = |endpoint: &serde_json::Value| {
        let host = &endpoint["hosts"][0];
        let text = |name: &str| host[name].as_str().unwrap_or("-").to_owned();
        (text("address"), text("state"))
    };
    endpoints.expect("endpoints").iter().map(state).collect()
}

fn count(gateway: &Gateway, state: &str) -> usize {
    states(gateway).values().filter(|one| *one == state).count()
}

/// An endpoint that ends each connection after one answer, so that nothing of it outlives it.
fn start_at(address: SocketAddr) -> Origin {
    Origin::start_at(address, |_| [ok("ok"), vec![Step::Close]].concat())
}

fn stop(origin: Origin) {
    let address = origin.address();
    drop(origin);
    wait_for("the port to be free", || TcpStream::connect(address).err());
}

/// Runs `test` while six clients send requests without a pause.
fn under_load<T>(gateway: &Gateway, test: impl FnOnce() -> T) -> T {
    let (address, ends) = (gateway.address(), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    get(address, "/");
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
        ends.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Waits until each of these gets at least three quarters of its share of 120 requests.
fn wait_for_even_shares(origins: &[Origin]) {
    let mut before = vec![0; origins.len()];
    wait_for("even shares", || {
        let all: Vec<_> = origins.iter().map(|one| one.requests().len()).collect();
        let shares: Vec<_> = all
            .iter()
            .zip(&before)
            .map(|(all, one)| all - one)
            .collect();
        let sum: usize = shares.iter().sum();
        if sum < 120 {
            return None;
        }
        before = all;
        let least = shares.iter().min().copied().unwrap_or_default();
        (least * 4 * origins.len() >= sum * 3).then_some(())
    });
}

#[test]
fn endpoints_that_all_died_share_requests_as_soon_as_they_live() {
    let addresses = [free_address(), free_address(), free_address()];
    let origins = addresses.map(start_at);
    let gateway = Gateway::start(&config(&origins.each_ref().map(Origin::url), ""));
    under_load(&gateway, || {
        wait_for_even_shares(&origins);
        origins.into_iter().for_each(stop);
        wait_for("the outage", || {
            (count(&gateway, "failing") == 3).then_some(())
        });
        thread::sleep(Duration::from_millis(500));
        assert_eq!(count(&gateway, "ejected"), 0, "all are used");
        // One after the other, as processes start.
        let origins = addresses.map(|address| {
            thread::sleep(Duration::from_millis(100));
            start_at(address)
        });
        wait_for_even_shares(&origins);
        wait_for("all in use", || {
            (count(&gateway, "available") == 3).then_some(())
        });
    });
}

/// Starts four endpoints that fail so while the flag is set.
fn four(steps: Vec<Step>) -> (Vec<Origin>, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let origin = |_| {
        let (fails, steps) = (Arc::clone(&fails), steps.clone());
        Origin::start(move |_| {
            if fails.load(Ordering::Relaxed) {
                steps.clone()
            } else {
                ok("ok")
            }
        })
    };
    ((0..4).map(origin).collect(), fails)
}

#[test]
fn endpoints_that_all_failed_share_requests_as_soon_as_they_work() {
    for steps in [vec![Step::Reset], answer(503, "busy")] {
        let (origins, fails) = four(steps);
        let endpoints: Vec<_> = origins.iter().map(Origin::url).collect();
        let gateway = Gateway::start(&config(&endpoints, ""));
        under_load(&gateway, || {
            wait_for_even_shares(&origins);
            fails.store(true, Ordering::Relaxed);
            wait_for("the outage", || {
                (count(&gateway, "failing") == 4).then_some(())
            });
            fails.store(false, Ordering::Relaxed);
            wait_for_even_shares(&origins);
        });
    }
}

/// The kernel may report the reset before the connection was used.
#[test]
fn connections_that_are_reset_at_once_eject_no_more_than_half() {
    let bad: Vec<_> = (0..3).map(|_| Origin::raw(reset)).collect();
    let good = Origin::plain();
    let endpoints: Vec<_> = bad.iter().chain([&good]).map(Origin::url).collect();
    let gateway = Gateway::start(&config(&endpoints, ""));
    under_load(&gateway, || {
        wait_for("the ejections", || {
            (count(&gateway, "ejected") == 2).then_some(())
        });
        for _ in 0..40 {
            assert!(count(&gateway, "ejected") <= 2, "{:?}", states(&gateway));
            thread::sleep(Duration::from_millis(5));
        }
    });
}

const LONG: &str = ", ejection: { for: 1h, max_for: 1h }";

/// A gateway with an endpoint that refuses connections, and is ejected for an hour, and a good one.
fn with_an_ejected_one(bad: SocketAddr, good: &Origin) -> Gateway {
    let endpoints = [format!("http://{bad}"), good.url()];
    let gateway = Gateway::start(&config(&endpoints, LONG));
    wait_for("the ejection", || {
        assert_eq!(get(gateway.address(), "/").status, 200);
        (count(&gateway, "ejected") == 1).then_some(())
    });
    gateway
}

#[test]
fn an_operator_readmits_an_endpoint() {
    let (bad, good) = (free_address(), Origin::plain());
    let gateway = with_an_ejected_one(bad, &good);
    let client = AdminClient::writer(&gateway);
    let readmit = |endpoint: SocketAddr| {
        let path = format!("/v1/upstreams/pool/endpoints/{endpoint}/readmit");
        let answer = json(&client.post(&path, &json!({ "reason": "fixed" })));
        answer["readmitted"].as_array().expect("addresses").len()
    };
    let back = Origin::plain_at(bad);
    assert_eq!(readmit(good.address()), 0);
    assert_eq!(readmit(bad), 1);
    assert_eq!(readmit(bad), 0);
    assert_eq!(states(&gateway)[&bad.to_string()], "available");
    for _ in 0..20 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    assert_eq!(back.requests().len(), 10);
    gateway.wait_for_log("audit: action=\"readmit\" upstream=\"pool\"");
}

#[test]
fn ejections_end_where_a_reload_switches_them_off() {
    let (bad, good) = (refusing_address(), Origin::plain());
    let gateway = with_an_ejected_one(bad, &good);
    let endpoints = [format!("http://{bad}"), good.url()];
    gateway.reload(&config(&endpoints, ", ejection: off"));
    assert_eq!(count(&gateway, "ejected"), 0);
    wait_for("a request there", || {
        assert_eq!(get(gateway.address(), "/").status, 200);
        (count(&gateway, "failing") == 1).then_some(())
    });
}

/// The problems of `/v1/status`.
fn problems(gateway: &Gateway) -> String {
    let status = AdminClient::writer(gateway).read("/v1/status");
    status["problems"].to_string()
}

fn available(gateway: &Gateway, endpoint: &str) -> Option<f64> {
    let labels = format!("{{upstream=\"pool\",endpoint=\"{endpoint}\"}}");
    gateway.metric(&format!("sluicegate_upstream_hosts_available{labels}"))
}

#[test]
fn the_outage_of_the_only_endpoint_is_seen() {
    let address = free_address();
    let gateway = Gateway::start(&config(&[format!("http://{address}")], ""));
    assert_eq!(problems(&gateway), "[]");
    assert_eq!(get(gateway.address(), "/").status, 502);
    let problem = problems(&gateway);
    assert!(
        problem.contains("upstream pool: no address works"),
        "{problem}"
    );
    assert!(problem.contains("it accepts no connections"), "{problem}");
    assert_eq!(available(&gateway, &address.to_string()), Some(0.0));
    let ready = get(gateway.admin, "/readyz");
    assert_eq!(ready.status, 200);
    let lines = ready.text();
    assert!(
        lines.contains("upstream pool: no address works\n"),
        "{lines}"
    );
    let none = "sluicegate_upstream_responses_total{upstream=\"pool\",class=\"none\"}";
    assert_eq!(gateway.metric(none), Some(1.0));
    gateway.wait_for_log("no endpoint of the upstream works");

    let _back = Origin::plain_at(address);
    assert_eq!(get(gateway.address(), "/").status, 200);
    assert_eq!(problems(&gateway), "[]");
    assert_eq!(available(&gateway, &address.to_string()), Some(1.0));
    gateway.wait_for_log("the endpoint answers again");
}

#[test]
fn an_outage_is_seen_where_nothing_is_ejected() {
    let origin = Origin::start(|_| answer(500, "broken"));
    let gateway = Gateway::start(&config(&[origin.url()], ", ejection: off"));
    for _ in 0..5 {
        assert_eq!(get(gateway.address(), "/").status, 500);
    }
    let problem = problems(&gateway);
    assert!(problem.contains("no address works"), "{problem}");
}

#[test]
fn a_name_that_does_not_resolve_is_a_problem() {
    let gateway = Gateway::start(&config(&["http://nothing.invalid:80".to_owned()], ""));
    wait_for("the problem", || {
        let problem = problems(&gateway);
        let is_told = problem.contains("nothing.invalid does not resolve");
        (is_told && problem.contains("upstream pool: no address works")).then_some(())
    });
}

/// An alert on it waits for minutes, during which the address is tried again.
#[test]
fn a_dead_endpoint_is_unavailable_also_while_it_is_tried_again() {
    let (bad, good) = (refusing_address(), Origin::plain());
    let endpoints = [format!("http://{bad}"), good.url()];
    let options = ", ejection: { for: 100ms, max_for: 100ms }";
    let gateway = Gateway::start(&config(&endpoints, options));
    let labels = format!("{{upstream=\"pool\",endpoint=\"{bad}\",reason=\"connect_failure\"}}");
    let series = format!("sluicegate_upstream_ejections_total{labels}");
    let mut was_ejected = false;
    wait_for("five ejections", || {
        assert_eq!(get(gateway.address(), "/").status, 200);
        let ejections = gateway.metric(&series).unwrap_or_default();
        let available = available(&gateway, &bad.to_string());
        assert!(!was_ejected || available == Some(0.0), "after {ejections}");
        was_ejected = ejections >= 1.0;
        (ejections >= 5.0).then_some(())
    });
}
