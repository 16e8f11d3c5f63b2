//! Texts of others, shown so that a reader sees what they consist of: as `\u202e` stand characters that
//! are invisible, move the cursor or reorder letters, and in keys also those that look like others.
//!
//! A key that is shown so leads back to its bytes: a backslash before `u`, another or an escape is doubled. The
//! dashboard has the same tables (`js/visible.js`), and a test in a browser compares them.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::LazyLock;

/// Characters that nobody sees, or that move text: controls, white space beside the space, format
/// characters (Unicode UAX #9 and #44), variation selectors, private use.
static HIDDEN: Ranges = LazyLock::new(|| {
    ranges(
        "\
    0-1f 7f-a0 ad 34f 600-605 61c 6dd 70f 890-891 8e2 115f-1160 1680 17b4-17b5 180b-180f \
    2000-200f 2028-202f 205f-206f 2800 3000 3164 d800-f8ff fe00-fe0f feff ffa0 fff0-fffc \
    fffe-ffff 110bd 110cd 13430-1343f 1bca0-1bca3 1d159 1d173-1d17a e0000-10ffff",
    )
});

/// Characters that look like others, or like part of a neighbour: combining marks of no script of
/// their own, phonetic and mathematical letters, full-width forms, punctuation beside ASCII.
static LOOK_ALIKES: Ranges = LazyLock::new(|| {
    ranges(
        "\
    aa ba 131 138 149 17f 250-34e 350-36f 483-489 1ab0-1aff 1d00-1dff 2010-2027 2030-205e \
    20d0-20ff 2100-218b 2212 2215-2217 2223 2236 2460-24ff 2c60-2c7f a720-a7ff ab30-ab6f \
    fe20-fe2f ff01-ff5e 1d400-1d7ff",
    )
});

/// Characters that stand beside ASCII letters in one word and look like none of these: Latin letters with
/// marks, East Asian scripts, symbols.
static BESIDE_ASCII: Ranges = LazyLock::new(|| {
    ranges(
        "\
    a1-bf c0-17e 1a0-1a1 1af-1b0 218-21b 1e00-1ef9 2190-2bff 2e80-318f 31a0-31ff 3400-9fff \
    ac00-d7a3 f900-faff 1f000-1faff 20000-3ffff",
    )
});

/// Cyrillic, Greek and Armenian letters that look like Latin ones. A word of them alone is no word.
const LIKE_LATIN: &str = "\
    \u{430}\u{435}\u{43e}\u{440}\u{441}\u{443}\u{445}\u{456}\u{458}\u{455}\u{4bb}\
    \u{501}\u{51b}\u{51d}\u{4cf}\u{475}\u{410}\u{412}\u{415}\u{405}\u{406}\u{408}\
    \u{41a}\u{41c}\u{41d}\u{41e}\u{420}\u{421}\u{422}\u{423}\u{425}\u{50c}\u{51a}\
    \u{51c}\u{391}\u{392}\u{395}\u{396}\u{397}\u{399}\u{39a}\u{39c}\u{39d}\u{39f}\
    \u{3a1}\u{3a4}\u{3a5}\u{3a7}\u{3bf}\u{3bd}\u{585}\u{57d}\u{578}\u{570}";

/// The first and the last character of each range, in order.
type Ranges = LazyLock<Vec<(u32, u32)>>;

/// Reads ranges of code points, as in `0-1f ad`.
fn ranges(text: &str) -> Vec<(u32, u32)> {
    let code = |digits: &str| u32::from_str_radix(digits, 16).expect("hexadecimal digits");
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        (code(first), code(last))
    };
    text.split(' ').map(range).collect()
}

fn is_in(ranges: &[(u32, u32)], letter: char) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= u32::from(letter));
    after > 0 && u32::from(letter) <= ranges[after - 1].1
}

/// True for a character that nobody sees, or that moves text.
pub fn is_hidden(letter: char) -> bool {
    is_in(&HIDDEN, letter)
}

/// The characters of a key, each with true if it is not what it looks like.
pub fn marked(key: &str) -> Vec<(char, bool)> {
    let mark = |letter| (letter, is_hidden(letter) || is_in(&LOOK_ALIKES, letter));
    let mut marked: Vec<_> = key.chars().map(mark).collect();
    let last = marked.len().saturating_sub(1);
    for place in 0..marked.len() {
        let is_after_space = |place: usize| place == 0 || marked[place - 1].0 == ' ';
        if marked[place].0 == ' ' && (place == last || is_after_space(place)) {
            marked[place].1 = true;
        }
    }
    let is_of_word =
        |(letter, _): &(char, bool)| letter.is_ascii_alphanumeric() || *letter > '\u{a0}';
    for word in marked.chunk_by_mut(|one, next| is_of_word(one) == is_of_word(next)) {
        let is_latin = word.iter().any(|(letter, _)| letter.is_ascii_alphabetic());
        let mut others = word.iter().filter(|(letter, _)| !letter.is_ascii_digit());
        let is_disguised = others.all(|(letter, _)| LIKE_LATIN.contains(*letter));
        for (letter, is_marked) in word.iter_mut().filter(|(letter, _)| !letter.is_ascii()) {
            *is_marked |= is_disguised || is_latin && !is_in(&BESIDE_ASCII, *letter);
        }
    }
    marked
}

/// A key as people should see it.
pub fn key(key: &str) -> String {
    let marked = marked(key);
    let mut shown = String::with_capacity(key.len());
    for (place, &(letter, is_marked)) in marked.iter().enumerate() {
        let next = marked.get(place + 1);
        let begins_escape = next.is_some_and(|next| next.1 || matches!(next.0, 'u' | '\\'));
        match letter {
            _ if is_marked => push_escape(&mut shown, letter),
            '\\' if begins_escape => shown.push_str("\\\\"),
            _ => shown.push(letter),
        }
    }
    shown
}

