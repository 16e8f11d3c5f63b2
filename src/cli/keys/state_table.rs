//! The state of a key as text: a line for each fact, which starts with its name.

use std::fmt::Write as _;
use std::iter::once;
use std::time::Duration;

use readable::money::amount;

use crate::admin::keys::change::{KeyChanged, OtherPolicy};
use crate::cli::table::table;
use crate::clock::text::Span;
use crate::proxy::activity::Refusals;
use crate::proxy::inspect::key_state::KeyState;

/// A warning if the store has nothing of the key.
pub(super) fn doubt(state: &KeyState) -> Option<&'static str> {
    let is_doubtful = !state.is_known() && !state.exempt;
    is_doubtful.then_some("no bucket, ban or grant of this key: is it mistyped, or idle?")
}

/// States of one client in several policies: a line for each, below a line of heads.
pub(super) fn overview(states: &[&KeyState]) -> String {
    let all = states
        .iter()
        .flat_map(|state| once(*state).chain(&state.others));
    let rows = all.map(overview_row).collect();
    table(["POLICY", "USED", "LIMITED", "NOW"], rows, 2..3)
}

fn overview_row(state: &KeyState) -> [String; 4] {
    let granted = state.granted.as_ref();
    let granted = granted.map_or_else(String::new, |one| format!(", {} granted", one.units));
    let limited = state.limited.as_ref().map_or(0, |limited| limited.requests);
    let condition = state.override_for.as_ref();
    let condition = condition.map_or_else(String::new, |one| format!(", {one}"));
    [
        format!("{} ({}{condition})", state.policy, state.quota),
        format!(
            "{} of {}",
            units(state.used, state),
            counted(state.limit, state)
        ),
        limited.to_string(),
        format!("{}{granted}", state.verdict),
    ]
}

/// A state.
pub(super) fn state(state: &KeyState) -> String {
    let lines = facts(state).into_iter();
    let lines = lines.filter_map(|(name, fact)| Some(format!("{name:<10} {}\n", fact?)));
    let others = state.others.iter();
    let others = others.map(|other| format!("{:<10} {}\n", "also", other_bucket(other)));
    lines.chain(others).collect()
}

/// The state under another override.
fn other_bucket(other: &KeyState) -> String {
    let override_for = other.override_for.as_deref().unwrap_or_default();
    let (used, limit) = (units(other.used, other), counted(other.limit, other));
    format!("{override_for}: {used} of {limit}; {}", other.verdict)
}

/// A number of units of this state's quota.
fn units(number: u64, state: &KeyState) -> String {
    amount(number, state.unit == "usd")
}

/// A number of units with their name, which dollars don't need.
fn counted(number: u64, state: &KeyState) -> String {
    let name = Some(&*state.unit).filter(|unit| *unit != "usd");
    let number = units(number, state);
    name.map_or(number.clone(), |name| format!("{number} {name}"))
}

/// The answer to a change: the states before and after it, side by side, and a note.
pub(super) fn change(changed: &KeyChanged) -> String {
    let [before, after] = [&changed.before, &changed.after].map(facts);
    let or_none = |fact: Option<String>| fact.unwrap_or_else(|| "none".to_owned());
    let facts = before.into_iter().zip(after);
    let facts = facts.filter(|((_, was), (_, is))| was.is_some() || is.is_some());
    let facts = facts.map(|((name, was), (_, is))| [name.to_owned(), or_none(was), or_none(is)]);
    let others = changed.before.others.iter().map(|was| {
        let mut others = changed.after.others.iter();
        let is = others.find(|other| other.override_for == was.override_for);
        let is = is.map_or_else(|| "a full bucket".to_owned(), other_bucket);
        ["also".to_owned(), other_bucket(was), is]
    });
    let rows = facts.chain(others).collect();
    let mut text = table(["", "before", "after"], rows, 0..0);
    if !changed.also.is_empty() {
        let also = changed.also.iter();
        let also = also.map(|OtherPolicy { policy, result }| format!("{policy} ({result})"));
        let also = also.collect::<Vec<_>>().join(", ");
        writeln!(text, "{:<10} {also}", "also in").expect("a string takes everything");
    }
    for effect in &changed.effect {
        writeln!(text, "{:<10} {effect}", "requests").expect("a string takes everything");
    }
    if let Some(note) = &changed.note {
        writeln!(text, "{:<10} {note}", "note").expect("a string takes everything");
    }
    text
}

