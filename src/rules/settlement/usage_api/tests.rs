//! The formats of the providers' documentation, complete and streamed.

use http::HeaderValue;
use http::header::CONTENT_TYPE;

use super::*;
use crate::http::headers::Headers;
use crate::rules::settlement::usage::{Meter, UsageRule, UsageScan};
use crate::rules::{PriceList, Pricing, ReportedCost};
use ReportedCost::{Malformed, Missing, Units};

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// A price for each kind of token that shows in a digit of the sum, of two models.
const PRICES: &str = "model,input,output,cached_input,cache_write,cache_write_1h\n\
    m,1,10000,100,1000000,100000\n\
    cheap*,0.5,0.5,0.5,0.5,0.5\n";

fn cost(api: UsageApi, prices: Option<&str>, content_type: &str, body: &str) -> ReportedCost {
    let pricing = prices.map(|table| {
        let list = PriceList::parse(table.as_bytes()).expect("prices");
        Arc::new(Pricing {
            list: Arc::new(list),
            model: None,
        })
    });
    let requested = pricing
        .as_ref()
        .and_then(|pricing| pricing.list.listed("m"));
    let rule = Arc::new(UsageRule {
        pointers: api.pointers(),
        meter: Meter::Tokens(api, pricing),
        includes_usage: false,
    });
    let content_type = HeaderValue::from_str(content_type).expect("a value");
    let headers: Headers = [(CONTENT_TYPE, content_type)].into_iter().collect();
    let mut whole = UsageScan::new(&rule, &headers).expect("it can be read");
    whole.feed(body.as_bytes());
    let mut single = UsageScan::new(&rule, &headers).expect("it can be read");
    body.as_bytes().chunks(1).for_each(|byte| single.feed(byte));
    let cost = whole.cost(u32::MAX, requested);
    assert_eq!(single.cost(u32::MAX, requested), cost, "byte by byte");
    cost
}

fn tokens(api: UsageApi, content_type: &str, body: &str) -> ReportedCost {
    cost(api, None, content_type, body)
}

fn priced(api: UsageApi, content_type: &str, body: &str) -> ReportedCost {
    cost(api, Some(PRICES), content_type, body)
}

#[test]
fn openai_counts_cached_tokens_and_reasoning_among_others() {
    let chat = r#"{"id":"x","model":"unlisted","choices":[{"message":{"content":"\"usage\""}}],"usage":{"prompt_tokens":29,
        "completion_tokens":10,"total_tokens":39,"prompt_tokens_details":{"cached_tokens":20,"audio_tokens":0},
        "completion_tokens_details":{"reasoning_tokens":6}}}"#;
    assert_eq!(tokens(UsageApi::OpenAi, JSON, chat), Units(39));
    assert_eq!(
        priced(UsageApi::OpenAi, JSON, chat),
        Units(9 + 2_000 + 100_000)
    );
    let chunks = concat!(
        "data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n",
        "data: {\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}}\n\n",
        "data: [DONE]\n\n",
    );
    assert_eq!(priced(UsageApi::OpenAi, EVENTS, chunks), Units(3 + 40_000));
    let embeddings = r#"{"data":[{"embedding":[0.1]}],"model":"m","usage":{"prompt_tokens":5,"total_tokens":5}}"#;
    assert_eq!(priced(UsageApi::OpenAi, JSON, embeddings), Units(5));
    let response = r#"{"object":"response","model":"m","usage":{"input_tokens":8,"input_tokens_details":{"cached_tokens":2},
        "output_tokens":3,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":11}}"#;
    assert_eq!(
        priced(UsageApi::OpenAi, JSON, response),
        Units(6 + 200 + 30_000)
    );
    let events = concat!(
        "event: response.created\ndata: {\"response\":{\"model\":\"m\",\"usage\":null}}\n\n",
        "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"model\":\"m\",\"usage\":",
        "{\"input_tokens\":8,\"input_tokens_details\":{\"cached_tokens\":2},\"output_tokens\":3,\"total_tokens\":11}}}\n\n",
    );
    assert_eq!(
        priced(UsageApi::OpenAi, EVENTS, events),
        Units(6 + 200 + 30_000)
    );
    assert_eq!(tokens(UsageApi::OpenAi, EVENTS, events), Units(11));
}

#[test]
fn reasoning_that_only_the_total_has_is_charged() {
    let chat = r#"{"usage":{"prompt_tokens":758,"completion_tokens":102,"total_tokens":1725}}"#;
    assert_eq!(tokens(UsageApi::OpenAi, JSON, chat), Units(1725));
    assert_eq!(priced(UsageApi::OpenAi, JSON, chat), Units(758 + 9_670_000));
}

