//! Proxies with servers behind TLS, and in a cluster.

use std::thread;
use std::time::Duration;

use redis::Value;
use serde_json::{Value as Json, json};

use crate::support::admin::{AdminClient, READER, TOKENS, json as json_of};
use crate::support::client::{Connection, get, get_with};
use crate::support::gateway::Gateway;
use crate::support::redis::{RedisServer, command};
use crate::support::redis_servers::{cluster, secure};
use crate::support::shared::{ask, retry_after, statuses, wait_up};
use crate::support::steering::UNTIL;
use crate::support::wait_for;

#[test]
fn a_proxy_speaks_tls_with_the_configured_login() {
    let secure = secure();
    let user = ["ACL", "SETUSER", "bob", "on", ">a/b@c", "~*", "+@all"];
    command(&secure.server, &user);
    let gateway = |store: &str| {
        Gateway::start(&format!(
            "store: {{ redis: {{ {store}, timeout: 1s, secret: sixteen-characters }} }}
policies: {{ p: {{ store: redis, key: constant, quota: 3/1h }} }}
routes: [{{ upstream: echo, limits: [p] }}]
"
        ))
    };
    let (port, trust) = (
        secure.port,
        format!("tls: {{ ca: \"{}\" }}", secure.authority),
    );
    let in_url = gateway(&format!(
        "url: \"rediss://bob:a%2Fb%40c@127.0.0.1:{port}\", {trust}"
    ));
    let beside = gateway(&format!(
        "url: \"rediss://127.0.0.1:{port}\", user: bob, password: \"a/b@c\", {trust}"
    ));
    let both = [&in_url, &beside];
    both.into_iter().for_each(wait_up);
    let statuses = both.map(|gateway| [(); 2].map(|()| get(gateway.address(), "/").status));
    assert_eq!(statuses, [[200, 200], [200, 429]]);
    // A server that the system does not trust.
    let unknown = gateway(&format!("url: \"rediss://127.0.0.1:{port}\""));
    wait_for("the mistake to be noticed", || {
        get(unknown.address(), "/");
        let ready = get(unknown.admin, "/readyz").text();
        ready.contains("fails the TLS handshake").then_some(())
    });
}

#[test]
fn the_status_says_how_many_keys_a_dead_master_takes_along() {
    let mut nodes = cluster();
    for node in &nodes {
        command(
            node,
            &["CONFIG", "SET", "cluster-require-full-coverage", "no"],
        );
    }
    let gateway = Gateway::start(&format!(
        "store: {{ redis: {{ cluster: [\"{}\"] }} }}
admin: {{ tokens: {{ read: [{READER}] }} }}
policies:
  exact: {{ key: header:x-key, store: redis, quota: 9/1h, on_store_error: refuse }}
  rough: {{ key: header:x-key, store: redis, quota: 9/1h, on_store_error: local }}
routes: [{{ upstream: echo, limits: [exact, rough] }}]
",
        nodes[1].address
    ));
    nodes[2].kill();
    let expected = [
        format!("redis is down: {} ", nodes[2].address),
        ", and decides about none of 33 % of the keys; each machine counts alone for policy rough"
            .to_owned(),
        "policy exact refuses requests of 33 % of the keys: it cannot reach redis".to_owned(),
    ];
    wait_for("the problems", || {
        for key in 0..30 {
            get_with(gateway.address(), "/", &format!("x-key: {key}\r\n"));
        }
        let status = AdminClient::new(&gateway, READER).read("/v1/status");
        let problems = status["problems"].to_string();
        expected
            .iter()
            .all(|text| problems.contains(text))
            .then_some(())
    });
    let statuses: Vec<_> = (0..60)
        .map(|key| get_with(gateway.address(), "/", &format!("x-key: new-{key}\r\n")).status)
        .collect();
    assert!(
        statuses.contains(&200) && statuses.contains(&503),
        "{statuses:?}"
    );
    assert_eq!(
        get(gateway.admin, "/readyz").status,
        200,
        "others are served"
    );
}

