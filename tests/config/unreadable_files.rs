//! Unreadable files of a configuration: one report names all of them, with absolute paths and
//! advice.

use std::fs;
use std::path::Path;

use crate::support::client::run;

/// What `check` says of a text.
fn check(directory: &Path, text: &str) -> String {
    let file = directory.join("sluicegate.yaml");
    fs::write(&file, text).expect("the directory is writable");
    check_file(&file)
}

fn check_file(file: &Path) -> String {
    let file = file.to_str().expect("a text");
    let checked = run(env!("CARGO_BIN_EXE_sluicegate"), &["check", file]);
    assert_eq!(checked.code, Some(1), "{checked}");
    checked.stderr
}

fn certificate(directory: &Path, name: &str) {
    let made = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]);
    let made = made.expect("a certificate");
    let path = |kind: &str| directory.join(format!("{name}.{kind}"));
    fs::write(path("pem"), made.cert.pem()).expect("the directory is writable");
    fs::write(path("key"), made.signing_key.serialize_pem()).expect("the directory is writable");
}

#[test]
fn every_file_is_reported_with_its_path_and_advice() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = directory.path();
    certificate(at, "one");
    certificate(at, "other");
    fs::write(at.join("text"), "no keys").expect("the directory is writable");
    fs::create_dir(at.join("folder")).expect("the directory is writable");
    let report = check(
        at,
        "listeners:
  - address: 127.0.0.1:0
    tls:
      certificates:
        - { certificate: none.pem, key: keys/none.key }
        - { certificate: one.pem, key: other.key }
        - { certificate: one.key, key: one.key }
        - { certificate: one.pem, key: folder }
upstreams:
  inner: { endpoints: [https://a.test], tls: { ca: none.ca } }
jwt: { keys: [{ jwks_file: none.json }, { jwks_file: text }] }
routes: [{ upstream: inner }]
",
    );
    let root = at.display();
    for expected in [
        format!("{root}/none.pem cannot be read: there is no such file"),
        format!("help: look at the name: its directory {root} is there"),
        format!("{root}/keys/none.key cannot be read: there is no such file"),
        format!("help: look at the path: there is no directory {root}/keys"),
        format!("{root}/other.key is not the key of {root}/one.pem"),
        "help: compare `openssl x509".to_owned(),
        format!("{root}/one.key holds no certificate"),
        "help: are `certificate` and `key` exchanged?".to_owned(),
        format!("{root}/folder cannot be read: it is a directory"),
        format!("{root}/none.ca cannot be read: there is no such file"),
        format!("{root}/none.json cannot be read: there is no such file"),
        format!("{root}/text: it isn't a JSON Web Key Set"),
    ] {
        assert!(report.contains(&expected), "no {expected:?} in\n{report}");
    }
    assert!(!report.contains("KeyMismatch"), "{report}");
    assert!(report.ends_with("8 errors\n"), "{report}");
}

#[test]
fn the_configuration_itself_is_named_with_its_path() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let missing = directory.path().join("conf/sluicegate.yaml");
    let report = check_file(&missing);
    let root = directory.path().display();
    let expected = format!("look at the path: there is no directory {root}/conf");
    assert!(report.contains(&expected), "{report}");
    assert!(report.contains("there is no such file"), "{report}");
}

#[test]
fn utf_16_is_called_so() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let text = "routes: [{ upstream: echo }]\n";
    let little = |mark: &str| -> Vec<u8> {
        let units = format!("{mark}{text}");
        units.encode_utf16().flat_map(u16::to_le_bytes).collect()
    };
    let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    for content in [little("\u{feff}"), little(""), big] {
        let file = directory.path().join("sluicegate.yaml");
        fs::write(&file, content).expect("the directory is writable");
        let report = check_file(&file);
        assert!(report.contains("it is UTF-16, and not UTF-8"), "{report}");
        assert!(report.contains("iconv -f UTF-16 -t UTF-8"), "{report}");
    }
}

#[test]
fn no_file_is_written_by_two() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = |log: &str, snapshot: &str| {
        let text = format!(
            "access_log: {{ path: {log} }}\nstore: {{ memory: {{ snapshot: {{ path: {snapshot} }} }} }}\nroutes: [{{ upstream: echo }}]\n"
        );
        check(directory.path(), &text)
    };
    let twice = config("one", "./one");
    assert!(twice.contains("/one would be written twice"), "{twice}");
    let own = config("log", "sluicegate.yaml");
    assert!(
        own.contains("/sluicegate.yaml is the configuration itself"),
        "{own}"
    );
}

