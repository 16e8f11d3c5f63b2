//! Reads a log, and keeps of each request when it came, where it belongs, and its key: 16 bytes.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use super::keys::KeyKind;
use super::paths::Paths;
use super::peaks::SECOND;
use crate::clock::Timestamp;
use crate::proxy::Ruleset;
use crate::proxy::inspect::dry_run::route;
use crate::proxy::ruleset::RulesetSpec;
use crate::replay::log::{LogEntry, MalformedRequest};
use crate::replay::simulation::{SECRET, build};
use crate::replay::tally::Tally;
use crate::replay::{Options, ReplayError, read_into};

/// The most requests that are kept.
pub(super) const MAX_REQUESTS: usize = 10_000_000;
/// An hour.
const HOUR: Duration = Duration::from_secs(3_600);
/// The place of requests that no route takes.
pub(super) const NO_ROUTE: u32 = u32::MAX;

/// What was read.
#[derive(Debug)]
pub(super) struct Survey {
    pub ruleset: Arc<Ruleset>,
    /// The paths, unless a configuration has routes.
    pub paths: Option<Paths>,
    pub key: KeyKind,
    pub requests: Requests,
    pub tally: Tally,
    /// Requests that were not kept, and the first line of them.
    pub left_over: Option<(u64, u64)>,
}

/// Requests in the order in which they are decided.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// In microseconds.
    pub times: Vec<u64>,
    /// Places in the tree, or routes of the configuration.
    pub places: Vec<u32>,
    /// Ids of keys.
    pub keys: Vec<u32>,
}

/// What a line says, while it waits for earlier ones.
enum Waiting {
    Seen(Timestamp, Seen),
    Answered(Timestamp, &'static str),
    LeftOver,
}

/// What is kept of a request.
struct Seen {
    place: u32,
    key: u32,
}

impl Survey {
    /// Nothing read so far. Without `rules`, paths are routes.
    pub(super) fn new(rules: Option<RulesetSpec>, empty: RulesetSpec, key: KeyKind) -> Self {
        let paths = rules.is_none().then(Paths::new);
        let (ruleset, left_out) = build(rules.unwrap_or(empty));
        Self {
            paths,
            key,
            requests: Requests::default(),
            tally: Tally::new(&ruleset, left_out),
            left_over: None,
            ruleset,
        }
    }

    /// Reads a whole log.
    pub(super) fn read(mut self, options: &Options, log: impl Read) -> Result<Self, ReplayError> {
        let survey = std::cell::RefCell::new(&mut self);
        read_into(
            options,
            log,
            |line, entry| survey.borrow_mut().see(line, &entry),
            |line, waiting| {
                match waiting {
                    Ok(waiting) => survey.borrow_mut().take(line, waiting),
                    Err(why) => survey.borrow_mut().tally.unparsable(line, &why),
                }
                Ok(())
            },
        )?;
        Ok(self)
    }

    fn see(&mut self, line: u64, entry: &LogEntry) -> Waiting {
        let request = match &entry.head {
            Ok(request) => request,
            Err(MalformedRequest(reason)) => return Waiting::Answered(entry.time, reason),
        };
        if self.left_over.is_some() {
            return Waiting::LeftOver;
        }
        let (paths, key) = (&mut self.paths, &mut self.key);
        let ruleset = &*self.ruleset;
        let seen = route(ruleset, request, entry.peer, entry.time, |place, head| {
            see(paths.as_mut(), key, place, head)
        });
        match seen {
            Ok(Some(seen)) => Waiting::Seen(entry.time, seen),
            Ok(None) => {
                self.left_over = Some((0, line));
                Waiting::LeftOver
            }
            Err(error) => Waiting::Answered(entry.time, error.detail()),
        }
    }

    /// Takes a request in the order of time.
    fn take(&mut self, line: u64, waiting: Waiting) {
        match waiting {
            Waiting::Seen(time, seen) => {
                let now = self.tally.arrive(line, time);
                self.keep(line, now, seen);
            }
            Waiting::Answered(time, reason) => {
                self.tally.arrive(line, time);
                self.tally.answered(reason);
            }
            Waiting::LeftOver => self.leave_over(line),
        }
    }

    fn keep(&mut self, line: u64, now: Timestamp, seen: Seen) {
        let requests = &mut self.requests;
        if requests.times.len() == MAX_REQUESTS {
            return self.leave_over(line);
        }
        requests.times.push(now.as_micros());
        requests.places.push(seen.place);
        requests.keys.push(seen.key);
    }

    fn leave_over(&mut self, line: u64) {
        let (count, first) = self.left_over.unwrap_or((0, line));
        self.left_over = Some((count + 1, first.min(line)));
    }
}

impl Survey {
    /// The time between the first request and the latest.
    pub(super) fn span(&self) -> Option<Duration> {
        let (first, latest) = self.tally.times?;
        Some(latest.since(first))
    }

    /// True if the log covers an hour.
    pub(super) fn has_hour(&self) -> bool {
        self.span().is_some_and(|span| span >= HOUR)
    }

    /// True if requests came within a second, and no time has a fraction.
    pub(super) fn has_whole_seconds(&self) -> bool {
        let times = &self.requests.times;
        times.iter().all(|time| time.is_multiple_of(SECOND))
            && times.windows(2).any(|two| two[0] == two[1])
    }
}

/// What is kept of a request; `None` if there is no room for its key.
fn see(
    paths: Option<&mut Paths>,
    key: &mut KeyKind,
    route: Option<usize>,
    head: &crate::rules::Head<'_>,
) -> Option<Seen> {
    let place = match paths {
        Some(paths) => Some(paths.place(head.path)),
        None => route,
    };
    Some(Seen {
        place: place.map_or(NO_ROUTE, |place| place as u32),
        key: key.id(&SECRET, head)?,
    })
}
