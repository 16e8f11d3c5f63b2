//! Many commands at once, off the path of requests, with a deadline of their own.

use std::sync::Arc;

use redis::{Cmd, Value};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::fault::{Fault, FaultKind};
use super::node::Node;
use super::observer::Operation;
use super::script::{Script, ScriptWords};
use super::{Client, Shared};

/// The most commands sent before their answers are read: the server serves other clients in
/// between.
const BATCH_SIZE: usize = 256;

/// A command of a batch.
#[derive(Clone, Debug)]
pub struct Command {
    key: Box<[u8]>,
    command: Cmd,
    script: Option<Script>,
}

impl Command {
    /// A command with this key. In a cluster all its keys share a slot.
    pub fn new(key: impl AsRef<[u8]>, command: Cmd) -> Self {
        Self {
            key: key.as_ref().into(),
            command,
            script: None,
        }
    }

    /// A script with these words, of which the first is a key. In a cluster the keys share a slot.
    ///
    /// # Panics
    /// Without a key.
    pub fn script(script: &Script, words: &ScriptWords) -> Self {
        Self {
            key: words.keys().next().expect("a key").into(),
            command: script.by_sha(words),
            script: Some(script.clone()),
        }
    }
}

impl Client {
    /// Sends the commands to the servers that have their keys, and returns the answers in the same
    /// order, within [`Spec::batch_timeout`](super::Spec::batch_timeout). Each succeeds or fails by
    /// itself. A server runs its commands in order, up to the first that could not be sent. `op` is
    /// their purpose for the [`Observer`](super::Observer).
    ///
    /// # Panics
    /// As [`Client::start`].
    pub async fn batch(
        &self,
        op: Operation,
        worker: usize,
        commands: Vec<Command>,
    ) -> Vec<Result<Value, Fault>> {
        self.start(worker);
        let deadline = Instant::now() + self.0.spec.batch_timeout;
        self.0.found_servers(deadline).await;
        let mut answers: Vec<_> = commands
            .iter()
            .map(|_| Err(FaultKind::Timeout.fault()))
            .collect();
        let mut parts = JoinSet::new();
        for part in self.0.divide(commands) {
            parts.spawn(Arc::clone(&self.0).send(op, part, worker, deadline));
        }
        while let Some(part) = parts.join_next().await {
            for (place, answer) in part.unwrap_or_default() {
                answers[place] = answer;
            }
        }
        answers
    }
}

/// The commands of one server, with their places in the batch.
struct Part {
    node: Result<Arc<Node>, Fault>,
    commands: Vec<(usize, Command)>,
}

type Answers = Vec<(usize, Result<Value, Fault>)>;

impl Shared {
    fn divide(&self, commands: Vec<Command>) -> Vec<Part> {
        let map = self.map.load();
        let mut parts: Vec<Part> = Vec::new();
        for (place, command) in commands.into_iter().enumerate() {
            let node = map.route([&*command.key]).cloned();
            let is_its = |part: &&mut Part| match (&part.node, &node) {
                (Ok(a), Ok(b)) => Arc::ptr_eq(a, b),
                (Err(a), Err(b)) => a == b,
                _ => false,
            };
            match parts.iter_mut().find(is_its) {
                Some(part) => part.commands.push((place, command)),
                None => parts.push(Part {
                    node,
                    commands: vec![(place, command)],
                }),
            }
        }
        parts
    }

    async fn send(
        self: Arc<Self>,
        op: Operation,
        part: Part,
        worker: usize,
        deadline: Instant,
    ) -> Answers {
        let mut answers = Answers::with_capacity(part.commands.len());
        for chunk in part.commands.chunks(BATCH_SIZE) {
            let chunk_answers = match &part.node {
                Ok(node) => self.send_chunk(op, node, worker, deadline, chunk).await,
                Err(fault) => Err(fault.clone().unsent()),
            };
            let places = chunk.iter().map(|(place, _)| *place);
            match chunk_answers {
                Ok(chunk_answers) => answers.extend(places.zip(chunk_answers)),
                Err(fault) => {
                    let left = part.commands[answers.len()..].iter();
                    answers.extend(left.map(|(place, _)| (*place, Err(fault.clone()))));
                    break;
                }
            }
        }
        answers
    }

    async fn send_chunk(
        &self,
        op: Operation,
        node: &Arc<Node>,
        worker: usize,
        deadline: Instant,
        chunk: &[(usize, Command)],
    ) -> Result<Vec<Result<Value, Fault>>, Fault> {
        let found = self.connection(worker, deadline, || Ok(Arc::clone(node)));
        let found = found.await;
        let found = found.inspect_err(|_| self.observer.unsent(op));
        let (_, connection) = found.map_err(Fault::unsent)?;
        let started = Instant::now();
        let answers = timeout_at(deadline, exchange(&connection, chunk))
            .await
            .unwrap_or(Err(FaultKind::Timeout.fault()));
        let mut faults = answers
            .iter()
            .flatten()
            .filter_map(|one| one.as_ref().err());
        let is_moved = faults.clone().any(|fault| fault.kind == FaultKind::Moved);
        // The first answer about the server as a whole decides.
        let of_server = faults.find(|fault| fault.kind.is_server_fault());
        self.record_outcome(op, node, started, answers.as_ref().err().or(of_server));
        if is_moved {
            self.topology_changed.notify_one();
        }
        answers
    }
}

/// Sends the commands. Scripts that the server lacks are loaded, and their commands sent again.
async fn exchange(
    connection: &Connection,
    chunk: &[(usize, Command)],
) -> Result<Vec<Result<Value, Fault>>, Fault> {
    let mut answers = send(connection, chunk.iter().map(|(_, command)| command)).await?;
    let lacks =
        |answer: &Result<Value, Fault>| matches!(answer, Err(fault) if fault.is_unknown_script());
    let missed: Vec<usize> = (0..answers.len())
        .filter(|at| lacks(&answers[*at]))
        .collect();
    let mut given: Vec<&Script> = Vec::new();
    for script in missed.iter().filter_map(|at| chunk[*at].1.script.as_ref()) {
        if !given.contains(&script) {
            connection.send(&script.load()).await?;
            given.push(script);
        }
    }
    if !given.is_empty() {
        let again = send(connection, missed.iter().map(|at| &chunk[*at].1)).await?;
        for (at, answer) in missed.into_iter().zip(again) {
            answers[at] = answer;
        }
    }
    Ok(answers)
}

async fn send(
    connection: &Connection,
    commands: impl Iterator<Item = &Command>,
) -> Result<Vec<Result<Value, Fault>>, Fault> {
    let mut pipeline = redis::pipe();
    for command in commands {
        pipeline.add_command(command.command.clone());
    }
    connection.send_all(&pipeline).await
}
