//! Buckets that survive the process: `store.memory.snapshot`, through the binary.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::support::admin::{AdminClient, TOKENS};
use crate::support::client::{Connection, get};
use crate::support::costs::left;
use crate::support::gateway::Gateway;
use crate::support::wait_for;
use rustix::process::Signal;

const SHUTDOWN: &str = "shutdown: { delay: 0s, deadline: 5s }\n";

/// One bucket for each path of these policies, with this `snapshot` section.
fn config(snapshot: &str, policies: &[&str]) -> String {
    let route = |(place, policy): (usize, &&str)| {
        format!(
            "  - {{ name: r{place}, match: {{ path: /{place} }}, upstream: echo, limits: [{{ key: constant, {policy} }}] }}\n"
        )
    };
    let routes: String = policies.iter().enumerate().map(route).collect();
    format!("{SHUTDOWN}store: {{ memory: {{ snapshot: {snapshot} }} }}\nroutes:\n{routes}")
}

/// Policies of every kind of bucket, with room for 7.
const KINDS: [&str; 8] = [
    "quota: 7/300d",
    "quota: 7/300d, algorithm: token_bucket",
    "capacity: 7, refill: 7 per 300d, algorithm: token_bucket",
    "quota: 7/300d, algorithm: fixed_window, start: first_request",
    "quota: 7/300d, algorithm: fixed_window, start: staggered",
    "quota: 7/300d, algorithm: sliding_window",
    "quota: 7/300d, algorithm: sliding_window, precision: 60",
    "quota: 7/300d, algorithm: sliding_log",
];
/// A snapshot that is saved at the start, at the end, and on changes of its settings.
const RARELY: &str = "{ path: buckets, every: 1d }";

/// The number of requests, at most 100, that are allowed before one is refused.
fn admitted(gateway: &Gateway, path: &str) -> usize {
    let statuses = (0..100).map(|_| get(gateway.address(), path).status);
    statuses.take_while(|status| *status == 200).count()
}

fn take(gateway: &Gateway, path: &str, units: usize) {
    for _ in 0..units {
        assert_eq!(get(gateway.address(), path).status, 200);
    }
}

/// Waits until `count` snapshots were saved.
fn wait_for_saves(gateway: &Gateway, count: u64) {
    wait_for("a snapshot", || {
        (saves(gateway, "success") >= count).then_some(())
    });
}

fn saves(gateway: &Gateway, result: &str) -> u64 {
    let series = format!("sluicegate_snapshots_total{{result=\"{result}\"}}");
    gateway.metric(&series).unwrap_or(0.0) as u64
}

fn stopped(mut gateway: Gateway, signal: Signal) -> Gateway {
    gateway.signal(signal);
    assert_eq!(gateway.wait().success(), signal == Signal::TERM);
    gateway
}

#[test]
fn a_restart_keeps_every_bucket() {
    let mut gateway = Gateway::start(&config(RARELY, &KINDS));
    for round in 1..=3 {
        for place in 0..KINDS.len() {
            take(&gateway, &format!("/{place}"), 2);
        }
        gateway = stopped(gateway, Signal::TERM).start_again();
        let restored = format!("buckets={}", KINDS.len());
        gateway.wait_for_log(&restored);
        assert_eq!(saves(&gateway, "failure"), 0, "{round}");
    }
    for (place, kind) in KINDS.iter().enumerate() {
        assert_eq!(admitted(&gateway, &format!("/{place}")), 1, "{kind}");
    }
    let mode = fs::metadata(gateway.dir().join("buckets"))
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "it has the secret of the keys");
}

/// 12,000,500,000 millionths of a dollar: more than 32 bits have.
#[test]
fn a_restart_keeps_more_units_than_32_bits_have() {
    let quota = |dollars| {
        let fixed = "algorithm: fixed_window, start: first_request, unit: usd, cost: $1000";
        config(RARELY, &[&*format!("quota: ${dollars}/300d, {fixed}")])
    };
    let gateway = Gateway::start(&quota("12000.50"));
    assert_eq!(left(&get(gateway.address(), "/0")), 11_000_500_000);
    assert_eq!(admitted(&gateway, "/0"), 11);
    let gateway = stopped(gateway, Signal::TERM).start_again();
    let refused = get(gateway.address(), "/0");
    assert_eq!((refused.status, left(&refused)), (429, 500_000));
    assert!(refused.text().contains("$12000.50"), "{}", refused.text());
    gateway.reload(&quota("20001"));
    assert_eq!(admitted(&gateway, "/0"), 8);
    gateway.reload(&quota("4000"));
    gateway.reload(&quota("21001"));
    assert_eq!(admitted(&gateway, "/0"), 1);
}

