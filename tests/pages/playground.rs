//! `sluicegate playground`: the page, in a real browser, and its server.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::accessibility::{assert_accessible, assert_fits};
use crate::support::browser::{Appearance, Browser};
use crate::support::client::{Connection, Response, get_with};
use crate::support::gateway::Gateway;
use crate::support::wait_for;

/// Set to renew the pictures in docs/pictures.
const PICTURES: &str = "SLUICEGATE_PICTURES";

const DESKTOP: (u32, u32) = (1280, 1150);
const PHONE: (u32, u32) = (360, 740);

/// Keys of WebDriver.
const TAB: char = '\u{e004}';
const SPACE: char = '\u{e00d}';

/// The running playground, ended on drop.
struct Playground {
    process: Child,
    url: String,
}

impl Playground {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
            .args(["playground", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut url = String::new();
        let stdout = process.stdout.take().expect("stdout is a pipe");
        let read = BufReader::new(stdout).read_line(&mut url);
        read.expect("the playground tells its address");
        Self {
            process,
            url: url.trim().to_owned(),
        }
    }

    fn address(&self) -> SocketAddr {
        let address = self.url.strip_prefix("http://");
        let address = address.and_then(|rest| rest.strip_suffix('/'));
        address.and_then(|text| text.parse().ok()).expect("a URL")
    }

    /// Opens the page, and waits for the first decisions.
    fn open(&self, browser: &Browser) {
        browser.open(&self.url);
        browser.wait_until("document.querySelectorAll('.counts .allowed').length === 6");
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> Response {
        let request = format!(
            "POST {path} HTTP/1.1\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        Connection::open(self.address()).exchange(&request)
    }

    fn post_json(&self, path: &str, body: &Value) -> Value {
        let headers = format!(
            "host: {}\r\ncontent-type: application/json\r\n",
            self.address()
        );
        let response = self.post(path, &headers, &body.to_string());
        assert_eq!(response.status, 200, "{}", response.text());
        serde_json::from_slice(&response.body).expect("JSON")
    }
}

impl Drop for Playground {
    fn drop(&mut self) {
        self.process.kill().expect("it is our child");
        self.process.wait().expect("it is our child");
    }
}

/// The page asks a server again that is busy for long, as on a slow machine.
#[track_caller]
fn assert_no_errors(browser: &Browser) {
    let mut lines = browser.console();
    lines.retain(|line| !line.contains("status of 503"));
    assert_eq!(lines, [""; 0]);
}

/// First words of the decisions in the table, a list for each request, latest first.
const TABLE: &str = "return [...document.querySelectorAll('#table tbody tr')].map((row) =>
    [...row.querySelectorAll('td.word')].map((cell) => cell.innerText.split(/[ ,]/)[0]));";

/// The state in the address, as its JSON.
const STATE: &str = "const text = location.hash.slice(1).replaceAll('-', '+').replaceAll('_', '/');
    return text ? JSON.parse(atob(text)) : {};";

#[test]
fn the_page_shows_what_the_server_decides() {
    let (playground, browser) = (Playground::start(), Browser::start(DESKTOP));
    playground.open(&browser);
    browser.click("#decisions summary");
    for _ in 0..3 {
        browser.click("#one");
    }
    browser.click("#burst");
    // 29 of the first requests lie before the shown instant.
    let state = wait_for("the address to hold all requests", || {
        let state = browser.run(STATE);
        let counts = state["a"].as_array()?.iter();
        let counts = counts.map(|one| one["count"].as_u64().unwrap_or(1));
        (counts.sum::<u64>() == 35 + 3 + 15).then_some(state)
    });
    let answer = playground.post_json(
        "/v1/playground",
        &json!({ "policies": state["p"], "arrivals": state["a"] }),
    );
    let shown = |table: &Value| table.as_array().is_some_and(|rows| rows.len() == 40);
    let table = wait_for("forty rows", || {
        Some(browser.run(TABLE)).filter(|table| shown(table))
    });
    let until = state["t"].as_u64().expect("a number");
    let policies = answer["policies"].as_array().expect("a list");
    for (column, policy) in policies.iter().enumerate() {
        let decisions = policy["decisions"].as_array().expect("a list").iter();
        let before = decisions.filter(|row| row["at_ms"].as_u64() <= Some(until));
        let latest: Vec<_> = before.rev().take(40).map(|row| &row["decision"]).collect();
        let rows = table.as_array().expect("a list").iter();
        let told: Vec<_> = rows.map(|row| &row[column]).collect();
        assert_eq!(told, latest, "{}", policy["name"]);
    }
    // Requests have the colours of the legend.
    let colours = browser.run(
        "return ['allowed', 'limited'].map((word) => [`.mark.${word}`, `.timeline .${word}`]
             .map((one) => getComputedStyle(document.querySelector(one)).color))
             .map(([legend, drawn]) => legend === drawn);",
    );
    assert_eq!(colours, json!([true, true]));
    assert_no_errors(&browser);
}

/// A request that costs more than any bucket holds changes none, and shows its cell.
#[test]
fn drawings_run_on_as_the_buckets_do() {
    let (playground, browser) = (Playground::start(), Browser::start(DESKTOP));
    browser.open(&playground.url);
    let differences = browser.run(DRAWN_AND_REAL);
    assert_eq!(differences, json!([]));
}

const DRAWN_AND_REAL: &str = r#"
    const { advance } = await import("/assets/js/cell/advance.js");
    const { post } = await import("/assets/js/api.js");
    const policies = [
        { name: "token", algorithm: "token_bucket", quota: "10/10s" },
        { name: "steps", algorithm: "token_bucket", capacity: 10, refill: "3 per 2s" },
        { name: "gcra", algorithm: "gcra", quota: "7/10s", burst: 3 },
        { name: "queue", algorithm: "leaky_bucket", quota: "2/1s", queue: 9, delay_after: 2 },
        { name: "clock", algorithm: "fixed_window", quota: "10/5s" },
        { name: "window", algorithm: "fixed_window", quota: "10/5s", start: "first_request" },
        { name: "sliding", algorithm: "sliding_window", quota: "10/5s" },
        { name: "parts", algorithm: "sliding_window", quota: "10/6s", precision: 6, oldest: "whole" },
    ];
    const log = [{ name: "log", algorithm: "sliding_log", quota: "10/5s" }];
    const arrivals = [{ at_ms: 1234, count: 8, every_ms: 130 }, { at_ms: 4321, count: 9, every_ms: 90 }];
    const close = (left, right) => typeof left === "number"
        ? Math.abs(left - right) < 1e-3
        : left !== null && typeof left === "object"
            ? Object.keys(left).every((key) => close(left[key], right[key]))
            : left === right;
    const probes = { at_ms: 2400, count: 28, every_ms: 617, cost: 1000 };
    const differences = [];
    for (const compared of [policies, log]) {
        const answer = await post("/v1/playground", { policies: compared, arrivals: [...arrivals, probes] });
        for (const { name, new_cell, decisions } of answer.policies) {
            let before = null;
            for (const { at_ms, cost, cell } of decisions) {
                if (cost !== 1000) {
                    before = { at_ms, cell };
                    continue;
                }
                const drawn = advance(before.cell, at_ms - before.at_ms, new_cell);
                if (!close(drawn, cell)) {
                    differences.push([name, at_ms, drawn, cell]);
                }
            }
        }
    }
    return differences;
"#;

#[test]
fn the_page_is_for_keyboards_readers_and_phones() {
    let (playground, browser) = (Playground::start(), Browser::start(DESKTOP));
    playground.open(&browser);
    assert_accessible(&browser);
    let wanted = [
        "scenario",
        "quota",
        "add",
        "rewind",
        "play",
        "time",
        "speed",
        "client",
        "one",
        "burst",
        "burst-size",
        "stream",
        "stream-rate",
    ];
    let mut reached = Vec::new();
    for _ in 0..20 {
        browser.press(TAB);
        let id = browser.run("return document.activeElement.id;");
        reached.extend(id.as_str().map(str::to_owned));
        if reached.last().is_some_and(|id| id == "one") {
            browser.press(SPACE);
        }
    }
    let mut order = reached.iter();
    assert!(
        wanted.iter().all(|id| order.any(|one| one == id)),
        "{reached:?}"
    );
    browser.wait_until("document.getElementById('heard').innerText.includes('token-bucket')");
    browser.appear(Appearance::Dark);
    browser.click("#decisions summary");
    browser.click("#yaml summary");
    assert_accessible(&browser);
    browser.resize(PHONE, 2.0);
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; });");
    assert_fits(&browser);
    assert_accessible(&browser);
    assert_no_errors(&browser);
}

