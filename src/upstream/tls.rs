//! TLS towards servers, verified against the system's roots or the roots of a file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::net::dial::name_in_certificates;
use crate::pem::{self, PemError};

mod verifier;

use verifier::ServerVerifier;

/// TLS settings for an upstream.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    roots: Roots,
}

/// The trusted certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// The certificates that the operating system trusts.
    System,
    /// The certificates of a PEM file, as it was when it was read.
    Pem {
        /// Its path.
        path: PathBuf,
        /// Its content.
        content: Vec<u8>,
    },
}

/// Reasons why no server can be verified with these settings.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// The name in the certificate to expect is neither a DNS name nor an address.
    #[error("{0:?} isn't a DNS name or address that a certificate could be for")]
    Name(String),
    /// The file holds no certificate.
    #[error("{}: no usable certificate (a PEM file with BEGIN CERTIFICATE is expected)", .0.display())]
    NoCertificate(PathBuf),
    /// The file is damaged.
    #[error("{}:{}: {}", _0.display(), _1.line, _1.fault)]
    Pem(PathBuf, PemError),
    /// A certificate of the file, which begins on this line, is damaged.
    #[error("{}:{_1}: the certificate cannot be used: {_2}", _0.display())]
    BadCertificate(PathBuf, usize, rustls::Error),
    /// Certificates that nothing can be verified with.
    #[error("nothing can be verified: {0}")]
    Unusable(String),
    /// The operating system has no trusted certificates.
    #[error(
        "the system's trusted certificates cannot be read: {0}; install ca-certificates, or name a file in tls.ca"
    )]
    NoSystemRoots(String),
}

impl ClientTls {
    /// Settings that expect a certificate for `name`, signed by one of `roots`.
    ///
    /// # Errors
    /// When no certificate can be verified with them.
    pub fn new(name: &str, roots: Roots) -> Result<Self, ClientTlsError> {
        let server = server_name(name)?;
        let config = client_config(&roots, None)?;
        Ok(ClientTls {
            config: Arc::new(config),
            name: server,
            roots,
        })
    }

    /// The settings with the protocols to offer (ALPN), and the name to verify.
    pub(crate) fn connector(&self, alpn: Vec<Vec<u8>>) -> (Arc<ClientConfig>, ServerName<'static>) {
        let mut config = (*self.config).clone();
        config.alpn_protocols = alpn;
        (Arc::new(config), self.name.clone())
    }
}

/// Settings that expect a certificate for `name`, or for the connected host, signed by one of
/// `roots`.
///
/// # Errors
/// When no certificate can be verified with them.
pub fn client_config(roots: &Roots, name: Option<&str>) -> Result<ClientConfig, ClientTlsError> {
    let name = name.map(server_name).transpose()?;
    let (roots, own) = roots.load()?;
    let verifier = ServerVerifier::new(roots, name, own)
        .map_err(|error| ClientTlsError::Unusable(error.to_string()))?;
    Ok(verified_by(verifier))
}

/// Settings that accept these certificates of servers and no others, whatever names they have and
/// even if they have expired.
pub fn pinned_config(certificates: Vec<CertificateDer<'static>>) -> ClientConfig {
    verified_by(ServerVerifier::only(certificates))
}

/// A connection with TLS, or in clear text.
pub type Secured<S> = Either<S, Box<TlsStream<S>>>;

/// Begins TLS on a connection, if there are settings for it and a name to verify.
///
/// # Errors
/// The handshake fails, or the certificate is refused.
pub async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
) -> io::Result<Secured<S>> {
    let Some((config, name)) = tls else {
        return Ok(Either::Left(stream));
    };
    let secured = TlsConnector::from(config).connect(name, stream).await?;
    Ok(Either::Right(Box::new(secured)))
}

fn verified_by(verifier: ServerVerifier) -> ClientConfig {
    let builder = ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    builder.with_no_client_auth()
}

fn server_name(text: &str) -> Result<ServerName<'static>, ClientTlsError> {
    let name = name_in_certificates(text.trim_matches(['[', ']']));
    ServerName::try_from(name.to_owned()).map_err(|_| ClientTlsError::Name(text.to_owned()))
}

impl Roots {
    /// The authorities, and the certificates of the file, of which each may also be a server's own.
    fn load(&self) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), ClientTlsError> {
        let (mut store, mut own) = (RootCertStore::empty(), Vec::new());
        match self {
            Self::System => {
                let found = rustls_native_certs::load_native_certs();
                store.add_parsable_certificates(found.certs);
                if store.is_empty() {
                    let reasons: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
                    return Err(ClientTlsError::NoSystemRoots(reasons.join("; ")));
                }
            }
            Self::Pem { path, content } => {
                let found = pem::certificates(content);
                let found = found.map_err(|error| ClientTlsError::Pem(path.clone(), error))?;
                for (line, one) in found {
                    store.add(one.clone()).map_err(|error| {
                        ClientTlsError::BadCertificate(path.clone(), line, error)
                    })?;
                    own.push(one);
                }
                if store.is_empty() {
                    return Err(ClientTlsError::NoCertificate(path.clone()));
                }
            }
        }
        Ok((store, own))
    }
}

/// Equal settings share connections, across reloads too.
impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.roots == other.roots
    }
}

impl Eq for ClientTls {}
