//! Connections: name resolution, TCP, TLS, and the handshake with the server. Retries are not here.

#[path = "connection/tests/answers.rs"]
pub(super) mod answers;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, Value};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::fault::{Fault, FaultKind};
use super::places::{MAX_UNDER_WAY, Places};
use super::script::{Script, ScriptWords};
use super::spec::{Address, Login, Tls};

/// The deadline of connecting, with TLS and handshake. With the longest pause between probes it
/// stays well below a second.
pub const CONNECT_DEADLINE: Duration = Duration::from_millis(500);
/// The deadline of the TLS handshake: shorter, so that the error names it.
const HANDSHAKE_DEADLINE: Duration = Duration::from_millis(400);

/// The oldest supported version of Redis.
const OLDEST_VERSION: (u32, u32) = (6, 2);

/// Connects to a server until the deadline. [`Fault::of_connecting`] says what an error of the system means.
pub type Dial = fn(Address, Instant) -> Dialling;
/// A connection that is being made.
pub type Dialling = Pin<Box<dyn Future<Output = Result<TcpStream, Fault>> + Send>>;

/// The login and mode for one kind of server.
#[derive(Clone, Debug)]
pub(super) struct ConnectOptions {
    pub dial: Dial,
    pub name: &'static str,
    pub login: Login,
    pub database: u32,
    pub tls: Option<Tls>,
    /// The `mode` in the server's answer to HELLO.
    pub mode: &'static str,
}

/// A connection and its driver task, which ends with it.
#[derive(Debug)]
pub(super) struct Connection {
    connection: MultiplexedConnection,
    driver: AbortHandle,
    ended: watch::Receiver<()>,
    pub places: Arc<Places>,
    pub host: Arc<str>,
}

impl Connection {
    /// Connects to a server, and checks its kind, its version and our login.
    pub(super) async fn open(address: &Address, options: &ConnectOptions) -> Result<Self, Fault> {
        let deadline = Instant::now() + CONNECT_DEADLINE;
        timeout_at(deadline, Self::open_until(deadline, address, options))
            .await
            .unwrap_or(Err(FaultKind::Timeout.fault()))
    }

