//! A private Prometheus server on a free port that ends with the test.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::{fs, path::Path};

use serde_json::Value;
use tempfile::TempDir;

use super::client::get;
use super::origin::free_address;
use super::wait_for;

/// A running server. It scrapes every 200 ms.
pub struct Prometheus {
    process: Child,
    address: SocketAddr,
    _dir: TempDir,
}

impl Prometheus {
    /// Starts a server that scrapes `target` and evaluates the rules of a file, and waits until it
    /// is ready.
    pub fn start(target: SocketAddr, rules: &Path) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 200ms }}
rule_files: [\"{}\"]
scrape_configs:
  - {{ job_name: sluicegate, static_configs: [{{ targets: [\"{target}\"] }}] }}
",
            rules.display()
        );
        fs::write(dir.path().join("prometheus.yaml"), config).expect("the directory is writable");
        // Another process may take the port before the server does: then the next one is tried.
        let (process, address) = wait_for("a Prometheus server", || {
            let address = free_address();
            let mut process = run(dir.path(), address);
            let is_ready = wait_for("Prometheus to be ready or to end", || {
                if process.try_wait().expect("it was started here").is_some() {
                    return Some(false);
                }
                TcpStream::connect(address).ok()?;
                (get(address, "/-/ready").status == 200).then_some(true)
            });
            is_ready.then_some((process, address))
        });
        Self {
            process,
            address,
            _dir: dir,
        }
    }

    /// The result of an instant query: a list of series.
    ///
    /// # Panics
    /// If the server does not understand the query.
    #[track_caller]
    pub fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let mut data = self.data(&format!("/api/v1/query?query={encoded}"));
        match data["result"].take() {
            Value::Array(series) => series,
            other => panic!("{query}: {other}"),
        }
    }

    /// The value of the only series that a query finds.
    #[track_caller]
    pub fn value(&self, query: &str) -> Option<f64> {
        let series = self.query(query);
        assert!(series.len() < 2, "{query}: {series:?}");
        series.first()?["value"][1].as_str()?.parse().ok()
    }

    /// The `data` of a response of its API.
    #[track_caller]
    pub fn data(&self, path: &str) -> Value {
        let response = get(self.address, path);
        let mut body: Value = serde_json::from_str(&response.text()).expect("JSON");
        assert_eq!(body["status"], "success", "{path}: {body}");
        body["data"].take()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(dir: &Path, address: SocketAddr) -> Child {
    let data = dir.join("data");
    Command::new("prometheus")
        .arg(format!("--web.listen-address={address}"))
        .arg(format!("--storage.tsdb.path={}", data.display()))
        .arg("--config.file=prometheus.yaml")
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("prometheus: {error}; ./scripts/test installs it"))
}
