//! The text of a configuration as it may be shown. A key or a value appears only if the schema knows
//! it and says that it holds no secret; all other words, comments included, stay hidden.

use std::ops::Range;

/// Stands for all that is hidden, whatever its length.
pub const MASK: &str = "***";

/// A stretch of the text with a key or a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stretch {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) content: Content,
}

impl Stretch {
    pub(crate) fn new(span: Range<usize>, content: Content) -> Self {
        let Range { start, end } = span;
        Self {
            start,
            end,
            content,
        }
    }
}

/// The content of a stretch. Where several stretches cover one place, as with aliases, the first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Content {
    /// A secret, or a value that may be one.
    Secret,
    /// A key or a value that the schema doesn't know.
    Unknown,
    /// A key that the schema knows.
    Key,
    /// A value that the schema knows, and no secret.
    Value,
}

/// Sorts stretches, and keeps one for each place.
pub(crate) fn disjoint(mut stretches: Vec<Stretch>) -> Vec<Stretch> {
    stretches.retain(|stretch| stretch.start < stretch.end);
    stretches.sort_unstable();
    let mut disjoint: Vec<Stretch> = Vec::with_capacity(stretches.len());
    for stretch in stretches {
        match disjoint.last_mut() {
            Some(last) if stretch.start < last.end => {
                if stretch.start != last.start || stretch.end != last.end {
                    last.end = last.end.max(stretch.end);
                    last.content = Content::Secret;
                } else {
                    last.content = last.content.min(stretch.content);
                }
            }
            _ => disjoint.push(stretch),
        }
    }
    disjoint
}

/// The reader of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// The owner of the file, on a terminal: sees values that are no secrets.
    Owner,
    /// Anyone who reads logs or asks the admin API: sees keys alone.
    Others,
}

/// A part of a text as it may be shown, and where its bytes have gone.
#[derive(Default)]
pub(super) struct ShownText {
    pub(super) text: String,
    /// Ranges of the original, each with its start in `text`, and true if it is shown as it is.
    pieces: Vec<(Range<usize>, usize, bool)>,
}

impl ShownText {
    /// Shows `range` of a text with these stretches.
    pub(super) fn new(
        text: &str,
        stretches: &[Stretch],
        range: Range<usize>,
        audience: Audience,
    ) -> Self {
        let mut shown = Self::default();
        let mut at = range.start;
        let first = stretches.partition_point(|stretch| stretch.end <= range.start);
        let within = stretches[first..].iter();
        for stretch in within.take_while(|stretch| stretch.start < range.end) {
            let (start, end) = (stretch.start.max(at), stretch.end.min(range.end));
            shown.punctuation(text, at..start);
            let is_shown = match stretch.content {
                Content::Key => true,
                Content::Value => audience == Audience::Owner,
                Content::Secret | Content::Unknown => false,
            };
            if is_shown && start == stretch.start {
                shown.value(text, start..end);
            } else {
                shown.hide(text, start..end);
            }
            at = end;
        }
        shown.punctuation(text, at..range.end);
        shown
    }

    /// The place of a byte of the original.
    pub(super) fn place(&self, offset: usize) -> usize {
        let is_before = |(range, ..): &(Range<usize>, _, _)| range.start <= offset;
        let next = self.pieces.partition_point(is_before);
        let (before, after) = self.pieces.split_at(next);
        let Some((range, start, is_same)) = before.last() else {
            return 0;
        };
        let next = after.first();
        let end = next.map_or(self.text.len(), |(_, start, _)| *start);
        match (offset - range.start, is_same) {
            (0, _) => *start,
            (within, true) => (start + within).min(end),
            (_, false) => end,
        }
    }

    fn copy(&mut self, text: &str, range: Range<usize>) {
        self.pieces.push((range.clone(), self.text.len(), true));
        self.text.push_str(&text[range]);
    }

    /// Puts the mask in place of a stretch. Line breaks stay, so that lines keep their numbers.
    fn hide(&mut self, text: &str, range: Range<usize>) {
        let line_breaks = text[range.clone()].matches('\n').count();
        self.pieces.push((range, self.text.len(), false));
        self.text.push_str(MASK);
        self.text.extend(std::iter::repeat_n('\n', line_breaks));
    }

    /// A value that may be shown. The comment in the head of a block scalar is not a part of it.
    fn value(&mut self, text: &str, range: Range<usize>) {
        let value = &text[range.clone()];
        let head = value.find('\n').unwrap_or(value.len());
        match value[..head].find('#') {
            Some(comment) if value.starts_with(['|', '>']) => {
                let (comment, head) = (range.start + comment, range.start + head);
                self.copy(text, range.start..comment);
                self.pieces.push((comment..head, self.text.len(), false));
                self.copy(text, head..range.end);
            }
            _ => self.copy(text, range),
        }
    }