#[test]
fn a_link_holds_the_requests_and_the_settings() {
    let (playground, browser) = (Playground::start(), Browser::start(DESKTOP));
    playground.open(&browser);
    browser.run(
        "const quota = document.getElementById('quota');
         quota.value = '3/2s';
         quota.dispatchEvent(new Event('change'));",
    );
    wait_for("the address to hold the quota", || {
        (browser.run(STATE)["p"][0]["quota"] == "3/2s").then_some(())
    });
    let link = browser.run("return location.href;");
    let counts = "return [...document.querySelectorAll('.counts')].map((one) => one.innerText);";
    browser.wait_until("document.querySelector('.about').innerText.includes('3\u{a0}requests/2s')");
    // The lanes show the decisions with the old quota until the server has answered.
    browser.wait_until("document.getElementById('lanes').ariaBusy === 'false'");
    let before = browser.run(counts);
    browser.open(link.as_str().expect("an address"));
    browser.wait_until("document.querySelectorAll('.counts .allowed').length === 6");
    assert_eq!(browser.run(counts), before);
}

#[test]
fn a_link_that_is_copied_while_requests_stream_holds_them() {
    let (playground, browser) = (Playground::start(), Browser::start(DESKTOP));
    playground.open(&browser);
    browser.run(
        "const scenario = document.getElementById('scenario');
         scenario.value = 'none';
         scenario.dispatchEvent(new Event('change'));",
    );
    browser.wait_until("document.querySelector('.counts').innerText.startsWith('0 allowed')");
    browser.click("#stream");
    browser.wait_until("parseInt(document.querySelector('.counts').innerText) >= 2");
    browser.click("#share");
    let state = browser.run(STATE);
    let counts = state["a"].as_array().expect("arrivals").iter();
    let counts = counts.map(|one| one["count"].as_u64().unwrap_or(1));
    assert!(counts.sum::<u64>() >= 2, "{state}");
    let shown = browser.run("return document.getElementById('scenario').value;");
    assert_eq!(
        shown, "own",
        "these are no longer the requests of a pattern"
    );
    let spoken =
        browser.run("return document.querySelector('.timeline').getAttribute('aria-label');");
    let spoken = spoken.as_str().expect("a text");
    assert!(
        spoken.contains(" allowed, ") && spoken.ends_with(" limited"),
        "{spoken}"
    );
}

