//! TLS towards clients: certificates chosen by server name and by the signatures that the client
//! verifies, and replaced while connections go on.
//!
//! One rustls configuration lives as long as the process, so that session tickets survive a change
//! of certificates. 0-RTT is off: early data can be replayed, against a limit too. Watching files
//! for changes is not done here.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::aws_lc_rs;
use rustls::server::{ClientHello, ResolvesServerCert, ServerSessionMemoryCache};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ProtocolVersion, ServerConfig, SignatureAlgorithm};
use rustls_pki_types::{PrivateKeyDer, UnixTime};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::spec::{HttpVersion, Protocols};
use crate::http::connection::TlsVersion;
use crate::net::socket::Socket;
use crate::pem::{self, PemError};

mod validity;

pub use validity::{CertificatePeriod, ExpiryWarning, Validity};

/// TLS 1.2 sessions that are remembered for resumption; TLS 1.3 uses tickets, which cost no memory.
const SESSIONS: usize = 4096;

/// A certificate chain with its key, and the names in it.
#[derive(Clone, Debug)]
pub struct Certificate {
    certified: Arc<CertifiedKey>,
    /// Lower case, sorted, each once.
    names: Vec<Box<str>>,
    /// A certificate that is not valid, or not for long; it is used all the same.
    pub expiry: Option<ExpiryWarning>,
}

/// A listener's TLS. Cheap to clone; clones share their certificates.
#[derive(Clone, derive_more::Debug)]
#[debug("Tls(..)")]
pub struct Tls {
    pub(super) min_version: TlsVersion,
    acceptor: TlsAcceptor,
    certificates: Arc<Certificates>,
}

impl Tls {
    /// Serves these certificates by server name, and offers `protocols` by ALPN (RFC 7301). A
    /// client with no or an unknown name gets the first, or another for the same names. Of several
    /// for a name a client gets one whose signatures it verifies, RSA last.
    ///
    /// # Errors
    /// Without a certificate, or when rustls cannot be set up.
    pub fn new(
        certificates: &[Certificate],
        min_version: TlsVersion,
        protocols: Protocols,
    ) -> Result<Self, TlsError> {
        let names = Names::new(certificates).ok_or_else(|| TlsError {
            file: None,
            message: "no certificate is configured".to_owned(),
            advice: "name one: `certificates: [{ certificate: FILE, key: FILE }]`",
        })?;
        let certificates = Arc::new(Certificates {
            names: ArcSwap::from_pointee(names),
        });
        let provider = Arc::new(aws_lc_rs::default_provider());
        let versions = match min_version {
            TlsVersion::V1_2 => rustls::ALL_VERSIONS,
            TlsVersion::V1_3 => const { &[&TLS13] },
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)?
            .with_no_client_auth()
            .with_cert_resolver(certificates.clone());
        config.alpn_protocols = protocols.alpn().iter().map(|name| name.to_vec()).collect();
        config.ticketer = aws_lc_rs::Ticketer::new()?;
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        Ok(Self {
            min_version,
            acceptor: TlsAcceptor::from(Arc::new(config)),
            certificates,
        })
    }

    /// Uses the certificates of `other`, which has just been loaded, for handshakes from now on.
    pub fn adopt(&self, other: &Self) {
        self.certificates
            .names
            .store(other.certificates.names.load_full());
    }

    pub(super) async fn accept(&self, socket: Socket) -> io::Result<TlsSession> {
        let stream = self.acceptor.accept(socket).await?;
        let (_, session) = stream.get_ref();
        let version = match session.alpn_protocol() {
            Some(b"h2") => Some(HttpVersion::Http2),
            Some(_) => Some(HttpVersion::Http1),
            None => None,
        };
        let server_name = session.server_name().map(Arc::from);
        let tls_version = match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => Some(TlsVersion::V1_2),
            Some(ProtocolVersion::TLSv1_3) => Some(TlsVersion::V1_3),
            _ => None,
        };
        Ok(TlsSession {
            version,
            tls_version,
            server_name,
            stream: Box::new(stream),
        })
    }
}

