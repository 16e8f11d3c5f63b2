//! Adds limits to the routes of a configuration, in its text: comments, variables and order stay.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::document::Part;
use super::load::{self, Loaded};
use super::{NodeId, Report};

/// Where a limit of a route can be written.
enum Spot {
    /// Before the first key of an item of a block list, in this column.
    Block(usize),
    /// Behind the brace of a mapping in flow style.
    Flow,
}

impl Loaded {
    /// True if the route at this index has limits besides the top-level ones.
    pub fn has_own_limits(&self, route: usize) -> bool {
        !self.config.routes[route].limits.is_empty()
    }

    /// True if the proxy answers the requests of the route at this index by `respond` or `redirect`.
    pub fn is_answered(&self, route: usize) -> bool {
        self.config.routes[route].upstream.is_none()
    }

    /// The routes to which a limit can be added, by index: they are written out in the main file, and
    /// have no `limits`. Aliases stand at the place of their anchor, which several routes share.
    pub fn routes_for_limits(&self) -> HashSet<usize> {
        let nodes = || self.config.routes.iter().map(|route| route.node);
        let places = |node| {
            let keys = self.document.children(node).iter();
            keys.filter_map(|key| Some(self.document.place(*key, Part::Key)?.start))
        };
        let mut uses: HashMap<_, u32> = HashMap::new();
        for place in nodes().flat_map(places) {
            *uses.entry(place).or_default() += 1;
        }
        let takes_limit = |node| {
            self.spot(node).is_some()
                && places(node).all(|place| uses[&place] == 1)
                && self.document.child(node, "limits").is_none()
        };
        let routes = nodes().enumerate();
        let open = routes.filter(|(_, node)| takes_limit(*node));
        open.map(|(route, _)| route).collect()
    }

    /// The text of the main file with a limit for each of these routes, which take one.
    pub fn with_limits(&self, limits: &[(usize, String)]) -> String {
        let mut text = self.main_text().to_owned();
        let mut edits: Vec<_> = limits
            .iter()
            .filter_map(|(route, limit)| {
                let (offset, spot) = self.spot(self.config.routes[*route].node)?;
                Some((offset, spot, limit))
            })
            .collect();
        edits.sort_by_key(|(offset, ..)| std::cmp::Reverse(*offset));
        for (offset, spot, limit) in edits {
            let added = match spot {
                Spot::Block(column) => format!("limits: [{limit}]\n{}", " ".repeat(column)),
                Spot::Flow => format!("limits: [{limit}], "),
            };
            text.insert_str(offset, &added);
        }
        text
    }

    /// Reads and checks `text` in the place of the main file.
    ///
    /// # Errors
    /// As [`super::load()`].
    pub fn reload_as(&self, text: String) -> Result<Self, Report> {
        let name = self.document.name();
        load::load_as(Path::new(name), name, text)
    }

    fn main_text(&self) -> &str {
        let source = self.document.source();
        let main = source.files().next().map(|(range, _)| range);
        &source.text[main.unwrap_or_default()]
    }

    /// The offset of a mapping's first key, if that is in the main file.
    fn first_key(&self, mapping: NodeId) -> Option<usize> {
        let place = self.document.place(mapping, Part::Whole)?;
        place.file.is_none().then_some(place.start)
    }

    fn spot(&self, route: NodeId) -> Option<(usize, Spot)> {
        let offset = self.first_key(route)?;
        let before = &self.main_text()[..offset];
        let line = before.rsplit('\n').next().unwrap_or(before);
        let is_item = line.contains("- ") && line.bytes().all(|byte| byte == b' ' || byte == b'-');
        if is_item {
            return Some((offset, Spot::Block(line.len())));
        }
        before
            .trim_end()
            .ends_with('{')
            .then_some((offset, Spot::Flow))
    }
}
