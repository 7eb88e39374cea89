//! The real controller in a cluster in memory, killed just before and just after each of its requests.

mod health;
mod kept;
mod scale;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fencepost_crds::{
    StreamJob,
    conditions::{self, ConditionType},
    names,
    v1alpha1::{JobState, Phase, StreamJobStatus},
};
use proptest::{collection::vec, option, prelude::*};
use serde_json::{Value, json};

use crate::{
    rbac::{PERMISSIONS, Scope},
    testing::{BROKEN, Cluster, JOB, NAMESPACE},
};

type Change = fn(&mut Cluster);

/// How long a leader stands still: shorter than what it allows a reconciliation to take.
const PAUSE: Duration = Duration::from_secs(50);
/// So short that the other has just begun.
const MOMENT: Duration = Duration::from_millis(500);

fn submit(cluster: &mut Cluster) {
    cluster.submit();
}

fn other_sql(cluster: &mut Cluster) {
    cluster.edit(|spec| spec["pipeline"]["sql"] = "INSERT INTO totals SELECT 'x' FROM orders".into());
}

fn first_sql(cluster: &mut Cluster) {
    cluster.edit(|spec| spec["pipeline"]["sql"] = "INSERT INTO totals SELECT user FROM orders".into());
}

fn broken_sql(cluster: &mut Cluster) {
    cluster.edit(|spec| spec["pipeline"]["sql"] = format!("INSERT INTO totals SELECT '{BROKEN}' FROM orders").into());
}

fn four_workers(cluster: &mut Cluster) {
    cluster.edit(|spec| spec["replicas"] = 4.into());
}

fn one_worker(cluster: &mut Cluster) {
    cluster.edit(|spec| spec["replicas"] = 1.into());
}

fn suspend(cluster: &mut Cluster) {
    cluster.edit(|spec| spec["state"] = "Suspended".into());
}

fn resume(cluster: &mut Cluster) {
    cluster.edit(|spec| spec["state"] = "Running".into());
}

fn restart(cluster: &mut Cluster) {
    cluster.annotate(names::ANNOTATION_RESTART, "monday");
}

fn delete(cluster: &mut Cluster) {
    cluster.server.delete::<StreamJob>(NAMESPACE, JOB).unwrap();
}

/// Workers that die without a commit leave a transaction open.
fn workers_that_die(cluster: &mut Cluster) {
    cluster.killed = [0, 2, 3].into();
}

async fn quiet_after(changes: &[Change]) -> Cluster {
    let mut cluster = Cluster::new();
    for change in changes {
        change(&mut cluster);
        cluster.run(None).await;
    }
    cluster
}

fn status(cluster: &Cluster) -> StreamJobStatus {
    status_of(cluster, JOB)
}

fn status_of(cluster: &Cluster, name: &str) -> StreamJobStatus {
    cluster.server.get::<StreamJob>(NAMESPACE, name).and_then(|job| job.status).unwrap_or_default()
}

/// Cuts the run after a change at every step, and starts another operator. What there is in the end and what was changed in what order must be as
/// if nothing had happened, and nothing may have happened on the way that must not.
async fn survives_everywhere(before: &[Change], change: Change) -> (Cluster, Vec<String>) {
    let base = quiet_after(before).await;
    let mut whole = base.fork();
    change(&mut whole);
    let generation = whole.job().map(|job| job.metadata.generation);
    let story = whole.run(None).await;
    assert_eq!(whole.violations(), [] as [&str; 0]);
    if let Some(job) = whole.job() {
        assert_eq!(Some(job.metadata.generation), generation, "the operator never writes a spec");
    }
    let end = whole.end();
    for cut in 1..=story.steps {
        let mut cluster = base.fork();
        change(&mut cluster);
        let told = cluster.run(Some(cut)).await;
        assert_eq!(cluster.violations(), [] as [&str; 0], "cut at step {cut} of {}", story.steps);
        assert_eq!(told.effects, story.effects, "cut at step {cut} of {}", story.steps);
        assert_same(&cluster.end(), &end, cut);
    }
    // Names end in hashes.
    let short = |effect: &String| match effect.split_once(" spend-") {
        Some((what, name)) => format!("{what} {}", name.split('-').next().unwrap_or_default()),
        None => effect.trim_end().to_owned(),
    };
    let effects = story.effects.iter().map(short).collect();
    (whole, effects)
}

