//! What the watches know of all jobs.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fencepost_crds::StreamJob;
use fencepost_plan::ownership::{Claim, Rival};
use futures::future::join_all;
use kube::{core::DeserializeGuard, runtime::reflector::Store};
use tokio::sync::OnceCell;

/// How long the first look waits until every namespace was read once. One that is not there any more must not stop the others.
const FIRST_READ: Duration = Duration::from_secs(10);

type Jobs = Store<DeserializeGuard<StreamJob>>;

/// The jobs of every namespace that is watched, as old as the watches are.
#[derive(Debug, Default)]
pub struct AllJobs {
    stores: Mutex<Vec<Jobs>>,
    were_read: OnceCell<()>,
}

impl AllJobs {
    /// One more scope that is watched. All are added before the first of them runs.
    pub fn add(&self, store: Jobs) {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner).push(store);
    }

    /// Who else uses the names of this job. A job that cannot be read is not known to use any.
    pub async fn rivals(&self, job: &StreamJob) -> Vec<Rival> {
        let stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let wait = async || {
            let all = join_all(stores.iter().map(Jobs::wait_until_ready));
            if tokio::time::timeout(FIRST_READ, all).await.is_err() {
                tracing::warn!("StreamJobs of some namespace cannot be read: their names are not looked at");
            }
        };
        self.were_read.get_or_init(wait).await;
        let (claim, others) = (Claim::of(job), stores.iter().flat_map(Jobs::state));
        let mut rivals: Vec<Rival> = others.filter_map(|other| claim.rival(other.0.as_ref().ok()?)).collect();
        // The order of a map is none.
        rivals.sort_by(|one, other| one.job.cmp(&other.job));
        rivals
    }
}
