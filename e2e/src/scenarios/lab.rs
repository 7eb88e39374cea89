//! A cluster with Fencepost installed as a user installs it: images in the nodes, charts by helm.

use fencepost_oracle::Connection;

use super::Failure;
use crate::cluster::kafka::User;
use crate::cluster::{Cluster, ClusterSpec};
use crate::images::{self, Image, Images};
use crate::{paths, report};

/// The namespace of the operator.
pub const SYSTEM: &str = "fencepost-system";

/// A cluster on which jobs can be applied.
#[derive(Debug)]
pub struct Lab {
    cluster: Cluster,
    /// The worker with its fault points, where a scenario wants it.
    faulty: Option<Image>,
}

impl Lab {
    /// Takes a cluster that was kept, with what is installed on it.
    ///
    /// # Errors
    /// When there is none.
    pub fn installed(spec: &ClusterSpec, with_faults: bool) -> Result<Self, Failure> {
        let cluster = Cluster::attach(&spec.name).map_err(Failure::means("take the cluster that was kept"))?;
        Ok(Self { cluster, faulty: faulty(with_faults)? })
    }

    /// Brings a cluster up, or takes the one of that name that was kept, and installs the checkout on it.
    ///
    /// # Errors
    /// When something does not build, start, or install.
    pub fn open(spec: &ClusterSpec, with_faults: bool) -> Result<Self, Failure> {
        // Side by side: the cluster mostly waits, the images mostly compile.
        let (images, cluster) = std::thread::scope(|scope| {
            let images = scope.spawn(|| {
                let faulty = faulty(with_faults)?;
                Ok::<_, Failure>((faulty, images::build().map_err(Failure::means("build the images"))?))
            });
            let kept = Cluster::list().contains(&spec.name);
            let cluster = if kept { Cluster::attach(&spec.name) } else { Cluster::up(spec) };
            if cluster.is_ok() && !images.is_finished() {
                report::step("the cluster waits for the programs of the images (the first time up to 30 minutes)");
            }
            (images.join(), cluster)
        });
        let (faulty, images) = images.map_err(|_| Failure::Thread)??;
        let lab = Self { cluster: cluster.map_err(Failure::means("bring the cluster up"))?, faulty };
        report::step("installing the charts");
        lab.install(&images)?;
        Ok(lab)
    }

    fn install(&self, images: &Images) -> Result<(), Failure> {
        for image in [&images.operator, &images.worker].into_iter().chain(&self.faulty) {
            self.cluster.import_image(&image.archive).map_err(Failure::means("bring an image into the nodes"))?;
        }
        let charts = paths::repository().join("charts");
        let value = |name: &str, value: &str| format!("--set={name}={value}");
        let helm = |release: &str, more: &[String]| {
            let chart = charts.join(release).display().to_string();
            let mut arguments =
                vec!["upgrade", "--install", release, &chart, "--namespace", SYSTEM, "--create-namespace"];
            arguments.extend(["--wait", "--timeout=3m"]);
            arguments.extend(more.iter().map(String::as_str));
            self.cluster.helm(&arguments).map_err(Failure::means("install a chart")).map(drop)
        };
        helm("fencepost-crds", &[])?;
        let settings = [
            value("image.repository", images.operator.repository()),
            value("image.tag", images.operator.tag()),
            value("workerImage.repository", images.worker.repository()),
            value("workerImage.tag", images.worker.tag()),
        ];
        helm("fencepost", &settings)
    }

    /// Name of the image of the worker with fault points.
    ///
    /// # Errors
    /// When the scenario is not marked as one that wants it.
    pub fn worker_with_faults(&self) -> Result<&str, Failure> {
        let image = self.faulty.as_ref();
        image.map(|image| image.name.as_str()).ok_or_else(|| Failure::Expectation("no worker with fault points".into()))
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// How tests reach Kafka: as somebody who may read and write everything.
    #[must_use]
    pub fn connection(&self) -> Connection {
        self.cluster.kafka_connection(User::Admin)
    }
}

fn faulty(wanted: bool) -> Result<Option<Image>, Failure> {
    wanted.then(images::build_with_faults).transpose().map_err(Failure::means("build the worker with fault points"))
}
