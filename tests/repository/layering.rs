//! The architecture as a test: the order of the `mod` lines in `src/lib.rs` is the order of the
//! layers, and a layer names only those before it. That no crate in `crates/` names a layer is up to Cargo.

use std::fs;
use std::path::Path;

use crate::source::{paths, rust_files, tokens};

/// Crates that do I/O, belong to HTTP, or serialise: the limiter knows none of them.
const BARRED_FROM_LIMITER: [&[&str]; 18] = [
    &["arc_swap"],
    &["http"],
    &["http_body"],
    &["http_body_util"],
    &["hyper"],
    &["hyper_util"],
    &["metrics"],
    &["notify"],
    &["rustls"],
    &["serde"],
    &["serde_json"],
    &["serde_yaml"],
    &["std", "fs"],
    &["std", "net", "TcpListener"],
    &["std", "net", "TcpStream"],
    &["std", "net", "UdpSocket"],
    &["std", "os"],
    &["tokio"],
];

/// What reads a clock, or is one. Time is an argument of the limiter.
const CLOCKS: [&[&str]; 4] = [
    &["crate", "clock", "Clock"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["clock", "Clock"],
];

#[test]
fn every_layer_uses_only_those_before_it() {
    let found = violations(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// Every breach below `root`, as `file:line: what is wrong`.
fn violations(root: &Path) -> Vec<String> {
    let layers = layers(&fs::read_to_string(root.join("src/lib.rs")).expect("src/lib.rs"));
    let mut files = Vec::new();
    rust_files(&root.join("src"), &mut files);
    rust_files(&root.join("crates"), &mut files);
    files.sort();

    let mut found = Vec::new();
    for file in files {
        let relative = file
            .strip_prefix(root)
            .expect("listed below the root")
            .to_path_buf();
        let Some(place) = Place::of(&relative) else {
            continue;
        };
        if !place.is_crate && !layers.contains(&place.layer) {
            found.push(format!(
                "{}: `{}` is no layer of src/lib.rs",
                relative.display(),
                place.layer
            ));
            continue;
        }
        let text = fs::read_to_string(&file).expect("a listed file is readable");
        let tokens = tokens(&text);
        for path in paths(&tokens) {
            if let Some(wrong) = place.breach(&path.segments, &layers) {
                found.push(format!("{}:{}: {wrong}", relative.display(), path.line));
            }
        }
    }
    found
}

/// Where a file stands: its layer, and how many modules deep (`store.rs` is 1, `store/spec.rs` 2).
struct Place {
    layer: String,
    depth: usize,
    /// A crate of its own.
    is_crate: bool,
}

impl Place {
    /// None for `lib.rs`, which is the list itself, for `main.rs`, which only calls it, and for tests and
    /// benchmarks of crates.
    fn of(relative: &Path) -> Option<Self> {
        let is_tests = |part: &Option<&str>| matches!(part, Some("tests" | "tests.rs"));
        let parts: Vec<_> = relative.iter().map(|part| part.to_str()).collect();
        let (layer, depth, is_crate) = match parts[..] {
            [Some("src"), Some("lib.rs" | "main.rs")] => return None,
            [Some("src"), Some(layer), ref inner @ ..] => (layer, inner.len() + 1, false),
            [Some("crates"), ..] if parts.iter().any(is_tests) => return None,
            [Some("crates"), Some(name), Some("src"), ref inner @ ..] => (name, inner.len(), true),
            _ => return None,
        };
        Some(Self {
            layer: layer.trim_end_matches(".rs").to_owned(),
            depth,
            is_crate,
        })
    }

    fn breach(&self, path: &[String], layers: &[String]) -> Option<String> {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let shown = path.join("::");
        let rank = |name: &str| layers.iter().position(|layer| layer == name);

        let above = |used: &usize| rank(&self.layer).is_some_and(|own| *used > own);
        if self
            .named_layer(&path)
            .and_then(rank)
            .filter(above)
            .is_some()
        {
            return Some(format!("`{shown}` is above `{}`", self.layer));
        }
        let names_schema = path.windows(2).any(|pair| pair == ["config", "schema"]);
        if names_schema && !["config", "app"].contains(&self.layer.as_str()) {
            return Some(format!(
                "`{shown}`: only config and app know what the user wrote"
            ));
        }
        let names_redis = path.len() > 1 && path[0] == "redis"
            || path.windows(2).any(|pair| pair == ["store", "redis"]);
        if self.layer == "proxy" && names_redis {
            return Some(format!(
                "`{shown}`: the store alone knows where buckets live"
            ));
        }
        if self.layer == "limiter" {
            if BARRED_FROM_LIMITER
                .iter()
                .any(|barred| path.starts_with(barred))
            {
                return Some(format!("`{shown}`: the limiter is pure arithmetic"));
            }
            let reads_clock = path.len() > 1 && path.last() == Some(&"now");
            if reads_clock || CLOCKS.iter().any(|clock| path.starts_with(clock)) {
                return Some(format!("`{shown}`: the limiter is told the time"));
            }
        }
        None
    }

    /// The layer that a path from the crate's root names: `crate::x`, or `super::` often enough.
    fn named_layer<'a>(&self, path: &[&'a str]) -> Option<&'a str> {
        let supers = path
            .iter()
            .take_while(|segment| **segment == "super")
            .count();
        match path.first() {
            _ if self.is_crate => None,
            Some(&"crate") => path.get(1).copied(),
            _ if supers >= self.depth => path.get(supers).copied(),
            _ => None,
        }
    }
}

