//! Faults of a server: a word for the metric, and a sentence with advice for the log.

use std::error::Error as _;
use std::fmt;
use std::io;

use redis::{ErrorKind, RedisError};

use super::spec::Address;

/// The reason why a script has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind.
    pub kind: FaultKind,
    /// The words of the server or the operating system, on one line of at most [`LONGEST_DETAIL`]
    /// characters. Never a password, nor the key of a bucket.
    pub detail: Option<Box<str>>,
    /// The server has certainly not got the command of a batch.
    pub is_unsent: bool,
}

/// The longest detail, in characters.
pub const LONGEST_DETAIL: usize = 200;

/// A cluster's redirect of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    pub to: Address,
    /// True for a single call, after ASKING.
    pub is_asking: bool,
}

macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident $label:literal $text:literal $advice:literal;)*) => {
        /// The kind of a fault, from a closed set.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FaultKind {
            $($(#[$doc])+ $kind,)*
        }

        impl FaultKind {
            /// All kinds, by number.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// A stable word for a metric's label.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$kind => $label,)* }
            }

            /// The fault as the end of a sentence about the server.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$kind => $text,)* }
            }

            /// Advice for the operator.
            pub const fn advice(self) -> &'static str {
                match self { $(Self::$kind => $advice,)* }
            }
        }
    };
}

kinds! {
    /// No connection has been tried to its end yet.
    Connecting "connecting" "is not connected yet" "wait";
    /// Nothing listens there.
    Refused "refused" "refuses connections" "start it, or correct its address";
    /// The name has no address.
    Name "name" "has a name without an address" "correct the name, or the resolver";
    /// The network does not reach it.
    Unreachable "unreachable" "cannot be reached" "look at the network between";
    /// The TLS handshake failed.
    Tls "tls" "fails the TLS handshake" "give the authority that signed its certificate, and the name that is in it; a port without TLS is redis://";
    /// NOAUTH, WRONGPASS.
    Password "password" "does not take the user and password" "correct them in the configuration";
    /// NOPERM, or protected mode.
    Permission "permission" "denies us what the store needs" "allow the user EVALSHA, EVAL and the commands of the scripts on the store's keys (documentation: Redis, Permissions)";
    /// The server speaks another protocol.
    NotRedis "not_redis" "does not speak the Redis protocol" "correct the address; a port with TLS is rediss://";
    /// Older than 6.2.
    TooOld "too_old" "is too old" "update it: Redis 6.2 or newer is needed, or any Valkey";
    /// A Sentinel or a node of a cluster instead of a single server, or the reverse.
    WrongKind "wrong_kind" "is another kind of server than the configuration says" "name it as what it is: a single server, a cluster or sentinels";
    /// SELECT failed.
    Database "database" "does not have the database" "choose another, or raise `databases` there";
    /// Too many clients.
    Clients "clients" "has too many clients" "raise `maxclients` there";
    /// A replica.
    ReadOnly "read_only" "is a read-only replica" "name the master, or the sentinels that know it";
    /// The server still reads its data set.
    Loading "loading" "still loads its data" "wait";
    /// maxmemory is reached, and nothing is evicted.
    OutOfMemory "out_of_memory" "is out of memory" "raise `maxmemory` there, or look at what fills it";
    /// A running script does not end.
    Busy "busy_script" "is busy with a script" "SCRIPT KILL there, and look at whose it is";
    /// A snapshot failed, and writes are refused.
    Misconfigured "misconfigured" "refuses writes because it cannot save" "look at its log, or turn `stop-writes-on-bgsave-error` off";
    /// Its master is gone, or too few replicas are there.
    Replication "replication" "refuses writes because its master or its replicas are missing" "look at its replication";
    /// The cluster lacks slots.
    ClusterDown "cluster_down" "belongs to a cluster that is down" "look at CLUSTER INFO there";
    /// No sentinel knows a master of this name.
    NoMaster "no_master" "is not known to the sentinels" "correct the master's name";
    /// No answer within the deadline.
    Timeout "timeout" "does not answer in time" "look at its load and at SLOWLOG, or allow it a longer timeout";
    /// The connection ended.
    Lost "lost" "ended the connection" "look at its log";
    /// The answer is no valid RESP.
    Protocol "protocol" "doesn't answer in the Redis protocol" "look for a proxy or another server in between";
    /// The script failed, as on a key of another type.
    Script "script" "could not run the script" "look whether other programs use keys with the store's prefix";
    /// The slot is being moved, or has no owner.
    Moved "moved" "no longer has the slot" "wait until the slots are where they belong";
    /// The keys of a call are in several slots.
    CrossSlot "cross_slot" "has the keys in several slots" "report this: it is a mistake in sluicegate";
    /// A call got no place within its deadline.
    Crowded "crowded" "has had more calls under way than it answers in time" "add servers, use `sync`, or allow it a longer timeout";
}

