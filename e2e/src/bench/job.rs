//! Fencepost as `run.sh` starts any worker: told by the environment what to do, and one process.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use fencepost_crds::StreamJob;
use serde_json::json;

use crate::command::words;

/// What a worker is told, in the words of `run.sh`.
#[derive(Debug, Clone, clap::Args)]
pub struct Told {
    /// `filter`, `count` or `window`
    #[arg(long, env = "JOB")]
    job: String,
    /// Address of the broker
    #[arg(long, env = "BOOTSTRAP")]
    bootstrap: String,
    /// Topic to read
    #[arg(long, env = "IN_TOPIC")]
    input: String,
    /// Topic to write
    #[arg(long, env = "OUT_TOPIC")]
    output: String,
    /// A name that is the same after a restart
    #[arg(long, env = "GROUP")]
    group: String,
    /// A folder that is the same after a restart
    #[arg(long, env = "STATE_DIR")]
    state: PathBuf,
    /// `exactly_once` or `at_least_once`
    #[arg(long, env = "GUARANTEE")]
    guarantee: String,
    /// Milliseconds between commits
    #[arg(long, env = "INTERVAL_MS")]
    interval_ms: u32,
    /// Threads that process
    #[arg(long, env = "THREADS")]
    threads: u32,
}

/// The worker cannot do what it is told, or not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A job that needs what is not there yet.
    #[error("the job {0} is not implemented by the worker yet: it has no aggregation and no windows; `filter` is")]
    Job(String),
    /// A guarantee of another name.
    #[error("the guarantee {0} is neither exactly_once nor at_least_once")]
    Guarantee(String),
    /// The manifest is wrong.
    #[error("cannot write the StreamJob")]
    Manifest(#[from] serde_json::Error),
    /// A file, or the worker itself.
    #[error("cannot use {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Told {
    /// The job: purchases, their amount doubled, keyed by user.
    ///
    /// # Errors
    /// When it is another job, or a guarantee of another name.
    pub fn manifest(&self) -> Result<StreamJob, Error> {
        if self.job != "filter" {
            return Err(Error::Job(self.job.clone()));
        }
        let guarantee = match self.guarantee.as_str() {
            "exactly_once" => "ExactlyOnce",
            "at_least_once" => "AtLeastOnce",
            other => return Err(Error::Guarantee(other.to_owned())),
        };
        let manifest = json!({
            "apiVersion": "fencepost.dev/v1alpha1",
            "kind": "StreamJob",
            "metadata": {"name": "filter", "namespace": "bench"},
            "spec": {
                "kafka": {
                    "bootstrapServers": self.bootstrap,
                    "transactionalIdPrefix": self.group,
                    "consumerGroup": self.group,
                },
                "processing": {
                    "guarantee": guarantee,
                    "protocol": {"transactional": {"commitInterval": format!("{}ms", self.interval_ms)}},
                },
                "worker": {"slots": self.threads},
                "pipeline": {
                    "sources": [{
                        "name": "events",
                        "kafka": {"topic": self.input, "format": {"json": {}}},
                        "columns": [
                            {"name": "id", "type": "BIGINT"},
                            {"name": "user", "type": "STRING"},
                            {"name": "type", "type": "STRING"},
                            {"name": "amount", "type": "BIGINT"},
                        ],
                    }],
                    "sql": "INSERT INTO purchases\n\
                            SELECT id, \"user\", amount * 2 AS amount FROM events WHERE type = 'purchase'",
                    "sinks": [{
                        "name": "purchases",
                        "kafka": {"topic": self.output, "format": {"json": {}}, "keyColumns": ["user"]},
                    }],
                },
            },
        });
        Ok(serde_json::from_value(manifest)?)
    }

    /// Lets `worker` take the place of this process: the meter watches the process that was started. Comes back only with an error.
    ///
    /// # Errors
    /// When it cannot do what it is told, or the worker cannot be started.
    pub fn become_worker(&self, worker: &Worker) -> Result<std::convert::Infallible, Error> {
        let path = self.state.join("job.json");
        let text = serde_json::to_vec_pretty(&self.manifest()?)?;
        fs::write(&path, text).map_err(|source| Error::Io { path: path.clone(), source })?;
        let mut command = worker.command();
        // Nobody asks it over HTTP, and the port of one that was just killed may not be free yet.
        command.args(["--log-format", "text", "run", "--http-addr", "127.0.0.1:0"]).arg(path);
        let source = command.exec();
        Err(Error::Io { path: worker.program.clone(), source })
    }
}

