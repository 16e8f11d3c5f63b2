//! Reads a file, parses it and checks it.

use std::collections::HashSet;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher13;

use super::decode;
use super::diagnostic::{Report, SourceText};
use super::document::{Document, Environment};
use super::finding::{Finding, Findings};
use super::schema::{self, Config};
use super::sections::route::unreachable;
use super::{file_errors, odd_spaces, validate};
use crate::admin::actor::TokenRole;
use crate::files;

/// The largest file that is read.
const MAX_FILE: u64 = 16 << 20;

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
    /// A hash of the text: 16 hexadecimal digits.
    pub hash: String,
}

impl Loaded {
    /// Turns later findings, for example of `compile`, into a report.
    pub fn report(&self, findings: Vec<Finding>) -> Report {
        self.document.report(findings)
    }

    /// Resolves a path of the configuration against its directory.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.directory.join(path)
    }

    /// The address of the admin listener, for clients on the same machine.
    pub fn admin_address(&self) -> SocketAddr {
        let mut address = self.config.admin.address.get();
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

/// Reads and checks a file. Variables come from the process environment.
///
/// # Errors
///
/// Reports all that was found when some of it is an error.
pub fn load(path: &Path) -> Result<Loaded, Report> {
    let name = path.display().to_string();
    let text = read(path, &name)?;
    let directory = path.parent().unwrap_or(Path::new("")).to_owned();
    parse(&name, text, &|name| std::env::var(name).ok()).map(|loaded| Loaded {
        directory,
        ..loaded
    })
}

/// Checks a text. Reports call it `name`, and `environment` looks up its variables. Relative paths
/// start at the working directory.
///
/// # Errors
///
/// Reports all that was found when some of it is an error.
pub fn parse(name: &str, text: String, environment: &Environment<'_>) -> Result<Loaded, Report> {
    let text = match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    };
    let hash = format!("{:016x}", SipHasher13::new().hash(text.as_bytes()));
    let source = SourceText::new(name, text);
    let odd_spaces = odd_spaces::find(&source);
    let shown = |report: Report| report.with(odd_spaces.clone());
    let parsed = Document::parse(source, environment);
    let (mut document, earlier) = parsed
        .map_err(|(source, problem)| shown(Report::of_syntax(source, *problem, &schema::KEYS)))?;
    let findings = Findings::new(&document, earlier);
    let config: Option<Config> = decode::decode(&findings);
    if let Some(config) = &config {
        validate::validate(config, &findings);
    }
    let has_errors = findings.has_errors();
    let (mut list, visibility) = findings.into_parts();
    document.reveal(visibility);
    match config {
        Some(config) if !has_errors => Ok(Loaded {
            warnings: document.report(list),
            config,
            document,
            directory: PathBuf::new(),
            hash,
        }),
        config => {
            let hidden = config.map(|config| unreachable_among_errors(&config, &document, &list));
            list.extend(hidden.unwrap_or_default());
            Err(shown(document.report(list)))
        }
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
    let doubtful: HashSet<String> = errors
        .iter()
        .filter_map(|error| {
            let path = document.path(error.node);
            let (route, rest) = path.split_at(path.find(']')? + 1);
            let is_elsewhere = ELSEWHERE.iter().any(|key| rest.starts_with(key));
            (!is_elsewhere).then(|| route.to_owned())
        })
        .collect();
    let routes = config.routes.iter();
    unreachable(routes.filter(|route| !doubtful.contains(&document.path(route.node))))
}

fn read(path: &Path, name: &str) -> Result<String, Report> {
    let bytes = files::read(path, MAX_FILE).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => too_large(name),
        _ => {
            let (message, help) = file_errors::explain(path, &error);
            Report::of_file(name, message, Some(help))
        }
    })?;
    text(bytes, name)
}

/// Reads the text of a configuration to its end. Reports call it `name`.
///
/// # Errors
///
/// Reports a text that cannot be read, is too large, or is no UTF-8.
pub(super) fn read_from(input: impl Read, name: &str) -> Result<String, Report> {
    let mut bytes = Vec::new();
    let fail =
        |error: io::Error| Report::of_file(name, format!("it cannot be read: {error}"), None);
    input
        .take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    if bytes.len() as u64 > MAX_FILE {
        Err(too_large(name))
    } else {
        text(bytes, name)
    }
}

fn too_large(name: &str) -> Report {
    let message = format!("it is larger than {} MiB", MAX_FILE >> 20);
    Report::of_file(name, message, Some("is it the right file?".to_owned()))
}

fn text(bytes: Vec<u8>, name: &str) -> Result<String, Report> {
    let fail = |message: String, help: &str| Report::of_file(name, message, Some(help.to_owned()));
    if is_utf16(&bytes) {
        return Err(fail(
            "it is UTF-16, and not UTF-8".to_owned(),
            "save it as UTF-8, as `iconv -f UTF-16 -t UTF-8 FILE` prints it",
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|&&b| b == b'\n').count() + 1;
        fail(
            format!("it is no UTF-8 text, from line {line} on"),
            "save it as UTF-8",
        )
    })
}

/// True if a text begins with the byte order mark of UTF-16, or with two UTF-16 letters.
fn is_utf16(bytes: &[u8]) -> bool {
    match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => true,
        [a, b, c, d, ..] => matches!(
            [a, b, c, d].map(|byte| *byte == 0),
            [true, false, true, false] | [false, true, false, true]
        ),
        _ => false,
    }
}
