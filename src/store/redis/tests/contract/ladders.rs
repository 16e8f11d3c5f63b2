//! Ladders of buckets in memory, in Redis and in a naive model: overflow buckets, granted units, kept
//! units, roles, required units and charged refusals, in all combinations that there are.

use super::*;
use crate::limiter::bucket::{Debt, Grant};
use crate::store::memory::{Claims, Role};

/// The end of all grants.
const GRANTED_UNTIL: u64 = START + 3_600_000_000;
const START: u64 = 1_795_236_060_000_000;
const ROLES: [Role; 3] = [Role::Refuses, Role::Shadows, Role::Tags];

/// A limit, and the requests that it meets.
#[derive(Clone, Debug)]
struct Rules {
    role: Role,
    /// Its bucket, and its overflow buckets.
    algorithms: Vec<Algorithm>,
    /// Units that an operator has granted.
    granted: Option<u32>,
    /// Units to leave in the first bucket.
    kept: u32,
    /// Its requests need their units, and are charged nothing.
    only_requires: bool,
    charges_refusals: bool,
}

/// The buckets of all limits, one after the other, with their rules.
struct Rung<'a> {
    rules: &'a Rules,
    algorithm: Algorithm,
    /// The place on the ladder.
    place: usize,
    is_grant: bool,
}

impl Rules {
    fn rungs(&self) -> impl Iterator<Item = Rung<'_>> {
        let grant = self.granted.map(|_| Algorithm::Grant(Grant));
        let own = self.algorithms.iter().cloned();
        own.chain(grant).enumerate().map(|(place, algorithm)| Rung {
            rules: self,
            is_grant: place == self.algorithms.len(),
            algorithm,
            place,
        })
    }

    fn demand(&self, place: usize, units: u32) -> Demand {
        let (cost, required) = if self.only_requires {
            (0, units)
        } else {
            (units, 0)
        };
        Demand {
            cost,
            required,
            kept: if place == 0 { self.kept.into() } else { 0 },
        }
    }
}

/// The decision on one limit: the deciding bucket, and what clients see of it.
#[derive(Clone, Debug, PartialEq)]
struct Decided {
    rung: usize,
    outcome: Outcome,
    remaining: u64,
    capacity: u64,
}

impl Decided {
    fn new(rung: usize, decision: &Decision) -> Self {
        Self {
            rung,
            outcome: decision.outcome,
            remaining: decision.remaining,
            capacity: decision.capacity,
        }
    }
}

/// What is seen of a request: the tags of a refused one are not.
fn seen(rules: &[Rules], decided: Vec<Decided>) -> Vec<Decided> {
    let refuses = |(rules, decided): (&Rules, &Decided)| {
        rules.role == Role::Refuses && matches!(decided.outcome, Outcome::Refuse { .. })
    };
    let is_refused = rules.iter().zip(&decided).any(refuses);
    let seen = rules.iter().zip(decided);
    seen.filter(|(rules, _)| !(is_refused && rules.role.is_tag()))
        .map(|(_, decided)| decided)
        .collect()
}

/// A store of ladders: decides about units for each limit.
trait Ladders {
    fn decide(&mut self, ask: store::Ask, units: &[u32], now: Timestamp) -> Vec<Decided>;
}

const CHARGE: store::Ask = store::Ask::Charge;

struct InMemory<'a> {
    rules: &'a [Rules],
    tables: Vec<Vec<Table>>,
}

impl<'a> InMemory<'a> {
    fn new(rules: &'a [Rules]) -> Self {
        let table = |rung: Rung<'_>| {
            let refusals = if rung.rules.charges_refusals && !rung.is_grant {
                Refusals::Charged
            } else {
                Refusals::Free
            };
            let table = Table::new("test", rung.algorithm, 64, OnFull::Forget);
            let table = table.with_refusals(refusals);
            if let Some(units) = rung.rules.granted.filter(|_| rung.is_grant) {
                let cell = Grant::cell(units, at(GRANTED_UNTIL));
                assert!(table.start(fingerprint(1), cell, at(START)));
            }
            table
        };
        let tables = rules.iter().map(|rules| rules.rungs().map(table).collect());
        Self {
            rules,
            tables: tables.collect(),
        }
    }
}

