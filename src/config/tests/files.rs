//! Fixtures: files in `valid/` load, files in `invalid/` give the report in the `.txt` beside them.
//! A new case is a new file; `UPDATE_EXPECTED=1` writes the reports.
//!
//! Comments at the top of a file set it up: `# env: NAME=value` sets a variable, and
//! `# schema: rejects` says that the JSON Schema already finds the mistake.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::clock::Timestamp;
use crate::config::{self, Audience, Colour, Loaded, Report};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn fixtures(kind: &str) -> Vec<PathBuf> {
    let directory = root().join("tests/fixtures/config").join(kind);
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .expect("the fixtures are there")
        .map(|entry| entry.expect("the directory can be read").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn name(path: &Path) -> String {
    path.file_name()
        .expect("it is a file")
        .to_string_lossy()
        .into_owned()
}

fn parse(path: &Path) -> Result<Loaded, Report> {
    let text = read(path);
    let variables: HashMap<_, _> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# env: ")?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    config::parse(&name(path), text, &|name| variables.get(name).cloned())
}

/// An editor's verdict on a text; `None` if it is not YAML.
fn accepted_by_the_schema(text: &str) -> Option<Result<(), String>> {
    let schema = serde_json::from_str(&config::json_schema()).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is a schema");
    let instance: serde_json::Value =
        serde_yaml::from_str(text.trim_start_matches('\u{feff}')).ok()?;
    Some(
        validator
            .validate(&instance)
            .map_err(|error| format!("{} at {}", error, error.instance_path())),
    )
}

#[test]
fn the_schema_accepts_every_valid_file() {
    for path in fixtures("valid")
        .into_iter()
        .chain([root().join("config.example.yaml")])
    {
        let verdict = accepted_by_the_schema(&read(&path));
        assert_eq!(verdict, Some(Ok(())), "{}", path.display());
    }
}

#[test]
fn the_schema_rejects_mistakes_that_it_can_express() {
    let mut wrong = Vec::new();
    for path in fixtures("invalid") {
        let text = read(&path);
        let rejected = accepted_by_the_schema(&text).is_some_and(|verdict| verdict.is_err());
        let marked = text
            .trim_start_matches('\u{feff}')
            .lines()
            .any(|line| line == "# schema: rejects");
        if rejected != marked {
            wrong.push(path);
        }
    }
    assert!(
        wrong.is_empty(),
        "`# schema: rejects` is missing, or wrong: {wrong:#?}"
    );
}

#[test]
fn ten_thousand_routes_load() {
    let route = |n: usize| {
        format!(
            "  - name: route-{n}\n    match: {{ hosts: [api-{n}.example.com], path: \"/v1/items-{n}/{{id}}\", methods: [GET, POST] }}\n    \
             limits:\n      - {{ key: [client_ip, \"path:id\"], quota: 30/1s, algorithm: sliding_window }}\n    upstream: echo\n"
        )
    };
    let text = std::iter::once("routes:\n".to_owned())
        .chain((0..10_000).map(route))
        .collect();
    let loaded =
        config::parse("many.yaml", text, &|_| None).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.config.routes.len(), 10_000);
}

#[test]
fn ten_thousand_routes_may_stand_on_one_anchor() {
    let first = "policies: { p: { quota: 5/1s } }\n\
         routes:\n  - &common { match: { path: /first }, upstream: echo, limits: &limits [p] }\n";
    let routes = |n: usize| {
        format!(
            "  - {{ <<: *common, match: {{ path: /merged/{n} }} }}\n  \
             - {{ match: {{ path: /aliased/{n} }}, upstream: echo, limits: *limits }}\n"
        )
    };
    let text = std::iter::once(first.to_owned())
        .chain((0..10_000).map(routes))
        .collect();
    let loaded =
        config::parse("many.yaml", text, &|_| None).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.config.routes.len(), 20_001);
}

