//! Content negotiation (RFC 9110 section 12.5.1) among the three formats that the proxy writes.

use http::HeaderValue;

use crate::http::headers::ascii;

/// Format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFormat {
    /// `application/problem+json`, RFC 9457.
    Problem,
    /// Problem details as `application/json`, for clients that know no other type. Never
    /// negotiated: clients that accept JSON get `Problem`.
    Json,
    /// OpenAI's error object, as `application/json`. Never negotiated.
    OpenAi,
    /// Anthropic's error object, as `application/json`. Never negotiated.
    Anthropic,
    /// `text/plain`.
    Plain,
    /// `text/html`.
    Html,
}

/// Formats that a policy allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFormats {
    /// The format that Accept prefers, or `Problem` without a preference.
    Accept,
    /// This format, whatever Accept says.
    Always(ResponseFormat),
}

/// Formats that are negotiated, in the proxy's order of preference.
const ALL: [ResponseFormat; 3] = [
    ResponseFormat::Problem,
    ResponseFormat::Plain,
    ResponseFormat::Html,
];

impl ResponseFormats {
    /// All formats that [`choose`](Self::choose) may return.
    pub(crate) fn all(&self) -> &[ResponseFormat] {
        match self {
            Self::Accept => &ALL,
            Self::Always(format) => std::slice::from_ref(format),
        }
    }

    /// Chooses the format for a request with this Accept.
    pub(crate) fn choose(self, accept: Option<&[u8]>) -> ResponseFormat {
        match self {
            Self::Always(format) => format,
            Self::Accept => match accept {
                None | Some(b"*/*") => ResponseFormat::Problem,
                Some(accept) => ascii(accept).map_or(ResponseFormat::Problem, preferred),
            },
        }
    }
}

impl ResponseFormat {
    /// A body in this format suits a client that prefers `wanted`.
    pub(crate) fn suits(self, wanted: Self) -> bool {
        let is_json = |format| matches!(format, Self::Problem | Self::Json);
        self == wanted || (is_json(self) && is_json(wanted))
    }

    pub(crate) fn media_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Problem => "application/problem+json",
            Self::Json | Self::OpenAi | Self::Anthropic => "application/json",
            Self::Plain => "text/plain; charset=utf-8",
            Self::Html => "text/html; charset=utf-8",
        })
    }

    /// Specificity of a media range for this format: 0 no match, 3 exact.
    fn specificity(self, range: &str) -> u8 {
        let (exact, also, family): (_, &[&str], _) = match self {
            Self::Problem | Self::Json | Self::OpenAi | Self::Anthropic => (
                "application/problem+json",
                &["application/json"],
                "application/*",
            ),
            Self::Plain => ("text/plain", &[], "text/*"),
            Self::Html => ("text/html", &["application/xhtml+xml"], "text/*"),
        };
        let is = |name: &str| range.eq_ignore_ascii_case(name);
        match range {
            _ if is(exact) || also.iter().any(|name| is(name)) => 3,
            _ if is(family) => 2,
            "*/*" => 1,
            _ => 0,
        }
    }

    /// Weight of this format in `accept`, 0 to 1000: the most specific range counts.
    fn weight(self, accept: &str) -> u16 {
        accept
            .split(',')
            .map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let specificity = self.specificity(parts.next().unwrap_or_default());
                let weight = parts.find_map(|p| p.strip_prefix("q=").or(p.strip_prefix("Q=")));
                (specificity, weight.map_or(1_000, thousandths))
            })
            .filter(|(specificity, _)| *specificity > 0)
            .max()
            .map_or(0, |(_, weight)| weight)
    }
}

/// Chooses the format of greatest weight. Of equal ones the first in `accept` wins, since browsers
/// and people write their preference there; else the proxy's order decides.
fn preferred(accept: &str) -> ResponseFormat {
    let place = |format: ResponseFormat| {
        accept
            .split(',')
            .position(|range| {
                format.specificity(range.split(';').next().unwrap_or_default().trim()) == 3
            })
            .unwrap_or(usize::MAX)
    };
    ALL.into_iter()
        .rev()
        .max_by_key(|&format| (format.weight(accept), std::cmp::Reverse(place(format))))
        .unwrap_or(ResponseFormat::Problem)
}

/// Parses a quality value (RFC 9110 section 12.4.2) into thousandths; a malformed one counts as 0.
fn thousandths(text: &str) -> u16 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    match (whole, digits) {
        ("1", true) => 1_000,
        ("0", true) => format!("{fraction:0<3}").parse().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(accept: &'static str) -> ResponseFormat {
        ResponseFormats::Accept.choose(Some(accept.as_bytes()))
    }

    #[test]
    fn programs_read_problem_json() {
        assert_eq!(
            ResponseFormats::Accept.choose(None),
            ResponseFormat::Problem
        );
        for accept in [
            "*/*",
            "application/json",
            "application/*;q=0.1",
            "",
            "image/png",
            ";;,,",
        ] {
            assert_eq!(chosen(accept), ResponseFormat::Problem, "{accept}");
        }
    }

    #[test]
    fn browsers_read_html_and_terminals_plain_text() {
        assert_eq!(
            chosen("text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"),
            ResponseFormat::Html
        );
        assert_eq!(chosen("text/plain"), ResponseFormat::Plain);
        assert_eq!(chosen("text/*"), ResponseFormat::Plain);
        assert_eq!(
            chosen("text/html;q=0.5, text/plain;q=0.6"),
            ResponseFormat::Plain
        );
    }

    #[test]
    fn the_most_specific_range_gives_the_weight() {
        assert_eq!(
            chosen("text/*, text/plain;q=0.1, application/json;q=0.5"),
            ResponseFormat::Html
        );
        assert_eq!(
            chosen("application/json;q=0, text/plain;q=0.001"),
            ResponseFormat::Plain
        );
        assert_eq!(
            chosen("text/html;q=2, application/json;q=0.2"),
            ResponseFormat::Problem
        );
    }
}
