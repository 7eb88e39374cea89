//! Asking the brokers, with the credentials of the job.

mod credentials;
mod probe;

use std::collections::BTreeSet;

use fencepost_crds::{
    StreamJobSpec,
    conditions::Reason,
    resolve,
    v1alpha1::{FencedId, GroupProtocol, Guarantee, KafkaSpec},
};
use fencepost_kafka::settings::ConnectionSettings;
use fencepost_plan::{
    BrokerFacts, BrokerFailure, BrokerObserved, Positions,
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
    /// The consumer group that wants the consumer protocol, if it does.
    pub consumer_protocol_of: Option<String>,
}

/// Whether limits of brokers are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limits {
    /// Of every broker.
    Ask,
    /// The job uses no transactions.
    Skip,
}

/// Settings that led to the brokers.
#[derive(Clone, Debug)]
pub struct Known {
    /// What they were read for.
    pub kafka: KafkaSpec,
    /// The same with its Secrets.
    pub settings: ConnectionSettings,
}

/// What came of a fence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fenced {
    /// The ids that are fenced.
    pub ids: Vec<FencedId>,
    /// Why the others are not.
    pub failed: Option<BrokerFailure>,
}

/// Whom a way leads to.
pub enum Reached {
    /// The cluster that is meant.
    Meant(Box<dyn Fencer>),
    /// Another one, of this id.
    Other(String),
}

/// Brokers that are ready to fence.
pub trait Fencer: Send {
    /// Fences the ids, but sends nothing later than `until`.
    fn fence(self: Box<Self>, until: Instant) -> BoxFuture<'static, Fenced>;
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

    /// The committed positions of a group, after transactions that are under way have ended.
    fn positions(&self, settings: ConnectionSettings, group: String)
    -> BoxFuture<'_, Result<Positions, BrokerFailure>>;

    /// Connects to the brokers, to fence these ids, if they are the cluster of this id.
    fn reach(
        &self,
        settings: ConnectionSettings,
        ids: Vec<String>,
        cluster_id: Option<String>,
    ) -> BoxFuture<'_, Result<Reached, BrokerFailure>>;
}

/// Asks about everything that a spec needs. Settings that led there are worth keeping.
pub async fn observe(
    client: &Client,
    probe: &dyn BrokerProbe,
    namespace: &str,
    name: &str,
    spec: &StreamJobSpec,
) -> (BrokerObserved, Option<Known>) {
    let settings = match credentials::settings(client, namespace, &spec.kafka).await {
        Ok(settings) => settings,
        Err(failure) => return (BrokerObserved::Failed(failure), None),
    };
    let known = Known { kafka: spec.kafka.clone(), settings: settings.clone() };
    let group = || resolve::consumer_group(&spec.kafka, namespace, name);
    let question = Question {
        settings,
        topics: topics_of(spec),
        limits: match spec.processing.guarantee {
            Guarantee::ExactlyOnce => Limits::Ask,
            Guarantee::AtLeastOnce => Limits::Skip,
        },
        consumer_protocol_of: (spec.kafka.group_protocol == GroupProtocol::Consumer).then(group),
    };
    match probe.facts(question).await {
        Ok(facts) => (BrokerObserved::Facts(facts), Some(known)),
        Err(failure) => (BrokerObserved::Failed(failure), None),
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
    let settings = credentials::settings(client, namespace, &spec.kafka).await?;
    probe.create_topics(settings, topics).await
}

/// Reads the committed positions of a group.
///
/// # Errors
/// The Secrets cannot be read, or the brokers do not answer.
pub async fn positions(
    client: &Client,
    probe: &dyn BrokerProbe,
    namespace: &str,
    kafka: &KafkaSpec,
    group: String,
) -> Result<Positions, BrokerFailure> {
    let settings = credentials::settings(client, namespace, kafka).await?;
    probe.positions(settings, group).await
}

/// Fences the ids on the cluster that has them. `look` says until when that is allowed; it is asked when the brokers are reached. `known` settings stand in
/// for Secrets that are gone.
///
/// # Errors
/// Those of `look`.
pub async fn fence<'a, E>(
    client: &Client,
    probe: &dyn BrokerProbe,
    namespace: &str,
    known: Option<Known>,
    fence: &Fence,
    look: impl Fn() -> BoxFuture<'a, Result<Instant, E>>,
) -> Result<Fenced, E> {
    let meant = fence.cluster_id.as_deref().unwrap_or_default();
    let mut all = Fenced::default();
    let mut left = fence.ids.clone();
    // The first way is that of the newest settings.
    for kafka in &fence.kafka {
        let reached = match with_secrets(client, namespace, kafka, known.as_ref()).await {
            Ok(settings) => probe.reach(settings, left.clone(), fence.cluster_id.clone()).await,
            Err(failure) => Err(failure),
        };
        let failure = match reached {
            Ok(Reached::Meant(fencer)) => {
                let Fenced { ids, failed } = fencer.fence(look().await?).await;
                left.retain(|id| ids.iter().all(|fenced| fenced.id != *id));
                all.ids.extend(ids);
                match failed {
                    // Another user may be allowed to.
                    Some(failure) => failure,
                    None => return Ok(Fenced { failed: None, ..all }),
                }
            }
            Ok(Reached::Other(found)) => {
                let message = format!("{} is cluster {found}, and the ids are on {meant}", kafka.bootstrap_servers);
                BrokerFailure { reason: Reason::OtherCluster, message }
            }
            Err(failure) => failure,
        };
        all.failed = Some(match all.failed {
            None => failure,
            Some(BrokerFailure { reason, message }) => {
                let message = format!("{message}; {}: {}", kafka.bootstrap_servers, failure.message);
                BrokerFailure { reason, message }
            }
        });
    }
    Ok(all)
}

