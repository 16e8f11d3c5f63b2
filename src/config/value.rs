//! Values of keys: durations, sizes, quotas, names, addresses, patterns. Each is parsed once, from
//! text, into a type that has only valid values. Errors say what would be valid.

mod address;
mod bounded;
mod decimal;
mod duration;
mod grpc;
mod header;
mod host;
mod json_pointer;
mod key_part;
mod origin;
mod path;
mod quota;
mod redis;
mod secret;
mod size;
mod status;
mod text;
mod time_zone;
mod units;
mod url;

use std::borrow::Cow;
use std::fmt;

pub use crate::rules::{PathPattern, Segment};
pub use address::{Cidr, SocketAddress, TrustedProxy};
pub use bounded::{Flag, Percentage, Whole, Workers};
pub use duration::Duration;
pub use grpc::{GrpcPattern, GrpcService};
pub use header::{FieldName, FieldValue, Method, UpgradeProtocol};
pub(super) use header::{NO_VALUE, fields};
pub use host::ServerName;
pub use json_pointer::Pointer;
pub use key_part::{BodyPart, KeyPart, KeySource, KeyValue, MissingKeyWord, VerifiedPart};
pub use path::PathPrefix;
pub use quota::{CalendarUnit, Quota, Refill, Window};
pub use redis::{KeyPrefix, ServerAddress};
pub use secret::{Hidden, SecretText, Shown};
pub use size::Size;
pub use status::Statuses;
pub use text::{FilePath, LintCode, Name, Text, WebUrl};
pub use time_zone::{TimeZone, all as all_time_zones};
pub use units::{Units, WindowUnits};
pub use url::{BuiltIn, CollectorUrl, HostField, OriginForm, OriginUrl, UpstreamRef};

use crate::visible;

/// The error for a text that is not a valid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// The problem, without a full stop.
    pub message: String,
    /// The expected form, such as `a duration, as in ...`.
    pub expected: String,
    /// Advice.
    pub help: Option<String>,
}

impl ValueError {
    /// Parses the output of [`fmt::Display`]. Any other text becomes the message.
    pub(super) fn from_display(text: &str) -> Self {
        let mut lines = text.splitn(3, '\n');
        let mut line = || lines.next().map(str::to_owned);
        let message = line().unwrap_or_default();
        let expected = line().unwrap_or_else(|| "another value".to_owned());
        Self {
            message,
            expected,
            help: line(),
        }
    }
}

/// Writes message, expectation and help on a line each: serde passes on only text. A line break of a
/// quoted value becomes `\n`.
impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.message, &self.expected];
        let parts = parts.into_iter().chain(&self.help);
        let lines: Vec<_> = parts.map(|part| part.replace('\n', r"\n")).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ValueError {}

/// The problem of a text, and advice. Made of advice alone, the text isn't what its type expects.
pub enum Failure {
    /// The text isn't what its type expects.
    Unexpected(String),
    /// The predicate of a sentence about the text, such as `has no unit`.
    OfText(String, String),
    /// A sentence of its own. It need not have the text, which may be a secret.
    Sentence(String, String),
}

/// Says of the text what is wrong: `has no unit`.
fn failure(problem: impl Into<String>, help: impl Into<String>) -> Failure {
    Failure::OfText(problem.into(), help.into())
}

/// Says in a sentence of its own what is wrong.
fn sentence(message: impl Into<String>, help: impl Into<String>) -> Failure {
    Failure::Sentence(message.into(), help.into())
}

impl<T: Into<String>> From<T> for Failure {
    fn from(help: T) -> Self {
        Self::Unexpected(help.into())
    }
}

impl From<ValueError> for Failure {
    fn from(error: ValueError) -> Self {
        sentence(error.message, error.help.unwrap_or_default())
    }
}

