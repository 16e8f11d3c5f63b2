//! The files of deploy/: configurations without warnings, manifests that Kubernetes accepts, and paths that
//! exist.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn deploy() -> PathBuf {
    Path::new(ROOT).join("deploy")
}

fn yaml(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("a readable file");
    serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a command, and returns what it prints.
fn run<S: AsRef<OsStr>>(program: S, arguments: &[&Path]) -> String {
    let mut command = Command::new(&program);
    let secret = "at-least-sixteen-characters";
    let command = command.args(arguments).env("SLUICEGATE_SECRET", secret);
    let output = command.env("SLUICEGATE_ADMIN_TOKEN", secret).output();
    let output = output.unwrap_or_else(|error| {
        panic!(
            "{:?}, which ./scripts/test installs: {error}",
            program.as_ref()
        )
    });
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    printed
}

/// The objects that `kubectl apply -k` would make, as a file.
fn manifests(dir: &Path) -> PathBuf {
    let folder = deploy().join("kubernetes");
    let file = dir.join("manifests.yaml");
    fs::write(&file, run("kubectl", &[Path::new("kustomize"), &folder]))
        .expect("a writable folder");
    file
}

#[test]
fn configurations_have_no_warnings() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let secrets = dir.path().to_str().expect("a text path");
    for secret in ["admin-token", "secret"] {
        fs::write(dir.path().join(secret), "6f1d0c6e5b8a4793a2c4").expect("a writable folder");
    }
    for folder in ["compose/sluicegate", "kubernetes"] {
        let text = fs::read_to_string(deploy().join(folder).join("sluicegate.yaml"));
        let text = text.expect("a readable file");
        let file = dir.path().join("sluicegate.yaml");
        fs::write(&file, text.replace("/run/secrets/sluicegate", secrets)).expect("written");
        let check = ["check", "--deny-warnings"].map(Path::new);
        run(
            env!("CARGO_BIN_EXE_sluicegate"),
            &[&check[..], &[&file]].concat(),
        );
    }
}

#[test]
fn kubernetes_knows_every_field_of_the_manifests() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = manifests(dir.path());
    // scripts/kubernetes-validate installs it there.
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| "target".into(), PathBuf::from);
    let validate = Path::new(ROOT)
        .join(target)
        .join("kubernetes-validate/bin/kubernetes-validate");
    for version in ["1.27", "1.34"] {
        let options = ["--strict", "--no-warn", "-k", version].map(Path::new);
        let printed = run(&validate, &[&options[..], &[&file]].concat());
        for kind in [
            "configmap/sluicegate",
            "deployment/sluicegate",
            "service/sluicegate",
            "horizontalpodautoscaler/sluicegate",
            "poddisruptionbudget/sluicegate",
            "networkpolicy/sluicegate",
        ] {
            assert!(
                printed.contains(&format!("passed for resource {kind} ")),
                "{kind}: {printed}"
            );
        }
    }
}

#[test]
fn pods_keep_to_the_restricted_standard_and_mount_the_checked_configuration() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let text = fs::read_to_string(manifests(dir.path())).expect("a readable file");
    let objects: Vec<Value> = text
        .split("\n---\n")
        .map(|object| serde_yaml::from_str(object).expect("YAML"))
        .collect();
    let of = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let checked = fs::read_to_string(deploy().join("kubernetes/sluicegate.yaml"));
    let map = of("ConfigMap").next().expect("a ConfigMap");
    assert_eq!(map["metadata"]["name"], "sluicegate");
    assert_eq!(
        map["data"]["sluicegate.yaml"],
        checked.expect("a readable file")
    );
    assert_eq!(of("Deployment").count(), 2);
    let mounts = "/spec/template/spec/containers/0/volumeMounts";
    let mounts = of("Deployment").find_map(|pod| pod.pointer(mounts));
    assert_eq!(
        mounts.expect("mounts")[1]["mountPath"],
        "/run/secrets/sluicegate"
    );
    for deployment in of("Deployment") {
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{pod}");
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        for container in pod["containers"].as_array().expect("containers") {
            let context = &container["securityContext"];
            assert_eq!(context["allowPrivilegeEscalation"], false, "{container}");
            assert_eq!(context["readOnlyRootFilesystem"], true, "{container}");
            assert_eq!(context["capabilities"]["drop"][0], "ALL", "{container}");
        }
    }
}

#[test]
fn compose_mounts_files_that_exist_and_prometheus_takes_its_own() {
    let folder = deploy().join("compose");
    let compose = yaml(&folder.join("compose.yaml"));
    let services = compose["services"].as_object().expect("services");
    let mounts = services
        .values()
        .flat_map(|service| service["volumes"].as_array().into_iter().flatten());
    let mounts = mounts.map(|mount| mount.as_str().expect("the short form"));
    let mut files = mounts.filter(|mount| mount.starts_with('.')).peekable();
    assert!(files.peek().is_some());
    for mount in files {
        let file = mount.split(':').next().expect("a path");
        assert!(folder.join(file).exists(), "{file}");
    }
    let prometheus = folder.join("prometheus.yaml");
    let check = ["check", "config", "--syntax-only"].map(Path::new);
    run("promtool", &[&check[..], &[&prometheus]].concat());
    for file in ["grafana/datasource.yaml", "grafana/dashboards.yaml"] {
        assert_eq!(yaml(&folder.join(file))["apiVersion"], 1, "{file}");
    }
}
