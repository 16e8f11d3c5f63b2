//! The admin listener: who can read what goes over it, and who can guess its tokens.

use super::Finding;
use crate::config::diagnostic::Code;
use crate::config::schema::Config;

/// The least information of a token, in bits, that isn't called weak. A random token of 16 characters
/// has about 60, `passwordpassword` has 44.
const MIN_BITS: f64 = 48.0;

/// Warns of tokens that leave the machine in clear text, and of tokens that are easy to guess.
pub(super) fn options(config: &Config) -> Vec<Finding> {
    let mut found = weak_tokens(config);
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

fn weak_tokens(config: &Config) -> Vec<Finding> {
    let debug = config.responses.debug.iter().map(|debug| &debug.token);
    let tokens = config.admin.tokens.all().chain(debug);
    let weak = tokens.filter(|token| token.text().is_some_and(|text| bits(text) < MIN_BITS));
    let findings = weak.map(|token| {
        let message = "this token is easy to guess: it repeats few characters";
        let finding = Finding::warning(token.node, Code::WeakToken, message);
        finding.help("`openssl rand -hex 32` prints a good one")
    });
    findings.collect()
}

/// The information of a text whose characters were drawn with the frequencies that they have in it
/// (C. E. Shannon, "A Mathematical Theory of Communication", 1948).
fn bits(text: &str) -> f64 {
    let length = text.len() as f64;
    let of_one = |byte: u8| {
        let count = memchr::memchr_iter(byte, text.as_bytes()).count() as f64;
        (length / count).log2()
    };
    text.bytes().map(of_one).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_characters_are_told_from_random_ones() {
        for weak in [
            "aaaaaaaaaaaaaaaa",
            "passwordpassword",
            "abababababababababababab",
        ] {
            assert!(bits(weak) < MIN_BITS, "{weak}: {}", bits(weak));
        }
        for strong in [
            "kT3vQz9LmW2xRb7c",
            "0f8b4c1d9e2a7356bd01fe4c88a07b19",
            "reader-0123456789",
        ] {
            assert!(bits(strong) >= MIN_BITS, "{strong}: {}", bits(strong));
        }
    }
}
