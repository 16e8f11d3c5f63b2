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
use crate::server::tls::ExpiryWarning;

type Check = fn(&[u8], UnixTime) -> Option<ExpiryWarning>;

/// Warns of each certificate file once. `compile` reports unreadable files as errors.
pub(super) fn expiring(loaded: &Loaded, now: Timestamp) -> Vec<Finding> {
    let config = &loaded.config;
    let now = UnixTime::since_unix_epoch(Duration::from_micros(now.as_micros()));
    let tls = config
        .listeners
        .iter()
        .filter_map(|listener| listener.tls.as_ref());
    let chains = tls.flat_map(|tls| tls.certificates.iter());
    let chains = chains.map(|one| (&one.certificate, ExpiryWarning::of_chain as Check));
    let redis = config
        .store
        .redis
        .iter()
        .filter_map(|redis| redis.tls.as_ref());
    let upstreams = config.upstreams.values().map(|upstream| &upstream.tls);
    let tracing = config.tracing.iter().map(|tracing| &tracing.tls);
    let clients = upstreams.chain(redis).chain(tracing);
    let trusted = clients.filter_map(|tls| tls.ca.as_ref());
    let trusted = trusted.map(|ca| (ca, ExpiryWarning::of_trusted as Check));
    let mut seen = HashSet::new();
    let mut files: Vec<_> = chains.chain(trusted).collect();
    files.retain(|(path, _)| seen.insert(loaded.resolve(path.as_path())));
    let findings = files
        .into_iter()
        .filter_map(|(path, check)| finding(loaded, path, check, now));
    findings.collect()
}

fn finding(
    loaded: &Loaded,
    path: &Located<FilePath>,
    check: Check,
    now: UnixTime,
) -> Option<Finding> {
    let file = loaded.resolve(path.as_path());
    // `compile` has read a pipe already, and its bytes come once.
    let pem = file
        .is_file()
        .then(|| files::read(&file, MAX_CERTIFICATE_FILE))?
        .ok()?;
    let warning = check(&pem, now)?;
    let message = warning.describe(path.as_path());
    let finding = Finding::warning(path.node, Code::CertificateExpiry, message);
    Some(finding.help(warning.advice()))
}
