//! Replaces `${NAME}` and `${NAME:-default}` in values; `$${` is a literal `${`. Replacement
//! happens once, after parsing: the text of a variable is never YAML, and its own variables stay.

/// The error for a variable that cannot be replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VariableError {
    pub(super) message: String,
    pub(super) help: String,
}

/// Replaces every variable of a text; `None` if it has none.
///
/// An empty variable counts as unset if there is a default, as in a shell.
pub(super) fn replace(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<String>, VariableError> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, reference) = rest.split_at(at);
        if let Some(literal) = before.strip_suffix('$') {
            result.push_str(literal);
            result.push_str("${");
            rest = &reference[2..];
            continue;
        }
        result.push_str(before);
        let (inside, after) = reference[2..].split_once('}').ok_or_else(unclosed)?;
        result.push_str(&value_of(inside, lookup)?);
        rest = after;
    }
    result.push_str(rest);
    Ok(Some(result))
}

/// True for `${NAME}` alone, with or without quotes: what it stands for is elsewhere.
pub(super) fn is_only_name(written: &str) -> bool {
    let quoted = |quote| written.strip_prefix(quote)?.strip_suffix(quote);
    let bare = quoted('"').or_else(|| quoted('\'')).unwrap_or(written);
    let name = bare.strip_prefix("${");
    let name = name.and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(is_name)
}

fn value_of(
    inside: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<String, VariableError> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if default.is_some_and(|default| default.contains("${")) {
        return Err(VariableError {
            message: format!("the default of `{name}` has a variable of its own"),
            help: "write the default as it is; it may have no `${`".to_owned(),
        });
    }
    if !is_name(name) {
        return Err(VariableError {
            message: "`${` without the name of an environment variable".to_owned(),
            help: "a variable is written `${NAME}` or `${NAME:-default}`; write `$${` for a literal `${`".to_owned(),
        });
    }
    match (lookup(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(VariableError {
            message: format!("the environment variable `{name}` is not set"),
            help: format!("set it, or give a default: `${{{name}:-default}}`"),
        }),
    }
}

fn unclosed() -> VariableError {
    VariableError {
        message: "`${` without a closing `}`".to_owned(),
        help: "close it, or write `$${` for a literal `${`".to_owned(),
    }
}

fn is_name(name: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_first) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(text: &str) -> Result<Option<String>, String> {
        let lookup = |name: &str| match name {
            "HOST" => Some("example.com".to_owned()),
            "EMPTY" => Some(String::new()),
            "SNEAKY" => Some("${HOST}".to_owned()),
            _ => None,
        };
        replace(text, &lookup).map_err(|error| error.message)
    }

    #[test]
    fn replaces_each_variable_once() {
        assert_eq!(
            replaced("a ${HOST}:${PORT:-80}"),
            Ok(Some("a example.com:80".to_owned()))
        );
        assert_eq!(replaced("${SNEAKY}"), Ok(Some("${HOST}".to_owned())));
        assert_eq!(replaced("no $HOST here"), Ok(None));
    }

    #[test]
    fn takes_the_default_for_unset_and_empty_variables() {
        assert_eq!(replaced("${NONE:-}"), Ok(Some(String::new())));
        assert_eq!(replaced("${EMPTY:-x}"), Ok(Some("x".to_owned())));
        assert_eq!(replaced("${EMPTY}"), Ok(Some(String::new())));
    }

    #[test]
    fn escapes_with_two_dollars() {
        assert_eq!(
            replaced("$${HOST} ${HOST}"),
            Ok(Some("${HOST} example.com".to_owned()))
        );
    }

    #[test]
    fn refuses_unset_unclosed_and_unnamed_variables() {
        assert_eq!(
            replaced("${NONE}"),
            Err("the environment variable `NONE` is not set".to_owned())
        );
        assert_eq!(
            replaced("${HOST"),
            Err("`${` without a closing `}`".to_owned())
        );
        assert_eq!(
            replaced("${NONE:-${HOST}}"),
            Err("the default of `NONE` has a variable of its own".to_owned())
        );
        assert_eq!(
            replaced("${1}"),
            Err("`${` without the name of an environment variable".to_owned())
        );
    }
}
