//! Translations of other proxies' configurations (tests/fixtures/migrating) decide as the originals
//! do: the real nginx or HAProxy and sluicegate get the same requests at the same times. What differs
//! is in docs/migrating.md, and asserted here.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::client::{Connection, connect_from};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step, answer, ok};
use crate::support::other_proxies::OtherProxy;
use crate::support::{now, wall_clock};

/// No decision of a plan depends on less than twice as much.
const SLACK: Duration = Duration::from_millis(120);
/// HAProxy's period, and the window of its translations.
const PERIOD: Duration = Duration::from_secs(2);

/// Requests of one client that come at once.
#[derive(Clone, Debug)]
struct Burst {
    at: Duration,
    client: u8,
    count: usize,
    path: &'static str,
    fields: &'static str,
}

impl Burst {
    fn to(mut self, path: &'static str) -> Self {
        self.path = path;
        self
    }

    fn with(mut self, fields: &'static str) -> Self {
        self.fields = fields;
        self
    }

    fn open(&self, address: std::net::SocketAddr) -> Vec<Connection> {
        let open = |_| Connection::over(connect_from(self.client, address));
        (0..self.count).map(open).collect()
    }
}

/// `count` requests for `/` from 127.0.0.`client`, `at` milliseconds after the first.
fn burst(at: u64, client: u8, count: usize) -> Burst {
    Burst {
        at: Duration::from_millis(at),
        client,
        count,
        path: "/",
        fields: "",
    }
}

/// What one request got, and when.
#[derive(Debug)]
struct Answer {
    status: u16,
    wait: Duration,
}

/// What the other proxy and sluicegate answered to one burst, each in order.
type Answers = [Vec<Answer>; 2];

fn statuses(answers: &[Answer]) -> Vec<u16> {
    answers.iter().map(|answer| answer.status).collect()
}

fn fixtures() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/migrating"
    ))
}

/// The other proxy and sluicegate, before one origin.
struct Pair {
    other: OtherProxy,
    gateway: Gateway,
    _origin: Origin,
}

impl Pair {
    fn start(name: &str) -> Self {
        let origin = Origin::start(|request| {
            let (path, pause) = request
                .target
                .split_once('?')
                .unwrap_or((&request.target, "0"));
            let pause = Duration::from_millis(pause.parse().expect("milliseconds"));
            let answer = match path {
                "/missing" => answer(404, ""),
                _ => ok("ok"),
            };
            [vec![Step::Pause(pause)], answer].concat()
        });
        let read = |file| fs::read_to_string(fixtures().join(name).join(file));
        let upstream = [("127.0.0.1:3000", origin.address())];
        let other = match read("nginx.conf") {
            Ok(text) => OtherProxy::nginx(&text, &upstream),
            Err(_) => OtherProxy::haproxy(&read("haproxy.cfg").expect("either"), &upstream),
        };
        let translation = read("sluicegate.yaml").expect("a translation");
        let (from, to) = upstream[0];
        let gateway = Gateway::start(&translation.replace(from, &to.to_string()));
        Self {
            other,
            gateway,
            _origin: origin,
        }
    }
}

/// Plays these bursts, from just after the start of a window of `aligned`. None if this machine was
/// too busy to send them in time.
fn try_to_play(name: &str, plan: &[Burst], aligned: Duration) -> Option<Vec<Answers>> {
    let pair = Pair::start(name);
    let addresses = [pair.other.address, pair.gateway.address()];
    let open = |burst: &Burst| addresses.map(|address| burst.open(address));
    let clients: Vec<_> = plan.iter().map(open).collect();
    let elapsed = wall_clock()
        .duration_since(UNIX_EPOCH)
        .expect("it is later");
    let elapsed = elapsed.as_micros() % aligned.as_micros();
    let rest = aligned - Duration::from_micros(u64::try_from(elapsed).expect("a part"));
    thread::sleep(rest + Duration::from_millis(20));
    let started = now();
    let mut is_late = false;
    let answers = thread::scope(|scope| {
        let mut plays = Vec::new();
        for (burst, mut clients) in plan.iter().zip(clients) {
            thread::sleep((started + burst.at).saturating_duration_since(now()));
            let Burst { path, fields, .. } = burst;
            let request = format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\n{fields}\r\n");
            let sent = now();
            for index in 0..burst.count {
                for side in &mut clients {
                    side[index].send(&request);
                }
            }
            is_late |= started.elapsed() > burst.at + SLACK;
            plays.push(clients.map(|side| {
                let receive = |mut client: Connection| {
                    scope.spawn(move || Answer {
                        status: client.receive().status,
                        wait: sent.elapsed(),
                    })
                };
                side.into_iter().map(receive).collect::<Vec<_>>()
            }));
        }
        let join = |thread: thread::ScopedJoinHandle<'_, Answer>| thread.join().expect("an answer");
        let sides = plays.into_iter().map(|sides| {
            sides.map(|side| {
                let mut answers: Vec<_> = side.into_iter().map(join).collect();
                answers.sort_by_key(|answer| (answer.status, answer.wait));
                answers
            })
        });
        sides.collect()
    });
    (!is_late).then_some(answers)
}

