//! Reads a file, parses it and checks it.

use std::collections::HashSet;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher13;

use super::diagnostic::{Report, SourceText};
use super::document::{Builder, Document, Environment};
use super::file_errors::MAX_TEXT;
use super::finding::{Finding, Findings};
use super::schema::{self, Config};
use super::sections::include::Included;
use super::sections::route::unreachable;
use super::{Code, decode, file_errors, odd_spaces, validate};
use crate::admin::actor::TokenRole;
use crate::files::{self, VersionedFile};

/// A configuration without errors.
#[derive(Debug)]
pub struct Loaded {
    /// The checked configuration: names resolve, numbers are within their bounds.
    pub config: Config,
    /// The document that it was read from.
    pub document: Document,
    /// Warnings only.
    pub warnings: Report,
    /// The directory of relative paths.
    pub directory: PathBuf,
    /// A hash of the text, included files too: 16 hexadecimal digits.
    pub hash: String,
    /// The paths and patterns of included files, in the versions that were read.
    pub included: Vec<VersionedFile>,
}

impl Loaded {
    /// True if the route at this index has limits besides the top-level ones.
    pub fn has_own_limits(&self, route: usize) -> bool {
        !self.config.routes[route].limits.is_empty()
    }

    /// True if the proxy answers the requests of the route at this index by `respond` or `redirect`.
    pub fn is_answered(&self, route: usize) -> bool {
        self.config.routes[route].upstream.is_none()
    }

    /// The error of each pattern that matches no file any more; `before` are the files of the running
    /// configuration. They may be away for a moment, and routes for the rest would serve their paths.
    ///
    /// # Errors
    ///
    /// Reports the patterns.
    pub fn without_vanished(self, before: &[VersionedFile]) -> Result<Self, Report> {
        let include = self.config.include.as_ref().map(|include| include.node);
        let empty = (self.included.iter()).filter(|file| file.versions.is_empty());
        let vanished = empty.filter_map(|now| {
            let before = before.iter().find(|before| before.path == now.path)?;
            let message = format!("no file matches {} any more", now.path.display());
            let finding = Finding::error(include?, Code::Unreadable, message);
            let help =
                "put them back; if they are to go, remove the pattern, or leave a file with a comment";
            (!before.versions.is_empty()).then(|| finding.help(help))
        });
        let vanished: Vec<_> = vanished.collect();
        if vanished.is_empty() {
            return Ok(self);
        }
        Err(self.document.report(vanished).of_files(self.included))
    }

    /// Resolves a path of the configuration against its directory.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.directory.join(path)
    }

    /// The first file with clients.
    pub fn clients_file(&self) -> Option<PathBuf> {
        let clients = self.config.clients.as_ref()?;
        clients
            .files
            .first()
            .map(|file| self.resolve(file.as_path()))
    }

    /// The address of the admin listener, for clients on the same machine.
    pub fn admin_address(&self) -> SocketAddr {
        let mut address = *self.config.admin.address.get();
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        address
    }

    /// The files with the certificates of the admin listener; `None` without TLS.
    pub fn admin_certificates(&self) -> Option<Vec<PathBuf>> {
        let certificates = self.config.admin.tls.as_ref()?.certificates.iter();
        let files = certificates.map(|one| self.resolve(one.certificate.as_path()));
        Some(files.collect())
    }

    /// True if the configuration has a token for this role; any token may read.
    pub fn has_admin_token(&self, role: TokenRole) -> bool {
        let tokens = &self.config.admin.tokens;
        let has_reader = role == TokenRole::Read && tokens.read.iter().next().is_some();
        has_reader || tokens.write.iter().next().is_some()
    }

    /// The first token for this role that can be read; any token may read.
    pub fn admin_token(&self, role: TokenRole) -> Option<String> {
        let tokens = &self.config.admin.tokens;
        let read = tokens.read.iter().filter(|_| role == TokenRole::Read);
        read.chain(tokens.write.iter())
            .find_map(|token| token.read(&self.directory))
    }
}

/// Checks a text that may be anyone's: it includes no files. Reports call it `name`, and
/// `environment` looks up its variables.
///
/// # Errors
///
/// Reports all that was found when some of it is an error.
pub fn parse(name: &str, text: String, environment: &Environment<'_>) -> Result<Loaded, Report> {
    try_check(name, text, environment, None).map_err(|broken| broken.report)
}

/// A configuration with errors.
pub(super) struct Broken {
    pub(super) report: Report,
    /// The part without errors, if `admin` belongs to it.
    pub(super) stated: Option<Loaded>,
}

impl From<Report> for Box<Broken> {
    fn from(report: Report) -> Self {
        Box::new(Broken {
            report,
            stated: None,
        })
    }
}

