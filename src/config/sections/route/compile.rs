//! Compiles routes and their limits.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::matches::matches;
use super::rewrite::forwarded_path;
use crate::config::schema;
use crate::config::sections::access;
use crate::config::sections::clients;
use crate::config::sections::condition::ConditionCompiler;
use crate::config::sections::cost;
use crate::config::sections::exception::{ExceptionCache, global_exemptions};
use crate::config::sections::policy::Policies;
use crate::config::sections::prelude::*;
use crate::config::sections::responses::ResponseCompiler;
use crate::config::sections::secret_value::FIELD;
use crate::config::sections::value_match::FileLists;
use crate::proxy::ruleset::{BodySpec, CompiledRoute, Destination, LimitSpec, Rewrite, RouteSpec};
use crate::rules::{self, Descriptor, Exceptions, PathEquivalence, RouteMatch, Selectors};

/// Separates the owner of an inline limit from its position. Names cannot contain it, so no policy
/// has such a name. It needs no escape in a quoted string of a header field.
const POSITION: char = '#';
/// The owner of top-level inline limits. Names of routes are never empty.
const TOP_LEVEL: &str = "";
/// The route of unmatched requests in metrics and keys.
const UNMATCHED: &str = "unmatched";

/// Compiles routes.
pub(crate) struct RouteCompiler<'a> {
    pub(super) config: &'a schema::Config,
    lists: &'a FileLists,
    pub(crate) responses: ResponseCompiler<'a>,
    /// The top-level rules of access, which routes with the same paths share.
    top_access: RefCell<HashMap<PathEquivalence, Arc<rules::Access>>>,
    /// The rule that refuses unknown clients.
    unknown: Option<Arc<rules::Access>>,
    /// The policies of the top-level limits, in order.
    top_level: Vec<usize>,
    /// The exemptions from all limits, which routes with the same paths share; `None` if their key
    /// parts differ between routes.
    from_all: Option<RefCell<HashMap<PathEquivalence, Arc<Selectors>>>>,
    exceptions: ExceptionCache,
}

/// The names of all routes: the given name, or a description of the match. A number makes
/// descriptions unique.
pub(crate) fn names(config: &schema::Config) -> Vec<String> {
    let given = config.routes.iter().filter_map(|route| route.name.as_ref());
    let mut taken: HashSet<_> = given.map(ToString::to_string).collect();
    // The last number of each description, to find the next one at once.
    let mut numbers = HashMap::<String, usize>::new();
    let names = config.routes.iter().map(|route| {
        if let Some(name) = &route.name {
            return name.to_string();
        }
        let wanted = description(route);
        let number = numbers.entry(wanted.clone()).or_default();
        loop {
            *number += 1;
            let name = match *number {
                1 => wanted.clone(),
                number => format!("{wanted}-{number}"),
            };
            if taken.insert(name.clone()) {
                return name;
            }
        }
    });
    names.collect()
}

