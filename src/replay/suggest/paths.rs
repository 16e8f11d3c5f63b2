//! The first segments of a log's paths, in bounded memory, and the routes that they make: the parts
//! with enough requests, and one for everything else.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;

/// How many segments are told apart.
const MAX_DEPTH: usize = 3;
/// The most paths. What comes later counts for the longest known beginning.
const MAX_PATHS: usize = 4_096;
/// The longest segment that is kept, in bytes.
const MAX_SEGMENT: usize = 48;
/// The longest name of a route, in letters: there has to be room for endings.
const MAX_NAME: usize = 48;
/// The most routes beside the one for everything else.
const MAX_ROUTES: usize = 10;
/// The share of all requests, and their number, from which a path is a route.
const MIN_SHARE: f64 = 0.01;
const MIN_REQUESTS: u64 = 50;

/// Beginnings of paths: `/a`, `/a/b`, and the empty one of all.
#[derive(Debug)]
pub(super) struct Paths {
    paths: Vec<Path>,
    places: HashMap<Box<str>, usize, FixedState>,
}

#[derive(Debug)]
struct Path {
    text: Box<str>,
    /// The place of the path without its last segment.
    parent: usize,
}

/// A route for `/path/**`; for everything else if the path is empty.
#[derive(Clone, Debug)]
pub(super) struct FoundRoute {
    pub name: String,
    pub path: Box<str>,
}

impl Paths {
    pub(super) fn new() -> Self {
        let root = Path {
            text: "".into(),
            parent: 0,
        };
        Self {
            paths: vec![root],
            places: HashMap::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.paths.len()
    }

    /// The place of requests for a path: that of its first segments, before one that isn't a name.
    pub(super) fn place(&mut self, path: &str) -> usize {
        let mut place = 0;
        let mut text = String::new();
        let segments = crate::rules::segments(path).take(MAX_DEPTH);
        for segment in segments.take_while(|segment| is_name(segment)) {
            text.push('/');
            text.push_str(segment);
            place = match self.places.get(text.as_str()) {
                Some(known) => *known,
                None if self.paths.len() == MAX_PATHS => return place,
                None => self.add(&text, place),
            };
        }
        place
    }

    fn add(&mut self, text: &str, parent: usize) -> usize {
        let text: Box<str> = text.into();
        self.places.insert(text.clone(), self.paths.len());
        self.paths.push(Path { text, parent });
        self.paths.len() - 1
    }

    /// The routes for so many requests at each place, deeper ones first, and the route of each place.
    /// A path with too few requests counts for its parent.
    pub(super) fn routes(&self, requests: &[u64]) -> (Vec<FoundRoute>, Vec<usize>) {
        let all: u64 = requests.iter().sum();
        let least = ((all as f64 * MIN_SHARE).ceil() as u64).max(MIN_REQUESTS);
        let mut totals = requests.to_vec();
        let mut found = Vec::new();
        // Children come after their parents.
        for place in (1..self.paths.len()).rev() {
            if totals[place] >= least {
                found.push(place);
            } else {
                totals[self.paths[place].parent] += totals[place];
            }
        }
        found.sort_by_key(|place| (Reverse(totals[*place]), *place));
        found.truncate(MAX_ROUTES);
        let depth = |place: usize| self.paths[place].text.matches('/').count();
        found.sort_by_key(|place| (Reverse(depth(*place)), Reverse(totals[*place])));
        found.push(0);
        let mut route_of = vec![found.len() - 1; self.paths.len()];
        for place in 1..self.paths.len() {
            let own = found.iter().position(|route| *route == place);
            route_of[place] = own.unwrap_or(route_of[self.paths[place].parent]);
        }
        let mut names = HashSet::new();
        let routes = found.iter().map(|place| {
            let path = self.paths[*place].text.clone();
            let name = match &*path {
                "" => "other".to_owned(),
                path => plain_name(path),
            };
            let name = unique(&name, &mut names);
            FoundRoute { name, path }
        });
        (routes.collect(), route_of)
    }
}

impl FoundRoute {
    /// The `match` of the configuration; `None` for a route that takes all that is left.
    pub(super) fn matches(&self) -> Option<String> {
        (!self.path.is_empty()).then(|| format!("{{ path: \"{}/**\" }}", self.path))
    }

    /// The requests that it takes, for people.
    pub(super) fn describe(&self) -> String {
        match &*self.path {
            "" => "everything else".to_owned(),
            path => format!("{path}/**"),
        }
    }
}

/// A name of plain letters: for `/api/v1/orders` it is `api-v1-orders`.
pub(super) fn plain_name(text: &str) -> String {
    let plain = |letter: char| match letter {
        'A'..='Z' | 'a'..='z' | '0'..='9' | '.' | '_' => letter,
        _ => '-',
    };
    let name: String = text.chars().map(plain).collect();
    match name.trim_matches('-') {
        "" => "route".to_owned(),
        name => name.chars().take(MAX_NAME).collect(),
    }
}

/// The name, or one with a number that is free.
pub(super) fn unique(name: &str, names: &mut HashSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names_of_it = std::iter::once(name.to_owned()).chain(numbered);
    let free = names_of_it.find(|name| names.insert(name.clone()));
    free.unwrap_or_default()
}

/// True for a segment that names a part of an interface, and can stand in a pattern as it is: no
/// file, number, UUID, hash or token.
fn is_name(segment: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte);
    let count = |is_one: fn(&u8) -> bool| segment.bytes().filter(is_one).count();
    let (digits, hex) = (count(u8::is_ascii_digit), count(u8::is_ascii_hexdigit));
    let is_hash = digits > 0 && hex + count(|byte| *byte == b'-') == segment.len() && hex >= 8;
    let is_token = digits > 1 && segment.len() >= 16;
    segment.len() <= MAX_SEGMENT
        && segment.bytes().all(is_plain)
        && segment.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !(is_hash || is_token || digits * 2 > segment.len())
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
            let place = paths.place(path);
            assert_eq!(&*paths.paths[place].text, kept, "{path}");
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
        assert_eq!(paths.len(), MAX_PATHS);
        assert_eq!(paths.place("/new/path"), known);
        assert_eq!(paths.place("/other/path"), 0);
    }

    /// A number in letters.
    fn spelled(number: u32) -> String {
        let digits = number.to_string();
        digits.bytes().map(|digit| char::from(digit + 49)).collect()
    }

    #[track_caller]
    fn assert_routes(requests: &[(&str, u64)], expected: &[(&str, u64)]) {
        let mut paths = Paths::new();
        let places: Vec<_> = requests.iter().map(|(path, _)| paths.place(path)).collect();
        let mut counts = vec![0; paths.len()];
        for (place, (_, count)) in places.iter().zip(requests) {
            counts[*place] += count;
        }
        let (routes, route_of) = paths.routes(&counts);
        let mut found: Vec<_> = routes.iter().map(|route| (&*route.name, 0)).collect();
        for (place, count) in counts.iter().enumerate() {
            found[route_of[place]].1 += count;
        }
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
