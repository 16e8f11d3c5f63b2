//! Compiles the conditions of routes, and finds routes that never take a request.

use crate::config::sections::condition::{ConditionCompiler, methods};
use crate::config::sections::prelude::*;
use crate::config::sections::value_match::FileLists;
use crate::rules::{
    self, CaseSensitivity, KeyPart, PathEquivalence, PathMatch, RouteMatch, Router, TrailingSlash,
};

/// Warns of routes whose requests earlier routes all take.
pub(crate) fn unreachable<'a>(routes: impl Iterator<Item = &'a Located<Route>>) -> Vec<Finding> {
    let routes: Vec<_> = routes.collect();
    // A file stands for its contents: two routes with one file take the same requests.
    let files = routes.iter().flat_map(|route| route.matches.value_files());
    let matches_of = routes.iter().map(|route| &route.matches);
    let whens = matches_of.filter_map(|matches| matches.when.as_ref());
    let files = files.chain(whens.clone().flat_map(|when| when.value_files()));
    let networks = whens.flat_map(|when| when.network_files());
    let lists = FileLists::named(files, networks);
    let router = Router::new(routes.iter().map(|route| matches(route, &lists)).collect());
    let hidden = router.unreachable().into_iter().map(|(hidden, taker)| {
        let [hidden, taker] = [hidden, taker].map(|place| routes[place]);
        let message = format!(
            "`{}` never takes a request: `{}` is asked first, and takes them all",
            hidden.title(),
            taker.title()
        );
        Finding::warning(hidden.node, Code::UnreachableRoute, message)
            .related(taker.node, "the route that takes them")
            .help("remove it, add a condition to it, or put it first")
    });
    hidden.collect()
}

impl Route {
    /// The name, or the conditions in words, which no name looks like.
    pub(in crate::config) fn title(&self) -> String {
        match &self.name {
            Some(name) => name.to_string(),
            // Values don't show, and so neither do those in files.
            None => matches(self, &FileLists::default()).to_string(),
        }
    }

    /// The comparison of paths.
    pub(super) fn form(&self) -> PathEquivalence {
        let case = &self.case_sensitive;
        PathEquivalence {
            case: case.choose(CaseSensitivity::Sensitive, CaseSensitivity::Insensitive),
            trailing_slash: match self.path_match.value {
                PathMatch::Exact => self.trailing_slash.value,
                PathMatch::Loose => TrailingSlash::Ignore,
            },
            path_match: self.path_match.value,
        }
    }
}

/// Compiles the conditions of a checked route.
pub(crate) fn matches(route: &Route, lists: &FileLists) -> RouteMatch {
    let matches = &route.matches;
    let paths = route.form();
    let compiler = ConditionCompiler { paths, lists };
    let mut conditions = Vec::new();
    let path = matches.path.iter().filter(|_| matches.has_path_regex());
    conditions.extend(path.map(|path| path.condition(paths)));
    if matches.grpc.is_some() {
        conditions.push(rules::Condition::Method(vec![http::Method::POST].into()));
        conditions.push(rules::Condition::Grpc);
    } else if !matches.methods.is_empty() {
        conditions.push(rules::Condition::Method(methods(&matches.methods)));
    }
    conditions.extend(compiler.headers(&matches.headers));
    conditions.extend(compiler.named(&matches.query, KeyPart::Query));
    conditions.extend(compiler.named(&matches.cookies, KeyPart::Cookie));
    let when = matches.when.as_ref();
    conditions.extend(when.map(|when| compiler.condition(when)));
    RouteMatch {
        hosts: matches.hosts.values(),
        path: matches.path_pattern().unwrap_or_default().comparable(),
        conditions,
        form: paths,
    }
}

impl Compiler<'_> {
    /// Reads the files that conditions and costs name.
    pub(crate) fn file_lists(&mut self, config: &Config) -> FileLists {
        let mut lists = FileLists::default();
        let texts = config.conditions().flat_map(|when| when.value_files());
        let of_routes = config.routes.iter();
        let of_routes = of_routes.flat_map(|route| route.matches.value_files());
        self.read_texts(texts.chain(of_routes), &mut lists);
        let networks = config.conditions().flat_map(|when| when.network_files());
        self.read_networks(networks, &mut lists);
        self.read_prices(config, &mut lists);
        lists
    }
}
