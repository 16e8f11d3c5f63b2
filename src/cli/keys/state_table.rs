//! The state of a key as text: a line for each fact, which starts with its name.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::clock::text::Span;

/// The narrowest column of a change, in characters.
const COLUMN: usize = 28;

/// The state of a key, with the fields that every one has.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct KeyState(Value);

/// The states before and after a change, and what it leaves to do.
#[derive(Debug, Deserialize)]
pub(super) struct Changed {
    before: KeyState,
    after: KeyState,
    note: Option<String>,
    /// Absent in answers of earlier versions.
    #[serde(default)]
    also: Vec<OtherPolicy>,
}

/// Another policy in which the change was made, or not.
#[derive(Debug, Deserialize)]
struct OtherPolicy {
    policy: String,
    result: String,
}

impl TryFrom<Value> for KeyState {
    type Error = String;

    fn try_from(state: Value) -> Result<Self, String> {
        const FIELDS: [&str; 11] = [
            "policy",
            "quota",
            "key_id",
            "algorithm",
            "unit",
            "limit",
            "used",
            "remaining",
            "reset_s",
            "allowed",
            "store",
        ];
        let missing = FIELDS.into_iter().find(|name| state.get(name).is_none());
        match missing {
            None => Ok(Self(state)),
            Some(name) => Err(format!("missing field `{name}`")),
        }
    }
}

/// A warning if the store has nothing of the key.
pub(super) fn doubt(KeyState(state): &KeyState) -> Option<&'static str> {
    let is_doubtful = state["stored"] == false && state["exempt"] != true;
    is_doubtful.then_some(
        "no bucket, ban or grant of this key here: is it typed right? Or it has not asked lately",
    )
}

impl KeyState {
    /// True if the store has something of the key.
    pub(super) fn is_stored(&self) -> bool {
        self.0["stored"] != false
    }
}

/// States of one client in several policies: a line for each, below a line of heads.
pub(super) fn overview(states: &[&KeyState]) -> String {
    if states.is_empty() {
        return String::new();
    }
    let heads = ["POLICY", "USED", "LIMITED", "NOW"].map(str::to_owned);
    let rows = states.iter().map(|state| overview_row(&state.0));
    let rows: Vec<_> = [heads].into_iter().chain(rows).collect();
    let width = |column: usize| {
        rows.iter()
            .map(move |row| row[column].chars().count())
            .max()
    };
    let widths = [0, 1, 2].map(|column| width(column).unwrap_or_default());
    let line = |[policy, used, limited, now]: &[String; 4]| {
        let [first, second, third] = widths;
        format!("{policy:<first$}  {used:<second$}  {limited:>third$}  {now}\n")
    };
    rows.iter().map(line).collect()
}

fn overview_row(state: &Value) -> [String; 4] {
    let text = |field: &str| state[field].as_str().unwrap_or_default();
    let granted = state["granted"]["units"].as_u64();
    let granted = granted.map_or_else(String::new, |units| format!(", {units} granted"));
    [
        format!("{} ({})", text("policy"), text("quota")),
        format!("{} of {} {}", state["used"], state["limit"], text("unit")),
        state["limited"]["requests"].to_string(),
        format!("{}{granted}", now(state)),
    ]
}

/// A state.
pub(super) fn state(KeyState(state): &KeyState) -> String {
    let lines = facts(state).into_iter();
    lines
        .map(|(name, fact)| format!("{name:<10} {fact}\n"))
        .collect()
}

/// The answer to a change: the states before and after it, side by side, and a note.
pub(super) fn change(changed: &Changed) -> String {
    let [before, after] = [&changed.before, &changed.after].map(|state| facts(&state.0));
    let width = before.iter().map(|(_, fact)| fact.chars().count());
    let width = width.max().unwrap_or_default().max(COLUMN);
    let mut text = format!("{:<10} {:<width$}  after\n", "", "before");
    let find = |facts: &[(&str, String)], wanted: &str| {
        let found = facts.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, fact)| fact.clone())
    };
    let or_none = |fact: Option<String>| fact.unwrap_or_else(|| "none".to_owned());
    for name in NAMES {
        let (was, is) = (find(&before, name), find(&after, name));
        if was.is_none() && is.is_none() {
            continue;
        }
        let (was, is) = (or_none(was), or_none(is));
        writeln!(text, "{name:<10} {was:<width$}  {is}").expect("a string takes everything");
    }
    if !changed.also.is_empty() {
        let also = changed.also.iter();
        let also = also.map(|OtherPolicy { policy, result }| format!("{policy} ({result})"));
        let also = also.collect::<Vec<_>>().join(", ");
        writeln!(text, "{:<10} {also}", "also in").expect("a string takes everything");
    }
    if let Some(note) = &changed.note {
        writeln!(text, "{:<10} {note}", "note").expect("a string takes everything");
    }
    text
}

