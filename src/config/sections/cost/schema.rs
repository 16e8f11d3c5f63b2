//! What users write of costs.

use crate::config::sections::prelude::*;
use crate::rules::{Decimal, UsageApi};

by_form! {
    /// Units that a request takes.
    pub enum Cost("Cost", "a number of units, or where a request or its response says it: `{ header: x-cost, max: 100 }`") {
        /// So many units.
        Constant(Units) = "scalar",
        /// Stated by the request or its response.
        Stated(Box<StatedCost>) = "mapping",
    }
}

/// The cost of a request, as it says itself, or as its response does.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "ToldCost")]
#[schemars(extend("oneOf" = [{ "required": ["header", "max"] }, { "required": ["body", "max"] }, { "required": ["response_header", "max"] }, { "required": ["response_trailer", "max"] }, { "required": ["response_json", "max"] }, { "required": ["response_bytes", "max"] }, { "required": ["settle"] }]))]
pub struct StatedCost {
    /// The request's field with a whole number of units; without it a request takes 1, and with
    /// anything else it is answered 400.
    pub header: Option<Located<FieldName>>,
    /// The whole number of units in a JSON body, as a JSON pointer, instead of `header`: for routes
    /// with `read_body`. A longer body costs `max`.
    pub body: Option<Located<Pointer>>,
    /// Units of a request that states none by `header` or `body`, 1 to 4294967295; 1 unless given.
    pub default: Option<Located<Units>>,
    /// The response's field with a whole number of units; without it, or with anything else, the
    /// request has taken its `reserve`.
    pub response_header: Option<Located<FieldName>>,
    /// The field of the response's trailers with a whole number of units, as behind a stream.
    pub response_trailer: Option<Located<FieldName>>,
    /// Where a JSON response states a whole number of units: a JSON pointer, `/usage/total_tokens`,
    /// or up to 8, whose values are added, each times its `weight`. Of an event stream, the last event
    /// that has it counts.
    pub response_json: Option<Located<Pointers>>,
    /// Bytes of the response's body that are a unit, `1B` to `1024GiB`; part of as many is one,
    /// too.
    pub response_bytes: Option<Located<UnitSize>>,
    /// The API of a language model, whose responses and streams report tokens: `openai` (chat,
    /// responses, embeddings), `anthropic` (messages) or `gemini`. A token is a unit, or costs its
    /// price.
    pub settle: Option<Located<UsageApi>>,
    /// Has chat streams report their usage, whether the client asks for that or not. With
    /// `settle: openai`, on routes with `read_body`; `false` unless given.
    #[serde(default)]
    pub include_usage: Located<Flag>,
    /// The table with the prices of models, in CSV: a line with `model,input,output`, then a line for
    /// each model, in dollars per million tokens. Read again when it changes. With `settle` and
    /// `unit: usd`.
    pub prices: Option<Located<FilePath>>,
    /// The part of the request that names the model, as in `body:/model`. With `prices`.
    pub model: Option<Located<KeyPart>>,
    /// Units that are charged until the response says what it was, 1 to 4294967295; 1 unless given.
    /// Or the parts of the request that say it: `{ header: x-estimate, default: 500 }`.
    pub reserve: Option<Located<Reserve>>,
    /// The most that counts, 1 to 4294967295. With `settle`, there is no bound unless given.
    pub max: Option<Located<Units>>,
}

by_form! {
    /// Units that a request reserves.
    pub enum Reserve("Reserve", "a number of units, or the part of the request that says it: `{ header: x-estimate, default: 500 }`") {
        /// So many units for every request.
        Constant(Units) = "scalar",
        /// Stated by the request.
        Stated(StatedReserve) = "mapping",
    }
}

impl StatedCost {
    /// The units of its reservation.
    pub(super) fn reserved_units(&self) -> impl Iterator<Item = Located<Units>> {
        let units = self
            .reserve
            .iter()
            .flat_map(|reserve| match &reserve.value {
                Reserve::Constant(value) => {
                    let (value, node) = (*value, reserve.node);
                    [Some(Located { value, node }), None]
                }
                Reserve::Stated(stated) => [Some(stated.default), stated.max],
            });
        units.flatten()
    }

    /// The most units that count.
    pub fn most(&self) -> u32 {
        self.max.as_ref().map_or(u32::MAX, |max| max.get())
    }

    /// Units that a request reserves if it states none itself.
    pub fn reserved(&self) -> u32 {
        match self.reserve.as_deref() {
            None => 1,
            Some(Reserve::Constant(units)) => units.get(),
            Some(Reserve::Stated(stated)) => stated.default.get(),
        }
    }
}

/// Units that a request reserves, as it says itself.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ToldReserve")]
#[schemars(extend("oneOf" = [{ "required": ["header"] }, { "required": ["from"] }]))]
pub struct StatedReserve {
    /// The request's field with a whole number of units; with anything else the request is answered
    /// 400.
    pub header: Option<Located<FieldName>>,
    /// The parts of the request that bound the tokens it generates, as in `body:/max_tokens`. The
    /// largest counts. For costs by `settle`.
    pub from: List<KeyPart>,
    /// Units that a request without the field reserves, or tokens without one of the parts, 1 to
    /// 4294967295; 1 unless given.
    pub default: Located<Units>,
    /// `estimate` adds the tokens of the prompt: a quarter of the bytes of the request's body. With
    /// `from`.
    pub prompt: Option<Located<PromptTokens>>,
    /// The most that counts of the field or the parts, 1 to 4294967295; the cost's `max` unless given.
    pub max: Option<Located<Units>>,
}

/// How the tokens of a prompt are known before the model has read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PromptTokens {
    /// One for each started four bytes of the request's body.
    #[default]
    Estimate,
}

/// Where a document states a number: one place, or several whose numbers are added.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct Pointers(#[schemars(length(min = 1, max = 8))] pub Vec<Located<Place>>);

by_form! {
    /// A place in a document.
    pub enum Place("Place", "a JSON pointer, `/usage/total_tokens`, or one with a weight: `{ pointer: /usage/output_tokens, weight: 3 }`") {
        /// Its number counts once.
        Plain(Pointer) = "scalar",
        /// Its number counts several times, or in part.
        Weighted(WeightedPointer) = "mapping",
    }
}

/// A place in a document, and what its number counts.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct WeightedPointer {
    /// The place.
    pub pointer: Located<Pointer>,
    /// The units that one counts. The sum of all places is exact, and rounded up once. 1 unless
    /// given.
    #[serde(default)]
    pub weight: Located<Decimal>,
}

impl Place {
    pub(super) fn pointer(&self) -> &Pointer {
        match self {
            Self::Plain(pointer) => pointer,
            Self::Weighted(weighted) => &weighted.pointer,
        }
    }

    pub(super) fn weight(&self) -> Decimal {
        match self {
            Self::Plain(_) => Decimal::ONE,
            Self::Weighted(weighted) => weighted.weight.value,
        }
    }
}

/// Bytes that are charged as one unit.
pub type UnitSize = Size<1, { 1 << 40 }>;
