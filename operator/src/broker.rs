//! Asking the brokers, with the credentials of the job.

mod credentials;
mod probe;

use std::{collections::BTreeSet, future::Future};

use fencepost_crds::{StreamJobSpec, v1alpha1::Guarantee};
use fencepost_kafka::settings::ConnectionSettings;
use fencepost_plan::{
    BrokerFacts, BrokerFailure, BrokerObserved,
    validate::{TopicToCreate, topics_of},
};
use futures::future::BoxFuture;
use kube::Client;

pub use self::{credentials::fingerprints, probe::Kafka};

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// How to reach the brokers.
    pub settings: ConnectionSettings,
    /// Topics to look for.
    pub topics: BTreeSet<String>,
    /// Limits are asked for only when they matter: it needs a permission.
    pub limits: Limits,
}

/// Whether limits of brokers are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limits {
    /// Of every broker.
    Ask,
    /// The job uses no transactions.
    Skip,
}

/// Something that can ask brokers.
pub trait BrokerProbe: Send + Sync {
    /// Facts about the cluster.
    fn facts(&self, question: Question) -> BoxFuture<'_, Result<BrokerFacts, BrokerFailure>>;

    /// Makes topics. A topic that exists is left as it is.
    fn create_topics(
        &self,
        settings: ConnectionSettings,
        topics: Vec<TopicToCreate>,
    ) -> BoxFuture<'_, Result<(), BrokerFailure>>;
}

/// Asks about everything that a spec needs.
pub async fn observe(
    client: &Client,
    probe: &dyn BrokerProbe,
    namespace: &str,
    spec: &StreamJobSpec,
) -> BrokerObserved {
    let answer = answer(client, namespace, spec, |settings| {
        probe.facts(Question {
            settings,
            topics: topics_of(spec),
            limits: match spec.processing.guarantee {
                Guarantee::ExactlyOnce => Limits::Ask,
                Guarantee::AtLeastOnce => Limits::Skip,
            },
        })
    });
    match answer.await {
        Ok(facts) => BrokerObserved::Facts(facts),
        Err(failure) => BrokerObserved::Failed(failure),
    }
}

/// Makes topics of a spec.
///
/// # Errors
/// The Secrets cannot be read, or the brokers refuse.
pub async fn create_topics(
    client: &Client,
    probe: &dyn BrokerProbe,
    namespace: &str,
    spec: &StreamJobSpec,
    topics: Vec<TopicToCreate>,
) -> Result<(), BrokerFailure> {
    answer(client, namespace, spec, |settings| probe.create_topics(settings, topics)).await
}

async fn answer<T, F>(
    client: &Client,
    namespace: &str,
    spec: &StreamJobSpec,
    ask: impl FnOnce(ConnectionSettings) -> F,
) -> Result<T, BrokerFailure>
where
    F: Future<Output = Result<T, BrokerFailure>>,
{
    let settings = credentials::settings(client, namespace, &spec.kafka).await?;
    ask(settings).await
}
