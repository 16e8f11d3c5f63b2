//! Tables of the page: routes with their policies, and a comparison. Narrow windows show their rows as
//! cards.

use std::fmt::{self, Formatter};

use super::escape::{Text, count};
use super::{MAX_ROWS, ReplayPage};
use crate::replay::comparison::Comparison;

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
        begin_table(f, "Routes and their policies", &heads, 2)?;
        let mut rows = 0;
        for route in &self.report.routes {
            let name = match &route.route {
                Some(name) => Text(name).to_string(),
                None => "<i>no route</i>".to_owned(),
            };
            if route.limits.is_empty() && rows < MAX_ROWS {
                rows += 1;
                let requests = count(route.requests);
                let cells = [
                    cell("Policy", "none"),
                    number_cell("Of requests", &requests),
                ];
                writeln!(
                    f,
                    "<tr><th scope=\"row\">{name}</th>{}<td></td><td></td><td></td><td></td>{}</tr>",
                    cells[0], cells[1]
                )?;
            }
            for limit in &route.limits {
                rows += 1;
                if rows > MAX_ROWS {
                    continue;
                }
                let policy = cell("Policy", &Text(&limit.policy).to_string());
                let numbers = [
                    ("Allowed", limit.allowed + limit.overflowed),
                    ("Limited", limit.limited),
                    ("Delayed", limit.delayed),
                    ("In shadow", limit.shadowed),
                    ("Of requests", route.requests),
                ];
                let numbers = numbers.map(|(head, number)| number_cell(head, &count(number)));
                writeln!(
                    f,
                    "<tr><th scope=\"row\">{name}</th>{policy}{}</tr>",
                    numbers.concat()
                )?;
            }
        }
        f.write_str("</tbody></table></div>")?;
        left_out(rows, MAX_ROWS, "rows", f)?;
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

/// A cell whose contents are HTML already.
fn cell(head: &str, html: &str) -> String {
    match head {
        "" => format!("<td>{html}</td>"),
        head => format!("<td data-heading=\"{head}\">{html}</td>"),
    }
}

pub(super) fn number_cell(head: &str, html: &str) -> String {
    format!("<td class=\"number\" data-heading=\"{head}\">{html}</td>")
}

/// The beginning of a table, of whose columns all after the first `texts` hold numbers.
pub(super) fn begin_table(
    f: &mut Formatter<'_>,
    label: &str,
    heads: &[&str],
    texts: usize,
) -> fmt::Result {
    write!(
        f,
        "<div class=\"scroll\"><table aria-label=\"{label}\"><thead><tr>"
    )?;
    for (place, head) in heads.iter().enumerate() {
        let class = if place < texts {
            ""
        } else {
            " class=\"number\""
        };
        match *head {
            "" => f.write_str("<td></td>")?,
            head => write!(f, "<th scope=\"col\"{class}>{head}</th>")?,
        }
    }
    f.write_str("</tr></thead><tbody>\n")
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
