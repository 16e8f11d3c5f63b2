use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pointer(text: &str) -> Arc<[JsonPointer]> {
    [JsonPointer::parse(text).expect("a pointer")].into()
}

fn finish(scan: &mut JsonScan) -> Result<Option<JsonValue>, InvalidJson> {
    let mut found = None;
    scan.finish(|_, value| found = Some(value))?;
    Ok(found)
}

fn scan(path: &str, pieces: &[&[u8]]) -> Result<Option<JsonValue>, InvalidJson> {
    let mut scan = JsonScan::new(pointer(path));
    pieces.iter().for_each(|piece| scan.feed(piece));
    finish(&mut scan)
}

fn number(text: &str) -> Result<Option<JsonValue>, InvalidJson> {
    Ok(Some(JsonValue::Number(text.into())))
}

#[test]
fn finds_the_number_at_the_pointer_and_no_other() {
    let usage = "/usage/total_tokens";
    for (path, text, expected) in [
        (usage, r#"{"usage":{"total_tokens":57}}"#, number("57")),
        (
            usage,
            r#" {"a":{"usage":{"total_tokens":1}},"usage" : { "x":[2] , "total_tokens" : 57 } } "#,
            number("57"),
        ),
        (
            usage,
            r#"{"text":"\"usage\":{\"total_tokens\":9}"}"#,
            Ok(None),
        ),
        (usage, r#"{"usage":null}"#, Ok(None)),
        (usage, r#"{"usage":{"total_tokens":null}}"#, Ok(None)),
        (usage, r#"[{"usage":{"total_tokens":9}}]"#, Ok(None)),
        (usage, r#"{"usage":[{"total_tokens":9}]}"#, Ok(None)),
        (usage, r#"{"total_tokens":9,"usage":9}"#, Ok(None)),
        (usage, r#"{"x":"usage","y":{"total_tokens":9}}"#, Ok(None)),
        (
            usage,
            r#"{"usage":{"total_tokens":1},"usage":{"total_tokens":2}}"#,
            number("2"),
        ),
        (
            usage,
            "{\"usage\":{\"total_tokens\":1}}\n{\"usage\":{\"total_tokens\":2}}\n",
            number("2"),
        ),
        (
            usage,
            r#"{"us\u0061ge":{"total\u005ftokens":-1.5e3}}"#,
            number("-1.5e3"),
        ),
        (
            usage,
            r#"{"usage":{"total_tokens":"5\u0037"}}"#,
            Ok(Some(JsonValue::Text("57".into()))),
        ),
        (
            usage,
            r#"{"usage":{"total_tokens":true}}"#,
            Ok(Some(JsonValue::Other)),
        ),
        (
            usage,
            r#"{"usage":{"total_tokens":{"total_tokens":3}}}"#,
            Ok(Some(JsonValue::Other)),
        ),
        ("/a/1/b", r#"{"a":[{"b":1},{"b":2},{"b":3}]}"#, number("2")),
        ("/a/01/b", r#"{"a":[{"b":1},{"b":2}]}"#, Ok(None)),
        ("/0", "[7]", number("7")),
        ("/0", "{\"0\":8}", number("8")),
        ("/-/a", r#"[{"a":1},{"b":5},{"a":2}]"#, number("2")),
        ("/-", r#"{"-":3}"#, number("3")),
        ("/", "{\"\":8}", number("8")),
        ("/😀é", "{\"\\ud83d\\ude00\\u00e9\":8}", number("8")),
        (usage, "", Ok(None)),
        (usage, "<html>", Err(InvalidJson)),
        (usage, "[DONE]", Err(InvalidJson)),
        (usage, r#"{"usage":{"total_tokens":57"#, Err(InvalidJson)),
        (usage, r#"{"usage":{"total_tokens":57}"#, Err(InvalidJson)),
        (usage, r#"{"usage":"#, Err(InvalidJson)),
        (usage, r#"{"usage":{"total_tokens":57}}}"#, Err(InvalidJson)),
        (
            usage,
            r#"{"usage":{"total_tokens":57}, "open"#,
            Err(InvalidJson),
        ),
    ] {
        assert_eq!(scan(path, &[text.as_bytes()]), expected, "{path} in {text}");
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(
            scan(path, &bytes),
            expected,
            "{path} in {text}, byte by byte"
        );
    }
}

#[test]
fn keeps_little_of_long_strings_and_deep_documents() {
    let mut scan = JsonScan::new(pointer("/usage/total_tokens"));
    scan.feed(b"{\"text\":\"");
    for _ in 0..1000 {
        scan.feed(&[b'x'; 1000]);
    }
    scan.feed(b"\",\"");
    for _ in 0..1000 {
        scan.feed(b"\\u0061usage");
    }
    scan.feed(b"\":");
    for _ in 0..100_000 {
        scan.feed(b"[{\"usage\":");
    }
    assert!(scan.text.capacity() < 200 && scan.path.capacity() < 10);
    for _ in 0..100_000 {
        scan.feed(b"}]");
    }
    scan.feed(b",\"n\":");
    for _ in 0..1000 {
        scan.feed(b"1234567890");
    }
    scan.feed(b",\"usage\":{\"total_tokens\":4}}");
    assert!(scan.text.capacity() < 200 && scan.path.capacity() < 10);
    assert_eq!(finish(&mut scan), number("4"));
}

#[test]
fn a_number_of_a_thousand_digits_is_not_kept() {
    let text = format!("{{\"a\":{}}}", "1".repeat(1000));
    assert_eq!(scan("/a", &[text.as_bytes()]), Ok(Some(JsonValue::Other)));
}

#[test]
fn a_text_of_more_than_128_bytes_is_not_kept() {
    for (length, expected) in [
        (128, JsonValue::Text("x".repeat(128).into())),
        (129, JsonValue::Other),
    ] {
        let text = format!("{{\"a\":\"{}\"}}", "x".repeat(length));
        assert_eq!(scan("/a", &[text.as_bytes()]), Ok(Some(expected)));
    }
}

#[test]
fn a_document_beyond_the_bound_is_not_read() {
    let mut scan = JsonScan::new(pointer("/a"));
    scan.feed(b"{\"b\":\"");
    let megabyte = vec![b'x'; 1 << 20];
    for _ in 0..256 {
        scan.feed(&megabyte);
    }
    scan.feed(b"\",\"a\":1}");
    assert_eq!(finish(&mut scan), Err(InvalidJson));
}

fn documents() -> impl Strategy<Value = Value> {
    let key = "(a|b|usage|\"|\\\\|é|😀|0|1|2)";
    let leaf = prop_oneof![
        any::<u64>().prop_map(|number| json!(number)),
        any::<bool>().prop_map(|truth| json!(truth)),
        Just(Value::Null),
        "[ -~é😀\n\"\\\\{}\\[\\]:,]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4)
                .prop_map(|members| { Value::Object(members.into_iter().collect()) }),
        ]
    })
}

/// Escapes each character that is not ASCII.
fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        c if c.is_ascii() => c.to_string(),
        _ => {
            let units = c.encode_utf16(&mut [0; 2]).to_vec();
            units.iter().map(|unit| format!("\\u{unit:04x}")).collect()
        }
    };
    text.chars().map(escape).collect()
}

proptest! {
    #[test]
    fn finds_what_serde_json_finds_however_the_text_is_cut(
        document in documents(),
        tokens in prop::collection::vec("(a|b|usage|\"|\\\\|é|😀|0|1|2)", 1..4),
        cuts in prop::collection::vec(0.0..1.0, 0..8),
        is_pretty: bool,
        is_escaped: bool,
    ) {
        let path: String = tokens.iter().map(|token| format!("/{token}")).collect();
        let mut text = if is_pretty {
            serde_json::to_string_pretty(&document).expect("JSON")
        } else {
            document.to_string()
        };
        if is_escaped {
            text = escaped(&text);
        }
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| (cut * text.len() as f64) as usize).collect();
        cuts.sort_unstable();
        let mut rest = text.as_bytes();
        let mut pieces = Vec::new();
        let mut before = 0;
        for cut in cuts {
            let (piece, after) = rest.split_at(cut - before);
            pieces.push(piece);
            (rest, before) = (after, cut);
        }
        pieces.push(rest);
        let expected = match document.pointer(&path) {
            None | Some(Value::Null) => None,
            Some(Value::Number(number)) => Some(JsonValue::Number(number.to_string().into())),
            Some(Value::String(text)) => Some(JsonValue::Text(text.as_str().into())),
            Some(_) => Some(JsonValue::Other),
        };
        prop_assert_eq!(scan(&path, &pieces), Ok(expected), "{} in {}", path, text);
    }

    #[test]
    fn several_pointers_find_what_each_finds_alone(
        document in documents(),
        paths in prop::collection::vec(prop::collection::vec("(a|b|usage|0|1|-)", 1..4), 1..8),
    ) {
        let text = document.to_string();
        let paths: Vec<String> = paths.iter().map(|path| format!("/{}", path.join("/"))).collect();
        let pointers = paths.iter().map(|path| JsonPointer::parse(path).expect("a pointer"));
        let mut together = JsonScan::new(pointers.collect());
        together.feed(text.as_bytes());
        let mut found = vec![None; paths.len()];
        together.finish(|place, value| found[place] = Some(value)).expect("JSON");
        for (path, found) in paths.iter().zip(found) {
            prop_assert_eq!(scan(path, &[text.as_bytes()]), Ok(found), "{} in {}", path, text);
        }
    }

    #[test]
    fn any_bytes_are_read_alike_however_they_are_cut(
        bytes in "[{}\\[\\]:,\"\\\\a0 n-]{0,40}",
        cut in 0.0..1.0,
    ) {
        let bytes = bytes.as_bytes();
        let (one, other) = bytes.split_at((cut * bytes.len() as f64) as usize);
        let whole = scan("/a/0", &[bytes]);
        prop_assert_eq!(scan("/a/0", &[one, other]), whole.clone());
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(scan("/a/0", &single), whole);
    }
}
