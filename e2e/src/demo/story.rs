//! The story of the demo, act by act.

use std::process::ExitCode;
use std::time::Duration;

use fencepost_oracle::Verdict;
use serde_json::json;

use super::watch::View;
use super::{Error, Options};
use crate::cluster::ClusterSpec;
use crate::load::{Defects, Load, Order, Plan};
use crate::report::grouped;
use crate::scenarios::{Bench, Failure, Lab, Meaning};
use crate::wait::{self, Deadline};
use crate::{paths, report};

/// What examples/orders.yaml says.
pub(super) const NAMESPACE: &str = "shop";
pub(super) const JOB: &str = "orders";
pub(super) const INPUT: &str = "shop.orders";
pub(super) const OUTPUT: &str = "shop.purchases";
pub(super) const BAD: &str = "shop.orders-bad";
pub(super) const GROUP: &str = "shop.orders";

const PARTITIONS: i32 = 4;
/// One record of so many is one that no one can read.
const BAD_ONE_OF: u64 = 250;
/// For how long nothing happens but work, between two acts: so much output, by the rate of the input.
const QUIET_SECONDS: u64 = 12;
/// How long one step may take on a slow machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Tells the story on the cluster, which is made when it is not there. Ends with success when the judge finds no fault.
///
/// # Errors
/// When something on the way fails.
pub fn show(options: &Options) -> Result<ExitCode, Error> {
    let spec = ClusterSpec { name: options.name.clone(), ..ClusterSpec::default() };
    let lab = Lab::open(&spec, false)?;
    lab.cluster().enter()?;
    let bench = stage(&lab)?;
    let told = tell(&lab, &bench, options);
    if told.is_err() {
        what_kubernetes_says(&bench);
    }
    let verdict = told?;
    report::answer(format!("\n{verdict}"));
    report::answer(if verdict.holds() {
        "Nothing was lost, and nothing counted twice.\n"
    } else {
        "The promise was broken.\n"
    });
    if options.keep {
        how_to_play(options);
    }
    Ok(if verdict.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An empty namespace and empty topics, whatever an earlier demo has left.
fn stage(lab: &Lab) -> Result<Bench<'_>, Failure> {
    let bench = Bench::open(lab, "demo", NAMESPACE)?;
    let old = bench.kubectl(&["get", "streamjobs", "--namespace", NAMESPACE, "--output=name"])?;
    let bench = if old.trim().is_empty() {
        bench
    } else {
        report::step("removing what the last demo left");
        bench.close()?;
        bench.kubectl(&["wait", "--for=delete", "--timeout=120s", &format!("namespace/{NAMESPACE}")])?;
        Bench::open(lab, "demo", NAMESPACE)?
    };
    bench.make_topic("orders", PARTITIONS)?;
    bench.make_topic("orders-bad", 1)?;
    Ok(bench)
}

fn tell(lab: &Lab, bench: &Bench<'_>, options: &Options) -> Result<Verdict, Failure> {
    let view = View::start(lab.cluster(), &lab.connection());
    let plan = Plan::new(INPUT, PARTITIONS, options.rate).defects(Defects::OneOf(BAD_ONE_OF));
    let load = bench.load(plan)?;
    view.say(format!(
        "input: {} orders a second into {INPUT}; one of {BAD_ONE_OF} is a record that nobody can read",
        grouped(options.rate.into())
    ));
    view.say("results: purchases, about half of the orders; what nobody can read goes to the dead-letter topic");
    apply(lab, bench, &view)?;
    quiet(&view, options)?;
    kill(bench, &view)?;
    quiet(&view, options)?;
    scale(bench, &view)?;
    quiet(&view, options)?;
    judge(bench, &view, load)
}

fn apply(lab: &Lab, bench: &Bench<'_>, view: &View) -> Result<(), Failure> {
    let clock = Deadline::after(LIMIT);
    view.say("kubectl apply -f examples/orders.yaml");
    let file = paths::repository().join("examples/orders.yaml");
    let manifest = std::fs::read_to_string(file).map_err(Failure::means("read examples/orders.yaml"))?;
    lab.cluster().apply(&manifest).map_err(Failure::means("apply examples/orders.yaml"))?;
    let job = bench.until_ready(JOB)?;
    let workers = job.spec.replicas;
    view.say(format!(
        "{workers} workers process after {:.0} s: planned, checked against the broker, started",
        clock.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// Lets the job work: until there is as much new output as some seconds of input make.
fn quiet(view: &View, options: &Options) -> Result<(), Failure> {
    // At least a third of the orders are purchases.
    let wanted = view.facts().output() + u64::from(options.rate) * QUIET_SECONDS / 3;
    until(view, "new committed output", |view| view.facts().output() >= wanted)
}

fn kill(bench: &Bench<'_>, view: &View) -> Result<(), Failure> {
    let name = format!("{JOB}-1");
    let restarts = move |view: &View| {
        let facts = view.facts();
        facts.job.pods.iter().find(|pod| pod.name == name).map(|pod| (pod.restarts, pod.ready)).unwrap_or_default()
    };
    let before = restarts(view).0;
    let clock = Deadline::after(LIMIT);
    let killed = bench.kill(NAMESPACE, &format!("{JOB}-1"))?;
    if !killed {
        return Err(Failure::Expectation(format!("there was no process of {JOB}-1 to kill")));
    }
    view.say(format!("kill -9 of the process of {JOB}-1, in the middle of its work"));
    until(view, "the killed worker to work again", move |view| {
        let (now, ready) = restarts(view);
        now > before && ready
    })?;
    let seconds = clock.elapsed().as_secs_f64();
    view.say(format!(
        "{JOB}-1 is back after {seconds:.0} s, with the same transactional id: what the dead one left open is aborted"
    ));
    Ok(())
}

fn scale(bench: &Bench<'_>, view: &View) -> Result<(), Failure> {
    let clock = Deadline::after(LIMIT);
    view.say(format!("kubectl scale streamjob/{JOB} --replicas 3"));
    bench.scale(JOB, 3)?;
    bench.until_ready(JOB)?;
    view.say(format!("3 workers process after {:.0} s", clock.elapsed().as_secs_f64()));
    Ok(())
}

fn judge(bench: &Bench<'_>, view: &View, load: Load) -> Result<Verdict, Failure> {
    let written = load.stop().map_err(Failure::means("write the input"))?;
    view.say(format!(
        "input stops at {} records, {} of them bad. The judge reads everything, with isolation.level=read_committed",
        grouped(written.committed),
        grouped(written.defective)
    ));
    let trial = bench.trial(JOB, meaning()).input(INPUT).output(OUTPUT).output(BAD);
    let verdict = trial.verdict().map_err(Failure::means("read the topics"))?;
    // The last view is the one people see: let it show the end.
    until(view, "the view to show the end", |view| view.facts().output() >= verdict.found).ok();
    let facts = view.facts();
    view.say(format!(
        "{} records went in; {} purchases and {} dead letters came out; one worker was killed, one added",
        grouped(verdict.inputs),
        grouped(facts.purchases),
        grouped(facts.letters)
    ));
    Ok(verdict)
}

/// What examples/orders.yaml means, said without the worker's code.
fn meaning() -> Meaning {
    let purchase = |order: &Order| {
        let Order { src, part, seq, customer, kind, amount } = order;
        let size = if *amount >= 50_000 { "large" } else { "small" };
        let value = json!({"src": src, "part": part, "seq": seq, "customer": customer, "amount": amount, "size": size});
        (kind == "purchase").then(|| (customer.clone(), value))
    };
    Meaning::new().branch(OUTPUT, purchase).dead_letters(BAD)
}

fn until(view: &View, what: &str, reached: impl Fn(&View) -> bool) -> Result<(), Failure> {
    let deadline = Deadline::after(LIMIT);
    let probe = || Ok::<_, Failure>(reached(view).then_some(()));
    wait::until(deadline, probe)?.ok_or_else(|| Failure::Late {
        what: what.to_owned(),
        seconds: LIMIT.as_secs(),
        last: format!("{:?}", view.facts()),
    })
}

fn what_kubernetes_says(bench: &Bench<'_>) {
    for arguments in [
        &["get", "streamjobs,pods", "--output=wide"][..],
        &["describe", "streamjobs"],
        &["logs", "--selector=fencepost.dev/job=orders", "--tail=20", "--prefix"],
        &["logs", "--namespace=fencepost-system", "deployment/fencepost", "--tail=20"],
    ] {
        let told = bench.kubectl(&[&["--namespace", NAMESPACE], arguments].concat());
        report::step(format!("kubectl {}", arguments.join(" ")));
        told.unwrap_or_else(|error| report::chain(&error)).lines().for_each(report::detail);
    }
}

fn how_to_play(options: &Options) {
    let name = match options.name.as_str() {
        "main" => String::new(),
        other => format!("--name {other} "),
    };
    let order = Order { kind: "purchase".to_owned(), ..Order::numbered(0, 0, 1_000_000_000) }.value();
    report::answer("The cluster is still up. From the folder of the checkout:");
    for line in [
        format!("kubectl {name}-- get sj --all-namespaces"),
        format!("kubectl {name}-- get streamjobs,pods --namespace {NAMESPACE}"),
        format!("kubectl {name}-- describe streamjob {JOB} --namespace {NAMESPACE}"),
        format!("kubectl {name}-- logs {JOB}-0 --namespace {NAMESPACE} --follow"),
        format!("kubectl {name}-- scale streamjob/{JOB} --namespace {NAMESPACE} --replicas 1"),
        format!("kubectl {name}-- edit streamjob {JOB} --namespace {NAMESPACE}"),
        format!("kubectl {name}-- get --raw /api/v1/namespaces/{NAMESPACE}/pods/{JOB}-0:8080/proxy/metrics"),
        format!("fault {name}kill-pod {JOB}-0 --namespace {NAMESPACE}"),
        format!("kafka {name}console-consumer -- --topic {OUTPUT} --isolation-level read_committed --from-beginning"),
        format!(
            "kafka {name}console-consumer -- --topic {BAD} --isolation-level read_committed --from-beginning \
             --formatter-property print.headers=true"
        ),
        format!("kafka {name}console-producer -- --topic {INPUT}"),
        format!("kafka {name}consumer-groups -- --describe --group {GROUP}"),
        format!("kafka {name}transactions -- list"),
    ] {
        report::answer(format!("  e2e/fp {line}"));
    }
    report::answer(format!("Start the console producer, then paste an order: {order}"));
    report::answer(format!("Remove it: e2e/fp down {name}").trim_end());
}
