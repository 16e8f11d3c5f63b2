//! Terminals: whether one takes colours, and a cursor that moves.

use std::ffi::OsString;
use std::io::IsTerminal;

/// Returns whether texts on `stream` may have colours: on a terminal, unless `NO_COLOR`
/// (no-color.org) or `TERM=dumb` says otherwise; `CLICOLOR_FORCE` asks for them elsewhere too.
pub fn has_colours(stream: &impl IsTerminal) -> bool {
    wants_colours(stream.is_terminal(), |name| std::env::var_os(name))
}

/// Returns whether a line on `stream` can be written over.
pub fn has_cursor(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && !is_dumb(&|name| std::env::var_os(name))
}

fn wants_colours(is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
    let is_forced =
        is_set("CLICOLOR_FORCE") && variable("CLICOLOR_FORCE").is_none_or(|it| it != "0");
    !is_set("NO_COLOR") && (is_forced || (is_terminal && !is_dumb(&variable)))
}

fn is_dumb(variable: &impl Fn(&str) -> Option<OsString>) -> bool {
    variable("TERM").is_some_and(|kind| kind == "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_decides_about_colours() {
        let coloured = |is_terminal, set: &[(&str, &str)]| {
            wants_colours(is_terminal, |name| {
                let set = set.iter().find(|(known, _)| *known == name);
                set.map(|(_, value)| (*value).into())
            })
        };
        assert!(coloured(true, &[]));
        assert!(!coloured(false, &[]));
        assert!(!coloured(true, &[("NO_COLOR", "1")]));
        assert!(coloured(true, &[("NO_COLOR", "")]), "an empty one is none");
        assert!(!coloured(true, &[("TERM", "dumb")]));
        assert!(coloured(true, &[("TERM", "xterm")]));
        assert!(coloured(false, &[("CLICOLOR_FORCE", "1")]));
        assert!(!coloured(false, &[("CLICOLOR_FORCE", "0")]));
        let both = [("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")];
        assert!(!coloured(true, &both), "the wish for none wins");
    }
}
