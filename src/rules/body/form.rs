//! Fields of a form (`application/x-www-form-urlencoded`, URL standard, section 5.1).

use super::{Ambiguous, Values, folded};

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
        let is_meant = |part| {
            let field = form_urlencoded::parse(part).next();
            field.is_some_and(|(key, _)| may_be(&key, name))
        };
        if pair.contains(&b';') && parts.any(is_meant) {
            return Err(Ambiguous);
        }
    }
    Ok(values)
}

/// Returns true if some reader takes `key` for `name`: PHP and others skip spaces before a name, read
/// `a.b` and `a b` as `a_b`, and `a[]` or `a[x]` as a list or an object `a`.
pub(super) fn may_be(key: &str, name: &str) -> bool {
    let has_list = name.contains('[');
    plain(key, has_list).eq(plain(name, has_list))
}

/// A name as the laxest reader has it; with lists, unless these are asked for.
fn plain(name: &str, has_list: bool) -> impl Iterator<Item = char> {
    let is_end = move |letter: char| letter == '\0' || letter == '[' && !has_list;
    let letters = name
        .trim_start()
        .chars()
        .take_while(move |letter| !is_end(*letter));
    folded(letters.map(|letter| {
        if matches!(letter, '.' | ' ') {
            '_'
        } else {
            letter
        }
    }))
}
