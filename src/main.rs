//! The `sluicegate` binary: everything is in the library.

use std::process::ExitCode;

/// glibc's is as fast; musl's, in the static binary, is not.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    sluicegate::main()
}
