//! Codes of problems.

use serde::Serialize;
use strum::{EnumIter, EnumMessage, IntoEnumIterator, IntoStaticStr};

/// The stable codes of all problems; scripts may rely on them.
///
/// Errors come first, then the lints in the order of docs/lints.md.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, EnumIter, EnumMessage, IntoStaticStr, Serialize,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Code {
    /// The file is unreadable, too large, or no text.
    Unreadable,
    /// The text is no YAML, or no YAML that is accepted here.
    Syntax,
    /// A key stands twice in one mapping.
    DuplicateKey,
    /// An unknown key.
    UnknownKey,
    /// A missing key.
    MissingKey,
    /// A key with nothing after it.
    NoValue,
    /// A list where a mapping is expected, and the like.
    WrongType,
    /// A word outside the allowed set.
    UnknownValue,
    /// A text that is not a valid value (a duration, an address, a path) or is beyond its bounds.
    InvalidValue,
    /// An environment variable that is not set, or a malformed `${..}`.
    Variable,
    /// A name that refers to nothing.
    UnknownName,
    /// Two items with the same name or address.
    DuplicateName,
    /// Two settings that contradict each other.
    Conflict,
    /// A route whose requests another route always takes.
    UnreachableRoute,
    /// A value that other proxies read as a prefix or a pattern, and that is compared as it is.
    LiteralValue,
    /// An enforced policy that can never refuse.
    NeverRefuses,
    /// A policy that refuses every request, or every request of a kind.
    AlwaysRefuses,
    /// A response that may cost more than a bucket ever owes.
    ForgivenCost,
    /// Calls of a language model that reserve next to nothing.
    UnreservedTokens,
    /// Requests that no condition of a route's policies covers.
    UncoveredRequests,
    /// Another spelling of a path that reaches the same upstream with fewer limits.
    UnlimitedSpelling,
    /// A route that answers everything, but for requests that other routes take.
    BypassedAnswer,
    /// Rules of access by keys or passwords, where no limit counts the guesses.
    UnlimitedGuesses,
    /// A route that reports limits, and has none itself.
    UnlimitedStatus,
    /// Paths that the upstream may read in another way than the limits.
    AmbiguousPath,
    /// A key that clients choose freely.
    ForgeableKey,
    /// A key from a forwarding field that clients can forge.
    UntrustedForwarding,
    /// A quota that any client may state.
    ForgeableQuota,
    /// Windows in a user's time zone, in buckets that several users share.
    BorrowedZone,
    /// Trusted proxies that include every address.
    TrustsEveryone,
    /// An upstream that is a listener of the proxy itself.
    OwnListener,
    /// Retries that may go on for long.
    RetriesWithoutDeadline,
    /// Fewer connections to an upstream than workers.
    FewConnections,
    /// A quota for a window that is likely longer than the process runs.
    ForgottenAtRestart,
    /// A small quota whose bucket a flood of other keys can evict.
    SmallQuota,
    /// A window that is hardly longer than a call to Redis.
    ShortWindow,
    /// A synchronisation interval that is too long for the window.
    SlowSync,
    /// Hashed keys that a reader of Redis can guess.
    GuessableKeys,
    /// Credentials that a reader of Redis can see.
    ReadableCredentials,
    /// Credentials that a reader of the access log, or of the admin API, can see.
    LoggedCredentials,
    /// A token that is easy to guess.
    WeakToken,
    /// Credentials that are sent in clear text.
    CleartextCredentials,
    /// Keys of clients that stand in clear text in a file.
    ClearTextKeys,
    /// A sliding log with unexpectedly large memory for each key.
    LargeLog,
    /// Buckets that need more memory than they get.
    Memory,
    /// A certificate that has expired, is not yet valid, or expires soon.
    CertificateExpiry,
    /// A key of a JSON Web Key Set that verifies no token.
    UnusableKey,
    /// A file to write whose directory is missing.
    MissingDirectory,
    /// An unused definition.
    Unused,
    /// A setting without an effect.
    NoEffect,
}

impl Code {
    /// Every code.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }

    /// The codes of lints, each with a section in docs/lints.md.
    pub fn lints() -> impl Iterator<Item = Self> {
        Self::iter().skip_while(|code| *code != Self::UnreachableRoute)
    }

    /// The code with this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::iter().find(|code| code.as_str() == name)
    }

    /// True for lints, which have a section in docs/lints.md.
    pub fn is_lint(self) -> bool {
        Self::lints().any(|lint| lint == self)
    }

    /// The meaning in a sentence.
    pub fn description(self) -> &'static str {
        self.get_documentation().unwrap_or_default()
    }

    /// The code in reports.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
