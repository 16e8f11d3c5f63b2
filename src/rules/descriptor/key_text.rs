//! The key of a client as an operator writes it, a text for each part. It names the bucket that the
//! client's requests charge.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Descriptor, KeyPart, MISSING, OTHER_METHOD, OnMissingKey, STAND_IN, address_bits, method,
};
use crate::limiter::KeyParts;
use crate::rules::selector::canonical_value;
use crate::rules::{ClientTable, Head};

/// A part of a key.
// It is a secret: its `Debug` output leaves it out.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "KeyPart")]
pub enum PartText {
    /// The value of the part.
    Value(Box<str>),
    /// The part that replaces a missing one, and its value.
    // The part as the configuration writes it, such as `client_ip`.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    StandIn(BTreeMap<Box<str>, Box<str>>),
    /// Requests lack the part.
    // They share a bucket, or have a constant value.
    Missing(()),
}

impl fmt::Debug for PartText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PartText(..)")
    }
}

/// The longest value of a part that [`Descriptor::write_key`] writes, in bytes.
const LONGEST_VALUE: usize = 256;

/// The reason why texts are no key of a limit. No message has a value: they are secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    /// Another number of texts than the key has parts with a value.
    #[error("the key has {}, not {given}", counted(parts))]
    Count {
        /// The parts.
        parts: Vec<String>,
        /// The number of texts.
        given: usize,
    },
    /// The text of an address is none.
    #[error("`{0}` takes an IP address")]
    Address(String),
    /// Requests with an empty part count as requests without it.
    #[error("`{0}` is empty: requests with an empty part count as requests without it")]
    Empty(String),
    /// Requests without the part have no such bucket.
    #[error("requests without `{part}` have no such bucket: on_missing_key is {on_missing}")]
    Missing {
        /// The part.
        part: String,
        /// The rule of the limit.
        on_missing: String,
    },
    /// No part replaces a missing one, or several do.
    #[error(
        "name the one part that replaces a missing one, such as {{\"client_ip\": \"192.0.2.1\"}}"
    )]
    StandIn,
}

/// A key of a limit. Its `Debug` output leaves the values out: they are secrets.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("KeyText(..)")]
pub struct KeyText {
    fed: Vec<FedPart>,
    /// The name and the columns of the client that the key names.
    client: Vec<(KeyPart, Box<str>)>,
    /// The address of the client, if the key has it.
    pub(in crate::rules) address: Option<IpAddr>,
}

/// A part of a key, and the kind under which its value is hashed.
#[derive(Clone)]
struct FedPart {
    part: KeyPart,
    kind: u8,
    value: Vec<u8>,
}

impl Descriptor {
    /// Reads a key: a text for each part except `constant`, in the order of the configuration.
    ///
    /// # Errors
    /// The texts name no bucket of this limit.
    pub fn read_key(&self, texts: &[PartText]) -> Result<KeyText, KeyTextError> {
        let named = self.parts_with_text().map(KeyPart::to_string);
        let parts: Vec<_> = named.collect();
        if parts.len() != texts.len() {
            let given = texts.len();
            return Err(KeyTextError::Count { parts, given });
        }
        let mut key = KeyText::default();
        let mut texts = texts.iter();
        for part in &self.parts {
            if *part == KeyPart::Constant {
                key.push(part, 0, "")?;
            } else {
                let text = texts.next().expect("there is a text for each such part");
                self.read_part(part, text, &mut key)?;
            }
        }
        Ok(key)
    }

    /// Writes the key of a request, a text for each part except `constant`: the inverse of
    /// [`read_key`](Self::read_key). `None` if a value has more than 256 bytes, or is no UTF-8.
    pub fn write_key(&self, head: &Head<'_>) -> Option<Arc<[PartText]>> {
        let parts = self.parts_with_text();
        parts.map(|part| self.write_part(part, head)).collect()
    }

