//! Whose transactional ids and consumer group they are.
//!
//! Two jobs with one prefix fence each other's workers, and two with one group share its partitions and positions. Each looks well until a
//! record meets the wrong worker. So the later of two jobs on the same Kafka cluster does not start.

use fencepost_crds::{StreamJob, resolve, v1alpha1::KafkaSpec};
use kube_core::ResourceExt;

use crate::observed::BrokerObserved;

/// Another job that names the same prefix or the same group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Namespace and name.
    pub job: String,
    /// What both name.
    pub shares: Vec<String>,
    /// It was first.
    pub is_older: bool,
    /// The Kafka cluster that it was seen on.
    pub cluster_id: Option<String>,
    /// Where it looks for its cluster.
    pub bootstrap_servers: String,
}

/// The names that a job needs for itself.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    job: &'a StreamJob,
    prefix: String,
    group: String,
}

impl<'a> Claim<'a> {
    /// What this job names, or has by default.
    #[must_use]
    pub fn of(job: &'a StreamJob) -> Self {
        let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
        Self {
            job,
            prefix: resolve::transactional_id_prefix(&job.spec.kafka, &namespace, &name),
            group: resolve::consumer_group(&job.spec.kafka, &namespace, &name),
        }
    }

    /// What makes another job a rival, if anything does. Asked about every job there is, so it makes no strings of them.
    #[must_use]
    pub fn rival(&self, other: &StreamJob) -> Option<Rival> {
        if self.job.metadata.uid == other.metadata.uid || has_ended(other) {
            return None;
        }
        let kafka = &other.spec.kafka;
        let mut shares = Vec::new();
        // Also where the guarantee needs no ids: it may change, the prefix may not.
        if is_name(&self.prefix, kafka.transactional_id_prefix.as_deref(), other) {
            shares.push(format!("spec.kafka.transactionalIdPrefix {}", self.prefix));
        }
        if is_name(&self.group, kafka.consumer_group.as_deref(), other) {
            shares.push(format!("spec.kafka.consumerGroup {}", self.group));
        }
        (!shares.is_empty()).then(|| found(self.job, other, shares))
    }
}

/// Whether a job has this name: the one that it gives, or its default.
fn is_name(name: &str, given: Option<&str>, job: &StreamJob) -> bool {
    let metadata = &job.metadata;
    let own = (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default());
    given.map_or_else(|| resolve::is_default_name(name, own.0, own.1), |given| given == name)
}

fn found(job: &StreamJob, other: &StreamJob, shares: Vec<String>) -> Rival {
    let status = other.status.as_ref();
    let of_ids = status.and_then(|status| status.transactions.as_ref()?.cluster_id.clone());
    let of_brokers = status.and_then(|status| status.broker.as_ref()?.cluster_id.clone());
    Rival {
        job: format!("{}/{}", other.namespace().unwrap_or_default(), other.name_any()),
        shares,
        is_older: rank(other) < rank(job),
        cluster_id: of_ids.or(of_brokers),
        bootstrap_servers: other.spec.kafka.bootstrap_servers.clone(),
    }
}

/// Why the ids or the group of a job are not its own.
pub(crate) fn taken(rivals: &[Rival], kafka: &KafkaSpec, broker: &BrokerObserved) -> Option<String> {
    let cluster_id = match broker {
        BrokerObserved::Facts(facts) => facts.cluster_id.as_ref(),
        BrokerObserved::NotAsked | BrokerObserved::Failed(_) => None,
    };
    let is_here = |rival: &&Rival| match (cluster_id, &rival.cluster_id) {
        (Some(mine), Some(theirs)) => mine == theirs,
        _ => servers(&kafka.bootstrap_servers).any(|mine| servers(&rival.bootstrap_servers).any(|it| it == mine)),
    };
    let owner = rivals.iter().filter(|rival| rival.is_older).find(is_here)?;
    Some(format!(
        "the StreamJob {} has {} on the same Kafka cluster: give this job names of its own (they are immutable: create it anew), or delete {0}",
        owner.job,
        owner.shares.join(" and ")
    ))
}

