//! Streams of chat completions, which report their usage only if the request asks for it.

use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::http::json_pointer::JsonPointer;
use crate::rules::{BodyChange, BodyFields, KeyPart, Lookup};

/// Where a request says that it is streamed, and that it asks for the report.
const PLACES: [&str; 2] = ["/stream", "/stream_options/include_usage"];

static PARTS: LazyLock<[KeyPart; 2]> = LazyLock::new(|| PLACES.map(pointer).map(KeyPart::Body));

/// The change to a request that asks for the report.
static CHANGES: LazyLock<[BodyChange; 1]> = LazyLock::new(|| {
    let (pointer, value) = (pointer(PLACES[1]), "true".into());
    [BodyChange { pointer, value }]
});

fn pointer(place: &str) -> Arc<JsonPointer> {
    Arc::new(JsonPointer::parse(place).expect("a place is a pointer"))
}

/// The parts of a request by which [`changes`] decides.
pub(super) fn parts() -> &'static [KeyPart] {
    &*PARTS
}

/// Returns the changes with which a request for `path`, whose body has these fields, asks for the
/// usage of its stream; none if it asks already, or for no stream. The paths are those of OpenAI's
/// chat and text completions: other APIs refuse the option.
pub fn changes(path: &str, fields: &BodyFields) -> &'static [BodyChange] {
    let [is_streamed, asks] = &*PARTS;
    let is_true = |part| matches!(fields.lookup(part), Lookup::One(text) if *text == *b"true");
    let is_silent = path.ends_with("/completions") && is_true(is_streamed) && !is_true(asks);
    if is_silent { &*CHANGES } else { &[] }
}

/// Returns true for an event that only reports the usage of its stream: it has `usage`, and no
/// `choices`.
pub fn is_report(event: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Chunk {
        choices: Vec<IgnoredAny>,
        usage: Option<IgnoredAny>,
    }
    let lines = event.split(|byte| b"\r\n".contains(byte));
    let data = lines.filter_map(|line| line.strip_prefix(b"data:"));
    let chunk = serde_json::from_slice(&data.collect::<Vec<_>>().join(&b'\n'));
    chunk.is_ok_and(|chunk: Chunk| chunk.choices.is_empty() && chunk.usage.is_some())
}
