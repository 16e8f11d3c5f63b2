//! The red line above every page: what is wrong, and where to look.

use serde_json::json;

use crate::accessibility::{assert_accessible, assert_fits};
use crate::dashboard::{DESKTOP, PHONE, READER, search, sign_in, visit, wait_for_events};
use crate::support::browser::Browser;
use crate::support::client;
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, refusing_address};
use crate::support::wait_for;

/// The sentence of the banner that begins so, and the address of its link.
fn problem(browser: &Browser, begin: &str) -> (String, String) {
    let found = format!(
        "[...document.querySelectorAll('#banner .notice')]
            .find((one) => one.innerText.startsWith({begin:?}))"
    );
    browser.wait_until(&found);
    let parts = browser.run(&format!(
        "const one = {found};
         return [one.innerText, one.querySelector('a').getAttribute('href')];"
    ));
    let text = |place: usize| parts[place].as_str().expect("a text").to_owned();
    (text(0), text(1))
}

#[test]
fn an_ejected_endpoint_is_named_above_every_page() {
    let (origin, dead) = (Origin::plain(), refusing_address());
    let gateway = Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, tokens: {{ read: [{READER}] }} }}
upstreams:
  api: {{ endpoints: ['{}', 'http://{dead}'], ejection: {{ for: 5m }} }}
routes: [{{ upstream: api }}]
",
        origin.url()
    ));
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, READER);
    browser.wait_until("document.querySelector('h1')?.innerText === 'Overview'");
    assert_eq!(browser.text("#banner"), "");
    wait_for_events(&browser, &gateway);
    wait_for("the endpoint to be ejected", || {
        client::get(gateway.address(), "/");
        let count = "return document.querySelectorAll('#banner .notice').length;";
        (browser.run(count) == json!(1)).then_some(())
    });
    let (text, page) = problem(&browser, "Upstream api: ");
    let begin = format!(
        "Upstream api: {dead} is ejected: it accepts no connections; it is tried again in "
    );
    assert!(text.starts_with(&begin), "{text}");
    let remedy = "Look at that server: it gets requests again once it answers.";
    assert!(
        text.contains(" s. Since ") && text.ends_with(&format!(". {remedy} See the upstreams")),
        "{text}"
    );
    assert_eq!(page, "#/upstreams");
    // Readers of the screen hear of it once, not each second.
    let heard = browser.text("#announcer");
    assert!(heard.starts_with(&begin), "{heard}");
    browser.wait_until("document.getElementById('events').innerText.includes('is ejected')");
    assert_accessible(&browser);
    browser.click("#banner a");
    browser.wait_until("document.querySelector('.host.ejected')");
    let state = browser.text(".host.ejected");
    let begin = "ejected: it accepts no connections, since ";
    assert!(state.starts_with(begin), "{state}");
    assert!(state.contains("; tried again in "), "{state}");
    let row = browser.text("tbody");
    assert!(
        row.contains("since the start: ") && row.contains(" connect"),
        "{row}"
    );
    browser.wait_until(&format!(
        "!document.querySelector('#banner').innerText.includes({text:?})"
    ));
    assert_eq!(browser.text("#announcer"), heard);
    browser.resize(PHONE, 2.0);
    assert_fits(&browser);
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn redis_that_is_down_and_costs_that_nobody_states_are_named() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, tokens: {{ read: [{READER}] }} }}
store: {{ redis: {{ url: 'redis://{}', startup_timeout: 0s }} }}
policies:
  here: {{ key: 'header:x-api-key', quota: 9/1h }}
  shared: {{ key: 'header:x-api-key', quota: 9/1h, store: redis }}
  paid: {{ key: 'header:x-api-key', quota: 9/1h, cost: {{ response_header: x-used, reserve: 1, max: 9 }} }}
routes: [{{ upstream: '{}', limits: [here, shared, paid] }}]
",
        refusing_address(),
        origin.url()
    ));
    client::get_with(gateway.address(), "/", "x-api-key: alice\r\n");
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, READER);
    let (text, page) = problem(&browser, "Redis is down: ");
    let told = "each machine counts alone for policy shared. Since ";
    assert!(
        text.contains(told) && text.ends_with(" See the policies"),
        "{text}"
    );
    assert_eq!(page, "#/policies");
    let (text, page) = problem(&browser, "Policy paid: ");
    let begin = "Policy paid: 1 of 1 responses in the last 15 minutes state no cost. Since ";
    let rest = ". Correct the source of the cost: the log has one such response. See policy paid";
    assert!(text.starts_with(begin) && text.ends_with(rest), "{text}");
    assert_eq!(page, "#/policies/paid");
    // The buckets in memory are shown, and the card of the other says why it is empty.
    visit(&browser, "client", "header:x-api-key");
    search(&browser, "alice", 2);
    browser.wait_until(
        "[...document.querySelectorAll('.card')].some((card) =>
            card.querySelector('h2').innerText === 'shared'
            && card.querySelector('.problem').innerText.toLowerCase().includes('redis'))",
    );
    // Readers of the screen hear of it once, with the name of the policy.
    browser.wait_until(
        "[...document.querySelectorAll('#main [role=alert]')]
            .some((one) => one.innerText.startsWith('shared: '))",
    );
    let alerts = browser.run("return document.querySelectorAll('.card [role=alert]').length;");
    assert_eq!(alerts, json!(0));
    assert_accessible(&browser);
}
