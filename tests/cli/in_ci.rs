//! `check` and `explain` as a pipeline runs them: formats for machines, exit codes, stdin, colours.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A configuration without problems.
const SOUND: &str = "routes: [{ upstream: echo, limits: [{ key: client_ip, quota: 100/1m }] }]\n";
/// One warning: a client that changes its key is never refused.
const FORGEABLE: &str =
    "routes:\n  - { upstream: echo, limits: [{ key: header:x-api-key, quota: 100/1m }] }\n";
/// Two errors, of which one is related to another place.
const WRONG: &str = "\
upstreams: { api: { endpoints: [http://127.0.0.1:1] } }
routes:
  - { name: a, match: { path: /a }, upstream: apj }
  - { name: a, upstream: echo }
";

/// A directory with these files.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (name, text) in files {
        fs::write(dir.path().join(name), text).expect("the directory is writable");
    }
    dir
}

fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    command.args(arguments).current_dir(dir);
    for variable in ["SLUICEGATE_CONFIG", "NO_COLOR", "CLICOLOR_FORCE", "TERM"] {
        command.env_remove(variable);
    }
    command
}

fn run(dir: &Path, arguments: &[&str]) -> Output {
    let output = command(dir, arguments).output();
    output.expect("the binary starts")
}

#[track_caller]
fn json_of(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn check_tells_machines_all_that_it_tells_people() {
    let dir = directory(&[
        ("sound.yaml", SOUND),
        ("forgeable.yaml", FORGEABLE),
        ("wrong.yaml", WRONG),
    ]);
    let files = ["sound.yaml", "forgeable.yaml", "wrong.yaml"];
    let output = run(dir.path(), &[&["check", "--json"], &files[..]].concat());
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(1), ""));
    let told = json_of(&output);
    let of = |index: usize, key: &str| told["files"][index][key].clone();
    assert_eq!(
        files.map(Value::from),
        [0, 1, 2].map(|index| of(index, "file"))
    );
    let verdicts = [0, 1, 2].map(|index| of(index, "verdict"));
    assert_eq!(verdicts, ["sound", "usable", "invalid"]);
    assert_eq!(of(0, "findings"), json!([]));
    assert!(of(0, "memory_bytes").as_u64() > Some(1_000_000), "{told}");
    assert_eq!([of(1, "errors"), of(1, "warnings")], [0, 1]);
    assert_eq!([of(2, "errors"), of(2, "warnings")], [2, 0]);

    let mut forgeable = told["files"][1]["findings"][0].clone();
    let help = forgeable["help"].take();
    assert!(
        help.as_str().is_some_and(|help| help.contains("client_ip")),
        "{help}"
    );
    let expected = json!({
        "severity": "warning",
        "code": "forgeable-key",
        "message": "a client that sends another `header:x-api-key` each time is never refused",
        "line": 2, "column": 39, "end_line": 2, "end_column": 55,
        "path": "routes[0].limits[0].key",
        "help": null,
        "related": [{
            "line": 2, "column": 7, "end_line": 2, "end_column": 15,
            "message": "nothing else limits these requests",
        }],
    });
    assert_eq!(forgeable, expected);
    let codes = ["unknown-name", "duplicate-name"].map(Value::from);
    assert_eq!(
        [0, 1].map(|index| of(2, "findings")[index]["code"].clone()),
        codes
    );

    // The same, asked for in the other way.
    let long = run(dir.path(), &["check", "--format", "json", "forgeable.yaml"]);
    assert_eq!(json_of(&long)["files"][0], told["files"][1]);
}