/// The layers, lowest first.
fn layers(lib: &str) -> Vec<String> {
    let names = lib
        .lines()
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    names.map(str::to_owned).collect()
}

/// A source tree of three layers, one file of which says `code`.
fn violations_of(file: &str, code: &str) -> Vec<String> {
    let root = tempfile::tempdir().expect("a temporary directory");
    let layers = ["clock", "store", "proxy", "config", "app", "cli"];
    let lib: String = layers
        .iter()
        .map(|layer| format!("mod {layer};\n"))
        .collect();
    let write = |file: &str, text: &str| {
        let path = root.path().join(file);
        let folder = path.parent().expect("a file has a parent");
        fs::create_dir_all(folder).expect("the tree is writable");
        fs::write(path, text).expect("the tree is writable");
    };
    write("src/lib.rs", &lib);
    write("crates/limiter/src/lib.rs", "");
    write(file, code);
    violations(root.path())
}

#[test]
fn a_path_to_a_layer_above_is_found_however_it_is_written() {
    for (file, code) in [
        ("src/store.rs", "use crate::proxy::Gateway;"),
        ("src/store.rs", "use crate::{clock::Timestamp, proxy};"),
        (
            "src/store.rs",
            "use crate::{\n    clock::{self, Timestamp},\n    proxy::{Gateway},\n};",
        ),
        ("src/store/spec.rs", "fn f(g: &crate::proxy::Gateway) {}"),
        (
            "src/store/spec.rs",
            "fn f() { let url = \"http://x\"; crate::proxy::go(url) }",
        ),
        (
            "src/store/spec.rs",
            "fn f() { let quote = '\"'; crate::proxy::go() }",
        ),
        (
            "src/store/spec.rs",
            "fn f<'a>(a: &'a str) { crate::proxy::go() }",
        ),
        ("src/store/spec.rs", "use super::super::proxy::Gateway;"),
        ("src/store.rs", "use super::proxy;"),
        (
            "src/store.rs",
            "#[cfg(test)] mod tests { use crate::config; }",
        ),
    ] {
        let found = violations_of(file, code);
        assert_eq!(found.len(), 1, "{file}: {code}: {found:?}");
        assert!(found[0].contains("is above `store`"), "{found:?}");
    }
}

#[test]
fn a_breach_is_told_with_its_file_and_line() {
    let found = violations_of("src/store/spec.rs", "//! Cells.\n\nuse crate::app;\n");
    assert_eq!(
        found,
        ["src/store/spec.rs:3: `crate::app` is above `store`"]
    );
}

