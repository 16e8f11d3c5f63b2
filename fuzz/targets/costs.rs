//! Costs in responses: the same however the body is cut, and those that a JSON parser finds.

use std::sync::Arc;

use http::HeaderValue;
use http::header::CONTENT_TYPE;

use super::fixture;
use crate::http::headers::Headers;
use crate::http::json_pointer::JsonPointer;
use crate::rules::{
    BodyEnd, CostSource, Decimal, Estimate, Meter, ReportedCost, SettlementRule, UsageRule,
};

const MAX: u32 = 1_000_000;

const TYPES: [&str; 4] = [
    "application/json",
    "text/event-stream",
    "application/x-ndjson",
    "application/problem+json; charset=utf-8",
];

const POINTERS: [&[&str]; 6] = [
    &["/usage/total_tokens"],
    &["/usage/input_tokens", "/usage/output_tokens"],
    &["/0"],
    &["/a/1/b", "/a/0"],
    &["/"],
    &["/a~1b/é", "/~0", "/usage"],
];

/// The first byte chooses type and pointers, the next eight the cuts.
pub(super) fn run(data: &[u8]) {
    let Some((choice, seed, body)) = fixture::choices(data) else {
        return;
    };
    let content_type = TYPES[usize::from(choice) % TYPES.len()];
    let pointers = POINTERS[usize::from(choice) / TYPES.len() % POINTERS.len()];
    let whole = costs(content_type, pointers, &[body]);
    let single: Vec<&[u8]> = body.chunks(1).collect();
    assert_eq!(
        costs(content_type, pointers, &single),
        whole,
        "byte by byte"
    );
    let cut = fixture::cut(body, seed);
    assert_eq!(costs(content_type, pointers, &cut), whole, "{cut:?}");
    compare_with_a_parser(pointers, body);
}

/// The cost of a body that ends, that of one that breaks off, and whether no more is needed.
fn costs(
    content_type: &'static str,
    pointers: &[&str],
    pieces: &[&[u8]],
) -> (ReportedCost, ReportedCost, bool) {
    let rule = rule(pointers);
    let headers: Headers = [(CONTENT_TYPE, HeaderValue::from_static(content_type))]
        .into_iter()
        .collect();
    let scan = rule.usage_scan(&headers).expect("a known type");
    let mut scan = scan.expect("the cost is in the body");
    let mut bytes = 0;
    for piece in pieces {
        scan.feed(piece);
        bytes += piece.len() as u64;
    }
    let is_complete = scan.is_complete();
    let mut by = |end| rule.by_body(Estimate::default(), Some(&mut scan), bytes, end);
    let broken_off = by(BodyEnd::BrokenOff);
    (by(BodyEnd::Complete(None)), broken_off, is_complete)
}

fn rule(pointers: &[&str]) -> SettlementRule {
    let pointer = |text: &&str| JsonPointer::parse(text).expect("a pointer");
    SettlementRule {
        counted: None,
        by: CostSource::Json(Arc::new(UsageRule {
            pointers: pointers.iter().map(pointer).collect(),
            meter: Meter::Weights(vec![Decimal::ONE; pointers.len()].into()),
            includes_usage: false,
        })),
        max: MAX,
        unreserved: None,
    }
}

/// A document in which no member stands twice states what its parsed form has at the pointers.
fn compare_with_a_parser(pointers: &[&str], body: &[u8]) {
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(body) else {
        return;
    };
    let text = document.to_string();
    let mut expected = ReportedCost::Missing;
    for pointer in pointers {
        let units = match document.pointer(pointer) {
            None | Some(serde_json::Value::Null) => continue,
            Some(value) => value.as_number().and_then(|number| units(number.as_f64()?)),
        };
        expected = match (units, expected) {
            (None, _) => ReportedCost::Malformed,
            (Some(units), ReportedCost::Units(sum)) => ReportedCost::Units(sum + units),
            (Some(units), _) => ReportedCost::Units(units),
        };
        if expected == ReportedCost::Malformed {
            break;
        }
    }
    if let ReportedCost::Units(sum) = &mut expected {
        *sum = MAX.min(*sum);
    }
    let (found, ..) = costs("application/json", pointers, &[text.as_bytes()]);
    assert_eq!(found, expected, "{text}");
}

/// A whole number that isn't negative, at most [`MAX`].
fn units(number: f64) -> Option<u32> {
    let is_whole = number.fract() == 0.0 && number >= 0.0;
    is_whole.then_some(number.min(f64::from(MAX)) as u32)
}
