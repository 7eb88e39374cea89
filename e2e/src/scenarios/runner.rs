//! Runs scenarios: two at a time where they do not disturb each other, and says of each what came of it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{ALL, Bench, Company, Failure, Lab, Outcome, Scenario, Test, diagnostics, soak as long_run};
use crate::cluster::{Brokers, Cluster, ClusterName, ClusterSpec, Expiry, Security};
use crate::wait::Deadline;
use crate::{report, selfcheck};

/// Which scenarios run, and what stays.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Parts of names; empty: all.
    pub only: Vec<String>,
    /// Leave the clusters up.
    pub keep: bool,
    /// Take clusters that were kept, with what is installed on them.
    pub installed: bool,
    /// Scenarios at the same time, where they allow it; 0 stands for 2.
    pub at_once: usize,
}

/// What came of a run.
#[must_use]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many passed.
    pub passed: usize,
    /// Names of those that failed, and why.
    pub failed: Vec<(&'static str, String)>,
}

/// Names of all scenarios.
#[must_use]
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|scenario| scenario.name).collect()
}

/// Runs what the options name.
pub fn run(options: &Options) -> Tally {
    let wanted = |scenario: &&Scenario| {
        options.only.is_empty() || options.only.iter().any(|part| scenario.name.contains(part.as_str()))
    };
    let (mut plain, mut brokers, mut secured) = (Vec::new(), Vec::new(), Vec::new());
    let (mut forgetful, mut machine) = (Vec::new(), Vec::new());
    for scenario in ALL.iter().filter(wanted) {
        match scenario.test {
            Test::Plain(run) => plain.push((*scenario, run)),
            Test::Brokers(run) => brokers.push((*scenario, run)),
            Test::Secured(run) => secured.push((*scenario, run)),
            Test::Forgetful(run) => forgetful.push((*scenario, run)),
            Test::Machine(run) => machine.push((*scenario, run)),
        }
    }
    let tally = Mutex::new(Tally::default());
    let two_nodes = ClusterSpec { nodes: 2, ..ClusterSpec::default() };
    let one_node = ClusterSpec { nodes: 1, ..ClusterSpec::default() };
    on_cluster(options, "test", &two_nodes, &plain, &tally);
    let spec = ClusterSpec { brokers: Brokers::Three, ..one_node.clone() };
    on_cluster(options, "brokers", &spec, &brokers, &tally);
    let spec = ClusterSpec { security: Security::SaslSsl, ..one_node.clone() };
    on_cluster(options, "secured", &spec, &secured, &tally);
    let spec = ClusterSpec { expiry: Expiry::Soon, ..one_node };
    on_cluster(options, "forgetful", &spec, &forgetful, &tally);
    for (scenario, run) in machine {
        let clock = begin(&scenario);
        end(&scenario, clock, run(), &tally);
    }
    tally.into_inner().unwrap_or_else(PoisonError::into_inner)
}

type OnBench = (Scenario, fn(&Bench<'_>) -> Outcome);

fn on_cluster(options: &Options, name: &str, spec: &ClusterSpec, scenarios: &[OnBench], tally: &Mutex<Tally>) {
    if scenarios.is_empty() {
        return;
    }
    let with_faults = scenarios.iter().any(|(scenario, _)| scenario.with_faults);
    match open(options, name, spec, with_faults) {
        Ok(lab) => {
            run_all(options, &lab, scenarios, tally);
            close(options, &lab);
        }
        Err(error) => {
            report::step(format!("no cluster {name}: {}", report::chain(&error)));
            for (scenario, _) in scenarios {
                report::detail(format!("{}: not run", scenario.name));
                lock(tally).failed.push((scenario.name, format!("not run: no cluster {name}")));
            }
        }
    }
}

fn open(options: &Options, name: &str, spec: &ClusterSpec, with_faults: bool) -> Result<Lab, Failure> {
    let name: ClusterName = name.parse().map_err(Failure::means("name a cluster"))?;
    if !options.keep && !options.installed {
        Cluster::down(&name).map_err(Failure::means("remove an old cluster"))?;
    }
    let spec = ClusterSpec { name, ..spec.clone() };
    if options.installed { Lab::installed(&spec, with_faults) } else { Lab::open(&spec, with_faults) }
}

fn close(options: &Options, lab: &Lab) {
    let name = &lab.cluster().spec().name;
    if !options.keep
        && !options.installed
        && let Err(error) = Cluster::down(name)
    {
        report::step(format!("the cluster {name} did not go away: {}", report::chain(&error)));
    }
}

/// A long run on a cluster of its own. True: nothing was lost, doubled, or grew.
pub fn soak(duration: Duration, keep: bool) -> bool {
    let options = Options { keep, ..Options::default() };
    let spec = ClusterSpec { nodes: 2, brokers: Brokers::Three, ..ClusterSpec::default() };
    let lab = match open(&options, "soak", &spec, false) {
        Ok(lab) => lab,
        Err(error) => {
            report::step(format!("no cluster: {}", report::chain(&error)));
            return false;
        }
    };
    report::step(format!("faults for {} minutes", duration.as_secs() / 60));
    let outcome = on_bench(&lab, "soak", |bench| long_run::run(bench, duration));
    close(&options, &lab);
    let holds = outcome.is_ok();
    match outcome {
        Ok(lines) => lines.into_iter().for_each(report::answer),
        Err(failure) => report::step(format!("failed: {}", report::chain(&failure))),
    }
    holds
}

fn run_all(options: &Options, lab: &Lab, scenarios: &[OnBench], tally: &Mutex<Tally>) {
    let (together, alone): (Vec<&OnBench>, Vec<&OnBench>) =
        scenarios.iter().partition(|(scenario, _)| scenario.company == Company::Any);
    let queue = Mutex::new(VecDeque::from(together));
    let at_once = if options.at_once == 0 { 2 } else { options.at_once };
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let next = lock(&queue).pop_front();
                    let Some(next) = next else { return };
                    run_one(lab, next, tally);
                }
            });
        }
    });
    for one in alone {
        run_one(lab, one, tally);
    }
}

