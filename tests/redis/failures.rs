//! The cost of a failing Redis to clients of the real binary, with the default deadline of a call:
//! only that the machine decides alone. Every failure shows in the metrics and in `/readyz`, is
//! logged in a line and not in a flood, and ends soon after its cause. `tests/redis/misconfiguration.rs`
//! has permanent mistakes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::support::client::Connection;
use crate::support::fault_proxy::{FaultProxy, Weather};
use crate::support::gateway::Gateway;
use crate::support::origin::refusing_address;
use crate::support::outage::{ask, config, count, is_down, lines, wait_well};
use crate::support::redis::{Endless, RedisServer};
use crate::support::redis::{SOON, command, try_command};
use crate::support::watched::Watched;
use crate::support::{now, wait_for};

/// The least time of requests while the server is out of use.
const OUTAGE: Duration = Duration::from_millis(400);

/// A time in which some client certainly makes a call: twice the longest time for which a refusal is
/// remembered.
const CALL_UNDER_WAY: Duration = Duration::from_millis(100);

/// The number of parallel clients: enough for each worker to have some.
const CLIENTS: usize = 10;

/// Clients that send requests all the time, on connections of their own, until this is dropped.
struct Clients {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<(usize, Duration)>>,
}

impl Clients {
    fn start(address: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let client = || {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                let mut connection = Connection::open(address);
                let (mut asked, mut longest) = (0, Duration::ZERO);
                while !is_over.load(Relaxed) {
                    longest = longest.max(ask(&mut connection).1);
                    asked += 1;
                    thread::sleep(Duration::from_millis(10));
                }
                (asked, longest)
            })
        };
        Self {
            threads: (0..CLIENTS).map(|_| client()).collect(),
            is_over,
        }
    }

    /// The number of answered requests, and the longest wait.
    fn join(mut self) -> (usize, Duration) {
        self.is_over.store(true, Relaxed);
        let threads = std::mem::take(&mut self.threads).into_iter();
        let results = threads.map(|it| it.join().expect("no panic"));
        results.fold((0, Duration::ZERO), |(sum, longest), (asked, took)| {
            (sum + asked, longest.max(took))
        })
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}

/// A server and the network before it; both may fail.
struct Far {
    redis: RedisServer,
    network: FaultProxy,
    /// A client that keeps the server busy.
    endless: Option<Endless>,
}

/// A failure: its cause, its repair, and the results that the metrics count meanwhile, at least one
/// of them.
struct Failure {
    name: &'static str,
    begin: fn(&mut Far),
    end: fn(&mut Far),
    results: &'static [&'static str],
    /// True if it lasts until the repair; else it is over as soon as it is noticed.
    lasts: bool,
}

/// A failure that lasts until its repair.
const fn lasting(
    name: &'static str,
    begin: fn(&mut Far),
    end: fn(&mut Far),
    results: &'static [&'static str],
) -> Failure {
    Failure {
        name,
        begin,
        end,
        results,
        lasts: true,
    }
}

/// A network failure, until its repair.
const fn weather(
    name: &'static str,
    begin: fn(&mut Far),
    result: &'static [&'static str],
) -> Failure {
    lasting(name, begin, |far| far.network.set(Weather::Fair), result)
}

