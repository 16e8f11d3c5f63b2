//! Costs that the end of a response states: in trailers, in JSON, in the last event of a stream.
//! Bodies pass unchanged and at once.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::client::{Connection, get, get_with};
use crate::support::costs::left;
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Received, Step, chunked, raw};
use crate::support::redis::RedisServer;
use crate::support::replay::Replay;
use crate::support::shared::proxies;
use crate::support::wait_for;

const JSON: &str = r#"{"id":"x","choices":[{"message":{"content":"\"usage\":{\"total_tokens\":9} é"}}],"usage":{"total_tokens":57}}"#;
const EVENTS: [&str; 4] = [
    "data: {\"choices\":[{\"delta\":{\"content\":\"Hé\"}}],\"usage\":null}\n\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"llo\"}}],\"usage\":null}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"total_tokens\":57}}\n\n",
    "data: [DONE]\n\n",
];

/// A response in one piece with this media type.
fn typed(content_type: &str, more: &str, body: &str) -> Vec<Step> {
    let length = body.len();
    raw(&format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n{more}Content-Length: {length}\r\n\r\n{body}"
    ))
}

/// A stream in chunks of `size` bytes, without its end.
fn open_stream(events: &str, size: usize) -> Vec<Step> {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut text = head.as_bytes().to_vec();
    for chunk in events.as_bytes().chunks(size) {
        text.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        text.extend_from_slice(chunk);
        text.extend_from_slice(b"\r\n");
    }
    vec![Step::Send(text)]
}

fn stream(events: &str, size: usize) -> Vec<Step> {
    [open_stream(events, size), raw("0\r\n\r\n")].concat()
}

fn answer(request: &Received) -> Vec<Step> {
    let mut words = request.target.trim_start_matches('/').split('/');
    let (what, size) = (words.next().unwrap_or_default(), words.next());
    let size = size
        .and_then(|size| size.parse().ok())
        .unwrap_or(usize::MAX);
    match what {
        "json" => typed("application/json; charset=utf-8", "", JSON),
        "none" => typed("application/json", "", "{\"usage\":null}"),
        "text" => typed(
            "application/json",
            "",
            "{\"usage\":{\"total_tokens\":\"57\"}}",
        ),
        "cut" => typed("application/json", "", &JSON[..JSON.len() - 1]),
        "gzip" => typed("application/json", "Content-Encoding: gzip\r\n", JSON),
        "html" => typed("text/html", "", JSON),
        "empty" => raw("HTTP/1.1 204 No Content\r\nContent-Type: application/json\r\n\r\n"),
        "stream" => stream(&EVENTS.concat(), size),
        "crlf" => stream(&EVENTS.concat().replace('\n', "\r\n"), size),
        "trailer" => chunked(&["a", "b"], &[("x-tokens-used", "57")]),
        "untrailed" => chunked(&["a", "b"], &[]),
        "broken" => [open_stream(&EVENTS[..2].concat(), size), vec![Step::Reset]].concat(),
        "hang" => {
            let events = EVENTS[..2].concat() + &EVENTS[2].replace("57", "700");
            [open_stream(&events, size), vec![Step::Hang]].concat()
        }
        "done" => [open_stream(&EVENTS.concat(), size), vec![Step::Hang]].concat(),
        other => panic!("{other}"),
    }
}

fn config(origin: &Origin, policy: &str) -> String {
    format!(
        "access_log: {{ path: access.log, format: json }}
policies: {{ p: {{ {policy} }} }}
routes: [{{ name: a, upstream: '{}', limits: [p] }}]
",
        origin.url()
    )
}

const POLICY: &str =
    "quota: 10000/300d, cost: { response_json: /usage/total_tokens, reserve: 500, max: 1000 }";

fn result(gateway: &Gateway, result: &str) -> u64 {
    let series = format!("sluicegate_limit_settlements_total{{policy=\"p\",result=\"{result}\"}}");
    gateway.metric(&series).expect("it is there") as u64
}

/// The units that a request to this path is finally charged, from the remaining units of the next
/// one.
struct Used<'a> {
    gateway: &'a Gateway,
    before: usize,
}

impl Used<'_> {
    fn by(&mut self, path: &str) -> usize {
        let answer = get(self.gateway.address(), path);
        assert_eq!(left(&answer), self.before - 500, "it is reserved: {path}");
        self.after()
    }

    fn after(&mut self) -> usize {
        let left = left(&get(self.gateway.address(), "/json"));
        let used = self.before - (left + 500);
        self.before = left + 500 - 57;
        used
    }
}