/// The parts of each file are valid by themselves, and something is wrong where they meet. None of
/// them may vanish without a word.
#[test]
fn a_part_of_a_pem_file_never_vanishes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = directory.path();
    certificate(at, "one");
    certificate(at, "other");
    let read = |name: &str| fs::read_to_string(at.join(name)).expect("it was written");
    let (one, other) = (read("one.pem"), read("other.pem"));
    let line = one.lines().count();
    let next = line + 1;
    let root = at.display();
    let indented: String = other.lines().map(|line| format!("  {line}\n")).collect();
    let middle = other.lines().nth(3).expect("a line of content");
    // Still base64, and no certificate any more.
    let mangled = other.replace(other.lines().nth(1).expect("a line"), "MAAA");
    let not_base64 = other.replace(middle, &middle.replace(&middle[..1], "*"));
    let cut: String = other
        .lines()
        .take(5)
        .map(|line| format!("{line}\n"))
        .collect();
    for (chain, expected) in [
        (
            format!("{}{other}", one.trim_end()),
            format!(":{line}: `-----BEGIN"),
        ),
        (one.clone() + &indented, format!(":{next}: `-----BEGIN")),
        (
            one.clone() + &not_base64,
            format!(":{}: the content of the block", next + 3),
        ),
        (
            one.clone() + &mangled,
            format!(":{next}: the certificate cannot be used"),
        ),
        (
            one.clone() + &cut,
            format!(":{next}: the block `CERTIFICATE` has no end"),
        ),
    ] {
        fs::write(at.join("chain.pem"), &chain).expect("the directory is writable");
        let report = check(
            at,
            "listeners:
  - { address: 127.0.0.1:0, tls: { certificates: [{ certificate: chain.pem, key: one.key }] } }
upstreams:
  inner: { endpoints: [https://a.test], tls: { ca: chain.pem } }
store: { redis: { url: rediss://127.0.0.1, tls: { ca: chain.pem } } }
tracing: { endpoint: https://127.0.0.1, tls: { ca: chain.pem } }
policies: { p: { quota: 1/s, store: redis } }
routes: [{ upstream: inner, limits: [p] }]
",
        );
        let expected = format!("{root}/chain.pem{expected}");
        assert_eq!(
            report.matches(&expected).count(),
            4,
            "{expected} in\n{report}"
        );
    }
}

/// Windows editors begin UTF-8 files with a byte order mark.
#[test]
fn a_byte_order_mark_is_no_part_of_a_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = directory.path();
    certificate(at, "one");
    fs::write(at.join("token"), "0123456789abcdef0123").expect("the directory is writable");
    let secret = "k".repeat(43);
    let set = format!(r#"{{ "keys": [{{ "kty": "oct", "alg": "HS256", "k": "{secret}" }}] }}"#);
    fs::write(at.join("keys.json"), set).expect("the directory is writable");
    let file = at.join("sluicegate.yaml");
    let text = "listeners:
  - { address: 127.0.0.1:0, tls: { certificates: [{ certificate: one.pem, key: one.key }] } }
admin: { tokens: { read: [{ file: token }] } }
upstreams:
  inner: { endpoints: [https://a.test], tls: { ca: one.pem } }
jwt: { keys: [{ jwks_file: keys.json }] }
policies: { p: { key: \"jwt:sub\", quota: 1/s } }
routes: [{ upstream: inner, limits: [p] }]
";
    fs::write(&file, text).expect("the directory is writable");
    for name in [
        "one.pem",
        "one.key",
        "token",
        "keys.json",
        "sluicegate.yaml",
    ] {
        let content = fs::read_to_string(at.join(name)).expect("it was written");
        let marked = format!("\u{feff}{content}");
        fs::write(at.join(name), marked).expect("the directory is writable");
        let checked = run(
            env!("CARGO_BIN_EXE_sluicegate"),
            &["check", file.to_str().expect("a text")],
        );
        assert_eq!(checked.code, Some(0), "{name}: {checked}");
    }
}

#[test]
fn a_line_of_networks_may_have_a_comment_and_no_bits_behind_its_prefix() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = directory.path();
    let text = "access: { deny: [{ cidr: [{ file: good }, { file: bits }] }, { cidr: [{ file: other }] }] }
routes: [{ upstream: echo }]
";
    for (name, list) in [
        ("good", "10.0.0.0/8 # office\n2001:db8::/32# lab\n"),
        ("bits", "# offices\n10.0.0.1/8 # ours\n"),
        ("other", "hunter2\n"),
    ] {
        fs::write(at.join(name), list).expect("the directory is writable");
    }
    let report = check(at, text);
    for expected in [
        "bits: line 2: `10.0.0.1/8` has bits set beyond its prefix",
        "other: line 1: expected a network or an address",
        "2 errors",
    ] {
        assert!(report.contains(expected), "no {expected:?} in\n{report}");
    }
    assert!(!report.contains("hunter2"), "{report}");
}
