//! `sluicegate client`: new keys, and digests of keys.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::client::run;
use crate::support::gateway::BINARY;

/// The digest of a key, by the command.
fn digest(key: &str) -> String {
    let command = format!("printf '%s\n' '{key}' | '{BINARY}' client hash");
    run("sh", &["-c", &command]).stdout.trim_end().to_owned()
}

#[test]
fn a_digest_is_the_sha_256_of_a_line() {
    // printf test | sha256sum
    let expected = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    assert_eq!(digest("test"), expected);
    assert_eq!(digest("test\r"), expected);
}

#[test]
fn a_new_key_is_printed_once_and_its_digest_is_added() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("clients.csv");
    let path = file.to_str().expect("UTF-8");
    let new = |arguments: &[&str]| {
        run(
            BINARY,
            &[&["client", "new", "--file", path], arguments].concat(),
        )
    };
    let read = || fs::read_to_string(&file).expect("the file is there");
    let first = new(&["acme, inc", "plan=pro"]);
    let key = first.stdout.trim_end();
    assert_eq!((first.code, key.len()), (Some(0), 36), "{first}");
    assert!(key.starts_with("sgk_"), "{key}");
    let line = format!("key,name,plan\n{},\"acme, inc\",pro\n", digest(key));
    assert_eq!(read(), line);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("permitted");
    // A further key of the same client has its values.
    let second = new(&["acme, inc"]);
    let second = second.stdout.trim_end();
    assert_ne!(second, key);
    let both = format!("{line}{},\"acme, inc\",pro\n", digest(second));
    assert_eq!(read(), both);
    let mode = fs::metadata(&file).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    for (arguments, expected) in [
        (&["acme, inc", "plan=free"][..], "another value"),
        (&["other", "plam=free"], "there is no column `plam`"),
        (&["", "plan=free"], "the name is empty"),
    ] {
        let refused = new(arguments);
        assert_eq!((refused.code, &*refused.stdout), (Some(1), ""), "{refused}");
        assert!(refused.stderr.contains(expected), "{refused}");
        assert_eq!(read(), both);
    }
}