/// Limits with buckets in different slots take a call each. All are charged or none, except those
/// that charge refusals.
#[test]
fn in_a_cluster_a_refusal_gives_back_the_charges_in_other_slots() {
    let nodes = cluster();
    let addresses: Vec<_> = nodes.iter().map(|node| node.address.to_string()).collect();
    let gateway = Gateway::start(&format!(
        "store: {{ redis: {{ cluster: [{}], timeout: 1s, readable_keys: true, refusal_cache: 0s }} }}
policies:
  logs: {{ store: redis, key: \"header:x-i\", algorithm: sliding_log, quota: 9/10d }}
  parts: {{ store: redis, key: \"header:x-j\", algorithm: sliding_window, precision: 10, quota: 9/10d }}
  rate: {{ store: redis, key: \"header:x-e\", quota: 9/300d }}
  steps: {{ store: redis, key: \"header:x-f\", algorithm: token_bucket, capacity: 9, refill: 9 per 300d }}
  counts: {{ store: redis, key: \"header:x-g\", algorithm: fixed_window, quota: 9/300d }}
  slides: {{ store: redis, key: \"header:x-h\", algorithm: sliding_window, quota: 9/300d }}
  slots: {{ store: redis, key: \"header:x-a\", algorithm: concurrency, max: 1 }}
  tight: {{ store: redis, key: \"header:x-b\", quota: 3/1h }}
  owes: {{ store: redis, key: \"header:x-c\", quota: 9/1h, charge_refused: true }}
  settles: {{ store: redis, key: \"header:x-d\", quota: 4/1h, count: [404] }}
routes:
  - {{ name: all, match: {{ path: /all }}, upstream: echo, limits: [logs, parts, rate, steps, counts, slides, slots, tight, owes, settles] }}
  - {{ name: owes, match: {{ path: /owes }}, upstream: echo, limits: [owes] }}
  - {{ name: logs, match: {{ path: /logs }}, upstream: echo, limits: [logs] }}
  - {{ name: parts, match: {{ path: /parts }}, upstream: echo, limits: [parts] }}
",
        addresses.join(", ")
    ));
    drop(Connection::open(gateway.address()));
    wait_for("the store to be up", || {
        let ready = get(gateway.admin, "/readyz").text();
        ready.contains("redis: up").then_some(())
    });
    let told = || {
        let series = "sluicegate_store_requests_total{op=\"follow_up\",result=\"ok\"}";
        gateway.metric(series).unwrap_or_default()
    };
    // The units in the buckets before the refusing one, by their instants: each is weeks.
    let before = |key: u32| {
        let names = [
            ('e', "rate"),
            ('f', "steps"),
            ('g', "counts"),
            ('h', "slides"),
        ];
        names.map(|(letter, policy)| {
            let pattern = format!("sluicegate:{{{letter}{key}}}{policy}:*");
            let (node, name) = nodes.iter().find_map(|node| {
                let names = command(node, &["KEYS", &pattern]);
                let names: Vec<String> = redis::from_redis_value(names).expect("names");
                let mut names = names.into_iter();
                Some((node, names.find(|name| !name.ends_with(":undecided"))?))
            })?;
            let value = command(node, &["GET", &name]);
            let value: String = redis::from_redis_value(value).expect("a text");
            let state = value.split_once('|').map_or(&*value, |(_, state)| state);
            let (instant, units) = state.split_once(' ')?;
            let days = instant.parse::<u64>().expect("a number") / 86_400_000_000;
            // With a rate, the instant shows the units, up to the time that the test took.
            Some((days, (policy != "rate").then(|| units.to_owned())))
        })
    };
    for key in 0..8 {
        let fields: String = ('a'..='j')
            .map(|of| format!("x-{of}: {of}{key}\r\n"))
            .collect();
        let ask = |path| get_with(gateway.address(), path, &fields).status;
        let mut charged = before(key);
        let all = [(); 6].map(|()| {
            let told_before = told();
            let status = ask("/all");
            if status == 200 {
                charged = before(key);
            }
            // Units given back arrive a moment later.
            wait_for("what is told afterwards", || {
                let leases = nodes
                    .iter()
                    .map(|node| command(node, &["KEYS", "*:leases"]));
                let is_free = leases.eq([(); 3].map(|()| Value::Array(Vec::new())));
                let is_back = before(key) == charged;
                (told() > told_before && is_free && is_back).then_some(())
            });
            status
        });
        assert_eq!(all, [200, 200, 200, 429, 429, 429], "{key}");
        assert!(charged.iter().all(Option::is_some), "{charged:?}");
        for path in ["/logs", "/parts"] {
            // Of the nine units, admitted requests took three. Units given back arrive a moment
            // later.
            let statuses = [(); 7].map(|()| ask(path));
            assert_eq!(
                statuses,
                [200, 200, 200, 200, 200, 200, 429],
                "{path} {key}"
            );
        }
        let owes = [(); 4].map(|()| ask("/owes"));
        assert_eq!(owes, [200, 200, 200, 429], "all six were charged: {key}");
    }
}

/// A burst charges one policy's slot, and another slot refuses most of it. The units are given back,
/// so no refusal for lack of them may name a long wait, or be remembered.
#[test]
fn in_a_cluster_no_request_is_refused_for_units_that_are_about_to_come_back() {
    let nodes = cluster();
    let addresses: Vec<_> = nodes.iter().map(|node| node.address.to_string()).collect();
    let gateway = Gateway::start(&format!(
        "store: {{ redis: {{ cluster: [{}], timeout: 1s, secret: sixteen-characters, refusal_cache: 1m }} }}
policies:
  wide: {{ store: redis, key: \"header:x-wide\", quota: 20/24h }}
  tight: {{ store: redis, key: \"header:x-tight\", quota: 5/1h }}
routes:
  - {{ match: {{ path: /both }}, upstream: echo, limits: [wide, tight] }}
  - {{ match: {{ path: /wide }}, upstream: echo, limits: [wide] }}
",
        addresses.join(", ")
    ));
    wait_for("the store to be up", || {
        let ready = get(gateway.admin, "/readyz").text();
        ready.contains("redis: up").then_some(())
    });
    // Some of these pairs of keys have different slots.
    for round in 0..4 {
        let keys = format!("x-wide: w{round}\r\nx-tight: t{round}\r\n");
        let responses: Vec<_> = std::thread::scope(|scope| {
            let ask = || get_with(gateway.address(), "/both", &keys);
            let clients: Vec<_> = (0..120).map(|_| scope.spawn(ask)).collect();
            let responses = clients.into_iter();
            responses
                .map(|client| client.join().expect("no panic"))
                .collect()
        });
        let admitted = responses.iter().filter(|one| one.status == 200).count();
        assert_eq!(admitted, 5);
        for refused in responses.iter().filter(|one| one.status != 200) {
            let wait: u64 = refused.expect_header("retry-after").parse().unwrap();
            assert!(wait <= 720, "only `tight` is used up: {refused:?}");
        }
        let keys = format!("x-wide: w{round}\r\n");
        let mut admitted = 0;
        let wait = wait_for("the units to be back and used up", || {
            let response = get_with(gateway.address(), "/wide", &keys);
            admitted += u32::from(response.status == 200);
            let wait: u64 = response.header("retry-after")?.parse().unwrap();
            // The time since a charge may be lost when it is given back.
            (wait > 600).then_some(wait)
        });
        assert_eq!(admitted, 15);
        assert!((4_000..=4_320).contains(&wait), "{wait}");
    }
}

#[test]
fn in_a_cluster_bans_in_all_slots_are_shared() {
    let nodes = cluster();
    let addresses: Vec<_> = nodes.iter().map(|node| node.address.to_string()).collect();
    let places = 0..6;
    let policy = |place| {
        format!(
            "  p{place}: {{ store: redis, key: \"header:x-key\", quota: 1/1h, \
             penalty: {{ strikes: 2, within: 1h, for: [2h] }} }}\n"
        )
    };
    let route = |place| {
        format!("  - {{ match: {{ path: /{place} }}, upstream: echo, limits: [p{place}] }}\n")
    };
    let config = format!(
        "store: {{ redis: {{ cluster: [{}], timeout: 1s, secret: sixteen-characters }} }}
policies:\n{}routes:\n{}",
        addresses.join(", "),
        places.clone().map(policy).collect::<String>(),
        places.clone().map(route).collect::<String>(),
    );
    let [one, other] = [(); 2].map(|()| Gateway::start(&config));
    wait_up(&one);
    wait_up(&other);
    for place in places.clone() {
        assert_eq!(statuses(&one, &format!("/{place}")), [200, 429, 429]);
    }
    // More than a round of each, with the delays of a busy machine.
    thread::sleep(Duration::from_secs(1));
    for place in places {
        let seconds = retry_after(&ask(&other, &format!("/{place}")));
        assert!(seconds > 7_000, "{place}: {seconds}");
    }
    let announced = |node: &RedisServer| command(node, &["KEYS", "*:bans"]);
    let all: Vec<_> = nodes.iter().map(announced).collect();
    let has_some = |keys: &&Value| matches!(keys, Value::Array(keys) if !keys.is_empty());
    assert!(all.iter().filter(has_some).count() > 1, "{all:?}");
}

/// Buckets, granted units and announcements are in different slots.
#[test]
fn in_a_cluster_keys_are_steered_on_all_machines() {
    let nodes = cluster();
    let addresses: Vec<_> = nodes.iter().map(|node| node.address.to_string()).collect();
    let config = format!(
        "{TOKENS}store: {{ redis: {{ cluster: [{}], timeout: 1s, secret: sixteen-characters, refusal_cache: 1m }} }}
policies:
  p: {{ store: redis, key: \"header:x-key\", quota: 2/300d }}
  tight: {{ store: redis, key: \"header:x-other\", quota: 1/300d }}
  strict: {{ store: redis, key: \"header:x-key\", quota: 0/1h, penalty: {{ strikes: 2, within: 1h, for: [2h] }} }}
routes:
  - {{ match: {{ path: /p }}, upstream: echo, limits: [p] }}
  - {{ match: {{ path: /both }}, upstream: echo, limits: [p, tight] }}
  - {{ match: {{ path: /strict }}, upstream: echo, limits: [strict] }}
",
        addresses.join(", "),
    );
    let [one, other] = [(); 2].map(|()| Gateway::start(&config));
    wait_up(&one);
    wait_up(&other);
    let call = |gateway: &Gateway, action: &str, body: Json| {
        let api = AdminClient::writer(gateway);
        json_of(&api.post(&format!("/v1/keys/{action}"), &body))
    };
    for key in 0..6 {
        let headers = format!("x-key: {key}\r\nx-other: {key}\r\n");
        let ask = |gateway: &Gateway, path| get_with(gateway.address(), path, &headers).status;
        let named = |policy: &str| json!({ "policy": policy, "key": key.to_string() });
        let grant = |units: u32| {
            let mut body = named("p");
            body["units"] = json!(units);
            body["until"] = json!(*UNTIL);
            call(&one, "grant", body);
        };
        let feels = |status| {
            wait_for("the action", || (ask(&other, "/p") == status).then_some(()));
        };
        assert_eq!([(); 3].map(|()| ask(&other, "/p")), [200, 200, 429]);
        call(&one, "reset", named("p"));
        feels(200);
        assert_eq!([(); 2].map(|()| ask(&other, "/p")), [200, 429]);
        grant(4);
        feels(200);
        // The refusals of `tight` give the granted units back.
        assert_eq!([(); 3].map(|()| ask(&one, "/both")), [200, 429, 429]);
        wait_for("the units that go back", || {
            let state = call(&one, "lookup", named("p"));
            (state["granted"]["units"] == 2).then_some(())
        });
        assert_eq!([(); 3].map(|()| ask(&one, "/p")), [200, 200, 429]);
        grant(1_000_000);
        feels(200);
        let mut ban = named("p");
        ban["for"] = json!("1h");
        call(&one, "ban", ban);
        feels(429);
        call(&one, "unban", named("p"));
        feels(200);
        // The ban of a penalty is lifted, too.
        (0..2).for_each(|_| assert_eq!(ask(&other, "/strict"), 429));
        let is_banned = |gateway| call(gateway, "lookup", named("strict"))["ban"].is_object();
        wait_for("the ban", || is_banned(&one).then_some(()));
        call(&one, "unban", named("strict"));
        wait_for("its end", || (!is_banned(&other)).then_some(()));
    }
}
