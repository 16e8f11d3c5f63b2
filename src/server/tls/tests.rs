//! Handshakes over in-memory pipes, with certificates made for the test.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, pki_types::ServerName,
};
use tempfile::TempDir;
use tokio_rustls::TlsConnector;

use super::*;

fn now() -> UnixTime {
    UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_795_236_060))
}

/// Where a certificate and its key are.
#[derive(Clone)]
struct CertificateSpec {
    certificate: PathBuf,
    key: PathBuf,
}

impl CertificateSpec {
    fn load(&self) -> Result<Certificate, TlsError> {
        let read = |path: &PathBuf| (path.clone(), fs::read(path).expect("reads"));
        Certificate::new(&read(&self.certificate), &read(&self.key), now())
    }
}

/// A directory of certificates of one authority.
struct Authority {
    directory: TempDir,
    issuer: Issuer<'static, KeyPair>,
    roots: RootCertStore,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).expect("signs");
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).expect("a root");
        let directory = tempfile::tempdir().expect("a directory");
        Self {
            directory,
            issuer: Issuer::new(params, key),
            roots,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes `file`.pem and `file`.key, valid for `names`.
    fn issue(&self, file: &str, names: &[&str]) -> CertificateSpec {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        self.write(file, CertificateParams::new(names).expect("names"))
    }

    /// As [`Self::issue`], with a key of RSA.
    fn issue_rsa(&self, file: &str, names: &[&str]) -> CertificateSpec {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let key = KeyPair::from_pem(include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/fixtures/jwt/rsa.key"
        )))
        .expect("a key");
        self.write_with(&key, file, CertificateParams::new(names).expect("names"))
    }

    fn write(&self, file: &str, params: CertificateParams) -> CertificateSpec {
        self.write_with(&KeyPair::generate().expect("a key"), file, params)
    }

    fn write_with(&self, key: &KeyPair, file: &str, params: CertificateParams) -> CertificateSpec {
        let certificate = params.signed_by(key, &self.issuer).expect("signs");
        let spec = CertificateSpec {
            certificate: self.path(&format!("{file}.pem")),
            key: self.path(&format!("{file}.key")),
        };
        fs::write(&spec.certificate, certificate.pem()).expect("writes");
        fs::write(&spec.key, key.serialize_pem()).expect("writes");
        spec
    }

    fn client(&self, versions: &[&'static rustls::SupportedProtocolVersion]) -> Arc<ClientConfig> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_protocol_versions(versions).expect("supported");
        let mut config = config
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

fn load(certificates: &[CertificateSpec], protocols: Protocols) -> Result<Tls, TlsError> {
    load_for(TlsVersion::V1_2, certificates, protocols)
}

fn load_for(
    min_version: TlsVersion,
    certificates: &[CertificateSpec],
    protocols: Protocols,
) -> Result<Tls, TlsError> {
    let certificates = certificates.iter();
    let certificates = certificates.map(CertificateSpec::load);
    let certificates = certificates.collect::<Result<Vec<_>, _>>()?;
    Tls::new(&certificates, min_version, protocols)
}

/// Shakes hands for `name`. Returns the negotiated parameters.
async fn connect(
    tls: &Tls,
    client: &Arc<ClientConfig>,
    name: &str,
) -> io::Result<(
    tokio_rustls::client::TlsStream<tokio::net::TcpStream>,
    TlsSession,
)> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let connecting = async {
        let socket = tokio::net::TcpStream::connect(address).await?;
        TlsConnector::from(client.clone())
            .connect(name, socket)
            .await
    };
    let accepting = async { tls.accept(Socket::Tcp(listener.accept().await?.0)).await };
    let (connected, accepted) = tokio::join!(connecting, accepting);
    Ok((connected?, accepted?))
}

fn session(stream: &tokio_rustls::client::TlsStream<tokio::net::TcpStream>) -> &ClientConnection {
    stream.get_ref().1
}

const ALL: &[&rustls::SupportedProtocolVersion] = rustls::ALL_VERSIONS;

#[tokio::test]
async fn certificates_are_chosen_by_name() {
    let authority = Authority::new();
    let tls = load(
        &[
            authority.issue("default", &["default.test"]),
            authority.issue("wild", &["*.example.com"]),
            authority.issue("exact", &["API.example.com"]),
        ],
        Protocols::Both,
    )
    .expect("loads");
    let client = authority.client(ALL);
    // The client verifies the name: a wrong choice fails the handshake.
    for name in ["default.test", "www.example.com", "api.example.com"] {
        let (_, accepted) = connect(&tls, &client, name).await.expect(name);
        assert_eq!(accepted.server_name.as_deref(), Some(name));
    }
    for name in ["example.com", "a.b.example.com", "other.test"] {
        let error = connect(&tls, &client, name)
            .await
            .err()
            .expect("gets the default");
        assert!(error.to_string().contains("certificate"), "{name}: {error}");
    }
}

/// A client that verifies signatures of this key alone.
fn verifying(authority: &Authority, key: SignatureAlgorithm) -> Arc<ClientConfig> {
    let mut provider = aws_lc_rs::default_provider();
    let known = provider.signature_verification_algorithms.mapping;
    let key = format!("{key:?}_");
    let known = known
        .iter()
        .filter(|(scheme, _)| format!("{scheme:?}").starts_with(&key));
    provider.signature_verification_algorithms.mapping =
        Box::leak(known.copied().collect::<Box<[_]>>());
    let config = ClientConfig::builder_with_provider(Arc::new(provider));
    let config = config.with_protocol_versions(ALL).expect("supported");
    let roots = authority.roots.clone();
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

#[tokio::test]
async fn certificates_are_chosen_by_what_the_client_verifies() {
    use SignatureAlgorithm::{ECDSA, RSA};
    // The authority signs with ECDSA, so a client that verifies RSA alone doesn't trust it, but sees
    // the certificate.
    let authority = Authority::new();
    let mut params = CertificateParams::new(["c.test".to_owned()]).expect("a name");
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let expired = authority.write("expired", params);
    let tls = load(
        &[
            authority.issue_rsa("rsa", &["a.test", "b.test"]),
            authority.issue("ecdsa", &["b.test", "a.test"]),
            authority.issue_rsa("wild-rsa", &["*.example.com"]),
            authority.issue("exact", &["api.example.com"]),
            authority.issue_rsa("valid", &["c.test"]),
            expired,
        ],
        Protocols::Both,
    )
    .expect("loads");
    let find = |client: &Arc<ClientConfig>, name: &str| {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let mut client = ClientConnection::new(client.clone(), name).expect("a client");
        let mut hello = Vec::new();
        client.write_tls(&mut hello).expect("writes");
        let mut acceptor = rustls::server::Acceptor::default();
        acceptor.read_tls(&mut &hello[..]).expect("reads");
        let accepted = acceptor.accept().ok().flatten().expect("a whole hello");
        tls.certificates
            .resolve(accepted.client_hello())
            .expect("one")
            .key
            .algorithm()
    };
    let [rsa, ecdsa] = [RSA, ECDSA].map(|key| verifying(&authority, key));
    let both = authority.client(ALL);
    for (name, expected) in [
        ("a.test", [RSA, ECDSA, ECDSA]),
        // As for no name: the first's names, by either certificate.
        ("other.test", [RSA, ECDSA, ECDSA]),
        // The wildcard stands in for a certificate that the client doesn't verify.
        ("api.example.com", [RSA, ECDSA, ECDSA]),
        ("www.example.com", [RSA, RSA, RSA]),
        // What has expired comes last.
        ("c.test", [RSA, ECDSA, RSA]),
    ] {
        let found = [&rsa, &ecdsa, &both].map(|client| find(client, name));
        assert_eq!(found, expected, "{name}");
    }
    for client in [&ecdsa, &both] {
        connect(&tls, client, "a.test").await.expect("verifies");
    }
}

#[tokio::test]
async fn speaks_tls_1_2_and_1_3_and_the_configured_protocols() {
    let authority = Authority::new();
    let certificate = authority.issue("a", &["a.test"]);
    for (protocols, expected) in [
        (Protocols::Both, HttpVersion::Http2),
        (Protocols::Http1, HttpVersion::Http1),
        (Protocols::Http2, HttpVersion::Http2),
    ] {
        let tls = load(std::slice::from_ref(&certificate), protocols).expect("loads");
        for (version, number) in [
            (&rustls::version::TLS12, ProtocolVersion::TLSv1_2),
            (&rustls::version::TLS13, ProtocolVersion::TLSv1_3),
        ] {
            let (stream, accepted) = connect(&tls, &authority.client(&[version]), "a.test")
                .await
                .expect("agrees");
            assert_eq!(session(&stream).protocol_version(), Some(number));
            assert_eq!(accepted.version, Some(expected));
        }
    }
}

#[tokio::test]
async fn sessions_are_resumed_after_certificates_changed() {
    let authority = Authority::new();
    let tls = load(&[authority.issue("a", &["a.test"])], Protocols::Both).expect("loads");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let client = authority.client(&[version]);
        let resumed = async || {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let (mut stream, mut accepted) =
                connect(&tls, &client, "a.test").await.expect("agrees");
            // Tickets come with the first bytes.
            accepted.stream.write_all(b"!").await.expect("writes");
            stream.read_u8().await.expect("reads");
            session(&stream).handshake_kind() == Some(rustls::HandshakeKind::Resumed)
        };
        assert!(!resumed().await);
        assert!(resumed().await);
        let renewed = [authority.issue("b", &["a.test", "b.test"])];
        tls.adopt(&load(&renewed, Protocols::Both).expect("loads"));
        assert!(resumed().await);
        connect(&tls, &client, "b.test")
            .await
            .expect("uses the new certificate");
    }
}

#[tokio::test]
async fn refuses_versions_older_than_the_minimum() {
    let authority = Authority::new();
    let certificates = [authority.issue("a", &["a.test"])];
    let tls = load_for(TlsVersion::V1_3, &certificates, Protocols::Both).expect("loads");
    let old = authority.client(&[&rustls::version::TLS12]);
    let error = connect(&tls, &old, "a.test").await.err();
    let error = error.expect("refuses").to_string();
    assert!(error.contains("ProtocolVersion"), "{error}");
    let new = authority.client(&[&rustls::version::TLS13]);
    connect(&tls, &new, "a.test").await.expect("agrees");
}

#[test]
fn errors_name_the_file_and_the_problem() {
    let authority = Authority::new();
    let good = authority.issue("good", &["a.test"]);
    let other = authority.issue("other", &["b.test"]);
    let write = |name: &str, text: &str| {
        let path = authority.path(name);
        fs::write(&path, text).expect("writes");
        path
    };
    let key = |key| CertificateSpec {
        key,
        ..good.clone()
    };
    let certificate = |certificate| CertificateSpec {
        certificate,
        ..good.clone()
    };
    let block = |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n");
    for (spec, expected) in [
        (
            certificate(write("empty.pem", "")),
            "{}/empty.pem holds no certificate",
        ),
        (
            certificate(good.key.clone()),
            "{}/good.key holds no certificate",
        ),
        (
            certificate(write("junk.pem", &block("CERTIFICATE"))),
            "{}/junk.pem:1: the certificate cannot be used: it is damaged",
        ),
        (
            certificate(write("torn.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n")),
            "{}/torn.pem:1: the block `CERTIFICATE` has no end",
        ),
        (
            key(good.certificate.clone()),
            "{}/good.pem holds no private key",
        ),
        (key(other.key), "{}/other.key is not the key of {}/good.pem"),
        (
            key(write("e8.key", &block("ENCRYPTED PRIVATE KEY"))),
            "{}/e8.key is encrypted",
        ),
        (
            key(write(
                "old.key",
                "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END EC PRIVATE KEY-----\n",
            )),
            "{}/old.key is encrypted",
        ),
        (
            key(write("junk.key", &block("PRIVATE KEY"))),
            "{}/junk.key holds a key that cannot be used",
        ),
    ] {
        let error = load(&[spec], Protocols::Both)
            .expect_err(expected)
            .to_string();
        let expected = expected.replace("{}", &authority.directory.path().display().to_string());
        assert!(error.starts_with(&expected), "{error}\nnot {expected}");
    }
    let error = load(&[], Protocols::Both).expect_err("none").to_string();
    assert_eq!(error, "no certificate is configured");
}

#[test]
fn an_expired_certificate_is_a_warning_only() {
    let authority = Authority::new();
    let mut params = CertificateParams::new(["a.test".to_owned()]).expect("names");
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let spec = authority.write("old", params);
    let certificate = spec.load().expect("is used");
    assert!(certificate.expiry.is_some());
}
