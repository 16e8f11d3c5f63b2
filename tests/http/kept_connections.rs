//! How often, and how long, connections to upstreams are used again.

use crate::support::client::get;
use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::wait_for;

fn start(origin: &Origin, connections: &str) -> Gateway {
    Gateway::start(&format!(
        "workers: 1
upstreams: {{ pool: {{ endpoints: [\"{}\"], connections: {connections} }} }}
routes: [{{ upstream: pool }}]
",
        origin.url()
    ))
}

#[test]
fn a_connection_carries_at_most_max_requests() {
    let origin = Origin::plain();
    let gateway = start(&origin, "{ max_requests: 3 }");
    for _ in 0..7 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    let connections: Vec<_> = origin.requests().iter().map(|one| one.connection).collect();
    assert_eq!(connections, [1, 1, 1, 2, 2, 2, 3]);
}

#[test]
fn a_connection_ends_after_max_lifetime() {
    let origin = Origin::plain();
    let gateway = start(&origin, "{ max_lifetime: 1s }");
    wait_for("a second connection", || {
        assert_eq!(get(gateway.address(), "/").status, 200);
        (origin.connections() > 1).then_some(())
    });
    // An idle one ends too.
    let open = "sluicegate_upstream_connections";
    let labels = format!("{{upstream=\"pool\",endpoint=\"{}\"}}", origin.address());
    wait_for("no connection", || {
        (gateway.metric(&format!("{open}{labels}")) == Some(0.0)).then_some(())
    });
}
