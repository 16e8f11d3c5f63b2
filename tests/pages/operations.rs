//! What operators did and what happened: notes, events of the last hour, reloads, ejections, a server
//! that is gone, and rates of many policies.

use std::fmt::Write;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::accessibility::{assert_accessible, assert_fits};
use crate::dashboard::{
    DESKTOP, PHONE, READER, SIX_POLICIES, WRITER, busy, sign_in, visit, wait_for_events,
    with_endpoints,
};
use crate::support::admin::AdminClient;
use crate::support::browser::Browser;
use crate::support::client;
use crate::support::costs;
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, refusing_address};
use crate::support::wait_for;

#[test]
fn notes_and_the_events_of_the_last_hour_are_there_at_once() {
    let gateway = busy();
    let api = AdminClient::new(&gateway, WRITER);
    let mode = json!({ "mode": "shadow", "reason": "ticket 7" });
    assert_eq!(api.post("/v1/policies/login/mode", &mode).status, 200);
    let ban = json!({ "policy": "daily", "key": "bob", "for": "1h" });
    assert_eq!(api.post("/v1/keys/ban", &ban).status, 200);
    // A mistyped duration changes nothing, and is no event for everybody.
    let mistyped = json!({ "policy": "daily", "key": "bob", "for": "1 fortnight" });
    assert_eq!(api.post("/v1/keys/ban", &mistyped).status, 422);
    gateway.replace_config("unknown: key\n");
    gateway.signal(Signal::HUP);
    gateway.wait_for_log("the configuration is not reloaded");
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, READER);
    for part in [
        "write#1: mode of login",
        "write#1: ban of daily",
        "A reload failed",
    ] {
        browser.wait_until(&format!(
            "document.getElementById('events').innerText.includes({part:?})"
        ));
    }
    let events = browser.text("#events");
    assert!(
        events.contains("sluicegate.yaml:3:1: unknown key"),
        "the reason of the reload: {events}"
    );
    assert!(
        !events.contains("null") && !events.contains("fortnight"),
        "{events}"
    );
    browser.wait_until(
        "document.getElementById('notes').innerText.includes('policy login')
        || document.getElementById('notes').innerText.includes('Policy login')",
    );
    let notes = browser.text("#notes");
    assert!(
        notes.contains("mode shadow") && notes.contains("ticket 7"),
        "{notes}"
    );
    assert_accessible(&browser);
    // A stream that is opened again repeats nothing.
    let lines = "document.querySelectorAll('#events p').length";
    let before = browser.run(&format!("return {lines};"));
    browser.run("document.dispatchEvent(new Event('visibilitychange'));");
    assert_eq!(
        api.post("/v1/policies/login/mode", &json!({ "mode": "configured" }))
            .status,
        200
    );
    browser.wait_until(&format!("{lines} === {before} + 1"));
    browser.wait_until("!document.getElementById('notes').innerText.includes('mode shadow')");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_reload_tells_what_became_of_buckets_and_a_removed_upstream_goes() {
    let gateway = with_endpoints();
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, READER);
    visit(&browser, "upstreams", "127.0.0.1:10");
    gateway.reload(&format!(
        "admin: {{ address: 127.0.0.1:0, tokens: {{ read: [{READER}], write: [{WRITER}] }} }}
policies:
  one: {{ key: 'header:x-key', quota: 7/1h }}
  per-nothing: {{ key: constant, quota: 9/1h }}
routes: [{{ upstream: echo, limits: [one, per-nothing] }}]
"
    ));
    browser.wait_until("!document.getElementById('main').innerText.includes('127.0.0.1:10')");
    assert!(!browser.text("#main").contains("Drain"));
    browser
        .wait_until("document.getElementById('events').innerText.includes('Buckets: one reset')");
}

#[test]
fn an_ejected_endpoint_is_readmitted() {
    let (origin, dead) = (Origin::plain(), refusing_address());
    let gateway = Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, tokens: {{ read: [{READER}], write: [{WRITER}] }} }}
