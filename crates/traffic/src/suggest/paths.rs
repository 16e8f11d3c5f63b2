//! The first segments of a log's paths, in bounded memory, and the routes that they make: the parts
//! with enough requests, and one for everything else.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;

use super::survey::{KnownRoute, Seen};

/// How many segments are told apart.
const MAX_DEPTH: usize = 3;
/// The most paths. What comes later counts for the longest known beginning.
const MAX_PATHS: usize = 4_096;
/// The longest segment that is kept, and the longest name, which needs room for a number.
const MAX_NAME: usize = 48;
/// The most routes beside the one for everything else.
const MAX_ROUTES: usize = 10;
/// The share of all requests, and their number, from which a path is a route.
const MIN_SHARE: f64 = 0.01;
const MIN_REQUESTS: u64 = 50;

/// Beginnings of paths: `/a`, `/a/b`, and the empty one of all.
#[derive(Debug)]
pub(super) struct Paths {
    /// The text of each, and the place of the path without its last segment.
    paths: Vec<(Box<str>, u32)>,
    places: HashMap<Box<str>, u32, FixedState>,
}

impl Paths {
    pub(super) fn new() -> Self {
        Self {
            paths: vec![("".into(), 0)],
            places: HashMap::default(),
        }
    }

    /// The place of requests for a path: that of its first segments, before one that isn't a name.
    pub(super) fn place(&mut self, path: &str) -> u32 {
        let mut place = 0;
        let mut text = String::new();
        let segments = path.strip_prefix('/').unwrap_or(path).split('/');
        for segment in segments
            .take(MAX_DEPTH)
            .take_while(|segment| is_name(segment))
        {
            text.push('/');
            text.push_str(segment);
            place = match self.places.get(text.as_str()) {
                Some(known) => *known,
                None if self.paths.len() == MAX_PATHS => return place,
                None => {
                    let new = self.paths.len() as u32;
                    self.paths.push((text.as_str().into(), place));
                    self.places.insert(text.as_str().into(), new);
                    new
                }
            };
        }
        place
    }

    /// The routes for these requests, deeper ones first, each of which gets the place of its route. A
    /// path with too few requests counts for its parent.
    pub(super) fn routes(&self, requests: &mut [Seen]) -> Vec<KnownRoute> {
        let least = ((requests.len() as f64 * MIN_SHARE).ceil() as u64).max(MIN_REQUESTS);
        let parent = |place: usize| self.paths[place].1 as usize;
        let mut totals = vec![0_u64; self.paths.len()];
        for request in &*requests {
            totals[request.place as usize] += 1;
        }
        let mut found = Vec::new();
        // Children come after their parents.
        for place in (1..self.paths.len()).rev() {
            if totals[place] >= least {
                found.push(place);
            } else {
                totals[parent(place)] += totals[place];
            }
        }
        found.sort_by_key(|place| (Reverse(totals[*place]), *place));
        found.truncate(MAX_ROUTES);
        found.sort_by_key(|place| Reverse(self.paths[*place].0.matches('/').count()));
        found.push(0);
        let mut route_of = vec![found.len() - 1; self.paths.len()];
        for place in 1..self.paths.len() {
            let own = found.iter().position(|route| *route == place);
            route_of[place] = own.unwrap_or(route_of[parent(place)]);
        }
        for request in requests {
            request.place = route_of[request.place as usize] as u32;
        }
        let mut names = HashSet::new();
        let routes = found.into_iter().map(|place| {
            let (name, requests_for) = match &*self.paths[place].0 {
                "" => ("other", "everything else".to_owned()),
                path => (path, format!("{path}/**")),
            };
            KnownRoute {
                name: unique_name(name, &mut names),
                requests_for,
                no_limit: None,
            }
        });
        routes.collect()
    }
}

/// A name of plain letters, with a number if it isn't free: for `/api/v1/orders` it is
/// `api-v1-orders`.
pub(super) fn unique_name(text: &str, names: &mut HashSet<String>) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._".contains(letter);
    let plain = text.replace(|letter| !is_plain(letter), "-");
    let plain: String = plain.trim_matches('-').chars().take(MAX_NAME).collect();
    let plain = if plain.is_empty() { "route" } else { &plain };
    let mut name = plain.to_owned();
    let mut number = 2;
    while !names.insert(name.clone()) {
        name = format!("{plain}-{number}");
        number += 1;
    }
    name
}

