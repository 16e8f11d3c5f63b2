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

/// TLS settings for an upstream. Equal ones share connections, across reloads too.
#[derive(Clone, Debug, derive_more::PartialEq, derive_more::Eq)]
pub struct ClientTls {
    #[eq(skip)]
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

impl ClientTls {
    /// Settings that expect a certificate for `name`, signed by one of `roots`.
    ///
    /// # Errors
    /// The reason why no certificate can be verified with them.
    pub fn new(name: &str, roots: Roots) -> Result<Self, String> {
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
/// The reason why no certificate can be verified with them.
pub fn client_config(roots: &Roots, name: Option<&str>) -> Result<ClientConfig, String> {
    let name = name.map(server_name).transpose()?;
    let (roots, own) = roots.load()?;
    let verifier = ServerVerifier::new(roots, name, own);
    let verifier = verifier.map_err(|error| format!("nothing can be verified: {error}"))?;
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

fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    let name = name_in_certificates(text.trim_matches(['[', ']']));
    ServerName::try_from(name.to_owned()).map_err(|_| {
        format!("{text:?} isn't a DNS name or address that a certificate could be for")
    })
}

impl Roots {
    /// The authorities, and the certificates of the file, of which each may also be a server's own.
    fn load(&self) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), String> {
        let (mut store, mut own) = (RootCertStore::empty(), Vec::new());
        match self {
            Self::System => {
                let found = rustls_native_certs::load_native_certs();
                store.add_parsable_certificates(found.certs);
                if store.is_empty() {
                    let reasons: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
                    return Err(format!(
                        "the system's trusted certificates cannot be read: {}; install ca-certificates, or name a file in tls.ca",
                        reasons.join("; ")
                    ));
                }
            }
            Self::Pem { path, content } => {
                let path = path.display();
                let found = pem::certificates(content);
                let found =
                    found.map_err(|PemError { line, fault }| format!("{path}:{line}: {fault}"))?;
                for (line, one) in found {
                    store.add(one.clone()).map_err(|error| {
                        format!("{path}:{line}: the certificate cannot be used: {error}")
                    })?;
                    own.push(one);
                }
                if store.is_empty() {
                    return Err(format!(
                        "{path}: no usable certificate (a PEM file with BEGIN CERTIFICATE is expected)"
                    ));
                }
            }
        }
        Ok((store, own))
    }
}
