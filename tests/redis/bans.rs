//! Bans that several real proxies share through one redis-server, which may be gone for a while, or
//! empty again.

use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, get_with};
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::redis::command;
use crate::support::shared::{ask, proxies, retry_after, store, wait_up};
use crate::support::slow::Slow;
use crate::support::{now, wait_for};
use rustix::process::Signal;

/// More than a round, with the delays of a busy machine: for what must not happen.
const ROUNDS: Duration = Duration::from_secs(2);

/// A policy that admits one request, with this penalty and these further keys.
fn config(penalty: &str, more: &str) -> String {
    format!(
        "policies:
  keys: {{ key: header:x-key, quota: 1/1h, store: redis, penalty: {penalty}, {more} }}
routes: [{{ upstream: echo, limits: [keys] }}]
"
    )
}

/// Sends requests until one is refused, and returns the seconds of its ban: 0 if they are no more
/// than the quota's.
fn refused_at(gateway: &Gateway, path: &str) -> u64 {
    let mut answers = (0..3).map(|_| ask(gateway, path));
    let refused = answers.find(|answer| answer.status == 429);
    let seconds =
        retry_after(&refused.expect("one request is admitted, or two while nobody knows of it"));
    if seconds > 3_600 { seconds } else { 0 }
}

fn refused(gateway: &Gateway) -> u64 {
    refused_at(gateway, "/")
}

/// The keys that `gateway` knows to be banned.
fn banned(gateway: &Gateway) -> u64 {
    let series = "sluicegate_limit_banned_keys{policy=\"keys\",by=\"penalty\"}";
    gateway.metric(series).unwrap_or_default() as u64
}

/// Waits until `gateway` has read a ban, without a strike of its own; returns the seconds left.
fn heard(gateway: &Gateway) -> u64 {
    wait_for("the ban", || (banned(gateway) > 0).then_some(()));
    let seconds = refused(gateway);
    assert!(seconds > 0, "it has not heard of the ban");
    seconds
}

fn bans(gateways: &[Gateway]) -> u64 {
    let bans = |gateway: &Gateway| {
        let bans = gateway.metric("sluicegate_limit_bans_total{policy=\"keys\"}");
        bans.unwrap_or_default() as u64
    };
    gateways.iter().map(bans).sum()
}

#[test]
fn a_ban_by_one_machine_holds_on_all() {
    let redis = RedisServer::start();
    for more in ["on_limit: { action: reject }", "sync: 100ms"] {
        command(&redis, &["FLUSHALL"]);
        let gateways: [Gateway; 3] = proxies(
            &redis,
            &config("{ strikes: 3, within: 1h, for: [2h] }", more),
        );
        let answers = [(); 3].map(|()| refused(&gateways[0]));
        assert_eq!(
            answers,
            [0, 0, 7_200],
            "{more}: its own refusals ban at once"
        );
        for gateway in &gateways[1..] {
            let seconds = heard(gateway);
            assert!((7_190..=7_200).contains(&seconds), "{more}: {seconds}");
        }
        assert_eq!(bans(&gateways), 1, "{more}");
        // Also a proxy that starts later.
        let late = Gateway::start(&format!(
            "{}{}",
            store(redis.address),
            config("{ strikes: 3, within: 1h, for: [2h] }", more)
        ));
        wait_up(&late);
        assert!(heard(&late) > 7_180);
    }
}

/// What is remembered of the banned key's bucket ends again and again, when many ask Redis at once.
#[test]
fn a_ban_holds_while_the_answer_to_another_request_comes() {
    let redis = RedisServer::start();
    let store = store(redis.address).replace("characters", "characters, refusal_cache: 3ms");
    let config = config(
        "{ strikes: 1, within: 1h, for: [2h] }",
        "on_limit: { action: reject }",
    );
    let gateway = Gateway::start(&format!("{store}{config}"));
    wait_up(&gateway);
    assert!(refused(&gateway) > 3_600, "it is banned");
    let address = gateway.address();
    let clients = [(); 16].map(|()| {
        thread::spawn(move || {
            let mut connection = Connection::open(address);
            let mut status = || {
                connection
                    .exchange("GET / HTTP/1.1\r\nHost: a\r\nx-key: a\r\n\r\n")
                    .status
            };
            (0..500).filter(|_| status() != 429).count()
        })
    });
    let admitted = clients.map(|client| client.join().expect("no panic"));
    assert_eq!(admitted, [0; 16]);
}

