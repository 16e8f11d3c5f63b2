//! A caller of the admin API.

use std::net::SocketAddr;

use serde_json::Value;

use super::client::{Connection, Response};
use super::gateway::Gateway;

/// A token of [`TOKENS`] that may read.
pub const READER: &str = "reader-0123456789";
/// A token of [`TOKENS`] that may change something.
pub const WRITER: &str = "writer-0123456789";
/// A section with both tokens, for a configuration of [`Gateway::start`].
pub const TOKENS: &str = "admin: { address: \"127.0.0.1:0\", tokens: { read: [reader-0123456789], write: [writer-0123456789] } }\n";

/// Calls the API with a token.
pub struct AdminClient {
    address: SocketAddr,
    token: String,
}

impl AdminClient {
    /// A caller with this token.
    pub fn new(gateway: &Gateway, token: &str) -> Self {
        Self {
            address: gateway.admin,
            token: token.to_owned(),
        }
    }

    /// A caller that may change something, of a gateway with [`TOKENS`].
    pub fn writer(gateway: &Gateway) -> Self {
        Self::new(gateway, WRITER)
    }

    /// The response to a GET.
    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        self.send("GET", path, "", None)
    }

    /// The response to a POST of JSON.
    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Response {
        let body = body.to_string();
        self.send(
            "POST",
            path,
            "Content-Type: application/json\r\n",
            Some(&body),
        )
    }

    /// The response to a request with more header lines, each ended by CR LF.
    #[track_caller]
    pub fn send(&self, method: &str, path: &str, headers: &str, body: Option<&str>) -> Response {
        let length = body.map(|body| format!("Content-Length: {}\r\n", body.len()));
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n{headers}{}Connection: close\r\n\r\n{}",
            self.address,
            self.token,
            length.unwrap_or_default(),
            body.unwrap_or_default(),
        );
        Connection::open(self.address).exchange(&request)
    }

    /// The JSON of a successful GET.
    #[track_caller]
    pub fn read(&self, path: &str) -> Value {
        json(&self.get(path))
    }
}

/// The JSON of a successful response.
#[track_caller]
pub fn json(response: &Response) -> Value {
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("content-type"), Some("application/json"));
    serde_json::from_slice(&response.body).expect("JSON")
}

/// The `detail` of an error with this status.
#[track_caller]
pub fn problem(response: &Response, status: u16) -> String {
    assert_eq!(response.status, status, "{}", response.text());
    let content_type = response.header("content-type");
    assert_eq!(content_type, Some("application/problem+json"));
    let body: Value = serde_json::from_slice(&response.body).expect("JSON");
    assert_eq!(body["status"], status);
    assert_eq!(body["type"], "about:blank");
    body["detail"].as_str().expect("a text").to_owned()
}
