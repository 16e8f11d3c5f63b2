//! One endpoint of three is bad: soon no request fails, with the defaults. An endpoint that is
//! ejected stays so through a reload, and comes back when it works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, get};
use crate::support::gateway::Gateway;
use crate::support::origin::{
    BlackHole, Origin, Step, answer, free_address, ok, raw, refusing_address,
};
use crate::support::{now, wait_for};
use rustix::process::Signal;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Requests a second.
const RATE: u32 = 200;

/// Connections of the clients together, where the number does not matter.
const CLIENTS: usize = 32;

fn config(endpoints: &[String], options: &str) -> String {
    format!(
        "upstreams: {{ pool: {{ endpoints: {endpoints:?}{options} }} }}
routes: [{{ upstream: pool }}]
"
    )
}

/// An answered request.
struct Answered {
    sent: Duration,
    took: Duration,
    status: u16,
}

/// Sends [`RATE`] requests a second for `seconds`.
fn load(gateway: &Gateway, seconds: u32) -> Vec<Answered> {
    load_of(CLIENTS, gateway, seconds)
}

/// Sends [`RATE`] requests a second for `seconds`, over this number of connections.
fn load_of(clients: usize, gateway: &Gateway, seconds: u32) -> Vec<Answered> {
    let (address, started) = (gateway.address(), now());
    let (next, total) = (Arc::new(AtomicUsize::new(0)), (RATE * seconds) as usize);
    let client = |_| {
        let next = Arc::clone(&next);
        thread::spawn(move || {
            let mut connection = Connection::open(address);
            let mut answered = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= total {
                    return answered;
                }
                let due = Duration::from_secs(1) / RATE * number as u32;
                thread::sleep(due.saturating_sub(started.elapsed()));
                let sent = started.elapsed();
                connection.send(GET);
                let status = match connection.try_receive() {
                    Ok(Some(response)) => response.status,
                    _ => {
                        connection = Connection::open(address);
                        0
                    }
                };
                let took = started.elapsed().saturating_sub(sent);
                answered.push(Answered { sent, took, status });
            }
        })
    };
    let clients: Vec<_> = (0..clients).map(client).collect();
    let answered = clients.into_iter().map(|client| client.join());
    answered.flat_map(|all| all.expect("a client")).collect()
}

/// Asserts that all requests that were sent after the first second got a 200, and none took as long
/// as a time-out.
#[track_caller]
fn expect_no_late_failure(bad: &str, answered: &[Answered]) {
    let late = answered
        .iter()
        .filter(|one| one.sent > Duration::from_secs(1));
    let failed: Vec<_> = late
        .filter(|one| one.status != 200)
        .map(|one| (one.sent, one.status))
        .collect();
    assert!(failed.is_empty(), "{bad}: {failed:?}");
    let longest = answered.iter().map(|one| one.took).max();
    assert!(
        longest < Some(Duration::from_secs(15)),
        "{bad}: {longest:?}"
    );
}

/// Loads three endpoints, of which `bad` is one.
fn expect_that_it_is_left_out(name: &str, bad: String) -> Gateway {
    let good = [Origin::plain(), Origin::plain()];
    let endpoints = [good[0].url(), bad, good[1].url()];
    let gateway = Gateway::start(&config(&endpoints, ""));
    expect_no_late_failure(name, &load(&gateway, 3));
    gateway
}

fn expect_that_origin_is_left_out(name: &str, steps: Vec<Step>) {
    let bad = Origin::start(move |_| steps.clone());
    let gateway = expect_that_it_is_left_out(name, bad.url());
    let label = format!("{{upstream=\"pool\",endpoint=\"{}\"}}", bad.address());
    let available = gateway.metric(&format!("sluicegate_upstream_hosts_available{label}"));
    assert_eq!(available, Some(0.0));
    gateway.wait_for_log("ejected");
}

#[test]
fn an_endpoint_that_resets_is_left_out() {
    expect_that_origin_is_left_out("reset", vec![Step::Reset]);
}

