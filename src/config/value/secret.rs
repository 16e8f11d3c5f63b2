//! Values that are never shown.

use derive_more::{Debug, Display};
use serde::{Deserialize, Serialize, Serializer};

use super::Text;
use crate::config::diagnostic::MASK;
use crate::config::located::schema_of_inner;

/// A value that is never shown: a password, a token, or a text that clients send and that may be one
/// of theirs. `Debug`, `Display`, reports and pages hide it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Display, Deserialize,
)]
#[debug("{MASK}")]
#[display("{MASK}")]
// The loader knows it by this name, `SECRET`.
#[serde(rename = "$secret")]
pub struct Hidden<T>(T);

/// A password, or a text that has one.
pub type SecretText = Hidden<Text>;

/// Values of which none is a secret, whatever their types say. The loader knows it by this name, `SHOWN`.
#[derive(Deserialize)]
#[serde(rename = "$shown")]
pub struct Shown<T>(pub T);

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
