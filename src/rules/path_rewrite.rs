//! Rewrites the path of a request for its upstream, and the paths in the response back for the
//! client.

use std::borrow::Cow;

use http::HeaderValue;

use super::matcher::PathEquivalence;
use super::string_matcher::LinearRegex;
use crate::http::path::{self, EncodedSlashes, PathError};

/// The longest path that a rewrite may make, in bytes.
const MAX_PATH: usize = 64 << 10;

/// The rewriting of a route's paths, in this order: strip, replace, add.
#[derive(Clone, Debug, Default)]
pub struct PathRewrite {
    /// The prefix to remove, which every path of the route has. Empty for none.
    pub strip: String,
    /// The same as a value of `X-Forwarded-Prefix`; `None` if the upstream isn't told.
    pub forwarded_prefix: Option<HeaderValue>,
    /// Everything that the expression finds becomes the text, in which `$1` and `${name}` stand for
    /// groups.
    pub replace: Option<(LinearRegex, Box<[u8]>)>,
    /// The prefix to add. Empty for none.
    pub add: String,
    /// Paths in responses are rewritten back.
    pub responses: bool,
    /// The paths that the route treats as equal.
    pub form: PathEquivalence,
    /// Treatment of encoded slashes in the result.
    pub slashes: EncodedSlashes,
}

impl PathRewrite {
    /// Returns the path for the upstream of a normal `path` that the route matches.
    ///
    /// # Errors
    /// The result has no normal form, has dot segments, or more than 64 KiB.
    pub fn forwarded(&self, path: &str) -> Result<String, PathError> {
        let mut path = Cow::Borrowed(self.stripped(path));
        if let Some((regex, text)) = &self.replace {
            let whole = if path.is_empty() { "/" } else { &path };
            if let Some(replaced) = regex.replace_all(whole.as_bytes(), text, MAX_PATH) {
                let replaced = String::from_utf8(replaced?).map_err(|_| PathError::NotUtf8)?;
                path = Cow::Owned(path::rewritten(&replaced, self.slashes)?);
            }
        }
        let mut forwarded = format!("{}{path}", self.add);
        if forwarded.is_empty() {
            forwarded.push('/');
        }
        Ok(forwarded)
    }

    /// `path` without as many segments as the stripped prefix has; empty if it has no more. Segments
    /// that a loose route passes over don't count.
    fn stripped<'a>(&self, path: &'a str) -> &'a str {
        let mut left = self.strip.matches('/').count();
        let mut rest = path;
        while left > 0 {
            let segment = rest.strip_prefix('/').unwrap_or(rest);
            let end = segment.find('/').unwrap_or(segment.len());
            if !self.form.passes_over(&path::comparable(&segment[..end])) {
                left -= 1;
            }
            rest = &segment[end..];
            if rest.is_empty() {
                break;
            }
        }
        rest
    }

    /// Returns the path as clients know it of a reference to the upstream's `path`, which may have a
    /// query behind it. `None` if clients cannot reach it, or it stays the same.
    pub fn restored(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(self.add.as_str())?;
        let is_below = rest.is_empty() || rest.starts_with(['/', '?', '#']);
        if !is_below && !self.add.is_empty() {
            return None;
        }
        let is_whole = rest.starts_with('/') || !(self.strip.is_empty() || self.add.is_empty());
        let slash = if is_whole { "" } else { "/" };
        let restored = format!("{}{slash}{rest}", self.strip);
        // Browsers take two slashes, of either kind, for the beginning of a host.
        let names_host = restored[1..].starts_with(['/', '\\']);
        (!names_host && restored != path).then_some(restored)
    }

    /// Returns the `Path` of a cookie as [`restored`](Self::restored). The root becomes the prefix
    /// itself, which includes all paths below (RFC 6265 section 5.1.4).
    pub fn restored_cookie_path(&self, path: &str) -> Option<String> {
        // Any other text stands for the request's own path (RFC 6265 section 5.2.4).
        let mut restored = self.restored(path).filter(|_| path.starts_with('/'))?;
        if restored.strip_suffix('/') == Some(&self.strip) && !self.strip.is_empty() {
            restored.pop();
        }
        Some(restored)
    }
}

#[cfg(test)]
mod tests;