#[test]
fn check_says_in_json_what_becomes_of_buckets() {
    let old = "policies: { a: { quota: 5/1h }, b: { quota: 5/1h }, c: { quota: 5/1h } }\n\
               routes: [{ upstream: echo, limits: [a, b, c] }]\n";
    let new = "policies: { a: { quota: 9/1h }, b: { quota: 5/1h, key: route }, d: { quota: 5/1h } }\n\
               routes: [{ upstream: echo, limits: [a, b, d] }]\n";
    let dir = directory(&[("old.yaml", old), ("new.yaml", new)]);
    let output = run(
        dir.path(),
        &["check", "--json", "new.yaml", "--against", "old.yaml"],
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let change = |policy: &str, key: &str, outcome: &str, reason: Option<&str>| json!({ "policy": policy, "key": key, "override": null, "outcome": outcome, "reason": reason });
    let expected = [
        change("a", "client_ip", "rescaled", Some("5/1h becomes 9/1h")),
        change("b", "route or client_ip", "new", None),
        change("d", "client_ip", "new", None),
        change(
            "b",
            "client_ip",
            "reset",
            Some("the key becomes route or client_ip"),
        ),
        change("c", "client_ip", "ends", None),
    ];
    assert_eq!(json_of(&output)["files"][0]["buckets"], json!(expected));

    let output = run(
        dir.path(),
        &["check", "--json", "new.yaml", "--against", "missing.yaml"],
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        stderr(&output).contains("missing.yaml"),
        "{}",
        stderr(&output)
    );
    assert_eq!(json_of(&output)["files"][0].get("buckets"), None);
}

/// The constraints of the format's schema on the parts that are written, and the rules that code
/// hosts add.
fn sarif_schema() -> Value {
    let text = json!({
        "type": "object", "required": ["text"], "additionalProperties": false,
        "properties": { "text": { "type": "string", "minLength": 1 }, "markdown": { "type": "string", "minLength": 1 } },
    });
    let number = json!({ "type": "integer", "minimum": 1 });
    let location = json!({
        "type": "object", "required": ["physicalLocation"], "additionalProperties": false,
        "properties": {
            "message": text,
            "physicalLocation": {
                "type": "object", "required": ["artifactLocation"], "additionalProperties": false,
                "properties": {
                    "artifactLocation": {
                        "type": "object", "required": ["uri"], "additionalProperties": false,
                        "properties": { "uri": { "type": "string", "format": "uri-reference" } },
                    },
                    "region": {
                        "type": "object", "additionalProperties": false,
                        "required": ["startLine", "startColumn", "endLine", "endColumn"],
                        "properties": {
                            "startLine": number, "startColumn": number, "endLine": number, "endColumn": number,
                        },
                    },
                },
            },
            "logicalLocations": {
                "type": "array", "uniqueItems": true, "items": {
                    "type": "object", "required": ["fullyQualifiedName"], "additionalProperties": false,
                    "properties": { "fullyQualifiedName": { "type": "string", "minLength": 1 } },
                },
            },
        },
    });
    let level = json!({ "enum": ["none", "note", "warning", "error"] });
    let rule = json!({
        "type": "object", "additionalProperties": false,
        "required": ["id", "shortDescription", "help", "defaultConfiguration"],
        "properties": {
            "id": { "type": "string", "minLength": 1 },
            "shortDescription": text,
            "help": text,
            "defaultConfiguration": {
                "type": "object", "additionalProperties": false, "properties": { "level": level },
            },
        },
    });
    let result = json!({
        "type": "object", "additionalProperties": false,
        "required": ["ruleId", "ruleIndex", "level", "message", "locations"],
        "properties": {
            "ruleId": { "type": "string" },
            "ruleIndex": { "type": "integer", "minimum": 0 },
            "level": level,
            "message": text,
            "locations": { "type": "array", "minItems": 1, "items": location },
            "relatedLocations": { "type": "array", "uniqueItems": true, "items": location },
        },
    });
    json!({
        "type": "object", "required": ["version", "runs"], "additionalProperties": false,
        "properties": {
            "$schema": { "type": "string", "format": "uri" },
            "version": { "const": "2.1.0" },
            "runs": { "type": "array", "items": {
                "type": "object", "required": ["tool", "results"], "additionalProperties": false,
                "properties": {
                    "columnKind": { "enum": ["utf16CodeUnits", "unicodeCodePoints"] },
                    "results": { "type": "array", "items": result },
                    "tool": { "type": "object", "required": ["driver"], "properties": { "driver": {
                        "type": "object", "required": ["name"], "additionalProperties": false,
                        "properties": {
                            "name": { "const": "sluicegate" },
                            "version": { "type": "string" },
                            "rules": { "type": "array", "uniqueItems": true, "items": rule },
                        },
                    } } },
                },
            } },
        },
    })
}

#[test]
fn check_writes_sarif_that_its_schema_accepts() {
    let dir = directory(&[
        ("sound.yaml", SOUND),
        ("forge able.yaml", FORGEABLE),
        ("wrong.yaml", WRONG),
    ]);
    let arguments = [
        "check",
        "--format",
        "sarif",
        "sound.yaml",
        "./forge able.yaml",
        "wrong.yaml",
        "missing.yaml",
    ];
    let output = run(dir.path(), &arguments);
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(1), ""));
    let log = json_of(&output);
    let schema = jsonschema::options()
        .should_validate_formats(true)
        .build(&sarif_schema());
    let schema = schema.expect("a schema");
    let errors: Vec<_> = schema
        .iter_errors(&log)
        .map(|error| error.to_string())
        .collect();
    assert_eq!(errors, [""; 0], "{log}");

    let run = &log["runs"][0];
    let (rules, results) = (&run["tool"]["driver"]["rules"], &run["results"]);
    let results = results.as_array().expect("a list");
    let told = results.iter().map(|result| {
        let place = &result["locations"][0]["physicalLocation"];
        let (uri, line) = (
            &place["artifactLocation"]["uri"],
            &place["region"]["startLine"],
        );
        let rule = &rules[result["ruleIndex"].as_u64().expect("an index") as usize];
        assert_eq!(rule["id"], result["ruleId"]);
        let [id, level, uri] = [&result["ruleId"], &result["level"], uri];
        let [id, level, uri] = [id, level, uri].map(|text| text.as_str().expect("a text"));
        (id, level, uri, line.as_u64())
    });
    let expected = [
        ("forgeable-key", "warning", "forge%20able.yaml", Some(2)),
        ("unknown-name", "error", "wrong.yaml", Some(3)),
        ("duplicate-name", "error", "wrong.yaml", Some(4)),
        ("unreadable", "error", "missing.yaml", None),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    let rules = rules.as_array().expect("a list");
    assert_eq!(rules.len(), 4, "those that are broken");
    for rule in rules {
        let id = rule["id"].as_str().expect("a text");
        let page = match id {
            "forgeable-key" => "docs/lints.md#forgeable-key",
            _ => "docs/configuration.md#what-check-finds",
        };
        let help = rule["help"]["markdown"].as_str().expect("a text");
        assert!(help.ends_with(&format!("See [{page}]({page}).")), "{help}");
    }
    let forgeable = rules.iter().find(|rule| rule["id"] == "forgeable-key");
    let help = forgeable.expect("it is broken")["help"]["text"].as_str();
    assert!(
        help.is_some_and(|help| help.contains("**Fix.**")),
        "{help:?}"
    );
}

