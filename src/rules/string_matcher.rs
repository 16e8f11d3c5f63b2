//! Matchers for a text of a request: the whole text, a part of it, a regular expression, or a list.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use memchr::memmem;
use regex::bytes::{Regex, RegexBuilder};

use super::credentials::{Credentials, canonical_prefix};
use crate::http::path::PathError;

/// The largest compiled expression, in bytes.
const MAX_REGEX: usize = 32 << 10;

/// A matcher for a value of a header field, cookie, query parameter or claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StringMatcher {
    pattern: StringPattern,
    ignores_case: bool,
}

/// The texts that match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StringPattern {
    /// This text.
    Exact(Box<[u8]>),
    /// Texts that begin so.
    Prefix(Box<[u8]>),
    /// Texts that end so.
    Suffix(Box<[u8]>),
    /// Texts that have this somewhere.
    Contains(Box<[u8]>),
    /// Texts in which this expression finds something.
    Regex(LinearRegex),
    /// One of these texts.
    Listed(TextList),
}

/// A regular expression, which takes time in proportion to the text and to its own size.
#[derive(Clone, Debug)]
pub struct LinearRegex(Regex);

/// Texts, sorted, and shared by all matchers for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TextList(Arc<[Box<[u8]>]>);

impl TextList {
    /// Makes the list for matchers that ignore the case of ASCII letters, or don't.
    pub fn new<'a>(texts: impl Iterator<Item = &'a str>, ignores_case: bool) -> Self {
        let texts = texts.map(|text| {
            if ignores_case {
                text.to_ascii_lowercase().into_bytes().into()
            } else {
                text.as_bytes().into()
            }
        });
        let mut texts: Vec<Box<[u8]>> = texts.collect();
        texts.sort_unstable();
        texts.dedup();
        Self(texts.into())
    }

    fn contains(&self, text: &[u8]) -> bool {
        let found = self.0.binary_search_by(|one| (**one).cmp(text));
        found.is_ok()
    }
}

impl LinearRegex {
    /// Compiles an expression in the syntax of the `regex` crate, which has no back references.
    ///
    /// # Errors
    /// The text isn't such an expression, or needs more than 32 KiB. The message has no part of it.
    pub fn new(text: &str, ignores_case: bool) -> Result<Self, String> {
        let compiled = RegexBuilder::new(text)
            .case_insensitive(ignores_case)
            .unicode(false)
            .dot_matches_new_line(true)
            .size_limit(MAX_REGEX)
            .build();
        match compiled {
            Ok(regex) => Ok(Self(regex)),
            Err(regex::Error::CompiledTooBig(_)) => Err(format!(
                "the expression needs more than {} KiB",
                MAX_REGEX >> 10
            )),
            // The message draws the expression, and says what is wrong in its last line.
            Err(error) => {
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default();
                Err(last.trim_start_matches("error: ").to_owned())
            }
        }
    }

    /// Returns true if the expression finds something in the text.
    pub fn finds(&self, text: &[u8]) -> bool {
        self.0.is_match(text)
    }

    /// Replaces all that the expression finds in `text`. In `replacement`, `$1` and `${name}` stand
    /// for groups. `None` if it finds nothing.
    ///
    /// # Errors
    /// [`PathError::TooLong`] if the result has more than `most` bytes.
    pub fn replace_all(
        &self,
        text: &[u8],
        replacement: &[u8],
        most: usize,
    ) -> Option<Result<Vec<u8>, PathError>> {
        let mut replaced = Vec::new();
        let mut end = None;
        for found in self.0.captures_iter(text) {
            let whole = found.get_match();
            replaced.extend_from_slice(&text[end.unwrap_or(0)..whole.start()]);
            found.expand(replacement, &mut replaced);
            end = Some(whole.end());
            if replaced.len() > most {
                return Some(Err(PathError::TooLong));
            }
        }
        replaced.extend_from_slice(&text[end?..]);
        let is_short = replaced.len() <= most;
        Some(is_short.then_some(replaced).ok_or(PathError::TooLong))
    }

    /// Returns true if the expression has a group of this name or number.
    pub fn has_group(&self, name: &str) -> bool {
        match name.parse::<usize>() {
            Ok(number) => number < self.0.captures_len(),
            Err(_) => self.0.capture_names().flatten().any(|known| known == name),
        }
    }
}

impl Hash for LinearRegex {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_str().hash(state);
    }
}

impl PartialEq for LinearRegex {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for LinearRegex {}

impl StringMatcher {
    /// Makes a matcher. If it ignores case, ASCII letters compare equal; an expression or a list has
    /// to be made so already.
    pub fn new(mut pattern: StringPattern, ignores_case: bool) -> Self {
        if let StringPattern::Contains(part) = &mut pattern
            && ignores_case
        {
            part.make_ascii_lowercase();
        }
        Self {
            pattern,
            ignores_case,
        }
    }

    /// Makes a matcher for one text.
    pub fn exact(text: impl Into<Box<[u8]>>) -> Self {
        Self::new(StringPattern::Exact(text.into()), false)
    }

