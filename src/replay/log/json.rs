//! A JSON object a line: `time`, `client_ip`, `method`, `path`, and what else is known of the
//! request. The proxy's own access log is one. Keys that are not listed here mean nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use http::header::{HeaderName, HeaderValue, REFERER, USER_AGENT};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};
use serde_json::Value;
use serde_json::value::RawValue;

use super::request::{self, LoggedRequestLine, MalformedRequest, RequestHost};
use super::{LineError, LogEntry, LoggedResponse, LoggedSteering, instant, shortened};
use crate::clock::Timestamp;
use crate::http::headers::Headers;
use crate::http::message::Request;

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
pub(super) fn read(line: &[u8], host: &HeaderValue) -> Result<LogEntry, LineError> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| unparsable(&error))?;
    let peer: Option<IpAddr> = line.client_ip.parse().ok();
    let wrong = || LineError::wrong("an address of a client", line.client_ip.as_bytes());
    let head = line.head(host);
    Ok(LogEntry {
        time: time(line.time.get())?,
        peer: peer.ok_or_else(wrong)?,
        names_host: line.names_host() || request::target_names_host(&head),
        head,
        response: line.response(),
        steering: line.steering(),
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
        Value::Null => Ok(None),
        Value::String(text) => {
            let number = text.parse().ok();
            number
                .ok_or_else(|| Error::custom(format!("{text:?} isn't a number")))
                .map(Some)
        }
        value => {
            let number = T::deserialize(value).ok();
            number
                .ok_or_else(|| Error::custom("expected a number"))
                .map(Some)
        }
    }
}

fn time(json: &str) -> Result<Timestamp, LineError> {
    match serde_json::from_str::<Cow<'_, str>>(json) {
        Ok(text) => instant::rfc_3339(&text),
        Err(_) => instant::milliseconds(json),
    }
}

/// A line is all that is read: its number is known better elsewhere.
fn unparsable(error: &serde_json::Error) -> LineError {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    let column = error.column();
    LineError::Json(format!("{} at column {column}", shortened(what)))
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
        let response = LoggedResponse::new(self.status?, fields, self.bytes)?;
        Some(LoggedResponse {
            costs: costs.collect(),
            ..response
        })
    }

    fn steering(&self) -> LoggedSteering {
        let millis = self.retry_after_ms.unwrap_or_default();
        let length = Duration::try_from_secs_f64(millis / 1_000.0).unwrap_or_default();
        let policy = self.policy.clone().filter(|_| self.banned == Some(true));
        LoggedSteering {
            granted: self.granted.clone().unwrap_or_default(),
            banned: policy.map(|policy| (policy, length)),
        }
    }

    fn names_host(&self) -> bool {
        let mut fields = self.headers.iter().flat_map(|fields| &fields.0);
        self.host.is_some() || fields.any(|(name, _)| name.eq_ignore_ascii_case("host"))
    }

    fn head(&self, host: &HeaderValue) -> Result<Request<()>, MalformedRequest> {
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
                fields.append(name, request::value(value.as_bytes())?);
            }
        }
        let line = LoggedRequestLine {
            method: self.method.as_bytes(),
            target: self.path.as_bytes(),
            version: self.version.as_deref().unwrap_or("HTTP/1.1").as_bytes(),
        };
        let host = match &self.host {
            Some(host) => RequestHost::Named(host),
            None => RequestHost::Assumed(host),
        };
        request::head(line, host, fields)
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
