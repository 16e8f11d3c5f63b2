//! Finds routes that no request reaches.

use std::collections::HashMap;

use super::{Paths, Router, Tree};
use crate::rules::condition::Condition;
use crate::rules::matcher::{
    CaseSensitivity, HostPattern, PathEquivalence, PathMatch, PathPattern, RouteMatch, Segment,
};

/// Sorted ranks of routes, in lists.
type Ranks<'a> = Vec<&'a [u32]>;

impl Router {
    /// Returns the routes that no request reaches, in file order, each with a route that shadows
    /// it. For each host and path of such a route, an earlier route has the same, and no further
    /// condition.
    #[expect(clippy::mutable_key_type)]
    pub fn unreachable(&self) -> Vec<(usize, usize)> {
        let by_condition = self.ranks_by_condition();
        let hidden = (0..).zip(&self.order).filter_map(|(rank, &place)| {
            let route = &self.routes[place as usize];
            let conditions = [None].into_iter().chain(distinct(route).map(Some));
            let lists = conditions.filter_map(|one| by_condition.get(&one));
            let lists: Ranks<'_> = lists.map(Vec::as_slice).collect();
            let alike = self.alike(route).into_iter();
            let takers = alike.map(|alike| self.taker(rank, &alike, &lists));
            let takers: Option<Vec<usize>> = takers.collect();
            Some((place as usize, *takers?.first()?))
        });
        let mut hidden: Vec<_> = hidden.collect();
        hidden.sort_unstable();
        hidden
    }

    /// The ranks of routes by their first condition that only an equal one implies.
    #[expect(clippy::mutable_key_type)] // Regular expressions are equal by their texts.
    fn ranks_by_condition(&self) -> HashMap<Option<&Condition>, Vec<u32>> {
        let mut ranks = HashMap::<_, Vec<u32>>::new();
        for (rank, &place) in (0..).zip(&self.order) {
            let first = distinct(&self.routes[place as usize]).next();
            ranks.entry(first).or_default().push(rank);
        }
        ranks
    }

    /// The routes with the paths of this one, for each of its hosts and spellings of its path.
    fn alike(&self, route: &RouteMatch) -> Vec<Ranks<'_>> {
        let any = route.hosts.is_empty().then_some(&self.any);
        let named = route.hosts.iter().filter_map(|host| match host {
            HostPattern::Exact(host) => self.exact.get(host),
            HostPattern::Subdomains(domain) => self.below.get(domain),
        });
        let patterns = route.path.spellings(route.form);
        let hosts = any.into_iter().chain(named);
        let alike = hosts.flat_map(|paths| {
            let patterns = patterns.iter();
            patterns.map(|pattern| paths.alike(pattern, route.form))
        });
        alike.collect()
    }

    /// The first route before `rank` that takes all of its requests, among those that are `alike` in
    /// host and path, and those that have one of its conditions or none.
    fn taker(&self, rank: u32, alike: &Ranks<'_>, conditional: &Ranks<'_>) -> Option<usize> {
        let place = |rank: u32| self.order[rank as usize] as usize;
        let route = &self.routes[place(rank)];
        let takes = |other: &u32| {
            *other < rank && self.routes[place(*other)].is_at_least_as_general_as(route)
        };
        let is_alike = |other: &u32| alike.iter().any(|ranks| ranks.binary_search(other).is_ok());
        // Very many routes may have one path, or no condition: the fewer are searched.
        let taker = if count(alike) <= count(conditional) {
            earliest(alike, takes)
        } else {
            earliest(conditional, |other| is_alike(other) && takes(other))
        };
        taker.map(place)
    }
}

fn count(lists: &Ranks<'_>) -> usize {
    lists.iter().map(|ranks| ranks.len()).sum()
}

/// The first rank that `fits`.
fn earliest(lists: &Ranks<'_>, fits: impl Fn(&u32) -> bool) -> Option<u32> {
    let found = lists
        .iter()
        .map(|ranks| ranks.iter().find(|rank| fits(rank)));
    found.flatten().min().copied()
}

/// The conditions of a route that are implied only by equal ones.
fn distinct(route: &RouteMatch) -> impl Iterator<Item = &Condition> {
    let conditions = route.conditions.iter();
    conditions.filter(|condition| !matches!(condition, Condition::Method(_)))
}

impl Paths {
    /// Returns the ranks of routes whose paths are all that this pattern takes for a route with this
    /// form, or more that are equal.
    fn alike(&self, pattern: &PathPattern, form: PathEquivalence) -> Vec<&[u32]> {
        // Loose routes pass over segments that a capture takes.
        let has_captures = pattern.captures().next().is_some();
        let is_coarser = |other: PathEquivalence| {
            let is_loose = other.path_match == PathMatch::Loose && !has_captures;
            (other.case == form.case || other.case == CaseSensitivity::Insensitive)
                && (other.path_match == form.path_match || is_loose)
        };
        let folded = self.folded.iter().map(|(form, tree)| (*form, tree));
        let trees = [(PathEquivalence::default(), &self.exact)]
            .into_iter()
            .chain(folded);
        let coarser = trees.filter(|(other, _)| is_coarser(*other));
        let ranks = coarser.filter_map(|(other, tree)| tree.with_pattern(&pattern.folded(other)));
        ranks.collect()
    }
}

impl Tree {
    /// Returns the ranks of routes with this pattern, whatever the names of captures.
    fn with_pattern(&self, pattern: &PathPattern) -> Option<&[u32]> {
        let mut node = self.nodes.first()?;
        for segment in &pattern.segments {
            let next = match segment {
                Segment::Literal(text) => node.literals.get(text.as_str()).copied(),
                Segment::Capture(_) => node.capture,
            };
            node = &self.nodes[next? as usize];
        }
        Some(if pattern.is_prefix {
            &node.prefix
        } else {
            &node.exact
        })
    }
}
