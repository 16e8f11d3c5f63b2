use std::cell::OnceCell;

use http::HeaderValue;
use http::header::{AUTHORIZATION, HeaderName};
use proptest::prelude::*;

use super::*;
use crate::http::headers::Headers;
use crate::http::message::Request;

const KEY: HeaderName = HeaderName::from_static("x-api-key");

fn table(rows: &[(&str, &str, &str)]) -> Result<ClientTable, RowError> {
    let mut builder = TableBuilder::new(["plan"].into_iter());
    for ((key, name, plan), line) in rows.iter().zip(2..) {
        let key = KeyDigest::of(key.as_bytes());
        builder.add(key, name, std::iter::once(*plan), (0, line))?;
    }
    builder.build().map_err(|(_, error)| error)
}

/// The name and the plan of the client that sends these fields.
fn found(
    identify_by: Vec<Credential>,
    fields: &[(HeaderName, &[u8])],
) -> (ClientLookup, Option<(String, String)>) {
    let table = table(&[
        ("k1", "acme", "pro"),
        ("k2", "acme", "pro"),
        ("k3", "b", ""),
    ]);
    let clients = Clients {
        identify_by,
        table: table.expect("a table"),
    };
    let mut headers = Headers::new();
    for (name, value) in fields {
        headers.append(name, HeaderValue::from_bytes(value).expect("a value"));
    }
    let mut request = Request::new(());
    *request.headers_mut() = headers;
    let cell = OnceCell::new();
    let client = RequestClient {
        clients: &clients,
        found: &cell,
    };
    let head = Head::new(&request, "a", "/", [192, 0, 2, 1].into()).with_client(Some(client));
    let texts = [KeyPart::Client, KeyPart::ClientColumn("plan".to_owned())]
        .map(|part| client.value(&part, &head).one().map(str::to_owned));
    let [name, plan] = texts;
    (client.lookup(&head), name.zip(plan))
}

fn by_header() -> Vec<Credential> {
    vec![Credential::Part(KeyPart::Header(KEY))]
}

#[test]
fn a_client_is_found_by_each_of_its_keys() {
    for key in ["k1", "k2"] {
        let (_, client) = found(by_header(), &[(KEY, key.as_bytes())]);
        assert_eq!(client, Some(("acme".to_owned(), "pro".to_owned())));
    }
    let (lookup, client) = found(by_header(), &[(KEY, b"K1")]);
    assert_eq!((lookup, client), (ClientLookup::Unknown, None));
    assert_eq!(found(by_header(), &[]).0, ClientLookup::NoKey);
    assert_eq!(found(by_header(), &[(KEY, b"")]).0, ClientLookup::NoKey);
    let both: &[(HeaderName, &[u8])] = &[(KEY, b"k1"), (KEY, b"k3")];
    assert_eq!(found(by_header(), both).0, ClientLookup::Several);
    // A digest is no key.
    let digest = KeyDigest::of(b"k1").to_hex();
    let texts = [format!("sha256:{digest}"), digest];
    for text in texts {
        let (lookup, _) = found(by_header(), &[(KEY, text.as_bytes())]);
        assert_eq!(lookup, ClientLookup::Unknown);
    }
}

#[test]
fn a_bearer_token_is_found_however_it_is_spelled() {
    for field in [
        &b"Bearer k1"[..],
        b"bEARER k1",
        b"Bearer\tk1",
        b"Bearer  k1 \t",
        b"Bearer\xa0k1",
        b"Bearer k1 x",
        "Bearer\u{2003}k1".as_bytes(),
    ] {
        let (_, client) = found(vec![Credential::Bearer], &[(AUTHORIZATION, field)]);
        let name = client.map(|(name, _)| name);
        assert_eq!(name.as_deref(), Some("acme"), "{}", field.escape_ascii());
    }
    for (fields, expected) in [
        (&[&b"Basic azE6"[..]][..], ClientLookup::NoKey),
        (&[b"Bearer"], ClientLookup::NoKey),
        (&[b"Bearer k"], ClientLookup::Unknown),
        (&[b"Bearer k1", b"Bearer k3"], ClientLookup::Several),
        (&[b"Bearer k1", b"Basic azE6"], ClientLookup::Several),
    ] {
        let fields: Vec<_> = fields.iter().map(|field| (AUTHORIZATION, *field)).collect();
        assert_eq!(found(vec![Credential::Bearer], &fields).0, expected);
    }
}

#[test]
fn the_first_credential_that_is_there_counts() {
    let either = || {
        let header = Credential::Part(KeyPart::Header(KEY));
        vec![Credential::Bearer, header]
    };
    let (_, client) = found(either(), &[(KEY, b"k3")]);
    assert_eq!(client, Some(("b".to_owned(), String::new())));
    let both: &[(HeaderName, &[u8])] = &[(KEY, b"k3"), (AUTHORIZATION, b"Bearer k1")];
    assert_eq!(
        found(either(), both).1.map(|(name, _)| name).as_deref(),
        Some("acme")
    );
    // An unknown key isn't passed over for the next.
    let both: &[(HeaderName, &[u8])] = &[(KEY, b"k3"), (AUTHORIZATION, b"Bearer x")];
    assert_eq!(found(either(), both).0, ClientLookup::Unknown);
}

#[test]
fn equal_keys_and_clients_with_two_plans_are_errors() {
    let twice = table(&[("k", "a", "x"), ("l", "b", "x"), ("k", "c", "x")]);
    assert_eq!(twice.err(), Some(RowError::SameKey { first: (0, 2) }));
    let (column, first) = ("plan".into(), (0, 2));
    let differs = table(&[("k", "a", "x"), ("l", "b", "y"), ("m", "a", "y")]);
    assert_eq!(differs.err(), Some(RowError::Differs { column, first }));
}

#[test]
fn nothing_shows_a_key() {
    let table = table(&[("hunter2", "acme", "pro")]).expect("a table");
    assert_eq!(format!("{table:?}"), "ClientTable");
    assert_eq!(format!("{:?}", KeyDigest::of(b"hunter2")), "KeyDigest");
}

#[test]
fn a_client_takes_few_bytes() {
    let mut builder = TableBuilder::new(["plan", "org"].into_iter());
    for number in 0_u32..100_000 {
        let name = format!("customer-{number}");
        let values = [["free", "pro"][number as usize % 2], "acme-inc"];
        let key = KeyDigest::of(&number.to_be_bytes());
        let added = builder.add(key, &name, values.into_iter(), (0, number));
        assert_eq!(added, Ok(()));
    }
    let table = builder
        .build()
        .map_err(|(_, error)| error)
        .expect("a table");
    assert_eq!(table.clients(), 100_000);
    assert!(table.bytes() <= 64 * 100_000, "{} bytes", table.bytes());
}

proptest! {
    #[test]
    fn all_keys_and_no_others_are_found(keys in proptest::collection::hash_set(any::<u32>(), 0..200), other in any::<u32>()) {
        let mut builder = TableBuilder::new(std::iter::empty());
        for key in &keys {
            let added = builder.add(KeyDigest::of(&key.to_be_bytes()), &key.to_string(), std::iter::empty(), (0, 0));
            prop_assert_eq!(added, Ok(()));
        }
        let table = builder.build().map_err(|(_, error)| error).expect("a table");
        for _ in 0..2 {
            for key in keys.iter().chain([&other]) {
                let found = table.find(&key.to_be_bytes());
                let name = found.and_then(|client| table.value(client, &KeyPart::Client));
                let expected = keys.contains(key).then(|| key.to_string());
                prop_assert_eq!(name, expected.as_deref());
            }
        }
    }
}
