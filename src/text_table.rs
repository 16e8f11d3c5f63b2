//! Tables of text: advice for words, examples, summaries. A row is a line, with ` | ` between its
//! cells.

/// The rows of a table, each of `N` cells.
pub fn rows<const N: usize>(table: &'static str) -> impl Iterator<Item = [&'static str; N]> {
    table.lines().map(|row| {
        let mut cells = row.splitn(N, " | ");
        std::array::from_fn(|_| cells.next().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_all_cells() {
        fn check<const N: usize>(table: &'static str) {
            assert!(!table.is_empty());
            for row in rows::<N>(table) {
                let is_cell = |cell: &str| !cell.is_empty() && !cell.contains(" | ");
                assert!(row.into_iter().all(is_cell), "{row:?}");
            }
        }
        check::<3>(include_str!("config/tables/foreign_keys.txt"));
        check::<3>(include_str!("config/tables/misplaced_keys.txt"));
        check::<2>(include_str!("config/tables/missing_keys.txt"));
        check::<2>(include_str!("config/tables/syntax_errors.txt"));
        check::<2>(include_str!("admin/operations.txt"));
    }
}
