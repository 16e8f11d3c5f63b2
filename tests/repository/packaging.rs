//! The container file, as far as it can be judged without an engine: what it copies exists and suffices to
//! build, and the image it describes is the one that is documented. That the binary is static is
//! proven on the binary itself, by `scripts/static-build`.

use std::fs;
use std::path::Path;
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// An instruction with its arguments, continuation lines joined.
struct Instruction {
    verb: String,
    arguments: Vec<String>,
}

fn dockerfile() -> Vec<Instruction> {
    let text = fs::read_to_string(Path::new(ROOT).join("Dockerfile")).expect("Dockerfile");
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let instructions = joined.lines().filter_map(|line| {
        let mut words = line.split_whitespace().map(str::to_owned);
        Some(Instruction {
            verb: words.next()?,
            arguments: words.collect(),
        })
    });
    instructions.collect()
}

/// What `COPY` takes from the build context: (sources, destination) of each.
fn copies_from_context(file: &[Instruction]) -> Vec<(&[String], &str)> {
    let copies = file.iter().filter(|instruction| instruction.verb == "COPY");
    let copies = copies.filter(|copy| !copy.arguments[0].starts_with("--from="));
    let split = copies.map(|copy| copy.arguments.split_last().expect("COPY has arguments"));
    split
        .map(|(destination, sources)| (sources, destination.as_str()))
        .collect()
}

/// The last instruction of that name: the one that the final stage means.
fn last<'a>(file: &'a [Instruction], verb: &str) -> &'a [String] {
    let found = file
        .iter()
        .rev()
        .find(|instruction| instruction.verb == verb);
    &found
        .unwrap_or_else(|| panic!("the Dockerfile has no {verb}"))
        .arguments
}

#[test]
fn every_path_that_the_image_copies_exists_and_is_let_through() {
    let file = dockerfile();
    let ignore = fs::read_to_string(Path::new(ROOT).join(".dockerignore")).expect(".dockerignore");
    let let_through: Vec<&str> = ignore
        .lines()
        .filter_map(|line| line.strip_prefix('!'))
        .collect();
    let copies = copies_from_context(&file);
    assert!(!copies.is_empty());
    for source in copies.iter().flat_map(|(sources, _)| *sources) {
        assert!(
            Path::new(ROOT).join(source).exists(),
            "COPY {source}: no such path"
        );
        let top = source.split('/').next().expect("split yields at least one");
        let passes = let_through
            .iter()
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => top.starts_with(start),
                None => top == *pattern || source == pattern,
            });
        assert!(passes, ".dockerignore keeps {source} out of the build");
    }
}

#[test]
fn what_the_image_copies_is_a_whole_package() {
    let file = dockerfile();
    let staged = tempfile::tempdir().expect("a temporary directory");
    for source in copies_from_context(&file)
        .iter()
        .flat_map(|(sources, _)| *sources)
    {
        let target = staged.path().join(source);
        fs::create_dir_all(target.parent().expect("below the stage"))
            .expect("the stage is writable");
        std::os::unix::fs::symlink(Path::new(ROOT).join(source), target)
            .expect("the stage is writable");
    }
    let metadata = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--locked",
            "--offline",
            "--no-deps",
            "--format-version=1",
        ])
        .current_dir(staged.path())
        .output()
        .expect("cargo runs");
    assert!(
        metadata.status.success(),
        "{}",
        String::from_utf8_lossy(&metadata.stderr)
    );
    let mut embedded = Vec::new();
    find_embedded(&Path::new(ROOT).join("src"), &mut embedded);
    for path in embedded {
        assert!(
            staged.path().join(&path).exists(),
            "src embeds {path}, which the image does not copy"
        );
    }
}

/// Files outside src/ that the source embeds by `include_str!` or `include_bytes!`, relative to the root.
fn find_embedded(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).expect("src is readable") {
        let path = entry.expect("src is readable").path();
        if path.is_dir() {
            find_embedded(&path, found);
            continue;
        }
        let text = fs::read_to_string(&path).expect("source is text");
        let calls = ["include_str!(\"", "include_bytes!(\""].map(|call| text.split(call).skip(1));
        for call in calls.into_iter().flatten() {
            let (name, _) = call.split_once('"').expect("a string has an end");
            let target = path.parent().expect("a file has a parent").join(name);
            let target = target.canonicalize().expect("the source compiles");
            let relative = target
                .strip_prefix(ROOT)
                .expect("embeds only its own files");
            if !relative.starts_with("src") {
                found.push(relative.to_str().expect("paths are text").to_owned());
            }
        }
    }
}

#[test]
fn a_layer_of_the_image_has_all_dependencies_and_no_source() {
    let file = dockerfile();
    let of_source = |step: &&Instruction| step.verb == "COPY" && step.arguments[0] == "src";
    let before = file.iter().take_while(|step| !of_source(step));
    let runs = before.filter(|step| step.verb == "RUN");
    let layer: Vec<_> = runs.map(|step| step.arguments.join(" ")).collect();
    let [layer] = &layer[..] else {
        panic!("one layer before the source: {layer:?}");
    };
    assert!(layer.contains("scripts/static-build"), "{layer}");
    // Cargo wants to see every target that the manifest names.
    let manifest = ["Cargo.toml", "crates/limiter/Cargo.toml"]
        .map(|path| fs::read_to_string(Path::new(ROOT).join(path)).expect("a manifest"))
        .concat();
    let benches = manifest.split("[[bench]]\nname = \"").skip(1);
    for bench in benches.filter_map(|bench| bench.split('"').next()) {
        assert!(
            layer.contains(&format!("benches/{bench}.rs")),
            "{bench}: {layer}"
        );
    }
}

#[test]
fn the_image_runs_the_static_binary_without_rights() {
    let file = dockerfile();
    let builds = file.iter().any(|step| {
        step.verb == "RUN" && step.arguments.join(" ").contains("scripts/static-build")
    });
    assert!(
        builds,
        "the image is built by the script that proves the binary static"
    );
    // `nonroot` by number: Kubernetes wants to see that it isn't root.
    assert_eq!(last(&file, "USER"), ["65532:65532"]);
    assert!(
        last(&file, "HEALTHCHECK")
            .join(" ")
            .ends_with("\"healthcheck\"]")
    );
    assert_eq!(last(&file, "EXPOSE"), ["8080", "9980"]);
    assert!(
        last(&file, "FROM")[0].contains("distroless/static"),
        "nothing else in the image"
    );
    let entry = last(&file, "ENTRYPOINT").concat();
    let copied = file
        .iter()
        .rev()
        .find(|step| step.verb == "COPY")
        .expect("the image has the binary");
    let binary = copied.arguments.last().expect("COPY has a destination");
    assert!(entry.contains(binary.as_str()), "{entry} is not {binary}");
}

#[test]
fn the_image_is_labelled_with_the_licence_of_the_package() {
    let labels = last(&dockerfile(), "LABEL").join(" ");
    for label in ["title", "description", "version", "revision"] {
        assert!(
            labels.contains(&format!("org.opencontainers.image.{label}=")),
            "no label {label}"
        );
    }
    let licence = format!(
        "org.opencontainers.image.licenses=\"{}\"",
        env!("CARGO_PKG_LICENSE")
    );
    assert!(labels.contains(&licence), "{labels}");
}
