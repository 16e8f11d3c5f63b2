//! TLS on both sides: certificates by name, versions, HTTP/2, certificates that change, and
//! upstreams that are verified.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::admin::{AdminClient, TOKENS};
use crate::support::client::{Output, curl, get, run};
use crate::support::frames::{Http2, get_block};
use crate::support::gateway::{Gateway, with_free_ports};
use crate::support::tls::{self, certify, certify_from, certify_until};
use crate::support::{wait_for, wall_clock};
use tempfile::TempDir;

const CONFIG: &str = "listeners:
  - address: 127.0.0.1:0
    tls:
      certificates:
        - { certificate: first.pem, key: first.key }
        - { certificate: second.pem, key: second.key }
routes: [{ upstream: echo }]
";

/// A proxy with certificates for `first.example` (the default) and `second.example`.
fn gateway() -> Gateway {
    let dir = tempfile::tempdir().expect("a temporary directory");
    certify(dir.path(), "first", &["first.example"]);
    certify(
        dir.path(),
        "second",
        &["second.example", "*.second.example"],
    );
    start(dir, CONFIG)
}

fn start(dir: TempDir, config: &str) -> Gateway {
    fs::write(dir.path().join("sluicegate.yaml"), with_free_ports(config))
        .expect("the directory is writable");
    Gateway::start_with(dir, ["run", "--config", "sluicegate.yaml"])
}

/// Asks for `host` over TLS, trusting this certificate alone.
fn ask(gateway: &Gateway, host: &str, trusted: &str, more: &[&str]) -> Output {
    let resolve = format!("{host}:{}:127.0.0.1", gateway.address().port());
    let url = format!("https://{host}:{}/", gateway.address().port());
    let trusted = gateway.dir().join(trusted);
    let trusted = trusted.to_str().expect("a text path");
    let print = ["-o", "/dev/null", "-w", "%{http_code} %{http_version}"];
    curl(
        &[
            &["--resolve", &resolve, "--cacert", trusted],
            &print[..],
            more,
            &[&url],
        ]
        .concat(),
    )
}

#[test]
fn certificates_are_chosen_by_name_with_a_default() {
    let gateway = gateway();
    for (host, trusted) in [
        ("first.example", "first.pem"),
        ("second.example", "second.pem"),
        ("www.second.example", "second.pem"),
    ] {
        let answer = ask(&gateway, host, trusted, &[]);
        assert_eq!(answer.stdout, "200 2", "{host}: {answer}");
    }
    assert_ne!(
        ask(&gateway, "second.example", "first.pem", &[]).code,
        Some(0)
    );
    // An unknown name, or none, gets the first certificate.
    let address = gateway.address().to_string();
    for names in [&["-servername", "nobody.example"][..], &["-noservername"]] {
        let shown = run(
            "openssl",
            &[&["s_client", "-connect", &address], names, &["-showcerts"]].concat(),
        );
        let first = fs::read_to_string(gateway.dir().join("first.pem"))
            .expect("the certificate")
            .replace("\r\n", "\n");
        assert!(shown.stdout.contains(first.trim()), "{names:?}: {shown}");
    }
}

#[test]
fn both_versions_of_tls_and_of_http_are_spoken_and_no_older_ones() {
    let gateway = gateway();
    let spoken = |more: &[&str]| ask(&gateway, "first.example", "first.pem", more);
    assert_eq!(spoken(&["--tlsv1.3"]).stdout, "200 2");
    assert_eq!(spoken(&["--tls-max", "1.2"]).stdout, "200 2");
    assert_eq!(spoken(&["--http1.1"]).stdout, "200 1.1");
    // curl offers `http/1.0` alone by ALPN; the response has the server's version.
    assert_eq!(spoken(&["--http1.0"]).stdout, "200 1.1");
    let address = gateway.address().to_string();
    let old = run(
        "openssl",
        &[
            "s_client",
            "-connect",
            &address,
            "-tls1_1",
            "-cipher",
            "ALL:@SECLEVEL=0",
        ],
    );
    assert_ne!(old.code, Some(0), "{old}");
}

/// Also for clients without ALPN: with prior knowledge of HTTP/2 they are served, others get an
/// error.
#[test]
fn a_listener_of_http2_alone_serves_nothing_else() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    certify(dir.path(), "first", &["first.example"]);
    let mut gateway = start(
        dir,
        "listeners:
  - address: 127.0.0.1:0
    protocols: [h2]
    tls: { certificates: [{ certificate: first.pem, key: first.key }] }
  - { address: 127.0.0.1:0, protocols: [h2] }
routes: [{ upstream: echo }]
",
    );
    let spoken = |more: &[&str]| ask(&gateway, "first.example", "first.pem", more);
    assert_eq!(spoken(&[]).stdout, "200 2");
    assert_ne!(
        spoken(&["--http1.1"]).code,
        Some(0),
        "no protocol in common"
    );
    assert_eq!(spoken(&["--no-alpn"]).stdout, "505 1.1");
    let certificate = gateway.dir().join("first.pem");
    let mut session = tls::connect(gateway.address(), "first.example", &certificate, &[]);
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..]].concat();
    session.write_all(&preface).expect("it is open");
    let mut answer = [0; 9];
    session.read_exact(&mut answer).expect("a frame");
    assert_eq!(answer[3], 4, "SETTINGS");

    let clear = gateway.listeners(2)[1];
    let answer = get(clear, "/");
    assert_eq!(answer.status, 505);
    assert_eq!(
        answer.text(),
        "505 HTTP Version Not Supported: this listener speaks HTTP/2 only\n"
    );
    assert_eq!(Http2::open(clear).status_of(1, &get_block()), 200);
}

