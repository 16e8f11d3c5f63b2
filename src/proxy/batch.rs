//! The built-in upstream `decide_batch`: it decides about each request of a list, as if a proxy had
//! asked about that request alone.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{StatusCode, Version};
use http_body_util::BodyExt;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet, yield_now};

use super::answers::error::{Error, bad_request};
use super::answers::respond::problem_details;
use super::body::{ResponseBody, json_response};
use super::client::Client;
use super::exchange::Exchange;
use super::gateway::{Dropped, ask};
use crate::http::body::{RequestBody, RequestBodyError};
use crate::http::message::{Request, Response};
use crate::rules::ResponseOrigin;

/// The most requests of a list.
const MAX_REQUESTS: usize = 1_000;

/// The most bytes of a list.
const MAX_BYTES: u64 = 1024 * 1024;

/// The most requests of all lists that wait at a time, at some 4 kB each. Beyond it, lists pause.
static WAITING: Semaphore = Semaphore::const_new(10_000);

/// Other requests of the thread get a turn after so many decisions.
const DECISIONS_A_TURN: usize = 32;

/// A request that the list describes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedRequest {
    /// `GET` unless given.
    method: Option<String>,
    /// The host; the list's unless given.
    host: Option<String>,
    /// The path and the query.
    path: String,
    #[serde(default, deserialize_with = "distinct")]
    headers: BTreeMap<String, String>,
}

/// The decision about one request of the list.
#[derive(Serialize)]
struct Decided {
    /// 200 if the request may be served.
    status: u16,
    /// The fields of the answer, such as `retry-after`; repeated ones are joined by commas.
    headers: BTreeMap<String, String>,
}

/// Decides about the requests in the body, which is a JSON list of them. The response has a list of
/// their decisions, in the same order.
///
/// # Errors
/// 403 unless a trusted proxy has sent it for itself, and 413 if the body is larger than 1 MiB, or
/// than the route allows.
pub(super) async fn respond(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
) -> Result<Response<ResponseBody>, Error> {
    let context = &exchange.context;
    let client_ip = &context.ruleset.whole().client_ip;
    if !client_ip.trusts_sender(context.client.connection.peer, context.client_ip) {
        return Err(Error::Request {
            status: StatusCode::FORBIDDEN,
            reason: "Only peers in client_ip.trusted_proxies may ask about requests of others.",
        });
    }
    let text = read(exchange, request).await?;
    exchange.author = ResponseOrigin::Proxy;
    let described = serde_json::from_slice::<Vec<DescribedRequest>>(&text);
    let described = match described {
        Ok(list) if list.len() <= MAX_REQUESTS => list,
        Ok(list) => {
            let count = list.len();
            return Ok(invalid(&format!(
                "The list has {count} requests. It may have {MAX_REQUESTS}."
            )));
        }
        Err(error) => {
            let shape = r#"[{"method": "POST", "path": "/send", "headers": {"x-api-key": "a"}}]"#;
            return Ok(invalid(&format!("Expected {shape}: {error}.")));
        }
    };
    let authority = request
        .uri()
        .authority()
        .map(|host| host.as_str().as_bytes());
    let own_host = authority.or_else(|| request.headers().get(HOST));
    let decided = decide_all(&exchange.context.client, described, own_host).await;
    let text = serde_json::to_vec(&decided).expect("it has text keys only");
    Ok(json_response(
        StatusCode::OK,
        "application/json",
        text.into(),
    ))
}

/// Reads the whole body.
async fn read(exchange: &Exchange, request: &mut Request<RequestBody>) -> Result<Bytes, Error> {
    let limit = exchange.route().max_body.min(MAX_BYTES);
    let quiet = exchange.context.ruleset.whole().body_timeout;
    let body = request.body_mut();
    body.bound(limit, quiet);
    match body.collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(RequestBodyError::TooLarge) => Err(Error::TooLarge),
        Err(_) => Err(bad_request("The list ended early.")),
    }
}

