use std::net::IpAddr;
use std::time::Duration;

use http::{StatusCode, Version};

use super::values::{address, digits, number};
use super::*;
use crate::telemetry::access_log::{
    LogTarget, LoggedDecision, LoggedHeader, LoggedKey, RequestTexts,
};
use crate::telemetry::metrics::LimitDecision;

fn limited<'a>() -> LoggedDecision<'a> {
    LoggedDecision {
        policy: "per-key",
        decision: LimitDecision::Limited,
        ..LoggedDecision::default()
    }
}

fn record<'a>(path: &'a [u8], user_agent: &'a [u8]) -> Record<'a> {
    Record {
        time: Timestamp::from_micros(1_795_236_060_007_999),
        client_ip: [192, 0, 2, 7].into(),
        client: &[],
        method: b"GET",
        texts: RequestTexts {
            path,
            host: b"api.example.com",
            user_agent,
            ..RequestTexts::default()
        },
        version: Version::HTTP_11,
        status: StatusCode::TOO_MANY_REQUESTS,
        bytes: 180,
        duration: Duration::from_micros(1_204),
        delay: None,
        pending: None,
        upstream_time: None,
        route: b"search",
        upstream: b"",
        endpoint: b"",
        attempts: 1,
        error: "",
        limits: limited(),
        costs: &[],
        tls_version: "",
        headers: &[],
    }
}

fn line(format: LineFormat, record: &Record<'_>) -> String {
    line_of(&AccessLogSpec::new(format, LogTarget::Stdout), record)
}

fn line_of(spec: &AccessLogSpec, record: &Record<'_>) -> String {
    let mut out = Vec::new();
    Formatter::new(spec).write(&mut out, record);
    String::from_utf8(out).expect("lines are UTF-8")
}

#[test]
fn json_has_what_replay_reads() {
    let line = line(LineFormat::Json, &record(b"/v1/search?q=a", b"curl/8.5.0"));
    assert_eq!(
        line,
        "{\"time\":\"2026-11-21T04:41:00.007999Z\",\"client_ip\":\"192.0.2.7\",\"method\":\"GET\",\
         \"host\":\"api.example.com\",\"path\":\"/v1/search?q=a\",\"version\":\"HTTP/1.1\",\
         \"status\":429,\"bytes\":180,\"duration_ms\":1.204,\"route\":\"search\",\
         \"policy\":\"per-key\",\"decision\":\"limited\",\"user_agent\":\"curl/8.5.0\"}\n"
    );
}

#[test]
fn json_says_how_long_a_request_had_to_wait() {
    let delayed = Record {
        delay: Some(Duration::from_micros(250_500)),
        pending: None,
        upstream_time: Some(Duration::from_millis(3)),
        ..record(b"/", b"")
    };
    let line = line(LineFormat::Json, &delayed);
    let said = "\"duration_ms\":1.204,\"delay_ms\":250.500,\"upstream_ms\":3.000,";
    assert!(line.contains(said), "{line}");
}

#[test]
fn json_names_the_endpoint_and_why_it_failed() {
    let failed = Record {
        upstream: b"api",
        endpoint: b"10.0.0.7:80",
        attempts: 2,
        error: "connect",
        ..record(b"/", b"")
    };
    let line = line(LineFormat::Json, &failed);
    let said = "\"route\":\"search\",\"upstream\":\"api\",\"endpoint\":\"10.0.0.7:80\",\"error\":\"connect\",";
    assert!(line.contains(said), "{line}");
    assert!(
        line.contains("\"duration_ms\":1.204,\"attempts\":2,"),
        "{line}"
    );
}

#[test]
fn json_has_the_costs_that_the_response_stated() {
    let costs = [("tokens".into(), 57), ("a\"b".into(), 0)];
    let stated = Record {
        costs: &costs,
        ..record(b"/", b"")
    };
    let line = line(LineFormat::Json, &stated);
    let said = "\"duration_ms\":1.204,\"costs\":{\"tokens\":57,\"a\\\"b\":0},\"route\"";
    assert!(line.contains(said), "{line}");
}

