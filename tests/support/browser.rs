//! Headless Chromium, driven by WebDriver (W3C) through chromedriver; both end on drop.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::client::Connection;
use super::wait_for;

/// Far above the time in which a browser starts on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Arguments of Chromium: no window, no sandbox (tests may run as root), no traffic of its own.
const ARGUMENTS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

/// Appearance that a page finds the system in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appearance {
    Light,
    Dark,
}

/// The most drivers that are started for one browser.
const MOST_DRIVERS: usize = 5;

/// A driver and its port. `None` if it ends at once: it chooses a port on IPv4, which another
/// process may have on IPv6.
fn start_driver() -> Option<(Child, u16)> {
    let mut driver = Command::new("chromedriver")
        .args(["--port=0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("chromedriver is installed: ./scripts/test does");
    let stdout = BufReader::new(driver.stdout.take().expect("stdout is a pipe"));
    let mut lines = stdout.lines().map_while(Result::ok);
    let port = lines.find_map(|line| {
        let port = line.split("started successfully on port ").nth(1)?;
        port.trim_end_matches('.').parse::<u16>().ok()
    });
    let Some(port) = port else {
        driver.wait().expect("it is our child");
        return None;
    };
    // Whoever does not read blocks the driver.
    thread::spawn(move || lines.for_each(drop));
    Some((driver, port))
}

/// A browser with one window.
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser whose window has this size in CSS pixels.
    pub fn start((width, height): (u32, u32)) -> Self {
        let started = (0..MOST_DRIVERS).find_map(|_| start_driver());
        let (driver, port) = started.expect("a driver tells its port");
        let mut browser = Self {
            driver,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            session: String::new(),
            profile: tempfile::tempdir().expect("a temporary directory"),
        };
        browser.begin();
        browser.resize((width, height), 1.0);
        browser
    }

    fn begin(&mut self) {
        let profile = format!("--user-data-dir={}", self.profile.path().display());
        let arguments: Vec<_> = ARGUMENTS.into_iter().chain([profile.as_str()]).collect();
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "binary": "/usr/bin/chromium", "args": arguments },
        } } });
        let session = self.post("/session", &capabilities);
        let id = session["sessionId"].as_str().expect("a session");
        self.session = format!("/session/{id}");
    }

    /// Sets the size of the window in CSS pixels, and the device pixels of each.
    pub fn resize(&self, (width, height): (u32, u32), scale: f64) {
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// Makes the system light or dark.
    pub fn appear(&self, appearance: Appearance) {
        let value = match appearance {
            Appearance::Light => "light",
            Appearance::Dark => "dark",
        };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.devtools("Emulation.setEmulatedMedia", &features);
    }

    /// Opens a page, and waits until it is loaded.
    pub fn open(&self, url: &str) {
        // A page that differs in its fragment only would stay.
        self.command("/url", &json!({ "url": "about:blank" }));
        self.command("/url", &json!({ "url": url }));
    }

    /// Opens another window, and turns to it.
    pub fn open_window(&self) {
        let opened = self.command("/window/new", &json!({ "type": "window" }));
        self.switch_to(&opened["handle"]);
    }

    /// The windows.
    #[track_caller]
    pub fn windows(&self) -> Vec<Value> {
        let answer = self.request("GET", &format!("{}/window/handles", self.session), "");
        answer.as_array().expect("a list").clone()
    }

    /// Turns to a window.
    pub fn switch_to(&self, window: &Value) {
        self.command("/window", &json!({ "handle": window }));
    }

    /// Runs the body of a function in the page, and returns its result, a promise's included.
    pub fn run(&self, body: &str) -> Value {
        self.command("/execute/sync", &json!({ "script": body, "args": [] }))
    }

    /// Waits until the expression is true in the page.
    #[track_caller]
    pub fn wait_until(&self, expression: &str) {
        wait_for(expression, || {
            let is_true = self.run(&format!("return Boolean({expression});"));
            (is_true == Value::Bool(true)).then_some(())
        });
    }

    /// Text of the first element that matches a selector.
    #[track_caller]
    pub fn text(&self, selector: &str) -> String {
        let text = self.run(&format!(
            "return document.querySelector({selector:?}).innerText;"
        ));
        text.as_str().expect("a text").to_owned()
    }

    /// Clicks the element that matches a selector, as a mouse does.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        let found = self.command(
            "/element",
            &json!({ "using": "css selector", "value": selector }),
        );
        let id = found.as_object().and_then(|found| found.values().next());
        let id = id.and_then(Value::as_str).expect("an element");
        self.command(&format!("/element/{id}/click"), &json!({}));
    }

    /// Presses a key where the focus is. Keys without a character have one of WebDriver.
    pub fn press(&self, key: char) {
        let actions = [
            json!({ "type": "keyDown", "value": key.to_string() }),
            json!({ "type": "keyUp", "value": key.to_string() }),
        ];
        let source = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.command("/actions", &json!({ "actions": [source] }));
    }

    /// Lines that the page has written to the console, errors and violations of its policy
    /// included, since the last call.
    pub fn console(&self) -> Vec<String> {
        let lines = self.command("/se/log", &json!({ "type": "browser" }));
        let lines = lines.as_array().expect("a list").iter();
        lines.map(|line| line["message"].to_string()).collect()
    }

    /// Saves a picture of the window.
    pub fn save_picture(&self, path: &std::path::Path) {
        let picture = self.devtools("Page.captureScreenshot", &json!({}));
        let picture = picture["data"].as_str().expect("a picture");
        let picture = STANDARD.decode(picture).expect("base64");
        fs::write(path, picture).expect("the folder is writable");
    }

    fn devtools(&self, command: &str, parameters: &Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.command("/goog/cdp/execute", &body)
    }

    #[track_caller]
    fn command(&self, path: &str, body: &Value) -> Value {
        self.post(&format!("{}{path}", self.session), body)
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value) -> Value {
        self.request("POST", path, &body.to_string())
    }

    #[track_caller]
    fn request(&self, method: &str, path: &str, body: &str) -> Value {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut connection = Connection::open(self.address);
        let patience = connection.writer().set_read_timeout(Some(PATIENCE));
        patience.expect("a connected socket");
        let response = connection.exchange(&request);
        let answer: Value = serde_json::from_slice(&response.body).expect("JSON");
        assert_eq!(response.status, 200, "{path}: {answer}");
        answer["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let request = format!(
                "DELETE {} HTTP/1.1\r\nhost: localhost\r\n\r\n",
                self.session
            );
            let mut connection = Connection::open(self.address);
            // A driver that has ended needs no word.
            let _ = connection
                .try_send(request)
                .map(|()| connection.try_receive());
        }
        self.driver.kill().expect("it is our child");
        self.driver.wait().expect("it is our child");
    }
}
