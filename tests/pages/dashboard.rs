//! The dashboard of a running proxy, in a real browser.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::accessibility::{assert_accessible, assert_fits};
use crate::support::browser::{Appearance, Browser};
use crate::support::client;
use crate::support::gateway::Gateway;
use crate::support::{now, wait_for};

/// Set to renew the pictures in docs/pictures.
const PICTURES: &str = "SLUICEGATE_PICTURES";

pub(crate) const DESKTOP: (u32, u32) = (1200, 900);
pub(crate) const PHONE: (u32, u32) = (360, 740);

/// The key of WebDriver.
pub(crate) const ESCAPE: char = '\u{e00c}';

pub(crate) const WRITER: &str = "writer-0123456789abcdef0123456789abcdef";
pub(crate) const READER: &str = "reader-0123456789abcdef0123456789abcdef";

/// A proxy with a policy of each kind, and requests of two clients.
pub(crate) fn busy() -> Gateway {
    let gateway = Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, keys: readable, tokens: {{ read: [{READER}], write: [{WRITER}] }} }}
policies:
  per-key: {{ key: 'header:x-api-key', algorithm: token_bucket, quota: 20/1m, burst: 10 }}
  login: {{ key: 'header:x-api-key', algorithm: sliding_window, quota: 6/1h, precision: 6 }}
  trial: {{ key: 'header:x-api-key', algorithm: sliding_log, quota: 4/1h, mode: shadow }}
  calm: {{ key: 'header:x-api-key', algorithm: leaky_bucket, quota: 100/1s, queue: 5 }}
  daily: {{ key: 'header:x-api-key', algorithm: fixed_window, quota: 500/1d }}
  per-address: {{ key: client_ip, quota: 300/1m }}
routes:
  - {{ name: login, match: {{ path: /login }}, upstream: echo, limits: [login, trial] }}
  - {{ name: rest, upstream: echo, limits: [per-key, calm, daily, per-address] }}
"
    ));
    for number in 0..12 {
        let key = if number % 3 == 0 { "bob" } else { "alice" };
        let header = format!("x-api-key: {key}\r\n");
        client::get_with(gateway.address(), "/", &header);
        client::get_with(gateway.address(), "/login", &header);
    }
    gateway
}

/// A proxy with endpoints that nobody asks, and a policy.
pub(crate) fn with_endpoints() -> Gateway {
    Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, tokens: {{ read: [{READER}], write: [{WRITER}] }} }}
upstreams:
  api: {{ endpoints: [http://127.0.0.1:9, http://127.0.0.1:10] }}
policies:
  one: {{ key: client_ip, quota: 7/1h }}
  per-nothing: {{ key: constant, quota: 9/1h }}
routes: [{{ upstream: api, limits: [one, per-nothing] }}]
"
    ))
}

/// The overview shows six policies.
pub(crate) const SIX_POLICIES: &str =
    "document.querySelectorAll('[aria-label^=Policies] tbody tr').length === 6";

/// Signs in with a token.
pub(crate) fn sign_in(browser: &Browser, gateway: &Gateway, token: &str) {
    browser.open(&format!("http://{}/", gateway.admin));
    browser.wait_until("document.getElementById('token')");
    browser.run(&format!(
        "document.getElementById('token').value = {token:?};
         document.querySelector('.login').requestSubmit();"
    ));
}

/// Opens a page, and waits until it shows a text.
#[track_caller]
pub(crate) fn visit(browser: &Browser, page: &str, text: &str) {
    browser.run(&format!("location.hash = '#/{page}';"));
    browser.wait_until(&format!(
        "document.getElementById('main').innerText.includes({text:?})"
    ));
}

#[test]
fn a_token_is_asked_for_once_and_forgotten_at_the_end() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, "wrong");
    browser.wait_until("document.querySelector('.problem').innerText.includes('does not know')");
    assert_accessible(&browser);
    sign_in(&browser, &gateway, READER);
    browser.wait_until("document.querySelector('h1').innerText === 'Overview'");
    browser.run("location.reload();");
    browser.wait_until("document.querySelector('h1')?.innerText === 'Overview'");
    browser.click("#leave");
    browser.wait_until("document.querySelector('h1').innerText === 'Sign in'");
    assert_eq!(browser.text(".bar"), "sluicegate");
    let kept = browser.run("return [sessionStorage.length, localStorage.length, document.cookie];");
    assert_eq!(kept, json!([0, 0, ""]));
}

