//! Histories of faults, on virtual time: whatever has happened, hosts that work have their share
//! soon after an outage of all, and enough are in use at any time.

use proptest::prelude::*;
use tokio::runtime::Builder;
use tokio::time::advance;

use super::*;
use crate::upstream::host_set::HostSet;
use crate::upstream::host_set::tests::hosts;

/// The time between two requests, and between two looks at a history, in milliseconds.
const STEP: u64 = 10;

const SPEC: EjectionSpec = EjectionSpec {
    consecutive_failures: 5,
    failure_rate: None,
    base: Duration::from_secs(10),
    max: Duration::from_secs(300),
    max_ejected: 50,
};

/// How a server treats requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Works,
    Refuses,
    Resets,
}

/// A server's states, each for some milliseconds, before the outage; its state in the outage, and
/// how long after the end of the outage it works.
#[derive(Clone, Debug)]
struct History {
    before: Vec<(u64, Server)>,
    outage: Server,
    late: u64,
}

impl History {
    /// The state at `time`, for an outage from `start` to `end`.
    fn at(&self, time: u64, start: u64, end: u64) -> Server {
        if time >= end + self.late {
            return Server::Works;
        }
        if time >= start {
            return self.outage;
        }
        let ends = self.before.iter().scan(0, |end, &(length, server)| {
            *end += length;
            Some((*end, server))
        });
        let mut ends = ends.filter(|&(end, _)| time < end);
        ends.next().map_or(Server::Works, |(_, server)| server)
    }
}

fn history() -> impl Strategy<Value = History> {
    let fault = || prop_oneof![Just(Server::Refuses), Just(Server::Resets)];
    let server = prop_oneof![2 => Just(Server::Works), 1 => fault()];
    let before = prop::collection::vec((0..8_000_u64, server), 0..6);
    (before, fault(), 0..9_000_u64).prop_map(|(before, outage, late)| History {
        before,
        outage,
        late,
    })
}

/// An upstream whose servers have these histories.
struct Upstream {
    set: HostSet,
    outliers: OutlierDetection,
    histories: Vec<History>,
    outage: (u64, u64),
    time: u64,
    last_failure: u64,
}

impl Upstream {
    fn new(histories: Vec<History>, outage: (u64, u64), slow_start: Duration) -> Self {
        let outliers = OutlierDetection {
            ejection: Some(SPEC),
            most: SPEC.consecutive_failures,
            slow_start,
            finds_stalls: true,
            outage: Mutex::new(None),
        };
        Upstream {
            set: HostSet::new(Balance::RoundRobin, hosts(&vec![1; histories.len()])),
            outliers,
            histories,
            outage,
            time: 0,
            last_failure: 0,
        }
    }

    fn server(&self, number: usize) -> Server {
        let (start, end) = self.outage;
        self.histories[number].at(self.time, start, end)
    }

    /// Sends a request, and tries up to two other hosts. Returns the host that answers.
    fn request(&mut self) -> Option<usize> {
        let mut tried = Vec::new();
        while tried.len() < self.histories.len().min(3) {
            let number = self.set.pick(&tried, None, u32::MAX);
            let host = &self.set.hosts[number].host;
            let was_left_out = host.health.is_left_out();
            if !tried.is_empty() && was_left_out && !host.health.may_be_back() {
                return None;
            }
            let evidence = match self.server(number) {
                Server::Works => HostEvidence::Good,
                Server::Refuses => HostEvidence::NoConnection,
                Server::Resets => HostEvidence::Failed,
            };
            host.count(evidence);
            let hosts = &self.set.hosts;
            self.outliers.judge(hosts, host, was_left_out, evidence);
            if evidence == HostEvidence::Good {
                return Some(number);
            }
            self.last_failure = self.time;
            tried.push(number);
        }
        None
    }

