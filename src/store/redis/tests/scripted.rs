//! The scripts of the Redis store, called over a plain connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::limiter::algorithms::Gcra;
use crate::limiter::{Algorithm, Decision, Fingerprint, Quota, Verdict};
use crate::store::redis::client::ScriptWords;
use crate::store::redis::follow_up::{Settlement, SettlementReply};
use crate::store::redis::reply::{ChargeReply, ScriptReply};
use crate::store::redis::script::Procedure;
use crate::store::redis::script_call::{BucketCharge, ChargeRequest, ScriptCall};
use redis::{RedisResult, Script, Value};

use crate::support::redis::RedisServer;

/// The server that the tests of a binary share, each with its own names: `SLUICEGATE_TEST_REDIS`,
/// or a private one that ends with the last test.
#[derive(Clone)]
pub struct SharedRedis {
    url: String,
    _own: Option<Arc<RedisServer>>,
}

static OWN: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());

impl SharedRedis {
    pub fn new() -> Self {
        if let Ok(url) = std::env::var("SLUICEGATE_TEST_REDIS") {
            return Self { url, _own: None };
        }
        let mut own = OWN.lock().expect("nobody panics meanwhile");
        let server = own
            .upgrade()
            .unwrap_or_else(|| Arc::new(RedisServer::start()));
        *own = Arc::downgrade(&server);
        Self {
            url: server.url(),
            _own: Some(server),
        }
    }

    pub fn connection(&self) -> redis::Connection {
        let client = redis::Client::open(self.url.as_str()).expect("a URL of Redis");
        client.get_connection().expect("Redis takes connections")
    }

    /// A prefix of names that no other test uses. All its keys are in one slot of a cluster.
    pub fn prefix(&self) -> String {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        format!("{{test:{}:{next}}}", std::process::id())
    }
}

/// The scripts, over a connection.
pub struct Scripts {
    pub connection: redis::Connection,
    /// The called scripts.
    known: Vec<(Procedure, Script)>,
    /// The number of charge calls.
    pub calls: usize,
    /// The instant of calls; `None` is the server's time.
    pub now: Option<Timestamp>,
}

impl Scripts {
    pub fn new(server: &SharedRedis) -> Self {
        Self {
            connection: server.connection(),
            known: Vec::new(),
            calls: 0,
            now: Some(at(START)),
        }
    }

    /// The number of scripts that the server has.
    pub fn given(&self) -> usize {
        self.known.len()
    }

    /// Calls once.
    pub fn ask(&mut self, request: &ChargeRequest<'_>) -> RedisResult<Value> {
        self.calls += 1;
        self.call(&request.script_call())
    }

    /// Decides a request, and calls again for another calendar period; `local` is now on the
    /// caller's clock.
    #[track_caller]
    pub fn decide(&mut self, request: &ChargeRequest<'_>, local: Timestamp) -> ChargeReply {
        let mut request = *request;
        for _ in 0..2 {
            let reply = self.ask(&request).expect("the script runs");
            match request
                .read(&reply, local)
                .expect("the script and the limiter agree")
            {
                ScriptReply::Decided(told) => return told,
                ScriptReply::Retry(at) => request.estimated_now = at,
            }
        }
        panic!("asked again in vain")
    }

    /// Renews or returns leases. Says of each if it existed.
    pub fn leases(&mut self, ask: ScriptCall) -> Vec<bool> {
        let reply = self.call(&ask).expect("the script runs");
        presence(reply)
    }

    /// Settles a charge; `None` if there is nothing to settle.
    pub fn settle(
        &mut self,
        settlement: &Settlement<'_>,
        estimated_now: Timestamp,
    ) -> Option<SettlementReply> {
        let ask = settlement.script_call(estimated_now)?;
        let reply = self.call(&ask).expect("the script runs");
        Some(SettlementReply::read(&reply).expect("it says what became of it"))
    }

    /// Calls a script.
    pub fn call(&mut self, ask: &ScriptCall) -> RedisResult<Value> {
        let ask = self.now.map_or_else(|| ask.clone(), |now| ask.at(now));
        let mut known = self.known.iter();
        let at = known.position(|(procedure, _)| *procedure == ask.procedure);
        let at = at.unwrap_or_else(|| {
            let script = Script::new(&ask.procedure.text());
            self.known.push((ask.procedure, script));
            self.known.len() - 1
        });
        let mut call = self.known[at].1.prepare_invoke();
        for key in ask.words.keys() {
            call.key(key);
        }
        for word in ask.words.args() {
            call.arg(word);
        }
        call.invoke(&mut self.connection)
    }

