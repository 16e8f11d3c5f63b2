//! Parts of a limit's key.

use std::sync::Arc;

use derive_more::{Deref, Display};

use super::{Failure, FieldName, Pointer, TextValue, ValueError, failure, sentence, text_value};
use crate::nearest;
use crate::rules::{self, Credential};

/// One part of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display)]
pub enum KeyPart {
    /// The client's address, IPv6 by the prefix of `client_ip.ipv6_prefix`.
    #[default]
    #[display("client_ip")]
    ClientIp,
    /// The client's address, IPv6 by a prefix of this many bits, 1 to 128.
    #[display("client_ip/{_0}")]
    ClientIpPrefix(u8),
    /// The value of a header field.
    #[display("header:{_0}")]
    Header(FieldName),
    /// The value of a cookie.
    #[display("cookie:{_0}")]
    Cookie(String),
    /// The value of a query parameter.
    #[display("query:{_0}")]
    Query(String),
    /// A claim of the verified token.
    #[display("jwt:{_0}")]
    Claim(String),
    /// The client's name.
    #[display("client")]
    Client,
    /// The client's value in a column.
    #[display("client:{_0}")]
    ClientColumn(String),
    /// The user of basic authentication.
    #[display("basic_user")]
    BasicUser,
    /// A part of a JSON body.
    #[display("body:{_0}")]
    Body(BodyPart),
    /// A field of a form.
    #[display("form:{_0}")]
    Form(String),
    /// A captured segment of the path.
    #[display("path:{_0}")]
    Capture(String),
    /// The whole path.
    #[display("path")]
    Path,
    /// The method.
    #[display("method")]
    Method,
    /// The host.
    #[display("host")]
    Host,
    /// The route.
    #[display("route")]
    Route,
    /// A constant: one bucket for all requests.
    #[display("constant")]
    Constant,
}

impl KeyPart {
    /// True for the client's address.
    pub fn is_address(&self) -> bool {
        matches!(self, Self::ClientIp | Self::ClientIpPrefix(_))
    }

    /// True for the client by its key, which no other client can state.
    pub fn is_of_client(&self) -> bool {
        matches!(self, Self::Client | Self::ClientColumn(_))
    }

    /// True for what no client can make up: the client by its key, and claims.
    pub fn is_verified(&self) -> bool {
        self.is_of_client() || matches!(self, Self::Claim(_))
    }

    /// True for what a client claims itself, or leaves out.
    pub fn is_claimed(&self) -> bool {
        use KeyPart::{BasicUser, Claim, Cookie, Header, Query};
        matches!(
            self,
            Header(_) | Cookie(_) | Query(_) | Claim(_) | BasicUser
        ) || self.is_from_body()
    }

    /// True for parts from the body.
    pub fn is_from_body(&self) -> bool {
        matches!(self, Self::Body(_) | Self::Form(_))
    }
}

/// Parts without an argument, and kinds of parts with one, as in `header:NAME`.
fn words() -> Vec<&'static str> {
    let quoted = KeyPart::EXPECTED.split('`').skip(1).step_by(2);
    quoted
        .filter(|word| !word.starts_with("client_ip/") && *word != "body:graphql")
        .collect()
}

/// The same, without `:NAME`.
fn bare_words() -> Vec<&'static str> {
    let words = words().into_iter();
    words
        .map(|word| word.split(':').next().unwrap_or(word))
        .collect()
}

text_value!(KeyPart);

impl TextValue for KeyPart {
    const EXPECTED: &'static str = "a part of a key: `client_ip`, `client_ip/56`, `header:NAME`, `cookie:NAME`, \
        `query:NAME`, `jwt:NAME` (a claim), `client`, `client:NAME` (its column), `body:/NAME` (a JSON pointer, or `body:graphql`), `form:NAME`, `basic_user`, `path:NAME` (a captured segment), `path`, `method`, `host`, `route` or `constant`";
    const PATTERN: &'static str = "client_ip(/[0-9]{1,3})?|client|(header|cookie|query|jwt|client|form|path):.+|body:(/.*|graphql)|basic_user|path|method|host|route|constant";

    fn read(text: &str) -> Result<Self, Failure> {
        if let Some(bits) = text.strip_prefix("client_ip/") {
            return read_prefix(bits);
        }
        if let Some((kind, name)) = text.split_once(':') {
            return read_named(text, kind, name);
        }
        match text {
            "client_ip" => Ok(Self::ClientIp),
            "client" => Ok(Self::Client),
            "basic_user" => Ok(Self::BasicUser),
            "path" => Ok(Self::Path),
            "method" => Ok(Self::Method),
            "host" => Ok(Self::Host),
            "route" => Ok(Self::Route),
            "constant" => Ok(Self::Constant),
            "body" => Err(failure("needs a pointer", "say which value: `body:/NAME`")),
            "header" | "cookie" | "query" | "jwt" | "form" => {
                Err(failure("needs a name", format!("say which: `{text}:NAME`")))
            }
            _ => Err(unknown(text, text)),
        }
    }
}

