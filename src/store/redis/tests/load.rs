//! The client of the Redis store under many calls at once, and with several workers.

use std::sync::Arc;
use std::thread;

use super::worker::{Store, TIMEOUT, single, words};
use crate::clock::Clock;
use crate::store::redis::client::{Client, FaultKind, Spec, State};
use crate::support::redis::RedisServer;
use crate::support::redis::{SLACK, command};
use crate::support::{now, wait_for};
use crate::telemetry::metrics::StoreMetrics;
use crate::telemetry::registry::Registry;

#[test]
fn calls_beyond_the_bound_fail_at_once_and_none_exceeds_its_deadline() {
    let server = RedisServer::start();
    let store = Store::at(server.address);
    store.wait_up();
    server.stop();
    let started = now();
    let calls: Vec<_> = (0..3_000)
        .map(|_| {
            let (client, add) = (Arc::clone(&store.client), store.add.clone());
            let call = async move { client.call(0, &add, &words(&["sluicegate:n"], 1)).await };
            store.runtime.spawn(call)
        })
        .collect();
    let mut crowded = 0;
    for call in calls {
        let answer = store.runtime.block_on(call).expect("no call panics");
        match answer.expect_err("the server stands still").kind {
            FaultKind::Crowded => crowded += 1,
            kind => assert!(
                [FaultKind::Timeout, FaultKind::Lost].contains(&kind),
                "{kind:?}"
            ),
        }
    }
    assert!(crowded > 0);
    let took = started.elapsed();
    assert!(took < TIMEOUT + SLACK, "3,000 calls took {took:?}");
    server.go_on();
    store.wait_up();
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
        timeout: TIMEOUT,
        ..single(server.address)
    };
    let metrics = StoreMetrics::new(&Registry::default());
    let client = Client::new(spec, WORKERS, Arc::new(Clock::system()), metrics);
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
