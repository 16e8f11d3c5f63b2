//! Whole configurations: the files in `tests/fixtures/config`, the documentation, and very large ones.

mod files;
mod include;
mod lints;
mod many_mistakes;
mod many_overrides;
mod secrets;
