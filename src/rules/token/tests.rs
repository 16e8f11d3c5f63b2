//! Tokens of every algorithm: those that are good, and all that is not.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use jsonwebtoken::{EncodingKey, encode};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::pem;

/// A key of tests/fixtures/jwt.
fn fixture(name: &str) -> Vec<u8> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/jwt/");
    std::fs::read(format!("{directory}{name}")).expect("the fixture is there")
}

/// In seconds since the Unix epoch.
const NOW: u64 = 1_700_000_000;
const ALL: [TokenAlgorithm; 4] = [
    TokenAlgorithm::Hs256,
    TokenAlgorithm::Rs256,
    TokenAlgorithm::Es256,
    TokenAlgorithm::EdDsa,
];

/// The private key of an algorithm, the file with the public one, and its name in the set.
fn known(algorithm: TokenAlgorithm) -> (EncodingKey, Vec<u8>, &'static str) {
    let private = |name| fixture(&format!("{name}.key"));
    let public = |name| fixture(&format!("{name}.pem"));
    match algorithm {
        TokenAlgorithm::Hs256 => {
            let secret = fixture("secret.txt");
            let key = EncodingKey::from_secret(secret.strip_suffix(b"\n").expect("a line"));
            (key, secret, "hs-1")
        }
        TokenAlgorithm::Rs256 => {
            let key = EncodingKey::from_rsa_pem(&private("rsa"));
            (key.unwrap(), public("rsa"), "rsa-1")
        }
        TokenAlgorithm::Es256 => {
            let key = EncodingKey::from_ec_pem(&private("ec"));
            (key.unwrap(), public("ec"), "ec-1")
        }
        TokenAlgorithm::EdDsa => {
            let key = EncodingKey::from_ed_pem(&private("ed"));
            (key.unwrap(), public("ed"), "ed-1")
        }
    }
}

fn set() -> Vec<TokenKey> {
    TokenKey::from_set(&fixture("jwks.json")).unwrap().keys
}

fn key(algorithm: TokenAlgorithm, id: Option<&str>) -> TokenKey {
    TokenKey::from_file(&known(algorithm).1, algorithm, id.map(str::to_owned)).unwrap()
}

fn signed(algorithm: TokenAlgorithm, kid: Option<&str>, claims: &Value) -> String {
    let mut header = Header::new(algorithm.into());
    header.kid = kid.map(str::to_owned);
    encode(&header, claims, &known(algorithm).0).unwrap()
}

