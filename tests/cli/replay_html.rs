//! `sluicegate replay --html`: one file with the numbers of the report, whatever the log holds.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::Value;

use crate::support::replay::{Replay, command, line, stderr};

const CONFIG: &str = "routes:
  - { name: 'a', match: { path: '/a/**' }, upstream: echo,
      limits: [{ name: keyed, key: header:x-key, quota: 2/1m }, { name: tried, quota: 1/1m, mode: shadow }] }
  - { name: free, upstream: echo }
";

/// The page of a replay, and its report.
#[track_caller]
fn page(replay: &Replay, options: &[&str]) -> (String, Value) {
    let file = replay.dir.path().join("report.html");
    let path = file.to_str().expect("a plain name");
    let report = replay.report(&[&["--html", path], options].concat());
    (fs::read_to_string(&file).expect("it is written"), report)
}

fn keyed(key: &str, number: usize) -> String {
    let key = serde_json::to_string(key).expect("a text");
    line(
        &(number * 100).to_string(),
        "/a/x",
        &format!(",\"headers\":{{\"x-key\":{key}}}"),
    )
}

#[test]
fn the_page_has_the_numbers_of_the_report() {
    let lines: String = (0..1_500).map(|number| keyed("k", number)).collect();
    let replay = Replay::new(CONFIG, lines + &line("150000", "/b", "") + "nothing\n");
    let (page, report) = page(&replay, &[]);
    let number = |number: &Value| number.as_u64().expect("a number").to_string();
    let limited = number(&report["limited"]);
    assert_eq!(report["requests"], 1_501);
    assert!(page.contains("1\u{202f}501 requests, from"), "{page}");
    let grouped = format!("{}\u{202f}{}", &limited[..1], &limited[1..]);
    assert!(
        page.contains(&format!("<dd class=\"value\">{grouped}</dd>")),
        "{limited}"
    );
    for text in [
        "keyed",
        "tried",
        "2/1m",
        "header:x-key = k",
        "unparsable lines: 1",
        "access.log",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let timeline = &report["timeline"];
    let parts = timeline["parts"].as_array().expect("a list");
    let sum: u64 = parts
        .iter()
        .filter_map(|part| part["limited"].as_u64())
        .sum();
    assert_eq!(sum.to_string(), limited);
    let policies = timeline["policies"].as_array().expect("a list");
    for (policy, which) in policies.iter().zip(["limited", "shadowed"]) {
        let told = policy[which].as_array().expect("a list");
        let told: u64 = told.iter().filter_map(Value::as_u64).sum();
        let limits = report["routes"][0]["limits"].as_array().expect("a list");
        let limit = limits
            .iter()
            .find(|limit| limit["policy"] == policy["policy"]);
        assert_eq!(limit.expect("the policy")[which], told, "{policy}");
    }
}

/// Where anyone may write, a link could lead to a file of the user.
#[test]
fn the_page_replaces_a_link_and_what_others_may_read() {
    let replay = Replay::new(CONFIG, keyed("k", 0));
    let at = |name: &str| replay.dir.path().join(name);
    fs::write(at("precious"), "mine").expect("writable");
    symlink(at("precious"), at("report.html")).expect("a link");
    let (first, _) = page(&replay, &[]);
    assert!(first.contains("keyed"));
    assert_eq!(
        fs::read_to_string(at("precious")).expect("it is there"),
        "mine"
    );
    fs::set_permissions(at("report.html"), Permissions::from_mode(0o644)).expect("ours");
    page(&replay, &[]);
    let metadata = fs::symlink_metadata(at("report.html")).expect("it is there");
    assert!(metadata.is_file());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert!(!at("report.html.new").exists());
}

#[test]
fn a_policy_in_shadow_limits_nobody() {
    let config = "routes: [{ upstream: echo, limits: [{ name: tried, key: header:x-key, \
                  quota: 20/1h, burst: 3, mode: shadow }] }]\n";
    let keys = ["a", "a", "b", "c", "c", "c", "c"];
    let lines: String = (0..)
        .zip(keys)
        .map(|(number, key)| keyed(key, number))
        .collect();
    let (page, _) = page(&Replay::new(config, lines), &["--policy", "tried"]);
    for text in [
        "<b>1</b> of 3 clients would be limited",
        "<h4>Would be limited most</h4>",
        "gcra, 20/1h, burst 3",
        "only policy tried is shown, but the counts of requests are of all policies",
    ] {
        assert!(page.contains(text), "no {text:?} in\n{page}");
    }
    assert!(
        !page.contains(" %</th>") && !page.contains("Limited most"),
        "{page}"
    );
}

#[test]
fn nothing_of_the_log_becomes_markup() {
    let keys = [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "</style><b>'&amp;",
        "é",
    ];
    let keys = keys.iter().flat_map(|key| [*key; 4]);
    let lines: String = keys
        .zip(0..)
        .map(|(key, number)| keyed(key, number))
        .collect();
    let (page, _) = page(&Replay::new(CONFIG, lines), &[]);
    for markup in ["<script", "<img", "<b>'", "onerror=alert(1)>"] {
        assert!(!page.contains(markup), "{markup}");
    }
    assert!(
        page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
        "{page}"
    );
    assert_eq!(page.matches("</style>").count(), 1);
    assert!(page.contains("default-src 'none'; style-src 'sha256-"));
    assert!(
        !page.contains("http://") && !page.contains("https://"),
        "nothing is loaded"
    );
}

#[test]
fn many_keys_and_policies_make_no_large_page() {
    let routes = (0..300).map(|number| {
        format!(
            "  - {{ name: route-{number}, match: {{ path: '/{number}' }}, upstream: echo, \
             limits: [{{ key: header:x-key, quota: 1/1m }}] }}\n"
        )
    });
    let config = format!("routes:\n{}", routes.collect::<String>());
    let key = "k".repeat(500);
    let lines = (0..12_000).map(|number| {
        let (time, path) = (number * 60_000, format!("/{}", number % 300));
        let key = format!(",\"headers\":{{\"x-key\":\"{key}{}\"}}", number % 7);
        line(&time.to_string(), &path, &key).repeat(2)
    });
    let (page, _) = page(&Replay::new(&config, lines.collect::<String>()), &[]);
    assert!(page.len() < 2_000_000, "{}", page.len());
    assert!(page.contains("and 260 more policies"), "{page}");
    assert!(page.contains("and 100 more rows"), "{page}");
}

#[test]
fn a_comparison_and_an_empty_log_have_pages() {
    let lines: String = (0..20).map(|number| keyed("k", number)).collect();
    let replay = Replay::new(CONFIG, lines);
    let old = replay.dir.path().join("old.yaml");
    fs::write(&old, CONFIG.replace("2/1m", "7/1m")).expect("the directory is writable");
    let old = old.to_str().expect("a plain name");
    let (compared, report) = page(&replay, &["--against", old]);
    assert_eq!(report["before"]["limited"], 13);
    assert_eq!(report["after"]["limited"], 18);
    let row = "          13          18  in all";
    assert!(compared.contains(row), "{compared}");
    let (empty, _) = page(&Replay::new(CONFIG, ""), &[]);
    assert!(empty.contains("0 requests</p>"), "{empty}");
}

#[test]
fn a_page_that_cannot_be_written_is_told() {
    let replay = Replay::new(CONFIG, keyed("k", 1));
    let output = replay.run(&["--html", "/nowhere/report.html"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).starts_with("cannot write /nowhere/report.html: "),
        "{output:?}"
    );
    let log = replay.log.to_str().expect("a plain name");
    let output = replay.run(&["--html", log]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).starts_with("--html would replace the log"),
        "{output:?}"
    );
    let output = replay.run(&["--html", "x.html", "--decisions"]);
    assert_eq!(output.status.code(), Some(2));
}

/// Neither the configuration that is found nor what is beside the page: an unfinished page would be there.
#[test]
fn a_page_replaces_no_other_file() {
    let replay = Replay::new(CONFIG, keyed("k", 1));
    let at = |name: &str| replay.dir.path().join(name);
    let found = command(["replay", "access.log", "--html", "sluicegate.yaml"])
        .current_dir(replay.dir.path())
        .output()
        .expect("the binary starts");
    assert_eq!(found.status.code(), Some(2));
    assert!(
        stderr(&found).starts_with("--html would replace the configuration"),
        "{found:?}"
    );
    fs::write(at("page.html.new"), "mine").expect("the directory is writable");
    let page = at("page.html").display().to_string();
    let output = replay.run(&["--html", &page]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("page.html.new, too; remove it"),
        "{output:?}"
    );
    let kept = ["sluicegate.yaml", "page.html.new"].map(|name| fs::read_to_string(at(name)));
    assert_eq!(kept.map(Result::unwrap_or_default), [CONFIG, "mine"]);
}