    /// Writes the key of a client by the values of its parts. `None` if one isn't known.
    pub fn write_client<'v>(
        &self,
        value: impl Fn(&KeyPart) -> Option<&'v str>,
    ) -> Option<Vec<PartText>> {
        let texts = self.parts_with_text().map(value);
        texts
            .map(|text| Some(PartText::Value(text?.into())))
            .collect()
    }

    /// Writes the client's address as it would be in a key.
    pub fn write_address(&self, head: &Head<'_>) -> Option<Box<str>> {
        match self.write_part(&self.address, head)? {
            PartText::Value(address) => Some(address),
            PartText::StandIn(_) | PartText::Missing(()) => None,
        }
    }

    fn parts_with_text(&self) -> impl Iterator<Item = &KeyPart> {
        let parts = self.parts.iter();
        parts.filter(|part| **part != KeyPart::Constant)
    }

    fn write_part(&self, part: &KeyPart, head: &Head<'_>) -> Option<PartText> {
        let whole = |value: &[u8]| {
            let value = Some(value).filter(|value| value.len() <= LONGEST_VALUE)?;
            std::str::from_utf8(value).ok().map(Box::from)
        };
        match self.found(part, head, whole) {
            Some((found, value)) => {
                let value = value.one()??;
                Some(if std::ptr::eq(found, part) {
                    PartText::Value(value)
                } else {
                    PartText::StandIn(BTreeMap::from([(found.to_string().into(), value)]))
                })
            }
            None => match &self.on_missing {
                OnMissingKey::Shared | OnMissingKey::Value(_) => Some(PartText::Missing(())),
                _ => None,
            },
        }
    }

    fn read_part(
        &self,
        part: &KeyPart,
        text: &PartText,
        key: &mut KeyText,
    ) -> Result<(), KeyTextError> {
        match (text, &self.on_missing) {
            (PartText::Value(text), _) => key.push(part, 0, text),
            (PartText::StandIn(parts), _) => {
                let (Some((name, value)), 1) = (parts.first_key_value(), parts.len()) else {
                    return Err(KeyTextError::StandIn);
                };
                let mut others = self.chain(part).skip(1);
                let named = others.find(|one| one.to_string() == **name);
                let other = named.ok_or_else(|| self.has_no_bucket_without(part))?;
                key.push(other, STAND_IN, value)
            }
            (PartText::Missing(()), OnMissingKey::Shared) => {
                key.fed.push(FedPart {
                    part: KeyPart::Constant,
                    kind: MISSING,
                    value: Vec::new(),
                });
                Ok(())
            }
            (PartText::Missing(()), OnMissingKey::Value(value)) => key.push(part, 0, value),
            _ => Err(self.has_no_bucket_without(part)),
        }
    }

    fn has_no_bucket_without(&self, part: &KeyPart) -> KeyTextError {
        KeyTextError::Missing {
            part: part.to_string(),
            on_missing: self.on_missing.to_string(),
        }
    }
}

impl KeyText {
    /// Feeds the parts of the key to `hasher`, as [`Descriptor::feed`] does for a request.
    pub fn feed(&self, hasher: &mut impl KeyParts) {
        for fed in &self.fed {
            fed.part.feed_value(fed.kind, &fed.value, hasher);
        }
    }

    /// The value of a part that requests with this key have, in its canonical spelling.
    pub(in crate::rules) fn value(&self, part: &KeyPart) -> Option<&[u8]> {
        let mut own = self.fed.iter().filter(|fed| fed.kind == fed.part.kind());
        let found = own.find(|fed| fed.part == *part).map(|fed| &*fed.value);
        let mut client = self.client.iter();
        found.or_else(|| {
            let found = client.find(|(known, _)| known == part);
            found.map(|(_, value)| value.as_bytes())
        })
    }

    /// Adds what is known of the client that the key names, if it names one.
    pub fn look_up_client(&mut self, table: &ClientTable) {
        let name = self.value(&KeyPart::Client).unwrap_or_default();
        if let Some(client) = std::str::from_utf8(name)
            .ok()
            .and_then(|name| table.by_name(name))
        {
            self.client = table.values(client).collect();
        }
    }

    fn push(&mut self, part: &KeyPart, added: u8, text: &str) -> Result<(), KeyTextError> {
        let value = self.read_value(part, text)?;
        if value.is_empty() && *part != KeyPart::Constant {
            return Err(KeyTextError::Empty(part.to_string()));
        }
        self.fed.push(FedPart {
            part: part.clone(),
            kind: part.kind() + added,
            value,
        });
        Ok(())
    }

    /// The value of a part in the spelling in which requests' values are hashed.
    fn read_value(&mut self, part: &KeyPart, text: &str) -> Result<Vec<u8>, KeyTextError> {
        match part {
            KeyPart::ClientIp { ipv6_prefix } => {
                // Explanations show the network of an IPv6 client.
                let address = text.split_once('/').map_or(text, |(address, _)| address);
                let address = address.parse::<IpAddr>();
                let address = address.map_err(|_| KeyTextError::Address(part.to_string()))?;
                let address = address.to_canonical();
                self.address = Some(address);
                Ok(address_bits(address, *ipv6_prefix, <[u8]>::to_vec))
            }
            KeyPart::Method => {
                let known = Method::from_bytes(text.as_bytes());
                Ok(known.as_ref().map_or(OTHER_METHOD, method).into())
            }
            _ => Ok(canonical_value(part, text.as_bytes()).into_owned()),
        }
    }
}

/// The number of parts, and their names.
fn counted(parts: &[String]) -> String {
    let names = parts.join(", ");
    match parts.len() {
        0 => "no part with a value".to_owned(),
        1 => format!("one part [{names}]"),
        count => format!("{count} parts [{names}]"),
    }
}