#[test]
fn a_kill_loses_only_what_came_after_the_last_snapshot() {
    let gateway = Gateway::start(&config(RARELY, &KINDS));
    wait_for_saves(&gateway, 1);
    take(&gateway, "/0", 3);
    take(&gateway, "/7", 4);
    gateway.reload(&config("{ path: buckets, every: 23h }", &KINDS));
    wait_for_saves(&gateway, 2);
    take(&gateway, "/0", 2);
    let gateway = stopped(gateway, Signal::KILL).start_again();
    assert_eq!(admitted(&gateway, "/0"), 7 - 3);
    assert_eq!(admitted(&gateway, "/7"), 7 - 4);
    assert_eq!(admitted(&gateway, "/1"), 7);
}

#[test]
fn buckets_are_saved_at_the_configured_interval() {
    let gateway = Gateway::start(&config("{ path: buckets, every: 1s }", &KINDS));
    take(&gateway, "/6", 5);
    wait_for_saves(&gateway, saves(&gateway, "success") + 2);
    let gateway = stopped(gateway, Signal::KILL).start_again();
    assert_eq!(admitted(&gateway, "/6"), 2);
    wait_for("the first save of this life", || {
        let last = gateway.metric("sluicegate_snapshot_last_success_timestamp_seconds");
        last.filter(|seconds| *seconds > 1.7e9)
    });
}

#[test]
fn a_quota_changed_between_runs_keeps_the_used_units() {
    let gateway = Gateway::start(&config(RARELY, &KINDS));
    for place in 0..KINDS.len() {
        take(&gateway, &format!("/{place}"), 5);
    }
    let gateway = stopped(gateway, Signal::TERM);
    let larger = KINDS.map(|kind| kind.replace('7', "9"));
    gateway.replace_config(&config(RARELY, &larger.each_ref().map(String::as_str)));
    let gateway = gateway.start_again();
    for (place, kind) in KINDS.iter().enumerate() {
        assert_eq!(admitted(&gateway, &format!("/{place}")), 4, "{kind}");
    }
}

#[test]
fn an_invalid_snapshot_is_set_aside_and_does_not_stop_the_start() {
    let mut gateway = Gateway::start(&config(RARELY, &KINDS));
    take(&gateway, "/0", 5);
    let (path, aside) = (
        gateway.dir().join("buckets"),
        gateway.dir().join("buckets.unusable"),
    );
    gateway = stopped(gateway, Signal::TERM);
    let good = fs::read(&path).expect("it was saved");
    let mut flipped = good.clone();
    *flipped.last_mut().expect("it is not empty") ^= 1;
    let mut future = good.clone();
    future[8] = 255;
    for (content, reason) in [
        (&good[..good.len() / 2], "it is damaged"),
        (&flipped, "it is damaged"),
        (&[], "it is damaged"),
        (b"hello, world", "it isn't a snapshot"),
        (&future, "its format is version 255"),
    ] {
        fs::write(&path, content).expect("the directory is writable");
        gateway = gateway.start_again();
        gateway.wait_for_log(reason);
        gateway.wait_for_log("cannot be read: all buckets start full");
        gateway.wait_for_log("is set aside");
        assert_eq!(admitted(&gateway, "/0"), 7);
        gateway = stopped(gateway, Signal::TERM);
        assert_eq!(fs::read(&aside).expect("it is set aside"), content);
    }
    fs::write(&path, good).expect("the directory is writable");
    assert_eq!(admitted(&gateway.start_again(), "/0"), 2);
}

#[test]
fn a_snapshot_path_that_is_no_file_does_not_stop_the_start() {
    let gateway = Gateway::start(&config("{ path: nowhere/buckets }", &KINDS));
    gateway.wait_for_log("buckets cannot be saved");
    assert_eq!(admitted(&gateway, "/0"), 7);
    assert!(saves(&gateway, "failure") > 0);
    gateway.reload(&config("{ path: \"/\" }", &KINDS));
    gateway.reload(&config(RARELY, &KINDS));
    wait_for_saves(&gateway, 1);
    let gateway = stopped(gateway, Signal::TERM);
    fs::remove_file(gateway.dir().join("buckets")).expect("it was saved");
    fs::create_dir(gateway.dir().join("buckets")).expect("the directory is writable");
    let gateway = gateway.start_again();
    gateway.wait_for_log("cannot be read: all buckets start full");
    assert_eq!(admitted(&gateway, "/0"), 7);
}