fn spec(keys: Vec<TokenKey>) -> TokenSpec {
    TokenSpec {
        header: AUTHORIZATION,
        keys,
        issuer: None,
        audiences: Vec::new(),
        leeway: 0,
        claims: ["sub", "plan", "level", "admin"]
            .map(str::to_owned)
            .to_vec(),
    }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn fields(values: &[&str]) -> Headers {
    let values = values
        .iter()
        .map(|value| HeaderValue::from_str(value).unwrap());
    values.map(|value| (AUTHORIZATION, value)).collect()
}

/// The token in these fields, if it has one that is good.
fn good(verifier: &Verifier, headers: &Headers, now: u64) -> Option<Token> {
    verifier.check(headers, at(now)).token.ok().flatten()
}

/// The claim `sub` of what a verifier makes of this token.
fn subject_at(verifier: &Verifier, token: &str, now: u64) -> Option<String> {
    let token = good(verifier, &fields(&[&format!("Bearer {token}")]), now)?;
    match token.claim("sub") {
        Lookup::One(value) => Some(value.to_owned()),
        _ => None,
    }
}

fn subject(verifier: &Verifier, token: &str) -> Option<String> {
    subject_at(verifier, token, NOW)
}

#[test]
fn a_token_of_every_algorithm_is_verified_by_its_key_alone() {
    let claims = json!({ "sub": "alice" });
    for algorithm in ALL {
        let token = signed(algorithm, None, &claims);
        for other in ALL {
            let verifier = Verifier::new(spec(vec![key(other, None)]));
            let found = subject(&verifier, &token).is_some();
            assert_eq!(found, other == algorithm, "{algorithm:?} {other:?}");
        }
        let set = Verifier::new(spec(set()));
        for (kid, good) in [
            (None, true),
            (Some(known(algorithm).2), true),
            (Some("other"), false),
        ] {
            let token = signed(algorithm, kid, &claims);
            assert_eq!(
                subject(&set, &token).is_some(),
                good,
                "{algorithm:?} {kid:?}"
            );
        }
        let named = Verifier::new(spec(vec![key(algorithm, Some("mine"))]));
        for (kid, good) in [(None, true), (Some("mine"), true), (Some("other"), false)] {
            assert_eq!(
                subject(&named, &signed(algorithm, kid, &claims)).is_some(),
                good
            );
        }
    }
}

/// The public key of one algorithm as the secret of another, and no signature at all (RFC 8725
/// sections 2.1 and 3.1).
#[test]
fn algorithms_cannot_be_confused() {
    let verifier = Verifier::new(spec(vec![key(TokenAlgorithm::Rs256, None)]));
    let header = Header::new(Algorithm::HS256);
    let public = fixture("rsa.pem");
    for secret in [&public[..], public.trim_ascii_end()] {
        let forged = encode(
            &header,
            &json!({ "sub": "alice" }),
            &EncodingKey::from_secret(secret),
        );
        assert_eq!(subject(&verifier, &forged.unwrap()), None);
    }
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"None"}"#,
        r#"{"alg":"RS384"}"#,
        r#"{"alg":""}"#,
        "{}",
    ] {
        use base64::engine::{Engine, general_purpose::URL_SAFE_NO_PAD};
        let [header, claims] =
            [header, r#"{"sub":"alice"}"#].map(|part| URL_SAFE_NO_PAD.encode(part));
        assert_eq!(subject(&verifier, &format!("{header}.{claims}.")), None);
        let good = signed(TokenAlgorithm::Rs256, None, &json!({ "sub": "alice" }));
        let (_, signature) = good.rsplit_once('.').unwrap();
        assert_eq!(
            subject(&verifier, &format!("{header}.{claims}.{signature}")),
            None
        );
    }
}

#[test]
fn what_is_critical_and_not_known_is_refused() {
    let mut header = Header::new(Algorithm::HS256);
    header.crit = Some(vec!["b64".to_owned()]);
    let token = encode(
        &header,
        &json!({ "sub": "alice" }),
        &known(TokenAlgorithm::Hs256).0,
    )
    .unwrap();
    let verifier = Verifier::new(spec(vec![key(TokenAlgorithm::Hs256, None)]));
    assert_eq!(subject(&verifier, &token), None);
}

/// Also when it is remembered from a time at which it was good.
#[test]
fn a_token_is_good_from_nbf_until_exp_give_or_take() {
    let claims = json!({ "sub": "alice", "nbf": NOW, "exp": NOW as f64 + 100.9 });
    let token = signed(TokenAlgorithm::EdDsa, None, &claims);
    for leeway in [0, 60] {
        let verifier = Verifier::new(TokenSpec {
            leeway,
            ..spec(vec![key(TokenAlgorithm::EdDsa, None)])
        });
        let good = |now| subject_at(&verifier, &token, now).is_some();
        let ends = [NOW - leeway, NOW + 100 + leeway];
        assert_eq!([good(ends[0]), good(ends[1] - 1)], [true, true]);
        assert_eq!([good(ends[0] - 1), good(ends[1])], [false, false]);
        assert!(good(NOW));
    }
    for time in [json!("soon"), json!(-1), json!(null), json!([1])] {
        for name in ["exp", "nbf"] {
            let token = signed(
                TokenAlgorithm::EdDsa,
                None,
                &json!({ "sub": "alice", name: time }),
            );
            let verifier = Verifier::new(spec(vec![key(TokenAlgorithm::EdDsa, None)]));
            assert_eq!(subject(&verifier, &token), None, "{name} {time}");
        }
    }
}

#[test]
fn issuer_and_audience_are_those_that_are_wanted() {
    let verifier = Verifier::new(TokenSpec {
        issuer: Some("https://id".to_owned()),
        audiences: vec!["api".to_owned(), "web".to_owned()],
        ..spec(vec![key(TokenAlgorithm::Hs256, None)])
    });
    let good = |iss: Value, aud: Value| {
        let claims = json!({ "sub": "alice", "iss": iss, "aud": aud });
        subject(&verifier, &signed(TokenAlgorithm::Hs256, None, &claims)).is_some()
    };
    assert!(good(json!("https://id"), json!("web")));
    assert!(good(json!("https://id"), json!(["other", "api"])));
    assert!(!good(json!("https://id"), json!("other")));
    assert!(!good(json!("https://id"), json!(null)));
    assert!(!good(json!("https://other"), json!("api")));
    assert!(!good(json!(["https://id"]), json!("api")));
}

