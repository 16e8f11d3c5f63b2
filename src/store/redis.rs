//! Buckets in Redis: decided and charged there by one script, in the same integers as in memory.
//!
//! `asked` has what the script is asked about a request, `told` what it says, `after` what is asked when requests end, `value`
//! what keys hold. `sync` is for buckets in memory that many machines charge, and `bans` for their bans. The scripts decide
//! whether a request is admitted, and write what becomes of its buckets; they reply the buckets as they were, and every number
//! that a client sees is worked out of those by the functions of [`limiter`](crate::limiter) that memory's buckets are decided by.
//! `docs/redis.md` has the layout of keys. [`client`] keeps the connections.

mod after;
mod algorithm_check;
mod asked;
mod bans;
pub mod client;
mod errands;
mod guards;
mod leftovers;
mod naming;
mod parts;
mod refusals;
mod script;
mod store;
mod sync;
mod told;
mod value;

pub use after::{Lent, Settled, Settlement, were_there};
pub use asked::{Arguments, Ask, Charge, Lease, Owes, Request, Tier};
pub use bans::{Announced, BanNames, Heard, SharedBans, Strikes};
pub use guards::{Lending, Place, Reservation, Turn};
pub use leftovers::Leftovers;
pub use naming::{Keys, LONGEST, Name, Namer, Naming, label_of_buckets};
pub use parts::Answers;
pub use refusals::RefusalCache;
pub use script::{Kind, Kinds, Procedure, SYNC};
pub use store::{Store, Unanswered};
pub use sync::{Synchroniser, Telling, Tracker};
pub use told::{Again, Nonsense, Reply, Said, Told};
