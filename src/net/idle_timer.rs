//! A timer for the next of several events, such as the next bytes of a client.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

/// Bounds the wait for the next of several events.
///
/// The runtime's timer is created when an event is first missing: a body that arrives at once costs
/// none. It is armed again only when it fires too early, so that many short waits cost one timer.
#[derive(Debug)]
pub struct IdleTimer {
    limit: Duration,
    /// Set while an event is missing.
    deadline: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The task that the timer wakes.
    woken: Option<Waker>,
}

impl IdleTimer {
    /// Waits `limit` for each event.
    pub fn new(limit: Duration) -> Self {
        IdleTimer {
            limit,
            deadline: None,
            timer: None,
            woken: None,
        }
    }

    /// Waits until `deadline` for the first event, and `limit` for each other.
    pub fn until(deadline: Instant, limit: Duration) -> Self {
        IdleTimer {
            deadline: Some(deadline),
            ..IdleTimer::new(limit)
        }
    }

    /// The longest wait for an event.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// The time since which an event is missing: of the poll that has found it missing, or else now.
    pub fn waiting_since(&self) -> Instant {
        self.deadline
            .and_then(|deadline| deadline.checked_sub(self.limit))
            .unwrap_or_else(Instant::now)
    }

    /// Notes an event. The next wait starts when [`poll_expired`](Self::poll_expired) is called.
    pub fn reset(&mut self) {
        self.deadline = None;
    }

    /// Notes an event, and waits until `deadline` for the next.
    pub fn reset_until(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    /// Notes an event, and waits `limit` for each from now on.
    pub fn reset_to(&mut self, limit: Duration) {
        self.limit = limit;
        self.reset();
    }

    /// Becomes ready when the event has been missing for the whole limit.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        // The runtime's clock, which tests can pause.
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + limit);
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if deadline < timer.deadline() {
            timer.as_mut().reset(deadline);
            self.woken = None;
        }
        // A task that the timer will wake is not noted again, which would take atomic instructions.
        let is_noted = |task: &Waker| task.will_wake(cx.waker());
        if self.woken.as_ref().is_some_and(is_noted) && !timer.is_elapsed() {
            return Poll::Pending;
        }
        loop {
            // Unconstrained: the bound also holds for a task that never waits.
            if pin!(unconstrained(timer.as_mut())).poll(cx).is_pending() {
                match &mut self.woken {
                    Some(task) => task.clone_from(cx.waker()),
                    None => self.woken = Some(cx.waker().clone()),
                }
                return Poll::Pending;
            }
            self.woken = None;
            if deadline <= timer.deadline() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::task::Wake;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A task that notes that it was woken.
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_that_polled_last_is_woken() {
        let mut timer = IdleTimer::new(LIMIT);
        let tasks: [Arc<Woken>; 3] = Default::default();
        for task in &tasks {
            let waker = Waker::from(Arc::clone(task));
            for _ in 0..2 {
                let mut cx = Context::from_waker(&waker);
                assert!(timer.poll_expired(&mut cx).is_pending());
            }
        }
        tokio::time::sleep(LIMIT + Duration::from_millis(2)).await;
        let woken = tasks.map(|task| task.0.load(Relaxed));
        assert_eq!(woken, [false, false, true]);
    }
}
