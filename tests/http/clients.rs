//! Common programs meet a limit and count responses: curl, h2load, wrk, ab and Python's HTTP
//! clients.

use std::fs;

use crate::support::client::{Output, curl, get_with, run};
use crate::support::gateway::{Gateway, with_free_ports};

/// A proxy before the echo upstream that admits seven.
fn seven() -> Gateway {
    Gateway::start("routes: [{ upstream: echo, limits: [{ key: constant, quota: 7/300d }] }]\n")
}

/// The number before `unit`, as in `7 2xx`.
#[track_caller]
fn count(output: &Output, unit: &str) -> u64 {
    let words: Vec<&str> = output
        .stdout
        .split([' ', '\n', ',', '\t'])
        .filter(|word| !word.is_empty())
        .collect();
    let at = words
        .iter()
        .position(|word| *word == unit)
        .unwrap_or_else(|| panic!("no {unit}: {output}"));
    words[at - 1]
        .parse()
        .unwrap_or_else(|_| panic!("no number before {unit}: {output}"))
}

/// The number after `label`, as in `Complete requests: 60`; `None` if missing.
fn labelled(output: &Output, label: &str) -> Option<u64> {
    let after = output.stdout.split(label).nth(1)?;
    after.split_whitespace().next()?.parse().ok()
}

#[test]
fn h2load_in_cleartext_is_admitted_seven_times() {
    for protocol in [&[][..], &["--h1"]] {
        let gateway = seven();
        let url = gateway.url("/");
        let output = run(
            "h2load",
            &[
                protocol,
                &["-n", "60", "-c", "6", "-m", "10", "-T", "20", &url],
            ]
            .concat(),
        );
        assert_eq!(
            (
                count(&output, "2xx"),
                count(&output, "4xx"),
                count(&output, "failed")
            ),
            (7, 53, 53),
            "{output}"
        );
    }
}

#[test]
fn h2load_over_tls_is_admitted_seven_times() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let certified =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let write = |name: &str, text: String| {
        fs::write(dir.path().join(name), text).expect("the directory is writable")
    };
    write("a.pem", certified.cert.pem());
    write("a.key", certified.signing_key.serialize_pem());
    let config = "listeners:
  - address: 127.0.0.1:0
    tls: { certificates: [{ certificate: a.pem, key: a.key }] }
routes: [{ upstream: echo, limits: [{ key: constant, quota: 7/300d }] }]
";
    write("sluicegate.yaml", with_free_ports(config));
    let gateway = Gateway::start_with(dir, ["run", "--config", "sluicegate.yaml"]);
    let url = format!("https://{}/", gateway.address());
    let output = run(
        "h2load",
        &["-n", "60", "-c", "6", "-m", "10", "-T", "20", &url],
    );
    assert_eq!(
        (count(&output, "2xx"), count(&output, "4xx")),
        (7, 53),
        "{output}"
    );
    assert!(
        output.stdout.contains("Application protocol: h2"),
        "{output}"
    );
}

#[test]
fn ab_is_admitted_seven_times_with_and_without_keep_alive() {
    for keep_alive in [&[][..], &["-k"]] {
        let gateway = seven();
        let url = gateway.url("/");
        let output = run(
            "ab",
            &[
                keep_alive,
                &["-q", "-l", "-s", "20", "-n", "60", "-c", "6", &url],
            ]
            .concat(),
        );
        assert_eq!(
            labelled(&output, "Complete requests:"),
            Some(60),
            "{output}"
        );
        assert_eq!(
            labelled(&output, "Non-2xx responses:"),
            Some(53),
            "{output}"
        );
    }
}

#[test]
fn wrk_is_admitted_seven_times() {
    let gateway = seven();
    let output = run("wrk", &["-t1", "-c16", "-d1s", &gateway.url("/")]);
    let refused =
        labelled(&output, "Non-2xx or 3xx responses:").unwrap_or_else(|| panic!("{output}"));
    // wrk may stop with answers under way: then it counted fewer than seven.
    let admitted = count(&output, "requests") - refused;
    assert!((1..=7).contains(&admitted), "{admitted}: {output}");
    assert!(!output.stdout.contains("Socket errors"), "{output}");
}

#[test]
fn curl_is_served_in_every_version_that_it_speaks() {
    let gateway = Gateway::start("routes: [{ upstream: echo }]\n");
    for (option, version) in [
        ("--http1.0", "1"),
        ("--http1.1", "1.1"),
        ("--http2", ""),
        ("--http2-prior-knowledge", "2"),
    ] {
        let output = curl(&[
            option,
            "-d",
            "the body",
            "-w",
            "\n%{http_code} %{http_version}",
            &gateway.url("/x?y=z"),
        ]);
        assert!(
            output.stdout.starts_with("POST /x?y=z HTTP/1.1\n"),
            "{option}: {output}"
        );
        assert!(output.stdout.contains("\nthe body"), "{option}: {output}");
        assert!(
            output.stdout.contains(&format!("\n200 {version}")),
            "{option}: {output}"
        );
    }
}

