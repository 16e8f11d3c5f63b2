//! Where the admin listener of a proxy is, and how its certificate is verified.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::uri::Authority;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;

use crate::files;
use crate::pem;
use crate::upstream::{Roots, client_config, pinned_config};

/// The largest file with certificates, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// The address of an admin listener.
#[derive(Clone, Debug)]
pub(super) struct AdminAddress {
    /// Host and port.
    pub(super) authority: String,
    /// The settings of TLS, and the name to verify; `None` for clear text.
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl AdminAddress {
    /// The listener at a host and a port.
    ///
    /// # Errors
    /// The host is neither a DNS name nor an address, but TLS needs one: a sentence for people.
    pub(super) fn new(authority: String, tls: Option<ClientConfig>) -> Result<Self, String> {
        let name = |tls| {
            let parsed = authority.parse::<Authority>();
            let host = parsed.as_ref().map(Authority::host).unwrap_or_default();
            let host = host.trim_matches(['[', ']']).trim_end_matches('.');
            let name = ServerName::try_from(host.to_owned());
            let name = name.map_err(|_| format!("no certificate is for the host `{host}`"))?;
            Ok::<_, String>((Arc::new(tls), name))
        };
        let tls = tls.map(name).transpose()?;
        Ok(Self { authority, tls })
    }
}

/// Its URL.
impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

/// Settings that trust the authorities of a PEM file, or those of the system.
///
/// # Errors
/// A file without certificates: a sentence for people.
pub(super) fn trusting(ca: Option<&Path>) -> Result<ClientConfig, String> {
    let roots = match ca {
        None => Roots::System,
        Some(path) => Roots::Pem {
            path: path.to_owned(),
            content: read(path)?,
        },
    };
    client_config(&roots, None).map_err(|error| error.to_string())
}

/// Settings that trust the certificates in the listener's own files and no others, whatever names
/// they have and even if they have expired: whoever has their keys is the proxy.
///
/// # Errors
/// A file that can't be read: a sentence for people.
pub(super) fn trusting_own(files: &[PathBuf]) -> Result<ClientConfig, String> {
    let own = |path: &PathBuf| {
        let chain = pem::certificates(&read(path)?);
        let chain =
            chain.map_err(|error| format!("{}:{}: {}", path.display(), error.line, error.fault))?;
        let first = chain.into_iter().next();
        let (_, certificate) =
            first.ok_or_else(|| format!("{}: no certificate", path.display()))?;
        Ok(certificate)
    };
    let certificates: Result<_, String> = files.iter().map(own).collect();
    certificates.map(pinned_config)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let content = files::read(path, MAX_FILE);
    content.map_err(|error| {
        format!(
            "{}: {error}; name the certificates to trust with --ca",
            path.display()
        )
    })
}
