//! Kubernetes, etcd and CoreDNS, built from their Go modules.

use std::path::{Path, PathBuf};

use super::{Error, unpack};
use crate::cache::{self, Key};
use crate::command::{run, words};
use crate::report;

const CONTROL_PLANE_MOD: &str = include_str!("../../cluster/control-plane/go.mod");
const CONTROL_PLANE_SUM: &str = include_str!("../../cluster/control-plane/go.sum");
const DNS_MOD: &str = include_str!("../../cluster/dns/go.mod");
const DNS_SUM: &str = include_str!("../../cluster/dns/go.sum");
const DNS_MAIN: &str = include_str!("../../cluster/dns/main.go");

const KUBERNETES: &[&str] =
    &["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "kube-proxy"];

/// Changes whenever the way of building does, so that what an older harness built is not taken for it.
const RECIPE: &str = "1";

/// The folder with `bin/kube-apiserver` and the others, etcd and the pause program among them.
pub(super) fn kubernetes() -> Result<PathBuf, Error> {
    let version = required(CONTROL_PLANE_MOD, "k8s.io/kubernetes")?;
    let inputs = [CONTROL_PLANE_MOD, CONTROL_PLANE_SUM, RECIPE].map(str::as_bytes);
    let folder = cache::get(&Key::new("kubernetes", version, &inputs), |folder| {
        report::step("compiling Kubernetes and etcd: 5 to 15 minutes on 2 cores");
        let (module, bin) = folders(folder, CONTROL_PLANE_MOD, CONTROL_PLANE_SUM)?;
        let commands: Vec<String> = KUBERNETES.iter().map(|name| format!("k8s.io/kubernetes/cmd/{name}")).collect();
        go_build(&module, &bin, &version_flags(version), &commands)?;
        go_build(&module, &bin.join("etcd"), "-s -w", &["go.etcd.io/etcd/server/v3".to_owned()])?;
        // The pause program has no Go source: it is one C file of the Kubernetes module.
        let source = run(words("go", ["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"]).current_dir(&module))?;
        let pause = Path::new(source.trim()).join("build/pause/linux/pause.c");
        run(words("gcc", ["-Os", "-static", "-o"]).arg(bin.join("pause")).arg(pause))?;
        std::fs::remove_dir_all(&module).map_err(Error::file(&module))
    })?;
    Ok(folder)
}

/// The folder with `bin/coredns`.
pub(super) fn coredns() -> Result<PathBuf, Error> {
    let version = required(DNS_MOD, "github.com/coredns/coredns")?;
    let inputs = [DNS_MOD, DNS_SUM, DNS_MAIN, RECIPE].map(str::as_bytes);
    let folder = cache::get(&Key::new("coredns", version, &inputs), |folder| {
        let (module, bin) = folders(folder, DNS_MOD, DNS_SUM)?;
        unpack(&module, "main.go", DNS_MAIN)?;
        go_build(&module, &bin.join("coredns"), "-s -w", &[".".to_owned()])?;
        std::fs::remove_dir_all(&module).map_err(Error::file(&module))
    })?;
    Ok(folder)
}

/// A folder with the module's pins, and the empty one for the programs.
fn folders(folder: &Path, go_mod: &str, go_sum: &str) -> Result<(PathBuf, PathBuf), Error> {
    let (module, bin) = (folder.join("module"), folder.join("bin"));
    unpack(&module, "go.mod", go_mod)?;
    unpack(&module, "go.sum", go_sum)?;
    std::fs::create_dir_all(&bin).map_err(Error::file(&bin))?;
    Ok((module, bin))
}

fn go_build(module: &Path, output: &Path, linker_flags: &str, packages: &[String]) -> Result<(), Error> {
    let mut command = words("go", ["build", "-mod=readonly", "-trimpath", "-ldflags", linker_flags, "-o"]);
    command.arg(output).args(packages).current_dir(module).env("CGO_ENABLED", "0");
    run(&mut command)?;
    Ok(())
}

/// Without a version linked in, the Kubernetes programs panic at their start.
fn version_flags(version: &str) -> String {
    let package = "k8s.io/component-base/version";
    let mut numbers = version.split('.');
    let (major, minor) = (numbers.next().unwrap_or("0"), numbers.next().unwrap_or("0"));
    format!("-s -w -X {package}.gitVersion=v{version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}")
}

/// The version of `module` that a `go.mod` requires, without its `v`.
fn required<'m>(go_mod: &'m str, module: &str) -> Result<&'m str, Error> {
    go_mod
        .lines()
        .filter_map(|line| line.trim().trim_start_matches("require ").strip_prefix(module)?.strip_prefix(" v"))
        .find_map(|rest| rest.split_whitespace().next())
        .ok_or_else(|| Error::Lost { what: format!("the version of {module}") })
}

#[cfg(test)]
mod tests {
    use super::{CONTROL_PLANE_MOD, DNS_MOD, required, version_flags};

    #[test]
    fn the_version_comes_from_the_pins() {
        let go_mod = "require (\n\tk8s.io/kubernetes v1.2.3 // indirect\n)\nreplace k8s.io/kubernetes/x => v9\n";
        assert_eq!(required(go_mod, "k8s.io/kubernetes").unwrap(), "1.2.3");
        assert_eq!(required("require example.org/one v0.1.0", "example.org/one").unwrap(), "0.1.0");
        assert!(required(CONTROL_PLANE_MOD, "k8s.io/kubernetes").unwrap().starts_with("1.34."));
        assert!(required(DNS_MOD, "github.com/coredns/coredns").unwrap().starts_with("1."));
        assert!(required(go_mod, "k8s.io/none").is_err());
    }

    #[test]
    fn the_programs_know_their_version() {
        let flags = version_flags("1.34.4");
        assert!(flags.contains("gitVersion=v1.34.4") && flags.contains("gitMajor=1") && flags.ends_with("gitMinor=34"));
    }
}
