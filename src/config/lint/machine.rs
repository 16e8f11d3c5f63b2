//! The machine: files to write, certificates that expire, and the memory and lifetime of buckets.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use rustls_pki_types::UnixTime;

use crate::clock::Timestamp;
use crate::config::Loaded;
use crate::config::compile::{compile_rules, written_files};
use crate::config::compiler::MAX_CERTIFICATE_FILE;
use crate::config::lint::AppliedPolicy;
use crate::config::sections::clients;
use crate::config::sections::jwt::{MAX_KEY_FILE, USABLE_KEY};
use crate::config::sections::prelude::*;
use crate::files;
use crate::proxy::ruleset::build::memory_bytes;
use crate::rules::TokenKey;
use crate::server::tls::{CertificatePeriod, ExpiryWarning, Validity};
use crate::telemetry::process;

/// Warns of files in missing directories: the process creates files, but no directories.
pub(super) fn missing_directories(loaded: &Loaded) -> impl Iterator<Item = Finding> {
    written_files(&loaded.config).filter_map(move |(path, node)| {
        let path = std::path::absolute(loaded.resolve(path)).ok()?;
        let directory = path.parent().filter(|directory| lacks(directory))?;
        let message = format!(
            "there is no directory {} on this machine",
            directory.display()
        );
        let finding = Finding::warning(node, Code::MissingDirectory, message);
        Some(finding.help(format!(
            "make it before the start: `mkdir -p {}`",
            directory.display()
        )))
    })
}