impl Ladders for InMemory<'_> {
    fn decide(&mut self, ask: store::Ask, units: &[u32], now: Timestamp) -> Vec<Decided> {
        let mut claims = Claims::default();
        for ((rules, tables), &units) in self.rules.iter().zip(&self.tables).zip(units) {
            let charge = |(place, table)| {
                let charge = store::Charge::new(table, fingerprint(1), 0);
                store::Charge {
                    demand: rules.demand(place, units),
                    ..charge
                }
            };
            claims.push(rules.role, tables.iter().enumerate().map(charge));
        }
        let mut verdict = Verdict::default();
        let deciding = claims.decide(ask, now, &mut verdict);
        let decided = deciding.iter().zip(&verdict.decisions);
        let decided = decided.map(|(deciding, decision)| Decided::new(deciding.rung, decision));
        seen(self.rules, decided.collect())
    }
}

struct InRedis<'a> {
    rules: &'a [Rules],
    prefix: String,
    scripts: Scripts,
}

impl<'a> InRedis<'a> {
    fn new(server: &SharedRedis, rules: &'a [Rules]) -> Self {
        let mut redis = Self {
            rules,
            prefix: server.prefix(),
            scripts: Scripts::new(server),
        };
        for (number, rules) in rules.iter().enumerate() {
            if let Some(units) = rules.granted {
                let name = redis.name(number, rules.algorithms.len());
                let mut set = ::redis::cmd("SET");
                set.arg(name)
                    .arg(format!("{GRANTED_UNTIL} {units} {units}"));
                let set = set.query::<()>(&mut redis.scripts.connection);
                set.expect("Redis answers");
            }
        }
        redis
    }

    fn name(&self, limit: usize, place: usize) -> String {
        format!("{}{limit}:{place}", self.prefix)
    }
}

impl Ladders for InRedis<'_> {
    fn decide(&mut self, ask: store::Ask, units: &[u32], now: Timestamp) -> Vec<Decided> {
        let limits = self.rules.iter().zip(units).enumerate();
        let rungs = limits.flat_map(|(number, (rules, &units))| {
            let named = rules.rungs().map(move |rung| (number, units, rung));
            named.map(|(number, units, rung)| (self.name(number, rung.place), units, rung))
        });
        let rungs: Vec<_> = rungs.collect();
        let charges = rungs
            .iter()
            .map(|(name, units, rung)| store::redis::BucketCharge {
                algorithm: &rung.algorithm,
                name: name.as_bytes(),
                key: fingerprint(1),
                demand: rung.rules.demand(rung.place, *units),
                charged_refusals: match rung.rules.charges_refusals && !rung.is_grant {
                    false => ChargedRefusals::None,
                    true if rung.rules.role.is_tag() => ChargedRefusals::Own,
                    true => ChargedRefusals::All,
                },
                settles: false,
                period: None,
                tier: if rung.place == 0 {
                    Tier::First
                } else {
                    Tier::Overflow
                },
            });
        let charges: Vec<_> = charges.collect();
        let refusing = self.rules.iter().filter(|one| one.role == Role::Refuses);
        let request = ChargeRequest {
            charges: &charges,
            enforced: refusing.count(),
            ask,
            estimated_now: now,
            lease: "none",
            undecided: "",
            undecided_for: None,
        };
        self.scripts.now = Some(now);
        let reply = self.scripts.decide(&request, now);
        let decided = reply.replies.iter().map(|one| {
            let spared = one.spared.filter(|_| !reply.is_admitted);
            Decided::new(one.tier, &spared.unwrap_or(one.decision))
        });
        seen(self.rules, decided.collect())
    }
}

/// The rules in words: buckets without locks, scripts or rings.
struct Naive<'a> {
    rules: &'a [Rules],
    cells: Vec<Vec<Cell>>,
}

impl<'a> Naive<'a> {
    fn new(rules: &'a [Rules]) -> Self {
        let cell = |rung: Rung<'_>| match rung.rules.granted.filter(|_| rung.is_grant) {
            Some(units) => Grant::cell(units, at(GRANTED_UNTIL)),
            None => Cell::EMPTY,
        };
        let cells = rules.iter().map(|rules| rules.rungs().map(cell).collect());
        Self {
            rules,
            cells: cells.collect(),
        }
    }

    fn ask(&self, limit: usize, place: usize, demand: Demand, now: Timestamp) -> Decision {
        let rung = self.rules[limit].rungs().nth(place).expect("a rung");
        let cell = self.cells[limit][place];
        let cell = rung.algorithm.open(cell, fingerprint(1), None, now);
        rung.algorithm.decide_keeping(cell, now, demand)
    }

    /// The first bucket that pays, or the one that can pay soonest.
    fn choose(decisions: &[Decision]) -> usize {
        let pays = decisions.iter().position(Decision::is_admitted);
        pays.unwrap_or_else(|| {
            let soonest = (0..decisions.len()).min_by_key(|at| decisions[*at].outcome.wait());
            soonest.expect("a bucket")
        })
    }
}