/// Describes the match of an unnamed route in the characters of names.
fn description(route: &Route) -> String {
    let methods = route.matches.methods.iter().map(ToString::to_string);
    let hosts = route.matches.hosts.iter().map(ToString::to_string);
    let path = route.matches.path_pattern();
    let path = path.iter().map(ToString::to_string);
    let words = methods.chain(hosts).chain(path).flat_map(|word| {
        let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        word.split(|c| !safe(c))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        [] => "any".to_owned(),
        words => words.join("-"),
    }
}

impl<'a> RouteCompiler<'a> {
    pub(crate) fn new(
        config: &'a schema::Config,
        policies: &mut Policies<'a>,
        lists: &'a FileLists,
    ) -> Self {
        let mut top_level = Vec::new();
        for (place, limit) in config.limits.iter().enumerate() {
            let policy = resolve(policies, limit, TOP_LEVEL, place);
            top_level.extend(policy.filter(|policy| !top_level.contains(policy)));
        }
        let parts = config.exempt.iter().filter_map(|one| one.part.as_ref());
        let mut parts = parts.map(|part| &part.value);
        let is_of_a_route = parts.any(|part| matches!(part, KeyPart::Path | KeyPart::Route));
        RouteCompiler {
            config,
            lists,
            responses: ResponseCompiler::new(&config.responses),
            top_access: RefCell::default(),
            unknown: clients::refusal(config),
            top_level,
            from_all: (!is_of_a_route).then(RefCell::default),
            exceptions: ExceptionCache::default(),
        }
    }

    pub(super) fn exempt_from_all(&self, route: &str, taken: &RouteMatch) -> Arc<Selectors> {
        let part = |part: &KeyPart| self.part(part, route, taken);
        let conditions = self.conditions(taken.form);
        let compile = || Arc::new(global_exemptions(self.config, part, conditions));
        let Some(shared) = &self.from_all else {
            return compile();
        };
        let mut shared = shared.borrow_mut();
        Arc::clone(shared.entry(taken.form).or_insert_with(compile))
    }

    /// Compiles conditions for a route on which `paths` makes paths equal.
    fn conditions(&self, paths: PathEquivalence) -> ConditionCompiler<'a> {
        let lists = self.lists;
        ConditionCompiler { paths, lists }
    }

    /// The top-level rules of access, for a route on which `paths` makes paths equal.
    fn top_access(&self, paths: PathEquivalence) -> Option<Arc<rules::Access>> {
        let written = self.config.access.as_ref()?;
        let mut known = self.top_access.borrow_mut();
        let compiled = known.entry(paths).or_insert_with(|| {
            access::compile(written, "access".to_owned(), self.conditions(paths))
        });
        Some(Arc::clone(compiled))
    }

    /// The rules of unmatched requests. A key part with a captured segment is missing there.
    pub(crate) fn unmatched(&self, policies: &Policies<'_>) -> CompiledRoute {
        let access = self.top_access(PathEquivalence::default());
        CompiledRoute {
            access: self.unknown.iter().cloned().chain(access).collect(),
            limits: self.limits(&self.top_level, policies, UNMATCHED, &RouteMatch::default()),
            spec: RouteSpec {
                preflight: self.responses.preflight(None),
                response: self.responses.changes(None).used(),
                ..RouteSpec::default()
            },
            ..CompiledRoute::default()
        }
    }

    /// Compiles one route.
    pub(crate) fn route(
        &self,
        route: &'a Route,
        name: String,
        policies: &mut Policies<'a>,
        destination: Destination<usize>,
    ) -> CompiledRoute {
        let matches = matches(route, self.lists);
        let mut applied = if route.inherit.get() {
            self.top_level.clone()
        } else {
            Vec::new()
        };
        for (place, limit) in route.limits.iter().enumerate() {
            // A policy applies once, however often it is named.
            let policy = resolve(policies, limit, &name, place);
            applied.extend(policy.filter(|policy| !applied.contains(policy)));
        }
        let own = route.access.as_ref();
        let own = own.map(|access| {
            let place = format!("routes.{name}.access");
            access::compile(access, place, self.conditions(matches.form))
        });
        let access = self.unknown.iter().cloned();
        let access = access.chain(self.top_access(matches.form)).chain(own);
        let limits = self.limits(&applied, policies, &name, &matches);
        let removed = route.request.remove_headers.iter();
        let spec = RouteSpec {
            balance_key: self.balance_key(route, &name, &matches),
            rewrite: Rewrite {
                // Those that are set may be in files.
                set_headers: Vec::new(),
                remove_headers: removed.map(|name| name.get().clone()).collect(),
                path: forwarded_path(route, matches.form),
            },
            encoded_slashes: route.encoded_slashes.value,
            preflight: self.responses.preflight(Some(route)),
            response: self.responses.changes(Some(route)).used(),
            upgrades: route.upgrades.compile(),
            body: route.request.read_body.as_ref().map(|size| BodySpec {
                limit: size.get() as usize,
                changes: body_changes(&route.request),
            }),
            max_body: match &route.request.max_body {
                Some(size) => size.get(),
                None => self.config.client.max_body.get(),
            },
            name: name.into(),
        };
        CompiledRoute {
            spec,
            matches,
            access: access.collect(),
            limits,
            reported: Vec::new(),
            destination,
        }
    }

    /// The key by which the route's upstream chooses hosts, if it hashes one.
    fn balance_key(&self, route: &Route, name: &str, taken: &RouteMatch) -> Option<Descriptor> {
        let upstream = route.upstream_name()?.as_str();
        let key = self.config.upstreams.get(upstream)?.balance.key()?;
        let parts = key.0.iter().map(|part| self.part(part, name, taken));
        let (parts, skip) = (parts.collect(), rules::OnMissingKey::Skip);
        let prefix = self.config.client_ip.ipv6_prefix.get() as u8;
        Some(Descriptor::new(parts, skip, prefix))
    }

    /// The limits of these policies.
    fn limits(
        &self,
        applied: &[usize],
        policies: &Policies<'_>,
        route: &str,
        taken: &RouteMatch,
    ) -> Vec<LimitSpec> {
        let from_all = self.exempt_from_all(route, taken);
        let limits = applied.iter().flat_map(|index| {
            let is_top_level = self.top_level.contains(index);
            let applied = policies.applied(*index);
            let limit = |index| self.limit(index, policies.get(index), &from_all, route, taken);
            applied.map(move |index| LimitSpec {
                is_top_level,
                ..limit(index)
            })
        });
        limits.collect()
    }

    pub(super) fn limit(
        &self,
        index: usize,
        policy: &Policy,
        from_all: &Arc<Selectors>,
        route: &str,
        taken: &RouteMatch,
    ) -> LimitSpec {
        let part = |part: &KeyPart| self.part(part, route, taken);
        let prefix = self.config.client_ip.ipv6_prefix.get() as u8;
        let on_missing = match &policy.on_missing_key.value {
            OnMissingKey::Word(MissingKeyWord::Part(other)) => {
                rules::OnMissingKey::Part(part(other))
            }
            OnMissingKey::Word(MissingKeyWord::Skip) => rules::OnMissingKey::Skip,
            OnMissingKey::Word(MissingKeyWord::Refuse) => rules::OnMissingKey::Refuse,
            OnMissingKey::Word(MissingKeyWord::Shared) => rules::OnMissingKey::Shared,
            OnMissingKey::Constant(constant) => {
                rules::OnMissingKey::Value(constant.value.as_str().into())
            }
        };
        let parts = policy.key.0.iter();
        let parts = parts.map(|located| part(&located.value)).collect();
        let mut descriptor = Descriptor::new(parts, on_missing, prefix);
        descriptor.on_several = policy.on_several_values.value;
        let conditions = self.conditions(taken.form);
        let own = self.exceptions.of(index, policy, part, conditions);
        let when = policy.when.as_ref();
        let pricing = cost::pricing(&policy.cost, self.lists, part);
        LimitSpec {
            policy: index,
            when: when.map(|when| conditions.condition(when)),
            exceptions: Exceptions::new(Arc::clone(from_all), own.exempt, own.overrides),
            descriptor,
            cost: cost::cost(&policy.cost, pricing.as_ref(), part),
            settlement: cost::settlement(policy, pricing),
            is_top_level: false,
        }
    }

    fn part(&self, part: &KeyPart, route: &str, taken: &RouteMatch) -> rules::KeyPart {
        match part {
            KeyPart::ClientIp => rules::KeyPart::ClientIp {
                ipv6_prefix: self.config.client_ip.ipv6_prefix.get() as u8,
            },
            KeyPart::ClientIpPrefix(bits) => rules::KeyPart::ClientIp { ipv6_prefix: *bits },
            KeyPart::Header(name) => rules::KeyPart::field(name.get().clone()),
            KeyPart::Cookie(name) => rules::KeyPart::Cookie(name.clone()),
            KeyPart::Query(name) => rules::KeyPart::Query(name.clone()),
            KeyPart::Claim(name) => rules::KeyPart::Claim(name.clone()),
            KeyPart::Body(part) => part.into(),
            KeyPart::Form(name) => rules::KeyPart::Form(name.clone()),
            KeyPart::Client => rules::KeyPart::Client,
            KeyPart::ClientColumn(name) => rules::KeyPart::ClientColumn(name.clone()),
            KeyPart::BasicUser => rules::KeyPart::BasicUser,
            // An unknown capture becomes a segment that no path has.
            KeyPart::Capture(name) => rules::KeyPart::Segment {
                place: taken.path.capture(name).unwrap_or(usize::MAX),
                form: taken.form,
            },
            KeyPart::Path => rules::KeyPart::Path(taken.form),
            KeyPart::Method => rules::KeyPart::Method,
            KeyPart::Host => rules::KeyPart::Host,
            KeyPart::Route => rules::KeyPart::Route(Arc::from(route)),
            KeyPart::Constant => rules::KeyPart::Constant,
        }
    }
}

