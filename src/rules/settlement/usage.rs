//! The cost of a request as the body of its response states it, in a JSON document or an event
//! stream of JSON.

use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use smallvec::{SmallVec, smallvec};

use super::ReportedCost;
use super::usage_api::{UsageApi, UsageField, UsageFields};
use crate::http::event_stream::{EventPart, EventStream};
use crate::http::headers::Headers;
use crate::http::json_pointer::JsonPointer;
use crate::http::json_scan::{JsonScan, JsonValue};
use crate::rules::{Decimal, Price, Pricing};
use crate::whole_number;

/// Where the body of a response states its cost, and how that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRule {
    /// At least one pointer, at most 32.
    pub pointers: Arc<[JsonPointer]>,
    /// The sum of the values there.
    pub meter: Meter,
    /// Requests have to ask for the usage of their streams.
    pub includes_usage: bool,
}

/// The way in which the values of a response become units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meter {
    /// Their sum, each times the weight at its place.
    Weights(Box<[Decimal]>),
    /// Tokens as this API reports them, at the prices of the model, or as a unit each.
    Tokens(UsageApi, Option<Arc<Pricing>>),
}

/// A scan of a response's body for the values at some pointers, in constant memory.
#[derive(Debug)]
pub struct UsageScan {
    format: Format,
    rule: Arc<UsageRule>,
    scan: JsonScan,
    /// The values by pointer, in the last event that has one.
    last: SmallVec<[Option<JsonValue>; 1]>,
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
    /// The beginning of the event's data.
    data: SmallVec<[u8; 8]>,
    is_seen: bool,
}

impl UsageScan {
    /// A scan of a response with these fields.
    ///
    /// # Errors
    /// When its body cannot state a cost: it is compressed, or neither JSON nor a stream of events.
    pub(super) fn new(rule: &Arc<UsageRule>, headers: &Headers) -> Result<Self, ReportedCost> {
        let mut codings = headers.get_all(CONTENT_ENCODING);
        if codings.any(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
            return Err(ReportedCost::Malformed);
        }
        let format = headers.get_all(CONTENT_TYPE).next().and_then(Format::of);
        Ok(UsageScan {
            format: format.ok_or(ReportedCost::Missing)?,
            scan: JsonScan::new(Arc::clone(&rule.pointers)),
            last: smallvec![None; rule.pointers.len()],
            rule: Arc::clone(rule),
        })
    }

    /// Reads the next piece of the body, cut anywhere.
    pub fn feed(&mut self, piece: &[u8]) {
        let (scan, last) = (&mut self.scan, &mut self.last);
        match &mut self.format {
            Format::Json => scan.feed(piece),
            Format::Events { stream, end } => stream.feed(piece, |part| {
                end.note(part);
                match part {
                    EventPart::Data(data) => scan.feed(data),
                    EventPart::LineBreak => scan.feed(b"\n"),
                    EventPart::End => end_event(scan, last),
                }
            }),
        }
    }

    /// Returns true if the rest of the body cannot change the cost.
    pub fn is_complete(&self) -> bool {
        matches!(&self.format, Format::Events { end, .. } if end.is_seen)
    }

    /// The cost, at most `max`, once the body has ended. `requested` has the prices of the model that
    /// the request named.
    pub(super) fn cost(&mut self, max: u32, requested: Option<Price>) -> ReportedCost {
        match &mut self.format {
            Format::Json => {
                let last = &mut self.last;
                let kept = self.scan.finish(|place, value| last[place] = Some(value));
                if kept.is_err() {
                    return ReportedCost::Malformed;
                }
            }
            Format::Events { stream, .. } => {
                if stream.finish() {
                    end_event(&mut self.scan, &mut self.last);
                }
            }
        }
        match self
            .rule
            .units(|place| self.last[place].as_ref(), requested)
        {
            Ok(None) => ReportedCost::Missing,
            Ok(Some(units)) => ReportedCost::Units(units.min(max)),
            Err(NoNumber) => ReportedCost::Malformed,
        }
    }

    /// The cost that was stated before the body broke off, at most `max`.
    pub(super) fn partial(&self, max: u32, requested: Option<Price>) -> u32 {
        let value = |place: usize| {
            let value = self.last[place].as_ref();
            let value = value.or_else(|| self.scan.found(place))?;
            (self.rule.is_model(place) || units(value).is_some()).then_some(value)
        };
        let stated = self.rule.units(value, requested).ok().flatten();
        stated.unwrap_or(0).min(max)
    }
}

