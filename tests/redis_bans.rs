//! The script that shares bans beside the limiter that bans on one machine: the same strikes, told in whatever order and however often,
//! bring the same bans about. `tests/redis_bans_live.rs` has the real binary.

mod support;

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sluicegate::clock::Timestamp;
use sluicegate::limiter::{Ban, Fingerprint, Penalty, Strike, Strikes as Remembered};
use sluicegate::store::redis::{Announced, BanNames, Heard, Keys, Naming, Strikes, Struck};

use support::scripts::{Redis, SECOND, START, SharedRedis, at};

fn second(seconds: u64) -> Timestamp {
    at(START + seconds * SECOND)
}

fn penalty(strikes: u32, within: u64, lengths: &[u64]) -> Penalty {
    let lengths = lengths.iter().copied().map(Duration::from_secs);
    Penalty::new(strikes, Duration::from_secs(within), lengths.collect())
}

fn key(bits: u64) -> Fingerprint {
    Fingerprint::from_bits(bits)
}

/// A strike that its machine knows nothing else of.
fn struck(bits: u64, id: (u64, u64), seconds: u64) -> Struck {
    let strike = Strike {
        at: second(seconds),
        bans: 0,
        until: None,
    };
    let key = key(bits);
    Struck { key, id, strike }
}

/// A policy's bans under names that no other test has.
struct Bans {
    redis: Redis,
    naming: Naming,
    rule: Penalty,
}

impl Bans {
    fn new(server: &SharedRedis, rule: Penalty) -> Self {
        let redis = Redis::new(server);
        Self {
            naming: Naming {
                prefix: redis.prefix.as_str().into(),
                keys: Keys::Readable,
            },
            redis,
            rule,
        }
    }

    fn name_of(&self, bits: u64) -> String {
        format!("{}{{keys}}:strikes:{bits:016x}", self.redis.prefix)
    }

    fn stream(&self) -> String {
        format!("{}{{keys}}:bans", self.redis.prefix)
    }

    /// Tells these at that second, by a clock that agrees with the server's.
    fn tell(&mut self, strikes: &[Struck], read: &[u8], seconds: u64) -> Heard {
        let names = BanNames::new(&self.naming, "keys");
        let told = Strikes {
            names: &names,
            rule: &self.rule,
            strikes,
            read,
            here: second(seconds),
            now: Some(second(seconds)),
        };
        let reply = self.redis.scripts.call(told.ask());
        Heard::read(&reply.expect("the script runs")).expect("a reply")
    }

    /// What is announced to who has read nothing, without his own.
    fn announced(&mut self, seconds: u64) -> Vec<Announced> {
        self.tell(&[], b"", seconds).bans
    }
}

