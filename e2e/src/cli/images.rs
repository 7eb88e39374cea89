//! `images`

use std::process::ExitCode;

use clap::Args;

use super::{Outcome, Which};
use crate::cluster::{Cluster, ClusterName};
use crate::images;
use crate::report;

/// Make the images of the operator and the worker, and bring them into a cluster that is up
#[derive(Debug, Args)]
pub(super) struct Images {
    #[command(flatten)]
    which: Which,
}

impl Images {
    pub(super) fn run(self) -> Outcome {
        let built = images::build()?;
        let name: &ClusterName = self.which.name();
        let cluster = if Cluster::list().contains(name) { Some(Cluster::attach(name)?) } else { None };
        for image in [built.operator, built.worker] {
            if let Some(cluster) = &cluster {
                cluster.import_image(&image.archive)?;
            }
            report::answer(image.name);
        }
        Ok(ExitCode::SUCCESS)
    }
}