/// How the worker is started.
#[derive(Debug, Clone, clap::Args)]
pub struct Worker {
    /// The worker
    #[arg(long)]
    program: PathBuf,
    /// Let perf watch it, and write its samples here
    #[arg(long)]
    samples: Option<PathBuf>,
}

impl Worker {
    fn command(&self) -> Command {
        let Some(samples) = &self.samples else { return Command::new(&self.program) };
        // Whole stacks, unwound later: neither Rust nor librdkafka is compiled with frame pointers. A copied stack costs, so few.
        let mut perf = words("perf", ["record", "--quiet", "--no-buildid", "--event=cpu-clock", "--freq=199"]);
        perf.args(["--call-graph=dwarf,16384", "--output"]).arg(samples).arg("--").arg(&self.program);
        perf
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, Told};

    fn told(job: &str, guarantee: &str) -> Told {
        Told {
            job: job.to_owned(),
            bootstrap: "10.77.0.101:9092".to_owned(),
            input: "bench-in".to_owned(),
            output: "bench-out".to_owned(),
            group: "bench-custom-filter-1".to_owned(),
            state: "/state".into(),
            guarantee: guarantee.to_owned(),
            interval_ms: 100,
            threads: 2,
        }
    }

    #[test]
    fn the_job_is_one_that_the_schema_allows_and_the_worker_can_plan() {
        for guarantee in ["exactly_once", "at_least_once"] {
            let job = told("filter", guarantee).manifest().unwrap();
            let text = serde_json::to_value(&job).unwrap();
            kube::core::cel::validate_cel_schema::<fencepost_crds::StreamJob>(&text, None).unwrap();
            let plan = fencepost_pipeline::plan(&job.spec.pipeline).unwrap();
            assert_eq!(plan.sources().len(), 1);
        }
    }

    #[test]
    fn the_job_is_as_the_environment_says() {
        let job = fencepost_crds::resolve::resolve(&told("filter", "at_least_once").manifest().unwrap(), "", "");
        assert_eq!((job.commit_interval_ms, job.slots), (100, 2));
        assert_eq!(job.guarantee, fencepost_crds::v1alpha1::Guarantee::AtLeastOnce);
        // The names by which a restarted worker is the same one.
        assert_eq!(job.transactional_id_prefix, "bench-custom-filter-1");
        assert_eq!(job.consumer_group, "bench-custom-filter-1");
    }

    /// Otherwise a value that is never given would be the default of something else.
    #[test]
    fn run_sh_tells_all_that_the_worker_asks_for() {
        use clap::Args;
        let script = std::fs::read_to_string(crate::tools::peers::source().join("run.sh")).unwrap();
        let command = Told::augment_args(clap::Command::new("worker"));
        let asked: Vec<&str> = command.get_arguments().map(|arg| arg.get_env().unwrap().to_str().unwrap()).collect();
        assert_eq!(asked.len(), 9);
        for name in asked {
            // Who starts the script says where the broker is, and the script insists on it.
            let told = format!(" {name}=");
            assert!(script.contains(&told) || script.contains(&format!("${{{name}:?set")), "{name}");
        }
    }

    #[test]
    fn what_the_worker_cannot_do_is_refused_and_not_measured_as_something_else() {
        for job in ["count", "window"] {
            let error = told(job, "exactly_once").manifest().unwrap_err();
            assert!(matches!(&error, Error::Job(name) if name == job), "{error}");
        }
        assert!(matches!(told("filter", "perhaps").manifest(), Err(Error::Guarantee(_))));
    }
}
