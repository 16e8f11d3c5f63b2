//! Addresses of Redis servers, and the prefix of names in Redis.

use std::fmt;

use derive_more::{Deref, Display};

use super::host::{bracketed, read_authority};
use super::text::read_name;
use super::{Failure, TextValue, failure, sentence, text_value};

/// A host with an optional port: `redis-1`, `redis-1:6379`, `[2001:db8::1]:6379`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    /// The name in lower case, or the address without brackets.
    pub host: String,
    /// The port, if given.
    pub port: Option<u16>,
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&bracketed(&self.host))?;
        self.port.iter().try_for_each(|port| write!(f, ":{port}"))
    }
}

text_value!(ServerAddress);

impl TextValue for ServerAddress {
    const EXPECTED: &'static str = "a host and its port, as in `redis-1:6379`";
    const PATTERN: &'static str = "([0-9A-Za-z._-]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]+)?";

    fn read(text: &str) -> Result<Self, Failure> {
        if text.contains(['/', '@']) {
            let message = "a server is named by host and port alone";
            let help = "user and password have keys of their own: `user`, `password`";
            return Err(sentence(message, help));
        }
        let help =
            "as in `redis-1:6379`, `10.0.0.11:6379` or `[::1]:6379`; ports are from 1 to 65535";
        let (host, port) = read_authority(text).map_err(|problem| failure(problem, help))?;
        Ok(Self { host, port })
    }
}

/// The prefix of all names in Redis.
#[derive(Clone, Debug, PartialEq, Eq, Display, Deref)]
pub struct KeyPrefix(String);

text_value!(KeyPrefix = crate::store::redis::client::DEFAULT_PREFIX);

impl TextValue for KeyPrefix {
    const EXPECTED: &'static str =
        "a prefix: up to 64 letters, digits, `.`, `_`, `:`, `/` and `-`, as in `sluicegate:`";
    const PATTERN: &'static str = "[A-Za-z0-9._:/-]{1,64}";

    fn read(text: &str) -> Result<Self, Failure> {
        let help = if text.contains(['{', '}']) {
            "braces tell in which slot of a cluster a bucket is, and stand after the prefix"
        } else {
            "use letters, digits, `.`, `_`, `:`, `/` and `-` only"
        };
        read_name(text, "._:/-", || help.to_owned()).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_a_host_and_perhaps_a_port() {
        for (text, host, port) in [
            ("redis", "redis", None),
            ("Redis-1.internal:6380", "redis-1.internal", Some(6380)),
            ("10.0.0.1:1", "10.0.0.1", Some(1)),
            ("[2001:DB8::1]", "2001:db8::1", None),
            ("[::1]:65535", "::1", Some(65535)),
        ] {
            let address = ServerAddress::parse(text).expect(text);
            assert_eq!((&*address.host, address.port), (host, port));
            let again = ServerAddress::parse(&address.to_string());
            assert_eq!(again, Ok(address));
        }
        for text in [
            "",
            ":1",
            "a:",
            "a:0",
            "a:65536",
            "a b",
            "::1",
            "[::1",
            "[a]:1",
            "[::1]x",
            "a:1:2",
            "redis://a",
            "u:hunter2@a",
        ] {
            let message = ServerAddress::parse(text).expect_err(text).message;
            assert!(!message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn prefixes_are_short_and_have_no_braces() {
        let longest = "x".repeat(64);
        for text in ["sluicegate:", "a/b-c_d.e", &longest] {
            assert_eq!(KeyPrefix::parse(text).expect(text).as_str(), text);
        }
        for text in ["", "a{b", "}", "two words", "ü", "a*", &"x".repeat(65)] {
            assert!(KeyPrefix::parse(text).is_err(), "{text}");
        }
    }
}
