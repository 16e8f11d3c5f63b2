//! The values that keys hold: durations, sizes, quotas, names, addresses, patterns. Each is parsed
//! once, from a text, into a type that cannot be wrong; the errors say what would be right.

mod address;
mod claim;
mod duration;
mod half_close;
mod header;
mod host;
mod json_pointer;
mod key_part;
mod name;
mod number;
mod path;
mod quota;
mod redis;
mod refill;
mod secret;
mod size;
mod status;
mod text;
mod time_zone;
mod url;

use std::borrow::Cow;
use std::fmt;

pub use address::{Cidr, ListenAddress};
pub use claim::Claim;
pub use duration::Duration;
pub use half_close::HalfClose;
pub use header::{FieldName, FieldValue, Method};
pub use host::{HostPattern, ServerName};
pub use json_pointer::Pointer;
pub use key_part::{KeyPart, KeyValue, MissingKeyWord};
pub use name::Name;
pub use number::{Flag, Whole, Workers};
pub use path::{PathPattern, PathPrefix, Segment};
pub use quota::{CalendarUnit, Quota};
pub use redis::{KeyPrefix, ServerAddress};
pub use refill::Refill;
pub use secret::SecretText;
pub use size::Size;
pub use status::Statuses;
pub use text::{FilePath, LogPath, Text, WebUrl};
pub use time_zone::{TimeZone, all as all_time_zones};
pub use url::{OriginUrl, Scheme, UpstreamRef};

/// Why a text is not the value that it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// What is wrong, without a full stop.
    pub message: String,
    /// What would be right, as in `a duration, as in ...`.
    pub expected: String,
    /// What to do.
    pub help: Option<String>,
}

impl ValueError {
    /// Reads back what [`fmt::Display`] wrote, or takes any other text for the message.
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

/// Message, expectation and help, a line each: serde hands on nothing but text.
impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.message, self.expected)?;
        self.help.iter().try_for_each(|help| write!(f, "\n{help}"))
    }
}

impl std::error::Error for ValueError {}

/// What is wrong with a text, and what to do about it.
type Wrong = (String, Option<String>);

/// Says what is wrong and what to do.
fn wrong(message: impl Into<String>, help: impl Into<String>) -> Wrong {
    (message.into(), Some(help.into()))
}

/// A value that is written as a scalar and read from its text. `text_value!` makes serde, schemars
/// and `FromStr` use it.
trait TextValue: Sized {
    /// A regular expression for the whole text, which may accept more than `parse`; empty for any.
    const PATTERN: &'static str;

    /// What it is called in the JSON Schema.
    fn name() -> Cow<'static, str>;

    /// What is expected, for errors and the JSON Schema: `a duration, as in ..`.
    fn expected() -> Cow<'static, str>;

    /// Reads it.
    fn parse(text: &str) -> Result<Self, Wrong>;

    /// How it stands in the JSON Schema, as a default.
    fn to_json(&self) -> serde_json::Value
    where
        Self: fmt::Display,
    {
        self.to_string().into()
    }

    /// What an editor has to know of it, but for its description.
    fn schema() -> serde_json::Value {
        match Self::PATTERN {
            "" => serde_json::json!({ "type": "string" }),
            _ => serde_json::json!({ "type": "string", "pattern": pattern::<Self>() }),
        }
    }
}

/// The pattern of a value, or anything with a variable in it: nobody knows that before it is read.
fn pattern<T: TextValue>() -> String {
    format!("^({})$|{VARIABLE}", T::PATTERN)
}

/// A text that names an environment variable.
pub(super) const VARIABLE: &str = r"\$\{";

/// Implements the traits of a [`TextValue`] that has `Display`.
macro_rules! text_value {
    ($type:ty $(, [$($generics:tt)*])?) => {
        impl $(<$($generics)*>)? std::str::FromStr for $type {
            type Err = $crate::config::value::ValueError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                <Self as $crate::config::value::TextValue>::parse(text).map_err(|(message, help)| Self::Err {
                    message,
                    expected: <Self as $crate::config::value::TextValue>::expected().into_owned(),
                    help,
                })
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
                <Self as $crate::config::value::TextValue>::name()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $crate::config::value::text_schema::<Self>()
            }
        }
    };
}
use text_value;

struct TextVisitor<T>(std::marker::PhantomData<T>);

impl<T: TextValue + std::str::FromStr<Err = ValueError>> serde::de::Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::expected())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

fn text_schema<T: TextValue>() -> schemars::Schema {
    let mut schema = schemars::Schema::try_from(T::schema()).expect("it is an object");
    schema.insert("description".to_owned(), T::expected().into());
    schema
}