/// A value that is parsed from a scalar's text. `text_value!` implements serde, schemars and
/// `FromStr` with it.
trait TextValue: Sized {
    /// The name in the JSON Schema, unless it is the type's.
    const NAME: &'static str = "";
    /// The expected form, for errors and the JSON Schema: `a duration, as in ..`.
    const EXPECTED: &'static str;
    /// A regular expression for the whole text; empty for any. It may accept more than `parse`.
    const PATTERN: &'static str;
    /// The types that the JSON Schema allows.
    const TYPES: &'static [&'static str] = &["string"];

    /// The name of a type that has bounds.
    fn name() -> Cow<'static, str> {
        Self::NAME.into()
    }

    /// The expected form, with the bounds if there are any.
    fn expected() -> Cow<'static, str> {
        Self::EXPECTED.into()
    }

    /// Reads the text.
    fn read(text: &str) -> Result<Self, Failure>;

    /// Reads the text; the error is a sentence about it.
    fn parse(text: &str) -> Result<Self, ValueError> {
        Self::read(text).map_err(|failure| {
            let about = |problem| format!("`{}` {problem}", visible::text(text));
            let noun = Self::EXPECTED.split([',', ':']).next().unwrap_or_default();
            let (message, help) = match failure {
                Failure::Unexpected(help) => (about(format!("isn't {noun}")), help),
                Failure::OfText(problem, help) => (about(problem), help),
                Failure::Sentence(message, help) => (message, help),
            };
            ValueError {
                message,
                expected: Self::expected().into_owned(),
                help: Some(help),
            }
        })
    }

    /// The default value in the JSON Schema.
    fn to_json(&self) -> serde_json::Value
    where
        Self: fmt::Display,
    {
        self.to_string().into()
    }

    /// The JSON Schema, without its description.
    fn schema() -> serde_json::Value {
        let types = match Self::TYPES {
            [only] => serde_json::json!(only),
            several => serde_json::json!(several),
        };
        match Self::PATTERN {
            "" => serde_json::json!({ "type": types }),
            _ => serde_json::json!({ "type": types, "pattern": pattern::<Self>() }),
        }
    }
}

/// The pattern of a value, or of any text with a variable: its value is not known to an editor.
fn pattern<T: TextValue>() -> String {
    format!("^({})$|{VARIABLE}", T::PATTERN)
}

/// The JSON Schema of a value that may be a number between these bounds.
fn number_schema<T: TextValue>(min: u64, max: u64) -> serde_json::Value {
    serde_json::json!({
        "type": ["integer", "string"],
        "minimum": min,
        "maximum": max,
        "pattern": pattern::<T>(),
    })
}

/// A regular expression for the start of a variable.
pub(super) const VARIABLE: &str = r"\$\{";

/// Implements the traits of a [`TextValue`] with `Display`. After `:`, the type that it wraps, which
/// `get` returns; after `=`, the text of a stand-in for an unreadable value.
macro_rules! text_value {
    ($type:ty: $inner:ty $(= $stand_in:expr)?) => {
        $crate::config::value::text_value!($type $(= $stand_in)?);

        impl $type {
            /// The value.
            pub const fn get(&self) -> &$inner {
                &self.0
            }
        }
    };
    ($type:ty = $stand_in:expr) => {
        $crate::config::value::text_value!($type);

        /// A stand-in for an unreadable value.
        impl Default for $type {
            fn default() -> Self {
                $stand_in.parse().expect("a stand-in is valid")
            }
        }
    };
    ($type:ty $(, [$($generics:tt)*])?) => {
        impl $(<$($generics)*>)? std::str::FromStr for $type {
            type Err = $crate::config::value::ValueError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                <Self as $crate::config::value::TextValue>::parse(text)
            }
        }

        impl<'de, $($($generics)*)?> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str($crate::config::value::TextVisitor(std::marker::PhantomData))
            }
        }

        impl $(<$($generics)*>)? serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&$crate::config::value::TextValue::to_json(self), serializer)
            }
        }

        impl $(<$($generics)*>)? schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                match <Self as $crate::config::value::TextValue>::name() {
                    name if name.is_empty() => stringify!($type).into(),
                    name => name,
                }
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $crate::config::value::text_schema::<Self>()
            }
        }
    };
}
use text_value;

struct TextVisitor<T>(std::marker::PhantomData<T>);

impl<T: TextValue> serde::de::Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::expected())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        T::parse(text).map_err(E::custom)
    }
}

fn text_schema<T: TextValue>() -> schemars::Schema {
    let mut schema = schemars::Schema::try_from(T::schema()).expect("it is an object");
    schema.insert("description".to_owned(), T::expected().into());
    schema
}