#[test]
fn the_overview_shows_figures_and_policies() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, READER);
    browser.wait_until(SIX_POLICIES);
    let shown = browser.text("#main");
    for part in [
        "Requests",
        "99th percentile",
        "Who is limited most",
        "Beyond a quota, but passed",
        "All 6 policies",
        "per-key",
        "20\u{a0}requests/1m",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    browser.wait_until(
        "document.querySelector('.chart').getAttribute('aria-label').includes('passed')",
    );
    assert_eq!(browser.text("#banner"), "");
    assert_accessible(&browser);
    wait_for_events(&browser, &gateway);
    gateway.replace_config("unknown: key\n");
    gateway.signal(Signal::HUP);
    browser.wait_until("document.getElementById('banner').innerText.includes('reload')");
    let banner = browser.text("#banner");
    assert!(
        banner.contains(":3:1: unknown key"),
        "the place of the error: {banner}"
    );
    let page = browser.run("return document.querySelector('#banner a').getAttribute('href');");
    assert_eq!(page, json!("#/configuration"));
    browser.wait_until("document.getElementById('events').innerText.includes('reload failed')");
    assert_accessible(&browser);
    assert_eq!(browser.console(), [""; 0]);
}

/// The rare decisions have a figure as soon as one was made, and no earlier.
#[test]
fn each_decision_is_shown_as_what_it_was() {
    let mut gateway = Gateway::start_unready(&format!(
        "admin: {{ address: 127.0.0.1:0, tokens: {{ read: [{READER}] }} }}
store: {{ redis: {{ url: redis://127.0.0.1:1 }} }}
clients: {{ identify_by: bearer, unknown: anonymous, list: [{{ key: 'sha256:{0:0>64}', name: a, plan: pro }}] }}
policies:
  shared: {{ key: client_ip, quota: 9/1h, store: redis, on_store_error: refuse }}
  tiers: {{ key: client_ip, quota: 1/1h, overflow: {{ quota: 1/1h }}, exempt: [{{ when: {{ header: {{ x-key: free }} }} }}], overrides: [{{ when: {{ client: {{ plan: pro }} }}, quota: 7/1h }}] }}
  tagging: {{ key: client_ip, quota: 1/1h, on_limit: {{ action: tag }} }}
  idle: {{ key: client_ip, quota: 1/1h }}
routes:
  - {{ match: {{ path: /shared }}, upstream: echo, limits: [shared] }}
  - {{ match: {{ path: /tiers }}, upstream: echo, limits: [tiers, tagging] }}
  - {{ match: {{ path: /idle }}, upstream: echo, limits: [idle] }}
",
        "b"
    ));
    // Without Redis it isn't ready, and listens after `startup_timeout`.
    let address = gateway.listeners(1)[0];
    let ask = |path: &str| client::get_with(address, path, "").status;
    assert_eq!([ask("/shared"), ask("/shared")], [503, 503]);
    assert_eq!(
        [ask("/tiers"), ask("/tiers"), ask("/tiers")],
        [200, 200, 429]
    );
    client::get_with(address, "/tiers", "x-key: free\r\n");
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, READER);
    let shown = |page: &str, text: &str| {
        visit(&browser, &format!("policies/{page}"), text);
        let figures = browser.run(
            "return [...document.querySelectorAll('.figure')].filter((one) => !one.hidden)
                 .map((one) => one.querySelector('dt').innerText).slice(4, -4);",
        );
        figures.to_string()
    };
    let undecided = "Limited 0\u{a0}% of requests, 0 of 2, since the start. 2 undecided: refused without the store.";
    assert_eq!(shown("shared", undecided), r#"["Undecided"]"#);
    assert_eq!(shown("tiers", "1 of 4"), r#"["Exempt","Overflowed"]"#);
    let others =
        "[...document.querySelectorAll('td')].some((one) => /^7\\srequests/.test(one.innerText))";
    browser.wait_until(others);
    assert!(
        browser
            .text("main")
            .contains(r#"when {"client":{"plan":"pro"}}"#)
    );
    assert_eq!(shown("tagging", "0 of 3"), r#"["Tagged"]"#);
    assert_eq!(shown("idle", "No request has met this policy"), "[]");
    visit(&browser, "", "5xx");
    // A request has one outcome, whatever each of its policies decided.
    browser.wait_until(
        "[...document.querySelectorAll('.legend b')].map((one) => one.innerText).join()
            === '17\u{a0}%,33\u{a0}%,0\u{a0}%,33\u{a0}%,17\u{a0}%,0\u{a0}%'",
    );
    assert_accessible(&browser);
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_policy_in_shadow_says_what_it_would_have_done() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, READER);
    visit(&browser, "policies", "trial");
    visit(&browser, "policies/trial", "Would have limited or delayed");
    let verdict = browser.text(".verdict");
    let told = "Would have limited or delayed 20\u{a0}% of requests, 2 of 10, and 1 of 2\u{a0}clients, since the start.";
    assert_eq!(verdict, told);
    let figures = browser.text(".figures");
    let near = "keys now have 20\u{a0}% or less left";
    assert!(figures.contains(near), "{figures}");
    assert!(figures.contains("KiB"), "memory has a unit: {figures}");
    let shown = browser.text("#main");
    assert!(shown.contains("Would have limited most"), "{shown}");
    assert!(shown.contains("k_"), "{shown}");
    visit(&browser, "policies/login", "2 of 12, since the start");
    visit(&browser, "policies/nothing", "There is no policy nothing");
    assert_accessible(&browser);
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn pages_fit_a_phone_in_the_dark() {
    let (gateway, browser) = (busy(), Browser::start(PHONE));
    browser.appear(Appearance::Dark);
    sign_in(&browser, &gateway, READER);
    browser.wait_until(SIX_POLICIES);
    assert_fits(&browser);
    for (page, text) in [
        ("policies", "All"),
        ("policies/login", "Used by"),
        ("client", "Show buckets"),
    ] {
        let text = if page == "policies" { "trial" } else { text };
        visit(&browser, page, text);
        assert_fits(&browser);
        assert_accessible(&browser);
    }
}

#[test]
fn upstreams_are_drained_after_a_question() {
    let (gateway, browser) = (with_endpoints(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, WRITER);
    visit(&browser, "upstreams", "127.0.0.1:9");
    assert_accessible(&browser);
    browser.click("tbody button");
    browser.wait_until("document.querySelector('dialog[open] button.primary:enabled')");
    assert_accessible(&browser);
    browser.click("dialog input");
    "replaced".chars().for_each(|letter| browser.press(letter));
    browser.click("dialog button.primary");
    browser.wait_until("document.querySelector('.host.draining')");
    gateway.wait_for_log("reason=\"replaced\"");
    assert_eq!(
        browser.run("return document.querySelector('dialog');"),
        json!(null)
    );
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_reader_is_told_that_changes_take_another_token() {
    let (gateway, browser) = (with_endpoints(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, READER);
    visit(&browser, "policies/one", "Change the mode");
    browser.click("section button");
    browser.wait_until("document.querySelector('dialog .problem').innerText.includes('write')");
    assert_eq!(
        browser.run("return document.querySelector('dialog button.primary').disabled;"),
        json!(true)
    );
    browser.press(ESCAPE);
    browser.wait_until("!document.querySelector('dialog')");
}

#[test]
fn a_pasted_configuration_is_checked_and_compared() {
    let (gateway, browser) = (with_endpoints(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, READER);
    visit(&browser, "configuration", "per-nothing");
    let shown = browser.text("pre");
    assert!(!shown.contains(WRITER), "{shown}");
    // Masks are no YAML.
    browser.run(&format!(
        "document.getElementById('pasted').value = document.querySelector('pre').innerText
            .replaceAll(/[*]+/g, '{READER}').replace('7/1h', '8/1h').replace('client_ip', 'clientip');",
    ));
    browser.click("section button");
    // A masked secret is no difference.
    browser.wait_until("document.querySelectorAll('.added').length === 1");
    let result = browser.text(".stack");
    assert!(result.contains("client_ip"), "{result}");
    assert!(
        result.contains("8/1h") && result.contains("7/1h"),
        "{result}"
    );
    gateway.replace_config("unknown: key\n");
    gateway.signal(Signal::HUP);
    gateway.wait_for_log("the configuration is not reloaded");
    browser.run("location.reload();");
    browser.wait_until("document.querySelector('.result.failed')");
    assert_accessible(&browser);
    browser.resize(PHONE, 2.0);
    assert_fits(&browser);
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn secrets_in_lists_of_lines_are_no_difference() {
    let config = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]
# Comments are masked,
#
# and leave one empty line.
admin:
  address: 127.0.0.1:0
  tokens:
    read:
      - {READER}
tracing:
  endpoint: http://127.0.0.1:9
  headers:
    x-team: abcdefghijkl
routes: [{{ upstream: echo, limits: [{{ name: all, key: client_ip, quota: 7/1h }}] }}]
"
    );
    let (gateway, browser) = (Gateway::start(&config), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, READER);
    visit(&browser, "configuration", "tracing");
    let gap = "document.querySelector('pre').textContent.split('\\n').slice(1, 3).join('|')";
    assert_eq!(browser.run(&format!("return {gap};")), json!("|admin:"));
    let compare = |pasted: &str| {
        let pasted = serde_json::Value::from(pasted);
        browser.run(&format!(
            "document.getElementById('pasted').value = {pasted};"
        ));
        browser.click("section button");
    };
    compare(&config);
    browser.wait_until("document.querySelector('.stack').innerText.includes('No difference')");
    compare(
        &config
            .replace("abcdefghijkl", "abc")
            .replace("7/1h", "8/1h"),
    );
    browser.wait_until("document.querySelectorAll('.added').length === 1");
    let result = browser.text(".stack");
    assert!(result.contains("8/1h"), "{result}");
}

/// Renews the picture of the documentation if asked to; otherwise sees that the page can be drawn.
#[test]
fn pictures_for_the_documentation() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, READER);
    browser.wait_until(SIX_POLICIES);
    let folder = tempfile::tempdir().expect("a temporary directory");
    let folder = match std::env::var_os(PICTURES) {
        None => folder.path().to_owned(),
        Some(_) => {
            send_for(Duration::from_secs(40), &gateway);
            PathBuf::from("docs/pictures")
        }
    };
    browser.resize(DESKTOP, 1.5);
    browser.save_picture(&folder.join("dashboard-overview.png"));
}

/// Reloads until the page tells of it: from then on, its stream of events misses nothing.
pub(crate) fn wait_for_events(browser: &Browser, gateway: &Gateway) {
    wait_for("the stream of events", || {
        gateway.signal(Signal::HUP);
        thread::sleep(Duration::from_millis(500));
        let shown = browser.text("#events");
        shown.contains("reload").then_some(())
    });
}

/// Sends requests of two clients for so long.
fn send_for(duration: Duration, gateway: &Gateway) {
    let started = now();
    for number in 0.. {
        let key = if number % 4 == 0 { "bob" } else { "alice" };
        let path = if number % 3 == 0 { "/login" } else { "/" };
        client::get_with(gateway.address(), path, &format!("x-api-key: {key}\r\n"));
        thread::sleep(Duration::from_millis(20 + 30 * (number / 40 % 3)));
        if started.elapsed() > duration {
            return;
        }
    }
}

#[test]
fn the_most_limited_client_is_banned_from_its_row() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, WRITER);
    wait_for_events(&browser, &gateway);
    visit(&browser, "offenders", "alice");
    assert_accessible(&browser);
    let row = browser.text("tbody tr");
    assert!(row.contains("login") && row.contains('2'), "{row}");
    let login = || client::get_with(gateway.address(), "/login", "x-api-key: bob\r\n").status;
    assert_eq!(login(), 200, "the quota is for six requests");
    visit(&browser, "offenders", "alice");
    browser.click("tbody button.danger");
    browser.wait_until("document.querySelector('dialog[open] .preview table')");
    browser.click("dialog button.primary");
    browser.wait_until("!document.querySelector('dialog')");
    // The stream of events tells of the ban, without the key.
    browser.wait_until("document.getElementById('events').innerText.includes('ban of login')");
    assert!(!browser.text("#events").contains("alice"));
    let alice = || client::get_with(gateway.address(), "/login", "x-api-key: alice\r\n");
    assert_eq!(alice().status, 429);
    browser.resize(PHONE, 2.0);
    assert_fits(&browser);
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn the_overview_follows_the_proxy() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, READER);
    browser.wait_until(
        "document.querySelector('.chart')?.getAttribute('aria-label').includes('passed')",
    );
    let requests = "document.querySelector('.figure .value').innerText";
    let is_shown = format!("return !['–', '0'].includes({requests});");
    wait_for("a rate of requests", || {
        client::get_with(gateway.address(), "/", "x-api-key: carol\r\n");
        (browser.run(&is_shown) == json!(true)).then_some(())
    });
    // No question a second.
    let asked = "performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('/v1/status')).length";
    let before = browser.run(&format!("return {asked};")).as_u64();
    assert!(before < Some(20), "{before:?}");
    assert_eq!(browser.console(), [""; 0]);
}

/// Fills in a key, and shows its buckets, of which so many are found.
pub(crate) fn search(browser: &Browser, key: &str, buckets: usize) {
    search_for(browser, "header:x-api-key", key, buckets);
}

/// The same for a key of this kind.
pub(crate) fn search_for(browser: &Browser, kind: &str, key: &str, buckets: usize) {
    browser.run(&format!(
        "const kind = document.getElementById('kind');
         kind.value = [...kind.options].find((one) => one.text === {kind:?}).value;
         kind.dispatchEvent(new Event('change'));
         document.querySelector('.search input').value = {key:?};
         document.querySelector('.search').requestSubmit();"
    ));
    browser.wait_until(&format!(
        "[...document.querySelectorAll('.card > .facts')].filter((one) => one.innerText).length === {buckets}"
    ));
}

/// Clicks a button of the card of a policy, and waits for the result of the dry run.
pub(crate) fn ask_for(browser: &Browser, policy: &str, button: &str) {
    browser.run(&format!(
        "const cards = [...document.querySelectorAll('.card')];
         const card = cards.find((one) => one.querySelector('h2').innerText.startsWith({policy:?}));
         [...card.querySelectorAll('button')].find((one) => one.innerText.startsWith({button:?})).click();"
    ));
    browser.wait_until("document.querySelector('dialog[open] .preview table')");
}

#[test]
fn one_client_is_shown_reset_granted_and_banned() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, WRITER);
    visit(&browser, "client", "header:x-api-key");
    search(&browser, "alice", 5);
    let address = browser.run("return location.href;");
    assert!(!address.to_string().contains("alice"), "{address}");
    assert_accessible(&browser);
    assert!(browser.text(".cards").contains("would be refused"));
    assert!(!browser.text(".cards").contains("Unban"));
    let status = || {
        let path = "/login";
        client::get_with(gateway.address(), path, "x-api-key: alice\r\n").status
    };
    assert_eq!(status(), 429);
    ask_for(&browser, "login", "Reset");
    assert_accessible(&browser);
    assert_eq!(status(), 429, "a dry run changes nothing");
    browser.click("dialog button.primary");
    browser.wait_until("!document.querySelector('dialog')");
    assert_eq!(status(), 200);
    ask_for(&browser, "login", "Ban");
    browser.click("dialog button.primary");
    browser.wait_until("document.querySelector('.cards').innerText.includes('Banned')");
    assert_eq!(status(), 429);
    // Another bucket would not help: the dialog says what does.
    ask_for(&browser, "login", "Reset");
    browser
        .wait_until("document.querySelector('.preview .notice')?.innerText.includes('use Unban')");
    assert_accessible(&browser);
    browser.click("dialog .preview button");
    browser.wait_until(
        "document.querySelectorAll('dialog').length === 1
         && document.querySelector('dialog[open] .preview table')
         && document.querySelector('dialog h2').innerText.startsWith('Unban alice')",
    );
    browser.click("dialog button.primary");
    browser.wait_until("!document.querySelector('.cards').innerText.includes('Banned')");
    assert_eq!(status(), 200);
    assert!(!gateway.log().contains("alice"), "keys are not logged");
    browser.resize(PHONE, 2.0);
    assert_fits(&browser);
    assert_eq!(browser.console(), [""; 0]);
}

/// Requests of bob that login refuses, more than those of alice.
fn refuse_bob(gateway: &Gateway) {
    for _ in 0..12 {
        client::get_with(gateway.address(), "/login", "x-api-key: bob\r\n");
    }
}

#[test]
fn a_refresh_keeps_the_focus_and_the_selection() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, WRITER);
    visit(&browser, "offenders", "alice");
    browser.run(
        "window.ban = document.querySelector('[aria-label=\"Ban alice on login\"]');
         ban.focus();
         getSelection().selectAllChildren(ban.closest('tr').querySelector('td'));",
    );
    refuse_bob(&gateway);
    // Both keys come from one address, which has a row above them.
    browser.wait_until(
        "document.querySelectorAll('tbody tr')[1]?.innerText.includes('bob')
         && document.querySelector('tbody tr').innerText.includes('127.0.0.1')",
    );
    browser.wait_until("document.activeElement === window.ban");
    assert_eq!(
        browser.run("return getSelection().toString();"),
        json!("login")
    );
    browser.run("window.ban.click();");
    browser.wait_until("document.querySelector('dialog[open] .preview table')");
    browser.press(ESCAPE);
    browser
        .wait_until("!document.querySelector('dialog') && document.activeElement === window.ban");
    // Alice has charged nothing since somebody asks for units: the row goes.
    browser.run(
        "const order = document.querySelector('main select');
         order.value = 'units';
         order.dispatchEvent(new Event('change'));",
    );
    browser.wait_until("!document.querySelector('tbody').innerText.includes('alice')");
    browser.wait_until("document.activeElement.matches('.scroll')");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn requests_are_unknown_until_they_cover_the_refusals() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, READER);
    visit(&browser, "offenders", "until that is as long");
    refuse_bob(&gateway);
    browser.wait_until("document.querySelector('tbody').innerText.includes('bob')");
    let cells = "[...document.querySelectorAll('[data-heading=Requests], [data-heading=Units]')]";
    let shown = browser.run(&format!("return {cells}.map((cell) => cell.innerText);"));
    let shown = shown.as_array().expect("a list");
    assert!(shown.iter().all(|cell| cell == "–"), "{shown:?}");
}