#[test]
fn short_forms_mean_what_the_long_ones_do() {
    let read = |text: &str| {
        let text = format!("{text}\nroutes: [{{ upstream: echo }}]\n");
        let loaded = config::parse("x.yaml", text, &|_| None);
        let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
        serde_json::to_string(&loaded.config).expect("JSON")
    };
    for (short, long) in [
        (
            "access: { deny: 10.0.0.0/8 }",
            "access: { deny: [{ cidr: [10.0.0.0/8] }] }",
        ),
        (
            "access: { allow: [192.0.2.1, \"fd00::/8\", { method: GET }] }",
            "access: { allow: [{ cidr: [192.0.2.1] }, { cidr: [\"fd00::/8\"] }, { method: [GET] }] }",
        ),
        (
            "exempt: [{ when: { any: { cidr: 10.0.0.0/8 } } }]",
            "exempt: [{ when: { any: [{ cidr: [10.0.0.0/8] }] } }]",
        ),
        (
            "limits: [{ quota: 100 / 1m, count: 401 }]",
            "limits: [{ quota: 100/1m, count: [401] }]",
        ),
        (
            "client: { timeouts: { head: 30 s } }",
            "client: { timeouts: { head: 30s } }",
        ),
        ("client: { max_body: 10 MB }", "client: { max_body: 10MB }"),
    ] {
        assert_eq!(read(short), read(long));
    }
}

#[test]
fn a_directory_where_a_file_is_to_be_made_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("a text path");
    for place in [
        format!("access_log: {{ path: {path} }}"),
        format!("access_log: {{ path: {path}/missing/ }}"),
        format!("listeners: [{{ address: \"unix:{path}\" }}]"),
    ] {
        let text = format!("{place}\nroutes: [{{ upstream: echo }}]\n");
        let loaded = config::parse("x.yaml", text, &|_| None);
        let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
        let report = config::compile(&loaded).expect_err(&place).to_string();
        assert!(report.contains("found the directory"), "{report}");
    }
}

#[test]
fn a_list_beyond_its_bound_is_reported_with_its_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("list");
    let lines: String = (0..=100_000).map(|number| format!("{number}\n")).collect();
    std::fs::write(&path, format!("# numbers\n{lines}")).expect("written");
    let text = format!(
        "access: {{ deny: [{{ header: {{ x-key: {{ file: {} }} }} }}] }}\nroutes: [{{ upstream: echo }}]\n",
        path.display()
    );
    let loaded = config::parse("x.yaml", text, &|_| None);
    let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
    let report = config::compile(&loaded)
        .expect_err("it is too long")
        .to_string();
    assert!(report.contains("found another in line 100002"), "{report}");
    assert!(report.contains("into a second file"), "{report}");
}

#[test]
fn colours_are_for_terminals_only() {
    let report =
        config::parse("x.yaml", "routes: 5".to_owned(), &|_| None).expect_err("it is wrong");
    assert!(
        report
            .render(config::Colour::Ansi, Audience::Owner)
            .contains("\u{1b}[")
    );
    assert!(
        !report
            .render(config::Colour::Plain, Audience::Owner)
            .contains('\u{1b}')
    );
}

#[test]
fn malformed_routes_are_one_problem() {
    for routes in ["echo", "{ upstream: echo }", "~", "[]", "[1]", "5"] {
        let text = format!("routes: {routes}\n");
        let report = config::parse("x.yaml", text, &|_| None).expect_err("it is wrong");
        assert_eq!(report.problems.len(), 1, "{report}");
    }
}

#[test]
fn a_value_as_long_as_a_file_is_not_repeated() {
    let line = "an article, not a configuration ".repeat(100);
    let text = format!("{line}\n").repeat(1000);
    let report = config::parse("x.yaml", text, &|_| None).expect_err("it is wrong");
    let shown = report.to_string();
    assert!(
        shown.contains("expected a mapping, found a text"),
        "{shown}"
    );
    assert!(shown.len() < 20_000, "{} bytes", shown.len());
}

#[test]
fn a_route_without_a_name_is_named_after_what_it_matches() {
    let path = root().join("tests/fixtures/config/valid/titles.yaml");
    let loaded = parse(&path).unwrap_or_else(|report| panic!("{report}"));
    let titles: Vec<_> = loaded
        .config
        .routes
        .iter()
        .map(|route| route.title())
        .collect();
    assert_eq!(
        titles,
        [
            "login",
            "GET,POST *.example.com /v1/{id} header:x-a query:deep",
            "/**"
        ]
    );
}