#[test]
fn warnings_fail_only_where_they_are_denied() {
    let dir = directory(&[("sound.yaml", SOUND), ("forgeable.yaml", FORGEABLE)]);
    for (code, arguments) in [
        (0, "check forgeable.yaml"),
        (1, "check forgeable.yaml --deny-warnings"),
        (1, "check forgeable.yaml sound.yaml --deny-warnings --json"),
        (1, "check forgeable.yaml --deny-warnings --format sarif"),
        (0, "check sound.yaml --deny-warnings"),
        (2, "check --explain unused --deny-warnings"),
        (2, "check sound.yaml --json --format sarif"),
    ] {
        let arguments: Vec<_> = arguments.split(' ').collect();
        let output = run(dir.path(), &arguments);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {output:?}"
        );
    }
    let denied = run(dir.path(), &["check", "forgeable.yaml", "--deny-warnings"]);
    let said = stderr(&denied);
    assert!(said.contains("warning[forgeable-key]"), "{said}");
    assert!(
        said.ends_with("warnings are denied: fix them, or drop --deny-warnings\n"),
        "{said}"
    );
    assert_eq!(denied.stdout, b"", "it is not called usable");
}

#[test]
fn commands_read_stdin() {
    let dir = directory(&[]);
    let given = |arguments: &[&str], text: &[u8]| {
        let mut process = command(dir.path(), arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stdin = process.stdin.take().expect("stdin is a pipe");
        stdin.write_all(text).expect("it is read");
        drop(stdin);
        process.wait_with_output().expect("it is our child")
    };
    let checked = |text: &[u8]| given(&["check", "-"], text);
    for (text, code) in [
        (SOUND.as_bytes(), 0),
        (WRONG.as_bytes(), 1),
        (b"a: \xff\n", 1),
    ] {
        let explain = ["explain", "GET", "http://a/", "--config", "-"];
        let output = given(&explain, text);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        if code == 1 {
            let output = given(&["run", "--config", "-"], text);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert!(stderr(&output).contains("stdin"), "{}", stderr(&output));
        }
    }
    let output = checked(SOUND.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stdout.starts_with(b"stdin: sound; "), "{output:?}");
    let output = checked(WRONG.as_bytes());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        stderr(&output).contains("--> stdin:3:"),
        "{}",
        stderr(&output)
    );
    for (text, what) in [
        (&b"a: \xff\n"[..], "it isn't UTF-8 text"),
        (b"\xff\xfea\0", "it is UTF-16"),
    ] {
        let output = checked(text);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains(what), "{}", stderr(&output));
    }
}