/// Checks a text in the file `main`, or in none that may include others.
pub(super) fn try_check(
    name: &str,
    text: String,
    environment: &Environment<'_>,
    main: Option<&Path>,
) -> Result<Loaded, Box<Broken>> {
    let rest = text.strip_prefix('\u{feff}').map(str::to_owned);
    let text = rest.unwrap_or(text);
    let directory = main.and_then(Path::parent).unwrap_or(Path::new(""));
    let bytes = text.len();
    let mut builder = Builder::new(SourceText::new(name, text), environment);
    let included = Included::read(&builder.document.texts("include"), main, bytes);
    if !included.texts.is_empty() {
        builder.include(included.texts);
    }
    let earlier = [std::mem::take(&mut builder.findings), included.findings].concat();
    let mut document = builder.build().map_err(|(source, problems)| {
        let odd_spaces = odd_spaces::find(&source, &problems);
        let report = Report::of_syntax(source, problems, &schema::KEYS).with(odd_spaces);
        report.of_files(included.files.clone())
    })?;
    let findings = Findings::new(&document, earlier);
    let config: Option<Config> = decode::decode(&findings);
    if let Some(config) = &config {
        validate::validate(config, &findings);
    }
    let hash = SipHasher13::new().hash(document.source().text.as_bytes());
    let has_errors = findings.has_errors();
    let (mut list, visibility) = findings.into_parts();
    document.reveal(visibility);
    let is_admins = |finding: &Finding| document.path(finding.node).starts_with("admin");
    let is_stated = !list.iter().any(is_admins);
    if has_errors && let Some(config) = &config {
        let hidden = unreachable_among_errors(config, &document, &list);
        list.extend(hidden);
    }
    let report = document.report(list);
    let odd_spaces = has_errors.then(|| odd_spaces::find(document.source(), &report.problems));
    let files = included.files.clone();
    let loaded = config.map(|config| Loaded {
        warnings: report.clone(),
        hash: format!("{hash:016x}"),
        config,
        document,
        directory: directory.to_owned(),
        included: included.files,
    });
    match (loaded, odd_spaces) {
        (Some(loaded), None) => Ok(loaded),
        (loaded, odd_spaces) => Err(Box::new(Broken {
            report: report.with(odd_spaces.unwrap_or_default()).of_files(files),
            stated: loaded.filter(|_| is_stated),
        })),
    }
}

/// Warns of unreachable routes beside errors elsewhere. Only routes whose `match` is free of errors
/// are compared; limits and upstreams make no difference.
fn unreachable_among_errors(
    config: &Config,
    document: &Document,
    errors: &[Finding],
) -> Vec<Finding> {
    const ELSEWHERE: [&str; 8] = [
        ".access",
        ".limits",
        ".name",
        ".redirect",
        ".request",
        ".respond",
        ".response",
        ".upstream",
    ];
    let doubtful = errors.iter().filter_map(|error| {
        let path = document.path(error.node);
        let (route, rest) = path.split_at(path.find(']')? + 1);
        let is_elsewhere = ELSEWHERE.iter().any(|key| rest.starts_with(key));
        (!is_elsewhere).then(|| route.to_owned())
    });
    let doubtful: HashSet<String> = doubtful.collect();
    let routes = config.routes.iter();
    unreachable(routes.filter(|route| !doubtful.contains(&document.path(route.node))))
}

/// The text of the file at `path`, which reports call `name`.
pub(super) fn read(path: &Path, name: &str) -> Result<String, Report> {
    let explain = |error: &io::Error| {
        let (message, help) = file_errors::explain(path, error);
        (message, Some(help))
    };
    text(files::read(path, MAX_TEXT), name, explain)
}

/// Reads the text of a configuration to its end. Reports call it `name`.
///
/// # Errors
///
/// Reports a text that cannot be read, is too large, or is no UTF-8.
pub(super) fn read_from(input: impl Read, name: &str) -> Result<String, Report> {
    let mut bytes = Vec::new();
    let read = input.take(MAX_TEXT + 1).read_to_end(&mut bytes);
    let bytes = read.and_then(|length| match length as u64 {
        ..=MAX_TEXT => Ok(bytes),
        _ => Err(ErrorKind::FileTooLarge.into()),
    });
    text(bytes, name, |error| {
        (format!("it cannot be read: {error}"), None)
    })
}

fn text(
    bytes: io::Result<Vec<u8>>,
    name: &str,
    explain: impl Fn(&io::Error) -> (String, Option<String>),
) -> Result<String, Report> {
    let bytes = bytes.map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => {
            let message = format!("it is larger than {} MiB", MAX_TEXT >> 20);
            (message, Some("is it the right file?".to_owned()))
        }
        _ => explain(&error),
    });
    let wrong = |(message, help): (_, &str)| (message, Some(help.to_owned()));
    let text = bytes.and_then(|bytes| file_errors::text(bytes).map_err(wrong));
    text.map_err(|(message, help)| Report::of_file(name, message, help))
}