#[test]
fn curl_uploads_with_expect_and_obeys_retry_after() {
    let gateway =
        Gateway::start("routes: [{ upstream: echo, limits: [{ key: constant, quota: 1/3s }] }]\n");
    let url = gateway.url("/");
    let large = "x".repeat(256 << 10);
    let file = gateway.dir().join("large");
    fs::write(&file, &large).expect("the directory is writable");
    let upload = format!("@{}", file.display());
    let output = curl(&["-H", "Expect: 100-continue", "--data-binary", &upload, &url]);
    assert!(output.stdout.ends_with(&large), "the whole body came back");
    let output = curl(&[
        "--retry",
        "1",
        "--fail",
        "-w",
        "%{http_code}",
        "-o",
        "/dev/null",
        &url,
    ]);
    assert_eq!(output.stdout, "200", "{output}");
    assert!(
        output.stderr.contains("429"),
        "it was refused first: {output}"
    );
}

/// Runs a Python program with Debian's own Python, for which the clients are installed; its
/// argument is the URL.
fn python(gateway: &Gateway, program: &str) -> String {
    let output = run("/usr/bin/python3", &["-c", program, &gateway.url("/")]);
    assert_eq!(output.code, Some(0), "{output}");
    output.stdout.trim().to_owned()
}

const REQUESTS: &str = "
import sys, requests
from urllib3.util.retry import Retry
url = sys.argv[1]
with requests.Session() as session:
    print([session.get(url, timeout=20).status_code for _ in range(2)])
    patient = requests.adapters.HTTPAdapter(max_retries=Retry(total=1, status_forcelist=[429]))
    session.mount('http://', patient)
    print(session.get(url, timeout=20).status_code)
";

#[test]
fn python_requests_obeys_retry_after() {
    let gateway =
        Gateway::start("routes: [{ upstream: echo, limits: [{ key: constant, quota: 1/3s }] }]\n");
    assert_eq!(python(&gateway, REQUESTS), "[200, 429]\n200");
}

const HTTPX: &str = "
import sys, time, httpx
url = sys.argv[1]
with httpx.Client(http1=False, http2=True, timeout=20) as client:
    answers = [client.get(url) for _ in range(2)]
    print([(answer.status_code, answer.http_version) for answer in answers])
    time.sleep(int(answers[1].headers['retry-after']))
    print(client.get(url).status_code)
";

#[test]
fn python_httpx_over_http2_obeys_retry_after() {
    let gateway =
        Gateway::start("routes: [{ upstream: echo, limits: [{ key: constant, quota: 1/3s }] }]\n");
    assert_eq!(
        python(&gateway, HTTPX),
        "[(200, 'HTTP/2'), (429, 'HTTP/2')]\n200"
    );
}

#[test]
fn curl_gets_no_body_for_head_in_any_version() {
    let gateway = Gateway::start(
        "routes: [{ upstream: echo, limits: [{ key: header:a, quota: 1/300d }] }]\n",
    );
    let url = gateway.url("/");
    let metrics = format!("http://{}/metrics", gateway.admin);
    let (http1, http2) = ("--http1.1", "--http2-prior-knowledge");
    for (version, key, url, status) in [
        (http1, "a: 1", &url, "200"),
        (http1, "a: 1", &url, "429"),
        (http2, "a: 2", &url, "200"),
        (http2, "a: 2", &url, "429"),
        (http1, "a: 3", &metrics, "200"),
    ] {
        let output = curl(&[version, "--head", "-H", key, url]);
        assert_eq!(output.code, Some(0), "{output}");
        let length = output.stdout.to_ascii_lowercase();
        let length = length.split("content-length: ").nth(1).expect("a length");
        assert!(!length.starts_with('0'), "{output}");
        assert_eq!(output.stdout.split(' ').nth(1), Some(status), "{output}");
    }
}

#[test]
fn networks_in_mapped_form_are_those_of_ipv4() {
    let gateway = Gateway::start(
        "client_ip: { trusted_proxies: [\"::ffff:127.0.0.0/104\"] }
access: { deny: [{ cidr: [\"::ffff:10.0.0.0/104\"] }] }
routes:
  - upstream: echo
    limits:
      - key: client_ip
        quota: 1/300d
        exempt: [{ cidr: \"::ffff:192.0.2.0/120\" }]
        overrides: [{ cidr: \"::ffff:198.51.100.7\", quota: 2/300d }]
",
    );
    let statuses = |from: &str| {
        let field = format!("x-forwarded-for: {from}\r\n");
        [(); 3].map(|()| get_with(gateway.address(), "/", &field).status)
    };
    assert_eq!(statuses("10.1.2.3"), [403; 3]);
    assert_eq!(statuses("11.1.2.3"), [200, 429, 429]);
    assert_eq!(statuses("192.0.2.9"), [200; 3]);
    assert_eq!(statuses("198.51.100.7"), [200, 200, 429]);
    // One behind NAT64 has the bucket of its IPv4 address, and its exemption.
    assert_eq!(statuses("64:ff9b::203.0.113.5"), [200, 429, 429]);
    assert_eq!(statuses("203.0.113.5"), [429; 3]);
    assert_eq!(statuses("64:ff9b::203.0.113.6"), [200, 429, 429]);
    assert_eq!(statuses("64:ff9b::192.0.2.9"), [200; 3]);
}