#[test]
fn refusals_are_counted_over_all_machines() {
    let redis = RedisServer::start();
    let gateways: [Gateway; 2] = proxies(
        &redis,
        &config(
            "{ strikes: 4, within: 1h, for: [1s, 2h] }",
            "overflow: { quota: 1/1h }",
        ),
    );
    let strike = || {
        for gateway in &gateways {
            assert_eq!([(); 2].map(|()| refused(gateway)), [0, 0]);
        }
    };
    strike();
    wait_for("the first ban", || (bans(&gateways) == 1).then_some(()));
    // The ban lasts a second, and the next two hours.
    wait_for("the end of the first ban", || {
        let mut gateways = gateways.iter();
        gateways.all(|gateway| banned(gateway) == 0).then_some(())
    });
    strike();
    for gateway in &gateways {
        assert!(heard(gateway) > 7_180);
    }
    assert_eq!(bans(&gateways), 2);
    let streams = command(&redis, &["KEYS", "*:bans"]);
    let streams: Vec<String> = redis::from_redis_value(streams).expect("names");
    assert_eq!(streams, ["sluicegate:{keys}:bans"], "not of each bucket");
}

#[test]
fn bans_survive_a_server_that_is_gone_and_comes_back_empty() {
    let penalty = "{ strikes: 2, within: 3s, for: [2h] }";
    let mut redis = RedisServer::start();
    let gateways: [Gateway; 2] = proxies(&redis, &config(penalty, "on_store_error: local"));
    let [one, other] = &gateways;
    redis.kill();
    let started = now();
    assert_eq!([(); 2].map(|()| refused(one)), [0, 7_200]);
    // A reload meanwhile, with another deadline as well, loses no report.
    let changed = store(redis.address).replace("timeout: 1s", "timeout: 900ms");
    one.reload(&format!(
        "{changed}{}",
        config(penalty, "on_store_error: local")
    ));
    // When Redis is back, the strikes no longer count; the ban does.
    thread::sleep(Duration::from_millis(3_500).saturating_sub(started.elapsed()));
    assert_eq!(refused(other), 0);
    redis.start_again();
    gateways.iter().for_each(wait_up);
    let seconds = heard(other);
    assert!((7_100..7_200).contains(&seconds), "{seconds}");
    assert!(refused(one) < 7_200);
    // A server without its data gets the bans that all machines know, and a new machine reads them.
    command(&redis, &["FLUSHALL"]);
    wait_for("the ban to be told again", || {
        (announced(&redis) > 0).then_some(())
    });
    let late = Gateway::start(&format!("{changed}{}", config(penalty, "percent: 100")));
    wait_up(&late);
    assert!(heard(&late) < 7_200);
}

#[test]
fn a_ban_that_ends_before_its_report_causes_no_further_ban() {
    let penalty = "{ strikes: 3, within: 1h, for: [1s, 2h] }";
    let mut redis = RedisServer::start();
    let gateways: [Gateway; 1] = proxies(&redis, &config(penalty, "percent: 100"));
    let [gateway] = &gateways;
    redis.kill();
    assert_eq!([(); 3].map(|()| refused(gateway)), [0; 3]);
    thread::sleep(Duration::from_millis(1_100));
    assert_eq!(refused(gateway), 0, "a strike");
    redis.start_again();
    wait_up(gateway);
    wait_for("the report", || {
        (!keys(&redis, "*:strikes:*").is_empty()).then_some(())
    });
    assert_eq!([(); 2].map(|()| refused(gateway)), [0, 7_200]);
    assert_eq!(bans(&gateways), 2);
}

#[test]
fn bans_are_shared_where_keys_are_readable_and_by_policies_of_one_name_only() {
    let redis = RedisServer::start();
    let config = "policies:
  keys: { key: header:x-key, quota: 1/1h, store: redis, penalty: { strikes: 1, within: 1h, for: [2h] } }
  others: { key: header:x-key, quota: 1/1h, store: redis, penalty: { strikes: 2, within: 1h, for: [2h] } }
  alone: { key: header:x-key, quota: 1/1h, penalty: { strikes: 1, within: 1h, for: [2h] } }
routes:
  - { match: { path: /others }, upstream: echo, limits: [others] }
  - { match: { path: /alone }, upstream: echo, limits: [alone] }
  - { upstream: echo, limits: [keys] }
";
    let store = format!(
        "store: {{ redis: {{ url: \"{}\", timeout: 1s, readable_keys: true }} }}\n",
        redis.url()
    );
    let gateways = [(); 2].map(|()| Gateway::start(&format!("{store}{config}")));
    gateways.iter().for_each(wait_up);
    assert_eq!(refused(&gateways[0]), 7_200);
    assert_eq!(refused_at(&gateways[0], "/alone"), 7_200);
    assert!(heard(&gateways[1]) > 7_190);
    assert_eq!(refused_at(&gateways[1], "/others"), 0);
    // Its own, at its first refusal.
    assert_eq!(refused_at(&gateways[1], "/alone"), 7_200);
    gateways[0].reload(&format!("{store}{}", config.replace("1/1h", "1000/1s")));
    assert!(refused(&gateways[0]) > 7_180, "also under another quota");
}

