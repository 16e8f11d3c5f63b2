//! Values that are never shown.

use std::fmt;
use std::marker::PhantomData;

use derive_more::{Debug, Display};
use serde::de::{Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

use super::Text;
use crate::config::diagnostic::MASK;
use crate::config::document::SECRET;
use crate::config::located::schema_of_inner;

/// A value that is never shown: a password, a token, or a text that clients send and that may be one
/// of theirs. `Debug`, `Display`, reports and pages hide it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[debug("{MASK}")]
#[display("{MASK}")]
pub struct Hidden<T>(T);

/// A password, or a text that has one.
pub type SecretText = Hidden<Text>;

impl<T> Hidden<T> {
    /// The value.
    pub const fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T> Serialize for Hidden<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Hidden<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(SECRET, HiddenVisitor(PhantomData))
    }
}

struct HiddenVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for HiddenVisitor<T> {
    type Value = Hidden<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that is not shown")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<Hidden<T>, D::Error> {
        T::deserialize(value).map(Hidden)
    }
}

schema_of_inner!(Hidden);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_never_shown() {
        let secret = Hidden("hunter2".parse::<Text>().expect("any text will do"));
        assert_eq!(secret.reveal().as_str(), "hunter2");
        let json = serde_json::to_string(&secret).expect("a text");
        assert_eq!(
            [format!("{secret:?}"), secret.to_string(), json],
            ["***", "***", "\"***\""]
        );
    }
}
