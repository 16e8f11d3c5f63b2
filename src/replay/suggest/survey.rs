//! Reads a log, and keeps of each request when it came, where it belongs, and its keys: 12 bytes, and
//! 4 for each kind of key.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use super::keys::{FieldSample, KeyKind, SAMPLE};
use super::path_tree::PathTree;
use super::peaks::SECOND;
use crate::clock::Timestamp;
use crate::http::message::Request;
use crate::proxy::Ruleset;
use crate::proxy::inspect::dry_run::{dry_run, route};
use crate::proxy::ruleset::RulesetSpec;
use crate::replay::log::{LogEntry, MalformedRequest};
use crate::replay::simulation::{SECRET, build, recorded};
use crate::replay::tally::Tally;
use crate::replay::{Options, ReplayError, read_into};
use smallvec::SmallVec;

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
    pub paths: Option<PathTree>,
    /// Limits of the configuration decide first.
    is_limited: bool,
    /// The chosen kind of key first.
    pub kinds: Vec<KeyKind>,
    sample: Option<FieldSample>,
    sampled: usize,
    pub requests: Requests,
    pub tally: Tally,
    /// Requests that the limits of the configuration refuse.
    pub refused: u64,
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
    /// Ids of keys, by their kind.
    pub keys: Vec<Vec<u32>>,
}

/// What a line says, while it waits for earlier ones.
enum Waiting {
    /// The keys are not known yet, or limits decide.
    Entry(Box<LogEntry>),
    Seen(Timestamp, Seen),
    Answered(Timestamp, &'static str),
    LeftOver,
}

/// What is kept of a request.
struct Seen {
    place: u32,
    keys: SmallVec<[u32; 4]>,
}

impl Survey {
    /// Nothing read so far. Without `rules`, paths are routes.
    pub(super) fn new(rules: Option<RulesetSpec>, empty: RulesetSpec, key: KeyKind) -> Self {
        let paths = rules.is_none().then(PathTree::new);
        let (ruleset, left_out) = build(rules.unwrap_or(empty));
        let is_limited = {
            let mut places = ruleset.routes.iter().chain([&ruleset.unmatched]);
            places.any(|route| !route.limits.is_empty())
        };
        Self {
            is_limited,
            paths,
            kinds: vec![key],
            sample: Some(FieldSample::default()),
            sampled: 0,
            requests: Requests::default(),
            tally: Tally::new(&ruleset, left_out),
            refused: 0,
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
            |line, entry| survey.borrow_mut().arrive(line, entry),
            |line, waiting| {
                match waiting {
                    Ok(waiting) => survey.borrow_mut().take(line, waiting),
                    Err(why) => survey.borrow_mut().tally.unparsable(line, &why),
                }
                Ok(())
            },
        )?;
        self.choose_keys();
        Ok(self)
    }

    fn arrive(&mut self, line: u64, entry: LogEntry) -> Waiting {
        if let (Some(sample), Ok(request)) = (&mut self.sample, &entry.head) {
            sample.add(request.headers().iter());
            self.sampled += 1;
            if self.sampled < SAMPLE {
                return Waiting::Entry(Box::new(entry));
            }
            self.choose_keys();
        }
        if self.is_limited || self.sample.is_some() {
            return Waiting::Entry(Box::new(entry));
        }
        self.see(line, &entry)
    }

    /// Ends the sample.
    fn choose_keys(&mut self) {
        let Some(sample) = self.sample.take() else {
            return;
        };
        let prefix = self.ruleset.client_ip.ipv6_prefix;
        let chosen = self.kinds[0].text.clone();
        let others = sample.keys().into_iter().filter(|key| *key != chosen);
        let others = others.chain((chosen != "client_ip").then(|| "client_ip".to_owned()));
        let others = others.filter_map(|key| KeyKind::new(&key, prefix).ok());
        self.kinds.extend(others);
        self.requests.keys.resize_with(self.kinds.len(), Vec::new);
    }

    fn see(&mut self, line: u64, entry: &LogEntry) -> Waiting {
        let request = match &entry.head {
            Ok(request) => request,
            Err(MalformedRequest(reason)) => return Waiting::Answered(entry.time, reason),
        };
        if self.left_over.is_some() {
            return Waiting::LeftOver;
        }
        let (paths, kinds) = (&mut self.paths, &mut self.kinds);
        let ruleset = &*self.ruleset;
        let seen = route(ruleset, request, entry.peer, entry.time, |place, head| {
            see(paths.as_mut(), kinds, place, request, head)
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
            Waiting::Entry(entry) => {
                self.choose_keys();
                if self.is_limited {
                    self.decide(line, &entry);
                } else {
                    let seen = self.see(line, &entry);
                    self.take(line, seen);
                }
            }
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

    /// Keeps a request that the limits of the configuration admit.
    fn decide(&mut self, line: u64, entry: &LogEntry) {
        let now = self.tally.arrive(line, entry.time);
        let request = match &entry.head {
            Ok(request) => request,
            Err(MalformedRequest(reason)) => return self.tally.answered(reason),
        };
        let (paths, kinds) = (&mut self.paths, &mut self.kinds);
        let (peer, recorded) = (entry.peer, recorded(entry));
        let decided = dry_run(&self.ruleset, request, peer, now, recorded, |run| {
            (!run.is_refused()).then(|| see(paths.as_mut(), kinds, run.place, request, &run.head))
        });
        match decided {
            Ok(None) => self.refused += 1,
            Ok(Some(Some(seen))) => self.keep(line, now, seen),
            Ok(Some(None)) => self.leave_over(line),
            Err(error) => self.tally.answered(error.detail()),
        }
    }

    fn keep(&mut self, line: u64, now: Timestamp, seen: Seen) {
        let requests = &mut self.requests;
        if requests.times.len() == MAX_REQUESTS {
            return self.leave_over(line);
        }
        requests.times.push(now.as_micros());
        requests.places.push(seen.place);
        for (column, key) in requests.keys.iter_mut().zip(seen.keys) {
            column.push(key);
        }
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

/// What is kept of a request; `None` if there is no room for its keys.
fn see(
    paths: Option<&mut PathTree>,
    kinds: &mut [KeyKind],
    route: Option<usize>,
    request: &Request<()>,
    head: &crate::rules::Head<'_>,
) -> Option<Seen> {
    let place = match paths {
        Some(paths) => Some(paths.place(request.method(), head.path)),
        None => route,
    };
    let keys = kinds.iter_mut().map(|kind| kind.id(&SECRET, head));
    Some(Seen {
        place: place.map_or(NO_ROUTE, |place| place as u32),
        keys: keys.collect::<Option<_>>()?,
    })
}
