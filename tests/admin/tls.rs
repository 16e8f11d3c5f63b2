//! `admin.tls`: probes, metrics, the API, the dashboard and the command line over TLS.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::admin::READER;
use crate::support::client::{Output, curl};
use crate::support::gateway::Gateway;
use crate::support::tls::{certify, certify_until};
use crate::support::wait_for;

const NAMES: [&str; 2] = ["admin.test", "127.0.0.1"];

fn gateway(files: &Path) -> Gateway {
    let dir = files.display();
    Gateway::start_unready(&format!(
        "admin:
  address: 127.0.0.1:0
  tokens: {{ read: [{READER}] }}
  hosts: [admin.test]
  tls: {{ certificates: [{{ certificate: {dir}/admin.pem, key: {dir}/admin.key }}] }}
routes: [{{ upstream: echo }}]
"
    ))
}

/// Asks the admin listener, trusting its certificate alone.
fn ask(gateway: &Gateway, files: &Path, path: &str) -> Output {
    let port = gateway.admin.port();
    let trusted = files.join("admin.pem").display().to_string();
    let authorization = format!("Authorization: Bearer {READER}");
    curl(&[
        "--resolve",
        &format!("admin.test:{port}:127.0.0.1"),
        "--cacert",
        &trusted,
        "-H",
        &authorization,
        "-w",
        "\n%{http_code}",
        &format!("https://admin.test:{port}{path}"),
    ])
}

fn status(gateway: &Gateway, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    command
        .arg("status")
        .args(arguments)
        .current_dir(gateway.dir())
        .env_remove("SLUICEGATE_CONFIG")
        .env_remove("SLUICEGATE_ADMIN_TOKEN");
    let output = command.output().expect("the binary starts");
    Output {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code(),
    }
}

#[test]
fn the_admin_listener_speaks_tls_and_takes_new_certificates() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let files = files.path();
    certify(files, "admin", &NAMES);
    let gateway = gateway(files);
    wait_for("/readyz", || {
        ask(&gateway, files, "/readyz")
            .stdout
            .ends_with("200")
            .then_some(())
    });
    for path in [
        "/livez",
        "/metrics",
        "/",
        "/assets/css/dashboard.css",
        "/v1/status",
    ] {
        let answer = ask(&gateway, files, path);
        assert!(answer.stdout.ends_with("200"), "{path}: {answer}");
    }
    let clear = curl(&[&format!("http://{}/readyz", gateway.admin)]);
    assert_ne!(clear.code, Some(0), "{clear}");

    let url = format!("https://{}", gateway.admin);
    let well = status(&gateway, &["--admin", &url]);
    assert_eq!(well.code, Some(0), "{well}");
    certify(files, "admin", &NAMES);
    wait_for("the new certificate", || {
        (ask(&gateway, files, "/livez").code == Some(0)).then_some(())
    });
    assert_eq!(status(&gateway, &["--admin", &url]).code, Some(0));
}

#[test]
fn an_admin_certificate_that_has_expired_is_a_problem() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let files = files.path();
    certify_until(
        files,
        "admin",
        &NAMES,
        UNIX_EPOCH + Duration::from_secs(86_400),
    );
    let gateway = gateway(files);
    let url = format!("https://{}", gateway.admin);
    let ill = status(&gateway, &["--admin", &url]);
    assert_eq!(ill.code, Some(1), "{ill}");
    assert!(
        ill.stdout.contains("admin.pem expired on 1970-01-02"),
        "{ill}"
    );
    let metrics = curl(&["-k", &format!("{url}/metrics")]).stdout;
    assert!(metrics.contains("admin.pem\"} 86400\n"), "{metrics}");
}

#[test]
fn the_command_line_trusts_the_configuration_a_file_or_the_system() {
    let files = tempfile::tempdir().expect("a temporary directory");
    certify(files.path(), "admin", &NAMES);
    certify(files.path(), "other", &NAMES);
    let gateway = gateway(files.path());
    let (url, port) = (format!("https://{}", gateway.admin), gateway.admin.port());
    let file = |name: &str| files.path().join(name).display().to_string();
    let (own, other) = (file("admin.pem"), file("other.pem"));
    let elsewhere = ["--token", READER, "--admin", &url];
    for more in [&["--ca", &own[..]][..], &[]] {
        let trusted = status(&gateway, &[&elsewhere[..], more].concat());
        assert_eq!(trusted.code, Some(0), "{trusted}");
    }
    let localhost = format!("https://localhost:{port}");
    for (arguments, reason) in [
        ([&elsewhere[..], &["--ca", &other]].concat(), "--ca FILE"),
        (
            [&elsewhere[..], &["--config", "none.yaml"]].concat(),
            "--ca FILE",
        ),
        (vec!["--admin", &url, "--ca", &other], "--ca FILE"),
        (
            vec!["--token", READER, "--admin", &localhost, "--ca", &own],
            "not valid for name",
        ),
        (
            vec!["--token", READER, "--admin", &url[8..]],
            "write https:// if it has TLS",
        ),
    ] {
        let refused = status(&gateway, &arguments);
        assert_eq!(refused.code, Some(1), "{arguments:?}: {refused}");
        assert!(refused.stderr.contains(reason), "{arguments:?}: {refused}");
    }
    // A file with the address says how to reach it, and what to trust.
    let text = fs::read_to_string(gateway.config_path()).expect("it is readable");
    let address = format!("admin:\n  address: {}", gateway.admin);
    let text = text.replace("admin:\n  address: 127.0.0.1:0", &address);
    fs::write(gateway.dir().join("client.yaml"), text).expect("the directory is writable");
    for more in [&[][..], &["--token", READER], &["--ca", &own]] {
        let well = status(&gateway, &[&["--config", "client.yaml"], more].concat());
        assert_eq!(well.code, Some(0), "{well}");
    }
}