#[test]
fn an_endpoint_that_sends_garbage_is_left_out() {
    let garbage = [raw("SSH-2.0-OpenSSH_9.2\r\n"), vec![Step::Close]].concat();
    expect_that_origin_is_left_out("garbage", garbage);
}

#[test]
fn an_endpoint_that_answers_500_is_left_out() {
    expect_that_origin_is_left_out("500", answer(500, "broken"));
}

#[test]
fn an_endpoint_that_answers_503_is_left_out() {
    expect_that_origin_is_left_out("503", answer(503, "busy"));
}

#[test]
fn an_endpoint_that_hangs_is_left_out_long_before_its_time_out() {
    expect_that_origin_is_left_out("hang", vec![Step::Hang]);
}

#[test]
fn an_endpoint_that_breaks_bodies_off_is_left_out() {
    let cut = raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    expect_that_origin_is_left_out_after_seconds("cut", [cut, vec![Step::Close]].concat());
}

/// Responses that break off are counted once a second.
fn expect_that_origin_is_left_out_after_seconds(name: &str, steps: Vec<Step>) {
    let bad = Origin::start(move |_| steps.clone());
    let good = Origin::plain();
    let gateway = Gateway::start(&config(&[good.url(), bad.url()], ""));
    load(&gateway, 2);
    gateway.wait_for_log("consecutive_failures");
    let answered = load(&gateway, 1);
    assert!(answered.iter().all(|one| one.status == 200), "{name}");
}

#[test]
fn an_endpoint_that_refuses_connections_is_left_out() {
    let bad = refusing_address();
    let gateway = expect_that_it_is_left_out("refused", format!("http://{bad}"));
    let label = format!("{{upstream=\"pool\",endpoint=\"{bad}\"}}");
    let requests = gateway.metric(&format!("sluicegate_upstream_requests_total{label}"));
    assert!(
        requests.is_some_and(|requests| requests < 40.0),
        "{requests:?}"
    );
}

#[test]
fn an_endpoint_that_takes_no_connection_is_left_out() {
    let bad = BlackHole::open();
    expect_that_it_is_left_out("black hole", format!("http://{}", bad.address));
}

#[test]
fn an_endpoint_that_hangs_after_it_worked_is_left_out() {
    let hangs = Arc::new(AtomicBool::new(false));
    let is_hanging = Arc::clone(&hangs);
    let bad = Origin::start(move |_| {
        if is_hanging.load(Ordering::Relaxed) {
            vec![Step::Hang]
        } else {
            ok("ok")
        }
    });
    let good = [Origin::plain(), Origin::plain()];
    let endpoints = [good[0].url(), bad.url(), good[1].url()];
    let gateway = Gateway::start(&config(&endpoints, ""));
    assert!(load(&gateway, 1).iter().all(|one| one.status == 200));
    hangs.store(true, Ordering::Relaxed);
    let answered = load(&gateway, 3);
    assert!(answered.iter().all(|one| one.status == 200));
    expect_no_late_failure("hang", &answered);
    gateway.wait_for_log("stalled");
}

/// All of them soon wait at the endpoint.
#[test]
fn an_endpoint_that_hangs_is_found_by_few_clients() {
    for (others, clients) in [(1, 8), (2, 6), (5, 4)] {
        let bad = Origin::start(|_| vec![Step::Hang]);
        let good: Vec<_> = (0..others).map(|_| Origin::plain()).collect();
        let endpoints: Vec<_> = good.iter().chain([&bad]).map(Origin::url).collect();
        let gateway = Gateway::start(&config(&endpoints, ""));
        let answered = load_of(clients, &gateway, 2);
        assert!(answered.iter().all(|one| one.status == 200));
        expect_no_late_failure("few", &answered);
        gateway.wait_for_log("stalled");
    }
}

