//! Tables of text.

use std::ops::Range;

use ratatui::text::Span;

/// The narrowest column of texts that are cut.
const LEAST: usize = 5;

/// Rows below their heads, in columns, of which `numbers` are aligned to the right; nothing without
/// rows.
pub(super) fn table<const N: usize>(
    heads: [&str; N],
    rows: Vec<[String; N]>,
    numbers: Range<usize>,
) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let rows = [heads.map(str::to_owned)].into_iter().chain(rows);
    let lines = aligned(rows.map(Vec::from).collect(), numbers, usize::MAX).into_iter();
    lines.map(|line| line + "\n").collect()
}

/// Lines for rows whose first one has all columns. They are at most `width` wide unless numbers are: the
/// widest texts are cut.
pub(super) fn aligned(rows: Vec<Vec<String>>, numbers: Range<usize>, width: usize) -> Vec<String> {
    let columns = 0..rows.first().map_or(0, Vec::len);
    let widest = |column: usize| rows.iter().map(|row| width_of(&row[column])).max();
    let mut widths: Vec<_> = columns.clone().filter_map(widest).collect();
    while widths.iter().sum::<usize>() + 2 * (widths.len() - 1) > width {
        let texts = columns.clone().filter(|column| !numbers.contains(column));
        match texts.max_by_key(|column| widths[*column]) {
            Some(widest) if widths[widest] > LEAST => widths[widest] -= 1,
            _ => break,
        }
    }
    let line = |row: Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (text, width))| {
            let text = fit(text, *width);
            let space = " ".repeat(width - width_of(&text));
            if numbers.contains(&column) {
                space + &text
            } else {
                text + &space
            }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        line.trim_end().to_owned()
    };
    rows.into_iter().map(line).collect()
}

/// The columns of a terminal that a text takes.
pub(super) fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// The beginning of a text that fits into `width` columns of a terminal, with an ellipsis if it is cut.
pub(super) fn fit(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let mut used = 1;
    let begin = text.chars().take_while(|letter| {
        used += width_of(letter.encode_utf8(&mut [0; 4]));
        used <= width
    });
    begin.chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_are_as_wide_as_terminals_show_them() {
        let rows = [["KEY", "N"], ["東京東京東京", "1"], ["b", "23"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec()).to_vec();
        let whole = aligned(rows.clone(), 1..2, 80);
        assert_eq!(
            whole,
            ["KEY            N", "東京東京東京   1", "b             23"]
        );
        let cut = aligned(rows, 1..2, 12);
        assert_eq!(cut, ["KEY        N", "東京東…    1", "b         23"]);
    }
}
