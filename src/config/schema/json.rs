//! Generates the JSON Schema of the configuration for editors.

use std::sync::LazyLock;

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use serde_json::{Map, Value, json};

use super::Config;
use crate::config::decode::SHORT;
use crate::config::value::VARIABLE;

/// The JSON Schema (draft 7) of [`Config`], as `sluicegate schema` prints it.
pub fn json_schema() -> String {
    let settings = SchemaSettings::draft07().with_transform(AsLoaded);
    let mut schema = settings.into_generator().into_root_schema_for::<Config>();
    if let Some(sections) = schema.get_mut("definitions") {
        accept_one(sections);
        // The loader takes a text for these, such as a network for a condition.
        for (section, _, text) in SHORT {
            let text = json!({ "$ref": format!("#/definitions/{text}") });
            sections[section] = json!({ "anyOf": [sections[section].take(), text] });
        }
    }
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema has only texts for keys");
    text.push('\n');
    text
}

/// Lets one value stand for a list of it, as the loader does below the top.
fn accept_one(schema: &mut Value) {
    match schema {
        Value::Array(choices) => choices.iter_mut().for_each(accept_one),
        Value::Object(entries) => entries.values_mut().for_each(accept_one),
        _ => return,
    }
    if schema.get("type") == Some(&json!("array"))
        && let Some(one) = schema.get("items").cloned()
    {
        *schema = json!({ "anyOf": [schema.take(), one] });
    }
}

/// Every key of the schema.
pub(crate) static KEYS: LazyLock<Vec<String>> = LazyLock::new(keys);

fn keys() -> Vec<String> {
    let settings = SchemaSettings::draft07();
    let schema = settings.into_generator().into_root_schema_for::<Config>();
    let mut keys = Vec::new();
    let mut pending = vec![schema.as_value()];
    while let Some(value) = pending.pop() {
        match value {
            Value::Object(entries) => {
                let properties = entries.get("properties").and_then(Value::as_object);
                keys.extend(properties.into_iter().flat_map(|one| one.keys().cloned()));
                pending.extend(entries.values());
            }
            Value::Array(items) => pending.extend(items),
            _ => {}
        }
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Removes the default of a required key.
pub(super) fn remove_default(schema: &mut Schema) {
    schema.remove("default");
}

/// Adapts the derived schema to the loader, which accepts no unknown key, no key without a value, and
/// variables in values only.
#[derive(Clone)]
struct AsLoaded;

impl Transform for AsLoaded {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(object) = schema.as_object_mut() else {
            return;
        };
        if object.contains_key("properties") {
            object.insert("additionalProperties".to_owned(), false.into());
        }
        remove_null(object);
        remove_variables(object);
        if object.get_mut("default").is_some_and(is_without_value) {
            object.remove("default");
        }
    }
}

/// Removes the keys without a value from a default. True if it has no value itself.
fn is_without_value(default: &mut Value) -> bool {
    match default {
        Value::Object(entries) => entries.retain(|_, value| !is_without_value(value)),
        Value::Array(items) => items.iter_mut().for_each(|item| {
            is_without_value(item);
        }),
        _ => {}
    }
    default.is_null()
}

fn remove_null(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [single] = types.as_slice() {
            let single = single.clone();
            schema.insert("type".to_owned(), single);
        }
    }
    if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
        choices.retain(|choice| choice.get("type") != Some(&Value::from("null")));
        if choices.len() == 1 {
            let choices = schema.remove("anyOf");
            schema.extend(choices.map(|choices| ("allOf".to_owned(), choices)));
        }
    }
}

fn remove_variables(schema: &mut Map<String, Value>) {
    if let Some(Value::Object(patterns)) = schema.get_mut("patternProperties") {
        let without = |key: String| {
            key.strip_suffix(VARIABLE)
                .map_or(key.clone(), |key| key.trim_end_matches('|').to_owned())
        };
        let written = std::mem::take(patterns).into_iter();
        patterns.extend(written.map(|(key, value)| (without(key), value)));
    }
}
