//! A [`Spec`] from the text of a URL.

use std::sync::Arc;

use percent_encoding::percent_decode_str;
use rustls::ClientConfig;

use super::{Address, Login, PORT, Password, SENTINEL_PORT, Spec, Target, Tls};

/// The mistake in a store's URL. No variant shows the text after the scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// There is no `://`.
    #[error("this isn't a URL; write it as in redis://host:6379")]
    NotAUrl,
    /// Another scheme.
    #[error(
        "the scheme is none of redis, rediss (with TLS), redis+cluster, rediss+cluster, redis+sentinel and rediss+sentinel"
    )]
    Scheme,
    /// No host, or an empty one in a list.
    #[error("the URL names no host: redis://host:6379 does")]
    NoHost,
    /// An invalid host.
    #[error(
        "the host is neither a name nor an address; a `/`, `?`, `#` or `@` in a password is written %2F, %3F, %23, %40, and an address of IPv6 stands in brackets"
    )]
    Host,
    /// An invalid port.
    #[error("the port isn't a number from 1 to 65535; a `/` in a password is written %2F")]
    Port,
    /// Several hosts for a single server.
    #[error(
        "redis:// names one server; several are a cluster (redis+cluster://) or sentinels (redis+sentinel://)"
    )]
    SeveralHosts,
    /// An invalid number of a database.
    #[error("the database after the last `/` isn't a number; a `/` in a password is written %2F")]
    Database,
    /// A database other than 0 in a cluster.
    #[error("a cluster has database 0 alone")]
    DatabaseOfCluster,
    /// No master's name.
    #[error("sentinels are asked for a master by its name: redis+sentinel://host:26379/mymaster")]
    NoMaster,
    /// `?` or `#`.
    #[error(
        "the URL has a `?` or `#`, which mean nothing here; in a password they are written %3F and %23"
    )]
    Query,
    /// A `%` without two hexadecimal digits, or bytes that are no UTF-8.
    #[error("user or password have a `%` that encodes nothing; `%` itself is written %25")]
    Encoding,
    /// A TLS scheme without TLS settings.
    #[error("the URL says TLS, for which there are no settings")]
    NoTls,
}

pub(super) fn parse(text: &str, tls: Option<Arc<ClientConfig>>) -> Result<Spec, UrlError> {
    let (scheme, rest) = text.split_once("://").ok_or(UrlError::NotAUrl)?;
    let (kind, secure) = scheme_of(scheme)?;
    if rest.contains(['?', '#']) {
        return Err(UrlError::Query);
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let default_port = match kind {
        Kind::Sentinel => SENTINEL_PORT,
        Kind::Single | Kind::Cluster => PORT,
    };
    let hosts = addresses(hosts, default_port)?;
    let (target, database) = kind.target(hosts, path)?;
    Ok(Spec {
        login: login_of(login)?,
        database,
        tls: if secure {
            Some(Tls(tls.ok_or(UrlError::NoTls)?))
        } else {
            None
        },
        ..Spec::new(target)
    })
}

enum Kind {
    Single,
    Cluster,
    Sentinel,
}

impl Kind {
    fn target(&self, mut hosts: Vec<Address>, path: &str) -> Result<(Target, u32), UrlError> {
        match self {
            Self::Single if hosts.len() > 1 => Err(UrlError::SeveralHosts),
            Self::Single => Ok((Target::Single(hosts.remove(0)), database(path)?)),
            Self::Cluster if database(path)? != 0 => Err(UrlError::DatabaseOfCluster),
            Self::Cluster => Ok((Target::Cluster(hosts), 0)),
            Self::Sentinel => {
                let (master, rest) = path.split_once('/').unwrap_or((path, ""));
                let master = match master {
                    "" => return Err(UrlError::NoMaster),
                    master => decoded(master)?.into(),
                };
                let target = Target::Sentinel {
                    sentinels: hosts,
                    master,
                    login: Login::default(),
                };
                Ok((target, database(rest)?))
            }
        }
    }
}

/// The kind of servers, and true with TLS.
fn scheme_of(scheme: &str) -> Result<(Kind, bool), UrlError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    if scheme.is_empty() || !scheme.chars().all(is_plain) {
        return Err(UrlError::NotAUrl);
    }
    let lower = scheme.to_ascii_lowercase();
    let (base, kind) = match lower.split_once('+') {
        None => (&*lower, Kind::Single),
        Some((base, "cluster")) => (base, Kind::Cluster),
        Some((base, "sentinel")) => (base, Kind::Sentinel),
        Some(_) => return Err(UrlError::Scheme),
    };
    match base {
        "redis" | "valkey" => Ok((kind, false)),
        "rediss" | "valkeys" => Ok((kind, true)),
        _ => Err(UrlError::Scheme),
    }
}

fn addresses(text: &str, default_port: u16) -> Result<Vec<Address>, UrlError> {
    text.split(',')
        .map(|host| address(host, default_port))
        .collect()
}

