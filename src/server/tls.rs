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
use crate::files;
use crate::http::connection::TlsVersion;
use crate::net::socket::Socket;
use crate::pem::{self, PemError};

mod validity;

pub use validity::{CertificatePeriod, ExpiryWarning, Validity};

/// TLS 1.2 sessions that are remembered for resumption; TLS 1.3 uses tickets, which cost no memory.
const SESSIONS: usize = 4096;
/// The largest file with a certificate or a key, in bytes.
const LARGEST: u64 = 16 << 20;

/// A certificate chain and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSpec {
    /// The chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// Its key: PKCS #8, PKCS #1 or SEC 1, not encrypted.
    pub key: PathBuf,
}

impl CertificateSpec {
    /// The files that cannot be read, each with the reason.
    pub fn unreadable(&self) -> Vec<(&Path, io::Error)> {
        let paths = [self.certificate.as_path(), self.key.as_path()].into_iter();
        paths
            .filter_map(|path| Some((path, files::read(path, LARGEST).err()?)))
            .collect()
    }
}

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
        let names = Names::new(certificates).ok_or(TlsError::NoCertificates)?;
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
    /// Reads a certificate and its key.
    ///
    /// # Errors
    /// The file that cannot be used, and the reason.
    pub fn load(spec: &CertificateSpec, now: UnixTime) -> Result<Self, TlsError> {
        let certificate = &spec.certificate;
        let pem = read(certificate)?;
        let chain =
            pem::certificates(&pem).map_err(|source| TlsError::Pem(certificate.clone(), source))?;
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
                    let certificate = certificate.clone();
                    return Err(TlsError::BadCertificate(certificate, *line, source));
                }
                Ok(_) | Err(_) => {}
            }
        }
        if chain.is_empty() {
            return Err(TlsError::NoCertificate(certificate.clone()));
        }
        let chain = chain.into_iter().map(|(_, one)| one).collect();
        let key = load_key(&spec.key)?;
        let certified = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider());
        let certified = certified.map_err(|source| match source {
            rustls::Error::InconsistentKeys(_) => TlsError::OtherKey {
                key: spec.key.clone(),
                certificate: certificate.clone(),
            },
            source => TlsError::BadKey(spec.key.clone(), source),
        })?;
        Ok(Self {
            certified: Arc::new(certified),
            names,
            expiry: ExpiryWarning::of_chain(&pem, now),
        })
    }
}

fn load_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read(path)?;
    let blocks = pem::blocks(&text).map_err(|source| TlsError::Pem(path.to_owned(), source))?;
    let key = blocks.into_iter().find_map(|block| {
        let encrypted = || TlsError::EncryptedKey(path.to_owned());
        Some(match block.label {
            "ENCRYPTED PRIVATE KEY" => Err(encrypted()),
            label if label.ends_with("PRIVATE KEY") && block.is_encrypted => Err(encrypted()),
            "PRIVATE KEY" => Ok(PrivateKeyDer::Pkcs8(block.der.into())),
            "RSA PRIVATE KEY" => Ok(PrivateKeyDer::Pkcs1(block.der.into())),
            "EC PRIVATE KEY" => Ok(PrivateKeyDer::Sec1(block.der.into())),
            _ => return None,
        })
    });
    key.unwrap_or_else(|| Err(TlsError::NoKey(path.to_owned())))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    files::read(path, LARGEST).map_err(|source| TlsError::Unreadable(path.to_owned(), source))
}

impl TlsError {
    /// The file at fault; the key's file if key and certificate do not match.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::NoCertificates | Self::Setup(_) => None,
            Self::Unreadable(path, _)
            | Self::Pem(path, _)
            | Self::NoCertificate(path)
            | Self::BadCertificate(path, ..)
            | Self::NoKey(path)
            | Self::EncryptedKey(path)
            | Self::OtherKey { key: path, .. }
            | Self::BadKey(path, _) => Some(path),
        }
    }

    /// Advice for operators.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::NoCertificates => "name one: `certificates: [{ certificate: FILE, key: FILE }]`",
            Self::Unreadable(..) => "look at the path, and at who may read the file",
            Self::Pem(..) => {
                "a PEM file has whole blocks from `-----BEGIN ..-----` to `-----END ..-----`, each of which begins on a line of its own"
            }
            Self::NoCertificate(..) | Self::NoKey(..) => {
                "are `certificate` and `key` exchanged? Of DER, `openssl x509 -inform der` and `openssl pkey -inform der` make PEM"
            }
            Self::BadCertificate(..) => "`openssl x509 -text -in FILE` prints it",
            Self::EncryptedKey(..) => {
                "remove the passphrase: `openssl pkey -in ENCRYPTED -out KEY`"
            }
            Self::OtherKey { .. } => {
                "compare `openssl x509 -in CERTIFICATE -noout -pubkey` with `openssl pkey -in KEY -pubout`"
            }
            Self::BadKey(..) => {
                "use a key of RSA (2048 bits or more), ECDSA (P-256, P-384, P-521) or Ed25519"
            }
            Self::Setup(_) => "is the system out of randomness or memory?",
        }
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

/// Reasons why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// None is configured.
    #[error("no certificate is configured")]
    NoCertificates,
    /// A file cannot be read.
    #[error("cannot read {}: {_1}", _0.display())]
    Unreadable(PathBuf, #[source] io::Error),
    /// A file is not PEM.
    #[error("{}:{}: {}", _0.display(), _1.line, _1.fault)]
    Pem(PathBuf, #[source] PemError),
    /// A certificate file holds none.
    #[error("{} holds no certificate: it needs a `BEGIN CERTIFICATE` block", _0.display())]
    NoCertificate(PathBuf),
    /// A certificate, which begins on this line, cannot be parsed.
    #[error("{}:{_1}: the certificate cannot be used: {}", _0.display(), fault(_2))]
    BadCertificate(PathBuf, usize, #[source] webpki::Error),
    /// A key file holds none.
    #[error("{} holds no private key: it needs a `BEGIN PRIVATE KEY` block", _0.display())]
    NoKey(PathBuf),
    /// A key needs a passphrase.
    #[error("{} is encrypted", _0.display())]
    EncryptedKey(PathBuf),
    /// A key belongs to another certificate.
    #[error("{} is not the key of {}", key.display(), certificate.display())]
    OtherKey {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        certificate: PathBuf,
    },
    /// A key cannot be used.
    #[error("{} holds a key that cannot be used", _0.display())]
    BadKey(PathBuf, #[source] rustls::Error),
    /// rustls refuses the settings, or has no randomness.
    #[error("cannot set up TLS: {0}")]
    Setup(#[from] rustls::Error),
}

#[cfg(test)]
mod tests;
