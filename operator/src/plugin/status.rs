//! How a job does, on one page.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use fencepost_crds::{
    StreamJob,
    conditions::{self, ConditionType},
    v1alpha1::{Phase, StreamJobStatus},
};
use fencepost_plan::{
    build::labels,
    pods::{self, PodFacts},
};
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{Api, ResourceExt, api::ListParams};

use super::{Cluster, PluginError, harmless};

/// Reads the job and its workers.
pub(super) async fn run(cluster: &Cluster, name: &str) -> Result<String, PluginError> {
    let job = cluster.job(name).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let params = ListParams::default().labels(&labels::worker_selector_text(name));
    let pods = pods.list(&params).await.map_err(PluginError::api("list the workers"))?;
    Ok(page(&job, &pods.items, Timestamp::now()))
}

/// The conditions that are always shown; the others when they are not as they should be.
const ALWAYS: [ConditionType; 3] = [ConditionType::Ready, ConditionType::Reconciling, ConditionType::Stalled];
/// Those that should be true.
const GOOD: [ConditionType; 5] = [
    ConditionType::Ready,
    ConditionType::SpecValid,
    ConditionType::BrokerCompatible,
    ConditionType::TransactionalIdsOwned,
    ConditionType::Approved,
];
const OTHERS: [ConditionType; 6] = [
    ConditionType::SpecValid,
    ConditionType::BrokerCompatible,
    ConditionType::TransactionalIdsOwned,
    ConditionType::Approved,
    ConditionType::RolledBack,
    ConditionType::Degraded,
];

fn page(job: &StreamJob, pods: &[Pod], now: Timestamp) -> String {
    let status = job.status.clone().unwrap_or_default();
    let mut out = String::new();
    let phase = status.phase.map_or_else(|| "not seen by an operator yet".to_owned(), |phase| phase.to_string());
    let style = match status.phase {
        Some(Phase::Running) => good(),
        Some(Phase::Stalled) => bad(),
        _ => busy(),
    };
    let title = format!("{}/{}", job.namespace().unwrap_or_default(), job.name_any());
    write_to(&mut out, format_args!("StreamJob {}  {}\n", harmless(&title), paint(style, &phase)));
    if status.observed_generation.is_some_and(|seen| seen > 0) && status.observed_generation != job.metadata.generation
    {
        write_to(&mut out, format_args!("{}\n", paint(busy(), "the operator has not looked at the newest spec yet")));
    }
    facts(&mut out, &status, now);
    conditions_of(&mut out, &status, now);
    workers(&mut out, pods, now);
    transactions(&mut out, &status, now);
    out
}

fn facts(out: &mut String, status: &StreamJobStatus, now: Timestamp) {
    let mut fact = |name: &str, value: String| write_to(out, format_args!("  {name:<11} {value}\n"));
    let text = |value: String| harmless(&value);
    if let Some(operation) = &status.operation {
        let kind = operation.operation_type.map_or_else(String::new, |kind| kind.to_string());
        let step = operation.step.clone().unwrap_or_default();
        let since = since(operation.started_at.as_deref(), now);
        fact("under way", paint(busy(), &format!("{kind}: {step}{since}")));
        if let Some(error) = &operation.last_error {
            fact("", paint(bad(), error));
        }
    }
    if let (Some(epoch), Some(revision)) = (status.epoch, &status.revision) {
        let runs = revision.current.as_deref().unwrap_or("none");
        let committed = status.point_of_no_return.as_ref().filter(|point| point.epoch == epoch).map_or_else(
            || "has not committed yet".to_owned(),
            |point| format!("first commit{}", ago(point.at.as_deref(), now)),
        );
        fact("runs", text(format!("epoch {epoch}, revision {runs}, {committed}")));
        if let Some(target) = revision.target.as_deref().filter(|target| *target != runs) {
            fact("wanted", text(format!("revision {target}")));
        }
    }
    for guarantee in &status.guarantees {
        let condition = guarantee.condition.as_deref().map_or_else(String::new, |text| format!(": {text}"));
        fact("guarantee", text(format!("{} {}{condition}", guarantee.sink, guarantee.guarantee)));
    }
    if let Some(broker) = &status.broker {
        let id = broker.cluster_id.as_deref().unwrap_or("?");
        let number = broker.brokers.unwrap_or(0);
        fact("Kafka", text(format!("cluster {id}, {number} broker{}", if number == 1 { "" } else { "s" })));
    }
}

