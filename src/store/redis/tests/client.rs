//! The client of the Redis store, against real servers that are killed, stopped, slow, cut off, or
//! of another kind.
//!
//! In each case no call exceeds its deadline, the state names the fault, the log has it once, and
//! calls succeed again soon after the cause is gone.

use std::time::Duration;

use super::worker::{Store, TIMEOUT, UP, call, login, single, words};
use crate::store::redis::client::{
    Address, Command, Fault, FaultKind, Script, Spec, State, Target,
};
use crate::support::fault_proxy::{FaultProxy, Weather};
use crate::support::redis::command;
use crate::support::redis::{Endless, RedisServer, impostor};
use crate::support::{now, wait_for};
use redis::Value;

#[test]
fn scripts_run_and_are_loaded_again_into_a_server_that_lost_them() {
    let mut server = RedisServer::start();
    let store = Store::at(server.address);
    store.wait_up();
    command(&server, &["SET", "sluicegate:n", "0"]);
    assert_eq!(store.call(), Ok(Value::Int(1)));
    command(&server, &["SCRIPT", "FLUSH"]);
    assert_eq!(store.call(), Ok(Value::Int(2)));
    assert_eq!(store.call(), Ok(Value::Int(3)));

    server.kill();
    store.wait_down(FaultKind::Refused);
    server.start_again();
    store.wait_up();
    // The dying process may still have accepted a connection.
    store.said(&[UP, "it refuses connections|it ended the connection", UP]);
    let metrics = store.registry.render();
    for series in [
        "sluicegate_store_requests_total{op=\"call\",result=\"ok\"}",
        "sluicegate_store_requests_total{op=\"call\",result=\"unsent\"}",
        "sluicegate_store_requests_total{op=\"probe\",result=\"ok\"} 2",
        "sluicegate_store_duration_seconds_count",
    ] {
        assert!(metrics.contains(series), "{series} is not in\n{metrics}");
    }
}

#[test]
fn a_server_that_starts_later_is_connected() {
    let mut server = RedisServer::start();
    server.kill();
    let store = Store::at(server.address);
    // The call waits for the first connection, and gets the reason for its failure.
    assert_eq!(
        store.call().map_err(|fault| fault.kind),
        Err(FaultKind::Refused)
    );
    store.wait_down(FaultKind::Refused);
    server.start_again();
    store.wait_up();
    store.said(&["it refuses connections", UP]);
}

#[test]
fn a_stopped_server_costs_a_few_deadlines_and_then_nothing() {
    let server = RedisServer::start();
    let store = Store::at(server.address);
    store.wait_up();
    server.stop();
    store.wait_down(FaultKind::Timeout);
    let started = now();
    for _ in 0..1_000 {
        assert_eq!(
            store.call(),
            Err(Fault {
                kind: FaultKind::Timeout,
                detail: None,
                is_unsent: false,
            })
        );
    }
    assert!(started.elapsed() < TIMEOUT * 10, "they were refused here");
    server.go_on();
    store.wait_up();
    store.said(&[UP, "it does not answer in time", UP]);
}

#[test]
fn a_failing_script_is_no_failing_server() {
    let server = RedisServer::start();
    let store = Store::at(server.address);
    store.wait_up();
    command(&server, &["LPUSH", "sluicegate:list", "x"]);
    for _ in 0..10 {
        let fault = store
            .call_key("sluicegate:list")
            .expect_err("a list isn't a number");
        assert_eq!(fault.kind, FaultKind::Script);
        assert!(
            fault
                .detail
                .is_some_and(|detail| detail.contains("WRONGTYPE"))
        );
    }
    assert_eq!(store.client.state(), State::Up);
    store.said(&[UP]);
}

#[test]
fn each_network_failure_is_reported_and_ends_with_its_cause() {
    let server = RedisServer::start();
    for (weather, kind) in [
        (Weather::Silent, FaultKind::Timeout),
        (Weather::Deaf, FaultKind::Timeout),
        (Weather::Slow(TIMEOUT), FaultKind::Timeout),
        (Weather::Garbage, FaultKind::NotRedis),
        (Weather::Cut(20), FaultKind::Lost),
        (Weather::Refuse, FaultKind::Refused),
    ] {
        let proxy = FaultProxy::before(server.address);
        let store = Store::at(proxy.address);
        store.wait_up();
        proxy.set(weather);
        if weather == Weather::Refuse {
            proxy.drop_connections();
        }
        let fault = wait_for(&format!("{weather:?} to be noticed"), || {
            let _ = store.call();
            store.fault().filter(|fault| fault.kind == kind)
        });
        proxy.set(Weather::Fair);
        store.wait_up();
        assert_eq!(fault.kind, kind, "{weather:?}");
        // The first report is the fault of a call, which may differ from that of a new connection.
        let text = match kind {
            FaultKind::NotRedis => "Redis protocol",
            kind => kind.text(),
        };
        store.said(&[UP, text, UP]);
    }
}

