//! The result of a check in the Static Analysis Results Interchange Format (SARIF 2.1.0, OASIS).

use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::section;
use crate::config::{CheckReport, Code, Place, Problem, Severity};

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// All but the unreserved characters of URIs and the slash.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// The log of one run: the problems of all files, and the rules that they break.
pub(super) fn log(files: &[CheckReport]) -> Value {
    let problems = || files.iter().flat_map(|file| &file.findings);
    let rules: Vec<_> = Code::all()
        .filter(|code| problems().any(|problem| problem.code == *code))
        .collect();
    let results = files.iter().flat_map(|file| {
        let uri = uri(&file.file);
        let rules = &rules;
        let findings = file.findings.iter();
        findings.filter_map(move |problem| result(problem, &uri, rules))
    });
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {
                "driver": {
                    "name": env!("CARGO_PKG_NAME"),
                    "version": env!("CARGO_PKG_VERSION"),
                    "rules": rules.iter().copied().map(rule).collect::<Vec<_>>(),
                },
            },
            "columnKind": "unicodeCodePoints",
            "results": results.collect::<Vec<_>>(),
        }],
    })
}

/// A kind of problem.
fn rule(code: Code) -> Value {
    let id = code.as_str();
    let (help, page, level) = if code.is_lint() {
        (
            section(id),
            format!("docs/lints.md#{id}"),
            Severity::Warning,
        )
    } else {
        (
            code.description(),
            "docs/configuration.md#what-check-finds".to_owned(),
            Severity::Error,
        )
    };
    let help = help.trim_end();
    json!({
        "id": id,
        "shortDescription": { "text": code.description() },
        "help": {
            "text": format!("{help}\n\nSee {page}."),
            "markdown": format!("{help}\n\nSee [{page}]({page})."),
        },
        "defaultConfiguration": { "level": level },
    })
}

fn result(problem: &Problem, uri: &str, rules: &[Code]) -> Option<Value> {
    let is_broken = |rule: &Code| *rule == problem.code;
    let help = problem.help.as_ref();
    let help = help.map(|help| format!("; {help}")).unwrap_or_default();
    let mut location = location(uri, problem.place.as_ref());
    if !problem.path.is_empty() {
        location["logicalLocations"] = json!([{ "fullyQualifiedName": problem.path }]);
    }
    let mut result = json!({
        "ruleId": problem.code.as_str(),
        "ruleIndex": rules.iter().position(is_broken)?,
        "level": problem.severity,
        "message": { "text": format!("{}{help}", problem.message) },
        "locations": [location],
    });
    if !problem.related.is_empty() {
        let related = problem.related.iter().map(|related| {
            let mut location = self::location(uri, Some(&related.place));
            location["message"] = json!({ "text": related.message });
            location
        });
        result["relatedLocations"] = related.collect();
    }
    Some(result)
}

/// A place of the file at `main`, or of one that it includes.
fn location(main: &str, place: Option<&Place>) -> Value {
    let included = place.and_then(|place| place.file.as_deref()).map(uri);
    let uri = included.as_deref().unwrap_or(main);
    let mut physical = json!({ "artifactLocation": { "uri": uri } });
    if let Some(place) = place {
        physical["region"] = json!({
            "startLine": place.line,
            "startColumn": place.column,
            "endLine": place.end_line,
            "endColumn": place.end_column,
        });
    }
    json!({ "physicalLocation": physical })
}

/// The path as a URI reference (RFC 3986), relative unless the path is absolute.
fn uri(file: &str) -> String {
    let scheme = if Path::new(file).is_absolute() {
        "file://"
    } else {
        ""
    };
    let relative = file.strip_prefix("./").unwrap_or(file);
    format!("{scheme}{}", utf8_percent_encode(relative, ENCODED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_references() {
        assert_eq!(uri("./conf/a b.yaml"), "conf/a%20b.yaml");
        assert_eq!(uri("/etc/ä.yaml"), "file:///etc/%C3%A4.yaml");
        assert_eq!(uri("a:b"), "a%3Ab");
    }
}