    /// A request and the work of the main thread. Returns the host that answers.
    async fn step(&mut self) -> Option<usize> {
        let answered = self.request();
        self.time += STEP;
        advance(Duration::from_millis(STEP)).await;
        if self.time.is_multiple_of(100) {
            self.outliers.tick(&self.set.hosts, Instant::now());
        }
        if self.time.is_multiple_of(1_000) {
            self.outliers.sweep(&self.set.hosts, Instant::now());
        }
        answered
    }

    /// Checks what must hold at any time.
    fn check(&self) {
        let hosts = &self.set.hosts;
        let is_out = |one: &WeightedHost| one.host.health.is_left_out();
        assert!(!hosts.iter().all(is_out), "some host is in use");
        let left_out = hosts.iter().filter(|one| is_out(one)).count();
        let never_refuse = self.histories.iter().all(|one| {
            let before = one
                .before
                .iter()
                .all(|(_, server)| *server != Server::Refuses);
            before && one.outage != Server::Refuses
        });
        assert!(
            !never_refuse || left_out <= SPEC.most_ejected(hosts.len()),
            "{left_out} of {} are ejected for resets",
            hosts.len()
        );
    }

    /// The requests that each host answers in a second.
    async fn shares(&mut self) -> Vec<u64> {
        let mut shares = vec![0; self.histories.len()];
        for _ in 0..1_000 / STEP {
            if let Some(number) = self.step().await {
                shares[number] += 1;
            }
        }
        shares
    }
}

/// Runs the histories, and two seconds more. Returns the requests that each host answers in the
/// second after.
fn shares_after(histories: Vec<History>, outage: u64, slow_start: Duration) -> Vec<u64> {
    let lengths = histories
        .iter()
        .map(|one| one.before.iter().map(|(length, _)| length).sum());
    let start = lengths.max().unwrap_or(0);
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(async {
        let latest = histories.iter().map(|one| one.late).max().unwrap_or(0);
        let end = start + outage;
        let mut upstream = Upstream::new(histories, (start, end), slow_start);
        while upstream.time < end + latest || upstream.time < upstream.last_failure + 2_000 {
            upstream.step().await;
            upstream.check();
        }
        upstream.shares().await
    })
}

#[track_caller]
fn expect_even(shares: &[u64]) {
    let even = 1_000 / STEP / shares.len() as u64;
    let is_even = shares.iter().all(|share| share.abs_diff(even) <= 2);
    assert!(is_even, "{shares:?}");
}

fn histories(servers: &[(Server, u64)]) -> Vec<History> {
    let history = |&(outage, late): &(Server, u64)| History {
        before: Vec::new(),
        outage,
        late,
    };
    servers.iter().map(history).collect()
}

const SLOW_START: Duration = Duration::from_secs(30);

#[test]
fn an_outage_of_all_ends_for_all() {
    for fault in [Server::Refuses, Server::Resets] {
        for outage in [500, 5_000, 40_000] {
            for hosts in [1, 2, 3, 4, 7] {
                let together: Vec<_> = (0..hosts).map(|_| (fault, 0)).collect();
                expect_even(&shares_after(histories(&together), outage, SLOW_START));
            }
            let staggered = [(fault, 0), (fault, 30), (fault, 2_500), (fault, 8_000)];
            expect_even(&shares_after(histories(&staggered), outage, SLOW_START));
        }
    }
}

/// A host that works alone has its ejections, and its slow start.
#[test]
fn the_outage_of_one_host_is_its_own() {
    let one = History {
        before: vec![(2_000, Server::Refuses)],
        outage: Server::Works,
        late: 0,
    };
    let mut all = histories(&[(Server::Works, 0), (Server::Works, 0)]);
    all.push(one);
    let shares = shares_after(all, 0, SLOW_START);
    assert_eq!(shares[2], 0, "{shares:?}");
    assert_eq!(shares[0], shares[1]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn two_seconds_after_the_last_failure_each_host_has_its_share(
        histories in prop::collection::vec(history(), 1..6),
        outage in 2_000..30_000_u64,
        slow_start in prop_oneof![Just(Duration::ZERO), Just(SLOW_START)],
    ) {
        expect_even(&shares_after(histories, outage, slow_start));
    }
}
