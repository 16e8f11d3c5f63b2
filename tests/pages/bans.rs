//! The page of bans and grants by operators.

use serde_json::json;

use crate::accessibility::{assert_accessible, assert_fits};
use crate::dashboard::{DESKTOP, PHONE, WRITER, ask_for, busy, search, sign_in, visit};
use crate::support::admin::AdminClient;
use crate::support::browser::Browser;
use crate::support::client::get_with;
use crate::support::gateway::Gateway;
use crate::support::wait_for;

#[test]
fn bans_and_grants_are_listed_and_ended_in_the_dashboard() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, WRITER);
    visit(
        &browser,
        "bans",
        "No ban or grant by an operator is in force.",
    );
    let grant = json!({ "policy": "daily", "key": "bob", "units": 1200, "for": "1h" });
    let api = AdminClient::new(&gateway, WRITER);
    assert_eq!(api.post("/v1/keys/grant", &grant).status, 200);
    let ban = json!({ "policy": "daily", "key": "bob", "for": "1d", "reason": "<b>ticket</b> 7" });
    assert_eq!(api.post("/v1/keys/ban", &ban).status, 200);
    // Also in the browser, and for all policies with this key.
    visit(&browser, "client", "header:x-api-key");
    search(&browser, "alice", 5);
    ask_for(&browser, "daily", "Ban");
    browser.run(
        "const scope = document.querySelector('dialog select');
         scope.value = 'all';
         scope.dispatchEvent(new Event('change', { bubbles: true }));",
    );
    browser.wait_until(
        "document.querySelector('dialog .preview').innerText.includes('Also in calm, login, per-key, trial.')",
    );
    assert_accessible(&browser);
    browser.click("dialog button.primary");
    browser.wait_until("!document.querySelector('dialog')");

    visit(
        &browser,
        "bans",
        "1\u{202f}200 of 1\u{202f}200\u{a0}units left",
    );
    browser.wait_until("document.querySelectorAll('main > .scroll tbody tr').length === 7");
    let shown = browser.text("#main");
    for part in [
        "<b>ticket</b> 7",
        "write#1",
        "7 of 7 entries",
        "Take back\u{a0}…",
        "k_",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("bob"), "keys are secrets: {shown}");
    assert_accessible(&browser);
    browser.resize(PHONE, 1.0);
    assert_fits(&browser);
    browser.resize(DESKTOP, 1.0);
    for (button, left) in [("Take back", 6), ("Lift", 5)] {
        browser.run(&format!(
            "[...document.querySelectorAll('main > .scroll tbody tr')]
                 .filter((row) => row.innerText.includes('daily')).at(-1)
                 .querySelector('button[aria-label^=\"{button}\"]').click();"
        ));
        browser.wait_until("document.querySelector('dialog .preview table')");
        browser.click("dialog button.primary");
        browser.wait_until(&format!(
            "document.querySelectorAll('main > .scroll tbody tr').length === {left}"
        ));
    }
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn bans_by_penalties_name_their_clients_and_hide_nothing_else() {
    let gateway = Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, keys: readable, tokens: {{ write: [{WRITER}] }} }}
policies:
  login: {{ key: 'header:x-key', quota: 1/300d, penalty: {{ strikes: 1, within: 1h, for: [1h] }} }}
routes: [{{ upstream: echo, limits: [login] }}]
"
    ));
    let mode = json!({ "mode": "enforce" });
    AdminClient::new(&gateway, WRITER).post("/v1/policies/login/mode", &mode);
    for key in ["ann", "bob", "cid", "ann", "bob", "cid"] {
        get_with(gateway.address(), "/", &format!("x-key: {key}\r\n"));
    }
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, WRITER);
    visit(&browser, "bans", "cid");
    let line = "document.getElementById('events').innerText";
    browser.wait_until(&format!("{line}.includes('and 2 more before')"));
    browser.wait_until(&format!("{line}.includes('mode of login')"));
    assert_accessible(&browser);
    let rows = "document.querySelectorAll('main section tbody tr')";
    browser.wait_until(&format!("{rows}.length === 3"));
    browser.run(&format!(
        "[...{rows}].find((row) => row.innerText.includes('bob')).querySelector('button').click();"
    ));
    browser.wait_until("document.querySelector('dialog .preview table')");
    browser.click("dialog button.primary");
    browser.wait_until(&format!("{rows}.length === 2"));
    assert!(!browser.text("main section tbody").contains("bob"));
    // A click leads from an event to the buckets of the client.
    visit(&browser, "events", "login banned 127.0.0.1");
    browser.click("main > .scroll tbody a[href='#/client']");
    browser.wait_until("document.querySelectorAll('.card').length === 1");
    visit(&browser, "events", "Watch refusals");
    browser.click("main button");
    wait_for("a refused request", || {
        get_with(gateway.address(), "/", "x-key: cid\r\n");
        browser.text("main .stack").contains("cid").then_some(())
    });
    assert_eq!(browser.console(), [""; 0]);
}
