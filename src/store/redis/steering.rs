//! Actions of operators on keys that machines share.
//!
//! A machine changes the bucket in Redis, and announces that in a stream (`script/announce.lua`).
//! Every machine reads the stream each [`INTERVAL`], off the path of requests, and applies it in its
//! order to the steered keys of its policies.

use std::collections::{HashMap, HashSet};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::time::Instant;

use super::bans::BanKeys;
use super::client::{Command, Fault, FaultKind, ScriptWords};
use super::foreign_key_warning::ForeignKeyWarning;
use super::reply::{ProtocolError, fields, parsed};
use super::rounds::{self, LONGEST_ROUND};
use super::script::Procedure;
use super::script_call::{ScriptCall, micros, push_instant, push_server_time};
use super::store::Store;
use crate::clock::{Clock, Timestamp};
use crate::limiter::Fingerprint;
use crate::store::operator_action::{Attribution, KeyChange, KeyEvent, OperatorActionKind};
use crate::store::steering::SteeredKeys;

/// The interval of rounds.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);
/// The most entries that a round reads at a time.
const PAGE: usize = 1_024;
/// The most entries of the stream.
const MOST_ENTRIES: u64 = 65_536;
/// The most bans that a machine announces again when the server has forgotten them.
const MOST_REPEATED: usize = 1_024;

/// The steered keys of the policies that machines share, by label, and the place in the stream.
#[derive(Debug, Default)]
pub(super) struct SteeringFeed {
    followed: Mutex<HashMap<Box<str>, Weak<SteeredKeys>>>,
    /// True if all entries are to be read again.
    is_stale: AtomicBool,
    /// The last entry that was read; `None` to read all. Held while entries are read and applied, so
    /// that they are applied in order.
    last: tokio::sync::Mutex<Option<Vec<u8>>>,
    warning: ForeignKeyWarning,
}

/// A replacement of values.
#[derive(Clone, Copy, Debug)]
pub enum Replacement {
    /// None: the values are only read.
    Read,
    /// The keys are deleted.
    Delete,
    /// The single key gets these granted units, for so long.
    Grant(u32, Duration),
}

/// A page of the stream.
struct Page {
    /// How far the server's clock is ahead, in microseconds.
    clock_offset: i64,
    /// Each entry's id; `None` for entries of another release.
    entries: Vec<(Vec<u8>, Option<KeyEvent>)>,
}

impl KeyEvent {
    /// The call of [`Procedure::Announce`]. The change happens now unless `at` says otherwise.
    fn script_call(&self, stream: &[u8], at: Option<Timestamp>, keep: Duration) -> ScriptCall {
        let ends = match self.change {
            KeyChange::Grant { until, .. } => until,
            _ => Timestamp::EPOCH,
        };
        let mut words = ScriptWords::default();
        words.key(stream);
        push_server_time(&mut words);
        push_instant(&mut words, at);
        words.number(micros(keep));
        words.number(MOST_ENTRIES);
        for (name, value) in [
            ("policy", &*self.policy),
            ("key", &format!("{:016x}", self.key.bits())),
            ("what", self.change.action().as_str()),
            ("units", &self.change.units().to_string()),
            ("ends", &ends.as_micros().to_string()),
            ("reason", &self.by.reason),
            ("actor", &self.by.actor),
        ] {
            words.text(name);
            words.text(value);
        }
        ScriptCall::new(Procedure::Announce, words)
    }

    /// Reads the fields of an entry; `None` for those of another release.
    fn read(fields: Value) -> Option<Self> {
        let fields: HashMap<String, String> = redis::from_redis_value(fields).ok()?;
        let field = |name: &str| fields.get(name).map(String::as_str);
        let instant = |name| Some(Timestamp::from_micros(field(name)?.parse().ok()?));
        Some(Self {
            policy: field("policy")?.into(),
            key: Fingerprint::from_bits(u64::from_str_radix(field("key")?, 16).ok()?),
            change: match field("what")? {
                "reset" => KeyChange::Reset,
                "grant" => KeyChange::Grant {
                    units: field("units")?.parse().ok()?,
                    until: instant("ends")?,
                },
                // Its end is in `keep`.
                "ban" => KeyChange::Ban {
                    until: Timestamp::EPOCH,
                },
                "unban" => KeyChange::Unban,
                _ => return None,
            },
            by: Attribution {
                actor: field("actor").unwrap_or_default().into(),
                reason: field("reason").unwrap_or_default().into(),
            },
            at: instant("at")?,
            keep: instant("keep")?,
        })
    }
}

