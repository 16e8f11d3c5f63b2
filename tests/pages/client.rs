//! The page of one client while time passes: order, focus, selection, and what changes leave behind.

use std::fs;

use serde_json::json;

use crate::accessibility::{assert_accessible, assert_fits};
use crate::dashboard::{DESKTOP, PHONE, WRITER, ask_for, busy, search, search_for, sign_in, visit};
use crate::support::admin::AdminClient;
use crate::support::browser::Browser;
use crate::support::client::{self, Connection};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step};

/// Names of the cards' policies, in their order.
const ORDER: &str = "[...document.querySelectorAll('.card h2')]
    .map((one) => one.innerText.split(',')[0])";

/// A gateway and the buckets of bob, who has used up nothing.
fn bobs_buckets() -> (Gateway, Browser) {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, WRITER);
    visit(&browser, "client", "header:x-api-key");
    search(&browser, "bob", 5);
    (gateway, browser)
}

#[test]
fn cards_stay_where_they_are_until_they_are_looked_up_again() {
    let (gateway, browser) = bobs_buckets();
    browser.wait_until(
        "document.querySelector('.summary')?.innerText.includes('No policy has limited bob in the last')",
    );
    let before = browser.run(&format!("return {ORDER};"));
    assert_ne!(before[0], json!("per-key"), "{before}");
    for _ in 0..20 {
        client::get_with(gateway.address(), "/", "x-api-key: bob\r\n");
    }
    browser.wait_until(
        "document.querySelector('.summary').innerText.includes('per-key limits bob: ')
         && /login.* not limit it/.test(document.querySelector('.summary').innerText)
         && document.querySelector('.card.refused')",
    );
    assert_eq!(browser.run(&format!("return {ORDER};")), before);
    browser.click(".search button");
    browser.wait_until(&format!("{ORDER}[0] === 'per-key'"));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_look_at_the_buckets_keeps_a_selected_text() {
    let (gateway, browser) = bobs_buckets();
    browser.run("document.querySelectorAll('.card details').forEach((one) => one.open = true);");
    browser.wait_until("document.querySelectorAll('.card details dd').length >= 15");
    browser.run(
        "const name = [...document.querySelectorAll('.facts dd')]
             .find((one) => one.innerText.startsWith('k_'));
         getSelection().selectAllChildren(name);",
    );
    client::get_with(gateway.address(), "/login", "x-api-key: bob\r\n");
    browser.wait_until(
        "[...document.querySelectorAll('.card')].some((card) =>
            card.innerText.startsWith('login') && card.innerText.includes('5 of 6'))",
    );
    browser.wait_until("getSelection().toString().startsWith('k_')");
}

#[test]
fn a_ban_shows_its_reason_and_a_reset_says_that_the_ban_remains() {
    let (_gateway, browser) = bobs_buckets();
    let card = "[...document.querySelectorAll('.card')]
        .find((card) => card.innerText.startsWith('login'))";
    ask_for(&browser, "login", "Ban");
    browser.run("document.querySelectorAll('dialog input')[1].value = 'ticket 7';");
    browser.click("dialog button.primary");
    browser.wait_until(&format!("{card}.innerText.includes(': ticket 7')"));
    browser.wait_until(
        "document.querySelector('.summary').innerText.includes('login bans bob until')",
    );
    ask_for(&browser, "login", "Reset");
    browser
        .wait_until("document.querySelector('dialog .preview').innerText.includes(': ticket 7')");
    browser.click("dialog button.primary");
    let said = "document.getElementById('done').innerText";
    browser.wait_until(&format!(
        "{said}.includes('Reset bob on login: done') && {said}.includes('stays banned until')"
    ));
    // The button that had the focus goes: the focus does not fall back to the begin of the page.
    browser.run(&format!(
        "[...{card}.querySelectorAll('button')].find((one) => one.innerText.startsWith('Unban')).focus();"
    ));
    ask_for(&browser, "login", "Unban");
    browser.click("dialog button.primary");
    browser.wait_until(&format!("{said}.includes('Unban bob on login: done')"));
    browser.wait_until(&format!("document.activeElement === {card}"));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_grant_is_for_a_time_and_says_until_when() {
    let (_gateway, browser) = bobs_buckets();
    ask_for(&browser, "login", "Grant");
    // What is typed replaces the suggestion.
    "77".chars().for_each(|digit| browser.press(digit));
    browser.wait_until("document.querySelector('dialog input').value === '77'");
    browser.run("document.querySelector('dialog form').dispatchEvent(new Event('change'));");
    browser.wait_until(
        "document.querySelector('dialog .preview').innerText.includes('and 77 granted until')",
    );
    browser.click("dialog button.primary");
    browser.wait_until(
        "document.querySelector('.cards').innerText.includes('77 of 77\u{a0}requests left')",
    );
}

#[test]
fn another_kind_of_key_begins_empty() {
    let (_gateway, browser) = bobs_buckets();
    browser.run(
        "const kind = document.getElementById('kind');
         kind.value = [...kind.options].find((one) => one.text === 'client_ip').value;
         kind.dispatchEvent(new Event('change'));",
    );
    let value = browser.run("return document.querySelector('.search input').value;");
    assert_eq!(value, json!(""));
}

#[test]
fn the_bucket_of_all_clients_is_shown_and_reset() {
    let gateway = Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, tokens: {{ write: [{WRITER}] }} }}
