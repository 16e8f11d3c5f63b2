//! Where the admin listener of a proxy is, and how its certificate is verified.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::uri::Authority;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::files;
use crate::pem;
use crate::upstream::{Roots, client_config};

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
    let provider = aws_lc_rs::default_provider();
    let verifier = OwnCertificates {
        own: files.iter().map(own).collect::<Result<_, String>>()?,
        algorithms: provider.signature_verification_algorithms,
    };
    let builder = ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    Ok(builder.with_no_client_auth())
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

/// Accepts these certificates, and no others.
#[derive(Debug)]
struct OwnCertificates {
    own: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for OwnCertificates {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.own.iter().any(|own| own == end_entity) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(Error::General(
                "its certificate isn't in the files of admin.tls".to_owned(),
            )),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