/// A value is no whole number.
struct NoNumber;

impl UsageRule {
    /// The prices of tokens; `None` if they have none.
    pub(super) fn pricing(&self) -> Option<&Pricing> {
        match &self.meter {
            Meter::Tokens(_, pricing) => pricing.as_deref(),
            Meter::Weights(_) => None,
        }
    }

    /// True if the value at this pointer is the name of the model.
    fn is_model(&self, place: usize) -> bool {
        matches!(self.meter, Meter::Tokens(api, _) if api.field(place) == UsageField::Model)
    }

    /// The units that values by pointer state; `None` without any.
    fn units<'v>(
        &self,
        value: impl Fn(usize) -> Option<&'v JsonValue>,
        requested: Option<Price>,
    ) -> Result<Option<u32>, NoNumber> {
        let values = (0..self.pointers.len()).filter_map(|place| Some((place, value(place)?)));
        let api = match &self.meter {
            Meter::Weights(weights) => {
                let weighted = |(place, value)| {
                    let number = units(value).ok_or(NoNumber)?;
                    Ok((u64::from(number), weights[place]))
                };
                let all: SmallVec<[_; 4]> = values.map(weighted).collect::<Result<_, _>>()?;
                return Ok((!all.is_empty()).then(|| Decimal::weighted_sum(all)));
            }
            Meter::Tokens(api, _) => *api,
        };
        let list = self.pricing().map(|pricing| &pricing.list);
        let (mut fields, mut named) = (UsageFields::default(), None);
        for (place, value) in values {
            match (api.field(place), value) {
                (UsageField::Model, JsonValue::Text(model)) => {
                    named = named.or(list.and_then(|list| list.listed(model)));
                }
                (UsageField::Model, _) => {}
                (field, value) => fields.add(field, units(value).ok_or(NoNumber)?),
            }
        }
        let price = named.or(requested).or(list.map(|list| list.other()));
        let price = price.unwrap_or(Price::OF_TOKENS);
        Ok(fields.usage(api).map(|usage| price.of(usage)))
    }
}

/// Keeps the values of an event. Data that is no JSON states nothing.
fn end_event(scan: &mut JsonScan, last: &mut [Option<JsonValue>]) {
    let (Ok(()) | Err(_)) = scan.finish(|place, value| last[place] = Some(value));
}

impl Format {
    /// The format of this media type, if it can state a cost.
    fn of(content_type: &[u8]) -> Option<Self> {
        let essence = content_type.split(|&byte| byte == b';').next()?;
        let essence = str::from_utf8(essence).ok()?.trim().to_ascii_lowercase();
        match essence.as_str() {
            "text/event-stream" => Some(Self::Events {
                stream: EventStream::default(),
                end: DoneMarker::default(),
            }),
            "application/json" | "text/json" | "application/x-ndjson" | "application/jsonl" => {
                Some(Self::Json)
            }
            other => other.ends_with("+json").then_some(Self::Json),
        }
    }
}

impl DoneMarker {
    fn note(&mut self, part: EventPart<'_>) {
        let piece = match part {
            EventPart::Data(data) => data,
            EventPart::LineBreak => b"\n",
            EventPart::End => {
                self.is_seen |= *self.data == *b"[DONE]";
                return self.data.clear();
            }
        };
        let room = self.data.inline_size() - self.data.len();
        self.data.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

/// A whole number of units; what is too large for the type is its maximum. `None` for anything
/// else.
fn units(value: &JsonValue) -> Option<u32> {
    match value {
        JsonValue::Number(text) => number_of_units(text),
        JsonValue::Text(_) | JsonValue::Other => None,
    }
}

/// Reads a whole number as JSON writes it; what is too large for the type is its maximum.
pub(in crate::rules) fn number_of_units(text: &str) -> Option<u32> {
    whole_number::parse(text.as_bytes()).or_else(|| {
        let number: f64 = text.parse().ok()?;
        // Some write whole numbers as `57.0`. The cast saturates.
        (number >= 0.0 && number.fract() == 0.0).then_some(number as u32)
    })
}

#[cfg(test)]
mod tests;