upstreams: {{ api: {{ endpoints: ['http://{dead}', '{}'], ejection: {{ for: 5m }} }} }}
routes: [{{ upstream: api }}]
",
        origin.url()
    ));
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, WRITER);
    visit(&browser, "upstreams", "api");
    let readmit = "document.querySelector('button[aria-label^=Readmit]')";
    wait_for("the endpoint to be ejected", || {
        client::get(gateway.address(), "/");
        (browser.run(&format!("return Boolean({readmit});")) == json!(true)).then_some(())
    });
    browser.run(&format!("{readmit}.click();"));
    browser.wait_until("document.querySelector('dialog[open] button.primary:enabled')");
    browser.click("dialog button.primary");
    browser.wait_until("!document.querySelector('dialog')");
    let line = gateway.wait_for_log("action=\"readmit\"");
    assert!(line.contains("write#1"), "{line}");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn figures_of_a_server_that_is_gone_are_greyed_and_say_since_when() {
    let (mut gateway, browser) = (busy(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, READER);
    browser.wait_until(SIX_POLICIES);
    assert_eq!(
        browser.run("return document.querySelector('.stale');"),
        json!(null)
    );
    gateway.signal(Signal::KILL);
    gateway.wait();
    browser.wait_until("document.querySelector('main.stale')");
    let banner = browser.text("#banner");
    assert!(
        banner.starts_with("The server has not answered since "),
        "{banner}"
    );
    assert!(banner.contains(": the figures are from then."), "{banner}");
}

#[test]
fn charts_do_not_draw_through_gaps() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    browser.open(&format!("http://{}/", gateway.admin));
    let outlines = browser.run(
        "return import('/assets/js/dashboard/chart.js').then(({ createChart }) => {
             const outlines = (...runs) => {
                 const chart = createChart(['passed'], 'requests');
                 const step = (at) => ({ begin: at * 1_000, end: (at + 10) * 1_000, counts: { passed: 5 } });
                 const steps = runs.flatMap(([from, to]) => Array.from({ length: (to - from) / 10 }, (_, place) => step(from + place * 10)));
                 chart.show(steps, [], 3_600_000, 200_000);
                 return chart.node.querySelectorAll('.area.passed').length;
             };
             return [outlines([0, 200]), outlines([0, 100], [150, 200]), outlines([190, 200]), outlines()];
         });",
    );
    assert_eq!(outlines, json!([1, 2, 1, 0]));
}

/// More policies than a step of the past has are busy, and the one that is looked at decides least.
#[test]
fn each_of_many_policies_has_its_rate() {
    let mut policies = String::new();
    let mut names = Vec::new();
    for number in 0..230 {
        writeln!(
            policies,
            "  p{number:03}: {{ key: constant, quota: 1000000/1h }}"
        )
        .expect("a text");
        names.push(format!("p{number:03}"));
    }
    writeln!(policies, "  quiet: {{ key: constant, quota: 1000000/1h }}").expect("a text");
    let gateway = Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, tokens: {{ read: [{READER}] }} }}
policies:
{policies}routes:
  - {{ match: {{ path: /one }}, upstream: echo, limits: [{}, quiet] }}
  - {{ upstream: echo, limits: [{}] }}
",
        names.join(", "),
        names.join(", ")
    ));
    // From the start on: a span without requests has a rate of 0, rightly.
    let (address, (stop, stopped)) = (gateway.address(), mpsc::channel::<()>());
    let asking = thread::spawn(move || {
        let pause = Duration::from_millis(100);
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            for path in ["/one", "/", "/", "/"] {
                client::get(address, path);
            }
        }
    });
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, READER);
    browser.run("location.hash = '#/policies/quiet';");
    browser.wait_until("document.querySelector('h1')?.innerText === 'quiet'");
    let allowed = "return document.querySelector('.figure .value').innerText;";
    let shown = wait_for("the rate of the quiet policy", || {
        let shown = browser.run(allowed);
        let shown = shown.as_str().unwrap_or_default().to_owned();
        // Unknown at first, then the mean; never 0.
        assert_ne!(shown, "0", "a rate that is unknown");
        (shown != "–").then_some(shown)
    });
    assert!(shown.parse::<f64>().is_ok_and(|rate| rate > 0.0), "{shown}");
    assert_eq!(browser.console(), [""; 0]);
    drop(stop);
    asking.join().expect("all are answered");
}