fn address(text: &str, default_port: u16) -> Result<Address, UrlError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(UrlError::Host)?;
            let host: std::net::Ipv6Addr = host.parse().map_err(|_| UrlError::Host)?;
            match port.strip_prefix(':') {
                Some(port) => (host.to_string(), Some(port)),
                None if port.is_empty() => (host.to_string(), None),
                None => return Err(UrlError::Host),
            }
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host.to_owned(), Some(port)),
            None => (text.to_owned(), None),
        },
    };
    let port = match port {
        None => default_port,
        Some(port) => number(port)
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port != 0)
            .ok_or(UrlError::Port)?,
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    match host.as_str() {
        "" => Err(UrlError::NoHost),
        host if host.chars().all(is_host) => Ok(Address::new(host, port)),
        _ => Err(UrlError::Host),
    }
}

fn database(path: &str) -> Result<u32, UrlError> {
    match path {
        "" => Ok(0),
        path => number(path).ok_or(UrlError::Database),
    }
}

/// Decimal digits, and nothing else.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn login_of(text: &str) -> Result<Login, UrlError> {
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (text, None),
    };
    let some = |text: &str| (!text.is_empty()).then(|| decoded(text)).transpose();
    Ok(Login {
        user: some(user)?.map(Into::into),
        password: some(password.unwrap_or_default())?.map(|text| Password::new(&text)),
    })
}

/// Decodes every `%XX`.
fn decoded(text: &str) -> Result<String, UrlError> {
    let has_digits = |after: &str| {
        let digits = after.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(has_digits) {
        return Err(UrlError::Encoding);
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| UrlError::Encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Spec {
        parse(text, None).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn password(spec: &Spec) -> Option<&str> {
        spec.login.password.as_ref().map(Password::reveal)
    }

    #[test]
    fn a_single_server_has_defaults() {
        let plain = spec("redis://cache");
        assert_eq!(plain.target, Target::Single(Address::new("cache", 6379)));
        assert_eq!((plain.database, &plain.login), (0, &Login::default()));

        let full = spec("redis://bob:p%40%2f:ss@[::1]:7000/15");
        assert_eq!(full.target, Target::Single(Address::new("::1", 7000)));
        assert_eq!(full.login.user.as_deref(), Some("bob"));
        assert_eq!((password(&full), full.database), (Some("p@/:ss"), 15));
        assert_eq!(password(&spec("valkey://:secret@cache/")), Some("secret"));
    }

    #[test]
    fn several_servers_are_a_cluster_or_sentinels() {
        let nodes = vec![Address::new("a", 6379), Address::new("b", 7)];
        assert_eq!(spec("redis+cluster://a,b:7").target, Target::Cluster(nodes));

        let asked = spec("redis+sentinel://:x@a,b:7/my%20master/3");
        let Target::Sentinel {
            sentinels, master, ..
        } = &asked.target
        else {
            panic!("{asked:?}");
        };
        assert_eq!(*sentinels, [Address::new("a", 26379), Address::new("b", 7)]);
        assert_eq!((&**master, asked.database), ("my master", 3));
    }

    #[test]
    fn errors_show_no_password() {
        for (text, error) in [
            ("cache:6379", UrlError::NotAUrl),
            (":hunter2@cache://", UrlError::NotAUrl),
            ("http://cache", UrlError::Scheme),
            ("redis+tls://cache", UrlError::Scheme),
            ("redis+://cache", UrlError::Scheme),
            ("redis://", UrlError::NoHost),
            ("redis://:hunter2@", UrlError::NoHost),
            ("redis://:hunter2@:6379", UrlError::NoHost),
            ("redis+cluster://a,,b", UrlError::NoHost),
            ("redis://::1", UrlError::Port),
            ("redis://[::1", UrlError::Host),
            ("redis://[::1]x", UrlError::Host),
            ("redis://a b", UrlError::Host),
            ("redis://a:0", UrlError::Port),
            ("redis://a:65536", UrlError::Port),
            ("redis://:hunter2/x@cache", UrlError::Port),
            ("redis://a,b", UrlError::SeveralHosts),
            ("redis://a/hunter2", UrlError::Database),
            ("redis://a/-1", UrlError::Database),
            ("redis://a/1/2", UrlError::Database),
            ("redis+cluster://a/1", UrlError::DatabaseOfCluster),
            ("redis+sentinel://a", UrlError::NoMaster),
            ("redis://:hunter2?x@a", UrlError::Query),
            ("redis://:hunter2%@a", UrlError::Encoding),
            ("redis://:hunter2%4@a", UrlError::Encoding),
            ("redis://:hunter2%ff@a", UrlError::Encoding),
            ("rediss://a", UrlError::NoTls),
        ] {
            let found = parse(text, None).expect_err(text);
            assert_eq!(found, error, "{text}");
            assert!(!found.to_string().contains("hunter2"), "{found}");
        }
    }

    #[test]
    fn a_spec_shows_no_password() {
        let shown = format!("{:?}", spec("redis://bob:hunter2@cache"));
        assert!(
            shown.contains("bob") && !shown.contains("hunter2"),
            "{shown}"
        );
    }
}
