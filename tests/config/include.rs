//! `include`: files with routes, policies and upstreams beside the main one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use crate::support::admin::{AdminClient, TOKENS};
use crate::support::client::{Output, get, run};
use crate::support::gateway::{Gateway, with_free_ports};
use crate::support::tls::certify;
use crate::support::wait_for;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_sluicegate");
const MAIN: &str = "include: conf.d/*.yaml\nroutes: [{ match: { path: /main }, upstream: echo }]\n";

/// A directory with these files, each a path and its text.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    files
        .iter()
        .for_each(|(path, text)| write(directory.path(), path, text));
    directory
}

fn write(directory: &Path, path: &str, text: &str) {
    let path = directory.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("created");
    fs::write(path, text).expect("written");
}

/// Runs the program in a directory, for at most 20 s.
fn sluicegate(directory: &Path, arguments: &str) -> Output {
    let script = format!(
        "cd {} && exec timeout 20 $0 {arguments}",
        directory.display()
    );
    run("bash", &["-c", &script, BINARY])
}

/// What `check` says of an invalid `main.yaml`.
fn errors(directory: &TempDir) -> String {
    let checked = sluicegate(directory.path(), "check main.yaml");
    assert_eq!(checked.code, Some(1), "{checked}");
    checked.stderr
}

fn sound(directory: &TempDir) {
    let checked = sluicegate(directory.path(), "check main.yaml");
    assert_eq!(checked.code, Some(0), "{checked}");
}

/// The route that takes a path.
fn route(directory: &TempDir, path: &str) -> String {
    let command = format!("explain GET {path} --config main.yaml --json");
    let explained = sluicegate(directory.path(), &command);
    let answer: Value =
        serde_json::from_str(&explained.stdout).unwrap_or_else(|_| panic!("{explained}"));
    answer["route"].to_string()
}

fn answering(name: &str, path: &str) -> String {
    format!("routes: [{{ name: {name}, match: {{ path: {path} }}, upstream: echo }}]\n")
}