#[test]
fn a_single_lost_connection_is_replaced_without_a_log_line() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.address);
    let store = Store::at(proxy.address);
    store.wait_up();
    let before = proxy.taken();
    proxy.drop_connections();
    wait_for("another connection", || {
        (proxy.taken() > before).then_some(())
    });
    store.wait_up();
    store.said(&[UP]);
}

#[test]
fn wrong_logins_are_distinguished_and_never_logged() {
    let server = RedisServer::start();
    let user = |name, rules: &str| {
        let rules = ["ACL SETUSER", name, "on >hunter2", rules].join(" ");
        command(&server, &rules.split(' ').collect::<Vec<_>>());
    };
    // Only the permissions in docs/redis.md, and the commands of the script.
    user(
        "bob",
        "~sluicegate:* +eval +evalsha +script|load +set +incrby",
    );
    user("eve", "~* +@all -evalsha");
    user("tom", "~other:* +@all");
    for (user, password, kind) in [
        ("bob", "hunter3", FaultKind::Password),
        ("alice", "hunter2", FaultKind::Password),
        ("eve", "hunter2", FaultKind::Permission),
        ("tom", "hunter2", FaultKind::Permission),
    ] {
        let store = Store::with(Spec {
            login: login(Some(user), password),
            ..single(server.address)
        });
        let fault = store.wait_down(kind);
        assert!(!format!("{fault:?} {fault}").contains("hunter"));
        assert_eq!(store.lines().len(), 1, "{:?}", store.lines());
        assert!(!store.lines()[0].contains("hunter"));
    }
    let store = Store::with(Spec {
        login: login(Some("bob"), "hunter2"),
        ..single(server.address)
    });
    store.wait_up();
}

#[test]
fn a_missing_password_is_reported() {
    let server = RedisServer::with_options(&["--requirepass", "hunter2"]);
    let store = Store::at(server.address);
    store.wait_down(FaultKind::Password);
    let store = Store::with(Spec {
        login: login(None, "hunter2"),
        database: 3,
        ..single(server.address)
    });
    store.wait_up();
    let store = Store::with(Spec {
        login: login(None, "hunter2"),
        database: 99,
        ..single(server.address)
    });
    store.wait_down(FaultKind::Database);
}

#[test]
fn a_user_that_loses_a_permission_does_not_fill_the_log() {
    let server = RedisServer::start();
    command(
        &server,
        &["ACL", "SETUSER", "bob", "on", ">x", "~*", "+@all"],
    );
    let store = Store::with(Spec {
        login: login(Some("bob"), "x"),
        ..single(server.address)
    });
    store.wait_up();
    command(&server, &["ACL", "SETUSER", "bob", "-incrby"]);
    wait_for("the server to be given up", || {
        let fault = store.call().err()?;
        (fault.kind == FaultKind::Permission).then_some(())
    });
    // The probe is permitted: calls fail again and again.
    let started = now();
    wait_for("two seconds", || {
        let _ = store.call();
        (started.elapsed() > Duration::from_secs(2)).then_some(())
    });
    let lines = store.lines();
    assert!(lines.len() <= 3, "{lines:?}");
    command(&server, &["ACL", "SETUSER", "bob", "+incrby"]);
    store.wait_up();
}