#[test]
fn aliases_stand_for_no_more_than_the_size_of_the_file_allows() {
    let nested = |levels: usize| {
        let mut text = "x0: &x0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..=levels {
            let items = vec![format!("*x{}", level - 1); 10].join(", ");
            text += &format!("x{level}: &x{level} [{items}]\n");
        }
        text + "routes: [{ upstream: echo }]\n"
    };
    let is_refused = |text: String| {
        let report = config::parse("t.yaml", text, &|_| None);
        report.is_err_and(|report| report.problems[0].message == "aliases stand for too much")
    };
    assert!(!is_refused(nested(2)), "1,000 values");
    for levels in 4..=8 {
        assert!(is_refused(nested(levels)), "{levels} levels");
    }
    // 3,000 routes of ten values each, in 30 kB.
    let route =
        "x-route: &route { upstream: echo, match: { methods: [GET, PUT], path: /a }, limits: [] }";
    let many = format!("{route}\nroutes:\n{}", "  - *route\n".repeat(3_000));
    assert!(!is_refused(many));
}

#[test]
fn problems_have_a_position_and_a_path() {
    let report = config::parse(
        "x.yaml",
        "routes:\n  - upstream: no-such\n".to_owned(),
        &|_| None,
    )
    .expect_err("it is wrong");
    let problem = &report.problems[0];
    assert_eq!(
        problem
            .place
            .as_ref()
            .map(|place| (place.line, place.column)),
        Some((2, 15))
    );
    assert_eq!(
        (problem.path.as_str(), problem.code),
        ("routes[0].upstream", config::Code::UnknownName)
    );
}

#[test]
fn valid_files_load_without_warnings() {
    for path in fixtures("valid")
        .into_iter()
        .chain([root().join("config.example.yaml")])
    {
        match parse(&path) {
            Ok(loaded) => assert!(loaded.warnings.problems.is_empty(), "{}", loaded.warnings),
            Err(report) => panic!("{report}"),
        }
    }
}

#[test]
fn the_example_has_no_warning() {
    let loaded = parse(&root().join("config.example.yaml"));
    let warnings = config::lint(
        loaded.unwrap_or_else(|report| panic!("{report}")),
        Timestamp::EPOCH,
    );
    assert!(warnings.problems.is_empty(), "{warnings}");
}

