//! What kinds of problems there are.

/// The stable names of everything that can be found; scripts may rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// The file cannot be read, or is too large, or is no text.
    Unreadable,
    /// The text is no YAML, or no YAML that is accepted here.
    Syntax,
    /// A key stands twice in one mapping.
    DuplicateKey,
    /// A key that no one reads.
    UnknownKey,
    /// A key that has to be there is not.
    MissingKey,
    /// A key with nothing after it.
    NoValue,
    /// A list where a mapping is expected, and the like.
    WrongType,
    /// A word that is none of those that are allowed.
    UnknownValue,
    /// A text that cannot be read as what the key holds (a duration, an address, a path), or is
    /// beyond its bounds.
    InvalidValue,
    /// An environment variable that is not set, or a malformed `${..}`.
    Variable,
    /// A name that refers to nothing.
    UnknownName,
    /// Two things of one name or address.
    DuplicateName,
    /// Two settings that contradict each other.
    Conflict,
    /// A setting that has no effect where it stands.
    NoEffect,
    /// A route that another route always takes first.
    UnreachableRoute,
    /// Something is defined and never used.
    Unused,
    /// A log that takes more memory for each key than most would expect.
    LargeLog,
    /// Buckets that take more memory than they are given.
    Memory,
    /// A policy that is to refuse, and never can.
    NeverRefuses,
    /// A policy that refuses whatever it is asked, or whatever of a kind.
    AlwaysRefuses,
    /// Requests that none of a route's conditions takes in.
    UncoveredRequests,
    /// A key that clients make up.
    ForgeableKey,
    /// A key that is read from a field by which proxies say who the client is.
    UntrustedForwarding,
    /// Days by the zone of a user, in buckets that are not his.
    BorrowedZone,
    /// Trusted proxies that are everybody.
    TrustsEveryone,
    /// An upstream that is a listener of the proxy itself.
    OwnListener,
    /// A quota for so long that the process will not have run through.
    ForgottenAtRestart,
    /// A quota that a flood of other keys can make forgotten.
    SmallQuota,
    /// A window that is hardly longer than asking for its bucket may take.
    ShortWindow,
    /// Machines that hear of each other too rarely for a window.
    SlowSync,
    /// Keys that whoever reads their hashes can find out by trying.
    GuessableKeys,
    /// Credentials that others can read.
    ReadableCredentials,
    /// A certificate that has expired, is not yet valid, or expires soon.
    CertificateExpiry,
    /// A file to write in a directory that is not there.
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

    /// Those that warnings have, each with a section in docs/lints.md.
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

    /// The code as it is printed.
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
