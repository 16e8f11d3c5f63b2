//! A client that speaks TLS byte by byte, and the certificates that it trusts.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};

use super::DEADLINE;

/// A session with a server.
pub type Session = StreamOwned<ClientConnection, TcpStream>;

/// Writes a self-signed certificate for these names as NAME.pem and NAME.key.
pub fn certify(dir: &Path, name: &str, names: &[&str]) {
    write(dir, name, &params(names));
}

/// As [`certify`], valid from 1970 until this date.
pub fn certify_until(dir: &Path, name: &str, names: &[&str], end: SystemTime) {
    let since_epoch = end.duration_since(UNIX_EPOCH).expect("after 1970");
    let mut params = params(names);
    params.not_before = rcgen::date_time_ymd(1970, 1, 1);
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_epoch;
    write(dir, name, &params);
}

/// As [`certify`], valid from this date.
pub fn certify_from(dir: &Path, name: &str, names: &[&str], begin: SystemTime) {
    let since_epoch = begin.duration_since(UNIX_EPOCH).expect("after 1970");
    let mut params = params(names);
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_epoch;
    write(dir, name, &params);
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).expect("names")
}

fn write(dir: &Path, name: &str, params: &CertificateParams) {
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    let files = [("pem", certificate.pem()), ("key", key.serialize_pem())];
    for (kind, text) in files {
        fs::write(dir.join(format!("{name}.{kind}")), text).expect("the directory is writable");
    }
}

/// Connects to a server with the certificate for `name` in this file, and offers these protocols
/// (ALPN). The handshake takes place with the first byte.
pub fn connect(address: SocketAddr, name: &str, certificate: &Path, alpn: &[&str]) -> Session {
    let stream = TcpStream::connect(address).expect("the server listens");
    for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
        set(&stream, Some(DEADLINE)).expect("a connected socket");
    }
    let mut roots = RootCertStore::empty();
    let trusted = CertificateDer::from_pem_file(certificate).expect("a certificate");
    roots.add(trusted).expect("a certificate");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions that the provider knows")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).expect("a host name");
    let session = ClientConnection::new(Arc::new(config), name).expect("a usable configuration");
    StreamOwned::new(session, stream)
}
