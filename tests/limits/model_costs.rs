//! Tokens and dollars of language models, as responses and streams of their APIs report them.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::client::Connection;
use crate::support::costs::left;
use crate::support::gateway::{Gateway, RUN, directory_of};
use crate::support::model_server::{
    CALLS, COST, PRICES, TOKENS, call, model_server, request, write_prices,
};
use crate::support::origin::Origin;
use crate::support::replay::command;
use crate::support::wait_for;

/// A proxy with one policy `p`, and prices beside its configuration.
fn start(server: &Origin, policy: &str) -> Gateway {
    let directory = directory_of(&config(server, policy));
    write_prices(directory.path(), PRICES);
    Gateway::start_with(directory, RUN)
}

fn config(server: &Origin, policy: &str) -> String {
    format!(
        "policies: {{ p: {{ {policy} }} }}\nroutes: [{{ name: a, upstream: '{}', limits: [p] }}]\n",
        server.url()
    )
}

/// Waits until the policy has charged so many units for good.
#[track_caller]
fn wait_until_settled(gateway: &Gateway, units: u64) {
    let mut last = None;
    wait_for(&format!("{units} settled units"), || {
        last = gateway.metric("sluicegate_limit_settled_units_total{policy=\"p\"}");
        (last == Some(units as f64)).then_some(())
    });
}

fn settled(gateway: &Gateway, result: &str) -> f64 {
    let series = format!("sluicegate_limit_settlements_total{{policy=\"p\",result=\"{result}\"}}");
    gateway.metric(&series).expect("it is there")
}

#[test]
fn each_api_reports_its_tokens_complete_and_streamed() {
    let server = model_server(Duration::ZERO);
    for (api, path, body) in CALLS {
        let tokens =
            format!("unit: tokens, quota: 100000/1h, cost: {{ settle: {api}, reserve: 10 }}");
        let gateway = start(&server, &tokens);
        assert_eq!(call(gateway.address(), path, "", body).status, 200);
        wait_until_settled(&gateway, TOKENS);
        let dollars = format!(
            "unit: usd, quota: $5/1h, cost: {{ settle: {api}, prices: prices.csv, reserve: 10 }}"
        );
        let gateway = start(&server, &dollars);
        assert_eq!(call(gateway.address(), path, "", body).status, 200);
        wait_until_settled(&gateway, COST);
        assert_eq!(settled(&gateway, "settled"), 1.0, "{path} {body}");
    }
    for (unit, tokens) in [("input_tokens", 1_000), ("output_tokens", 500)] {
        let (api, path, body) = CALLS[0];
        let policy =
            format!("unit: {unit}, quota: 100000/1h, cost: {{ settle: {api}, reserve: 10 }}");
        let gateway = start(&server, &policy);
        assert_eq!(call(gateway.address(), path, "", body).status, 200);
        wait_until_settled(&gateway, tokens);
    }
}

