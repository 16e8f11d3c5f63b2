//! The policies that families use, each with the bound that docs/limits.md gives it.

use crate::check::{Bound, Promise};

/// A policy, without its store and key.
#[derive(Clone, Copy)]
pub struct Policy {
    pub yaml: &'static str,
    /// The most units of a request.
    pub units: usize,
    pub bound: Bound,
}

const SECOND: u64 = 1_000_000;

pub const GCRA: Policy = Policy {
    yaml: "quota: 20/2s, burst: 12",
    units: 1,
    bound: Bound::Rate {
        burst: 12,
        limit: 20,
        window: 2 * SECOND,
    },
};

pub const TOKENS: Policy = Policy {
    yaml: "algorithm: token_bucket, quota: 20/2s, burst: 30, cost: { header: x-cost, max: 9 }",
    units: 3,
    bound: Bound::Rate {
        burst: 30,
        limit: 20,
        window: 2 * SECOND,
    },
};

pub const LOG: Policy = Policy {
    yaml: "algorithm: sliding_log, quota: 20/2s",
    units: 1,
    bound: Bound::Rolling {
        most: 20,
        window: 2 * SECOND,
    },
};

pub const PARTS: Policy = Policy {
    yaml: "algorithm: sliding_window, precision: 10, oldest: whole, quota: 20/2s",
    units: 1,
    bound: Bound::Rolling {
        most: 20,
        window: 2 * SECOND,
    },
};

pub const WINDOW: Policy = Policy {
    yaml: "algorithm: fixed_window, quota: 20/2s",
    units: 1,
    bound: Bound::Aligned {
        most: 20,
        window: 2 * SECOND,
    },
};

/// A configuration with these policies on the paths `/0` and so on, by the field `x-key`.
pub fn config(store: &str, policies: &[Policy], options: &str) -> String {
    let all = || policies.iter().enumerate();
    let written = all().map(|(place, policy)| {
        format!(
            "  p{place}: {{ key: \"header:x-key\", {}, {options} }}\n",
            policy.yaml
        )
    });
    let routes = all().map(|(place, _)| {
        format!("  - {{ match: {{ path: /{place} }}, upstream: echo, limits: [p{place}] }}\n")
    });
    format!(
        "{store}\npolicies:\n{}routes:\n{}",
        written.collect::<String>(),
        routes.collect::<String>()
    )
}

/// What docs promise of them without faults.
pub fn promises(policies: &[Policy]) -> Vec<Promise> {
    let all = policies.iter().enumerate();
    all.map(|(policy, of)| Promise {
        policy,
        bound: of.bound,
        excess: Vec::new(),
    })
    .collect()
}
