//! Compiles costs of requests, and their settlement by responses.

use std::sync::Arc;

use crate::config::schema::{self, Policy, Reserve, ToldCost};
use crate::rules::{Cost, Counted, OwnAnswers, SettledBy, Settlement};

/// The charge at admission.
pub(super) fn cost(written: &schema::Cost) -> Cost {
    match written {
        schema::Cost::Constant(cost) => Cost::Constant(cost.get()),
        schema::Cost::Told(told) => match &told.header {
            Some(header) => Cost::Header {
                name: header.get().clone(),
                default: 1,
                max: told.max.get(),
            },
            None => reserve(told),
        },
    }
}

/// The reservation until the response settles the cost.
fn reserve(told: &ToldCost) -> Cost {
    match told.reserve.as_deref() {
        Some(Reserve::Told(asked)) => Cost::Header {
            name: asked.header.get().clone(),
            default: asked.default.get(),
            max: asked.max.as_ref().unwrap_or(&told.max).get(),
        },
        _ => Cost::Constant(told.reserved()),
    }
}

/// The settlement by responses, if any.
pub(super) fn settlement(policy: &Policy) -> Option<Settlement> {
    let by = match &policy.cost.value {
        schema::Cost::Constant(_) => SettledBy::Reserve,
        schema::Cost::Told(told) => settled_by(told),
    };
    let statuses: Vec<_> = policy
        .count
        .iter()
        .flat_map(|statuses| statuses.range())
        .collect();
    let counted = (!statuses.is_empty()).then(|| Counted {
        statuses,
        own: match policy.count_own.get() {
            true => OwnAnswers::Counted,
            false => OwnAnswers::NotCounted,
        },
    });
    let settles = counted.is_some() || by != SettledBy::Reserve;
    settles.then_some(Settlement { counted, by })
}

fn settled_by(told: &ToldCost) -> SettledBy {
    let max = told.max.get();
    if let Some(name) = &told.response_header {
        let name = name.get().clone();
        SettledBy::Header { name, max }
    } else if let Some(name) = &told.response_trailer {
        let name = name.get().clone();
        SettledBy::Trailer { name, max }
    } else if let Some(pointers) = &told.response_json {
        let pointers = pointers.0.iter().map(|pointer| Arc::clone(pointer.get()));
        let pointers = pointers.collect();
        SettledBy::Json { pointers, max }
    } else if let Some(unit) = &told.response_bytes {
        let unit = unit.bytes();
        SettledBy::Bytes { unit, max }
    } else {
        SettledBy::Reserve
    }
}
