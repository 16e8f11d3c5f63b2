//! The tokens of callers: who has which role. One is made if none is configured.

mod guesses;

use std::env;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use self::guesses::Guesses;
use super::actor::TokenRole;
use crate::clock::Timestamp;
use crate::files;
use crate::http::token_digest::TokenDigest;
use crate::net::peer_address::PeerAddress;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::AdminRefusal;

/// The tokens of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSpec {
    /// Tokens of callers that may read.
    pub read: Vec<TokenDigest>,
    /// Tokens of callers that may also change what runs.
    pub write: Vec<TokenDigest>,
}

/// The tokens in force, which reloads replace. Clones share them.
#[derive(Clone, Debug)]
pub struct Access {
    in_force: Arc<ArcSwap<AccessSpec>>,
    /// The token that was made because none was configured. It stays valid while none is.
    made: Arc<OnceLock<OwnToken>>,
    guesses: Arc<Guesses>,
    /// The pauses between log lines on wrong tokens.
    warnings: Arc<LogThrottle>,
}

/// A token that was made, and its file, which is removed at the end of the last process that accepts it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MadeToken {
    digest: TokenDigest,
    file: Option<PathBuf>,
    /// True if this process removes the file. A process that takes over starts with false.
    #[serde(skip)]
    pub is_own: Arc<AtomicBool>,
}

/// A token of this process.
#[derive(Debug)]
struct OwnToken {
    token: MadeToken,
    /// Its open file. Shared locks tell other processes that it is in use.
    #[expect(dead_code, reason = "held")]
    lock: Option<File>,
}

impl Drop for OwnToken {
    fn drop(&mut self) {
        if self.token.is_own.load(Relaxed)
            && let Some(file) = &self.token.file
        {
            // Nothing is left to do for one that is gone already.
            let _ = fs::remove_file(file);
        }
    }
}

impl Access {
    /// The tokens of `spec`; without any, the write token that the process `before` has made, or one that
    /// is made and logged.
    pub fn new(spec: AccessSpec, before: Option<MadeToken>) -> Self {
        let made = before.map(|token| {
            let file = token.file.as_ref().and_then(|file| File::open(file).ok());
            let lock = file.filter(|file| file.try_lock_shared().is_ok());
            OnceLock::from(OwnToken { token, lock })
        });
        let access = Self {
            in_force: Arc::default(),
            made: Arc::new(made.unwrap_or_default()),
            guesses: Arc::default(),
            warnings: Arc::new(LogThrottle::new(Duration::from_secs(60))),
        };
        access.reload(spec);
        access
    }

    /// Accepts these tokens, and no others, from now on.
    pub fn reload(&self, mut spec: AccessSpec) {
        if spec.read.is_empty() && spec.write.is_empty() {
            let made = self.made.get_or_init(make_token);
            spec.write.push(made.token.digest);
        }
        self.in_force.store(Arc::new(spec));
    }

    /// The token that was made, if any.
    pub fn made(&self) -> Option<&MadeToken> {
        self.made.get().map(|made| &made.token)
    }

    /// Leaves the file of the token that was made to another process.
    pub fn leave_made(&self) {
        self.made()
            .into_iter()
            .for_each(|made| made.is_own.store(false, Relaxed));
    }

    /// The tokens in force.
    pub(super) fn tokens(&self) -> Arc<AccessSpec> {
        self.in_force.load_full()
    }

    /// The role of the token that a request has, and its place from 1.
    ///
    /// # Errors
    /// There is no known token, or there were too many wrong ones from its address.
    pub(super) fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: PeerAddress,
        now: Timestamp,
    ) -> Result<(TokenRole, usize), AdminRefusal> {
        let token = bearer(headers).ok_or(AdminRefusal::Unauthenticated)?;
        // First: whoever guesses must not lock others on the same address out.
        if let Some(found) = self.identify(token) {
            return Ok(found);
        }
        if let Some(address) = peer.ip() {
            if self.guesses.check(address, now).is_err() {
                return Err(AdminRefusal::Throttled);
            }
            self.guesses.note(address, now);
        }
        if let Some(omitted) = self.warnings.admit(now) {
            tracing::warn!(
                %peer,
                omitted,
                "a wrong token for the admin API: an address may try ten at once, then one a second"
            );
        }
        Err(AdminRefusal::Unauthenticated)
    }

    /// The role of a token, and its place from 1. Compares with all tokens, whatever matches.
    fn identify(&self, token: &str) -> Option<(TokenRole, usize)> {
        let (given, known) = (TokenDigest::of(token), self.in_force.load());
        let find = |role, digests: &[TokenDigest]| {
            let numbered = digests.iter().zip(1..);
            let matching = numbered.filter(|(digest, _)| digest.matches(&given));
            matching.last().map(|(_, number)| (role, number))
        };
        let readers = find(TokenRole::Read, &known.read);
        find(TokenRole::Write, &known.write).or(readers)
    }
}

