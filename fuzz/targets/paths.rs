//! Paths of requests: the normal form is safe, and normal.

use crate::http::path::{self, EncodedSlashes};

pub(super) fn run(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let [refused, kept] = [EncodedSlashes::Refuse, EncodedSlashes::Keep].map(|slashes| {
        let normal = path::normalise(text, slashes).ok()?;
        assert!(normal.is_ascii() && normal.starts_with('/'), "{normal:?}");
        let mut segments = normal.split('/').skip(1);
        let is_odd = |segment: &str| matches!(segment, "." | "..");
        assert!(!segments.any(is_odd), "{normal:?} has a dot segment");
        assert!(!normal.contains("//"), "{normal:?} has an empty segment");
        let again = path::normalise(&normal, slashes);
        assert_eq!(
            again.as_deref(),
            Ok(&*normal),
            "the normal form is not normal"
        );
        let rewritten = path::rewritten(&normal, slashes);
        assert_eq!(
            rewritten.as_deref(),
            Ok(&*normal),
            "a rule that changes nothing"
        );
        let comparable = path::comparable(&normal);
        assert_eq!(path::comparable(&comparable), comparable);
        assert_eq!(path::has_encoded_slash(&normal), normal.contains("%2F"));
        Some(normal)
    });
    if refused.is_some() {
        assert_eq!(refused, kept, "nothing to refuse");
    }
}
