//! A proxy with everything that has metrics.

use std::path::Path;

use tempfile::TempDir;

use crate::support::client::{Connection, get};
use crate::support::collector::Collector;
use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::redis::RedisServer;
use crate::support::synchronised::wait_up;
use crate::support::tls::certify;

/// A running proxy, with its store and its origin.
pub(crate) struct Full {
    pub(crate) gateway: Gateway,
    _redis: RedisServer,
    _origin: Origin,
    _collector: Collector,
    _certificates: TempDir,
}

impl Full {
    /// Starts it. It has sent no request yet.
    pub(crate) fn start() -> Self {
        let (redis, origin) = (RedisServer::start(), Origin::plain());
        let collector = Collector::start();
        let certificates = tempfile::tempdir().expect("a temporary directory");
        certify(certificates.path(), "a", &["a.test"]);
        let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/jwt/jwks.json");
        let gateway = Gateway::start(&format!(
            "listeners:
  - {{ address: 127.0.0.1:0 }}
  - {{ address: 127.0.0.1:0, tls: {{ certificates: [{{ certificate: {pem}.pem, key: {pem}.key }}] }} }}
access_log: {{ path: access.log }}
tracing: {{ endpoint: \"{collector}\" }}
store:
  memory: {{ snapshot: {{ path: buckets.bin, every: 1h }} }}
  redis: {{ url: \"{url}\", timeout: 1s, secret: sixteen-characters, refusal_cache: 1s }}
jwt: {{ keys: [{{ jwks_file: {keys} }}] }}
clients:
  identify_by: header:x-client-key
  unknown: anonymous
  metric_label: plan
  list: [{{ key: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08, name: acme, plan: pro }}]
upstreams:
  api:
    endpoints: [\"{origin}\"]
    connections: {{ max: 8, max_pending: 8, max_wait: 1s }}
    health: {{ path: /healthz }}
policies:
  a: {{ quota: 5/1h, penalty: {{ strikes: 2, within: 1m, for: [10m] }} }}
  b: {{ algorithm: token_bucket, quota: 5/1h, on_limit: {{ action: tarpit, delay: 1s }} }}
  c: {{ algorithm: leaky_bucket, quota: 100/1s, queue: 5 }}
  d: {{ algorithm: fixed_window, quota: 5/1h, store: redis }}
  e: {{ algorithm: sliding_window, quota: 5/1h, store: redis, sync: 50ms }}
  f: {{ algorithm: sliding_log, quota: 5/1h, key: jwt:sub, on_missing_key: shared }}
  g: {{ algorithm: concurrency, max: 5, queue: 5 }}
  h: {{ quota: 100/1h, cost: {{ response_header: x-cost, reserve: 1, max: 10 }} }}
access: {{ deny: [{{ header: {{ x-denied: yes }} }}] }}
routes:
  - {{ name: all, upstream: api, limits: [a, b, c, d, e, f, g, h] }}
  - {{ name: free, match: {{ path: /free }}, upstream: api }}
",
            url = redis.url(),
            keys = keys.display(),
            pem = certificates.path().join("a").display(),
            origin = origin.url(),
            collector = collector.url(),
        ));
        wait_up(&gateway);
        Self {
            gateway,
            _redis: redis,
            _origin: origin,
            _collector: collector,
            _certificates: certificates,
        }
    }

    /// Sends a request of each method that has a label of its own, and of another one.
    pub(crate) fn use_all_methods(&self) {
        let methods = "GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH BREW".split(' ');
        for method in methods {
            let target = match method {
                "CONNECT" => "a:80",
                _ => "/free",
            };
            let mut client = Connection::open(self.gateway.address());
            client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client.receive_head();
        }
    }

    /// The text of a scrape.
    pub(crate) fn scrape(&self) -> String {
        get(self.gateway.admin, "/metrics").text()
    }
}