/// Makes a token of 256 random bits. A terminal shows it. Otherwise a file has it that only this user
/// can read: logs go to people who may not change what runs.
fn make_token() -> OwnToken {
    let token = random_text::<32>();
    let mut made = MadeToken {
        digest: TokenDigest::of(&token),
        file: None,
        is_own: Arc::new(true.into()),
    };
    let mut lock = None;
    if io::stderr().is_terminal() {
        tracing::info!(
            token,
            "admin.tokens is empty: this token may read and write until the process ends"
        );
    } else {
        match write_token(&token) {
            Ok((file, opened)) => {
                tracing::info!(
                    file = %file.display(),
                    "admin.tokens is empty: this file has a token that may read and write until the process ends"
                );
                (made.file, lock) = (Some(file), Some(opened));
            }
            Err(error) => tracing::warn!(
                %error,
                "admin.tokens is empty, and no file can be written with a token: the admin API is closed"
            ),
        }
    }
    OwnToken { token: made, lock }
}

/// Writes the token to a new file that only this user can read, and locks it. Removes those of
/// processes that were killed.
fn write_token(token: &str) -> io::Result<(PathBuf, File)> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    // systemd's directories of the service and of the user's session.
    let directories = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].into_iter();
    let directories = directories.filter_map(set).map(PathBuf::from);
    let mut written = Err(io::ErrorKind::NotFound.into());
    for directory in directories.chain([env::temp_dir()]) {
        remove_unused(&directory);
        let file = directory.join(format!("{TOKEN_FILE}{}", random_text::<9>()));
        let mut options = File::options();
        let opened = options.write(true).create_new(true).mode(0o600).open(&file);
        written = opened.and_then(|mut opened| {
            // Before it has text, since others remove one that is not locked. Without locks none is.
            let _ = opened.lock_shared();
            writeln!(opened, "{token}")?;
            Ok((file, opened))
        });
        if written.is_ok() {
            break;
        }
    }
    written
}

/// The start of the name of a file with a token; 12 letters follow.
const TOKEN_FILE: &str = "sluicegate-admin-token-";

/// Removes this user's files with tokens that no process has locked.
fn remove_unused(directory: &Path) {
    let found = files::list(&directory.join(format!("{TOKEN_FILE}{}", "?".repeat(12))));
    for file in found.unwrap_or_default() {
        let of_this_user = fs::symlink_metadata(&file).is_ok_and(|found| {
            found.is_file() && found.len() > 0 && found.uid() == geteuid().as_raw()
        });
        if of_this_user && File::open(&file).is_ok_and(|opened| opened.try_lock().is_ok()) {
            // Another process may have removed it.
            let _ = fs::remove_file(&file);
        }
    }
}

/// Random bytes as text.
fn random_text<const BYTES: usize>() -> String {
    let mut bytes = [0; BYTES];
    rand::fill(&mut bytes).expect("the system has random numbers");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The token of the only `Authorization` field (RFC 6750 section 2.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (field, None) = (fields.next()?, fields.next()) else {
        return None;
    };
    let (scheme, token) = field.to_str().ok()?.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then_some(token.trim_start_matches(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_replaces_tokens_and_a_made_one_stays_while_there_is_none() {
        let access = Access::new(AccessSpec::default(), None);
        let made = access.made().expect("one is made").digest;
        let accepts = |token: &str| access.identify(token).is_some();
        let spec = |token: &str| AccessSpec {
            read: Vec::new(),
            write: vec![TokenDigest::of(token)],
        };
        access.reload(spec("first"));
        assert!(accepts("first"));
        access.reload(spec("second"));
        assert!(accepts("second") && !accepts("first"));
        access.reload(AccessSpec::default());
        assert!(!accepts("second"));
        assert_eq!(access.in_force.load().write, [made]);
    }
}
