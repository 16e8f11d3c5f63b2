//! What the fuzzer runs: each target takes any bytes, and panics on what must not happen.
//!
//! `scripts/fuzz` runs them; CONTRIBUTING.md says how to add one.

mod client;
mod client_address;
mod config;
mod costs;
mod fixture;
mod frames;
mod http1;
mod http2;
mod paths;
mod proxy_protocol;
mod redis;
mod replay;
mod response;
mod snapshot;

/// A target.
#[derive(Debug)]
pub struct Target {
    /// The name, also of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Takes an input.
    pub run: fn(&[u8]),
    /// Changes an input; `None` for libFuzzer's way.
    pub mutate: Option<Mutator>,
}

/// Changes the input of this size at the start of the buffer, and returns its new size, which is at
/// most the third argument. The last argument is libFuzzer's way to do the same.
pub type Mutator = fn(&mut [u8], usize, usize, u32, &mut BytesMutator<'_>) -> usize;

/// Changes the input of this size at the start of the buffer, and returns its new size, which is at
/// most the third argument.
pub type BytesMutator<'a> = dyn FnMut(&mut [u8], usize, usize) -> usize + 'a;

/// All targets.
pub const TARGETS: &[Target] = &[
    bytes("http1", http1::run),
    Target {
        name: "http2",
        run: http2::run,
        mutate: Some(http2::mutate),
    },
    bytes("client_address", client_address::run),
    bytes("proxy_protocol", proxy_protocol::run),
    bytes("config", config::run),
    bytes("costs", costs::run),
    bytes("replay", replay::run),
    bytes("snapshot", snapshot::run),
    bytes("redis", redis::run),
    bytes("paths", paths::run),
];

/// Finds a target by its name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// A target whose inputs have no structure that libFuzzer would have to know.
const fn bytes(name: &'static str, run: fn(&[u8])) -> Target {
    Target {
        name,
        run,
        mutate: None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::TARGETS;

    fn corpus() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
    }

    fn entries(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        let mut paths: Vec<_> = entries
            .map(|entry| entry.expect("readable").path())
            .collect();
        paths.sort();
        paths
    }

    #[test]
    fn every_seed_passes() {
        for target in TARGETS {
            let seeds = entries(&corpus().join(target.name));
            assert!(!seeds.is_empty(), "{} has no seeds", target.name);
            for seed in seeds {
                println!("{}", seed.display());
                (target.run)(&fs::read(seed).expect("readable"));
            }
        }
    }

    #[test]
    fn every_folder_of_seeds_has_its_target() {
        let mut folders: Vec<_> = TARGETS.iter().map(|one| corpus().join(one.name)).collect();
        folders.sort();
        assert_eq!(entries(&corpus()), folders);
    }
}