policies: {{ whole: {{ key: constant, quota: 2/1h }} }}
routes: [{{ upstream: echo, limits: [whole] }}]
"
    ));
    let status = || client::get(gateway.address(), "/").status;
    assert_eq!([status(), status(), status()], [200, 200, 429]);
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, WRITER);
    visit(
        &browser,
        "policies/whole",
        "a bucket for all clients together",
    );
    visit(&browser, "client", "one bucket for all clients");
    browser.click(".search button");
    browser.wait_until(
        "document.querySelector('.summary').innerText
            .includes('whole limits every client: 1\u{a0}request refused')",
    );
    ask_for(&browser, "whole", "Reset");
    browser.click("dialog button.primary");
    browser.wait_until("!document.querySelector('dialog')");
    assert_eq!(status(), 200);
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn the_name_of_a_client_shows_the_buckets_of_its_columns_too() {
    let gateway = Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, tokens: {{ write: [{WRITER}] }} }}
clients:
  identify_by: header:x-api-key
  unknown: anonymous
  list:
    - {{ key: k-acme, name: acme, plan: pro, org: acme-inc }}
    - {{ key: k-idle, name: idle, plan: pro, org: idle-inc }}
policies:
  address: {{ key: client_ip, quota: 9/1h }}
  alone: {{ key: client, on_missing_key: client_ip, quota: 2/300d }}
  both: {{ key: [client, 'client:plan'], quota: 2/300d }}
  by-org: {{ key: 'client:org', quota: 2/300d }}
  mixed: {{ key: [client, 'query:model'], quota: 2/300d }}
routes:
  - {{ name: free, match: {{ path: /free }}, upstream: echo, limits: [alone] }}
  - {{ name: rest, upstream: echo, limits: [alone, both, by-org, mixed, address] }}
"
    ));
    assert_eq!(client::get(gateway.address(), "/free").status, 200);
    for _ in 0..3 {
        client::get_with(gateway.address(), "/?model=m", "x-api-key: k-acme\r\n");
    }
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, WRITER);
    visit(&browser, "client", "client");
    search_for(&browser, "any key", "acme", 3);
    browser.wait_until("document.querySelectorAll('.card.refused').length === 3");
    let policies = browser.run(&format!("return {ORDER}.sort();"));
    assert_eq!(policies, json!(["alone", "both", "by-org"]));
    search_for(&browser, "client", "acme", 1);

    // A search says what is unknown, and is quiet about what can't be.
    let find = |text: &str, said: &str| {
        let buckets = if said.is_empty() { 3 } else { 0 };
        search_for(&browser, "any key", text, buckets);
        let said = json!(said);
        browser.wait_until(&format!(
            "document.querySelector('.summary').innerText.includes({said})"
        ));
        assert_eq!(browser.text("#main > .problem"), "", "{text}");
        browser.run(&format!("return {ORDER}.sort();"))
    };
    assert_eq!(find("acme", ""), policies);
    let url = "http://localhost/?model=m";
    browser.run(&format!(
        "document.querySelector('input[type=url]').value = '{url}';"
    ));
    let explain = |client: Option<&str>, said: &str| {
        let client = json!(client.unwrap_or_default());
        browser.run(&format!(
            "const [name] = document.querySelectorAll('section form input[size=\"14\"]');
             name.value = {client};
             document.querySelector('section form').requestSubmit();"
        ));
        browser.wait_until(&format!(
            "document.querySelector('section .stack').innerText.includes({})",
            json!(said)
        ));
    };
    explain(Some("acme"), "At this instant: limited by alone: 429");
    assert!(!browser.text("section .stack").contains("no known client"));
    explain(
        None,
        "This is the answer for no known client: the request has no key.",
    );
    assert_eq!(find("acmee", "Nothing is known of acmee"), json!([]));
    let is_hidden = browser.run("return document.querySelector('section .stack').hidden;");
    assert_eq!(
        is_hidden,
        json!(true),
        "the answer of another client is gone"
    );
    assert_eq!(find("idle", "idle is a known client"), json!([]));
    search_for(&browser, "any key", "127.0.0.1", 2);
    let found = browser.run(&format!("return {ORDER}.sort();"));
    assert_eq!(found, json!(["address", "alone"]));
    let from = browser.run("return document.querySelector('section input[size=\"16\"]').value;");
    assert_eq!(from, json!("127.0.0.1"), "an address is no client's name");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_request_that_would_wait_is_not_called_limited() {
    let origin = Origin::start(|_| vec![Step::Hang]);
    let gateway = Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, tokens: {{ write: [{WRITER}] }} }}
