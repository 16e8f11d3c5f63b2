//! Decisions without a request to serve: [`explain`] changes no bucket, [`dry_run`] charges them.

pub mod cell;
pub mod dry_run;
pub mod explain;
pub mod key;
pub mod key_state;
pub mod operator_actions;

use std::net::IpAddr;

use super::ruleset::Ruleset;
use super::target::Connection;
use crate::http::connection::Scheme;
use crate::http::forwarded::Peer;
use crate::http::message::Request;

/// The connection that `request` would come over from this peer.
fn connection(ruleset: &Ruleset, request: &Request<()>, peer: IpAddr) -> Connection<'static> {
    Connection {
        local: None,
        scheme: Scheme::of(request.uri()),
        peer: Peer::of(ruleset.client_ip.trusts(peer.into())),
    }
}
