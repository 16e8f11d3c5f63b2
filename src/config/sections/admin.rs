//! Sections for operators: the admin listener with its tokens, the end of the process.

use crate::admin::access::AccessSpec;
use crate::config::sections::listener::Tls;
use crate::config::sections::prelude::*;
use crate::config::sections::secret_value::{self, TOKEN};
use crate::telemetry::access_log::KeyForm;

/// `admin`: the listener for metrics, health and the admin API.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
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

/// `shutdown`: what happens between SIGTERM and the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Shutdown")]
pub struct ShutdownTimes {
    /// How long to go on serving while `/readyz` already says no, so that load balancers notice;
    /// `0s` to `1h`. Ctrl-C (SIGINT) skips it.
    pub delay: Located<Delay<{ 3 * SECOND }>>,
    /// How long requests may take to finish after that, `0s` to `1h`; then they are cut off.
    pub deadline: Located<Delay<{ 5 * SECOND }>>,
}

/// `admin.tokens`: the secrets that callers of the admin API send, as `Authorization: Bearer TOKEN`.
/// A token has 16 to 512 letters, digits and `-._~+/`, with `=` at the end only.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct AdminTokens {
    /// Tokens of callers that may read.
    pub read: List<SecretValue>,
    /// Tokens of callers that may read, and change what runs.
    pub write: List<SecretValue>,
}

impl AdminTokens {
    /// The tokens of both lists.
    pub(in crate::config) fn all(&self) -> impl Iterator<Item = &Located<SecretValue>> + Clone {
        self.read.iter().chain(self.write.iter())
    }
}

/// Checks the tokens that are written in the configuration, and the hosts.
pub(crate) fn check(config: &Config, findings: &Findings<'_>) {
    report_twice(&config.admin.hosts, findings);
    let tokens = config.admin.tokens.all();
    for token in tokens.clone() {
        secret_value::check(token, &TOKEN, findings);
    }
    let texts = tokens.filter_map(|token| Some((token.text()?, token.node)));
    let help = "remove one of them; `write` includes `read`";
    report_repeated(texts, help, findings, |_| "the same token twice".to_owned());
}

impl Compiler<'_> {
    /// The tokens of the admin API; those in files are read.
    pub(crate) fn access(&mut self, tokens: &AdminTokens) -> AccessSpec {
        let mut digests = |tokens: &List<SecretValue>| {
            let tokens = tokens.iter();
            let digests = tokens.filter_map(|token| self.secret(token, &TOKEN));
            digests.collect()
        };
        AccessSpec {
            read: digests(&tokens.read),
            write: digests(&tokens.write),
        }
    }
}