#[test]
fn claims_are_texts_numbers_and_truth_values() {
    let claims = json!({ "sub": "", "plan": ["gold"], "level": 7, "admin": true, "other": "x" });
    let verifier = Verifier::new(spec(vec![key(TokenAlgorithm::Hs256, None)]));
    let token = signed(TokenAlgorithm::Hs256, None, &claims);
    let fields = fields(&[&format!("bearer  {token}")]);
    let token = good(&verifier, &fields, NOW).unwrap();
    assert_eq!(token.claim("level"), Lookup::One("7"));
    assert_eq!(token.claim("admin"), Lookup::One("true"));
    for missing in ["sub", "plan", "other"] {
        assert_eq!(token.claim(missing), Lookup::Missing, "{missing}");
    }
}

#[test]
fn two_tokens_are_several_and_no_token_is_none() {
    let verifier = Verifier::new(spec(vec![key(TokenAlgorithm::Hs256, None)]));
    let [alice, bob] =
        ["alice", "bob"].map(|sub| signed(TokenAlgorithm::Hs256, None, &json!({ "sub": sub })));
    let token = |values: &[&str]| good(&verifier, &fields(values), NOW);
    let bearer = |token: &str| format!("Bearer {token}");
    assert!(matches!(
        token(&[&bearer(&alice), &bearer(&bob)]),
        Some(Token::Several)
    ));
    assert!(matches!(
        token(&[&bearer(&alice), "x"]),
        Some(Token::Several)
    ));
    assert!(matches!(
        token(&[&bearer(&alice), &bearer(&alice)]),
        Some(Token::Verified(_))
    ));
    for none in [
        &alice,
        "Bearer",
        "Bearer x.y.z",
        &format!("Basic {alice}"),
        &format!("Bearer {alice} x"),
    ] {
        assert!(token(&[none]).is_none(), "{none}");
    }
    let long = signed(
        TokenAlgorithm::Hs256,
        None,
        &json!({ "sub": "a".repeat(MAX_TOKEN_BYTES) }),
    );
    assert!(token(&[&bearer(&long)]).is_none());
}

#[test]
fn another_field_has_the_token_as_it_is_or_after_a_scheme() {
    let header = HeaderName::from_static("x-token");
    let verifier = Verifier::new(TokenSpec {
        header: header.clone(),
        ..spec(vec![key(TokenAlgorithm::Hs256, None)])
    });
    let token = signed(TokenAlgorithm::Hs256, None, &json!({ "sub": "alice" }));
    for value in [token.clone(), format!("Bearer {token}")] {
        let headers =
            Headers::from_iter([(header.clone(), HeaderValue::from_str(&value).unwrap())]);
        assert!(good(&verifier, &headers, NOW).is_some());
    }
    let fields = fields(&[&format!("Bearer {token}")]);
    assert!(good(&verifier, &fields, NOW).is_none());
}

#[test]
fn many_tokens_are_each_what_they_are() {
    let verifier = Verifier::new(spec(vec![key(TokenAlgorithm::Hs256, None)]));
    for round in 0..2 {
        for number in 0..5_000 {
            let name = format!("user-{number}");
            let token = signed(TokenAlgorithm::Hs256, None, &json!({ "sub": name }));
            assert_eq!(subject(&verifier, &token), Some(name), "{round}");
        }
    }
}

/// Who sends nonsense makes others wait for that long at most.
#[test]
fn few_keys_are_tried_on_a_token_that_names_none() {
    let token = signed(TokenAlgorithm::Hs256, None, &json!({ "sub": "alice" }));
    let wrong = |number: usize| {
        let secret = format!("another secret, of thirty-two bytes or more: {number}");
        TokenKey::from_file(secret.as_bytes(), TokenAlgorithm::Hs256, None).unwrap()
    };
    for (others, good) in [(MAX_KEYS_TRIED - 1, true), (MAX_KEYS_TRIED, false)] {
        let right = key(TokenAlgorithm::Hs256, None);
        let keys = (0..others).map(wrong).chain([right]).collect();
        assert_eq!(subject(&Verifier::new(spec(keys)), &token).is_some(), good);
    }
}