fn read_prefix(bits: &str) -> Result<KeyPart, Failure> {
    let help = "an IPv6 prefix has 1 to 128 bits: `client_ip/56`";
    match bits.parse() {
        Ok(bits @ 1..=128) => Ok(KeyPart::ClientIpPrefix(bits)),
        _ => Err(failure("has no valid prefix", help)),
    }
}

fn read_named(text: &str, kind: &str, name: &str) -> Result<KeyPart, Failure> {
    let part: fn(String) -> Result<KeyPart, Failure> = match kind {
        "header" => |name| Ok(KeyPart::Header(FieldName::parse(&name)?)),
        "cookie" => |name| Ok(KeyPart::Cookie(name)),
        "query" => |name| Ok(KeyPart::Query(name)),
        "jwt" => |name| Ok(KeyPart::Claim(name)),
        "body" => |name| Ok(KeyPart::Body(BodyPart::parse(&name)?)),
        "form" => |name| Ok(KeyPart::Form(name)),
        "client" => |name| Ok(KeyPart::ClientColumn(name)),
        "path" => |name| Ok(KeyPart::Capture(name)),
        _ => return Err(unknown(text, kind)),
    };
    let is_allowed = |b: u8| b.is_ascii_graphic() && !matches!(b, b';' | b',' | b'=' | b'"');
    if name.is_empty() || !name.bytes().all(is_allowed) {
        return Err(failure("has no valid name", format!("as in `{kind}:id`")));
    }
    part(name.to_owned())
}

/// Words of other programs for the client's address.
const ADDRESS_WORDS: [&str; 5] = ["address", "ip", "remote_addr", "remote_ip", "source_ip"];

fn unknown(text: &str, word: &str) -> Failure {
    let is_field = |word: &str| word.contains('-') && word.parse::<FieldName>().is_ok();
    let meant = match nearest::nearest(word, &bare_words()) {
        Some(near) => Some(text.replacen(word, near, 1)),
        None if let Some((kind, name)) = other_sign(text) => Some(format!("{kind}:{name}")),
        None if ADDRESS_WORDS.contains(&text) => Some("client_ip".to_owned()),
        None if is_field(text) => Some(format!("header:{text}")),
        None => None,
    };
    nearest::phrase(meant.as_deref(), &words(), "known parts").into()
}

/// A kind of part and a name, with another sign between them than `:`.
fn other_sign(text: &str) -> Option<(&str, &str)> {
    let (kind, name) = text.split_once(['.', '=', '/', ' '])?;
    let kind = kind.strip_suffix('s').unwrap_or(kind);
    let is_kind = words().contains(&&*format!("{kind}:NAME"));
    (is_kind && !name.is_empty()).then_some((kind, name))
}

/// A part of a JSON body.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Display)]
pub enum BodyPart {
    /// The scalar at this pointer.
    #[display("{_0}")]
    At(Pointer),
    /// The operation of GraphQL.
    #[display("graphql")]
    Graphql,
}

text_value!(BodyPart = "/model");

impl TextValue for BodyPart {
    const EXPECTED: &'static str =
        "a part of a JSON body: a JSON pointer (RFC 6901), as in `/user/name`, or `graphql`";
    const PATTERN: &'static str = "(/([^~/]|~[01])*)+|graphql";

    fn read(text: &str) -> Result<Self, Failure> {
        match text {
            "graphql" => Ok(Self::Graphql),
            _ => Ok(Self::At(Pointer::parse(text)?)),
        }
    }
}

impl From<&BodyPart> for rules::KeyPart {
    fn from(part: &BodyPart) -> Self {
        match part {
            BodyPart::At(pointer) => Self::Body(Arc::clone(pointer.get())),
            BodyPart::Graphql => Self::Graphql,
        }
    }
}

/// `on_missing_key` where it is one word.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub enum MissingKeyWord {
    /// Another part stands in for the missing one.
    Part(KeyPart),
    /// The policy does not apply.
    #[display("skip")]
    Skip,
    /// The request is refused.
    #[display("refuse")]
    Refuse,
    /// All such requests share one bucket.
    #[display("shared")]
    Shared,
}

/// Words that are no key part.
const OTHER_WORDS: [&str; 3] = ["skip", "refuse", "shared"];

// Dropping a header so escapes no limit.
text_value!(MissingKeyWord = "client_ip");

