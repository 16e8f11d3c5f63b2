//! Which characters of keys are escaped where they are shown, as `tests/fixtures/visible.txt` has it.

use std::fmt::Write;
use std::ops::Range;

/// The compared characters. What is between is not assigned, or hidden as a whole.
pub const COMPARED: [Range<u32>; 4] = [
    0..0xd800,
    0xe000..0x18000,
    0x1b000..0x20100,
    0xe0000..0xe0200,
];

/// Keys with backslashes among them.
pub const TEXTS: [&str; 8] = [
    "a\\b",
    "\\u0020",
    "\\\\u",
    "\\\\",
    "a  b ",
    "a\\ ",
    "\\\u{202e}",
    "\u{1d41a}\u{435}x \u{e0041}",
];

/// The file: for each range of characters that are treated alike, the first and its `bits`; then the
/// [`TEXTS`] as they are shown. There is a bit for each key with the character that is not shown as it is:
/// alone, in a Latin word, after a space, in a Cyrillic word and at the end of one.
pub fn written(bits: impl Fn(char) -> u32, shown: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut last = None;
    for letter in COMPARED.into_iter().flatten().filter_map(char::from_u32) {
        let bits = bits(letter);
        if last.replace(bits) != Some(bits) {
            writeln!(text, "{:x} {bits}", u32::from(letter)).expect("a text grows");
        }
    }
    for key in TEXTS {
        writeln!(text, "{}", shown(key)).expect("a text grows");
    }
    text
}
