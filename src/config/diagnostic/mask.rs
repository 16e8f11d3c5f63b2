//! Hides secrets in texts that are shown. Works on lines, not on their meaning, so that it also
//! works on files that cannot be parsed. Hides rather too much; every byte keeps its place.

/// Keys whose values are never shown.
const SECRETS: [&str; 2] = ["password", "secret"];

/// Puts stars in place of passwords, secrets, and the part of a URL before `@`. Values that only
/// name variables stay.
pub(super) fn source(text: &str) -> String {
    let mut hidden = String::with_capacity(text.len());
    let mut below = None;
    for line in text.split_inclusive('\n') {
        let indent = line.len() - line.trim_start().len();
        if below.is_some_and(|key| indent > key || line.trim().is_empty()) {
            hidden.extend(line.chars().flat_map(star));
            continue;
        }
        let (shown, goes_on) = value(line, false);
        hidden.push_str(&login(&shown));
        below = goes_on;
    }
    hidden
}

/// Puts stars in place of the values of secret keys in a line. If the value may continue below,
/// also returns the column of the key.
fn value(line: &str, is_flow: bool) -> (String, Option<usize>) {
    let Some((key, start)) = secret_key(line) else {
        return (line.to_owned(), None);
    };
    let value = &line[start..];
    let is_flow = is_flow || line[..key].contains('{');
    let (length, is_closed) = length(value, is_flow);
    let (held, rest) = value.split_at(length);
    let (rest, below) = self::value(rest, is_flow);
    let shown = match names_variables(held) {
        true => held.to_owned(),
        false => held.chars().flat_map(star).collect(),
    };
    let below = below.map(|_| key).or((!is_closed).then_some(key));
    (format!("{}{shown}{rest}", &line[..start]), below)
}

/// The start of the first secret key of a line, and of its value.
fn secret_key(line: &str) -> Option<(usize, usize)> {
    let found = SECRETS.iter().flat_map(|key| {
        line.match_indices(key).filter_map(|(at, key)| {
            let before = line[..at].chars().next_back();
            let is_start = before.is_none_or(|c| !c.is_alphanumeric() && !"_-./".contains(c));
            let rest = line[at + key.len()..].trim_start_matches(['"', '\'']);
            let rest = rest.trim_start_matches([' ', '\t']).strip_prefix(':')?;
            let rest = rest.trim_start_matches([' ', '\t']);
            is_start.then_some((at, line.len() - rest.len()))
        })
    });
    found.min()
}

/// The bytes of a value at the start of `value`, and `true` if it surely ends there.
fn length(value: &str, is_flow: bool) -> (usize, bool) {
    let all = value.trim_end_matches(['\r', '\n']).len();
    match value.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let closing = value[1..].find(quote).map(|at| at + 2);
            // A quote inside may be doubled or escaped.
            let rest = |at: &usize| value[*at..].trim_start();
            let ends = closing
                .filter(|at| rest(at).is_empty() || rest(at).starts_with([',', '}', ']', '#']));
            (ends.unwrap_or(all), ends.is_some())
        }
        Some(_) if is_flow => (value.find([',', '}']).unwrap_or(all), true),
        _ => (all, false),
    }
}

