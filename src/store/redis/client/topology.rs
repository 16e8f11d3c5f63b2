//! Finding the servers: sentinels know the master, and the nodes of a cluster know who has which slots.
//!
//! One task of one worker does it, off the path of calls: at the start, when a call finds a slot moved, while a server
//! is out of use, and now and then.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connection::{ConnectOptions, Connection};
use super::fault::{Fault, FaultKind};
use super::server_map::Topology;
use super::slot::SLOTS;
use super::spec::{Address, Target};
use super::{Shared, random};

/// The longest that looking may take.
const DEADLINE: Duration = Duration::from_millis(700);
/// The pause between two looks while something is amiss.
const HURRIED: Duration = Duration::from_millis(100);
/// The same while all is well: a master that lost its sentinels still takes what it is sent.
const LEISURELY: Duration = Duration::from_secs(2);
/// So many are asked at once.
const ASKED: usize = 8;

/// Keeps the map of `shared` true until it is dropped; of several, one at a time.
pub(super) async fn follow(shared: Arc<Shared>) {
    let Ok(_turn) = shared.looking.acquire().await else {
        return;
    };
    let mut informant = None;
    loop {
        let look = timeout(DEADLINE, look(&shared, &mut informant)).await;
        match look.unwrap_or(Err(FaultKind::Timeout.bare())) {
            Ok(layout) => shared.arrange(&layout),
            Err(fault) => {
                informant = None;
                shared.lost_sight(fault);
            }
        }
        match shared.all_well() {
            true => {
                tokio::select! {
                    () = shared.amiss.notified() => {}
                    () = sleep(LEISURELY) => {}
                }
            }
            false => sleep(HURRIED).await,
        }
        if !shared.all_well() {
            // Whoever it was may be cut off with the server that is.
            informant = None;
        }
    }
}

async fn look(shared: &Shared, informant: &mut Option<Connection>) -> Result<Topology, Fault> {
    let question = DiscoveryQuery::of(shared);
    if let Some(live) = informant {
        return question.put(live).await;
    }
    let mut asked = JoinSet::new();
    for address in question.whom(shared) {
        let question = question.clone();
        asked.spawn(async move {
            let live = Connection::open(&address, &question.dialect).await?;
            let layout = question.put(&live).await?;
            Ok((live, layout))
        });
    }
    let mut failure = FaultKind::Connecting.bare();
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok(Ok((live, layout))) => {
                *informant = Some(live);
                return Ok(layout);
            }
            Ok(Err(fault)) => failure = fault,
            Err(_) => {}
        }
    }
    Err(failure)
}

/// What is asked, and how.
#[derive(Clone)]
struct DiscoveryQuery {
    dialect: ConnectOptions,
    /// The master's name; none in a cluster.
    master: Option<Arc<str>>,
}

impl DiscoveryQuery {
    fn of(shared: &Shared) -> Self {
        match &shared.spec.target {
            Target::Sentinel { master, login, .. } => Self {
                dialect: ConnectOptions {
                    login: login.clone(),
                    database: 0,
                    tls: shared.dialect.tls.clone(),
                    mode: "sentinel",
                },
                master: Some(Arc::clone(master)),
            },
            Target::Single(_) | Target::Cluster(_) => Self {
                dialect: shared.dialect.clone(),
                master: None,
            },
        }
    }

    /// Some of those who may know, always others.
    fn whom(&self, shared: &Shared) -> Vec<Address> {
        let mut known = shared.spec.seeds().to_vec();
        if self.master.is_none() {
            let nodes = shared.map.load();
            let nodes = nodes.nodes.iter().map(|node| node.address.clone());
            known.extend(nodes);
        }
        known.sort_by(|a, b| (&a.host, a.port).cmp(&(&b.host, b.port)));
        known.dedup();
        let first = (u128::from(random()) * known.len() as u128) >> 64;
        known.rotate_left(first as usize);
        known.truncate(ASKED);
        known
    }

    async fn put(&self, live: &Connection) -> Result<Topology, Fault> {
        match &self.master {
            Some(name) => {
                let mut question = redis::cmd("SENTINEL");
                question.arg("GET-MASTER-ADDR-BY-NAME").arg(&**name);
                master(live.send(&question).await?)
            }
            None => {
                let mut question = redis::cmd("CLUSTER");
                question.arg("SLOTS");
                slots(live.send(&question).await?, live.host())
            }
        }
    }
}

/// The answer to SENTINEL GET-MASTER-ADDR-BY-NAME.
fn master(answer: Value) -> Result<Topology, Fault> {
    if answer == Value::Nil {
        return Err(FaultKind::NoMaster.bare());
    }
    let (host, port): (String, u16) =
        redis::from_redis_value(answer).map_err(|error| FaultKind::Protocol.with(error))?;
    Ok(Topology::Single(Address::new(&host, port)))
}

/// The answer to CLUSTER SLOTS, of which the first node of each range is its master. One without a host is the one that
/// was asked.
fn slots(answer: Value, asked: &str) -> Result<Topology, Fault> {
    let Value::Array(ranges) = answer else {
        return Err(FaultKind::Protocol.bare());
    };
    let ranges = ranges
        .into_iter()
        .map(|range| slots_of_one(range, asked))
        .collect::<Option<Vec<_>>>()
        .ok_or(FaultKind::Protocol.bare())?;
    match ranges.is_empty() {
        true => Err(FaultKind::ClusterDown.with("no slot is assigned")),
        false => Ok(Topology::Cluster(ranges)),
    }
}

fn slots_of_one(range: Value, asked: &str) -> Option<(super::server_map::Range, Address)> {
    let Value::Array(parts) = range else {
        return None;
    };
    let mut parts = parts.into_iter();
    let mut number = || match parts.next() {
        Some(Value::Int(number)) => u16::try_from(number).ok(),
        _ => None,
    };
    let (first, last) = (number()?, number()?);
    if first > last || last >= SLOTS {
        return None;
    }
    let Some(Value::Array(master)) = parts.next() else {
        return None;
    };
    let mut master = master.into_iter();
    let host: Option<String> = redis::from_redis_value(master.next()?).ok()?;
    let host = host.filter(|host| !["", "?"].contains(&host.as_str()));
    let port = redis::from_redis_value(master.next()?).ok()?;
    let address = Address::new(host.as_deref().unwrap_or(asked), port);
    Some((first..=last, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64) -> Value {
        let host = Value::BulkString(b"a".to_vec());
        let master = Value::Array(vec![host, Value::Int(1)]);
        Value::Array(vec![Value::Int(first), Value::Int(last), master])
    }

    #[test]
    fn slots_that_there_cannot_be_are_no_answer() {
        let ranges = |all: &[(i64, i64)]| {
            let ranges = all.iter().map(|(first, last)| range(*first, *last));
            slots(Value::Array(ranges.collect()), "b").map_err(|fault| fault.kind)
        };
        let address = Address::new("a", 1);
        let all = vec![(0..=5, address.clone()), (6..=16_383, address)];
        assert_eq!(ranges(&[(0, 5), (6, 16_383)]), Ok(Topology::Cluster(all)));
        for wrong in [(5, 4), (0, 16_384), (-1, 5), (20_000, 20_001), (0, 65_536)] {
            assert_eq!(
                ranges(&[(0, 4), wrong]),
                Err(FaultKind::Protocol),
                "{wrong:?}"
            );
        }
        assert_eq!(ranges(&[]), Err(FaultKind::ClusterDown));
    }
}