/// Each call may generate 1,000 tokens, for a hundredth of a dollar. So ten are served at a time.
#[test]
fn forty_parallel_streams_share_a_budget_for_ten() {
    let server = model_server(Duration::from_millis(1500));
    let gateway = start(
        &server,
        "unit: usd, quota: $0.10/1d, algorithm: fixed_window, \
         cost: { settle: openai, prices: prices.csv, model: header:x-model, reserve: { from: [header:x-max], default: 5 } }",
    );
    let address = gateway.address();
    let stream = |_| {
        std::thread::spawn(move || {
            let fields = "x-model: small\r\nx-max: 1000\r\n";
            let body = r#"{"model":"small","stream":true}"#;
            call(address, "/v1/chat/completions", fields, body).status
        })
    };
    for served in [10, 4] {
        let streams: Vec<_> = (0..40).map(stream).collect();
        let statuses: Vec<_> = streams
            .into_iter()
            .map(|stream| stream.join().expect("a response"))
            .collect();
        let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
        assert_eq!((count(200), count(429)), (served, 40 - served));
        // Each has cost less than it could: the rest is there for others.
        let all = if served == 10 { 10 } else { 14 };
        wait_until_settled(&gateway, all * COST);
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_stream_pays_at_least_its_reservation() {
    let server = model_server(Duration::from_secs(30));
    // What the first event states: 800 tokens read, 200 from the cache, and one generated.
    for (reserve, units) in [(1, 830), (500, 5_000)] {
        let gateway = start(
            &server,
            &format!(
                "unit: usd, quota: $5/1h, cost: {{ settle: anthropic, prices: prices.csv, model: header:x-model, reserve: {{ from: [header:x-max], default: {reserve} }} }}"
            ),
        );
        let mut client = Connection::open(gateway.address());
        let body = r#"{"model":"small","stream":true}"#;
        client.send(request(
            "/v1/messages",
            "x-model: small\r\nx-max: 2\r\n",
            body,
        ));
        let head = client.receive_head();
        assert_eq!(head.status, 200);
        client.read_exactly(100);
        client.reset();
        wait_until_settled(&gateway, units);
        assert_eq!(settled(&gateway, "no_response"), 1.0);
    }
}

/// A budget of $0.02 a day, of which a call reserves $0.00001, one for each token.
const DAY: &str = "unit: usd, quota: $0.02/1d, algorithm: fixed_window, \
    cost: { settle: openai, prices: prices.csv, model: header:x-model, reserve: 1 }";
const RESERVED: u64 = 10;

/// The millionths of a dollar that a call of a stream leaves. Its estimate is charged at its head.
#[track_caller]
fn left_by_stream(gateway: &Gateway) -> u64 {
    let body = r#"{"model":"small","stream":true}"#;
    let fields = "x-model: small\r\n";
    let answer = call(gateway.address(), "/v1/chat/completions", fields, body);
    assert_eq!(answer.status, 200);
    left(&answer) as u64
}

#[test]
fn dollars_outlive_restarts_and_upgrades() {
    let server = model_server(Duration::ZERO);
    let snapshot = "store: { memory: { snapshot: { path: buckets } } }\n";
    let directory = directory_of(&format!("{snapshot}{}", config(&server, DAY)));
    write_prices(directory.path(), PRICES);
    let mut gateway = Gateway::start_with(directory, RUN);
    for calls in 0..3 {
        let spent = calls * COST;
        assert_eq!(left_by_stream(&gateway), 20_000 - spent - RESERVED);
        wait_until_settled(&gateway, COST);
        if calls == 0 {
            gateway.signal(Signal::TERM);
            assert!(gateway.wait().success());
            gateway = gateway.start_again();
        } else {
            gateway.upgrade();
        }
    }
    assert_eq!(left_by_stream(&gateway), 20_000 - 3 * COST - RESERVED);
    wait_until_settled(&gateway, COST);
    let body = r#"{"model":"small"}"#;
    let limited = call(
        gateway.address(),
        "/v1/chat/completions",
        "x-model: small\r\n",
        body,
    );
    assert_eq!(limited.status, 429, "$0.02328 of $0.02");
}

#[test]
fn a_stream_that_began_before_a_reload_is_charged_after_it() {
    let server = model_server(Duration::from_secs(2));
    let gateway = start(&server, DAY);
    thread::scope(|scope| {
        let streams = [(); 2].map(|()| scope.spawn(|| left_by_stream(&gateway)));
        wait_for("both streams", || {
            (server.requests().len() == 2).then_some(())
        });
        gateway.reload(&config(&server, &DAY.replace("$0.02", "$0.03")));
        for stream in streams {
            stream.join().expect("it ends");
        }
    });
    wait_until_settled(&gateway, 2 * COST);
    assert_eq!(left_by_stream(&gateway), 30_000 - 2 * COST - RESERVED);
}

/// The new process has the buckets before the stream ends.
#[test]
fn a_stream_that_outlives_an_upgrade_pays_its_estimate() {
    let server = model_server(Duration::from_secs(4));
    let mut gateway = start(&server, DAY);
    let address = gateway.address();
    let stream = thread::spawn(move || {
        let body = r#"{"model":"small","stream":true}"#;
        call(address, "/v1/chat/completions", "x-model: small\r\n", body).status
    });
    wait_for("the stream", || {
        (server.requests().len() == 1).then_some(())
    });
    gateway.upgrade();
    assert_eq!(stream.join().expect("it ends"), 200);
    assert_eq!(left_by_stream(&gateway), 20_000 - 2 * RESERVED);
}

/// The debt of one key is not that of another.
#[test]
fn too_low_an_estimate_costs_nobody_else_anything() {
    let server = model_server(Duration::ZERO);
    let gateway = start(
        &server,
        "unit: usd, quota: $0.005/1d, key: header:x-key, algorithm: fixed_window, \
         cost: { settle: openai, prices: prices.csv, model: header:x-model, reserve: { from: [header:x-max] } }",
    );
    let ask = |key: &str| {
        let fields = format!("x-key: {key}\r\nx-model: small\r\nx-max: 1\r\n");
        let body = r#"{"model":"small"}"#;
        call(gateway.address(), "/v1/chat/completions", &fields, body).status
    };
    assert_eq!(ask("greedy"), 200);
    wait_until_settled(&gateway, COST);
    assert_eq!(ask("greedy"), 429, "$0.00582 of $0.005");
    assert_eq!(ask("other"), 200);
}

#[test]
fn the_model_of_the_response_counts_before_that_of_the_request() {
    let server = model_server(Duration::ZERO);
    let gateway = start(
        &server,
        "unit: usd, quota: $5/1h, cost: { settle: openai, prices: prices.csv, model: header:x-model, reserve: 10 }",
    );
    let mut sum = 0;
    for (claimed, model, units) in [
        ("x-model: small\r\n", "large-2", 2 * COST),
        ("x-model: large\r\n", "small", COST),
        ("x-model: large\r\n", "unlisted", 2 * COST),
        ("x-model: unlisted\r\n", "unlisted", 3 * COST),
        ("", "unlisted", 3 * COST),
    ] {
        let body = format!(r#"{{"model":"{model}"}}"#);
        let answer = call(gateway.address(), "/v1/chat/completions", claimed, &body);
        assert_eq!(answer.status, 200);
        sum += units;
        wait_until_settled(&gateway, sum);
    }
    let two = "x-model: small\r\nx-model: large\r\n";
    let answer = call(gateway.address(), "/v1/chat/completions", two, "{}");
    assert_eq!(answer.status, 400, "the upstream may take either");
}

/// With a body that the proxy reads, clients state nothing but what the model server reads, too.
#[test]
fn the_body_names_the_model_and_bounds_the_tokens() {
    let server = model_server(Duration::ZERO);
    let policy = "unit: usd, quota: $0.05/1d, algorithm: fixed_window, cost: { settle: openai, \
        prices: prices.csv, model: body:/model, \
        reserve: { from: [body:/max_completion_tokens, body:/max_tokens], default: 1000, prompt: estimate } }";
    let text =
        config(&server, policy).replace("name: a,", "name: a, request: { read_body: 4KiB },");
    let directory = directory_of(&text);
    write_prices(directory.path(), PRICES);
    let gateway = Gateway::start_with(directory, RUN);
    let ask = |body: &str| {
        let answer = call(gateway.address(), "/v1/chat/completions", "", body);
        let reserved = (answer.status == 200).then(|| 50_000 - left(&answer));
        (answer.status, reserved)
    };
    let prompt = |body: &str| body.len().div_ceil(4);
    let small = r#"{"model":"small","max_tokens":100}"#;
    assert_eq!(ask(small), (200, Some(1_000 + prompt(small))));
    wait_until_settled(&gateway, COST);
    let spent = COST as usize;
    let both = r#"{"model":"large-3","max_tokens":5,"max_completion_tokens":50}"#;
    assert_eq!(ask(both), (200, Some(spent + 1_000 + 2 * prompt(both))));
    wait_until_settled(&gateway, 3 * COST);
    // More than what is left of the budget.
    for body in [
        r#"{"model":"large","max_tokens":2000}"#,
        r#"{"model":"large","max_tokens":2e3}"#,
        r#"{"model":"large","max_tokens":1,"max_completion_tokens":2000}"#,
        r#"{"model":"small","max_tokens":99999999999999}"#,
        r#"{"max_tokens":1200}"#,
    ] {
        assert_eq!(ask(body), (429, None), "{body}");
    }
    for body in [
        r#"{"model":"small","model":"large"}"#,
        r#"{"model":"small","max_tokens":1,"max_tokens":2}"#,
    ] {
        assert_eq!(ask(body), (400, None), "{body}");
    }
}

#[test]
fn prices_are_read_again_when_they_change_and_broken_ones_change_nothing() {
    let server = model_server(Duration::ZERO);
    let gateway = start(
        &server,
        "unit: usd, quota: $5/1h, cost: { settle: openai, prices: prices.csv, reserve: 10 }",
    );
    let ask = || {
        let body = r#"{"model":"small"}"#;
        let answer = call(gateway.address(), "/v1/chat/completions", "", body);
        assert_eq!(answer.status, 200);
    };
    ask();
    wait_until_settled(&gateway, COST);
    write_prices(
        gateway.dir(),
        "model,input,output,cached_input\nsmall,2,20,0.2\n",
    );
    wait_for("the new prices", || {
        (gateway.reloads("success") > 0).then_some(())
    });
    ask();
    wait_until_settled(&gateway, 3 * COST);
    write_prices(gateway.dir(), "model,input,output\nsmall,free,0\n");
    wait_for("the broken prices", || {
        (gateway.reloads("failure") > 0).then_some(())
    });
    let log = gateway.wait_for_log("`input` is `free`");
    assert!(log.contains("prices.csv: line 2"), "{log}");
    ask();
    wait_until_settled(&gateway, 5 * COST);
}

#[test]
fn weights_of_numbers_are_exact() {
    let server = model_server(Duration::ZERO);
    let gateway = start(
        &server,
        "quota: 100000/1h, cost: { reserve: 10, max: 90000, response_json: [\
         { pointer: /usage/prompt_tokens, weight: 0.1 }, { pointer: /usage/completion_tokens, weight: 3.001 }] }",
    );
    let answer = call(gateway.address(), "/v1/chat/completions", "", "{}");
    assert_eq!(answer.status, 200);
    // 100 and 1500.5.
    wait_until_settled(&gateway, 1_601);
}

#[test]
fn a_refusal_names_dollars() {
    let server = model_server(Duration::ZERO);
    let gateway = start(
        &server,
        "unit: usd, quota: $0.01/1d, algorithm: fixed_window, cost: { settle: openai, prices: prices.csv, reserve: { from: [header:x-max] } }",
    );
    let answer = call(
        gateway.address(),
        "/v1/chat/completions",
        "x-max: 1000\r\n",
        "{}",
    );
    assert_eq!(answer.status, 429);
    // A model without a name costs the dearest prices.
    let text = "of $0.01/1d has $0.01 of $0.01 left, and this request needs $0.03.";
    assert!(answer.text().contains(text), "{}", answer.text());
    let policy = answer.expect_header("ratelimit-policy");
    assert_eq!(policy, "\"p\";q=10000;w=86400;qu=\"usd-micros\"");
    let explained = command([
        "explain",
        "POST",
        "http://a/v1/chat/completions",
        "--config",
    ])
    .arg(gateway.config_path())
    .output()
    .expect("the binary starts");
    let text = String::from_utf8_lossy(&explained.stdout);
    assert!(
        text.contains("allowed: $0.00997 left, full again"),
        "{text}"
    );
}

/// The gateway of docs/token-budgets.md.
#[test]
fn the_gateway_of_the_page_counts_dollars_and_tokens() {
    let server = model_server(Duration::ZERO);
    let page = include_str!("../../docs/token-budgets.md");
    let block = |language: &str| {
        let (_, rest) = page
            .split_once(&format!("```{language}\n"))
            .expect("a block");
        rest.split_once("```").expect("its end").0
    };
    let config = block("yaml").replace("https://api.openai.com", &server.url());
    let directory = directory_of(&config);
    let clients = "key,name,org\nsk-a,ann,a\nsk-b,bob,b\n";
    std::fs::write(directory.path().join("clients.csv"), clients).expect("a file");
    write_prices(directory.path(), block("csv"));
    std::fs::write(directory.path().join("openai.key"), "Bearer sk-x").expect("a file");
    let gateway = Gateway::start_with(directory, RUN);
    let body = r#"{"model":"gpt-5","max_tokens":600,"stream":true}"#;
    let reserved = 600 + body.len().div_ceil(4);
    for (org, calls) in [("a", 1), ("a", 2), ("b", 3)] {
        let fields = format!("authorization: Bearer sk-{org}\r\n");
        let answer = call(gateway.address(), "/v1/chat/completions", &fields, body);
        assert_eq!(answer.status, 200);
        let left: usize = answer
            .expect_header("x-ratelimit-remaining-tokens")
            .parse()
            .expect("a number");
        let used = if calls == 2 { TOKENS as usize } else { 0 };
        let rest = 200_000 - used - reserved;
        // Some come back meanwhile.
        assert!((rest..rest + 1_500).contains(&left), "{left} of {rest}");
        for (policy, each) in [("dollars", 6_025), ("tokens", TOKENS)] {
            let series = format!("sluicegate_limit_settled_units_total{{policy=\"{policy}\"}}");
            wait_for(&series, || {
                (gateway.metric(&series) == Some((calls * each) as f64)).then_some(())
            });
        }
    }
}
