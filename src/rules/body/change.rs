//! Changes to a JSON body, which leave the rest of it as it is, byte for byte.

use std::fmt;
use std::sync::Arc;

use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Ambiguous, ContentType, is_like, json};
use crate::http::headers::Headers;
use crate::http::json_pointer::JsonPointer;

/// A value to set in the JSON object of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyChange {
    /// Where. Objects on the way are made; an item of an array has to be there.
    pub pointer: Arc<JsonPointer>,
    /// The value as JSON.
    pub value: Box<str>,
}

impl BodyChange {
    /// Makes these changes; `None` if the body is no JSON object.
    ///
    /// # Errors
    /// Readers disagree on the body.
    pub fn apply(
        changes: &[Self],
        headers: &Headers,
        body: &[u8],
    ) -> Result<Option<Vec<u8>>, Ambiguous> {
        ContentType::of(headers)?;
        let text = std::str::from_utf8(body).ok();
        let text = text.map(|text| text.strip_prefix('\u{feff}').unwrap_or(text).trim_ascii());
        let text = text.filter(|text| serde_json::from_str::<&RawValue>(text).is_ok());
        let Some(text) = text else {
            return if json::may_be_json(body) {
                Err(Ambiguous)
            } else {
                Ok(None)
            };
        };
        if !text.starts_with('{') {
            return Ok(None);
        }
        let set = |text: String, change: &Self| set(&text, change.pointer.tokens(), &change.value);
        let changed = changes.iter().try_fold(text.to_owned(), set)?;
        Ok(Some(changed.into_bytes()))
    }
}

/// A document with another value at this place.
fn set(text: &str, tokens: &[Box<str>], value: &str) -> Result<String, Ambiguous> {
    let Some((first, rest)) = tokens.split_first() else {
        return Ok(value.to_owned());
    };
    // The part of the text that is replaced, and what it is now.
    let (old, new) = if text.starts_with('{') {
        let mut reader = serde_json::Deserializer::from_str(text);
        let members = reader.deserialize_map(Members).map_err(|_| Ambiguous)?;
        let mut like = members.iter().filter(|(name, _)| is_like(name, first));
        match (like.next(), like.next()) {
            (Some((name, old)), None) if *name == **first => {
                (old.get(), set(old.get(), rest, value)?)
            }
            (None, _) => {
                let comma = if members.is_empty() { "" } else { "," };
                let name = serde_json::Value::from(&**first);
                let end = text.strip_suffix('}').ok_or(Ambiguous)?;
                return Ok(format!("{end}{comma}{name}:{}}}", set("{}", rest, value)?));
            }
            _ => return Err(Ambiguous),
        }
    } else if text.starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| Ambiguous)?;
        match first.parse().ok().and_then(|index: usize| items.get(index)) {
            Some(old) => (old.get(), set(old.get(), rest, value)?),
            None => return Ok(text.to_owned()),
        }
    } else {
        return set("{}", tokens, value);
    };
    let at = old.as_ptr() as usize - text.as_ptr() as usize;
    Ok([&text[..at], &new, &text[at + old.len()..]].concat())
}

/// Reads the members of an object, all of them.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(member) = members.next_entry()? {
            all.push(member);
        }
        Ok(all)
    }
}
