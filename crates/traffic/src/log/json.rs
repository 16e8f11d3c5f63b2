//! A JSON object a line: `time`, `client_ip`, `method`, `path`, and what else is known of the
//! request. The proxy's own access log is one. Keys that are not listed here mean nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use http::StatusCode;
use http::header::{HeaderName, HeaderValue, REFERER, USER_AGENT};
use http1::headers::Headers;
use limiter::Timestamp;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};
use serde_json::Value;
use serde_json::value::RawValue;

use super::request::{self, RequestParts};
use super::{LogEntry, LoggedHead, LoggedResponse, instant, shortened, wrong};

#[derive(serde::Deserialize)]
struct Line<'a> {
    /// A text as in RFC 3339, or a number of milliseconds since the epoch.
    #[serde(borrow)]
    time: &'a RawValue,
    #[serde(borrow)]
    client_ip: Cow<'a, str>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    /// With its query.
    #[serde(borrow)]
    path: Cow<'a, str>,
    host: Option<String>,
    version: Option<String>,
    headers: Option<Fields>,
    /// The names of those whose values are not whole.
    truncated: Option<Vec<String>>,
    // What it was answered.
    #[serde(default, deserialize_with = "number")]
    status: Option<u16>,
    response_headers: Option<Fields>,
    #[serde(default, deserialize_with = "number")]
    bytes: Option<u64>,
    /// By policy.
    costs: Option<BTreeMap<String, u64>>,
    // What its limits decided. Logs of others have other things under these names.
    #[serde(default, deserialize_with = "if_it_fits")]
    policy: Option<String>,
    #[serde(default, deserialize_with = "if_it_fits")]
    banned: Option<bool>,
    #[serde(default, deserialize_with = "if_it_fits")]
    granted: Option<Vec<String>>,
    #[serde(default, deserialize_with = "if_it_fits")]
    retry_after_ms: Option<f64>,
    // Fields that the proxy's own log has under names of their own.
    referer: Option<String>,
    user_agent: Option<String>,
    request_id: Option<String>,
}

/// Parses a line. `host` is that of requests whose line and target name none.
pub(super) fn read(line: &[u8], host: &HeaderValue) -> Result<LogEntry, String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| unparsable(&error))?;
    let peer: Option<IpAddr> = line.client_ip.parse().ok();
    let no_address = || wrong("an address of a client", line.client_ip.as_bytes());
    Ok(LogEntry {
        time: time(line.time.get())?,
        peer: peer.ok_or_else(no_address)?,
        head: line.head(host),
        response: line.response(),
        banned: line.ban(),
        granted: line.granted.unwrap_or_default(),
    })
}

/// A value of this type; `None` for another.
fn if_it_fits<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    value: D,
) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(value)?;
    Ok(T::deserialize(value).ok())
}

/// A number, which may be written as a text.
fn number<'de, D: Deserializer<'de>, T: FromStr + DeserializeOwned>(
    value: D,
) -> Result<Option<T>, D::Error> {
    match Value::deserialize(value)? {
        Value::Null => return Ok(None),
        Value::String(text) => text.parse().map_err(|_| format!("{text:?} isn't a number")),
        value => T::deserialize(value).map_err(|_| "expected a number".to_owned()),
    }
    .map(Some)
    .map_err(Error::custom)
}

fn time(json: &str) -> Result<Timestamp, String> {
    match serde_json::from_str::<Cow<'_, str>>(json) {
        Ok(text) => instant::rfc_3339(&text),
        Err(_) => instant::milliseconds(json),
    }
}

/// A line is all that is read: its number is known better elsewhere.
fn unparsable(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    let column = error.column();
    format!("{} at column {column}", shortened(what))
}

impl Line<'_> {
    /// Fields that are none of HTTP's say nothing.
    fn response(&self) -> Option<LoggedResponse> {
        let mut fields = Headers::new();
        for (name, value) in self.response_headers.iter().flat_map(|fields| &fields.0) {
            _ = request::add(&mut fields, name.as_bytes(), value.as_bytes());
        }
        let costs = self.costs.iter().flatten();
        let costs = costs.map(|(policy, &units)| {
            let units = u32::try_from(units).unwrap_or(u32::MAX);
            (policy.clone(), units)
        });
        Some(LoggedResponse {
            status: StatusCode::from_u16(self.status?).ok()?,
            headers: fields,
            bytes: self.bytes,
            costs: costs.collect(),
        })
    }

    /// The policy that banned the key, and for how much longer.
    fn ban(&self) -> Option<(String, Duration)> {
        let millis = self.retry_after_ms.unwrap_or_default();
        let length = Duration::try_from_secs_f64(millis / 1_000.0).unwrap_or_default();
        let policy = self.policy.clone().filter(|_| self.banned == Some(true));
        policy.map(|policy| (policy, length))
    }

    fn head(&self, default: &HeaderValue) -> Result<LoggedHead, &'static str> {
        let mut fields = Headers::new();
        for (name, value) in self.headers.iter().flat_map(|fields| &fields.0) {
            // Two long values may begin alike: a field that is not whole counts as missing.
            let mut truncated = self.truncated.iter().flatten();
            if !truncated.any(|cut| cut.eq_ignore_ascii_case(name)) {
                request::add(&mut fields, name.as_bytes(), value.as_bytes())?;
            }
        }
        for (name, value) in [
            (REFERER, &self.referer),
            (USER_AGENT, &self.user_agent),
            (HeaderName::from_static("x-request-id"), &self.request_id),
        ] {
            if let Some(value) = value
                && !fields.contains(&name)
            {
                request::add(&mut fields, name.as_ref(), value.as_bytes())?;
            }
        }
        let parts = RequestParts {
            method: self.method.as_bytes(),
            target: self.path.as_bytes(),
            version: self.version.as_deref().unwrap_or("HTTP/1.1").as_bytes(),
            host: self.host.as_deref(),
            fields,
        };
        parts.head(default)
    }
}

/// Header fields in their order. A list is a field that stands several times.
#[derive(serde::Deserialize)]
#[serde(try_from = "Value")]
struct Fields(Vec<(String, String)>);

impl TryFrom<Value> for Fields {
    type Error = &'static str;

    fn try_from(json: Value) -> Result<Self, &'static str> {
        let Value::Object(json) = json else {
            return Err("expected an object of header fields");
        };
        let mut fields = Vec::new();
        for (name, value) in json {
            let values = match value {
                Value::Null => Vec::new(),
                Value::Array(values) => values,
                value => vec![value],
            };
            for value in values {
                let text = match value {
                    Value::String(text) => text,
                    // Loggers tend to write numbers as such.
                    Value::Number(_) | Value::Bool(_) => value.to_string(),
                    _ => return Err("a field is a text or a number, or a list of them"),
                };
                fields.push((name.clone(), text));
            }
        }
        Ok(Fields(fields))
    }
}