#[test]
fn a_shared_link_comes_back_after_signing_in() {
    let gateway = Gateway::start(
        "admin: { address: 127.0.0.1:0, tokens: { read: [reader-0123456789abcdef] } }\nroutes: [{ upstream: echo }]\n",
    );
    let (playground, browser) = (Playground::start(), Browser::start(DESKTOP));
    playground.open(&browser);
    browser.click("#burst");
    browser.wait_until(
        "document.querySelector('.counts').innerText.match(/[0-9]+/g)
            .reduce((sum, one) => sum + Number(one), 0) === 28 + 15",
    );
    browser.click("#share");
    let counts = "return [...document.querySelectorAll('.counts')].map((one) => one.innerText);";
    let before = browser.run(counts);
    let fragment = browser.run("return location.hash;");
    let fragment = fragment.as_str().expect("a text");
    browser.open(&format!("http://{}/playground{fragment}", gateway.admin));
    browser.wait_until("document.querySelector('#problem a')");
    browser.click("#problem a");
    browser.wait_until("document.getElementById('token')");
    browser.run(
        "document.getElementById('token').value = 'reader-0123456789abcdef';
         document.querySelector('.login').requestSubmit();",
    );
    browser.wait_until("document.querySelectorAll('.counts .allowed').length === 6");
    assert_eq!(browser.run(counts), before);
    browser.click("#home");
    browser.wait_until("document.querySelector('h1')?.innerText === 'Overview'");
}

