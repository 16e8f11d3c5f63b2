//! Parts of a limit's key.

use std::borrow::Cow;
use std::fmt;

use super::{FieldName, ParseFailure, TextValue, failure, text_value};
use crate::config::nearest;

/// One part of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeyPart {
    /// The client's address, IPv6 by the prefix of `client_ip.ipv6_prefix`.
    #[default]
    ClientIp,
    /// The client's address, IPv6 by a prefix of this many bits, 1 to 128.
    ClientIpPrefix(u8),
    /// The value of a header field.
    Header(FieldName),
    /// The value of a cookie.
    Cookie(String),
    /// The value of a query parameter.
    Query(String),
    /// A claim of the verified token.
    Claim(String),
    /// The user of basic authentication.
    BasicUser,
    /// A captured segment of the path.
    Capture(String),
    /// The whole path.
    Path,
    /// The method.
    Method,
    /// The host.
    Host,
    /// The route.
    Route,
    /// A constant: one bucket for all requests.
    Constant,
}

/// Parts without an argument, and kinds of parts with one.
const WORDS: [&str; 12] = [
    "client_ip",
    "header:NAME",
    "cookie:NAME",
    "query:NAME",
    "jwt:NAME",
    "basic_user",
    "path:NAME",
    "path",
    "method",
    "host",
    "route",
    "constant",
];

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientIp => f.write_str("client_ip"),
            Self::ClientIpPrefix(bits) => write!(f, "client_ip/{bits}"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Claim(name) => write!(f, "jwt:{name}"),
            Self::BasicUser => f.write_str("basic_user"),
            Self::Capture(name) => write!(f, "path:{name}"),
            Self::Path => f.write_str("path"),
            Self::Method => f.write_str("method"),
            Self::Host => f.write_str("host"),
            Self::Route => f.write_str("route"),
            Self::Constant => f.write_str("constant"),
        }
    }
}

text_value!(KeyPart);

impl TextValue for KeyPart {
    const PATTERN: &'static str = "client_ip(/[0-9]{1,3})?|(header|cookie|query|jwt|path):.+|basic_user|path|method|host|route|constant";

    fn name() -> Cow<'static, str> {
        "KeyPart".into()
    }

    fn expected() -> Cow<'static, str> {
        "a part of a key: `client_ip`, `client_ip/56`, `header:NAME`, `cookie:NAME`, \
        `query:NAME`, `jwt:NAME` (a claim), `basic_user`, `path:NAME` (a captured segment), `path`, `method`, `host`, `route` or `constant`".into()
    }

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        if let Some(bits) = text.strip_prefix("client_ip/") {
            return parse_prefix(text, bits);
        }
        if let Some((kind, name)) = text.split_once(':') {
            return parse_named(text, kind, name);
        }
        match text {
            "client_ip" => Ok(Self::ClientIp),
            "basic_user" => Ok(Self::BasicUser),
            "path" => Ok(Self::Path),
            "method" => Ok(Self::Method),
            "host" => Ok(Self::Host),
            "route" => Ok(Self::Route),
            "constant" => Ok(Self::Constant),
            "header" | "cookie" | "query" | "jwt" => Err(failure(
                format!("`{text}` needs a name"),
                format!("say which: `{text}:NAME`"),
            )),
            _ => Err(unknown(text, text)),
        }
    }
}

fn parse_prefix(text: &str, bits: &str) -> Result<KeyPart, ParseFailure> {
    match bits.parse() {
        Ok(bits @ 1..=128) => Ok(KeyPart::ClientIpPrefix(bits)),
        _ => Err(failure(
            format!("`{text}` has no valid prefix"),
            "an IPv6 prefix has 1 to 128 bits: `client_ip/56`",
        )),
    }
}

fn parse_named(text: &str, kind: &str, name: &str) -> Result<KeyPart, ParseFailure> {
    let token = !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_graphic() && !matches!(b, b';' | b',' | b'=' | b'"'));
    let name = || match token {
        true => Ok(name.to_owned()),
        false => Err(failure(
            format!("`{text}` has no valid name"),
            format!("as in `{kind}:id`"),
        )),
    };
    match kind {
        "header" => name()?
            .parse()
            .map(KeyPart::Header)
            .map_err(|error: super::ValueError| (error.message, error.help)),
        "cookie" => name().map(KeyPart::Cookie),
        "query" => name().map(KeyPart::Query),
        "jwt" => name().map(KeyPart::Claim),
        "path" => name().map(KeyPart::Capture),
        _ => Err(unknown(text, kind)),
    }
}

