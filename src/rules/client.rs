//! Clients by the keys that they send: names, and columns such as the plan of each. `config` reads
//! them from files.
//!
//! A client can't forge its name: it sends a key, of which the table has a digest.

mod digest;
mod table;

use std::cell::OnceCell;

use http::HeaderValue;

use super::credentials::bearer;
use super::{Head, KeyPart, Lookup};

pub use digest::KeyDigest;
pub use table::{ClientTable, Place, RowError, TableBuilder};

/// The known clients, and where requests have their keys.
#[derive(Debug)]
pub struct Clients {
    /// The first that a request has counts.
    pub identify_by: Vec<Credential>,
    /// The keys with their clients.
    pub table: ClientTable,
}

/// The part of a request that has the client's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The token after `Bearer` (RFC 6750 section 2.1).
    Bearer,
    /// The user of basic authentication, or the value of a field, cookie or parameter.
    Part(KeyPart),
}

/// The result of looking for the client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientLookup {
    /// The client at this place of the table.
    Known(u32),
    /// The request has no key.
    NoKey,
    /// No client has the key.
    Unknown,
    /// Different keys: the upstream may use any of them.
    Several,
}

/// The client of a request, which is looked up on first use.
#[derive(Clone, Copy, Debug)]
pub struct RequestClient<'a> {
    /// The known clients.
    pub clients: &'a Clients,
    /// Keeps the result while the request lasts.
    pub found: &'a OnceCell<ClientLookup>,
}

impl Clients {
    /// Finds the client of a request.
    pub fn find(&self, head: &Head<'_>) -> ClientLookup {
        for credential in &self.identify_by {
            let found = match credential {
                Credential::Bearer => bearer(head.headers).map(|key| self.table.find(key)),
                Credential::Part(part) => part.with_value(head, |key| self.table.find(key)),
            };
            return match found {
                Lookup::One(Some(client)) => ClientLookup::Known(client),
                Lookup::One(None) => ClientLookup::Unknown,
                Lookup::Several => ClientLookup::Several,
                Lookup::Missing => continue,
            };
        }
        ClientLookup::NoKey
    }

    /// The value of `WWW-Authenticate` that asks for a key (RFC 9110 section 11.6.1). Schemes that are
    /// not registered name the field, cookie or parameter.
    pub fn challenge(identify_by: &[Credential]) -> HeaderValue {
        let challenges = identify_by.iter().map(|credential| match credential {
            Credential::Bearer => "Bearer".to_owned(),
            Credential::Part(KeyPart::BasicUser) => "Basic realm=\"api\"".to_owned(),
            Credential::Part(part) => format!("ApiKey in=\"{part}\""),
        });
        let challenges = challenges.collect::<Vec<_>>().join(", ");
        HeaderValue::try_from(challenges).unwrap_or(HeaderValue::from_static("ApiKey"))
    }
}

impl<'a> RequestClient<'a> {
    /// Finds the client, at first use.
    pub fn lookup(&self, head: &Head<'_>) -> ClientLookup {
        *self.found.get_or_init(|| self.clients.find(head))
    }

    /// Returns the client's name, then its values in these columns; nothing for no client.
    pub fn texts(&self, head: &Head<'_>, columns: &[Box<str>]) -> Vec<Box<str>> {
        let ClientLookup::Known(client) = self.lookup(head) else {
            return Vec::new();
        };
        let columns = columns.iter();
        let columns = columns.map(|name| KeyPart::ClientColumn(name.to_string()));
        let parts = std::iter::once(KeyPart::Client).chain(columns);
        let texts = parts.map(|part| self.clients.table.value(client, &part));
        texts.map(|text| text.unwrap_or_default().into()).collect()
    }

    /// Returns the client's name, or its value in a column, which may be empty. Other parts are
    /// missing.
    pub(super) fn value(&self, part: &KeyPart, head: &Head<'_>) -> Lookup<&'a str> {
        match self.lookup(head) {
            ClientLookup::Known(client) => {
                let value = self.clients.table.value(client, part);
                value.map_or(Lookup::Missing, Lookup::One)
            }
            ClientLookup::NoKey | ClientLookup::Unknown => Lookup::Missing,
            ClientLookup::Several => Lookup::Several,
        }
    }
}

#[cfg(test)]
mod tests;
