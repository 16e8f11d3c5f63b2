//! Credentials that others can read or guess: in the access log, over the network, in tokens. Also the
//! settings of the log that have no effect.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, COOKIE, HeaderName, PROXY_AUTHORIZATION};

use crate::config::sections::prelude::*;
use crate::telemetry::access_log::{KeyForm, LogField};

/// All lints about the access log alone.
pub(super) fn log_options(config: &Config) -> Vec<Finding> {
    let Some(log) = &config.access_log else {
        return Vec::new();
    };
    match log.format.value {
        AccessLogFormat::Disabled => Vec::new(),
        AccessLogFormat::Combined => without_effect_in_combined(log),
        AccessLogFormat::Json => {
            let mut findings = without_effect_in_json(log);
            findings.extend(logged_fields(config, log));
            findings
        }
    }
}

/// Warns of options of JSON lines.
fn without_effect_in_combined(log: &AccessLog) -> Vec<Finding> {
    let findings = given(options!(log, keys, headers, fields)).map(|(key, node)| {
        let message = format!("lines of the combined format have no `{key}`");
        let finding = warn_no_effect(node, message).related(log.format.node, "the format");
        finding.help(format!("use `format: json`, or remove `{key}`"))
    });
    findings.collect()
}

/// Warns of options of fields that lines do not have, and of a field that is always absent.
fn without_effect_in_json(log: &AccessLog) -> Vec<Finding> {
    let Some(fields) = &log.fields else {
        return Vec::new();
    };
    let of = |field: LogField| fields.iter().find(|one| one.value == field);
    let mut findings = Vec::new();
    for (field, name, option) in [
        (LogField::Headers, "headers", log.headers.given()),
        (LogField::Key, "key", log.keys.given()),
    ] {
        if let (None, Some(node)) = (of(field), option) {
            let finding = warn_no_effect(node, format!("lines do not have the field `{name}`"));
            let finding = finding.related(fields.node, "the fields that they have");
            let help = format!("add `{name}` to `fields`, or remove the option");
            findings.push(finding.help(help));
        }
    }
    if let Some(field) = of(LogField::Headers).filter(|_| log.headers.is_empty()) {
        let finding = warn_no_effect(field.node, "no header field is logged");
        findings.push(finding.help("name them in `access_log.headers`, or remove `headers` here"));
    }
    findings
}

/// Warns of header fields that have credentials.
fn logged_fields<'a>(
    config: &'a Config,
    log: &'a AccessLog,
) -> impl Iterator<Item = Finding> + use<'a> {
    let token = config.jwt.as_ref().map(|jwt| jwt.header.get());
    let is_secret = move |name: &HeaderName| is_credential(name) || token == Some(name);
    let secret = log.headers.iter().filter(move |name| is_secret(name.get()));
    secret.map(|name| {
        let message = format!("a reader of the log can use what `{name}` has");
        let help =
            "remove it; log what the upstream calls the client, if there is a field for that";
        Finding::warning(name.node, Code::LoggedCredentials, message).help(help)
    })
}

/// Warns of a key part with credentials that readers of the access log see as text.
pub(super) fn logged_credentials(part: &Located<KeyPart>, config: &Config) -> Option<Finding> {
    let log = config.access_log.as_ref()?;
    let is_json = log.format.value == AccessLogFormat::Json;
    let keys = log.keys.as_ref().filter(|_| is_json)?;
    let finding = readable_part(part, keys, "a reader of the log")?;
    Some(finding.related(keys.node, "keys are logged as they are"))
}

/// Warns of a key part with credentials that callers of the admin API see as text.
pub(super) fn shown_credentials(part: &Located<KeyPart>, config: &Config) -> Option<Finding> {
    let keys = &config.admin.keys;
    let finding = readable_part(part, keys, "a caller of the admin API")?;
    Some(finding.related(keys.node, "keys are shown as they are"))
}

fn readable_part(
    part: &Located<KeyPart>,
    keys: &Located<KeyForm>,
    reader: &str,
) -> Option<Finding> {
    let message = format!("{reader} can use what `{part}` has");
    let finding = Finding::warning(part.node, Code::LoggedCredentials, message);
    let is_shown = keys.value == KeyForm::Readable && has_credentials(part);
    is_shown.then(|| finding.help("use hashes, as without `keys: readable`"))
}

fn has_credentials(part: &Located<KeyPart>) -> bool {
    match &part.value {
        KeyPart::Cookie(_) => true,
        KeyPart::Header(name) => is_credential(name.get()),
        _ => false,
    }
}

