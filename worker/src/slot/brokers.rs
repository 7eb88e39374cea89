use std::rc::Rc;
use std::time::Duration;

use fencepost_kafka::rpc::{ClientOptions, Cluster};
use fencepost_kafka::settings::ConnectionSettings;
use tokio::runtime::{Builder, Runtime};

/// A slot does nothing else meanwhile.
const WITHIN: Duration = Duration::from_secs(5);

/// Asks the brokers what librdkafka cannot ask.
#[derive(Debug)]
pub(super) struct Brokers {
    cluster: Cluster,
    runtime: Runtime,
}

impl Brokers {
    /// `None` when the raw client cannot be set up.
    pub(super) fn new(connection: ConnectionSettings) -> Option<Rc<Self>> {
        let runtime = Builder::new_current_thread().enable_all().build().ok()?;
        let options = ClientOptions { call_timeout: WITHIN, ..ClientOptions::default() };
        let cluster = Cluster::with_options(connection, options).ok()?;
        Some(Rc::new(Self { cluster, runtime }))
    }

    /// Waits for the answer.
    pub(super) fn ask<T>(&self, question: impl AsyncFnOnce(&Cluster) -> T) -> T {
        self.runtime.block_on(question(&self.cluster))
    }
}