impl Store {
    /// Follows the announcements about these steered keys, by the labels of their policies. All
    /// announcements are read again if some of them are new.
    pub fn follow_steering<'a>(
        &self,
        policies: impl Iterator<Item = (&'a str, Weak<SteeredKeys>)>,
    ) {
        let feed = &self.steering;
        let policies: HashMap<Box<str>, _> = policies
            .map(|(label, keys)| (Box::from(label), keys))
            .collect();
        let mut followed = feed.followed.lock();
        let has_new = policies.iter().any(|(label, keys)| {
            let known = followed.get(label);
            known.is_none_or(|known| !known.ptr_eq(keys))
        });
        *followed = policies;
        drop(followed);
        if has_new {
            feed.is_stale.store(true, Relaxed);
        }
    }

    /// True if announcements are followed.
    pub(super) fn follows_steering(&self) -> bool {
        !self.steering.followed.lock().is_empty()
    }

    /// Reads new announcements, and applies them.
    ///
    /// # Panics
    /// As [`Client::start`](super::client::Client::start).
    pub(super) async fn read_announcements(&self, worker: usize, clock: &Clock) {
        let started = Instant::now();
        let mut last = self.steering.last.lock().await;
        if self.steering.is_stale.swap(false, Relaxed) {
            *last = None;
        }
        let mut repeated: Option<HashSet<(Box<str>, Fingerprint)>> = None;
        while started.elapsed() < LONGEST_ROUND {
            let read = self.read_page(worker, clock, last.as_deref()).await;
            let consequence = "actions of operators cannot be shared";
            self.steering.warning.note(read.as_ref().err(), consequence);
            let Ok(page) = read else { return };
            let first = page.entries.first().map(|(id, _)| id);
            if last.is_some() && first != last.as_ref() {
                // The server has forgotten the stream.
                *last = None;
                repeated = Some(HashSet::new());
                continue;
            }
            let is_last = page.entries.len() < PAGE;
            for (id, announcement) in page.entries {
                if let Some(one) = announcement {
                    if let Some(repeated) = &mut repeated {
                        repeated.insert((one.policy.clone(), one.key));
                    }
                    self.apply(&one, page.clock_offset, clock.now());
                }
                *last = Some(id);
            }
            if is_last {
                break;
            }
        }
        if let Some(known) = repeated {
            self.repeat_bans(worker, &known, clock.now()).await;
        }
    }

    async fn read_page(
        &self,
        worker: usize,
        clock: &Clock,
        from: Option<&[u8]>,
    ) -> Result<Page, Fault> {
        let stream = self.steering_stream();
        let mut range = redis::cmd("XRANGE");
        range.arg(&stream).arg(from.unwrap_or(b"-")).arg("+");
        range.arg("COUNT").arg(PAGE);
        let commands = vec![rounds::time(&stream), Command::new(&stream, range)];
        let sent = clock.now();
        let mut answers = self.background(worker, commands).await.into_iter();
        let (Some(time), Some(entries)) = (answers.next(), answers.next()) else {
            return Err(ProtocolError::Malformed.into());
        };
        let clock_offset = rounds::clock_offset(time?, sent).ok_or(ProtocolError::Malformed)?;
        let Value::Array(entries) = entries? else {
            return Err(ProtocolError::Malformed.into());
        };
        Ok(Page {
            clock_offset,
            entries: entries.into_iter().filter_map(read_entry).collect(),
        })
    }

    fn apply(&self, one: &KeyEvent, clock_offset: i64, now: Timestamp) {
        let followed = self.steering.followed.lock();
        let keys = followed.get(&one.policy).and_then(Weak::upgrade);
        drop(followed);
        if let Some(keys) = keys {
            keys.apply(one, clock_offset, now);
        }
    }

