//! Tables of the page: routes with their policies, and a comparison. Narrow windows show their rows as
//! cards.

use std::fmt::{self, Formatter};

use super::escape::{Text, count};
use super::{MAX_ROWS, ReplayPage};
use crate::comparison::Comparison;

impl ReplayPage<'_> {
    pub(super) fn write_routes(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("<section><h2>Routes and their policies</h2>\n")?;
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
            if route.limits.is_empty() {
                let mut row = vec![String::new(); heads.len()];
                row[..2].clone_from_slice(&[name, "none".to_owned()]);
                row[heads.len() - 1] = requests;
                return vec![row];
            }
            let rows = route.limits.iter().map(|limit| {
                vec![
                    name.clone(),
                    Text(&limit.policy).to_string(),
                    count(limit.allowed + limit.overflowed),
                    count(limit.limited),
                    count(limit.delayed),
                    count(limit.shadowed),
                    requests.clone(),
                ]
            });
            rows.collect()
        });
        let mut rows: Vec<_> = rows.collect();
        let all = rows.len();
        rows.truncate(MAX_ROWS);
        write_table(f, "Routes and their policies", &heads, 2, rows)?;
        left_out(all, MAX_ROWS, "rows", f)?;
        f.write_str("</section>\n")
    }

    /// The comparison as the terminal shows it.
    pub(super) fn write_comparison(
        &self,
        comparison: &Comparison,
        f: &mut Formatter<'_>,
    ) -> fmt::Result {
        let against = Text(self.against.unwrap_or_default());
        let (config, text) = (Text(self.config), comparison.to_string());
        writeln!(
            f,
            "<section><h2>What changes</h2>\n<p class=\"soft\">Before is {against}, after is {config}.</p>\n\
             <pre class=\"text\" tabindex=\"0\" role=\"region\" aria-label=\"What changes\">{}</pre></section>",
            Text(&text)
        )
    }
}

/// A table of HTML, of whose columns all after the first `texts` hold numbers.
pub(super) fn write_table(
    f: &mut Formatter<'_>,
    label: &str,
    heads: &[&str],
    texts: usize,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> fmt::Result {
    let class = |place| {
        if place < texts {
            ""
        } else {
            " class=\"number\""
        }
    };
    write!(
        f,
        "<div class=\"scroll\"><table aria-label=\"{label}\"><thead><tr>"
    )?;
    for (place, head) in heads.iter().enumerate() {
        write!(f, "<th scope=\"col\"{}>{head}</th>", class(place))?;
    }
    f.write_str("</tr></thead><tbody>\n")?;
    for row in rows {
        write!(f, "<tr><th scope=\"row\">{}</th>", row[0])?;
        for (place, cell) in row.iter().enumerate().skip(1) {
            match (&**cell, heads[place]) {
                ("", _) => f.write_str("<td></td>")?,
                (cell, head) => {
                    let class = class(place);
                    write!(f, "<td{class} data-heading=\"{head}\">{cell}</td>")?;
                }
            }
        }
        f.write_str("</tr>\n")?;
    }
    f.write_str("</tbody></table></div>")
}

pub(super) fn left_out(all: usize, shown: usize, what: &str, f: &mut Formatter<'_>) -> fmt::Result {
    match all.saturating_sub(shown) {
        0 => Ok(()),
        more => write!(
            f,
            "<p class=\"soft\">and {more} more {what}; the text and --json have all</p>"
        ),
    }
}
