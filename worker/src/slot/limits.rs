use std::collections::BTreeMap;
use std::rc::Rc;

use fencepost_kafka::error::Cause;
use fencepost_kafka::rpc::RpcError;
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
    known: BTreeMap<String, OutputLimits>,
}

/// An answer of the brokers.
#[derive(Debug)]
pub(super) struct Told {
    /// The limits of each topic, as they are or as they were when they were told last. Of one whose settings were never told, nothing is
    /// taken for too much: a record must not be given up for a limit that is only assumed.
    pub(super) limits: BTreeMap<String, OutputLimits>,
    /// Topics whose settings we have no permission to read.
    pub(super) refused: BTreeMap<String, RpcError>,
}

impl Limits {
    pub(super) fn new(brokers: Rc<Brokers>, topics: Vec<String>) -> Self {
        Self { brokers, topics, known: BTreeMap::new() }
    }

    pub(super) fn ask(&mut self) -> Told {
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        let keys = [MAX_MESSAGE_BYTES, TIMESTAMP_TYPE, TIMESTAMP_AFTER_MAX];
        let answers = match self.brokers.ask(async |cluster| cluster.describe_topic_configs(&topics, &keys).await) {
            Ok(answers) => answers,
            Err(error) => {
                info!(error = error.report(), "the limits of the topics are not known");
                BTreeMap::new()
            }
        };
        let mut refused = BTreeMap::new();
        for (topic, answer) in answers {
            match answer {
                Ok(settings) => {
                    self.known.insert(topic, limits(&settings));
                }
                Err(error) => {
                    info!(topic, error = error.report(), "the limits of the topic are not known");
                    if matches!(error.cause(), Cause::AuthorizationFailed(_)) {
                        refused.insert(topic, error);
                    }
                }
            }
        }
        let known = |topic: &String| (topic.clone(), self.known.get(topic).copied().unwrap_or(UNKNOWN));
        Told { limits: self.topics.iter().map(known).collect(), refused }
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
    fn what_is_not_told_limits_nothing() {
        assert_eq!(limits(&settings(&[])).max_timestamp_ahead_ms, i64::MAX);
        assert!(limits(&settings(&[])).max_record_bytes > usize::MAX / 2);
    }
}
