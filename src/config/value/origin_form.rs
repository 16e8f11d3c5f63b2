//! Targets of requests: a path, and a query if wanted.

use derive_more::Display;
use http::uri::PathAndQuery;

use super::{ParseFailure, TextValue, failure, text_value};

/// The target of a request in origin form (RFC 9112 section 3.2.1).
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub struct OriginForm(PathAndQuery);

impl OriginForm {
    /// The path and the query.
    pub fn get(&self) -> &PathAndQuery {
        &self.0
    }
}

impl Default for OriginForm {
    fn default() -> Self {
        Self(PathAndQuery::from_static("/"))
    }
}

text_value!(OriginForm);

impl TextValue for OriginForm {
    const NAME: &'static str = "OriginForm";
    const EXPECTED: &'static str = "a path, as in `/healthz` or `/status?deep=1`";
    const PATTERN: &'static str = "/[!\"$-~]*";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        if !text.starts_with('/') {
            return Err(failure(
                format!("`{text}` does not start with a slash"),
                match text.contains("://") {
                    true => "write the path only: `/healthz`".to_owned(),
                    false => format!("did you mean `/{text}`?"),
                },
            ));
        }
        let is_visible = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        let parsed = text.bytes().all(is_visible).then(|| text.parse().ok());
        parsed.flatten().map(Self).ok_or_else(|| {
            failure(
                format!("`{text}` has a character that no path has"),
                "percent-encode it, as in `%20` for a space",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_path_with_a_query() {
        for text in ["/", "/healthz", "/a/b?c=d&e", "/%20"] {
            let parsed = text.parse::<OriginForm>().map(|target| target.to_string());
            assert_eq!(parsed, Ok(text.to_owned()));
        }
        for wrong in [
            "",
            "*",
            "healthz",
            "http://a/b",
            "/a b",
            "/a#b",
            "/é",
            "/\r\n",
        ] {
            assert!(wrong.parse::<OriginForm>().is_err(), "{wrong}");
        }
    }
}
