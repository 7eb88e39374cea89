//! What a user writes ([`v1alpha1::StreamJob`]), what the operator answers (status and [`conditions`]), and what operator
//! and worker say to each other ([`contract`]).
//!
//! The Kubernetes schema is generated from these types; `crds/yaml` holds the result and a test keeps it in step.

pub mod conditions;
pub mod contract;
pub mod crd;
pub mod names;
pub mod resolve;
pub mod v1alpha1;

pub use v1alpha1::{StreamJob, StreamJobSpec, StreamJobStatus};
