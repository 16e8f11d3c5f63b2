//! Numbers by the values of a label: JSON and its schema have the words of the metrics.

use std::borrow::Cow;
use std::collections::HashMap;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use strum::VariantArray;

use crate::telemetry::metrics::{LimitDecision, RequestOutcome};
use crate::telemetry::registry::LabelValue;

/// A number for each decision.
pub type PerDecision<T> = PerLabel<LimitDecision, T, { LimitDecision::VARIANTS.len() }>;

/// A number for each outcome of a request.
pub type PerOutcome<T> = PerLabel<RequestOutcome, T, { RequestOutcome::VARIANTS.len() }>;

/// A number for each value of the label `L`, of which there are `N`. Read from JSON, values that it lacks are 0,
/// and unknown ones are dropped: another version may have written it.
#[derive(Clone, Copy, Debug)]
pub struct PerLabel<L, T, const N: usize>(pub [T; N], PhantomData<L>);

impl<L, T, const N: usize> From<[T; N]> for PerLabel<L, T, N> {
    fn from(numbers: [T; N]) -> Self {
        Self(numbers, PhantomData)
    }
}

impl<L: LabelValue, T: Serialize, const N: usize> Serialize for PerLabel<L, T, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(names::<L>().zip(&self.0))
    }
}

impl<'de, L, T, const N: usize> Deserialize<'de> for PerLabel<L, T, N>
where
    L: LabelValue,
    T: Deserialize<'de> + Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut numbers = HashMap::<String, T>::deserialize(deserializer)?;
        let mut number = |label: L| numbers.remove(label.into()).unwrap_or_default();
        Ok(std::array::from_fn(|place| number(L::VARIANTS[place])).into())
    }
}

impl<L: LabelValue, T: JsonSchema, const N: usize> JsonSchema for PerLabel<L, T, N> {
    fn schema_name() -> Cow<'static, str> {
        format!("{}By{}", T::schema_name(), std::any::type_name::<L>()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = Map::new();
        for (name, label) in names::<L>().zip(L::VARIANTS) {
            let mut number = T::json_schema(generator);
            number.insert("description".to_owned(), label.get_documentation().into());
            properties.insert(name.to_owned(), number.into());
        }
        let required: Vec<Value> = names::<L>().map(Value::from).collect();
        json_schema!({ "type": "object", "properties": properties, "required": required })
    }
}

fn names<L: LabelValue>() -> impl Iterator<Item = &'static str> {
    L::VARIANTS.iter().map(|label| (*label).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_another_version_are_read_by_their_names() {
        let read = |text| serde_json::from_str::<PerOutcome<u64>>(text).expect("numbers");
        let numbers = read(r#"{"limited": 3, "of_the_future": 7, "passed": 2}"#);
        assert_eq!(numbers.0[RequestOutcome::Limited as usize], 3);
        assert_eq!(numbers.0.iter().sum::<u64>(), 5);
        let text = serde_json::to_string(&numbers).expect("JSON");
        assert_eq!(read(&text).0, numbers.0);
    }
}
