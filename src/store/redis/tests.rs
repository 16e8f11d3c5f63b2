//! The scripts and the client, with a real redis-server.

mod ban_scripts;
mod client;
mod contract;
mod extremes;
mod load;
mod quota_changes;
mod scripted;
mod scripts;
mod servers;
mod synchroniser;
mod worker;
