//! Name resolution by the system, on a bounded number of threads: a resolver that hangs holds up
//! callers until their deadlines, and takes no more than those threads. Caches nothing.
//!
//! musl, which static builds have, fails a lookup of both families if the answer for one of them is
//! an error or is lost, and if a search domain fails. So what fails, or takes long, is asked in parts.

use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use std::{io, thread};

use derive_more::Debug;
use dns_lookup::{AddrFamily, AddrInfoHints, SockType, getaddrinfo};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// The most lookups that run at a time, each on a thread of its own.
const MAX_THREADS: usize = 64;

/// The head start of a lookup before the next part is asked beside it.
const HEAD_START: Duration = Duration::from_millis(300);

/// The system's resolver, which upstreams and Redis share.
pub(crate) static SYSTEM: LazyLock<Resolver> =
    LazyLock::new(|| Resolver::new(Box::new(ask_system)));

/// The addresses that a lookup asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    Both,
    V4,
    V6,
}

/// A name and the addresses to find.
type Query = (Arc<str>, Family);

/// The addresses of a name, with port 0.
type Addresses = Result<Arc<[SocketAddr]>, Arc<io::Error>>;

/// A function that asks the system for the addresses of a name, and may block.
pub(crate) type LookUp = Box<dyn Fn(&str, Family) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

fn ask_system(name: &str, family: Family) -> io::Result<Vec<SocketAddr>> {
    let family = match family {
        Family::Both => return Ok((name, 0).to_socket_addrs()?.collect()),
        Family::V4 => AddrFamily::Inet,
        Family::V6 => AddrFamily::Inet6,
    };
    let hints = AddrInfoHints {
        address: family.into(),
        socktype: SockType::Stream.into(),
        ..AddrInfoHints::default()
    };
    let found = getaddrinfo(Some(name), None, Some(hints))?;
    found.map(|one| Ok(one?.sockaddr)).collect()
}

/// Finds the addresses of names. Callers that ask for one name at a time share its lookup.
#[derive(Debug)]
pub(crate) struct Resolver {
    #[debug(skip)]
    look_up: LookUp,
    #[debug(skip)]
    queue: Mutex<Queue>,
}

/// The lookups that wait or run.
#[derive(Default)]
struct Queue {
    /// At most one lookup for each query.
    lookups: HashMap<Query, watch::Sender<Option<Addresses>>>,
    /// The queries whose lookups wait for a thread.
    waiting: VecDeque<Query>,
    threads: usize,
}

impl Resolver {
    pub(crate) fn new(look_up: LookUp) -> Self {
        Resolver {
            look_up,
            queue: Mutex::default(),
        }
    }

    /// The addresses of `host`, a name or an address, in the order of the system's preference
    /// (RFC 6724). If the lookup fails, or has not ended after [`HEAD_START`], each family is asked
    /// by itself, and then the name without the search domains, as glibc does.
    ///
    /// # Errors
    /// The error of the first lookup; [`io::ErrorKind::TimedOut`] at the deadline.
    pub(crate) async fn resolve(
        &'static self,
        host: &str,
        port: u16,
        deadline: Instant,
    ) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let absolute = (!host.ends_with('.')).then(|| format!("{host}.").into());
        let names = [Some(Arc::from(host)), absolute].into_iter().flatten();
        let families = [Family::Both, Family::V4, Family::V6];
        let mut queries = names.flat_map(|name| families.map(|family| (Arc::clone(&name), family)));
        let (mut lookups, mut failure) = (JoinSet::<Addresses>::new(), None);
        loop {
            let mut patience = deadline;
            if let Some(query) = queries.next() {
                let mut lookup = self.join(query)?;
                lookups.spawn(async move {
                    let found = lookup.wait_for(Option::is_some).await;
                    let found = found.map_err(|_| Arc::new(io::ErrorKind::Other.into()))?;
                    found.clone().expect("the wait is for an answer")
                });
                patience = deadline.min(Instant::now() + HEAD_START);
            }
            match timeout_at(patience, lookups.join_next()).await {
                Ok(Some(Ok(Ok(addresses)))) => {
                    return Ok(addresses.iter().map(|&one| with_port(one, port)).collect());
                }
                Ok(Some(Ok(Err(error)))) => _ = failure.get_or_insert(error),
                Ok(Some(Err(panicked))) => return Err(io::Error::other(panicked)),
                Ok(None) => {
                    let error = failure.expect("each lookup has failed");
                    return Err(io::Error::new(error.kind(), error));
                }
                Err(_) if patience == deadline => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, self.delay(host)));
                }
                Err(_) => {}
            }
        }
    }

    /// The lookup that waits or runs, or else a new one.
    fn join(&'static self, query: Query) -> io::Result<watch::Receiver<Option<Addresses>>> {
        let mut queue = self.queue.lock();
        if let Some(lookup) = queue.lookups.get(&query) {
            return Ok(lookup.subscribe());
        }
        if queue.threads < MAX_THREADS {
            let thread = thread::Builder::new().name("resolver".into());
            match thread.spawn(|| self.run()) {
                Ok(_detached) => queue.threads += 1,
                Err(error) if queue.threads == 0 => return Err(error),
                Err(_) => {}
            }
        }
        let (lookup, found) = watch::channel(None);
        queue.waiting.push_back(query.clone());
        queue.lookups.insert(query, lookup);
        Ok(found)
    }

    /// The reason why a lookup did not end in time.
    pub(crate) fn delay(&self, name: &str) -> &'static str {
        let queue = self.queue.lock();
        let mut waiting = queue.waiting.iter();
        if waiting.any(|(waiting, family)| **waiting == *name && *family == Family::Both) {
            "the name waits for a thread: the resolver has not answered earlier lookups"
        } else {
            "the resolver has not answered"
        }
    }

    /// Runs lookups until none waits.
    fn run(&self) {
        let mut queue = self.queue.lock();
        while let Some(query) = queue.waiting.pop_front() {
            // Callers that have reached their deadlines, or have other answers, have left it.
            if queue.lookups[&query].receiver_count() > 0 {
                let found = MutexGuard::unlocked(&mut queue, || (self.look_up)(&query.0, query.1));
                let found = found.map(Arc::from).map_err(Arc::new);
                queue.lookups[&query].send_replace(Some(found));
            }
            queue.lookups.remove(&query);
        }
        queue.threads -= 1;
    }
}

