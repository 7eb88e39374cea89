//! Asking the brokers, with the credentials of the job.

mod credentials;
mod probe;

use std::{collections::BTreeSet, future::Future};

use fencepost_crds::{
    StreamJobSpec,
    conditions::Reason,
    v1alpha1::{FencedId, Guarantee, KafkaSpec},
};
use fencepost_kafka::settings::ConnectionSettings;
use fencepost_plan::{
    BrokerFacts, BrokerFailure, BrokerObserved,
    decide::Fence,
    validate::{TopicToCreate, topics_of},
};
use futures::future::BoxFuture;
use kube::Client;
use tokio::time::Instant;

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

/// Ids to fence on one cluster.
#[derive(Clone, Debug)]
pub struct FenceQuestion {
    /// How to reach the brokers.
    pub settings: ConnectionSettings,
    /// The ids.
    pub ids: Vec<String>,
    /// The cluster that is meant; on another one nothing is done.
    pub cluster_id: Option<String>,
    /// Nothing is begun later than this.
    pub until: Instant,
}

impl FenceQuestion {
    /// Asked just before the ids are fenced.
    ///
    /// # Errors
    /// It is too late.
    pub fn is_still_asked(&self) -> Result<(), BrokerFailure> {
        if Instant::now() < self.until {
            return Ok(());
        }
        let message = "it took too long to reach the brokers, so nothing was fenced".to_owned();
        Err(BrokerFailure { reason: Reason::BrokerUnreachable, message })
    }
}

/// What came of a fence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fenced {
    /// The ids that are fenced.
    pub ids: Vec<FencedId>,
    /// Why the others are not.
    pub failed: Option<BrokerFailure>,
}

/// What brokers made of a fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FenceAnswer {
    /// They are the right ones.
    Fenced(Fenced),
    /// They are another cluster, and did nothing.
    Elsewhere(String),
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

    /// Fences transactional ids.
    fn fence(&self, question: FenceQuestion) -> BoxFuture<'_, Result<FenceAnswer, BrokerFailure>>;
}

