//! Activity of keys, for operators: which keys are refused most, and which ask most.
//!
//! Refusals are always counted. Requests and units are counted only while somebody asks for them,
//! so that an admitted request costs one plain read otherwise. Each worker has sketches of its own,
//! behind a lock that others hold only to exchange them for empty ones.

mod sample;
pub mod windows;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::admission::{Admission, AdmissionInputs};
use super::ruleset::Limit;
use crate::clock::Timestamp;
use crate::limiter::Fingerprint;
use crate::rules::{Head, PartText};
use crate::telemetry::access_log::KeyForm;
use crate::telemetry::metrics::LimitDecision;
pub use sample::{RefusalSample, RefusalSamples};
pub use windows::{KeyCounts, Measure, Refusals, RefusedKeys, Top, TopRow, Window};
use windows::{Sketches, Windows};

/// How long requests and units are counted after the last question for them.
pub const WATCH: Duration = Duration::from_secs(60);

/// How long refusals are sampled after the last look at the samples.
const SAMPLING: Duration = Duration::from_secs(5);

/// The activity of keys on all workers.
#[derive(Debug)]
pub struct Activity {
    workers: Box<[WorkerCell]>,
    /// The end of counting requests and units, in microseconds.
    watched_until: AtomicU64,
    /// The end of sampling refusals, in microseconds.
    sampled_until: AtomicU64,
    /// True if records have the text of the key.
    has_texts: AtomicBool,
    windows: Mutex<Windows>,
}

/// The activity on one worker, in cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct WorkerCell(Mutex<WorkerActivity>);

#[derive(Debug, Default)]
struct WorkerActivity {
    sketches: Sketches,
    samples: RefusalSamples,
}

/// A key of a policy.
#[derive(Clone, Debug)]
pub struct KeyRecord {
    /// The [hash of the policy's name](super::ruleset::Policy::name_hash).
    pub policy: u64,
    /// The key of the bucket.
    pub key: Fingerprint,
    /// The texts that people may see, if any.
    pub texts: Option<Arc<KeyTexts>>,
}

/// A key and its client, as people read them.
#[derive(Debug, PartialEq)]
pub struct KeyTexts {
    /// The text of the key, if texts are allowed or it is a client's name, and it is short enough.
    pub key: Option<Arc<[PartText]>>,
    /// The name of the client that used it first, unless all clients share it.
    pub client: Option<Box<str>>,
    /// The address that used it first, if texts are allowed, and unless all clients share it.
    pub address: Option<Box<str>>,
}

impl KeyRecord {
    fn new(limit: &Limit, key: Fingerprint, head: &Head<'_>, has_texts: bool) -> Self {
        let descriptor = &limit.spec.descriptor;
        let is_of_one = !descriptor.is_of_all();
        let is_readable = has_texts || descriptor.names_client(head);
        let client = head.client.filter(|_| is_of_one);
        let address = (has_texts && is_of_one).then(|| descriptor.write_address(head));
        let texts = KeyTexts {
            key: is_readable.then(|| descriptor.write_key(head)).flatten(),
            client: client.and_then(|client| client.texts(head, &[]).pop()),
            address: address.flatten(),
        };
        Self {
            policy: limit.policy.name_hash,
            key,
            texts: (is_readable || texts.client.is_some()).then(|| Arc::new(texts)),
        }
    }
}

impl Activity {
    /// No activity of so many workers.
    pub fn new(workers: usize, now: Timestamp) -> Self {
        let cells = std::iter::repeat_with(WorkerCell::default);
        Self {
            workers: cells.take(workers).collect(),
            watched_until: AtomicU64::new(0),
            sampled_until: AtomicU64::new(0),
            has_texts: AtomicBool::new(false),
            windows: Mutex::new(Windows::new(now)),
        }
    }

    /// Allows or forbids texts of keys. Forbidding forgets all that was counted.
    pub fn set_key_form(&self, form: KeyForm, now: Timestamp) {
        let has_texts = form == KeyForm::Readable;
        if self.has_texts.swap(has_texts, Relaxed) && !has_texts {
            for cell in &self.workers {
                cell.0.lock().sketches = Sketches::default();
            }
            *self.windows.lock() = Windows::new(now);
        }
    }