#[test]
fn a_text_is_checked_while_it_is_written_and_applied() {
    let (playground, browser) = (Playground::start(), Browser::start(DESKTOP));
    playground.open(&browser);
    browser.click("#yaml summary");
    let write = |text: &str| {
        browser.run(&format!(
            "const text = document.getElementById('text');
             text.focus();
             text.value = {text:?};
             text.dispatchEvent(new Event('input'));"
        ));
    };
    write("policies: { login: { qota: 5/10s } }\nroutes: [{ upstream: echo, limits: [login] }]\n");
    browser.wait_until("document.getElementById('findings').innerText.includes('did you mean')");
    assert_eq!(
        browser.run("return document.getElementById('apply').disabled;"),
        true
    );
    write(
        "policies: { login: { quota: 5/10s, penalty: { strikes: 2, within: 1m, for: [2m] } } }
routes: [{ upstream: echo, limits: [login] }]
",
    );
    browser.wait_until("!document.getElementById('apply').disabled");
    browser.click("#apply");
    browser.wait_until("document.querySelectorAll('.lane').length === 1");
    browser.wait_until("document.querySelector('.counts')?.innerText.includes('23 limited')");
    assert_no_errors(&browser);
}

#[test]
fn pages_of_other_sites_are_refused() {
    let playground = Playground::start();
    let address = playground.address();
    let body = json!({ "policies": [{ "quota": "1/1s" }], "arrivals": [] }).to_string();
    let status = |headers: &str| {
        let headers = format!("{headers}content-type: application/json\r\n");
        playground.post("/v1/playground", &headers, &body).status
    };
    let own = format!("host: {address}\r\n");
    assert_eq!(status(&own), 200);
    assert_eq!(status(&format!("{own}origin: http://{address}\r\n")), 200);
    assert_eq!(
        status(&format!("{own}origin: http://other.example\r\n")),
        403
    );
    assert_eq!(status(&format!("{own}sec-fetch-site: same-site\r\n")), 403);
    assert_eq!(status("host: rebound.example\r\n"), 421);
    // A link to the page may stand anywhere.
    let page = get_with(address, "/", "sec-fetch-site: cross-site\r\n");
    assert_eq!(page.status, 200);
    let plain = format!("{own}content-type: text/plain\r\n");
    assert_eq!(playground.post("/v1/playground", &plain, &body).status, 415);
    let large = format!("{own}content-type: application/json\r\n");
    let large = playground.post("/v1/playground", &large, &" ".repeat(70_000));
    assert_eq!(large.status, 413);
}

/// Renews the pictures of the documentation if asked to; otherwise sees that the page can be drawn.
#[test]
fn pictures_for_the_documentation() {
    let (playground, browser) = (Playground::start(), Browser::start(DESKTOP));
    playground.open(&browser);
    let pictures = std::env::var_os(PICTURES).map(|_| PathBuf::from("docs/pictures"));
    let folder = tempfile::tempdir().expect("a temporary directory");
    let folder = pictures.unwrap_or_else(|| folder.path().to_owned());
    browser.resize(DESKTOP, 1.5);
    browser.save_picture(&folder.join("playground.png"));
    browser.appear(Appearance::Dark);
    browser.resize((400, 860), 2.0);
    browser.save_picture(&folder.join("playground-phone.png"));
}

#[test]
fn numbers_out_of_bounds_are_refused_with_the_bounds() {
    let (playground, browser) = (Playground::start(), Browser::start(DESKTOP));
    playground.open(&browser);
    let set = |id: &str, value: &str| {
        browser.run(&format!(
            "document.getElementById('{id}').value = '{value}';"
        ));
        browser.click(&format!("#{}", id.split('-').next().expect("a word")));
    };
    let requests = || {
        let state = browser.run(STATE);
        let counts = state["a"].as_array().into_iter().flatten();
        counts
            .map(|one| one["count"].as_u64().unwrap_or(1))
            .sum::<u64>()
    };
    wait_for("the first address", || (requests() == 35).then_some(()));
    for wrong in ["0", "201", "1.5", ""] {
        set("burst-size", wrong);
        browser.wait_until(
            "document.getElementById('wrong').innerText === 'A burst has 1 to 200 requests.'",
        );
        browser.wait_until(
            "document.getElementById('burst-size').getAttribute('aria-invalid') === 'true'",
        );
    }
    set("stream-rate", "51");
    browser.wait_until("document.getElementById('wrong').innerText === 'A stream has 0.1 to 50 requests a second.'");
    browser
        .wait_until("document.getElementById('stream').getAttribute('aria-pressed') === 'false'");
    assert_accessible(&browser);
    set("burst-size", "200");
    browser.wait_until("document.getElementById('wrong').innerText === ''");
    wait_for("the burst, and none of the others", || {
        (requests() == 235).then_some(())
    });
    assert_no_errors(&browser);
}