/// Names the first object that differs, and nothing else of the cluster.
fn assert_same(found: &BTreeMap<String, Value>, wanted: &BTreeMap<String, Value>, cut: u64) {
    assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "cut at step {cut}");
    for (name, object) in found {
        assert_eq!(object, &wanted[name], "{name}, cut at step {cut}");
    }
}

/// ```text
///  manifest ─▶ plan pod ─▶ topics ─▶ revision ─▶ epoch 1 ─▶ children
/// ```
#[tokio::test(start_paused = true)]
async fn a_start_survives_the_death_of_the_operator_at_every_step() {
    let (cluster, effects) = survives_everywhere(&[], submit).await;
    assert_eq!((status(&cluster).epoch, status(&cluster).phase), (Some(1), Some(Phase::Running)));
    let wanted = [
        "create configmaps",
        "create pods",
        "delete configmaps plan",
        "delete pods plan",
        "create topic totals",
        "create controllerrevisions",
        "patch streamjobs spend",
        "patch serviceaccounts spend",
        "create configmaps",
        "patch services spend",
        "patch poddisruptionbudgets spend",
        "patch statefulsets spend",
    ];
    assert_eq!(effects, wanted);
}

/// ```text
///  new SQL ─▶ plan pod ─▶ revision ─▶ old workers gone ─▶ ids fenced ─▶ epoch 2 ─▶ children
/// ```
#[tokio::test(start_paused = true)]
async fn an_upgrade_survives_the_death_of_the_operator_at_every_step() {
    let (cluster, effects) = survives_everywhere(&[workers_that_die, submit], other_sql).await;
    assert_eq!((status(&cluster).epoch, status(&cluster).phase), (Some(2), Some(Phase::Running)));
    let wanted = [
        "create configmaps",
        "create pods",
        "delete configmaps plan",
        "delete pods plan",
        "create controllerrevisions",
        "patch statefulsets spend",
        "fence shop.spend-0-0",
        "fence shop.spend-1-0",
        "create configmaps",
        "patch statefulsets spend",
        "delete configmaps job",
    ];
    assert_eq!(effects, wanted);
}

#[tokio::test(start_paused = true)]
async fn the_way_back_survives_the_death_of_the_operator_at_every_step() {
    let (cluster, effects) = survives_everywhere(&[submit, other_sql], first_sql).await;
    assert_eq!((status(&cluster).epoch, status(&cluster).phase), (Some(3), Some(Phase::Running)));
    let wanted = [
        "create configmaps",
        "create pods",
        "delete configmaps plan",
        "delete pods plan",
        "create controllerrevisions",
        "patch statefulsets spend",
        "fence shop.spend-0-0",
        "fence shop.spend-1-0",
        "create configmaps",
        "patch statefulsets spend",
        "delete configmaps job",
    ];
    assert_eq!(effects, wanted);
}

/// ```text
///  new SQL ─▶ … ─▶ epoch 2, no worker of which can run it ─▶ its workers gone ─▶ ids fenced ─▶ nothing committed ─▶ epoch 3: as before
/// ```
#[tokio::test(start_paused = true)]
async fn a_rollback_survives_the_death_of_the_operator_at_every_step() {
    let (cluster, effects) = survives_everywhere(&[submit], broken_sql).await;
    let status = status(&cluster);
    assert_eq!((status.epoch, status.phase), (Some(3), Some(Phase::Stalled)));
    let revision = status.revision.unwrap();
    assert!(revision.current == revision.stable && revision.failed.is_some(), "{revision:?}");
    let replaced = [
        "patch statefulsets spend",
        "fence shop.spend-0-0",
        "fence shop.spend-1-0",
        "create configmaps",
        "patch statefulsets spend",
        "delete configmaps job",
    ];
    let planned = [
        "create configmaps",
        "create pods",
        "delete configmaps plan",
        "delete pods plan",
        "create controllerrevisions",
    ];
    assert_eq!(effects, [planned.as_slice(), &replaced, &replaced].concat());
}

#[tokio::test(start_paused = true)]
async fn more_workers_survive_the_death_of_the_operator_at_every_step() {
    let (cluster, effects) = survives_everywhere(&[submit], four_workers).await;
    assert_eq!((status(&cluster).epoch, status(&cluster).workers.as_deref()), (Some(1), Some("4/4")));
    assert_eq!(effects, ["patch statefulsets spend"]);
}

