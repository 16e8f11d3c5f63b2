//! The page of `sluicegate replay --html`, from a file, in a real browser.

use std::fs;
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::accessibility::{assert_accessible, assert_fits};
use crate::support::browser::{Appearance, Browser};

const DESKTOP: (u32, u32) = (1280, 900);
const WIDE: (u32, u32) = (2200, 1200);
const PHONE: (u32, u32) = (360, 740);

/// A page about two configurations: policies that limit, that only would, and that do nothing.
fn page() -> (TempDir, String) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| dir.path().join(name);
    let config = |quota| {
        format!(
            "routes:
  - name: searches-with-a-name-that-is-long-enough-to-wrap-on-phones
    match: {{ path: /search }}
    upstream: echo
    limits:
      - {{ name: per-key, key: header:x-api-key, quota: {quota} }}
      - {{ name: planned, quota: 4/1m, mode: shadow }}
  - {{ name: rest, upstream: echo, limits: [{{ name: calm, quota: 1000/1m }}] }}
"
        )
    };
    fs::write(path("new.yaml"), config("5/1m")).expect("the directory is writable");
    fs::write(path("old.yaml"), config("9/1m")).expect("the directory is writable");
    let line = |number: u64| {
        let time = number * 700 + number % 13 * 50;
        let path = if number.is_multiple_of(5) {
            "/other"
        } else {
            "/search"
        };
        let key = format!("<b>{}</b>-{}", "x".repeat(40), number * number % 23);
        format!(
            "{{\"time\":{time},\"client_ip\":\"192.0.2.{}\",\"method\":\"GET\",\"path\":\"{path}\",\
             \"headers\":{{\"x-api-key\":\"{key}\"}}}}\n",
            number % 9
        )
    };
    let log: String = (0..3_000).map(line).collect();
    fs::write(path("access.log"), log + "no request\n").expect("the directory is writable");
    let done = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .arg("replay")
        .arg(path("access.log"))
        .arg("--config")
        .arg(path("new.yaml"))
        .arg("--against")
        .arg(path("old.yaml"))
        .arg("--html")
        .arg(path("report.html"))
        .output()
        .expect("the binary starts");
    assert!(done.status.success(), "{done:?}");
    let url = format!("file://{}", path("report.html").display());
    (dir, url)
}

#[test]
fn the_page_is_for_everybody_in_both_appearances() {
    let (_dir, url) = page();
    let browser = Browser::start(DESKTOP);
    for appearance in [Appearance::Light, Appearance::Dark] {
        browser.appear(appearance);
        for size in [WIDE, DESKTOP, PHONE] {
            browser.resize(size, 1.0);
            browser.open(&url);
            assert_fits(&browser);
            assert_accessible(&browser);
            browser.click("details summary");
            assert_fits(&browser);
        }
    }
    let paper = browser.run("return getComputedStyle(document.body).backgroundColor;");
    assert_eq!(paper, "rgb(21, 23, 26)", "the dark paper of the dashboard");
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
fn charts_show_what_was_limited() {
    let (_dir, url) = page();
    let browser = Browser::start(DESKTOP);
    browser.open(&url);
    let shown = browser.run(
        "const boxes = [...document.querySelectorAll('svg.chart rect.limited')].map((bar) => bar.getBoundingClientRect());
         return { bars: boxes.length > 20, seen: boxes.every(({ height }) => height > 0.3),
                  charts: document.querySelectorAll('svg.chart').length };",
    );
    assert_eq!(shown, json!({ "bars": true, "seen": true, "charts": 3 }));
}