#[test]
fn more_cached_tokens_than_tokens_make_nothing_cheaper_than_free() {
    let chat = r#"{"usage":{"prompt_tokens":5,"completion_tokens":0,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":99}}}"#;
    assert_eq!(priced(UsageApi::OpenAi, JSON, chat), Units(500));
}

#[test]
fn anthropic_counts_tokens_of_the_cache_beside_others() {
    let usage = r#"{"input_tokens":5,"cache_creation_input_tokens":4,"cache_read_input_tokens":3,
        "cache_creation":{"ephemeral_5m_input_tokens":3,"ephemeral_1h_input_tokens":1},"output_tokens":2,"service_tier":"standard"}"#;
    let message = format!(r#"{{"type":"message","model":"m","content":[],"usage":{usage}}}"#);
    assert_eq!(tokens(UsageApi::Anthropic, JSON, &message), Units(14));
    let all = 5 + 300 + 3_000_000 + 100_000 + 20_000;
    assert_eq!(priced(UsageApi::Anthropic, JSON, &message), Units(all));
    let usage = usage.replace('\n', " ");
    let start = format!(
        "event: message_start\ndata: {{\"type\":\"message_start\",\"message\":{{\"model\":\"m\",\"usage\":{usage}}}}}\n\n"
    );
    // The last event states again what the first has, or generated tokens alone.
    for delta in [
        r#"{"output_tokens":9}"#,
        r#"{"input_tokens":5,"cache_creation_input_tokens":4,"cache_read_input_tokens":3,"output_tokens":9}"#,
        r#"{"input_tokens":0,"cache_read_input_tokens":null,"output_tokens":9}"#,
    ] {
        let events = format!(
            "{start}event: ping\ndata: {{\"type\": \"ping\"}}\n\nevent: message_delta\ndata: {{\"type\":\"message_delta\",\"usage\":{delta}}}\n\n"
        );
        assert_eq!(
            priced(UsageApi::Anthropic, EVENTS, &events),
            Units(all + 70_000)
        );
        assert_eq!(tokens(UsageApi::Anthropic, EVENTS, &events), Units(21));
    }
}

#[test]
fn gemini_counts_thoughts_and_tools_beside_others() {
    let usage = r#"{"promptTokenCount":9,"cachedContentTokenCount":4,"toolUsePromptTokenCount":2,"candidatesTokenCount":3,"thoughtsTokenCount":1,"totalTokenCount":15}"#;
    let all = Units(5 + 2 + 400 + 40_000);
    let content = format!(r#"{{"candidates":[],"usageMetadata":{usage},"modelVersion":"m"}}"#);
    assert_eq!(priced(UsageApi::Gemini, JSON, &content), all);
    assert_eq!(tokens(UsageApi::Gemini, JSON, &content), Units(15));
    let first = r#"{"candidates":[],"usageMetadata":{"promptTokenCount":9,"totalTokenCount":9},"modelVersion":"m"}"#;
    let events = format!("data: {first}\r\n\r\ndata: {content}\r\n\r\n");
    assert_eq!(priced(UsageApi::Gemini, EVENTS, &events), all);
    // Without `alt=sse`, a stream is an array.
    let array = format!("[{first}\n,\r\n{content}\n]");
    assert_eq!(priced(UsageApi::Gemini, JSON, &array), all);
}

#[test]
fn the_model_of_the_response_counts_if_it_has_prices() {
    let usage = r#""usage":{"prompt_tokens":3,"completion_tokens":0,"total_tokens":3}"#;
    for (model, units) in [("cheap-2", 2), ("m", 3), ("unknown", 3)] {
        let body = format!("{{\"model\":\"{model}\",{usage}}}");
        assert_eq!(priced(UsageApi::OpenAi, JSON, &body), Units(units));
    }
    let body = format!("{{\"model\":[1],{usage}}}");
    assert_eq!(priced(UsageApi::OpenAi, JSON, &body), Units(3));
}

#[test]
fn a_response_without_tokens_states_no_cost() {
    let apis = [UsageApi::OpenAi, UsageApi::Anthropic, UsageApi::Gemini];
    for api in apis {
        for body in [
            "{}",
            r#"{"model":"m","modelVersion":"m","usage":null}"#,
            "[]",
            "3",
        ] {
            assert_eq!(priced(api, JSON, body), Missing, "{body}");
        }
    }
    for number in ["\"3\"", "-1", "1.5", "[3]"] {
        let body = format!(r#"{{"usage":{{"prompt_tokens":{number}}}}}"#);
        assert_eq!(tokens(UsageApi::OpenAi, JSON, &body), Malformed, "{number}");
    }
}

#[test]
fn numbers_beyond_the_type_are_its_most() {
    let body = r#"{"usage":{"prompt_tokens":99999999999999999999,"completion_tokens":1e30,"total_tokens":1}}"#;
    assert_eq!(priced(UsageApi::OpenAi, JSON, body), Units(u32::MAX));
}
