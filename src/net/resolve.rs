//! Name resolution by the system, on a bounded number of threads: a resolver that hangs holds up
//! callers until their deadlines, and takes no more than those threads. Caches nothing.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock};
use std::thread;

use derive_more::Debug;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The most lookups that run at a time, each on a thread of its own.
const MAX_THREADS: usize = 16;

/// The system's resolver, which upstreams and Redis share.
pub(crate) static SYSTEM: LazyLock<Resolver> =
    LazyLock::new(|| Resolver::new(Box::new(|name| Ok((name, 0).to_socket_addrs()?.collect()))));

/// The addresses of a name, with port 0.
type Addresses = Result<Arc<[SocketAddr]>, Arc<io::Error>>;

/// A function that asks the system for the addresses of a name, and may block.
pub(crate) type LookUp = Box<dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

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
    /// At most one lookup for each name.
    lookups: HashMap<Arc<str>, watch::Sender<Option<Addresses>>>,
    /// The names whose lookups wait for a thread.
    waiting: VecDeque<Arc<str>>,
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
    /// (RFC 6724).
    ///
    /// # Errors
    /// The resolver's error; [`io::ErrorKind::TimedOut`] at the deadline.
    pub(crate) async fn resolve(
        &'static self,
        host: &str,
        port: u16,
        deadline: Instant,
    ) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let mut lookup = self.join(host)?;
        let Ok(found) = timeout_at(deadline, lookup.wait_for(Option::is_some)).await else {
            return Err(io::Error::new(io::ErrorKind::TimedOut, self.delay(host)));
        };
        let found = found.map_err(io::Error::other)?;
        match found.as_ref().expect("the wait is for an answer") {
            Ok(addresses) => Ok(addresses.iter().map(|&one| with_port(one, port)).collect()),
            Err(error) => Err(io::Error::new(error.kind(), Arc::clone(error))),
        }
    }

    /// The lookup of `name` that waits or runs, or else a new one.
    fn join(&'static self, name: &str) -> io::Result<watch::Receiver<Option<Addresses>>> {
        let mut queue = self.queue.lock();
        if let Some(lookup) = queue.lookups.get(name) {
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
        let name = Arc::<str>::from(name);
        queue.waiting.push_back(Arc::clone(&name));
        queue.lookups.insert(name, lookup);
        Ok(found)
    }

    /// The reason why a lookup did not end in time.
    pub(crate) fn delay(&self, name: &str) -> &'static str {
        let queue = self.queue.lock();
        if queue.waiting.iter().any(|waiting| **waiting == *name) {
            "the name waits for a thread: the resolver has not answered earlier lookups"
        } else {
            "the resolver has not answered"
        }
    }

    /// Runs lookups until none waits.
    fn run(&self) {
        let mut queue = self.queue.lock();
        while let Some(name) = queue.waiting.pop_front() {
            // Callers that reached their deadlines have left it.
            if queue.lookups[&name].receiver_count() > 0 {
                let found = MutexGuard::unlocked(&mut queue, || (self.look_up)(&name));
                let found = found.map(Arc::from).map_err(Arc::new);
                queue.lookups[&name].send_replace(Some(found));
            }
            queue.lookups.remove(&name);
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
            let look_up = move |name: &str| {
                count.fetch_add(1, SeqCst);
                let (is_released, released) = &*release;
                released.wait_while(&mut is_released.lock(), |is_released| !*is_released);
                match name {
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
            let lookup = queue.lookups.get(name);
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
        for (name, calls) in [("a", 1), ("missing", 2)] {
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
            assert_eq!(system.calls.load(SeqCst), calls);
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
        system.release();
        let found = system.resolver.resolve("a", 80, Instant::now() + DEADLINE);
        let expected = ["192.0.2.1:80", "192.0.2.2:80"].map(|one| one.parse().expect("one"));
        assert_eq!(found.await.expect("found"), expected);
        assert!(system.threads() <= MAX_THREADS);
        assert_eq!(
            system.calls.load(SeqCst),
            MAX_THREADS + 1,
            "lookups that nobody waits for"
        );
    }
}
