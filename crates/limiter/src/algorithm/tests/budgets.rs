//! Budgets: what requests come to whose cost is known only when they end.

use super::*;

/// Clients that each send one request after another, and reserve what they like.
#[derive(Clone, Debug)]
struct Clients {
    /// What each reserves, up to the capacity.
    reserves: Vec<u32>,
    /// The costs that their requests turn out to have, in turn, in thousandths of the quota.
    costs: Vec<u32>,
    /// How long the requests take, in turn, in thousandths of the window.
    times: Vec<u64>,
}

/// A request in flight.
struct InFlight {
    ends: u64,
    reserved: ReservedCharge,
    units: u32,
}

fn clients() -> impl Strategy<Value = Clients> {
    let reserves = prop::collection::vec(prop_oneof![Just(1_u32), 1..2_000_u32], 1..9);
    let costs = prop::collection::vec(prop_oneof![0..100_u32, 0..3_000_u32, 0..30_000_u32], 1..6);
    let times = prop::collection::vec(prop_oneof![Just(0_u64), 0..50_u64, 0..3_000_u64], 1..6);
    (reserves, costs, times).prop_map(|(reserves, costs, times)| Clients {
        reserves,
        costs,
        times,
    })
}

const START: u64 = 1_000_000_000;
const WINDOW: u64 = 60_000_000;

impl Clients {
    /// The most that the costs of their requests in flight add up to.
    fn in_flight(&self, limit: u32) -> u64 {
        let dearest = self.costs.iter().max().expect("there is one");
        self.reserves.len() as u64 * self.cost(*dearest, limit)
    }

    fn cost(&self, thousandths: u32, limit: u32) -> u64 {
        (u64::from(thousandths) * u64::from(limit) / 1_000).max(1)
    }

    /// What the requests cost that are admitted within `span`. Each client asks again as soon as it
    /// has its answer, and at the announced instant if it is refused.
    fn cost_within(&self, algorithm: &Algorithm, span: u64) -> u64 {
        let mut bucket = Bucket::new(algorithm);
        let mut next: Vec<u64> = vec![START; self.reserves.len()];
        let mut flying: Vec<Option<InFlight>> = self.reserves.iter().map(|_| None).collect();
        let (mut total, mut sent) = (0, 0);
        for _ in 0..20_000 {
            let of = |client: &usize| {
                flying[*client]
                    .as_ref()
                    .map_or(next[*client], |one| one.ends)
            };
            let client = (0..next.len()).min_by_key(of).expect("there is one");
            let now = of(&client);
            if now >= START + span {
                break;
            }
            if let Some(ended) = flying[client].take() {
                settle(&mut bucket, algorithm, &ended);
                next[client] = now;
                continue;
            }
            let reserve = self.reserves[client].min(whole(algorithm));
            let decision = bucket.charge(algorithm, at(now), reserve);
            if let Outcome::Refuse { retry_at } = decision.outcome {
                next[client] = retry_at.expect("it fits").as_micros();
                assert!(next[client] > now);
                continue;
            }
            let units = self.cost(
                self.costs[sent % self.costs.len()],
                algorithm.limit().try_into().unwrap(),
            ) as u32;
            let time = self.times[sent % self.times.len()] * WINDOW / 1_000;
            sent += 1;
            total += u64::from(units);
            let earlier = flying
                .iter()
                .flatten()
                .map(|one| u64::from(one.reserved.units));
            let reserved = ReservedCharge {
                cell: decision.cell,
                at: at(now),
                units: reserve,
                unsettled: earlier.sum(),
            };
            flying[client] = Some(InFlight {
                ends: now + time.max(1),
                reserved,
                units,
            });
        }
        total
    }
}