#[test]
fn keys_of_one_address_stand_together() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    refuse_bob(&gateway);
    sign_in(&browser, &gateway, READER);
    visit(&browser, "offenders", "bob");
    let rows = "[...document.querySelectorAll('tbody tr')].map((row) => row.innerText)";
    let rows = browser.run(&format!("return {rows};"));
    let rows: Vec<_> = rows.as_array().expect("a list").iter().collect();
    let has = |row: usize, part: &str| rows[row].as_str().is_some_and(|row| row.contains(part));
    assert!(has(0, "127.0.0.1") && has(0, "login"), "{rows:?}");
    assert!(
        rows.len() >= 3 && has(1, "bob"),
        "the most limited key first: {rows:?}"
    );
    assert!(
        (1..rows.len()).all(|row| !has(row, "127.0.0.1")),
        "{rows:?}"
    );
    assert_accessible(&browser);
    browser.resize(PHONE, 2.0);
    assert_fits(&browser);
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn an_offender_leads_to_buckets_and_an_explanation() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, READER);
    visit(&browser, "offenders", "alice");
    browser.click("tbody a");
    // The headline first, then limits that refuse alice; those in shadow are last.
    browser.wait_until("document.activeElement.matches('.summary')");
    let said = browser.text(".summary");
    assert!(
        said.contains("login limits alice: 2\u{a0}requests refused in the last"),
        "{said}"
    );
    let first = browser.text(".card h2");
    assert!(first.starts_with("login"), "{first}");
    let last = browser.run("return [...document.querySelectorAll('.card h2')].at(-1).innerText;");
    assert_eq!(
        last,
        json!("trial, 4\u{a0}requests/1h for each header:x-api-key, shadow")
    );
    let address = browser.run("return location.href;");
    assert!(!address.to_string().contains("alice"), "{address}");
    browser.run("document.querySelector('input[type=url]').value = 'http://localhost/login';");
    browser.click("section button.primary");
    browser.wait_until("document.querySelector('section pre').innerText.includes('login')");
    let text = browser.text("section pre");
    assert!(
        text.contains("limited") && !text.contains("alice"),
        "{text}"
    );
    assert_eq!(browser.text("section .stack button"), "Copy");
    let verdict = browser.text("section .stack .verdict");
    assert!(
        verdict.starts_with("At this instant: limited by login: 429"),
        "{verdict}"
    );
    assert_accessible(&browser);
    browser.run(
        "document.querySelector('section textarea').value = 'no field';
         document.querySelector('section form').requestSubmit();",
    );
    browser.wait_until("document.querySelector('section .problem').innerText.includes('colon')");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn changes_that_can_only_fail_are_not_offered() {
    let gateway = Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, tokens: {{ write: [{WRITER}] }} }}
