//! Codes of problems.

/// The stable codes of all problems; scripts may rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// A setting without an effect.
    NoEffect,
    /// A route whose requests another route always takes.
    UnreachableRoute,
    /// An unused definition.
    Unused,
    /// A sliding log with unexpectedly large memory for each key.
    LargeLog,
    /// Buckets that need more memory than they get.
    Memory,
    /// An enforced policy that can never refuse.
    NeverRefuses,
    /// A policy that refuses every request, or every request of a kind.
    AlwaysRefuses,
    /// Requests that no condition of a route's policies covers.
    UncoveredRequests,
    /// A key that clients choose freely.
    ForgeableKey,
    /// A key from a forwarding field that clients can forge.
    UntrustedForwarding,
    /// Windows in a user's time zone, in buckets that several users share.
    BorrowedZone,
    /// Trusted proxies that include every address.
    TrustsEveryone,
    /// An upstream that is a listener of the proxy itself.
    OwnListener,
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
    /// A certificate that has expired, is not yet valid, or expires soon.
    CertificateExpiry,
    /// A file to write whose directory is missing.
    MissingDirectory,
}

impl Code {
    /// Every code, in the order of the documentation.
    pub const ALL: [Self; 34] = [
        Self::Unreadable,
        Self::Syntax,
        Self::DuplicateKey,
        Self::UnknownKey,
        Self::MissingKey,
        Self::NoValue,
        Self::WrongType,
        Self::UnknownValue,
        Self::InvalidValue,
        Self::Variable,
        Self::UnknownName,
        Self::DuplicateName,
        Self::Conflict,
        Self::NoEffect,
        Self::UnreachableRoute,
        Self::Unused,
        Self::LargeLog,
        Self::Memory,
        Self::NeverRefuses,
        Self::AlwaysRefuses,
        Self::UncoveredRequests,
        Self::ForgeableKey,
        Self::UntrustedForwarding,
        Self::BorrowedZone,
        Self::TrustsEveryone,
        Self::OwnListener,
        Self::ForgottenAtRestart,
        Self::SmallQuota,
        Self::ShortWindow,
        Self::SlowSync,
        Self::GuessableKeys,
        Self::ReadableCredentials,
        Self::CertificateExpiry,
        Self::MissingDirectory,
    ];

    /// The codes of lints, each with a section in docs/lints.md.
    pub const LINTS: [Self; 21] = [
        Self::UnreachableRoute,
        Self::NeverRefuses,
        Self::AlwaysRefuses,
        Self::UncoveredRequests,
        Self::ForgeableKey,
        Self::UntrustedForwarding,
        Self::BorrowedZone,
        Self::TrustsEveryone,
        Self::OwnListener,
        Self::ForgottenAtRestart,
        Self::SmallQuota,
        Self::ShortWindow,
        Self::SlowSync,
        Self::GuessableKeys,
        Self::ReadableCredentials,
        Self::LargeLog,
        Self::Memory,
        Self::CertificateExpiry,
        Self::MissingDirectory,
        Self::Unused,
        Self::NoEffect,
    ];

    /// The code in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Syntax => "syntax",
            Self::DuplicateKey => "duplicate-key",
            Self::UnknownKey => "unknown-key",
            Self::MissingKey => "missing-key",
            Self::NoValue => "no-value",
            Self::WrongType => "wrong-type",
            Self::UnknownValue => "unknown-value",
            Self::InvalidValue => "invalid-value",
            Self::Variable => "variable",
            Self::UnknownName => "unknown-name",
            Self::DuplicateName => "duplicate-name",
            Self::Conflict => "conflict",
            Self::NoEffect => "no-effect",
            Self::UnreachableRoute => "unreachable-route",
            Self::Unused => "unused",
            Self::LargeLog => "large-log",
            Self::Memory => "memory",
            Self::NeverRefuses => "never-refuses",
            Self::AlwaysRefuses => "always-refuses",
            Self::UncoveredRequests => "uncovered-requests",
            Self::ForgeableKey => "forgeable-key",
            Self::UntrustedForwarding => "untrusted-forwarding",
            Self::BorrowedZone => "borrowed-zone",
            Self::TrustsEveryone => "trusts-everyone",
            Self::OwnListener => "own-listener",
            Self::ForgottenAtRestart => "forgotten-at-restart",
            Self::SmallQuota => "small-quota",
            Self::ShortWindow => "short-window",
            Self::SlowSync => "slow-sync",
            Self::GuessableKeys => "guessable-keys",
            Self::ReadableCredentials => "readable-credentials",
            Self::CertificateExpiry => "certificate-expiry",
            Self::MissingDirectory => "missing-directory",
        }
    }
}
