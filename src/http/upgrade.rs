//! Switching protocols (RFC 9110 section 7.8): to which a request asks to switch, and which of them
//! the upstream may choose.

use http::HeaderValue;
use http::header::UPGRADE;

use super::framing::FramingFields;
use super::headers::Headers;

/// The protocols to which a route's requests may switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upgrades {
    /// Every protocol that hides no requests.
    Any,
    /// These.
    Listed(Vec<String>),
}

/// None.
impl Default for Upgrades {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl Upgrades {
    /// The protocols that a request asks for and may switch to, as a value of `Upgrade`; `None` if
    /// there are none.
    pub fn allowed(&self, request: &Headers) -> Option<HeaderValue> {
        let allowed = protocols(request).filter(|protocol| self.allows(protocol));
        let allowed: Vec<_> = allowed.collect();
        if allowed.is_empty() {
            return None;
        }
        HeaderValue::from_bytes(&allowed.join(&b", "[..])).ok()
    }

    /// Returns true if requests may switch to this protocol.
    pub fn allows(&self, protocol: &[u8]) -> bool {
        match self {
            Self::Any => is_protocol(protocol) && !hides_requests(protocol),
            Self::Listed(listed) => {
                let mut listed = listed.iter();
                listed.any(|one| protocol.eq_ignore_ascii_case(one.as_bytes()))
            }
        }
    }
}

/// Returns true for a name, or a name and a version, both tokens (RFC 9110 section 7.8).
fn is_protocol(protocol: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let mut parts = protocol.splitn(2, |&byte| byte == b'/');
    parts.all(|part| !part.is_empty() && part.iter().all(is_part))
}

/// Returns true for versions of HTTP, and for TLS, whose requests would pass through the tunnel
/// unseen.
pub fn hides_requests(protocol: &[u8]) -> bool {
    let name = protocol.split(|&byte| byte == b'/').next();
    let hiding = [&b"h2c"[..], b"h2", b"http", b"tls"];
    name.is_some_and(|name| hiding.iter().any(|one| name.eq_ignore_ascii_case(one)))
}

/// The protocols that `Upgrade` lists.
pub(crate) fn protocols(headers: &Headers) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(UPGRADE);
    let listed = values.flat_map(|value| value.split(|&byte| byte == b','));
    listed.map(<[u8]>::trim_ascii)
}

/// The protocols to which a response switches, as `asked`, the request's `Upgrade`, spells them.
/// `None` if it has none, or another.
pub(crate) fn switched(response: &Headers, asked: &HeaderValue) -> Option<HeaderValue> {
    if !FramingFields::of(response).asks_to_switch() {
        return None;
    }
    let asked = asked.as_bytes().split(|&byte| byte == b',');
    let asked: Vec<_> = asked.map(<[u8]>::trim_ascii).collect();
    let chosen = protocols(response).map(|one| {
        let mut asked = asked.iter().copied();
        asked.find(|asked| asked.eq_ignore_ascii_case(one))
    });
    HeaderValue::from_bytes(&chosen.collect::<Option<Vec<_>>>()?.join(&b", "[..])).ok()
}

#[cfg(test)]
mod tests {
    use http::header::CONNECTION;

    use super::*;

    fn headers(connection: &'static str, upgrade: &[&'static str]) -> Headers {
        let mut headers = Headers::new();
        headers.append(CONNECTION, HeaderValue::from_static(connection));
        for value in upgrade {
            headers.append(UPGRADE, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn listed_protocols_are_allowed_in_the_clients_order() {
        let listed = Upgrades::Listed(vec!["websocket".to_owned(), "SPDY/3.1".to_owned()]);
        let allowed = |upgrades: &Upgrades, values: &[&'static str]| {
            let value = upgrades.allowed(&headers("upgrade", values));
            value.map(|value| value.to_str().expect("a text").to_owned())
        };
        let both = allowed(&listed, &["h2c, spdy/3.1", "WebSocket"]);
        assert_eq!(both.as_deref(), Some("spdy/3.1, WebSocket"));
        for value in ["tcp", "spdy", "SPDY/3", "h2c", ""] {
            assert_eq!(allowed(&listed, &[value]), None, "{value}");
        }
        for value in ["tcp", "spdy", "x/y"] {
            assert_eq!(allowed(&Upgrades::Any, &[value]).as_deref(), Some(value));
        }
        let malformed = [
            "h2c;q=1",
            "\"tcp\"",
            "\"a, h2c\"",
            "tcp x",
            "x/",
            "/x",
            "x/y/z",
            "h2c@",
        ];
        for value in malformed
            .into_iter()
            .chain(["h2c", "H2C", "HTTP/2.0", "TLS/1.0", ""])
        {
            assert_eq!(allowed(&Upgrades::Any, &[value]), None, "{value}");
        }
    }

    #[test]
    fn a_response_switches_to_what_was_asked_for() {
        let asked = HeaderValue::from_static("SPDY/3.1, tcp");
        let spelled = switched(&headers("Upgrade", &["spdy/3.1"]), &asked);
        assert_eq!(spelled, Some(HeaderValue::from_static("SPDY/3.1")));
        for (connection, upgrade) in [
            ("Upgrade", &["websocket"][..]),
            ("Upgrade", &["tcp", "x"]),
            ("Upgrade", &[""]),
            ("Upgrade", &[]),
            ("close", &["tcp"]),
        ] {
            let headers = headers(connection, upgrade);
            assert_eq!(switched(&headers, &asked), None, "{upgrade:?}");
        }
    }
}
