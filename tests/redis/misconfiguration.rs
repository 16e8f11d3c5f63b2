//! Mistakes in the configuration of the Redis store, with the real binary: a clear message once, no
//! flood, and no lost request.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use crate::support::client::{Connection, get};
use crate::support::gateway::Gateway;
use crate::support::origin::refusing_address;
use crate::support::outage::{ask, config, count, readyz, wait_well, warnings};
use crate::support::redis::command;
use crate::support::redis::{RedisServer, impostor};
use crate::support::shared::wait_up;
use crate::support::synchronised::after_rounds;
use crate::support::{now, wait_for};
use redis::Value;

#[test]
fn mistakes_at_the_start_are_logged_once() {
    let locked = RedisServer::with_options(&["--requirepass", "hunter2"]);
    let (sentinel, plain) = (RedisServer::sentinel(locked.address), RedisServer::start());
    let web = impostor(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let old =
        impostor(b"*4\r\n$7\r\nversion\r\n$5\r\n6.0.9\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n");
    for (url, text) in [
        (
            format!("redis://{}", refusing_address()),
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
    // Flushed scripts cost a call a moment, and no log line.
    for _ in 0..20 {
        command(&redis, &["SCRIPT", "FLUSH"]);
        wait_well(&gateway);
    }
    assert_eq!(warnings(&gateway), 0, "{}", gateway.log());

    let keys: Vec<String> =
        redis::from_redis_value(command(&redis, &["KEYS", "sluicegate:*"])).expect("names");
    let [key] = keys
        .iter()
        .filter(|key| key.contains("}shared:"))
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
    // After 1, 2, 4 .. seconds.
    let most = 2 + started.elapsed().as_secs().checked_ilog2().unwrap_or(0);
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

/// The commands that the scripts call.
fn called() -> BTreeSet<String> {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/script");
    let files = fs::read_dir(scripts).expect("the scripts are there");
    let texts = files.map(|file| fs::read_to_string(file.expect("a file").path()).expect("a text"));
    let text: String = texts.collect();
    let calls = text.split("call(").skip(1);
    let commands = calls.filter_map(|call| {
        let call = call.strip_prefix("b, ").unwrap_or(call);
        let (command, _) = call.strip_prefix('\'')?.split_once('\'')?;
        Some(command.to_lowercase())
    });
    commands.collect()
}

#[test]
fn the_documented_permissions_suffice_and_none_is_superfluous() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/redis.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let rules = page.lines().find(|line| line.starts_with("ACL SETUSER "));
    let rules = rules
        .expect("it has a user")
        .replace("PREFIX", "sluicegate:");
    let allowed = rules.split(" +").skip(1).map(str::to_owned);
    let own = ["eval", "evalsha", "script|load"].map(str::to_owned);
    let needed: BTreeSet<_> = called().into_iter().chain(own).collect();
    assert_eq!(allowed.collect::<BTreeSet<_>>(), needed);

    let redis = RedisServer::start();
    command(&redis, &rules.split(' ').collect::<Vec<_>>());
    let kinds = [
        "quota: 2/1h, penalty: { strikes: 1, within: 1h, for: [1h] }",
        "quota: 2/300d, algorithm: sliding_window, precision: 60, oldest: whole",
        "quota: 2/1h, algorithm: sliding_log",
        "quota: 2/1h, count: [200]",
        "algorithm: concurrency, max: 5",
        "quota: 2/300d, sync: 50ms",
    ];
    let policy = |(place, kind)| format!("  p{place}: {{ store: redis, key: constant, {kind} }}\n");
    let route = |place| {
        format!("  - {{ match: {{ path: /{place} }}, upstream: echo, limits: [p{place}] }}\n")
    };
    let gateway = Gateway::start(&format!(
        "store: {{ redis: {{ url: \"redis://sluicegate:password@{}\", timeout: 500ms }} }}
policies:\n{}routes:\n{}",
        redis.address,
        kinds.iter().enumerate().map(policy).collect::<String>(),
        (0..kinds.len()).map(route).collect::<String>(),
    ));
    wait_up(&gateway);
    for (place, kind) in kinds.iter().enumerate() {
        let path = format!("/{place}");
        let statuses = [(); 3].map(|()| get(gateway.address(), &path).status);
        let expected = if place == 4 {
            [200; 3]
        } else {
            [200, 200, 429]
        };
        assert_eq!(statuses, expected, "{kind}");
    }
    after_rounds(&gateway, 2);
    wait_for("the ban to be told", || {
        let is_told = command(&redis, &["EXISTS", "sluicegate:{p0}:bans"]);
        (is_told == Value::Int(1)).then_some(())
    });
    assert_eq!(
        command(&redis, &["ACL", "LOG"]),
        Value::Array(Vec::new()),
        "nothing was denied"
    );
    assert_eq!(count(&gateway, "call", "ok"), 15.0, "Redis decided");
}
