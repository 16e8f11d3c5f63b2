//! Where the servers are and how to speak to them; also as a URL. Reading files and the configuration's own keys is not
//! here.

mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

pub use url::UrlError;

/// The port of servers that have none.
const PORT: u16 = 6379;
/// The same for sentinels.
const SENTINEL_PORT: u16 = 26379;

/// Everything that a client has to know.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Which servers.
    pub target: Target,
    /// As whom to speak to them.
    pub login: Login,
    /// The number of the database, 0 in a cluster.
    pub database: u32,
    /// How to verify servers, and sentinels too; none where TLS is not spoken.
    pub tls: Option<Arc<ClientConfig>>,
    /// The longest that a call may take: [`DEFAULT_TIMEOUT`] unless said otherwise.
    pub timeout: Duration,
    /// The longest that a batch may take: [`DEFAULT_BATCH_TIMEOUT`] unless said otherwise.
    pub batch_timeout: Duration,
    /// What all keys begin with. The client writes `PREFIXprobe...`, to see whether it can.
    pub prefix: Arc<str>,
}

/// The deadline of a call: what a busy machine takes (docs/redis.md, "The deadline of a call").
pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(100);
/// The deadline of a batch.
pub const DEFAULT_BATCH_TIMEOUT: Duration = Duration::from_secs(1);
/// What keys begin with.
pub const DEFAULT_PREFIX: &str = "sluicegate:";

/// Which servers hold the buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One server.
    Single(Address),
    /// A cluster, known by some of its nodes.
    Cluster(Vec<Address>),
    /// The master of this name, whoever it is at the time.
    Sentinel {
        /// Where to ask.
        sentinels: Vec<Address>,
        /// The master's name.
        master: Arc<str>,
        /// As whom to ask.
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

/// Who speaks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The user; `default` where there is none.
    pub user: Option<Arc<str>>,
    /// The password, if any.
    pub password: Option<Password>,
}

/// A password, which shows itself to nobody but a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Arc<str>);

impl Spec {
    /// The target with everything else as it is by default.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            login: Login::default(),
            database: 0,
            tls: None,
            timeout: DEFAULT_TIMEOUT,
            batch_timeout: DEFAULT_BATCH_TIMEOUT,
            prefix: DEFAULT_PREFIX.into(),
        }
    }

    /// Reads one of
    ///
    /// - `redis://[user][:password@]host[:port][/database]`,
    /// - `redis+cluster://[user][:password@]host[:port][,host[:port]...]`,
    /// - `redis+sentinel://[user][:password@]sentinel[:port][,...]/master[/database]`, where the sentinels want no
    ///   password; [`Target::Sentinel`] takes one.
    ///
    /// `rediss` means TLS, with the settings `tls`; `valkey` and `valkeys` mean the same. User and password are
    /// percent-encoded.
    ///
    /// # Errors
    /// What is wrong with the text, none of which is shown beyond the scheme: it may hold a password.
    pub fn from_url(text: &str, tls: Option<Arc<ClientConfig>>) -> Result<Self, UrlError> {
        url::parse(text, tls)
    }

    /// Whether it says the same. TLS settings are the same if they are the same object, or there are none.
    pub fn is_like(&self, other: &Self) -> bool {
        let tls = match (&self.tls, &other.tls) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        let parts = |spec: &Self| {
            let Self {
                target,
                login,
                database,
                timeout,
                batch_timeout,
                prefix,
                tls: _,
            } = spec.clone();
            (target, login, database, timeout, batch_timeout, prefix)
        };
        tls && parts(self) == parts(other)
    }

    /// The servers as they are known at first.
    pub(super) fn seeds(&self) -> &[Address] {
        match &self.target {
            Target::Single(address) => std::slice::from_ref(address),
            Target::Cluster(nodes) => nodes,
            Target::Sentinel { sentinels, .. } => sentinels,
        }
    }
}

/// As in a URL, without login.
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
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Password {
    /// This password.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text, to be sent to a server.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
