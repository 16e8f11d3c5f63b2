//! Upstreams on Unix sockets.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use tempfile::TempDir;

use crate::support::client::get;
use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::wait_for;

/// The `Host` of each request, and the number of its connection.
type Requests = Arc<Mutex<Vec<(String, usize)>>>;

/// An origin on a socket in a directory of its own.
struct UnixOrigin {
    _dir: TempDir,
    path: PathBuf,
    requests: Requests,
}

impl UnixOrigin {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("app.sock");
        let requests = Requests::default();
        serve(&path, &requests);
        UnixOrigin {
            _dir: dir,
            path,
            requests,
        }
    }

    fn requests(&self) -> Vec<(String, usize)> {
        self.requests.lock().expect("no holder panics").clone()
    }
}

/// Answers every request with 200, until the process ends.
fn serve(path: &Path, requests: &Requests) {
    let listener = UnixListener::bind(path).expect("a free path");
    let requests = Arc::clone(requests);
    thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let requests = Arc::clone(&requests);
            thread::spawn(move || {
                let mut writer = stream.try_clone().expect("a descriptor");
                let mut host = String::new();
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if let Some(value) = line.strip_prefix("host: ") {
                        value.clone_into(&mut host);
                    }
                    if line.is_empty() {
                        let mut requests = requests.lock().expect("no holder panics");
                        requests.push((host.clone(), number));
                        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                        writer.write_all(response).expect("the proxy reads");
                    }
                }
            });
        }
    });
}

#[test]
fn requests_reach_a_socket_over_kept_connections() {
    let origin = UnixOrigin::start();
    let endpoint = format!("unix:{}", origin.path.display());
    let gateway = Gateway::start(&format!(
        "workers: 1
upstreams:
  app: {{ endpoints: [\"{endpoint}\"], preserve_host: false }}
routes:
  - {{ match: {{ path: /own }}, upstream: app }}
  - {{ upstream: \"{endpoint}\" }}
"
    ));
    for path in ["/own", "/own", "/"] {
        assert_eq!(get(gateway.address(), path).status, 200);
    }
    let client = gateway.address().to_string();
    let expected = [("localhost", 0), ("localhost", 0), (&*client, 1)];
    let expected = expected.map(|(host, connection)| (host.to_owned(), connection));
    assert_eq!(origin.requests(), expected);
    let labels = format!("{{upstream=\"app\",endpoint=\"{endpoint}\"}}");
    let requests = gateway.metric(&format!("sluicegate_upstream_requests_total{labels}"));
    assert_eq!(requests, Some(2.0));
}

#[test]
fn a_socket_without_a_server_is_an_endpoint_that_fails() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("app.sock");
    let other = Origin::plain();
    let gateway = Gateway::start(&format!(
        "workers: 1
upstreams: {{ app: {{ endpoints: [\"unix:{}\", \"{}\"] }} }}
routes: [{{ upstream: app }}]
",
        path.display(),
        other.url()
    ));
    for _ in 0..4 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    gateway.wait_for_log("the endpoint fails");
    let requests = Requests::default();
    serve(&path, &requests);
    wait_for("requests at the socket", || {
        assert_eq!(get(gateway.address(), "/").status, 200);
        (!requests.lock().expect("no holder panics").is_empty()).then_some(())
    });
}
