//! nginx and Caddy ask before they serve, with the recipes of docs/forward-auth.md.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::client::{Connection, get, get_with};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, free_address};
use crate::support::wait_for;

/// A proxy that asks, killed on drop.
struct Proxy {
    process: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // nginx without its master process, and Caddy, are one process each.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Where a recipe listens, and the same for another address.
type Listen = (&'static str, fn(SocketAddr) -> String);

/// Starts a proxy that has the recipe in this language.
fn start(
    language: &str,
    (port_80, listen): Listen,
    (gateway, origin): (SocketAddr, SocketAddr),
    command: impl Fn(&Path, &str) -> Command,
) -> Proxy {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/forward-auth.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let block = page.split_once(&format!("```{language}\n"));
    let (recipe, _) = block
        .and_then(|(_, rest)| rest.split_once("```"))
        .expect("a recipe");
    for wanted in [port_80, "127.0.0.1:8080", "127.0.0.1:3000"] {
        assert!(recipe.contains(wanted), "{wanted}");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Another process may take the port before the proxy does: then the next one is tried.
    let (process, address) = wait_for(language, || {
        let address = free_address();
        let recipe = recipe
            .replacen(port_80, &listen(address), 1)
            .replace("127.0.0.1:8080", &gateway.to_string())
            .replace("127.0.0.1:3000", &origin.to_string());
        let mut process = command(directory.path(), &recipe)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{language}: {error}; ./scripts/test installs it"));
        let listens = wait_for("the proxy to listen or to end", || {
            if process.try_wait().expect("it was started here").is_some() {
                return Some(false);
            }
            TcpStream::connect(address).ok().map(|_| true)
        });
        listens.then_some((process, address))
    });
    Proxy {
        process,
        address,
        _directory: directory,
    }
}

fn nginx(directory: &Path, recipe: &str) -> Command {
    let path = |name: &str| directory.join(name).display().to_string();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|kind| format!("{kind}_temp_path {};\n", path(kind)));
    let config = format!(
        "daemon off;\nmaster_process off;\npid {};\nerror_log {};\nevents {{}}\n\
         http {{\naccess_log off;\n{}{recipe}}}\n",
        path("pid"),
        path("error.log"),
        temporary.concat(),
    );
    fs::write(path("nginx.conf"), config).expect("the directory is writable");
    let mut command = Command::new("nginx");
    let search = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{search}:/usr/sbin")).args([
        "-e",
        &path("error.log"),
        "-p",
        &path(""),
        "-c",
        &path("nginx.conf"),
    ]);
    command
}

fn caddy(directory: &Path, recipe: &str) -> Command {
    let file = directory.join("Caddyfile");
    let config = format!("{{\n\tadmin off\n\tauto_https off\n}}\n{recipe}");
    fs::write(&file, config).expect("the directory is writable");
    let mut command = Command::new("caddy");
    command
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(file)
        .env("HOME", directory);
    command
}

/// One POST to `/login` and any number of other requests are allowed.
fn gateway() -> Gateway {
    Gateway::start(
        "client_ip: { trusted_proxies: [127.0.0.1] }
routes:
  - match: { hosts: [shop.example], path: /login, methods: [POST], when: { scheme: http } }
    limits: [{ key: client_ip, quota: 1/1h }]
    upstream: decide
  - access: { deny: [{ path: \"/secret/**\" }] }
    upstream: decide
",
    )
}

/// What clients of both proxies see.
fn check(proxy: &Proxy, origin: &Origin) {
    let login = |fields: &str| {
        let fields = format!("host: shop.example\r\ncontent-length: 2\r\n{fields}");
        let request = format!("POST /login HTTP/1.1\r\n{fields}\r\nab");
        let mut connection = Connection::open(proxy.address);
        connection.exchange(&request)
    };
    assert_eq!(login("").status, 200);
    assert_eq!(origin.only_request().body, b"ab");
    // Fields of clients describe nothing.
    for forged in [
        "",
        "X-Forwarded-Method: GET\r\n",
        "X-Forwarded-Uri: /\r\n",
        "X-Forwarded-Host: other.example\r\n",
        "X-Forwarded-For: 203.0.113.9\r\n",
    ] {
        let refused = login(forged);
        assert_eq!(refused.status, 429, "{forged}");
        let wait: u64 = refused
            .expect_header("retry-after")
            .parse()
            .expect("a number");
        assert!((3_500..=3_600).contains(&wait), "{wait}");
        assert!(refused.header("ratelimit").is_some());
    }
    for forged in [
        "X-Original-Method: GET\r\n",
        "X-Original-URL: http://a/\r\n",
    ] {
        assert!(login(forged).status >= 400, "{forged}");
    }
    assert_eq!(get(proxy.address, "/login").status, 200, "no POST");
    assert_eq!(get(proxy.address, "/else?a=/login").status, 200);
    assert_eq!(get_with(proxy.address, "/secret/a", "").status, 403);
    assert_eq!(origin.requests().len(), 3, "no refused request is served");
}

#[test]
fn nginx_serves_what_is_allowed_and_answers_429_with_retry_after() {
    let (gateway, origin) = (gateway(), Origin::plain());
    let addresses = (gateway.address(), origin.address());
    let listen: Listen = ("listen 80;", |address| format!("listen {address};"));
    let proxy = start("nginx", listen, addresses, nginx);
    check(&proxy, &origin);
    drop(gateway);
    assert_eq!(get(proxy.address, "/").status, 500, "nobody decides");
    assert_eq!(origin.requests().len(), 3);
}

#[test]
fn caddy_serves_what_is_allowed_and_passes_refusals_on() {
    let (gateway, origin) = (gateway(), Origin::plain());
    let addresses = (gateway.address(), origin.address());
    let listen: Listen = (":80 {", |address| {
        format!(":{} {{\n\tbind {}", address.port(), address.ip())
    });
    check(&start("caddyfile", listen, addresses, caddy), &origin);
}
