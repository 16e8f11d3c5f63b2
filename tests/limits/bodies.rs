//! Limits that read the body of a request: when it is read, and how it is forwarded.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, Response, curl};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, ok, refusing_address};
use crate::support::redis::RedisServer;
use crate::support::wait_for;

const HELD: &str = "sluicegate_request_body_held_bytes";

/// A limit of one request an hour, by these options, on a route that reads 1 KiB.
fn limited(upstream: &str, limit: &str) -> String {
    format!(
        "routes: [{{ upstream: \"{upstream}\", request: {{ read_body: 1KiB }}, limits: [{{ quota: 1/1h, {limit} }}] }}]\n"
    )
}

pub(crate) fn post(address: SocketAddr, headers: &str, body: impl AsRef<[u8]>) -> Response {
    let (body, mut connection) = (body.as_ref(), Connection::open(address));
    let length = body.len();
    connection.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\n{headers}Content-Length: {length}\r\n\r\n"
    ));
    connection.send(body);
    connection.receive()
}

#[test]
fn a_field_of_a_json_body_is_a_key_and_the_body_passes_as_it_is() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&limited(&origin.url(), "key: body:/user/name"));
    let body = "{ \"user\" : {\"n\\u0061me\": \"ann\", \"n\": 1.50}}\n";
    assert_eq!(post(gateway.address(), "", body).status, 200);
    let request = origin.only_request();
    assert_eq!(request.body, body.as_bytes());
    assert_eq!(
        request.header("content-length"),
        Some(&*body.len().to_string())
    );
    assert_eq!(request.header("transfer-encoding"), None);
    assert_eq!(
        post(gateway.address(), "", r#"{"user":{"name":"ann"}}"#).status,
        429
    );
    assert_eq!(
        post(gateway.address(), "", r#"{"user":{"name":"bob"}}"#).status,
        200
    );
    let twice = post(
        gateway.address(),
        "",
        r#"{"user":{"name":"eve","name":"ann"}}"#,
    );
    assert_eq!(twice.status, 400);
    assert!(twice.text().contains("body:/user/name"), "{}", twice.text());
    // The address stands in.
    assert_eq!(post(gateway.address(), "", "{}").status, 200);
    assert_eq!(post(gateway.address(), "", "").status, 429);
    assert_eq!(gateway.metric(HELD), Some(0.0));
}

#[test]
fn chunks_and_trailers_pass() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&limited(&origin.url(), "key: body:/a"));
    let mut connection = Connection::open(gateway.address());
    connection.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n4\r\n{\"a\"\r\n");
    thread::sleep(Duration::from_millis(50));
    connection.send("3\r\n:1}\r\n0\r\nx-sum: 7\r\n\r\n");
    assert_eq!(connection.receive().status, 200);
    let request = origin.only_request();
    assert_eq!(request.body, b"{\"a\":1}");
    assert_eq!(request.header("transfer-encoding"), Some("chunked"));
    assert_eq!(request.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    assert_eq!(post(gateway.address(), "", r#"{"a":1}"#).status, 429);
}

#[test]
fn a_body_over_http2_is_read() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&limited(&origin.url(), "key: body:/a"));
    let send = |body: &str| {
        let url = gateway.url("/");
        let options = [
            "--http2-prior-knowledge",
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-d",
            body,
            &url,
        ];
        curl(&options).stdout
    };
    assert_eq!(send(r#"{"a":"x"}"#), "200");
    assert_eq!(send(r#"{"a":"x"}"#), "429");
    assert_eq!(origin.only_request().body, br#"{"a":"x"}"#);
}

#[test]
fn a_longer_body_is_missing_meets_conditions_and_costs_the_most() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&format!(
        "routes:
  - upstream: \"{}\"
    request: {{ read_body: 1KiB }}
    limits:
      - {{ name: costly, key: constant, quota: 20/1h, cost: {{ body: /max_tokens, default: 2, max: 10 }} }}
      - {{ name: model, key: constant, quota: 2/1h, when: {{ body: {{ /model: {{ prefix: gpt- }} }} }} }}
",
        origin.url()
    ));
    let left = |response: &Response| response.expect_header("ratelimit").to_owned();
    let long = format!(
        "{{\"model\":\"small\",\"max_tokens\":1}}{}",
        " ".repeat(2_000)
    );
    let first = post(gateway.address(), "", &long);
    assert_eq!(first.status, 200);
    assert_eq!(origin.only_request().body, long.as_bytes());
    assert!(left(&first).contains("\"costly\";r=10"), "{}", left(&first));
    assert!(left(&first).contains("\"model\";r=1"), "{}", left(&first));
    let other = post(gateway.address(), "", r#"{"model":"small"}"#);
    assert!(left(&other).contains("\"costly\";r=8") && !left(&other).contains("model"));
    let stated = post(
        gateway.address(),
        "",
        r#"{"model":"gpt-5","max_tokens":5.0}"#,
    );
    assert!(
        left(&stated).contains("\"costly\";r=3"),
        "{}",
        left(&stated)
    );
    assert_eq!(
        post(gateway.address(), "", r#"{"max_tokens":"many"}"#).status,
        400
    );
}

#[test]
fn a_request_that_its_head_has_refused_sends_no_body() {
    let origin = Origin::plain();
    let redis = RedisServer::start();
    for store in ["memory", "redis"] {
        let gateway = Gateway::start(&format!(
            "store: {{ redis: {{ url: {} }} }}
routes:
  - upstream: \"{}\"
    request: {{ read_body: 1KiB }}
    limits:
      - {{ name: all, key: client_ip, quota: 1/1h, store: {store} }}
      - {{ name: model, key: body:/model, quota: 100/1h }}
",
            redis.url(),
            origin.url()
        ));
        assert_eq!(post(gateway.address(), "", r#"{"model":"a"}"#).status, 200);
        for field in ["", "Expect: 100-continue\r\n"] {
            let mut connection = Connection::open(gateway.address());
            connection.send(format!(
                "POST / HTTP/1.1\r\nHost: a\r\n{field}Content-Length: 9\r\n\r\n"
            ));
            let refused = connection.receive();
            assert_eq!(refused.status, 429, "{store}");
            assert_eq!(refused.informational, [0_u16; 0]);
        }
        assert_eq!(origin.requests().len(), 1, "{store}");
        origin.forget();
    }
}

#[test]
fn access_decides_before_the_body() {
    let gateway = Gateway::start(
        "routes: [{ upstream: echo, access: { deny: [{ header: { x-bad: '1' } }] }, request: { read_body: 1KiB },
          limits: [{ key: body:/a, quota: 1/1h }] }]\n",
    );
    let mut connection = Connection::open(gateway.address());
    connection.send("POST / HTTP/1.1\r\nHost: a\r\nx-bad: 1\r\nContent-Length: 9\r\n\r\n");
    assert_eq!(connection.receive().status, 403);
}

#[test]
fn a_client_that_expects_to_be_asked_is_asked_for_the_body() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&limited(&origin.url(), "key: body:/a"));
    let mut connection = Connection::open(gateway.address());
    connection
        .send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n");
    let asked = connection.read_exactly(25);
    assert_eq!(asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    connection.send(r#"{"a":"x"}"#);
    assert_eq!(connection.receive().status, 200);
    assert_eq!(origin.only_request().header("expect"), None);
}

#[test]
fn a_client_that_sends_too_slowly_too_much_or_leaves_frees_what_is_held() {
    let origin = Origin::plain();
    let config = limited(&origin.url(), "key: body:/a");
    let gateway = Gateway::start(&format!(
        "client: {{ timeouts: {{ body: 300ms }}, max_body: 2KiB }}\n{config}"
    ));
    let mut connection = Connection::open(gateway.address());
    connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n{\"a\":");
    wait_for("held bytes", || {
        (gateway.metric(HELD) > Some(0.0)).then_some(())
    });
    assert_eq!(connection.receive().status, 408);
    let mut large = Connection::open(gateway.address());
    large.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    large.send(format!("c00\r\n{}\r\n0\r\n\r\n", "x".repeat(0xc00)));
    assert_eq!(large.receive().status, 413);
    let mut leaving = Connection::open(gateway.address());
    leaving.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n{\"a\":");
    wait_for("held bytes", || {
        (gateway.metric(HELD) > Some(0.0)).then_some(())
    });
    leaving.reset();
    wait_for("no held bytes", || {
        (gateway.metric(HELD) == Some(0.0)).then_some(())
    });
    assert_eq!(origin.requests().len(), 0);
}

#[test]
fn bodies_that_are_held_have_a_bound_and_no_client_takes_all_of_it() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&format!(
        "client: {{ max_held_bodies: 1MiB }}
client_ip: {{ trusted_proxies: [127.0.0.0/8] }}
routes: [{{ upstream: \"{}\", request: {{ read_body: 1MiB }}, limits: [{{ key: body:/a, quota: 10/1h }}] }}]\n",
        origin.url()
    ));
    let mut holding = Connection::open(gateway.address());
    const GREEDY: &str = "X-Forwarded-For: 192.0.2.1\r\n";
    holding.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\n{GREEDY}Content-Length: 600001\r\n\r\n{}",
        " ".repeat(600_000)
    ));
    wait_for("held bytes", || {
        (gateway.metric(HELD) >= Some(600_000.0)).then_some(())
    });
    for size in [300_000, 600_000] {
        let refused = post(gateway.address(), GREEDY, " ".repeat(size));
        assert_eq!(refused.status, 503);
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    let other = "X-Forwarded-For: 192.0.2.2\r\n";
    for headers in [GREEDY, other] {
        assert_eq!(post(gateway.address(), headers, r#"{"a":1}"#).status, 200);
    }
    let body = format!("{{\"a\":{}1}}", " ".repeat(300_000));
    assert_eq!(post(gateway.address(), other, body).status, 200);
    holding.send(" ");
    assert_eq!(holding.receive().status, 200);
    wait_for("no held bytes", || {
        (gateway.metric(HELD) == Some(0.0)).then_some(())
    });
}

#[test]
fn a_body_that_was_read_is_sent_again() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&format!(
        "upstreams: {{ pool: {{ endpoints: [\"http://{}\", \"{}\"], retries: {{ attempts: 2 }} }} }}\n{}",
        refusing_address(),
        origin.url(),
        limited("pool", "key: body:/a")
    ));
    for number in 0..6 {
        let body = format!("{{\"a\":{number}}}");
        let mut connection = Connection::open(gateway.address());
        let length = body.len();
        connection.send(format!(
            "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        assert_eq!(connection.receive().status, 200);
    }
    let bodies: Vec<_> = origin.requests().into_iter().map(|one| one.body).collect();
    assert_eq!(bodies.len(), 6);
    assert!(
        bodies
            .iter()
            .enumerate()
            .all(|(number, body)| *body == format!("{{\"a\":{number}}}").as_bytes())
    );
    wait_for("no held bytes", || {
        (gateway.metric(HELD) == Some(0.0)).then_some(())
    });
}

#[test]
fn a_json_body_is_changed_and_other_bodies_pass() {
    let origin = Origin::start(|_| ok("ok"));
    let gateway = Gateway::start(&format!(
        "routes: [{{ upstream: \"{}\", request: {{ read_body: 1KiB, set_body: {{ /options/usage: true, /model: small, /n: '[1]' }} }} }}]\n",
        origin.url()
    ));
    let sent = |headers: &str, body: &str| {
        origin.forget();
        assert_eq!(post(gateway.address(), headers, body).status, 200, "{body}");
        let request = origin.only_request();
        assert_eq!(
            request.header("content-length"),
            Some(&*request.body.len().to_string())
        );
        assert_eq!(request.header("content-digest"), None);
        String::from_utf8(request.body).expect("a text")
    };
    assert_eq!(
        sent(
            "Content-Digest: sha-256=:x:\r\n",
            r#"{"temp": 1.50, "model" :"large","options":{"x":1e9},"z":"é"}"#
        ),
        r#"{"temp": 1.50, "model" :"small","options":{"x":1e9,"usage":true},"z":"é","n":[1]}"#
    );
    assert_eq!(
        sent("", "{}"),
        r#"{"model":"small","n":[1],"options":{"usage":true}}"#
    );
    assert_eq!(
        sent("", r#"{"options":null,"n":[2],"model":{}}"#),
        r#"{"options":{"usage":true},"n":[1],"model":"small"}"#
    );
    for other in ["[1]", "a=b", "", "7"] {
        assert_eq!(sent("", other), other);
    }
    for unclear in [
        r#"{"model":1,"Model":2}"#,
        r#"{"model":1,"model":2}"#,
        r#"{"a":1,}"#,
        "{\"options\":{}} x",
    ] {
        assert_eq!(
            post(gateway.address(), "", unclear).status,
            400,
            "{unclear}"
        );
    }
    assert_eq!(
        post(gateway.address(), "Content-Encoding: gzip\r\n", "{}").status,
        400
    );
    assert_eq!(post(gateway.address(), "", " ".repeat(2_000)).status, 413);
}

#[test]
fn a_login_is_limited_by_address_and_account() {
    let gateway = Gateway::start(
        "policies:
  account: { key: form:user, quota: 2/1h, on_missing_key: client_ip }
  operation: { key: constant, quota: 1/1h, when: { body: { graphql: { prefix: mutation } } } }
routes: [{ upstream: echo, request: { read_body: 64KiB }, limits: [account, operation] }]\n",
    );
    const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";
    let multipart = "--b\r\nContent-Disposition: form-data; name=\"user\"\r\n\r\nann\r\n--b--\r\n";
    assert_eq!(
        post(gateway.address(), FORM, "user=ann&password=1").status,
        200
    );
    assert_eq!(
        post(
            gateway.address(),
            "Content-Type: multipart/form-data; boundary=b\r\n",
            multipart
        )
        .status,
        200
    );
    assert_eq!(
        post(gateway.address(), FORM, "us%65r=%61nn&password=2").status,
        429
    );
    assert_eq!(
        post(gateway.address(), FORM, "user=bob&user=ann").status,
        400
    );
    assert_eq!(post(gateway.address(), FORM, "user=bob").status, 200);
    let graphql = r#"{"query":"mutation Login { login { id } }"}"#;
    assert_eq!(post(gateway.address(), "", graphql).status, 200);
    assert_eq!(post(gateway.address(), "", graphql).status, 429);
}

#[test]
fn a_limit_in_shadow_refuses_no_odd_body() {
    let gateway = Gateway::start(
        "routes: [{ upstream: echo, request: { read_body: 1KiB }, limits: [{ key: body:/a, quota: 1/1h, mode: shadow }] }]\n",
    );
    assert_eq!(post(gateway.address(), "", r#"{"a":1,"a":2}"#).status, 200);
}
