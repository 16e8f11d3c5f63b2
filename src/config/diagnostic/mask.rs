//! Hides secrets in texts that are shown. Works on lines, not on their meaning, so that it also
//! works on files that cannot be parsed. Hides rather too much; every byte keeps its place.

/// Keys whose values are never shown.
const SECRETS: [&str; 3] = ["password", "secret", "token"];

/// Keys of mappings with further secrets, and the keys of these.
const SECTIONS: [(&str, &[&str]); 2] = [("tokens", &["read", "write"]), ("tracing", &["headers"])];

/// The rest of a value that goes on after its line.
#[derive(Clone, Copy)]
enum Rest {
    /// Lines that are indented deeper than this, and items of a list at it.
    Deeper(usize),
    /// All up to the end of so many lists and mappings in brackets.
    Brackets(usize),
}

/// Puts stars in place of passwords, secrets, tokens, and the part of a URL before `@`. Values that
/// only name variables stay.
pub(super) fn source(text: &str) -> String {
    let mut hidden = String::with_capacity(text.len());
    let (mut rest, mut section) = (None, None);
    for line in text.split_inclusive('\n') {
        let (start, after) = match rest {
            Some(rest) => hide_rest(line, rest),
            None => (0, None),
        };
        hidden.extend(line[..start].chars().flat_map(star));
        let line = &line[start..];
        if line.is_empty() {
            rest = after;
            continue;
        }
        if let Some((start, depth)) = open_section(line) {
            hidden.push_str(&login(&line[..start]));
            hidden.extend(line[start..].chars().flat_map(star));
            rest = Some(Rest::Brackets(depth));
            continue;
        }
        if !is_comment(line) {
            section = section_of(line, section);
        }
        let (shown, goes_on) = value(line, &secret_keys(line, section), false);
        hidden.push_str(&login(&shown));
        // A comment in the margin ends no value.
        rest = goes_on.or(rest.filter(|_| is_comment(line)));
    }
    hidden
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The bytes of a line that belong to a value before it, and what still goes on after the line.
fn hide_rest(line: &str, rest: Rest) -> (usize, Option<Rest>) {
    match rest {
        Rest::Deeper(key) => {
            let (indent, text) = (indent(line), line.trim());
            let is_item = indent == key && text.starts_with("- ");
            match indent > key || is_item || text.is_empty() {
                true => (line.len(), Some(rest)),
                false => (0, None),
            }
        }
        Rest::Brackets(depth) => match closing(line, depth) {
            Ok(end) => (end, None),
            Err(depth) => (line.len(), Some(Rest::Brackets(depth))),
        },
    }
}

/// A section that lines are below of: the column of its key, and its secret keys.
#[derive(Clone, Copy)]
struct Section {
    column: usize,
    secrets: &'static [&'static str],
}

/// The start of a section in braces that goes on below its line, and how many brackets are open
/// there.
fn open_section(line: &str) -> Option<(usize, usize)> {
    let found = SECTIONS.iter().filter_map(|(key, _)| {
        let (_, start) = find_key(line, &[key])?;
        let depth = closing(&line[start..], 0).err()?;
        line[start..].starts_with('{').then_some((start, depth))
    });
    found.min()
}

/// The section that a line begins, or is below of.
fn section_of(line: &str, before: Option<Section>) -> Option<Section> {
    let begun = SECTIONS.iter().filter_map(|(key, secrets)| {
        let (column, _) = find_key(line, &[key])?;
        Some(Section { column, secrets })
    });
    let goes_on = |section: &Section| indent(line) > section.column || line.trim().is_empty();
    begun
        .min_by_key(|section| section.column)
        .or(before.filter(goes_on))
}

/// The secret keys that a line may have: those of its section, and of all that it begins itself.
fn secret_keys(line: &str, section: Option<Section>) -> Vec<&'static str> {
    let begun = SECTIONS
        .iter()
        .filter(|(key, _)| find_key(line, &[key]).is_some());
    let below = begun.flat_map(|(_, secrets)| secrets.iter());
    let inside = section.into_iter().flat_map(|section| section.secrets);
    SECRETS.iter().chain(below).chain(inside).copied().collect()
}

/// Puts stars in place of the values of secret keys in a line. Also returns what may continue below.
fn value(line: &str, keys: &[&str], is_flow: bool) -> (String, Option<Rest>) {
    let Some((key, start)) = find_key(line, keys) else {
        return (line.to_owned(), None);
    };
    let value = &line[start..];
    let is_flow = is_flow || line[..key].contains('{');
    let (length, below) = length(value, is_flow);
    let (held, rest) = value.split_at(length);
    let (rest, later) = self::value(rest, keys, is_flow);
    let shown = match names_variables(held) {
        true => held.to_owned(),
        false => held.chars().flat_map(star).collect(),
    };
    let below = match below {
        Below::Nothing => None,
        Below::Deeper => Some(Rest::Deeper(key)),
        Below::Brackets(depth) => Some(Rest::Brackets(depth)),
    };
    let later = later.map(|later| match later {
        Rest::Deeper(_) => Rest::Deeper(key),
        later @ Rest::Brackets(_) => later,
    });
    (format!("{}{shown}{rest}", &line[..start]), later.or(below))
}

