//! What a Redis that fails costs the clients of the real binary, with the deadline of a call as it is by default: nothing but
//! that the machine decides alone. Every failure is seen in the metrics and in `/readyz`, is said in a line and not in a
//! flood, and is over soon after its cause is gone.

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redis::Value;
use support::client::{Connection, get};
use support::fault_proxy::{FaultProxy, Weather};
use support::gateway::Gateway;
use support::redis::{RedisServer, free_address};
use support::redis_store::{SOON, command};
use support::{now, wait_for};

/// The deadline of a call is 20 ms; this is what a busy machine makes of it, and far below what a client would notice
/// as a failure.
const PATIENCE: Duration = Duration::from_secs(1);
/// For so long at least requests come while the server is of no use.
const OUTAGE: Duration = Duration::from_millis(400);

/// A policy in Redis with a deadline and an `on_store_error` as they are by default.
fn config(url: &str) -> String {
    format!(
        "store: {{ redis: {{ url: \"{url}\", readable_keys: true }} }}
policies: {{ shared: {{ store: redis, key: constant, quota: 20/1s }} }}
routes: [{{ upstream: echo, limits: [shared] }}]
"
    )
}

fn readyz(gateway: &Gateway) -> String {
    let answer = get(gateway.admin, "/readyz");
    assert_eq!(answer.status, 200, "it serves whatever Redis does");
    answer.text()
}

/// How often Redis was asked, or was not, with this result.
fn count(gateway: &Gateway, op: &str, result: &str) -> f64 {
    let series = format!("sluicegate_store_requests_total{{op=\"{op}\",result=\"{result}\"}}");
    gateway.metric(&series).unwrap_or_default()
}

/// How many lines warn of the store.
fn warnings(gateway: &Gateway) -> usize {
    let log = gateway.log();
    let of_the_store = |line: &&str| line.contains(" WARN ") && line.contains("tore");
    log.lines().filter(of_the_store).count()
}

/// How many lines say so.
fn lines(gateway: &Gateway, text: &str) -> usize {
    gateway.log().matches(text).count()
}

/// Asks once, and sees that there is a decision in time.
fn ask(connection: &mut Connection) -> (u16, Duration) {
    let started = now();
    let status = connection
        .exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .status;
    let took = started.elapsed();
    assert!([200, 429].contains(&status), "{status}");
    assert!(took < PATIENCE, "an answer took {took:?}");
    (status, took)
}

/// Waits until `/readyz` says that all is well and Redis decides again.
fn wait_well(gateway: &Gateway) {
    let mut connection = Connection::open(gateway.address());
    wait_for("the store to be up", || {
        ask(&mut connection);
        readyz(gateway).contains("redis: up").then_some(())
    });
    let before = count(gateway, "call", "ok");
    wait_for("a call that is answered", || {
        ask(&mut connection);
        (count(gateway, "call", "ok") > before).then_some(())
    });
}

/// How many ask at once: so many that each worker has some of them.
const CLIENTS: usize = 10;

/// Those who ask all the while, on connections of their own. They end when this is dropped.
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

    /// How many requests were answered, and how long the longest waited.
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

/// A server and the network before it, which both may fail.
struct Far {
    redis: RedisServer,
    network: FaultProxy,
    /// Whoever keeps the server busy.
    endless: Option<JoinHandle<()>>,
}

/// How something fails, how it is well again, and what is counted meanwhile: one of the results at least.
struct Failure {
    name: &'static str,
    begin: fn(&mut Far),
    end: fn(&mut Far),
    results: &'static [&'static str],
    /// Whether it lasts until its end; else it is over as soon as it is noticed.
    lasts: bool,
}

/// A failure that lasts until its end.
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

/// Weather, until it is fair again.
const fn weather(
    name: &'static str,
    begin: fn(&mut Far),
    result: &'static [&'static str],
) -> Failure {
    lasting(name, begin, |far| far.network.set(Weather::Fair), result)
}

const FAILURES: [Failure; 12] = [
    lasting(
        "killed",
        |far| far.redis.kill(),
        |far| far.redis.start_again(),
        // The proxy before it takes connections, and ends them.
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
        name: "restarted empty",
        begin: |far| {
            far.redis.kill();
            far.redis.start_again();
        },
        end: |_| {},
        results: &["ok"],
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
            let nobody = free_address().port().to_string();
            command(&far.redis, &["REPLICAOF", "127.0.0.1", &nobody]);
        },
        |far| drop(command(&far.redis, &["REPLICAOF", "NO", "ONE"])),
        &["read_only"],
    ),
    lasting(
        "mid-script",
        keep_busy,
        kill_script,
        &["busy_script", "timeout"],
    ),
];

/// A script of somebody else that does not end.
fn keep_busy(far: &mut Far) {
    let url = far.redis.url();
    far.endless = Some(thread::spawn(move || {
        let client = redis::Client::open(url).expect("a URL");
        let mut connection = client.get_connection().expect("it runs");
        let script = redis::cmd("EVAL").arg("while true do end").arg(0).clone();
        script
            .query::<Value>(&mut connection)
            .expect_err("it is killed");
    }));
}

fn kill_script(far: &mut Far) {
    command(&far.redis, &["SCRIPT", "KILL"]);
    let endless = far.endless.take().expect("it was begun");
    endless.join().expect("it was killed");
}