#[test]
fn a_cost_in_a_json_response_or_an_event_stream_is_charged() {
    let origin = Origin::start(answer);
    for store in ["memory", "redis"] {
        let redis = RedisServer::start();
        let config = config(&origin, &format!("store: {store}, key: constant, {POLICY}"));
        let gateway = match store {
            "redis" => {
                let [gateway] = proxies(&redis, &config);
                gateway
            }
            _ => Gateway::start(&config),
        };
        let settled = || result(&gateway, "settled");
        for (turn, path) in ["/json", "/stream", "/stream/1", "/crlf/1", "/stream/7"]
            .iter()
            .enumerate()
        {
            let answer = get(gateway.address(), path);
            assert_eq!(answer.status, 200);
            let expected = match *path {
                "/json" => JSON.to_owned(),
                "/crlf/1" => EVENTS.concat().replace('\n', "\r\n"),
                _ => EVENTS.concat(),
            };
            assert_eq!(answer.text(), expected, "unchanged");
            wait_for("the settlement", || (settled() > turn as u64).then_some(()));
            let expected = 10_000 - 57 * turn - 500;
            if store == "memory" {
                assert_eq!(left(&answer), expected, "{path}");
            }
        }
        let mut all = 10_000 - 5 * 57;
        wait_for("all of it", || {
            // Each look costs its estimate.
            all -= 500;
            (left(&get(gateway.address(), "/none")) == all).then_some(())
        });
    }
}

#[test]
fn a_response_that_states_no_cost_keeps_the_estimate() {
    let origin = Origin::start(answer);
    let gateway = Gateway::start(&config(&origin, POLICY));
    let mut used = Used {
        gateway: &gateway,
        before: 10_000,
    };
    for (path, expected, label) in [
        ("/none", 500, "missing"),
        ("/html", 500, "missing"),
        ("/empty", 500, "missing"),
        ("/text", 500, "malformed"),
        ("/cut", 500, "malformed"),
        ("/gzip", 500, "malformed"),
        ("/stream", 57, "settled"),
    ] {
        let before = result(&gateway, label);
        assert_eq!(used.by(path), expected, "{path}");
        let more = 1 + u64::from(label == "settled");
        assert_eq!(result(&gateway, label), before + more, "{path}");
    }
    let mut head = Connection::open(gateway.address());
    assert_eq!(
        head.exchange("HEAD /json HTTP/1.1\r\nHost: a\r\n\r\n")
            .status,
        200
    );
    assert_eq!(used.after(), 500, "HEAD has no body");
    let warning = "response_json: /usage/total_tokens";
    gateway.wait_for_log(warning);
    assert_eq!(gateway.log().matches(warning).count(), 1);
}

#[test]
fn a_truncated_response_keeps_the_larger_of_the_estimate_and_the_stated_cost() {
    let origin = Origin::start(answer);
    let gateway = Gateway::start(&config(&origin, POLICY));
    let mut used = Used {
        gateway: &gateway,
        before: 10_000,
    };
    let mut client = Connection::open(gateway.address());
    client.send("GET /broken HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for("its end", || {
        (result(&gateway, "no_response") == 1).then_some(())
    });
    assert_eq!(used.after(), 500);
    let mut client = Connection::open(gateway.address());
    client.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n");
    client.receive_head();
    client.read_exactly(EVENTS.concat().len() - EVENTS[3].len());
    client.reset();
    wait_for("its end", || {
        (result(&gateway, "no_response") == 2).then_some(())
    });
    assert_eq!(used.after(), 700, "it had stated that");
    // The client leaves once it has seen the last event, as OpenAI's do.
    let mut client = Connection::open(gateway.address());
    client.send("GET /done HTTP/1.1\r\nHost: a\r\n\r\n");
    client.receive_head();
    wait_for("the last event", || {
        (result(&gateway, "settled") == 3).then_some(())
    });
    assert_eq!(used.after(), 57);
    client.reset();
}

