use http::HeaderValue;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use proptest::prelude::*;

use super::*;

const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data; boundary=xYz";

fn pointer(text: &str) -> KeyPart {
    KeyPart::Body(JsonPointer::parse(text).expect("a pointer").into())
}

fn read(part: &KeyPart, content_type: &str, query: Option<&str>, body: &[u8]) -> Lookup<String> {
    let value = HeaderValue::from_str(content_type).expect("a value");
    let headers: Headers = [(CONTENT_TYPE, value)].into_iter().collect();
    let fields = BodyFields::read(std::slice::from_ref(part), &headers, query, body);
    let found = fields.lookup(part);
    found.map(|value| String::from_utf8_lossy(&value).into_owned())
}

fn one(text: &str) -> Lookup<String> {
    Lookup::One(text.to_owned())
}

fn json(body: impl AsRef<[u8]>) -> Lookup<String> {
    read(&pointer("/user/name"), "text/plain", None, body.as_ref())
}

#[test]
fn a_value_of_json_is_found_in_each_spelling() {
    for body in [
        r#"{"user":{"name":"ann"}}"#,
        r#" {"x":[{"user":1}], "\u0075ser" : {"n\u0061me":"\u0061nn", "Names": 1}}"#,
        "\u{feff}{\"user\":{\"name\":\"ann\"}}",
        r#"{"prompt":"\ud83d","user":{"name":"ann"}}"#,
    ] {
        assert_eq!(json(body), one("ann"), "{body}");
    }
    for (number, text) in [
        ("1", "1"),
        ("1.0", "1"),
        ("1e0", "1"),
        ("10E-1", "1"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("0.5", "0.5"),
        ("5e-1", "0.5"),
        ("9007199254740991", "9007199254740991"),
        ("true", "true"),
    ] {
        let body = format!(r#"{{"user":{{"name":{number}}}}}"#);
        assert_eq!(json(&body), one(text), "{body}");
    }
}

#[test]
fn what_no_reader_finds_is_missing() {
    for body in [
        "",
        "  ",
        "null",
        "\"user\"",
        "user=ann",
        "<user>ann</user>",
        "--xYz\r\n",
        r#"{"user":null}"#,
        r#"{"user":{"name":null}}"#,
        r#"{"user":"ann"}"#,
        r#"{"user":[{"name":"ann"}]}"#,
        r#"[{"user":{"name":"ann"}}]"#,
        r#"{"a":{"user":{"name":"ann"}}}"#,
    ] {
        assert_eq!(json(body), Lookup::Missing, "{body}");
    }
}

#[test]
fn json_that_readers_disagree_on_is_ambiguous() {
    let deep = format!(r#"{{"user":{}"#, r#"{"name":"#.repeat(2_000));
    for body in [
        r#"{"user":{"name":"a","name":"ann"}}"#,
        r#"{"user":{"name":"ann"},"user":{}}"#,
        r#"{"user":{"name":"ann"},"\u0075ser":1}"#,
        r#"{"user":{"name":"ann","NAME":"b"}}"#,
        r#"{"User":{"name":"ann"}}"#,
        r#"{"uſer":{"name":"ann"}}"#,
        r#"{"user":{"name":["ann"]}}"#,
        r#"{"user":{"name":{"$eq":"ann"}}}"#,
        r#"{"user":{"name":9007199254740992}}"#,
        r#"{"user":{"name":123456789012345678901234567890}}"#,
        r#"{"user":{"name":1e400}}"#,
        r#"{"user":{"name":"\ud800"}}"#,
        r#"{"user":{"name":"ann"}} {}"#,
        r#"{"user":{"name":"ann"},}"#,
        r#"{"user":{"name":"ann"},"x":NaN}"#,
        r#"{"user":{"name":"ann"}/**/}"#,
        r#"/**/{"user":{"name":"ann"}}"#,
        r#"{'user':{'name':'ann'}}"#,
        r#"{user:{name:"ann"}}"#,
        "\u{feff}\u{feff}{\"user\":{\"name\":\"ann\"}}",
        "{\"user\":{\"name\":\"a\nnn\"}}",
        &deep,
    ] {
        assert_eq!(json(body), Lookup::Several, "{body}");
    }
    let text = r#"{"user":{"name":"ann"}}"#;
    let utf16 = |order: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(order).collect::<Vec<_>>();
    let utf32: Vec<u8> = text
        .chars()
        .flat_map(|one| (one as u32).to_le_bytes())
        .collect();
    let mut marked = vec![0xff, 0xfe];
    marked.extend(utf16(u16::to_le_bytes));
    for body in [
        utf16(u16::to_be_bytes),
        utf16(u16::to_le_bytes),
        marked,
        utf32,
    ] {
        assert_eq!(json(body), Lookup::Several);
    }
    assert_eq!(
        json(b"{\"x\":\"\xff\",\"user\":{\"name\":\"ann\"}}"),
        Lookup::Several
    );
}

#[test]
fn an_index_is_that_of_an_item_or_a_name() {
    let role = |body: &str| read(&pointer("/messages/1/role"), "", None, body.as_bytes());
    assert_eq!(
        role(r#"{"messages":[{"role":"a"},{"role":"b"}]}"#),
        one("b")
    );
    assert_eq!(role(r#"{"messages":{"1":{"role":"b"}}}"#), one("b"));
    assert_eq!(role(r#"{"messages":[{"role":"a"}]}"#), Lookup::Missing);
    let padded = read(&pointer("/m/01"), "", None, br#"{"m":[1,2]}"#);
    assert_eq!(padded, Lookup::Missing);
}

#[test]
fn another_charset_or_a_coding_is_ambiguous() {
    let body = br#"{"user":{"name":"ann"}}"#;
    let by_type = |content_type: &str| read(&pointer("/user/name"), content_type, None, body);
    for content_type in [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=\"UTF-8\"",
        "application/x-www-form-urlencoded",
    ] {
        assert_eq!(by_type(content_type), one("ann"), "{content_type}");
    }
    for content_type in [
        "application/json; charset=utf-16",
        "application/json; charset=utf-7",
        "application/json; charset=utf-8; charset=utf-7",
        "application/json; charset*=utf-8''utf-7",
        "application/json; x=\";charset=utf-7",
        "application/json, text/plain",
    ] {
        assert_eq!(by_type(content_type), Lookup::Several, "{content_type}");
    }
    for (coding, found) in [("gzip", Lookup::Several), ("Identity", one("ann"))] {
        let value = HeaderValue::from_static(coding);
        let headers: Headers = [(CONTENT_ENCODING, value)].into_iter().collect();
        let part = pointer("/user/name");
        let fields = BodyFields::read(std::slice::from_ref(&part), &headers, None, body);
        let value = fields.lookup(&part);
        assert_eq!(
            value.map(|value| String::from_utf8_lossy(&value).into_owned()),
            found
        );
    }
}

fn form(content_type: &str, query: Option<&str>, body: &str) -> Lookup<String> {
    let part = KeyPart::Form("user".to_owned());
    read(&part, content_type, query, body.as_bytes())
}

#[test]
fn a_field_of_a_form_is_found_in_each_spelling() {
    for body in ["user=a+b", "x=1&us%65r=a%20b&y", "user=a+b&user=a%20b"] {
        assert_eq!(form(FORM, None, body), one("a b"), "{body}");
        assert_eq!(
            form(
                "Application/X-WWW-Form-Urlencoded;charset=utf-8",
                None,
                body
            ),
            one("a b")
        );
    }
    assert_eq!(form(FORM, Some("user=ann"), "x=1"), one("ann"));
    for body in ["", "x=user", "username=ann", "x=user;a"] {
        assert_eq!(form(FORM, None, body), Lookup::Missing, "{body}");
    }
    assert_eq!(form("application/json", None, "user=ann"), Lookup::Missing);
}

#[test]
fn forms_that_readers_disagree_on_are_ambiguous() {
    for body in [
        "user=a&user=b",
        "user[]=ann",
        "user[$eq]=ann",
        "+user=ann",
        "User=ann",
        "user%00x=ann",
        "x=1;user=ann",
        "user=ann;x",
    ] {
        assert_eq!(form(FORM, None, body), Lookup::Several, "{body}");
    }
    assert_eq!(form(FORM, Some("user=ann"), "user=bob"), Lookup::Several);
    for content_type in [
        "application/x-www-form-urlencoded, text/plain",
        "application/x-www-form-urlencoded text/plain",
        "application/x-www-form-urlencoded; charset=utf-16",
        "multipart/mixed; boundary=x",
        "multipart/form-data",
        "multipart/form-data; boundary=a; boundary=b",
    ] {
        assert_eq!(
            form(content_type, None, "user=ann"),
            Lookup::Several,
            "{content_type}"
        );
    }
    let part = KeyPart::Form("user_name".to_owned());
    assert_eq!(read(&part, FORM, None, b"user.name=ann"), Lookup::Several);
}

#[test]
fn a_part_of_a_form_is_found_as_browsers_write_it() {
    let body = "--xYz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\
        Content-Type: text/plain\r\n\r\nuser=b\r\n--xYz\r\n\
        content-disposition: form-data; name=\"user\"\r\n\r\nann\r\n--xYz--\r\n";
    assert_eq!(form(MULTIPART, None, body), one("ann"));
    assert_eq!(
        form("multipart/form-data; boundary=\"xYz\"", None, body),
        one("ann")
    );
    assert_eq!(
        form(MULTIPART, None, &body.replace("\"user\"", "\"usr\"")),
        Lookup::Missing
    );
    for (from, to) in [
        ("name=\"user\"", "name=user"),
        ("name=\"user\"", "name=\"User\""),
        ("name=\"user\"", "name=\"user\"; name=\"x\""),
        ("name=\"user\"", "name=\"user[]\""),
        ("name=\"user\"", "name=\"us\\er\""),
        ("name=\"user\"", "name=\"x\"; name*=utf-8''user"),
        ("name=\"user\"", "name=\"user\"; filename=\"\""),
        ("name=\"file\"", "name=\"user\""),
        ("form-data; name=\"user\"", "attachment; name=\"user\""),
        (
            "\r\n\r\nann",
            "\r\nContent-Transfer-Encoding: base64\r\n\r\nYW5u",
        ),
        (
            "\r\n\r\nann",
            "\r\nContent-Type: text/plain; charset=utf-7\r\n\r\nann",
        ),
        ("\r\n\r\nann", "\r\n folded: x\r\n\r\nann"),
        ("\r\n\r\nann", "\r\n\r\nann\n--xYz\n"),
        ("--xYz--\r\n", "--xYz\r\n"),
        ("--xYz--\r\n", "--xYz--\r\nrest"),
        ("--xYz\r\nContent", "preamble\r\n--xYz\r\nContent"),
        ("--xYz\r\ncontent", "--xYz \r\ncontent"),
    ] {
        let changed = body.replace(from, to);
        assert_ne!(changed, body);
        assert_eq!(form(MULTIPART, None, &changed), Lookup::Several, "{to}");
    }
}

fn graphql(query: Option<&str>, body: &str) -> Lookup<String> {
    read(
        &KeyPart::Graphql,
        "application/json",
        query,
        body.as_bytes(),
    )
}

#[test]
fn the_operation_of_graphql_is_found() {
    for (document, operation) in [
        ("{ me { id } }", "query"),
        ("query { me }", "query"),
        (
            "# mutation X { }\n query Me($a: In = {a: [1]}) @d(x: \\\"}\\\") { me }",
            "query Me",
        ),
        (
            "fragment F on User { id } mutation Login { login(a: \\\"\\\"\\\"}\\\"\\\"\\\") { id } }",
            "mutation Login",
        ),
    ] {
        let body = format!("{{\"query\":\"{}\"}}", document.replace('\n', "\\n"));
        assert_eq!(graphql(None, &body), one(operation), "{document}");
    }
    let several = r#"{"query":"query A { a } mutation B { b }","operationName":"B"}"#;
    assert_eq!(graphql(None, several), one("mutation B"));
    assert_eq!(graphql(None, r#"{"operationName":"B"}"#), Lookup::Missing);
    for (query, body) in [
        (None, r#"{"query":"query A { a } mutation B { b }"}"#),
        (None, r#"{"query":"query A { a }","operationName":"B"}"#),
        (None, r#"[{"query":"{ a }"}]"#),
        (None, r#"{"query":"{ a }","query":"mutation B { b }"}"#),
        (None, r#"{"query":"{ a"}"#),
        (None, r#"{"query":"{ a } }"}"#),
        (None, r#"{"query":"schema { a }"}"#),
        (Some("query=mutation{a}"), r#"{"query":"{ a }"}"#),
    ] {
        assert_eq!(graphql(query, body), Lookup::Several, "{body}");
    }
}

proptest! {
    /// What `serde_json` reads from a document without odd names is what is found.
    #[test]
    fn a_value_is_that_of_a_common_reader(
        name in "[a-z\\\\\"\u{e9}]{1,3}", text in "\\PC{0,8}", other in "[A-Z]{4}", spaces in "[ \n\t]{0,2}",
    ) {
        let [key, value, other] = [&name, &text, &other].map(|text| serde_json::to_string(text).expect("text"));
        let body = format!("{spaces}{{{other}:[{value}],{spaces}{key}:{value}}}{spaces}");
        let escaped = name.replace('~', "~0").replace('/', "~1");
        prop_assert_eq!(read(&pointer(&format!("/{escaped}")), "", None, body.as_bytes()), Lookup::One(text));
    }

    #[test]
    fn nothing_panics(body in prop::collection::vec(any::<u8>(), 0..200), pieces in "[-{}\":,a\\\\ueser\\[\\]#;&=+%\r\n]{0,60}") {
        for content_type in [FORM, MULTIPART, "application/json"] {
            for part in [pointer("/user/name"), KeyPart::Form("user".to_owned()), KeyPart::Graphql] {
                read(&part, content_type, None, &body);
                read(&part, content_type, None, pieces.as_bytes());
                let query = serde_json::json!({ "query": pieces }).to_string();
                read(&part, content_type, None, query.as_bytes());
            }
        }
    }
}
