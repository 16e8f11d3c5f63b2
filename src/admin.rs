//! The admin listener's endpoints.
//!
//! | path | answers |
//! | --- | --- |
//! | `/metrics` | every metric, in Prometheus's text format |
//! | `/livez` | 200 while the process runs: never depends on upstreams or stores |
//! | `/readyz` | 200 while it takes traffic, 503 while it starts, drains, or cannot do without a store that is out of reach; lines more say how each store is |
//!
//! Other paths are 404, other methods than GET and HEAD are 405. Nothing here changes the process.

pub mod health;
mod scrape;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderValue, Method, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER},
};
use http_body::Body;
use http_body_util::Full;
use tokio::task::JoinError;

use self::health::Readiness;
use self::scrape::MetricsRenderer;
use crate::http::message::{Request, Response};
use crate::telemetry::registry::{self, Registry};

/// The service of the admin listener.
#[derive(Clone)]
pub struct Admin {
    metrics: MetricsRenderer,
    readiness: Readiness,
    stores: Stores,
}

/// Reports the state of the stores.
type Stores = Arc<dyn Fn() -> StoreReport + Send + Sync>;

/// The state of the stores, for `/readyz`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreReport {
    /// A line for each store.
    pub lines: String,
    /// The reason why the process takes no traffic without them; `None` if it does.
    pub unready: Option<String>,
}

impl Admin {
    /// Shows the metrics of `registry` and the state of `readiness`.
    pub fn new(registry: Registry, readiness: Readiness) -> Self {
        Self {
            metrics: MetricsRenderer::new(registry),
            readiness,
            stores: Arc::new(StoreReport::default),
        }
    }

    /// Adds the state of the stores to `/readyz`.
    #[must_use]
    pub fn with_stores(self, stores: impl Fn() -> StoreReport + Send + Sync + 'static) -> Self {
        Self {
            stores: Arc::new(stores),
            ..self
        }
    }

    /// Answers one request. The service omits the body for HEAD.
    async fn handle(
        &self,
        method: &Method,
        path: &str,
    ) -> Result<Response<Full<Bytes>>, JoinError> {
        if !["/metrics", "/livez", "/readyz"].contains(&path) {
            return Ok(text(
                StatusCode::NOT_FOUND,
                "not found: try /metrics, /livez or /readyz\n",
            ));
        }
        if *method != Method::GET && *method != Method::HEAD {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Ok(response);
        }
        match path {
            "/metrics" => self.metrics().await,
            "/readyz" => Ok(self.ready()),
            _ => Ok(text(StatusCode::OK, "alive\n")),
        }
    }

    async fn metrics(&self) -> Result<Response<Full<Bytes>>, JoinError> {
        let mut response = text(StatusCode::OK, self.metrics.render().await?);
        let content_type = HeaderValue::from_static(registry::CONTENT_TYPE);
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        Ok(response)
    }

    fn ready(&self) -> Response<Full<Bytes>> {
        use health::State::{Draining, Ready, Starting};
        let StoreReport { lines, unready } = (self.stores)();
        match (self.readiness.get(), unready) {
            (Ready, None) => text(StatusCode::OK, format!("{}\n{lines}", Ready.as_str())),
            (Ready, Some(why)) => unavailable(format!("not ready: {why}\n{lines}")),
            (state @ (Starting | Draining), _) => {
                unavailable(format!("{}\n{lines}", state.as_str()))
            }
        }
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

/// The server's interface: only the rendering of metrics may fail. The request's body is not read.
impl<B> hyper::service::Service<Request<B>> for Admin {
    type Response = Response<Full<Bytes>>;
    type Error = JoinError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, JoinError>> + Send>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let admin = self.clone();
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        Box::pin(async move {
            let mut response = admin.handle(&method, &path).await?;
            if method == Method::HEAD {
                let length = response.body().size_hint().exact().unwrap_or_default();
                let headers = response.headers_mut();
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
                *response.body_mut() = Full::default();
            }
            Ok(response)
        })
    }
}

/// A 503 response that asks to retry after a second.
fn unavailable(body: String) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, body);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::{health::State, *};

    fn ask(admin: &Admin, method: Method, path: &str) -> (u16, http::HeaderMap, String) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let answered = admin.handle(&method, path).await.expect("rendered");
            let (head, body) = http::Response::from(answered).into_parts();
            let bytes = body.collect().await.expect("infallible").to_bytes();
            let body = String::from_utf8(bytes.into()).expect("text");
            (head.status.as_u16(), head.headers, body)
        })
    }

    fn admin() -> (Admin, Readiness) {
        let readiness = Readiness::default();
        (
            Admin::new(Registry::default(), readiness.clone()),
            readiness,
        )
    }

    #[test]
    fn readiness_follows_the_state_and_liveness_does_not() {
        let (admin, readiness) = admin();
        for (state, status) in [
            (State::Starting, 503),
            (State::Ready, 200),
            (State::Draining, 503),
        ] {
            readiness.set(state);
            let (got, _, body) = ask(&admin, Method::GET, "/readyz");
            assert_eq!((got, body.trim_end()), (status, state.as_str()));
            assert_eq!(ask(&admin, Method::GET, "/livez").0, 200);
        }
    }

    #[test]
    fn metrics_state_the_version_of_their_format() {
        let registry = Registry::default();
        let admin = Admin::new(registry.clone(), Readiness::default());
        let _kept = crate::telemetry::metrics::build_info(&registry, "1.2.3", "abc");
        let (status, headers, body) = ask(&admin, Method::GET, "/metrics");
        assert_eq!(
            (status, &headers[CONTENT_TYPE]),
            (200, &HeaderValue::from_static(registry::CONTENT_TYPE))
        );
        assert!(
            body.contains("sluicegate_build_info{version=\"1.2.3\",revision=\"abc\"} 1\n"),
            "{body}"
        );
    }

    #[test]
    fn unknown_paths_are_404_and_other_methods_405() {
        let (admin, _) = admin();
        assert_eq!(ask(&admin, Method::GET, "/").0, 404);
        assert_eq!(ask(&admin, Method::POST, "/nothing").0, 404);
        assert_eq!(ask(&admin, Method::HEAD, "/livez").0, 200);
        let (status, headers, _) = ask(&admin, Method::POST, "/livez");
        assert_eq!(
            (status, &headers[ALLOW]),
            (405, &HeaderValue::from_static("GET, HEAD"))
        );
    }
}
