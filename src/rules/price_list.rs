//! Prices of language models, from a table in CSV.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Decimal, Head, InvalidCost, KeyPart, Lookup};

/// The prices of one model, in dollars per million tokens: millionths of a dollar per token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// Tokens that the model reads.
    pub input: Decimal,
    /// Tokens that it reads from a cache.
    pub cached_input: Decimal,
    /// Tokens that it reads and writes to a cache.
    pub cache_write: Decimal,
    /// Tokens that it reads and writes to a cache for an hour.
    pub cache_write_1h: Decimal,
    /// Tokens that it generates.
    pub output: Decimal,
}

/// Tokens of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Tokens read, without those below.
    pub input: u64,
    /// Tokens read from a cache.
    pub cached_input: u64,
    /// Tokens read and written to a cache.
    pub cache_write: u64,
    /// Tokens read and written to a cache for an hour.
    pub cache_write_1h: u64,
    /// Tokens generated, those of reasoning included.
    pub output: u64,
}

impl Price {
    /// One unit for each token.
    pub const OF_TOKENS: Self = Price {
        input: Decimal::ONE,
        cached_input: Decimal::ONE,
        cache_write: Decimal::ONE,
        cache_write_1h: Decimal::ONE,
        output: Decimal::ONE,
    };

    /// One unit for each token that is read.
    pub const OF_INPUT: Self = Price {
        output: Decimal::ZERO,
        ..Self::OF_TOKENS
    };

    /// One unit for each token that is generated.
    pub const OF_OUTPUT: Self = Price {
        input: Decimal::ZERO,
        cached_input: Decimal::ZERO,
        cache_write: Decimal::ZERO,
        cache_write_1h: Decimal::ZERO,
        ..Self::OF_TOKENS
    };

    /// The cost of these tokens, rounded up once.
    pub fn of(&self, usage: TokenUsage) -> u32 {
        Decimal::weighted_sum([
            (usage.input, self.input),
            (usage.cached_input, self.cached_input),
            (usage.cache_write, self.cache_write),
            (usage.cache_write_1h, self.cache_write_1h),
            (usage.output, self.output),
        ])
    }

    /// The higher price of each kind of token.
    fn dearest(self, other: Self) -> Self {
        Price {
            input: self.input.max(other.input),
            cached_input: self.cached_input.max(other.cached_input),
            cache_write: self.cache_write.max(other.cache_write),
            cache_write_1h: self.cache_write_1h.max(other.cache_write_1h),
            output: self.output.max(other.output),
        }
    }
}

/// Prices by model.
#[derive(Debug, PartialEq, Eq)]
pub struct PriceList {
    exact: HashMap<Box<str>, Price>,
    /// By the beginning of names, the longest first.
    prefixes: Vec<(Box<str>, Price)>,
    /// The price of all other models: that of the row `*`, or the highest prices of all rows.
    other: Price,
}

/// The prices of a limit, and the part of requests that names the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pricing {
    /// The prices.
    pub list: Arc<PriceList>,
    /// The part of the request; `None` if only the response names the model.
    pub model: Option<KeyPart>,
}

/// A table that is no price list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct PriceListError {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong there.
    pub reason: String,
}

const COLUMNS: [&str; 6] = [
    "model",
    "input",
    "output",
    "cached_input",
    "cache_write",
    "cache_write_1h",
];
/// The columns that a table needs.
const NEEDED: usize = 3;

impl PriceList {
    /// Reads a table: a line with the names of columns, and a line for each model.
    ///
    /// # Errors
    /// When a column is unknown or missing, a price is no decimal number, or a model has two rows.
    pub fn parse(table: &[u8]) -> Result<Self, PriceListError> {
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .comment(Some(b'#'))
            .from_reader(table);
        let header = reader
            .headers()
            .map_err(|error| unreadable(table, &error))?;
        let places = columns(header)?;
        let (mut rows, mut dearest) = (HashMap::new(), None::<Price>);
        for record in reader.records() {
            let record = record.map_err(|error| unreadable(table, &error))?;
            let line = line_of(table, record.position());
            let wrong = |reason: String| PriceListError { line, reason };
            let (model, price) = row(&record, places).map_err(wrong)?;
            dearest = Some(dearest.map_or(price, |dearest| dearest.dearest(price)));
            if rows.insert(Box::from(model), price).is_some() {
                return Err(wrong(format!("the model `{model}` a second time")));
            }
        }
        let none = "no model: write a line for each, as in `gpt-5,1.25,10`";
        let dearest = dearest.ok_or(PriceListError {
            line: 1,
            reason: none.to_owned(),
        })?;
        let other = rows.remove("*").unwrap_or(dearest);
        let rows = rows.into_iter();
        let (mut prefixes, exact): (Vec<_>, Vec<(Box<str>, Price)>) =
            rows.partition(|(model, _)| model.ends_with('*'));
        for (model, _) in &mut prefixes {
            *model = model.trim_end_matches('*').into();
        }
        prefixes.sort_by_key(|(prefix, _)| (std::cmp::Reverse(prefix.len()), prefix.clone()));
        Ok(PriceList {
            exact: exact.into_iter().collect(),
            prefixes,
            other,
        })
    }

