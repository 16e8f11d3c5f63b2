//! The files of a release: the same bytes twice, a bill of materials, and a Debian package whose whole life
//! on a machine with systemd is played.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Runs a program of the repository, and returns what it prints. Packages are quick to make.
fn run(program: &str, arguments: &[&Path]) -> String {
    let mut command = Command::new(Path::new(ROOT).join(program));
    let output = command.args(arguments).env("DEB_LEVEL", "0").output();
    let output = output.expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program}: {}\n{printed}{errors}",
        output.status
    );
    printed
}

/// Copies the binary under test without its symbols, which would make a package of 100 MB.
fn strip(dir: &Path) {
    let mut strip = Command::new("strip");
    strip.arg(env!("CARGO_BIN_EXE_sluicegate"));
    let status = strip.arg("-o").arg(dir.join("binary")).status();
    assert!(status.expect("binutils").success());
}

/// Makes a release in a folder of its own, and returns a function that finds its file with this ending.
fn release(dir: &Path, name: &str) -> impl Fn(&str) -> PathBuf {
    let to = dir.join(name);
    run("scripts/release", &[&to, &dir.join("binary")]);
    move |ending| {
        let files = fs::read_dir(&to).expect("the folder of the release");
        let mut files = files.map(|file| file.expect("a file").path());
        let found = files.find(|path| path.to_string_lossy().ends_with(ending));
        found.unwrap_or_else(|| panic!("no file {ending} in the release"))
    }
}

#[test]
fn a_machine_installs_upgrades_removes_and_purges_a_reproducible_package() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    strip(dir);
    let [one, other] = ["one", "other"].map(|name| release(dir, name));
    let [sums, same] = [&one, &other].map(|file| fs::read_to_string(file("SHA256SUMS")));
    let sums = sums.expect("a text");
    assert_eq!(
        sums,
        same.expect("a text"),
        "two releases of one commit differ"
    );
    assert_eq!(sums.lines().count(), 5, "{sums}");

    let bill = fs::read_to_string(one(".cdx.json")).expect("a text");
    let bill: Value = serde_json::from_str(&bill).expect("JSON");
    assert_eq!(
        bill["metadata"]["component"]["version"],
        env!("CARGO_PKG_VERSION")
    );
    let components = bill["components"].as_array().expect("components");
    let has = |name: &str| components.iter().any(|component| component["name"] == name);
    assert!(
        has("hyper") && has("clap_builder") && !has("proptest"),
        "{bill}"
    );

    let may_mount = Command::new("unshare").args(["--mount", "true"]).status();
    if !may_mount.expect("util-linux").success() {
        eprintln!("skipped: only root may boot a container, and not within most containers");
        return;
    }
    let life = Path::new(ROOT).join("tests/cli/release/life");
    let lived = run("tests/cli/release/boot", &[&life, &one(".deb")]);
    assert!(lived.ends_with("every step passed\n"), "{lived}");
}
