//! Keys as operators write them.

use super::*;

const SHARED: [OnMissingKey; 2] = [OnMissingKey::Shared, OnMissingKey::Skip];

fn key(parts: Vec<KeyPart>, on_missing: OnMissingKey, texts: &[PartText]) -> Option<Fingerprint> {
    let descriptor = Descriptor::new(parts, on_missing, 64);
    let key = descriptor.read_key(texts).ok()?;
    let mut hasher = SECRET.hasher();
    key.feed(&mut hasher);
    Some(hasher.finish())
}

/// The key of a request with these parts.
fn asked(parts: Vec<KeyPart>, on_missing: OnMissingKey, request: &Request) -> Option<Fingerprint> {
    match Descriptor::new(parts, on_missing, 64).fingerprint(&SECRET, &request.head()) {
        Key::Bucket(key) => Some(key),
        Key::Skip | Key::Refuse => None,
    }
}

#[test]
fn a_text_names_the_bucket_of_the_request() {
    let segment = KeyPart::Segment {
        place: 1,
        form: FOLDING,
    };
    let credentials = KeyPart::field(AUTHORIZATION);
    let request = Request::new()
        .path("/users/Bob/posts/")
        .query("q=a%20b")
        .field("x-key", "alice")
        .field("cookie", "session=c%21")
        .field("authorization", "Bearer \t abc")
        .from("2001:db8::1:2:3:4");
    for (part, text) in [
        (ADDRESS, "2001:db8::9"),
        (ADDRESS, "2001:db8::/64"),
        (field("x-key"), "alice"),
        (cookie("session"), "c!"),
        (query("q"), "a b"),
        (segment, "bOB"),
        (KeyPart::Path(FOLDING), "/USERS/bob/posts"),
        (KeyPart::Method, "GET"),
        (KeyPart::Host, "A"),
        (KeyPart::Route("home".into()), "home"),
        (credentials, "bearer abc"),
    ] {
        let parts = || vec![part.clone(), KeyPart::Constant];
        let own = key(parts(), OnMissingKey::Skip, &[PartText::Value(text.into())]);
        let of_request = asked(parts(), OnMissingKey::Skip, &request);
        assert!(own.is_some(), "{part}");
        assert_eq!(own, of_request, "{part}");
    }
    let mapped = key(
        vec![ADDRESS],
        OnMissingKey::Skip,
        &[PartText::Value("::ffff:192.0.2.1".into())],
    );
    assert_eq!(
        mapped,
        asked(vec![ADDRESS], OnMissingKey::Skip, &Request::new())
    );
}

#[test]
fn several_parts_are_in_the_order_of_the_key() {
    let parts = || vec![ADDRESS, field("x-key")];
    let request = Request::new().field("x-key", "alice");
    let texts = [
        PartText::Value("192.0.2.1".into()),
        PartText::Value("alice".into()),
    ];
    let own = key(parts(), OnMissingKey::Skip, &texts);
    assert_eq!(own, asked(parts(), OnMissingKey::Skip, &request));
    assert_eq!(key(parts(), OnMissingKey::Skip, &texts[..1]), None);
}

#[test]
fn a_missing_part_names_the_bucket_of_requests_without_it() {
    let parts = || vec![field("x-key")];
    let (bare, cookied) = (Request::new(), Request::new().field("cookie", "s=1"));
    let other = || OnMissingKey::Part(cookie("s"));
    let stand_in =
        |part: &str, value: &str| [PartText::StandIn([(part.into(), value.into())].into())];
    let of_cookie = key(parts(), other(), &stand_in("cookie:s", "1"));
    assert_eq!(of_cookie, asked(parts(), other(), &cookied));
    let of_address = key(parts(), other(), &stand_in("client_ip", "192.0.2.1"));
    assert_eq!(of_address, asked(parts(), other(), &bare));
    assert!(of_address.is_some() && of_cookie.is_some());
    assert_eq!(key(parts(), other(), &stand_in("cookie:t", "1")), None);
    for on_missing in SHARED
        .into_iter()
        .chain([OnMissingKey::Value("free".into())])
    {
        let own = key(parts(), on_missing.clone(), &[PartText::Missing(())]);
        assert_eq!(own, asked(parts(), on_missing, &bare));
    }
    assert_eq!(key(parts(), other(), &[PartText::Missing(())]), None);
}

#[test]
fn messages_name_parts_and_no_values() {
    let read = |parts, texts: &[PartText]| {
        let descriptor = Descriptor::new(parts, OnMissingKey::Refuse, 64);
        descriptor.read_key(texts).expect_err("no key").to_string()
    };
    assert_eq!(
        read(vec![ADDRESS], &[PartText::Value("alice".into())]),
        "`client_ip` takes an IP address"
    );
    assert_eq!(
        read(
            vec![ADDRESS, field("x-key")],
            &[PartText::Value("alice".into())]
        ),
        "the key has 2 parts [client_ip, header:x-key], not 1"
    );
    assert_eq!(
        read(vec![field("x-key")], &[PartText::Missing(())]),
        "requests without `header:x-key` have no such bucket: on_missing_key is refuse"
    );
    assert!(read(vec![field("x-key")], &[PartText::Value("".into())]).contains("is empty"));
}
