//! How requests are shared among the hosts of an upstream.

use std::thread;

use crate::support::client::{Connection, get};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step, ok};
use crate::support::wait_for;

/// A proxy in front of these origins, with this `balance`.
fn start(origins: &[&Origin], balance: &str) -> Gateway {
    let endpoints: Vec<_> = origins.iter().map(|origin| origin.url()).collect();
    Gateway::start(&format!(
        "workers: 1
upstreams: {{ pool: {{ endpoints: {endpoints:?}, balance: {balance} }} }}
routes:
  - {{ match: {{ path: \"/users/{{id}}/**\" }}, upstream: pool }}
  - {{ upstream: pool }}
"
    ))
}

/// The request of a user for a path.
fn request(gateway: &Gateway, user: &str, path: &str) {
    let mut connection = Connection::open(gateway.address());
    let answer = connection.exchange(&format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nX-User: {user}\r\n\r\n"
    ));
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn counts(origins: &[&Origin]) -> Vec<usize> {
    origins.iter().map(|one| one.requests().len()).collect()
}

#[test]
fn requests_with_the_same_key_go_to_the_same_host() {
    let origins = [Origin::plain(), Origin::plain(), Origin::plain()];
    let origins = origins.each_ref();
    let hash = "{ hash: header:x-user }";
    let before = start(&origins, hash);
    let after = start(&origins, hash);
    let mut used = [0; 3];
    for user in 0..40 {
        let user = format!("user-{user}");
        origins.iter().for_each(|origin| origin.forget());
        // Another process agrees, and so does the first after a reload.
        for gateway in [&before, &after, &before, &after] {
            request(gateway, &user, "/");
        }
        let counts = counts(&origins);
        assert_eq!(counts.iter().max(), Some(&4), "{user}: {counts:?}");
        let host = counts.iter().position(|&count| count == 4);
        used[host.expect("one has all")] += 1;
    }
    assert!(used.iter().all(|&users| users > 0), "{used:?}");
}

#[test]
fn a_captured_segment_chooses_the_host_and_requests_without_it_are_spread() {
    let origins = [Origin::plain(), Origin::plain()];
    let origins = origins.each_ref();
    let gateway = start(&origins, "{ hash: \"path:id\" }");
    for path in ["/users/7/a", "/users/7/b", "/users/%37/c"] {
        request(&gateway, "any", path);
    }
    let mut of_one = counts(&origins);
    of_one.sort_unstable();
    assert_eq!(of_one, [0, 3]);
    wait_for("requests to both", || {
        request(&gateway, "any", "/other");
        counts(&origins)
            .iter()
            .all(|&count| count > 0)
            .then_some(())
    });
}

#[test]
fn random_hosts_are_all_used() {
    let origins = [Origin::plain(), Origin::plain(), Origin::plain()];
    let origins = origins.each_ref();
    let gateway = start(&origins, "random");
    wait_for("requests to all", || {
        assert_eq!(get(gateway.address(), "/").status, 200);
        counts(&origins)
            .iter()
            .all(|&count| count > 0)
            .then_some(())
    });
}

#[test]
fn a_host_with_requests_in_flight_is_left_to_them() {
    let slow = Origin::start(|request| match request.target.as_str() {
        "/slow" => vec![Step::Hang],
        _ => ok("ok"),
    });
    let other = Origin::plain();
    let gateway = start(&[&slow, &other], "least_requests");
    // The first that hangs makes all others go to the other host.
    let mut hanging = Vec::new();
    while counts(&[&slow]) == [0] {
        let mut connection = Connection::open(gateway.address());
        let before: usize = counts(&[&slow, &other]).iter().sum();
        connection.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_for("the request", || {
            (counts(&[&slow, &other]).iter().sum::<usize>() > before).then_some(())
        });
        hanging.push(connection);
        if counts(&[&slow]) == [0] {
            hanging.clear();
        }
    }
    for _ in 0..20 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    assert_eq!(counts(&[&slow]), [1]);
    drop(hanging);
    wait_for("requests to both again", || {
        thread::yield_now();
        assert_eq!(get(gateway.address(), "/").status, 200);
        (counts(&[&slow])[0] > 1).then_some(())
    });
}
