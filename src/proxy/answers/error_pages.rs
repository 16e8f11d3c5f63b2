//! Configured bodies of errors and refusals, by status and format.

use std::ops::RangeInclusive;

use http::StatusCode;

use super::negotiate::ResponseFormat;
use super::template::Template;

/// The bodies of all pages.
#[derive(Debug, Default)]
pub struct ErrorPages {
    /// The pages, the one for the fewest statuses first.
    pages: Vec<ErrorPage>,
}

/// A page.
#[derive(Debug)]
pub struct ErrorPage {
    /// The statuses of its responses.
    pub statuses: RangeInclusive<u16>,
    /// Its bodies: one at most for each format, and for JSON in all.
    pub bodies: Vec<(ResponseFormat, Template)>,
}

impl ErrorPages {
    /// Collects pages.
    pub fn new(mut pages: Vec<ErrorPage>) -> Self {
        pages.sort_by_key(|page| page.statuses.len());
        Self { pages }
    }

    /// True if there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The body for a client that prefers `format`, and its own format, which may be another of
    /// JSON. The page for the fewest statuses that has one counts.
    pub(crate) fn find(
        &self,
        status: StatusCode,
        format: ResponseFormat,
    ) -> Option<(ResponseFormat, &Template)> {
        let pages = self.pages.iter();
        let mut pages = pages.filter(|page| page.statuses.contains(&status.as_u16()));
        pages.find_map(|page| {
            let mut bodies = page.bodies.iter();
            let (own, body) = bodies.find(|(own, _)| own.suits(format))?;
            Some((*own, body))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(statuses: RangeInclusive<u16>, bodies: &[(ResponseFormat, &str)]) -> ErrorPage {
        let body = |text| Template::parse(text).expect("a template");
        let bodies = bodies.iter();
        ErrorPage {
            statuses,
            bodies: bodies.map(|&(format, text)| (format, body(text))).collect(),
        }
    }

    #[test]
    fn the_narrowest_page_with_the_format_counts() {
        let pages = ErrorPages::new(vec![
            page(
                400..=599,
                &[
                    (ResponseFormat::Html, "any"),
                    (ResponseFormat::Plain, "any"),
                ],
            ),
            page(
                404..=404,
                &[(ResponseFormat::Html, "404"), (ResponseFormat::Json, "{}")],
            ),
        ]);
        let found = |status, format| {
            let status = StatusCode::from_u16(status).expect("a status");
            let (format, body) = pages.find(status, format)?;
            Some((format, body.write(|_, _| {})))
        };
        for (status, wanted, expected) in [
            (
                404,
                ResponseFormat::Html,
                Some((ResponseFormat::Html, "404")),
            ),
            (
                404,
                ResponseFormat::Plain,
                Some((ResponseFormat::Plain, "any")),
            ),
            (
                404,
                ResponseFormat::Problem,
                Some((ResponseFormat::Json, "{}")),
            ),
            (404, ResponseFormat::OpenAi, None),
            (
                502,
                ResponseFormat::Html,
                Some((ResponseFormat::Html, "any")),
            ),
            (502, ResponseFormat::Problem, None),
            (200, ResponseFormat::Html, None),
        ] {
            let expected = expected.map(|(format, body)| (format, body.to_owned()));
            assert_eq!(found(status, wanted), expected, "{status} {wanted:?}");
        }
    }
}
