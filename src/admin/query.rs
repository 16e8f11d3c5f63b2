//! Parameters of a query: known ones, each given once at most. The schema that documents them also
//! names them and bounds their numbers.

use axum::extract::FromRequestParts;
use http::request::Parts;
use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::problem_details::ProblemDetails;
use crate::nearest;
use crate::visible;

/// The characters of an unknown name that are shown.
const MAX_NAME: usize = 100;

/// The parameters of a query, decoded.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned + JsonSchema, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemDetails> {
        let parameters = read(parts.uri.query().unwrap_or_default());
        parameters.map(Self).map_err(ProblemDetails::malformed)
    }
}

/// # Errors
/// Names an unknown or repeated parameter, or the values that one may have.
pub(super) fn read<T: DeserializeOwned + JsonSchema>(query: &str) -> Result<T, String> {
    let schema = schema_for!(T);
    let mut given = Map::new();
    for (name, text) in form_urlencoded::parse(query.as_bytes()) {
        let parameter = &schema.as_value()["properties"][&*name];
        if parameter.is_null() {
            let known = schema.as_value()["properties"].as_object();
            let known: Vec<_> = known
                .into_iter()
                .flat_map(Map::keys)
                .map(String::as_str)
                .collect();
            let known = nearest::list(&known);
            let name = visible::cut(&name, MAX_NAME);
            return Err(format!("unknown parameter `{name}`: known are {known}"));
        }
        let value = match (parameter["minimum"].as_u64(), parameter["maximum"].as_u64()) {
            (Some(least), Some(most)) => {
                let number = text.parse().ok();
                let number = number.filter(|number| (least..=most).contains(number));
                let wrong = || format!("`{name}` is a number from {least} to {most}");
                number.ok_or_else(wrong)?.into()
            }
            _ => Value::from(text),
        };
        if given.insert(name.to_string(), value).is_some() {
            return Err(format!("`{name}` is given twice"));
        }
    }
    serde_json::from_value(Value::Object(given)).map_err(|error| error.to_string())
}
