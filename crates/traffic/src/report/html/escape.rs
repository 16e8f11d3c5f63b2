//! Texts and numbers in HTML.

use std::fmt::{self, Display, Formatter, Write};

/// A text, escaped for contents and for attributes in quotes. Control characters are left out.
#[derive(Debug)]
pub(super) struct Text<'a>(pub &'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(letter)?,
                letter if letter.is_control() || is_directional(letter) => {
                    f.write_char('\u{fffd}')?
                }
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// True for characters that change the order of others around them.
fn is_directional(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A number in groups of three digits, with a space that doesn't break.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        let text = Text("<script>'a'&\"b\"</script>\u{0}\u{202e}\u{1b}[31m").to_string();
        let expected = "&lt;script&gt;&#39;a&#39;&amp;&quot;b&quot;&lt;/script&gt;\u{fffd}\u{fffd}\u{fffd}[31m";
        assert_eq!(text, expected);
    }

    #[test]
    fn digits_are_grouped() {
        let counts = [0, 999, 1_000, 1_234_567].map(count);
        assert_eq!(
            counts,
            ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]
        );
    }
}
