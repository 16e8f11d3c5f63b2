//! Tables of text.

use std::ops::Range;

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
    let rows: Vec<_> = [heads.map(str::to_owned)].into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or_default());
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).enumerate();
        let cells = cells.map(|(column, (text, width))| {
            if numbers.contains(&column) {
                format!("{text:>width$}")
            } else {
                format!("{text:<width$}")
            }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}