    /// Makes the matcher for credentials: a value, a prefix and listed ones in canonical spelling.
    #[must_use]
    pub fn for_credentials(mut self) -> Self {
        let canonical = |text: &mut Box<[u8]>| *text = Credentials::of(text).canonical().into();
        match &mut self.pattern {
            StringPattern::Exact(text) => canonical(text),
            StringPattern::Prefix(text) => *text = canonical_prefix(text).into(),
            StringPattern::Listed(TextList(texts)) => {
                let mut sorted = texts.to_vec();
                sorted.iter_mut().for_each(canonical);
                sorted.sort_unstable();
                *texts = sorted.into();
            }
            _ => {}
        }
        self
    }

    /// Returns true for a text that matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        let equals = |text: &[u8], other: &[u8]| {
            if self.ignores_case {
                text.eq_ignore_ascii_case(other)
            } else {
                text == other
            }
        };
        let folded = || {
            if self.ignores_case {
                Cow::Owned(text.to_ascii_lowercase())
            } else {
                Cow::Borrowed(text)
            }
        };
        match &self.pattern {
            StringPattern::Exact(exact) => equals(text, exact),
            StringPattern::Prefix(prefix) => {
                let start = text.get(..prefix.len());
                start.is_some_and(|start| equals(start, prefix))
            }
            StringPattern::Suffix(suffix) => {
                let start = text.len().checked_sub(suffix.len());
                start.is_some_and(|start| equals(&text[start..], suffix))
            }
            StringPattern::Contains(part) => memmem::find(&folded(), part).is_some(),
            StringPattern::Regex(regex) => regex.finds(text),
            StringPattern::Listed(texts) => texts.contains(&folded()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matcher(pattern: StringPattern) -> StringMatcher {
        StringMatcher::new(pattern, false)
    }

    fn listed(texts: &[&str], ignores_case: bool) -> StringMatcher {
        let texts = TextList::new(texts.iter().copied(), ignores_case);
        StringMatcher::new(StringPattern::Listed(texts), ignores_case)
    }

    #[test]
    fn a_part_of_a_text_matches_where_it_should() {
        for (pattern, taken, not) in [
            (StringPattern::Exact(b"bot"[..].into()), "bot", "robot"),
            (StringPattern::Prefix(b"bot"[..].into()), "bot/1", "robot"),
            (StringPattern::Suffix(b"bot"[..].into()), "robot", "bot/1"),
            (
                StringPattern::Contains(b"bot"[..].into()),
                "a robot/1",
                "bo t",
            ),
        ] {
            let case = StringMatcher::new(pattern.clone(), true);
            let matcher = matcher(pattern);
            assert!(matcher.matches(taken.as_bytes()), "{matcher:?}");
            assert!(!matcher.matches(not.as_bytes()), "{matcher:?}");
            assert!(
                !matcher.matches(taken.to_uppercase().as_bytes()),
                "{matcher:?}"
            );
            assert!(case.matches(taken.to_uppercase().as_bytes()), "{case:?}");
        }
    }

    #[test]
    fn an_expression_finds_a_part_unless_it_is_anchored() {
        let regex = |text, case| {
            let regex = LinearRegex::new(text, case).expect("an expression");
            StringMatcher::new(StringPattern::Regex(regex), case)
        };
        assert!(regex("b.d", false).matches(b"a bad bot"));
        assert!(!regex("^b.d", false).matches(b"a bad bot"));
        assert!(!regex("b.d", false).matches(b"A BAD BOT"));
        assert!(regex("b.d", true).matches(b"A BAD BOT"));
        // Bytes that are no UTF-8.
        assert!(regex("x$", false).matches(b"\xff\xfex"));
    }

    #[test]
    fn a_wrong_or_a_huge_expression_is_refused() {
        let error = |text| LinearRegex::new(text, false).expect_err("an error");
        assert_eq!(error("a("), "unclosed group");
        assert_eq!(error("(a)\\1"), "backreferences are not supported");
        assert!(error("(a{1000}){1000}").contains("32 KiB"));
        assert!(error("[a-z]{2000}x").contains("32 KiB"));
    }

    #[test]
    fn a_hostile_text_takes_time_in_proportion_to_its_length() {
        let regex = LinearRegex::new("^(a+)+$", false).expect("an expression");
        let text = [vec![b'a'; 1 << 20], vec![b'!']].concat();
        assert!(!StringMatcher::new(StringPattern::Regex(regex), false).matches(&text));
    }

    proptest! {
        #[test]
        fn a_list_has_its_texts_and_no_others(
            texts in proptest::collection::vec("[a-cA-C]{0,3}", 0..8),
            asked in "[a-cA-C]{0,3}",
            ignores_case: bool,
        ) {
            let texts: Vec<_> = texts.iter().map(String::as_str).collect();
            let is_listed = texts.iter().any(|text| {
                *text == asked || ignores_case && text.eq_ignore_ascii_case(&asked)
            });
            prop_assert_eq!(listed(&texts, ignores_case).matches(asked.as_bytes()), is_listed);
        }
    }
}