/// The start of the first of these keys in a line, and of its value.
fn find_key(line: &str, keys: &[&str]) -> Option<(usize, usize)> {
    let found = keys.iter().flat_map(|key| {
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

/// The continuation of a value below its line.
enum Below {
    Nothing,
    Deeper,
    Brackets(usize),
}

/// The bytes of a value at the start of `value`, and its continuation.
fn length(value: &str, is_flow: bool) -> (usize, Below) {
    let all = value.trim_end_matches(['\r', '\n']).len();
    match value.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let closing = value[1..].find(quote).map(|at| at + 2);
            // A quote inside may be doubled or escaped.
            match closing.filter(|at| is_end(&value[*at..])) {
                Some(end) => (end, Below::Nothing),
                None => (all, Below::Deeper),
            }
        }
        Some('[' | '{') => match closing(value, 0) {
            Ok(end) if is_flow && is_end(&value[end..]) => (end, Below::Nothing),
            Ok(_) => (all, Below::Deeper),
            Err(depth) => (all, Below::Brackets(depth)),
        },
        Some(_) if is_flow => (value.find([',', '}']).unwrap_or(all), Below::Nothing),
        _ => (all, Below::Deeper),
    }
}

/// True if no value goes on with this text.
fn is_end(text: &str) -> bool {
    let text = text.trim_start();
    text.is_empty() || text.starts_with([',', '}', ']', '#'])
}

/// The end of the brackets in `text`, of which `depth` are open before it; the number of open ones
/// if they do not end. Brackets in quotes may count: then too much is hidden.
fn closing(text: &str, mut depth: usize) -> Result<usize, usize> {
    for (at, c) in text.char_indices() {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return Ok(at + 1);
        }
    }
    Err(depth)
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
    fn tokens_are_hidden_however_they_are_written() {
        for (text, shown) in [
            (
                "admin: { tokens: { read: [abc, \"d\"], write: [e] }, address: a }",
                "admin: { tokens: { read: ***** ****, write: *** }, address: a }",
            ),
            (
                "tokens: { read: [abc,\n  d], write: [\ne] }\nwrite: x",
                "tokens: * ***** *****\n  *** ****** *\n** *\nwrite: x",
            ),
            (
                "tokens:\n  read: [abc]\n  write:\n  - d\n  - { file: e }\nread: x",
                "tokens:\n  read: *****\n  write:\n  * *\n  * * ***** * *\nread: x",
            ),
            (
                "tokens: {\n read: [abc],\n\"write\":\n[d]\n}\nread: x",
                "tokens: *\n ***** ******\n********\n***\n*\nread: x",
            ),
            (
                "tokens: { write: \"${TOKEN}\" }",
                "tokens: { write: \"${TOKEN}\" }",
            ),
            (
                "debug: { header: x-a, token: hunter2hunter2 }\nroutes: []",
                "debug: { header: x-a, token: ************** }\nroutes: []",
            ),
            (
                "debug:\n  token:\n    file: /run/a\nroutes: []",
                "debug:\n  token:\n    ***** ******\nroutes: []",
            ),
            (
                "policies:\n  read: { quota: 1/s }\n  tokens: { quota: 2/s }\n  write: { quota: 3/s }",
                "policies:\n  read: { quota: 1/s }\n  tokens: { quota: 2/s }\n  write: { quota: 3/s }",
            ),
        ] {
            assert_eq!(source(text), shown);
            assert_eq!(source(text).len(), text.len());
        }
    }

    #[test]
    fn fields_of_exports_are_hidden_however_they_are_written() {
        for (text, shown) in [
            (
                "tracing:\n  endpoint: a\n# b\n  headers:\n# c\n    x-key: Bearer d\nroutes: e",
                "tracing:\n  endpoint: a\n# b\n  headers:\n# c\n    ****** ****** *\nroutes: e",
            ),
            (
                "tracing: { endpoint: a, headers: { x: b, y: \"c d\" }, timeout: 1s }",
                "tracing: { endpoint: a, headers: * ** ** ** ** ** *, timeout: 1s }",
            ),
            (
                "tracing: { endpoint: a,\n  headers: { x: b } }\nroutes: e",
                "tracing: * ********* **\n  ******** * ** * * *\nroutes: e",
            ),
            (
                "{ admin: { tokens: { read: [a] } }, tracing: { headers: { x: b } } }",
                "{ admin: { tokens: { read: *** } }, tracing: { headers: * ** * * } }",
            ),
            (
                "tracing: { timeout: 1s }\nresponses: { headers: [ietf] }",
                "tracing: { timeout: 1s }\nresponses: { headers: [ietf] }",
            ),
            (
                "tokens:\n  read:\n  - a\n# b\n  - c\nroutes: e",
                "tokens:\n  read:\n  * *\n# b\n  * *\nroutes: e",
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
        fn every_byte_keeps_its_place(text in "([ \\n{},:'\"@/$#|]|password|secret|tokens|read|write|tracing|headers|url|://|ü|x){0,30}") {
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
