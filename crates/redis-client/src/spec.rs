//! The servers' addresses, logins and deadlines; also as a URL. Files and configuration keys are
//! not read here.

mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

pub use url::UrlError;

/// The default port of servers.
const PORT: u16 = 6379;
/// The default port of sentinels.
const SENTINEL_PORT: u16 = 26379;

/// The specification of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The servers.
    pub target: Target,
    /// The login for the servers.
    pub login: Login,
    /// The number of the database, 0 in a cluster.
    pub database: u32,
    /// TLS settings for servers and sentinels; `None` without TLS.
    pub tls: Option<Tls>,
    /// The deadline of a call, by default 100 ms.
    pub timeout: Duration,
    /// The deadline of a batch, by default one second.
    pub batch_timeout: Duration,
    /// The name of connections, as CLIENT LIST shows it.
    pub name: &'static str,
    /// The prefix of all keys, by default none. The client writes `PREFIXprobe...` to test writing.
    pub prefix: Arc<str>,
}

/// The default deadline of a call: enough for a busy machine (docs/redis.md, "The deadline of a
/// call").
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(100);
/// The default deadline of a batch.
const DEFAULT_BATCH_TIMEOUT: Duration = Duration::from_secs(1);

/// The servers that hold the buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One server.
    Single(Address),
    /// A cluster, known by some of its nodes.
    Cluster(Vec<Address>),
    /// The current master of this name.
    Sentinel {
        /// The sentinels' addresses.
        sentinels: Vec<Address>,
        /// The master's name.
        master: Arc<str>,
        /// The login for the sentinels.
        login: Login,
    },
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// A name or an address, without brackets.
    pub host: Arc<str>,
    /// The TCP port.
    pub port: u16,
}

/// TLS settings. They equal others if they are the same object.
#[derive(Clone, Debug)]
pub struct Tls(pub Arc<ClientConfig>);

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tls {}

/// A user and a password.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The user; `default` where there is none.
    pub user: Option<Arc<str>>,
    /// The password, if any.
    pub password: Option<Password>,
}

/// A password. `Debug` hides it.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("***")]
pub struct Password(Arc<str>);

impl Spec {
    /// The target with defaults for all else.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            login: Login::default(),
            database: 0,
            tls: None,
            timeout: DEFAULT_TIMEOUT,
            batch_timeout: DEFAULT_BATCH_TIMEOUT,
            name: env!("CARGO_PKG_NAME"),
            prefix: "".into(),
        }
    }

    /// Reads one of
    ///
    /// - `redis://[user][:password@]host[:port][/database]`,
    /// - `redis+cluster://[user][:password@]host[:port][,host[:port]...]`,
    /// - `redis+sentinel://[user][:password@]sentinel[:port][,...]/master[/database]`, where the sentinels want no
    ///   password; [`Target::Sentinel`] takes one.
    ///
    /// `rediss` means TLS, with the settings `tls`; `valkey` and `valkeys` mean the same. User and
    /// password are percent-encoded.
    ///
    /// # Errors
    /// The mistake in the text. Only the scheme is shown: the rest may hold a password.
    pub fn from_url(text: &str, tls: Option<Arc<ClientConfig>>) -> Result<Self, UrlError> {
        url::parse(text, tls)
    }

    /// The servers known at the start.
    pub(super) fn seeds(&self) -> &[Address] {
        match &self.target {
            Target::Single(address) => std::slice::from_ref(address),
            Target::Cluster(nodes) => nodes,
            Target::Sentinel { sentinels, .. } => sentinels,
        }
    }
}

/// The form of a URL, without login.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, addresses: &[Address]| {
            let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            f.write_str(&texts.join(","))
        };
        match self {
            Self::Single(address) => write!(f, "{address}"),
            Self::Cluster(nodes) => list(f, nodes),
            Self::Sentinel {
                sentinels, master, ..
            } => {
                list(f, sentinels)?;
                write!(f, "/{master}")
            }
        }
    }
}

impl Address {
    /// This host and port.
    pub fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Password {
    /// This password.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text, for a server.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}