impl FaultKind {
    /// True if every other call would fail alike, so that none need be sent.
    pub(super) fn is_server_fault(self) -> bool {
        !matches!(
            self,
            Self::Timeout
                | Self::Lost
                | Self::Script
                | Self::Moved
                | Self::CrossSlot
                | Self::Crowded
                | Self::Connecting
        )
    }

    /// The fault without a detail.
    pub const fn fault(self) -> Fault {
        Fault {
            kind: self,
            detail: None,
            is_unsent: false,
        }
    }

    /// The fault with this detail.
    pub fn with(self, detail: impl fmt::Display) -> Fault {
        let detail: String = without_keys(&detail.to_string())
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(LONGEST_DETAIL)
            .collect();
        Fault {
            detail: Some(detail.trim().into()),
            ..self.fault()
        }
    }
}

impl Fault {
    pub(super) fn unsent(self) -> Self {
        Self {
            is_unsent: true,
            ..self
        }
    }

    /// True if the server lacks the script.
    pub(super) fn is_unknown_script(&self) -> bool {
        let detail = self.detail.as_deref().unwrap_or_default();
        self.kind == FaultKind::Script && detail.starts_with("NOSCRIPT")
    }

    /// The redirect in the server's words: `MOVED 3999 127.0.0.1:6381`.
    pub(super) fn redirect(&self) -> Option<Redirect> {
        let mut words = self.detail.as_deref()?.split(' ');
        let is_asking = match (self.kind, words.next()?) {
            (FaultKind::Moved, "MOVED") => false,
            (FaultKind::Moved, "ASK") => true,
            _ => return None,
        };
        let (host, port) = words.nth(1)?.rsplit_once(':')?;
        let to = Address::new(host.trim_matches(['[', ']']), port.parse().ok()?);
        Some(Redirect { to, is_asking })
    }

    /// Translates a failed system call of a connection attempt.
    pub fn of_connecting(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => FaultKind::Refused.fault(),
            io::ErrorKind::TimedOut => FaultKind::Timeout.fault(),
            _ => FaultKind::Unreachable.with(error),
        }
    }

    /// Translates an error of the redis crate.
    pub(super) fn of(error: &RedisError) -> Self {
        match error.kind() {
            // The parser's error for an answer that stops in its middle.
            ErrorKind::Parse if error.to_string().contains("end of input") => {
                FaultKind::Lost.fault()
            }
            ErrorKind::Parse => FaultKind::Protocol.fault(),
            ErrorKind::Io => Self::of_io(error),
            ErrorKind::Server(_) | ErrorKind::Extension => {
                Self::of_server(error.code().unwrap_or_default(), error)
            }
            _ => FaultKind::Protocol.with(error),
        }
    }

    fn of_io(error: &RedisError) -> Self {
        let inner = error
            .source()
            .and_then(|source| source.downcast_ref::<io::Error>());
        let tls = inner
            .and_then(io::Error::get_ref)
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match (tls, inner) {
            (Some(tls), _) => FaultKind::Tls.with(tls),
            (None, Some(inner)) if inner.kind() == io::ErrorKind::TimedOut => {
                FaultKind::Timeout.fault()
            }
            _ => FaultKind::Lost.fault(),
        }
    }

    /// By the code of the answer, or by its text if a script or an old server wraps another answer.
    fn of_server(code: &str, error: &RedisError) -> Self {
        let detail = error.detail().unwrap_or_default();
        if let Some(kind) = by_text(code) {
            return kind.with(format_args!("{code} {detail}"));
        }
        let wrapped = WRAPPED.iter().find(|(text, _)| detail.contains(text));
        let kind = wrapped.map_or(FaultKind::Script, |(_, kind)| *kind);
        kind.with(format_args!("{code} {detail}"))
    }
}

/// Hides keys of clients in names of buckets (`PREFIX{KEY}POLICY:ALGORITHM`), whole or cut off.
/// Policies stay, also in `PREFIX{POLICY}:bans`.
fn without_keys(text: &str) -> String {
    let mut pieces = text.split('{');
    let mut shown = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (braced, rest) = piece.split_once('}').unwrap_or((piece, ""));
        let is_policy = rest.starts_with(':');
        shown += &["{", if is_policy { braced } else { ".." }, "}", rest].concat();
    }
    shown
}

/// Error codes with one meaning.
fn by_text(code: &str) -> Option<FaultKind> {
    Some(match code {
        "NOAUTH" | "WRONGPASS" => FaultKind::Password,
        "NOPERM" | "DENIED" => FaultKind::Permission,
        "READONLY" => FaultKind::ReadOnly,
        "LOADING" => FaultKind::Loading,
        "OOM" => FaultKind::OutOfMemory,
        "BUSY" => FaultKind::Busy,
        "MISCONF" => FaultKind::Misconfigured,
        "MASTERDOWN" | "NOREPLICAS" => FaultKind::Replication,
        "CLUSTERDOWN" => FaultKind::ClusterDown,
        "MOVED" | "ASK" | "TRYAGAIN" => FaultKind::Moved,
        "CROSSSLOT" => FaultKind::CrossSlot,
        _ => return None,
    })
}

