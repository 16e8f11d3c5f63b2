//! `POST /v1/explain`: explains what would happen to a request now. Nothing is charged, and the
//! answer contains no secret of the request.

use std::net::{IpAddr, Ipv4Addr};

use axum::extract::State;
use http::uri::Scheme;
use http::{HeaderName, HeaderValue, Method, Uri};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::json::Json;
use super::problem_details::ProblemDetails;
use super::state::AdminState;
use crate::http::headers::Headers;
use crate::http::message::Request;
use crate::proxy::inspect::explain::{Explanation, ExplanationReport};
use crate::visible::trim_spaces;

/// The longest URL, in bytes.
const MAX_URL: usize = 8 * 1024;

/// The most header fields: the default of `client.max_fields`.
const MAX_FIELDS: usize = 100;

/// The request to explain.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// The method, such as `GET`.
    #[schemars(regex(pattern = TOKEN))]
    pub method: String,
    /// An absolute URL of http or https.
    #[schemars(length(max = MAX_URL), regex(pattern = URL))]
    pub url: String,
    /// Header fields: name and value.
    #[serde(default)]
    #[schemars(length(max = MAX_FIELDS), extend("items" = field()))]
    pub headers: Vec<[String; 2]>,
    /// The address of the peer that connects. Default: 127.0.0.1.
    #[serde(default)]
    #[schemars(schema_with = "address")]
    pub from: Option<String>,
    /// The name of a client, whose key the request need not have.
    #[serde(default)]
    pub client: Option<String>,
    /// The body, for limits that read it.
    #[serde(default)]
    pub body: String,
}

/// A word of HTTP (RFC 9110 section 5.6.2).
const TOKEN: &str = "^[-!#$%&'*+.^_`|~0-9A-Za-z]+$";
const URL: &str = r"^[Hh][Tt][Tt][Pp][Ss]?://[-!$&'()*+,.0-9:;=A-Z\[\]_a-z~]+([/?][^\u0000-\u0020#<>]*)?(#[\s\S]*)?$";

fn field() -> Value {
    json!({
        "type": "array", "minItems": 2, "maxItems": 2,
        "prefixItems": [
            { "type": "string", "pattern": TOKEN },
            { "type": "string", "pattern": r"^[^\u0000-\u0008\u000a-\u001f\u007f]*$" },
        ],
    })
}

fn address(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [
        { "type": "string", "format": "ipv4" },
        { "type": "string", "format": "ipv6" },
        { "type": "null" },
    ] })
}

pub(super) async fn explain(
    State(state): State<AdminState>,
    Json(request): Json<ExplainRequest>,
) -> Result<Json<ExplanationReport>, ProblemDetails> {
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    let (from, named) = (request.peer()?, request.client.as_deref());
    let client = named.map(|name| ruleset.client_named(name)).transpose();
    let client = client.map_err(|error| ProblemDetails::impossible(error.to_string()))?;
    let (client, request) = (client.map(|(_, place)| place), request.request()?);
    let pending = Explanation::begin(&ruleset, &ruleset.store, request, from, client, now);
    Ok(Json(pending.conclude().await))
}

impl ExplainRequest {
    /// # Errors
    /// Names the part of the request that HTTP does not have, and not its text, which may be secret.
    pub fn request(&self) -> Result<Request<String>, ProblemDetails> {
        let mut request = Request::new(self.body.clone());
        let method = Method::from_bytes(self.method.as_bytes());
        *request.method_mut() = method.map_err(|_| {
            ProblemDetails::impossible(
                "`method` isn't an HTTP method: write one such as GET or POST",
            )
        })?;
        *request.uri_mut() = self.uri()?;
        *request.headers_mut() = self.fields()?;
        Ok(request)
    }

    fn uri(&self) -> Result<Uri, ProblemDetails> {
        const EXAMPLE: &str = "http://api.example.com/v1/search?q=x";
        if self.url.len() > MAX_URL {
            return Err(ProblemDetails::impossible(format!(
                "`url` is longer than {MAX_URL} bytes"
            )));
        }
        let uri: Uri = self.url.parse().map_err(|_| {
            ProblemDetails::impossible(format!("`url` isn't a URL: write it as in {EXAMPLE}"))
        })?;
        let is_http = uri
            .scheme()
            .is_some_and(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        match uri.authority() {
            Some(authority) if authority.as_str().contains('@') => Err(ProblemDetails::impossible(
                "`url` contains user information: send it in an `authorization` header",
            )),
            Some(_) if is_http => Ok(uri),
            _ => Err(ProblemDetails::impossible(format!(
                "`url`: expected an absolute http or https URL, as in {EXAMPLE}"
            ))),
        }
    }

    fn fields(&self) -> Result<Headers, ProblemDetails> {
        if self.headers.len() > MAX_FIELDS {
            return Err(ProblemDetails::impossible(format!(
                "`headers` has more than {MAX_FIELDS} fields"
            )));
        }
        let fields = self.headers.iter().enumerate().map(|(place, field)| {
            let [name, value] = field.each_ref().map(|text| trim_spaces(text));
            let wrong = |what| {
                ProblemDetails::impossible(format!("`headers[{place}]` has an invalid {what}"))
            };
            let name = HeaderName::try_from(name).map_err(|_| wrong("name"))?;
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong("value"))?;
            Ok((name, value))
        });
        fields.collect()
    }

    fn peer(&self) -> Result<IpAddr, ProblemDetails> {
        let Some(from) = &self.from else {
            return Ok(Ipv4Addr::LOCALHOST.into());
        };
        let address: Result<IpAddr, _> = from.parse();
        address.map(|address| address.to_canonical()).map_err(|_| {
            ProblemDetails::impossible("`from` isn't an IP address: write it as in 203.0.113.7")
        })
    }
}