    /// Shows the signs of YAML between keys and values. Comments are left out, and other words are
    /// hidden.
    fn punctuation(&mut self, text: &str, range: Range<usize>) {
        let (mut at, end) = (range.start, range.end);
        while let Some(next) = text[at..end].chars().next() {
            let rest = &text[at..end];
            let length = match next {
                '#' => rest.find('\n').unwrap_or(rest.len()),
                next if is_sign(next) => rest.find(|c| !is_sign(c)).unwrap_or(rest.len()),
                _ => rest.find(|c| is_sign(c) || c == '#').unwrap_or(rest.len()),
            };
            let piece = at..at + length;
            match next {
                '#' => self.pieces.push((piece, self.text.len(), false)),
                next if is_sign(next) => self.copy(text, piece),
                _ => self.hide(text, piece),
            }
            at += length;
        }
    }
}

fn is_sign(letter: char) -> bool {
    letter.is_ascii_whitespace() || "-?:,[]{}".contains(letter)
}

/// The stretches of a text that is no YAML: of each line at most its first key, if it is one of
/// `keys`. The rest of a line is a secret.
pub(crate) fn stretches_of_lines(text: &str, keys: &[String]) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let next = start + line.len();
        let signs = line.len() - line.trim_start_matches([' ', '\t', '-', '{', '[']).len();
        let word = &line[signs..];
        let end = word.find(|c: char| !c.is_ascii_lowercase() && c != '_');
        let length = end.unwrap_or(word.len());
        let is_key =
            word[length..].starts_with(':') && keys.iter().any(|key| *key == word[..length]);
        let mut rest = signs;
        if is_key {
            let key = start + signs..start + signs + length;
            stretches.push(Stretch::new(key, Content::Key));
            rest = signs + length + 1;
        }
        let rest = line.len() - line[rest..].trim_start().len();
        let end = line.trim_end().len();
        if rest < end {
            stretches.push(Stretch::new(start + rest..start + end, Content::Secret));
        }
        start = next;
    }
    stretches
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str, stretches: &[(usize, usize, Content)], audience: Audience) -> String {
        let stretches = stretches.iter().map(|&(start, end, content)| Stretch {
            start,
            end,
            content,
        });
        let stretches = disjoint(stretches.collect());
        ShownText::new(text, &stretches, 0..text.len(), audience).text
    }

    #[test]
    fn words_that_are_neither_keys_nor_values_are_hidden() {
        let text = "a: &b c # d\ne: !f |- # g\n  h\n  i\n\"j\": *k\n";
        let stretches = [
            (0, 1, Content::Key),
            (6, 7, Content::Value),
            (12, 13, Content::Key),
            (18, 32, Content::Value),
            (33, 36, Content::Unknown),
        ];
        assert_eq!(
            shown(text, &stretches, Audience::Owner),
            "a: *** c \ne: *** |- \n  h\n  i\n***: ***\n"
        );
        assert_eq!(
            shown(text, &stretches, Audience::Others),
            "a: *** *** \ne: *** ***\n\n\n***: ***\n"
        );
    }

    #[test]
    fn a_secret_stays_one_wherever_an_alias_stands_for_it() {
        let stretches = [
            (3, 4, Content::Value),
            (3, 4, Content::Secret),
            (0, 1, Content::Key),
        ];
        assert_eq!(shown("a: b", &stretches, Audience::Owner), "a: ***");
        let overlapping = [(0, 3, Content::Value), (1, 4, Content::Value)];
        assert_eq!(shown("a: b", &overlapping, Audience::Owner), "***");
    }

    #[test]
    fn lines_of_a_broken_file_show_their_keys_alone() {
        let text = "admin:\n  - token: a: b\n\tc\npassword hunter2\n  {password: [\n";
        let keys = ["admin", "token", "password"].map(str::to_owned);
        let stretches = stretches_of_lines(text, &keys);
        let shown = ShownText::new(text, &stretches, 0..text.len(), Audience::Owner);
        assert_eq!(
            shown.text,
            "admin:\n  - token: ***\n\t***\n***\n  {password: ***\n"
        );
    }

    proptest! {
        #[test]
        fn no_word_escapes_and_places_stay_in_order(
            text in "[ \\n{},:'\"#|&*!a-cü-]{0,40}",
            cuts in prop::collection::vec((0..40_usize, 0..40_usize, 0..4_u8), 0..6),
        ) {
            let kinds = [Content::Secret, Content::Key, Content::Value, Content::Unknown];
            let stretches = cuts.into_iter().map(|(a, b, kind)| Stretch {
                start: text.floor_char_boundary(a.min(b)),
                end: text.floor_char_boundary(a.max(b)),
                content: kinds[kind as usize],
            });
            let stretches = disjoint(stretches.collect());
            let shown = ShownText::new(&text, &stretches, 0..text.len(), Audience::Others);
            let of_keys = stretches.iter().filter(|one| one.content == Content::Key);
            let letters = |text: &str| text.chars().filter(|c| c.is_alphabetic()).count();
            let allowed: usize = of_keys.map(|one| letters(&text[one.start..one.end])).sum();
            prop_assert!(letters(&shown.text) <= allowed, "{}", shown.text);
            prop_assert_eq!(text.matches('\n').count(), shown.text.matches('\n').count());
            let places: Vec<_> = (0..=text.len()).map(|at| shown.place(at)).collect();
            prop_assert!(places.is_sorted() && places.iter().all(|at| *at <= shown.text.len()));
        }
    }
}
