//! Pages of the configuration for the proxy's own errors and refusals.

use std::fs;

use crate::support::client::{Connection, Response, get_with};
use crate::support::gateway::Gateway;
use crate::support::origin::refusing_address;
use crate::support::wait_for;

const HTML: &str = "accept: text/html\r\n";
const TEXT: &str = "accept: text/plain\r\n";

fn content_type(response: &Response) -> &str {
    response.expect_header("content-type")
}

#[test]
fn a_page_is_chosen_by_status_and_accept() {
    let gateway = Gateway::start(&format!(
        "client: {{ max_body: 1KiB }}
responses:
  error_pages:
    404: {{ html: \"<p>{{{{status}}}} {{{{title}}}} {{{{path}}}}\", json: '{{\"for\":\"{{{{request_id}}}}\"}}' }}
    4xx: {{ html: any, text: \"{{{{detail}}}} {{{{host}}}}{{{{policy}}}}\" }}
    500-599: {{ html: \"<p>{{{{route}}}} {{{{client_ip}}}}\" }}
routes:
  - {{ match: {{ path: /limited }}, limits: [{{ name: few, key: constant, quota: 0/1m }}], upstream: echo }}
  - {{ match: {{ path: /custom }}, limits: [{{ key: constant, quota: 0/1m, on_limit: {{ format: html, body: own }} }}], upstream: echo }}
  - {{ name: down, match: {{ path: /down }}, upstream: \"http://{}\" }}
  - {{ match: {{ path: /echo }}, upstream: echo }}
",
        refusing_address()
    ));
    let address = gateway.address();
    let missing = get_with(address, "/it's", HTML);
    assert_eq!(missing.status, 404);
    assert_eq!(missing.text(), "<p>404 Not Found /it&#39;s");
    assert_eq!(content_type(&missing), "text/html; charset=utf-8");
    let json = get_with(address, "/x", "x-request-id: a\"b\r\n");
    assert_eq!(json.text(), "{\"for\":\"a\\u0022b\"}");
    assert_eq!(content_type(&json), "application/json");
    let text = get_with(address, "/x", TEXT);
    assert_eq!(text.text(), "No route takes this request. 127.0.0.1");

    let limited = get_with(address, "/limited", TEXT);
    assert_eq!(limited.status, 429);
    let text = limited.text();
    assert!(
        text.contains("The limit \"few\"") && text.ends_with("few"),
        "{text}"
    );
    assert_eq!(content_type(&limited), "text/plain; charset=utf-8");
    assert!(limited.header("ratelimit").is_some());
    assert_eq!(get_with(address, "/limited", HTML).text(), "any");
    assert_eq!(get_with(address, "/custom", HTML).text(), "own");
    let usual = get_with(address, "/limited", "");
    assert_eq!(content_type(&usual), "application/problem+json");

    let down = get_with(address, "/down", HTML);
    assert_eq!(
        (down.status, down.text().as_str()),
        (502, "<p>down 127.0.0.1")
    );
    let usual = get_with(address, "/down", TEXT);
    assert!(
        usual.text().starts_with("Bad Gateway. "),
        "{}",
        usual.text()
    );

    let mut connection = Connection::open(address);
    let large = connection
        .exchange("POST /echo HTTP/1.1\r\nhost: a.example:80\r\naccept: text/plain\r\ncontent-length: 2000\r\n\r\n");
    assert_eq!(large.status, 413);
    assert_eq!(
        large.text(),
        "The request body is larger than allowed. a.example"
    );

    let mut connection = Connection::open(address);
    let head = connection.exchange(&format!("HEAD /x HTTP/1.1\r\nhost: a\r\n{HTML}\r\n"));
    assert_eq!(head.expect_header("content-length"), "19");
    let large = Connection::open(address)
        .exchange("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 2000\r\n\r\n");
    let problem: serde_json::Value = serde_json::from_slice(&large.body).expect("JSON");
    assert_eq!(
        problem["title"], "Content Too Large",
        "RFC 9110 section 15.5.14"
    );
    let grpc = get_with(address, "/x", "content-type: application/grpc\r\n");
    assert_eq!(grpc.status, 200);
    assert_eq!(grpc.expect_header("grpc-status"), "12");
}

#[test]
fn a_page_in_a_file_is_read_again_when_it_changes() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let path = directory.path().join("404.html");
    let write = |text: &[u8]| fs::write(&path, text).expect("there is room for a file");
    write(b"<p>first {{status}}");
    let gateway = Gateway::start(&format!(
        "responses: {{ error_pages: {{ 404: {{ html: {{ file: {} }} }} }} }}
routes: [{{ match: {{ path: /a }}, upstream: echo }}]",
        path.display()
    ));
    let page = || get_with(gateway.address(), "/", HTML).text();
    assert_eq!(page(), "<p>first 404");
    write(b"<p>second");
    wait_for("the page to be read again", || {
        (page() == "<p>second").then_some(())
    });
    for (wrong, message) in [
        (&b"<p>{{stats}}"[..], "there is no placeholder `{{stats}}`"),
        (b"<p>\xff", "UTF-8"),
    ] {
        let failures = gateway.reloads("failure");
        write(wrong);
        wait_for("the page to be refused", || {
            (gateway.reloads("failure") > failures).then_some(())
        });
        assert!(gateway.log().contains(message), "{}", gateway.log());
        assert_eq!(page(), "<p>second");
    }
}