fn servers(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

/// It is deleted, and never had a worker.
fn has_ended(job: &StreamJob) -> bool {
    job.metadata.deletion_timestamp.is_some() && !has_started(job)
}

fn has_started(job: &StreamJob) -> bool {
    job.status.as_ref().is_some_and(|status| status.epoch.is_some())
}

/// Who has started comes first, then who was made first; the uid decides between those of one second.
fn rank(job: &StreamJob) -> impl Ord {
    let made = job.metadata.creation_timestamp.as_ref().map(|at| at.0);
    (!has_started(job), made, job.uid())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{facts, job};

    fn rival(job: &StreamJob, other: &StreamJob) -> Option<Rival> {
        Claim::of(job).rival(other)
    }

    /// Made in this second, and started or not.
    fn made(uid: &str, second: u32, started: bool, change: impl FnOnce(&mut Value)) -> StreamJob {
        job(|json| {
            json["metadata"]["uid"] = uid.into();
            json["metadata"]["name"] = uid.into();
            json["metadata"]["creationTimestamp"] = format!("2026-01-01T00:00:{second:02}Z").into();
            if started {
                json["status"] = json!({ "epoch": 1, "transactions": { "clusterId": "c-1" } });
            }
            change(json);
        })
    }

    #[rstest]
    #[case::names_of_its_own(json!({}), None)]
    #[case::the_same_prefix(
        json!({ "kafka": { "transactionalIdPrefix": "shop.first" } }),
        Some("has spec.kafka.transactionalIdPrefix shop.first on")
    )]
    #[case::the_same_group(
        json!({ "kafka": { "consumerGroup": "shop.first" } }),
        Some("has spec.kafka.consumerGroup shop.first on")
    )]
    #[case::a_prefix_without_transactions(
        json!({ "kafka": { "transactionalIdPrefix": "shop.first" }, "processing": { "guarantee": "AtLeastOnce" } }),
        Some("has spec.kafka.transactionalIdPrefix shop.first on")
    )]
    #[case::both_by_another_way(
        json!({
            "kafka": {
                "bootstrapServers": "elsewhere:9092", "transactionalIdPrefix": "shop.first", "consumerGroup": "shop.first",
            },
        }),
        Some("the StreamJob shop/first has spec.kafka.transactionalIdPrefix shop.first and spec.kafka.consumerGroup shop.first on")
    )]
    fn a_later_job_with_the_names_of_another_is_refused(#[case] change: Value, #[case] wanted: Option<&str>) {
        let first = made("first", 1, true, |_| {});
        let second = made("second", 2, false, |json| {
            json["metadata"]["namespace"] = "other".into();
            for (part, fields) in change.as_object().unwrap() {
                let before = json["spec"][part].as_object().cloned().unwrap_or_default();
                json["spec"][part] = before.into_iter().chain(fields.as_object().unwrap().clone()).collect();
            }
        });
        let found: Vec<Rival> = rival(&second, &first).into_iter().collect();
        let broker = BrokerObserved::Facts(facts());
        let told = taken(&found, &second.spec.kafka, &broker);
        match wanted {
            None => assert_eq!(told, None),
            Some(text) => assert!(told.as_ref().is_some_and(|told| told.contains(text)), "{told:?}"),
        }
        let back: Vec<Rival> = rival(&first, &second).into_iter().collect();
        assert_eq!(taken(&back, &first.spec.kafka, &broker), None, "the first goes on");
    }

    #[test]
    fn the_same_names_on_another_cluster_are_other_names() {
        let first = made("first", 1, true, |_| {});
        let second = made("second", 2, false, |json| json["spec"]["kafka"]["consumerGroup"] = "shop.first".into());
        let found = [rival(&second, &first).unwrap()];
        let told = |cluster: &str| {
            let facts = crate::BrokerFacts { cluster_id: Some(cluster.to_owned()), ..facts() };
            taken(&found, &second.spec.kafka, &BrokerObserved::Facts(facts)).is_some()
        };
        assert!(told("c-1") && !told("c-2"));
        // As long as nobody has said which cluster it is, the addresses count.
        assert!(taken(&found, &second.spec.kafka, &BrokerObserved::NotAsked).is_some());
        let mut elsewhere = second.spec.kafka;
        elsewhere.bootstrap_servers = "b:9092".to_owned();
        assert!(taken(&found, &elsewhere, &BrokerObserved::NotAsked).is_none());
    }

    #[rstest]
    #[case::made_earlier((1, false), (2, false), true)]
    #[case::made_later((2, false), (1, false), false)]
    #[case::made_later_but_started((2, true), (1, false), true)]
    #[case::made_in_the_same_second((1, false), (1, false), true)]
    fn one_of_two_is_first(#[case] first: (u32, bool), #[case] second: (u32, bool), #[case] wanted: bool) {
        fn same(json: &mut Value) {
            json["spec"]["kafka"]["consumerGroup"] = "g".into();
        }
        let (a, b) = (made("a", first.0, first.1, same), made("b", second.0, second.1, same));
        let is_older = |job, other| rival(job, other).unwrap().is_older;
        assert_eq!((is_older(&b, &a), is_older(&a, &b)), (wanted, !wanted));
    }

    #[test]
    fn a_job_that_is_deleted_keeps_its_names_until_it_is_gone() {
        let deleted = |started| {
            made("first", 1, started, |json| {
                json["spec"]["kafka"]["consumerGroup"] = "shop.second".into();
                json["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z".into();
            })
        };
        let second = made("second", 2, false, |_| {});
        assert!(rival(&second, &deleted(true)).is_some() && rival(&second, &deleted(false)).is_none());
    }
}