/// True for `${NAME}`, with or without quotes and a comment.
fn names_variables(value: &str) -> bool {
    let value = value.split(" #").next().unwrap_or(value).trim();
    let quoted = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
    let name = value
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

/// Puts stars in place of the part of a URL before `@`, line by line.
pub(super) fn login(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines.map(login_of_line).collect()
}

fn login_of_line(line: &str) -> String {
    let start = line.find("://").map(|at| at + 3);
    // Also without a scheme, which may have been forgotten.
    let start = start.or_else(|| line.find("url:").map(|at| at + 4));
    match start.zip(line.rfind('@')) {
        Some((start, end)) if start < end => {
            let held = &line[start..end];
            let parts = || held.split(':');
            let shown: String = match parts().all(|part| part.is_empty() || names_variables(part)) {
                true => held.to_owned(),
                false => held.chars().flat_map(star).collect(),
            };
            format!("{}{shown}{}", &line[..start], &line[end..])
        }
        _ => line.to_owned(),
    }
}

/// One star for each byte of a character; white space stays.
fn star(c: char) -> impl Iterator<Item = char> {
    let shown = if c.is_whitespace() { c } else { '*' };
    let count = if c.is_whitespace() { 1 } else { c.len_utf8() };
    std::iter::repeat_n(shown, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn secrets_are_hidden_however_they_are_written() {
        for (text, shown) in [
            (
                "password: hunter2\nuser: bob\n",
                "password: *******\nuser: bob\n",
            ),
            (
                "  password: 'hun''ter2'\n  user: bob",
                "  password: ***********\n  user: bob",
            ),
            (
                "secret: \"hun\\\"ter2\" # mine\na: b",
                "secret: *********** * ****\na: b",
            ),
            (
                "{ password: hunter2, user: bob }",
                "{ password: *******, user: bob }",
            ),
            (
                "{ a: 1, \"password\": \"hun,ter2\", secret: x}",
                "{ a: 1, \"password\": **********, secret: *}",
            ),
            (
                "password: |\n  hunter2\n\n  hunter2\nuser: bob",
                "password: *\n  *******\n\n  *******\nuser: bob",
            ),
            (
                "- password:\n    hunter2\n  user: bob",
                "- password:\n    *******\n  user: bob",
            ),
            (
                "password: \"hunter2\n  hunter3\"\nuser: bob",
                "password: ********\n  ********\nuser: bob",
            ),
            (
                "password: hün2\r\nuser: bob",
                "password: *****\r\nuser: bob",
            ),
        ] {
            assert_eq!(source(text), shown);
            assert_eq!(source(text).len(), text.len());
        }
    }

    #[test]
    fn logins_of_urls_are_hidden() {
        for (text, shown) in [
            (
                "url: redis://bob:hunter2@cache/0",
                "url: redis://***********@cache/0",
            ),
            (
                "url: \"redis://:hun@ter2@cache\"",
                "url: \"redis://*********@cache\"",
            ),
            ("url: bob:hunter2@cache", "url: ***********@cache"),
            ("found `redis://:hunter2@a`", "found `redis://********@a`"),
            (
                "url: redis://${USER}:${PASSWORD}@a",
                "url: redis://${USER}:${PASSWORD}@a",
            ),
            (
                "url: redis://${U:-hunter2}@a",
                "url: redis://*************@a",
            ),
        ] {
            assert_eq!(source(text), shown);
        }
    }

    #[test]
    fn other_values_stay() {
        for text in [
            "password: ${REDIS_PASSWORD}\n",
            "{ secret: \"${SECRET}\", a: b }",
            "secrets: x\nmy_password: y\nclient-secret: z\n",
            "upstream: http://10.0.0.1:3000\nheaders: { x: a@b }",
            "# the password is elsewhere",
        ] {
            assert_eq!(source(text), text);
        }
    }

    proptest! {
        #[test]
        fn every_byte_keeps_its_place(text in "([ \\n{},:'\"@/$#|]|password|secret|url|://|ü|x){0,30}") {
            let shown = source(&text);
            prop_assert_eq!(shown.len(), text.len());
            let lines = |text: &str| text.match_indices('\n').map(|(at, _)| at).collect::<Vec<_>>();
            prop_assert_eq!(lines(&shown), lines(&text));
        }

        #[test]
        fn no_password_is_shown(password in "[a-z0-9,}{:#@/ ]{0,6}hunter2[a-z0-9,}{:#@/ ]{0,6}", form in 0..4_usize) {
            let text = match form {
                0 => format!("redis:\n  password: {password}\n  user: bob\n"),
                1 => format!("redis:\n  password: \"{password}\"\n  user: bob\n"),
                2 => format!("redis: {{ password: '{password}', user: bob }}\n"),
                _ => format!("redis:\n  url: \"redis://:{password}@cache\"\n"),
            };
            prop_assert!(!source(&text).contains("hunter2"), "{}", source(&text));
        }
    }
}
