//! Finds the route of a request and the keys of its buckets. Matchers, routes and keys are compiled
//! from a configuration, and are pure functions of a request head: no store and no socket.

mod access;
mod body;
mod client;
mod condition;
mod cookie;
mod cost;
mod credentials;
mod decimal;
mod descriptor;
mod matcher;
mod network_set;
mod path_rewrite;
mod price_list;
mod query;
mod router;
mod selector;
mod settlement;
mod stated_limit;
mod string_matcher;
mod token;
mod zone;

use std::net::IpAddr;

use http::Method;

use crate::http::connection::Scheme;
use crate::http::headers::Headers;
use crate::http::message::Request;
use crate::net::socket::StreamAddress;

pub use access::{Access, Denial};
pub use body::{Ambiguous, BodyChange, BodyFields};
pub use client::{
    ClientLookup, ClientTable, Clients, Credential, KeyDigest, Place, RequestClient, RowError,
    TableBuilder,
};
pub use condition::{Condition, Methods, PathCondition};
pub use cost::{Cost, InvalidCost, Reserve};
pub use decimal::Decimal;
pub use descriptor::{
    Descriptor, Key, KeyFault, KeyPart, KeyText, KeyTextError, OnMissingKey, OnSeveralValues,
    PartDescription, PartText,
};
pub use matcher::{
    CaseSensitivity, HostPattern, Mismatch, PathEquivalence, PathMatch, PathPattern, RouteMatch,
    Segment, TrailingSlash,
};
pub use network_set::NetworkSet;
pub use path_rewrite::PathRewrite;
pub use price_list::{Price, PriceList, Pricing, TokenUsage};
pub use router::Router;
pub use selector::{Exception, Exceptions, Selection, Selector, Selectors};
pub use settlement::{
    BodyEnd, CostSource, CountedResponses, Estimate, Meter, ReportedCost, ResponseOrigin,
    SettlementRule, UsageApi, UsageRule, UsageScan, stream_usage,
};
pub use stated_limit::StatedLimit;
pub use string_matcher::{LinearRegex, StringMatcher, StringPattern, TextList};
pub use token::{
    KeyError, RequestToken, Token, TokenAlgorithm, TokenCheck, TokenKey, TokenRejection, TokenSpec,
    Verifier,
};
pub use zone::LocalPeriods;

/// The head of a request, as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The method.
    pub method: &'a Method,
    /// The host in lower case, without port; empty where HTTP/1.0 names none.
    pub host: &'a str,
    /// The normalised path, its reserved characters decoded; `*` where the request is about the
    /// whole server (RFC 9112 section 3.2.4).
    pub path: &'a str,
    /// The query, without its question mark.
    pub query: Option<&'a str>,
    /// The header fields.
    pub headers: &'a Headers,
    /// The client's address, which may differ from the peer's.
    pub client_ip: IpAddr,
    /// The address at which the connection was accepted; `None` if there is no connection.
    pub local: Option<&'a StreamAddress>,
    /// The scheme of the client's connection; `None` if there is none.
    pub scheme: Option<Scheme>,
    /// The token, if a limit of the route may read a claim.
    pub token: Option<&'a RequestToken<'a>>,
    /// The fields of the body, if a limit of the route may read one, and it was received.
    pub body: Option<&'a BodyFields>,
    /// The client by its key, if clients are known.
    pub client: Option<RequestClient<'a>>,
    /// The request stands for the client's next one, whatever its method, host, path and query:
    /// conditions on these are unknown.
    pub is_any_target: bool,
}

impl<'a> Head<'a> {
    /// The head of a request with this host and path. Nothing is known of its connection, and no limit
    /// reads its token.
    pub fn new<B>(
        request: &'a Request<B>,
        host: &'a str,
        path: &'a str,
        client_ip: IpAddr,
    ) -> Self {
        Self {
            method: request.method(),
            host,
            path,
            query: request.uri().query(),
            headers: request.headers(),
            client_ip,
            local: None,
            scheme: None,
            token: None,
            body: None,
            client: None,
            is_any_target: false,
        }
    }

    /// The head with this token.
    #[must_use]
    pub fn with_token(self, token: Option<&'a RequestToken<'a>>) -> Self {
        Self { token, ..self }
    }

    /// The head with these fields of the body.
    #[must_use]
    pub fn with_body(self, body: Option<&'a BodyFields>) -> Self {
        Self { body, ..self }
    }

    /// The head with this client.
    #[must_use]
    pub fn with_client(self, client: Option<RequestClient<'a>>) -> Self {
        Self { client, ..self }
    }
}

/// The segments of a path; a trailing slash makes an empty last one.
pub(crate) fn segments(path: &str) -> std::str::Split<'_, char> {
    path.strip_prefix('/').unwrap_or(path).split('/')
}

/// The result of looking up a name in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<T> {
    /// One value, given once or several times.
    One(T),
    /// No value.
    Missing,
    /// Different values: the upstream may use any of them.
    Several,
}

impl<T: PartialEq> Lookup<T> {
    fn among(mut values: impl Iterator<Item = T>) -> Self {
        let Some(first) = values.next() else {
            return Self::Missing;
        };
        if values.all(|value| value == first) {
            Self::One(first)
        } else {
            Self::Several
        }
    }
}

impl<T> Lookup<T> {
    /// The value, if there is exactly one.
    fn one(self) -> Option<T> {
        match self {
            Self::One(value) => Some(value),
            Self::Missing | Self::Several => None,
        }
    }

    fn map<U>(self, change: impl FnOnce(T) -> U) -> Lookup<U> {
        match self {
            Self::One(value) => Lookup::One(change(value)),
            Self::Missing => Lookup::Missing,
            Self::Several => Lookup::Several,
        }
    }
}
