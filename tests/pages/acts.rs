//! What operators do from where they look: a dry run, a reason, and the way back.

use serde_json::{Value, json};

use crate::accessibility::{assert_accessible, assert_fits};
use crate::dashboard::{
    DESKTOP, ESCAPE, PHONE, SIX_POLICIES, WRITER, ask_for, busy, search, sign_in, visit,
};
use crate::support::admin::AdminClient;
use crate::support::browser::Browser;
use crate::support::client;

const OPEN: &str = "document.querySelector('dialog[open] .preview table')";

/// The text of the open dialog once it has a dry run.
fn dry_run(browser: &Browser) -> String {
    browser.wait_until(OPEN);
    browser.text("dialog .preview")
}

/// Chooses a value in the open dialog.
fn choose(browser: &Browser, value: &str) {
    browser.run(&format!(
        "const choice = document.querySelector('dialog select');
         choice.value = {value:?};
         choice.dispatchEvent(new Event('change', {{ bubbles: true }}));"
    ));
}

#[test]
fn a_mode_is_tried_set_and_undone_from_the_table_of_policies() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    let api = AdminClient::new(&gateway, WRITER);
    let mode = || api.read("/v1/policies/login")["mode"].clone();
    sign_in(&browser, &gateway, WRITER);
    visit(&browser, "policies", "trial");
    let button = "document.querySelector('button[aria-label$=\"set the mode of login\"]')";
    browser.run(&format!("{button}.focus(); {button}.click();"));
    dry_run(&browser);
    choose(&browser, "shadow");
    browser.wait_until(&format!("{OPEN}.innerText.includes('shadow')"));
    assert_eq!(mode()["current"], "enforce", "a dry run changes nothing");
    assert_accessible(&browser);
    browser.press(ESCAPE);
    browser.wait_until(&format!("document.activeElement === {button}"));
    assert_eq!(mode()["current"], "enforce");

    browser.run(&format!("{button}.click();"));
    dry_run(&browser);
    choose(&browser, "shadow");
    browser.run("document.querySelector('dialog input').value = 'ticket 9';");
    browser.click("dialog button.primary");
    let done = "document.getElementById('done').innerText";
    browser.wait_until(&format!("{done}.includes('Set the mode of login: done')"));
    assert_eq!(
        (&mode()["current"], &mode()["reason"]),
        (&json!("shadow"), &json!("ticket 9"))
    );
    browser.wait_until(&format!("{button}.innerText.startsWith('shadow')"));
    assert_accessible(&browser);
    visit(&browser, "events", "ticket 9");

    // The way back is the mode of the configuration, not the same mode set once more.
    browser.run("document.querySelector('#done button').focus();");
    browser.click("#done button");
    assert!(dry_run(&browser).contains("enforce"));
    browser.click("dialog button.primary");
    browser.wait_until("document.activeElement.closest('#done')");
    assert_eq!(
        (&mode()["current"], &mode()["set_at"]),
        (&json!("enforce"), &Value::Null)
    );
    browser.run("[...document.querySelectorAll('#done button')].at(-1).click();");
    browser.wait_until(&format!("{done} === ''"));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_ban_and_a_grant_are_taken_back() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    let status = || client::get_with(gateway.address(), "/login", "x-api-key: alice\r\n").status;
    sign_in(&browser, &gateway, WRITER);
    visit(&browser, "client", "header:x-api-key");
    search(&browser, "alice", 5);
    let facts = "[...document.querySelectorAll('.card')]
        .find((card) => card.innerText.startsWith('login')).innerText";
    // Since when, and was it right?
    browser.wait_until(&format!(
        "/Refused\\s+2.requests.*, since .*allows about 6/s.test({facts})"
    ));
    ask_for(&browser, "login", "Grant");
    assert!(dry_run(&browser).contains("Limited 2 of its requests in the last"));
    browser.click("dialog button.primary");
    browser.wait_until(&format!("{facts}.includes('100 of 100')"));
    assert_eq!(status(), 200);
    ask_for(&browser, "login", "Take back");
    browser.click("dialog button.primary");
    browser.wait_until(&format!("!{facts}.includes('Granted')"));
    assert_eq!(status(), 429);

    ask_for(&browser, "daily", "Ban");
    choose(&browser, "all");
    browser.wait_until("document.querySelector('dialog .preview').innerText.includes('Also in')");
    browser.click("dialog button.primary");
    browser.wait_until("document.getElementById('done').innerText.includes('Also in')");
    let bans = || AdminClient::new(&gateway, WRITER).read("/v1/keys")["total"].clone();
    assert_eq!(bans(), 5);
    browser.resize(PHONE, 2.0);
    assert_fits(&browser);
    // What is undone is what was done: in all policies.
    browser.click("#done button");
    browser.wait_until("document.querySelector('dialog .preview')?.innerText.includes('Also in')");
    let overflow = "const { scrollWidth, clientWidth } = document.querySelector('dialog');
        return scrollWidth - clientWidth;";
    assert_eq!(browser.run(overflow), json!(0));
    browser.click("dialog button.primary");
    browser.wait_until("!document.querySelector('dialog')");
    assert_eq!(bans(), 0);
    assert_eq!(browser.console(), [""; 0]);
}

/// Nine windows of one browser have six connections in all.
#[test]
fn the_ninth_window_is_not_blank() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    for number in 1..=9 {
        if number > 1 {
            browser.open_window();
        }
        sign_in(&browser, &gateway, WRITER);
        browser.wait_until(SIX_POLICIES);
        assert_eq!(
            browser.run("return document.hidden;"),
            json!(false),
            "{number}"
        );
    }
    // Each has news, also with all others open.
    let mode = json!({ "mode": "shadow", "reason": "nine look" });
    let api = AdminClient::new(&gateway, WRITER);
    assert_eq!(api.post("/v1/policies/login/mode", &mode).status, 200);
    for window in browser.windows() {
        browser.switch_to(&window);
        browser.wait_until("document.getElementById('events').innerText.includes('mode of login')");
        browser.wait_until("document.getElementById('notes').innerText.includes('nine look')");
    }
    assert_eq!(browser.console(), [""; 0]);
}
