use http::{HeaderName, HeaderValue, Method, Version};
use proptest::prelude::*;

use super::*;

const TIME: &str = "21/Nov/2026:04:41:00 +0000";

fn read(line: impl AsRef<[u8]>) -> Result<LogEntry, String> {
    let options = Options {
        format: None,
        host: Some(HeaderValue::from_static("default.example")),
    };
    let line = line.as_ref();
    Parser::new(&options).parse(line)
}

#[track_caller]
/// The head as the `http` crate has it, which finds fields by their names as they are written here.
fn parts(request: Request<()>) -> http::request::Parts {
    let (mut head, ()) = http::Request::new(()).into_parts();
    head.method = request.method().clone();
    head.uri = request.uri().clone();
    head.version = request.version();
    head.headers = request.headers().clone().into();
    head
}

fn head(line: impl AsRef<[u8]>) -> http::request::Parts {
    let entry = read(line).unwrap_or_else(|why| panic!("{why}"));
    let request = entry.head.unwrap_or_else(|why| panic!("{why:?}"));
    let request = request.request;
    parts(request)
}

/// What is wrong with a line.
#[track_caller]
fn wrong(line: impl AsRef<[u8]>) -> String {
    read(line).expect_err("an unparsable line").to_string()
}

/// What is wrong with the request of a line.
#[track_caller]
fn malformed(line: impl AsRef<[u8]>) -> &'static str {
    let entry = read(line).unwrap_or_else(|why| panic!("{why}"));
    entry.head.expect_err("a malformed request")
}

fn combined(request: &str) -> String {
    format!("192.0.2.7 - - [{TIME}] \"{request}\" 200 5 \"-\" \"-\"")
}

