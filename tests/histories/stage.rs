//! Proxies under load, and faults that are made one after the other.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::clients::{Clients, Demand};
use crate::dice::Dice;
use crate::history::{Fault, History, Instant, Span, micros, now};
use crate::nodes::{Proxy, Redis};
use crate::stall::Stalls;
use crate::world::Host;

/// Requests use Redis again within this time after its return, those of all workers.
const RETURN: Duration = Duration::from_secs(1);

/// Proxies, the clients that ask them, and the faults so far.
pub struct Stage {
    pub proxies: Vec<Proxy>,
    pub dice: Dice,
    clients: Clients,
    faults: Vec<Fault>,
    stalls: Stalls,
    /// Waits until a proxy uses Redis again.
    wait_until_back: fn(&Proxy),
}

/// A time in which Redis answered none of these proxies.
pub struct Silence {
    pub proxies: Vec<usize>,
    /// While no answer came.
    pub silent: Span,
    /// Until Redis decided again.
    pub whole: Span,
}

/// The restart of a proxy or of Redis.
pub struct Restart {
    /// Until Redis decides again.
    pub whole: Span,
    /// When the old process had ended.
    pub ended: Instant,
}

/// The packets that a partition loses.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Both,
    Requests,
    Answers,
}

impl Stage {
    /// Starts the clients, and lets some time pass.
    pub fn open(proxies: Vec<Proxy>, demand: Demand, seed: u64) -> Self {
        let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
        let stage = Self {
            proxies,
            dice: Dice::new(seed, 0),
            clients: Clients::start(&addresses, demand, seed),
            faults: Vec::new(),
            stalls: Stalls::watch(),
            wait_until_back: Proxy::wait_until_redis_decides,
        };
        thread::sleep(Duration::from_millis(1_500));
        stage
    }

    /// Makes a fault, which lasts until `make` returns.
    pub fn during(&mut self, what: String, make: impl FnOnce(&mut Self)) -> Span {
        self.fault(what, None, make)
    }

    fn fault(&mut self, what: String, paused: Option<usize>, make: impl FnOnce(&mut Self)) -> Span {
        let from = now();
        make(self);
        let span = Span { from, until: now() };
        println!("{:>8} ms: {what}", (span.until - span.from) / 1_000);
        self.faults.push(Fault { what, span, paused });
        span
    }

    /// The policies are synchronised: a proxy is back when it has exchanged charges.
    pub fn synchronised(self) -> Self {
        Self {
            wait_until_back: Proxy::wait_until_round,
            ..self
        }
    }

    /// No policy is in Redis.
    pub fn in_memory(self) -> Self {
        Self {
            wait_until_back: |_| {},
            ..self
        }
    }

    /// Puts another configuration into force at a proxy: by a reload, or by a restart.
    pub fn deploy(&mut self, proxy: usize, config: &str) {
        if self.dice.below(2) == 0 {
            self.proxies[proxy].reload(config);
            return;
        }
        self.proxies[proxy].replace_config(config);
        self.restart_proxy(proxy, Signal::TERM, Duration::ZERO);
    }

    /// A pause between two faults.
    pub fn rest(&mut self) {
        thread::sleep(self.dice.millis(200, 1_200));
    }

    /// The number of a proxy.
    pub fn any_proxy(&mut self) -> usize {
        self.dice.below(self.proxies.len())
    }

    /// Loses packets between a proxy and hosts for a while.
    pub fn cut_off(&mut self, proxy: usize, from: &[&Host], time: Duration) -> Silence {
        let lost = *self
            .dice
            .one_of(&[Lost::Both, Lost::Requests, Lost::Answers]);
        let own = self.proxies[proxy].host.clone();
        let part = || {
            for host in from {
                match lost {
                    Lost::Both => own.part_from(host),
                    Lost::Requests => own.lose_packets_to(host),
                    Lost::Answers => host.lose_packets_to(&own),
                }
            }
        };
        let what = format!("proxy {proxy} is cut off, {lost:?} lost");
        let join = || from.iter().for_each(|host| own.join(host));
        self.silence(what, vec![proxy], time, part, join)
    }

