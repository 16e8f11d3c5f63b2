use super::*;

/// The kinds that no alert fires on.
const WITHOUT_ALERT: [(&str, &str); 3] = [
    (
        "ClockDiffers",
        "no rate is wrong by more than 3 %, and it ends by itself",
    ),
    (
        "RestartPending",
        "whoever has just reloaded reads it, and nothing is broken",
    ),
    (
        "UpgradeFailed",
        "whoever has just upgraded reads it, and the process serves as before",
    ),
];

/// The alerts that are no problem of their own.
const WITHOUT_PROBLEM: [(&str, &str); 3] = [
    (
        "CertificateExpiresSoon",
        "CertificateExpires names the days that are left",
    ),
    ("CertificateNotYetValid", "CertificateExpired says so"),
    (
        "RefusalsJump",
        "a process does not remember the six hours that it is compared with",
    ),
];

#[test]
fn each_problem_has_an_alert_and_each_alert_a_problem() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/monitoring/alerts.yaml");
    let text = std::fs::read_to_string(path).expect("the alerts");
    let alerts = text.lines();
    let alerts: Vec<_> = alerts
        .filter_map(|line| line.trim().strip_prefix("- alert: Sluicegate"))
        .collect();
    let texts = text.split("- alert: Sluicegate");
    for text in texts.skip(1) {
        let (name, rest) = text.split_once('\n').expect("more lines");
        let severity = rest.split_once("severity: ").expect("a severity").1;
        let severity = severity.split_once(' ').expect("a bracket").0;
        let kind = PROBLEM_KINDS.iter().find(|kind| kind.alert == name);
        assert!(
            kind.is_none_or(|kind| kind.severity.to_string() == severity),
            "{name}"
        );
    }
    let alerts = alerts.into_iter();
    let kinds = PROBLEM_KINDS.iter().map(|kind| kind.alert.to_owned());
    assert!(PROBLEM_KINDS.iter().all(|kind| !kind.remedy.is_empty()));
    let excepted = |list: &[(&str, &str)]| -> Vec<_> {
        assert!(list.iter().all(|(_, reason)| !reason.is_empty()));
        list.iter().map(|(name, _)| (*name).to_owned()).collect()
    };
    let sorted = |mut names: Vec<String>| {
        names.sort_unstable();
        names
    };
    let alerts = alerts.map(str::to_owned).chain(excepted(&WITHOUT_ALERT));
    let kinds = kinds.chain(excepted(&WITHOUT_PROBLEM));
    assert_eq!(sorted(kinds.collect()), sorted(alerts.collect()));
}

#[test]
fn each_row_of_the_table_says_what_it_means() {
    let counted = PROBLEM_KINDS
        .iter()
        .filter_map(|kind| Some((kind, kind.event?)));
    for (kind, event) in counted {
        let (alert, labels) = (kind.alert, vec!["x".into(); event.labels]);
        assert!((1..=15).contains(&event.minutes), "{alert}");
        for (events, all) in [(1, 2), (7, 9)] {
            let labels = labels.clone();
            let (_, sentence) = kind.say(
                &event,
                &RecentCount {
                    labels,
                    events,
                    all,
                },
            );
            assert!(!sentence.contains(['{', '}', '(']), "{sentence}");
            assert!(sentence.contains(&events.to_string()), "{sentence}");
        }
    }
    let tolerated = |alert: &str| {
        let mut kinds = PROBLEM_KINDS.iter();
        kinds
            .find(|kind| kind.alert == alert)
            .map(|kind| kind.tolerated)
    };
    assert_eq!(tolerated("AdminRefusals"), Some([20, 0]));
    assert_eq!(tolerated("UpstreamUnanswered"), Some([0, 50]));
    assert_eq!(tolerated("UpstreamErrors"), Some([10, 5]));
}

#[test]
fn many_problems_of_a_kind_are_counted() {
    let problems = |count: usize| {
        let problems = (0..count).map(|one| (Labels::new(), format!("p{one}")));
        bounded(problems.collect())
    };
    assert_eq!(problems(MAX_OF_A_KIND).len(), MAX_OF_A_KIND);
    let listed = problems(MAX_OF_A_KIND + 3);
    assert_eq!(listed.len(), MAX_OF_A_KIND + 1);
    assert_eq!(listed[MAX_OF_A_KIND].1, "3 more like this: p20, ..");
}

#[test]
fn many_policies_are_not_all_named() {
    assert_eq!(listed(vec![]), None);
    assert_eq!(listed(vec!["a", "b"]).as_deref(), Some("policies a, b"));
    assert_eq!(listed(vec!["a"]).as_deref(), Some("policy a"));
    let many = vec!["a", "b", "c", "d", "e", "f", "g"];
    assert_eq!(
        listed(many).as_deref(),
        Some("policies a, b, c, d, e and 2 more")
    );
}