impl Ladders for Naive<'_> {
    fn decide(&mut self, ask: store::Ask, units: &[u32], now: Timestamp) -> Vec<Decided> {
        let all_decisions: Vec<Vec<Decision>> = (0..self.rules.len())
            .map(|limit| {
                let rungs = 0..self.cells[limit].len();
                let demand = |place| self.rules[limit].demand(place, units[limit]);
                rungs
                    .map(|place| self.ask(limit, place, demand(place), now))
                    .collect()
            })
            .collect();
        let pays = |limit: usize| all_decisions[limit].iter().any(Decision::is_admitted);
        let is_admitted = (0..self.rules.len())
            .all(|limit| self.rules[limit].role != Role::Refuses || pays(limit));
        let before = self.cells.clone();
        let mut decided = Vec::new();
        for (limit, mut decisions) in all_decisions.into_iter().enumerate() {
            let rules = &self.rules[limit];
            let is_bound = is_admitted || !rules.role.is_tag();
            let owes = rules.charges_refusals && units[limit] > 0 && is_bound;
            let mut place = Self::choose(&decisions);
            let is_paid = decisions[place].is_admitted();
            let owed = |place| Demand {
                cost: units[limit],
                required: 0,
                ..rules.demand(place, 0)
            };
            if is_paid && is_admitted {
                self.cells[limit][place] = decisions[place].cell;
            } else if is_paid && owes && place < rules.algorithms.len() {
                decisions[place] = self.ask(limit, place, owed(place), now);
                self.cells[limit][place] = decisions[place].cell;
            } else if is_paid {
                let nothing = Demand {
                    cost: 0,
                    required: 0,
                    ..rules.demand(place, 0)
                };
                decisions[place] = self.ask(limit, place, nothing, now);
            } else if owes {
                let last = rules.algorithms.len() - 1;
                let algorithm = &rules.algorithms[last];
                let cell = algorithm.open(self.cells[limit][last], fingerprint(1), None, now);
                let (cell, _) = algorithm.owe(cell, now, now, units[limit], Debt::Refused);
                self.cells[limit][last] = cell;
                decisions[last] = self.ask(limit, last, owed(last), now);
                place = Self::choose(&decisions);
            }
            let mut told = Decided::new(place, &decisions[place]);
            if rules.granted.is_some() {
                let nothing = |place| Demand {
                    cost: 0,
                    required: 0,
                    ..rules.demand(place, 0)
                };
                let last = rules.algorithms.len();
                if place == last {
                    let quota = self.ask(limit, 0, nothing(0), now);
                    told.remaining = told.remaining.saturating_add(quota.remaining);
                    told.capacity = quota.capacity;
                } else {
                    let granted = self.ask(limit, last, nothing(last), now);
                    told.remaining = told.remaining.saturating_add(granted.remaining);
                }
            }
            decided.push(told);
        }
        if ask == store::Ask::Peek {
            self.cells = before;
        }
        seen(self.rules, decided)
    }
}

fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    let quota = |limit, window| Quota::new(limit, Duration::from_micros(window)).expect("a quota");
    (1..6_u32, 1..2_000_u64, 0..4_u8).prop_map(move |(limit, window, kind)| {
        let quota = quota(limit, window);
        match kind {
            0 => Algorithm::Gcra(Gcra::new(quota, limit).expect("a burst")),
            1 => Algorithm::FixedWindow(FixedWindow::new(quota, Start::FirstRequest)),
            2 => Algorithm::FixedWindow(FixedWindow::new(quota, Start::EPOCH)),
            _ => Algorithm::SlidingWindow(SlidingWindow::new(quota, OldestPart::Weighted)),
        }
    })
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let options = (any::<bool>(), any::<bool>(), 0..3_usize);
    let buckets = prop::collection::vec(any_algorithm(), 1..4);
    (buckets, prop::option::of(0..6_u32), 0..3_u32, options).prop_map(
        |(mut algorithms, granted, kept, (only_requires, charges_refusals, role))| {
            if charges_refusals {
                // A policy with overflow buckets charges no refusals.
                algorithms.truncate(1);
            }
            // A smaller burst is at least one unit.
            let kept = kept.min((algorithms[0].capacity() - 1).try_into().unwrap());
            Rules {
                role: ROLES[role],
                algorithms,
                granted,
                kept,
                only_requires,
                charges_refusals,
            }
        },
    )
}