fn play(name: &str, plan: &[Burst], aligned: Duration) -> Vec<Answers> {
    let answers = (0..8).find_map(|_| try_to_play(name, plan, aligned));
    answers.expect("a moment in which this machine has time")
}

/// Both proxies answer alike, and at about the same times. A busy machine decides late now and then: a
/// difference that counts is there each time.
#[track_caller]
fn assert_alike(name: &str, plan: &[Burst], aligned: Duration) {
    let mut difference = String::new();
    for _ in 0..4 {
        let answers = play(name, plan, aligned);
        let mut pairs = plan.iter().zip(&answers);
        let Some((burst, [other, ours])) = pairs.find(|(_, [other, ours])| !are_alike(other, ours))
        else {
            let all = answers.iter().flatten().flatten();
            let statuses: BTreeSet<_> = all.map(|answer| answer.status).collect();
            assert!(statuses.len() > 1, "{name}: nothing is decided: {plan:?}");
            return;
        };
        difference = format!("{burst:?}\n{other:?}\n{ours:?}");
    }
    panic!("{name}: {difference}");
}

fn are_alike(other: &[Answer], ours: &[Answer]) -> bool {
    let mut pairs = other.iter().zip(ours);
    pairs.all(|(other, ours)| {
        other.status == ours.status && other.wait.abs_diff(ours.wait) < 2 * SLACK
    })
}

/// For configurations whose windows have no alignment.
const NOW: Duration = Duration::from_millis(1);

/// Bursts at a bucket that holds `capacity` requests, of which one comes back each `turn` (in
/// milliseconds). At each of them half a turn is missing to the next request, unless the bucket is
/// full: no decision is near its edge.
fn bursts(mut seed: u64, client: u8, turn: u64, capacity: u64) -> Vec<Burst> {
    let mut next = |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        1 + (seed >> 33) % most
    };
    let (mut at, mut halves) = (0, 2 * capacity);
    let mut plan = vec![];
    for _ in 0..5 {
        let count = next(capacity + 2);
        plan.push(burst(at, client, count as usize));
        halves -= 2 * count.min(halves / 2);
        let gap = next(4);
        let gap = gap + (gap + halves + 1) % 2;
        at += gap * turn / 2;
        halves = (halves + gap).min(2 * capacity);
    }
    plan
}

/// The bursts of several clients, in the order of time.
fn together(plans: impl IntoIterator<Item = Vec<Burst>>) -> Vec<Burst> {
    let mut plan: Vec<_> = plans.into_iter().flatten().collect();
    plan.sort_by_key(|burst| burst.at);
    plan
}

#[test]
fn every_translation_is_sound_and_beside_its_original() {
    let mut count = 0;
    for folder in fs::read_dir(fixtures()).expect("the folder is there") {
        let folder = folder.expect("it can be read").path();
        let files = fs::read_dir(&folder).expect("a folder").count();
        assert_eq!(files, 2, "{folder:?}");
        let mut check = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
        check
            .args(["check", "--deny-warnings", "sluicegate.yaml"])
            .current_dir(&folder)
            .env_remove("SLUICEGATE_SECRET");
        let output = check.output().expect("the binary starts");
        assert!(output.status.success(), "{folder:?}: {output:?}");
        count += 1;
    }
    assert_eq!(count, 18, "docs/migrating.md says how many there are");
}

#[test]
fn nginx_without_delay_has_one_more_at_once_than_its_burst() {
    let plan = together((2..5).map(|client| bursts(client.into(), client, 500, 6)));
    assert_alike("nginx-by-address", &plan, NOW);
}

#[test]
fn nginx_delays_and_refuses_as_a_leaky_bucket() {
    let plan = together((2..5).map(|client| bursts(client.into(), client, 500, 5)));
    assert_alike("nginx-queue", &plan, NOW);
}

#[test]
fn nginx_charges_both_of_two_limits_or_none() {
    let plan = [
        burst(0, 2, 5),
        // Two of these are refused for the server, and not charged to the address:
        burst(250, 3, 4),
        // so that it has three again, and the server two.
        burst(1_250, 3, 3),
        burst(2_250, 2, 3),
        burst(3_250, 3, 3),
    ];
    assert_alike("nginx-two-limits", &plan, NOW);
}

#[test]
fn nginx_limits_no_address_whose_key_a_map_empties() {
    let plan = [
        burst(0, 2, 5).to("/login"),
        burst(0, 200, 5).to("/login"),
        burst(0, 2, 5).to("/login/"),
        burst(3_000, 2, 3).to("/login"),
    ];
    assert_alike("nginx-allow-list", &plan, NOW);
}

