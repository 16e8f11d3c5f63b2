//! The client of the Redis store under many calls at once, and with several workers.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::worker::{ANYBODY, Store, TIMEOUT, UP, single, words};
use crate::store::redis::client::{Client, Fault, FaultKind, NAME, Spec, State, dial};
use crate::support::redis::RedisServer;
use crate::support::redis::{SLACK, command};
use crate::support::{DEADLINE, now, wait_for};

/// Calls as many times at once, each within `timeout`.
fn call_at_once(
    store: &Store,
    calls: usize,
    timeout: Duration,
) -> Vec<JoinHandle<Result<Value, Fault>>> {
    let deadline = Instant::now() + timeout;
    let call = |_| {
        let (client, add) = (Arc::clone(&store.client), store.add.clone());
        store.runtime.spawn(async move {
            let words = words(&["sluicegate:n"], 1);
            client
                .call_by(deadline, ANYBODY, &add, &words, || false)
                .await
        })
    };
    (0..calls).map(call).collect()
}

fn kinds(store: &Store, calls: Vec<JoinHandle<Result<Value, Fault>>>) -> Vec<Option<FaultKind>> {
    let answers = calls.into_iter().map(|call| store.runtime.block_on(call));
    let kind = |answer: Result<Value, Fault>| answer.err().map(|fault| fault.kind);
    answers
        .map(|answer| kind(answer.expect("no call panics")))
        .collect()
}

#[test]
fn no_call_exceeds_its_deadline_however_many_there_are() {
    let server = RedisServer::start();
    let store = Store::at(server.address);
    store.wait_up();
    server.stop();
    let started = now();
    for kind in kinds(&store, call_at_once(&store, 3_000, TIMEOUT)) {
        let kind = kind.expect("the server stands still");
        let expected = [FaultKind::Timeout, FaultKind::Lost, FaultKind::Crowded];
        assert!(expected.contains(&kind), "{kind:?}");
    }
    let took = started.elapsed();
    assert!(took < TIMEOUT + SLACK, "3,000 calls took {took:?}");
    server.go_on();
    store.wait_up();
}

#[test]
fn calls_wait_for_a_place_and_one_that_gets_none_is_counted_and_logged() {
    let server = RedisServer::start();
    let store = Store::at(server.address);
    store.wait_up();
    assert!(!store.client.is_crowded());
    server.stop();
    let under_way = call_at_once(&store, 3_000, DEADLINE);
    let late = call_at_once(&store, 1, Duration::from_millis(20));
    assert_eq!(kinds(&store, late), [Some(FaultKind::Crowded)]);
    server.go_on();
    assert_eq!(kinds(&store, under_way), vec![None; 3_000]);
    assert!(store.client.is_crowded());
    let series = "sluicegate_store_requests_total{op=\"call\",result=\"crowded\"} 1\n";
    assert!(store.registry.render().contains(series));
    store.said(&[UP, "is crowded"]);
}

/// The connections of the store's clients at the server.
fn connections(server: &RedisServer) -> usize {
    let list = command(server, &["CLIENT", "LIST"]);
    let list: String = redis::from_redis_value(list).expect("a text");
    list.matches("name=sluicegate").count()
}

#[test]
fn every_worker_has_a_connection_of_its_own_and_reconnects() {
    const WORKERS: usize = 4;
    let mut server = RedisServer::start();
    let spec = Spec {
        name: NAME,
        timeout: TIMEOUT,
        ..single(server.address)
    };
    let client = Client::new(spec, WORKERS, dial, Arc::new(()));
    let client = Arc::new(client);
    let (stop, stopped) = tokio::sync::watch::channel(());
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (client, mut stopped) = (Arc::clone(&client), stopped.clone());
            thread::spawn(move || {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = runtime.enable_all().build().expect("a runtime");
                runtime.block_on(async {
                    client.start(worker);
                    let _ = stopped.changed().await;
                });
            })
        })
        .collect();
    let is_up = |server: &RedisServer| {
        let is_up = client.state() == State::Up && connections(server) == WORKERS;
        is_up.then_some(())
    };
    wait_for("all to be connected", || is_up(&server));
    server.kill();
    wait_for("that to be noticed", || {
        matches!(client.state(), State::Down { .. }).then_some(())
    });
    server.start_again();
    // Without calls: connections wait for the first request, not the reverse.
    wait_for("all to be connected again", || is_up(&server));
    drop(stop);
    for worker in workers {
        worker.join().expect("no worker panics");
    }
}
