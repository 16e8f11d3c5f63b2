//! JSON pointers, as in `/usage/total_tokens`.

use std::sync::Arc;

use derive_more::Display;

use super::{ParseFailure, TextValue, failure, text_value};
use crate::http::json_pointer::{JsonPointer, JsonPointerError};

/// A JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub struct Pointer(Arc<JsonPointer>);

text_value!(Pointer: Arc<JsonPointer> = "/usage");

impl TextValue for Pointer {
    const NAME: &'static str = "JsonPointer";
    const EXPECTED: &'static str = "a JSON pointer (RFC 6901), as in `/usage/total_tokens`";
    const PATTERN: &'static str = "(/([^~/]|~[01])*)+";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        JsonPointer::parse(text)
            .map(|pointer| Self(Arc::new(pointer)))
            .map_err(|reason| match reason {
                JsonPointerError::NoSlash => failure(
                    format!("`{text}` isn't a JSON pointer: it does not start with a slash"),
                    format!("did you mean `{}`?", suggestion(text)),
                ),
                JsonPointerError::Whole | JsonPointerError::Tilde => failure(
                    format!("`{text}` isn't a JSON pointer: {reason}"),
                    "write the names of the members from the root on: `/usage/total_tokens`",
                ),
            })
    }
}

/// The likely meaning of `usage.total_tokens`, `$.usage.total_tokens`, `.data[0].usage` or
/// `#/usage`.
fn suggestion(text: &str) -> String {
    let path = text.trim_start_matches(['$', '#', '.', '/']);
    let path = path.replace(']', "").replace(['.', '['], "/");
    format!("/{path}")
}