/// Asks about everything that a spec needs.
pub async fn observe(
    client: &Client,
    probe: &dyn BrokerProbe,
    namespace: &str,
    spec: &StreamJobSpec,
) -> BrokerObserved {
    let answer = answer(client, namespace, &spec.kafka, |settings| {
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
    answer(client, namespace, &spec.kafka, |settings| probe.create_topics(settings, topics)).await
}

/// Fences the ids on the cluster that has them, unless it gets too late.
pub async fn fence(client: &Client, probe: &dyn BrokerProbe, namespace: &str, fence: &Fence, until: Instant) -> Fenced {
    let meant = fence.cluster_id.as_deref().unwrap_or_default();
    // The first way is that of the newest settings.
    let mut failed = None;
    for kafka in &fence.kafka {
        let ask = |settings| {
            let (ids, cluster_id) = (fence.ids.clone(), fence.cluster_id.clone());
            probe.fence(FenceQuestion { settings, ids, cluster_id, until })
        };
        let failure = match answer(client, namespace, kafka, ask).await {
            Ok(FenceAnswer::Fenced(fenced)) => return fenced,
            Ok(FenceAnswer::Elsewhere(found)) => {
                let message = format!("{} is cluster {found}, and the ids are on {meant}", kafka.bootstrap_servers);
                BrokerFailure { reason: Reason::OtherCluster, message }
            }
            Err(failure) => failure,
        };
        failed = Some(match failed {
            None => failure,
            Some(BrokerFailure { reason, message }) => {
                let message = format!("{message}; {}: {}", kafka.bootstrap_servers, failure.message);
                BrokerFailure { reason, message }
            }
        });
    }
    Fenced { ids: Vec::new(), failed }
}

async fn answer<T, F>(
    client: &Client,
    namespace: &str,
    kafka: &KafkaSpec,
    ask: impl FnOnce(ConnectionSettings) -> F,
) -> Result<T, BrokerFailure>
where
    F: Future<Output = Result<T, BrokerFailure>>,
{
    let settings = credentials::settings(client, namespace, kafka).await?;
    ask(settings).await
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Mutex, PoisonError},
        time::Duration,
    };

    use http::{Request, Response};
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// Clusters by the server that leads to them. Every fence that reached one is kept.
    #[derive(Default)]
    struct Clusters {
        fenced: Mutex<Vec<String>>,
    }

    impl BrokerProbe for Clusters {
        fn facts(&self, _: Question) -> BoxFuture<'_, Result<BrokerFacts, BrokerFailure>> {
            panic!("only fences are asked for")
        }

        fn create_topics(
            &self,
            _: ConnectionSettings,
            _: Vec<TopicToCreate>,
        ) -> BoxFuture<'_, Result<(), BrokerFailure>> {
            panic!("only fences are asked for")
        }

        fn fence(&self, question: FenceQuestion) -> BoxFuture<'_, Result<FenceAnswer, BrokerFailure>> {
            let found = question.settings.bootstrap.first().map(|server| server.host.clone()).unwrap_or_default();
            let answer = if found == "away" {
                Err(BrokerFailure { reason: Reason::BrokerUnreachable, message: "no answer".to_owned() })
            } else if question.cluster_id.is_some_and(|meant| meant != found) {
                Ok(FenceAnswer::Elsewhere(found))
            } else {
                self.fenced.lock().unwrap_or_else(PoisonError::into_inner).push(found);
                Ok(FenceAnswer::Fenced(Fenced::default()))
            };
            Box::pin(async move { answer })
        }
    }

    /// No Secret is named, so nothing is asked.
    fn silent() -> Client {
        let nobody = |_: Request<Body>| async { Err::<Response<Body>, _>(std::io::Error::other("nothing is asked")) };
        Client::new(tower::service_fn(nobody), "default")
    }

    #[rstest]
    #[case::the_newest_way_leads_there(&["a", "b"], Some("a"), Ok("a"))]
    #[case::only_the_older_way_leads_there(&["b", "a"], Some("a"), Ok("a"))]
    #[case::the_newest_way_is_away(&["away", "a"], Some("a"), Ok("a"))]
    #[case::nobody_has_told_which_it_is(&["b"], None, Ok("b"))]
    #[case::no_way_leads_there(&["b"], Some("a"), Err("OtherCluster: b:9092 is cluster b, and the ids are on a"))]
    #[case::the_job_has_left_it(
        &["b", "away"],
        Some("a"),
        Err("OtherCluster: b:9092 is cluster b, and the ids are on a; away:9092: no answer")
    )]
    #[case::nobody_answers(&["away"], Some("a"), Err("BrokerUnreachable: no answer"))]
    #[tokio::test]
    async fn ids_are_fenced_on_the_cluster_that_has_them(
        #[case] ways: &[&str],
        #[case] cluster: Option<&str>,
        #[case] wanted: Result<&str, &str>,
    ) {
        let way = |name: &&str| serde_json::from_value(json!({ "bootstrapServers": format!("{name}:9092") })).unwrap();
        let ids = Fence {
            operation: "restart-2".to_owned(),
            ordinals: 0..1,
            ids: vec!["shop.spend-0-0".to_owned()],
            kafka: ways.iter().map(way).collect(),
            cluster_id: cluster.map(str::to_owned),
        };
        let probe = Clusters::default();
        let until = Instant::now() + Duration::from_secs(5);
        let Fenced { failed, .. } = fence(&silent(), &probe, "shop", &ids, until).await;
        let told = failed.map(|failure| format!("{}: {}", failure.reason, failure.message));
        let fenced = probe.fenced.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match wanted {
            Ok(cluster) => assert_eq!((told, fenced), (None, vec![cluster.to_owned()])),
            Err(message) => assert_eq!((told.as_deref(), fenced), (Some(message), vec![])),
        }
    }
}
