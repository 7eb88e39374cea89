//! One run of a job before the judge: real topics in, a verdict out.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::{Duration, Instant},
};

use crate::{
    judge::{Judge, Promise},
    model::Model,
    reader::{Connection, Ends, Error, GroupReader, Isolation, Surveyor, now, scan},
    record::{Position, Record},
    verdict::Verdict,
};

/// Which input the job must have processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it. The trial waits until the positions of the job are at the end.
    All,
    /// What lies below the positions the job has committed: a job that has stopped on purpose.
    Committed,
}

/// What is tried: the topics, the promise, and the meaning of the job.
#[derive(Clone, Debug)]
pub struct Trial<M> {
    connection: Connection,
    inputs: Vec<String>,
    outputs: Vec<String>,
    group: String,
    model: M,
    promise: Promise,
    extent: Extent,
    patience: Duration,
}

impl<M: Model> Trial<M> {
    /// A trial of the job whose positions `group` holds.
    pub fn new(connection: Connection, group: &str, model: M) -> Self {
        Self {
            connection,
            inputs: Vec::new(),
            outputs: Vec::new(),
            group: group.to_owned(),
            model,
            promise: Promise::ExactlyOnce,
            extent: Extent::All,
            patience: Duration::from_secs(60),
        }
    }

    /// With an input topic. Nobody may write to it any more.
    #[must_use]
    pub fn input(mut self, topic: &str) -> Self {
        self.inputs.push(topic.to_owned());
        self
    }

    /// With an output topic. Every record in it is judged.
    #[must_use]
    pub fn output(mut self, topic: &str) -> Self {
        self.outputs.push(topic.to_owned());
        self
    }

    /// With another promise than exactly once.
    #[must_use]
    pub fn promise(mut self, promise: Promise) -> Self {
        self.promise = promise;
        self
    }

    /// With another extent than all.
    #[must_use]
    pub fn extent(mut self, extent: Extent) -> Self {
        self.extent = extent;
        self
    }

    /// How long to wait for the job to get through its input, and then for open transactions to end.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Holds the trial. Blocks; needs no runtime.
    ///
    /// # Errors
    /// When the brokers do not let the judge read. What the judge reads is never an error.
    pub fn verdict(self) -> Result<Verdict, Error> {
        let Self { connection, inputs, outputs, group, model, promise, extent, patience } = self;
        let surveyor = Surveyor::new(&connection)?;
        let group = GroupReader::new(&connection, &group)?;
        let court = Court { connection: &connection, surveyor, group, extent, patience };
        let mut judge = Judge::new(model, promise);
        let mut needed = Vec::new();
        for topic in &inputs {
            needed.push((topic, court.input(&mut judge, topic)?));
        }
        if extent == Extent::All {
            let deadline = now() + patience;
            for (topic, needed) in needed {
                court.processed(&mut judge, topic, &needed, deadline)?;
            }
        }
        for topic in &outputs {
            court.output(&mut judge, topic)?;
        }
        let mut verdict = judge.verdict();
        if !verdict.holds() {
            court.quote(&mut verdict)?;
        }
        Ok(verdict)
    }
}

struct Court<'c> {
    connection: &'c Connection,
    surveyor: Surveyor,
    group: GroupReader,
    extent: Extent,
    patience: Duration,
}

impl Court<'_> {
    /// Feeds one input topic. Gives, for each partition with records, the position behind the last.
    fn input<M: Model>(&self, judge: &mut Judge<M>, topic: &str) -> Result<BTreeMap<i32, i64>, Error> {
        let limits = match self.extent {
            Extent::All => None,
            Extent::Committed => Some(self.group.committed(topic)?),
        };
        let within = |record: &Record<'_>| match &limits {
            None => true,
            Some(limits) => limits.get(&record.partition).is_some_and(|limit| record.offset < *limit),
        };
        let ends = self.surveyor.settle(topic, self.patience)?;
        let mut needed = BTreeMap::new();
        let mut committed = HashSet::new();
        let read = scan(self.connection, Isolation::Committed, topic, &ends, self.patience, |record| {
            committed.insert((record.partition, record.offset));
            if within(record) {
                judge.input(record);
                needed.insert(record.partition, record.offset + 1);
            }
        })?;
        for (partition, end) in read {
            judge.end(topic, partition, end);
        }
        if has_hidden_records(&ends, committed.len()) {
            scan(self.connection, Isolation::Uncommitted, topic, &ends, self.patience, |record| {
                if !committed.contains(&(record.partition, record.offset)) {
                    judge.withdrawn_input(record);
                }
            })?;
        }
        Ok(needed)
    }

    /// Waits until the job's positions are behind its input.
    fn processed<M: Model>(
        &self,
        judge: &mut Judge<M>,
        topic: &str,
        needed: &BTreeMap<i32, i64>,
        deadline: Instant,
    ) -> Result<(), Error> {
        loop {
            let committed = self.group.committed(topic)?;
            let at = |partition: &i32| committed.get(partition).copied().unwrap_or_default();
            let behind: Vec<_> = needed.iter().filter(|(partition, needed)| at(partition) < **needed).collect();
            if behind.is_empty() {
                return Ok(());
            }
            if now() >= deadline {
                for (partition, needed) in behind {
                    judge.unprocessed(topic, *partition, at(partition), *needed);
                }
                return Ok(());
            }
            self.group.pause();
        }
    }

    fn output<M: Model>(&self, judge: &mut Judge<M>, topic: &str) -> Result<(), Error> {
        let ends = self.surveyor.settle(topic, self.patience)?;
        let read = scan(self.connection, Isolation::Committed, topic, &ends, self.patience, |record| {
            judge.output(record);
        })?;
        for (partition, end) in read {
            judge.end(topic, partition, end);
        }
        Ok(())
    }

    /// Puts the text of the records into the findings that point at one.
    fn quote(&self, verdict: &mut Verdict) -> Result<(), Error> {
        let topics: BTreeSet<String> =
            verdict.findings.iter().filter_map(|finding| finding.at.as_ref()).map(|at| at.topic.clone()).collect();
        for topic in topics {
            let ends = self.surveyor.ends(&topic)?;
            scan(self.connection, Isolation::Committed, &topic, &ends, self.patience, |record| {
                let here = |at: &Position| {
                    at.partition == record.partition && at.offset == record.offset && at.topic == record.topic
                };
                for finding in verdict.findings.iter_mut().filter(|finding| finding.at.as_ref().is_some_and(here)) {
                    if !finding.detail.is_empty() {
                        finding.detail.push_str("; ");
                    }
                    finding.detail.push_str(&quotation(record));
                }
            })?;
        }
        Ok(())
    }
}

/// Markers take offsets too, so this may say yes for nothing; it never says no when there is something.
fn has_hidden_records(ends: &Ends, seen: usize) -> bool {
    let span: i64 = ends.values().map(|bounds| bounds.end - bounds.start).sum();
    usize::try_from(span).is_ok_and(|span| span > seen)
}

fn quotation(record: &Record<'_>) -> String {
    let text = |bytes: Option<&[u8]>| match bytes {
        None => "null".to_owned(),
        Some(bytes) => String::from_utf8_lossy(bytes).chars().take(200).collect(),
    };
    format!("key {}, value {}", text(record.key), text(record.value))
}