    /// The list in which all models have these prices.
    pub fn uniform(price: Price) -> Self {
        PriceList {
            exact: HashMap::new(),
            prefixes: Vec::new(),
            other: price,
        }
    }

    /// The prices of a model that has a row, or whose name begins as one with `*` says.
    pub fn listed(&self, model: &str) -> Option<Price> {
        let begins = |(prefix, _): &&(Box<str>, Price)| model.starts_with(&**prefix);
        let by_prefix = || Some(&self.prefixes.iter().find(begins)?.1);
        self.exact.get(model).or_else(by_prefix).copied()
    }

    /// The prices of any other model.
    pub fn other(&self) -> Price {
        self.other
    }
}

impl Pricing {
    /// The prices of the model that a request names. One without a model, or with an unknown one, has
    /// the prices of other models.
    ///
    /// # Errors
    /// When it names several models.
    pub fn of_request(&self, head: &Head<'_>) -> Result<Price, InvalidCost> {
        let price = |name: &[u8]| self.list.listed(str::from_utf8(name).ok()?);
        let listed = match self.model.as_ref().map(|part| part.with_value(head, price)) {
            Some(Lookup::One(price)) => price,
            Some(Lookup::Missing) | None => None,
            Some(Lookup::Several) => return Err(InvalidCost),
        };
        Ok(listed.unwrap_or(self.list.other))
    }
}

/// The place of each known column in the table.
fn columns(header: &csv::StringRecord) -> Result<[Option<usize>; 6], PriceListError> {
    let wrong = |reason| PriceListError { line: 1, reason };
    let mut places = [None; 6];
    for (place, name) in header.iter().enumerate() {
        let known = COLUMNS.iter().position(|known| *known == name);
        let column = known.ok_or_else(|| {
            let known = COLUMNS.join(", ");
            wrong(format!("an unknown column `{name}`; known are {known}"))
        })?;
        if places[column].replace(place).is_some() {
            return Err(wrong(format!("the column `{name}` a second time")));
        }
    }
    match (0..NEEDED).find(|&column| places[column].is_none()) {
        Some(column) => Err(wrong(format!("no column `{}`", COLUMNS[column]))),
        None => Ok(places),
    }
}

/// Reads the row of a model.
fn row(record: &csv::StringRecord, places: [Option<usize>; 6]) -> Result<(&str, Price), String> {
    let text = |column: usize| {
        let text = places[column].and_then(|place| record.get(place));
        text.filter(|text| !text.is_empty())
    };
    let price = |column: usize| {
        let price = |text: &str| {
            Decimal::parse(text).ok_or_else(|| {
                let name = COLUMNS[column];
                format!("`{name}` is `{text}`, not dollars per million tokens, as in `1.25`")
            })
        };
        text(column).map(price).transpose()
    };
    let missing = |column: usize| format!("`{}` is missing", COLUMNS[column]);
    let model = text(0).ok_or_else(|| missing(0))?;
    if model.trim_end_matches('*').contains('*') || model.ends_with("**") {
        return Err(format!(
            "`{model}` has a `*` that isn't its only one, at the end"
        ));
    }
    let input = price(1)?.ok_or_else(|| missing(1))?;
    let cache_write = price(4)?.unwrap_or(input.doubled());
    Ok((
        model,
        Price {
            input,
            output: price(2)?.ok_or_else(|| missing(2))?,
            cached_input: price(3)?.unwrap_or(input),
            cache_write,
            cache_write_1h: price(5)?.unwrap_or(input.doubled().max(cache_write)),
        },
    ))
}

/// The line of a row, from 1. A position is that of the empty lines and comments before it.
fn line_of(table: &[u8], position: Option<&csv::Position>) -> u64 {
    let Some(position) = position else { return 1 };
    let rest = table.get(position.byte() as usize..).unwrap_or_default();
    let lines = rest.split(|&byte| byte == b'\n');
    let skipped = lines.take_while(|line| line.trim_ascii().is_empty() || line[0] == b'#');
    position.line() + skipped.count() as u64
}

fn unreadable(table: &[u8], error: &csv::Error) -> PriceListError {
    let line = line_of(table, error.position());
    let reason = match error.kind() {
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => format!("{len} columns, where the first line has {expected_len}"),
        csv::ErrorKind::Utf8 { .. } => "not UTF-8".to_owned(),
        _ => error.to_string(),
    };
    PriceListError { line, reason }
}

#[cfg(test)]
mod tests;