const FAILURES: [Failure; 13] = [
    lasting(
        "killed, and started empty",
        |far| far.redis.kill(),
        |far| far.redis.start_again(),
        // The network proxy accepts connections, and closes them.
        &["lost", "refused"],
    ),
    lasting(
        "stopped",
        |far| far.redis.stop(),
        |far| far.redis.go_on(),
        &["timeout"],
    ),
    weather(
        "slow",
        |far| far.network.set(Weather::Slow(Duration::from_millis(300))),
        &["timeout"],
    ),
    weather(
        "partitioned",
        |far| far.network.set(Weather::Silent),
        &["timeout"],
    ),
    weather(
        "partitioned one way",
        |far| far.network.set(Weather::Deaf),
        &["timeout"],
    ),
    lasting(
        "half-open, and nobody there",
        // The state of connections after a power loss.
        |far| {
            far.network.set(Weather::Refuse);
            far.network.forget_connections();
        },
        |far| far.network.set(Weather::Fair),
        // A worker that reconnects may meet the other fault first.
        &["timeout", "refused"],
    ),
    Failure {
        name: "half-open",
        begin: |far| far.network.forget_connections(),
        end: |_| {},
        results: &["timeout"],
        lasts: false,
    },
    weather(
        "answering garbage",
        |far| far.network.set(Weather::Garbage),
        &["not_redis", "protocol", "lost"],
    ),
    weather(
        "refusing connections",
        |far| {
            far.network.set(Weather::Refuse);
            far.network.drop_connections();
        },
        &["refused"],
    ),
    Failure {
        name: "restarted empty at once",
        begin: |far| {
            // Else it may be back before any call misses it.
            far.redis.stop();
            thread::sleep(CALL_UNDER_WAY);
            far.redis.kill();
            far.redis.start_again();
        },
        end: |_| {},
        // Requests before the next connection wait for it.
        results: &["unsent", "lost", "refused", "timeout"],
        lasts: false,
    },
    lasting(
        "out of memory",
        |far| drop(command(&far.redis, &["CONFIG", "SET", "maxmemory", "1"])),
        |far| drop(command(&far.redis, &["CONFIG", "SET", "maxmemory", "0"])),
        &["out_of_memory"],
    ),
    lasting(
        "read-only",
        |far| {
            let nobody = refusing_address().port().to_string();
            command(&far.redis, &["REPLICAOF", "127.0.0.1", &nobody]);
        },
        |far| drop(command(&far.redis, &["REPLICAOF", "NO", "ONE"])),
        &["read_only"],
    ),
    lasting(
        "mid-script",
        // A script of another client.
        |far| far.endless = Some(Endless::on(&far.redis)),
        |far| {
            let endless = far.endless.take();
            endless.expect("it was begun").kill(&far.redis);
        },
        &["busy_script", "timeout"],
    ),
];

impl Failure {
    /// True if it shows in the metrics, and in `/readyz` if it lasts.
    fn shows(&self, gateway: &Gateway, before: f64) -> bool {
        (!self.lasts || is_down(gateway)) && self.counted(gateway) > before
    }

    fn counted(&self, gateway: &Gateway) -> f64 {
        let counts = |op| {
            self.results
                .iter()
                .map(move |result| count(gateway, op, result))
        };
        counts("call").chain(counts("probe")).sum()
    }

    fn happen(&self, far: &mut Far, gateway: &Gateway) {
        let (before, said) = (self.counted(gateway), lines(gateway, "out of use"));
        let clients = Clients::start(gateway.address());
        let started = now();
        (self.begin)(far);
        wait_for(self.name, || self.shows(gateway, before).then_some(()));
        thread::sleep(OUTAGE.saturating_sub(started.elapsed()));
        (self.end)(far);
        let returned = now();
        wait_well(gateway);
        let back = returned.elapsed();
        let (asked, longest) = clients.join();
        let said = lines(gateway, "out of use") - said;
        println!(
            "{}: well again after {back:?}; {asked} requests, the longest {longest:?}; {said} lines",
            self.name
        );
        assert!(back < SOON, "{}: it took {back:?}", self.name);
        assert!(asked > 20, "{}: {asked}", self.name);
        // Another fault may follow the first.
        assert!(said <= 3, "{}: {said}\n{}", self.name, gateway.log());
    }
}

#[test]
fn no_failure_of_redis_fails_a_request_or_outlasts_its_cause() {
    let redis = RedisServer::with_options(&["--lua-time-limit", "50"]);
    let network = FaultProxy::before(redis.address);
    let mut far = Far {
        redis,
        network,
        endless: None,
    };
    let gateway = Gateway::start(&config(&format!("redis://{}", far.network.address)));
    wait_well(&gateway);
    for failure in &FAILURES {
        failure.happen(&mut far, &gateway);
    }
}

#[test]
fn a_failover_fails_no_request() {
    let mut watched = Watched::start();
    let gateway = Gateway::start(&config(&watched.url("mymaster")));
    wait_well(&gateway);
    let clients = Clients::start(gateway.address());
    watched.master.kill();
    wait_for("the store to be down", || is_down(&gateway).then_some(()));
    wait_for("the replica to be the master", || {
        // A replica that becomes the master closes its connections.
        let info = try_command(&watched.replica, &["INFO", "replication"]).ok()?;
        let info: String = redis::from_redis_value(info).expect("a text");
        info.contains("role:master").then_some(())
    });
    let returned = now();
    wait_well(&gateway);
    let back = returned.elapsed();
    let (asked, longest) = clients.join();
    println!("well after {back:?}; {asked} requests, the longest {longest:?}");
    // The sentinel names the new master only some time after its promotion.
    assert!(back < SOON, "it took {back:?}");
    assert!(asked > 20, "{asked}");
    assert!(lines(&gateway, "out of use") <= 4, "{}", gateway.log());
}
