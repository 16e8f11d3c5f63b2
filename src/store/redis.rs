//! Buckets in Redis: decided and charged there by one script, in the same integers as in memory.
//!
//! `asked` has what the scripts are asked, `told` what they say, `value` what keys hold. The scripts decide whether a request
//! is admitted, and write what becomes of its buckets; they reply the buckets as they were, and every number that a client
//! sees is worked out of those by the functions of [`limiter`](crate::limiter) that memory's buckets are decided by.
//! `docs/redis.md` has the layout of keys. Not here: connections.

mod asked;
mod script;
mod told;
mod value;

pub use asked::{Ask, Charge, Lease, Lent, Request, Tier};
pub use script::{CHARGE, LEASE, LEAVE};
pub use told::{Again, Nonsense, Reply, Told, were_there};