#[test]
fn no_client_makes_up_a_listed_key() {
    let access = |allow: &str| {
        format!(
            "routes:
  - upstream: echo
    access: {{ allow: [{allow}] }}
    limits: [{{ key: header:x-plan, quota: 1/1s }}]
"
        )
    };
    let when = |when: &str| {
        format!(
            "routes: [{{ upstream: echo, limits: [{{ key: cookie:tier, quota: 1/1s, when: {when} }}] }}]"
        )
    };
    for (text, is_listed) in [
        (
            access("{ header: { x-plan: gold } }, { header: { x-plan: { exact: tin } } }"),
            true,
        ),
        (
            access("{ all: [{ header: { x-plan: gold } }, { method: [GET] }] }"),
            true,
        ),
        (
            access("{ header: { x-plan: gold } }, { method: [GET] }"),
            false,
        ),
        (access("{ header: { x-plan: { prefix: g } } }"), false),
        (access("{ header: { x-other: gold } }"), false),
        (
            when("{ any: [{ cookie: { tier: a } }, { cookie: { tier: b } }] }"),
            true,
        ),
        (when("{ not: { cookie: { tier: a } } }"), false),
    ] {
        let dir = directory(&[("sluicegate.yaml", &text)]);
        let output = run(dir.path(), &["check"]);
        let warns = stderr(&output).contains("forgeable-key");
        assert_eq!(warns, !is_listed, "{text}{output:?}");
    }
}

