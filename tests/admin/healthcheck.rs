//! `sluicegate healthcheck`: an exit code for container engines and scripts.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use rustix::process::Signal;

use crate::support::client::Output;
use crate::support::gateway::Gateway;
use crate::support::tls::certify;
use crate::support::wait_for;

const ROUTES: &str = "routes: [{ upstream: echo }]\n";

fn healthcheck(gateway: &Gateway, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    command
        .arg("healthcheck")
        .args(arguments)
        .current_dir(gateway.dir())
        .env_remove("SLUICEGATE_CONFIG");
    let output = command.output().expect("the binary starts");
    Output {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code(),
    }
}

#[test]
fn a_proxy_is_ready_until_it_drains_and_lives_on_meanwhile() {
    let admin = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = admin.local_addr().expect("a bound socket");
    drop(admin);
    let gateway = Gateway::start(&format!(
        "admin: {{ address: \"{address}\" }}\nshutdown: {{ delay: 30s }}\n{ROUTES}"
    ));
    for arguments in [&[][..], &["--live"], &["--admin", &address.to_string()]] {
        let well = healthcheck(&gateway, arguments);
        assert_eq!(well.code, Some(0), "{well}");
        assert!(well.stderr.is_empty(), "{well}");
    }
    gateway.signal(Signal::TERM);
    let drains = wait_for("the end to begin", || {
        let answer = healthcheck(&gateway, &[]);
        (answer.code == Some(1)).then_some(answer)
    });
    let told = format!("http://{address}/readyz answers 503 Service Unavailable: draining");
    assert!(drains.stderr.contains(&told), "{drains}");
    assert_eq!(healthcheck(&gateway, &["--live"]).code, Some(0));
}

#[test]
fn the_certificates_of_the_configuration_are_trusted_and_so_is_a_given_one() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let dir = files.path().display();
    certify(files.path(), "admin", &["127.0.0.1"]);
    let gateway = Gateway::start_unready(&format!(
        "admin:
  address: 127.0.0.1:0
  tls: {{ certificates: [{{ certificate: {dir}/admin.pem, key: {dir}/admin.key }}] }}
{ROUTES}"
    ));
    let admin = format!("https://{}", gateway.admin);
    let certificate = format!("{dir}/admin.pem");
    let trusting = ["--live", "--admin", &admin, "--ca", &certificate];
    let well = healthcheck(&gateway, &trusting);
    assert_eq!(well.code, Some(0), "{well}");
    let found = healthcheck(&gateway, &trusting[..3]);
    assert_eq!(found.code, Some(0), "{found}");
    let without = [&trusting[..3], &["--config", "none.yaml"]].concat();
    let unverified = healthcheck(&gateway, &without);
    assert_eq!(unverified.code, Some(1), "{unverified}");
    assert!(unverified.stderr.contains("--ca FILE"), "{unverified}");

    let port = gateway.admin.port();
    let text = fs::read_to_string(gateway.dir().join("sluicegate.yaml")).expect("the file");
    let own = text.replace(
        "address: 127.0.0.1:0\n",
        &format!("address: 127.0.0.1:{port}\n"),
    );
    fs::write(gateway.dir().join("own.yaml"), own).expect("the directory is writable");
    let well = healthcheck(&gateway, &["--live", "--config", "own.yaml"]);
    assert_eq!(well.code, Some(0), "{well}");
}

#[test]
fn without_an_answer_it_fails_in_time_and_says_where_it_asked() {
    let gateway = Gateway::start(ROUTES);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("a bound socket").to_string();
    let late = healthcheck(&gateway, &["--admin", &address]);
    assert_eq!(late.code, Some(1), "{late}");
    assert!(
        late.stderr.contains("does not answer within 10 s"),
        "{late}"
    );
    drop(silent);
    let refused = healthcheck(&gateway, &["--admin", &address]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains(&address), "{refused}");
    // A file that can't be read is reported, and doesn't say that the proxy is down.
    fs::write(gateway.dir().join("broken.yaml"), "routes: [{}]\n").expect("a file");
    let broken = healthcheck(&gateway, &["--config", "broken.yaml"]);
    assert!(broken.stderr.contains("broken.yaml"), "{broken}");
}

#[test]
fn a_file_that_was_not_reloaded_still_says_where_the_proxy_is() {
    let gateway = Gateway::start(ROUTES);
    let admin = gateway.admin;
    let broken = format!("admin: {{ address: \"{admin}\" }}\nroutes: [{{ upstream: nowhere }}]\n");
    let config = gateway.dir().join("sluicegate.yaml");
    fs::write(&config, &broken).expect("the directory is writable");
    let well = healthcheck(&gateway, &[]);
    assert_eq!(well.code, Some(0), "{well}");
    assert!(well.stderr.contains("`nowhere`"), "{well}");
    for unknown in [
        format!("{broken}routes: ["),
        broken.replace(&admin.to_string(), "localhost"),
        broken.replace("address", "adress"),
    ] {
        fs::write(&config, unknown).expect("the directory is writable");
        let told = healthcheck(&gateway, &[]).stderr;
        let expected = "\nasking the proxy at 127.0.0.1:9980, because";
        assert!(told.contains(expected), "{told}");
    }
}
