//! The cost of a request as the body of its response states it, in a JSON document or an event
//! stream of JSON.

use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use smallvec::SmallVec;

use super::ReportedCost;
use crate::http::event_stream::{EventPart, EventStream};
use crate::http::headers::Headers;
use crate::http::json_pointer::JsonPointer;
use crate::http::json_scan::{JsonScan, JsonValue};
use crate::whole_number;

/// A scan of a response's body for the values at some pointers, in constant memory.
#[derive(Debug)]
pub struct UsageScan {
    format: Format,
    values: SmallVec<[PointerValue; 1]>,
}

/// The value at one pointer.
#[derive(Debug)]
struct PointerValue {
    scan: JsonScan,
    /// The value in the last event that has one.
    last: Option<JsonValue>,
}

#[derive(Debug)]
enum Format {
    /// One JSON document, or several in a row.
    Json,
    /// A stream of events whose data are JSON documents.
    Events {
        stream: EventStream,
        end: DoneMarker,
    },
}

/// The event with the data `[DONE]`, by which OpenAI and others end a stream.
#[derive(Debug, Default)]
struct DoneMarker {
    /// How many bytes of it the event has so far; `None` if it has others.
    seen: Option<usize>,
    is_seen: bool,
}

impl UsageScan {
    /// A scan of a response with these fields.
    ///
    /// # Errors
    /// When its body cannot state a cost: it is compressed, or neither JSON nor a stream of events.
    pub(super) fn new(
        pointers: &[Arc<JsonPointer>],
        headers: &Headers,
    ) -> Result<Self, ReportedCost> {
        let mut codings = headers.get_all(CONTENT_ENCODING);
        if codings.any(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
            return Err(ReportedCost::Malformed);
        }
        let format = headers.get_all(CONTENT_TYPE).next().and_then(Format::of);
        let values = pointers.iter().map(|pointer| PointerValue {
            scan: JsonScan::new(Arc::clone(pointer)),
            last: None,
        });
        Ok(UsageScan {
            format: format.ok_or(ReportedCost::Missing)?,
            values: values.collect(),
        })
    }

    /// Reads the next piece of the body, cut anywhere.
    pub fn feed(&mut self, piece: &[u8]) {
        let values = &mut self.values;
        match &mut self.format {
            Format::Json => values.iter_mut().for_each(|value| value.scan.feed(piece)),
            Format::Events { stream, end } => stream.feed(piece, |part| {
                end.note(part);
                values.iter_mut().for_each(|value| value.note(part));
            }),
        }
    }

    /// Returns true if the rest of the body cannot change the cost.
    pub fn is_complete(&self) -> bool {
        matches!(&self.format, Format::Events { end, .. } if end.is_seen)
    }

    /// The cost, at most `max`, once the body has ended: the sum of the values that are there.
    pub(super) fn cost(&mut self, max: u32) -> ReportedCost {
        let is_json = match &mut self.format {
            Format::Json => true,
            Format::Events { stream, .. } => {
                if stream.finish() {
                    self.values.iter_mut().for_each(PointerValue::end_event);
                }
                false
            }
        };
        let mut sum = None;
        for value in &mut self.values {
            if is_json {
                match value.scan.finish() {
                    Ok(found) => value.last = found,
                    Err(_) => return ReportedCost::Malformed,
                }
            }
            match value.last.take().map(|value| units(&value)) {
                Some(Some(units)) => sum = Some(sum.unwrap_or(0_u32).saturating_add(units)),
                Some(None) => return ReportedCost::Malformed,
                None => {}
            }
        }
        sum.map_or(ReportedCost::Missing, |sum| {
            ReportedCost::Units(sum.min(max))
        })
    }

    /// The cost that was stated before the body broke off, at most `max`.
    pub(super) fn partial(&self, max: u32) -> u32 {
        let stated = self.values.iter().filter_map(|value| {
            let found = value.last.as_ref().or_else(|| value.scan.found());
            units(found?)
        });
        stated.fold(0, u32::saturating_add).min(max)
    }
}

impl PointerValue {
    fn note(&mut self, part: EventPart<'_>) {
        match part {
            EventPart::Data(data) => self.scan.feed(data),
            EventPart::LineBreak => self.scan.feed(b"\n"),
            EventPart::End => self.end_event(),
        }
    }

    /// Data that is no JSON states nothing.
    fn end_event(&mut self) {
        if let Ok(Some(value)) = self.scan.finish() {
            self.last = Some(value);
        }
    }
}

impl Format {
    /// The format of this media type, if it can state a cost.
    fn of(content_type: &[u8]) -> Option<Self> {
        let essence = content_type.split(|&byte| byte == b';').next()?;
        let essence = str::from_utf8(essence).ok()?.trim().to_ascii_lowercase();
        match essence.as_str() {
            "text/event-stream" => Some(Self::Events {
                stream: EventStream::default(),
                end: DoneMarker {
                    seen: Some(0),
                    is_seen: false,
                },
            }),
            "application/json" | "text/json" | "application/x-ndjson" | "application/jsonl" => {
                Some(Self::Json)
            }
            other => other.ends_with("+json").then_some(Self::Json),
        }
    }
}

impl DoneMarker {
    const TEXT: &[u8] = b"[DONE]";

    fn note(&mut self, part: EventPart<'_>) {
        match part {
            EventPart::Data(data) => {
                self.seen = self.seen.and_then(|seen| {
                    let rest = Self::TEXT.get(seen..)?;
                    rest.starts_with(data).then_some(seen + data.len())
                });
            }
            EventPart::LineBreak => self.seen = None,
            EventPart::End => {
                self.is_seen |= self.seen == Some(Self::TEXT.len());
                self.seen = Some(0);
            }
        }
    }
}

/// A whole number of units; what is too large for the type is its maximum. `None` for anything
/// else.
fn units(value: &JsonValue) -> Option<u32> {
    let JsonValue::Number(text) = value else {
        return None;
    };
    whole_number::parse(text.as_bytes()).or_else(|| {
        let number: f64 = text.parse().ok()?;
        // Some write whole numbers as `57.0`. The cast saturates.
        (number >= 0.0 && number.fract() == 0.0).then_some(number as u32)
    })
}

#[cfg(test)]
mod tests;
