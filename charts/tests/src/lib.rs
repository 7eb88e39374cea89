//! Tests of the charts: what they render, what they refuse, and that what is made from them is in step.
//!
//! Helm is found by `FENCEPOST_HELM`, or in the cache of tools that `cargo run -p fencepost-e2e -- build` fills. Without it
//! the tests fail: a chart that was not rendered was not tested.
//!
//! `UPDATE=1 cargo test -p fencepost-charts-tests` writes the snapshots, the table of values in the README and the
//! descriptions in the schema anew.

#[cfg(test)]
mod alerts;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod committed;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod helm;
#[cfg(test)]
mod manifests;
#[cfg(test)]
mod rbac;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod security;
#[cfg(test)]
mod values;