    async fn open_until(
        deadline: Instant,
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<Self, Fault> {
        let stream = (options.dial)(address.clone(), deadline).await?;
        let live = match &options.tls {
            None => Self::over(address, stream).await?,
            Some(Tls(config)) => {
                // Without the dot that ends an absolute name (RFC 6066 section 3).
                let name = address.host.strip_suffix('.').unwrap_or(&address.host);
                let name = ServerName::try_from(name.to_owned())
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
        live.log_in(options).await?;
        Ok(live)
    }

    async fn over(
        address: &Address,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, Fault> {
        // The deadlines are ours. `log_in` does the login, since its errors say more than the
        // client's.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(MAX_UNDER_WAY);
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
            places: Arc::default(),
            host: Arc::clone(&address.host),
        })
    }

    /// Sends HELLO and SELECT.
    async fn log_in(&self, options: &ConnectOptions) -> Result<(), Fault> {
        let answer = self.send(&hello(options)).await;
        check_hello(answer.map_err(login_fault)?, options.mode)?;
        if options.database != 0 {
            let mut select = redis::cmd("SELECT");
            select.arg(options.database);
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

    /// Sends a command and waits for the answer, without a deadline.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, Fault> {
        let mut connection = self.connection.clone();
        let answer = connection.send_packed_command(command).await;
        checked(answer)
    }

    /// Sends commands as one pipeline, without a deadline.
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

    /// Runs a script, with its text if the server lacks it.
    pub(super) async fn run(&self, script: &Script, words: &ScriptWords) -> Result<Value, Fault> {
        match self.send(&script.by_sha(words)).await {
            Err(fault) if fault.is_unknown_script() => self.send(&script.by_text(words)).await,
            answer => answer,
        }
    }

    /// Runs a script after ASKING, on a server that is importing the slot.
    pub(super) async fn run_after_asking(
        &self,
        script: &Script,
        words: &ScriptWords,
    ) -> Result<Value, Fault> {
        let mut pipeline = redis::pipe();
        // EVAL: a second ASKING would be another round trip of something rare.
        pipeline.cmd("ASKING").add_command(script.by_text(words));
        let mut answers = self.send_all(&pipeline).await?;
        answers.pop().unwrap_or(Err(FaultKind::Protocol.fault()))
    }

    /// Waits for the end of the connection.
    pub(super) async fn ended(&self) {
        let mut ended = self.ended.clone();
        // The channel carries no value: its error shows that the driver is gone.
        let _ = ended.changed().await;
    }

    /// Closes the connection and fails its calls.
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

fn hello(ConnectOptions { login, name, .. }: &ConnectOptions) -> Cmd {
    let mut hello = redis::cmd("HELLO");
    hello.arg(2);
    if let Some(password) = &login.password {
        let user = login.user.as_deref().unwrap_or("default");
        hello.arg("AUTH").arg(user).arg(password.reveal());
    }
    hello.arg("SETNAME").arg(name);
    hello
}

/// Translates the fault of a first answer, which may come from no Redis at all.
fn login_fault(fault: Fault) -> Fault {
    let detail = fault.detail.as_deref().unwrap_or_default();
    let kind = match fault.kind {
        FaultKind::Protocol => FaultKind::NotRedis,
        FaultKind::Lost => {
            return FaultKind::Lost.with("before it said who it is; a port with TLS is rediss://");
        }
        FaultKind::Script if detail.contains("unknown command") => FaultKind::TooOld,
        FaultKind::Script if detail.contains("HELLO must be called") => FaultKind::Password,
        // Another server that speaks RESP without HELLO.
        FaultKind::Script => FaultKind::NotRedis,
        kind => kind,
    };
    Fault { kind, ..fault }
}

/// Checks kind and version in the server's answer to HELLO. A missing field passes.
fn check_hello(answer: Value, mode: &'static str) -> Result<(), Fault> {
    if answer == Value::Nil {
        return Err(FaultKind::NotRedis.fault());
    }
    let fields = redis::from_redis_value::<HashMap<String, Value>>(answer);
    let mut fields = fields.map_err(|_| FaultKind::NotRedis.fault())?;
    let mut text = |name| -> String {
        let value = fields.remove(name);
        let text = value.and_then(|value| redis::from_redis_value(value).ok());
        text.unwrap_or_default()
    };
    let (version, found) = (text("version"), text("mode"));
    if !found.is_empty() && found != mode {
        return Err(FaultKind::WrongKind.with(format_args!("{found} instead of {mode}")));
    }
    let mut numbers = version.split('.').map(|part| part.parse::<u32>());
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < OLDEST_VERSION => {
            Err(FaultKind::TooOld.with(&version))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(version: &str, mode: &str) -> Value {
        let text = |text: &str| Value::BulkString(text.into());
        let flat = ["server", "redis", "version", version, "mode", mode];
        Value::Array(flat.map(text).into())
    }

    #[test]
    fn servers_of_another_kind_or_too_old_are_refused() {
        let kind = |hello| {
            check_hello(hello, "standalone")
                .err()
                .map(|fault| fault.kind)
        };
        for version in ["6.2.0", "7.0.15", "10.0", "8.1-rc1", "", "unstable"] {
            assert_eq!(kind(hello(version, "standalone")), None, "{version}");
        }
        for version in ["6.0.16", "5.9", "2.8.19"] {
            assert_eq!(kind(hello(version, "standalone")), Some(FaultKind::TooOld));
        }
        for mode in ["sentinel", "cluster"] {
            assert_eq!(kind(hello("7.0.0", mode)), Some(FaultKind::WrongKind));
        }
        for answer in [Value::Okay, Value::Nil] {
            assert_eq!(kind(answer), Some(FaultKind::NotRedis));
        }
    }
}