/// Decides about all of them, one after the other. Those that wait, for a store or their turn, wait
/// beside each other.
async fn decide_all(
    client: &Rc<Client>,
    described: Vec<DescribedRequest>,
    own_host: Option<&[u8]>,
) -> Vec<Decided> {
    let client = Rc::new(Client {
        is_list: true,
        ..Client::clone(client)
    });
    let mut waiting = JoinSet::new();
    let mut leaving = LastFirst(Vec::new());
    let mut decided = Vec::with_capacity(described.len());
    for (place, described) in described.into_iter().enumerate() {
        if place > 0 && place % DECISIONS_A_TURN == 0 {
            yield_now().await;
        }
        let Some(request) = described.request(own_host) else {
            decided.push(Decided::without_fields(StatusCode::BAD_REQUEST));
            continue;
        };
        let mut answer = ask(Rc::clone(&client), request);
        // One that needn't wait is over before the next begins.
        let permit = tokio::select! {
            biased;
            answer = &mut answer => {
                decided.push(Decided::of(&answer));
                continue;
            }
            permit = WAITING.acquire() => permit,
        };
        leaving.0.push(waiting.spawn_local(async move {
            let decided = Decided::of(&answer.await);
            drop(permit);
            (place, decided)
        }));
        // Unless it panics, which is counted and logged.
        decided.push(Decided::without_fields(StatusCode::INTERNAL_SERVER_ERROR));
    }
    while let Some(done) = waiting.join_next().await {
        if let Ok((place, answer)) = done {
            decided[place] = answer;
        }
    }
    decided
}

/// Ends the waiting requests if the list's sender leaves: the last first, since a queue takes back
/// its last place only.
struct LastFirst(Vec<AbortHandle>);

impl Drop for LastFirst {
    fn drop(&mut self) {
        self.0.iter().rev().for_each(AbortHandle::abort);
    }
}

/// Reads fields by their names in lower case. A name that comes twice is an error, because readers of
/// JSON disagree on which of its values counts.
struct DistinctFields;

impl<'de> Visitor<'de> for DistinctFields {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, value)) = object.next_entry::<String, String>()? {
            if fields.insert(name.to_ascii_lowercase(), value).is_some() {
                return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
            }
        }
        Ok(fields)
    }
}

fn distinct<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    from.deserialize_map(DistinctFields)
}

impl DescribedRequest {
    /// The request itself; `None` if its method, host, path or a field isn't valid in HTTP.
    fn request(self, own_host: Option<&[u8]>) -> Option<Request<RequestBody>> {
        // A parsed URI has lost its fragment, which may be part of the path for another server.
        if self.path.contains('#') {
            return None;
        }
        let mut builder = http::Request::builder()
            .version(Version::HTTP_11)
            .method(self.method.as_deref().unwrap_or("GET"))
            .uri(self.path);
        let names_host = self.headers.contains_key(HOST.as_str());
        for (name, value) in self.headers {
            builder = builder.header(name, value);
        }
        let own_host = own_host.filter(|_| !names_host);
        if let Some(host) = self.host.as_deref().map(str::as_bytes).or(own_host) {
            builder = builder.header(HOST, host);
        }
        builder.body(RequestBody::empty()).ok().map(Request::from)
    }
}

impl Decided {
    fn of(answer: &Result<Response<ResponseBody>, Dropped>) -> Self {
        let Ok(response) = answer else {
            return Self::without_fields(StatusCode::TOO_MANY_REQUESTS);
        };
        let mut headers = BTreeMap::<String, String>::new();
        for (name, value) in response.headers().iter() {
            // Neither the connection nor a body is there.
            if [CONNECTION, CONTENT_LENGTH, CONTENT_TYPE].contains(name) {
                continue;
            }
            let value = String::from_utf8_lossy(value);
            let text = headers.entry(name.to_string()).or_default();
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(&value);
        }
        Decided {
            status: response.status().as_u16(),
            headers,
        }
    }

    fn without_fields(status: StatusCode) -> Self {
        Decided {
            status: status.as_u16(),
            headers: BTreeMap::new(),
        }
    }
}

/// The response to a body that is no list of requests.
fn invalid(detail: &str) -> Response<ResponseBody> {
    let status = StatusCode::BAD_REQUEST;
    let problem = problem_details(status, "Bad Request", detail);
    json_response(
        status,
        "application/problem+json",
        problem.to_string().into(),
    )
}
