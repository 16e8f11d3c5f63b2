//! Compiles costs of requests, and their settlement by responses.

use std::sync::Arc;

use crate::config::schema::{self, Policy, Reserve, StatedCost};
use crate::rules::{Cost, CostSource, CountedResponses, ProxyResponses, Settlement};

/// The charge at admission.
pub(in crate::config) fn cost(written: &schema::Cost) -> Cost {
    match written {
        schema::Cost::Constant(cost) => Cost::Constant(cost.get()),
        schema::Cost::Stated(stated) => match &stated.header {
            Some(header) => Cost::Header {
                name: header.get().clone(),
                default: 1,
                max: stated.max.get(),
            },
            None => reserve(stated),
        },
    }
}

/// The reservation until the response settles the cost.
fn reserve(stated: &StatedCost) -> Cost {
    match stated.reserve.as_deref() {
        Some(Reserve::Stated(reserve)) => Cost::Header {
            name: reserve.header.get().clone(),
            default: reserve.default.get(),
            max: reserve.max.as_ref().unwrap_or(&stated.max).get(),
        },
        _ => Cost::Constant(stated.reserved()),
    }
}

/// The settlement by responses, if any.
pub(in crate::config) fn settlement(policy: &Policy) -> Option<Settlement> {
    let by = match &policy.cost.value {
        schema::Cost::Constant(_) => CostSource::Reserve,
        schema::Cost::Stated(stated) => settled_by(stated),
    };
    let statuses: Vec<_> = policy
        .count
        .iter()
        .flat_map(|statuses| statuses.range())
        .collect();
    let counted = (!statuses.is_empty()).then(|| CountedResponses {
        statuses,
        own: match policy.count_own.get() {
            true => ProxyResponses::Counted,
            false => ProxyResponses::NotCounted,
        },
    });
    let settles = counted.is_some() || by != CostSource::Reserve;
    settles.then_some(Settlement { counted, by })
}

fn settled_by(stated: &StatedCost) -> CostSource {
    let max = stated.max.get();
    if let Some(name) = &stated.response_header {
        let name = name.get().clone();
        CostSource::Header { name, max }
    } else if let Some(name) = &stated.response_trailer {
        let name = name.get().clone();
        CostSource::Trailer { name, max }
    } else if let Some(pointers) = &stated.response_json {
        let pointers = pointers.0.iter().map(|pointer| Arc::clone(pointer.get()));
        let pointers = pointers.collect();
        CostSource::Json { pointers, max }
    } else if let Some(unit) = &stated.response_bytes {
        let unit = unit.bytes();
        CostSource::Bytes { unit, max }
    } else {
        CostSource::Reserve
    }
}
