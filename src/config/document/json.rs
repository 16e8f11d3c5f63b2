//! The document as JSON, for programs that edit a configuration.

use serde_json::{Map, Number, Value};

use super::{Document, NodeId, NodeValue};

impl Document {
    /// The value of a top-level key; null without it. Texts that spell a whole number or a boolean
    /// become such. Variables are replaced: the result may hold secrets of the environment.
    pub fn json(&self, key: &str) -> Value {
        let found = self.child(NodeId::ROOT, key);
        found.map_or(Value::Null, |entry| self.json_of(entry))
    }

    /// The parser's budget bounds the depth.
    fn json_of(&self, node: NodeId) -> Value {
        match self.value(node) {
            NodeValue::Null => Value::Null,
            NodeValue::Scalar { text, .. } => scalar(text),
            NodeValue::Sequence(items) => items.iter().map(|item| self.json_of(*item)).collect(),
            NodeValue::Mapping(entries) => {
                let named = entries.iter().filter_map(|entry| {
                    let key = self.key(*entry)?;
                    Some((key.to_owned(), self.json_of(*entry)))
                });
                Value::Object(named.collect::<Map<_, _>>())
            }
        }
    }
}

fn scalar(text: &str) -> Value {
    match (text, text.parse::<u64>()) {
        ("true", _) => Value::Bool(true),
        ("false", _) => Value::Bool(false),
        // A number with another spelling, such as 007, is a text.
        (_, Ok(number)) if number.to_string() == text => Value::Number(Number::from(number)),
        _ => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::config::parse;

    #[test]
    fn a_document_becomes_json() {
        let text = "policies:
  a: { quota: 10/1s, burst: 5, charge_refused: true, penalty: { strikes: 3, within: 1m, for: [2m, 5m] } }
routes: [{ upstream: echo, limits: [a] }]
";
        let loaded = parse("test", text.to_owned(), &|_| None).expect("a sound text");
        let expected = json!({ "a": {
            "quota": "10/1s",
            "burst": 5,
            "charge_refused": true,
            "penalty": { "strikes": 3, "within": "1m", "for": ["2m", "5m"] },
        } });
        assert_eq!(loaded.document.json("policies"), expected);
        assert_eq!(loaded.document.json("limits"), serde_json::Value::Null);
    }
}
