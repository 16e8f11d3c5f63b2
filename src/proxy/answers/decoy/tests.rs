//! Decoys beside the real responses that they imitate.

use super::*;

const TOOK: Duration = Duration::from_millis(44);

fn real_response(status: u16, fields: &[(&'static str, &'static str)]) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::own(Bytes::from_static(b"real")));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    for (name, value) in fields {
        let name = HeaderName::from_static(name);
        response
            .headers_mut()
            .append(name, HeaderValue::from_static(value));
    }
    response
}

fn decoy_of(learned: &LearnedResponses, spec: &DecoySpec) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::own(Bytes::new()));
    let own = [(
        HeaderName::from_static("x-own"),
        HeaderValue::from_static("a"),
    )];
    let decoy = Decoy {
        spec,
        headers: &own,
        content_type: HeaderValue::from_static("text/plain"),
        body: Bytes::from_static(b"ok"),
    };
    learned.write_decoy(decoy, &Method::POST, &mut response);
    response
}

fn names(response: &Response<ResponseBody>) -> Vec<&str> {
    response.headers().names().map(HeaderName::as_str).collect()
}

fn value(response: &Response<ResponseBody>, name: &'static str) -> Option<String> {
    let value = response.headers().get(HeaderName::from_static(name))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

const REAL: [(&str, &str); 9] = [
    ("server", "nginx"),
    ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ("content-type", "application/json"),
    ("content-length", "4"),
    ("x-request-id", "4f2a-77b0"),
    ("set-cookie", "session=alice"),
    ("x-user", "alice"),
    ("x-version", "7"),
    ("via", "1.1 sluicegate"),
];

#[test]
fn a_decoy_has_the_status_and_fields_of_the_last_real_response_in_their_order() {
    let learned = LearnedResponses::new(LearnedOrigin::Servers);
    learned.learn(&Method::POST, &real_response(201, &REAL), TOOK);
    let decoy = decoy_of(&learned, &DecoySpec::default());
    assert_eq!(decoy.status(), 201);
    assert_eq!(
        names(&decoy),
        [
            "server",
            "date",
            "content-type",
            "content-length",
            "x-request-id",
            "via",
            "x-own"
        ]
    );
    assert_eq!(
        value(&decoy, "content-type").as_deref(),
        Some("application/json")
    );
    assert_eq!(value(&decoy, "content-length").as_deref(), Some("2"));
    let date = value(&decoy, "date").expect("a date");
    assert!(httpdate::parse_http_date(&date).is_ok_and(|_| !date.contains("1994")));
    let id = value(&decoy, "x-request-id").expect("an identifier");
    assert_ne!(id, "4f2a-77b0");
    assert_eq!((id.len(), id.find('-')), (9, Some(4)), "{id}");
    let again = decoy_of(&learned, &DecoySpec::default());
    assert_ne!(value(&again, "x-request-id"), Some(id), "each has its own");
}

#[test]
fn values_that_every_client_got_are_not_copied() {
    let learned = LearnedResponses::new(LearnedOrigin::Servers);
    let private = [
        ("x-workspace", "acme"),
        ("x-user", "alice"),
        ("set-cookie", "session=alice"),
        (
            "content-security-policy",
            "frame-ancestors https://acme.example",
        ),
        ("content-language", "fa"),
    ];
    for _ in 0..3 {
        learned.learn(&Method::POST, &real_response(200, &private), TOOK);
        let decoy = decoy_of(&learned, &DecoySpec::default());
        assert_eq!(names(&decoy), ["x-own", "content-type"]);
    }
}

#[test]
fn a_decoy_has_no_parameters_of_a_real_body_and_fills_no_shared_cache() {
    let learned = LearnedResponses::new(LearnedOrigin::Servers);
    let real = [
        (
            "content-type",
            "application/pdf; name=\"Payslip Alice.pdf\"",
        ),
        ("cache-control", "public, max-age=3600"),
        ("cdn-cache-control", "max-age=3600"),
        ("expires", "0"),
    ];
    learned.learn(&Method::POST, &real_response(200, &real), TOOK);
    let decoy = decoy_of(&learned, &DecoySpec::default());
    assert_eq!(names(&decoy), ["content-type", "cache-control", "x-own"]);
    let of = |name| value(&decoy, name);
    assert_eq!(of("content-type").as_deref(), Some("application/pdf"));
    assert_eq!(of("cache-control").as_deref(), Some("private, no-cache"));

    let multipart = [("content-type", "multipart/mixed; boundary=alice")];
    learned.learn(&Method::POST, &real_response(200, &multipart), TOOK);
    let decoy = decoy_of(&learned, &DecoySpec::default());
    assert_eq!(value(&decoy, "content-type").as_deref(), Some("text/plain"));
    assert_eq!(value(&decoy, "cache-control"), None, "as in real learned");
}

#[test]
fn configured_values_override_learned_ones() {
    let learned = LearnedResponses::new(LearnedOrigin::Servers);
    let spec = DecoySpec {
        status: Some(StatusCode::ACCEPTED),
        has_content_type: true,
    };
    let real = [("x-own", "b"), ("content-type", "text/html")];
    learned.learn(&Method::POST, &real_response(200, &real), TOOK);
    let decoy = decoy_of(&learned, &spec);
    assert_eq!(decoy.status(), 202);
    assert_eq!(names(&decoy), ["x-own", "content-type"]);
    assert_eq!(value(&decoy, "x-own").as_deref(), Some("a"));
    assert_eq!(value(&decoy, "content-type").as_deref(), Some("text/plain"));
}

#[test]
fn nothing_is_learned_from_failures_and_parts_and_decoys_have_via_by_default() {
    let learned = LearnedResponses::new(LearnedOrigin::Servers);
    for status in [206, 301, 404, 500] {
        learned.learn(&Method::POST, &real_response(status, &REAL), TOOK);
    }
    let decoy = decoy_of(&learned, &DecoySpec::default());
    assert_eq!(names(&decoy), ["x-own", "content-type", "via"]);
    let echo = LearnedResponses::new(LearnedOrigin::BuiltIn);
    let decoy = decoy_of(&echo, &DecoySpec::default());
    assert_eq!(names(&decoy), ["x-own", "content-type"]);
}

#[test]
fn a_decoy_is_framed_as_real_responses_also_those_of_another_method() {
    let learned = LearnedResponses::new(LearnedOrigin::Servers);
    let mut real = real_response(200, &[("server", "a")]);
    *real.body_mut() = ResponseBody::streamed(Bytes::from_static(b"real"));
    learned.learn(&Method::GET, &real, TOOK);
    let decoy = decoy_of(&learned, &DecoySpec::default());
    assert_eq!(value(&decoy, "server").as_deref(), Some("a"));
    assert_eq!(decoy.body().size_hint().exact(), None);
    learned.learn(&Method::POST, &real_response(200, &[("server", "b")]), TOOK);
    let decoy = decoy_of(&learned, &DecoySpec::default());
    assert_eq!(value(&decoy, "server").as_deref(), Some("b"));
    assert_eq!(decoy.body().size_hint().exact(), Some(2));
}

#[test]
fn a_profile_is_bounded() {
    let learned = LearnedResponses::new(LearnedOrigin::Servers);
    let mut real = real_response(200, &[]);
    for _ in 0..200 {
        let long = HeaderValue::from_bytes(&[b'a'; 2_000]).expect("a value");
        real.headers_mut()
            .append(HeaderName::from_static("x-a"), long);
    }
    learned.learn(&Method::POST, &real, TOOK);
    let place = &learned.profiles[method_group(&Method::POST)];
    let profile = place.load_full().expect("a profile");
    assert_eq!(profile.fields.len(), MAX_FIELDS);
    let left_out = profile
        .fields
        .iter()
        .all(|(_, learned)| *learned == LearnedField::Omitted);
    assert!(left_out);
    learned.learn(&Method::POST, &real, TOOK);
    let same = place.load_full().expect("a profile");
    assert!(Arc::ptr_eq(&profile, &same), "nothing new");
}

#[test]
fn decoys_take_the_times_of_the_last_real_responses_of_their_method() {
    let learned = LearnedResponses::new(LearnedOrigin::Servers);
    let took = |method| learned.response_time(&method).as_millis();
    assert_eq!(took(Method::GET), 0, "none is known");
    let answer = |method: Method, status, millis| {
        let real = real_response(status, &REAL);
        learned.learn(&method, &real, Duration::from_millis(millis));
    };
    answer(Method::GET, 200, 5);
    assert_eq!(took(Method::POST), 5, "that of another method");
    (0..100).for_each(|_| answer(Method::POST, 201, 700));
    (1..=16).for_each(|millis| answer(Method::POST, 201, millis));
    answer(Method::POST, 500, 9_000);
    let mut times: Vec<_> = (0..32).map(|_| took(Method::POST)).collect();
    times.sort_unstable();
    times.dedup();
    assert_eq!(times, (1..=16).collect::<Vec<_>>(), "the last 16");
    assert_eq!(took(Method::HEAD), 5);
    answer(Method::PUT, 200, 600_000);
    assert_eq!(took(Method::PUT), MAX_RESPONSE_TIME.as_millis());
}
