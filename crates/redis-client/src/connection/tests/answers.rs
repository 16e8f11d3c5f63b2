//! Answers of a server that is a stream of bytes, for the fuzzer.

use redis::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Address, Connection, Fault, check_hello};

/// Sends so many commands over a stream, and reads the first answer as one to HELLO, too.
///
/// # Errors
/// As of any command.
pub async fn answers(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    commands: usize,
) -> Result<Vec<Result<Value, Fault>>, Fault> {
    let address = Address {
        host: "fuzz".into(),
        port: 1,
    };
    let connection = Connection::over(&address, stream).await?;
    let mut pipeline = redis::pipe();
    for _ in 0..commands {
        pipeline.cmd("PING");
    }
    let answers = connection.send_all(&pipeline).await?;
    if let Some(Ok(first)) = answers.first() {
        let _ = check_hello(first.clone(), "standalone");
    }
    Ok(answers)
}