#[test]
fn a_key_of_another_program_is_logged_once_and_machines_ban_locally() {
    let redis = RedisServer::start();
    command(&redis, &["SET", "sluicegate:{keys}:bans", "mine"]);
    let gateways: [Gateway; 1] = proxies(
        &redis,
        &config("{ strikes: 2, within: 1h, for: [2h] }", "percent: 100"),
    );
    let [gateway] = &gateways;
    gateway.wait_for_log("bans cannot be shared");
    assert_eq!([(); 2].map(|()| refused(gateway)), [0, 7_200]);
    thread::sleep(ROUNDS);
    assert_eq!(gateway.log().matches("bans cannot be shared").count(), 1);
    assert!(
        gateway.log().contains("sluicegate:{keys}:bans") || gateway.log().contains("WRONGTYPE")
    );
    // The reports have waited.
    command(&redis, &["DEL", "sluicegate:{keys}:bans"]);
    let late = Gateway::start(&format!(
        "{}{}",
        store(redis.address),
        config("{ strikes: 2, within: 1h, for: [2h] }", "percent: 100")
    ));
    wait_up(&late);
    assert!(heard(&late) > 7_180);
}

fn keys(redis: &RedisServer, pattern: &str) -> Vec<String> {
    redis::from_redis_value(command(redis, &["KEYS", pattern])).expect("names")
}

fn announced(redis: &RedisServer) -> usize {
    let all = command(redis, &["XLEN", "sluicegate:{keys}:bans"]);
    redis::from_redis_value(all).expect("a number")
}

#[test]
fn a_ban_lifted_as_documented_stays_lifted_on_all_machines() {
    let redis = RedisServer::start();
    let slow = Slow::halfway();
    let penalty = "{ strikes: 2, within: 1h, for: [2h] }";
    let slow_route = format!(
        "[{{ match: {{ path: /slow }}, upstream: '{}' }}, ",
        slow.origin.url()
    );
    let config =
        config(penalty, "percent: 100").replace("routes: [", &format!("routes: {slow_route}"));
    let with = format!("{}{config}", store(redis.address));
    let without = with.replace(&format!("penalty: {penalty}, "), "");
    assert_ne!(with, without);
    let gateway = Gateway::start(&with);
    wait_up(&gateway);
    assert_eq!([(); 2].map(|()| refused(&gateway)), [0, 7_200]);
    let mut served = Connection::open(gateway.address());
    served.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(served.receive_head().status, 200);
    wait_for("the ban to be told", || {
        (announced(&redis) == 1).then_some(())
    });
    gateway.reload(&without);
    thread::sleep(ROUNDS);
    command(&redis, &["FLUSHALL"]);
    thread::sleep(ROUNDS);
    let mut of_bans = keys(&redis, "*{keys}:*");
    // A node notes its algorithms at any time.
    of_bans.retain(|name| !name.ends_with(":algorithms"));
    assert_eq!(of_bans, [""; 0]);
    gateway.reload(&with);
    assert_eq!(refused(&gateway), 0, "a strike");
    assert_eq!(slow.gate.seen(), ["/slow"]);
    drop(served);
}

#[test]
fn a_server_added_by_a_reload_gets_all_active_bans() {
    let [before, after] = [(); 2].map(|()| RedisServer::start());
    let config = config("{ strikes: 1, within: 1h, for: [2h] }", "percent: 100");
    let [gateway] = proxies(&before, &config);
    assert_eq!(refused(&gateway), 7_200);
    wait_for("the ban to be told", || {
        (announced(&before) == 1).then_some(())
    });
    gateway.reload(&format!("{}{config}", store(after.address)));
    wait_for("the ban to be told again", || {
        (announced(&after) == 1).then_some(())
    });
    let late = Gateway::start(&format!("{}{config}", store(after.address)));
    wait_up(&late);
    assert!(heard(&late) > 7_180);
}

#[test]
fn a_machine_that_ends_reports_all_its_bans() {
    const MANY: usize = 3_000;
    let redis = RedisServer::start();
    let config =
        config("{ strikes: 1, within: 1h, for: [2h] }", "percent: 100").replace("1/1h", "0/1h");
    let end = "shutdown: { delay: 0s }\n";
    let [mut gateway] = proxies(&redis, &format!("{end}{config}"));
    for key in 0..MANY {
        let refused = get_with(gateway.address(), "/", &format!("x-key: {key}\r\n"));
        assert_eq!(refused.status, 429);
    }
    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
    assert_eq!(announced(&redis), MANY);
}
