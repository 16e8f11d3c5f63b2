//! Redis servers behind TLS and in a cluster.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::CertificateDer;
use tempfile::TempDir;

use super::client::run;
use super::origin::free_address;
use super::redis::{RedisServer, command};
use super::wait_for;

/// An authority, and a server that has a certificate for 127.0.0.1 from it.
pub struct Secure {
    _dir: TempDir,
    pub server: RedisServer,
    pub port: u16,
    pub root: CertificateDer<'static>,
    /// The authority's file.
    pub authority: String,
}

pub fn secure() -> Secure {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let root = params.self_signed(&key).expect("a certificate");
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        fs::write(&path, text).expect("the directory is writable");
        path.to_str().expect("a text").to_owned()
    };
    let (certificate, key, authority) = (
        write("pem", certificate.pem()),
        write("key", key.serialize_pem()),
        write("ca", root.pem()),
    );
    let port = free_address().port();
    let server = RedisServer::with_options(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-auth-clients",
        "no",
    ]);
    Secure {
        _dir: dir,
        server,
        port,
        root: root.der().clone(),
        authority,
    }
}

pub fn id(server: &RedisServer) -> String {
    let id = command(server, &["CLUSTER", "MYID"]);
    redis::from_redis_value(id).expect("a text")
}

pub fn redis_cli(words: &[&str]) {
    let output = run("redis-cli", words);
    assert_eq!(output.code, Some(0), "{output}");
}

/// A cluster of three nodes that all know each other.
pub fn cluster() -> Vec<RedisServer> {
    let nodes: Vec<_> = (0..3).map(|_| node()).collect();
    let addresses: Vec<_> = nodes.iter().map(|node| node.address.to_string()).collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    redis_cli(&[&["--cluster", "create"], &addresses[..], &["--cluster-yes"]].concat());
    wait_for("the cluster", || {
        let is_ok = |node: &RedisServer| {
            let info = command(node, &["CLUSTER", "INFO"]);
            let info: String = redis::from_redis_value(info).expect("a text");
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        };
        nodes.iter().all(is_ok).then_some(())
    });
    nodes
}

pub fn node() -> RedisServer {
    RedisServer::with_options(&["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"])
}