/// A text without characters that are invisible, break a line, move a terminal's cursor or reorder
/// letters.
pub fn text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_hidden(letter) {
            push_escape(&mut shown, letter)
        } else {
            shown.push(letter)
        }
    }
    shown
}

/// The first `most` characters of a text, and an ellipsis if there are more.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// A field's name or value without the spaces and tabs around it (RFC 9110 section 5.5). Other white
/// space is part of it.
pub fn trim_spaces(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

fn push_escape(shown: &mut String, letter: char) {
    let code = u32::from(letter);
    let written = match code {
        ..=0xffff => write!(shown, "\\u{code:04x}"),
        _ => write!(shown, "\\u{{{code:x}}}"),
    };
    written.expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::visibility;

    /// The key that is shown so.
    fn unshown(mut shown: &str) -> String {
        let mut key = String::new();
        while let Some(letter) = shown.chars().next() {
            let rest = &shown[letter.len_utf8()..];
            let code = rest.strip_prefix('u').filter(|_| letter == '\\');
            let code = code.map(|code| match code.strip_prefix('{') {
                Some(code) => code.split_once('}').expect("a brace"),
                None => code.split_at(4),
            });
            (key, shown) = match code {
                Some((digits, rest)) => {
                    let code = u32::from_str_radix(digits, 16).expect("digits");
                    key.push(char::from_u32(code).expect("a character"));
                    (key, rest)
                }
                None => {
                    key.push(letter);
                    let is_doubled = letter == '\\' && rest.starts_with('\\');
                    (key, if is_doubled { &rest[1..] } else { rest })
                }
            };
        }
        key
    }

    #[test]
    fn what_is_not_as_it_looks_is_escaped() {
        for (key, shown) in [
            ("alice", "alice"),
            ("a b c", "a b c"),
            (" lead", "\\u0020lead"),
            ("trail ", "trail\\u0020"),
            ("two  spaces", "two \\u0020spaces"),
            ("\tx\n", "\\u0009x\\u000a"),
            ("a\u{a0}b", "a\\u00a0b"),
            ("x\u{202e}y", "x\\u202ey"),
            ("a\u{200b}b\u{feff}", "a\\u200bb\\ufeff"),
            ("l\u{435}ad", "l\\u0435ad"),
            (
                "\u{441}\u{43e}\u{440}\u{430}",
                "\\u0441\\u043e\\u0440\\u0430",
            ),
            ("\u{ff41}lice", "\\uff41lice"),
            ("\u{1d41a}", "\\u{1d41a}"),
            ("caf\u{65}\u{301}", "cafe\\u0301"),
            ("key\u{2010}1", "key\\u20101"),
            ("\u{e0041}", "\\u{e0041}"),
            ("привет-alice", "привет-alice"),
            ("Zoë Straße Łódź", "Zoë Straße Łódź"),
            ("東京alice ユーザー1", "東京alice ユーザー1"),
            ("\u{1f600}x", "\u{1f600}x"),
            ("a\\b", "a\\b"),
            ("a\\u0020", "a\\\\u0020"),
            ("a\\\\b", "a\\\\\\b"),
            ("\\\u{202e}", "\\\\\\u202e"),
        ] {
            assert_eq!(super::key(key), shown, "{key:?}");
        }
    }

    /// The dashboard's `visible.js` does the same: a test in a browser reads the same file.
    /// `UPDATE_EXPECTED=1` writes it.
    #[test]
    fn every_character_is_shown_as_in_the_file_that_pages_are_compared_with() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/visible.txt");
        let bits = |letter| {
            let keys = [
                format!("{letter}"),
                format!("a{letter}b"),
                format!(" {letter}"),
                format!("\u{44f}{letter}\u{43e}"),
                format!("\u{43e}{letter}"),
            ];
            let escaped = keys.iter().map(|key| super::key(key) != **key);
            let bits = escaped
                .enumerate()
                .map(|(place, one)| u32::from(one) << place);
            bits.sum()
        };
        let found = visibility::written(bits, super::key);
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&path, &found).expect("the fixtures can be written");
        }
        let expected = std::fs::read_to_string(&path).expect("the file is there");
        assert!(expected == found, "{} is old", path.display());
    }

    #[test]
    fn ranges_are_in_order() {
        for ranges in [&HIDDEN, &LOOK_ALIKES, &BESIDE_ASCII] {
            assert!(ranges.is_sorted_by(|one, next| one.1 < next.0));
            assert!(ranges.iter().all(|(first, last)| first <= last));
        }
    }

    #[test]
    fn texts_of_others_neither_move_the_cursor_nor_reorder_letters() {
        for harmful in [
            '\0', '\n', '\u{1b}', '\u{7f}', '\u{9b}', '\u{61c}', '\u{200e}', '\u{2029}', '\u{2066}',
        ] {
            let code = u32::from(harmful);
            assert_eq!(text(&format!("a{harmful}b")), format!("a\\u{code:04x}b"));
        }
        let sound = "Zoë \u{5d0} \u{1f600}  e\u{301} \\u";
        assert_eq!(text(sound), sound);
    }

    proptest! {
        #[test]
        fn a_shown_key_leads_back_to_its_bytes(key in "[\\\\ u{}20a-f\u{435}\u{202e}\u{e0041}]{0,12}|.{0,12}") {
            prop_assert_eq!(unshown(&super::key(&key)), key);
        }
    }
}