#[test]
fn slow_answers_of_all_endpoints_are_no_fault() {
    let slow = || Origin::start(|_| [vec![Step::Pause(Duration::from_secs(2))], ok("ok")].concat());
    let origins = [slow(), slow(), slow()];
    let gateway = Gateway::start(&config(&origins.each_ref().map(Origin::url), ""));
    assert!(load(&gateway, 1).iter().all(|one| one.status == 200));
    assert!(!gateway.log().contains("ejected"), "{}", gateway.log());
}

/// Uploads that their clients never end wait at one endpoint, which answers all else.
#[test]
fn clients_that_upload_slowly_are_no_fault_of_an_endpoint() {
    let origins = [(); 2].map(|()| Origin::start(|_| ok("ok")));
    let gateway = Gateway::start(&config(&origins.each_ref().map(Origin::url), ""));
    let mut uploads = Vec::new();
    // By turns: each upload goes to the same endpoint, and each other request to the other.
    for _ in 0..12 {
        let mut upload = Connection::open(gateway.address());
        upload.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nslow");
        thread::sleep(Duration::from_millis(30));
        uploads.push(upload);
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    thread::sleep(Duration::from_secs(2));
    assert!(!gateway.log().contains("ejected"), "{}", gateway.log());
    for mut upload in uploads {
        upload.send("whole");
        assert_eq!(upload.receive().status, 200);
    }
}

/// Downloads of clients that read nothing for so long, from two endpoints that break them off.
fn downloads_broken_off(pause: Duration) -> Gateway {
    const SENT: usize = 16 << 20;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", SENT + 1);
    let download = Step::Send([head.into_bytes(), vec![b'x'; SENT]].concat());
    let origins = [(); 2].map(|()| {
        let steps = vec![download.clone(), Step::Close];
        Origin::start(move |_| steps.clone())
    });
    let gateway = Gateway::start(&config(&origins.each_ref().map(Origin::url), ""));
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let mut client = Connection::open(gateway.address());
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            client
        })
        .collect();
    thread::sleep(pause);
    let readers = clients
        .into_iter()
        .map(|mut client| thread::spawn(move || assert!(client.try_receive().is_err())));
    for reader in readers.collect::<Vec<_>>() {
        reader.join().expect("the body breaks off at its end");
    }
    gateway
}

/// An upstream ends a response that it can't send in time, and so may look as if it had failed.
#[test]
fn clients_that_download_slowly_are_no_fault_of_an_endpoint() {
    downloads_broken_off(Duration::ZERO).wait_for_log("ejected");
    let gateway = downloads_broken_off(Duration::from_secs(2));
    thread::sleep(Duration::from_secs(2));
    assert!(!gateway.log().contains("ejected"), "{}", gateway.log());
}

#[test]
fn the_last_endpoint_is_never_left_out() {
    let bad = Origin::start(|_| answer(503, "busy"));
    let gateway = Gateway::start(&config(&[bad.url()], ""));
    for _ in 0..20 {
        assert_eq!(get(gateway.address(), "/").text(), "busy");
    }
    let worse = Origin::start(|_| answer(503, "worse"));
    gateway.reload(&config(&[bad.url(), worse.url()], ""));
    for _ in 0..20 {
        assert_eq!(get(gateway.address(), "/").status, 503);
    }
    assert_eq!(bad.requests().len() + worse.requests().len(), 40);
}

#[test]
fn no_endpoint_is_ejected_where_that_is_off() {
    let bad = Origin::start(|_| answer(503, "busy"));
    let good = Origin::plain();
    let gateway = Gateway::start(&config(&[bad.url(), good.url()], ", ejection: off"));
    for _ in 0..40 {
        get(gateway.address(), "/");
    }
    assert_eq!(bad.requests().len(), 20);
}