/// Files are limited to 8 KiB: the system reports it like a full disk, and sends a signal, too.
#[test]
fn a_full_disk_costs_only_the_snapshot() {
    let config = |every: &str| {
        format!(
            "{SHUTDOWN}store: {{ memory: {{ snapshot: {{ path: buckets, every: {every} }} }} }}\n\
             routes: [{{ upstream: echo, limits: [{{ key: header:x-key, quota: 7/300d }}] }}]\n"
        )
    };
    let mut gateway = Gateway::start_after("ulimit -f 16", &config("1d"));
    let mut connection = Connection::open(gateway.address());
    let mut ask = |key: usize| {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nx-key: {key}\r\n\r\n");
        connection.exchange(&request).status
    };
    assert_eq!([ask(0), ask(0)], [200, 200]);
    gateway.reload(&config("23h"));
    wait_for_saves(&gateway, 2);
    let path = gateway.dir().join("buckets");
    let before = fs::read(&path).expect("it was saved");

    (1..1_000).for_each(|key| assert_eq!(ask(key), 200));
    gateway.reload(&config("22h"));
    gateway.wait_for_log("buckets cannot be saved; the snapshot before is what it was");
    assert_eq!(fs::read(&path).expect("it is still there"), before);
    assert!(
        !gateway.dir().join("buckets.new").exists(),
        "its room is given back"
    );
    assert_eq!(ask(0), 200);

    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
    assert_eq!(fs::read(&path).expect("it is still there"), before);
    let gateway = gateway.start_again();
    gateway.wait_for_log("buckets=1");
}

/// The remaining ban by the next response; other refusals last for an hour at most.
fn banned_for(gateway: &Gateway) -> Option<u64> {
    let answer = get(gateway.address(), "/");
    let seconds = answer.header("retry-after")?.parse().expect("seconds");
    assert_eq!(answer.status, 429);
    (seconds > 3_600).then_some(seconds)
}

fn bans(gateway: &Gateway) -> u64 {
    let bans = gateway.metric("sluicegate_limit_bans_total{policy=\"few\"}");
    bans.unwrap_or(0.0) as u64
}

fn penalty(snapshot: &str, quota: &str, lengths: &str) -> String {
    format!(
        "{SHUTDOWN}store: {{ memory: {{ snapshot: {snapshot} }} }}
policies: {{ few: {{ quota: {quota}, penalty: {{ strikes: 2, within: 1h, for: {lengths} }} }} }}
routes: [{{ upstream: echo, limits: [few] }}]
"
    )
}

#[test]
fn strikes_and_bans_survive_a_restart_and_bans_keep_growing() {
    let config = |quota| penalty(RARELY, quota, "[1s, 1d]");
    let mut gateway = Gateway::start(&config("1/1h"));
    take(&gateway, "/", 1);
    assert_eq!(banned_for(&gateway), None, "the first strike");
    gateway = stopped(gateway, Signal::TERM).start_again();
    gateway.wait_for_log("bans=1");
    assert_eq!(get(gateway.address(), "/").status, 429);
    assert_eq!(bans(&gateway), 1, "the second strike, in another process");

    gateway = stopped(gateway, Signal::TERM).start_again();
    wait_for("the end of the ban of a second, and two strikes", || {
        banned_for(&gateway).map(|seconds| assert!(seconds > 86_000))
    });
    assert_eq!(bans(&gateway), 1, "the second ban, in a third process");

    gateway = stopped(gateway, Signal::TERM);
    gateway.replace_config(&config("1000/1h"));
    gateway = gateway.start_again();
    let left = banned_for(&gateway).expect("the ban is not the bucket's");
    assert!((86_000..=86_400).contains(&left), "{left}");
    gateway = stopped(gateway, Signal::KILL).start_again();
    assert!(banned_for(&gateway).expect("it is saved at each start") <= left);
    assert_eq!(bans(&gateway), 0, "it was counted when it began");
}

#[test]
fn a_kill_loses_only_the_bans_since_the_last_save() {
    let mut gateway = Gateway::start(&penalty("{ path: buckets, every: 1s }", "1/1h", "[1d]"));
    take(&gateway, "/", 1);
    assert_eq!(banned_for(&gateway), None);
    assert!(banned_for(&gateway).is_some());
    // The next may have begun before the ban.
    wait_for_saves(&gateway, saves(&gateway, "success") + 2);
    gateway = stopped(gateway, Signal::KILL).start_again();
    assert!(banned_for(&gateway).is_some());
    // A policy that has no penalty any more has no bans, and its buckets are as they were.
    gateway = stopped(gateway, Signal::TERM);
    gateway.replace_config(&format!(
        "{SHUTDOWN}store: {{ memory: {{ snapshot: {RARELY} }} }}
policies: {{ few: {{ quota: 1/1h }} }}
routes: [{{ upstream: echo, limits: [few] }}]
"
    ));
    gateway = gateway.start_again();
    gateway.wait_for_log("dropped=1");
    assert_eq!(get(gateway.address(), "/").status, 429);
    assert_eq!(banned_for(&gateway), None);
}

