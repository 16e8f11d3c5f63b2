//! Proxies that share one Redis server.

use std::net::SocketAddr;

use super::client::{Connection, Response, get, get_with};
use super::gateway::Gateway;
use super::redis::RedisServer;
use super::wait_for;

/// A store at this address, with the longest deadline, which a busy machine meets.
pub fn store(address: SocketAddr) -> String {
    format!(
        "store: {{ redis: {{ url: \"redis://{address}\", timeout: 1s, secret: sixteen-characters }} }}\n"
    )
}

pub fn ask(gateway: &Gateway, path: &str) -> Response {
    get_with(gateway.address(), path, "x-key: a\r\n")
}

pub fn statuses<const N: usize>(gateway: &Gateway, path: &str) -> [u16; N] {
    [(); N].map(|()| ask(gateway, path).status)
}

pub fn wait_up(gateway: &Gateway) {
    wait_for("the store to be up", || {
        // The first connection begins with the store.
        drop(Connection::open(gateway.address()));
        let ready = get(gateway.admin, "/readyz").text();
        ready.contains("redis: up").then_some(())
    });
}

/// Starts `N` proxies with this configuration and the store of this server.
pub fn proxies<const N: usize>(redis: &RedisServer, config: &str) -> [Gateway; N] {
    let config = format!("{}{config}", store(redis.address));
    let all = [(); N].map(|()| Gateway::start(&config));
    all.iter().for_each(wait_up);
    all
}

pub fn retry_after(answer: &Response) -> u64 {
    let seconds = answer.header("retry-after").unwrap_or("0");
    seconds.parse().expect("seconds")
}

/// A response without the seconds that pass between two responses.
pub fn said(answer: &Response) -> (u16, String, String) {
    let of = |name| answer.header(name).unwrap_or_default().to_owned();
    let left = of("ratelimit").split(";t=").next().map(str::to_owned);
    (
        answer.status,
        of("ratelimit-policy"),
        left.unwrap_or_default(),
    )
}
