//! No secret of a configuration is shown, however it is written and whatever is wrong around it: not in
//! reports, and not in the text for operators.

use proptest::prelude::*;

use crate::clock::Timestamp;
use crate::config::{self, Audience, Colour};

/// The halves of a secret. Neither may appear.
const HALVES: [&str; 2] = ["qv7HunTer", "Zx9zeBra44"];

/// Places of secrets, and of values that nobody knows to be none. `S` is the value.
const PLACES: &[&str] = &[
    "admin:\n  tokens:\n    write:\n      - S\n",
    "admin:\n  tokens:\n    write: S\n",
    "admin:\n  tokens:\n    wriite: [S]\n",
    "admin: { tokens: { read: [reader-0123456789, S] } }\n",
    "admin: { tokens: { read: [{ file: a }, { flie: S }] } }\n",
    "admin:\n  tokens: S\n",
    "admin: S\n",
    "store:\n  redis:\n    url: redis://cache\n    password: S\n",
    "store:\n  redis:\n    url: redis://cache\n    passwrod: S\n",
    "store:\n  redis:\n    url: redis://cache\n    ? password\n    : S\n",
    "store:\n  redis:\n    url: redis://cache\n    \"pass\\u0077ord\": S\n",
    "store: { redis: { url: redis://cache, password: S, password: S } }\n",
    "store: { redis: { url: S } }\n",
    "store: { redis: { url: \"redis://bob:S@cache\" } }\n",
    "store: { redis: { url: \"redsi://bob:S@cache\" } }\n",
    "store: { redis: { cluster: [\"redis://bob:S@cache\"] } }\n",
    "store: { redis: { url: redis://cache, secret: S } }\n",
    "store: { redis: { sentinel: { addresses: [a], master: m, password: S } } }\n",
    "store: { redis: S }\n",
    "tracing:\n  endpoint: http://127.0.0.1:4318\n  headers: { authorization: S }\n",
    "tracing:\n  endpoint: http://127.0.0.1:4318\n  headers: [ S ]\n",
    "tracing: { endpoint: \"http://bob:S@127.0.0.1\" }\n",
    "tracing: { endpoint: \"http://127.0.0.1/?key=S\" }\n",
    "responses: { debug: { header: x-debug, token: S } }\n",
    "exempt: [{ part: header:x-api-key, value: S }]\n",
    "exempt: [{ part: header:x-api-key, prefix: S }, { part: header:x-api-key, prefix: S }]\n",
    "policies:\n  p:\n    key: header:x-api-key\n    quota: 5/1m\n    exempt: [{ value: S }]\n    overrides:\n      - { value: S, quota: 1/1s }\n      - { value: S, quota: 1zz }\n",
    "policies: { p: { quota: 5/1m, when: { header: { x-api-key: S }, jwt: { sub: S } } } }\n",
    "policies: { p: { quota: 5/1m, when: { client: { plan: pro }, header: { client: S }, not: { cookie: { plan: { prefix: S } } } } } }\n",
    "upstreams: { u: { endpoints: [{ url: \"http://bob:S@10.0.0.1\" }] } }\n",
    "upstreams: { u: { endpoints: [\"bob:S@10.0.0.1\"] } }\n",
    "x-token: S\n",
    "x-token[ S\n",
    "x-S: 1\n",
    "unknown: [S, { S: S }]\n",
    "S: S\n",
    "# S\nworkers: 1 # S\n",
];

/// The end of each configuration, with secrets of routes.
const ROUTES: &str = "routes:
  - match: { headers: { x-api-key: S }, query: { key: S } }
    request: { set_headers: { authorization: S } }
    upstream: echo
    limits: [{ quota: 5/1m, key: client_ip }]
";

/// Ways to write a value. `A` and `B` are its halves.
const SHAPES: &[&str] = &[
    "AB",
    "'AB'",
    "\"AB\"",
    "\"A\\u0042B\"",
    "\n        AB",
    "A\n        B",
    "|\n        AB\n        AB\n",
    ">- # AB\n        AB\n",
    "\"AB\\nAB\"",
    "&anchor AB",
    "!!str AB",
    "!AB x",
    "*AB",
    "&AB",
    "[AB, A, { AB }]",
    "{ AB }",
    "{ AB: AB }",
    "{ ? AB : AB }",
    "AB # AB",
    "AB: AB",
    "AB, AB",
    "[AB",
    "'AB",
    "\tAB",
    "${AB",
    "${A-B}",
    "${UNSET:-AB}",
    "é AB",
];

