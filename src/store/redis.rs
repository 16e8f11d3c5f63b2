//! Buckets in Redis: decided and charged there by one script, in the same integers as in memory.
//!
//! `asked` has what the script is asked about a request, `told` what it says, `after` what is asked when requests end, `value`
//! what keys hold. `sync` is for buckets in memory that many machines charge, and `bans` for their bans. The scripts decide
//! whether a request is admitted, and write what becomes of its buckets; they reply the buckets as they were, and every number
//! that a client sees is worked out of those by the functions of [`limiter`](crate::limiter) that memory's buckets are decided by.
//! `docs/redis.md` has the layout of keys. [`client`] keeps the connections.

mod follow_up;
mod algorithm_check;
mod script_call;
mod bans;
pub mod client;
mod outbox;
mod guards;
mod config_drift;
mod naming;
mod multi_slot;
mod refusal_cache;
mod script;
mod store;
mod sync;
mod reply;
mod value;

pub use bans::{AnnouncedBan, BanKeys, BanReply, BanReport, SharedBans};
pub use config_drift::ConfigDrift;
pub use follow_up::{LeasedUnits, Settlement, SettlementReply, parse_presence};
pub use guards::{ChargedBucket, LeaseGuard, QueuePlace, Reservation};
pub use multi_slot::BucketReplies;
pub use naming::{BucketName, KeyFormat, LONGEST, NameBuilder, Naming, bucket_label};
pub use refusal_cache::RefusalCache;
pub use reply::{BucketReply, ChargeReply, ProtocolError, RetryInputs, ScriptReply};
pub use script::{AlgorithmKind, AlgorithmKinds, Procedure, SYNC};
pub use script_call::{
    Arguments, BucketCharge, ChargeRequest, ChargedRefusals, Lease, ScriptCall, Tier,
};
pub use store::{ChargeError, Store};
pub use sync::{PendingReport, Synchroniser, Tracker};