#[tokio::test(start_paused = true)]
async fn fewer_workers_survive_the_death_of_the_operator_at_every_step() {
    let (cluster, effects) = survives_everywhere(&[workers_that_die, submit, four_workers], one_worker).await;
    assert_eq!((status(&cluster).epoch, status(&cluster).workers.as_deref()), (Some(1), Some("1/1")));
    assert_eq!(cluster.brokers.open(), ["shop.spend-0-0"], "what went has nothing open");
    let wanted = ["patch statefulsets spend", "fence shop.spend-1-0", "fence shop.spend-2-0", "fence shop.spend-3-0"];
    assert_eq!(effects, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_suspension_survives_the_death_of_the_operator_at_every_step() {
    let (cluster, effects) = survives_everywhere(&[workers_that_die, submit], suspend).await;
    assert_eq!((status(&cluster).epoch, status(&cluster).phase), (Some(1), Some(Phase::Suspended)));
    assert_eq!(cluster.brokers.open(), [""; 0]);
    assert_eq!(effects, ["patch statefulsets spend", "fence shop.spend-0-0", "fence shop.spend-1-0"]);
}

#[tokio::test(start_paused = true)]
async fn going_on_survives_the_death_of_the_operator_at_every_step() {
    let (cluster, effects) = survives_everywhere(&[submit, suspend], resume).await;
    assert_eq!((status(&cluster).epoch, status(&cluster).phase), (Some(2), Some(Phase::Running)));
    assert_eq!(effects, ["patch statefulsets spend"]);
}

/// The same revision once more, as another epoch.
#[tokio::test(start_paused = true)]
async fn a_restart_survives_the_death_of_the_operator_at_every_step() {
    let (cluster, effects) = survives_everywhere(&[workers_that_die, submit], restart).await;
    assert_eq!((status(&cluster).epoch, status(&cluster).phase), (Some(2), Some(Phase::Running)));
    assert_eq!(status(&cluster).restarted.as_deref(), Some("monday"));
    let wanted =
        ["patch statefulsets spend", "fence shop.spend-0-0", "fence shop.spend-1-0", "patch statefulsets spend"];
    assert_eq!(effects, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_survives_the_death_of_the_operator_at_every_step() {
    let (cluster, effects) = survives_everywhere(&[workers_that_die, submit], delete).await;
    assert_eq!(cluster.end().keys().collect::<Vec<_>>(), ["Secret shop/kafka"], "nothing of the job is left");
    assert_eq!(cluster.brokers.open(), [""; 0]);
    let wanted = ["patch statefulsets spend", "fence shop.spend-0-0", "fence shop.spend-1-0", "patch streamjobs spend"];
    assert_eq!(effects, wanted);
}

/// Its Secrets and revisions go before it.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_deleted_leaves_nothing_open() {
    let mut cluster = quiet_after(&[workers_that_die, submit]).await;
    let delete = |cluster: &mut Cluster| {
        cluster.delete_namespace();
        assert!(cluster.job().is_some(), "it is held");
    };
    cluster.run_through(delete).await;
    let left = (cluster.end().len(), cluster.brokers.open(), cluster.violations());
    assert_eq!(left, (0, vec![], vec![]));
}

/// Nobody can reach its brokers: the operator that knew how is no more.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_deleted_goes_whatever_happens_to_the_operator() {
    let hurry = |cluster: &mut Cluster| cluster.edit(|spec| spec["deletion"] = json!({ "deadline": "30s" }));
    let base = quiet_after(&[submit, hurry]).await;
    let mut whole = base.fork();
    whole.delete_namespace();
    let steps = whole.run(None).await.steps;
    for cut in 1..=steps {
        let mut cluster = base.fork();
        cluster.delete_namespace();
        cluster.run(Some(cut)).await;
        assert_eq!((cluster.end().len(), cluster.violations()), (0, vec![]), "cut at step {cut} of {steps}");
    }
}

/// Wherever the operator dies, the second starts when the first is gone, and not earlier.
///
/// ```text
///  spend          starts ───────────────▶ deleted ─▶ gone
///  spend-again    waits, as the ids are not its own ──────▶ starts
/// ```
#[tokio::test(start_paused = true)]
async fn two_jobs_with_the_same_ids_never_run_at_once() {
    let both = |cluster: &mut Cluster| {
        cluster.submit();
        cluster.submit_again("spend-again");
    };
    let of_second = |cluster: &Cluster| status_of(cluster, "spend-again");
    let mut whole = Cluster::new();
    both(&mut whole);
    let steps = whole.run(None).await.steps;
    for cut in 1..=steps {
        let mut cluster = Cluster::new();
        both(&mut cluster);
        cluster.run(Some(cut)).await;
        let waiting = of_second(&cluster);
        assert_eq!((waiting.epoch, waiting.phase), (None, Some(Phase::Stalled)), "cut at step {cut} of {steps}");
        let told = conditions::get(&waiting.conditions, ConditionType::Stalled).unwrap();
        assert_eq!((told.status.as_str(), told.reason.as_str()), ("True", "IdsTaken"));
        assert_as_asked(&cluster);
        delete(&mut cluster);
        cluster.run(None).await;
        assert_eq!((cluster.job(), of_second(&cluster).epoch), (None, Some(1)), "cut at step {cut} of {steps}");
        assert_eq!(cluster.violations(), [] as [&str; 0]);
    }
}

/// Two leaders: one stands still in a request, for longer than its lease lasts, and then finishes what it had begun.
///
/// ```text
///  first    looks ─▶ decides ─▶ journal ─▶ act ···················· act ─▶ …
///  second                               takes over ─▶ user edits ─▶ epoch 3
/// ```
async fn two_leaders_do_no_harm(before: &[Change], change: Change, meanwhile: Change, expect: fn(&Cluster)) {
    let base = quiet_after(before).await;
    let mut whole = base.fork();
    change(&mut whole);
    let steps = whole.run(None).await.steps;
    let mut met = 0;
    for step in 1..=steps {
        let mut cluster = base.fork();
        change(&mut cluster);
        if cluster.run_beside(step, PAUSE, meanwhile).await {
            met += 1;
            println!("standing still in step {step} of {steps}");
            assert_as_asked(&cluster);
            expect(&cluster);
        }
    }
    assert!(met > steps / 4, "{met} of {steps} steps");
}

fn runs_epoch(cluster: &Cluster, epoch: i64) {
    assert!(status(cluster).epoch >= Some(epoch), "{:#?}", status(cluster));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_slept_through_an_upgrade_undoes_nothing() {
    two_leaders_do_no_harm(&[], submit, other_sql, |cluster| runs_epoch(cluster, 2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_slept_in_an_upgrade_undoes_nothing() {
    two_leaders_do_no_harm(&[submit], other_sql, first_sql, |cluster| runs_epoch(cluster, 2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_slept_through_a_suspension_starts_nothing() {
    let expect = |cluster: &Cluster| {
        assert_eq!(status(cluster).phase, Some(Phase::Suspended));
        assert_eq!(cluster.brokers.open(), [""; 0]);
    };
    two_leaders_do_no_harm(&[submit], other_sql, suspend, expect).await;
}

type Permission = (String, String, &'static str);

fn asked(cluster: &Cluster) -> impl Iterator<Item = Permission> {
    cluster.server.asked().into_iter().map(|asked| {
        let resource = [Some(asked.resource), asked.subresource].into_iter().flatten().collect::<Vec<_>>().join("/");
        (asked.group, resource, asked.verb.name())
    })
}

/// What the operator asks the API server for is what the table of permissions allows it, both ways.
#[tokio::test(start_paused = true)]
async fn the_operator_asks_for_what_it_is_granted_and_for_nothing_else() {
    let granted = PERMISSIONS.iter().filter(|granted| granted.scope == Scope::Watched).flat_map(|granted| {
        granted.verbs.iter().map(|verb| (granted.group.to_owned(), granted.resource.to_owned(), *verb))
    });
    let granted: BTreeSet<Permission> = granted.collect();
    let mut all: BTreeSet<Permission> = BTreeSet::new();
    // More revisions than are kept.
    let sqls: [Change; 7] = [other_sql, first_sql, other_sql, first_sql, other_sql, first_sql, other_sql];
    let changes: Vec<Change> =
        [submit as Change, four_workers, one_worker, suspend, resume].into_iter().chain(sqls).collect();
    all.extend(asked(&quiet_after(&changes).await));
    // What is there already is met by those who come late.
    for (step, pause) in (1..300).flat_map(|step| [(step, MOMENT), (step, PAUSE)]) {
        if granted.difference(&all).count() == 1 {
            break;
        }
        let mut cluster = Cluster::new();
        cluster.submit();
        cluster.run_beside(step, pause, |_| {}).await;
        all.extend(asked(&cluster));
    }
    assert_eq!(all.difference(&granted).collect::<Vec<_>>(), [] as [&Permission; 0]);
    // For API servers that ask whoever blocks the deletion of an owner for this; nobody sends such a request.
    let unused: Vec<String> =
        granted.difference(&all).map(|(_, resource, verb)| format!("{verb} {resource}")).collect();
    assert_eq!(unused, ["update streamjobs/finalizers"]);
}

/// Something that happens to a job.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// Another pipeline.
    Sql(u8),
    /// A pipeline that no worker can run.
    Broken,
    /// Another number of workers.
    Workers(u8),
    Suspended,
    Resumed,
    /// A restart is asked for.
    Restart(u8),
    /// A worker and its node are lost.
    WorkerLost(u8),
    /// All watches end, and what they missed is forgotten.
    TooOld,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        3 => (0..3_u8).prop_map(Happens::Sql),
        1 => Just(Happens::Broken),
        2 => (1..5_u8).prop_map(Happens::Workers),
        1 => Just(Happens::Suspended),
        1 => Just(Happens::Resumed),
        1 => (0..3_u8).prop_map(Happens::Restart),
        2 => (0..4_u8).prop_map(Happens::WorkerLost),
        1 => Just(Happens::TooOld),
    ]
}

fn happen(cluster: &mut Cluster, what: Happens) {
    match what {
        Happens::Sql(which) => cluster.edit(|spec| {
            spec["pipeline"]["sql"] = format!("INSERT INTO totals SELECT '{which}' FROM orders").into();
        }),
        Happens::Broken => broken_sql(cluster),
        Happens::Workers(workers) => cluster.edit(|spec| spec["replicas"] = workers.into()),
        Happens::Suspended => suspend(cluster),
        Happens::Resumed => resume(cluster),
        Happens::Restart(which) => cluster.annotate(names::ANNOTATION_RESTART, &which.to_string()),
        Happens::WorkerLost(ordinal) => cluster.lose_worker(ordinal),
        Happens::TooOld => cluster.server.compact(),
    }
}

/// Everything is as the spec asks, and nothing else is left.
fn assert_as_asked(cluster: &Cluster) {
    assert_eq!(cluster.violations(), [] as [&str; 0]);
    let job = cluster.job().unwrap();
    let status = job.status.clone().unwrap();
    let suspended = job.spec.state == JobState::Suspended;
    let wanted = if suspended { 0 } else { job.spec.replicas };
    let revision = status.revision.clone().unwrap();
    let phase = match (suspended, &revision.failed) {
        (true, _) => Phase::Suspended,
        (false, Some(_)) => Phase::Stalled,
        (false, None) => Phase::Running,
    };
    assert_eq!(status.phase, Some(phase), "{status:#?}");
    assert_eq!(status.workers, Some(format!("{wanted}/{wanted}")));
    assert_eq!(status.observed_generation, job.metadata.generation);
    assert!(status.operation.is_none(), "{status:#?}");
    let runs = if revision.failed.is_some() { &revision.stable } else { &revision.target };
    assert!(suspended || revision.current == *runs, "{revision:?}");
    let asked = job.metadata.annotations.as_ref().and_then(|all| all.get(names::ANNOTATION_RESTART));
    assert!(suspended || asked.is_none() || asked == status.restarted.as_ref(), "a restart was asked for: {status:#?}");
    let alive: Vec<String> = (0..wanted).map(|ordinal| format!("shop.spend-{ordinal}-0")).collect();
    assert_eq!(cluster.brokers.open(), alive, "transactions that are open");
    let there = cluster.end();
    let of_kind = |kind: &str| there.keys().filter(|name| name.starts_with(kind)).cloned().collect::<Vec<_>>();
    assert_eq!(of_kind("Pod ").len(), usize::try_from(wanted).unwrap(), "{:?}", there.keys());
    // What a leader that had slept made for a start that did not come goes with the next one.
    let config_maps = of_kind("ConfigMap ");
    assert!(config_maps.len() == 1 || suspended, "{config_maps:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 40, ..ProptestConfig::default() })]

    /// Whatever happens, in whatever order, and wherever the operator dies: in the end all is as asked.
    #[test]
    fn whatever_happens_all_is_as_asked_in_the_end(
        story in vec((vec(happens(), 1..3), option::of(1..120_u64)), 1..5),
        killed in vec(0..4_u32, 0..3),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut cluster = quiet_after(&[submit]).await;
            cluster.killed = killed.into_iter().collect();
            for (events, cut) in story {
                for event in events {
                    happen(&mut cluster, event);
                }
                cluster.run(cut).await;
                assert_as_asked(&cluster);
            }
        });
    }
}
