//! Fields of a form (`application/x-www-form-urlencoded`, URL standard, section 5.1).

use super::{Ambiguous, Values, is_like};

/// The values of all fields `name`, in order.
///
/// # Errors
/// A reader may take another field for it, or a semicolon for the end of one.
pub(super) fn values(body: &[u8], name: &str) -> Values {
    let mut values: Vec<Box<[u8]>> = Vec::new();
    for pair in body.split(|byte| *byte == b'&') {
        let Some((key, value)) = form_urlencoded::parse(pair).next() else {
            continue;
        };
        if key == name {
            values.push(value.as_bytes().into());
        } else if may_be(&key, name) {
            return Err(Ambiguous);
        }
        // Old readers end fields with semicolons, too.
        let mut parts = pair.split(|byte| *byte == b';');
        let mut keys = parts
            .by_ref()
            .filter_map(|part| form_urlencoded::parse(part).next());
        if pair.contains(&b';') && keys.any(|(key, _)| may_be(&key, name)) {
            return Err(Ambiguous);
        }
    }
    Ok(values)
}

/// Returns true if some reader takes `key` for `name`: PHP and others skip spaces before a name, read
/// `a.b` and `a b` as `a_b`, and `a[]` or `a[x]` as a list or an object `a`.
pub(super) fn may_be(key: &str, name: &str) -> bool {
    let plain = |text: &str| {
        let text = text.trim_start().split('\0').next().unwrap_or_default();
        let end = text.find('[').filter(|_| !name.contains('['));
        text[..end.unwrap_or(text.len())].replace(['.', ' '], "_")
    };
    is_like(&plain(key), &plain(name))
}