#[test]
fn nginx_limits_keys_below_a_prefix_and_no_request_without_one() {
    let of_a = bursts(7, 2, 500, 4);
    let of_a = of_a
        .into_iter()
        .map(|burst| burst.to("/api/items").with("X-Api-Key: a\r\n"));
    let others = [
        burst(0, 2, 6).to("/api/items"),
        burst(0, 2, 6).to("/api/items").with("X-Api-Key:\r\n"),
        burst(0, 2, 6).to("/apis").with("X-Api-Key: a\r\n"),
        burst(0, 3, 6).to("/api/").with("X-Api-Key: b\r\n"),
    ];
    let plan = together([of_a.collect(), others.to_vec()]);
    assert_alike("nginx-api-key", &plan, NOW);
    let plan = [burst(0, 2, 1).to("/api").with("X-Api-Key: a\r\n")];
    let [other, ours] = &play("nginx-api-key", &plan, NOW)[0];
    assert_eq!((statuses(other), statuses(ours)), (vec![301], vec![200]));
}

#[test]
fn nginx_counts_requests_at_a_time_but_not_while_they_wait() {
    let plan = [
        burst(0, 2, 4).to("/export?600"),
        burst(0, 3, 2).to("/export?600"),
        burst(300, 2, 1).to("/export"),
        burst(1_000, 2, 2).to("/export?600"),
    ];
    assert_alike("nginx-connections", &plan, NOW);
    let plan = [burst(0, 2, 6).to("/report?600")];
    let [other, ours] = &play("nginx-connections", &plan, NOW)[0];
    assert_eq!(statuses(other), [200, 200, 200, 200, 200, 503]);
    assert_eq!(statuses(ours), [200, 200, 503, 503, 503, 503]);
}

#[test]
fn haproxy_counts_refused_requests() {
    let plan = [
        burst(0, 2, 7),
        burst(0, 3, 3),
        burst(0, 4, 5),
        burst(1_000, 3, 3),
        // All of these are refused, and so are the next for it.
        burst(2_150, 2, 5),
        burst(2_500, 3, 1),
        burst(3_000, 2, 2),
        burst(4_500, 4, 6),
    ];
    assert_alike("haproxy-by-address", &plan, PERIOD);
}

#[test]
fn haproxy_rounds_down_and_counts_refused_requests_without_bound() {
    let plan = [
        burst(0, 2, 5),
        burst(0, 3, 20),
        // 5 x 0.7 is 3 there.
        burst(2_600, 2, 3),
        // 20 x 0.3 is 6 there; here a window counts 5 at most.
        burst(3_400, 3, 1),
    ];
    let answers = play("haproxy-by-address", &plan, PERIOD);
    let [other, ours] = &answers[2];
    assert_eq!(statuses(other), [200, 200, 429]);
    assert_eq!(statuses(ours), [200, 429, 429]);
    let [other, ours] = &answers[3];
    assert_eq!((statuses(other), statuses(ours)), (vec![429], vec![200]));
}

#[test]
fn haproxy_counts_keys_and_an_empty_one_too() {
    const KEY: &str = "X-Api-Key: a\r\n";
    let plan = [
        burst(0, 2, 7).to("/api/items").with(KEY),
        burst(0, 2, 7).to("/api/items"),
        burst(0, 2, 7).with(KEY),
        burst(4_500, 2, 6).to("/api/items").with(KEY),
    ];
    assert_alike("haproxy-api-key", &plan, PERIOD);
    let plan = [burst(0, 2, 7).to("/api/items").with("X-Api-Key:\r\n")];
    let [other, ours] = &play("haproxy-api-key", &plan, PERIOD)[0];
    assert_eq!(statuses(other), [200, 200, 200, 200, 200, 429, 429]);
    assert_eq!(statuses(ours), [200; 7]);
}

#[test]
fn haproxy_counts_errors_and_denials_after_the_response() {
    let plan = [
        burst(0, 2, 3).to("/missing"),
        burst(300, 2, 1).to("/missing"),
        burst(600, 2, 2),
        burst(1_000, 3, 4),
        burst(4_500, 2, 4),
    ];
    assert_alike("haproxy-errors", &plan, PERIOD);
    let plan = [
        burst(0, 2, 6).to("/missing?300"),
        burst(0, 3, 6).to("/?300"),
    ];
    assert_alike("haproxy-errors", &plan, PERIOD);
}

#[test]
fn haproxy_queues_requests_before_a_server() {
    let plan = [burst(0, 2, 7).to("/?350"), burst(1_500, 3, 2).to("/?350")];
    assert_alike("haproxy-queue", &plan, NOW);
}