    /// Suspends Redis for a while.
    pub fn pause_redis(&mut self, redis: &Redis, time: Duration) -> Silence {
        let pause = || redis.pause();
        let resume = || redis.resume();
        let what = "Redis stands still".to_owned();
        self.silence(what, self.everyone(), time, pause, resume)
    }

    fn silence(
        &mut self,
        what: String,
        proxies: Vec<usize>,
        time: Duration,
        begin: impl FnOnce(),
        end: impl FnOnce(),
    ) -> Silence {
        let mut silent = Span { from: 0, until: 0 };
        let whole = self.during(what, |stage| {
            begin();
            silent.from = now();
            thread::sleep(time);
            silent.until = now();
            end();
            stage.wait_until_back(&proxies);
            thread::sleep(RETURN);
        });
        Silence {
            proxies,
            silent,
            whole,
        }
    }

    /// Suspends a proxy for a while.
    pub fn pause_proxy(&mut self, proxy: usize, time: Duration) -> Span {
        let what = format!("proxy {proxy} stands still");
        self.fault(what, Some(proxy), |stage| {
            stage.proxies[proxy].gateway.signal(Signal::STOP);
            thread::sleep(time);
            stage.proxies[proxy].gateway.signal(Signal::CONT);
            stage.wait_until_back(&[proxy]);
        })
    }

    /// Ends a proxy by a signal, and starts it again after a while.
    pub fn restart_proxy(&mut self, proxy: usize, signal: Signal, time: Duration) -> Restart {
        let mut ended = 0;
        let whole = self.during(format!("proxy {proxy} gets {signal:?}"), |stage| {
            let mut old = stage.proxies.remove(proxy);
            old.gateway.signal(signal);
            old.gateway.wait();
            ended = now();
            thread::sleep(time);
            stage.proxies.insert(proxy, old.start_again());
            stage.wait_until_back(&[proxy]);
        });
        Restart { whole, ended }
    }

    /// Kills Redis, and starts it again, empty, after a while.
    pub fn restart_redis(&mut self, redis: &mut Redis, time: Duration) -> Restart {
        let mut ended = 0;
        let whole = self.during("Redis restarts empty".to_owned(), |stage| {
            redis.kill();
            ended = now();
            thread::sleep(time);
            redis.start_again();
            stage.wait_until_back(&stage.everyone());
            thread::sleep(RETURN);
        });
        Restart { whole, ended }
    }

    /// Waits until these proxies use Redis again.
    pub fn wait_until_back(&self, proxies: &[usize]) {
        for proxy in proxies {
            (self.wait_until_back)(&self.proxies[*proxy]);
        }
    }

    /// All proxies.
    pub fn everyone(&self) -> Vec<usize> {
        (0..self.proxies.len()).collect()
    }

    /// Lets some time pass without faults, and returns which.
    pub fn calm(&self, time: Duration) -> Span {
        let from = now();
        thread::sleep(time);
        let until = now();
        Span { from, until }
    }

    /// Ends the run, and returns what clients saw.
    pub fn end(mut self) -> History {
        for proxy in &mut self.proxies {
            assert!(proxy.gateway.is_running(), "a proxy has died");
            let log = proxy.gateway.log();
            assert!(!log.contains("panicked"), "{log}");
        }
        History {
            events: self.clients.finish(),
            faults: self.faults,
            stall: micros(self.stalls.longest()),
        }
    }

    /// The longest time so far for which the machine let a thread wait.
    pub fn stall(&self) -> Duration {
        self.stalls.longest()
    }

    /// Ends the run after this time without faults, which it also returns.
    pub fn close(self, time: Duration) -> (History, Span) {
        let calm = self.calm(time);
        (self.end(), calm)
    }
}

/// The deadline of a request whose call of Redis has this one.
pub const fn deadline(timeout: Duration) -> u64 {
    // A request in doubt is decided again within one more.
    2 * micros(timeout)
}
