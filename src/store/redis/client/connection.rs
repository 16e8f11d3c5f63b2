//! Making a connection: name, TCP, TLS, and who is there. Trying again is not here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, Value};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::fault::{Fault, FaultKind};
use super::script::Script;
use super::spec::{Address, Login};
use crate::net::dial::{DialError, dial_host};

/// The longest that connecting may take, with TLS and everything: together with the longest pause between two tries well
/// below a second.
pub(super) const CONNECT_DEADLINE: Duration = Duration::from_millis(500);
/// Below that, so that it is told what takes so long.
const HANDSHAKE_DEADLINE: Duration = Duration::from_millis(400);

/// How long an address has to answer before the next is tried beside it: four addresses that are dead leave time for a
/// fifth. RFC 8305 section 5 allows no less.
const HEAD_START: Duration = Duration::from_millis(100);

/// The most calls that wait for an answer on one connection. At the default deadline that is 10,000 calls a second of one
/// worker, where each takes as long as it may.
pub(super) const MOST_IN_FLIGHT: usize = 1_024;

/// The oldest version of Redis that will do.
const OLDEST: (u32, u32) = (6, 2);

/// How to speak to servers of one kind.
#[derive(Clone, Debug)]
pub(super) struct ConnectOptions {
    pub login: Login,
    pub database: u32,
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// What HELLO calls the kind of server.
    pub mode: &'static str,
}

/// A connection, and the task that runs it, which ends with this.
#[derive(Debug)]
pub(super) struct Connection {
    connection: MultiplexedConnection,
    driver: AbortHandle,
    ended: watch::Receiver<()>,
    in_flight: AtomicUsize,
    host: Arc<str>,
}

/// A place among the calls under way.
#[derive(Debug)]
pub(super) struct InFlightPermit<'a>(&'a AtomicUsize);

impl Drop for InFlightPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Connection {
    /// A connection to a server that is of the right kind, is new enough and takes our login.
    pub(super) async fn open(address: &Address, dialect: &ConnectOptions) -> Result<Self, Fault> {
        timeout(CONNECT_DEADLINE, Self::open_in_time(address, dialect))
            .await
            .unwrap_or(Err(FaultKind::Timeout.bare()))
    }

    async fn open_in_time(address: &Address, dialect: &ConnectOptions) -> Result<Self, Fault> {
        let stream = dial_host(&address.host, address.port, HEAD_START, None).await;
        let stream = stream.map_err(|error| match error {
            DialError::Resolve(error) => FaultKind::Name.with(error),
            DialError::Connect(error) => Fault::of_connecting(&error),
        })?;
        let live = match &dialect.tls {
            None => Self::over(address, stream).await?,
            Some(config) => {
                let name = ServerName::try_from(address.host.to_string())
                    .map_err(|error| FaultKind::Tls.with(error))?;
                let connector = TlsConnector::from(Arc::clone(config));
                let shaking_hands = timeout(HANDSHAKE_DEADLINE, connector.connect(name, stream));
                let silent = |_| {
                    FaultKind::Timeout.with("in a TLS handshake; a port without TLS is redis://")
                };
                let stream = shaking_hands.await.map_err(silent)?;
                let stream = stream.map_err(|error| FaultKind::Tls.with(error))?;
                Self::over(address, stream).await?
            }
        };
        live.introduce(dialect).await?;
        Ok(live)
    }

