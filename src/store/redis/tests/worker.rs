//! A client of the Redis store on a runtime of its own, which asserts that no call exceeds its
//! deadline.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::store::redis::client::{
    Address, Caller, Client, Command, DEFAULT_PREFIX, Fault, FaultKind, Login, NAME, Operation,
    Password, Script, ScriptWords, Spec, State, Target, dial,
};
use crate::telemetry::metrics::StoreMetrics;
use crate::telemetry::registry::Registry;
use redis::Value;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::support::redis::{SLACK, SOON};
use crate::support::{DEADLINE, now, wait_for};

/// The most that a configuration may say, since tests share their machine.
pub const TIMEOUT: Duration = Duration::from_secs(1);

/// A client with one worker, and its log.
pub struct Store {
    /// The client.
    pub client: Arc<Client>,
    /// Its runtime.
    pub runtime: Runtime,
    /// Its metrics.
    pub registry: Registry,
    log: Log,
    /// Adds its argument to its key.
    pub add: Script,
}

#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no holder panics").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Store {
    pub fn at(address: SocketAddr) -> Self {
        Self::with(single(address))
    }

    pub fn with(spec: Spec) -> Self {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("sluicegate=info")
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let dispatch = tracing::Dispatch::new(subscriber);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            // For as long as the thread lives.
            .on_thread_start(move || std::mem::forget(tracing::dispatcher::set_default(&dispatch)))
            .build()
            .expect("a runtime");
        let registry = Registry::default();
        let metrics = Arc::new(StoreMetrics::new(&registry));
        let spec = Spec {
            name: NAME,
            prefix: DEFAULT_PREFIX.into(),
            timeout: TIMEOUT,
            ..spec
        };
        let client = Arc::new(Client::new(spec, 1, dial, metrics));
        Self {
            client,
            runtime,
            registry,
            log,
            add: Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])"),
        }
    }

    /// Adds 1 to a key, and asserts a result in time.
    pub fn call_key(&self, key: &str) -> Result<Value, Fault> {
        self.run(&self.add, key)
    }

    pub fn run(&self, script: &Script, key: &str) -> Result<Value, Fault> {
        let started = now();
        let (client, script, key) = (Arc::clone(&self.client), script.clone(), key.to_owned());
        // On a thread of the runtime, as a worker does it, and where the log is captured.
        let called = async move { call(&client, 0, &script, &words(&[&key], 1)).await };
        let answer = self.runtime.block_on(self.runtime.spawn(called));
        let took = started.elapsed();
        assert!(took < TIMEOUT + SLACK, "a call took {took:?}");
        answer.expect("no call panics")
    }

    /// Returns true if it is connected in time, to servers that have this script.
    pub fn connects_with(&self, script: &Script) -> bool {
        self.client.load_scripts(std::slice::from_ref(script));
        let connected = async { tokio::time::timeout(DEADLINE, self.client.connected(0..1)).await };
        self.runtime.block_on(connected).is_ok()
    }

    pub fn batch(&self, commands: Vec<Command>) -> Vec<Result<Value, Fault>> {
        let client = Arc::clone(&self.client);
        let batch = async move { client.batch(Operation::Background, 0, commands).await };
        let answers = self.runtime.block_on(self.runtime.spawn(batch));
        answers.expect("no batch panics")
    }

    pub fn call(&self) -> Result<Value, Fault> {
        self.call_key("sluicegate:n")
    }

    /// Calls until a call succeeds, and the state reports it.
    pub fn wait_up(&self) {
        let started = now();
        wait_for("the store to be up", || {
            let answer = self.call();
            (answer.is_ok() && self.client.state() == State::Up).then_some(())
        });
        let took = started.elapsed();
        assert!(took < SOON, "it took {took:?} until all was well");
        assert!(self.registry.render().contains("\nsluicegate_store_up 1\n"));
    }

    /// Calls until the state reports this fault; calls then fail with it at once.
    pub fn wait_down(&self, kind: FaultKind) -> Fault {
        let fault = wait_for(&format!("the store to be down by {kind:?}"), || {
            assert!(self.call().is_err() || self.fault().is_none());
            self.fault().filter(|fault| fault.kind == kind)
        });
        assert!(self.registry.render().contains("\nsluicegate_store_up 0\n"));
        fault
    }

    pub fn fault(&self) -> Option<Fault> {
        match self.client.state() {
            State::Down { fault, .. } => Some(fault),
            State::Starting | State::Up => None,
        }
    }

    pub fn lines(&self) -> Vec<String> {
        let bytes = self.log.0.lock().expect("no holder panics").clone();
        let text = String::from_utf8(bytes).expect("a text");
        text.lines().map(str::to_owned).collect()
    }

    /// Asserts that the log has exactly one line with each of these texts, in this order; `|`
    /// separates alternatives.
    #[track_caller]
    pub fn said(&self, texts: &[&str]) {
        let lines = self.lines();
        let is_so = lines.len() == texts.len()
            && lines.iter().zip(texts).all(|(line, texts)| {
                let mut texts = texts.split('|');
                texts.any(|text| line.contains(text))
            });
        assert!(is_so, "{texts:?} was to be said, not\n{}", lines.join("\n"));
    }
}

/// A call of the first worker for no known client.
pub const ANYBODY: Caller = Caller {
    worker: 0,
    client: None,
};

pub const UP: &str = "is in use";

pub fn single(address: SocketAddr) -> Spec {
    let address = Address::new(&address.ip().to_string(), address.port());
    Spec::new(Target::Single(address))
}

pub fn login(user: Option<&str>, password: &str) -> Login {
    Login {
        user: user.map(Into::into),
        password: Some(Password::new(password)),
    }
}

/// Runs a script within [`Spec::timeout`].
pub async fn call(
    client: &Client,
    worker: usize,
    script: &Script,
    words: &ScriptWords,
) -> Result<Value, Fault> {
    let deadline = Instant::now() + client.spec().timeout;
    let caller = Caller { worker, ..ANYBODY };
    let called = client.call_by(deadline, caller, script, words, || false);
    called.await
}

/// These keys and this argument.
pub fn words(keys: &[&str], argument: u64) -> ScriptWords {
    let mut words = ScriptWords::default();
    keys.iter().for_each(|key| words.key(key.as_bytes()));
    words.number(argument);
    words
}
