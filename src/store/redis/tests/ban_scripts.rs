//! The script of shared bans, with machines that are no more than the limiter's own rule: together
//! they ban as one that counts all refusals. `tests/redis/bans.rs` has the real binary.

use std::thread;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::limiter::Fingerprint;
use crate::limiter::penalty::{BanHistory as Known, Penalty};
use crate::store::redis::bans::{AnnouncedBan, BanKeys, BanReply, BanReport};
use crate::store::redis::naming::{KeyFormat, Naming};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use redis::RedisResult;

use super::scripted::{Redis, SECOND, START, SharedRedis, at};

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

fn announced(bits: u64, number: u32, seconds: i64) -> AnnouncedBan {
    AnnouncedBan {
        key: key(bits),
        number,
        left: seconds * SECOND as i64,
        remembered: 0,
        is_own: false,
    }
}

fn without_remembered(mut bans: Vec<AnnouncedBan>) -> Vec<AnnouncedBan> {
    bans.iter_mut().for_each(|ban| ban.remembered = 0);
    bans
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
                keys: KeyFormat::Readable,
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

    /// The report of a node at that second, by a clock that agrees with the server's.
    fn try_tell(
        &mut self,
        node: u64,
        keys: &[(Fingerprint, Known)],
        read: &[u8],
        now: u64,
    ) -> RedisResult<BanReply> {
        let names = BanKeys::new(&self.naming, "keys");
        let told = BanReport {
            names: &names,
            rule: &self.rule,
            node,
            keys,
            read,
            here: second(now),
        };
        self.redis.scripts.now = Some(second(now));
        let reply = self.redis.scripts.call(&told.script_call());
        Ok(BanReply::read(&reply?).expect("a reply"))
    }

    fn tell(
        &mut self,
        node: u64,
        keys: &[(Fingerprint, Known)],
        read: &[u8],
        now: u64,
    ) -> BanReply {
        self.try_tell(node, keys, read, now)
            .expect("the script runs")
    }

    /// The reply to a node that reports one key and nothing else.
    fn tell_of(&mut self, node: u64, bits: u64, known: &Known, now: u64) -> Vec<AnnouncedBan> {
        let read = self.tell(0, &[], b"", now).read;
        let heard = self.tell(node, &[(key(bits), known.clone())], &read, now);
        assert_eq!(heard.failure, None);
        without_remembered(heard.bans)
    }

    /// All announcements, for a node that has read none.
    fn all(&mut self, now: u64) -> Vec<AnnouncedBan> {
        without_remembered(self.tell(0, &[], b"", now).bans)
    }

    /// The strikes of a key at these seconds, on a machine without contact to others.
    fn struck(&self, seconds: &[u64]) -> Known {
        let mut known = Known::default();
        for &now in seconds {
            if self.rule.banned_until(&known, second(now)).is_none() {
                self.rule.strike(&mut known, second(now));
            }
        }
        known
    }
}

