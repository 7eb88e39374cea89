//! Topics, and positions of a job that does not run.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_crds::names;
use fencepost_kafka::consumer::StaticMember;
use fencepost_kafka::rpc::Cluster;
use fencepost_kafka::settings::ConnectionSettings;
use fencepost_oracle::reader::Surveyor;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication, TopicResult};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use super::{Bench, Failure, ensure};
use crate::wait::{self, Deadline};

impl Bench<'_> {
    /// The full name of one of the scenario's topics.
    #[must_use]
    pub fn topic(&self, short: &str) -> String {
        format!("{}.{short}", self.namespace)
    }

    /// Makes a topic.
    ///
    /// # Errors
    /// When Kafka refuses.
    pub fn make_topic(&self, short: &str, partitions: i32) -> Result<String, Failure> {
        self.make_topic_with(short, partitions, &[])
    }

    /// Makes a topic with settings of its own.
    ///
    /// # Errors
    /// When Kafka refuses.
    pub fn make_topic_with(&self, short: &str, partitions: i32, settings: &[(&str, &str)]) -> Result<String, Failure> {
        let name = self.topic(short);
        // As many copies as the brokers make by default.
        let new = NewTopic::new(&name, partitions, TopicReplication::Fixed(-1));
        let new = settings.iter().fold(new, |new, (name, value)| new.set(name, value));
        let answers = self.runtime.block_on(self.admin()?.create_topics([&new], &AdminOptions::new()));
        accepted(answers.map_err(Failure::means("create a topic"))?)?;
        Ok(name)
    }

    /// How far each partition of a topic can be read, and how far it is written.
    ///
    /// # Errors
    /// When Kafka does not answer.
    pub fn stable(&self, topic: &str) -> Result<BTreeMap<i32, (i64, i64)>, Failure> {
        let ends = Surveyor::new(&self.connection()).and_then(|surveyor| surveyor.ends(topic));
        let ends = ends.map_err(Failure::means("look at a topic"))?;
        Ok(ends.into_iter().map(|(partition, bounds)| (partition, (bounds.stable, bounds.end))).collect())
    }

    /// Waits until no open transaction holds up readers of a topic.
    ///
    /// # Errors
    /// When one does after `limit`.
    pub fn until_released(&self, topic: &str, limit: Duration) -> Result<(), Failure> {
        let released = wait::until(Deadline::after(limit), || {
            let held = self.stable(topic)?.values().any(|(stable, end)| stable < end);
            Ok::<_, Failure>((!held).then_some(()))
        })?;
        ensure!(released.is_some(), "a transaction in {topic} is still open {} s later", limit.as_secs());
        Ok(())
    }

    /// Gives a topic more partitions: `partitions` in all.
    ///
    /// # Errors
    /// When Kafka refuses.
    pub fn add_partitions(&self, topic: &str, partitions: usize) -> Result<(), Failure> {
        let more = NewPartitions::new(topic, partitions);
        let answers = self.runtime.block_on(self.admin()?.create_partitions([&more], &AdminOptions::new()));
        accepted(answers.map_err(Failure::means("add partitions"))?)
    }

    /// Changes a setting of a topic.
    ///
    /// # Errors
    /// When Kafka refuses.
    pub fn set_topic(&self, topic: &str, setting: &str, value: &str) -> Result<(), Failure> {
        let change = format!("{setting}={value}");
        let words = ["--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", &change];
        let told = self.cluster().kafka_tool("org.apache.kafka.tools.ConfigCommand", &words);
        told.map(drop).map_err(Failure::means("set up a topic"))
    }

    /// Removes the records of a partition below an offset, as retention does.
    ///
    /// # Errors
    /// When Kafka refuses.
    pub fn delete_records(&self, topic: &str, partition: i32, before: i64) -> Result<(), Failure> {
        let list = one(topic, partition, before)?;
        let answer = self.runtime.block_on(self.admin()?.delete_records(&list, &AdminOptions::new()));
        let answer = answer.map_err(Failure::means("delete records"))?;
        let refused = answer.elements().iter().find_map(|element| element.error().err());
        refused.map_or(Ok(()), |error| Err(Failure::means("delete records")(error)))
    }

    /// Sets the position of a job that does not run, as `kafka-consumer-groups --reset-offsets` does.
    ///
    /// # Errors
    /// When Kafka refuses: the group has members.
    pub fn set_position(&self, job: &str, topic: &str, partition: i32, position: i64) -> Result<(), Failure> {
        let mut config = self.connection().config();
        config.set("group.id", format!("{}.{job}", self.namespace));
        let consumer: BaseConsumer = config.create().map_err(Failure::means("reach Kafka"))?;
        let list = one(topic, partition, position)?;
        consumer.commit(&list, CommitMode::Sync).map_err(Failure::means("set a position"))
    }

    /// Takes a worker out of its consumer group, as the group does itself with one that it has not heard of for too long.
    ///
    /// # Errors
    /// When Kafka refuses.
    pub fn take_out_of_group(&self, job: &str, ordinal: u32) -> Result<(), Failure> {
        let means = "take a worker out of its group";
        let group = format!("{}.{job}", self.namespace);
        let member = StaticMember { instance: names::transactional_id(&group, ordinal, 0), id: None };
        let connection = ConnectionSettings::plaintext(&self.cluster().bootstrap(), "test");
        let kafka = Cluster::new(connection.map_err(Failure::means(means))?).map_err(Failure::means(means))?;
        self.runtime.block_on(kafka.remove_members(&group, &[member])).map_err(Failure::means(means))
    }

    /// The protocol of a job's consumer group, `Classic` or `Consumer`, as Kafka's own tool tells it.
    ///
    /// # Errors
    /// When it tells of no such group.
    pub fn group_type(&self, job: &str) -> Result<String, Failure> {
        let told = self.cluster().kafka_tool("org.apache.kafka.tools.GroupsCommand", &["--list"]);
        let told = told.map_err(Failure::means("list the groups"))?;
        let group = format!("{}.{job}", self.namespace);
        let words = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let kind = words.filter(|words| words.first() == Some(&group.as_str())).find_map(|words| words.get(1).copied());
        kind.map(str::to_owned).ok_or_else(|| Failure::Expectation(format!("no group {group} in: {told}")))
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>, Failure> {
        self.connection().config().create().map_err(Failure::means("reach Kafka"))
    }

    /// Deletes all topics of the scenario.
    pub(super) fn delete_topics(&self) -> Result<(), Failure> {
        let admin = self.admin()?;
        let metadata =
            admin.inner().fetch_metadata(None, Duration::from_secs(10)).map_err(Failure::means("list the topics"))?;
        let prefix = self.topic("");
        let names: Vec<&str> = metadata.topics().iter().map(rdkafka::metadata::MetadataTopic::name).collect();
        let ours: Vec<&str> = names.into_iter().filter(|name| name.starts_with(&prefix)).collect();
        if !ours.is_empty() {
            self.runtime
                .block_on(admin.delete_topics(&ours, &AdminOptions::new()))
                .map_err(Failure::means("delete topics"))?;
        }
        Ok(())
    }
}

fn one(topic: &str, partition: i32, offset: i64) -> Result<TopicPartitionList, Failure> {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(offset)).map_err(Failure::means("name a partition"))?;
    Ok(list)
}

fn accepted(answers: Vec<TopicResult>) -> Result<(), Failure> {
    for answer in answers {
        if let Err((topic, code)) = answer {
            return Err(Failure::Expectation(format!("Kafka does not change the topic {topic}: {code}")));
        }
    }
    Ok(())
}