#[test]
fn check_finds_the_file_that_run_would() {
    let dir = directory(&[("sluicegate.yaml", WRONG), ("other.yaml", FORGEABLE)]);
    let named = |output: &Output| stderr(output).lines().last().unwrap_or_default().to_owned();
    let output = run(dir.path(), &["check"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(named(&output), "sluicegate.yaml: 2 errors");
    let mut with_variable = command(dir.path(), &["check"]);
    let output = with_variable
        .env("SLUICEGATE_CONFIG", "other.yaml")
        .output();
    assert_eq!(
        named(&output.expect("the binary starts")),
        "other.yaml: 1 warning"
    );
    for option in ["--config", "-c"] {
        let output = run(dir.path(), &["check", option, "other.yaml"]);
        assert_eq!(named(&output), "other.yaml: 1 warning");
    }
    let both = run(
        dir.path(),
        &["check", "--config", "other.yaml", "sluicegate.yaml"],
    );
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    let empty = directory(&[]);
    let output = run(empty.path(), &["check"]);
    assert_eq!(
        output.status.code(),
        Some(1),
        "a wrong directory: {output:?}"
    );
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(
        stderr(&output).contains("no configuration found: "),
        "{}",
        stderr(&output)
    );
}

/// A route that is open, and one that is closed to all.
const ANSWERS: &str = "\
policies:
  closed: { key: header:x-api-key, on_missing_key: refuse, quota: 0/1h }
  open: { key: client_ip, quota: 90/1h, burst: 90 }
routes:
  - { name: open, match: { path: /open }, upstream: echo, limits: [open] }
  - { name: closed, match: { path: /closed }, upstream: echo, limits: [open, closed] }
";

#[test]
fn explain_fails_on_another_answer_than_the_expected_one() {
    let dir = directory(&[("sluicegate.yaml", ANSWERS)]);
    for (code, url, expected, says) in [
        (0, "http://a/open", "allowed", ""),
        (0, "http://a/closed", "limited", ""),
        (
            1,
            "http://a/open",
            "limited",
            "the request should be limited, but the answer is: allowed, and forwarded to echo\n",
        ),
        (
            1,
            "http://a/closed",
            "allowed",
            "the request should be allowed, but the answer is: limited by closed: 400 Bad Request\n",
        ),
        (
            1,
            "http://a/other",
            "allowed",
            "the request should be allowed, but the answer is: 404 Not Found\n",
        ),
        (
            1,
            "http://a/%2f",
            "limited",
            "the request should be limited, but the answer is: 400 Bad Request: The path has an encoded slash, or a backslash.\n",
        ),
        (0, "http://a/%2f", "400", ""),
        (0, "http://a/other", "404", ""),
        (
            1,
            "http://a/open",
            "404",
            "the request should get 404, but the answer is: allowed, and forwarded to echo\n",
        ),
        (
            2,
            "http://a/open",
            "delayed",
            "write `allowed`, `limited`, or a status such as 401",
        ),
    ] {
        let output = run(dir.path(), &["explain", "GET", url, "--expect", expected]);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{url} {expected}: {output:?}"
        );
        let said = stderr(&output);
        match code {
            2 => assert!(said.contains(says), "{said}"),
            _ => assert_eq!(said, says),
        }
        assert_eq!(
            output.stdout.is_empty(),
            code == 2,
            "the explanation is printed"
        );
    }
}

#[test]
fn explain_tells_machines_all_that_it_tells_people() {
    let dir = directory(&[("sluicegate.yaml", ANSWERS)]);
    let explained = |arguments: &[&str]| {
        let output = run(
            dir.path(),
            &[&["explain", "--json", "GET"], arguments].concat(),
        );
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        json_of(&output)
    };
    let mut open = explained(&["http://a/open", "--from", "192.0.2.7"]);
    let text = open["text"].take();
    let text = text.as_str().expect("a text");
    assert!(
        text.starts_with("request   GET http://a/open\nclient    192.0.2.7\n"),
        "{text}"
    );
    assert!(text.contains("full again in 40s\n"), "{text}");
    let at = open["at"].take();
    assert!(at.as_str().is_some_and(|at| at.ends_with('Z')), "{at}");
    let reset = open["limits"][0]["reset_ms"].take();
    assert_eq!(reset, 40_000);
    let limit = json!({
        "policy": "open", "algorithm": "gcra", "quota": "90/1h",
        "key": [{ "part": "client_ip", "value": "192.0.2.7", "state": "present" }],
        "store": "memory", "mode": "enforce", "action": "reject",
        "bucket": 1, "cost": 1, "cost_is_settled": false,
        "decision": "allowed", "remaining": 89, "reset_ms": null,
    });
    let expected = json!({
        "at": null,
        "request": { "method": "GET", "url": "http://a/open" },
        "client_ip": "192.0.2.7", "host": "a", "path": "/open",
        "route": "open", "not_matched": [], "not_matched_omitted": 0,
        "limits": [limit],
        "answer": { "decision": "allowed", "upstream": "echo" },
        "text": null,
    });
    assert_eq!(open, expected);

    let closed = explained(&["http://a/closed"]);
    assert_eq!(closed["limits"][1]["reason"], "key_missing");
    let key = json!([{ "part": "header:x-api-key", "state": "missing" }]);
    assert_eq!(closed["limits"][1]["key"], key);
    let answer =
        json!({ "decision": "limited", "policy": "closed", "action": "reject", "status": 400 });
    assert_eq!(closed["answer"], answer);

    let nowhere = explained(&["http://a/other"]);
    let answer =
        json!({ "decision": "answered", "status": 404, "detail": "No route takes this request." });
    assert_eq!(nowhere["answer"], answer);
    let reason = json!({ "route": "open", "reason": "another path" });
    assert_eq!(nowhere["not_matched"][0], reason);

    let broken = explained(&["http://a/%2f"]);
    assert_eq!(broken["answer"]["status"], 400);
    assert_eq!(broken["limits"], json!([]));
}

#[test]
fn explain_says_when_a_bucket_is_whole_as_people_say_it() {
    let config =
        "routes: [{ upstream: echo, limits: [{ algorithm: fixed_window, quota: 5/1d }] }]\n";
    let dir = directory(&[("sluicegate.yaml", config)]);
    let output = run(dir.path(), &["explain", "GET", "http://a/"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = text
        .split_once("4 left, full again in ")
        .expect("a decision")
        .1;
    let said = said.lines().next().expect("a line");
    let (wait, end) = said.split_once(", at ").unwrap_or((said, " 00:00 UTC"));
    assert!(end.ends_with(" 00:00 UTC"), "{text}");
    assert!(wait.ends_with(['h', 'm', 's']), "{text}");
}

#[test]
fn the_environment_decides_about_colours() {
    let dir = directory(&[("wrong.yaml", WRONG)]);
    let coloured = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = command(dir.path(), arguments);
        let output = command.envs(variables.iter().copied()).output();
        stderr(&output.expect("the binary starts")).contains('\u{1b}')
    };
    for arguments in [
        &["check", "wrong.yaml"][..],
        &["run", "--config", "wrong.yaml"],
    ] {
        assert!(!coloured(&[], arguments), "it is no terminal");
        assert!(coloured(&[("CLICOLOR_FORCE", "1")], arguments));
        assert!(!coloured(
            &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")],
            arguments
        ));
    }
    // A terminal, as `script` makes one.
    let on_a_terminal = |variables: &str| {
        let binary = env!("CARGO_BIN_EXE_sluicegate");
        let line = format!("env {variables} {binary} check wrong.yaml");
        let output = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .current_dir(dir.path())
            .env_remove("NO_COLOR")
            .stdin(Stdio::null())
            .output();
        let output = output.expect("script is installed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("wrong.yaml"), "{output:?}");
        text.contains('\u{1b}')
    };
    assert!(on_a_terminal("TERM=xterm"));
    assert!(!on_a_terminal("TERM=xterm NO_COLOR=1"));
    assert!(!on_a_terminal("TERM=dumb"));
}

#[test]
fn only_a_file_that_is_not_there_is_passed_over() {
    let dir = directory(&[]);
    // A link to itself: whether there is a file behind it can't be known, whoever asks.
    std::os::unix::fs::symlink("sluicegate.yaml", dir.path().join("sluicegate.yaml"))
        .expect("the directory is writable");
    for arguments in [&[][..], &["check"], &["status"]] {
        let output = run(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let (told, file) = (stderr(&output), "/sluicegate.yaml cannot be read: ");
        assert!(told.contains(file) && !told.contains("built-in"), "{told}");
    }
}

#[test]
fn a_configuration_without_buckets_names_no_memory() {
    let dir = directory(&[("sluicegate.yaml", "routes: [{ upstream: echo }]\n")]);
    let output = run(dir.path(), &["check"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "sluicegate.yaml: sound\n");
}