    async fn over(
        address: &Address,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, Fault> {
        // The deadline is ours, and who we are is said in `introduce`, whose errors say more than the client's own.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(MOST_IN_FLIGHT);
        let nobody = RedisConnectionInfo::default().set_skip_set_lib_name();
        let (connection, driver) = MultiplexedConnection::new_with_config(&nobody, stream, config)
            .await
            .map_err(|error| Fault::of(&error))?;
        let (sender, ended) = watch::channel(());
        let driver = tokio::spawn(async move {
            let _ended_with_this = sender;
            driver.await;
        });
        Ok(Self {
            connection,
            driver: driver.abort_handle(),
            ended,
            in_flight: AtomicUsize::new(0),
            host: Arc::clone(&address.host),
        })
    }

    /// HELLO and SELECT.
    async fn introduce(&self, dialect: &ConnectOptions) -> Result<(), Fault> {
        let hello = self.send(&hello(&dialect.login)).await;
        let hello = Hello::of(hello.map_err(in_introduction)?)?;
        hello.check(dialect.mode)?;
        if dialect.database != 0 {
            let mut select = redis::cmd("SELECT");
            select.arg(dialect.database);
            self.send(&select).await.map_err(|fault| match fault.kind {
                FaultKind::Script => Fault {
                    kind: FaultKind::Database,
                    ..fault
                },
                _ => fault,
            })?;
        }
        Ok(())
    }

    /// The answer to a command, whenever it comes.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, Fault> {
        let mut connection = self.connection.clone();
        let answer = connection.send_packed_command(command).await;
        checked(answer)
    }

    /// The answers to commands that are sent as one.
    pub(super) async fn send_all(
        &self,
        pipeline: &redis::Pipeline,
    ) -> Result<Vec<Result<Value, Fault>>, Fault> {
        let mut connection = self.connection.clone();
        let answers = connection
            .send_packed_commands(pipeline, 0, pipeline.len())
            .await;
        let answers = answers.map_err(|error| Fault::of(&error))?;
        Ok(answers
            .into_iter()
            .map(|answer| checked(Ok(answer)))
            .collect())
    }

    /// The answer of a script, which the server is given if it does not have it.
    pub(super) async fn run<K: AsRef<[u8]>, A: redis::ToRedisArgs>(
        &self,
        script: &Script,
        keys: &[K],
        args: &[A],
    ) -> Result<Value, Fault> {
        match self.send(&script.by_sha(keys, args)).await {
            Err(fault) if fault.is_unknown_script() => self.send(&script.by_code(keys, args)).await,
            answer => answer,
        }
    }

    /// The same where a slot is being moved to the server, which has it only for those that ask.
    pub(super) async fn ask<K: AsRef<[u8]>, A: redis::ToRedisArgs>(
        &self,
        script: &Script,
        keys: &[K],
        args: &[A],
    ) -> Result<Value, Fault> {
        let mut pipeline = redis::pipe();
        // EVAL, as asking twice would be one more round trip of something rare.
        pipeline
            .cmd("ASKING")
            .add_command(script.by_code(keys, args));
        let mut answers = self.send_all(&pipeline).await?;
        answers.pop().unwrap_or(Err(FaultKind::Protocol.bare()))
    }

