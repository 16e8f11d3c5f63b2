//! Checks of `jwt`: keys are given in one way, and used claims have a verifier.

use crate::config::claims;
use crate::config::diagnostic::Code;
use crate::config::document::NodeId;
use crate::config::finding::{Finding, Findings};
use crate::config::schema::{Config, JwtKey};
use crate::config::validate::{report_empty, report_repeated};

pub(in crate::config) fn check(config: &Config, findings: &Findings<'_>) {
    let used = claims::used(config);
    let Some(jwt) = &config.jwt else {
        for (name, node) in used {
            let message = format!("nothing verifies the tokens that say `{name}`");
            let finding = Finding::error(node, Code::MissingKey, message);
            findings.add(
                finding.help("say with which keys: `jwt: { keys: [{ jwks_file: keys.json }] }`"),
            );
        }
        return;
    };
    if used.is_empty() {
        let finding = Finding::warning(
            jwt.node,
            Code::Unused,
            "no key and no condition asks for a claim",
        );
        findings.add(
            finding
                .at_key()
                .help("name one, as in `key: jwt:sub`, or remove the section"),
        );
    }
    report_empty(&jwt.keys, findings, "name a key at least");
    jwt.keys
        .iter()
        .for_each(|key| check_key(key, key.node, findings));
    let audiences = jwt.audiences.iter().map(|one| (one.as_str(), one.node));
    report_repeated(audiences, findings, |one| {
        (format!("`{one}` twice"), "remove one of them")
    });
}

fn check_key(key: &JwtKey, node: NodeId, findings: &Findings<'_>) {
    let file = key.file.as_ref().map(|file| file.node);
    let algorithm = key.algorithm.as_ref().map(|algorithm| algorithm.node);
    let id = key.id.as_ref().map(|id| id.node);
    let finding = match (&key.jwks_file, file, algorithm) {
        (Some(set), ..) => {
            let Some(other) = file.or(algorithm).or(id) else {
                return;
            };
            let message = "the set says all of its keys itself";
            let finding =
                Finding::error(other, Code::Conflict, message).related(set.node, "the set");
            finding.help("use `jwks_file` alone, or `file` and `algorithm`")
        }
        (None, Some(_), Some(_)) => return,
        (None, Some(file), None) => {
            Finding::error(file, Code::MissingKey, "the key `algorithm` is missing")
                .help("say what the key is for: `algorithm: RS256`")
        }
        (None, None, _) => Finding::error(node, Code::MissingKey, "there is no file with a key")
            .help("name one: `{ jwks_file: keys.json }`, or `{ algorithm: RS256, file: key.pem }`"),
    };
    findings.add(finding);
}
