//! The facts of a request, from its head on.

use std::cell::{Cell, OnceCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::{Method, Version};

use super::logged::LoggedRequest;
use super::ruleset_lease::RulesetLease;
use super::traced::RequestTrace;
use crate::clock::{Clock, Timestamp};
use crate::http::body::RequestBody;
use crate::http::forwarded::Peer;
use crate::http::headers::Headers;
use crate::http::message::Request;
use crate::proxy::answers::respond::KeptHead;
use crate::proxy::client::Client;
use crate::proxy::ruleset::Route;
use crate::proxy::target::Sender;
use crate::rules::{BodyFields, ClientLookup, RequestClient, RequestToken, TokenCheck};
use crate::store::Caller;

/// Facts of the request that do not change.
#[derive(Debug)]
pub(in crate::proxy) struct RequestContext {
    pub(in crate::proxy) client: Rc<Client>,
    pub(in crate::proxy) ruleset: RulesetLease,
    pub client_ip: IpAddr,
    pub(super) method: Method,
    /// The method of the request that this is a question about, if it is one.
    pub(super) question: Option<Box<Method>>,
    pub(super) version: Version,
    /// The head as the client sent it, once the request is changed.
    pub(super) kept: OnceCell<Box<KeptHead>>,
    /// The instant of all decisions, unless the request waits.
    pub started: Timestamp,
    /// The result of checking the token, once a claim was read.
    pub(super) token: OnceCell<TokenCheck>,
    pub(super) is_token_counted: Cell<bool>,
    /// What limits read of the body, once it was received.
    pub(in crate::proxy) body: OnceCell<Box<BodyFields>>,
    /// The client by its key, once it was looked up.
    pub(super) found_client: OnceCell<ClientLookup>,
    pub(super) is_client_counted: Cell<bool>,
    pub(super) logged: Option<LoggedRequest>,
    /// The trace of the request, if spans are exported.
    pub(in crate::proxy) trace: Option<Box<RequestTrace>>,
}

impl RequestContext {
    /// Keeps the head of a request that is about to change, for the proxy's own pages.
    pub(in crate::proxy) fn keep_head(&self, request: &Request<RequestBody>) {
        self.kept.get_or_init(|| Box::new(KeptHead::of(request)));
    }

    /// The clock of all decisions and waits.
    pub(in crate::proxy) fn clock(&self) -> &Arc<Clock> {
        &self.client.gateway.clock
    }

    /// The origin of the request's calls of the store.
    pub(in crate::proxy) fn caller(&self) -> Caller {
        let client_ip = &self.ruleset.whole().client_ip;
        Caller {
            worker: self.client.connection.worker,
            client: client_ip.identify_client(self.client_ip),
        }
    }

    pub(in crate::proxy) fn now(&self) -> Timestamp {
        self.clock().now()
    }

    /// The wall clock's time at which the request began.
    pub(super) fn wall_start(&self) -> Timestamp {
        self.clock().wall_time(self.started)
    }

    /// The token of the request, if `route` reads one. Its first use checks it, by the wall clock as
    /// of the request's start: it stays valid while the request waits. [`Self::count_identity`] follows.
    pub(in crate::proxy) fn token<'a>(
        &'a self,
        route: &Route,
        headers: &'a Headers,
    ) -> Option<RequestToken<'a>> {
        let ruleset = self.ruleset.whole();
        ruleset.token(route, headers, self.wall_start(), &self.token)
    }

    /// The fields of the body, once it was received.
    pub(in crate::proxy) fn body(&self) -> Option<&BodyFields> {
        self.body.get().map(|fields| &**fields)
    }

    /// The client of the request by its key, if clients are known.
    pub(in crate::proxy) fn known_client(&self) -> Option<RequestClient<'_>> {
        self.ruleset.whole().client(&self.found_client)
    }

    /// Counts the results for the token and the client, each once, if they were looked at; logs that
    /// for the token.
    pub(in crate::proxy) fn count_identity(&self) {
        if let Some(known) = &self.ruleset.whole().clients
            && let Some(found) = self.found_client.get()
            && !self.is_client_counted.replace(true)
        {
            known.record(*found);
        }
        if let Some(tokens) = &self.ruleset.whole().tokens
            && let Some(checked) = self.token.get()
            && !self.is_token_counted.replace(true)
        {
            tokens.record(checked, self.started);
        }
    }

    /// The client as rules see it.
    pub(in crate::proxy) fn sender<'c>(&self, client: &'c Client, headers: &Headers) -> Sender<'c> {
        let sender = Sender {
            client_ip: self.client_ip,
            local: Some(&client.connection.local),
            scheme: Some(client.connection.scheme),
        };
        sender.as_named(self.trust(), &self.ruleset.whole().client_ip, headers)
    }

    /// Trusted if the peer may name the client in forwarding fields.
    pub(in crate::proxy) fn trust(&self) -> Peer {
        let client_ip = &self.ruleset.whole().client_ip;
        Peer::of(client_ip.trusts(self.client.connection.peer))
    }
}
