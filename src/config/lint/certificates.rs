//! Certificates that have expired, are not yet valid, or expire soon.

use std::collections::HashSet;
use std::time::Duration;

use rustls_pki_types::UnixTime;

use super::Finding;
use crate::clock::Timestamp;
use crate::config::compile::MAX_CERTIFICATE_FILE;
use crate::config::diagnostic::Code;
use crate::config::load::Loaded;
use crate::config::located::Located;
use crate::config::value::FilePath;
use crate::files;
use crate::server::tls::ExpiryWarning;

type Check = fn(&[u8], UnixTime) -> Option<ExpiryWarning>;

/// Warns of each certificate file once. `compile` reports unreadable files as errors.
pub(super) fn expiring(loaded: &Loaded, now: Timestamp) -> Vec<Finding> {
    let config = &loaded.config;
    let now = UnixTime::since_unix_epoch(Duration::from_micros(now.as_micros()));
    let listeners = config.listeners.iter();
    let chains = listeners
        .filter_map(|listener| listener.tls.as_ref())
        .flat_map(|tls| tls.certificates.iter())
        .map(|one| (&one.certificate, ExpiryWarning::of_chain as Check));
    let upstreams = config.upstreams.values();
    let redis = config.store.redis.iter();
    let trusted = upstreams
        .filter_map(|upstream| upstream.tls.ca.as_ref())
        .chain(redis.filter_map(|redis| redis.tls.as_ref()?.ca.as_ref()))
        .map(|ca| (ca, ExpiryWarning::of_trusted as Check));
    let mut seen = HashSet::new();
    chains
        .chain(trusted)
        .filter(|(path, _)| seen.insert(loaded.resolve(path.as_path())))
        .filter_map(|(path, check)| finding(loaded, path, check, now))
        .collect()
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
