//! Secrets: written in the configuration, or in a file. Tokens that operators send are secrets of a
//! form of their own.

use std::path::Path;

use http::HeaderValue;

use crate::config::sections::prelude::*;
use crate::files;
use crate::http::token_digest::TokenDigest;

/// The largest file with a secret, in bytes.
const MAX_FILE: u64 = 4096;

by_form! {
    /// A secret: the text itself, or the file that has it.
    pub enum SecretValue("SecretValue", "a secret, or the file that has it: `{ file: /run/secrets/token }`") {
        /// The secret itself; better as `${VARIABLE}`.
        Text(SecretText) = "scalar",
        /// The secret is in a file. A newline at its end does not count.
        File(InFile) = "mapping",
    }
}

/// The form of a kind of secrets.
pub(crate) struct SecretForm<T> {
    /// Reads a secret. The error never has its text.
    pub(crate) parse: fn(&str) -> Result<T, String>,
    /// Advice on a secret of another form.
    pub(crate) help: &'static str,
    /// The stand-in for a file's secret where nothing is forwarded.
    pub(crate) stand_in: &'static str,
}

/// Any text.
pub(crate) const TEXT: SecretForm<String> = SecretForm {
    parse: |text| Ok(text.to_owned()),
    help: "write a text",
    stand_in: "",
};

/// The value of a header field.
pub(crate) const FIELD: SecretForm<HeaderValue> = SecretForm {
    parse: |text| match text.parse::<FieldValue>() {
        Ok(value) => Ok(value.get().clone()),
        Err(_) => Err("this isn't a value of a header field".to_owned()),
    },
    help: NO_VALUE,
    stand_in: "",
};

impl SecretValue {
    /// The secret, unless it is in a file.
    pub fn text(&self) -> Option<&str> {
        let Self::Text(text) = self else { return None };
        Some(text.reveal())
    }

    /// The secret, which may be in a file below `directory`; `None` if that cannot be read.
    pub(in crate::config) fn read(&self, directory: &Path) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.reveal().to_string()),
            Self::File(file) => {
                let path = directory.join(file.file.as_path());
                let content = files::read(&path, MAX_FILE).ok()?;
                let text = String::from_utf8(content).ok()?;
                Some(text.trim_end_matches(['\r', '\n']).to_owned())
            }
        }
    }
}

/// Checks a secret that is written in the configuration.
pub(crate) fn check<T>(
    secret: &Located<SecretValue>,
    form: &SecretForm<T>,
    findings: &Findings<'_>,
) {
    if let Some(Err(message)) = secret.text().map(form.parse) {
        findings.add(invalid(secret.node, message).help(form.help));
    }
}

impl Compiler<'_> {
    /// A secret; one in a file is read. `None` with a finding.
    pub(crate) fn secret<T>(&mut self, secret: &SecretValue, form: &SecretForm<T>) -> Option<T> {
        match secret {
            // A check has reported it.
            SecretValue::Text(text) => (form.parse)(text.reveal()).ok(),
            SecretValue::File(_) if self.key_files != KeyFiles::Needed => {
                (form.parse)(form.stand_in).ok()
            }
            SecretValue::File(file) => self.secret_of_file(&file.file, form),
        }
    }

    fn secret_of_file<T>(&mut self, file: &Located<FilePath>, form: &SecretForm<T>) -> Option<T> {
        let (path, content) = self.read(file, MAX_FILE)?;
        let text = String::from_utf8_lossy(&content);
        let secret = (form.parse)(text.trim_end_matches(['\r', '\n']));
        let wrong =
            |message| invalid(file.node, format!("{}: {message}", path.display())).help(form.help);
        self.found(secret.map_err(wrong))
    }
}

/// The shortest token, in characters: too long to guess.
const MIN_LENGTH: usize = 16;
/// The longest token, in characters.
const MAX_LENGTH: usize = 512;

/// A token, of which the digest is kept.
pub(crate) const TOKEN: SecretForm<TokenDigest> = SecretForm {
    parse: parse_token,
    help: "`openssl rand -hex 32` prints a good one",
    stand_in: "the-token-of-a-file",
};

/// Checks the length and the characters of a token (RFC 6750 section 2.1). The error never has its
/// text.
fn parse_token(token: &str) -> Result<TokenDigest, String> {
    let bare = token.trim_end_matches('=');
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~+/".contains(c);
    if !bare.chars().all(allowed) {
        return Err("a token has letters, digits and `-._~+/` only".to_owned());
    }
    match token.len() {
        MIN_LENGTH..=MAX_LENGTH => Ok(TokenDigest::of(token)),
        length => Err(format!(
            "a token has {MIN_LENGTH} to {MAX_LENGTH} characters, and this has {length}"
        )),
    }
}