/// Returns true if there is no such directory; false where this user may not look.
fn lacks(directory: &Path) -> bool {
    match directory.metadata() {
        Ok(found) => !found.is_dir(),
        Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

/// How the certificates of a file are judged.
#[derive(Clone, Copy)]
struct Role {
    check: fn(&[u8], UnixTime) -> Option<ExpiryWarning>,
    period: fn(&[u8], UnixTime) -> Option<Validity>,
}

/// A server's own chain.
const CHAIN: Role = Role {
    check: ExpiryWarning::of_chain,
    period: CertificatePeriod::of_chain,
};

/// Certificates that servers are verified against.
const TRUSTED: Role = Role {
    check: ExpiryWarning::of_trusted,
    period: CertificatePeriod::of_trusted,
};

/// Warns of each certificate file once. `compile` reports unreadable files as errors.
pub(super) fn expiring(loaded: &Loaded, now: Timestamp) -> impl Iterator<Item = Finding> {
    let now = UnixTime::since_unix_epoch(Duration::from_micros(now.as_micros()));
    let files = certificate_files(loaded).into_iter();
    files.filter_map(move |(path, role)| {
        let warning = (role.check)(&read(loaded, path, MAX_CERTIFICATE_FILE)?, now)?;
        let message = warning.describe(path.as_path());
        let finding = Finding::warning(path.node, Code::CertificateExpiry, message);
        Some(finding.help(warning.advice()))
    })
}

/// When the certificates are valid in each file that the configuration names.
pub(crate) fn certificate_periods(loaded: &Loaded) -> Vec<CertificatePeriod> {
    let files = certificate_files(loaded).into_iter();
    let periods = files.filter_map(|(path, role)| {
        let certificates = read(loaded, path, MAX_CERTIFICATE_FILE)?;
        let validity = (role.period)(&certificates, UnixTime::now())?;
        let path = loaded.resolve(path.as_path());
        Some(CertificatePeriod { path, validity })
    });
    periods.collect()
}

/// The certificate files, each once.
fn certificate_files(loaded: &Loaded) -> Vec<(&Located<FilePath>, Role)> {
    let config = &loaded.config;
    let listeners = config.listeners.iter();
    let tls = listeners.filter_map(|listener| listener.tls.as_ref());
    let chains = tls.chain(&config.admin.tls);
    let chains = chains.flat_map(|tls| tls.certificates.iter());
    let chains = chains.map(|one| (&one.certificate, CHAIN));
    let redis = config.store.redis.iter();
    let redis = redis.filter_map(|redis| redis.tls.as_ref());
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
fn read(loaded: &Loaded, path: &Located<FilePath>, largest: u64) -> Option<Vec<u8>> {
    let file = loaded.resolve(path.as_path());
    file.is_file().then(|| files::read(&file, largest))?.ok()
}

/// Warns of each key of a set that verifies no token. `compile` reports sets without a usable key.
pub(super) fn unusable_keys(loaded: &Loaded) -> impl Iterator<Item = Finding> {
    let items = loaded.config.jwt.iter().flat_map(|jwt| jwt.keys.iter());
    let files = items.filter_map(|item| item.jwks_file.as_ref());
    files.flat_map(move |file| {
        let content = read(loaded, file, MAX_KEY_FILE).unwrap_or_default();
        let unusable = TokenKey::from_set(&content).map_or(Vec::new(), |set| set.unusable);
        unusable.into_iter().map(move |why| {
            let message = format!("a key of {file} is not used: {why}");
            Finding::warning(file.node, Code::UnusableKey, message).help(USABLE_KEY)
        })
    })
}

/// Warns of keys of clients in clear text, once for each file.
pub(super) fn clear_text_keys(loaded: &Loaded) -> impl Iterator<Item = Finding> {
    let clients = loaded.config.clients.iter();
    let files = clients.flat_map(|clients| clients.files.iter());
    files.filter_map(move |file| {
        let content = read(loaded, file, clients::MAX_FILE)?;
        let count = clients::clear_text_keys(&content);
        let message = format!("keys in clear text in {file}: {count}");
        let finding = Finding::warning(file.node, Code::ClearTextKeys, message);
        (count > 0).then(|| {
            finding.help("replace each by what `sluicegate client hash` prints for it: `sha256:..`")
        })
    })
}

/// Quotas for at least this long deserve a snapshot file.
const LONG_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);
/// The shortest window in which a flood of keys could fill a table.
const SHORT_WINDOW: Duration = Duration::from_secs(60);
/// Quotas below this many requests are small: a flood of keys that evicts the bucket gains as much
/// as many requests.
const SMALL_QUOTA: u64 = 20;

/// Warns of a quota for longer than the process is likely to run, in memory without a snapshot.
pub(super) fn forgotten_at_restart(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let is_kept = applied.config.store.memory.snapshot.is_some() || applied.is_shared();
    if is_kept || applied.window() < LONG_WINDOW {
        return None;
    }
    let message = "a restart forgets what was used of it";
    let finding = Finding::warning(applied.quota_node(), Code::ForgottenAtRestart, message);
    Some(
        finding
            .help("keep buckets in a file: `store: { memory: { snapshot: { path: buckets } } }`"),
    )
}

/// Warns of a quota of a few requests, in buckets that a flood of other keys can evict.
pub(super) fn small_quota(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let few = |part: &KeyPart| matches!(part, KeyPart::Constant | KeyPart::Route | KeyPart::Method);
    let is_evicted = applied.policy.on_full.value == OnFull::Forget
        && !applied.policy.key.0.iter().all(|part| few(part))
        && applied.is_enforced()
        && !applied.policy.is_only_in_redis();
    let is_small = (1..SMALL_QUOTA).contains(&applied.capacity());
    if !is_evicted || !is_small || applied.window() < SHORT_WINDOW {
        return None;
    }
    let message =
        "when memory is full, a flood of new keys can make it forget a key that is nearly spent";
    let finding = Finding::warning(applied.quota_node(), Code::SmallQuota, message);
    Some(finding.help("set `on_full: strict`, and no key ever exceeds its quota"))
}

/// Warns of tables that together exceed `max_size`, since no table can be smaller.
pub(super) fn memory(loaded: &Loaded) -> Option<Finding> {
    let max_size = &loaded.config.store.memory.max_size;
    let machine = process::memory_limit();
    if let Some(machine) = machine.filter(|machine| max_size.get() > *machine) {
        let message = format!(
            "buckets may take more than the {} MiB of memory that this machine gives the process",
            machine >> 20
        );
        let finding = Finding::warning(max_size.node, Code::Memory, message);
        let help = "lower it, so that the process is not ended when buckets fill it";
        return Some(finding.help(help));
    }
    let rules = compile_rules(loaded).ok()?;
    let (most, needed) = (rules.max_size, memory_bytes(&rules));
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let message = format!(
        "buckets may take {} MiB, more than the {} MiB that they are given",
        mib(needed),
        mib(most)
    );
    let node = max_size.node.or(NodeId::ROOT);
    let help = "raise `store.memory.max_size`, lower `max_keys`, or share policies between routes by their name";
    (needed > most).then(|| Finding::warning(node, Code::Memory, message).help(help))
}
