//! Runs the real Helm on the charts, away from the user's own configuration and from any cluster.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// A chart of this repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chart {
    Operator,
    Crds,
}

impl Chart {
    pub(crate) const ALL: [Self; 2] = [Self::Operator, Self::Crds];

    pub(crate) fn path(self) -> PathBuf {
        let charts = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        charts.join(match self {
            Self::Operator => "fencepost",
            Self::Crds => "fencepost-crds",
        })
    }

    pub(crate) fn read(self, file: &str) -> String {
        let path = self.path().join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// The version of Kubernetes that the charts are rendered for, so that a newer Helm does not change the snapshots.
const KUBERNETES: &str = "1.34.0";

/// What a release is called and where it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release {
    pub(crate) name: &'static str,
    pub(crate) namespace: &'static str,
}

pub(crate) const RELEASE: Release = Release { name: "fencepost", namespace: "fencepost-system" };

/// The manifests that a chart renders with these values (YAML), or what Helm says against it.
pub(crate) fn template(chart: Chart, release: Release, values: &str) -> Result<String, String> {
    let chart = chart.path();
    let chart = chart.to_str().unwrap();
    let args = ["template", release.name, chart, "--namespace", release.namespace, "--kube-version", KUBERNETES];
    run(&args, values)
}

/// What `helm install` would tell the user.
pub(crate) fn notes(release: Release, values: &str) -> String {
    let chart = Chart::Operator.path();
    let args = ["install", release.name, chart.to_str().unwrap(), "--namespace", release.namespace, "--dry-run=client"];
    let out = run(&args, values).unwrap();
    out.split_once("\nNOTES:\n").unwrap_or_else(|| panic!("no notes in: {out}")).1.to_owned()
}

/// Runs Helm with arguments and a file of values. Its standard output, or its standard error when it fails.
pub(crate) fn run(args: &[&str], values: &str) -> Result<String, String> {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("values.yaml");
    fs::write(&file, values).unwrap();
    let output = Command::new(HELM.as_path())
        .args(args)
        .arg("--values")
        .arg(&file)
        .env_clear()
        .env("HOME", home.path())
        .env("KUBECONFIG", "/dev/null")
        .output()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}", HELM.display()));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

static HELM: LazyLock<PathBuf> = LazyLock::new(|| {
    named().or_else(cached).unwrap_or_else(|| {
        panic!(
            "Helm is missing: run `cargo run -p fencepost-e2e -- build`, or set FENCEPOST_HELM to the path of a Helm 4"
        )
    })
});

fn named() -> Option<PathBuf> {
    env::var_os("FENCEPOST_HELM").map(PathBuf::from)
}

/// The newest Helm in the cache of the end-to-end tests.
fn cached() -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    let tools = fs::read_dir(cache.join("fencepost/tools")).ok()?;
    let helms = tools.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("helm-"));
    let programs = helms.map(|entry| entry.path().join("bin/helm")).filter(|path| path.is_file());
    programs.max_by_key(|path| fs::metadata(path).and_then(|data| data.modified()).ok())
}

#[test]
fn helm_has_nothing_to_say_against_the_charts() {
    for chart in Chart::ALL {
        let path = chart.path();
        if let Err(error) = run(&["lint", "--strict", path.to_str().unwrap(), "--kube-version", KUBERNETES], "{}") {
            panic!("{error}");
        }
    }
}

#[test]
fn charts_and_programs_have_one_version() {
    for chart in Chart::ALL {
        let about: serde_json::Value = serde_saphyr::from_str(&chart.read("Chart.yaml")).unwrap();
        assert_eq!(about["version"], env!("CARGO_PKG_VERSION"), "{chart:?}");
        assert_eq!(about["appVersion"], env!("CARGO_PKG_VERSION"), "{chart:?}");
    }
}

#[test]
fn notes_say_which_namespaces_are_watched_and_that_the_definition_is_missing() {
    let all = notes(RELEASE, "{}");
    assert!(all.contains("StreamJobs of all namespaces"), "{all}");
    assert!(all.contains("does not know StreamJob yet"), "{all}");
    let some = notes(RELEASE, "watchNamespaces: [shop, billing]");
    assert!(some.contains("StreamJobs of: shop, billing"), "{some}");
}