/// True for a segment that names a part of an interface, and can stand in a pattern as it is: no
/// file, number, UUID, hash or token. A version has two digits at most.
fn is_name(segment: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte);
    let digits = segment.bytes().filter(u8::is_ascii_digit).count();
    segment.len() <= MAX_NAME
        && segment.bytes().all(is_plain)
        && segment.bytes().any(|byte| byte.is_ascii_alphabetic())
        && digits <= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_kept_up_to_the_first_id_or_file() {
        for (path, kept) in [
            ("/", ""),
            ("*", ""),
            ("/a/b/c/d", "/a/b/c"),
            ("/api/v1/", "/api/v1"),
            ("/users/17/orders", "/users"),
            ("/users/123e4567-e89b-12d3-a456-426614174000", "/users"),
            ("/commits/3f2a9c4d", "/commits"),
            ("/o/AbC12dEf34GhI56jK", "/o"),
            ("/o/cus_9s6XKzkNRiz8i3", "/o"),
            ("/decade/facade", "/decade/facade"),
            ("/assets/app.1a2b.js", "/assets"),
            ("/favicon.ico", ""),
            ("/a%20b/c", ""),
            ("/{id}", ""),
        ] {
            let mut paths = Paths::new();
            let place = paths.place(path) as usize;
            assert_eq!(&*paths.paths[place].0, kept, "{path}");
        }
    }

    #[test]
    fn a_flood_of_paths_has_bounded_memory_and_counts_for_what_is_known() {
        let mut paths = Paths::new();
        let known = paths.place("/new");
        for number in 0..10_000 {
            let letters = format!("{number:04}").replace(|_: char| true, "x");
            paths.place(&format!("/{letters}{}", spelled(number)));
        }
        assert_eq!(paths.paths.len(), MAX_PATHS);
        assert_eq!(paths.place("/new/path"), known);
        assert_eq!(paths.place("/other/path"), 0);
    }

    /// A number in letters.
    fn spelled(number: u32) -> String {
        let digits = number.to_string();
        digits.bytes().map(|digit| char::from(digit + 49)).collect()
    }

    #[track_caller]
    fn assert_routes(requests: &[(&str, usize)], expected: &[(&str, usize)]) {
        let mut paths = Paths::new();
        let mut seen = Vec::new();
        for (path, count) in requests {
            let (place, key, time) = (paths.place(path), 0, 0);
            seen.extend(vec![Seen { place, key, time }; *count]);
        }
        let routes = paths.routes(&mut seen);
        let count = |place: u32| seen.iter().filter(|one| one.place == place).count();
        let found = routes.iter().zip(0..);
        let found: Vec<_> = found
            .map(|(route, place)| (&*route.name, count(place)))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn paths_with_enough_requests_are_routes_and_the_rest_is_with_their_parents() {
        assert_routes(
            &[("/shop/1", 900), ("/blog/a", 800), ("/rare", 3)],
            &[("blog-a", 800), ("shop", 900), ("other", 3)],
        );
        assert_routes(
            &[
                ("/api/v1/users/7", 500),
                ("/api/v1/orders", 400),
                ("/api/v1/rare", 60),
                ("/api/v1/rarer", 2),
                ("/blog/one", 30),
                ("/blog/two", 30),
            ],
            &[
                ("api-v1-users", 500),
                ("api-v1-orders", 400),
                ("api-v1-rare", 60),
                ("blog", 60),
                ("other", 2),
            ],
        );
        assert_routes(
            &[("/a-b", 60), ("/a/b", 60)],
            &[("a-b", 60), ("a-b-2", 60), ("other", 0)],
        );
    }

    #[test]
    fn there_are_ten_routes_at_most() {
        let paths: Vec<_> = (0..30)
            .map(|number| format!("/{}", spelled(number)))
            .collect();
        let requests: Vec<_> = paths.iter().map(|path| (path.as_str(), 60)).collect();
        let mut expected: Vec<_> = paths[..10].iter().map(|path| (&path[1..], 60)).collect();
        expected.push(("other", 20 * 60));
        assert_routes(&requests, &expected);
    }
}