async fn with_secrets(
    client: &Client,
    namespace: &str,
    kafka: &KafkaSpec,
    known: Option<&Known>,
) -> Result<ConnectionSettings, BrokerFailure> {
    let read = credentials::settings(client, namespace, kafka).await;
    read.or_else(|failure| {
        let same = known.filter(|known| failure.reason == Reason::SecretMissing && known.kafka == *kafka);
        same.map(|known| known.settings.clone()).ok_or(failure)
    })
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex, PoisonError},
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
        fenced: Arc<Mutex<Vec<String>>>,
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

        fn positions(&self, _: ConnectionSettings, _: String) -> BoxFuture<'_, Result<Positions, BrokerFailure>> {
            panic!("only fences are asked for")
        }

        fn reach(
            &self,
            settings: ConnectionSettings,
            ids: Vec<String>,
            cluster_id: Option<String>,
        ) -> BoxFuture<'_, Result<Reached, BrokerFailure>> {
            let found = settings.bootstrap.first().map(|server| server.host.clone()).unwrap_or_default();
            let (found, refuses) = found.strip_suffix("-refuses").map_or((found.as_str(), false), |name| (name, true));
            let answer = if found == "away" {
                Err(BrokerFailure { reason: Reason::BrokerUnreachable, message: "no answer".to_owned() })
            } else if cluster_id.is_some_and(|meant| meant != found) {
                Ok(Reached::Other(found.to_owned()))
            } else {
                Ok(Reached::Meant(Box::new(One {
                    fenced: Arc::clone(&self.fenced),
                    name: found.to_owned(),
                    ids,
                    refuses,
                })))
            };
            Box::pin(async move { answer })
        }
    }

    /// Fences the first id only, where it refuses.
    struct One {
        fenced: Arc<Mutex<Vec<String>>>,
        name: String,
        ids: Vec<String>,
        refuses: bool,
    }

    impl Fencer for One {
        fn fence(self: Box<Self>, _: Instant) -> BoxFuture<'static, Fenced> {
            let done = if self.refuses { 1 } else { self.ids.len() };
            let told = self.ids.iter().take(done).map(|id| format!("{} on {}", id, self.name));
            self.fenced.lock().unwrap_or_else(PoisonError::into_inner).extend(told);
            let ids = self.ids.into_iter().take(done).map(|id| FencedId { id, ..FencedId::default() }).collect();
            let failed = self
                .refuses
                .then(|| BrokerFailure { reason: Reason::AuthorizationFailed, message: "not allowed".to_owned() });
            Box::pin(async move { Fenced { ids, failed } })
        }
    }

    /// No Secret is named, so nothing is asked.
    fn silent() -> Client {
        let nobody = |_: Request<Body>| async { Err::<Response<Body>, _>(std::io::Error::other("nothing is asked")) };
        Client::new(tower::service_fn(nobody), "default")
    }

    #[rstest]
    #[case::the_newest_way_leads_there(&["a", "b"], Some("a"), Ok("0 on a, 1 on a"))]
    #[case::only_the_older_way_leads_there(&["b", "a"], Some("a"), Ok("0 on a, 1 on a"))]
    #[case::the_newest_way_is_away(&["away", "a"], Some("a"), Ok("0 on a, 1 on a"))]
    #[case::nobody_has_told_which_it_is(&["b"], None, Ok("0 on b, 1 on b"))]
    #[case::the_newest_user_may_not(&["a-refuses", "a"], Some("a"), Ok("0 on a, 1 on a"))]
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
            ids: vec!["0".to_owned(), "1".to_owned()],
            kafka: ways.iter().map(way).collect(),
            cluster_id: cluster.map(str::to_owned),
            set: None,
        };
        let probe = Clusters::default();
        let look = || -> BoxFuture<'_, Result<Instant, Infallible>> {
            Box::pin(async { Ok(Instant::now() + Duration::from_secs(5)) })
        };
        let Ok(Fenced { failed, .. }) = fence(&silent(), &probe, "shop", None, &ids, look).await;
        let told = failed.map(|failure| format!("{}: {}", failure.reason, failure.message));
        let fenced = probe.fenced.lock().unwrap_or_else(PoisonError::into_inner).join(", ");
        match wanted {
            Ok(done) => assert_eq!((told, fenced.as_str()), (None, done)),
            Err(message) => assert_eq!((told.as_deref(), fenced.as_str()), (Some(message), "")),
        }
    }
}