fn written(place: &str, shape: &str) -> String {
    let [a, b] = HALVES;
    let value = shape.replace('A', "\0").replace('B', b).replace('\0', a);
    format!("{place}{ROUTES}").replace('S', &value)
}

/// Everything that people and machines see of a configuration.
fn shown(text: &str) -> String {
    let parsed = config::parse("gate.yaml", text.to_owned(), &|_| None);
    let mut shown = String::new();
    let report = match parsed {
        Ok(loaded) => {
            match config::compile(&loaded) {
                Ok(compiled) => {
                    shown += &format!(
                        "{}\n{:?}\n",
                        compiled.process.info.text,
                        compiled.rules.routes.len()
                    )
                }
                Err(report) => shown += &format!("{report}\n"),
            }
            config::lint(loaded, Timestamp::EPOCH)
        }
        Err(report) => report,
    };
    let machines = serde_json::to_string(&report.reported()).expect("JSON");
    shown += &format!(
        "{report}\n{}\n{machines}\n{}\n{:?}\n",
        report.render(Colour::Plain, Audience::Owner),
        report.masked_text(),
        report.sentences(),
    );
    shown
}

#[track_caller]
fn assert_hidden(text: &str) {
    let shown = shown(text);
    for half in HALVES {
        assert!(!shown.contains(half), "of\n{text}\nthis is shown:\n{shown}");
    }
}

#[test]
fn no_shape_of_a_secret_is_shown() {
    for place in PLACES {
        for shape in SHAPES {
            assert_hidden(&written(place, shape));
        }
    }
}

#[test]
fn an_alias_of_a_secret_is_one_wherever_it_stands() {
    let [a, b] = HALVES;
    let head = format!("x-base: &base {a}{b}\n");
    for rest in [
        "admin: { tokens: { write: [*base] } }\nroutes: [{ upstream: echo }]\n",
        "admin: { tokens: { write: *base } }\nroutes: [{ name: *base, upstream: echo }]\n",
        "exempt: [{ part: header:x, value: *base }]\nroutes: [{ upstream: echo }]\n",
        "routes: [{ upstream: echo }]\n",
    ] {
        assert_hidden(&format!("{head}{rest}"));
    }
}

#[test]
fn a_secret_behind_a_key_without_colon_is_hidden() {
    let [a, b] = HALVES;
    for key in [
        format!("x\n\n    {a}{b}"),
        format!("x {a}\n    {b}"),
        format!("\"x\n    {a}{b}\""),
    ] {
        let tracing = "tracing: { endpoint: \"http://127.0.0.1:4318\", headers";
        assert_hidden(&format!(
            "{tracing}: {{ {key}: 1 }} }}\nroutes: [{{ upstream: echo }}]\n"
        ));
        assert_hidden(&format!(
            "routes: [{{ upstream: echo, match: {{ headers: {{ {key}: 1 }} }} }}]\n"
        ));
    }
}

#[test]
fn what_is_no_secret_is_shown() {
    let text = "policies: # ours\n  p: { quota: 5/1m, key: \"header:x-api-key\", exempt: [{ value: bob }] }\n\
                store: { redis: { url: \"${URL}\", password: '${PASSWORD}' } }\n\
                routes:\n  - name: api\n    upstream: http://10.0.0.1:3000\n    limits: [p]\n";
    let loaded = config::parse("gate.yaml", text.to_owned(), &|name| {
        Some(match name {
            "URL" => "redis://cache".to_owned(),
            _ => "hunter2".to_owned(),
        })
    });
    let report = config::lint(loaded.expect("it is sound"), Timestamp::EPOCH);
    let expected = text.replace("# ours", "").replace("bob", "***");
    assert_eq!(report.masked_text(), expected);
    let mistake = text.replace("5/1m", "5/1zz");
    let report = config::parse("gate.yaml", mistake, &|_| None).expect_err("it is wrong");
    let of_owner = report.render(Colour::Plain, Audience::Owner);
    assert!(
        of_owner.contains("quota: 5/1zz, key: \"header:x-api-key\", exempt: [{ value: *** }]"),
        "{of_owner}"
    );
    let of_others = report.to_string();
    assert!(
        of_others.contains("quota: ***, key: ***, exempt: [{ value: *** }]"),
        "{of_others}"
    );
}

