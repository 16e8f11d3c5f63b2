//! What HTTP needs beyond the libraries: bodies, sockets, the facts of a connection, paths, hosts,
//! forwarding fields. Knows no routes and no limits.

pub mod body;
pub mod connection;
pub mod io;