    /// Announces the bans of this machine again that are not `known` to a server that has forgotten
    /// all.
    async fn repeat_bans(
        &self,
        worker: usize,
        known: &HashSet<(Box<str>, Fingerprint)>,
        now: Timestamp,
    ) {
        let followed: Vec<_> = {
            let followed = self.steering.followed.lock();
            let followed = followed.iter();
            followed
                .filter_map(|(label, keys)| Some((label.clone(), keys.upgrade()?)))
                .collect()
        };
        let mut commands = Vec::new();
        for (policy, keys) in &followed {
            let rules = keys.rules(now);
            let bans = rules.filter(|(_, kind, _)| *kind == OperatorActionKind::Ban);
            for (key, _, ban) in bans.filter(|(key, ..)| !known.contains(&(policy.clone(), *key))) {
                let event = KeyEvent {
                    policy: policy.clone(),
                    key,
                    change: KeyChange::Ban { until: ban.until },
                    by: ban.by,
                    at: ban.since,
                    keep: ban.until,
                };
                let keep = ban.until.since(ban.since);
                let call = event.script_call(&self.steering_stream(), Some(ban.since), keep);
                commands.push(self.command(&call));
            }
        }
        commands.truncate(MOST_REPEATED);
        // What is lost here is known to this machine all the same.
        drop(self.background(worker, commands).await);
    }

    /// Announces an action, for as long as it matters from its instant on, and applies it here.
    /// Returns the instant. The action happens now unless `at` says otherwise.
    ///
    /// # Errors
    /// The server does not answer. It may have the announcement all the same.
    pub async fn announce(
        &self,
        event: &KeyEvent,
        at: Option<Timestamp>,
        keep: Duration,
    ) -> Result<Timestamp, Fault> {
        let call = event.script_call(&self.steering_stream(), at, keep);
        let reply = self.run_for_operator(&call).await?;
        let Value::BulkString(at) = reply else {
            return Err(ProtocolError::Malformed.into());
        };
        let at = parsed(&at)?;
        self.read_announcements(self.operator_worker(), &self.clock)
            .await;
        Ok(Timestamp::from_micros(at))
    }

    /// Replaces the values of these keys, which share a slot. Returns the instant, in the server's
    /// time, and the earlier values.
    ///
    /// # Errors
    /// The server does not answer. It may have replaced the values all the same.
    pub async fn replace(
        &self,
        names: &[Vec<u8>],
        replacement: Replacement,
    ) -> Result<(Timestamp, Vec<Vec<u8>>), Fault> {
        let mut words = ScriptWords::default();
        names.iter().for_each(|name| words.key(name));
        push_server_time(&mut words);
        match replacement {
            Replacement::Read => words.text("read"),
            Replacement::Delete => words.text("delete"),
            Replacement::Grant(units, length) => {
                words.text("grant");
                words.number(units);
                words.number(micros(length));
            }
        }
        let call = ScriptCall::new(Procedure::Replace, words);
        let reply = self.run_for_operator(&call).await?;
        let fields = fields(&reply)?;
        let (at, values) = fields.split_first().ok_or(ProtocolError::Malformed)?;
        let at = Timestamp::from_micros(parsed(at)?);
        Ok((at, values.iter().map(|value| value.to_vec()).collect()))
    }

    /// Lifts the shared ban of a key, and forgets its strikes. Machines may report the ban for
    /// `keep` more.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn lift_ban(
        &self,
        names: &BanKeys,
        key: Fingerprint,
        keep: Duration,
    ) -> Result<(), Fault> {
        let mut words = ScriptWords::default();
        words.key(names.stream());
        words.key(&names.record(key));
        push_server_time(&mut words);
        words.text(&format!("{:016x}", key.bits()));
        words.number(micros(keep));
        let call = ScriptCall::new(Procedure::Lift, words);
        self.run_for_operator(&call).await.map(drop)
    }

    /// Runs a call on the connection of the admin thread, within the deadline of a batch.
    async fn run_for_operator(&self, call: &ScriptCall) -> Result<Value, Fault> {
        let answers = self.background(self.operator_worker(), vec![self.command(call)]);
        let answer = answers.await.into_iter().next();
        answer.unwrap_or_else(|| Err(FaultKind::Timeout.fault()))
    }

    /// The number of the admin thread among the client's workers: the last.
    pub fn operator_worker(&self) -> usize {
        self.client().workers() - 1
    }

    fn steering_stream(&self) -> Vec<u8> {
        [self.naming().prefix.as_bytes(), b"steering"].concat()
    }
}

/// The id and the content of an entry.
fn read_entry(entry: Value) -> Option<(Vec<u8>, Option<KeyEvent>)> {
    let (id, fields) = redis::from_redis_value(entry).ok()?;
    Some((id, KeyEvent::read(fields)))
}