/// As docs/admin-api.md says, clients see the fields of responses, and networks and columns of clients are no
/// secrets.
#[test]
fn fields_of_responses_networks_and_columns_are_shown() {
    let text = "access: { deny: [{ cidr: [192.0.2.1] }] }\n\
                exempt: [{ cidr: 192.0.2.0/24 }]\n\
                policies:\n  p:\n    quota: 5/1m\n    overrides:\n      - { cidr: 192.0.2.2, quota: 1/1s }\n      \
                - { when: { client: { plan: [pro, team], org: { prefix: a } } }, quota: 2/1s }\n    \
                on_limit: { headers: { x-a: b } }\n\
                clients: { identify_by: bearer, files: [clients.csv] }\n\
                tracing: { endpoint: \"http://127.0.0.1:4318/path\" }\n\
                routes:\n  - { match: { path: /a }, respond: { status: 200, headers: { x-c: d } } }\n  \
                - { upstream: echo, response: { set_headers: { set-cookie: e } }, limits: [p] }\n";
    let loaded = config::parse("gate.yaml", text.to_owned(), &|_| None).expect("it is sound");
    let report = config::lint(loaded, Timestamp::EPOCH);
    assert_eq!(report.masked_text(), text);
}

/// Nor are the directories on the way to it.
#[test]
fn what_a_variable_stands_for_is_in_no_finding() {
    const JWT: &str = "limits: [{ key: \"jwt:sub\", quota: 5/1s }]\njwt: { keys: [";
    for (place, value) in [
        ("access_log: { path: \"${V}\" }", "/q7zebra/deep/access.log"),
        (
            "access_log: { path: \"${V}/access.log\" }",
            "/q7zebra/deep/",
        ),
        (
            "access_log: { path: \"${V}/access.log\" }",
            "./q7zebra/deep",
        ),
        (
            "store: { memory: { snapshot: { path: \"a/${V}/b\" } } }",
            "q7zebra",
        ),
        ("listeners: [{ address: \"${V}\" }]", "unix:/q7zebra/a.sock"),
        (
            "listeners: [{ address: \"${V}\" }, { address: \"${V}\" }]",
            "unix:/q7zebra",
        ),
        (
            &format!("{JWT}{{ jwks_file: \"${{V}}\" }}] }}"),
            "/q7zebra/deep/keys.json",
        ),
        (
            &format!("{JWT}{{ algorithm: RS256, file: \"${{V}}\" }}] }}"),
            "q7zebra",
        ),
        ("error_pages: { \"404\": \"${V}\" }", "q7zebra"),
        (
            "access: { deny: [{ cidr: [{ file: \"${V}\" }] }] }",
            "/q7zebra/list",
        ),
        ("access: { deny: [\"${V}\"] }", "q7zebra"),
        ("access: { deny: [\"${V}\"] }", "10.q7zebra"),
        ("include: \"${V}\"", "q7zebra"),
        ("limits: [\"${V}\"]", "q7zebra"),
    ] {
        let text = format!("{place}\nroutes: [{{ upstream: echo }}]\n");
        let loaded = config::parse("v.yaml", text, &|_| Some(value.to_owned()));
        let report = loaded.and_then(|loaded| {
            config::compile(&loaded)?;
            Ok(config::lint(loaded, Timestamp::EPOCH))
        });
        let report = report.unwrap_or_else(|report| report);
        assert!(!report.problems.is_empty(), "{place}");
        let texts = report.problems.iter().flat_map(|one| {
            let related = one.related.iter().map(|other| &other.message);
            related.chain([&one.message]).chain(&one.help)
        });
        for text in texts {
            assert!(!text.contains("q7zebra"), "{place} {value}: {text}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_slip_of_the_keyboard_shows_a_secret(
        place in prop::sample::select(PLACES),
        shape in prop::sample::select(SHAPES),
        at in 0..1000_usize,
        removed in 0..4_usize,
        added in "[ \\n:,\"'#&*!{}\\[\\]-]{0,2}",
    ) {
        // URLs that may have no login: without its `@` one is a host. A comment without its sign is a
        // value of the key before it.
        prop_assume!(!place.contains("S@1") && !place.contains("?key") && !place.starts_with('#'));
        let mut text = written(place, shape);
        let mut start = text.floor_char_boundary(at % text.len());
        // Not within a secret: half of it would be another.
        for half in HALVES {
            for (found, _) in text.match_indices(half) {
                if (found..found + half.len()).contains(&start) {
                    start = found + half.len();
                }
            }
        }
        let mut end = text.floor_char_boundary((start + removed).min(text.len()));
        for half in HALVES {
            end = text.match_indices(half).map(|(found, _)| found).filter(|found| *found >= start).fold(end, usize::min);
        }
        text.replace_range(start..end.max(start), &added);
        assert_hidden(&text);
    }
}