#[test]
fn a_link_beyond_all_times_is_refused_in_words() {
    let (playground, browser) = (Playground::start(), Browser::start(DESKTOP));
    for state in [
        json!({ "v": 1, "p": [], "a": [], "t": 0, "e": 1e308 }),
        json!({ "v": 1, "p": [], "a": [], "t": 1e308, "e": 1e308 }),
        json!({ "v": 1, "p": [], "a": [{ "at_ms": 1e300 }], "t": 0, "e": 0 }),
        json!({ "v": 1, "p": [], "a": [{ "at_ms": 1, "count": 3, "every_ms": 1e300 }], "t": 0, "e": 0 }),
    ] {
        let fragment = STANDARD.encode(state.to_string());
        browser.open(&format!("{}#{fragment}", playground.url));
        browser.wait_until("document.querySelectorAll('.counts .allowed').length === 6");
        browser
            .wait_until("document.getElementById('shared').innerText.startsWith('This link can')");
        assert_no_errors(&browser);
    }
}

/// Answers come late on a slow machine, or not at all.
#[test]
fn only_answers_to_the_present_state_are_shown() {
    let (playground, browser) = (Playground::start(), Browser::start(DESKTOP));
    browser.open(&playground.url);
    let shown = browser.run(LATE_ANSWERS);
    let expected = json!([
        [[], "b", []],
        ["b", false, 0],
        ["no answer", 0],
        ["b", [10, 20]],
        [1, [10, 15, 20]],
    ]);
    assert_eq!(shown, expected);
}

const LATE_ANSWERS: &str = r#"
    const { Model } = await import("/assets/js/playground/model.js");
    const asked = [];
    const model = new Model((path, body) => new Promise((resolve, reject) => asked.push({ body, resolve, reject })));
    const answer = async (name, ...instants) => {
        asked.at(-1).resolve({ policies: [{ name, decisions: instants.map((at_ms) => ({ at_ms })) }] });
        await new Promise((done) => setTimeout(done));
    };
    const instants = () => model.lanes[0].decisions.map(({ at_ms }) => at_ms);
    const shown = [];

    // The policies change while the server decides.
    model.set({ policies: [{ name: "a" }], arrivals: [] });
    model.set({ policies: [{ name: "b" }] });
    await answer("a");
    shown.push([model.lanes, asked[1].body.policies[0].name, model.arrivals]);
    await answer("b");
    shown.push([model.lanes[0].name, model.isAsking, asked[1].body.from]);

    // A request without an answer is decided with the next one.
    model.send([10]);
    asked.at(-1).reject(new Error("no answer"));
    await new Promise((done) => setTimeout(done));
    const { message } = model.problem;
    model.send([20]);
    shown.push([message, asked.at(-1).body.from]);
    await answer("b", 10, 20);
    shown.push([model.lanes[0].name, instants()]);

    // One in between changes what comes after it.
    model.send([15]);
    const { from } = asked.at(-1).body;
    await answer("b", 15, 20);
    shown.push([from, instants()]);
    return shown;
"#;

#[test]
fn a_busy_server_is_asked_again() {
    let (playground, browser) = (Playground::start(), Browser::start(DESKTOP));
    browser.open(&playground.url);
    let asked = browser.run(
        r#"const { compute } = await import("/assets/js/api.js");
        const asked = [];
        window.fetch = (path) => {
            asked.push(path);
            const status = path === "/busy" || asked.length === 1 ? 503 : 200;
            return Promise.resolve(Response.json({ detail: "busy", status }, { status }));
        };
        const answer = await compute("/v1/check", {});
        const problem = await compute("/busy", {}).catch(({ message }) => message);
        return [answer.status, problem, asked];"#,
    );
    let expected = json!([
        200,
        "busy",
        ["/v1/check", "/v1/check", "/busy", "/busy", "/busy"]
    ]);
    assert_eq!(asked, expected);
}
