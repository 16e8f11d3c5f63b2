//! The figures of pages and of the API are those of `/metrics`, to the last of 60,000 requests.

use std::collections::HashMap;
use std::thread;

use serde_json::{Value, json};

use crate::dashboard::{DESKTOP, READER, sign_in, visit};
use crate::support::admin::AdminClient;
use crate::support::browser::Browser;
use crate::support::client::{self, Connection};
use crate::support::gateway::Gateway;
use crate::support::origin::Origin;
use crate::support::wait_for;

const CLIENTS: usize = 4;
/// The requests of each client, in runs that are sent at once; the last runs go to the origin.
const RUNS: usize = 595;
const LATE_RUNS: usize = 5;
const RUN: usize = 25;

/// A request of a client to one of the routes.
fn request(client: usize, number: usize) -> String {
    let path = [
        "keys", "watched", "tiers", "tagged", "free", "down", "nowhere",
    ][number % 7];
    let key = number / 7 % (40 + client);
    format!("GET /{path} HTTP/1.1\r\nhost: a\r\nx-key: {key}\r\n\r\n")
}

/// Has each client send these runs, and checks that each request is answered.
fn send(gateway: &Gateway, runs: usize, request: fn(usize, usize) -> String) {
    let address = gateway.address();
    let send = move |client: usize| {
        let mut connection = Connection::open(address);
        for run in 0..runs {
            let requests = (0..RUN).map(|number| request(client, run * RUN + number));
            connection.send(requests.collect::<String>());
            for _ in 0..RUN {
                connection.receive();
            }
        }
    };
    let clients = (0..CLIENTS).map(|client| thread::spawn(move || send(client)));
    let clients: Vec<_> = clients.collect();
    clients
        .into_iter()
        .for_each(|client| client.join().expect("a client"));
}

/// The sums of a metric, by the values of one label, of series that have a text.
fn sums(metrics: &str, name: &str, label: &str, text: &str) -> HashMap<String, u64> {
    let mut sums = HashMap::new();
    let series = metrics
        .lines()
        .filter(|line| line.starts_with(&format!("{name}{{")));
    for line in series.filter(|line| line.contains(text)) {
        let value = line
            .split(&format!("{label}=\""))
            .nth(1)
            .expect("the label");
        let value = value.split('"').next().expect("its value").to_owned();
        let count: u64 = line
            .rsplit(' ')
            .next()
            .expect("a number")
            .parse()
            .expect("a count");
        *sums.entry(value).or_default() += count;
    }
    sums
}

/// The sums of a history's numbers by name.
fn history(steps: &Value, part: &str) -> HashMap<String, u64> {
    let mut sums = HashMap::new();
    for step in steps["steps"].as_array().expect("a list") {
        for (name, count) in step[part].as_object().into_iter().flatten() {
            *sums.entry(name.clone()).or_default() += count.as_u64().expect("a count");
        }
    }
    sums
}

fn by_name(numbers: &Value) -> HashMap<String, u64> {
    let numbers = numbers.as_object().expect("an object").iter();
    numbers
        .map(|(name, count)| (name.clone(), count.as_u64().expect("a count")))
        .collect()
}

/// The item of a list with this name.
fn named<'a>(answer: &'a Value, list: &str, name: &str) -> &'a Value {
    let mut items = answer[list].as_array().expect("a list").iter();
    items
        .find(|item| item["name"] == name)
        .expect("it is there")
}

#[test]
fn figures_of_60_000_requests_are_those_of_metrics() {
    let origin = Origin::plain();
    let gateway = Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, tokens: {{ read: [{READER}] }} }}
policies:
  keys: {{ key: 'header:x-key', quota: 100/300d }}
  watched: {{ key: 'header:x-key', quota: 100/300d, mode: shadow }}
  tiers: {{ key: 'header:x-key', quota: 50/300d, overflow: {{ quota: 50/300d }} }}
  tagged: {{ key: 'header:x-key', quota: 20/300d, on_limit: {{ action: tag }} }}
upstreams: {{ origin: {{ endpoints: ['{}'] }} }}
routes:
  - {{ name: keys, match: {{ path: /keys }}, upstream: echo, limits: [keys] }}
  - {{ name: watched, match: {{ path: /watched }}, upstream: echo, limits: [watched, keys] }}
  - {{ name: tiers, match: {{ path: /tiers }}, upstream: echo, limits: [tiers] }}
  - {{ name: tagged, match: {{ path: /tagged }}, upstream: echo, limits: [tagged] }}
  - {{ name: free, match: {{ path: /free }}, upstream: echo }}
  - {{ name: down, match: {{ path: /down }}, upstream: 'http://127.0.0.1:9' }}
  - {{ name: late, match: {{ path: /late }}, upstream: origin }}
