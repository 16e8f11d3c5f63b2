//! The OpenAPI document of the API (version 3.1), made from the table of endpoints and the types of
//! their handlers. Descriptions are the doc comments of these types.

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::json::{Json, JsonText, Names};
use super::problem_details::{MEDIA_TYPE, Problem, ProblemDetails};
use super::query::Query;

/// The schema of a type: [`SchemaGenerator::subschema_for`].
pub(super) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// A status of an error, and its cause.
pub(super) type Failure = (u16, &'static str);

/// The schemas of the document. What is read may leave fields out that are always written.
pub(super) struct Schemas {
    requests: SchemaGenerator,
    answers: SchemaGenerator,
}

/// The requests and the answers of an endpoint.
pub(super) struct Operation<'s> {
    schemas: &'s mut Schemas,
    parameters: Vec<Value>,
    body: Option<Value>,
    answer: Value,
    pub(super) failures: BTreeMap<u16, &'static str>,
}

/// The whole document: `paths` has the operations, by path and method.
pub(super) fn document(paths: &Map<String, Value>, mut schemas: Schemas) -> Value {
    let mut all = schemas.requests.take_definitions(true);
    all.extend(schemas.answers.take_definitions(true));
    let scheme = |description: &str| json!({ "type": "http", "scheme": "bearer", "description": description });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "sluicegate admin API",
            "version": "1",
            "description": "Ask a running proxy what it does, and steer it. docs/admin-api.md has \
                            examples.",
        },
        "servers": [{ "url": "http://127.0.0.1:9980" }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "read": scheme("A token of admin.tokens.read or write."),
                "write": scheme("A token of admin.tokens.write."),
            },
            "schemas": all,
        },
    })
}

impl Schemas {
    pub(super) fn new() -> Self {
        let settings = || {
            let settings = SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            });
            settings.with_transform(Closed)
        };
        let mut answers = settings().for_serialize().into_generator();
        // Whatever else is called so gets another name.
        _ = answers.subschema_for::<Problem>();
        Self {
            requests: settings().for_deserialize().into_generator(),
            answers,
        }
    }
}

/// Says of objects that they have no other fields.
#[derive(Clone)]
struct Closed;

impl Transform for Closed {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        // A part of a schema, such as an alternative, leaves other fields to the whole.
        let is_whole = schema.get("type").is_some_and(|kind| kind == "object");
        if is_whole && schema.get("properties").is_some() {
            let fields = schema.ensure_object().entry("additionalProperties");
            fields.or_insert_with(|| false.into());
        }
    }
}

impl<'s> Operation<'s> {
    pub(super) fn new(schemas: &'s mut Schemas) -> Self {
        Self {
            schemas,
            parameters: Vec::new(),
            body: None,
            answer: Value::Null,
            failures: BTreeMap::new(),
        }
    }

    /// The fields of `T` are parameters in this place.
    fn add_parameters<T: JsonSchema>(&mut self, place: &str) {
        let schema = T::json_schema(&mut self.schemas.requests).to_value();
        let required = schema["required"].as_array();
        let properties = schema["properties"].as_object().into_iter().flatten();
        self.parameters.extend(properties.map(|(name, schema)| {
            let mut schema = schema.clone();
            let description = schema["description"].take();
            let schema = schema
                .as_object_mut()
                .map(std::mem::take)
                .unwrap_or_default();
            let schema: Map<_, _> = schema
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .collect();
            json!({
                "name": name,
                "in": place,
                "required": required.is_some_and(|all| all.iter().any(|one| one == name)),
                "description": description,
                "schema": schema,
            })
        }));
    }

    /// The body is JSON of this type.
    pub(super) fn set_body(&mut self, describe: Describe) {
        let schema = describe(&mut self.schemas.requests);
        let content = json!({ "application/json": { "schema": schema } });
        self.body = Some(json!({ "required": true, "content": content }));
        self.failures.extend([
            (408, "The body did not arrive in time."),
            (413, "The body is too large."),
            (415, "The body isn't JSON."),
        ]);
    }