fn conditions_of(out: &mut String, status: &StreamJobStatus, now: Timestamp) {
    let mut rows = Vec::new();
    for condition_type in ALWAYS.into_iter().chain(OTHERS) {
        let Some(condition) = conditions::get(&status.conditions, condition_type) else { continue };
        let wanted = if GOOD.contains(&condition_type) { "True" } else { "False" };
        let is_well = condition.status == wanted;
        if is_well && !ALWAYS.contains(&condition_type) {
            continue;
        }
        let style = match (is_well, condition_type) {
            (true, _) => good(),
            (false, ConditionType::Reconciling) => busy(),
            (false, _) if condition.status == "Unknown" => busy(),
            (false, _) => bad(),
        };
        let mut lines = condition.message.lines();
        rows.push([
            (Style::new(), condition_type.to_string()),
            (style, condition.status.clone()),
            (Style::new(), condition.reason.clone()),
            (Style::new(), short(now, condition.last_transition_time.0)),
            (Style::new(), lines.next().unwrap_or_default().to_owned()),
        ]);
        rows.extend(lines.map(|line| {
            let empty = || (Style::new(), String::new());
            [empty(), empty(), empty(), empty(), (Style::new(), line.to_owned())]
        }));
    }
    table(out, ["CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"], &rows);
}

fn workers(out: &mut String, pods: &[Pod], now: Timestamp) {
    let mut workers = pods::workers(pods);
    workers.sort_by_key(|worker| worker.ordinal);
    let rows: Vec<_> = workers
        .iter()
        .map(|worker| {
            let (style, state) = state(worker);
            let age = worker.ready_since.map_or_else(String::new, |since| short(now, since));
            [
                (Style::new(), worker.name.clone()),
                (Style::new(), worker.epoch.map_or_else(String::new, |epoch| epoch.to_string())),
                (style, state),
                (Style::new(), age),
                (Style::new(), worker.node.clone().unwrap_or_default()),
            ]
        })
        .collect();
    table(out, ["WORKER", "EPOCH", "STATE", "READY FOR", "NODE"], &rows);
}

fn state(worker: &PodFacts) -> (Style, String) {
    if worker.terminating {
        return (busy(), "commits and stops".to_owned());
    }
    if worker.works() {
        return (good(), "processes".to_owned());
    }
    match (&worker.trouble, &worker.last_exit) {
        (Some(trouble), _) => (bad(), format!("{}: {}", trouble.reason, trouble.message)),
        (None, Some(exit)) => (bad(), exit.describe()),
        (None, None) => (busy(), "starts".to_owned()),
    }
}

fn transactions(out: &mut String, status: &StreamJobStatus, now: Timestamp) {
    let Some(transactions) = &status.transactions else { return };
    let prefix = transactions.prefix.as_deref().unwrap_or_default();
    let used = transactions.ids_in_use.unwrap_or(0);
    write_to(out, format_args!("\nTRANSACTIONS  prefix {}, ids of {used} workers in use\n", harmless(prefix)));
    let Some(fence) = &transactions.last_fence else { return };
    let (ids, open) = (fence.ids.unwrap_or(0), fence.open.unwrap_or(0));
    let when = ago(fence.at.as_deref(), now);
    let operation = harmless(fence.operation.as_deref().unwrap_or_default());
    write_to(out, format_args!("  last fence  {operation}{when}: {ids} ids, {open} open transactions aborted\n"));
    if let Some(error) = &fence.error {
        write_to(out, format_args!("              {}\n", paint(bad(), &format!("given up: {error}"))));
    }
}

/// Columns as wide as what is in them; the last one as it comes.
fn table<const N: usize>(out: &mut String, head: [&str; N], rows: &[[(Style, String); N]]) {
    if rows.is_empty() {
        return;
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|(_, text)| text.chars().count());
        cells.chain(head.get(column).map(|name| name.len())).max().unwrap_or(0)
    };
    out.push('\n');
    let head = head.map(|name| (Style::new(), name.to_owned()));
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (column, (style, text)) in row.iter().enumerate() {
            let padding = if column + 1 == N { 0 } else { width(column).saturating_sub(text.chars().count()) + 2 };
            line.push_str(&paint(*style, text));
            line.push_str(&" ".repeat(padding));
        }
        write_to(out, format_args!("{}\n", line.trim_end()));
    }
}

const fn good() -> Style {
    AnsiColor::Green.on_default()
}

const fn busy() -> Style {
    AnsiColor::Yellow.on_default()
}

const fn bad() -> Style {
    AnsiColor::Red.on_default()
}

