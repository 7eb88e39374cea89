use std::time::Duration;

use fencepost_crds::v1alpha1::{GroupProtocol, StartPosition};

use crate::native::millis;
use crate::settings::ConnectionSettings;

/// A topic to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTopic {
    /// Its name.
    pub name: String,
    /// Where a partition without a committed position begins.
    pub start: StartPosition,
}

/// What a consumer is made of.
#[derive(Clone, Debug)]
pub struct ConsumerSettings {
    /// How to reach the brokers.
    pub connection: ConnectionSettings,
    /// The group.
    pub group: String,
    /// Our name in the group, the same after a restart.
    pub instance_id: String,
    /// Topics, by number.
    pub topics: Vec<SourceTopic>,
    /// How the group shares its partitions out.
    pub protocol: GroupProtocol,
    /// After this time without a sign of life the group gives the partitions to others. Only of the classic protocol: under the other
    /// one it is a setting of the brokers (`group.consumer.session.timeout.ms`).
    pub session_timeout: Duration,
}

impl ConsumerSettings {
    pub(super) fn properties(&self) -> Vec<(&'static str, String)> {
        let mut properties = self.connection.librdkafka();
        properties.extend(
            [
                ("isolation.level", "read_committed"),
                ("enable.auto.commit", "false"),
                ("enable.auto.offset.store", "false"),
                ("auto.offset.reset", "error"),
                // Tells when the last stable offset is reached: positions then also pass the control records at the end.
                ("enable.partition.eof", "true"),
                ("allow.auto.create.topics", "false"),
                // A member that does not come back from a call is out after this time. It is also how long librdkafka waits for the answer
                // to JoinGroup, and the group for a member that does not join.
                ("max.poll.interval.ms", "60000"),
                ("socket.timeout.ms", "10000"),
                // The records of one response stay in the processor's cache: measured, half the cost of the default of 1 MiB.
                ("fetch.message.max.bytes", "131072"),
                ("queued.min.messages", "10000"),
                ("queued.max.messages.kbytes", "32768"),
                // Once the queue is full, the default would sleep for a whole second.
                ("fetch.queue.backoff.ms", "3"),
                ("fetch.wait.max.ms", "100"),
                ("fetch.error.backoff.ms", "100"),
                ("retry.backoff.ms", "20"),
                ("reconnect.backoff.ms", "20"),
                ("reconnect.backoff.max.ms", "2000"),
                // A new topic, or a topic that did not exist yet, is noticed within this time.
                ("topic.metadata.refresh.interval.ms", "10000"),
                ("log.connection.close", "false"),
            ]
            .map(|(name, value)| (name, value.to_owned())),
        );
        properties.push(("group.id", self.group.clone()));
        properties.push(("group.instance.id", self.instance_id.clone()));
        match self.protocol {
            GroupProtocol::Classic => properties.extend([
                // Eager. Not range, which gives everything of several small topics to the first members.
                ("partition.assignment.strategy", "roundrobin".to_owned()),
                // How fast members notice a rebalance.
                ("heartbeat.interval.ms", "500".to_owned()),
                ("session.timeout.ms", millis(self.session_timeout).to_string()),
            ]),
            GroupProtocol::Consumer => properties.push(("group.protocol", "consumer".to_owned())),
        }
        properties
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consumer::Consumer;

    /// It refuses a setting of one protocol under the other.
    #[test]
    fn the_client_takes_the_settings_of_both_protocols() {
        for (protocol, incremental) in [(GroupProtocol::Classic, false), (GroupProtocol::Consumer, true)] {
            let settings = ConsumerSettings {
                // Nobody listens there.
                connection: ConnectionSettings::plaintext("127.0.0.1:1", "test").unwrap(),
                group: "job".to_owned(),
                instance_id: "job-0-0".to_owned(),
                topics: vec![SourceTopic { name: "events".to_owned(), start: StartPosition::Earliest }],
                protocol,
                session_timeout: Duration::from_secs(20),
            };
            let has = |name| settings.properties().iter().any(|(key, _)| *key == name);
            assert_eq!((has("group.protocol"), has("session.timeout.ms")), (incremental, !incremental));
            let consumer = Consumer::new(&settings).unwrap();
            assert_eq!(consumer.is_incremental(), incremental);
        }
    }
}
