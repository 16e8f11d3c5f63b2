use http::Method;

use super::*;

/// The routes for so many requests of each path, with what they take.
fn routes(requests: &[(&str, &str, u64)]) -> Vec<(String, u64)> {
    let mut tree = PathTree::new();
    let mut counts = Vec::new();
    for (method, path, number) in requests {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let place = tree.place(&method, path);
        counts.resize(counts.len().max(place + 1), 0);
        counts[place] += number;
    }
    let found = find(&tree, &counts);
    let mut sums: Vec<_> = found
        .routes
        .iter()
        .map(|route| (route.name.clone(), 0))
        .collect();
    for (place, count) in counts.iter().enumerate() {
        sums[found.of_place[place]].1 += count;
    }
    sums
}

#[track_caller]
fn assert_routes(requests: &[(&str, &str, u64)], expected: &[(&str, u64)]) {
    let found = routes(requests);
    let found: Vec<_> = found
        .iter()
        .map(|(name, sum)| (name.as_str(), *sum))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn first_segments_are_routes_and_rare_ones_are_not() {
    assert_routes(
        &[
            ("GET", "/shop/1", 900),
            ("GET", "/blog/a", 800),
            ("GET", "/rare", 3),
        ],
        &[("shop", 900), ("blog", 800), ("other", 3)],
    );
}

#[test]
fn prefixes_such_as_versions_are_split_and_keep_the_rest() {
    assert_routes(
        &[
            ("GET", "/api/v1/users/7", 500),
            ("GET", "/api/v1/orders", 400),
            ("GET", "/api/v1/rare", 2),
            ("GET", "/api/v2/users", 300),
        ],
        &[
            ("api-v1-users", 500),
            ("api-v1-orders", 400),
            ("api-v2-users", 300),
            ("other", 2),
        ],
    );
}

#[test]
fn writes_and_sign_in_and_health_checks_are_apart() {
    assert_routes(
        &[
            ("GET", "/items/1", 5_000),
            ("POST", "/items", 500),
            ("POST", "/auth/login", 60),
            ("GET", "/healthz", 700),
        ],
        &[
            ("auth-login", 60),
            ("items-writes", 500),
            ("items", 5_000),
            ("healthz", 700),
            ("other", 0),
        ],
    );
}

#[test]
fn static_files_have_a_route_unless_another_path_has_them() {
    assert_routes(
        &[
            ("GET", "/assets/a.js", 900),
            ("GET", "/a.png", 100),
            ("GET", "/", 100),
        ],
        &[("assets", 900), ("static-files", 100), ("other", 100)],
    );
}

#[test]
fn the_number_of_routes_is_bounded() {
    let paths: Vec<_> = (b'a'..=b'z')
        .map(|letter| format!("/{}", char::from(letter)))
        .collect();
    let requests: Vec<_> = paths
        .iter()
        .flat_map(|path| [("GET", &**path, 500), ("POST", &**path, 500)])
        .collect();
    let found = routes(&requests);
    assert_eq!(found.len(), 2 * MAX_PARTS + 2);
    assert_eq!(found.iter().map(|(_, sum)| sum).sum::<u64>(), 26_000);
}
