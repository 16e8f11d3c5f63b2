//! JSON pointers, as in `/usage/total_tokens`.

use std::sync::Arc;

use derive_more::Display;

use super::{Failure, TextValue, failure, text_value};
use crate::http::json_pointer::{JsonPointer, JsonPointerError};

/// A JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Display)]
pub struct Pointer(Arc<JsonPointer>);

text_value!(Pointer: Arc<JsonPointer> = "/usage");

impl TextValue for Pointer {
    const NAME: &'static str = "JsonPointer";
    const EXPECTED: &'static str = "a JSON pointer (RFC 6901), as in `/usage/total_tokens`";
    const PATTERN: &'static str = "(/([^~/]|~[01])*)+";

    fn read(text: &str) -> Result<Self, Failure> {
        let pointer = JsonPointer::parse(text).map(|pointer| Self(Arc::new(pointer)));
        pointer.map_err(|reason| {
            let help = match reason {
                JsonPointerError::NoSlash => format!("did you mean `{}`?", suggestion(text)),
                JsonPointerError::Whole | JsonPointerError::Tilde => {
                    "write the names of the members from the root on: `/usage/total_tokens`".into()
                }
            };
            failure(format!("isn't a JSON pointer: {reason}"), help)
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
