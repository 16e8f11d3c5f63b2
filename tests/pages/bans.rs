//! The page of bans and grants by operators.

use serde_json::json;

use crate::accessibility::{assert_accessible, assert_fits};
use crate::dashboard::{DESKTOP, PHONE, WRITER, ask_for, busy, search, sign_in, visit};
use crate::support::admin::AdminClient;
use crate::support::browser::Browser;

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
    browser.wait_until("document.querySelectorAll('tbody tr').length === 7");
    let shown = browser.text("#main");
    for part in [
        "<b>ticket</b> 7",
        "write#1",
        "7\u{a0}entries",
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
            "[...document.querySelectorAll('tbody tr')]
                 .filter((row) => row.innerText.includes('daily')).at(-1)
                 .querySelector('button[aria-label^=\"{button}\"]').click();"
        ));
        browser.wait_until("document.querySelector('dialog .preview table')");
        browser.click("dialog button.primary");
        browser.wait_until(&format!(
            "document.querySelectorAll('tbody tr').length === {left}"
        ));
    }
    assert_eq!(browser.console(), [""; 0]);
}