#[test]
fn an_endpoint_that_works_again_comes_back() {
    let fails = Arc::new(AtomicBool::new(true));
    let is_failing = Arc::clone(&fails);
    let bad = Origin::start(move |_| {
        if is_failing.load(Ordering::Relaxed) {
            vec![Step::Reset]
        } else {
            ok("back")
        }
    });
    let good = Origin::plain();
    let options = ", ejection: { for: 300ms }, slow_start: 0s";
    let gateway = Gateway::start(&config(&[bad.url(), good.url()], options));
    wait_for("the ejection", || {
        assert_eq!(get(gateway.address(), "/").status, 200);
        gateway
            .log()
            .contains("the endpoint is ejected")
            .then_some(())
    });
    fails.store(false, Ordering::Relaxed);
    wait_for("the endpoint to be back", || {
        (get(gateway.address(), "/").text() == "back").then_some(())
    });
    gateway.wait_for_log("the endpoint answers again");
    let texts: Vec<_> = (0..20)
        .map(|_| get(gateway.address(), "/").text())
        .collect();
    assert_eq!(texts.iter().filter(|text| *text == "back").count(), 10);
}

#[test]
fn an_endpoint_without_connections_is_the_last_resort() {
    let address = free_address();
    let is_good = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&is_good);
    let other = Origin::start(move |_| {
        if flag.load(Ordering::Relaxed) {
            ok("ok")
        } else {
            vec![Step::Reset]
        }
    });
    let endpoints = [format!("http://{address}"), other.url()];
    let options = ", ejection: { for: 1h, max_for: 1h }, slow_start: 0s";
    let gateway = Gateway::start(&config(&endpoints, options));
    wait_for("the ejection", || {
        assert_eq!(get(gateway.address(), "/").status, 200);
        gateway.log().contains("ejected=3600s").then_some(())
    });
    let back = Origin::plain_at(address);
    is_good.store(false, Ordering::Relaxed);
    for _ in 0..20 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    // It is in use again.
    wait_for("its share", || {
        assert_eq!(get(gateway.address(), "/").status, 200);
        (back.requests().len() > 30).then_some(())
    });
}

#[test]
fn a_response_is_better_than_the_last_resort() {
    let failing = Origin::start(|_| answer(503, "sorry"));
    let endpoints = [format!("http://{}", refusing_address()), failing.url()];
    let options = ", retries: { retry_on: [connect_failure, \"503\"] }";
    let gateway = Gateway::start(&config(&endpoints, options));
    for _ in 0..20 {
        let response = get(gateway.address(), "/");
        assert_eq!((response.status, response.text().as_str()), (503, "sorry"));
    }
}

#[test]
fn an_ejection_outlives_a_reload() {
    let bad = Origin::start(|_| vec![Step::Reset]);
    let good = Origin::plain();
    let endpoints = [bad.url(), good.url()];
    let gateway = Gateway::start(&config(&endpoints, ", ejection: { for: 1h, max_for: 1h }"));
    wait_for("the ejection", || {
        get(gateway.address(), "/");
        gateway
            .log()
            .contains("the endpoint is ejected")
            .then_some(())
    });
    let before = bad.requests().len();
    gateway.reload(&config(&endpoints, ", ejection: { for: 50m, max_for: 2h }"));
    for _ in 0..20 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    assert_eq!(bad.requests().len(), before);
}

/// Requests wait at an endpoint that hangs when the process is told to end.
#[test]
fn a_stalled_endpoint_is_left_while_the_process_drains() {
    let hangs = Arc::new(AtomicBool::new(false));
    let is_hanging = Arc::clone(&hangs);
    let bad = Origin::start(move |_| {
        if is_hanging.load(Ordering::Relaxed) {
            vec![Step::Hang]
        } else {
            ok("ok")
        }
    });
    let good = Origin::plain();
    let config = config(&[good.url(), bad.url()], "");
    let gateway = Gateway::start(&format!("shutdown: {{ delay: 1m }}\n{config}"));
    load(&gateway, 1);
    hangs.store(true, Ordering::Relaxed);
    let before = bad.requests().len();
    let answered = thread::scope(|scope| {
        let loaded = scope.spawn(|| load(&gateway, 2));
        wait_for("requests", || {
            (bad.requests().len() > before + 5).then_some(())
        });
        gateway.signal(Signal::TERM);
        loaded.join().expect("a load")
    });
    assert!(answered.iter().all(|one| one.status == 200));
    gateway.wait_for_log("stalled");
}
