//! Builds routes and their limits.

use std::collections::HashSet;
use std::sync::Arc;

use http::HeaderName;

use super::Builder;
use crate::proxy::answers::action::Action;
use crate::proxy::answers::decoy::{LearnedOrigin, LearnedResponses};
use crate::proxy::ruleset::{
    CompiledRoute, Destination, Limit, LimitSpec, Policy, Route, RouteAccess,
};
use crate::rules::{Descriptor, KeyPart};
use crate::telemetry::metrics::{LimitMetrics, RouteMetrics};
use crate::upstream::Upstream;

impl Builder<'_> {
    pub(super) fn route(
        &self,
        route: CompiledRoute,
        policies: &[Arc<Policy>],
        upstreams: &[Arc<Upstream>],
    ) -> Arc<Route> {
        let (name, registry) = (&*route.spec.name, &self.context.registry);
        let balance_key = route.spec.balance_key.as_ref();
        let reads_token = reads_token(&route.limits, policies)
            || reads_token(&route.reported, policies)
            || route.access.iter().any(|access| access.reads_token())
            || balance_key.is_some_and(Descriptor::reads_token);
        let balanced = balance_key
            .into_iter()
            .flat_map(Descriptor::inputs)
            .cloned();
        let inputs = route
            .limits
            .iter()
            .flat_map(LimitSpec::inputs)
            .chain(balanced);
        let body_parts = body_parts(inputs);
        let (limits, refusing) = self.limits(name, route.limits, policies);
        let destination = match route.destination {
            Destination::Nowhere => Destination::Nowhere,
            Destination::Upstream(place) => Destination::Upstream(Arc::clone(&upstreams[place])),
            Destination::Answer(answer) => Destination::Answer(answer),
        };
        let reported = route.reported.into_iter();
        Arc::new(Route {
            told_fields: told_fields(&limits),
            may_wait: limits.iter().any(|limit| limit.policy.turns.is_some()),
            may_route: limits.iter().any(Limit::may_route),
            learned_responses: self.learned_responses(name, &limits, &destination),
            is_plain: Route::has_plain_limits(&limits, refusing, route.spec.preflight),
            limits,
            refusing,
            reported: reported
                .map(|spec| self.limit(spec, policies, |_| LimitMetrics::unregistered()))
                .collect(),
            destination,
            access: RouteAccess::new(registry, name, route.access),
            reads_token,
            body_parts,
            metrics: RouteMetrics::new(registry, name),
            spec: route.spec,
        })
    }

    /// The responses that decoys imitate, if the route has decoys: those of the previous route of
    /// this name, or none yet.
    fn learned_responses(
        &self,
        route: &str,
        limits: &[Limit],
        destination: &Destination<Arc<Upstream>>,
    ) -> Option<Arc<LearnedResponses>> {
        let origin = match destination {
            Destination::Nowhere => return None,
            Destination::Upstream(one) if one.cluster().is_some() => LearnedOrigin::Servers,
            Destination::Upstream(_) | Destination::Answer(_) => LearnedOrigin::BuiltIn,
        };
        let mut actions = limits.iter().flat_map(|limit| limit.policy.actions());
        if !actions.any(Action::is_decoy) {
            return None;
        }
        let known = self.learned_responses.get(route);
        let known = known.filter(|known| known.origin == origin);
        Some(known.map_or_else(|| Arc::new(LearnedResponses::new(origin)), Arc::clone))
    }

    /// The limits of a route, those that tag or route last, and the number of those that can refuse.
    fn limits(
        &self,
        route: &str,
        specs: Vec<LimitSpec>,
        policies: &[Arc<Policy>],
    ) -> (Vec<Limit>, usize) {
        let registry = &self.context.registry;
        let metrics = |name: &str| LimitMetrics::new(registry, name, route);
        let limits = specs
            .into_iter()
            .map(|spec| self.limit(spec, policies, metrics));
        let can_refuse = |limit: &Limit| !limit.policy.action.forwards();
        let (mut limits, mut tags): (Vec<_>, Vec<_>) = limits.partition(can_refuse);
        let refusing = limits.len();
        limits.append(&mut tags);
        (limits, refusing)
    }

    fn limit(
        &self,
        spec: LimitSpec,
        policies: &[Arc<Policy>],
        metrics: impl Fn(&str) -> LimitMetrics,
    ) -> Limit {
        let policy = Arc::clone(&policies[spec.policy]);
        let shared = policy.quota.buckets.secret();
        let soft = policy.soft_limits.iter();
        Limit {
            soft_metrics: soft.map(|soft| metrics(&soft.name)).collect(),
            metrics: metrics(&policy.name),
            client_metrics: (self.client_labels.iter())
                .map(|label| LimitMetrics::by_client(&self.context.registry, &policy.name, label))
                .collect(),
            reads_token: spec.reads_token() || policy.reads_token(),
            body_parts: body_parts(spec.inputs()),
            secret: shared.unwrap_or(self.context.secret),
            spec,
            policy,
        }
    }
}

/// Those of some parts that are from the body.
fn body_parts(inputs: impl Iterator<Item = KeyPart>) -> Vec<KeyPart> {
    let parts: HashSet<_> = inputs.filter(KeyPart::is_from_body).collect();
    parts.into_iter().collect()
}

/// A limit reads a claim of the token.
fn reads_token(limits: &[LimitSpec], policies: &[Arc<Policy>]) -> bool {
    let mut limits = limits.iter();
    limits.any(|limit| limit.reads_token() || policies[limit.policy].reads_token())
}

/// The fields by which these limits tell the upstream of a lower priority, or that they are exceeded.
fn told_fields(limits: &[Limit]) -> Vec<HeaderName> {
    let quotas = limits.iter().flat_map(|limit| limit.policy.quotas());
    let overflows = quotas.filter_map(|quota| quota.overflow.as_ref());
    let fields = overflows.flat_map(|overflow| &overflow.fields);
    let tags = limits.iter().flat_map(|limit| limit.policy.actions());
    let tags = tags.filter_map(|action| Some(&action.tag()?.name));
    let names = fields.map(|(name, _)| name).chain(tags);
    let names: HashSet<_> = names.cloned().collect();
    names.into_iter().collect()
}