#[test]
fn the_same_strikes_bring_the_same_bans_about() {
    let server = SharedRedis::new();
    let inputs = (
        1..5_u32,
        1..50_u64,
        prop::collection::vec(1..60_u64, 1..4),
        prop::collection::vec((0..40_u64, any::<bool>(), 0..3_u64), 0..30),
    );
    let run = |(strikes, within, lengths, gaps): (u32, u64, Vec<u64>, Vec<_>)| {
        let mut bans = Bans::new(&server, penalty(strikes, within, &lengths));
        let (mut one, mut now) = (Remembered::default(), 100);
        let rule = bans.rule.clone();
        for (number, (gap, is_repeated, node)) in (0..).zip(gaps) {
            now += gap;
            let mut expected = rule.banned_until(&one, second(now));
            let is_banned = expected.is_some();
            if !is_banned {
                expected = rule.strike(&mut one, second(now)).until;
            }
            let strike = struck(1, (node, number), now);
            let told: Vec<_> = (0..=u32::from(is_repeated)).map(|_| strike).collect();
            let heard = bans.tell(&told, b"9999999999999-0", now);
            let until = heard
                .bans
                .first()
                .map(|ban| second(now).saturating_add(ban.left));
            prop_assert_eq!(until, expected);
            prop_assert_eq!(
                heard.bans.len(),
                told.len() * usize::from(expected.is_some())
            );
            let own: Vec<_> = heard.bans.iter().map(|ban| ban.is_own).collect();
            let is_new = expected.is_some() && !is_banned;
            prop_assert_eq!(
                own.iter().filter(|is_own| **is_own).count(),
                usize::from(is_new)
            );
            if is_repeated {
                // Also when it comes late.
                let again = bans.tell(&[strike], b"9999999999999-0", now);
                prop_assert_eq!(&again.bans, &heard.bans[heard.bans.len().min(1)..]);
            }
        }
        Ok(())
    };
    TestRunner::new(ProptestConfig::with_cases(100))
        .run(&inputs, run)
        .unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn machines_that_hear_of_each_other_ban_at_the_same_strikes() {
    let server = SharedRedis::new();
    let mut bans = Bans::new(&server, penalty(4, 60, &[100, 200]));
    let rule = bans.rule.clone();
    let mut machines = [Remembered::default(), Remembered::default()];
    let mut ends = Vec::new();
    for (number, now) in (0..).zip((0..600).step_by(5)) {
        let place = usize::from(number % 3 == 0);
        let one = &mut machines[place];
        if rule.banned_until(one, second(now)).is_some() {
            continue;
        }
        let told = Struck {
            strike: rule.strike(one, second(now)),
            ..struck(1, (place as u64, number), now)
        };
        for ban in bans.tell(&[told], b"", now).bans {
            for machine in &mut machines {
                let ban = Ban {
                    number: ban.number,
                    until: second(now).saturating_add(ban.left),
                };
                rule.hear(machine, ban, second(now));
            }
        }
        let until = machines
            .each_ref()
            .map(|one| rule.banned_until(one, second(now)));
        assert_eq!(until[0], until[1], "at {now}");
        ends.extend(until[0].map(|end| (now, (end.as_micros() - START) / SECOND)));
    }
    // Four strikes, whoever counts them, and each ban is longer up to the last length.
    assert_eq!(ends, [(15, 115), (130, 330), (345, 545), (560, 760)]);
}

#[test]
fn who_begins_hears_of_all_bans_that_hold() {
    const MANY: u64 = 700;
    let server = SharedRedis::new();
    let mut bans = Bans::new(&server, penalty(1, 60, &[100]));
    for first in (1..MANY).step_by(50) {
        let strikes: Vec<_> = (first..first + 50)
            .map(|bits| struck(bits, (0, bits), if bits % 2 == 0 { 0 } else { 60 }))
            .collect();
        let heard = bans.tell(&strikes, b"9999999999999-0", 60);
        assert!(heard.bans.iter().all(|ban| ban.is_own), "{heard:?}");
        assert_eq!(heard.bans.len(), 50);
    }
    let (mut read, mut heard, mut calls) = (Vec::new(), Vec::new(), 0);
    loop {
        let next = bans.tell(&[], &read, 120);
        heard.extend(next.bans);
        if next.read == read {
            break;
        }
        (read, calls) = (next.read, calls + 1);
    }
    assert_eq!(calls, 3, "256 at once");
    // Those of the others ended at 100.
    let expected = (1..=MANY)
        .filter(|bits| bits % 2 == 1)
        .map(|bits| Announced {
            key: key(bits),
            number: 1,
            left: Duration::from_secs(40),
            is_own: false,
        });
    assert_eq!(heard, expected.collect::<Vec<_>>());
}

#[test]
fn a_server_that_has_forgotten_is_told_what_a_machine_knows() {
    let server = SharedRedis::new();
    let mut bans = Bans::new(&server, penalty(3, 60, &[100, 200, 300]));
    let claim = |number, bans, until: Option<u64>| Struck {
        strike: Strike {
            at: second(100),
            bans,
            until: until.map(second),
        },
        ..struck(1, (7, number), 100)
    };
    // Of three strikes that brought the second ban about, two are lost.
    let heard = bans.tell(&[claim(0, 2, Some(300))], b"9999999999999-0", 110);
    let ban = |number, left| Announced {
        key: key(1),
        number,
        left: Duration::from_secs(left),
        is_own: false,
    };
    assert_eq!(heard.bans, [ban(2, 190)]);
    assert_eq!(bans.announced(110), [ban(2, 190)]);
    // It is told again, and announced once.
    bans.tell(&[claim(0, 2, Some(300))], b"", 111);
    assert_eq!(bans.announced(111), [ban(2, 189)]);
    // The next is the third, also by machines that know of none.
    let next: Vec<_> = (0..3).map(|number| struck(1, (8, number), 301)).collect();
    let heard = bans.tell(&next, b"9999999999999-0", 301);
    let own = Announced {
        is_own: true,
        ..ban(3, 300)
    };
    assert_eq!(heard.bans, [own]);
    // A ban that was over before anybody was told of it is none.
    let late = Struck {
        key: key(2),
        ..claim(1, 1, Some(200))
    };
    assert_eq!(bans.tell(&[late], b"9999999999999-0", 301).bans, []);
}

#[test]
fn strikes_of_before_a_ban_ends_do_not_count_however_late_they_come() {
    let server = SharedRedis::new();
    let mut bans = Bans::new(&server, penalty(2, 60, &[10]));
    bans.tell(&[struck(1, (0, 0), 100), struck(1, (0, 1), 101)], b"", 101);
    let late = [struck(1, (1, 0), 99), struck(1, (1, 1), 105)];
    let heard = bans.tell(&late, b"9999999999999-0", 112);
    assert_eq!(heard.bans, [], "the ban has ended at 111");
    let next = bans.tell(&[struck(1, (0, 2), 113)], b"9999999999999-0", 113);
    assert_eq!(next.bans, [], "it is the first");
    let next = bans.tell(&[struck(1, (1, 2), 112)], b"9999999999999-0", 114);
    assert_eq!(next.bans[0].left, Duration::from_secs(9), "from 113 on");
}

#[test]
fn what_is_remembered_lasts_until_it_is_forgotten() {
    let server = SharedRedis::new();
    let mut bans = Bans::new(&server, penalty(2, 60, &[100]));
    bans.redis.now = None;
    // The clock of the tests stands still, and keys stay an hour longer.
    let lasts = |bans: &mut Bans, name: &str| bans.redis.ttl(name) / 1_000 - 3_600;
    let name = bans.name_of(1);
    bans.tell(&[struck(1, (0, 0), 0)], b"", 0);
    let left = lasts(&mut bans, &name);
    assert!((58..=60).contains(&left), "{left}");
    bans.tell(&[struck(1, (0, 1), 10)], b"", 10);
    let stream = bans.stream();
    for (name, expected) in [(name, 160), (stream, 100)] {
        let left = lasts(&mut bans, &name);
        assert!((expected - 2..=expected).contains(&left), "{name}: {left}");
    }
}

#[test]
fn keys_that_are_not_ours_cost_nobody_else() {
    let server = SharedRedis::new();
    let mut bans = Bans::new(&server, penalty(1, 60, &[100]));
    let (list, text) = (bans.name_of(1), bans.name_of(2));
    bans.redis.run::<i64>(&["RPUSH", &list, "a"]);
    bans.redis.run::<()>(&["SET", &text, "a"]);
    let all: Vec<_> = (1..=3).map(|bits| struck(bits, (0, bits), 0)).collect();
    for one in [&all[..], &all[..1], &all[1..]] {
        let heard = bans.tell(one, b"9999999999999-0", 0);
        let failure = heard.failure.expect("it says what is wrong");
        assert!(failure.contains(":strikes:"), "{failure}");
        let banned: Vec<_> = heard.bans.iter().map(|ban| ban.key).collect();
        let ours = one.iter().map(|struck| struck.key);
        assert_eq!(
            banned,
            ours.filter(|ours| *ours == key(3)).collect::<Vec<_>>()
        );
    }
    assert_eq!(bans.redis.run::<String>(&["GET", &text]), "a");
    let stream = bans.stream();
    bans.redis.run::<i64>(&["DEL", &stream]);
    bans.redis.run::<i64>(&["RPUSH", &stream, "a"]);
    let names = BanNames::new(&bans.naming, "keys");
    let told = Strikes {
        names: &names,
        rule: &bans.rule,
        strikes: &all,
        read: b"",
        here: second(0),
        now: None,
    };
    let error = bans.redis.scripts.call(told.ask());
    let error = error.expect_err("there is no stream").to_string();
    assert!(error.contains("WRONGTYPE"), "{error}");
}