#[test]
fn scanning_delays_no_byte_of_a_body() {
    let origin = Origin::start(|_| {
        let mut steps = raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
        for event in EVENTS {
            steps.extend(raw(event));
            steps.push(Step::Pause(Duration::from_millis(50)));
        }
        steps.push(Step::Hang);
        steps
    });
    let gateway = Gateway::start(&config(&origin, POLICY));
    let mut client = Connection::open(gateway.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.receive_head();
    // The stream never ends, and all of it is there.
    for event in EVENTS {
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        assert_eq!(client.read_exactly(chunk.len()), chunk.as_bytes());
    }
    assert_eq!(result(&gateway, "settled"), 1);
}

#[test]
fn the_upstream_is_asked_for_an_encoding_that_can_be_scanned() {
    let origin = Origin::start(answer);
    let fields = "Accept-Encoding: gzip, br\r\nTE: gzip\r\nConnection: te\r\n";
    for (cost, coding, te) in [
        ("response_json: /usage/total_tokens", "identity", None),
        (
            "response_trailer: x-tokens-used",
            "gzip, br",
            Some("trailers"),
        ),
        ("response_header: x-tokens-used", "gzip, br", None),
    ] {
        origin.forget();
        let policy = format!("quota: 1000/1h, cost: {{ {cost}, max: 100 }}");
        let gateway = Gateway::start(&config(&origin, &policy));
        assert_eq!(get_with(gateway.address(), "/json", fields).status, 200);
        let request = origin.only_request();
        assert_eq!(request.header("accept-encoding"), Some(coding), "{cost}");
        assert_eq!(request.header("te"), te, "{cost}");
        let is_named = request
            .header("connection")
            .is_some_and(|options| options.contains("te"));
        assert_eq!(is_named, te.is_some(), "{cost}");
        // Also if it may become a WebSocket, and doesn't.
        origin.forget();
        let upgrade = format!("{}, upgrade\r\nUpgrade: websocket\r\n", fields.trim_end());
        assert_eq!(get_with(gateway.address(), "/json", &upgrade).status, 200);
        let request = origin.only_request();
        assert_eq!(request.header("accept-encoding"), Some(coding), "{cost}");
    }
}

/// A client that leaves before the end pays at least what requests without an estimate reserve.
#[test]
fn a_low_estimate_gains_nothing_for_a_client_that_leaves() {
    let origin = Origin::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        [raw(&format!("{head}8\r\ndata: {{}}\r\n")), vec![Step::Hang]].concat()
    });
    let cost = "response_json: /usage/total_tokens, reserve: { header: x-estimate, default: 50 }";
    let policy = format!("quota: 100/300d, cost: {{ {cost}, max: 1000 }}");
    let gateway = Gateway::start(&config(&origin, &policy));
    let ask = || {
        let mut client = Connection::open(gateway.address());
        client.send("GET / HTTP/1.1\r\nHost: a\r\nx-estimate: 1\r\n\r\n");
        let status = client.receive_head().status;
        client.reset();
        status
    };
    for left in 1..=2 {
        assert_eq!(ask(), 200);
        wait_for("the settlement", || {
            (result(&gateway, "no_response") == left).then_some(())
        });
    }
    assert_eq!(ask(), 429);
}

#[test]
fn trailers_state_the_cost() {
    let origin = Origin::start(answer);
    let gateway = Gateway::start(&config(
        &origin,
        "quota: 10000/300d, cost: { response_trailer: x-tokens-used, reserve: 500, max: 1000 }",
    ));
    let answer = get(gateway.address(), "/trailer");
    assert_eq!(
        (answer.text().as_str(), answer.trailer("x-tokens-used")),
        ("ab", Some("57"))
    );
    assert_eq!(left(&answer), 9500);
    assert_eq!(left(&get(gateway.address(), "/untrailed")), 9443);
    assert_eq!(left(&get(gateway.address(), "/json")), 8943);
    wait_for("both", || (result(&gateway, "missing") == 2).then_some(()));
    let output =
        crate::support::client::curl(&["--http2-prior-knowledge", &gateway.url("/trailer")]);
    assert_eq!(output.stdout, "ab", "{output}");
    wait_for("the settlement", || {
        (result(&gateway, "settled") == 2).then_some(())
    });
    assert_eq!(
        left(&get(gateway.address(), "/json")),
        10_000 - 57 - 500 - 500 - 57 - 500
    );
}