fn is_credential(name: &HeaderName) -> bool {
    [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(name)
}

/// The least information of a token, in bits, that isn't called weak. A random token of 16
/// hexadecimal digits has about 48, `abc123abc123abc1` has 16.
const MIN_BITS: f64 = 30.0;
/// Words of placeholders and examples, a word before those that it contains.
const COMMON_WORDS: &str = "password passphrase passwd production sluicegate placeholder operator welcome \
    metrics changeme change default example insecure letmein replace please random sample secret string \
    foobar insert staging reader writer access admin dummy enter local proxy super token write value \
    goes here demo fill pass read some test this user with your api bar foo key prod put the";
/// The alphabet, and rows of keyboards.
const ROWS: &str =
    "abcdefghijklmnopqrstuvwxyz 12345678901234567890 qwertyuiop qwertzuiop asdfghjkl zxcvbnm";
/// The shortest part of a row that nobody draws by chance.
const SEQUENCE: usize = 5;

/// Warns of tokens that leave the machine in clear text, and of tokens that are easy to guess.
pub(super) fn admin_options(config: &Config) -> Vec<Finding> {
    let mut found: Vec<_> = weak_tokens(config).collect();
    let address = &config.admin.address;
    if !address.get().ip().is_loopback() && config.admin.tls.is_none() {
        let message = "tokens and answers of the admin API pass the network in clear text";
        let finding = Finding::warning(address.node, Code::CleartextCredentials, message);
        found.push(finding.help(
            "set `admin.tls`, or listen on `127.0.0.1`; if only a trusted network reaches this address, \
             list the warning in `check.allow`",
        ));
    }
    found
}

fn weak_tokens(config: &Config) -> impl Iterator<Item = Finding> {
    let debug = config.responses.debug.iter().map(|debug| &debug.token);
    let tokens = config.admin.tokens.all().chain(debug);
    let weak = tokens.filter(|token| token.text().is_some_and(is_weak));
    weak.map(move |token| {
        let message =
            "this token is easy to guess: it's made of few characters, sequences or common words";
        let finding = Finding::warning(token.node, Code::WeakToken, message);
        finding.help("`openssl rand -hex 32` prints a good one")
    })
}

/// True for a token that has little beside repetitions, words of placeholders, and sequences on a
/// keyboard or in the alphabet.
fn is_weak(token: &str) -> bool {
    let mut token = token.to_ascii_lowercase();
    token.retain(|letter| !"-_. ".contains(letter));
    let repeats = |rest: &str| token.starts_with(rest);
    let is_period = |&period: &usize| token.get(period..).is_some_and(repeats);
    token.truncate((1..token.len()).find(is_period).unwrap_or(token.len()));
    let words = COMMON_WORDS.split(' ');
    let rest = words.fold(token, |rest, word| rest.replace(word, ""));
    let mut letters = rest.into_bytes();
    letters.dedup();
    let rows: String = ROWS.chars().rev().chain(ROWS.chars()).collect();
    let mut rest = letters.clone();
    for (at, part) in letters.windows(SEQUENCE).enumerate() {
        if memchr::memmem::find(rows.as_bytes(), part).is_some() {
            rest[at..at + SEQUENCE].fill(0);
        }
    }
    rest.retain(|letter| *letter != 0);
    bits(&rest) < MIN_BITS
}

/// The information of a text whose characters were drawn with the frequencies that they have in it
/// (C. E. Shannon, "A Mathematical Theory of Communication", 1948).
fn bits(text: &[u8]) -> f64 {
    let length = text.len() as f64;
    let of_one = |byte: &u8| {
        let count = memchr::memchr_iter(*byte, text).count() as f64;
        (length / count).log2()
    };
    text.iter().map(of_one).sum()
}

/// Warns of secret fields that leave this machine in clear text.
pub(super) fn cleartext_credentials(config: &Config) -> Option<Finding> {
    let tracing = config.tracing.as_ref()?;
    let (name, _) = tracing.headers.first_key_value()?;
    let origin = &tracing.endpoint.origin;
    let host = &origin.host;
    if origin.scheme == Scheme::Https || is_loopback(host) {
        return None;
    }
    let message = format!("`{name}` goes to `{host}` in clear text");
    let finding = Finding::warning(name.node, Code::CleartextCredentials, message);
    let finding = finding.related(tracing.endpoint.node, "the collector");
    Some(finding.help("write the URL with `https://`, or run a collector on this machine"))
}

/// True for the addresses and the names of this machine (RFC 6761 section 6.3).
fn is_loopback(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    let is_local = host == "localhost" || host.ends_with(".localhost");
    address.map_or(is_local, |address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn guessable_tokens_are_told_from_random_ones() {
        for weak in [
            "aaaaaaaaaaaaaaaa",
            "passwordpassword",
            "abababababababababababab",
            "change-me-change-me",
            "0123456789abcdef",
            "fedcba9876543210",
            "1122334455667788",
            "qwertyuiopasdfgh",
            "QWERTZUIOPASDFGH",
            "mnbvcxzlkjhgfdsa",
            "YOUR-TOKEN-GOES-HERE",
            "replace_this_with_a_secret",
            "my-secret-token-1",
            "abc123abc123abc1",
            "admin1234admin1234",
            "reader-0123456789",
            "Password123Password123",
            "----------------",
        ] {
            assert!(is_weak(weak), "{weak}");
        }
        for strong in [
            "kT3vQz9LmW2xRb7c",
            "0f8b4c1d9e2a7356bd01fe4c88a07b19",
            "correct-horse-battery-staple",
            "\u{fc}\u{e9}\u{df}kT3vQz9LmW2xRb7c",
        ] {
            assert!(!is_weak(strong), "{strong}");
        }
    }

    proptest! {
        #[test]
        fn random_tokens_are_not_weak(bytes in any::<[u8; 16]>()) {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let mut uuid = hex.clone();
            for (at, mark) in [(8, "-"), (13, "-4"), (18, "-a"), (23, "-")] {
                uuid.insert_str(at, mark);
            }
            for token in [STANDARD.encode(bytes), URL_SAFE_NO_PAD.encode(bytes), hex, uuid] {
                // A shrunk case has few different bytes, which no random one has.
                let distinct = bytes.iter().collect::<HashSet<_>>().len();
                prop_assert!(!is_weak(&token) || distinct < 10, "{token}");
            }
        }
    }
}
