//! The client of the Redis store with servers behind TLS, watched by sentinels, and in a cluster.

use std::sync::Arc;

use redis::Value;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;

use super::worker::{Store, UP, call, words};
use crate::store::redis::client::{
    Address, Fault, FaultKind, Script, Spec, State, Target, UrlError, slot,
};
use crate::support::redis::{RedisServer, command};
use crate::support::redis_servers::{cluster, id, node, redis_cli, secure};
use crate::support::wait_for;
use crate::support::watched::Watched;

fn trusting(root: &CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions");
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

#[test]
fn servers_behind_tls_are_verified() {
    let (ours, others) = (secure(), secure());
    let at =
        |url: &str, root| Store::with(Spec::from_url(url, Some(trusting(root))).expect("a URL"));
    let store = at(&format!("rediss://127.0.0.1:{}", ours.port), &ours.root);
    store.wait_up();
    store.said(&[UP]);

    let store = at(&format!("rediss://127.0.0.1:{}", ours.port), &others.root);
    let fault = store.wait_down(FaultKind::Tls);
    assert!(
        fault.to_string().contains("invalid peer certificate"),
        "{fault}"
    );

    let store = at(&format!("rediss://localhost:{}", ours.port), &ours.root);
    store.wait_down(FaultKind::Tls);

    let plain = at(&format!("redis://127.0.0.1:{}", ours.port), &ours.root);
    let fault = wait_for("the mistake to be noticed", || {
        let _ = plain.call();
        plain.fault()
    });
    let kinds = [FaultKind::NotRedis, FaultKind::Lost];
    assert!(kinds.contains(&fault.kind), "{fault}");
    let none = Spec::from_url("rediss://127.0.0.1", None).expect_err("no settings");
    assert_eq!(none, UrlError::NoTls);
}

fn address(server: &RedisServer) -> Address {
    Address::new("127.0.0.1", server.address.port())
}

#[test]
fn a_new_master_is_found_through_the_sentinels() {
    let mut watched = Watched::start();
    let spec = |name| Spec::from_url(&watched.url(name), None).expect("a URL");
    Store::with(spec("nobody")).wait_down(FaultKind::NoMaster);
    // Each configured as another kind.
    Store::at(watched.sentinel.address).wait_down(FaultKind::WrongKind);
    let sentinels = vec![address(&watched.replica)];
    let wrong = Target::Sentinel {
        sentinels,
        master: "mymaster".into(),
        login: Default::default(),
    };
    Store::with(Spec::new(wrong)).wait_down(FaultKind::WrongKind);

    let store = Store::with(spec("mymaster"));
    store.wait_up();
    let has_it = |server: &_| command(server, &["EXISTS", "sluicegate:n"]) == Value::Int(1);
    assert!(has_it(&watched.master));
    watched.master.kill();
    wait_for("the other master", || {
        (store.call().is_ok() && store.client.state() == State::Up).then_some(())
    });
    assert!(has_it(&watched.replica));
    let lines = store.lines();
    assert!(
        lines.len() >= 3 && lines[2..].iter().any(|line| line.contains(UP)),
        "{lines:?}"
    );
}

#[test]
fn moved_slots_of_a_cluster_are_found() {
    let mut nodes = cluster();
    Store::at(nodes[0].address).wait_down(FaultKind::WrongKind);
    let alone = RedisServer::start();
    let wrong = Spec::new(Target::Cluster(vec![address(&alone)]));
    Store::with(wrong).wait_down(FaultKind::WrongKind);

    // One node is enough to find the others.
    let store = Store::with(Spec::new(Target::Cluster(vec![address(&nodes[1])])));
    store.wait_up();
    for n in 0..100 {
        let key = format!("sluicegate:{n}");
        assert_eq!(store.call_key(&key), Ok(Value::Int(1)));
        let expected = command(&nodes[0], &["CLUSTER", "KEYSLOT", &key]);
        assert_eq!(expected, Value::Int(slot(key.as_bytes()).into()));
    }
    let kind = store
        .runtime
        .block_on(call(&store.client, 0, &store.add, &words(&["a", "b"], 1)));
    assert_eq!(kind.map_err(|fault| fault.kind), Err(FaultKind::CrossSlot));

    // A slot moves while in use: `foo` is in 12182, which the third node has.
    let (from, to) = (id(&nodes[2]), id(&nodes[0]));
    command(
        &nodes[0],
        &["CLUSTER", "SETSLOT", "12182", "IMPORTING", &from],
    );
    command(
        &nodes[2],
        &["CLUSTER", "SETSLOT", "12182", "MIGRATING", &to],
    );
    assert_eq!(store.call_key("foo"), Ok(Value::Int(1)));
    assert_eq!(store.call_key("foo"), Ok(Value::Int(2)));
    for node in [0, 2, 1] {
        command(&nodes[node], &["CLUSTER", "SETSLOT", "12182", "NODE", &to]);
    }
    assert_eq!(store.call_key("foo"), Ok(Value::Int(3)));
    store.said(&[UP]);

    // A master dies, and a replica replaces it.
    let replica = node();
    let (new, old) = (replica.address.to_string(), nodes[0].address.to_string());
    redis_cli(&[
        "--cluster",
        "add-node",
        &new,
        &old,
        "--cluster-slave",
        "--cluster-master-id",
        &to,
    ]);
    wait_for("the replica to follow", || {
        let role = command(&replica, &["ROLE"]);
        format!("{role:?}").contains("connected").then_some(())
    });
    nodes[0].kill();
    wait_for("the replica to take over", || {
        let answer: Result<Value, Fault> = store.call_key("foo");
        (answer.is_ok() && store.client.state() == State::Up).then_some(())
    });
    assert_eq!(command(&replica, &["EXISTS", "foo"]), Value::Int(1));
}

#[test]
fn a_cluster_without_one_of_its_masters_is_connected() {
    let mut nodes = cluster();
    for node in &nodes {
        command(
            node,
            &["CONFIG", "SET", "cluster-require-full-coverage", "no"],
        );
    }
    let store = Store::with(Spec::new(Target::Cluster(vec![address(&nodes[1])])));
    store.wait_up();
    assert!(store.connects_with(&store.add));
    // It has `foo`.
    nodes[2].kill();
    wait_for("the dead server to be noticed", || {
        let answer = store.call_key("foo").map_err(|fault| fault.kind);
        (answer == Err(FaultKind::Refused)).then_some(())
    });
    assert!(store.connects_with(&Script::new("return 1")));
}

#[test]
fn a_server_without_the_script_command_is_connected() {
    let redis = RedisServer::with_options(&["--rename-command", "SCRIPT", "HIDDEN"]);
    let store = Store::at(redis.address);
    store.wait_up();
    assert!(store.connects_with(&store.add));
}

#[test]
fn a_server_that_paused_gets_the_scripts_afterwards() {
    let redis = RedisServer::start();
    let store = Store::at(redis.address);
    store.wait_up();
    assert!(store.connects_with(&store.add));
    // Longer than one attempt may take.
    command(&redis, &["CLIENT", "PAUSE", "1500", "ALL"]);
    assert!(store.connects_with(&Script::new("return 1")));
}
