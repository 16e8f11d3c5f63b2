//! What people get wrong about the Redis store of the real binary: a clear message once, not a flood, and nothing is lost.

mod support;

use std::time::Duration;

use redis::Value;
use support::client::Connection;
use support::gateway::Gateway;
use support::origin::refusing_address;
use support::outage::{ask, config, count, readyz, wait_well, warnings};
use support::redis::{RedisServer, impostor};
use support::redis_store::command;
use support::{now, wait_for};

#[test]
fn what_is_wrong_from_the_start_is_said_once() {
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
