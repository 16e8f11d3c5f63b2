//! Compiles conditions of policies for the routes on which they apply.

use crate::config::located::List;
use crate::config::schema;
use crate::config::sections::route::path_pattern;
use crate::rules::{Condition, PathCondition, PathEquivalence};

/// Compiles a checked condition for a route on which `form` makes paths equal.
pub(in crate::config) fn condition(
    written: &schema::Condition,
    form: PathEquivalence,
) -> Condition {
    let mut all = Vec::new();
    if !written.method.is_empty() {
        let methods = written.method.iter().map(|method| method.get().clone());
        all.push(Condition::Method(methods.collect()));
    }
    let headers = written.header.iter();
    all.extend(
        headers.map(|(name, value)| Condition::Header(name.get().clone(), value.get().clone())),
    );
    let claims = written.jwt.iter();
    all.extend(claims.map(|(name, value)| {
        Condition::Claim(name.as_str().to_owned(), value.as_str().to_owned())
    }));
    if let Some(path) = &written.path {
        let path = PathCondition::new(path_pattern(path), form);
        all.push(Condition::Path(path));
    }
    if !written.cidr.is_empty() {
        let networks = written.cidr.iter().map(|cidr| cidr.get());
        all.push(Condition::ClientIp(networks.collect()));
    }
    let list = |list: &List<schema::Condition>| {
        let conditions = list.iter().map(|one| condition(one, form));
        conditions.collect::<Vec<_>>()
    };
    if !written.any.is_empty() {
        all.push(Condition::Any(list(&written.any)));
    }
    all.append(&mut list(&written.all));
    if let Some(not) = &written.not {
        all.push(Condition::Not(Box::new(condition(not, form))));
    }
    match <[Condition; 1]>::try_from(all) {
        Ok([only]) => only,
        Err(all) => Condition::All(all),
    }
}
