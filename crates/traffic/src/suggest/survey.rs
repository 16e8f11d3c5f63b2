//! Keeps of each request its route, its key and its time: 16 bytes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use foldhash::fast::FixedState;
use limiter::{Fingerprint, Timestamp};

use super::Wishes;
use super::paths::Paths;
use super::report::{NoLimit, Suggestion};
use crate::tally::LinesReport;

/// The most requests and keys that are kept.
const MAX_REQUESTS: usize = 10_000_000;
const MAX_KEYS: usize = 1 << 20;
/// The key of requests without a bucket, because a part of the key has different values.
pub(super) const NO_BUCKET: u32 = u32::MAX;
/// The place of requests that no route takes.
const NO_ROUTE: u32 = u32::MAX;

/// The requests of a log, for which limits are to be proposed.
#[derive(Debug)]
pub struct Survey {
    routes: Routes,
    pub(super) key: RequestKeys,
    pub(super) requests: Vec<Seen>,
    /// The first time and the latest.
    pub(super) times: Option<(Timestamp, Timestamp)>,
    /// Requests that the proxy answers before any limit, by reason.
    pub(super) answered: BTreeMap<&'static str, u64>,
    pub(super) unparsable: LinesReport,
    /// The first line for which there was no room, and how many requests came after it.
    pub(super) left_over: Option<(u64, u64)>,
}

#[derive(Debug)]
enum Routes {
    /// To be found by these.
    Paths(Paths),
    Known(Vec<KnownRoute>),
}

/// A request, as a proxy would see it.
#[derive(Debug)]
pub struct SurveyedRequest<'a> {
    /// When it came.
    pub time: Timestamp,
    /// Its path.
    pub path: &'a str,
    /// The place of its route among the known ones, if one takes it.
    pub route: Option<usize>,
    /// The key by which it is counted; none if a part of that has different values.
    pub key: Option<Fingerprint>,
    /// True if a part of the key is missing, and something else stands in for it.
    pub lacks_key: bool,
}

/// A request, as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seen {
    /// Its route; while a log is read whose routes aren't known, its path.
    pub place: u32,
    pub key: u32,
    /// In microseconds.
    pub time: u64,
}

/// A route, found or configured.
#[derive(Debug)]
pub struct KnownRoute {
    /// Its name.
    pub name: String,
    /// The paths of a found route; empty for a configured one.
    pub requests_for: String,
    /// Why it gets no limit, whatever the log has.
    pub no_limit: Option<NoLimit>,
}

/// The keys of a log's requests.
#[derive(Debug, Default)]
pub(super) struct RequestKeys {
    ids: HashMap<Fingerprint, u32, FixedState>,
    /// As people read them, by id.
    pub names: Vec<Box<str>>,
    /// Requests that lack a part of the key, and all.
    pub missing: u64,
    pub requests: u64,
}

impl Survey {
    /// No requests so far. `None` finds routes in their paths.
    pub fn new(routes: Option<Vec<KnownRoute>>) -> Self {
        Self {
            routes: routes.map_or_else(|| Routes::Paths(Paths::new()), Routes::Known),
            key: RequestKeys::default(),
            requests: Vec::new(),
            times: None,
            answered: BTreeMap::new(),
            unparsable: LinesReport::default(),
            left_over: None,
        }
    }

    /// Takes the request of a line, whose key people know by its `name`.
    pub fn count(
        &mut self,
        line: u64,
        request: &SurveyedRequest<'_>,
        name: impl FnOnce() -> String,
    ) {
        if self.is_left_over(line, false) {
            return;
        }
        let place = match &mut self.routes {
            Routes::Paths(paths) => paths.place(request.path),
            Routes::Known(_) => request.route.map_or(NO_ROUTE, |route| route as u32),
        };
        let key = self.key.id(request, name);
        let is_full = key.is_none() || self.requests.len() == MAX_REQUESTS;
        if self.is_left_over(line, is_full) {
            return;
        }
        self.requests.extend(key.map(|key| Seen {
            place,
            key,
            time: request.time.as_micros(),
        }));
        self.note_time(request.time);
    }

    /// Takes a request that is answered before any limit.
    pub fn count_answered(&mut self, line: u64, time: Timestamp, reason: &'static str) {
        if !self.is_left_over(line, false) {
            *self.answered.entry(reason).or_default() += 1;
            self.note_time(time);
        }
    }

    /// Notes a line that can't be read.
    pub fn note_unparsable(&mut self, line: u64, reason: &str) {
        self.unparsable.note(line, || reason.to_owned());
    }

    /// True if there is no room for the request of a line, as from the first one that `is_full` on.
    fn is_left_over(&mut self, line: u64, is_full: bool) -> bool {
        match &mut self.left_over {
            Some((_, count)) => *count += 1,
            None if is_full => self.left_over = Some((line, 1)),
            None => return false,
        }
        true
    }

    fn note_time(&mut self, time: Timestamp) {
        let (first, latest) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), latest.max(time)));
    }

    /// Proposes limits, under names that are not `used`.
    pub fn suggest(mut self, wishes: Wishes, used: HashSet<String>) -> Suggestion {
        let (routes, is_whole) = match std::mem::replace(&mut self.routes, Routes::Known(vec![])) {
            Routes::Paths(paths) => (paths.routes(&mut self.requests), true),
            Routes::Known(routes) => (routes, false),
        };
        self.requests.sort_unstable();
        Suggestion::new(&self, routes, wishes, used, is_whole)
    }

    /// The time between the first request and the latest.
    pub(super) fn span(&self) -> Duration {
        let span = self.times.map(|(first, latest)| latest.since(first));
        span.unwrap_or_default()
    }
}

impl RequestKeys {
    /// The id of a request's key. `None` if there is no room for another key.
    fn id(&mut self, request: &SurveyedRequest<'_>, name: impl FnOnce() -> String) -> Option<u32> {
        self.missing += u64::from(request.lacks_key);
        self.requests += 1;
        let Some(key) = request.key else {
            return Some(NO_BUCKET);
        };
        if let Some(&id) = self.ids.get(&key) {
            return Some(id);
        }
        if self.names.len() == MAX_KEYS {
            return None;
        }
        let id = self.names.len() as u32;
        self.names.push(name().into());
        self.ids.insert(key, id);
        Some(id)
    }
}