/// A finished handshake.
pub(super) struct TlsSession {
    /// By ALPN, if the client uses it.
    pub(super) version: Option<HttpVersion>,
    pub(super) tls_version: Option<TlsVersion>,
    pub(super) server_name: Option<Arc<str>>,
    /// Boxed: a session is 1 KiB, and is moved several times.
    pub(super) stream: Box<TlsStream<Socket>>,
}

/// The certificates in use.
#[derive(Debug)]
struct Certificates {
    names: ArcSwap<Names>,
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.names.load().find(&hello))
    }
}

/// Certificates by the names in them.
#[derive(Debug)]
struct Names {
    default: Candidates,
    exact: HashMap<Box<str>, Candidates>,
    /// By the name after `*.`.
    wildcard: HashMap<Box<str>, Candidates>,
}

/// The certificates for a name, the first choice first.
type Candidates = Vec<Arc<CertifiedKey>>;

impl Names {
    fn new(certificates: &[Certificate]) -> Option<Self> {
        let first = certificates.first()?;
        let mut names = Self {
            default: vec![first.certified.clone()],
            exact: HashMap::new(),
            wildcard: HashMap::new(),
        };
        // A client that verifies both gets the smaller and faster signature, if it is valid now.
        let is_rsa = |one: &Certificate| one.certified.key.algorithm() == SignatureAlgorithm::RSA;
        let is_invalid =
            |one: &Certificate| one.expiry.as_ref().is_some_and(|why| why.is_invalid());
        let mut certificates: Vec<_> = certificates.iter().collect();
        certificates.sort_by_key(|one| (is_invalid(one), is_rsa(one)));
        if !first.names.is_empty() {
            let same = certificates.iter().filter(|one| one.names == first.names);
            names.default = same.map(|one| one.certified.clone()).collect();
        }
        for certificate in certificates {
            for name in &certificate.names {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut names.wildcard, parent),
                    None => (&mut names.exact, &**name),
                };
                let candidates: &mut Candidates = map.entry(name.into()).or_default();
                candidates.push(certificate.certified.clone());
            }
        }
        Some(names)
    }

    /// Finds by exact name, then by a wildcard for the leftmost label, then the default. A client
    /// that verifies no signature of them gets the first choice.
    fn find(&self, hello: &ClientHello<'_>) -> Arc<CertifiedKey> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let exact = name.as_deref().and_then(|name| self.exact.get(name));
        let parent = name.as_deref().and_then(|name| name.split_once('.'));
        let wildcard = parent.and_then(|(_, parent)| self.wildcard.get(parent));
        let named = exact.into_iter().chain(wildcard).flatten();
        let is_verified =
            |one: &&Arc<CertifiedKey>| one.key.choose_scheme(hello.signature_schemes()).is_some();
        let known = match named.clone().next() {
            Some(first) => named.clone().find(is_verified).unwrap_or(first),
            None => self
                .default
                .iter()
                .find(is_verified)
                .unwrap_or(&self.default[0]),
        };
        Arc::clone(known)
    }
}

impl Certificate {
    /// Makes a certificate of the content of two PEM files: the chain, the server's own certificate
    /// first, and its key (PKCS #8, PKCS #1 or SEC 1, not encrypted).
    ///
    /// # Errors
    /// The file that cannot be used, and the reason.
    pub fn new(
        (certificate, pem): &(PathBuf, Vec<u8>),
        (key, key_pem): &(PathBuf, Vec<u8>),
        now: UnixTime,
    ) -> Result<Self, TlsError> {
        let path = certificate.display();
        let chain = pem::certificates(pem).map_err(damaged(certificate))?;
        let mut names = Vec::new();
        for (place, (line, one)) in chain.iter().enumerate() {
            match webpki::EndEntityCert::try_from(one) {
                Ok(own) if place == 0 => {
                    let own = own.valid_dns_names();
                    names.extend(own.map(|name| name.to_ascii_lowercase().into()));
                    names.sort();
                    names.dedup();
                }
                // Clients have to know the form of the others.
                Err(source) if place == 0 || is_damaged(&source) => {
                    let fault = fault(&source);
                    return Err(TlsError::of(
                        certificate,
                        format!("{path}:{line}: the certificate cannot be used: {fault}"),
                        "`openssl x509 -text -in FILE` prints it",
                    ));
                }
                Ok(_) | Err(_) => {}
            }
        }
        if chain.is_empty() {
            let message =
                format!("{path} holds no certificate: it needs a `BEGIN CERTIFICATE` block");
            return Err(TlsError::of(certificate, message, EXCHANGED));
        }
        let chain = chain.into_iter().map(|(_, one)| one).collect();
        let own = private_key(key, key_pem)?;
        let certified = CertifiedKey::from_der(chain, own, &aws_lc_rs::default_provider());
        let certified = certified.map_err(|source| match source {
            rustls::Error::InconsistentKeys(_) => TlsError::of(
                key,
                format!("{} is not the key of {path}", key.display()),
                "compare `openssl x509 -in CERTIFICATE -noout -pubkey` with `openssl pkey -in KEY -pubout`",
            ),
            _ => TlsError::of(
                key,
                format!("{} holds a key that cannot be used", key.display()),
                "use a key of RSA (2048 bits or more), ECDSA (P-256, P-384, P-521) or Ed25519",
            ),
        })?;
        Ok(Self {
            certified: Arc::new(certified),
            names,
            expiry: ExpiryWarning::of_chain(pem, now),
        })
    }
}