/// Other readers at the same address hold all streams that it may have.
#[test]
fn a_page_without_a_stream_has_rates_and_events() {
    let gateway = busy();
    let request = format!(
        "GET /v1/live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {READER}\r\n\r\n"
    );
    let streams: Vec<_> = (0..16)
        .map(|_| {
            let mut stream = client::Connection::open(gateway.admin);
            stream.send(&request);
            assert_eq!(stream.receive_head().status, 200);
            stream
        })
        .collect();
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, READER);
    browser.run("location.hash = '#/policies/daily';");
    browser.wait_until("document.querySelector('h1')?.innerText === 'daily'");
    wait_for("a rate by counts", || {
        client::get(gateway.address(), "/");
        let shown = browser.text(".figure .value");
        shown
            .parse()
            .is_ok_and(|rate: f64| rate > 0.0)
            .then_some(())
    });
    assert_eq!(browser.text("#banner"), "");
    wait_for_events(&browser, &gateway);
    drop(streams);
}

#[test]
fn routes_and_events_are_searched_and_keys_lead_there() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, WRITER);
    browser.wait_until(SIX_POLICIES);
    let press = |key: &str| {
        browser.run(&format!(
            "document.body.dispatchEvent(new KeyboardEvent('keydown', {{ key: {key:?}, bubbles: true, cancelable: true }}));"
        ));
    };
    let find = |text: &str| {
        press("/");
        browser.run(&format!(
            "const input = document.activeElement;
             input.value = {text:?};
             input.dispatchEvent(new Event('input'));"
        ));
    };
    // A page without a field leads to that of a client.
    press("/");
    browser.wait_until(
        "document.activeElement.matches('#main input')
         && document.querySelector('h1').innerText === 'Client'",
    );
    press("?");
    browser.wait_until("document.querySelector('dialog[open]')?.innerText.includes('Routes')");
    assert_accessible(&browser);
    browser.click("dialog button");
    press("p");
    browser.wait_until("document.querySelector('h1').innerText === 'Policies'");
    find("trial");
    browser.wait_until("document.getElementById('main').innerText.includes('1 of 6')");
    assert_accessible(&browser);
    press("r");
    browser.wait_until("document.getElementById('main').innerText.includes(' routes')");
    let rows = "document.querySelectorAll('tbody tr').length";
    let all = browser.run(&format!("return {rows};")).as_u64();
    find("login");
    browser.wait_until(&format!("{rows} < {}", all.expect("a number")));
    // The rates come with the second step.
    browser.wait_until("document.querySelector('tbody').innerText.includes('/s')");
    assert_accessible(&browser);
    let mode = json!({ "mode": "shadow", "reason": "a load test" });
    let api = AdminClient::new(&gateway, WRITER);
    assert_eq!(api.post("/v1/policies/login/mode", &mode).status, 200);
    press("e");
    browser.wait_until("document.getElementById('main').innerText.includes('a load test')");
    find("nobody");
    browser
        .wait_until("document.getElementById('main').innerText.includes('No event is like that')");
    assert_accessible(&browser);
    browser.resize(PHONE, 2.0);
    assert_fits(&browser);
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_policy_of_dollars_shows_what_is_spent_and_by_whom() {
    let origin = costs::origin();
    let gateway = Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, keys: readable, tokens: {{ read: [{READER}] }} }}
policies:
  dollars:
    key: header:x-api-key
    unit: usd
    algorithm: fixed_window
    quota: $5/1d
    cost: {{ response_header: x-tokens-used, reserve: 1, max: $1 }}
routes: [{{ upstream: '{}', limits: [dollars] }}]
",
        origin.url()
    ));
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, READER);
    visit(&browser, "policies/dollars", "Who spends most");
    // Units are counted once somebody asks.
    wait_for("who spends", || {
        client::get_with(gateway.address(), "/used/250000", "x-api-key: acme\r\n");
        let rows = browser.text("[aria-label^='Who spends']");
        (rows.contains("acme") && rows.contains('$')).then_some(())
    });
    let spent = "[...document.querySelectorAll('.figure')].find((one) => one.innerText.startsWith('Spent'))";
    browser.wait_until(&format!("/\\$\\d/.test({spent}.innerText)"));
    assert_accessible(&browser);
    assert_eq!(browser.console(), [""; 0]);
}
