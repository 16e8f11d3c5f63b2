//! libFuzzer's main program: fuzzes the target that `FUZZ_TARGET` names.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use sluicegate::fuzzing::{self, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    fuzzing::target(&name).unwrap_or_else(|| {
        let known: Vec<_> = fuzzing::TARGETS.iter().map(|target| target.name).collect();
        eprintln!("FUZZ_TARGET is one of {}", known.join(", "));
        std::process::exit(2);
    })
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    match TARGET.mutate {
        Some(mutate) => mutate(data, size, max_size, seed, &mut fuzzer_mutate),
        None => fuzzer_mutate(data, size, max_size),
    }
});
