//! The bans and grants of operators on keys that machines share: listed alike, and ended on all.

use serde_json::{Value, json};

use crate::support::admin::{AdminClient, READER, json as answer};
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::shared::{ask, proxies};
use crate::support::steering::{admitted, grant, lookup, shared_config, steer};
use crate::support::wait_for;

fn list(gateway: &Gateway) -> Vec<Value> {
    let page = answer(&AdminClient::new(gateway, READER).get("/v1/keys"));
    page["items"].as_array().expect("items").clone()
}

fn wait_for_list(gateway: &Gateway, expected: &[Value]) {
    wait_for("the list", || (list(gateway) == expected).then_some(()));
}

#[test]
fn all_machines_list_and_end_what_one_did() {
    let redis = RedisServer::start();
    let policies = [
        "quota: 1/300d",
        "quota: 1/300d, sync: 50ms",
        "quota: 100/300d",
    ];
    let [first, second]: [Gateway; 2] = proxies(&redis, &shared_config(&policies));
    assert_eq!(ask(&first, "/0").status, 200);
    assert_eq!(ask(&second, "/1").status, 200);
    grant(&first, "p0", 5);
    grant(&first, "p1", 5);
    steer(
        &first,
        "ban",
        "p2",
        json!({ "for": "1h", "reason": "scrapes" }),
    );
    let listed = list(&first);
    let fields = |field: &str| -> Vec<_> { listed.iter().map(|one| one[field].clone()).collect() };
    assert_eq!(fields("policy"), ["p2", "p1", "p0"]);
    assert_eq!(fields("actor"), ["write#1"; 3]);
    assert_eq!(fields("of_units"), [Value::Null, json!(5), json!(5)]);
    assert_eq!(listed[0]["reason"], "scrapes");
    wait_for_list(&second, &listed);
    let state = lookup(&second, "p0", "a");
    assert_eq!(state["granted"]["actor"], "write#1");

    // The second ends all, by the ids.
    let writer = AdminClient::writer(&second);
    for one in &listed {
        let body = json!({ "policy": one["policy"], "id": one["id"], "what": one["what"] });
        let revoked = answer(&writer.post("/v1/keys/revoke", &body));
        assert_eq!(revoked["revoked"], *one);
    }
    for gateway in [&first, &second] {
        wait_for_list(gateway, &[]);
        assert_eq!(lookup(gateway, "p0", "a")["granted"], Value::Null);
        assert_eq!(admitted(gateway, "/0", "a"), 0);
        assert_eq!(ask(gateway, "/2").status, 200);
        wait_for("the end of the synchronised grant", || {
            (admitted(gateway, "/1", "a") == 0).then_some(())
        });
    }
    // A machine that starts reads all of it in its order.
    let [late]: [Gateway; 1] = proxies(&redis, &shared_config(&policies));
    wait_for_list(&late, &[]);
    assert_eq!(ask(&late, "/2").status, 200);
    // A grant after one that was taken back counts.
    grant(&late, "p0", 2);
    assert_eq!(admitted(&late, "/0", "a"), 2);
}
