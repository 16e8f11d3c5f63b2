//! Tables of the page: routes with their policies, and a comparison. Narrow windows show their rows as
//! cards.

use super::escape::{Text, count};
use super::{MAX_ROWS, ReplayPage};
use crate::comparison::Comparison;

impl ReplayPage<'_> {
    pub(super) fn routes(&self) -> String {
        let heads = [
            "Route",
            "Policy",
            "Allowed",
            "Limited",
            "Delayed",
            "In shadow",
            "Of requests",
        ];
        let rows = self.report.routes.iter().flat_map(|route| {
            let name = match &route.route {
                Some(name) => Text(name).to_string(),
                None => "<i>no route</i>".to_owned(),
            };
            let requests = count(route.requests);
            let row = |policy: String, counts: [String; 4]| {
                let texts = [name.clone(), policy].into_iter();
                texts.chain(counts).chain([requests.clone()]).collect()
            };
            if route.limits.is_empty() {
                return vec![row("none".to_owned(), Default::default())];
            }
            let rows = route.limits.iter().map(|limit| {
                let allowed = limit.allowed + limit.overflowed;
                let counts = [allowed, limit.limited, limit.delayed, limit.shadowed];
                row(Text(&limit.policy).to_string(), counts.map(count))
            });
            rows.collect()
        });
        let mut rows: Vec<_> = rows.collect();
        let more = left_out(rows.len(), MAX_ROWS, "rows");
        rows.truncate(MAX_ROWS);
        let table = table("Routes and their policies", &heads, 2, rows);
        format!("<section><h2>Routes and their policies</h2>\n{table}{more}</section>\n")
    }

    /// The comparison as the terminal shows it.
    pub(super) fn changes(&self, comparison: &Comparison) -> String {
        let against = Text(self.against.unwrap_or_default());
        let (config, text) = (Text(self.config), comparison.to_string());
        format!(
            "<section><h2>What changes</h2>\n<p class=\"soft\">Before is {against}, after is {config}.</p>\n\
             <pre class=\"text\" tabindex=\"0\" role=\"region\" aria-label=\"What changes\">{}</pre></section>\n",
            Text(&text)
        )
    }
}

/// A table of HTML, of whose columns all after the first `texts` hold numbers.
pub(super) fn table(
    label: &str,
    heads: &[&str],
    texts: usize,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let class = |place| {
        if place < texts {
            ""
        } else {
            " class=\"number\""
        }
    };
    let numbered = heads.iter().enumerate();
    let heads_text = numbered.map(|(place, head)| {
        let class = class(place);
        format!("<th scope=\"col\"{class}>{head}</th>")
    });
    let cell = |(place, cell): (usize, &String)| match (place, &**cell) {
        (0, cell) => format!("<th scope=\"row\">{cell}</th>"),
        (_, "") => "<td></td>".to_owned(),
        (_, cell) => {
            let (class, head) = (class(place), heads[place]);
            format!("<td{class} data-heading=\"{head}\">{cell}</td>")
        }
    };
    let rows = rows.into_iter().map(|row| {
        let cells: String = row.iter().enumerate().map(cell).collect();
        format!("<tr>{cells}</tr>\n")
    });
    format!(
        "<div class=\"scroll\"><table aria-label=\"{label}\"><thead><tr>{}</tr></thead><tbody>\n{}</tbody></table></div>",
        heads_text.collect::<String>(),
        rows.collect::<String>()
    )
}

pub(super) fn left_out(all: usize, shown: usize, what: &str) -> String {
    match all.saturating_sub(shown) {
        0 => String::new(),
        more => {
            format!("<p class=\"soft\">and {more} more {what}; the text and --json have all</p>")
        }
    }
}
