//! Spellings of a path, and how a lenient server reads them.

use std::collections::BTreeSet;

/// The limited path. Its limit is zero, so that each request is answered 429.
pub const LIMITED: &str = "/v1/log:in";

/// Ways to write one character of a path.
fn spellings(character: char) -> Vec<String> {
    let code = character as u32;
    vec![
        format!("%{code:02x}"),
        format!("%{code:02X}"),
        format!("%25{code:02x}"),
        format!("%u{code:04x}"),
        format!("%{:x}%{:x}", 0xc0 | code >> 6, 0x80 | code & 0x3f),
        format!("%{:x}%", code >> 4),
        character.to_ascii_uppercase().to_string(),
    ]
}

/// Segments, separators and endings that may or may not make another path.
const INSERTED: [&str; 36] = [
    "/",
    "//",
    "/.",
    "/./",
    "/../",
    "/x/..",
    "/x/../",
    "/%2e",
    "/%2e/",
    "/%2E%2e/",
    "/.%2e/",
    "/..;/",
    "/..;x=1/",
    "/.;",
    "/..%3b/",
    "%2f",
    "%2F",
    "%5c",
    "\\",
    "/\\",
    ";",
    ";x=1",
    "%3b",
    "%00",
    "%0d%0a",
    "%09",
    "%20",
    "%",
    "%zz",
    "%c0%af",
    "%c0%ae",
    "%ff",
    "%ef%bc%8f",
    "é",
    "#",
    "/%252e%252e/",
];

/// Every spelling of one character or two, and everything inserted at every place, once or twice.
pub fn variants() -> BTreeSet<String> {
    let mut variants = BTreeSet::from([LIMITED.to_owned()]);
    let places: Vec<usize> = LIMITED.char_indices().map(|(at, _)| at).collect();
    for &at in &places {
        let (before, rest) = LIMITED.split_at(at);
        let mut rest = rest.chars();
        let character = rest.next().expect("a character at every place");
        for spelling in spellings(character) {
            variants.insert(format!("{before}{spelling}{}", rest.as_str()));
        }
    }
    for at in places.into_iter().chain([LIMITED.len()]) {
        let (before, rest) = LIMITED.split_at(at);
        for inserted in INSERTED {
            variants.insert(format!("{before}{inserted}{rest}"));
            variants.insert(format!("{before}{inserted}{inserted}{rest}"));
        }
    }
    let letters = LIMITED[4..]
        .chars()
        .fold(vec!["/v1/".to_owned()], |starts, letter| {
            let forms = [letter.to_string(), format!("%{:02x}", letter as u32)];
            let longer = |start: &String| forms.clone().map(|form| format!("{start}{form}"));
            starts.iter().flat_map(longer).collect()
        });
    variants.extend(letters);
    let every: String = LIMITED
        .chars()
        .map(|c| format!("%{:02x}", c as u32))
        .collect();
    variants.insert(every.replace("%2f", "/"));
    variants.insert(every);
    variants.insert(LIMITED.to_uppercase());
    variants
}

/// A path as a lenient server reads it: decoded, without dot segments and repeated slashes.
pub fn lenient(path: &str) -> String {
    let text = decoded(path).replace('\\', "/");
    let mut kept = Vec::new();
    for segment in text.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

fn decoded(path: &str) -> String {
    let mut octets = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| byte == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let octet = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        octets.push(octet.unwrap_or(byte));
        rest = if octet.is_some() {
            &behind[2..]
        } else {
            behind
        };
    }
    String::from_utf8_lossy(&octets).into_owned()
}
