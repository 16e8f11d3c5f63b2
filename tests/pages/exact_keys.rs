//! Keys on the pages: acted on to the byte, and shown so that nothing is hidden in them.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::json;

use crate::dashboard::{DESKTOP, WRITER, ask_for, sign_in, visit};
use crate::support::admin::{AdminClient, json as answer};
use crate::support::browser::Browser;
use crate::support::client::get;
use crate::support::gateway::Gateway;
use crate::support::visibility::{COMPARED, written};

/// A policy by a query parameter, whose values may have any character.
fn start() -> Gateway {
    Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, keys: readable, tokens: {{ write: [{WRITER}] }} }}
policies: {{ login: {{ key: 'query:user', quota: 1/300d }} }}
routes: [{{ upstream: echo, limits: [login] }}]
"
    ))
}

fn ask(gateway: &Gateway, user: &str) -> u16 {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("user", user);
    get(gateway.address(), &format!("/?{}", query.finish())).status
}

#[test]
fn a_change_hits_the_client_that_is_shown_and_no_other() {
    let gateway = start();
    let keys = [
        ("lead", "lead"),
        (" lead", "\\u0020lead"),
        ("lead\u{a0}", "lead\\u00a0"),
        ("lead\n", "lead\\u000a"),
        ("l\u{435}ad", "l\\u0435ad"),
        ("\u{202e}dael", "\\u202edael"),
    ];
    for (key, _) in keys {
        assert_eq!([ask(&gateway, key), ask(&gateway, key)], [200, 429]);
    }
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, WRITER);
    for (_, shown) in &keys[1..] {
        visit(&browser, "offenders", "login");
        browser.wait_until(&format!(
            "[...document.querySelectorAll('tbody a')].some((one) => one.innerText === {})",
            json!(shown)
        ));
        browser.run(&format!(
            "[...document.querySelectorAll('tbody a')].find((one) => one.innerText === {}).click();",
            json!(shown)
        ));
        browser.wait_until("document.querySelector('.card .facts')?.innerText");
        let summary = browser.text(".summary");
        assert!(summary.contains(shown), "{summary}");
        ask_for(&browser, "login", "Ban");
        browser.click("dialog button.primary");
        browser.wait_until("document.querySelector('.card').innerText.includes('Banned')");
    }
    let api = AdminClient::new(&gateway, WRITER);
    let banned = |key: &str| {
        let body = json!({ "policy": "login", "key": key });
        answer(&api.post("/v1/keys/lookup", &body))["ban"].is_object()
    };
    assert_eq!(
        keys.map(|(key, _)| banned(key)),
        [false, true, true, true, true, true]
    );
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_typed_key_is_taken_to_the_byte_and_said_if_it_is_not_as_it_looks() {
    let gateway = start();
    assert_eq!([ask(&gateway, " lead"), ask(&gateway, " lead")], [200, 429]);
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, WRITER);
    visit(&browser, "client", "query:user");
    let search = |key: &str| {
        browser.run(&format!(
            "const kind = document.getElementById('kind');
             kind.value = kind.options.length - 1;
             kind.dispatchEvent(new Event('change'));
             const input = document.querySelector('.search input');
             input.value = {};
             input.dispatchEvent(new Event('input', {{ bubbles: true }}));
             document.querySelector('.search').requestSubmit();",
            json!(key)
        ));
        browser.wait_until("document.querySelector('.card .facts')?.innerText.includes('Used')");
    };
    search(" lead");
    browser.wait_until(
        "document.querySelector('.summary').innerText.includes('login limits \\\\u0020lead: 1')",
    );
    assert!(browser.text(".search").contains("is \\u0020lead"));
    search("lead");
    browser.wait_until(
        "document.querySelector('.summary').innerText.includes('Nothing is known of lead:')",
    );
    assert!(!browser.text(".search").contains("is "));
    // What is typed looks like an escape, and is none.
    search("\\u0020lead");
    browser.wait_until(
        "document.querySelector('.summary').innerText.includes('Nothing is known of \\\\\\\\u0020lead:')",
    );
}

#[test]
fn pages_show_keys_as_the_command_line_does() {
    let gateway = start();
    let browser = Browser::start(DESKTOP);
    browser.open(&format!("http://{}/", gateway.admin));
    let mut bits = HashMap::new();
    for Range { start, end } in COMPARED {
        let found = browser.run(&format!(
            "return import('/assets/js/visible.js').then(({{ visible }}) => {{
                 const found = [];
                 for (let code = {start}; code < {end}; code += 1) {{
                     const letter = String.fromCodePoint(code);
                     const keys = [letter, `a${{letter}}b`, ` ${{letter}}`, `\u{44f}${{letter}}\u{43e}`, `\u{43e}${{letter}}`];
                     const escaped = keys.map((key) => visible(key) !== key);
                     found.push(escaped.reduce((sum, one, place) => sum + (one << place), 0).toString(32));
                 }}
                 return found.join('');
             }});"
        ));
        let found = found.as_str().expect("a text").chars();
        let found = found.map(|one| one.to_digit(32).expect("five bits"));
        bits.extend((start..end).filter_map(char::from_u32).zip(found));
    }
    assert_eq!(bits.len(), 0xd800 + 0xa000 + 0x5100 + 0x200);
    let shown = |key: &str| {
        let shown = browser.run(&format!(
            "return import('/assets/js/visible.js').then(({{ visible }}) => visible({}));",
            json!(key)
        ));
        shown.as_str().expect("a text").to_owned()
    };
    let found = written(|letter| bits[&letter], shown);
    let expected = include_str!("../fixtures/visible.txt");
    for (line, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "line {}", line + 1);
    }
    assert_eq!(found.len(), expected.len());
}
