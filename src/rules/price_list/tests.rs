use proptest::prelude::*;

use super::*;

const TABLE: &str = "\u{feff}model,input,output,cached_input\r\n\
    # dollars per million tokens\r\n\
    gpt-5,1.25,10,0.125\r\n\
    gpt-5-mini*, 0.25 ,2,\r\n\
    \"a,b\",1,1,1\r\n\
    gpt-5-mini-x*,7,8,9\r\n";

fn list(table: &str) -> PriceList {
    PriceList::parse(table.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

fn decimal(text: &str) -> Decimal {
    Decimal::parse(text).expect(text)
}

#[test]
fn a_model_has_its_row_or_the_longest_that_it_begins_with() {
    let list = list(TABLE);
    let input = |model| list.listed(model).map(|price| price.input.to_string());
    assert_eq!(input("gpt-5").as_deref(), Some("1.25"));
    assert_eq!(input("gpt-5-mini").as_deref(), Some("0.25"));
    assert_eq!(input("gpt-5-mini-2025").as_deref(), Some("0.25"));
    assert_eq!(input("gpt-5-mini-xl").as_deref(), Some("7"));
    assert_eq!(input("a,b").as_deref(), Some("1"));
    for unknown in ["", "gpt-5x", "GPT-5", "gpt", "*", "gpt-5-mini*"] {
        let is_named = unknown.starts_with("gpt-5-mini");
        assert_eq!(input(unknown).is_some(), is_named, "{unknown}");
    }
}

#[test]
fn other_models_pay_the_row_of_an_asterisk_or_the_dearest_prices() {
    let dearest = list(TABLE).other();
    let texts = [dearest.input, dearest.cached_input, dearest.output].map(|one| one.to_string());
    assert_eq!(texts, ["7", "9", "10"]);
    let own = list("model,input,output\n*,3,4\nx,9,9\n");
    assert_eq!(own.other().input, decimal("3"));
    assert_eq!(own.listed("y"), None);
}

#[test]
fn prices_that_are_not_given_are_not_below_the_known() {
    let price = list("model,input,output,cache_write\nx,3,15,\ny,3,15,7\n");
    let of = |model| price.listed(model).expect("it has a row");
    assert_eq!(of("x").cached_input, decimal("3"));
    assert_eq!(of("x").cache_write, decimal("6"));
    assert_eq!(of("x").cache_write_1h, decimal("6"));
    assert_eq!(of("y").cache_write_1h, decimal("7"));
}

#[test]
fn errors_have_the_line_and_what_is_wrong_there() {
    for (table, error) in [
        ("", "line 1: no column `model`"),
        ("model,input\n", "line 1: no column `output`"),
        (
            "model,input,output\n",
            "line 1: no model: write a line for each, as in `gpt-5,1.25,10`",
        ),
        (
            "model,input,output,tax\n",
            "line 1: an unknown column `tax`; known are model, input, output, cached_input, cache_write, cache_write_1h",
        ),
        (
            "model,input,input,output\n",
            "line 1: the column `input` a second time",
        ),
        (
            "model,input,output\na,1,2\nb,1\n",
            "line 3: 2 columns, where the first line has 3",
        ),
        ("model,input,output\na,1,\n", "line 2: `output` is missing"),
        ("model,input,output\n,1,1\n", "line 2: `model` is missing"),
        (
            "model,input,output\na,$1,1\n",
            "line 2: `input` is `$1`, not dollars per million tokens, as in `1.25`",
        ),
        (
            "model,input,output\na,-1,1\n",
            "line 2: `input` is `-1`, not dollars per million tokens, as in `1.25`",
        ),
        (
            "model,input,output\na,1,1\n\na,2,2\n",
            "line 4: the model `a` a second time",
        ),
        (
            "model,input,output\na*b,1,1\n",
            "line 2: `a*b` has a `*` that isn't its only one, at the end",
        ),
        (
            "model,input,output\na**,1,1\n",
            "line 2: `a**` has a `*` that isn't its only one, at the end",
        ),
    ] {
        let found = PriceList::parse(table.as_bytes()).expect_err(table);
        assert_eq!(found.to_string(), error);
    }
    let found = PriceList::parse(b"model,input,output\n\xff,1,1\n").expect_err("not UTF-8");
    assert_eq!(found.to_string(), "line 2: not UTF-8");
}

proptest! {
    #[test]
    fn a_call_costs_the_exact_price_rounded_up(
        input in 0..2_000_000_u64,
        cached in 0..2_000_000_u64,
        output in 0..2_000_000_u64,
        cents in (0..1000_u64, 0..1000_u64, 0..1000_u64),
    ) {
        let dollars = |cents: u64| format!("{}.{:02}", cents / 100, cents % 100);
        let (of_input, of_cached, of_output) = cents;
        let table = format!(
            "model,input,output,cached_input\nm,{},{},{}\n",
            dollars(of_input), dollars(of_output), dollars(of_cached),
        );
        let price = list(&table).listed("m").expect("it has a row");
        let usage = TokenUsage { input, cached_input: cached, output, ..TokenUsage::default() };
        let hundredths = input * of_input + cached * of_cached + output * of_output;
        prop_assert_eq!(u64::from(price.of(usage)), hundredths.div_ceil(100).min(u64::from(u32::MAX)));
    }

    #[test]
    fn any_bytes_are_read_or_refused(table in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(PriceList::parse(&table));
    }
}