fn paint(style: Style, text: &str) -> String {
    format!("{style}{}{style:#}", harmless(text))
}

fn parsed(at: Option<&str>) -> Option<Timestamp> {
    at?.parse().ok()
}

fn ago(at: Option<&str>, now: Timestamp) -> String {
    parsed(at).map_or_else(String::new, |at| format!(" {} ago", short(now, at)))
}

fn since(at: Option<&str>, now: Timestamp) -> String {
    parsed(at).map_or_else(String::new, |at| format!(", for {}", short(now, at)))
}

/// As kubectl shows ages.
fn short(now: Timestamp, at: Timestamp) -> String {
    let seconds = now.duration_since(at).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A string takes everything.
fn write_to(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).ok();
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    fn cluster(moment: &str) -> Value {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/controller/tests/kept");
        let path = folder.join(env!("CARGO_PKG_VERSION")).join(format!("{moment}.json"));
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    fn of_kind(moment: &str, kind: &str) -> Vec<Value> {
        let cluster = cluster(moment);
        let objects = cluster["objects"].as_array().unwrap();
        objects.iter().filter(|object| object["kind"] == kind).cloned().collect()
    }

    /// The page of a cluster that was put away in the middle of something, 30 s later.
    fn kept(moment: &str) -> String {
        let job: StreamJob = serde_json::from_value(of_kind(moment, "StreamJob").remove(0)).unwrap();
        let pods: Vec<Pod> =
            of_kind(moment, "Pod").into_iter().map(|pod| serde_json::from_value(pod).unwrap()).collect();
        let at: Timestamp = cluster(moment)["at"].as_str().unwrap().parse().unwrap();
        page(&job, &pods, at + std::time::Duration::from_secs(30))
    }

    #[rstest]
    #[case("Restart-Draining")]
    #[case("Rollback-Starting")]
    #[case("Suspend-Fencing")]
    fn the_page_says_what_goes_on(#[case] moment: &str) {
        let page = anstream::adapter::strip_str(&kept(moment)).to_string();
        insta::assert_snapshot!(moment, page);
    }

    #[test]
    fn what_is_wrong_is_red_and_a_terminal_is_not_steered() {
        let told = kept("Rollback-Starting");
        let red = |text: &str| format!("{}{text}{:#}", bad(), bad());
        assert!(told.contains(&red("Stalled")) && told.contains(&red("True")), "{told:?}");
        assert_eq!(paint(Style::new(), "a\u{1b}[2Jb"), "a\u{fffd}[2Jb");
        // Wherever it stands: all that is not a style is plain.
        let evil = "\u{1b}[1A\u{9b}\r\u{202e}";
        let mut job: Value = serde_json::from_str(&objects("Rollback-Starting")).unwrap();
        spoil(&mut job, evil);
        let job: StreamJob = serde_json::from_value(job).unwrap();
        let told = page(&job, &[], Timestamp::UNIX_EPOCH);
        assert!(told.contains('\u{fffd}') && !told.contains("\u{1b}[1A"), "{told:?}");
        assert!(!told.contains(['\u{9b}', '\r', '\u{202e}']), "{told:?}");
    }

    fn objects(moment: &str) -> String {
        of_kind(moment, "StreamJob").remove(0).to_string()
    }

    /// Puts this into every text of a status that anybody could have written.
    fn spoil(job: &mut Value, evil: &str) {
        fn walk(value: &mut Value, evil: &str) {
            match value {
                Value::Object(fields) => fields
                    .iter_mut()
                    .filter(|(name, _)| !matches!(name.as_str(), "type" | "lastTransitionTime" | "phase"))
                    .for_each(|(_, value)| walk(value, evil)),
                Value::Array(items) => items.iter_mut().for_each(|item| walk(item, evil)),
                Value::String(text) => text.push_str(evil),
                _ => {}
            }
        }
        job["status"]["guarantees"] = serde_json::json!([{ "sink": "s", "guarantee": "g", "condition": "c" }]);
        walk(&mut job["status"], evil);
        walk(&mut job["metadata"]["name"], evil);
    }

    #[rstest]
    #[case(0, "0s")]
    #[case(119, "119s")]
    #[case(120, "2m")]
    #[case(7200, "2h")]
    #[case(172_800, "2d")]
    #[case(-5, "0s")]
    fn ages_are_short(#[case] seconds: i64, #[case] wanted: &str) {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        assert_eq!(short(now, Timestamp::from_second(1_800_000_000 - seconds).unwrap()), wanted);
    }
}