",
        origin.url()
    ));
    send(&gateway, RUNS, request);
    send(&gateway, LATE_RUNS, |_, _| {
        "GET /late HTTP/1.1\r\nhost: a\r\n\r\n".to_owned()
    });
    let api = AdminClient::new(&gateway, READER);
    // Rates are of the last 10 s at least, in which the origin got all of its requests.
    for (list, name) in [("routes", "late"), ("upstreams", "origin")] {
        // A request counts when its response has been sent: the client may be the first to know.
        wait_for("the rates of all requests", || {
            let recent = named(&api.read(&format!("/v1/{list}")), list, name)["recent"].clone();
            let part = |name: &str| recent[name].as_f64().unwrap_or_default();
            assert_eq!(part("requests_per_s"), part("2xx_per_s"), "{recent}");
            let requests = (part("requests_per_s") * part("seconds")).round() as usize;
            (requests == CLIENTS * LATE_RUNS * RUN).then_some(())
        });
    }

    let metrics = client::get(gateway.admin, "/metrics").text();
    let outcomes = sums(&metrics, "sluicegate_route_outcomes_total", "outcome", "");
    let all = (CLIENTS * (RUNS + LATE_RUNS) * RUN) as u64;
    assert_eq!(all, 60_000);
    assert_eq!(outcomes.values().sum::<u64>(), all, "{outcomes:?}");
    let classes = sums(&metrics, "sluicegate_route_requests_total", "class", "");
    assert_eq!(classes.values().sum::<u64>(), all, "{classes:?}");
    let failed = sums(
        &metrics,
        "sluicegate_route_requests_total",
        "class",
        "route=\"down\"",
    );
    assert_eq!(outcomes["failed"], failed["5xx"]);
    for outcome in ["passed", "beyond", "limited", "failed"] {
        assert!(outcomes[outcome] > 1_000, "{outcome}: {outcomes:?}");
    }
    let known = wait_for("the last step", || {
        let known = api.read("/v1/history");
        (history(&known, "requests").values().sum::<u64>() == all).then_some(known)
    });
    assert_eq!(history(&known, "requests"), outcomes);

    let policies = api.read("/v1/policies");
    for name in ["keys", "watched", "tiers", "tagged"] {
        let label = format!("policy=\"{name}\"");
        let counted = sums(
            &metrics,
            "sluicegate_limit_decisions_total",
            "decision",
            &label,
        );
        assert_eq!(
            by_name(&named(&policies, "policies", name)["decisions"]),
            counted,
            "{name}"
        );
        let past = api.read(&format!("/v1/history?policy={name}"));
        assert_eq!(history(&past, "decisions"), counted, "{name}");
    }
    compare_pages(&gateway, &outcomes, &policies);
}

/// The bar and the table of policies have the same figures.
fn compare_pages(gateway: &Gateway, outcomes: &HashMap<String, u64>, policies: &Value) {
    let browser = Browser::start(DESKTOP);
    sign_in(&browser, gateway, READER);
    browser.wait_until("document.querySelector('.shares .mark')?.style.flexGrow > 0");
    let bar = "const marks = [...document.querySelectorAll('.shares .mark')];
        return Object.fromEntries(marks.map(({ style }) => [/--(\\w+)/.exec(style.color)[1], Number(style.flexGrow)]));";
    assert_eq!(browser.run(bar), json!(outcomes));
    visit(&browser, "policies", "4 of 4");
    for policy in policies["policies"].as_array().expect("a list") {
        let decisions = &policy["decisions"];
        let limited = decisions["limited"].as_u64().expect("a count");
        let shown = browser.run(&format!(
            "const row = [...document.querySelectorAll('tbody tr')].find((row) => row.innerText.startsWith({}));
             return row.querySelector('[data-heading=\"Limited since the start\"]').innerText.replaceAll('\u{202f}', '');",
            policy["name"]
        ));
        let shown = shown.as_str().expect("a text").to_owned();
        let shadowed = decisions["shadowed"].as_u64().expect("a count");
        let expected = match (policy["mode"]["current"] == "shadow", limited, shadowed) {
            (true, 0, shadowed) => format!("{shadowed} in shadow"),
            (false, limited, 0) => limited.to_string(),
            _ => format!("{limited}, {shadowed} in shadow"),
        };
        assert_eq!(shown, expected);
    }
}
