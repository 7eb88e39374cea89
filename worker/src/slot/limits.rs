use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use fencepost_kafka::error::Cause;
use fencepost_kafka::rpc::{Cluster, RpcError};
use fencepost_pipeline::OutputLimits;
use tracing::info;

use super::brokers::Brokers;

const MAX_MESSAGE_BYTES: &str = "max.message.bytes";
const TIMESTAMP_TYPE: &str = "message.timestamp.type";
const TIMESTAMP_AFTER_MAX: &str = "message.timestamp.after.max.ms";

/// Asks the brokers what they take for the topics that are written, so that a record beyond it is a bad record, and not one that is
/// refused again and again.
#[derive(Debug)]
pub(super) struct Limits {
    brokers: Rc<Brokers>,
    topics: Vec<String>,
    told: Told,
}

/// What the brokers have told, each topic's last answer.
#[derive(Debug, Default)]
pub(super) struct Told {
    limits: BTreeMap<String, OutputLimits>,
    /// Topics whose settings we have no permission to read.
    pub(super) refused: BTreeMap<String, RpcError>,
}

impl Told {
    /// Of a topic whose settings were never told, nothing is taken for too much: a record must not be given up for a limit that is only
    /// assumed.
    pub(super) fn of(&self, topic: &str) -> OutputLimits {
        self.limits.get(topic).copied().unwrap_or(UNKNOWN)
    }

    fn hear(&mut self, topic: String, answer: Result<BTreeMap<String, String>, RpcError>) {
        match answer {
            Ok(settings) => {
                self.refused.remove(&topic);
                self.limits.insert(topic, limits(&settings));
            }
            Err(error) => {
                info!(topic, error = error.report(), "the limits of the topic are not known");
                if matches!(error.cause(), Cause::AuthorizationFailed(_)) {
                    self.refused.insert(topic, error);
                }
            }
        }
    }
}

impl Limits {
    pub(super) fn new(brokers: Rc<Brokers>, topics: Vec<String>) -> Self {
        Self { brokers, topics, told: Told::default() }
    }

    /// Waits so long for an answer. Without one, what was told before holds.
    pub(super) fn ask(&mut self, within: Duration) -> &Told {
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        let keys = [MAX_MESSAGE_BYTES, TIMESTAMP_TYPE, TIMESTAMP_AFTER_MAX];
        let question =
            async |cluster: &Cluster| cluster.with_call_timeout(within).describe_topic_configs(&topics, &keys).await;
        match self.brokers.ask(question) {
            Ok(answers) => answers.into_iter().for_each(|(topic, answer)| self.told.hear(topic, answer)),
            Err(error) => info!(error = error.report(), "the limits of the topics are not known"),
        }
        &self.told
    }
}

const UNKNOWN: OutputLimits = OutputLimits { max_record_bytes: usize::MAX, max_timestamp_ahead_ms: i64::MAX };

fn limits(settings: &BTreeMap<String, String>) -> OutputLimits {
    let bytes = settings.get(MAX_MESSAGE_BYTES).and_then(|value| value.parse().ok()).unwrap_or(usize::MAX);
    // With LogAppendTime the brokers put their own time in.
    let is_ours = settings.get(TIMESTAMP_TYPE).is_none_or(|value| value == "CreateTime");
    let ahead = settings.get(TIMESTAMP_AFTER_MAX).filter(|_| is_ours).and_then(|value| value.parse().ok());
    OutputLimits::of_topic(bytes, ahead.unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use fencepost_kafka::error::{BrokerCode, Operation, Resource, Subject};

    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn limits_are_those_of_the_topic() {
        let topic = [(MAX_MESSAGE_BYTES, "2000"), (TIMESTAMP_TYPE, "CreateTime"), (TIMESTAMP_AFTER_MAX, "60000")];
        assert_eq!(limits(&settings(&topic)), OutputLimits::of_topic(2000, 60_000));
    }

    #[test]
    fn where_the_brokers_put_their_own_time_in_ours_does_not_matter() {
        let topic = [(MAX_MESSAGE_BYTES, "2000"), (TIMESTAMP_TYPE, "LogAppendTime"), (TIMESTAMP_AFTER_MAX, "60000")];
        assert_eq!(limits(&settings(&topic)), OutputLimits::of_topic(2000, i64::MAX));
    }

    #[test]
    fn what_was_told_holds_until_another_answer_comes() {
        let refusal = |code| {
            let subject = Subject::new(Operation::DescribeConfigs, Resource::Topic("t".to_owned()));
            RpcError::Broker { call: "DescribeConfigs", code, subject, message: None }
        };
        let small = || Ok(settings(&[(MAX_MESSAGE_BYTES, "2000")]));
        let mut told = Told::default();
        told.hear("t".to_owned(), small());
        told.hear("t".to_owned(), Err(refusal(BrokerCode::TOPIC_AUTHORIZATION_FAILED)));
        assert_eq!(told.of("t"), OutputLimits::of_topic(2000, i64::MAX));
        assert_eq!(told.refused.keys().collect::<Vec<_>>(), ["t"]);
        // Says nothing about the permission.
        told.hear("t".to_owned(), Err(refusal(BrokerCode::REQUEST_TIMED_OUT)));
        assert_eq!(told.refused.len(), 1);
        told.hear("t".to_owned(), small());
        assert!(told.refused.is_empty());
        assert_eq!(told.of("u").max_record_bytes, usize::MAX);
    }

    #[test]
    fn what_is_not_told_limits_nothing() {
        assert_eq!(limits(&settings(&[])).max_timestamp_ahead_ms, i64::MAX);
        assert!(limits(&settings(&[])).max_record_bytes > usize::MAX / 2);
    }
}
