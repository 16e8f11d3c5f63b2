//! The OpenAPI document of the API.

use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;

use super::NO_STORE;

/// The document. Tests compare it with the endpoints and their answers.
pub(super) const DOCUMENT: &str = include_str!("openapi.json");

pub(super) async fn document() -> impl IntoResponse {
    ([NO_STORE, (CONTENT_TYPE, "application/json")], DOCUMENT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;
    use crate::admin::api::{Callers, endpoints};

    /// The role of each path: that of all of its methods.
    fn documented() -> BTreeMap<String, Option<String>> {
        let document: Value = serde_json::from_str(DOCUMENT).expect("JSON");
        let paths = document["paths"].as_object().expect("paths");
        let roles = paths.iter().map(|(path, methods)| {
            let mut methods = methods.as_object().expect("methods").values();
            let first = methods.next().expect("a method");
            assert!(methods.all(|other| other["security"] == first["security"]));
            let schemes = first["security"].as_array().expect("a list");
            let scheme = schemes.first().and_then(Value::as_object);
            let role = scheme.and_then(|scheme| scheme.keys().next().cloned());
            (path.clone(), role)
        });
        roles.collect()
    }

    #[test]
    fn every_endpoint_is_documented_with_its_role_and_no_other_is() {
        let endpoints = endpoints().into_iter().map(|endpoint| {
            let role = match endpoint.callers {
                Callers::All => None,
                Callers::Readers => Some("read".to_owned()),
                Callers::Writers(_) => Some("write".to_owned()),
            };
            (endpoint.path.to_owned(), role)
        });
        assert_eq!(endpoints.collect::<BTreeMap<_, _>>(), documented());
    }
}
