//! Decisions without a request to serve: [`explain`] changes no bucket, [`dry_run`] charges them.

pub mod cell;
pub mod dry_run;
pub mod explain;
pub mod key;
pub mod key_state;
pub mod operator_actions;

use std::cell::OnceCell;
use std::net::IpAddr;

use super::ruleset::{Route, Ruleset};
use super::target::Sender;
use crate::clock::Timestamp;
use crate::http::connection::Scheme;
use crate::http::forwarded::Peer;
use crate::http::message::Request;
use crate::rules::{ClientLookup, Head, RequestClient, RequestToken, TokenCheck};

/// The client that would send `request` from this peer.
fn sender<B>(ruleset: &Ruleset, request: &Request<B>, peer: IpAddr) -> Sender<'static> {
    let (rules, headers) = (&ruleset.client_ip, request.headers());
    let sender = Sender {
        client_ip: rules.resolve(peer.into(), headers),
        local: None,
        scheme: Scheme::of(request.uri()),
    };
    sender.as_named(Peer::of(rules.trusts(peer.into())), rules, headers)
}

/// A request and its route.
#[derive(Debug)]
struct MatchedRequest<'a> {
    /// The index of the matched route; `None` without one.
    route_index: Option<usize>,
    /// The matched route, or the limits of requests without one.
    route: &'a Route,
    head: Head<'a>,
    token: Option<RequestToken<'a>>,
    client: Option<RequestClient<'a>>,
}

/// The results for a request's token and client, once a limit has looked at them.
#[derive(Debug, Default)]
struct Checked {
    token: OnceCell<TokenCheck>,
    client: OnceCell<ClientLookup>,
}

impl<'a> MatchedRequest<'a> {
    /// Finds the route of the request with this `head`.
    ///
    /// The first limit that needs the token verifies it at `now`, and keeps the result in `checked`.
    fn new(ruleset: &'a Ruleset, head: Head<'a>, now: Timestamp, checked: &'a Checked) -> Self {
        let route_index = ruleset.router.find(&head);
        let route = ruleset.route(route_index);
        MatchedRequest {
            route_index,
            route,
            token: ruleset.token(route, head.headers, now, &checked.token),
            client: ruleset.client(&checked.client),
            head,
        }
    }

    /// The head with its token, as limits see it.
    fn head(&self) -> Head<'_> {
        let head = self.head.with_token(self.token.as_ref());
        head.with_client(self.client)
    }
}
