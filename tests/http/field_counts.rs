//! The number of fields in a request (`client.max_fields`).

use crate::support::client::get_with;
use crate::support::frames::{Http2, field, get_block};
use crate::support::gateway::Gateway;

/// The statuses of a request with so many fields, over HTTP/1 and HTTP/2.
fn statuses(gateway: &Gateway, name: &str, count: usize) -> (u16, u16) {
    // Host and Connection are two.
    let text = format!("{name}: a\r\n").repeat(count - 2);
    let first = get_with(gateway.address(), "/", &text).status;
    let mut client = Http2::open(gateway.address());
    // `:authority` is no field.
    let block = [get_block(), field(name, "a").repeat(count)].concat();
    let second = client.status_of(1, &block);
    assert_eq!(client.status_of(3, &get_block()), 200, "it stays open");
    (first, second)
}

#[test]
fn the_number_of_fields_is_bounded_alike_in_both_versions() {
    let echo = "workers: 1\nroutes: [{ upstream: echo }]\n";
    let gateway = Gateway::start(echo);
    assert_eq!(statuses(&gateway, "x-a", 100), (200, 200));
    assert_eq!(statuses(&gateway, "x-a", 101), (431, 431));
    // Clients of HTTP/2 split their cookies.
    assert_eq!(statuses(&gateway, "cookie", 200).1, 200);
    let gateway = Gateway::start(&format!("client: {{ max_fields: 120 }}\n{echo}"));
    assert_eq!(statuses(&gateway, "x-a", 120), (200, 200));
    assert_eq!(statuses(&gateway, "x-a", 121), (431, 431));
}
