//! Buckets in Redis: one script decides and charges a request there, with the integers of the
//! memory store.
//!
//! `script_call` writes a script's arguments, `reply` reads its answer, `follow_up` has the calls
//! after a charge, `value` the stored values. The scripts decide admission and write the buckets.
//! They reply each bucket's earlier state, and the functions of [`limiter`] derive
//! from it every number that a client sees.
//!
//! `sync` synchronises memory buckets between machines, `bans` shares bans, [`client`] keeps the
//! connections. `docs/redis.md` has the layout of keys.

mod follow_up;
mod foreign_key_warning;
mod algorithm_check;
mod script_call;
mod bans;
pub mod client;
mod rounds;
mod outbox;
mod guards;
mod naming;
mod multi_slot;
mod refusal_cache;
mod script;
mod steering;
mod store;
mod sync;
mod reply;
mod value;

#[cfg(any(fuzzing, test))]
pub(crate) use self::{client::answers, reply::ScriptReply, script_call::ChargeRequest};
pub use bans::BanKeys;
pub(in crate::store) use foreign_key_warning::ForeignKeyWarning;
pub use guards::{LeaseGuard, Reservation};
pub use multi_slot::BucketReplies;
pub use naming::{KeyFormat, NameBuilder, Naming, bucket_label, policy_label};
pub use outbox::ChargedBucket;
pub use refusal_cache::{DecisionTerms, RefusalCache};
pub use reply::BucketReply;
pub(super) use reply::{shifted, to_local_clock};
pub use script::{AlgorithmKinds, Procedure};
pub use script_call::{BucketCharge, ChargedRefusals, Tier};
pub use steering::Replacement;
pub use store::{ChargeError, Store};
pub use sync::{KnownUnits, Tracker};
pub(super) use value::{read_bucket, read_grant};

#[cfg(test)]
mod tests;