    /// The form in which keys are answered.
    pub fn key_form(&self) -> KeyForm {
        if self.has_texts.load(Relaxed) {
            KeyForm::Readable
        } else {
            KeyForm::Hashed
        }
    }

    /// Counts a decided request.
    pub(super) fn record(
        &self,
        worker: usize,
        inputs: &AdmissionInputs<'_>,
        admission: &Admission,
    ) {
        let is_watched = inputs.now.as_micros() < self.watched_until.load(Relaxed);
        let is_refused = admission.is_refused();
        if !is_watched && !is_refused {
            return;
        }
        let Some(cell) = self.workers.get(worker) else {
            return;
        };
        let has_texts = self.has_texts.load(Relaxed);
        let is_sampled = is_refused && inputs.now.as_micros() < self.sampled_until.load(Relaxed);
        let mut cell = cell.0.lock();
        if is_sampled {
            cell.samples.note(inputs, admission);
        }
        for (limited, charge, decision) in admission.decided() {
            let (limit, key) = (inputs.route.limit(limited.limit), charge.key);
            let id = sketch_id(limit.policy.name_hash, key);
            let record = || KeyRecord::new(limit, key, inputs.head, has_texts);
            if limited.word == LimitDecision::Limited {
                cell.sketches[Measure::Limited as usize].hit(id, 1, record);
            }
            if !is_watched {
                continue;
            }
            cell.sketches[Measure::Busiest as usize].hit(id, 1, record);
            let is_charged = !is_refused && decision.is_admitted();
            if is_charged && charge.cost > 0 {
                cell.sketches[Measure::Units as usize].hit(id, charge.cost.into(), record);
            }
        }
    }

    /// Moves the counts of the workers into the windows. Called once a second.
    pub fn collect(&self, now: Timestamp) {
        let mut windows = self.windows.lock();
        windows.advance(now);
        for cell in &self.workers {
            windows.exchange(&mut cell.0.lock().sketches);
            windows.add_exchanged();
        }
    }

    /// The keys with the highest counts over the window before `now`, of one policy or of all.
    /// Questions for requests and units have them counted for the next 60 s.
    pub fn top(
        &self,
        by: Measure,
        window: Window,
        policy: Option<u64>,
        most: usize,
        now: Timestamp,
    ) -> Top {
        self.collect(now);
        if by != Measure::Limited {
            self.watch(now);
        }
        self.windows.lock().top(by, window, policy, most, now)
    }

    /// The refused requests over the last five minutes of keys, each with the mark of its policy.
    pub fn refusals_of(&self, keys: &[(u64, Fingerprint)], now: Timestamp) -> Vec<Refusals> {
        self.collect(now);
        let ids = keys.iter().map(|(policy, key)| sketch_id(*policy, *key));
        self.windows.lock().refusals_of(ids, now)
    }

    /// The record of a key of the policy with this mark, if it was counted in the last 15 minutes.
    pub fn record_of(&self, policy: u64, key: Fingerprint) -> Option<KeyRecord> {
        self.windows.lock().record_of(sketch_id(policy, key))
    }

    /// The keys that were refused lately, for the process that takes over.
    pub fn refused_keys(&self, now: Timestamp) -> RefusedKeys {
        self.collect(now);
        self.windows.lock().refused_keys(now)
    }

    /// Begins with the keys that another process has refused.
    pub fn begin_with(&self, refused: RefusedKeys) {
        self.windows.lock().begin_with(refused);
    }

    fn watch(&self, now: Timestamp) {
        let until = now.saturating_add(WATCH);
        self.watched_until.store(until.as_micros(), Relaxed);
        self.windows.lock().watch(now, until);
    }

    /// The refusals that were sampled since the last call, and how many were not. Refusals are
    /// sampled for 5 s after each call.
    pub fn take_samples(&self, now: Timestamp) -> RefusalSamples {
        let until = now.saturating_add(SAMPLING).as_micros();
        self.sampled_until.store(until, Relaxed);
        let mut all = RefusalSamples::default();
        for cell in &self.workers {
            let samples = std::mem::take(&mut cell.0.lock().samples);
            all.append(samples);
        }
        all
    }
}

/// The id under which a policy's key is counted. Both hashes are keyed: no two keys of policies
/// collide by a client's choice.
fn sketch_id(policy: u64, key: Fingerprint) -> Fingerprint {
    Fingerprint::from_bits(policy ^ key.bits())
}
