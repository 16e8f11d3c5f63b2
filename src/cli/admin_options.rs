//! The options that name a running proxy and a token for its admin API.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Args;
use http::Uri;
use http::uri::Authority;
use rustls::ClientConfig;

use super::admin_client::AdminClient;
use super::admin_tls::{self, AdminAddress};
use super::{run, text_file};
use crate::admin::actor::TokenRole;
use crate::config::{Loaded, Source};

/// The largest file with a token, in bytes.
const MAX_TOKEN: u64 = 4 << 10;
/// Names the token.
const VARIABLE: &str = "SLUICEGATE_ADMIN_TOKEN";
/// The ways to give a token, as the end of a sentence.
pub(super) const TOKEN_OPTIONS: &str =
    "in $SLUICEGATE_ADMIN_TOKEN, or with --token-file FILE or --token";

/// The proxy to call.
#[derive(Args, Debug)]
pub(super) struct AdminArgs {
    /// The admin listener of the proxy, such as http://127.0.0.1:9980 [default: that of the
    /// configuration]
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    #[command(flatten)]
    pub(super) token: TokenArgs,
    /// The configuration of the proxy [default: the file that run would use]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The token to send. That of the configuration is sent to its own admin address alone.
#[derive(Args, Debug)]
pub(super) struct TokenArgs {
    /// A token of the proxy's admin.tokens, which other users of this machine see in the list of
    /// processes [default: $SLUICEGATE_ADMIN_TOKEN, or that of the configuration if --admin is its
    /// address]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Read the token from this file; `-` is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// Trust the certificates in this PEM file, if the proxy has admin.tls [default: the proxy's own
    /// if --admin is the address of the configuration, or those that the system trusts]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// A token, and where it came from.
pub(super) struct Token {
    pub(super) text: String,
    pub(super) source: TokenSource,
}

/// The place of a token.
#[derive(Clone, Debug, derive_more::Display)]
pub(super) enum TokenSource {
    #[display("--token")]
    Option,
    #[display("--token-file {}", _0.display())]
    File(PathBuf),
    #[display("${VARIABLE}")]
    Variable,
    /// The file's name.
    #[display("admin.tokens of {_0}")]
    Configuration(String),
}

impl AdminArgs {
    /// The client that these options mean. Reads the configuration if it needs to.
    ///
    /// # Errors
    /// A sentence for people.
    pub(super) fn client(&self, role: TokenRole) -> Result<AdminClient, String> {
        find_client(
            self.admin.as_deref(),
            &self.token,
            self.config.as_ref(),
            role,
        )
    }
}

impl TokenArgs {
    /// True if an option has the token.
    pub(super) fn is_given(&self) -> bool {
        self.token.is_some() || self.token_file.is_some()
    }

    /// True if stdin has the token.
    pub(super) fn is_from_stdin(&self) -> bool {
        self.token_file.as_deref().is_some_and(text_file::is_stdin)
    }

