//! The result of a check in the Static Analysis Results Interchange Format (SARIF 2.1.0, OASIS).

use std::path::Path;

use serde::Serialize;

use super::section;
use crate::config::{CheckReport, Code, Place, Problem, Severity};

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The file of one run of the tool.
#[derive(Serialize)]
pub(super) struct Log<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run<'a> {
    tool: Tool,
    column_kind: &'static str,
    results: Vec<Finding<'a>>,
}

#[derive(Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Serialize)]
struct Driver {
    name: &'static str,
    version: &'static str,
    rules: Vec<Rule>,
}

/// A kind of problem.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    id: &'static str,
    short_description: Text<'static>,
    help: Help,
    default_configuration: Configuration,
}

#[derive(Serialize)]
struct Configuration {
    level: Severity,
}

#[derive(Serialize)]
struct Text<'a> {
    text: &'a str,
}

#[derive(Serialize)]
struct Help {
    text: String,
    markdown: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding<'a> {
    rule_id: &'static str,
    rule_index: usize,
    level: Severity,
    message: Message,
    locations: [Location<'a>; 1],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    related_locations: Vec<Location<'a>>,
}

#[derive(Serialize)]
struct Message {
    text: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Location<'a> {
    physical_location: PhysicalLocation,
    #[serde(skip_serializing_if = "Option::is_none")]
    logical_locations: Option<[LogicalLocation<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Text<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PhysicalLocation {
    artifact_location: Artifact,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<Region>,
}

#[derive(Serialize)]
struct Artifact {
    uri: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: usize,
    start_column: usize,
    end_line: usize,
    end_column: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LogicalLocation<'a> {
    fully_qualified_name: &'a str,
}

/// The problems of all files, and the rules that they break.
pub(super) fn log(files: &[CheckReport]) -> Log<'_> {
    let problems = || files.iter().flat_map(|file| &file.findings);
    let rules: Vec<_> = Code::all()
        .filter(|code| problems().any(|problem| problem.code == *code))
        .collect();
    let results = files.iter().flat_map(|file| {
        let uri = uri(&file.file);
        let rules = &rules;
        let findings = file.findings.iter();
        findings.filter_map(move |problem| finding(problem, &uri, rules))
    });
    Log {
        schema: SCHEMA,
        version: "2.1.0",
        runs: [Run {
            results: results.collect(),
            tool: Tool {
                driver: Driver {
                    name: env!("CARGO_PKG_NAME"),
                    version: env!("CARGO_PKG_VERSION"),
                    rules: rules.into_iter().map(rule).collect(),
                },
            },
            column_kind: "unicodeCodePoints",
        }],
    }
}

fn rule(code: Code) -> Rule {
    let id = code.as_str();
    let description = code.description();
    let (help, page) = match code.is_lint() {
        true => (section(id), format!("docs/lints.md#{id}")),
        false => (
            description,
            "docs/configuration.md#what-check-finds".to_owned(),
        ),
    };
    let help = help.trim_end();
    Rule {
        id,
        short_description: Text { text: description },
        help: Help {
            text: format!("{help}\n\nSee {page}."),
            markdown: format!("{help}\n\nSee [{page}]({page})."),
        },
        default_configuration: Configuration {
            level: match code.is_lint() {
                true => Severity::Warning,
                false => Severity::Error,
            },
        },
    }
}

fn finding<'a>(problem: &'a Problem, uri: &str, rules: &[Code]) -> Option<Finding<'a>> {
    let rule_index = rules.iter().position(|rule| *rule == problem.code)?;
    let help = problem.help.as_ref();
    let help = help.map(|help| format!("; {help}")).unwrap_or_default();
    let path = Some(problem.path.as_str()).filter(|path| !path.is_empty());
    let related = problem.related.iter().map(|related| Location {
        physical_location: physical(uri, Some(related.place)),
        logical_locations: None,
        message: Some(Text {
            text: &related.message,
        }),
    });
    Some(Finding {
        rule_id: problem.code.as_str(),
        rule_index,
        level: problem.severity,
        message: Message {
            text: format!("{}{help}", problem.message),
        },
        locations: [Location {
            physical_location: physical(uri, problem.place),
            logical_locations: path.map(|fully_qualified_name| {
                [LogicalLocation {
                    fully_qualified_name,
                }]
            }),
            message: None,
        }],
        related_locations: related.collect(),
    })
}

fn physical(uri: &str, place: Option<Place>) -> PhysicalLocation {
    PhysicalLocation {
        artifact_location: Artifact {
            uri: uri.to_owned(),
        },
        region: place.map(|place| Region {
            start_line: place.line,
            start_column: place.column,
            end_line: place.end_line,
            end_column: place.end_column,
        }),
    }
}

/// The path as a URI reference (RFC 3986), relative unless the path is absolute.
fn uri(file: &str) -> String {
    let scheme = match Path::new(file).is_absolute() {
        true => "file://",
        false => "",
    };
    let relative = file.strip_prefix("./").unwrap_or(file);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let mut uri = scheme.to_owned();
    for byte in relative.bytes() {
        match plain(byte) {
            true => uri.push(char::from(byte)),
            false => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
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