    /// Leaves a queue. Returns true if a waiter was the last in it.
    pub fn leave(&mut self, ask: ScriptCall) -> bool {
        let reply = self.call(&ask).expect("the script runs");
        presence(reply)[0]
    }
}

pub const START: u64 = 1_795_236_060_000_000;
pub const SECOND: u64 = 1_000_000;
pub const YEAR: u64 = 365 * 86_400 * SECOND;

pub fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

pub fn quota(limit: u32, window: u64) -> Quota {
    Quota::new(limit, Duration::from_micros(window)).expect("a quota")
}

pub fn gcra(limit: u32, window: u64) -> Algorithm {
    Algorithm::Gcra(Gcra::new(quota(limit, window), limit).expect("a burst"))
}

pub fn fingerprint(key: u64) -> Fingerprint {
    Fingerprint::from_bits(key * (u64::MAX / 4) + 1)
}

/// Names of a test's own on the shared server.
pub struct Redis {
    pub scripts: Scripts,
    pub prefix: String,
}

impl Redis {
    pub fn new(server: &SharedRedis) -> Self {
        Self {
            scripts: Scripts::new(server),
            prefix: server.prefix(),
        }
    }

    pub fn name(&self, of: &str) -> String {
        format!("{}{of}", self.prefix)
    }

    pub fn request<'a>(&self, charges: &'a [BucketCharge<'a>]) -> ChargeRequest<'a> {
        ChargeRequest {
            charges,
            enforced: charges.len(),
            ask: crate::store::Ask::Charge,
            estimated_now: self.scripts.now.unwrap_or(at(START)),
            lease: "a",
            undecided: "",
            undecided_for: None,
        }
    }

    #[track_caller]
    pub fn decide(&mut self, charges: &[BucketCharge<'_>]) -> ChargeReply {
        let request = self.request(charges);
        self.scripts
            .decide(&request, self.scripts.now.unwrap_or(at(START)))
    }

    /// A charge of a single bucket with this name.
    #[track_caller]
    pub fn charge(&mut self, algorithm: &Algorithm, of: &str, cost: u32) -> Decision {
        let name = self.name(of);
        let told = self.decide(&[charge(algorithm, &name, cost)]);
        told.replies[0].decision
    }

    /// The milliseconds until a key expires.
    pub fn ttl(&mut self, key: &str) -> i64 {
        let mut ask = redis::cmd("PTTL");
        ask.arg(key)
            .query(&mut self.scripts.connection)
            .expect("PTTL")
    }

    pub fn run<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command
            .query(&mut self.scripts.connection)
            .expect("a command")
    }
}

impl ScriptCall {
    /// The same call at another instant than the server's.
    pub fn at(&self, now: Timestamp) -> Self {
        let mut words = ScriptWords::default();
        self.words.keys().for_each(|key| words.key(key));
        words.number(now.as_micros());
        self.words.args().skip(1).for_each(|word| words.bytes(word));
        Self { words, ..*self }
    }
}

pub fn charge<'a>(algorithm: &'a Algorithm, name: &'a str, cost: u32) -> BucketCharge<'a> {
    BucketCharge::new(algorithm, name.as_bytes(), fingerprint(1), cost)
}

impl ChargeReply {
    /// The decisions together, of which the first `enforced` are enforced.
    pub fn verdict(&self, enforced: usize) -> Verdict {
        Verdict::of(self.replies.iter().map(|reply| reply.decision), enforced)
    }

    /// The places of the deciding buckets.
    pub fn buckets(&self) -> Vec<usize> {
        self.replies.iter().map(|reply| reply.bucket).collect()
    }
}

/// For each lease or place of a reply, true if it existed.
fn presence(reply: Value) -> Vec<bool> {
    let words = match reply {
        Value::Array(words) => words,
        one => vec![one],
    };
    let is_present = |word| match word {
        Value::BulkString(word) => word == b"1",
        other => panic!("{other:?} isn't a word"),
    };
    words.into_iter().map(is_present).collect()
}
