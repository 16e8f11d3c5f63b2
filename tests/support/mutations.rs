//! Almost valid messages, cut into pieces, for tests of parsers.

use proptest::prelude::*;
use proptest::sample::Index;

/// A message with a few bytes changed.
pub(crate) fn mutated(whole: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<Index>(), 0..4_u8, significant_byte());
    (whole, prop::collection::vec(change, 0..4)).prop_map(|(mut text, changes)| {
        for change in changes {
            mutate(&mut text, change);
        }
        text
    })
}

/// A change of one byte: another, one more, one less, or the end.
fn mutate(text: &mut Vec<u8>, (place, how, byte): (Index, u8, u8)) {
    if text.is_empty() {
        return;
    }
    let at = place.index(text.len());
    match how {
        0 => text[at] = byte,
        1 => text.insert(at, byte),
        2 => drop(text.remove(at)),
        _ => text.truncate(at),
    }
}

/// Bytes with a meaning in HTTP, or any other.
fn significant_byte() -> impl Strategy<Value = u8> {
    let telling = b"\r\n :;,0159aAfF\t\0\x7f\xff+-\"".to_vec();
    prop_oneof![prop::sample::select(telling), any::<u8>()]
}

/// Where a message is cut.
pub(crate) fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 0..6)
}

/// The pieces of `text` between `cuts`.
pub(crate) fn pieces<'a>(text: &'a [u8], cuts: &[Index]) -> impl Iterator<Item = &'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    cuts.dedup();
    let ends = cuts.clone().into_iter().skip(1);
    cuts.into_iter()
        .zip(ends)
        .map(|(start, end)| &text[start..end])
}