#[test]
fn invalid_files_give_the_expected_report() {
    let mut wrong = Vec::new();
    for path in fixtures("invalid") {
        let report = match parse(&path) {
            Ok(loaded) => loaded.warnings,
            Err(report) => report,
        };
        let found = format!("{}\n", report.render(Colour::Plain, Audience::Owner));
        let expected = path.with_extension("txt");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&expected, found).expect("the fixtures can be written");
        } else if std::fs::read_to_string(&expected).ok().as_ref() != Some(&found) {
            wrong.push(format!("{}:\n{found}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The blocks of YAML with the number of their first line.
fn yaml_blocks(text: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut is_inside = false;
    for (index, line) in text.lines().enumerate() {
        match line {
            "```yaml" => {
                is_inside = true;
                blocks.push((index + 2, String::new()));
            }
            "```" => is_inside = false,
            line if is_inside => blocks
                .last_mut()
                .expect("a block is open")
                .1
                .extend([line, "\n"]),
            _ => {}
        }
    }
    blocks
}

/// The text with routes, if it has none.
fn with_routes(mut text: String) -> String {
    if !text.lines().any(|line| line == "routes:") {
        text.push_str("routes: [{ upstream: echo }]\n");
    }
    text
}

/// All blocks of two pages are parts of configurations; elsewhere those with routes are.
#[test]
fn the_documentation_loads() {
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("docs")).expect("the directory can be read") {
        let path = entry.expect("the directory can be read").path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let page = name(&path);
        let has_parts = matches!(&*page, "configuration.md" | "token-budgets.md");
        let is_expected_to_fail = page == "lints.md";
        for (line, block) in yaml_blocks(&read(&path)) {
            let is_configuration = block.lines().any(|line| line == "routes:");
            if is_expected_to_fail || !is_configuration && !has_parts {
                continue;
            }
            count += 1;
            let name = format!("{page}, line {line}");
            let secrets = |name: &str| {
                name.ends_with("SECRET")
                    .then(|| "sixteen-characters".to_owned())
            };
            let result = config::parse(&name, with_routes(block), &secrets);
            assert!(result.is_ok(), "{}", result.expect_err("it is no success"));
        }
    }
    assert!(count > 60, "{count} blocks");
}

#[test]
fn the_cookbook_shows_the_examples_as_they_are() {
    let page = read(&root().join("docs/cookbook.md"));
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("examples")).expect("the directory can be read") {
        let path = entry.expect("the directory can be read").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        count += 1;
        let (name, text) = (name(&path), read(&path));
        let shown = format!("[examples/{name}](../examples/{name}):\n\n```yaml\n{text}```\n");
        assert!(
            page.contains(&shown),
            "docs/cookbook.md shows another {name}"
        );
    }
    assert_eq!(count, 19);
}

/// Every key in the JSON Schema.
fn keys(schema: &serde_json::Value, found: &mut std::collections::BTreeSet<String>) {
    match schema {
        serde_json::Value::Object(object) => {
            if let Some(serde_json::Value::Object(properties)) = object.get("properties") {
                found.extend(properties.keys().cloned());
            }
            object.values().for_each(|value| keys(value, found));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

#[test]
fn every_key_is_documented_and_in_a_valid_file() {
    let mut found = std::collections::BTreeSet::new();
    keys(
        &serde_json::from_str(&config::json_schema()).expect("the schema is JSON"),
        &mut found,
    );
    assert!(found.len() > 60, "{found:?}");
    // Files alone are read here. tests/config/include.rs has files that include others.
    found.remove("include");
    let documentation = read(&root().join("docs/configuration.md"));
    let valid: String = fixtures("valid").iter().map(|path| read(path)).collect();
    let in_table = |key: &str| {
        let names = documentation
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        names
            .flat_map(|(name, _)| name.split(['.', '[']))
            .any(|name| name == key)
    };
    let missing: Vec<_> = found.iter().filter(|key| !in_table(key)).collect();
    assert!(
        missing.is_empty(),
        "not in docs/configuration.md: {missing:?}"
    );
    let missing: Vec<_> = found
        .iter()
        .filter(|key| !valid.contains(&format!("{key}:")))
        .collect();
    assert!(missing.is_empty(), "in no valid file: {missing:?}");
    // `exempt` and `limits` also stand deeper: the sections by their own lines.
    let schema: serde_json::Value =
        serde_json::from_str(&config::json_schema()).expect("the schema is JSON");
    let sections = schema["properties"].as_object().expect("an object").keys();
    let is_missing = |key: &&String| {
        !valid
            .lines()
            .any(|line| line.starts_with(&format!("{key}:")))
    };
    let sections = sections.filter(|key| *key != "include");
    let missing: Vec<_> = sections.filter(is_missing).collect();
    assert!(
        missing.is_empty(),
        "no section of a valid file: {missing:?}"
    );
}

#[test]
fn every_code_is_documented() {
    let documentation = read(&root().join("docs/configuration.md"));
    for code in config::Code::all() {
        assert!(
            documentation.contains(&format!("| `{}` |", code.as_str())),
            "{}",
            code.as_str()
        );
    }
}

/// YAML ends a line there, and nothing else does.
#[test]
fn reports_of_texts_with_lone_carriage_returns_can_be_shown() {
    for text in [
        " \r\r#\r\r",
        "\r",
        "a: b\r\r\r",
        "a:\r  - b\rworkers: x\r\r\n\r",
        "{\r\r",
    ] {
        let report = config::parse("cr.yaml", text.to_owned(), &|_| None).expect_err("no routes");
        for audience in [Audience::Owner, Audience::Others] {
            let shown = report.render(Colour::Plain, audience);
            assert!(shown.contains("cr.yaml"), "{text:?}: {shown}");
        }
    }
}

/// The parser makes the spans, we count the lines: no text may make them disagree. Fuzzing tries more.
#[test]
fn broken_texts_are_reported_and_nothing_panics() {
    let text = read(&root().join("tests/fixtures/config/valid/everything.yaml"));
    let replacements = [
        "é", "\"", "{", "&a ", "*a", "\t", "\r\n", "\r", "- ", ": ", "${", "\u{0}", "|", "🦀", "<<",
    ];
    for (place, (at, c)) in text.char_indices().step_by(2).enumerate() {
        let (before, after) = (&text[..at], &text[at + c.len_utf8()..]);
        let broken = if place.is_multiple_of(4) {
            before.to_owned()
        } else {
            format!(
                "{before}{}{after}",
                replacements[place % replacements.len()]
            )
        };
        let report = match config::parse("broken.yaml", broken, &|_| None) {
            Ok(loaded) => loaded.warnings,
            Err(report) => report,
        };
        assert!(!report.to_string().is_empty());
        report
            .problems
            .iter()
            .for_each(|problem| assert!(problem.place.as_ref().is_none_or(|place| place.line > 0)));
    }
}