    /// The token of the options or the environment. An empty text is none.
    ///
    /// # Errors
    /// The file cannot be read, or is empty: a sentence for people.
    fn read(&self) -> Result<Option<Token>, String> {
        if let Some(path) = &self.token_file {
            let text = text_file::read(path, MAX_TOKEN, "token")?;
            let source = TokenSource::File(path.clone());
            return match text.trim() {
                "" => Err(format!("{} has no token", path.display())),
                text => Ok(Some(Token {
                    text: text.to_owned(),
                    source,
                })),
            };
        }
        let option = self.token.clone().map(|text| (text, TokenSource::Option));
        let variable = || Some((std::env::var(VARIABLE).ok()?, TokenSource::Variable));
        let given = option.or_else(variable);
        let given = given.filter(|(text, _)| !text.is_empty());
        Ok(given.map(|(text, source)| Token { text, source }))
    }
}

/// The client of the proxy at `admin`, or of that of a configuration, which is read if address
/// or token are not given.
///
/// # Errors
/// A sentence for people.
pub(super) fn find_client(
    admin: Option<&str>,
    token: &TokenArgs,
    config: Option<&PathBuf>,
    role: TokenRole,
) -> Result<AdminClient, String> {
    let ca = token.ca.as_deref();
    let (admin, given) = (admin.map(AdminUrl::parse).transpose()?, token.read()?);
    let (admin, given) = match (admin, given) {
        (Some(admin), Some(token)) => {
            let address = admin.with_tls_of(ca, || run::find(config.cloned()).ok())?;
            return AdminClient::new(address, token);
        }
        parts => parts,
    };
    let source = run::find(config.cloned()).map_err(|_| {
        format!(
            "{}: name the configuration of the proxy with --config, or the proxy with --admin \
             and a token {TOKEN_OPTIONS}; a proxy without tokens has made one: its log says \
             `admin.tokens is empty`, with `token=` or `file=`",
            run::absence()
        )
    })?;
    let loaded = match source.load() {
        Ok(loaded) => loaded,
        Err(report) => {
            super::print_report(&report);
            // A proxy that refused to reload this file runs on, and knows the error. Changes are for no
            // other proxy than the one that is meant.
            let is_asked = role == TokenRole::Read;
            let stated = is_asked.then(|| source.load_stated()).flatten();
            let Some(loaded) = stated else {
                let given = given.filter(|_| is_asked);
                let token = given
                    .ok_or("name the proxy with --admin and --token-file to do without the file")?;
                return AdminClient::new(stated_address(None, ca)?, token);
            };
            loaded
        }
    };
    let (own, tls) = (loaded.admin_address(), own_tls(&loaded, ca)?);
    if let Some(token) = given {
        return AdminClient::new(AdminAddress::new(own.to_string(), tls)?, token);
    }
    let file = loaded.document.name();
    if admin.as_ref().is_some_and(|admin| admin.is_https) && tls.is_none() {
        return Err(format!(
            "the admin listener of {file} has no TLS: name it with http://"
        ));
    }
    let authority = admin.map_or_else(|| own.to_string(), |admin| admin.authority);
    if !is_address(&authority, own) {
        return Err(format!(
            "{authority} is not the admin address of {file}, which is {own}: the tokens of \
             the file are not sent there. Give a token of that proxy {TOKEN_OPTIONS}"
        ));
    }
    let text = loaded.admin_token(role).ok_or_else(|| {
        let lack = match (loaded.has_admin_token(role), role) {
            (true, _) => "the tokens of its admin.tokens cannot be read here",
            (false, TokenRole::Read) => "it has no token in admin.tokens",
            (false, TokenRole::Write) => "it has no token in admin.tokens.write",
        };
        format!(
            "{file}: {lack}; give one {TOKEN_OPTIONS}. A proxy without tokens has made one: its log \
             says `admin.tokens is empty`, with `token=` or `file=`"
        )
    })?;
    let source = TokenSource::Configuration(file.to_owned());
    AdminClient::new(AdminAddress::new(authority, tls)?, Token { text, source })
}

/// The listener at `admin`, or that of a configuration, or that of `run` without one if there is
/// none that can be read.
///
/// # Errors
/// A sentence for people.
pub(super) fn find_listener(
    admin: Option<&str>,
    ca: Option<&Path>,
    config: Option<&PathBuf>,
) -> Result<AdminAddress, String> {
    let source = run::find(config.cloned());
    if let Some(admin) = admin {
        return AdminUrl::parse(admin)?.with_tls_of(ca, || source.ok());
    }
    match source.clone().and_then(|source| source.load()) {
        Ok(loaded) => own_address(&loaded, ca),
        Err(report) => {
            super::print_report(&report);
            stated_address(source.ok().as_ref(), ca)
        }
    }
}

/// The admin listener of a proxy that refused to reload this file, and goes on running: the one that the
/// file states, if it can be read that far, else the default, with a line that says so.
fn stated_address(source: Option<&Source>, ca: Option<&Path>) -> Result<AdminAddress, String> {
    if let Some(loaded) = source.and_then(Source::load_stated) {
        return own_address(&loaded, ca);
    }
    let default = run::ADMIN;
    super::tell(format_args!(
        "asking the proxy at {default}, because the file can't be read; --admin names another"
    ));
    AdminUrl::parse(default)?.with_tls(ca)
}

fn own_address(loaded: &Loaded, ca: Option<&Path>) -> Result<AdminAddress, String> {
    AdminAddress::new(loaded.admin_address().to_string(), own_tls(loaded, ca)?)
}

/// The settings of TLS for the admin listener of a configuration; `None` for clear text.
fn own_tls(loaded: &Loaded, ca: Option<&Path>) -> Result<Option<ClientConfig>, String> {
    let Some(files) = loaded.admin_certificates() else {
        return Ok(None);
    };
    let trusted = match ca {
        None => admin_tls::trusting_own(&files),
        ca => admin_tls::trusting(ca),
    };
    trusted.map(Some)
}

/// True if host and port are those of `own`, where port 0 is any.
fn is_address(authority: &str, own: SocketAddr) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else {
        return false;
    };
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_host = match address.parse::<IpAddr>() {
        Ok(address) => address == own.ip(),
        Err(_) => host.eq_ignore_ascii_case("localhost") && own.ip().is_loopback(),
    };
    is_host && (own.port() == 0 || authority.port_u16() == Some(own.port()))
}

/// A URL of an admin listener, or an address without a scheme.
#[derive(Debug)]
struct AdminUrl {
    is_https: bool,
    /// Host and port.
    authority: String,
}

impl AdminUrl {
    fn parse(admin: &str) -> Result<Self, String> {
        let wrong = || format!("{admin:?} isn't an address; write it as in http://127.0.0.1:9980");
        let uri: Uri = admin.parse().map_err(|_| wrong())?;
        let has_path = !matches!(uri.path(), "" | "/");
        let is_https = uri.scheme_str() == Some("https");
        let is_http = is_https || matches!(uri.scheme_str(), None | Some("http"));
        let authority = uri.authority().filter(|_| is_http && !has_path);
        let authority = authority.ok_or_else(wrong)?;
        if authority.port().is_none() && authority.as_str() != authority.host() {
            return Err(wrong());
        }
        let port = if is_https { 443 } else { 80 };
        let authority = match authority.port_u16() {
            Some(_) => authority.to_string(),
            None => format!("{authority}:{port}"),
        };
        Ok(Self {
            is_https,
            authority,
        })
    }

