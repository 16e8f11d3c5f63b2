//! `cost` of a policy: the units of a request, constant or stated by the request or its response.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::config::located::Located;
use crate::config::schema::Units;
use crate::config::value::{FieldName, Pointer, Size};

/// Units that a request takes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    rename = "$form",
    expecting = "a number of units, or where a request or its response says it: `{ header: x-cost, max: 100 }`"
)]
#[schemars(rename = "Cost", untagged)]
pub enum Cost {
    /// So many units.
    #[serde(rename = "scalar")]
    Constant(Units),
    /// What the request or its response says.
    #[serde(rename = "mapping")]
    Stated(Box<StatedCost>),
}

impl Default for Cost {
    fn default() -> Self {
        Self::Constant(Units::default())
    }
}

/// Serializes the written form, which the schema shows as the default.
impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Constant(units) => units.serialize(serializer),
            Self::Stated(cost) => cost.serialize(serializer),
        }
    }
}

/// The cost of a request, as it says itself, or as its response does.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ToldCost")]
#[schemars(extend("oneOf" = [{ "required": ["header"] }, { "required": ["response_header"] }, { "required": ["response_trailer"] }, { "required": ["response_json"] }, { "required": ["response_bytes"] }]))]
pub struct StatedCost {
    /// The request's field with a whole number of units; without it a request takes 1, and with anything else it
    /// is answered 400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<Located<FieldName>>,
    /// The response's field with a whole number of units; without it, or with anything else, the request has
    /// taken its `reserve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_header: Option<Located<FieldName>>,
    /// The field of the response's trailers with a whole number of units, as behind a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_trailer: Option<Located<FieldName>>,
    /// Where a JSON response states a whole number of units: a JSON pointer, `/usage/total_tokens`, or up to 4, whose values
    /// are added. Of an event stream, the last event that has it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_json: Option<Located<Pointers>>,
    /// Bytes of the response's body that are a unit, `1B` to `1024GiB`; part of as many is one, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<Located<UnitSize>>,
    /// Units that are charged until the response says what it was, 1 to 4294967295; 1 unless given. Or the field of the
    /// request that says it: `{ header: x-estimate, default: 500 }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Located<Reserve>>,
    /// The most that counts, 1 to 4294967295.
    pub max: Located<Units>,
}

/// Units that a request reserves.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    rename = "$form",
    expecting = "a number of units, or the field of the request that says it: `{ header: x-estimate, default: 500 }`"
)]
#[schemars(rename = "Reserve", untagged)]
pub enum Reserve {
    /// The same for all requests.
    #[serde(rename = "scalar")]
    Constant(Units),
    /// What the request says.
    #[serde(rename = "mapping")]
    Stated(StatedReserve),
}

impl StatedCost {
    /// Units that a request reserves if it states none itself.
    pub fn reserved(&self) -> u32 {
        match self.reserve.as_deref() {
            None => 1,
            Some(Reserve::Constant(units)) => units.get(),
            Some(Reserve::Stated(stated)) => stated.default.get(),
        }
    }
}

impl Default for Reserve {
    fn default() -> Self {
        Self::Constant(Units::default())
    }
}

/// Serializes the written form.
impl Serialize for Reserve {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Constant(units) => units.serialize(serializer),
            Self::Stated(stated) => stated.serialize(serializer),
        }
    }
}

/// Units that a request reserves, as it says itself.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ToldReserve")]
pub struct StatedReserve {
    /// The request's field with a whole number of units; with anything else the request is answered 400.
    pub header: Located<FieldName>,
    /// Units that a request without the field reserves, 1 to 4294967295; 1 unless given.
    #[serde(default)]
    pub default: Located<Units>,
    /// The most that counts of the field, 1 to 4294967295; the cost's `max` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Located<Units>>,
}

/// Where a document states a number: one place, or several whose numbers are added.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(from = "PointersForm")]
pub struct Pointers(pub Vec<Located<Pointer>>);

#[derive(Deserialize, JsonSchema)]
#[serde(
    rename = "$form",
    rename_all = "snake_case",
    expecting = "a JSON pointer, `/usage/total_tokens`, or a list of them"
)]
#[schemars(rename = "Pointers", untagged)]
enum PointersForm {
    /// One place.
    Scalar(Located<Pointer>),
    /// Several: their numbers are added.
    Sequence(#[schemars(length(min = 1, max = 4))] Vec<Located<Pointer>>),
}

impl From<PointersForm> for Pointers {
    fn from(form: PointersForm) -> Self {
        match form {
            PointersForm::Scalar(pointer) => Self(vec![pointer]),
            PointersForm::Sequence(pointers) => Self(pointers),
        }
    }
}

/// Bytes that are charged as one unit.
pub type UnitSize = Size<1, { 1 << 40 }>;
