//! Sections for operators: the admin listener, the end of the process.

mod tokens;

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::List;
use crate::config::located::Located;
use crate::config::schema::{Delay, SECOND};
use crate::config::sections::listener::Tls;
use crate::config::value::SocketAddress;
use crate::rules::HostPattern;
use crate::telemetry::access_log::KeyForm;

pub(in crate::config) use tokens::check;
pub use tokens::{AdminTokens, TokenRole};

/// `admin`: the listener for metrics, health and the admin API.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// The IP address and port to listen on; keep it away from clients.
    pub address: Located<SocketAddress>,
    /// Tokens of callers of the API. Unless there are any, a write token is made at the start; the
    /// log names the file that has it.
    pub tokens: Located<AdminTokens>,
    /// How `/v1/top` shows the keys of clients. Texts of keys are kept in memory only if they are
    /// readable.
    pub keys: Located<KeyForm>,
    /// Names by which clients address the listener, or `*.example.com` for all names below. IP
    /// addresses and `localhost` need no entry. Other hosts are refused if there is an entry, and on
    /// a loopback address.
    pub hosts: List<HostPattern>,
    /// TLS; cleartext without it.
    pub tls: Option<Located<Tls>>,
}

impl Default for Admin {
    fn default() -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 9980));
        Self {
            address: SocketAddress::new(address).into(),
            tokens: Located::default(),
            keys: Located::default(),
            hosts: List::default(),
            tls: None,
        }
    }
}

/// `shutdown`: what happens between SIGTERM and the end.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Shutdown")]
pub struct ShutdownTimes {
    /// How long to go on serving while `/readyz` already says no, so that load balancers notice;
    /// `0s` to `1h`. Ctrl-C (SIGINT) skips it.
    pub delay: Located<Delay<{ 3 * SECOND }>>,
    /// How long requests may take to finish after that, `0s` to `1h`; then they are cut off.
    pub deadline: Located<Delay<{ 5 * SECOND }>>,
}
