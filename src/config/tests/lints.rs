//! Lints: each has a section in docs/lints.md, whose first example triggers it and whose second
//! does not, and a fixture with its report. Policies that "never refuse" never do.
//! `UPDATE_EXPECTED=1` writes the reports.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;

use crate::clock::{Clock, Timestamp};
use crate::config::{self, Audience, Code, Colour, Loaded, Report};
use crate::limiter::Secret;
use crate::proxy::inspect::dry_run::{Recorded, dry_run};
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::telemetry::registry::Registry;

const PAGE: &str = include_str!("../../../docs/lints.md");
/// 2026-11-23T12:00:00Z, the instant of the certificate lints.
const NOW: Timestamp = Timestamp::from_micros(1_795_435_200_000_000);

/// The directory of the fixtures, where relative paths start.
fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/config/lints")
}

fn lint(name: &str, text: &str) -> Report {
    let loaded = config::parse(name, text.to_owned(), &|_| None);
    let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
    let directory = fixtures();
    config::lint(
        Loaded {
            directory,
            ..loaded
        },
        NOW,
    )
}

fn codes(report: &Report) -> Vec<Code> {
    let codes = report.problems.iter().map(|problem| problem.code);
    codes.collect()
}

/// The sections of the page, each with its code.
fn sections() -> Vec<(&'static str, &'static str)> {
    let sections = PAGE.split("\n## ").skip(1);
    sections
        .map(|section| {
            let (title, text) = section.split_once('\n').expect("a title");
            (title.trim_matches('`'), text)
        })
        .collect()
}

#[test]
fn every_lint_has_a_section_with_an_example_and_its_mend() {
    let sections = sections();
    let titles: Vec<_> = sections.iter().map(|(title, _)| *title).collect();
    assert!(titles.iter().copied().eq(Code::lints().map(Code::as_str)));
    for (code, (title, text)) in Code::lints().zip(sections) {
        let parts =
            ["**What.**", "**Why.**", "**Example**", "**Fix.**"].map(|part| text.find(part));
        assert!(
            parts.iter().all(Option::is_some) && parts.is_sorted(),
            "{title}: {parts:?}"
        );
        let blocks: Vec<_> = text.split("```yaml\n").skip(1).collect();
        let [example, mended] = blocks.as_slice() else {
            panic!("{title}: {} blocks", blocks.len());
        };
        let found = [example, mended].map(|block| {
            let block = block.split("```").next().expect("a block");
            codes(&lint(title, block)).contains(&code)
        });
        assert_eq!(found, [true, false], "{title}");
    }
}

