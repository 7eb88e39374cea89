//! The judge in front of real topics with faults in them: each must be found, and nothing else.

use std::time::Duration;

use fencepost_oracle::{Fault, Trial, Verdict};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

use super::failure::ensure;
use super::{Bench, Failure, Meaning, Outcome};
use crate::load::Order;

/// A producer of output that plays a job. Each fault is one of its actions.
struct Forger<'b> {
    bench: &'b Bench<'b>,
    case: &'static str,
    input: String,
    output: String,
}

const RECORDS: u64 = 200;
const LONG: Duration = Duration::from_secs(30);

type Forgery = fn(&Forger<'_>, Vec<Order>) -> Result<(), Failure>;

/// What is forged, what the judge must find, and how many records of it.
const CASES: [(&str, Option<Fault>, u64, Forgery); 8] = [
    ("right", None, 0, |forger, orders| forger.write(&orders)),
    ("duplicated", Some(Fault::Duplicated), 1, |forger, mut orders| {
        orders.extend(orders.last().cloned());
        forger.write(&orders)
    }),
    ("lost", Some(Fault::Lost), 1, |forger, mut orders| {
        orders.pop();
        forger.write(&orders)
    }),
    ("changed", Some(Fault::Changed), 1, |forger, mut orders| {
        orders.iter_mut().take(1).for_each(|order| order.amount += 1);
        forger.write(&orders)
    }),
    ("reordered", Some(Fault::Reordered), 1, |forger, mut orders| {
        orders.swap(3, 4);
        forger.write(&orders)
    }),
    // A job that reads uncommitted input: sequence RECORDS was written in a transaction that was aborted.
    ("uncommitted", Some(Fault::Uncommitted), 1, |forger, mut orders| {
        let mut aborted = Order::numbered(0, 0, RECORDS);
        "purchase".clone_into(&mut aborted.kind);
        orders.push(aborted);
        forger.write(&orders)
    }),
    // Output of an aborted transaction is no output: what was written in it is lost, unless it is written again.
    ("aborted", None, 0, |forger, orders| {
        forger.in_transaction(&orders, |producer| producer.abort_transaction(LONG))?;
        forger.write(&orders)
    }),
    ("open", Some(Fault::OpenTransaction), 1, |forger, mut orders| {
        let last = orders.split_off(orders.len() - 1);
        forger.write(&orders)?;
        forger.in_transaction(&last, |_| Ok(()))
    }),
];

pub(super) fn run(bench: &Bench<'_>) -> Outcome {
    let mut lines = Vec::new();
    for (case, fault, count, forge) in CASES {
        let forger = Forger {
            bench,
            case,
            input: bench.make_topic(&format!("{case}-in"), 1)?,
            output: bench.make_topic(&format!("{case}-out"), 1)?,
        };
        let orders = forger.input()?;
        forge(&forger, orders)?;
        forger.commit_positions()?;
        let verdict = forger.verdict()?;
        check(case, &verdict, fault, count)?;
        lines.push(format!("{case}: {}", verdict.summary()));
    }
    Ok(lines)
}

fn check(case: &str, verdict: &Verdict, fault: Option<Fault>, count: u64) -> Result<(), Failure> {
    let wanted = fault.into_iter().map(|fault| (fault, count)).collect();
    // The last record is lost to readers as long as its transaction is open: that is the second thing to be found.
    let mut found = verdict.faults.clone();
    if fault == Some(Fault::OpenTransaction) {
        ensure!(found.remove(&Fault::Lost) == Some(1), "{case}: {verdict}");
    }
    ensure!(found == wanted, "{case}: the judge must find {wanted:?}: {verdict}");
    Ok(())
}

impl Forger<'_> {
    /// Writes committed input, and one more record in an aborted transaction. Gives what a right job makes of it.
    fn input(&self) -> Result<Vec<Order>, Failure> {
        let orders: Vec<Order> = (0..RECORDS).map(|seq| Order::numbered(0, 0, seq)).collect();
        let producer = self.producer(Some("input"))?;
        let transaction = |orders: &[Order]| {
            producer.begin_transaction()?;
            for order in orders {
                send(&producer, &self.input, &order.key(), &order.value())?;
            }
            producer.flush(LONG)
        };
        let failed = Failure::means("write the input");
        let written = producer.init_transactions(LONG).and_then(|()| transaction(&orders));
        let written = written.and_then(|()| producer.commit_transaction(LONG));
        let mut aborted = Order::numbered(0, 0, RECORDS);
        "purchase".clone_into(&mut aborted.kind);
        let written = written.and_then(|()| transaction(&[aborted]));
        written.and_then(|()| producer.abort_transaction(LONG)).map_err(failed)?;
        Ok(orders.into_iter().filter(|order| order.kind == "purchase").collect())
    }

    fn write(&self, orders: &[Order]) -> Result<(), Failure> {
        let producer = self.producer(None)?;
        let sent = orders.iter().try_for_each(|order| self.send_output(&producer, order));
        sent.and_then(|()| producer.flush(LONG)).map_err(Failure::means("write the output"))
    }

    /// Writes in a transaction and ends it by `end`, or not at all.
    fn in_transaction(
        &self,
        orders: &[Order],
        end: impl FnOnce(&BaseProducer) -> Result<(), rdkafka::error::KafkaError>,
    ) -> Result<(), Failure> {
        let producer = self.producer(Some("output"))?;
        let begun = producer.init_transactions(LONG).and_then(|()| producer.begin_transaction());
        let sent = begun.and_then(|()| orders.iter().try_for_each(|order| self.send_output(&producer, order)));
        let flushed = sent.and_then(|()| producer.flush(LONG));
        flushed.and_then(|()| end(&producer)).map_err(Failure::means("write the output in a transaction"))
    }

    fn send_output(&self, producer: &BaseProducer, order: &Order) -> Result<(), rdkafka::error::KafkaError> {
        let Order { src, part, seq, customer, amount, .. } = order;
        let amount = amount * 2;
        let value = format!(
            "{{\"src\":{src},\"part\":{part},\"seq\":{seq},\"customer\":\"{customer}\",\"amount\":{amount},\"kind\":\"PURCHASE\"}}"
        );
        send(producer, &self.output, customer, &value)
    }

    fn producer(&self, transactional: Option<&str>) -> Result<BaseProducer, Failure> {
        let mut config = self.bench.connection().config();
        config.set("enable.idempotence", "true");
        if let Some(purpose) = transactional {
            config
                .set("transactional.id", format!("{}-{purpose}", self.output))
                .set("transaction.timeout.ms", "600000");
        }
        config.create().map_err(Failure::means("make a producer"))
    }

    /// As the job would: everything is processed.
    fn commit_positions(&self) -> Result<(), Failure> {
        let mut list = TopicPartitionList::new();
        // Behind the records of both transactions and their markers.
        let end = i64::try_from(RECORDS).unwrap_or_default() + 3;
        let consumer: BaseConsumer = self
            .bench
            .connection()
            .config()
            .set("group.id", self.group())
            .create()
            .map_err(Failure::means("make a consumer"))?;
        list.add_partition_offset(&self.input, 0, Offset::Offset(end))
            .and_then(|()| consumer.commit(&list, CommitMode::Sync))
            .map_err(Failure::means("commit positions"))
    }

    fn group(&self) -> String {
        format!("{}.{}", self.bench.namespace(), self.case)
    }

    fn verdict(&self) -> Result<Verdict, Failure> {
        // An open transaction does not end by itself: it is waited for in vain.
        Trial::new(self.bench.connection(), &self.group(), Meaning::purchases(&self.output))
            .input(&self.input)
            .output(&self.output)
            .patience(Duration::from_secs(5))
            .verdict()
            .map_err(Failure::means("read the topics"))
    }
}

fn send(producer: &BaseProducer, topic: &str, key: &str, value: &str) -> Result<(), rdkafka::error::KafkaError> {
    producer.send(BaseRecord::to(topic).partition(0).key(key).payload(value)).map_err(|(error, _)| error)
}