impl TextValue for MissingKeyWord {
    const EXPECTED: &'static str =
        "`skip`, `refuse`, `shared`, or a part that stands in, as `client_ip`";
    const PATTERN: &'static str = "skip|refuse|shared|client_ip(/[0-9]{1,3})?|client|(header|cookie|query|jwt|client|form|path):.+|body:(/.*|graphql)|basic_user|path|method|host|route|constant";

    fn read(text: &str) -> Result<Self, Failure> {
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
fn unknown_word(text: &str, error: ValueError) -> Failure {
    let help = match nearest::nearest(text, &OTHER_WORDS) {
        Some(near) => format!("did you mean `{near}`?"),
        None if text.contains([':', '/']) => return error.into(),
        None if nearest::nearest(text, &bare_words()).is_some() => return error.into(),
        None => format!(
            "a constant value is written `{{ value: {text} }}`; else it is `skip`, `refuse`, `shared`, or a part of a request"
        ),
    };
    failure("is unknown here", help)
}

/// A non-empty value of a part; empty parts count as missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display, Deref)]
pub struct KeyValue(String);

text_value!(KeyValue);

impl TextValue for KeyValue {
    const EXPECTED: &'static str = "a text that is not empty";
    const PATTERN: &'static str = "";

    fn read(text: &str) -> Result<Self, Failure> {
        if text.is_empty() {
            let message = "a part that is empty is missing, so that no request has this value";
            let help = "name another, as in `{ value: free }`, or use `shared`";
            return Err(sentence(message, help));
        }
        Ok(Self(text.to_owned()))
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": ["string", "number", "boolean"], "minLength": 1 })
    }
}

/// A claim of a verified token, or a column of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display, Deref)]
pub struct VerifiedPart(KeyPart);

text_value!(VerifiedPart);

impl TextValue for VerifiedPart {
    const NAME: &'static str = "Claim";
    const EXPECTED: &'static str =
        "a claim of a verified token, as in `jwt:zoneinfo`, or `client:NAME`, a client's column";
    const PATTERN: &'static str = "(jwt|client):.+";

    fn read(text: &str) -> Result<Self, Failure> {
        match KeyPart::parse(text) {
            Ok(part @ (KeyPart::Claim(_) | KeyPart::ClientColumn(_))) => Ok(Self(part)),
            Err(error) if text.starts_with("jwt") => Err(error.into()),
            _ => Err(
                "name one which clients cannot forge: `jwt:zoneinfo` or `client:time_zone`".into(),
            ),
        }
    }
}

/// Where requests have the key of their client.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[display("{}", self.text())]
pub struct KeySource(Credential);

text_value!(KeySource: Credential = "bearer");

impl TextValue for KeySource {
    const EXPECTED: &'static str = "where requests have the key: `bearer`, `basic_user`, `header:NAME`, `query:NAME` or `cookie:NAME`";
    const PATTERN: &'static str = "bearer|basic_user|(header|query|cookie):.+";

    fn read(text: &str) -> Result<Self, Failure> {
        use crate::rules::KeyPart as Part;
        if text == "bearer" {
            return Ok(Self(Credential::Bearer));
        }
        let part = match KeyPart::parse(text).map_err(|_| Failure::from(Self::EXPECTED))? {
            KeyPart::BasicUser => Part::BasicUser,
            KeyPart::Header(name) => Part::field(name.get().clone()),
            KeyPart::Query(name) => Part::Query(name),
            KeyPart::Cookie(name) => Part::Cookie(name),
            _ => return Err(Self::EXPECTED.into()),
        };
        if matches!(part, Part::Credentials(_)) {
            return Err("write `bearer` or `basic_user` for what follows the scheme".into());
        }
        Ok(Self(Credential::Part(part)))
    }
}

impl KeySource {
    fn text(&self) -> String {
        match &self.0 {
            Credential::Bearer => "bearer".to_owned(),
            Credential::Part(part) => part.to_string(),
        }
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
            "body:/user/name",
            "body:graphql",
            "form:user[name]",
            "client",
            "client:plan",
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
            ("ip", "did you mean `client_ip`?"),
            ("X-Api-Key", "did you mean `header:X-Api-Key`?"),
            ("header", "say which: `header:NAME`"),
            ("body:user.name", "did you mean `/user/name`?"),
            (
                "client_ip/0",
                "an IPv6 prefix has 1 to 128 bits: `client_ip/56`",
            ),
            ("cookie:", "as in `cookie:id`"),
        ] {
            assert_eq!(
                KeyPart::parse(text).map_err(|error| error.help),
                Err(Some(help.to_owned()))
            );
        }
    }
}
