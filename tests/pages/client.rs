//! The page of one client while time passes: order, focus, selection, and what changes leave behind.

use serde_json::json;

use crate::dashboard::{DESKTOP, WRITER, ask_for, busy, search, search_for, sign_in, visit};
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
fn cards_stay_where_they_are_until_they_are_sorted_again() {
    let (gateway, browser) = bobs_buckets();
    browser.wait_until(
        "document.querySelector('.summary')?.innerText.includes('No policy limits bob now')",
    );
    let before = browser.run(&format!("return {ORDER};"));
    assert_ne!(before[0], json!("login"), "{before}");
    for _ in 0..5 {
        client::get_with(gateway.address(), "/login", "x-api-key: bob\r\n");
    }
    browser.wait_until(
        "document.querySelector('.summary').innerText.includes('bob is limited now by login')
         && document.querySelector('.card.refused')",
    );
    assert_eq!(browser.run(&format!("return {ORDER};")), before);
    browser.click(".summary button");
    browser.wait_until(&format!("{ORDER}[0] === 'login'"));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_look_at_the_buckets_keeps_a_selected_text() {
    let (gateway, browser) = bobs_buckets();
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
    browser
        .wait_until("document.querySelector('.summary').innerText.includes('by login (banned)')");
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
            .includes('every client is limited now by whole')",
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
  list: [{{ key: k-acme, name: acme, plan: pro, org: acme-inc }}]
policies:
  alone: {{ key: client, quota: 2/300d }}
  both: {{ key: [client, 'client:plan'], quota: 2/300d }}
  by-org: {{ key: 'client:org', quota: 2/300d }}
  mixed: {{ key: [client, 'query:model'], quota: 2/300d }}
routes: [{{ upstream: echo, limits: [alone, both, by-org, mixed] }}]
"
    ));
    for _ in 0..3 {
        client::get_with(gateway.address(), "/?model=m", "x-api-key: k-acme\r\n");
    }
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, WRITER);
    visit(&browser, "client", "client");
    search_for(&browser, "client", "acme", 3);
    browser.wait_until("document.querySelectorAll('.card.refused').length === 3");
    let policies = browser.run(&format!("return {ORDER}.sort();"));
    assert_eq!(policies, json!(["alone", "both", "by-org"]));
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
        "document.querySelector('.facts').innerText.includes('a request waits until another ends')",
    );
    assert!(!browser.text(".summary").contains("is limited"));
    let mut second = Connection::open(gateway.address());
    second.send(request);
    browser.wait_until(
        "document.querySelector('.summary').innerText.includes('alice is limited now by exports')
         && document.querySelector('.facts').innerText.includes('until a request ends')",
    );
}
