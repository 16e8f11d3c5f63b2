//! Access rules: which requests are served at all.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use derive_more::Deref;
use http::{HeaderValue, StatusCode};

use super::Head;
use super::condition::Condition;
use super::descriptor::KeyPart;

/// The rules of one place in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Their place: `access`, or that of a route.
    pub place: String,
    /// If there are any, one of these must be certainly true.
    pub allow: Vec<Condition>,
    /// Each of these must be certainly false.
    pub deny: Vec<Condition>,
    /// The status of the answer to other requests.
    pub status: StatusCode,
    /// The time after which the client may come again.
    pub retry_after: Option<Duration>,
    /// The value of `WWW-Authenticate` in the answer, if it asks for credentials.
    pub challenge: Option<HeaderValue>,
}

/// The reason why a request isn't served. It reads as `access.deny[0]`, or as `access.allow` if
/// nothing there is true.
#[derive(Clone, Debug, Deref)]
pub struct Denial {
    #[deref(forward)]
    access: Arc<Access>,
    /// The number of the condition in `deny`.
    denied_by: Option<usize>,
}

impl Access {
    /// Returns the reason if the request isn't served. If a condition is unknown, because a field is
    /// repeated with different values, that never helps the client.
    pub fn denial(self: &Arc<Self>, head: &Head<'_>) -> Option<Denial> {
        let mut allow = self.allow.iter();
        let mut deny = self.deny.iter();
        let denied_by = deny.position(|condition| condition.applies(head));
        let is_allowed = self.allow.is_empty() || allow.any(|condition| condition.is_certain(head));
        (denied_by.is_some() || !is_allowed).then(|| Denial {
            access: Arc::clone(self),
            denied_by,
        })
    }

    /// Returns true if a condition reads the token.
    pub fn reads_token(&self) -> bool {
        let mut conditions = self.allow.iter().chain(&self.deny);
        conditions.any(Condition::reads_token)
    }

    /// Returns the fields, cookies and claims that the conditions read.
    pub fn inputs(&self) -> impl Iterator<Item = KeyPart> {
        let conditions = self.allow.iter().chain(&self.deny);
        conditions.flat_map(Condition::inputs)
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denied_by {
            Some(number) => write!(f, "{}.deny[{number}]", self.access.place),
            None if self.access.challenge.is_some() => f.write_str(&self.access.place),
            None => write!(f, "{}.allow", self.access.place),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use http::header::{HeaderName, HeaderValue};

    use super::*;
    use crate::http::headers::Headers;
    use crate::rules::StringMatcher;

    const PLAN: HeaderName = HeaderName::from_static("x-plan");

    fn plan(value: &str) -> Condition {
        Condition::Value(
            KeyPart::Header(PLAN),
            StringMatcher::exact(value.as_bytes()),
        )
    }

    /// The reason why a request with these plans isn't served.
    fn denial(
        allow: Vec<Condition>,
        deny: Vec<Condition>,
        plans: &[&'static str],
    ) -> Option<String> {
        let fields = plans
            .iter()
            .map(|plan| (PLAN, HeaderValue::from_static(plan)));
        let headers: Headers = fields.collect();
        let access = Arc::new(Access {
            place: "access".to_owned(),
            allow,
            deny,
            status: StatusCode::FORBIDDEN,
            retry_after: None,
            challenge: None,
        });
        let denial = access.denial(&Head {
            method: &Method::GET,
            host: "a",
            path: "/",
            query: None,
            headers: &headers,
            client_ip: [192, 0, 2, 1].into(),
            local: None,
            scheme: None,
            token: None,
            body: None,
            client: None,
            is_any_target: false,
        });
        denial.map(|denial| denial.to_string())
    }

    #[test]
    fn deny_precedes_allow() {
        let by_both = |plans: &[&'static str]| {
            denial(
                vec![plan("gold"), plan("free")],
                vec![plan("none"), plan("free")],
                plans,
            )
        };
        assert_eq!(by_both(&["gold"]), None);
        assert_eq!(by_both(&["free"]).as_deref(), Some("access.deny[1]"));
        assert_eq!(by_both(&["silver"]).as_deref(), Some("access.allow"));
        assert_eq!(by_both(&[]).as_deref(), Some("access.allow"));
    }

    #[test]
    fn a_repeated_field_never_helps() {
        let not = |condition| Condition::Not(Box::new(condition));
        let both = ["gold", "free"];
        for condition in [plan("gold"), plan("free"), plan("other"), not(plan("gold"))] {
            let denied = denial(Vec::new(), vec![condition.clone()], &both);
            assert_eq!(denied.as_deref(), Some("access.deny[0]"), "{condition:?}");
            let denied = denial(vec![condition.clone()], Vec::new(), &both);
            assert_eq!(denied.as_deref(), Some("access.allow"), "{condition:?}");
        }
    }
}