#[test]
fn files_share_one_namespace_and_their_routes_follow_those_of_the_main_file() {
    let directory = directory(&[
        (
            "main.yaml",
            "include: [conf.d/*.yaml, last.yaml, conf.d/b.yaml, '*.yaml']
policies: { shared: { quota: 5/1m } }
routes: [{ name: main, match: { path: /main }, upstream: late }]
",
        ),
        (
            "conf.d/b.yaml",
            &(answering("b", "/**") + "policies: { of-b: { quota: 1/1m } }\n"),
        ),
        (
            "conf.d/a.yaml",
            "x-limits: &limits [shared, of-b]
routes:
  - { name: a, match: { path: /a }, upstream: late, limits: *limits }
  - { name: not-main, match: { path: \"/{x}\" }, upstream: late }
",
        ),
        (
            "last.yaml",
            "upstreams: { late: { endpoints: [\"http://${HOST:-127.0.0.1}:1\"] } }\n",
        ),
        ("empty.yaml", "# nothing yet\n"),
        ("conf.d/.hidden.yaml", "routes: 5\n"),
        ("conf.d/directory.yaml/x.yaml", "routes: 5\n"),
        ("conf.d/other.yml", "routes: 5\n"),
    ]);
    sound(&directory);
    for (path, name) in [
        ("/main", "main"),
        ("/a", "a"),
        ("/c", "not-main"),
        ("/c/d", "b"),
    ] {
        assert!(
            route(&directory, path).contains(name),
            "{path}: {}",
            route(&directory, path)
        );
    }
}

#[test]
fn a_text_from_stdin_includes_files_of_the_working_directory() {
    let directory = directory(&[("main.yaml", MAIN), ("conf.d/a.yaml", "routes: 5\n")]);
    let checked = sluicegate(directory.path(), "check - < main.yaml");
    assert_eq!(checked.code, Some(1), "{checked}");
    assert!(checked.stderr.contains("conf.d/a.yaml:1:1"), "{checked}");
}

#[test]
fn errors_and_warnings_name_their_file_with_its_line_and_key() {
    let directory = directory(&[
        ("main.yaml", MAIN),
        (
            "conf.d/a.yaml",
            "# a\nroutes:\n  - { match: { path: /a }, upstream: gone }\n  - { match: { pth: /b }, upstream: echo }\n",
        ),
        (
            "conf.d/b.yaml",
            "policies:\n  p: { quota: often }\nlisteners: []\nrotes: []\n",
        ),
        ("conf.d/c.yaml", "include: d.yaml\n"),
        ("conf.d/d.yaml", "- a\n"),
    ]);
    let report = errors(&directory);
    for expected in [
        "--> conf.d/a.yaml:3:38\n  |\n3 |   - { match: { path: /a }, upstream: gone }\n  |                                      ^^^^",
        "= key: routes[1].upstream",
        "--> conf.d/a.yaml:4:16",
        "= key: routes[2].match.pth",
        "--> conf.d/b.yaml:2:15",
        "unknown key `listeners`\n --> conf.d/b.yaml:3:1",
        "the main file has all else; known keys of an included file: `policies`, `routes`, `upstreams`",
        "unknown key `rotes`\n --> conf.d/b.yaml:4:1",
        "did you mean `routes`?",
        "unknown key `include`\n --> conf.d/c.yaml:1:1",
        "--> conf.d/d.yaml:1:3",
        "main.yaml: 7 errors",
    ] {
        assert!(report.contains(expected), "no {expected:?} in\n{report}");
    }
    let checked = sluicegate(directory.path(), "check main.yaml --json");
    let answer: Value = serde_json::from_str(&checked.stdout).expect("JSON");
    let finding = &answer["files"][0]["findings"][0];
    assert_eq!(
        (&finding["file"], &finding["line"]),
        (&json!("conf.d/a.yaml"), &json!(3))
    );
    let checked = sluicegate(directory.path(), "check main.yaml --format sarif");
    assert!(
        checked.stdout.contains("\"uri\": \"conf.d/a.yaml\""),
        "{checked}"
    );
    let broken = &directory.path().join("conf.d");
    write(broken, "b.yaml", "policies: {\n");
    write(broken, "c.yaml", "routes: [\n");
    let report = errors(&directory);
    assert!(
        report.contains("conf.d/b.yaml:") && report.contains("conf.d/c.yaml:"),
        "{report}"
    );
}

#[test]
fn a_name_that_two_files_define_names_both_places() {
    let directory = directory(&[
        (
            "main.yaml",
            &format!("{MAIN}policies:\n  p: {{ quota: 1/1s }}\n"),
        ),
        (
            "conf.d/a.yaml",
            "\npolicies: { p: { quota: 2/1s } }\nupstreams: { u: { endpoints: [http://a] } }\n",
        ),
        (
            "conf.d/b.yaml",
            "upstreams: { u: { endpoints: [http://b] } }\n",
        ),
    ]);
    let report = errors(&directory);
    for place in [
        "conf.d/a.yaml:2:13",
        "main.yaml:4:3",
        "conf.d/b.yaml:1:14",
        "conf.d/a.yaml:3:14",
    ] {
        assert!(report.contains(place), "no {place} in\n{report}");
    }
    assert!(
        report.contains("another file has this name, too"),
        "{report}"
    );
    assert!(report.contains("main.yaml: 2 errors"), "{report}");
    let names = [
        ("main.yaml", MAIN),
        ("conf.d/a.yaml", &*answering("x", "/a")),
        ("conf.d/b.yaml", &*answering("x", "/b")),
    ];
    let report = errors(&self::directory(&names));
    assert!(
        report.contains("conf.d/b.yaml:1:18") && report.contains("conf.d/a.yaml:1:18"),
        "{report}"
    );
}

#[test]
fn what_cannot_be_included_is_an_error_and_nothing_waits() {
    let directory = directory(&[
        ("text.yaml", "routes: []\n"),
        ("folder/x", ""),
        ("latin.yaml", ""),
    ]);
    let path = |name: &str| directory.path().join(name);
    mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    fs::create_dir(path("pipes")).expect("created");
    mknodat(CWD, path("pipes/a.yaml"), FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    fs::create_dir(path("links")).expect("created");
    symlink("nowhere", path("links/a.yaml")).expect("linked");
    fs::write(path("latin.yaml"), b"# \xe4\n").expect("written");
    let root = directory.path().display();
    for (include, expected) in [
        (
            "missing.yaml",
            format!("{root}/missing.yaml cannot be read: there is no such file"),
        ),
        ("folder", "folder is a directory".to_owned()),
        (
            "pipe",
            format!("{root}/pipe cannot be read: it is a pipe; name a file"),
        ),
        (
            "pipes/*.yaml",
            format!("{root}/pipes/a.yaml cannot be read: it is a pipe; name a file"),
        ),
        (
            "links/*.yaml",
            format!("{root}/links/a.yaml cannot be read: there is no such file"),
        ),
        (
            "/dev/zero",
            "/dev/zero cannot be read: it is a device; name a file".to_owned(),
        ),
        (
            "latin.yaml",
            "latin.yaml: it isn't UTF-8 text, from line 1 on".to_owned(),
        ),
        (
            "text.yaml/*.yaml",
            "a part of its path isn't a directory".to_owned(),
        ),
        (
            "conf*/a.yaml",
            "`*` and `?` can't stand in a directory's name".to_owned(),
        ),
        ("folder/", "is a directory".to_owned()),
        ("{ a: b }", "the path of a file, or a list".to_owned()),
        ("", "`include` has no value".to_owned()),
    ] {
        write(
            directory.path(),
            "main.yaml",
            &format!("include: {include}\nroutes: [{{ upstream: echo }}]\n"),
        );
        let report = errors(&directory);
        assert!(report.contains(&expected), "no {expected:?} in\n{report}");
        assert!(report.contains("main.yaml:1:"), "{report}");
    }
}

#[test]
fn a_pattern_without_files_is_a_warning() {
    let directory = directory(&[("main.yaml", MAIN), ("conf.d/.keep", "")]);
    let checked = sluicegate(directory.path(), "check main.yaml");
    assert_eq!(checked.code, Some(0), "{checked}");
    assert!(
        checked.stderr.contains("no file matches this pattern"),
        "{checked}"
    );
    fs::remove_dir_all(directory.path().join("conf.d")).expect("removed");
    let report = errors(&directory);
    assert!(
        report.contains("conf.d/*.yaml cannot be read: there is no such file")
            && report.contains("there is no directory"),
        "{report}"
    );
}

#[test]
fn files_have_bounds_in_all() {
    let directory = directory(&[("main.yaml", MAIN)]);
    for number in 0..1_001 {
        write(directory.path(), &format!("conf.d/{number}.yaml"), "");
    }
    assert!(errors(&directory).contains("more than 1,000 files are included"));
    fs::remove_file(directory.path().join("conf.d/1000.yaml")).expect("removed");
    sound(&directory);
    let large = format!("#{}\n", "x".repeat(9 << 20));
    write(directory.path(), "conf.d/1.yaml", &large);
    sound(&directory);
    write(directory.path(), "conf.d/2.yaml", &large);
    let report = errors(&directory);
    assert!(
        report.contains("with conf.d/2.yaml, all files have more than 16 MiB"),
        "{report}"
    );
    // 11,000 values by aliases in each of 50 files.
    let ten = |name: &str| vec![format!("*{name}"); 10].join(", ");
    let aliases = format!(
        "x-a: &a [{}]\nx-b: &b [{}]\nx-c: &c [{}]\nx-d: [{}]\n",
        "1, ".repeat(10),
        ten("a"),
        ten("b"),
        ten("c")
    );
    for number in 1..=50 {
        write(directory.path(), &format!("conf.d/{number}.yaml"), &aliases);
    }
    let report = errors(&directory);
    assert!(report.contains("aliases stand for too much"), "{report}");
    (31..=50).for_each(|number| write(directory.path(), &format!("conf.d/{number}.yaml"), ""));
    sound(&directory);
}

/// Waits for one more successful reload than before, which `change` causes.
fn reloaded(gateway: &Gateway, change: impl FnOnce()) {
    let before = gateway.reloads("success");
    change();
    wait_for("the reload", || {
        (gateway.reloads("success") > before).then_some(())
    });
}

#[test]
fn added_changed_and_removed_files_are_noticed() {
    let files = directory(&[
        ("sluicegate.yaml", &with_free_ports(MAIN)),
        ("conf.d/a.yaml", &answering("a", "/a")),
    ]);
    let gateway = Gateway::start_with(files, ["run", "--config", "sluicegate.yaml"]);
    let status = |path: &str| get(gateway.address(), path).status;
    let at = |path: &str| gateway.dir().join("conf.d").join(path);
    assert_eq!(["/main", "/a", "/b"].map(status), [200, 200, 404]);
    reloaded(&gateway, || {
        fs::write(at("b.yaml"), answering("b", "/b")).expect("written")
    });
    assert_eq!(["/main", "/a", "/b"].map(status), [200, 200, 200]);
    reloaded(&gateway, || {
        fs::write(at("a.yaml"), answering("a", "/changed")).expect("written")
    });
    assert_eq!(["/changed", "/a", "/b"].map(status), [200, 404, 200]);
    reloaded(&gateway, || fs::remove_file(at("b.yaml")).expect("removed"));
    assert_eq!(["/changed", "/b"].map(status), [200, 404]);
    // A new file with a mistake changes nothing, and is noticed when it is right.
    fs::write(at("c.yaml"), "\n\nroutes: 5\n").expect("written");
    let line = gateway.wait_for_line("the mistake", |line| line.contains("conf.d/c.yaml"));
    assert!(line.contains('3'), "{line}");
    assert_eq!(["/changed", "/c"].map(status), [200, 404]);
    reloaded(&gateway, || {
        fs::write(at("c.yaml"), answering("c", "/c")).expect("written")
    });
    assert_eq!(status("/c"), 200);
    // Other files beside them are none of its business.
    let before = gateway.reloads("success");
    fs::write(at("notes.txt"), "x").expect("written");
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(gateway.reloads("success"), before);
}

const ONCE: &str = "policies: { once: { quota: 1/1d, key: constant } }
routes: [{ match: { path: /once }, upstream: echo, limits: [once] }]
";
const REST: &str = "include: [conf.d/*.yaml, rest.yaml]\n";

/// A proxy with a limited route in `conf.d`, and a route for the rest, whose client has used its unit.
fn spent() -> Gateway {
    let files = directory(&[
        ("sluicegate.yaml", &with_free_ports(REST)),
        ("conf.d/a.yaml", ONCE),
        ("rest.yaml", "routes: [{ upstream: echo }]\n"),
    ]);
    let gateway = Gateway::start_with(files, ["run", "--config", "sluicegate.yaml"]);
    assert_eq!(get(gateway.address(), "/once").status, 200);
    assert_eq!(get(gateway.address(), "/once").status, 429);
    gateway
}

fn failed(gateway: &Gateway, change: impl FnOnce()) {
    let before = gateway.reloads("failure");
    change();
    wait_for("the failure", || {
        (gateway.reloads("failure") > before).then_some(())
    });
}

#[test]
fn limits_stay_while_all_files_of_a_pattern_are_away() {
    let gateway = spent();
    let at = |path: &str| gateway.dir().join(path);
    let limited = |what: &str| assert_eq!(get(gateway.address(), "/once").status, 429, "{what}");
    failed(&gateway, || {
        fs::rename(at("conf.d"), at("x")).expect("moved")
    });
    gateway.wait_for_log("conf.d/*.yaml cannot be read: there is no such file");
    limited("without the directory");
    reloaded(&gateway, || {
        fs::rename(at("x"), at("conf.d")).expect("moved")
    });
    failed(&gateway, || {
        fs::rename(at("conf.d/a.yaml"), at("conf.d/a")).expect("moved")
    });
    gateway.wait_for_log("conf.d/*.yaml any more");
    limited("without a file");
    failed(&gateway, || gateway.signal(rustix::process::Signal::HUP));
    limited("after a second reload");
    // A link to nothing is a missing file, also beside others.
    reloaded(&gateway, || {
        fs::write(at("conf.d/b.yaml"), ONCE).expect("written")
    });
    failed(&gateway, || {
        symlink("nowhere", at("conf.d/c.yaml")).expect("linked")
    });
    limited("beside a link to nothing");
    // A comment says that nothing is meant.
    reloaded(&gateway, || {
        fs::remove_file(at("conf.d/c.yaml")).expect("removed");
        fs::write(at("conf.d/b.yaml"), "# nothing for now\n").expect("written");
    });
    assert_eq!(get(gateway.address(), "/once").status, 200);
}

#[test]
fn the_link_swap_of_a_config_map_with_several_files_is_noticed() {
    let files = directory(&[
        (
            "sluicegate.yaml",
            &with_free_ports(
                "include: routes/*.yaml\nroutes: [{ match: { path: /main }, upstream: echo }]\n",
            ),
        ),
        ("routes/..1/a.yaml", &answering("a", "/1")),
        ("routes/..2/a.yaml", &answering("a", "/2")),
        ("routes/..2/b.yaml", &answering("b", "/b")),
    ]);
    let routes = files.path().join("routes");
    symlink("..1", routes.join("..data")).expect("linked");
    symlink("..data/a.yaml", routes.join("a.yaml")).expect("linked");
    let gateway = Gateway::start_with(files, ["run", "--config", "sluicegate.yaml"]);
    let status = |path: &str| get(gateway.address(), path).status;
    assert_eq!(["/1", "/2", "/b"].map(status), [200, 404, 404]);
    // The kubelet links new files before the swap, and removes those of gone ones behind it.
    symlink("..data/b.yaml", routes.join("b.yaml")).expect("linked");
    symlink("..2", routes.join("..data_tmp")).expect("linked");
    fs::rename(routes.join("..data_tmp"), routes.join("..data")).expect("renamed");
    fs::remove_dir_all(routes.join("..1")).expect("removed");
    wait_for("the reload", || (status("/b") == 200).then_some(()));
    assert_eq!(["/1", "/2"].map(status), [404, 200]);
}

#[test]
fn the_admin_api_shows_included_files_masked_and_includes_none_for_callers() {
    let secret = "policies: { a: { quota: 1/1s, key: constant } } # a-comment\n";
    let files = directory(&[
        (
            "sluicegate.yaml",
            &with_free_ports(&format!("{TOKENS}{MAIN}")),
        ),
        (
            "conf.d/a.yaml",
            &format!("{secret}{}", answering("a", "/a")),
        ),
        (
            "conf.d/b.yaml",
            "upstreams: { u: { endpoints: [\"http://user:hunter2@a\"] } }\n",
        ),
        ("secret.yaml", "hunter2: [\n"),
    ]);
    fs::remove_file(files.path().join("conf.d/b.yaml")).expect("removed");
    let gateway = Gateway::start_with(files, ["run", "--config", "sluicegate.yaml"]);
    let client = AdminClient::writer(&gateway);
    let running = client.read("/v1/config");
    let text = running["text"].as_str().expect("a text");
    assert!(
        text.contains("conf.d/a.yaml\npolicies: { a: { quota: 1/1s, key: constant } }"),
        "{text}"
    );
    assert!(
        text.contains("name: a, match: { path: /a }") && !text.contains("a-comment"),
        "{text}"
    );
    let file = gateway.dir().join("conf.d/a.yaml");
    reloaded(&gateway, || {
        fs::write(file, answering("a", "/a")).expect("written")
    });
    assert_ne!(client.read("/v1/config")["hash"], running["hash"]);
    for include in ["secret.yaml", "/etc/passwd", "/etc/*"] {
        let text = format!("include: {include}\nroutes: [{{ upstream: echo }}]\n");
        let answer = client.post("/v1/check", &json!({ "text": text })).text();
        assert!(answer.contains("only a file can include files"), "{answer}");
        assert!(
            !answer.contains("hunter2") && !answer.contains("root"),
            "{answer}"
        );
    }
}

#[test]
fn a_file_that_only_a_failed_configuration_names_is_watched() {
    let gateway = Gateway::start("routes: [{ upstream: echo }]\n");
    let failures = || gateway.reloads("failure");
    let tls = "tls: { certificates: [{ certificate: new.pem, key: new.key }] }";
    gateway.replace_config(&format!(
        "include: more.yaml\nlisteners: [{{ address: 127.0.0.1:0 }}, {{ address: 127.0.0.1:0, {tls} }}]\nroutes: []\n"
    ));
    wait_for("the failure", || (failures() >= 1).then_some(()));
    write(gateway.dir(), "more.yaml", "routes: [{ upstream: echo }]\n");
    wait_for("another failure", || (failures() >= 2).then_some(()));
    certify(gateway.dir(), "new", &["localhost"]);
    wait_for("the reload", || {
        (gateway.reloads("success") >= 1).then_some(())
    });
}