#[test]
fn a_cleartext_client_on_a_tls_port_is_closed() {
    let gateway = gateway();
    let answer = curl(&["-o", "/dev/null", &gateway.url("/")]);
    assert_ne!(answer.code, Some(28), "curl waited in vain: {answer}");
    assert_eq!(
        ask(&gateway, "first.example", "first.pem", &[]).stdout,
        "200 2"
    );
}

#[test]
fn a_probe_that_sends_nothing_fails_no_handshake() {
    let gateway = gateway();
    let series = format!(
        "sluicegate_accept_errors_total{{listener=\"{}\"}}",
        gateway.address()
    );
    let failures = || gateway.metric(&series).unwrap_or(0.0);
    for _ in 0..3 {
        drop(TcpStream::connect(gateway.address()).expect("connects"));
    }
    let mut other = TcpStream::connect(gateway.address()).expect("connects");
    other.write_all(b"not TLS").expect("writes");
    drop(other);
    wait_for("the handshake to fail", || (failures() > 0.0).then_some(()));
    assert_eq!(failures(), 1.0);
}

#[test]
fn a_changed_certificate_is_used_unless_invalid() {
    let gateway = gateway();
    assert_eq!(
        ask(&gateway, "first.example", "first.pem", &[]).code,
        Some(0)
    );
    fs::copy(
        gateway.dir().join("first.pem"),
        gateway.dir().join("old.pem"),
    )
    .expect("the directory is writable");
    certify(gateway.dir(), "first", &["first.example"]);
    wait_for("the new certificate", || {
        (ask(&gateway, "first.example", "first.pem", &[]).code == Some(0)).then_some(())
    });
    assert_ne!(ask(&gateway, "first.example", "old.pem", &[]).code, Some(0));

    let failures = gateway.reloads("failure");
    fs::copy(
        gateway.dir().join("first.pem"),
        gateway.dir().join("good.pem"),
    )
    .expect("the directory is writable");
    fs::write(gateway.dir().join("first.pem"), "no certificate")
        .expect("the directory is writable");
    wait_for("the failure", || {
        (gateway.reloads("failure") > failures).then_some(())
    });
    assert_eq!(
        ask(&gateway, "first.example", "good.pem", &[]).code,
        Some(0),
        "the last good one is served"
    );
}

/// The report of `check` on a valid configuration of a gateway.
fn check(gateway: &Gateway) -> String {
    let config = gateway.config_path();
    let output = run(
        env!("CARGO_BIN_EXE_sluicegate"),
        &["check", config.to_str().expect("a text path")],
    );
    assert_eq!(output.code, Some(0), "{output}");
    output.to_string()
}

#[test]
fn a_certificate_that_expires_is_reported_at_start_at_a_reload_and_by_check() {
    let names = ["first.example"];
    let dir = tempfile::tempdir().expect("a temporary directory");
    let day = Duration::from_secs(86_400);
    certify_until(dir.path(), "first", &names, UNIX_EPOCH + 366 * day);
    let gateway = start(
        dir,
        &format!(
            "{TOKENS}listeners:
  - {{ address: 127.0.0.1:0, tls: {{ certificates: [{{ certificate: first.pem, key: first.key }}] }} }}
  - {{ address: '[::1]:0', tls: {{ certificates: [{{ certificate: first.pem, key: first.key }}] }} }}
routes: [{{ upstream: echo }}]
"
        ),
    );
    let problems = || AdminClient::writer(&gateway).read("/v1/status")["problems"].to_string();
    let problem = problems();
    assert!(
        problem.contains("first.pem expired on 1971-01-02"),
        "{problem}"
    );
    let ends = || {
        let metrics = get(gateway.admin, "/metrics").text();
        let mut lines = metrics.lines();
        let name = "sluicegate_certificate_not_after_seconds{file=\"";
        let line = lines.find(|line| line.starts_with(name) && line.contains("first.pem\"} "));
        let end = line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        end.expect("the end of the certificate")
    };
    assert_eq!(ends(), 366 * 86_400);
    let expired = "first.pem expired on 1971-01-02 00:00 UTC: clients refuse it";
    gateway.wait_for_log(&format!("{expired}; renew it, and replace the file"));
    assert_eq!(gateway.log().matches(expired).count(), 1);
    let report = check(&gateway);
    assert_eq!(report.matches(expired).count(), 1, "{report}");
    assert!(
        report.contains("= key: listeners[0].tls.certificates[0].certificate"),
        "{report}"
    );

    let now = wall_clock();
    certify_from(gateway.dir(), "first", &names, now + 2 * day);
    gateway.wait_for_log("first.pem is not valid before ");
    wait_for("the new end", || (ends() > 366 * 86_400).then_some(()));
    let problem = problems();
    assert!(
        problem.contains("first.pem is not valid before "),
        "{problem}"
    );
    let metrics = get(gateway.admin, "/metrics").text();
    let begin = metrics.lines().find(|line| {
        line.starts_with("sluicegate_certificate_not_before_seconds") && line.contains("first.pem")
    });
    let begin = begin.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    let begin = UNIX_EPOCH + Duration::from_secs(begin.expect("a series"));
    assert!(begin > now && begin <= now + 2 * day);

    certify_until(gateway.dir(), "first", &names, now + 20 * day);
    gateway.wait_for_log("first.pem expires on ");
    wait_for("the new problem", || {
        problems().contains("first.pem expires on ").then_some(())
    });
    let report = check(&gateway);
    assert!(report.contains("warning[certificate-expiry]"), "{report}");
    assert!(
        report.contains("clients refuse it from then on"),
        "{report}"
    );

    certify_until(gateway.dir(), "first", &names, now + 40 * day);
    let report = check(&gateway);
    assert!(!report.contains("first.pem"), "{report}");
}