#[test]
fn the_request_states_its_estimate_within_bounds() {
    let origin = Origin::start(answer);
    let gateway = Gateway::start(&config(
        &origin,
        "key: constant, quota: 10000/300d, cost: { response_json: /usage/total_tokens, max: 1000,
             reserve: { header: x-estimate, default: 300, max: 400 } }",
    ));
    let left = |estimate: &str| left(&get_with(gateway.address(), "/json", estimate));
    let mut whole = 10_000;
    for (estimate, reserved) in [
        ("", 300),
        ("x-estimate: 20\r\n", 20),
        ("x-estimate: 0\r\n", 1),
        ("x-estimate: 401\r\n", 400),
    ] {
        assert_eq!(left(estimate), whole - reserved, "{estimate}");
        whole -= 57;
    }
    let refused = get_with(gateway.address(), "/json", "x-estimate: many\r\n");
    assert_eq!(refused.status, 400);
    assert_eq!(left(""), whole - 300);
}

#[test]
fn several_stated_costs_are_added() {
    let origin = Origin::start(answer);
    let gateway = Gateway::start(&config(
        &origin,
        "quota: 10000/300d, cost: { response_json: [/usage/prompt_tokens, /usage/total_tokens, /usage/x], max: 1000 }",
    ));
    assert_eq!(left(&get(gateway.address(), "/stream")), 9999);
    assert_eq!(left(&get(gateway.address(), "/json")), 10_000 - 77 - 1);
    assert_eq!(left(&get(gateway.address(), "/json")), 10_000 - 77 - 57 - 1);
}

fn lines(gateway: &Gateway, count: usize) -> String {
    let path = gateway.dir().join("access.log");
    wait_for("the access log", || {
        let text = std::fs::read_to_string(&path).ok()?;
        let mut lines: Vec<&str> = text.lines().collect();
        // Each worker writes its own.
        lines.sort_unstable();
        (lines.len() >= count).then(|| lines.join("\n") + "\n")
    })
}

#[test]
fn the_access_log_has_the_stated_cost_and_replay_charges_it() {
    let origin = Origin::start(answer);
    let config = config(&origin, POLICY);
    let gateway = Gateway::start(&config);
    let paths = ["/json", "/none", "/stream", "/html", "/json"];
    let live: Vec<_> = paths
        .map(|path| left(&get(gateway.address(), path)))
        .to_vec();
    assert_eq!(live, [9500, 9443, 8943, 8886, 8386]);
    let log = lines(&gateway, paths.len());
    let stated: Vec<_> = log
        .lines()
        .map(|line| line.contains(",\"costs\":{\"p\":57},"))
        .collect();
    assert_eq!(stated, [true, false, true, false, true]);
    let config = config.replace("access_log", "x-access_log");
    let config = config.split_once('\n').expect("a line").1.to_owned();
    let remaining = |config: &str| -> Vec<u64> {
        let decisions = Replay::new(config, log.clone()).decisions(&[]);
        let remaining = decisions
            .iter()
            .map(|decision| decision["remaining"].as_u64());
        remaining
            .map(|remaining| remaining.expect("a number"))
            .collect()
    };
    assert_eq!(remaining(&config), [9500, 9443, 8943, 8886, 8386]);
    let bound = config
        .replace("max: 1000", "max: 500")
        .replace("reserve: 500", "reserve: 1");
    assert_eq!(remaining(&bound), [9999, 9942, 9941, 9884, 9883]);
    let counted = config.replace("quota", "count: [500], quota");
    assert_eq!(remaining(&counted), [9500; 5], "no status counts");
}

#[test]
fn a_reload_in_the_middle_of_a_stream_loses_nothing() {
    let origin = Origin::start(|request| match request.target.as_str() {
        "/" => {
            let mut steps = raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
            steps.extend(raw(EVENTS[0]));
            steps.push(Step::Pause(Duration::from_secs(2)));
            steps.extend(raw(&EVENTS[1..].concat()));
            steps.push(Step::Close);
            steps
        }
        _ => answer(request),
    });
    let config = config(&origin, POLICY);
    let gateway = Gateway::start(&config);
    let address: SocketAddr = gateway.address();
    let mut client = Connection::open(address);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.receive_head();
    gateway.reload(&config.replace("10000/", "20000/"));
    wait_for("the settlement", || {
        (result(&gateway, "settled") == 1).then_some(())
    });
    assert_eq!(left(&get(address, "/none")), 20_000 - 57 - 500);
}
