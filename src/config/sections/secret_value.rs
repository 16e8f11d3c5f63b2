//! Secrets: written in the configuration, or in a file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::compile::Compiler;
use crate::config::value::{FilePath, SecretText};
use crate::config::{Code, Finding, Findings, Loaded, Located};
use crate::files::{self, VersionedFile};

/// The largest file with a secret, in bytes.
const MAX_FILE: u64 = 4096;

/// A secret: the text itself, or the file that has it.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(
    rename = "$form",
    expecting = "a secret, or the file that has it: `{ file: /run/secrets/token }`"
)]
#[schemars(rename = "SecretValue", untagged)]
pub enum SecretValue {
    /// The secret itself; better as `${VARIABLE}`.
    #[serde(rename = "scalar")]
    Text(SecretText),
    /// The secret is in a file.
    #[serde(rename = "mapping")]
    File(SecretFile),
}

/// A file with a secret.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretFile {
    /// The path of the file. A newline at its end does not count. Read again when it changes.
    pub file: Located<FilePath>,
}

/// The form of a kind of secrets.
pub(in crate::config) struct SecretForm<T> {
    /// Reads a secret. The error never has its text.
    pub(in crate::config) parse: fn(&str) -> Result<T, String>,
    /// Advice on a secret of another form.
    pub(in crate::config) help: &'static str,
}

/// Any text.
pub(in crate::config) const TEXT: SecretForm<String> = SecretForm {
    parse: |text| Ok(text.to_owned()),
    help: "write a text",
};

impl Default for SecretValue {
    fn default() -> Self {
        Self::Text(SecretText::default())
    }
}

impl SecretValue {
    /// The secret, unless it is in a file.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text.reveal()),
            Self::File(_) => None,
        }
    }

    /// The secret, which may be in a file; `None` if that cannot be read.
    pub(in crate::config) fn read(&self, loaded: &Loaded) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.reveal().to_string()),
            Self::File(file) => {
                let path = loaded.resolve(file.file.as_path());
                let content = files::read(&path, MAX_FILE).ok()?;
                let text = String::from_utf8(content).ok()?;
                Some(text.trim_end_matches(['\r', '\n']).to_owned())
            }
        }
    }
}

/// Checks a secret that is written in the configuration.
pub(in crate::config) fn check<T>(
    secret: &Located<SecretValue>,
    form: &SecretForm<T>,
    findings: &Findings<'_>,
) {
    if let Some(Err(message)) = secret.text().map(form.parse) {
        let finding = Finding::error(secret.node, Code::InvalidValue, message);
        findings.add(finding.help(form.help));
    }
}

impl Compiler<'_> {
    /// A secret; one in a file is read. `None` with a finding.
    pub(in crate::config) fn secret<T>(
        &mut self,
        secret: &SecretValue,
        form: &SecretForm<T>,
    ) -> Option<T> {
        match secret {
            // A check has reported it.
            SecretValue::Text(text) => (form.parse)(text.reveal()).ok(),
            SecretValue::File(file) => self.secret_of_file(&file.file, form),
        }
    }

    /// A secret that need not be given. `stand_in` replaces that of a file for callers that need no
    /// files. `None` with a finding.
    pub(in crate::config) fn optional_secret<T>(
        &mut self,
        secret: Option<&Located<SecretValue>>,
        form: &SecretForm<T>,
        stand_in: Option<&str>,
    ) -> Option<Option<T>> {
        match (secret.map(|secret| &secret.value), stand_in) {
            (None, _) => Some(None),
            (Some(SecretValue::File(_)), Some(stand_in)) => (form.parse)(stand_in).ok().map(Some),
            (Some(secret), _) => self.secret(secret, form).map(Some),
        }
    }

    fn secret_of_file<T>(&mut self, file: &Located<FilePath>, form: &SecretForm<T>) -> Option<T> {
        let path = self.loaded.resolve(file.as_path());
        self.files.push(VersionedFile::new(path.clone()));
        let content = match files::read(&path, MAX_FILE) {
            Ok(content) => content,
            Err(error) => {
                self.unreadable(&path, file.node, &error);
                return None;
            }
        };
        let text = String::from_utf8_lossy(&content);
        let secret = (form.parse)(text.trim_end_matches(['\r', '\n']));
        let wrong = |message| {
            let message = format!("{}: {message}", path.display());
            Finding::error(file.node, Code::InvalidValue, message).help(form.help)
        };
        secret
            .map_err(|message| self.findings.push(wrong(message)))
            .ok()
    }
}