#[test]
fn paths_downwards_comments_and_strings_are_no_breach() {
    for (file, code) in [
        (
            "src/proxy.rs",
            "use crate::{clock::Timestamp, store};\npub(crate) fn f() {}",
        ),
        (
            "src/store.rs",
            "//! Used by [`crate::proxy`].\n/* crate::proxy */ /// See crate::app.",
        ),
        (
            "src/store.rs",
            "const A: &str = \"crate::proxy\"; const B: &str = r#\"say \"crate::app\"\"#;",
        ),
        (
            "src/store/spec.rs",
            "use super::Quota; use std::net::IpAddr; use std::time::Duration;",
        ),
        (
            "src/store.rs",
            "use crate::clock::Timestamp; fn f(now: Timestamp) { g(now) }",
        ),
        ("src/config/compile.rs", "use crate::config::schema::Route;"),
        ("src/app.rs", "use crate::config::schema;"),
        ("src/main.rs", "fn main() { sluicegate::main() }"),
    ] {
        assert_eq!(violations_of(file, code), [""; 0], "{file}: {code}");
    }
}

#[test]
fn io_and_foreign_formats_are_kept_out_of_the_limiter() {
    for code in [
        "use tokio::sync::Mutex;",
        "use {tokio::sync::Mutex, smallvec::SmallVec};",
        "fn f(head: &http::HeaderMap) {}",
        "#[derive(serde::Serialize)] struct S;",
        "use hyper::body::Body;",
        "use std::fs;",
        "use std::{fmt, fs::File};",
        "use std::net::{IpAddr, TcpStream};",
        "fn f() { ::std::net::UdpSocket::bind(a) }",
    ] {
        let found = violations_of("crates/limiter/src/policy.rs", code);
        assert_eq!(found.len(), 1, "{code}: {found:?}");
        assert!(found[0].contains("pure arithmetic"), "{found:?}");
        assert_eq!(
            violations_of("src/proxy/forward.rs", code),
            [""; 0],
            "{code}"
        );
    }
}

#[test]
fn the_limiter_reads_no_clock() {
    for code in [
        "use std::time::{Duration, Instant};",
        "fn f() { let now = std::time::SystemTime::UNIX_EPOCH; }",
        "fn f() { let now = jiff::Timestamp::now(); }",
        "use crate::clock::{Clock, Timestamp};",
        "fn f(clock: &clock::Clock) {}",
    ] {
        let found = violations_of("crates/limiter/src/lib.rs", code);
        assert_eq!(found.len(), 1, "{code}: {found:?}");
        assert!(found[0].contains("told the time"), "{found:?}");
    }
}

#[test]
fn the_proxy_names_no_redis_type() {
    for code in [
        "use crate::store::redis::Store;",
        "use crate::store::{Table, redis};",
        "fn f(place: store::redis::QueuePlace) {}",
        "fn f(place: redis::QueuePlace) {}",
        "use redis::Value;",
    ] {
        let found = violations_of("src/proxy/admission.rs", code);
        assert_eq!(found.len(), 1, "{code}: {found:?}");
        assert!(found[0].contains("the store alone"), "{found:?}");
        assert_eq!(
            violations_of("src/app/redis_connections.rs", code),
            [""; 0],
            "{code}"
        );
    }
    let neither = "use crate::store::Store; fn f() { let store = Store::Redis(redis()); }";
    assert_eq!(violations_of("src/proxy/gateway.rs", neither), [""; 0]);
}

#[test]
fn what_the_user_wrote_stays_in_config_and_app() {
    for (file, code) in [
        ("src/cli/check.rs", "use crate::config::schema::Config;"),
        (
            "src/cli.rs",
            "use crate::config; fn f(c: config::schema::Config) {}",
        ),
    ] {
        let found = violations_of(file, code);
        assert_eq!(found.len(), 1, "{code}: {found:?}");
        assert!(found[0].contains("only config and app"), "{found:?}");
    }
}

#[test]
fn a_file_outside_the_list_of_layers_is_a_breach() {
    assert_eq!(
        violations_of("src/utils/misc.rs", ""),
        ["src/utils/misc.rs: `utils` is no layer of src/lib.rs"]
    );
}
