use http::header::{ACCEPT, COOKIE, FROM, HOST, REFERER, VIA};
use proptest::prelude::*;

use super::*;
use crate::parsed_fields;

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("a value")
}

fn read(head: &str) -> Headers {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let parsed = httparse::parse_headers(head.as_bytes(), &mut fields).expect("a head");
    let httparse::Status::Complete((_, fields)) = parsed else {
        panic!("{head:?} has no end");
    };
    let found = parsed_fields(fields, head.as_bytes()).expect("names");
    found.of(Bytes::copy_from_slice(head.as_bytes()))
}

fn written(headers: &Headers) -> String {
    let mut buffer = Vec::new();
    for (name, value) in headers.iter() {
        write_field(name, value, &mut buffer);
    }
    String::from_utf8(buffer).expect("text")
}

#[test]
fn fields_stay_in_their_order() {
    for mut headers in [
        Headers::from_iter([(VIA, value("1")), (HOST, value("a")), (VIA, value("2"))]),
        read("VIA: 1\r\nHost:a \r\nvia:\t2\r\n\r\n"),
    ] {
        assert_eq!(written(&headers), "via: 1\r\nhost: a\r\nvia: 2\r\n");
        assert_eq!(headers.get(VIA), Some(&b"1"[..]));
        assert_eq!(headers.get_owned(VIA), Some(value("1")));
        assert_eq!(headers.get_all(VIA).next_back(), Some(&b"2"[..]));
        headers.insert(VIA, value("3"));
        headers.insert_missing(HOST, value("b"));
        headers.insert_missing(ACCEPT, value("c"));
        headers.append_as(REFERER, HOST);
        headers.append_as(FROM, COOKIE);
        assert_eq!(
            written(&headers),
            "via: 3\r\nhost: a\r\naccept: c\r\nreferer: a\r\n"
        );
        headers.remove(&HOST);
        assert_eq!((headers.contains(HOST), headers.len()), (false, 3));
    }
}

#[test]
fn an_added_value_is_valid() {
    for value in ["", "0", "a b", &"x".repeat(30), &"x".repeat(31), "\u{e9}"] {
        let mut headers = Headers::new();
        headers.append(
            FROM,
            FieldValue::try_from(value.as_bytes()).expect("a value"),
        );
        assert_eq!(headers.get(FROM), Some(value.as_bytes()));
        assert_eq!(headers.get_owned(FROM).expect("a field"), value.as_bytes());
    }
    let mut headers = Headers::new();
    headers.append(FROM, u64::MAX);
    assert_eq!(headers.get(FROM), Some(&b"18446744073709551615"[..]));
    for value in ["a\n", "\r\n", "\0", "\u{7f}"] {
        assert!(FieldValue::try_from(value.as_bytes()).is_err(), "{value:?}");
    }
}

#[test]
fn fields_are_shown_as_text() {
    let headers = read("A: \u{e9}\"\r\n\r\n");
    assert_eq!(format!("{headers:?}"), r#"{a: \xc3\xa9\"}"#);
}

/// An operation on header fields.
#[derive(Clone, Debug)]
enum Step {
    Append(u8, u16),
    Insert(u8, u16),
    InsertMissing(u8, u16),
    Remove(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..5_u8, any::<u16>()).prop_map(|(name, value)| Step::Append(name, value)),
        (0..5_u8, any::<u16>()).prop_map(|(name, value)| Step::Insert(name, value)),
        (0..5_u8, any::<u16>()).prop_map(|(name, value)| Step::InsertMissing(name, value)),
        (0..5_u8).prop_map(Step::Remove),
    ];
    proptest::collection::vec(step, 0..40)
}

proptest! {
    #[test]
    fn every_name_has_the_values_that_a_map_would_have(
        first in proptest::collection::vec((0..5_usize, "[ -~]{0,6}", "[ \t]{0,2}"), 0..8),
        steps in steps(),
    ) {
        let names = ["x-0", "x-1", "host", "via", "x-4"].map(HeaderName::from_static);
        let name = |place: u8| names[usize::from(place)].clone();
        let mut map = HeaderMap::new();
        let mut head = String::new();
        for (place, text, space) in first {
            map.append(&names[place], value(text.trim_matches([' ', '\t'])));
            let name = names[place].as_str().to_ascii_uppercase();
            head.push_str(&format!("{name}:{space}{text}{space}\r\n"));
        }
        let mut list = read(&format!("{head}\r\n"));
        for step in steps {
            match step {
                Step::Append(place, new) => {
                    list.append(name(place), u64::from(new));
                    map.append(name(place), new.into());
                }
                Step::Insert(place, new) => {
                    list.insert(name(place), u64::from(new));
                    map.insert(name(place), new.into());
                }
                Step::InsertMissing(place, new) => {
                    list.insert_missing(name(place), u64::from(new));
                    map.entry(name(place)).or_insert(new.into());
                }
                Step::Remove(place) => {
                    list.remove(name(place));
                    map.remove(name(place));
                }
            }
            for name in &names {
                let values: Vec<_> = list.get_all(name).collect();
                let known = map.get_all(name);
                let known: Vec<_> = known.iter().map(HeaderValue::as_bytes).collect();
                prop_assert_eq!(&values, &known);
                prop_assert_eq!(list.get(name), known.first().copied());
                prop_assert_eq!(list.get_owned(name), map.get(name).cloned());
                prop_assert_eq!(list.contains(name), map.contains_key(name));
            }
            prop_assert_eq!(list.len(), map.len());
            prop_assert_eq!(HeaderMap::from(read(&format!("{}\r\n", written(&list)))), map.clone());
        }
        prop_assert_eq!(&HeaderMap::from(list.clone()), &map);
        prop_assert_eq!(HeaderMap::from(Headers::from(map.clone())), map);
    }
}