#[test]
fn every_lint_has_a_fixture_with_its_report() {
    let directory = fixtures();
    let mut wrong = Vec::new();
    for code in Code::lints() {
        let path = directory.join(format!("{}.yaml", code.as_str()));
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let report = lint(&format!("{}.yaml", code.as_str()), &text);
        assert!(codes(&report).contains(&code), "{report}");
        let found = format!("{}\n", report.render(Colour::Plain, Audience::Owner));
        let expected = path.with_extension("txt");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&expected, found).expect("the fixtures can be written");
        } else if std::fs::read_to_string(&expected).ok().as_ref() != Some(&found) {
            wrong.push(found);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each of these resembles a configuration that gets a warning, and is meant.
#[test]
fn intended_settings_get_no_warning() {
    for text in [
        "routes: [{ upstream: echo, limits: [{ key: client_ip, quota: 100/1m }] }]",
        "limits: [{ quota: 10/1s }, { quota: 300/1m }]\nroutes: [{ upstream: echo }]",
        "limits: [{ quota: 50/1s }, { key: client_ip/48, quota: 500/1s }]\nroutes: [{ upstream: echo }]",
        "limits: [{ quota: 50/1s, when: { method: [GET] } }, { quota: 100/1s }]\nroutes: [{ upstream: echo }]",
        "limits: [{ quota: 50/1s, mode: shadow }, { quota: 100/1s }]\nroutes: [{ upstream: echo }]",
        "limits: [{ quota: 50/1s, on_limit: { action: tag } }, { quota: 100/1s }]\nroutes: [{ upstream: echo }]",
        "limits: [{ quota: 50/1s, cost: 2 }, { quota: 100/1s }]\nroutes: [{ upstream: echo }]",
        "routes: [{ upstream: echo, limits: [{ key: [route, \"path:id\"], quota: 100/1s }], match: { path: \"/{id}\" } }]",
        "limits: [{ key: constant, quota: 100/1s }]\nroutes: [{ upstream: echo, limits: [{ key: \"query:q\", quota: 50/1s }] }]",
        "limits: [{ quota: 50/1m }]\nroutes: [{ match: { path: /a }, upstream: http://127.0.0.1:1 }, { upstream: http://127.0.0.1:1 }]",
        "routes: [{ match: { path: /a }, upstream: http://127.0.0.1:1, limits: [{ quota: 50/1m }] }, { upstream: http://127.0.0.1:1, limits: [{ quota: 20/1m }] }]",
        "routes: [{ match: { path: /a }, upstream: http://127.0.0.1:1, limits: [{ quota: 50/1m }] }, { upstream: http://127.0.0.1:2 }]",
        "routes: [{ match: { path: /a }, upstream: http://127.0.0.1:1, limits: [{ quota: 50/1m, mode: shadow }] }, { upstream: http://127.0.0.1:1 }]",
        "routes: [{ match: { path: /a }, upstream: http://127.0.0.1:1 }, { respond: { status: 503 } }]",
    ] {
        let report = lint("fine.yaml", text);
        assert!(report.problems.is_empty(), "{report}");
    }
    let example = include_str!("../../../config.example.yaml");
    let found = codes(&lint("config.example.yaml", example));
    assert_eq!(found, []);
}

#[test]
fn more_memory_than_the_machine_has_is_warned_of() {
    let text = "store: { memory: { max_size: 1024GiB } }\nroutes: [{ upstream: echo }]";
    let report = lint("large.yaml", text);
    assert_eq!(codes(&report), [Code::Memory], "{report}");
    assert!(
        report
            .to_string()
            .contains("MiB of memory that this machine gives"),
        "{report}"
    );
}

const ALGORITHMS: [&str; 9] = [
    "gcra",
    "token_bucket",
    "gcra, burst: 3",
    "token_bucket, burst: 7",
    "fixed_window",
    "fixed_window, start: first_request",
    "sliding_window",
    "sliding_window, precision: 2",
    "sliding_log",
];

/// Two policies; the second is often a more generous copy of the first.
fn two_policies() -> impl Strategy<Value = [String; 2]> {
    let algorithm = || proptest::sample::select(&ALGORITHMS[..]);
    let seconds = || proptest::sample::select(&[2_u32, 4, 6][..]);
    let other = proptest::option::of((1..5_u32, seconds(), algorithm()));
    let policy = |limit, seconds, algorithm| {
        format!("{{ quota: {limit}/{seconds}s, algorithm: {algorithm} }}")
    };
    (1..5_u32, 0..3_u32, seconds(), algorithm(), other).prop_map(
        move |(limit, more, seconds, algorithm, other)| {
            let like = (limit + more, seconds, algorithm);
            let (other_limit, other_seconds, other) = other.unwrap_or(like);
            [
                policy(limit, seconds, algorithm),
                policy(other_limit, other_seconds, other),
            ]
        },
    )
}

/// True if the policy at this place refuses a request that the other admits.
fn refuses_alone(text: &str, place: usize, gaps: &[u64]) -> bool {
    let loaded = config::parse("test.yaml", text.to_owned(), &|_| None).expect("it is sound");
    let rules = config::compile_rules(&loaded).expect("it is sound");
    let surroundings = BuildContext {
        workers: 1,
        registry: Registry::default(),
        clock: Arc::new(Clock::manual(Timestamp::EPOCH)),
        secret: Secret::from_key([1, 2]),
    };
    let snapshot =
        PreparedRuleset::new(rules, &surroundings, None).migrate_buckets(Timestamp::EPOCH);
    let from: IpAddr = [127, 0, 0, 1].into();
    let mut now = Timestamp::from_micros(1_000_000_000);
    gaps.iter().any(|gap| {
        now = now.saturating_add_micros(*gap);
        let request = http::Request::builder()
            .uri("/")
            .header("host", "a")
            .body(());
        let request = request.expect("a request").into();
        let admitted = dry_run(
            &snapshot,
            &request,
            from,
            now,
            Recorded::default(),
            |rehearsal| {
                let decisions = rehearsal.decisions();
                decisions
                    .map(|(_, _, decision)| decision.is_admitted())
                    .collect::<Vec<_>>()
            },
        );
        let admitted = admitted.expect("it is decided");
        !admitted[place] && admitted[1 - place]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_policy_that_never_refuses_admits_every_request_that_the_other_admits(
        policies in two_policies(),
        gaps in prop::collection::vec(prop_oneof![Just(0), 0..3_000_000_u64], 60),
    ) {
        let text = format!("limits: [{}]\nroutes: [{{ upstream: echo }}]\n", policies.join(", "));
        let report = lint("test.yaml", &text);
        let said = report.problems.iter().find(|problem| problem.code == Code::NeverRefuses);
        if let Some(said) = said {
            let place = usize::from(said.path.starts_with("limits[1]"));
            prop_assert!(!refuses_alone(&text, place, &gaps), "{}", text);
        }
    }
}

/// `check.allow`, with an item for each warning of `FORGEABLE`, or for none.
#[test]
fn warnings_that_are_meant_are_allowed_where_they_stand() {
    const RULES: &str = "policies:\n  a: { key: header:x-key, quota: 200/1m }\n  \
                         b: { key: header:x-other, quota: 300/1m }\nroutes: [{ upstream: echo, limits: [a, b] }]\n";
    let found = |allow: &str| {
        let report = lint(
            "some.yaml",
            &format!("{RULES}check: {{ allow: [{allow}] }}\n"),
        );
        let problems = report.problems.iter();
        let problems =
            problems.map(|problem| format!("{} {}", problem.code.as_str(), problem.path));
        problems.collect::<Vec<_>>()
    };
    let (a, b) = (
        "forgeable-key policies.a.key",
        "forgeable-key policies.b.key",
    );
    assert_eq!(found(""), [a, b]);
    let of = |at: &str| format!("{{ warning: forgeable-key, at: {at}, reason: x }}");
    assert_eq!(found(&of("policies.a")), [b]);
    assert_eq!(found(&of("policies.b.key")), [a]);
    assert_eq!(found(&of("policies")), [""; 0]);
    assert_eq!(found("{ warning: forgeable-key, reason: x }"), [""; 0]);
    assert_eq!(
        found(&of("policies.ab")),
        [a, b, "no-effect check.allow[0]"]
    );
    let other = "{ warning: small-quota, reason: x }";
    assert_eq!(found(other), [a, b, "no-effect check.allow[0]"]);
}

#[test]
fn allowed_warnings_have_a_code_and_a_reason() {
    let message = |allow: &str| {
        let text = format!("routes: [{{ upstream: echo }}]\ncheck: {{ allow: [{allow}] }}\n");
        let report = config::parse("some.yaml", text, &|_| None).expect_err("it is wrong");
        report.to_string()
    };
    let misspelt = message("{ warning: smal-quota, reason: x }");
    assert!(
        misspelt.contains("did you mean `small-quota`?"),
        "{misspelt}"
    );
    let error = message("{ warning: unknown-key, reason: x }");
    assert!(
        error.contains("`unknown-key` isn't the code of a warning"),
        "{error}"
    );
    let bare = message("{ warning: small-quota }");
    assert!(bare.contains("`reason`"), "{bare}");
}

/// The complete examples of the documentation: those with routes.
#[test]
fn examples_of_the_documentation_pass_deny_warnings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = std::fs::read_dir(root.join("docs")).expect("the folder is there");
    let docs = docs.map(|entry| entry.expect("it can be read").path());
    let pages = docs
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .filter(|path| !path.ends_with("lints.md"))
        .chain([root.join("README.md")]);
    let (mut count, mut wrong) = (0, Vec::new());
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("the page is there");
        for (index, block) in text.split("```yaml\n").skip(1).enumerate() {
            let block = block.split("```").next().expect("a block");
            if !block.lines().any(|line| line.starts_with("routes:")) {
                continue;
            }
            count += 1;
            let name = page.file_name().expect("a name").to_string_lossy();
            let name = format!("{name}, block {}", index + 1);
            let loaded = config::parse(&name, block.to_owned(), &|_| {
                Some("0f8b4c1d9e2a7356bd01fe4c88a07b19".to_owned())
            });
            // Files and certificates that an example names are the reader's.
            let report = loaded.map_or_else(|report| report, config::lint_text);
            if !report.problems.is_empty() {
                wrong.push(report.to_string());
            }
        }
    }
    assert!(count > 20, "{count} examples");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// As panics and logs could print it.
#[test]
fn no_password_is_part_of_the_debug_output() {
    let text = "store: { redis: { url: redis://bob:hunter2@a, secret: hunter2 and some more } }\n\
                limits: [{ quota: 100/1s, store: redis }]\nroutes: [{ upstream: echo }]\n";
    let loaded = config::parse("sluicegate.yaml", text.to_owned(), &|_| None).expect("it is sound");
    let compiled = config::compile_rules(&loaded).expect("it is sound");
    let shown = format!("{loaded:?} {compiled:?}");
    assert!(
        shown.contains("bob") && !shown.contains("hunter2"),
        "{shown}"
    );
}
