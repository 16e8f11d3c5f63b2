use std::time::Duration;

use super::*;

static HITS: Family = Family {
    name: "hits_total",
    help: "Hits.",
    kind: Kind::Counter,
    labels: &["route"],
    is_large: false,
};
static OPEN: Family = Family {
    name: "open",
    help: "Open.",
    kind: Kind::Gauge,
    labels: &[],
    is_large: false,
};
static TOOK: Family = Family {
    name: "took_duration_seconds",
    help: "Time taken.",
    kind: Kind::Histogram,
    labels: &["route"],
    is_large: false,
};

static ANSWERS: Family = Family {
    name: "answers_total",
    help: "Answers.",
    kind: Kind::Counter,
    labels: &["route", "class"],
    is_large: true,
};
static WAITED: Family = Family {
    name: "waited_seconds",
    help: "Time waited.",
    kind: Kind::Histogram,
    labels: &[],
    is_large: true,
};

label_values! {
    /// Whether an answer was good.
    Class {
        /// It was.
        Ok,
        /// It was not.
        Failed,
    }
}

#[test]
fn one_name_is_one_number_while_a_handle_lives() {
    let registry = Registry::default();
    let first = registry.counter(&HITS, &["a"]);
    first.add(2);
    let second = registry.counter(&HITS, &["a"]);
    drop(first);
    second.increment();
    assert_eq!(
        registry.render(),
        "# HELP hits_total Hits.\n# TYPE hits_total counter\nhits_total{route=\"a\"} 3\n"
    );
}

#[test]
fn a_series_leaves_with_its_last_handle() {
    let registry = Registry::default();
    let kept = registry.counter(&HITS, &["kept"]);
    drop(registry.counter(&HITS, &["removed"]));
    let text = registry.render();
    assert!(text.contains("kept") && !text.contains("removed"), "{text}");
    drop(kept);
    assert_eq!(registry.render(), "");
}

#[test]
fn dead_series_are_swept_without_a_scrape() {
    let registry = Registry::default();
    for i in 0..10_000 {
        registry.counter(&HITS, &[&i.to_string()]);
    }
    assert!(registry.tables.lock()["hits_total"].series.len() <= 64);
}

#[test]
fn label_values_are_escaped() {
    let registry = Registry::default();
    let _kept = registry.counter(&HITS, &["a\\b\"c\nd"]);
    assert!(registry.render().contains(r#"{route="a\\b\"c\nd"} 0"#));
}

#[test]
fn buckets_are_cumulative_and_bounds_inclusive() {
    let registry = Registry::default();
    let took = registry.histogram(&TOOK, &["a"]);
    took.record(Duration::from_millis(1));
    took.record(Duration::from_micros(1_001));
    took.record(Duration::from_secs(3600));
    let text = registry.render();
    for line in [
        "took_duration_seconds_bucket{route=\"a\",le=\"0.0005\"} 0",
        "took_duration_seconds_bucket{route=\"a\",le=\"0.001\"} 1",
        "took_duration_seconds_bucket{route=\"a\",le=\"0.0025\"} 2",
        "took_duration_seconds_bucket{route=\"a\",le=\"10\"} 2",
        "took_duration_seconds_bucket{route=\"a\",le=\"+Inf\"} 3",
        "took_duration_seconds_sum{route=\"a\"} 3600.002001000",
        "took_duration_seconds_count{route=\"a\"} 3",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
    }
}

#[test]
fn a_discarded_observer_uncovers_the_one_before() {
    let registry = Registry::default();
    let _running = registry.observe(&OPEN, &[], || 1.0);
    let discarded = registry.observe(&OPEN, &[], || 2.5);
    assert!(registry.render().ends_with("open 2.5\n"));
    drop(discarded);
    assert!(registry.render().ends_with("open 1\n"));
}

#[test]
fn a_scrape_computes_series_without_the_lock() {
    let registry = Registry::default();
    let other = registry.clone();
    // A worker's first use of a series, while the scrape computes this one.
    let _observer = registry.observe(&OPEN, &[], move || {
        let other = other.clone();
        let worker = std::thread::spawn(move || drop(other.counter(&HITS, &["new"])));
        let (done, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(worker.join().is_ok()));
        f64::from(end.recv_timeout(Duration::from_secs(10)).unwrap_or(false))
    });
    assert!(registry.render().ends_with("open 1\n"));
}

#[test]
fn many_series_are_rendered_once_each_and_dead_ones_removed() {
    let registry = Registry::default();
    let names: Vec<_> = (0..5 * BATCH).map(|i| format!("{i:06}")).collect();
    let mut kept: Vec<_> = names
        .iter()
        .map(|name| registry.counter(&HITS, &[name]))
        .collect();
    // The second batch has none left, and others some.
    kept.drain(BATCH..2 * BATCH + 7);
    let text = registry.render();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let expected = names.iter().enumerate();
    let expected = expected.filter(|(i, _)| !(BATCH..2 * BATCH + 7).contains(i));
    let expected = expected.map(|(_, name)| format!("hits_total{{route=\"{name}\"}} 0"));
    assert!(lines.eq(expected), "{text}");
    assert_eq!(
        registry.tables.lock()["hits_total"].series.len(),
        kept.len()
    );
}

#[test]
fn series_exist_from_the_start_with_0() {
    let registry = Registry::default();
    let [first, second] = ["a", "a"].map(|route| registry.counters(&ANSWERS, &[route]));
    let waited = registry.histogram(&WAITED, &[]);
    let head = "# HELP answers_total Answers.\n# TYPE answers_total counter\n";
    let counts = |ok: u64, failed: u64| {
        format!(
            "{head}answers_total{{route=\"a\",class=\"ok\"}} {ok}\n\
             answers_total{{route=\"a\",class=\"failed\"}} {failed}\n"
        )
    };
    let text = registry.render();
    assert!(text.starts_with(&counts(0, 0)), "{text}");
    assert!(text.ends_with("\nwaited_seconds_count 0\n"), "{text}");
    first.record(Class::Failed);
    drop(first);
    second.record(Class::Failed);
    assert_eq!((second.count(Class::Ok), second.total()), (0, 2));
    waited.record(Duration::ZERO);
    let text = registry.render();
    assert!(text.starts_with(&counts(0, 2)), "{text}");
    assert!(text.ends_with("\nwaited_seconds_count 1\n"), "{text}");
}

/// A scrape of 10,000 routes has no million lines.
#[test]
fn a_large_family_hides_zeros_beyond_its_bound() {
    let registry = Registry::default();
    let entry = |i: usize| registry.counters::<Class>(&ANSWERS, &[&i.to_string()]);
    let mut all: Vec<_> = (0..MOST_ZEROS).map(entry).collect();
    let lines = || registry.render().lines().count() - 2;
    assert_eq!(lines(), 2 * MOST_ZEROS);
    all.push(entry(MOST_ZEROS));
    assert_eq!(registry.render(), "");
    all[7].record(Class::Failed);
    assert_eq!(lines(), 1);
    // Entries of the ruleset before do not count.
    all.pop();
    assert_eq!(lines(), 2 * MOST_ZEROS);
}
