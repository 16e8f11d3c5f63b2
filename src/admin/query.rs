//! Parameters of a query: known ones, each given once at most.

use std::ops::RangeInclusive;
use std::str::FromStr;

use http::StatusCode;

use super::problem_details::ProblemDetails;
use crate::nearest;

/// The values of these parameters in a query, decoded.
///
/// # Errors
/// 400 for an unknown or repeated parameter.
pub(super) fn parameters<const N: usize>(
    query: Option<&str>,
    known: [&str; N],
) -> Result<[Option<String>; N], ProblemDetails> {
    let mut given = [const { None }; N];
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let place = known.iter().position(|known| *known == name);
        let Some(place) = place else {
            let name: String = name.chars().take(100).collect();
            let known = nearest::list(&known);
            return Err(bad(format!(
                "unknown parameter `{name}`: known are {known}"
            )));
        };
        if given[place].replace(value.into_owned()).is_some() {
            return Err(bad(format!("`{}` is given twice", known[place])));
        }
    }
    Ok(given)
}

/// One of a closed set of words.
///
/// # Errors
/// 400 with the words.
pub(super) fn word<T: FromStr>(
    name: &str,
    given: Option<&str>,
    words: &[&str],
) -> Result<Option<T>, ProblemDetails> {
    let read = |text: &str| {
        let wrong = |_| bad(format!("`{name}` is one of {}", nearest::list(words)));
        text.parse().map_err(wrong)
    };
    given.map(read).transpose()
}

/// A whole number within these bounds.
///
/// # Errors
/// 400 with the bounds.
pub(super) fn number(
    name: &str,
    given: Option<&str>,
    bounds: RangeInclusive<usize>,
) -> Result<Option<usize>, ProblemDetails> {
    let read = |text: &str| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        let (first, last) = (bounds.start(), bounds.end());
        number.ok_or_else(|| bad(format!("`{name}` is a number from {first} to {last}")))
    };
    given.map(read).transpose()
}

fn bad(detail: String) -> ProblemDetails {
    ProblemDetails::new(StatusCode::BAD_REQUEST, detail)
}