#[test]
fn json_tells_a_ban_from_a_used_quota() {
    for (is_banned, said) in [
        (true, "\"decision\":\"limited\",\"banned\":true}\n"),
        (false, "\"decision\":\"limited\"}\n"),
    ] {
        let limits = LoggedDecision {
            is_banned,
            ..limited()
        };
        let refused = Record {
            limits,
            ..record(b"/", b"")
        };
        let line = line(LineFormat::Json, &refused);
        assert!(line.ends_with(said), "{line}");
    }
}

#[test]
fn json_says_whose_bucket_decided_and_for_how_long() {
    let refused = |key| Record {
        limits: LoggedDecision {
            key,
            remaining: Some(0),
            retry_after: Some(Duration::from_micros(2_554_000_500)),
            ..limited()
        },
        ..record(b"/", b"")
    };
    let parts = [b"alice"[..].into(), b"a\"b"[..].into()];
    for (key, expected) in [
        (LoggedKey::None, ""),
        (LoggedKey::Hashed(0x0a1b), "\"key\":\"k_0000000000000a1b\","),
        (LoggedKey::Readable(&parts[..1]), "\"key\":\"alice\","),
        (
            LoggedKey::Readable(&parts),
            "\"key\":[\"alice\",\"a\\\"b\"],",
        ),
    ] {
        let line = line(LineFormat::Json, &refused(key));
        let said = format!(
            "\"decision\":\"limited\",{expected}\"remaining\":0,\"retry_after_ms\":2554000.500}}\n"
        );
        assert!(line.ends_with(&said), "{line}");
    }
}

#[test]
fn json_has_header_fields_and_names_those_that_were_cut() {
    let header = |name, value: &'static str, is_cut| LoggedHeader {
        name,
        value: value.as_bytes(),
        is_cut,
    };
    let headers = [
        header("cookie", "a=1", false),
        header("cookie", "b=\"2\"", true),
        header("x-api-key", "alice", false),
    ];
    let with = |headers| {
        line(
            LineFormat::Json,
            &Record {
                headers,
                ..record(b"/", b"")
            },
        )
    };
    let all = "\"headers\":{\"cookie\":[\"a=1\",\"b=\\\"2\\\"\"],\"x-api-key\":\"alice\"},\"truncated\":[\"cookie\"]}\n";
    assert!(with(&headers).ends_with(all), "{}", with(&headers));
    let one = ",\"headers\":{\"x-api-key\":\"alice\"}}\n";
    assert!(
        with(&headers[2..]).ends_with(one),
        "{}",
        with(&headers[2..])
    );
}

#[test]
fn json_has_the_fields_that_are_asked_for_in_their_order() {
    let fields = |fields: &[LogField]| {
        let spec = AccessLogSpec {
            fields: fields.to_vec(),
            ..AccessLogSpec::new(LineFormat::Json, LogTarget::Stdout)
        };
        line_of(&spec, &record(b"/", b""))
    };
    let [path, status] = [LogField::Path, LogField::Status];
    assert_eq!(
        fields(&[status, LogField::Error, path]),
        "{\"status\":429,\"path\":\"/\"}\n"
    );
    assert_eq!(fields(&[LogField::Error]), "{}\n");
}

/// A line has each field under the name that the configuration knows.
#[test]
fn json_names_fields_as_the_configuration_does() {
    let headers = [LoggedHeader {
        name: "x",
        value: b"y",
        is_cut: false,
    }];
    let costs = [("tokens".into(), 57)];
    let all = Record {
        delay: Some(Duration::ZERO),
        pending: Some(Duration::ZERO),
        client: &[("", "a"), ("plan", "b")],
        upstream_time: Some(Duration::ZERO),
        upstream: b"a",
        endpoint: b"a",
        attempts: 2,
        error: "a",
        costs: &costs,
        texts: RequestTexts {
            path: b"/",
            host: b"a",
            referer: b"a",
            user_agent: b"a",
            request_id: b"a",
            trace_id: b"a",
        },
        limits: LoggedDecision {
            policy: "a",
            decision: LimitDecision::Limited,
            is_banned: true,
            granted: ["a"].into_iter().collect(),
            key: LoggedKey::Hashed(1),
            remaining: Some(1),
            retry_after: Some(Duration::ZERO),
        },
        tls_version: "a",
        headers: &headers,
        ..record(b"", b"")
    };
    for field in LogField::all() {
        let spec = AccessLogSpec {
            fields: vec![field],
            ..AccessLogSpec::new(LineFormat::Json, LogTarget::Stdout)
        };
        let line = line_of(&spec, &all);
        assert!(
            line.starts_with(&format!("{{{}:", serde_json::json!(field))),
            "{line}"
        );
    }
}