/// All facts by their names, of which a state has some.
fn facts(state: &KeyState) -> [(&'static str, Option<String>); 15] {
    let mode = match &*state.mode {
        "enforce" => None,
        "disabled" => Some("disabled: it applies to no request".to_owned()),
        mode => Some(format!("{mode}: it refuses nothing")),
    };
    let (used, limit) = (units(state.used, state), counted(state.limit, state));
    let full_in = if state.reset_s > 0.0 {
        span(state.reset_s)
    } else {
        "it is full".to_owned()
    };
    let (debt, in_flight) = (state.debt, state.in_flight);
    let in_flight_text = || format!("{}, on that machine", counted(in_flight, state));
    let granted = state.granted.as_ref().map(|granted| {
        let (left, all) = (granted.units.into(), granted.of_units.into());
        let (left, all, until) = (units(left, state), counted(all, state), &granted.until);
        let by = attribution(Some(&granted.actor), &granted.reason);
        format!("{left} of {all} left, until {until}{by}")
    });
    let ban = state.ban.as_ref().map(|ban| {
        let by = attribution(ban.actor.as_deref(), &ban.reason);
        format!("until {}{by}", ban.until)
    });
    let store = match state.sync_s {
        Some(interval) => format!("memory, synchronised every {}", span(interval)),
        None => state.store.to_string(),
    };
    let policy = format!("{} ({})", state.policy, state.quota);
    let used = format!("{used} of {limit}, {} left", units(state.remaining, state));
    [
        ("policy", Some(policy)),
        ("key", Some(state.key_id.clone())),
        ("mode", mode),
        ("now", Some(state.verdict.clone())),
        ("limited", state.limited.as_ref().map(limited)),
        ("used", Some(used)),
        ("full in", Some(full_in)),
        ("debt", (debt > 0).then(|| counted(debt, state))),
        ("in flight", (in_flight > 0).then(in_flight_text)),
        ("override", state.override_for.clone()),
        ("exempt", state.exempt.then(|| "yes".to_owned())),
        ("granted", granted),
        ("ban", ban),
        ("store", Some(store)),
        ("algorithm", Some(state.algorithm.to_string())),
    ]
}

/// The operator of a ban or a grant, and the reason.
fn attribution(actor: Option<&str>, reason: &str) -> String {
    let actor = actor.filter(|actor| !actor.is_empty());
    let actor = actor.map_or_else(String::new, |actor| format!(" by {actor}"));
    match reason {
        "" => actor,
        reason => format!("{actor}: {reason}"),
    }
}

/// How often the key was refused lately.
fn limited(refusals: &Refusals) -> String {
    let (requests, counted) = (refusals.requests, span(refusals.counted_s.round()));
    let error = match refusals.error_bound {
        0 => String::new(),
        error => format!(" (+- {error})"),
    };
    let first = refusals
        .first_s
        .map(|first| format!("; the first {} ago", span(first.round())));
    let first = first.unwrap_or_default();
    format!("{requests} requests in the last {counted}, on that machine{error}{first}")
}

fn span(seconds: f64) -> String {
    Span(Duration::try_from_secs_f64(seconds).unwrap_or_default()).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A state with these fields.
    fn state_with(fields: &Value) -> Value {
        let mut state = json!({
            "policy": "login", "quota": "5/1h", "key_id": "k_1", "unit": "requests",
            "limit": 5, "used": 5, "remaining": 0, "reset_s": 90.0, "retry_after_s": 1.5,
            "allowed": false, "verdict": "refused; allowed again in 1.5s", "mode": "enforce", "store": "memory", "algorithm": "gcra",
            "debt": 0, "stored": true, "override": null, "exempt": false, "sync_s": null,
            "granted": null, "in_flight": 0, "ban": null,
            "cell": {
                "algorithm": "gcra", "tat_in_ms": 0.0, "tau_ms": 0.0, "interval_ms": 0.0,
                "burst_units": 5,
            },
        });
        let members = state.as_object_mut().expect("an object");
        members.extend(fields.as_object().expect("an object").clone());
        state
    }

    fn read(state: &Value) -> KeyState {
        serde_json::from_value(state.clone()).expect("a state")
    }

    fn ban(reason: &str) -> Value {
        json!({
            "until": "2026-11-24T18:00:00Z", "for_s": 86_400.0, "number": null, "actor": null,
            "reason": reason,
        })
    }

    #[test]
    fn dollars_are_shown_as_such() {
        let spent =
            json!({ "unit": "usd", "limit": 12_000_500_000_u64, "used": 7, "debt": 20_000 });
        let spent = read(&state_with(&spent));
        assert_eq!(overview_row(&spent)[1], "$0.000007 of $12000.50");
        assert_eq!(counted(spent.debt, &spent), "$0.02");
    }

    #[test]
    fn a_change_shows_both_states_side_by_side() {
        let verdict = "banned; allowed again in 1d";
        let after = state_with(&json!({ "ban": ban("abuse"), "verdict": verdict }));
        let answer = json!({
            "before": state_with(&json!({})), "after": after, "note": "be patient", "also": [],
        });
        let changed: KeyChanged = serde_json::from_value(answer).expect("two states");
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
    fn recent_refusals_say_their_time_and_their_error() {
        let of = |error_bound: u64, first_s| {
            limited(&Refusals {
                requests: 1225,
                error_bound,
                counted_s: 303.4,
                first_s,
                last_s: None,
            })
        };
        assert_eq!(
            of(0, None),
            "1225 requests in the last 5m 3s, on that machine"
        );
        assert!(of(7, None).ends_with(" (+- 7)"));
        assert!(of(7, Some(61.6)).ends_with(" (+- 7); the first 1m 2s ago"));
    }

    #[test]
    fn a_key_of_which_nothing_is_stored_is_in_doubt() {
        for (stored, exempt, is_doubtful) in [
            (false, false, true),
            (true, false, false),
            (false, true, false),
        ] {
            let state = json!({ "stored": stored, "exempt": exempt });
            let doubt = doubt(&read(&state_with(&state)));
            assert_eq!(doubt.is_some(), is_doubtful, "{state}");
        }
    }
}
