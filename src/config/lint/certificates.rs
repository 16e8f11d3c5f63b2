//! Certificates that have expired, are not yet valid, or expire soon.

use std::collections::HashSet;
use std::time::Duration;

use rustls_pki_types::UnixTime;

use super::Finding;
use crate::clock::Timestamp;
use crate::config::compile::MAX_CERTIFICATE_FILE;
use crate::config::value::FilePath;
use crate::config::{Code, Loaded, Located};
use crate::files;
use crate::server::tls::{CertificateEnd, ExpiryWarning};

/// How the certificates of a file are judged.
#[derive(Clone, Copy)]
struct Role {
    check: fn(&[u8], UnixTime) -> Option<ExpiryWarning>,
    end: fn(&[u8]) -> Option<u64>,
}

/// A server's own chain.
const CHAIN: Role = Role {
    check: ExpiryWarning::of_chain,
    end: CertificateEnd::of_chain,
};

/// Certificates that servers are verified against.
const TRUSTED: Role = Role {
    check: ExpiryWarning::of_trusted,
    end: CertificateEnd::of_trusted,
};

/// Warns of each certificate file once. `compile` reports unreadable files as errors.
pub(super) fn expiring(loaded: &Loaded, now: Timestamp) -> Vec<Finding> {
    let now = UnixTime::since_unix_epoch(Duration::from_micros(now.as_micros()));
    let files = certificate_files(loaded).into_iter();
    let findings = files.filter_map(|(path, role)| finding(loaded, path, role, now));
    findings.collect()
}

/// The ends of the certificates in each file that the configuration names.
pub(in crate::config) fn certificate_ends(loaded: &Loaded) -> Vec<CertificateEnd> {
    let files = certificate_files(loaded).into_iter();
    let ends = files.filter_map(|(path, role)| {
        let not_after = (role.end)(&read(loaded, path)?)?;
        let path = loaded.resolve(path.as_path());
        Some(CertificateEnd { path, not_after })
    });
    ends.collect()
}

/// The certificate files, each once.
fn certificate_files(loaded: &Loaded) -> Vec<(&Located<FilePath>, Role)> {
    let config = &loaded.config;
    let listeners = config.listeners.iter();
    let tls = listeners.filter_map(|listener| listener.tls.as_ref());
    let chains = tls
        .chain(&config.admin.tls)
        .flat_map(|tls| tls.certificates.iter());
    let chains = chains.map(|one| (&one.certificate, CHAIN));
    let redis = config
        .store
        .redis
        .iter()
        .filter_map(|redis| redis.tls.as_ref());
    let upstreams = config.upstreams.values().map(|upstream| &upstream.tls);
    let tracing = config.tracing.iter().map(|tracing| &tracing.tls);
    let clients = upstreams.chain(redis).chain(tracing);
    let trusted = clients.filter_map(|tls| tls.ca.as_ref());
    let mut seen = HashSet::new();
    let files = chains.chain(trusted.map(|ca| (ca, TRUSTED)));
    let new = files.filter(|(path, _)| seen.insert(loaded.resolve(path.as_path())));
    new.collect()
}

/// The text of a file. `None` for a pipe: `compile` has read it already, and its bytes come once.
fn read(loaded: &Loaded, path: &Located<FilePath>) -> Option<Vec<u8>> {
    let file = loaded.resolve(path.as_path());
    file.is_file()
        .then(|| files::read(&file, MAX_CERTIFICATE_FILE))?
        .ok()
}

fn finding(
    loaded: &Loaded,
    path: &Located<FilePath>,
    role: Role,
    now: UnixTime,
) -> Option<Finding> {
    let warning = (role.check)(&read(loaded, path)?, now)?;
    let message = warning.describe(path.as_path());
    let finding = Finding::warning(path.node, Code::CertificateExpiry, message);
    Some(finding.help(warning.advice()))
}