#[test]
fn a_rejected_token_says_why_and_costs_few_signatures_and_those_once() {
    let claims = |more: Value| {
        let mut claims = json!({ "sub": "alice", "iss": "https://id", "aud": "api" });
        let more = more.as_object().expect("an object").clone();
        claims.as_object_mut().expect("an object").extend(more);
        claims
    };
    let by = |kid, more| signed(TokenAlgorithm::Hs256, kid, &claims(more));
    let good = by(Some("hs-1"), json!({}));
    let forged = format!("{}AAAA", &good[..good.len() - 4]);
    let unnamed = by(None, json!({}));
    let unnamed_forged = format!("{}AAAA", &unnamed[..unnamed.len() - 4]);
    let wrong = |number: usize| {
        let secret = format!("another secret, of thirty-two bytes or more: {number}");
        let id = Some(format!("other-{number}"));
        TokenKey::from_file(secret.as_bytes(), TokenAlgorithm::Hs256, id).unwrap()
    };
    let verifier = Verifier::new(TokenSpec {
        issuer: Some("https://id".to_owned()),
        audiences: vec!["api".to_owned()],
        ..spec((0..20).map(wrong).chain(set()).collect())
    });
    for (token, rejection, signatures) in [
        (forged, Some(TokenRejection::BadSignature), 1),
        (
            unnamed_forged,
            Some(TokenRejection::BadSignature),
            MAX_KEYS_TRIED as u64,
        ),
        (
            by(Some("gone"), json!({})),
            Some(TokenRejection::UnknownKey),
            0,
        ),
        (
            by(Some("hs-1"), json!({ "iss": "https://other" })),
            Some(TokenRejection::WrongIssuer),
            1,
        ),
        (
            by(Some("hs-1"), json!({ "aud": "other" })),
            Some(TokenRejection::WrongAudience),
            1,
        ),
        (
            by(Some("hs-1"), json!({ "exp": NOW - 90 })),
            Some(TokenRejection::Expired(90)),
            1,
        ),
        (
            by(Some("hs-1"), json!({ "nbf": NOW + 30 })),
            Some(TokenRejection::NotYetValid(30)),
            1,
        ),
        ("garbage".to_owned(), Some(TokenRejection::Malformed), 0),
        (
            "a".repeat(MAX_TOKEN_BYTES + 1),
            Some(TokenRejection::Malformed),
            0,
        ),
        (good, None, 1),
    ] {
        let fields = fields(&[&format!("Bearer {token}")]);
        let recalled = verifier.check_cached(&fields, at(NOW));
        assert_eq!(
            recalled.is_none(),
            token.len() <= MAX_TOKEN_BYTES,
            "{rejection:?}"
        );
        let first = verifier.check(&fields, at(NOW));
        let second = verifier.check(&fields, at(NOW));
        assert_eq!(first.signatures, signatures, "{rejection:?}");
        assert_eq!(second.signatures, 0, "{rejection:?} is remembered");
        for checked in [first, second] {
            assert_eq!(checked.token.err(), rejection);
        }
        assert!(verifier.check_cached(&fields, at(NOW)).is_some());
    }
}