    /// The host that was connected to.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// A place for a call, if there is one.
    pub(super) fn enter(&self) -> Result<InFlightPermit<'_>, Fault> {
        let place = InFlightPermit(&self.in_flight);
        match self.in_flight.fetch_add(1, Relaxed) {
            MOST_IN_FLIGHT.. => Err(FaultKind::Crowded.bare()),
            _ => Ok(place),
        }
    }

    /// Returns when the connection has ended.
    pub(super) async fn ended(&self) {
        let mut ended = self.ended.clone();
        // Nothing is ever sent: the error says that the driver is gone.
        let _ = ended.changed().await;
    }

    /// Ends it, and every call on it.
    pub(super) fn close(&self) {
        self.driver.abort();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn checked(answer: redis::RedisResult<Value>) -> Result<Value, Fault> {
    match answer {
        Ok(Value::ServerError(error)) => Err(Fault::of(&error.into())),
        Ok(answer) => Ok(answer),
        Err(error) => Err(Fault::of(&error)),
    }
}

fn hello(login: &Login) -> Cmd {
    let mut hello = redis::cmd("HELLO");
    hello.arg(2);
    if let Some(password) = &login.password {
        let user = login.user.as_deref().unwrap_or("default");
        hello.arg("AUTH").arg(user).arg(password.reveal());
    }
    hello.arg("SETNAME").arg("sluicegate");
    hello
}

/// What a first answer means, which comes from somebody who may be no Redis at all.
fn in_introduction(fault: Fault) -> Fault {
    let detail = fault.detail.as_deref().unwrap_or_default();
    let kind = match fault.kind {
        FaultKind::Protocol => FaultKind::NotRedis,
        FaultKind::Lost => {
            return FaultKind::Lost.with("before it said who it is; a port with TLS is rediss://");
        }
        FaultKind::Script if detail.contains("unknown command") => FaultKind::TooOld,
        FaultKind::Script if detail.contains("HELLO must be called") => FaultKind::Password,
        // Whatever else speaks RESP and knows no HELLO.
        FaultKind::Script => FaultKind::NotRedis,
        kind => kind,
    };
    Fault { kind, ..fault }
}

/// What a server says of itself.
#[derive(Debug, Default)]
struct Hello {
    version: String,
    mode: String,
}

impl Hello {
    fn of(answer: Value) -> Result<Self, Fault> {
        let pairs: Vec<(Value, Value)> = match answer {
            Value::Map(pairs) => pairs,
            Value::Array(flat) => {
                let mut flat = flat.into_iter();
                std::iter::from_fn(|| Some((flat.next()?, flat.next()?))).collect()
            }
            _ => return Err(FaultKind::NotRedis.bare()),
        };
        let text = |value| redis::from_redis_value::<String>(value).unwrap_or_default();
        let mut hello = Self::default();
        for (name, value) in pairs {
            match text(name).as_str() {
                "version" => hello.version = text(value),
                "mode" => hello.mode = text(value),
                _ => {}
            }
        }
        Ok(hello)
    }

    /// Whether this is a server of the right kind and age. What it does not say is not held against it.
    fn check(&self, mode: &'static str) -> Result<(), Fault> {
        if !self.mode.is_empty() && self.mode != mode {
            let found = format_args!("{} instead of {mode}", self.mode).to_string();
            return Err(FaultKind::WrongKind.with(found));
        }
        let mut numbers = self.version.split('.').map(|part| part.parse::<u32>());
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < OLDEST => {
                Err(FaultKind::TooOld.with(&self.version))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::net::dial::dial;
    use crate::net::dial::silent::Silent;

    #[tokio::test]
    async fn dead_addresses_before_one_that_answers_do_not_use_up_the_deadline() {
        let dead = [(); 2].map(|()| Silent::new());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let good = listener.local_addr().expect("it listens");
        let addresses = dead.iter().map(|one| one.address).chain([good]);
        assert!(HEAD_START * 4 < CONNECT_DEADLINE);
        // A system gives up a dead address after minutes.
        let reached = timeout(Duration::from_secs(10), dial(addresses, HEAD_START, None)).await;
        let stream = reached.expect("in time").expect("one answers");
        assert_eq!(stream.peer_addr().expect("it is connected"), good);
    }

    fn hello(version: &str, mode: &str) -> Hello {
        let text = |text: &str| Value::BulkString(text.into());
        let flat = ["server", "redis", "version", version, "mode", mode];
        Hello::of(Value::Array(flat.map(text).into())).expect("a HELLO")
    }

    #[test]
    fn only_servers_of_the_right_kind_and_age_will_do() {
        let kind = |hello: Hello| hello.check("standalone").err().map(|fault| fault.kind);
        for version in ["6.2.0", "7.0.15", "10.0", "8.1-rc1", "", "unstable"] {
            assert_eq!(kind(hello(version, "standalone")), None, "{version}");
        }
        for version in ["6.0.16", "5.9", "2.8.19"] {
            assert_eq!(kind(hello(version, "standalone")), Some(FaultKind::TooOld));
        }
        for mode in ["sentinel", "cluster"] {
            assert_eq!(kind(hello("7.0.0", mode)), Some(FaultKind::WrongKind));
        }
        let not = Hello::of(Value::Okay).expect_err("no HELLO").kind;
        assert_eq!(not, FaultKind::NotRedis);
    }
}
