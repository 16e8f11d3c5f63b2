use super::*;

#[test]
fn parts_of_another_version_are_left_out_alone() {
    let text = r#"{
        "steps": [{ "at": "2026-11-30T05:00:00Z" }],
        "events": [["2026-11-30T05:00:00Z", "event: ban\n"]],
        "refused": {},
        "problems": { "StoreDown": [{ "kind": "StoreDown" }, true] },
        "later": 1
    }"#;
    let past: Past = serde_json::from_str(text).expect("a past");
    assert!(past.steps.is_empty() && past.problems.is_empty());
    assert_eq!(past.events.len(), 1);
    let past: Past = serde_json::from_reader("{}".as_bytes()).expect("a past of version 0.2.0");
    assert!(past.events.is_empty());
}