/// Machines that report each strike at once, some several times, ban as one that counts all.
#[test]
fn machines_that_report_to_each_other_ban_as_one() {
    const NODES: u64 = 3;
    let server = SharedRedis::new();
    let inputs = (
        1..6_u32,
        1..50_u64,
        prop::collection::vec(1..60_u64, 1..4).prop_map(|mut lengths| {
            lengths.sort_unstable();
            lengths
        }),
        prop::collection::vec((0..40_u64, 0..NODES, 1..3_u32), 0..40),
    );
    let run = |(strikes, within, lengths, gaps): (u32, u64, Vec<u64>, Vec<_>)| {
        let mut bans = Bans::new(&server, penalty(strikes, within, &lengths));
        let rule = bans.rule.clone();
        let (mut one, mut now) = (Known::default(), 100);
        let mut machines: Vec<_> = (1..=NODES)
            .map(|node| (node, Known::default(), Vec::new()))
            .collect();
        for (gap, place, times) in gaps {
            now += gap;
            let is_banned = rule.banned_until(&one, second(now)).is_some();
            let (node, known, _) = &mut machines[place as usize];
            prop_assert_eq!(rule.banned_until(known, second(now)).is_some(), is_banned);
            if is_banned {
                continue;
            }
            rule.strike(&mut one, second(now));
            rule.strike(known, second(now));
            let told = known.clone();
            for _ in 0..times {
                let heard = bans.tell(*node, &[(key(1), told.clone())], b"", now);
                prop_assert_eq!(&heard.failure, &None);
                for ban in heard.bans {
                    rule.merge_ban(known, ban.ban(second(now)), second(now));
                }
            }
            for (node, known, read) in &mut machines {
                // Each report is answered, and the other machines read it.
                let heard = bans.tell(*node, &[], read, now);
                for ban in heard.bans {
                    rule.merge_ban(known, ban.ban(second(now)), second(now));
                }
                *read = heard.read;
                let until = rule.banned_until(known, second(now));
                prop_assert_eq!(
                    until,
                    rule.banned_until(&one, second(now)),
                    "node {} at {}",
                    node,
                    now
                );
            }
        }
        Ok(())
    };
    TestRunner::new(ProptestConfig::with_cases(100))
        .run(&inputs, run)
        .unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn the_report_that_completes_a_ban_is_answered_as_its_cause() {
    let server = SharedRedis::new();
    let mut bans = Bans::new(&server, penalty(3, 60, &[100]));
    let (one, other) = (bans.struck(&[10, 12]), bans.struck(&[11]));
    assert_eq!(bans.tell_of(1, 1, &one, 12), []);
    assert_eq!(bans.tell_of(1, 1, &one, 13), [], "it is told again");
    let own = AnnouncedBan {
        is_own: true,
        ..announced(1, 1, 98)
    };
    assert_eq!(
        bans.tell_of(2, 1, &other, 14),
        [own],
        "from the last strike on"
    );
    // A machine that has banned by itself knows its ban.
    let alone = bans.struck(&[20, 21, 22]);
    assert_eq!(bans.tell_of(3, 2, &alone, 23), [announced(2, 1, 99)]);
}

#[test]
fn a_new_machine_reads_all_active_bans() {
    const MANY: u64 = 700;
    let server = SharedRedis::new();
    let mut bans = Bans::new(&server, penalty(1, 60, &[100]));
    let (early, late) = (bans.struck(&[0]), bans.struck(&[60]));
    let keys: Vec<_> = (1..=MANY)
        .map(|bits| {
            (
                key(bits),
                if bits % 2 == 0 {
                    early.clone()
                } else {
                    late.clone()
                },
            )
        })
        .collect();
    for some in keys.chunks(50) {
        bans.tell(1, some, b"9999999999999-0", 60);
    }
    let (mut read, mut heard, mut calls) = (Vec::new(), Vec::new(), 0);
    loop {
        let next = bans.tell(2, &[], &read, 120);
        heard.extend(without_remembered(next.bans));
        if next.read == read {
            break;
        }
        (read, calls) = (next.read, calls + 1);
    }
    assert_eq!(calls, 3, "256 at once");
    // The bans of the others ended at 100.
    let expected = (1..=MANY).filter(|bits| bits % 2 == 1);
    let expected: Vec<_> = expected.map(|bits| announced(bits, 1, 40)).collect();
    assert_eq!(heard, expected);
}

#[test]
fn late_reports_count_at_their_own_instants() {
    let server = SharedRedis::new();
    let mut bans = Bans::new(&server, penalty(3, 600, &[10, 20, 30]));
    // Three strikes and a ban, which is over at its report; one strike since.
    let known = bans.struck(&[1, 2, 3, 20]);
    assert_eq!(known.last_ban().number, 1);
    assert_eq!(bans.tell_of(1, 1, &known, 21), []);
    assert_eq!(bans.all(21), []);
    // A machine without news learns of it with the next strike. An earlier strike does not count.
    let other = bans.struck(&[5, 22]);
    assert_eq!(bans.tell_of(2, 1, &other, 22), [announced(1, 1, -9)]);
    let other = bans.struck(&[5, 23]);
    assert_eq!(bans.tell_of(3, 1, &other, 23)[0].number, 2);
    // An unknown ban holds from its report on.
    let alone = bans.struck(&[30, 31, 32]);
    assert_eq!(bans.tell_of(1, 2, &alone, 40), [announced(2, 1, 2)]);
    // If two ban at once, the first ban holds; its number identifies it.
    let [first, second] = [[50, 51, 52], [51, 52, 53]].map(|struck| bans.struck(&struck));
    assert_eq!(bans.tell_of(1, 3, &first, 53), [announced(3, 1, 9)]);
    assert_eq!(bans.tell_of(2, 3, &second, 53), [announced(3, 1, 9)]);
    assert_eq!(
        bans.all(53).iter().filter(|ban| ban.key == key(3)).count(),
        1
    );
}

#[test]
fn a_server_that_lost_its_data_gets_all_reports_again() {
    let server = SharedRedis::new();
    let mut bans = Bans::new(&server, penalty(1, 60, &[100, 200, 300]));
    let known = bans.struck(&[0, 100]);
    bans.tell_of(1, 1, &known, 100);
    let read = bans.tell(2, &[], b"", 100).read;
    assert!(!read.is_empty());
    assert_eq!(bans.tell(2, &[], &read, 101).read, read, "nothing is new");
    let (name, stream) = (bans.name_of(1), bans.stream());
    bans.redis.run::<i64>(&["DEL", &name, &stream]);
    // Announcements of the same millisecond have the same name.
    thread::sleep(Duration::from_millis(5));
    assert_eq!(bans.tell(2, &[], &read, 101).read, b"");
    // It does so after further announcements, too.
    let another = bans.struck(&[101]);
    bans.tell_of(3, 2, &another, 101);
    let heard = bans.tell(2, &[], &read, 101);
    assert_eq!((heard.read, heard.bans), (Vec::new(), Vec::new()));
    assert_eq!(bans.all(101), [announced(2, 1, 100)]);
    // It receives the known bans. The next ban is the third, also from a machine that knows none.
    assert_eq!(bans.tell_of(1, 1, &known, 110), [announced(1, 2, 190)]);
    let next = bans.struck(&[301]);
    assert_eq!(bans.tell_of(4, 1, &next, 301), [announced(1, 3, 100)]);
    assert_eq!(bans.all(301), [announced(1, 3, 100)], "as it was claimed");
}

#[test]
fn a_clock_that_is_set_back_makes_no_ban_longer() {
    let server = SharedRedis::new();
    let mut bans = Bans::new(&server, penalty(1, 60, &[100]));
    let known = bans.struck(&[5_000]);
    bans.tell_of(1, 1, &known, 5_000);
    let other = Known::default();
    assert_eq!(bans.tell_of(2, 1, &other, 1_000), [announced(1, 1, 100)]);
    assert_eq!(bans.all(1_000), [announced(1, 1, 100)]);
}

/// Two machines without contact, or a new one and one without its data, count different bans as the
/// first.
#[test]
fn a_ban_after_the_end_of_another_is_the_next_whatever_its_reported_number() {
    let server = SharedRedis::new();
    let mut bans = Bans::new(&server, penalty(1, 600, &[10, 20, 300]));
    let (first, later) = (bans.struck(&[0]), bans.struck(&[12]));
    assert_eq!(bans.tell_of(1, 1, &first, 13), []);
    for _ in 0..2 {
        assert_eq!(bans.tell_of(2, 1, &later, 14), [announced(1, 2, 8)]);
    }
    // A ban that is over at its report is the next, too; one that began before is not.
    assert_eq!(bans.tell_of(2, 2, &later, 25), []);
    assert_eq!(bans.tell_of(1, 2, &first, 26), []);
    let over = bans.struck(&[30]);
    assert_eq!(bans.tell_of(3, 2, &over, 45), [announced(2, 2, -5)]);
    // A ban that lasts longer by the reporter's rule is the same ban.
    let mut known = bans.struck(&[30]);
    assert_eq!(bans.tell_of(1, 3, &known, 31), [announced(3, 1, 9)]);
    known = Known::default();
    let long = penalty(1, 600, &[100]);
    long.strike(&mut known, second(30));
    assert_eq!(bans.tell_of(2, 3, &known, 32), [announced(3, 1, 8)]);
}

#[test]
fn the_reporter_of_a_ban_notices_a_server_that_lost_it() {
    let server = SharedRedis::new();
    let mut bans = Bans::new(&server, penalty(1, 60, &[100]));
    let known = bans.struck(&[0]);
    let heard = bans.tell(1, &[(key(1), known)], b"", 0);
    assert_eq!(heard.bans.len(), 1, "it hears of it once");
    let stream = bans.stream();
    bans.redis.run::<i64>(&["DEL", &stream]);
    thread::sleep(Duration::from_millis(5));
    assert_eq!(bans.tell(1, &[], &heard.read, 1).read, b"");
}

#[test]
fn records_expire_when_they_no_longer_count() {
    let server = SharedRedis::new();
    let mut bans = Bans::new(&server, penalty(2, 60, &[100]));
    // The clock of the tests stands still, and keys stay an hour longer.
    let lasts = |bans: &mut Bans, name: &str| bans.redis.ttl(name) / 1_000 - 3_600;
    let (name, stream) = (bans.name_of(1), bans.stream());
    let known = bans.struck(&[0]);
    bans.tell_of(1, 1, &known, 0);
    let left = lasts(&mut bans, &name);
    assert!((58..=60).contains(&left), "{left}");
    let known = bans.struck(&[0, 10]);
    bans.tell_of(1, 1, &known, 10);
    for (name, expected) in [(&name, 160), (&stream, 100)] {
        let left = lasts(&mut bans, name);
        assert!((expected - 2..=expected).contains(&left), "{name}: {left}");
    }
    bans.redis.run::<i64>(&["DEL", &stream]);
    let over = bans.struck(&[0, 10]);
    bans.tell_of(1, 2, &over, 120);
    assert_eq!(
        bans.redis.run::<i64>(&["EXISTS", &stream]),
        0,
        "nobody is told of what is over"
    );
}

#[test]
fn keys_of_other_programs_affect_no_other_key() {
    let server = SharedRedis::new();
    let mut bans = Bans::new(&server, penalty(1, 60, &[100]));
    let (list, text, stream) = (bans.name_of(1), bans.name_of(2), bans.stream());
    bans.redis.run::<i64>(&["RPUSH", &list, "a"]);
    bans.redis.run::<()>(&["SET", &text, "a"]);
    let known = bans.struck(&[0]);
    let all: Vec<_> = (1..=3).map(|bits| (key(bits), known.clone())).collect();
    for some in [&all[..], &all[..1], &all[1..]] {
        let heard = bans.tell(1, some, b"", 0);
        let failure = heard.failure.expect("it says what is wrong");
        assert!(failure.contains(":strikes:"), "{failure}");
    }
    assert_eq!(bans.all(0), [announced(3, 1, 100)]);
    assert_eq!(bans.redis.run::<String>(&["GET", &text]), "a");
    bans.redis.run::<i64>(&["DEL", &stream]);
    bans.redis.run::<i64>(&["RPUSH", &stream, "a"]);
    let failed = bans.try_tell(1, &all, b"1-1", 0);
    let failure = failed.expect_err("it says what is wrong").to_string();
    assert!(failure.contains("WRONGTYPE"), "{failure}");
}
