use http::HeaderValue;
use proptest::prelude::*;

use super::*;
use ReportedCost::{Malformed, Missing, Units};

const TOTAL: &[&str] = &["/usage/total_tokens"];
const OPENAI: &str = concat!(
    "data: {\"id\":\"x\",\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\": é\"}}],\"usage\":null}\n\n",
    "data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":37,\"total_tokens\":57}}\n\n",
    "data: [DONE]\n\n",
);
const ANTHROPIC: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n",
    "event: ping\ndata: {\"type\": \"ping\"}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

fn fields(content_type: &str, coding: Option<&str>) -> Headers {
    let field = |name, value: &str| (name, HeaderValue::from_str(value).expect("a value"));
    let coding = coding.map(|coding| field(CONTENT_ENCODING, coding));
    [field(CONTENT_TYPE, content_type)]
        .into_iter()
        .chain(coding)
        .collect()
}

/// The sum of the values at these pointers, or of shares of them: `/a*0.1`.
fn rule(pointers: &[&str]) -> Arc<UsageRule> {
    let places = pointers
        .iter()
        .map(|text| text.split_once('*').unwrap_or((text, "1")));
    let (pointers, weights): (Vec<_>, Vec<_>) = places
        .map(|(text, weight)| {
            let pointer = JsonPointer::parse(text).expect("a pointer");
            (pointer, Decimal::parse(weight).expect("a weight"))
        })
        .unzip();
    Arc::new(UsageRule {
        pointers: pointers.into(),
        meter: Meter::Weights(weights.into()),
        includes_usage: false,
    })
}

fn scan(pointers: &[&str], content_type: &str) -> UsageScan {
    UsageScan::new(&rule(pointers), &fields(content_type, None)).expect("it can be read")
}

fn cost(pointers: &[&str], content_type: &str, body: &str) -> ReportedCost {
    let mut whole = scan(pointers, content_type);
    whole.feed(body.as_bytes());
    let mut single = scan(pointers, content_type);
    body.as_bytes().chunks(1).for_each(|byte| single.feed(byte));
    assert_eq!(whole.is_complete(), single.is_complete());
    let cost = whole.cost(1000, None);
    assert_eq!(single.cost(1000, None), cost, "byte by byte");
    cost
}

#[test]
fn a_json_body_states_the_cost_or_that_there_is_none() {
    for (number, expected) in [
        ("57", Units(57)),
        ("0", Units(0)),
        ("57.0", Units(57)),
        ("1e2", Units(100)),
        ("1001", Units(1000)),
        ("99999999999999999999", Units(1000)),
        ("null", Missing),
        ("-1", Malformed),
        ("5.5", Malformed),
        ("\"57\"", Malformed),
        ("[57]", Malformed),
        ("1x", Malformed),
    ] {
        let body = format!("{{\"usage\":{{\"total_tokens\":{number}}}}}");
        for content_type in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/problem+json",
        ] {
            assert_eq!(cost(TOTAL, content_type, &body), expected, "{number}");
        }
    }
    assert_eq!(
        cost(TOTAL, "application/json", "{\"usage\":{\"total_tokens\":1}"),
        Malformed
    );
    assert_eq!(cost(TOTAL, "application/json", ""), Missing, "as of HEAD");
    assert_eq!(
        cost(
            TOTAL,
            "application/x-ndjson",
            "{\"usage\":{}}\n{\"usage\":{\"total_tokens\":3}}\n"
        ),
        Units(3)
    );
}

#[test]
fn the_last_event_that_has_it_states_the_cost() {
    let events = "text/event-stream; charset=utf-8";
    assert_eq!(cost(TOTAL, events, OPENAI), Units(57));
    assert_eq!(
        cost(TOTAL, events, &OPENAI.replace('\n', "\r\n")),
        Units(57)
    );
    assert_eq!(
        cost(&["/usage/output_tokens"], events, ANTHROPIC),
        Units(15)
    );
    let both = ["/message/usage/input_tokens", "/usage/output_tokens"];
    assert_eq!(cost(&both, events, ANTHROPIC), Units(40));
    assert_eq!(cost(TOTAL, events, ANTHROPIC), Missing);
    assert_eq!(cost(TOTAL, events, ""), Missing);
    assert_eq!(
        cost(TOTAL, events, "data: {\"usage\":{\"total_tokens\":3}}"),
        Units(3),
        "no blank line"
    );
    assert_eq!(
        cost(
            TOTAL,
            events,
            "data: {\"usage\":\ndata: {\"total_tokens\":3}}\n\n"
        ),
        Units(3)
    );
    assert_eq!(
        cost(
            TOTAL,
            events,
            "data: {\"usage\":{\"total_tokens\":3}}\n\ndata: {\"usage\":\n\n"
        ),
        Units(3)
    );
    assert_eq!(
        cost(
            TOTAL,
            events,
            "data: {\"usage\":{\"total_tokens\":\"3\"}}\n\n"
        ),
        Malformed
    );
}

