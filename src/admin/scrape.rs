//! Renders metrics on a thread of its own, once for all scrapes that wait. Many scrapes keep no
//! probe waiting, and share the memory of the text.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn_blocking};

use super::problem_details::NO_STORE;
use super::state::AdminState;
use crate::telemetry::registry::{self, Registry};

pub(super) async fn metrics(State(state): State<AdminState>) -> Response {
    match state.metrics.render().await {
        Ok(text) => ([(CONTENT_TYPE, registry::CONTENT_TYPE), NO_STORE], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Renders a registry, one text at a time. Clones share it.
#[derive(Clone)]
pub(super) struct MetricsRenderer {
    registry: Registry,
    /// Scrapes since the start.
    scrapes: Arc<AtomicU64>,
    latest: Arc<Mutex<Rendered>>,
}

#[derive(Default)]
struct Rendered {
    text: Bytes,
    /// The scrapes that had begun before the text was rendered.
    scrapes: u64,
}

impl MetricsRenderer {
    pub(super) fn new(registry: Registry) -> Self {
        Self {
            registry,
            scrapes: Arc::default(),
            latest: Arc::default(),
        }
    }

    /// Returns a text that is rendered after the call.
    ///
    /// # Errors
    ///
    /// A panic while rendering, or the end of the runtime.
    pub(super) async fn render(&self) -> Result<Bytes, JoinError> {
        let scrape = self.scrapes.fetch_add(1, Release);
        let mut latest = Arc::clone(&self.latest).lock_owned().await;
        if latest.scrapes > scrape {
            return Ok(latest.text.clone());
        }
        let (registry, scrapes) = (self.registry.clone(), Arc::clone(&self.scrapes));
        // The thread holds the lock: a scrape that is given up starts no second rendering.
        let rendering = spawn_blocking(move || {
            let scrapes = scrapes.load(Acquire);
            let text = Bytes::from(registry.render());
            *latest = Rendered { text, scrapes };
            latest.text.clone()
        });
        rendering.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use tokio::task::{JoinSet, yield_now};
    use tokio::time::timeout;

    use super::*;
    use crate::telemetry::registry::{Family, Kind};

    static FAMILY: Family = Family {
        name: "renderings",
        help: "Times that the series was read.",
        kind: Kind::Gauge,
        labels: &[],
        is_large: false,
    };

    #[tokio::test]
    async fn scrapes_that_wait_share_the_next_text() {
        let registry = Registry::default();
        let renderings = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&renderings);
        let _series = registry.observe(&FAMILY, &[], move || counted.fetch_add(1, Relaxed) as f64);
        let renderer = MetricsRenderer::new(registry);
        let busy = Arc::clone(&renderer.latest).lock_owned().await;
        let mut scrapes = JoinSet::new();
        for _ in 0..100 {
            let renderer = renderer.clone();
            scrapes.spawn(async move { renderer.render().await });
        }
        while renderer.scrapes.load(Acquire) < 100 {
            yield_now().await;
        }
        drop(busy);
        for text in scrapes.join_all().await {
            assert!(!text.expect("rendered").is_empty());
        }
        assert_eq!(renderings.load(Relaxed), 1);
        renderer.render().await.expect("rendered");
        assert_eq!(
            renderings.load(Relaxed),
            2,
            "a later scrape sees what is new"
        );
    }

    #[tokio::test]
    async fn a_cancelled_scrape_does_not_delay_others() {
        let renderer = MetricsRenderer::new(Registry::default());
        for _ in 0..100 {
            let _ = timeout(Duration::ZERO, renderer.render()).await;
        }
        renderer.render().await.expect("rendered");
    }
}