    /// The address of a proxy which may be that of a configuration: its certificate is trusted, too.
    fn with_tls_of(
        self,
        ca: Option<&Path>,
        config: impl FnOnce() -> Option<Source>,
    ) -> Result<AdminAddress, String> {
        let loaded = || {
            let source = config()?;
            source.load().ok().or_else(|| source.load_stated())
        };
        let own = (self.is_https && ca.is_none()).then(loaded).flatten();
        let own = own.filter(|own| is_address(&self.authority, own.admin_address()));
        match own.map(|own| own_tls(&own, ca)).transpose()?.flatten() {
            Some(tls) => AdminAddress::new(self.authority, Some(tls)),
            None => self.with_tls(ca),
        }
    }

    /// The address of a proxy whose configuration isn't known.
    fn with_tls(self, ca: Option<&Path>) -> Result<AdminAddress, String> {
        let tls = self.is_https.then(|| admin_tls::trusting(ca)).transpose()?;
        AdminAddress::new(self.authority, tls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_of_a_url_without_a_path() {
        let port = |text| AdminUrl::parse(text).ok().map(|url| url.authority);
        assert_eq!(
            port("http://127.0.0.1:9980"),
            Some("127.0.0.1:9980".to_owned())
        );
        assert_eq!(port("http://[::1]:9980/"), Some("[::1]:9980".to_owned()));
        assert_eq!(
            port("http://admin.internal"),
            Some("admin.internal:80".to_owned())
        );
        assert_eq!(
            port("admin.internal:9980"),
            Some("admin.internal:9980".to_owned())
        );
        assert_eq!(port("https://a"), Some("a:443".to_owned()));
        for wrong in ["ftp://a", "http://a/v1", "/v1", "", "http://"] {
            assert_eq!(port(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_address_of_the_configuration_is_told_from_others() {
        let own = |own: &str, given: &str| is_address(given, own.parse().expect("an address"));
        for (address, given) in [
            ("127.0.0.1:9980", "127.0.0.1:9980"),
            ("127.0.0.1:9980", "LocalHost:9980"),
            ("[::1]:9980", "[::1]:9980"),
            ("[::1]:9980", "localhost:9980"),
            ("127.0.0.1:0", "127.0.0.1:4711"),
        ] {
            assert!(own(address, given), "{given}");
        }
        for (address, given) in [
            ("127.0.0.1:9980", "127.0.0.1:9981"),
            ("127.0.0.1:9980", "192.0.2.1:9980"),
            ("127.0.0.1:9980", "admin.internal:9980"),
            ("192.0.2.1:9980", "localhost:9980"),
            ("127.0.0.1:0", "192.0.2.1:4711"),
        ] {
            assert!(!own(address, given), "{given}");
        }
    }
}
