//! The priority of requests that an overflow bucket paid for, as the upstream sees it.

use super::Admission;
use crate::http::headers::Headers;
use crate::proxy::ruleset::Route;
use crate::upstream::Dscp;

/// Writes the priority fields for the upstream.
pub(crate) fn write(route: &Route, admission: Option<&Admission>, headers: &mut Headers) {
    let lowered = admission.into_iter().flat_map(|one| one.lowered(route));
    for (name, value) in lowered.flat_map(|(_, overflow)| &overflow.fields) {
        headers.insert(name, value.clone());
    }
}

/// The code point of the first limit that lowers the priority and names one.
pub(crate) fn dscp(route: &Route, admission: Option<&Admission>) -> Option<Dscp> {
    let mut lowered = admission?.lowered(route);
    lowered.find_map(|(_, overflow)| overflow.dscp)
}