#[test]
fn json_lists_the_policies_whose_grants_pay() {
    let spec = AccessLogSpec {
        fields: vec![LogField::Granted],
        ..AccessLogSpec::new(LineFormat::Json, LogTarget::Stdout)
    };
    let paid = |granted: &[&'static str]| {
        let granted = granted.iter().copied().collect();
        let record = Record {
            limits: LoggedDecision {
                granted,
                ..limited()
            },
            ..record(b"/", b"a")
        };
        line_of(&spec, &record)
    };
    assert_eq!(paid(&[]), "{}\n");
    assert_eq!(paid(&["p"]), "{\"granted\":[\"p\"]}\n");
    assert_eq!(paid(&["p", "q\""]), "{\"granted\":[\"p\",\"q\\\"\"]}\n");
}

#[test]
fn combined_is_what_nginx_writes() {
    let line = line(
        LineFormat::Combined,
        &record(b"/v1/search?q=a", b"curl/8.5.0"),
    );
    assert_eq!(
        line,
        "192.0.2.7 - - [21/Nov/2026:04:41:00 +0000] \"GET /v1/search?q=a HTTP/1.1\" 429 180 \
         \"-\" \"curl/8.5.0\"\n"
    );
}

#[test]
fn any_byte_gives_json_that_reads_back() {
    let all: Vec<u8> = (0..=255).collect();
    let line = line(LineFormat::Json, &record(b"/", &all));
    let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let text = value["user_agent"].as_str().expect("a string");
    assert_eq!(text, String::from_utf8_lossy(&all));
    assert_eq!(line.matches('\n').count(), 1);
}

#[test]
fn no_byte_breaks_out_of_the_quotes_of_combined() {
    let all: Vec<u8> = (0..=255).collect();
    let line = line(LineFormat::Combined, &record(b"/", &all));
    assert_eq!(line.matches('"').count(), 6);
    assert!(
        line.trim_end()
            .bytes()
            .all(|byte| (0x20..0x7f).contains(&byte))
    );
    assert!(line.contains("\\x22") && line.contains("\\x5C") && line.contains("\\x0A"));
}

#[test]
fn a_new_second_is_written_anew() {
    let mut formatter = Formatter::new(&AccessLogSpec::new(LineFormat::Json, LogTarget::Stdout));
    let mut second = |micros| {
        formatter
            .second(Timestamp::from_micros(micros), "%S")
            .to_owned()
    };
    assert_eq!(
        (second(0), second(999_999), second(1_000_000)),
        ("00".into(), "00".into(), "01".into())
    );
}

#[test]
fn numbers_keep_their_width() {
    let mut out = Vec::new();
    number(&mut out, u64::MAX);
    digits::<3>(&mut out, 7);
    number(&mut out, 0);
    digits::<6>(&mut out, 1_234_567);
    assert_eq!(out, b"184467440737095516150070234567");
}

#[test]
fn addresses_are_written_as_people_write_them() {
    let octets = (0..=255).map(|octet| IpAddr::from([octet, 255 - octet, 0, octet]));
    let others = ["192.0.2.7", "255.255.255.255", "2001:db8::7"];
    let others = others.map(|text| text.parse().expect("an address"));
    for one in octets.chain(others) {
        let mut out = Vec::new();
        address(&mut out, one);
        assert_eq!(out, one.to_string().as_bytes());
    }
}