/// The names of facts, in the order in which they are printed.
const NAMES: [&str; 15] = [
    "policy",
    "key",
    "mode",
    "now",
    "limited",
    "used",
    "whole in",
    "debt",
    "in flight",
    "override",
    "exempt",
    "granted",
    "ban",
    "store",
    "algorithm",
];

/// The facts that a state has.
fn facts(state: &Value) -> Vec<(&'static str, String)> {
    let text = |field: &str| state[field].as_str().map(str::to_owned);
    let number = |field: &str| state[field].as_u64().unwrap_or_default();
    let unit = text("unit").unwrap_or_default();
    let seconds = |value: &Value| value.as_f64().map(span);
    let object = |field: &str| Some(&state[field]).filter(|value| value.is_object());
    let positive = |field: &str| Some(number(field)).filter(|number| *number > 0);
    let (used, limit, left) = (number("used"), number("limit"), number("remaining"));
    let fact = |name: &'static str| match name {
        "policy" => Some(format!("{} ({})", text("policy")?, text("quota")?)),
        "key" => text("key_id"),
        "mode" => match state["mode"].as_str()? {
            "enforce" => None,
            "disabled" => Some("disabled: it applies to no request".to_owned()),
            mode => Some(format!("{mode}: it refuses nothing")),
        },
        "now" => Some(now(state)),
        "limited" => object("limited").map(limited),
        "used" => Some(format!("{used} of {limit} {unit}, {left} left")),
        "whole in" => Some(match state["reset_s"].as_f64() {
            Some(reset) if reset > 0.0 => span(reset),
            _ => "it is whole".to_owned(),
        }),
        "debt" => positive("debt").map(|debt| format!("{debt} {unit}")),
        "in flight" => {
            positive("in_flight").map(|units| format!("{units} {unit}, on that machine"))
        }
        "override" => text("override"),
        "exempt" => (state["exempt"] == true).then(|| "yes".to_owned()),
        "granted" => object("granted").map(|granted| {
            let (left, all) = (&granted["units"], &granted["of_units"]);
            let until = granted["until"].as_str().unwrap_or_default();
            format!(
                "{left} of {all} {unit} left, until {until}{}",
                attribution(granted)
            )
        }),
        "ban" => object("ban").map(|ban| {
            let until = ban["until"].as_str().unwrap_or_default();
            format!("until {until}{}", attribution(ban))
        }),
        "store" => Some(match seconds(&state["sync_s"]) {
            Some(interval) => format!("memory, synchronised every {interval}"),
            None => text("store")?,
        }),
        "algorithm" => text("algorithm"),
        _ => None,
    };
    let named = NAMES.into_iter().map(|name| Some((name, fact(name)?)));
    named.flatten().collect()
}

/// The operator of a ban or a grant, and the reason.
fn attribution(action: &Value) -> String {
    let text = |field: &str| action[field].as_str().filter(|text| !text.is_empty());
    let actor = text("actor").map(|actor| format!(" by {actor}"));
    let reason = text("reason").map(|reason| format!(": {reason}"));
    [actor, reason].into_iter().flatten().collect()
}

/// The answer to a request of one unit.
fn now(state: &Value) -> String {
    if state["exempt"] == true {
        return "allowed: exempt from the policy".to_owned();
    }
    if state["allowed"] == true {
        return "allowed".to_owned();
    }
    let is_enforced = matches!(state["mode"].as_str(), None | Some("enforce"));
    let why = match (is_enforced, state["ban"].is_object()) {
        (true, true) => "banned",
        (true, false) => "refused",
        (false, true) => "would be refused, by a ban",
        (false, false) => "would be refused",
    };
    match state["retry_after_s"].as_f64() {
        Some(wait) => format!("{why}; allowed again in {}", span(wait)),
        None => why.to_owned(),
    }
}

