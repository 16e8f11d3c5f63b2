//! One client's credentials, however they are spelled, through the binary.

use serde_json::json;

use crate::support::admin::{AdminClient, TOKENS};
use crate::support::client::Connection;
use crate::support::gateway::Gateway;

/// Spellings of one key. Upstreams take them all.
const SPELLINGS: [&[u8]; 8] = [
    b"Bearer k",
    b"Bearer\tk",
    b"bearer\t\tk",
    b"BEARER \tk",
    b"Bearer\xa0k",
    b"Bearer\x85k\xa0",
    b"Bearer\xe2\x80\x83k",
    b"Bearer k x",
];

fn status(gateway: &Gateway, path: &str, field: &[u8]) -> u16 {
    let mut connection = Connection::open(gateway.address());
    let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n");
    connection.send([head.as_bytes(), b"authorization: ", field, b"\r\n\r\n"].concat());
    connection.receive().status
}

#[test]
fn each_spelling_of_a_key_meets_the_same_bucket_ban_override_and_rule() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}policies:
  few: {{ key: header:authorization, quota: 3/1h }}
  banned: {{ key: header:authorization, quota: 100/1h }}
  plan: {{ key: header:authorization, quota: 1/1h, overrides: [{{ value: Bearer k, quota: 100/1h }}] }}
check: {{ allow: [{{ warning: forgeable-key, reason: x }}] }}
routes:
  - {{ match: {{ path: /few }}, upstream: echo, limits: [few] }}
  - {{ match: {{ path: /banned }}, upstream: echo, limits: [banned] }}
  - {{ match: {{ path: /plan }}, upstream: echo, limits: [plan] }}
  - {{ match: {{ path: /denied }}, upstream: echo, access: {{ deny: [{{ header: {{ authorization: Bearer k }} }}] }} }}
"
    ));
    let ban = json!({ "policy": "banned", "key": "Bearer k", "for": "1h" });
    let admin = AdminClient::writer(&gateway);
    let answer = admin.post("/v1/keys/ban", &ban);
    assert_eq!(answer.status, 200, "{}", answer.text());
    for (number, field) in SPELLINGS.iter().enumerate() {
        let spelled = field.escape_ascii();
        let few = if number < 3 { 200 } else { 429 };
        assert_eq!(status(&gateway, "/few", field), few, "{spelled}");
        assert_eq!(status(&gateway, "/banned", field), 429, "{spelled}");
        assert_eq!(status(&gateway, "/plan", field), 200, "{spelled}");
        assert_eq!(status(&gateway, "/denied", field), 403, "{spelled}");
    }
    for path in ["/few", "/banned", "/plan", "/denied"] {
        assert_eq!(status(&gateway, path, b"Bearer other"), 200, "{path}");
    }
}