fn private_key(path: &Path, text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    let shown = path.display();
    let blocks = pem::blocks(text).map_err(damaged(path))?;
    let key = blocks.into_iter().find_map(|block| {
        let encrypted = || {
            let advice = "remove the passphrase: `openssl pkey -in ENCRYPTED -out KEY`";
            TlsError::of(path, format!("{shown} is encrypted"), advice)
        };
        Some(match block.label {
            "ENCRYPTED PRIVATE KEY" => Err(encrypted()),
            label if label.ends_with("PRIVATE KEY") && block.is_encrypted => Err(encrypted()),
            "PRIVATE KEY" => Ok(PrivateKeyDer::Pkcs8(block.der.into())),
            "RSA PRIVATE KEY" => Ok(PrivateKeyDer::Pkcs1(block.der.into())),
            "EC PRIVATE KEY" => Ok(PrivateKeyDer::Sec1(block.der.into())),
            _ => return None,
        })
    });
    key.unwrap_or_else(|| {
        let message = format!("{shown} holds no private key: it needs a `BEGIN PRIVATE KEY` block");
        Err(TlsError::of(path, message, EXCHANGED))
    })
}

/// The error of a file that is not PEM.
fn damaged(path: &Path) -> impl Fn(PemError) -> TlsError {
    move |PemError { line, fault }| {
        TlsError::of(
            path,
            format!("{}:{line}: {fault}", path.display()),
            "a PEM file has whole blocks from `-----BEGIN ..-----` to `-----END ..-----`, each of which begins on a line of its own",
        )
    }
}

/// Returns true if a certificate cannot be read by anybody.
fn is_damaged(error: &webpki::Error) -> bool {
    use webpki::Error::{BadDer, BadDerTime, TrailingData};
    matches!(error, BadDer | BadDerTime | TrailingData(_))
}

fn fault(error: &webpki::Error) -> &'static str {
    match error {
        damaged if is_damaged(damaged) => "it is damaged",
        webpki::Error::UnsupportedCertVersion => "it is not of version 3",
        _ => "it has an extension or a form that is not supported",
    }
}

/// What to do if a file has no block of the kind.
const EXCHANGED: &str = "are `certificate` and `key` exchanged? Of DER, `openssl x509 -inform der` and `openssl pkey -inform der` make PEM";

/// The reason why certificates cannot be used, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct TlsError {
    /// The file at fault, if it is one.
    pub file: Option<PathBuf>,
    message: String,
    /// What to do.
    pub advice: &'static str,
}

impl TlsError {
    fn of(file: &Path, message: String, advice: &'static str) -> Self {
        let file = Some(file.to_owned());
        Self {
            file,
            message,
            advice,
        }
    }
}

/// rustls refuses the settings, or has no randomness.
impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self {
            file: None,
            message: format!("cannot set up TLS: {error}"),
            advice: "is the system out of randomness or memory?",
        }
    }
}

#[cfg(test)]
mod tests;