upstreams: {{ slow: {{ endpoints: ['{}'], timeouts: {{ response: 10m }} }} }}
policies:
  exports: {{ key: 'header:x-api-key', algorithm: concurrency, max: 1, queue: 1, max_wait: 10m }}
routes: [{{ upstream: slow, limits: [exports] }}]
",
        origin.url()
    ));
    let request = "GET / HTTP/1.1\r\nhost: a\r\nx-api-key: alice\r\n\r\n";
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, WRITER);
    let mut first = Connection::open(gateway.address());
    first.send(request);
    visit(&browser, "client", "header:x-api-key");
    search(&browser, "alice", 1);
    browser.wait_until(
        "document.querySelector('.facts').innerText.includes('waits until another request ends')",
    );
    let mut second = Connection::open(gateway.address());
    second.send(request);
    browser
        .wait_until("document.querySelector('.facts').innerText.includes('until a request ends')");
}

/// A limit that refuses most requests has a unit free at the instant of many looks.
#[test]
fn the_headline_speaks_of_the_last_minutes_and_not_of_an_instant() {
    let gateway = Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, tokens: {{ write: [{WRITER}] }} }}
policies: {{ plan: {{ key: 'header:x-api-key', quota: 60/1m }} }}
routes: [{{ upstream: echo, limits: [plan] }}]
"
    ));
    for _ in 0..80 {
        client::get_with(gateway.address(), "/", "x-api-key: alice\r\n");
    }
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, WRITER);
    visit(&browser, "client", "any key");
    search_for(&browser, "any key", "alice", 1);
    browser.wait_until(
        "document.querySelector('.summary').innerText.includes('plan limits alice: ')
         && /Next request\\s+allowed/.test(document.querySelector('.facts').innerText)",
    );
    browser.run(
        "navigator.clipboard.writeText = async (text) => { window.copied = text; };
         [...document.querySelectorAll('.card button')].at(-1).click();",
    );
    browser.wait_until("window.copied");
    let copied = browser.run("return window.copied;").to_string();
    for part in [
        "Name in logs: k_",
        "Refused: ",
        " in the last ",
        ", since ",
        "allows about",
    ] {
        assert!(copied.contains(part), "{copied}");
    }
    let grant =
        json!({ "policy": "plan", "key": "alice", "units": 1, "for": "1h", "dry_run": true });
    let answer = AdminClient::new(&gateway, WRITER).post("/v1/keys/grant", &grant);
    assert!(
        answer.text().contains("at the present rate 1 last about"),
        "{}",
        answer.text()
    );
    browser.click(".card details summary");
    browser.wait_until("document.querySelector('.card').innerText.includes('Name in logs')");
    assert_accessible(&browser);
    browser.resize(PHONE, 2.0);
    assert_fits(&browser);
    // What a reload has changed is told where it limits.
    let text = fs::read_to_string(gateway.config_path()).expect("a configuration");
    gateway.reload(&text.replace("60/1m", "50/1m"));
    browser.wait_until(
        "document.querySelector('.facts').innerText.includes('60/1m becomes 50/1m by the reload at')",
    );
    browser.wait_until(
        "document.getElementById('notes').innerText.includes('Policy plan: 60/1m becomes 50/1m')",
    );
    assert_eq!(browser.console(), [""; 0]);
}