#[test]
fn keys_that_are_none_are_said_to_be() {
    let wrong = |content: &[u8], algorithm| TokenKey::from_file(content, algorithm, None).err();
    for algorithm in [
        TokenAlgorithm::Rs256,
        TokenAlgorithm::Es256,
        TokenAlgorithm::EdDsa,
    ] {
        assert_eq!(
            wrong(&fixture("rsa.key"), algorithm),
            Some(KeyError::Private)
        );
        assert_eq!(wrong(b"hello", algorithm), Some(KeyError::NoKey));
    }
    assert_eq!(
        wrong(&fixture("ec.pem"), TokenAlgorithm::Rs256),
        Some(KeyError::NoKey)
    );
    assert_eq!(
        wrong(b"short\n", TokenAlgorithm::Hs256),
        Some(KeyError::ShortSecret)
    );
    let pem = String::from_utf8(fixture("rsa.pem")).expect("text");
    let der = pem::blocks(pem.as_bytes()).expect("a block").remove(0).der;
    let ended = |line_end: &str| [&der[..], line_end.as_bytes()].concat();
    for public in [
        fixture("rsa.pem"),
        fixture("rsa.key"),
        fixture("jwks.json"),
        pem.replace('\n', "\\n").into_bytes(),
        ended(""),
        ended("\n"),
    ] {
        let found = wrong(&public, TokenAlgorithm::Hs256);
        assert_eq!(found, Some(KeyError::NotSecret), "{public:?}");
    }
    assert_eq!(
        wrong(&fixture("rsa-1024.pem"), TokenAlgorithm::Rs256),
        Some(KeyError::RsaSize(1024))
    );
    assert_eq!(
        wrong(&fixture("ec-384.pem"), TokenAlgorithm::Es256),
        Some(KeyError::NoKey)
    );
    let wrong_set = |text: &str| TokenKey::from_set(text.as_bytes()).err();
    assert!(matches!(wrong_set("hello"), Some(KeyError::NoSet(_))));
    let none = |reasons: &str| Some(KeyError::NoneUsable(reasons.to_owned()));
    assert_eq!(wrong_set(r#"{"keys":[]}"#), none(""));
    assert_eq!(
        wrong_set(r#"{"keys":[{"kty":"oct","k":"c2hvcnQ"}]}"#),
        none("; key 1: a secret for HS256 has at least 32 bytes")
    );
    let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let secret = encoded(pem.as_bytes());
    let rsa = |n: &[u8]| {
        format!(
            r#"{{"keys":[{{"kty":"RSA","e":"AQAB","n":"{}"}}]}}"#,
            encoded(n)
        )
    };
    for set in [
        format!(r#"{{"keys":[{{"kty":"oct","k":"{secret}"}}]}}"#),
        rsa(&[255; 128]),
        rsa(&[127; 256]),
        rsa(&[]),
    ] {
        let found = wrong_set(&set);
        assert!(matches!(found, Some(KeyError::NoneUsable(_))), "{set}");
    }
    assert_eq!(wrong_set(&rsa(&[255; 256])), None);
    assert_eq!(set().len(), 4);
    assert!(!format!("{:?}", key(TokenAlgorithm::Hs256, None)).contains("nobody"));
}

/// The keys of the fixture with a member changed, each with the reason why it is not used.
#[test]
fn each_key_of_a_set_that_is_not_used_is_named_with_the_reason() {
    let set: Value = serde_json::from_slice(&fixture("jwks.json")).expect("JSON");
    let known = |kid: &str| {
        let mut keys = set["keys"].as_array().expect("keys").iter();
        keys.find(|key| key["kid"] == kid).expect("a key").clone()
    };
    let encoded = |bytes: &[u8]| json!(URL_SAFE_NO_PAD.encode(bytes));
    let n = URL_SAFE_NO_PAD.decode(known("rsa-1")["n"].as_str().expect("a text"));
    let mut even = n.expect("base64");
    *even.last_mut().expect("a byte") &= 0xfe;
    let numbers =
        "its numbers make no public key, such as a point off the curve or an even exponent";
    let off = numbers;
    let secret = json!("never shown");
    let cases = [
        ("rsa-1", "e", encoded(&[1]), numbers),
        ("rsa-1", "e", encoded(&[1, 0, 0]), numbers),
        ("rsa-1", "e", encoded(&[2, 0, 0, 0, 1]), numbers),
        ("rsa-1", "e", encoded(&[0]), numbers),
        (
            "rsa-1",
            "e",
            json!("AQAB="),
            "its `e` isn't base64url without padding",
        ),
        ("rsa-1", "e", json!(65537), "it has no text `e`"),
        ("rsa-1", "n", encoded(&even), numbers),
        (
            "rsa-1",
            "n",
            encoded(&[255; 128]),
            "its RSA key has 1024 bits: expected 2048 to 8192",
        ),
        ("rsa-1", "n", Value::Null, "it has no text `n`"),
        (
            "rsa-1",
            "alg",
            json!("RS512"),
            "its `alg` is `RS512`: expected RS256",
        ),
        (
            "rsa-1",
            "use",
            json!("enc"),
            "its `use` is `enc`: expected sig",
        ),
        (
            "rsa-1",
            "key_ops",
            json!(["encrypt"]),
            "its `key_ops` lack `verify`",
        ),
        (
            "rsa-1",
            "kty",
            json!("X\u{1b}"),
            "its `kty` is `X\\u001b`: expected RSA, EC, OKP or oct",
        ),
        (
            "ec-1",
            "crv",
            json!("P-384"),
            "its `crv` is `P-384`: expected P-256",
        ),
        (
            "ec-1",
            "x",
            encoded(&[1; 31]),
            "its `x` has 31 bytes: expected 32",
        ),
        (
            "ec-1",
            "y",
            encoded(&[0; 33]),
            "its `y` has 33 bytes: expected 32",
        ),
        ("ec-1", "y", encoded(&[7; 32]), off),
        ("ec-1", "x", encoded(&[255; 32]), off),
        (
            "ed-1",
            "crv",
            json!("Ed448"),
            "its `crv` is `Ed448`: expected Ed25519",
        ),
        (
            "ed-1",
            "x",
            encoded(&[1; 57]),
            "its `x` has 57 bytes: expected 32",
        ),
        (
            "hs-1",
            "k",
            encoded(b"short"),
            "a secret for HS256 has at least 32 bytes",
        ),
        (
            "hs-1",
            "k",
            secret,
            "its `k` isn't base64url without padding",
        ),
        (
            "hs-1",
            "alg",
            json!("HS512"),
            "its `alg` is `HS512`: expected HS256",
        ),
        ("ec-1", "kid", json!("rsa-1"), ""),
    ];
    for (kid, member, value, expected) in cases {
        let mut key = known(kid);
        key[member] = value;
        let other = if kid == "rsa-1" { "ec-1" } else { "rsa-1" };
        let text = json!({ "keys": [known(other), key] }).to_string();
        let set = TokenKey::from_set(text.as_bytes()).expect("one is good");
        let expected = (!expected.is_empty()).then(|| format!("key `{kid}`: {expected}"));
        assert_eq!(set.unusable, Vec::from_iter(expected), "{kid} {member}");
    }
    let twice = json!({ "keys": [known("ec-1"), known("ec-1"), "text"] }).to_string();
    let set = TokenKey::from_set(twice.as_bytes()).expect("one is good");
    let second = "key `ec-1`: another key with its `kid` and algorithm comes first";
    assert_eq!(set.unusable, [second, "key 3: it has no text `kty`"]);
    assert_eq!(set.keys.len(), 1);
}

#[test]
fn zeros_before_an_rsa_number_make_no_difference() {
    let mut set: Value = serde_json::from_slice(&fixture("jwks.json")).expect("JSON");
    for member in ["n", "e"] {
        let value = &mut set["keys"][0][member];
        let bytes = URL_SAFE_NO_PAD.decode(value.as_str().expect("a text"));
        let bytes = [&[0, 0], &*bytes.expect("base64")].concat();
        *value = json!(URL_SAFE_NO_PAD.encode(bytes));
    }
    let keys = TokenKey::from_set(set.to_string().as_bytes()).expect("a set");
    let verifier = Verifier::new(spec(keys.keys));
    let token = signed(
        TokenAlgorithm::Rs256,
        Some("rsa-1"),
        &json!({ "sub": "alice" }),
    );
    assert_eq!(subject(&verifier, &token).as_deref(), Some("alice"));
}

proptest! {
    /// Any part of a good token that is changed, cut or repeated is no token.
    #[test]
    fn a_changed_token_is_none(
        algorithm in prop::sample::select(&ALL[..]),
        place in any::<prop::sample::Index>(),
        with in prop::sample::select(&b"ABCDwxyz0189-_.="[..]),
        cut in any::<bool>(),
    ) {
        let token = signed(algorithm, None, &json!({ "sub": "alice" }));
        let mut changed = token.clone().into_bytes();
        let place = place.index(changed.len());
        if cut {
            changed.truncate(place)
        } else {
            changed[place] = with
        }
        let changed = String::from_utf8(changed).expect("it is ASCII");
        let verifier = Verifier::new(spec(set()));
        if changed != token {
            prop_assert_eq!(subject(&verifier, &changed), None);
        }
        prop_assert!(subject(&verifier, &token).is_some());
    }
}