    /// The answer is JSON of this type.
    pub(super) fn set_answer(&mut self, describe: Describe) {
        let schema = describe(&mut self.schemas.answers);
        let content = json!({ "application/json": { "schema": schema } });
        self.answer = json!({ "description": "OK", "content": content });
    }

    /// The answer is a stream of these events (WHATWG HTML, section 9.2.6).
    pub(super) fn set_stream(&mut self, events: &[(&str, Describe)]) {
        let data = events
            .iter()
            .map(|(_, describe)| describe(&mut self.schemas.answers));
        let data: Vec<_> = data.collect();
        let names: Vec<_> = events.iter().map(|(name, _)| name).collect();
        // The name that an event has without a field.
        let schema = json!({
            "type": "object",
            "description": "An event.",
            "required": ["data"],
            "properties": {
                "event": { "type": "string", "enum": names },
                "data": {
                    "type": "string",
                    "contentMediaType": "application/json",
                    "contentSchema": { "anyOf": data },
                },
            },
        });
        self.answer = json!({
            "description": "A stream. Events have no ids: what happens while a reader is away is not \
                            sent later.",
            "content": { "text/event-stream": { "schema": schema } },
        });
    }

    /// The operation, with members of the endpoint.
    pub(super) fn finish(self, members: Value) -> Value {
        let problem = json!({ "schema": { "$ref": "#/components/schemas/Problem" } });
        let failures = self.failures.into_iter().map(|(status, cause)| {
            let content = json!({ MEDIA_TYPE: problem });
            (
                status.to_string(),
                json!({ "description": cause, "content": content }),
            )
        });
        let mut responses: Map<_, _> = failures.collect();
        responses.insert("200".to_owned(), self.answer);
        let mut operation = members;
        operation["parameters"] = self.parameters.into();
        operation["responses"] = responses.into();
        if let Some(body) = self.body {
            operation["requestBody"] = body;
        }
        operation
    }
}

/// A part of a request that a handler takes.
pub(super) trait Input {
    /// Documents the part, unless it is none of the caller's.
    fn describe(_: &mut Operation<'_>) {}
}

impl<S> Input for State<S> {}
impl<T> Input for Extension<T> {}
impl Input for JsonText {}

impl<T: JsonSchema> Input for Names<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.add_parameters::<T>("path");
    }
}

impl<T: JsonSchema> Input for Query<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.add_parameters::<T>("query");
    }
}

impl<T: JsonSchema> Input for Json<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.set_body(SchemaGenerator::subschema_for::<T>);
    }
}

/// The answer of a handler.
pub(super) trait Output {
    /// Documents the answer.
    fn describe(operation: &mut Operation<'_>);
}

impl<T: JsonSchema> Output for Json<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.set_answer(SchemaGenerator::subschema_for::<T>);
    }
}

/// The row of the endpoint documents the answer.
impl Output for Response {
    fn describe(_: &mut Operation<'_>) {}
}

impl<T: Output> Output for Result<T, ProblemDetails> {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

/// A handler with these arguments, as axum tells them apart.
pub(super) trait Documented<Arguments> {
    /// Documents what the handler takes and answers.
    fn describe(operation: &mut Operation<'_>);
}

macro_rules! document_handlers {
    ($($input:ident)*) => {
        impl<H, F, O: Output, M, $($input: Input),*> Documented<(M, $($input,)*)> for H
        where
            H: Fn($($input),*) -> F,
            F: Future<Output = O>,
        {
            fn describe(operation: &mut Operation<'_>) {
                $($input::describe(operation);)*
                O::describe(operation);
            }
        }
    };
}

document_handlers!(A);
document_handlers!(A B);
document_handlers!(A B C);
document_handlers!(A B C D);
