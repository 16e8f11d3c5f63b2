//! What requests cost: what is charged when they are admitted, and what their responses make of that.

use crate::config::schema::{self, Policy, ToldCost};
use crate::rules::{Cost, Counted, OwnAnswers, SettledBy, Settlement};

/// What is charged when a request is admitted.
pub(super) fn cost(written: &schema::Cost) -> Cost {
    match written {
        schema::Cost::Constant(cost) => Cost::Constant(cost.get()),
        schema::Cost::Told(told) => match &told.header {
            Some(header) => Cost::Header {
                name: header.get().clone(),
                max: told.max.get(),
            },
            None => Cost::Constant(told.reserve.as_ref().map_or(1, |units| units.get())),
        },
    }
}

/// What responses make of that, if anything.
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
    match (&told.response_header, &told.response_bytes) {
        (Some(name), _) => SettledBy::Header {
            name: name.get().clone(),
            max,
        },
        (None, Some(unit)) => SettledBy::Bytes {
            unit: unit.bytes(),
            max,
        },
        (None, None) => SettledBy::Reserve,
    }
}