fn json(more: &str) -> String {
    format!(r#"{{"time":1500,"client_ip":"192.0.2.7","method":"GET","path":"/a"{more}}}"#)
}

#[test]
fn a_combined_line_has_all_that_the_format_has() {
    let line = format!(
        r#"2001:db8::7 - Jane Doe [{TIME}] "POST /a?b=%20c HTTP/1.0" 200 5 "http://x/" "curl/8" "more""#
    );
    let entry = read(&line).expect("a line");
    assert_eq!(
        entry.peer,
        "2001:db8::7".parse::<IpAddr>().expect("an address")
    );
    assert_eq!(entry.time, Timestamp::from_micros(1_795_236_060_000_000));
    let head = parts(entry.head.expect("a request").request);
    assert_eq!(
        (head.method, head.version),
        (Method::POST, Version::HTTP_10)
    );
    assert_eq!(head.uri, "/a?b=%20c");
    assert_eq!(head.headers["referer"], "http://x/");
    assert_eq!(head.headers["user-agent"], "curl/8");
    assert_eq!(head.headers["host"], "default.example");
}

#[test]
fn a_common_line_ends_behind_the_request_or_its_status() {
    for end in ["", " 200 5", " 200 -"] {
        let head = head(format!("192.0.2.7 - - [{TIME}] \"GET /a HTTP/1.1\"{end}"));
        assert_eq!(head.uri, "/a");
        assert_eq!(head.headers.len(), 1, "the host alone");
    }
}

/// nginx is installed with a format `main`, which ends in the addresses of proxies.
#[test]
fn a_third_text_with_addresses_names_the_client_of_a_proxy() {
    let third = |text: &str| {
        let line =
            format!("10.0.0.1 - - [{TIME}] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\" \"{text}\"");
        let head = head(line);
        let value = head.headers.get("x-forwarded-for");
        value.map(|value| value.to_str().expect("a text").to_owned())
    };
    for text in ["192.0.2.7", "192.0.2.7, 2001:db8::7"] {
        assert_eq!(third(text).as_deref(), Some(text));
    }
    for text in ["-", "", "0.003", "192.0.2.7, unknown"] {
        assert_eq!(third(text), None, "{text}");
    }
}

#[test]
fn a_host_may_be_in_front_of_a_combined_line() {
    let line = format!("api.example.com:443 192.0.2.7 - - [{TIME}] \"GET /a HTTP/1.1\" 200 5");
    let entry = read(line).expect("a line");
    assert_eq!(
        entry.peer,
        "192.0.2.7".parse::<IpAddr>().expect("an address")
    );
    let head = entry.head.expect("a request");
    assert!(head.names_host);
    let head = parts(head.request);
    assert_eq!(head.headers["host"], "api.example.com:443");
    for first in ["-", "192.0.2.9,", "a b@", "caf\u{e9}"] {
        let line = format!("{first} 192.0.2.7 - - [{TIME}] \"GET /a HTTP/1.1\" 200 5");
        assert!(
            wrong(line).ends_with("isn't an address of a client"),
            "{first}"
        );
    }
}

#[test]
fn quoted_texts_are_unescaped_as_nginx_and_apache_escape_them() {
    let agent = |text: &str| {
        let line = format!("192.0.2.7 - - [{TIME}] \"GET / HTTP/1.1\" 200 5 \"-\" \"{text}\"");
        head(line).headers["user-agent"].as_bytes().to_vec()
    };
    assert_eq!(agent(r"a\x22b\x5Cc"), br#"a"b\c"#);
    assert_eq!(agent(r#"a\"b\\c\tx"#), b"a\"b\\c\tx");
    assert_eq!(agent(r"\xC3\xA9\xff"), b"\xc3\xa9\xff");
    assert_eq!(agent(r"a\qb\x4\xzz"), br"a\qb\x4\xzz");
    assert_eq!(agent(r"ends in \\"), br"ends in \");
    assert_eq!(head(combined(r"GET /a\x22b HTTP/1.1")).uri.path(), "/a\"b");
}

#[test]
fn bytes_that_are_no_text_may_stand_in_a_combined_line() {
    let line = [combined("GET /").as_bytes(), b"\xff"].concat();
    assert_eq!(malformed(&line), "The log has no request line.");
    let mut line = combined("GET /a HTTP/1.1").into_bytes();
    let place = line.len() - 2;
    line[place] = 0xff;
    assert_eq!(head(&line).headers["user-agent"], &b"\xff"[..]);
}

#[test]
fn targets_may_be_absolute_or_an_asterisk() {
    let absolute = head(combined("GET http://api.example.com:8080/a HTTP/1.1"));
    assert_eq!(absolute.uri.path(), "/a");
    assert_eq!(absolute.headers["host"], "api.example.com:8080");
    assert_eq!(head(combined("OPTIONS * HTTP/1.1")).uri.path(), "*");
}

#[test]
fn requests_that_http_would_not_have_had_say_why() {
    for request in ["", "-", "GET", "GET /"] {
        assert_eq!(malformed(combined(request)), "The log has no request line.");
    }
    let method = "The request line has no method of HTTP.";
    assert_eq!(malformed(combined("G@T / HTTP/1.1")), method);
    assert_eq!(malformed(combined(r"\x16\x03\x01 / HTTP/1.1")), method);
    let version = "The request line has no version of HTTP that is served.";
    assert_eq!(malformed(combined("GET / HTTP/0.9")), version);
    for target in ["/a b", "", r"/\x00"] {
        let request = format!("GET {target} HTTP/1.1");
        assert_eq!(malformed(combined(&request)), "The target isn't a URI.");
    }
    let name = "A field has no valid name.";
    assert_eq!(malformed(json(r#","headers":{"a b":""}"#)), name);
    let value = "A field has a control character.";
    assert_eq!(malformed(json(r#","headers":{"a":"\n"}"#)), value);
    assert_eq!(malformed(json(r#","host":"a\u0000""#)), value);
}

#[test]
fn a_combined_line_without_its_parts_says_which() {
    assert_eq!(
        wrong("nothing"),
        r#""nothing" isn't an address of a client"#
    );
    assert_eq!(
        wrong("unix: - - [x] \"\""),
        r#""unix:" isn't an address of a client"#
    );
    assert_eq!(wrong("192.0.2.7 - - "), "no [time]");
    assert_eq!(wrong(format!("192.0.2.7 - - [{TIME}")), "no [time]");
    assert!(wrong("192.0.2.7 - - [yesterday] \"\"").starts_with(r#""yesterday" isn't a time"#));
    for end in ["", " GET /", " \"GET / HTTP/1.1", " \"GET / HTTP/1.1\\\""] {
        assert_eq!(
            wrong(format!("192.0.2.7 - - [{TIME}]{end}")),
            "no \"request\""
        );
    }
    let long = wrong("x".repeat(100_000));
    assert!(long.len() < 200 && long.contains('…'), "{long}");
}

#[test]
fn a_json_line_has_the_fields_of_the_request() {
    let line = json(
        r#","host":"api.example.com","version":"HTTP/2.0","headers":{"X-Key":"a\"b","x-several":["1","2"]},
        "referer":null,"user_agent":"curl","status":429,"response_headers":{"x":1}"#,
    );
    let response = read(&line).expect("a line").response.expect("a response");
    assert_eq!(response.status, 429);
    let x = response.headers.get(HeaderName::from_static("x"));
    assert_eq!(x, Some(&b"1"[..]));
    let head = head(line);
    assert_eq!((head.version, head.uri.path()), (Version::HTTP_2, "/a"));
    assert_eq!(head.headers["host"], "api.example.com");
    assert_eq!(head.headers["x-key"], "a\"b");
    assert_eq!(head.headers["user-agent"], "curl");
    let several: Vec<_> = head.headers.get_all("x-several").iter().collect();
    assert_eq!(several, ["1", "2"]);
    assert!(!head.headers.contains_key("referer"));
}

#[test]
fn fields_may_be_numbers_and_may_not_be_there() {
    let sent = head(json(
        r#","headers":{"x-cost":3,"x-beta":true,"x-none":null,"x-several":[1,"2"]}"#,
    ));
    assert_eq!(sent.headers["x-cost"], "3");
    assert_eq!(sent.headers["x-beta"], "true");
    assert!(!sent.headers.contains_key("x-none"));
    assert_eq!(sent.headers.get_all("x-several").iter().count(), 2);
    let line = json(r#","headers":null,"status":"200","bytes":"7","response_headers":null"#);
    let response = read(line).expect("a line").response.expect("a response");
    assert!(response.headers.is_empty());
    assert_eq!((response.status.as_u16(), response.bytes), (200, Some(7)));
    let line = json(r#","status":null,"bytes":null"#);
    assert!(read(line).expect("a line").response.is_none());
}

#[test]
fn a_field_that_is_among_the_headers_too_counts_once() {
    let line = json(
        r#","host":"a.example","user_agent":"outer","headers":{"Host":"b.example","User-Agent":"inner"}"#,
    );
    let head = head(line);
    assert_eq!(head.headers["host"], "b.example");
    assert_eq!(head.headers.get_all("user-agent").iter().count(), 1);
}

#[test]
fn a_host_that_the_line_leaves_empty_was_not_sent() {
    assert_eq!(head(json("")).headers["host"], "default.example");
    assert_eq!(
        head(json(r#","host":null"#)).headers["host"],
        "default.example"
    );
    assert!(!head(json(r#","host":"""#)).headers.contains_key("host"));
}

#[test]
fn a_json_line_has_what_operators_did() {
    let steering = |more: &str| read(json(more)).expect("a line");
    let ban = steering(r#","policy":"p","banned":true,"retry_after_ms":1500.5"#);
    let length = Duration::from_micros(1_500_500);
    assert_eq!(ban.banned, Some(("p".to_owned(), length)));
    assert_eq!(steering(r#","granted":["p","q"]"#).granted, ["p", "q"]);
    for more in [
        r#","policy":"p""#,
        r#","banned":true"#,
        // Logs of others.
        r#","policy":7,"banned":"yes","granted":"p","retry_after_ms":{}"#,
    ] {
        let nothing = steering(more);
        assert_eq!((nothing.banned, nothing.granted), (None, Vec::new()));
    }
    let never = steering(r#","policy":"p","banned":true,"retry_after_ms":-1e300"#);
    assert_eq!(never.banned, Some(("p".to_owned(), Duration::ZERO)));
}

#[test]
fn times_of_json_lines_are_texts_or_numbers() {
    let time = |time: &str| {
        let line = format!(r#"{{"time":{time},"client_ip":"::1","method":"GET","path":"/"}}"#);
        read(line).map(|entry| entry.time.as_micros())
    };
    assert_eq!(time("1795236060007.999"), Ok(1_795_236_060_007_999));
    assert_eq!(
        time(r#""2026-11-21T04:41:00.007999Z""#),
        Ok(1_795_236_060_007_999)
    );
    assert_eq!(
        time(r#""2026-11-21T04:41:00.007999\u005a""#),
        Ok(1_795_236_060_007_999)
    );
    for wrong in ["1e3", "-1", "null", "[1]", r#""1500""#, r#""""#] {
        assert!(time(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_json_line_without_its_parts_says_which() {
    let line = |text: &str| wrong(text);
    assert_eq!(line("{}"), "missing field `time` at column 2");
    assert!(line("{\"time\":1").starts_with("EOF while parsing an object"));
    assert!(wrong(json(r#","path":"/b""#)).starts_with("duplicate field `path`"));
    assert!(wrong(json(r#","headers":{"a":{}}"#)).starts_with("a field is a text or a number"));
    assert!(wrong(json(r#","status":"ok""#)).starts_with("\"ok\" isn't a number"));
    assert!(wrong(json(r#","bytes":[]"#)).starts_with("expected a number"));
    assert!(wrong(json(r#","headers":[]"#)).contains("an object of header fields"));
    let address = json("").replace("192.0.2.7", "example.com");
    assert_eq!(
        wrong(address),
        r#""example.com" isn't an address of a client"#
    );
    let mut invalid = json("").into_bytes();
    let place = invalid.iter().position(|&byte| byte == b'G').expect("GET");
    invalid[place] = 0xff;
    assert!(wrong(invalid).contains("invalid unicode"), "no UTF-8");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_in_few_words(
        before in prop_oneof![
            Just(""),
            Just("192.0.2.7 - - ["),
            Just("192.0.2.7 - - [21/Nov/2026:04:41:00 +0000] \""),
            Just("192.0.2.7 - - [21/Nov/2026:04:41:00 +0000] \"GET /"),
            Just("{\"time\":"),
            Just("{\"time\":0,\"client_ip\":\"::1\",\"method\":\"GET\",\"path\":\""),
        ],
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'"'), Just(b'\\'), Just(b' ')], 0..200),
        end in prop_oneof![Just(""), Just("\""), Just("\"}"), Just("}"), Just("] \"GET / HTTP/1.1\"")],
    ) {
        let line = [before.as_bytes(), &bytes, end.as_bytes()].concat();
        if let Err(why) = read(&line) {
            let why = why.to_string();
            prop_assert!(why.chars().count() < 600 && !why.contains(['\n', '\u{1b}']), "{why:?}");
        }
    }
}