#[test]
fn the_weighted_sum_is_rounded_up_once() {
    let body = r#"{"usage":{"input_tokens":10,"output_tokens":3,"cached":5}}"#;
    for (pointers, expected) in [
        (&["/usage/input_tokens*3", "/usage/output_tokens"][..], 33),
        (&["/usage/input_tokens*0.1", "/usage/output_tokens*0.3"], 2),
        (&["/usage/cached*0.1", "/usage/output_tokens*0.1"], 1),
        (&["/usage/cached*0.000000001"], 1),
        (&["/usage/input_tokens*0.1", "/usage/none*9"], 1),
        (&["/usage/input_tokens*1000000"], 1000),
    ] {
        let cost = cost(pointers, "application/json", body);
        assert_eq!(cost, Units(expected), "{pointers:?}");
    }
}

#[test]
fn the_event_done_ends_a_stream() {
    for (text, expected) in [
        (OPENAI, true),
        ("data:[DONE]\r\n\r\n", true),
        ("data: [DONE]\n", false),
        ("data: [DONE] \n\n", false),
        ("data: [DONE\n\ndata: ]\n\n", false),
        ("data: [DON\ndata: E]\n\n", false),
    ] {
        let mut scan = scan(TOTAL, "text/event-stream");
        scan.feed(text.as_bytes());
        assert_eq!(scan.is_complete(), expected, "{text:?}");
    }
}

#[test]
fn what_was_stated_before_a_body_broke_off_is_known() {
    let mut scan = scan(&["/usage/output_tokens"], "text/event-stream");
    let (before, after) = ANTHROPIC
        .split_once("event: message_stop")
        .expect("it has one");
    for (piece, expected) in [(&before[..200], 0), (&before[200..], 15), (after, 15)] {
        scan.feed(piece.as_bytes());
        assert_eq!(scan.partial(1000, None), expected);
    }
    let mut invalid = super::tests::scan(&["/a", "/b"], "text/event-stream");
    invalid.feed(b"data: {\"a\":\"7\",\"b\":5}\n\n");
    assert_eq!(invalid.partial(1000, None), 5);
    assert_eq!(scan.partial(10, None), 10);
}

#[test]
fn other_bodies_state_no_cost() {
    let rule = rule(TOTAL);
    let refused =
        |content_type: &str, coding| UsageScan::new(&rule, &fields(content_type, coding)).err();
    assert_eq!(refused("application/json", Some("gzip")), Some(Malformed));
    assert_eq!(refused("application/json", Some("br")), Some(Malformed));
    assert_eq!(refused("application/json", Some("Identity")), None);
    assert_eq!(refused("text/html", None), Some(Missing));
    assert_eq!(refused("", None), Some(Missing));
    let none = UsageScan::new(&rule, &Headers::new());
    assert_eq!(none.err(), Some(Missing));
}

proptest! {
    #[test]
    fn any_cut_of_a_body_gives_the_same_cost(
        cuts in prop::collection::vec(0.0..1.0, 0..6),
        body in prop_oneof![Just(OPENAI), Just(ANTHROPIC)],
        is_crlf: bool,
    ) {
        let body = if is_crlf { body.replace('\n', "\r\n") } else { body.to_owned() };
        let pointers = ["/usage/total_tokens", "/usage/output_tokens"];
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| (cut * body.len() as f64) as usize).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let mut scan = scan(&pointers, "text/event-stream");
        for pair in cuts.windows(2) {
            scan.feed(&body.as_bytes()[pair[0]..pair[1]]);
        }
        prop_assert_eq!(scan.cost(1000, None), cost(&pointers, "text/event-stream", &body));
    }
}