impl Failure {
    /// Whether it shows: in the metrics, and in `/readyz` where it lasts.
    fn shows(&self, gateway: &Gateway, before: f64) -> bool {
        let is_seen = !self.lasts
            || readyz(gateway).contains("redis: down: ")
                && gateway.metric("sluicegate_store_up") == Some(0.0);
        is_seen && self.counted(gateway) > before
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
        // Another reason may be met after the first.
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
    let mut master = RedisServer::start();
    let port = master.address.port().to_string();
    let replica = RedisServer::with_options(&["--replicaof", "127.0.0.1", &port]);
    let sentinel = RedisServer::sentinel(master.address);
    wait_for("the sentinel to know the replica", || {
        let found = command(&sentinel, &["SENTINEL", "REPLICAS", "mymaster"]);
        let text = format!("{found:?}");
        let is_linked = text.contains(&replica.address.port().to_string());
        (is_linked && !text.contains("s_down") && !text.contains("disconnected")).then_some(())
    });
    let url = format!("redis+sentinel://{}/mymaster", sentinel.address);
    let gateway = Gateway::start(&config(&url));
    wait_well(&gateway);
    let clients = Clients::start(gateway.address());
    master.kill();
    wait_for("the store to be down", || {
        readyz(&gateway).contains("redis: down: ").then_some(())
    });
    wait_for("the replica to be the master", || {
        let info = command(&replica, &["INFO", "replication"]);
        let info: String = redis::from_redis_value(info).expect("a text");
        info.contains("role:master").then_some(())
    });
    let returned = now();
    wait_well(&gateway);
    let back = returned.elapsed();
    let (asked, longest) = clients.join();
    println!("well after {back:?}; {asked} requests, the longest {longest:?}");
    // The sentinel says who the master is some time after it has made it so.
    assert!(back < SOON, "it took {back:?}");
    assert!(asked > 20, "{asked}");
    assert!(lines(&gateway, "out of use") <= 4, "{}", gateway.log());
}

/// A server that says this to everybody, whatever they say.
fn impostor(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1_024]);
            let _ = stream.write_all(answer);
        }
    });
    address
}

#[test]
fn what_is_wrong_from_the_start_is_said_once() {
    let locked = RedisServer::with_options(&["--requirepass", "hunter2"]);
    let (sentinel, plain) = (RedisServer::sentinel(locked.address), RedisServer::start());
    let web = impostor(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let old =
        impostor(b"*4\r\n$7\r\nversion\r\n$5\r\n6.0.9\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n");
    for (url, text) in [
        (
            format!("redis://{}", free_address()),
            "it refuses connections",
        ),
        (
            "redis://nobody.invalid".to_owned(),
            "it has a name without an address",
        ),
        (locked.url(), "it does not take the user and password"),
        (
            format!("redis://:wrong@{}", locked.address),
            "it does not take the user and password",
        ),
        (
            format!("redis://{web}"),
            "it does not speak the Redis protocol",
        ),
        (sentinel.url(), "it is another kind of server"),
        (
            format!("redis+sentinel://{}/mymaster", plain.address),
            "it is another kind of server",
        ),
        (format!("redis://{old}"), "it is too old"),
    ] {
        let gateway = Gateway::start(&config(&url));
        let mut connection = Connection::open(gateway.address());
        let text = format!("the Redis store is out of use: {text}");
        let (started, mut asked) = (now(), 0);
        wait_for("a line, and a second and a half more", || {
            for _ in 0..10 {
                ask(&mut connection);
            }
            asked += 10;
            let is_said = gateway.log().contains(&text);
            (is_said && started.elapsed() > Duration::from_millis(1_500)).then_some(())
        });
        assert!(readyz(&gateway).contains("redis: down: "), "{url}");
        assert!(asked >= 100, "{url}: {asked}");
        assert!(!gateway.log().contains("hunter2") && !gateway.log().contains("wrong@"));
        let warnings = warnings(&gateway);
        assert_eq!(warnings, 1, "{url}: {}", gateway.log());
        assert!(gateway.log().contains("advice="), "{}", gateway.log());
    }
}

#[test]
fn keys_of_another_type_and_flushed_scripts_fill_no_log() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&config(&redis.url()));
    wait_well(&gateway);
    // Whoever flushes the scripts costs a call a moment, and nobody a word.
    for _ in 0..20 {
        command(&redis, &["SCRIPT", "FLUSH"]);
        wait_well(&gateway);
    }
    assert_eq!(warnings(&gateway), 0, "{}", gateway.log());

    let keys: Vec<String> =
        redis::from_redis_value(command(&redis, &["KEYS", "sluicegate:*"])).expect("names");
    let [key] = keys
        .iter()
        .filter(|key| key.contains("shared"))
        .collect::<Vec<_>>()[..]
    else {
        panic!("{keys:?}");
    };
    command(&redis, &["DEL", key]);
    command(&redis, &["RPUSH", key, "mine"]);
    let mut connection = Connection::open(gateway.address());
    let started = now();
    wait_for("a hundred calls that meet it", || {
        for _ in 0..30 {
            ask(&mut connection);
        }
        (count(&gateway, "call", "script") >= 100.0).then_some(())
    });
    let most = 1 + started.elapsed().as_secs();
    let said = warnings(&gateway);
    assert!(
        (1..=most as usize).contains(&said) && gateway.log().contains("WRONGTYPE"),
        "{}",
        gateway.log()
    );
    assert!(readyz(&gateway).contains("redis: up"), "others go on");
    assert_eq!(
        command(&redis, &["LLEN", key]),
        Value::Int(1),
        "nothing is lost"
    );
}
