//! An upgrade: the running process starts its program anew, and hands over listeners and buckets.
//!
//! ```text
//! old (successor.rs)                              new (predecessor.rs)
//! Start, Listener .. Complete, with sockets  -->  reads its configuration, builds everything
//!                                            <--  Ready
//! stops accepting
//! Buckets, with a file in memory             -->  restores them, and accepts
//!                                            <--  Serving
//! waits for PROVEN
//! Yours: the snapshot's file                 -->
//! drains, and ends                                waits for that when it ends
//! ```
//!
//! Messages are JSON in a socket that is the standard input of the new process. Whenever something
//! fails before `Yours`, the old process ends the new one and continues. A new process that can't go on
//! says why by `Failed`. Both keep the socket until they end, so that each notices the end of the other.

mod channel;
mod predecessor;
mod program;
mod settings;
mod successor;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::admin::access::MadeToken;
use crate::clock::Timestamp;
use crate::limiter::Secret;
use crate::net::listener::passed::ListenerName;
use crate::store::snapshot;

pub(super) use self::channel::Channel;
pub use self::predecessor::Predecessor;
pub(super) use self::program::Program;
pub(super) use self::settings::Settings;
pub(super) use self::successor::Successor;

/// The version of the protocol, which changes with the meaning of a message. The format of the buckets has a
/// version of its own.
const PROTOCOL: &str = "1";

/// The variable that tells the new process the protocol of the old one.
const VARIABLE: &str = "SLUICEGATE_UPGRADE";

/// How long the new process may take until it is ready, beside the startup time-out of Redis.
const READY: Duration = Duration::from_secs(60);

/// How long it may take to restore few buckets. New clients wait meanwhile, so this is short: it takes
/// 20 ms on an idle machine.
const RESTORED: Duration = Duration::from_secs(2);

/// The bytes of buckets for which it has a second more: it restores 50 MiB in that time.
const RESTORED_A_SECOND: u64 = 16 << 20;

/// How long the new process has to serve before the old one can't take over again.
const PROVEN: Duration = Duration::from_secs(3);

/// How long the old process may take to leave the snapshot's file: it may be saving.
const LEFT: Duration = Duration::from_secs(15);

/// How long a process waits for a message that the other one sends at once.
const PROMPT: Duration = Duration::from_secs(10);

/// Facts that the new process needs before it builds anything.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Inheritance {
    /// The version of the snapshot that the buckets come in.
    format: u32,
    secret: [u64; 2],
    /// Microseconds since the Unix epoch.
    now: u64,
    made_token: Option<MadeToken>,
}

impl Inheritance {
    pub(super) fn new(secret: Secret, now: Timestamp, made_token: Option<MadeToken>) -> Self {
        Self {
            format: snapshot::VERSION,
            secret: secret.key(),
            now: now.as_micros(),
            made_token,
        }
    }
}

/// A message of the old process.
#[derive(Debug, Serialize, Deserialize)]
enum OldMessage {
    Start(Inheritance),
    /// Sockets of a listener; more may follow.
    Listener {
        name: ListenerName,
        has_file: bool,
    },
    Complete,
    /// The first file is the buckets, the second the [`KnownUnits`](crate::store::KnownUnits), the third
    /// the [`History`](crate::admin::traffic_history::History).
    Buckets(Settings),
    Yours,
}

/// A process that can take over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    pid: u32,
    pub(super) version: String,
    /// The listeners whose clients it serves.
    pub(super) taken: Vec<ListenerName>,
}

/// A message of the new process.
#[derive(Debug, Serialize, Deserialize)]
enum NewMessage {
    /// It can accept as soon as it has the buckets, on the sockets of these listeners.
    Ready(Ready),
    Serving,
    /// It ends, with this error.
    Failed(String),
}
