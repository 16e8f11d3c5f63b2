//! `/v1/live` and `/v1/events`: what readers get, and their bounds.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::admin::{AdminClient, READER, TOKENS, problem};
use crate::support::client::{get, get_with};
use crate::support::gateway::Gateway;
use crate::support::{DEADLINE, wait_for};

const CONFIG: &str = "shutdown: { delay: 0s }
policies:
  per-key: { key: \"header:x-key\", quota: 1/300d, penalty: { strikes: 3, within: 1h, for: [1h] } }
upstreams:
  dead: { endpoints: [\"http://127.0.0.1:9\", \"http://127.0.0.1:10\"] }
routes:
  - { match: { path: /dead }, upstream: dead }
  - { name: rest, upstream: echo, limits: [per-key] }
";

fn start() -> Gateway {
    Gateway::start(&format!("{TOKENS}{CONFIG}"))
}

/// A reader of a stream: the name of each event, and its data.
struct Reader {
    events: Receiver<(String, Value)>,
    /// Open as long as the reader.
    stream: TcpStream,
}

impl Reader {
    /// Opens a stream, and waits until it has begun.
    fn open(gateway: &Gateway, path: &str) -> Self {
        let mut stream = TcpStream::connect(gateway.admin).expect("it listens");
        stream
            .set_read_timeout(Some(DEADLINE))
            .expect("a deadline is set");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {READER}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut lines = BufReader::new(stream.try_clone().expect("a handle")).lines();
        let status = lines.next().expect("a line").expect("an answer");
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(lines.any(|line| line.is_ok_and(|line| line.starts_with("retry: "))));
        let (found, events) = channel();
        thread::spawn(move || {
            let mut name = String::new();
            for line in lines.map_while(Result::ok) {
                if let Some(event) = line.strip_prefix("event: ") {
                    name = event.to_owned();
                } else if let Some(data) = line.strip_prefix("data: ") {
                    let data = serde_json::from_str(data).expect("JSON");
                    if found.send((std::mem::take(&mut name), data)).is_err() {
                        return;
                    }
                }
            }
        });
        Self { events, stream }
    }

    /// The next event that passes, while `cause` has it happen again and again.
    fn wait_for(&self, name: &str, cause: impl Fn(), passes: impl Fn(&Value) -> bool) -> Value {
        wait_for(name, || {
            cause();
            let mut new = self.events.try_iter();
            let found = new.find(|(event, data)| event == name && passes(data));
            found.map(|(_, data)| data)
        })
    }

    /// Waits until the stream has ended.
    fn wait_for_end(&self) {
        wait_for("the end of the stream", || {
            let end = self.events.try_recv();
            matches!(end, Err(std::sync::mpsc::TryRecvError::Disconnected)).then_some(())
        });
    }
}

fn refused(gateway: &Gateway) {
    get_with(gateway.address(), "/", "x-key: alice\r\n");
}

#[test]
fn live_figures_come_once_a_second() {
    let gateway = start();
    let reader = Reader::open(&gateway, "/v1/live");
    let busy = reader.wait_for(
        "",
        || refused(&gateway),
        |figures| figures["decisions"]["limited"].as_f64() > Some(0.0),
    );
    assert!(busy["requests_per_s"].as_f64() > Some(0.0), "{busy:#}");
    assert_eq!(busy["policies"][0]["name"], "per-key");
    assert_eq!(busy["policies"][0]["limited"], busy["decisions"]["limited"]);
    assert!(busy["latency"]["p99_ms"].as_f64() > Some(0.0), "{busy:#}");
    assert_eq!(busy["problems"], json!([]));
    let idle = reader.wait_for("", || {}, |figures| figures["requests_per_s"] == 0.0);
    assert_eq!(idle["policies"], json!([]));
    assert_eq!(idle["policies_omitted"], 0);
}

#[test]
fn events_tell_of_refusals_bans_reloads_ejections_and_changes() {
    let gateway = start();
    let reader = Reader::open(&gateway, "/v1/events");
    let refusal = reader.wait_for("refusal", || refused(&gateway), |_| true);
    assert_eq!(refusal["policy"], "per-key");
    assert_eq!(refusal["route"], "rest");
    let id = refusal["key_id"].as_str().expect("a key");
    assert!(id.starts_with("k_"), "{refusal}");
    assert!(refusal["retry_after_s"].as_f64() > Some(0.0));

    let strikes = std::sync::atomic::AtomicUsize::new(0);
    let strike = || {
        let number = strikes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        get_with(
            gateway.address(),
            "/",
            &format!("x-key: {}\r\n", number / 4),
        );
    };
    let ban = reader.wait_for("ban", strike, |_| true);
    assert_eq!(ban["policy"], "per-key");
    reader.wait_for("refusal", strike, |event| event["banned"] == false);
    let refused_often = || refused(&gateway);
    reader.wait_for("refusal", refused_often, |event| event["banned"] == true);

    let dead = || {
        get(gateway.address(), "/dead");
    };
    // Both endpoints refuse connections: none is ejected while no other works.
    let ejection = reader.wait_for("ejection", dead, |event| event["state"] == "failing");
    assert_eq!(ejection["upstream"], "dead");
    assert!(ejection["reason"].is_string(), "{ejection}");

    let client = AdminClient::writer(&gateway);
    let body = json!({ "policy": "per-key", "key": "alice", "reason": "a try" });
    client.post("/v1/keys/reset", &body);
    let change = reader.wait_for("change", || {}, |_| true);
    assert_eq!(
        (&change["action"], &change["result"]),
        (&json!("reset"), &json!("applied"))
    );
    assert_eq!(
        (&change["key_id"], &change["actor"]),
        (&json!(id), &json!("write#1"))
    );

    assert_eq!(
        (&change["units"], &change["path"]),
        (&json!(null), &json!(null))
    );
    let body = json!({ "policy": "per-key", "key": "alice", "for": "15m" });
    client.post("/v1/keys/ban", &body);
    let change = reader.wait_for("change", || {}, |_| true);
    assert_eq!(change["for_s"], 900.0);
    assert!(change["until"].is_string(), "{change}");
    client.post("/v1/keys/ban", &json!({ "policy": "per-key" }));
    let change = reader.wait_for("change", || {}, |_| true);
    assert_eq!(change["path"], "/v1/keys/ban");
    assert_eq!(change["result"], "400 Bad Request");

    gateway.replace_config("routes: [{ upstream: nowhere }]\n");
    let reload = reader.wait_for("reload", || {}, |_| true);
    assert_eq!(reload["result"], "failed");
    assert!(!reload["error"].as_str().expect("a text").is_empty());
}

#[test]
fn readers_are_bounded_and_hurt_nobody() {
    // A quarter of all places is the most for one address.
    const MOST: usize = 16;
    let gateway = start();
    let mut readers: Vec<_> = (0..MOST)
        .map(|number| {
            let path = ["/v1/live", "/v1/events"][number % 2];
            Reader::open(&gateway, path)
        })
        .collect();
    let client = AdminClient::new(&gateway, READER);
    for _ in 0..100 {
        let detail = problem(&client.get("/v1/live"), 503);
        assert!(
            detail.contains("16 callers read streams from this address"),
            "{detail}"
        );
    }
    assert_eq!(get(gateway.admin, "/livez").status, 200);
    assert_eq!(get_with(gateway.address(), "/", "x-key: a\r\n").status, 200);
    // The past alone takes no place.
    let past = AdminClient::new(&gateway, READER).get("/v1/events?seconds=0&past=60");
    assert_eq!(past.status, 200);
    let last = readers.pop().expect("a reader");
    last.stream
        .shutdown(std::net::Shutdown::Both)
        .expect("it is open");
    // The server finds out with its next message.
    wait_for("a free place", || {
        let mut stream = TcpStream::connect(gateway.admin).ok()?;
        let request = format!(
            "GET /v1/live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {READER}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut status = String::new();
        BufReader::new(stream).read_line(&mut status).ok()?;
        status.contains("200").then_some(())
    });
    // Open streams do not delay the end.
    gateway.signal(Signal::TERM);
    readers.iter().for_each(Reader::wait_for_end);
}

#[test]
fn a_stream_ends_after_the_seconds_that_its_reader_names() {
    let gateway = start();
    let client = AdminClient::new(&gateway, READER);
    // The response is read up to its end.
    let live = client.get("/v1/live?seconds=8");
    assert_eq!(live.status, 200);
    assert_eq!(live.header("content-type"), Some("text/event-stream"));
    assert!(live.text().contains("\ndata: {"), "{}", live.text());
    assert_eq!(client.get("/v1/events?seconds=1").status, 200);
    let bounds = "`seconds` is a number from";
    for (query, wanted) in [
        ("live?seconds=0", bounds),
        ("events?seconds=3601", bounds),
        ("events?seconds=5&seconds=6", "`seconds` is given twice"),
        ("events?for=5s", "unknown parameter `for`"),
    ] {
        let detail = problem(&client.get(&format!("/v1/{query}")), 400);
        assert!(detail.contains(wanted), "{detail}");
    }
}

#[test]
fn a_stream_ends_with_its_token() {
    let gateway = start();
    let reader = Reader::open(&gateway, "/v1/events");
    reader.wait_for("refusal", || refused(&gateway), |_| true);
    gateway.reload(&format!("{TOKENS}{CONFIG}").replace("reader-", "former-"));
    reader.wait_for_end();
    problem(&AdminClient::new(&gateway, READER).get("/v1/events"), 401);
}

#[test]
fn events_of_the_past_hour_are_kept_while_nobody_reads() {
    let gateway = start();
    let writer = AdminClient::writer(&gateway);
    let body = json!({ "policy": "per-key", "key": "bob", "for": "1h" });
    let send = |more: Value| {
        let mut body = body.clone();
        body["dry_run"] = more;
        writer.post("/v1/keys/ban", &body).status
    };
    assert_eq!(
        [send(json!(false)), send(json!(true)), send(json!("x"))],
        [200, 200, 400]
    );
    (0..5).for_each(|_| refused(&gateway));
    gateway.replace_config("unknown: key\n");
    gateway.signal(Signal::HUP);
    gateway.wait_for_log("the configuration is not reloaded");
    let past = |query: &str| {
        let answer =
            AdminClient::new(&gateway, READER).get(&format!("/v1/events?seconds=1{query}"));
        let text = answer.text();
        let names = text.lines().filter_map(|line| line.strip_prefix("event: "));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut all = wait_for("the events", || {
        let found = past("&past=3600");
        (found.len() == 3).then_some(found)
    });
    all.sort();
    assert_eq!(
        all,
        ["ban", "change", "reload"],
        "no refusal, and no dry run"
    );
    assert_eq!(past(""), [""; 0]);
    for wrong in ["past=0", "past=3601", "past=1h"] {
        problem(
            &AdminClient::new(&gateway, READER).get(&format!("/v1/events?{wrong}")),
            400,
        );
    }
    problem(
        &AdminClient::new(&gateway, READER).get("/v1/live?past=5"),
        400,
    );
}

#[test]
fn bans_and_changes_name_keys_only_while_keys_are_readable() {
    let readable = TOKENS.replace("admin: {", "admin: { keys: readable,");
    let gateway = Gateway::start(&format!("{readable}{CONFIG}"));
    (0..5).for_each(|_| refused(&gateway));
    let body = json!({ "policy": "per-key", "key": "bob-7", "for": "1h" });
    AdminClient::writer(&gateway).post("/v1/keys/ban", &body);
    let past = || {
        let client = AdminClient::new(&gateway, READER);
        client.get("/v1/events?seconds=0&past=3600").text()
    };
    let ban = wait_for("the ban", || {
        Some(past()).filter(|past| past.contains("event: ban"))
    });
    let owner = "\"key\":\"alice\",\"client\":null,\"address\":\"127.0.0.1\"";
    assert!(
        ban.contains(owner) && ban.contains("\"key\":\"bob-7\""),
        "{ban}"
    );
    gateway.reload(&format!("{TOKENS}{CONFIG}"));
    wait_for("the texts to be forgotten", || {
        let past = past();
        (!past.contains("alice") && !past.contains("bob-7")).then_some(())
    });
    assert!(!gateway.log().contains("bob-7"));
}
