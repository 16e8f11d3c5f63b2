//! Suggests known words in place of a misspelt one.

/// Returns `did you mean` with the nearest word, or `introduction` with the known words.
pub fn advice(word: &str, known: &[&str], introduction: &str) -> String {
    phrase(nearest(word, known), known, introduction)
}

/// Returns `did you mean` with this word, or `introduction` with the known words if it is `None`.
pub fn phrase(nearest: Option<&str>, known: &[&str], introduction: &str) -> String {
    match nearest {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("{introduction}: {}", list(known)),
    }
}

/// The most values that are all listed for a wrong one.
const MAX_LISTED: usize = 8;

/// Returns all values of an option that are known, or the nearest if there are many.
pub fn values(word: &str, known: &[&str]) -> String {
    let introduction = "it can be";
    if known.len() <= MAX_LISTED {
        format!("{introduction}: {}", list(known))
    } else {
        advice(word, known, introduction)
    }
}

/// The largest number of words that one word is compared with. Names can be tens of thousands, and
/// wrong ones too.
const MAX_COMPARED: usize = 1_000;

/// The known word closest to `word`, if one is close: a third of the letters may differ.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let bound = (word.chars().count() / 3).max(1);
    // The difference in length is a lower bound of the distance, and cheap.
    let letters = word.chars().count();
    let near = |candidate: &str| candidate.chars().count().abs_diff(letters) <= bound;
    let distance = |candidate: &str| strsim::osa_distance(&word, &candidate.to_lowercase());
    let by_distance = known
        .iter()
        .filter(|candidate| near(candidate))
        .take(MAX_COMPARED)
        .map(|&candidate| (distance(candidate), candidate));
    by_distance
        .filter(|&(distance, _)| distance <= bound)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, near)| near)
}

/// The most words of a list. Keys of any section are fewer; names can be tens of thousands.
const MAX_WORDS: usize = 64;

/// The words in backquotes, joined with commas: the first 64, and how many more there are.
pub fn list(words: &[&str]) -> String {
    let shown = &words[..words.len().min(MAX_WORDS)];
    let quoted: Vec<_> = shown.iter().map(|word| format!("`{word}`")).collect();
    match words.len() - shown.len() {
        0 => quoted.join(", "),
        more => format!("{} and {more} more", quoted.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_a_close_word_or_lists_all() {
        let known = ["limits", "upstream", "match"];
        assert_eq!(advice("limts", &known, "known"), "did you mean `limits`?");
        assert_eq!(
            advice("Upstreams", &known, "known"),
            "did you mean `upstream`?"
        );
        assert_eq!(
            advice("colour", &known, "known"),
            "known: `limits`, `upstream`, `match`"
        );
    }

    #[test]
    fn a_long_list_says_how_many_more_there_are() {
        let words = ["word"; MAX_WORDS + 3];
        assert!(list(&words).ends_with("`word` and 3 more"));
        assert_eq!(list(&words[..2]), "`word`, `word`");
    }
}