#[test]
fn each_unusable_file_is_reported_at_its_line() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    certify(dir.path(), "first", &["first.example"]);
    certify(dir.path(), "other", &["other.example"]);
    let config = dir.path().join("sluicegate.yaml");
    let text = CONFIG.replace("first.key", "other.key");
    fs::write(&config, text).expect("the directory is writable");
    let config = config.to_str().expect("a text path");
    let checked = run(env!("CARGO_BIN_EXE_sluicegate"), &["check", config]);
    assert_eq!(checked.code, Some(1), "{checked}");
    for (place, said) in [
        ("[0].key", "other.key is not the key of"),
        (
            "[1].certificate",
            "second.pem cannot be read: there is no such file",
        ),
        (
            "[1].key",
            "second.key cannot be read: there is no such file",
        ),
    ] {
        let place = format!("key: listeners[0].tls.certificates{place}");
        let text = checked.to_string();
        assert!(text.contains(&place) && text.contains(said), "{text}");
    }
}

/// `openssl req -x509` creates CA certificates.
#[test]
fn an_upstream_is_trusted_by_its_own_certificate_from_openssl() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (certificate, key) = (path("own.pem"), path("own.key"));
    let arguments = format!(
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
         -keyout {key} -out {certificate}"
    );
    let arguments: Vec<_> = arguments.split(' ').collect();
    let made = run("openssl", &arguments);
    assert_eq!(made.code, Some(0), "{made}");
    let listener = format!(
        "listeners: [{{ address: 127.0.0.1:0, tls: {{ certificates: [{{ certificate: {certificate}, key: {key} }}] }} }}]"
    );
    let secure = Gateway::start(&format!("{listener}\nroutes: [{{ upstream: echo }}]\n"));
    let endpoint = format!("https://localhost:{}", secure.address().port());
    let gateway = Gateway::start(&format!(
        "upstreams: {{ own: {{ endpoints: [\"{endpoint}\"], tls: {{ ca: {certificate} }} }} }}
routes: [{{ upstream: own }}]
"
    ));
    let answer = crate::support::client::get(gateway.address(), "/");
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn upstreams_are_verified() {
    let secure = gateway();
    let to = |tls: &str| {
        let port = secure.address().port();
        let config = format!(
            "upstreams: {{ secure: {{ endpoints: [\"https://127.0.0.1:{port}\"]{tls} }} }}\nroutes: [{{ upstream: secure }}]\n"
        );
        let gateway = Gateway::start(&config);
        crate::support::client::get(gateway.address(), "/")
    };
    let ca = secure.dir().join("first.pem");
    let ca = ca.to_str().expect("a text path");
    let trusted = to(&format!(
        ", tls: {{ ca: \"{ca}\", server_name: first.example }}"
    ));
    assert_eq!(trusted.status, 200, "{trusted:?}");
    let absolute = to(&format!(
        ", tls: {{ ca: \"{ca}\", server_name: first.example. }}"
    ));
    assert_eq!(absolute.status, 200, "{absolute:?}");
    for tls in [
        String::new(),
        ", tls: { server_name: first.example }".to_owned(),
        format!(", tls: {{ ca: \"{ca}\" }}"),
        format!(", tls: {{ ca: \"{ca}\", server_name: second.example }}"),
    ] {
        let refused = to(&tls);
        assert_eq!(refused.status, 502, "{tls}");
        assert!(refused.text().contains("TLS"), "{tls}: {}", refused.text());
    }
}