fn settle(bucket: &mut Bucket, algorithm: &Algorithm, ended: &InFlight) {
    let (reserved, units) = (&ended.reserved, ended.units);
    let less = reserved.units.saturating_sub(units);
    bucket.give_back(algorithm, reserved, less, at(ended.ends));
    let more = units.saturating_sub(reserved.units);
    if more > 0 {
        bucket.owe_settled(algorithm, at(ended.ends), more);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Over any long span a key gets its quota, its burst, and what was in flight when these ran
    /// out, whatever it reserved.
    #[test]
    fn a_bucket_that_recovers_with_time_gives_its_quota_whatever_is_reserved(
        clients in clients(), limit in 1..5_000_u32, burst in 1..5_000_u32, amount in 1..500_u32,
        windows in 20..200_u64,
    ) {
        let steps = |amount| IntervalRefill::new(limit, amount, Duration::from_micros(WINDOW));
        let span = windows * WINDOW;
        let quota = quota(limit, WINDOW);
        let amount = amount.min(limit);
        for (algorithm, burst, recovered) in [
            (Algorithm::Gcra(Gcra::new(quota, limit).unwrap()), limit, u64::from(limit) * windows),
            (Algorithm::Gcra(Gcra::new(quota, burst).unwrap()), burst, u64::from(limit) * windows),
            (Algorithm::TokenBucket(Gcra::new(quota, burst).unwrap()), burst, u64::from(limit) * windows),
            (Algorithm::IntervalRefill(steps(amount).unwrap()), limit, u64::from(amount) * (windows + 1)),
        ] {
            let total = clients.cost_within(&algorithm, span);
            let most = recovered + u64::from(burst) + clients.in_flight(limit);
            prop_assert!(total <= most, "{total} is more than {most}: {algorithm:?}");
        }
    }

    /// Windows begin anew: each admits its quota, and what was in flight when that ran out.
    #[test]
    fn a_window_gives_its_quota_and_what_was_in_flight(
        clients in clients(), limit in 1..5_000_u32, windows in 1..30_u64,
    ) {
        let fixed = |start| Algorithm::FixedWindow(FixedWindow::new(quota(limit, WINDOW), start));
        let counters = SlidingCounters::new(quota(limit, WINDOW), 10, OldestPart::Whole);
        for algorithm in [
            fixed(Start::EPOCH),
            fixed(Start::FirstRequest),
            Algorithm::SlidingWindow(SlidingWindow::new(quota(limit, WINDOW), OldestPart::Whole)),
            Algorithm::SlidingCounters(counters.unwrap()),
            Algorithm::SlidingLog(SlidingLog::new(quota(limit, WINDOW)).unwrap()),
        ] {
            let total = clients.cost_within(&algorithm, windows * WINDOW);
            let most = (windows + 1) * (u64::from(limit) + clients.in_flight(limit));
            prop_assert!(total <= most, "{total} is more than {most}: {algorithm:?}");
        }
    }
}

/// docs/token-budgets.md: what a client does that reserves a token and takes 1,800 each time.
#[test]
fn one_call_after_another_gets_its_quota() {
    let thrifty = Clients {
        reserves: vec![1],
        costs: vec![900],
        times: vec![1],
    };
    let algorithm = Algorithm::Gcra(Gcra::new(quota(2_000, WINDOW), 2_000).unwrap());
    let hour = thrifty.cost_within(&algorithm, 60 * WINDOW);
    assert!(
        (120_000..=60 * 2_000 + 2_000 + 1_800).contains(&hour),
        "{hour}"
    );
}

/// A debt of 1,000 windows is announced, and over when it was said to be; more is forgiven.
#[test]
fn a_debt_is_owed_in_full_up_to_its_bound() {
    let refill = IntervalRefill::new(10, 5, Duration::from_micros(WINDOW / 2)).unwrap();
    for algorithm in [
        Algorithm::Gcra(Gcra::new(quota(10, WINDOW), 10).unwrap()),
        Algorithm::IntervalRefill(refill),
    ] {
        for (units, windows) in [(10, 1), (1_000, 100), (10_010, 1_001), (u32::MAX, 1_001)] {
            let mut bucket = Bucket::new(&algorithm);
            bucket.owe_settled(&algorithm, at(START), units);
            let decision = algorithm.decide(&bucket, at(START), 10);
            assert_eq!(decision.remaining, 0);
            assert_eq!(
                decision.reset,
                at(START + windows * WINDOW),
                "{units} {algorithm:?}"
            );
            let retry_at = Some(decision.reset);
            assert_eq!(decision.outcome, Outcome::Refuse { retry_at });
            let owed = algorithm.owed_units(&bucket, at(START));
            assert_eq!(owed, (windows - 1) * 10);
            // Neither a reload nor a snapshot forgives it.
            let kept = Bucket::carry(&algorithm, &algorithm, &bucket, at(START));
            assert_eq!(kept.cell, bucket.cell);
        }
    }
}

/// A reload keeps what is owed, beside what a whole bucket of the new quota holds.
#[test]
fn a_debt_outlasts_another_quota() {
    let of = |limit| Algorithm::Gcra(Gcra::new(quota(limit, WINDOW), limit).unwrap());
    let mut bucket = Bucket::new(&of(40));
    bucket.owe_settled(&of(40), at(START), 40 + 70);
    let owed = |limit| {
        let carried = Bucket::carry(&of(limit), &of(40), &bucket, at(START));
        of(limit).owed_units(&carried, at(START))
    };
    assert_eq!([owed(10), owed(40), owed(60), owed(500)], [70, 70, 50, 0]);
}