fn in_order(mut rules: Vec<Rules>) -> Vec<Rules> {
    rules.sort_by_key(|one| ROLES.iter().position(|role| *role == one.role));
    rules
}

type Steps = Vec<(u64, Vec<u32>)>;

fn steps(most: usize) -> impl Strategy<Value = Steps> {
    let units = prop::collection::vec(prop_oneof![4 => Just(1_u32), 1 => 0..4_u32], 3);
    let gaps = prop_oneof![3 => 0..20_u64, 2 => 0..400_u64, 1 => 0..3_000_u64];
    prop::collection::vec((gaps, units), 1..most)
}

/// The stores decide alike, and a peek tells what the charge after it does.
fn compare(rules: &[Rules], steps: &Steps, others: Vec<Box<dyn Ladders + '_>>) -> TestCaseResult {
    let mut naive = Naive::new(rules);
    let mut others = others;
    let mut now = START;
    for (gap, units) in steps {
        now += gap;
        let units = &units[..rules.len()];
        let expected = naive.decide(CHARGE, units, at(now));
        for (place, store) in others.iter_mut().enumerate() {
            let peeked = store.decide(store::Ask::Peek, units, at(now));
            prop_assert_eq!(&peeked, &expected, "peek {} at {}", place, now - START);
            let charged = store.decide(CHARGE, units, at(now));
            prop_assert_eq!(&charged, &expected, "charge {} at {}", place, now - START);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn memory_decides_as_the_rules_say(
        rules in prop::collection::vec(any_rules(), 1..4).prop_map(in_order),
        steps in steps(12),
    ) {
        compare(&rules, &steps, vec![Box::new(InMemory::new(&rules))])?;
    }
}

#[test]
fn redis_decides_as_memory() {
    let server = SharedRedis::new();
    let config = ProptestConfig::with_cases(3_000);
    let rules = prop::collection::vec(any_rules(), 1..4).prop_map(in_order);
    let mut runner = TestRunner::new(config);
    let checked = runner.run(&(rules, steps(8)), |(rules, steps)| {
        let redis = InRedis::new(&server, &rules);
        compare(
            &rules,
            &steps,
            vec![Box::new(InMemory::new(&rules)), Box::new(redis)],
        )
    });
    checked.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Every pair of features, one on each of two limits.
#[test]
fn all_pairs_of_features_decide_alike_in_all_stores() {
    let server = SharedRedis::new();
    let hour = |limit| Quota::new(limit, Duration::from_secs(3_600)).expect("a quota");
    let bucket = |limit| Algorithm::Gcra(Gcra::new(hour(limit), limit).expect("a burst"));
    let plain = Rules {
        role: Role::Refuses,
        algorithms: vec![bucket(3)],
        granted: None,
        kept: 0,
        only_requires: false,
        charges_refusals: false,
    };
    let mut features = vec![plain.clone()];
    features.push(Rules {
        algorithms: vec![bucket(2), bucket(2)],
        ..plain.clone()
    });
    features.push(Rules {
        granted: Some(2),
        ..plain.clone()
    });
    features.push(Rules {
        kept: 1,
        ..plain.clone()
    });
    features.push(Rules {
        only_requires: true,
        ..plain.clone()
    });
    features.push(Rules {
        charges_refusals: true,
        ..plain.clone()
    });
    features.push(Rules {
        only_requires: true,
        charges_refusals: true,
        ..plain.clone()
    });
    features.push(Rules {
        granted: Some(2),
        charges_refusals: true,
        kept: 1,
        ..plain.clone()
    });
    for one in &features {
        for (other, role) in features
            .iter()
            .flat_map(|other| ROLES.map(|role| (other, role)))
        {
            let rules = [
                one.clone(),
                Rules {
                    role,
                    ..other.clone()
                },
            ];
            let step = |place: u32| (1_000_000, vec![1 + place % 2, 1 + place % 3]);
            let steps: Steps = (0..7).map(step).collect();
            let stores: Vec<Box<dyn Ladders>> = vec![
                Box::new(InMemory::new(&rules)),
                Box::new(InRedis::new(&server, &rules)),
            ];
            let compared = compare(&rules, &steps, stores);
            compared.unwrap_or_else(|failure| panic!("{failure}: {rules:?}"));
        }
    }
}