/// Texts in answers with the code ERR: before Redis 7 any error inside a script, and errors without
/// a code.
const WRAPPED: [(&str, FaultKind); 12] = [
    ("-OOM ", FaultKind::OutOfMemory),
    ("-READONLY ", FaultKind::ReadOnly),
    ("-NOPERM ", FaultKind::Permission),
    ("-MISCONF ", FaultKind::Misconfigured),
    ("-NOREPLICAS ", FaultKind::Replication),
    ("-MASTERDOWN ", FaultKind::Replication),
    ("-CLUSTERDOWN ", FaultKind::ClusterDown),
    ("ACL failure", FaultKind::Permission),
    ("can't run this command", FaultKind::Permission),
    ("max number of clients", FaultKind::Clients),
    ("DB index is out of range", FaultKind::Database),
    ("SELECT is not allowed", FaultKind::Database),
];

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.text())?;
        match &self.detail {
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_every_kind_and_no_other() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis.md");
        let text = std::fs::read_to_string(page).expect("the page is there");
        let listed: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        let rows = FaultKind::ALL.iter().map(|kind| {
            let (label, text, advice) = (kind.label(), kind.text(), kind.advice());
            format!("| `{label}` | {text}: {advice} |")
        });
        assert_eq!(listed, rows.collect::<Vec<_>>());
    }

    fn kind(code: &str, text: &str) -> FaultKind {
        let error = RedisError::from((ErrorKind::Extension, "", text.to_owned()));
        Fault::of_server(code, &error).kind
    }

    #[test]
    fn errors_inside_scripts_are_distinguished_before_redis_7_too() {
        let script = "Error running script (call to f_ab): @user_script:1:";
        for (code, text, expected) in [
            ("OOM", "command not allowed", FaultKind::OutOfMemory),
            (
                "ERR",
                &format!("{script} -OOM command not allowed"),
                FaultKind::OutOfMemory,
            ),
            (
                "ERR",
                &format!("{script} -READONLY You can't write"),
                FaultKind::ReadOnly,
            ),
            (
                "ERR",
                &format!("{script} -NOPERM this user has no"),
                FaultKind::Permission,
            ),
            (
                "ERR",
                &format!("{script} attempt to index nil"),
                FaultKind::Script,
            ),
            ("WRONGTYPE", "Operation against a key", FaultKind::Script),
            (
                "NOREPLICAS",
                "Not enough good replicas",
                FaultKind::Replication,
            ),
        ] {
            assert_eq!(kind(code, text), expected, "{code} {text}");
        }
    }

    #[test]
    fn a_redirect_names_its_server() {
        let redirect = |text: &str| FaultKind::Moved.with(text).redirect();
        let to = |host, port, is_asking| {
            let to = Address::new(host, port);
            Some(Redirect { to, is_asking })
        };
        assert_eq!(
            redirect("MOVED 3999 127.0.0.1:6381"),
            to("127.0.0.1", 6381, false)
        );
        assert_eq!(redirect("ASK 3999 ::1:6381"), to("::1", 6381, true));
        assert_eq!(redirect("MOVED 3999 [::1]:6381"), to("::1", 6381, false));
        for other in [
            "TRYAGAIN Multiple keys",
            "MOVED",
            "MOVED 1 x",
            "MOVED 1 x:y",
        ] {
            assert_eq!(redirect(other), None, "{other}");
        }
    }

    #[test]
    fn policies_are_named_and_keys_are_not() {
        for (text, shown) in [
            ("not ours: sg:{sk_live}p:gcra", "not ours: sg:{..}p:gcra"),
            ("not ours: sg:{p}:bans", "not ours: sg:{p}:bans"),
            (
                "unknown command 'EVALSHA', with args beginning with: 'ab' '2' 'sg:{a,sk}p:log' 'sg:{sk_l",
                "unknown command 'EVALSHA', with args beginning with: 'ab' '2' 'sg:{..}p:log' 'sg:{..}",
            ),
            ("{{sk}}p }{", "{..}{..}}p }{..}"),
        ] {
            let detail = FaultKind::Script.with(text).detail;
            assert_eq!(detail.as_deref(), Some(shown));
        }
    }

    #[test]
    fn foreign_text_is_one_short_line() {
        let fault = FaultKind::Script.with(format!("a\nb\x1b{}", "x".repeat(1_000)));
        let detail = fault.detail.expect("it has one");
        assert_eq!(detail.len(), LONGEST_DETAIL);
        assert!(detail.starts_with("a b xxx"));
    }
}
