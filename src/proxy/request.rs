//! A request with the route and the token that its limits read.

use std::cell::OnceCell;

use crate::clock::Timestamp;
use crate::proxy::ruleset::{Route, Ruleset};
use crate::rules::{Head, RequestToken, TokenCheck};

/// A request and its route.
#[derive(Debug)]
pub(super) struct MatchedRequest<'a> {
    /// The index of the matched route; `None` without one.
    pub route_index: Option<usize>,
    /// The matched route, or the limits of requests without one.
    pub route: &'a Route,
    head: Head<'a>,
    token: Option<RequestToken<'a>>,
}

impl<'a> MatchedRequest<'a> {
    /// Finds the route of the request with this `head`.
    ///
    /// The first limit that needs the token verifies it at `now`, and keeps the result in `checked`.
    pub(super) fn new(
        ruleset: &'a Ruleset,
        head: Head<'a>,
        now: Timestamp,
        checked: &'a OnceCell<TokenCheck>,
    ) -> Self {
        let route_index = ruleset.router.find(&head);
        let route = ruleset.route(route_index);
        MatchedRequest {
            route_index,
            route,
            token: ruleset.token(route, head.headers, now, checked),
            head,
        }
    }

    /// The head with its token, as limits see it.
    pub(super) fn head(&self) -> Head<'_> {
        Head {
            token: self.token.as_ref(),
            ..self.head
        }
    }
}
