//! Discovery of the servers: sentinels know the master, and a cluster's nodes know the owners of
//! slots.
//!
//! One task of one worker does it, off the path of calls: at the start, when a call finds a moved
//! slot, while a server is out of use, and periodically.

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

/// The deadline of one discovery.
const DISCOVERY_DEADLINE: Duration = Duration::from_millis(700);
/// The pause between discoveries while a server is out of use.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The pause while all servers are in use: a master that lost its sentinels still accepts writes.
const REFRESH_PAUSE: Duration = Duration::from_secs(2);
/// The most servers queried at once.
const MAX_QUERIES: usize = 8;

/// Keeps the map of `shared` up to date until it is dropped; of several tasks, one at a time.
pub(super) async fn keep_discovering(shared: Arc<Shared>) {
    let Ok(_turn) = shared.discovery_permit.acquire().await else {
        return;
    };
    let mut informant = None;
    loop {
        let discover = timeout(DISCOVERY_DEADLINE, discover(&shared, &mut informant)).await;
        match discover.unwrap_or(Err(FaultKind::Timeout.fault())) {
            Ok(topology) => shared.apply_topology(&topology),
            Err(fault) => {
                informant = None;
                shared.discovery_failed(fault);
            }
        }
        if shared.is_up() {
            tokio::select! {
                () = shared.topology_changed.notified() => {}
                () = sleep(REFRESH_PAUSE) => {}
            }
        } else {
            sleep(RETRY_PAUSE).await
        }
        if !shared.is_up() {
            // The last informant may be cut off together with that server.
            informant = None;
        }
    }
}

async fn discover(shared: &Shared, informant: &mut Option<Connection>) -> Result<Topology, Fault> {
    let query = DiscoveryQuery::of(shared);
    if let Some(connection) = informant {
        return query.send(connection).await;
    }
    let mut queried = JoinSet::new();
    for address in query.targets(shared) {
        let query = query.clone();
        queried.spawn(async move {
            let connection = Connection::open(&address, &query.options).await?;
            let topology = query.send(&connection).await?;
            Ok((connection, topology))
        });
    }
    let mut failure = FaultKind::Connecting.fault();
    while let Some(answer) = queried.join_next().await {
        match answer {
            Ok(Ok((connection, topology))) => {
                *informant = Some(connection);
                return Ok(topology);
            }
            Ok(Err(fault)) => failure = fault,
            Err(_) => {}
        }
    }
    Err(failure)
}

/// The query for the servers.
#[derive(Clone)]
struct DiscoveryQuery {
    options: ConnectOptions,
    /// The master's name; `None` in a cluster.
    master: Option<Arc<str>>,
}

impl DiscoveryQuery {
    fn of(shared: &Shared) -> Self {
        match &shared.spec.target {
            Target::Sentinel { master, login, .. } => Self {
                options: ConnectOptions {
                    login: login.clone(),
                    database: 0,
                    mode: "sentinel",
                    ..shared.options.clone()
                },
                master: Some(Arc::clone(master)),
            },
            Target::Single(_) | Target::Cluster(_) => Self {
                options: shared.options.clone(),
                master: None,
            },
        }
    }

    /// The next nodes to query, from a random start.
    fn targets(&self, shared: &Shared) -> Vec<Address> {
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
        known.truncate(MAX_QUERIES);
        known
    }

    async fn send(&self, connection: &Connection) -> Result<Topology, Fault> {
        match &self.master {
            Some(name) => {
                let mut query = redis::cmd("SENTINEL");
                query.arg("GET-MASTER-ADDR-BY-NAME").arg(&**name);
                master(connection.send(&query).await?)
            }
            None => {
                let mut query = redis::cmd("CLUSTER");
                query.arg("SLOTS");
                slots(connection.send(&query).await?, &connection.host)
            }
        }
    }
}

/// Reads the answer to SENTINEL GET-MASTER-ADDR-BY-NAME.
fn master(answer: Value) -> Result<Topology, Fault> {
    if answer == Value::Nil {
        return Err(FaultKind::NoMaster.fault());
    }
    let (host, port): (String, u16) =
        redis::from_redis_value(answer).map_err(|error| FaultKind::Protocol.with(error))?;
    Ok(Topology::Single(Address::new(&host, port)))
}

/// Reads the answer to CLUSTER SLOTS: the first node of a range is its master. A node without a
/// host is the queried one.
fn slots(answer: Value, queried: &str) -> Result<Topology, Fault> {
    let malformed = || FaultKind::Protocol.fault();
    let ranges = redis::from_redis_value::<Vec<_>>(answer).map_err(|_| malformed())?;
    let ranges = (ranges.into_iter()).map(|range| slots_of_one(range, queried));
    let ranges: Vec<_> = ranges.collect::<Option<_>>().ok_or_else(malformed)?;
    if ranges.is_empty() {
        Err(FaultKind::ClusterDown.with("no slot is assigned"))
    } else {
        Ok(Topology::Cluster(ranges))
    }
}

fn slots_of_one(range: Vec<Value>, queried: &str) -> Option<(super::server_map::Range, Address)> {
    let mut parts = range.into_iter();
    let mut number = || {
        let number: i64 = redis::from_redis_value(parts.next()?).ok()?;
        u16::try_from(number).ok()
    };
    let (first, last) = (number()?, number()?);
    if first > last || last >= SLOTS {
        return None;
    }
    let master: Vec<Value> = redis::from_redis_value(parts.next()?).ok()?;
    let mut master = master.into_iter();
    let host: Option<String> = redis::from_redis_value(master.next()?).ok()?;
    let host = host.filter(|host| !["", "?"].contains(&host.as_str()));
    let port = redis::from_redis_value(master.next()?).ok()?;
    let address = Address::new(host.as_deref().unwrap_or(queried), port);
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
    fn impossible_slots_are_a_protocol_error() {
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