fn run_one(lab: &Lab, (scenario, run): &OnBench, tally: &Mutex<Tally>) {
    let clock = begin(scenario);
    end(scenario, clock, on_bench(lab, scenario.name, run), tally);
}

/// In a namespace of its own. What the cluster knew when it failed is kept.
fn on_bench(lab: &Lab, name: &str, run: impl FnOnce(&Bench<'_>) -> Outcome + Send) -> Outcome {
    let namespace = namespace_of(name);
    // The thread is inside the cluster's network, and so is every thread it makes: the clients of Kubernetes and Kafka.
    let outcome = lab.cluster().namespace().within(|| {
        let bench = Bench::open(lab, name, &namespace)?;
        let outcome = run(&bench);
        if let Err(failure) = &outcome {
            let folder = diagnostics::save(lab.cluster(), name, &namespace, &report::chain(failure));
            report::detail(format!("{name}: what the cluster knew is in {}", folder.display()));
            diagnostics::last_events(&folder).into_iter().for_each(report::detail);
        }
        let closed = bench.close();
        outcome.and_then(|lines| closed.map(|()| lines))
    });
    outcome.unwrap_or(Err(Failure::Thread))
}

/// Short enough for a namespace, and another one in each run, because an old one goes away slowly.
fn namespace_of(name: &str) -> String {
    let short: String = name.chars().take(48).collect();
    format!("{}-{}", short.trim_end_matches('-'), std::process::id())
}

fn begin(scenario: &Scenario) -> Deadline {
    report::step(scenario.name);
    Deadline::after(Duration::MAX)
}

fn end(scenario: &Scenario, clock: Deadline, outcome: Outcome, tally: &Mutex<Tally>) {
    let seconds = clock.elapsed().as_secs();
    let (word, lines) = match outcome {
        Ok(lines) => {
            lock(tally).passed += 1;
            ("ok", lines)
        }
        Err(failure) => {
            let reason = report::chain(&failure);
            lock(tally).failed.push((scenario.name, reason.clone()));
            ("FAILED", vec![reason])
        }
    };
    report::step(format!("{}: {word} ({seconds} s)", scenario.name));
    for line in lines {
        report::detail(line);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The harness tests itself.
pub(super) fn killed_harness() -> Outcome {
    selfcheck::leaves_nothing_behind_after_kill().map_err(Failure::means("leave nothing behind"))?;
    Ok(Vec::new())
}

/// The harness tests itself.
pub(super) fn two_clusters() -> Outcome {
    selfcheck::two_stand_side_by_side().map_err(Failure::means("stand side by side"))?;
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{names, namespace_of};

    #[test]
    fn names_of_scenarios_are_distinct_also_as_namespaces() {
        let namespaces: BTreeSet<_> = names().into_iter().map(namespace_of).collect();
        assert_eq!(namespaces.len(), names().len());
        for namespace in namespaces {
            assert!(
                namespace.len() <= 63
                    && namespace.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
                "{namespace}"
            );
        }
    }
}