/// The address with this port, and with its IPv6 scope.
fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use parking_lot::Condvar;
    use tokio::task::{JoinSet, yield_now};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    /// A system whose resolver answers nobody until it is released.
    struct Hanging {
        resolver: &'static Resolver,
        is_released: Arc<(Mutex<bool>, Condvar)>,
        calls: Arc<AtomicUsize>,
    }

    impl Hanging {
        fn new() -> Self {
            let is_released = Arc::<(Mutex<bool>, Condvar)>::default();
            let calls = Arc::<AtomicUsize>::default();
            let (release, count) = (Arc::clone(&is_released), Arc::clone(&calls));
            let look_up = move |name: &str, _| {
                count.fetch_add(1, SeqCst);
                let (is_released, released) = &*release;
                released.wait_while(&mut is_released.lock(), |is_released| !*is_released);
                match name.trim_end_matches('.') {
                    "missing" => Err(io::Error::new(io::ErrorKind::NotFound, "no such name")),
                    _ => Ok(vec![([192, 0, 2, 1], 0).into(), ([192, 0, 2, 2], 0).into()]),
                }
            };
            Hanging {
                resolver: Box::leak(Box::new(Resolver::new(Box::new(look_up)))),
                is_released,
                calls,
            }
        }

        /// Begins to resolve each name, up to its deadline.
        fn begin(&self, names: impl IntoIterator<Item = String>) -> JoinSet<io::Result<usize>> {
            let resolve = |name: String| {
                let (resolver, deadline) = (self.resolver, Instant::now() + DEADLINE);
                async move { Ok(resolver.resolve(&name, 80, deadline).await?.len()) }
            };
            names.into_iter().map(resolve).collect()
        }

        fn release(&self) {
            *self.is_released.0.lock() = true;
            self.is_released.1.notify_all();
        }

        fn threads(&self) -> usize {
            self.resolver.queue.lock().threads
        }

        fn callers(&self, name: &str) -> usize {
            let queue = self.resolver.queue.lock();
            let lookup = queue.lookups.get(&(name.into(), Family::Both));
            lookup.map_or(0, watch::Sender::receiver_count)
        }

        /// Paused time stands still meanwhile, since the test is never idle.
        async fn wait_for_hanging_threads(&self) {
            while self.calls.load(SeqCst) < MAX_THREADS {
                yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn an_address_is_used_as_it_is() {
        let Hanging {
            resolver, calls, ..
        } = Hanging::new();
        for (host, address) in [("192.0.2.7", "192.0.2.7:80"), ("::1", "[::1]:80")] {
            let found = resolver.resolve(host, 80, Instant::now()).await;
            assert_eq!(found.expect("an address"), [address.parse().expect("one")]);
        }
        assert_eq!(calls.load(SeqCst), 0);
    }

    #[tokio::test]
    async fn callers_share_the_lookup_of_one_name() {
        let system = Hanging::new();
        for name in ["a", "missing"] {
            let mut callers = system.begin(vec![name.to_owned(); 20]);
            while system.callers(name) < 20 {
                yield_now().await;
            }
            system.release();
            while let Some(found) = callers.join_next().await {
                match found.expect("no panic") {
                    Ok(addresses) => assert_eq!((name, addresses), ("a", 2)),
                    Err(error) => {
                        assert_eq!((name, &*error.to_string()), ("missing", "no such name"));
                        assert_eq!(error.kind(), io::ErrorKind::NotFound);
                    }
                }
            }
            // One for each query; what fails may be asked again by a caller that sees it late.
            let calls = system.calls.load(SeqCst);
            assert!(calls <= 6 || name == "missing", "{calls} of `{name}`");
            *system.is_released.0.lock() = false;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_resolver_that_hangs_takes_a_bounded_number_of_threads() {
        let system = Hanging::new();
        let names = (0..3 * MAX_THREADS).map(|name| name.to_string());
        let callers = system.begin(names);
        system.wait_for_hanging_threads().await;
        let failures = callers.join_all().await;
        let delay = |found: &io::Result<usize>| {
            let error = found.as_ref().expect_err("nothing is found");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            error.to_string().starts_with("the name waits")
        };
        let waiting = failures.iter().filter(|found| delay(found)).count();
        assert_eq!(waiting, 2 * MAX_THREADS);
        assert_eq!(system.threads(), MAX_THREADS);
        assert_eq!(system.calls.load(SeqCst), MAX_THREADS);
    }

    #[tokio::test]
    async fn names_are_found_again_once_the_resolver_answers() {
        let system = Hanging::new();
        let names = (0..3 * MAX_THREADS).map(|name| name.to_string());
        let mut callers = system.begin(names);
        system.wait_for_hanging_threads().await;
        callers.abort_all();
        while callers.join_next().await.is_some() {}
        // Their lookups are aborted, and leave the queue once the runtime has dropped them.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        system.release();
        let found = system.resolver.resolve("a", 80, Instant::now() + DEADLINE);
        let expected = ["192.0.2.1:80", "192.0.2.2:80"].map(|one| one.parse().expect("one"));
        assert_eq!(found.await.expect("found"), expected);
        assert!(system.threads() <= MAX_THREADS);
        let calls = system.calls.load(SeqCst);
        assert!(calls <= MAX_THREADS + 6, "lookups that nobody waits for");
    }

    /// Resolves `app.test` by a system that answers these queries alone, fails others at once, and
    /// is silent on those in `lost`. Returns the address and the time that it took.
    async fn resolved(
        answered: &'static [(&'static str, Family)],
        lost: &'static [(&'static str, Family)],
    ) -> io::Result<(String, Duration)> {
        let start = Instant::now();
        let forever = Mutex::new(());
        let look_up = move |name: &str, family| match (name, family) {
            query if answered.contains(&query) => Ok(vec![match family {
                Family::V6 => (std::net::Ipv6Addr::LOCALHOST, 0).into(),
                _ => ([192, 0, 2, 1], 0).into(),
            }]),
            query if lost.contains(&query) => {
                let mut guard = forever.lock();
                Condvar::new().wait(&mut guard);
                unreachable!("nobody wakes it")
            }
            _ => Err(io::Error::other(format!("{name} {family:?} fails"))),
        };
        let resolver = Box::leak(Box::new(Resolver::new(Box::new(look_up))));
        let found = resolver.resolve("app.test", 80, start + DEADLINE).await?;
        Ok((found[0].to_string(), start.elapsed()))
    }

    #[tokio::test]
    async fn a_family_or_a_search_domain_that_fails_hides_no_address() {
        const BOTH: (&str, Family) = ("app.test", Family::Both);
        const V4: (&str, Family) = ("app.test", Family::V4);
        const ABSOLUTE: (&str, Family) = ("app.test.", Family::Both);
        const ABSOLUTE_V4: (&str, Family) = ("app.test.", Family::V4);
        const V6: (&str, Family) = ("app.test", Family::V6);
        let address = "192.0.2.1:80";
        let cases = [
            (&[BOTH][..], &[][..], address, 0),
            (&[V4], &[], address, 0),
            (&[V6], &[], "[::1]:80", 0),
            (&[ABSOLUTE], &[], address, 0),
            (&[ABSOLUTE_V4], &[], address, 0),
            // Each lost query costs a head start.
            (&[V4], &[BOTH], address, 1),
            (&[V6], &[BOTH, V4], "[::1]:80", 2),
            (&[ABSOLUTE], &[BOTH, V4, V6], address, 3),
            (&[ABSOLUTE_V4], &[BOTH, V4, V6, ABSOLUTE], address, 4),
        ];
        // At once: the lookups' threads take real time, as the head starts then do.
        let cases = cases.map(|(answered, lost, expected, starts)| async move {
            let found = resolved(answered, lost).await.expect("found");
            assert_eq!(found.0, expected, "{answered:?}");
            assert!(found.1 >= HEAD_START * starts, "{answered:?} {lost:?}");
        });
        cases.into_iter().collect::<JoinSet<_>>().join_all().await;
        let error = resolved(&[], &[]).await.expect_err("nothing is found");
        assert_eq!(error.to_string(), "app.test Both fails");
    }
}