/// The values to set in bodies; a text that is no JSON is a string.
pub(crate) fn body_changes(changes: &schema::RequestChanges) -> Vec<rules::BodyChange> {
    let changes = changes.set_body.iter();
    let changes = changes.map(|(pointer, text)| rules::BodyChange {
        pointer: Arc::clone(pointer.get()),
        value: match serde_json::from_str::<&RawValue>(text.as_str()) {
            Ok(json) => json.get().into(),
            Err(_) => serde_json::Value::from(text.as_str()).to_string().into(),
        },
    });
    changes.collect()
}

fn resolve<'a>(
    policies: &mut Policies<'a>,
    limit: &'a Limit,
    owner: &str,
    place: usize,
) -> Option<usize> {
    match limit {
        Limit::Named(name) => policies.named(name.as_str()),
        Limit::InPlace(policy) => {
            let name = match &policy.name {
                Some(name) => name.to_string(),
                None => format!("{owner}{POSITION}{place}"),
            };
            Some(policies.add(name, policy))
        }
    }
}

impl Compiler<'_> {
    /// The fields that a route sets; those in files are read, unless nothing is forwarded.
    pub(crate) fn set_headers(
        &mut self,
        changes: &schema::RequestChanges,
    ) -> Vec<(http::HeaderName, http::HeaderValue)> {
        let fields = changes.set_headers.iter();
        let fields = fields.filter_map(|(name, value)| {
            let value = self.secret(value, &FIELD)?;
            Some((name.get().clone(), value))
        });
        fields.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_that_is_taken_gets_a_number() {
        let text = "routes:
            - { match: { path: /api }, upstream: echo }
            - { match: { path: /api, methods: [GET] }, name: api, upstream: echo }
            - { match: { hosts: [a.b] }, upstream: echo }
            - { match: { hosts: [A.B] }, upstream: echo }
            - { match: { path: /a.b }, upstream: echo }
            - { name: a.b-2, upstream: echo }
            - { match: { path: \"/**\" }, upstream: echo }\n";
        let loaded = crate::config::parse("test.yaml", text.to_owned(), &|_| None);
        let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(
            names(&loaded.config),
            ["api-2", "api", "a.b", "a.b-3", "a.b-4", "a.b-2", "any"]
        );
    }
}