/// How often the key was refused lately.
fn limited(refusals: &Value) -> String {
    let number = |field: &str| refusals[field].as_u64().unwrap_or_default();
    let counted = span(refusals["counted_s"].as_f64().unwrap_or_default().round());
    let (requests, error) = (number("requests"), number("error_bound"));
    match error {
        0 => format!("{requests} requests in the last {counted}, on that machine"),
        _ => format!("{requests} requests in the last {counted}, on that machine (+- {error})"),
    }
}

fn span(seconds: f64) -> String {
    Span(Duration::try_from_secs_f64(seconds).unwrap_or_default()).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_shows_both_states_side_by_side() {
        let before = json!({
            "policy": "login", "quota": "5/1h", "key_id": "k_1", "unit": "requests",
            "limit": 5, "used": 5, "remaining": 0, "reset_s": 90.0, "retry_after_s": 1.5,
            "allowed": false, "store": "memory", "algorithm": "gcra", "debt": 0, "stored": true,
        });
        let mut after = before.clone();
        after["ban"] = json!({ "until": "2026-11-24T18:00:00Z", "reason": "abuse" });
        after["retry_after_s"] = json!(86_400);
        let answer = json!({ "before": before, "after": after, "note": "be patient" });
        let changed: Changed = serde_json::from_value(answer).expect("two states");
        let text = change(&changed);
        let lines: Vec<_> = text.lines().collect();
        let row = |name, was, is| format!("{name:<10} {was:<30}  {is}");
        assert_eq!(lines[1], row("policy", "login (5/1h)", "login (5/1h)"));
        assert_eq!(
            lines[3],
            "now        refused; allowed again in 1.5s  banned; allowed again in 1d"
        );
        let used = "5 of 5 requests, 0 left";
        assert_eq!(lines[4], row("used", used, used));
        let ban = row("ban", "none", "until 2026-11-24T18:00:00Z: abuse");
        assert!(lines.contains(&ban.as_str()), "{text}");
        assert_eq!(lines.last().copied(), Some("note       be patient"));
        assert!(
            state(&changed.before)
                .lines()
                .all(|line| !line.starts_with("ban"))
        );
    }

    #[test]
    fn a_policy_that_refuses_nothing_says_so() {
        let of = |mode: Value, ban: Value| {
            let state = json!({ "mode": mode, "ban": ban, "retry_after_s": 90, "allowed": false });
            let facts = facts(&state).into_iter();
            let told = facts.filter(|(name, _)| matches!(*name, "mode" | "now"));
            told.map(|(_, fact)| fact).collect::<Vec<_>>()
        };
        let enforced = ["refused; allowed again in 1m 30s"];
        assert_eq!(of(json!("enforce"), Value::Null), enforced);
        assert_eq!(of(Value::Null, Value::Null), enforced, "an earlier version");
        assert_eq!(
            of(json!("shadow"), Value::Null),
            [
                "shadow: it refuses nothing",
                "would be refused; allowed again in 1m 30s"
            ]
        );
        assert_eq!(
            of(json!("disabled"), json!({}))[1],
            "would be refused, by a ban; allowed again in 1m 30s"
        );
    }

    #[test]
    fn recent_refusals_say_their_time_and_their_error() {
        let of = |error: u64| {
            limited(&json!({ "requests": 1225, "error_bound": error, "counted_s": 303.4 }))
        };
        assert_eq!(of(0), "1225 requests in the last 5m 3s, on that machine");
        assert!(of(7).ends_with(" (+- 7)"));
    }

    #[test]
    fn a_key_of_which_nothing_is_stored_is_in_doubt() {
        let doubt = |state: Value| doubt(&KeyState(state)).is_some();
        assert!(doubt(json!({ "stored": false, "exempt": false })));
        for state in [
            json!({ "stored": true, "exempt": false }),
            json!({ "stored": false, "exempt": true }),
            json!({}),
        ] {
            assert!(!doubt(state.clone()), "{state}");
        }
    }
}