#[test]
fn a_server_without_memory_is_out_of_use() {
    let server = RedisServer::start();
    let store = Store::at(server.address);
    store.wait_up();
    command(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    store.wait_down(FaultKind::OutOfMemory);
    command(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    store.wait_up();
    store.said(&[UP, "it is out of memory", UP]);
}

#[test]
fn a_replica_is_out_of_use() {
    let master = RedisServer::start();
    let server = RedisServer::start();
    let store = Store::at(server.address);
    store.wait_up();
    let port = master.address.port().to_string();
    command(&server, &["REPLICAOF", "127.0.0.1", &port]);
    store.wait_down(FaultKind::ReadOnly);
    command(&server, &["REPLICAOF", "NO", "ONE"]);
    store.wait_up();
    let lines = store.lines();
    assert!(lines[1].contains("it is a read-only replica"), "{lines:?}");
}

#[test]
fn a_server_with_an_endless_script_is_out_of_use() {
    let server = RedisServer::with_options(&["--lua-time-limit", "1"]);
    let store = Store::at(server.address);
    store.wait_up();
    let endless = Endless::on(&server);
    store.wait_down(FaultKind::Busy);
    endless.kill(&server);
    store.wait_up();
}

#[test]
fn servers_of_another_kind_are_reported_as_such() {
    for (answer, kind) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            FaultKind::NotRedis,
        ),
        (b"\x15\x03\x03\x00\x02\x02\x0a", FaultKind::NotRedis),
        (b"", FaultKind::Lost),
        (b"-ERR unknown command `HELLO`\r\n", FaultKind::TooOld),
        (
            b"-ERR max number of clients reached\r\n",
            FaultKind::Clients,
        ),
        (
            b"-DENIED Redis is running in protected mode\r\n",
            FaultKind::Permission,
        ),
        (
            b"-LOADING Redis is loading the dataset in memory\r\n",
            FaultKind::Loading,
        ),
        (
            b"*4\r\n$7\r\nversion\r\n$5\r\n6.0.9\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n",
            FaultKind::TooOld,
        ),
        (
            b"*4\r\n$7\r\nversion\r\n$5\r\n7.0.9\r\n$4\r\nmode\r\n$8\r\nsentinel\r\n",
            FaultKind::WrongKind,
        ),
    ] {
        let store = Store::at(impostor(answer));
        store.wait_down(kind);
        assert_eq!(store.lines().len(), 1, "{:?}", store.lines());
    }
    let nowhere = Spec::new(Target::Single(Address::new("nobody.invalid", 6379)));
    Store::with(nowhere).wait_down(FaultKind::Name);
}

#[test]
fn the_connections_end_with_the_client() {
    let server = RedisServer::start();
    let Store {
        client, runtime, ..
    } = Store::at(server.address);
    let add = Script::new("return 1");
    wait_for("a call", || {
        runtime
            .block_on(call(&client, 0, &add, &words(&["x"], 1)))
            .ok()
    });
    drop(client);
    wait_for("the connection to end", || {
        let Value::BulkString(list) = command(&server, &["CLIENT", "LIST"]) else {
            panic!("CLIENT LIST answers with a text");
        };
        let list = String::from_utf8(list).expect("a text");
        (!list.contains("name=sluicegate")).then_some(())
    });
}

#[test]
fn a_batch_has_an_answer_for_each_command_in_order() {
    let server = RedisServer::start();
    let store = Store::at(server.address);
    store.wait_up();
    let add = |key: &str, n: u64| Command::script(&store.add, &words(&[key], n));
    let get = |key: &str| Command::new(key, redis::cmd("GET").arg(key).clone());
    command(&server, &["LPUSH", "list", "x"]);
    command(&server, &["SCRIPT", "FLUSH"]);
    // More than one pipeline.
    let mut commands: Vec<_> = (0..1_000).map(|n| add("n", n)).collect();
    commands.extend([get("n"), add("list", 1), get("none")]);
    let answers = store.batch(commands);
    for (n, answer) in answers[..1_000].iter().enumerate() {
        assert_eq!(*answer, Ok(Value::Int((n * (n + 1) / 2) as i64)));
    }
    assert_eq!(answers[1_000], Ok(Value::BulkString(b"499500".to_vec())));
    let kind = answers[1_001].clone().map_err(|fault| fault.kind);
    assert_eq!(kind, Err(FaultKind::Script));
    assert_eq!(answers[1_002], Ok(Value::Nil));
    assert_eq!(store.client.state(), State::Up);

    server.stop();
    store.wait_down(FaultKind::Timeout);
    let answers = store.batch(vec![get("n"), get("m")]);
    let refused = |answer: &Result<Value, Fault>| {
        answer
            == &Err(Fault {
                kind: FaultKind::Timeout,
                detail: None,
                is_unsent: true,
            })
    };
    assert!(answers.iter().all(refused), "{answers:?}");
    server.go_on();
    store.wait_up();
}
