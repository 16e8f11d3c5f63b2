//! Proxies that have just started or reloaded: the first requests find connected workers, loaded
//! scripts, and the other proxies' totals. With several real proxies, and a slow network.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, get};
use crate::support::fault_proxy::{FaultProxy, Weather};
use crate::support::gateway::Gateway;
use crate::support::origin::refusing_address;
use crate::support::redis::RedisServer;
use crate::support::redis::{SLACK, command};
use crate::support::shared::wait_up;
use crate::support::synchronised::{self, longest_round, most_within, rounds};
use crate::support::{now, wait_for};
use rustix::process::Signal;

/// Proxies that share a quota.
const NODES: usize = 3;
/// The quota of all proxies together.
const QUOTA: usize = 20;
/// The tries of a start that a busy machine may spoil.
const ATTEMPTS: usize = 10;

/// A policy in Redis with this deadline of a call. It covers one round trip, and too little for an
/// unprepared first call.
fn config(address: SocketAddr, timeout: Duration, policy: &str) -> String {
    format!(
        "workers: 2
store: {{ redis: {{ url: \"redis://{address}\", timeout: {timeout:?}, secret: sixteen-characters }} }}
policies: {{ shared: {{ store: redis, key: \"header:x-key\", quota: {QUOTA}/300d, {policy} }} }}
routes: [{{ upstream: echo, limits: [shared] }}]
"
    )
}

/// Sends requests for one key to all proxies at the same instant; returns the number admitted.
fn burst(gateways: &[Gateway], key: &str) -> usize {
    const CLIENTS: usize = 6;
    let start = Barrier::new(CLIENTS);
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nx-key: {key}\r\n\r\n");
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (gateway, start, request) = (&gateways[client % NODES], &start, &request);
                scope.spawn(move || {
                    let mut connection = Connection::open(gateway.address());
                    start.wait();
                    let answers =
                        (0..2 * QUOTA / CLIENTS + 1).map(|_| connection.exchange(request).status);
                    answers.filter(|status| *status == 200).count()
                })
            })
            .collect();
        let admitted = clients.into_iter().map(|client| client.join());
        admitted.map(|one| one.expect("no client panics")).sum()
    })
}

/// The number of calls with this result, on all proxies.
fn calls(gateways: &[Gateway], result: &str) -> u64 {
    let series = format!("sluicegate_store_requests_total{{op=\"call\",result=\"{result}\"}}");
    let of = |gateway: &Gateway| gateway.metric(&series).unwrap_or_default() as u64;
    gateways.iter().map(of).sum()
}

/// True if each call was answered in time. A busy machine may spoil that, which is no fault of the
/// proxy.
fn is_unspoilt(gateways: &[Gateway]) -> bool {
    calls(gateways, "timeout") == 0
}

#[test]
fn exact_policies_admit_their_quota_from_the_first_request_on() {
    let redis = RedisServer::start();
    for delay in [1, 6, 20].map(Duration::from_millis) {
        let network = FaultProxy::before(redis.address);
        network.set(Weather::Slow(delay));
        // Three quarters of it are for the proxy and a busy machine.
        let timeout = 4 * delay.max(Duration::from_millis(8));
        for policy in ["algorithm: gcra", "algorithm: fixed_window"] {
            let name = format!("shared-{}-{}", delay.as_millis(), policy.len());
            let config = config(network.address, timeout, policy).replace("shared", &name);
            let admitted = (0..ATTEMPTS).find_map(|_| {
                command(&redis, &["FLUSHALL"]);
                command(&redis, &["SCRIPT", "FLUSH"]);
                let gateways = [(); NODES].map(|()| Gateway::start(&config));
                let admitted = burst(&gateways, "one");
                is_unspoilt(&gateways).then(|| {
                    assert_eq!(calls(&gateways, "unsent"), 0, "{delay:?} {policy}");
                    admitted
                })
            });
            let admitted = admitted.expect("a start that the machine does not spoil");
            assert_eq!(admitted, QUOTA, "{delay:?} {policy}");
        }
    }
}

#[test]
fn a_ready_proxy_has_connected_workers_and_loaded_scripts() {
    let mut redis = RedisServer::start();
    let network = FaultProxy::before(redis.address);
    let config = config(network.address, Duration::from_secs(1), "algorithm: gcra");
    let config = config.replace("policies: {", "policies: { other: { store: redis, key: \"header:x-key\", quota: 9/1h, algorithm: sliding_log, when: { method: [POST] } },");
    let gateway = Gateway::start(&config.replace("[shared]", "[shared, other]"));
    let ready = get(gateway.admin, "/readyz");
    assert_eq!(ready.text(), "ready\nredis: up\n");
    assert_eq!(
        network.taken(),
        3,
        "one for each worker, and one to synchronise"
    );
    assert_eq!(commands_beside_evalsha(&gateway, &redis, 0), [""; 0]);
    assert_eq!(network.taken(), 3, "no other is made");

    // Each worker reconnects to a restarted server and loads the scripts.
    redis.kill();
    redis.start_again();
    wait_up(&gateway);
    let mut keys = 1..;
    wait_for("the workers to load the scripts again", || {
        let others = commands_beside_evalsha(&gateway, &redis, keys.next()?);
        others.is_empty().then_some(())
    });
}

/// Sends requests to both workers that call two kinds of scripts. Returns the received commands
/// that only a server without these scripts needs.
fn commands_beside_evalsha(gateway: &Gateway, redis: &RedisServer, key: u32) -> Vec<&'static str> {
    command(redis, &["CONFIG", "RESETSTAT"]);
    for method in ["GET", "POST"].repeat(8) {
        let mut connection = Connection::open(gateway.address());
        let request =
            format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nx-key: {key}\r\n\r\n");
        assert_eq!(connection.exchange(&request).status, 200);
    }
    let commands = command(redis, &["INFO", "everything"]);
    let commands = format!("{commands:?}");
    assert!(commands.contains("cmdstat_evalsha:"), "{commands}");
    let mut unprepared = vec!["cmdstat_eval:", "cmdstat_script", "errorstat_NOSCRIPT"];
    unprepared.retain(|name| commands.contains(name));
    unprepared
}

#[test]
fn a_reload_that_changes_the_store_admits_no_request_by_local_buckets() {
    let redis = RedisServer::start();
    let network = FaultProxy::before(redis.address);
    network.set(Weather::Slow(Duration::from_millis(20)));
    let timeouts = [160, 161].map(Duration::from_millis);
    let [before, after] = timeouts.map(|one| config(network.address, one, "algorithm: gcra"));
    let admitted = (0..ATTEMPTS).find_map(|_| {
        command(&redis, &["FLUSHALL"]);
        let gateway = Gateway::start(&before);
        let ask = |connection: &mut Connection| {
            let request = "GET / HTTP/1.1\r\nHost: a\r\nx-key: one\r\n\r\n";
            usize::from(connection.exchange(request).status == 200)
        };
        let mut connection = Connection::open(gateway.address());
        let mut admitted: usize = (0..QUOTA / 2).map(|_| ask(&mut connection)).sum();
        command(&redis, &["SCRIPT", "FLUSH"]);
        gateway.replace_config(&after);
        // Requests come all the time, so that some are the first after the reload.
        while gateway.reloads("success") == 0 {
            admitted += ask(&mut connection);
        }
        admitted += (0..QUOTA).map(|_| ask(&mut connection)).sum::<usize>();
        is_unspoilt(&[gateway]).then_some(admitted)
    });
    assert_eq!(admitted, Some(QUOTA));
}

#[test]
fn a_start_waits_for_redis_at_most_for_its_startup_timeout() {
    let mut redis = RedisServer::start();
    redis.kill();
    let config = config(redis.address, Duration::from_millis(100), "algorithm: gcra");
    let started = now();
    let patient = config.replace("timeout:", "startup_timeout: 1s, timeout:");
    let gateway = Gateway::start(&patient);
    assert!(started.elapsed() >= Duration::from_secs(1));
    gateway.wait_for_log("Redis is not connected in time");
    let admitted = |gateway: &Gateway| {
        let mut connection = Connection::open(gateway.address());
        let request = "GET / HTTP/1.1\r\nHost: a\r\nx-key: one\r\n\r\n";
        let answers = (0..QUOTA + 5).map(|_| connection.exchange(request).status);
        answers.filter(|status| *status == 200).count()
    };
    assert_eq!(admitted(&gateway), QUOTA, "by a bucket of its own");
    // A reload without a change of the store does not wait for it.
    let started = now();
    gateway.reload(
        &patient
            .replace("1s", "1m")
            .replace("quota: 20", "quota: 21"),
    );
    assert!(started.elapsed() < Duration::from_secs(30));

    let hasty = config.replace("timeout:", "startup_timeout: 0s, timeout:");
    assert_eq!(admitted(&Gateway::start(&hasty)), QUOTA);

    // If Redis comes up meanwhile, the start goes on, and Redis decides.
    let (address, late) = (
        redis.address,
        config.replace("timeout:", "startup_timeout: 20s, timeout:"),
    );
    let starting = thread::spawn(move || Gateway::start(&late));
    thread::sleep(Duration::from_millis(300));
    assert!(!starting.is_finished());
    redis.start_again();
    let gateway = starting.join().expect("it starts");
    assert_eq!(get(gateway.admin, "/readyz").text(), "ready\nredis: up\n");
    assert_eq!(redis.address, address);
}

#[test]
fn synchronised_proxies_keep_their_bound_from_the_first_request_on() {
    const LIMIT: usize = 200;
    const PACE: Duration = Duration::from_millis(8);
    const INTERVAL: Duration = Duration::from_millis(500);
    let redis = RedisServer::start();
    let network = FaultProxy::before(redis.address);
    network.set(Weather::Slow(Duration::from_millis(10)));
    let policy = format!("sync: 500ms, quota: {LIMIT}/300d, algorithm: fixed_window");
    let config = synchronised::config(network.address, &[&policy]);
    let gateways = [(); NODES].map(|()| Gateway::start(&config));
    for gateway in &gateways {
        assert_eq!(
            (rounds(gateway, "ok") > 0, rounds(gateway, "failed")),
            (true, 0)
        );
    }
    let started = now();
    // Together they would admit the quota within a third of the time; one alone takes all of it.
    let admitted: Vec<Vec<Duration>> = thread::scope(|scope| {
        let drive = |gateway: &Gateway| {
            let mut connection = Connection::open(gateway.address());
            let mut admitted = Vec::new();
            while started.elapsed() < PACE * LIMIT as u32 {
                let answer = connection.exchange("GET /0 HTTP/1.1\r\nHost: a\r\n\r\n");
                if answer.status == 200 {
                    admitted.push(started.elapsed());
                }
                thread::sleep(PACE);
            }
            admitted
        };
        let drivers: Vec<_> = gateways
            .iter()
            .map(|gateway| scope.spawn(move || drive(gateway)))
            .collect();
        let ended = drivers.into_iter().map(|driver| driver.join());
        ended.map(|one| one.expect("no driver panics")).collect()
    });
    // docs/redis.md, "What may be admitted beyond the quota".
    let longest = gateways.iter().map(longest_round).max();
    let round = longest.expect("there are some").max(INTERVAL);
    let unheard = |instants: &Vec<_>| most_within(instants, INTERVAL + round + SLACK);
    let mut unheard: Vec<_> = admitted.iter().map(unheard).collect();
    unheard.sort_unstable();
    let beyond: usize = unheard[1..].iter().sum();
    let total: usize = admitted.iter().map(Vec::len).sum();
    assert!(total <= LIMIT + beyond, "{total}, {beyond} beyond");
    for gateway in &gateways {
        assert_eq!(rounds(gateway, "failed"), 0, "Redis is well");
    }
}

#[test]
fn a_process_that_waits_for_redis_can_be_ended_and_reloaded() {
    let network = FaultProxy::before(refusing_address());
    let config = config(
        network.address,
        Duration::from_millis(100),
        "algorithm: gcra",
    );
    let patient = config.replace("timeout:", "startup_timeout: 1m, timeout:");
    let mut starting = Gateway::start_unready(&patient);
    let ready = get(starting.admin, "/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.text().starts_with("starting\n"), "{}", ready.text());
    starting.signal(Signal::TERM);
    assert!(starting.wait().success());

    // A reload that waits for another store delays neither the end of the process nor requests.
    let mut gateway = Gateway::start("routes: [{ upstream: echo }]");
    gateway.replace_config(&patient);
    wait_for("the reload to connect", || {
        (network.taken() > 0).then_some(())
    });
    assert_eq!(get(gateway.address(), "/").status, 200);
    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
}

#[test]
fn a_call_that_waits_for_its_connection_counts_once() {
    let redis = RedisServer::start();
    let network = FaultProxy::before(redis.address);
    network.set(Weather::Slow(Duration::from_millis(20)));
    let config = config(network.address, Duration::from_secs(1), "algorithm: gcra");
    let admitted = (0..ATTEMPTS).find_map(|_| {
        command(&redis, &["FLUSHALL"]);
        let gateways = [(); NODES]
            .map(|()| Gateway::start(&config.replace("timeout:", "startup_timeout: 0s, timeout:")));
        let admitted = burst(&gateways, "one");
        is_unspoilt(&gateways).then(|| {
            assert_eq!(calls(&gateways, "unsent"), 0);
            admitted
        })
    });
    assert_eq!(admitted, Some(QUOTA));
}