/// The problems of `/v1/status`.
fn problems(gateway: &Gateway) -> String {
    AdminClient::writer(gateway).read("/v1/status")["problems"].to_string()
}

fn is_unread(gateway: &Gateway) -> bool {
    let unread = gateway.metric("sluicegate_snapshot_unread");
    unread.expect("it is shown") == 1.0
}

#[test]
fn a_snapshot_that_cannot_be_read_is_not_replaced_and_is_a_problem() {
    let config = format!(
        "{TOKENS}{}",
        config("{ path: buckets, every: 1s }", &KINDS[..1])
    );
    let mut gateway = Gateway::start(&config);
    take(&gateway, "/0", 5);
    gateway = stopped(gateway, Signal::TERM);
    let [path, aside, elsewhere] =
        ["buckets", "buckets.unusable", "elsewhere"].map(|name| gateway.dir().join(name));
    // Its volume is away.
    fs::rename(&path, &elsewhere).expect("moved");
    symlink("volume/buckets", &path).expect("linked");
    gateway = gateway.start_again();
    gateway.wait_for_log("is set aside");
    wait_for_saves(&gateway, 1);
    assert!(is_unread(&gateway) && aside.is_symlink());
    let problems_now = problems(&gateway);
    assert!(
        problems_now.contains("could not be read") && problems_now.contains("buckets.unusable"),
        "{problems_now}"
    );
    // Whoever takes it away has seen it.
    fs::remove_file(&aside).expect("removed");
    wait_for("the end of the problem", || {
        (!is_unread(&gateway)).then_some(())
    });
    assert_eq!(problems(&gateway), "[]");
    gateway = stopped(gateway, Signal::TERM);
    // What can't be set aside stays.
    fs::remove_file(&path).expect("removed");
    symlink("buckets", &path).expect("linked");
    gateway = gateway.start_again();
    gateway.wait_for_log("cannot be read: all buckets start full");
    wait_for("failures", || {
        (saves(&gateway, "failure") > 1).then_some(())
    });
    assert!(path.is_symlink() && is_unread(&gateway));
    assert!(problems(&gateway).contains("could not be read"));
    fs::remove_file(&path).expect("removed");
    wait_for_saves(&gateway, 1);
    assert_eq!((is_unread(&gateway), &*problems(&gateway)), (false, "[]"));
    gateway = stopped(gateway, Signal::TERM);
    fs::rename(&elsewhere, &path).expect("moved");
    assert_eq!(admitted(&gateway.start_again(), "/0"), 2);
}

#[test]
fn a_reload_to_another_file_replaces_no_foreign_one() {
    let config = |path: &str| config(&format!("{{ path: {path}, every: 1s }}"), &KINDS[..1]);
    let gateway = Gateway::start(&config("buckets"));
    let [notes, aside] = ["notes", "notes.unusable"].map(|name| gateway.dir().join(name));
    fs::write(&notes, "do not lose").expect("written");
    wait_for_saves(&gateway, 1);
    gateway.reload(&config("notes"));
    wait_for("it to be set aside", || aside.exists().then_some(()));
    assert_eq!(fs::read_to_string(&aside).expect("read"), "do not lose");
}

#[test]
fn a_directory_that_appears_later_is_locked_and_its_snapshot_is_not_replaced() {
    let gateway = Gateway::start(&config("{ path: volume/buckets, every: 1s }", &KINDS[..1]));
    gateway.wait_for_log("buckets cannot be saved");
    let at = |name: &str| gateway.dir().join(name);
    fs::create_dir(at("mounted")).expect("created");
    fs::write(at("mounted/buckets"), "of another life").expect("written");
    fs::rename(at("mounted"), at("volume")).expect("moved");
    wait_for_saves(&gateway, 1);
    let aside = fs::read_to_string(at("volume/buckets.unusable"));
    assert_eq!(aside.expect("read"), "of another life");
    let lock = File::open(at("volume/buckets.lock")).expect("a lock");
    assert!(lock.try_lock().is_err(), "it is locked");
    assert!(is_unread(&gateway));
}