fn unknown(text: &str, word: &str) -> ParseFailure {
    let bare = WORDS.map(|word| word.trim_end_matches(":NAME"));
    let help = match nearest::nearest(word, &bare) {
        Some(near) => format!("did you mean `{}`?", text.replacen(word, near, 1)),
        None => format!("known parts: {}", nearest::list(&WORDS)),
    };
    failure(format!("`{text}` is no part of a key"), help)
}

/// `on_missing_key` where it is one word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingKeyWord {
    /// Another part stands in for the missing one.
    Part(KeyPart),
    /// The policy does not apply.
    Skip,
    /// The request is refused.
    Refuse,
    /// All such requests share one bucket.
    Shared,
}

/// Words that are no key part.
const OTHER_WORDS: [&str; 3] = ["skip", "refuse", "shared"];

/// Dropping a header so escapes no limit.
impl Default for MissingKeyWord {
    fn default() -> Self {
        Self::Part(KeyPart::ClientIp)
    }
}

impl fmt::Display for MissingKeyWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(part) => part.fmt(f),
            Self::Skip => f.write_str("skip"),
            Self::Refuse => f.write_str("refuse"),
            Self::Shared => f.write_str("shared"),
        }
    }
}

text_value!(MissingKeyWord);

impl TextValue for MissingKeyWord {
    const PATTERN: &'static str = "skip|refuse|shared|client_ip(/[0-9]{1,3})?|(header|cookie|query|jwt|path):.+|basic_user|path|method|host|route|constant";

    fn name() -> Cow<'static, str> {
        "MissingKeyWord".into()
    }

    fn expected() -> Cow<'static, str> {
        "`skip`, `refuse`, `shared`, or a part that stands in, as `client_ip`".into()
    }

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        match text {
            "skip" => Ok(Self::Skip),
            "refuse" => Ok(Self::Refuse),
            "shared" => Ok(Self::Shared),
            part => KeyPart::parse(part)
                .map(Self::Part)
                .map_err(|error| unknown_word(part, error)),
        }
    }
}

/// The error for a word that is no part, with its reason.
fn unknown_word(text: &str, error: ParseFailure) -> ParseFailure {
    let message = format!("`{text}` is unknown here");
    if let Some(near) = nearest::nearest(text, &OTHER_WORDS) {
        return failure(message, format!("did you mean `{near}`?"));
    }
    let bare = WORDS.map(|word| word.trim_end_matches(":NAME"));
    match text.contains([':', '/']) || nearest::nearest(text, &bare).is_some() {
        true => error,
        false => failure(
            message,
            format!(
                "a constant value is written `{{ value: {text} }}`; else it is `skip`, `refuse`, `shared`, or a part of a request"
            ),
        ),
    }
}

/// A non-empty value of a part; empty parts count as missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValue(String);

impl KeyValue {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_value!(KeyValue);

impl TextValue for KeyValue {
    const PATTERN: &'static str = "";

    fn name() -> Cow<'static, str> {
        "KeyValue".into()
    }

    fn expected() -> Cow<'static, str> {
        "a text that is not empty".into()
    }

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        match text.is_empty() {
            true => Err(failure(
                "a part that is empty is missing, so that no request has this value",
                "name another, as in `{ value: free }`, or use `shared`",
            )),
            false => Ok(Self(text.to_owned())),
        }
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": ["string", "number", "boolean"], "minLength": 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_through_text() {
        for text in [
            "client_ip",
            "client_ip/56",
            "header:x-api-key",
            "cookie:session",
            "query:q",
            "jwt:sub",
            "jwt:https://id.example.com/plan",
            "basic_user",
            "path:id",
            "path",
            "method",
            "host",
            "route",
            "constant",
        ] {
            assert_eq!(
                KeyPart::parse(text).map(|part| part.to_string()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn suggests_the_nearest_part() {
        for (text, help) in [
            ("clientip", "did you mean `client_ip`?"),
            ("headers:x-api-key", "did you mean `header:x-api-key`?"),
            ("header", "say which: `header:NAME`"),
            (
                "client_ip/0",
                "an IPv6 prefix has 1 to 128 bits: `client_ip/56`",
            ),
            ("cookie:", "as in `cookie:id`"),
        ] {
            assert_eq!(
                KeyPart::parse(text).map_err(|(_, help)| help),
                Err(Some(help.to_owned()))
            );
        }
    }
}
