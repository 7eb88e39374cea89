//! Sets of values, and what the charts render with them: `values/<case>.yaml` and `snapshots/<case>.yaml`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    committed,
    documents::{self, Document},
    helm::{self, Chart, RELEASE, Release},
};

/// A set of values for the operator's chart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) release: Release,
}

const fn case(name: &'static str) -> Case {
    Case { name, release: RELEASE }
}

pub(crate) const CASES: [Case; 8] = [
    case("default"),
    // A release with another name than the chart's: both are in the names of the objects.
    Case { name: "namespaced", release: Release { name: "prod", namespace: "streaming" } },
    case("high-availability"),
    case("monitoring"),
    case("private-registry"),
    case("own-roles"),
    case("network-policy"),
    case("everything"),
];

impl Case {
    pub(crate) fn by_name(name: &str) -> Self {
        CASES.into_iter().find(|case| case.name == name).unwrap()
    }

    fn values(self) -> String {
        fs::read_to_string(folder("values").join(self.name).with_extension("yaml")).unwrap()
    }

    fn render(self) -> String {
        helm::template(Chart::Operator, self.release, &self.values())
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    pub(crate) fn documents(self) -> Vec<Document> {
        documents::parse(&self.render())
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The documents, in an order and with separators that do not depend on the version of Helm.
fn snapshot(documents: Vec<Document>) -> String {
    let mut texts: Vec<String> = documents.into_iter().map(|document| document.text).collect();
    texts.sort();
    let texts: String = texts.into_iter().map(|text| format!("---\n{text}\n")).collect();
    format!("# Written by `UPDATE=1 cargo test -p fencepost-charts-tests`. Do not edit.\n{texts}")
}

#[test]
fn charts_render_what_is_committed() {
    for case in CASES {
        let path = folder("snapshots").join(case.name).with_extension("yaml");
        committed::check(&path, &snapshot(case.documents()));
    }
}

#[test]
fn every_file_belongs_to_a_case() {
    let cases: BTreeSet<String> = CASES.iter().map(|case| format!("{}.yaml", case.name)).collect();
    for name in ["values", "snapshots"] {
        let files = fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(files.collect::<BTreeSet<_>>(), cases, "{name}");
    }
}

#[test]
fn rendering_twice_gives_the_same() {
    let case = Case::by_name("everything");
    assert_eq!(case.render(), case.render());
}
