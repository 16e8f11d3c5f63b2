//! Reading the list of policies in a field of the draft, as far as it takes to know that it is one.

/// True for a list (RFC 9651 section 3.1) of policies, as in the draft from -08 on: each is a quoted
/// name with parameters, such as `"a";r=50;t=30`. Earlier drafts have `limit=100, remaining=50`, or
/// numbers.
pub(super) fn is_list_of_policies(value: &[u8]) -> bool {
    let mut rest = value;
    loop {
        let Some(after) = policy(rest.trim_ascii_start()) else {
            return false;
        };
        rest = match after.trim_ascii_start() {
            [] => return true,
            [b',', rest @ ..] => rest,
            _ => return false,
        };
    }
}

/// The text after a policy.
fn policy(text: &[u8]) -> Option<&[u8]> {
    let mut rest = string(text)?;
    while let [b';', parameter @ ..] = rest {
        let parameter = parameter.trim_ascii_start();
        let begins_key = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'*';
        let is_in_key =
            |byte: &u8| begins_key(byte) || byte.is_ascii_digit() || b"_-.".contains(byte);
        parameter.first().filter(|byte| begins_key(byte))?;
        let end = parameter.iter().position(|byte| !is_in_key(byte));
        rest = &parameter[end.unwrap_or(parameter.len())..];
        if let [b'=', value @ ..] = rest {
            rest = bare_item(value)?;
        }
    }
    Some(rest)
}

/// The text after a parameter's value: a string, or a number, token, boolean or byte sequence.
fn bare_item(text: &[u8]) -> Option<&[u8]> {
    let is_bytes = match text.first()? {
        b'"' => return string(text),
        first => *first == b':',
    };
    let is_part = |byte: &u8| byte.is_ascii_graphic() && !b"\";,=\\".contains(byte);
    // Byte sequences are padded with `=`.
    let is_end = |byte: &u8| !(is_part(byte) || is_bytes && *byte == b'=');
    let end = text.iter().position(is_end).unwrap_or(text.len());
    (end > 0).then(|| &text[end..])
}

/// The text after a quoted string.
fn string(text: &[u8]) -> Option<&[u8]> {
    let [b'"', rest @ ..] = text else {
        return None;
    };
    let mut bytes = rest.iter().enumerate();
    loop {
        match bytes.next()? {
            (at, b'"') => return Some(&rest[at + 1..]),
            (_, b'\\') => {
                bytes
                    .next()
                    .filter(|(_, byte)| matches!(byte, b'"' | b'\\'))?;
            }
            (_, b' '..=b'~') => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_draft_are_told_from_everything_else() {
        for list in [
            r#""a";r=50;t=30"#,
            r#""a";r=50;t=30, "b";r=0"#,
            r#""a"; r=50 ,"b\"\\c";q=1;w=60;qu="tokens";pk=:cHsdsRa894==:"#,
            r#""a""#,
        ] {
            assert!(is_list_of_policies(list.as_bytes()), "{list}");
        }
        for other in [
            "",
            "limit=10, remaining=3, reset=50",
            "10;w=60",
            "a;r=50",
            r#""a";r=50,"#,
            r#""a";r=50,, "b";r=1"#,
            r#""a";r=50 "b";r=1"#,
            r#""a;r=50"#,
            r#""a";"#,
            r#""a";r="#,
            r#""a";R=1"#,
            "\"a\u{7f}\";r=1",
        ] {
            assert!(!is_list_of_policies(other.as_bytes()), "{other}");
        }
    }
}