policies:
  exports: {{ key: 'header:x-api-key', algorithm: concurrency, max: 2 }}
routes: [{{ upstream: echo, limits: [exports] }}]
"
    ));
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, &gateway, WRITER);
    visit(&browser, "client", "header:x-api-key");
    search(&browser, "alice", 1);
    browser.click(".card details summary");
    browser.wait_until("document.querySelector('.card').innerText.includes('nothing to reset')");
    let buttons = "[...document.querySelectorAll('.card button:not([hidden])')]";
    let names = browser.run(&format!(
        "return {buttons}.map((one) => one.getAttribute('aria-label') ?? one.innerText);"
    ));
    assert_eq!(
        names,
        json!([
            "Ban alice on exports",
            "Copy explanation for support of alice on exports"
        ])
    );
}

#[test]
fn a_phone_shows_rows_as_cards() {
    let (gateway, browser) = (busy(), Browser::start(PHONE));
    sign_in(&browser, &gateway, WRITER);
    browser.wait_until(SIX_POLICIES);
    // A pixel of the drawing is one of the window, so that texts keep their size.
    browser.wait_until(
        "document.querySelector('.chart').viewBox.baseVal.width
         === document.querySelector('.chart').getBoundingClientRect().width",
    );
    visit(&browser, "offenders", "alice");
    assert_fits(&browser);
    assert_accessible(&browser);
    let visible = browser.run(
        "const button = document.querySelector('tbody button').getBoundingClientRect();
         const name = document.querySelector('tbody a').getClientRects();
         return [button.left >= 0 && button.right <= innerWidth, name.length];",
    );
    assert_eq!(visible, json!([true, 1]));
    // A click leads to the headline, wherever the page stood.
    browser.run("document.querySelector('tbody a').click();");
    browser.wait_until(
        "document.activeElement.matches('.summary')
         && document.activeElement.getBoundingClientRect().top >= 0
         && document.activeElement.getBoundingClientRect().bottom < innerHeight / 2",
    );
}

/// Renews the picture of the documentation if asked to.
#[test]
fn a_picture_of_one_client() {
    let (gateway, browser) = (busy(), Browser::start(DESKTOP));
    sign_in(&browser, &gateway, READER);
    visit(&browser, "client", "header:x-api-key");
    search(&browser, "alice", 5);
    browser.run("document.querySelectorAll('.card details').forEach((one) => one.open = true);");
    browser.resize(DESKTOP, 1.5);
    let folder = tempfile::tempdir().expect("a temporary directory");
    let pictures = std::env::var_os(PICTURES).map(|_| PathBuf::from("docs/pictures"));
    let folder = pictures.unwrap_or_else(|| folder.path().to_owned());
    browser.save_picture(&folder.join("dashboard-client.png"));
}
