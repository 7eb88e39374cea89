//! Checks a pipeline and turns it into something that can be instantiated, or says everything that is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use fencepost_crds::v1alpha1::{
    OnBadRecord, PipelineSpec, SinkSpec, SourceSpec, StartPosition, TopicCreateSpec, Violation,
};

use crate::clock::Clock;
use crate::compile::{self, Graph};
use crate::decode::{ColumnSource, DecodedColumn, Decoder, MetadataKind};
use crate::encode::SinkLayout;
use crate::evaluate::Evaluator;
use crate::pipeline::{Pipeline, ProcessError, SourcePipeline, panic_message};
use crate::sql::catalog::{Catalog, Table, TableKind};
use crate::sql::functions::Functions;
use crate::sql::guard;
use crate::sql::names::Names;
use crate::sql::planner::{self, PlannedStatement};
use crate::sql::{self, Statement, StatementKind};
use crate::stack::on_large_stack;
use crate::types::{ColumnType, sql_name};
use crate::violation::{Reason, sql_violation, violation};

mod report;
mod signature;

/// Rows that one record may become.
const MAX_ROWS: usize = 1000;

pub use report::plan_report;

/// A source of a planned pipeline.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannedSource {
    /// Name in SQL.
    pub name: String,
    /// Topic to read.
    pub topic: Arc<str>,
    /// Where a partition without a committed position begins.
    pub start: StartPosition,
    /// [`RawRecord::headers`](crate::RawRecord::headers) must be filled: a column or the dead letters need them.
    pub needs_headers: bool,
    /// What happens to bad records.
    pub on_bad_record: OnBadRecord,
    /// Topic for bad records; present with [`OnBadRecord::DeadLetter`].
    pub dead_letter_topic: Option<Arc<str>>,
    columns: Vec<DecodedColumn>,
}

/// A sink of a planned pipeline.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannedSink {
    /// Name in SQL.
    pub name: String,
    /// Topic to write.
    pub topic: Arc<str>,
    /// How to make the topic when it does not exist.
    pub create: Option<TopicCreateSpec>,
    /// Names and types of the columns that the SQL gives it, in their order.
    pub columns: Vec<(String, DataType)>,
    layout: SinkLayout,
}

/// A pipeline that can run.
#[derive(Clone, Debug)]
#[must_use]
pub struct Plan {
    sources: Vec<PlannedSource>,
    sinks: Vec<PlannedSink>,
    graph: Graph,
    /// The operators of the graph, for people.
    operators: Vec<String>,
    /// For each source, the declared columns that are decoded.
    decoded: Vec<Vec<usize>>,
    signature: String,
}

/// Plans the pipeline of a job.
///
/// # Errors
///
/// Everything that keeps it from running, each with the field of the spec, and for SQL with line and column. Problems that only
/// follow from others are left out.
pub fn plan(spec: &PipelineSpec) -> Result<Plan, Vec<Violation>> {
    let refuse = |message| Err(vec![sql_violation(Reason::UnsupportedSql, None, message)]);
    match on_large_stack(|| plan_inner(spec)) {
        Ok(Ok(planned)) => planned,
        // Constants are evaluated while planning, by functions that are not ours. An answer is better than a dead planner.
        Ok(Err(panic)) => refuse(format!("a function panicked on constants: {}", panic_message(&*panic))),
        Err(error) => refuse(format!("cannot start a thread to plan: {error}")),
    }
}

fn plan_inner(spec: &PipelineSpec) -> Result<Plan, Vec<Violation>> {
    guard::start_planning();
    let (columns, mut violations) = declared_columns(&spec.sources);
    violations.extend(check_table_names(spec));
    let mut statements = match sql::read(&spec.sql) {
        Ok(statements) => statements,
        Err(more) => {
            violations.extend(more);
            return Err(violations);
        }
    };
    // Without types the SQL cannot be checked any further.
    let Some(columns) = columns else { return Err(violations) };
    resolve_names(spec, &mut statements);
    violations.extend(check_targets(spec, &statements));
    let mut catalog = catalog(spec, &columns);
    let (planned, more) = planner::plan(&mut catalog, &statements);
    violations.extend(more);
    let (layouts, more) = sink_layouts(&spec.sinks, &planned);
    violations.extend(more);
    if !violations.is_empty() {
        return Err(violations);
    }
    let graph = compile::compile(&planned)?;
    violations.extend(check_sources_used(spec, &graph));
    violations.extend(check_rows(&graph));
    if !violations.is_empty() {
        return Err(violations);
    }
    let plan = build(spec, columns, layouts, graph, &statements);
    // What cannot be instantiated is found now, not in a worker.
    match plan.build() {
        Ok(_) => Ok(plan),
        Err(error) => Err(vec![sql_violation(Reason::UnsupportedSql, None, describe(&error))]),
    }
}

fn describe(error: &ProcessError) -> String {
    match error {
        ProcessError::Instantiate(source) => sql::describe(source),
        other => other.to_string(),
    }
}

impl Plan {
    /// The sources. Their places are their [`SourceId`](crate::SourceId)s.
    #[must_use]
    pub fn sources(&self) -> &[PlannedSource] {
        &self.sources
    }

    /// The sinks. Their places are their [`SinkId`](crate::SinkId)s.
    #[must_use]
    pub fn sinks(&self) -> &[PlannedSink] {
        &self.sinks
    }

    /// Hex SHA-256 of what makes two pipelines interchangeable: workers of equal signatures can take over from each other.
    #[must_use]
    pub fn signature(&self) -> &str {
        &self.signature
    }

    /// The pipeline of one processing thread.
    ///
    /// # Errors
    ///
    /// [`plan`] has tried it, so an error is a bug, or there is no memory for another thread.
    pub fn instantiate(&self) -> Result<Pipeline, ProcessError> {
        let built = on_large_stack(|| self.build()).map_err(ProcessError::Thread)?;
        built.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn build(&self) -> Result<Pipeline, ProcessError> {
        let clock = Clock::default();
        let sink = |name: &str| self.sinks.iter().position(|s| s.name == name);
        let evaluator = Evaluator::new(&self.graph, &self.decoded, sink, &clock).map_err(ProcessError::Instantiate)?;
        let sources = self.sources.iter().map(|source| SourcePipeline {
            topic: Arc::clone(&source.topic),
            decoder: Decoder::new(Arc::clone(&source.topic), source.columns.clone()),
            on_bad_record: source.on_bad_record,
            dead_letter_topic: source.dead_letter_topic.clone(),
        });
        let layouts = self.sinks.iter().map(|s| s.layout.clone()).collect();
        Ok(Pipeline::new(sources.collect(), evaluator, layouts, clock))
    }
}

/// The columns of all sources with their types. `None` when a type is missing.
fn declared_columns(sources: &[SourceSpec]) -> (Option<Vec<Vec<DecodedColumn>>>, Vec<Violation>) {
    let mut violations = Vec::new();
    let mut complete = true;
    let mut all = Vec::new();
    for (s, source) in sources.iter().enumerate() {
        let mut columns = Vec::new();
        let mut names = BTreeSet::new();
        for (c, column) in source.columns.iter().enumerate() {
            let field = format!("sources[{s}].columns[{c}]");
            if !names.insert(&column.name) {
                let message = format!("the source `{}` has two columns `{}`", source.name, column.name);
                violations.push(violation(Reason::DuplicateName, &format!("{field}.name"), message));
                continue;
            }
            let column_type = match ColumnType::parse(&column.data_type) {
                Ok(column_type) => column_type,
                Err(error) => {
                    violations.push(violation(Reason::BadColumnType, &format!("{field}.type"), error.to_string()));
                    complete = false;
                    continue;
                }
            };
            let from = column.metadata.as_ref().map_or(ColumnSource::Value, |m| ColumnSource::Metadata(m.into()));
            if let ColumnSource::Metadata(kind) = &from
                && !kind.allows(&column_type)
            {
                let message = format!("{column_type} does not fit this metadata, which is {}", kind.types());
                violations.push(violation(Reason::BadColumnType, &format!("{field}.type"), message));
            }
            columns.push(DecodedColumn { name: column.name.clone(), column_type, required: column.required, from });
        }
        all.push(columns);
    }
    (complete.then_some(all), violations)
}

/// The API server checks this as well; a file that `plan` reads has not been there.
fn check_table_names(spec: &PipelineSpec) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut names = BTreeSet::new();
    let sources = spec.sources.iter().enumerate().map(|(i, s)| (format!("sources[{i}].name"), &s.name));
    let sinks = spec.sinks.iter().enumerate().map(|(i, s)| (format!("sinks[{i}].name"), &s.name));
    for (field, name) in sources.chain(sinks) {
        if !names.insert(name) {
            let message = format!("there is a source or a sink `{name}` already");
            violations.push(violation(Reason::DuplicateName, &field, message));
        }
    }
    let mut topics = BTreeMap::new();
    for (i, source) in spec.sources.iter().enumerate() {
        if let Some(other) = topics.insert(&source.kafka.topic, &source.name) {
            let message = format!(
                "the source `{other}` reads the topic `{}` already; a topic has one position, so declare all columns there",
                source.kafka.topic
            );
            violations.push(violation(Reason::DuplicateTopic, &format!("sources[{i}].kafka.topic"), message));
        }
        if (source.on_bad_record == OnBadRecord::DeadLetter) != source.dead_letter_topic.is_some() {
            let message = "deadLetterTopic is required with onBadRecord: DeadLetter, and only then".to_owned();
            violations.push(violation(Reason::BadDeadLetterTopic, &format!("sources[{i}].deadLetterTopic"), message));
        }
    }
    violations
}

fn resolve_names(spec: &PipelineSpec, statements: &mut [Statement]) {
    let mut names = Names::default();
    for source in &spec.sources {
        names.declare(&source.name);
        for column in &source.columns {
            names.declare(&column.name);
            declare_fields(&mut names, &ColumnType::parse(&column.data_type).ok());
        }
    }
    for sink in &spec.sinks {
        names.declare(&sink.name);
    }
    for statement in &*statements {
        names.declare_statement(statement);
    }
    for statement in statements {
        names.resolve(statement);
    }
}

/// The fields inside a type, at any depth.
fn declare_fields(names: &mut Names, column_type: &Option<ColumnType>) {
    match column_type {
        Some(ColumnType::Array(element)) => declare_fields(names, &Some((**element).clone())),
        Some(ColumnType::Struct(fields)) => {
            for field in fields {
                names.declare(&field.name);
                declare_fields(names, &Some(field.column_type.clone()));
            }
        }
        _ => {}
    }
}

/// Every INSERT has a sink, and every sink an INSERT.
fn check_targets(spec: &PipelineSpec, statements: &[Statement]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let inserts = || statements.iter().filter(|s| s.kind == StatementKind::Insert);
    for insert in inserts().filter(|i| spec.sinks.iter().all(|s| s.name != i.target)) {
        let names: Vec<&str> = spec.sinks.iter().map(|s| s.name.as_str()).collect();
        let message = format!("there is no sink `{}`; the sinks are: {}", insert.target, names.join(", "));
        violations.push(sql_violation(Reason::UnknownSink, insert.target_position, message));
    }
    for (i, sink) in spec.sinks.iter().enumerate() {
        if inserts().all(|s| s.target != sink.name) {
            let message = format!("no INSERT INTO writes the sink `{}`: write one, or remove the sink", sink.name);
            violations.push(violation(Reason::UnusedSink, &format!("sinks[{i}].name"), message));
        }
    }
    let views = statements.iter().filter(|s| s.kind == StatementKind::View);
    for view in views.filter(|v| spec.sinks.iter().any(|s| s.name == v.target)) {
        let message = format!("there is a sink `{}` already; give the view another name", view.target);
        violations.push(sql_violation(Reason::DuplicateName, view.target_position, message));
    }
    violations
}

fn catalog(spec: &PipelineSpec, columns: &[Vec<DecodedColumn>]) -> Catalog {
    let mut catalog = Catalog::new(Functions::new());
    for (i, (source, columns)) in spec.sources.iter().zip(columns).enumerate() {
        let fields: Vec<_> = columns.iter().map(DecodedColumn::field).collect();
        let table = Table { kind: TableKind::Source(i), schema: Arc::new(Schema::new(fields)) };
        catalog.insert(&source.name, table);
    }
    catalog
}

/// The columns and the layout of each sink. `None` for a sink without an INSERT that plans.
type Layouts = Vec<Option<(Vec<(String, DataType)>, SinkLayout)>>;

fn sink_layouts(sinks: &[SinkSpec], planned: &[PlannedStatement]) -> (Layouts, Vec<Violation>) {
    let mut layouts = Vec::new();
    let mut violations = Vec::new();
    for (i, sink) in sinks.iter().enumerate() {
        let mut inserts = planned.iter().filter(|p| p.kind == StatementKind::Insert && p.target == sink.name);
        let Some(first) = inserts.next() else {
            layouts.push(None);
            continue;
        };
        let columns = first.columns();
        for other in inserts {
            violations.extend(compare_columns(&sink.name, &columns, other));
        }
        match SinkLayout::new(i, sink, &columns) {
            Ok(layout) => layouts.push(Some((columns, layout))),
            Err(more) => {
                violations.extend(more);
                layouts.push(None);
            }
        }
    }
    (layouts, violations)
}

/// One topic has one kind of record.
fn compare_columns(sink: &str, first: &[(String, DataType)], insert: &PlannedStatement) -> Option<Violation> {
    let other = insert.columns();
    if first == other {
        return None;
    }
    let text = |columns: &[(String, DataType)]| {
        columns.iter().map(|(name, data_type)| format!("{name} {}", sql_name(data_type))).collect::<Vec<_>>().join(", ")
    };
    let message = format!(
        "the INSERT INTO statements of the sink `{sink}` give it different columns: ({}) and ({}); names, types and order must be \
         the same",
        text(first),
        text(&other)
    );
    Some(sql_violation(Reason::SinkColumnsDiffer, insert.position, message))
}

/// A view that unites another view with itself doubles every record, and thirty of them make a billion rows of it.
fn check_rows(graph: &Graph) -> Option<Violation> {
    let rows = graph.rows_of_a_record();
    let message = || format!("the UNION ALLs make up to {rows} rows of one record, at most {MAX_ROWS} are possible");
    (rows > MAX_ROWS).then(|| sql_violation(Reason::UnsupportedSql, None, message()))
}

fn check_sources_used(spec: &PipelineSpec, graph: &Graph) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (i, source) in spec.sources.iter().enumerate() {
        if !graph.used_columns.contains_key(&i) {
            let message = format!("no INSERT INTO reads the source `{}`: use it, or remove it", source.name);
            violations.push(violation(Reason::UnusedSource, &format!("sources[{i}].name"), message));
        }
    }
    violations
}

fn build(
    spec: &PipelineSpec,
    columns: Vec<Vec<DecodedColumn>>,
    layouts: Layouts,
    graph: Graph,
    statements: &[Statement],
) -> Plan {
    let mut decoded = Vec::new();
    let mut sources = Vec::new();
    for (i, (source, columns)) in spec.sources.iter().zip(columns).enumerate() {
        let used = graph.used_columns.get(&i);
        // A required column is checked, whether the SQL uses it or not.
        let wanted = |c: usize, column: &DecodedColumn| column.required || used.is_some_and(|u| u.contains(&c));
        let (places, columns): (Vec<_>, Vec<_>) =
            columns.into_iter().enumerate().filter(|(c, col)| wanted(*c, col)).unzip();
        decoded.push(places);
        let reads_headers = columns.iter().any(|c| matches!(c.from, ColumnSource::Metadata(MetadataKind::Header(_))));
        sources.push(PlannedSource {
            name: source.name.clone(),
            topic: Arc::from(source.kafka.topic.as_str()),
            start: source.kafka.start,
            needs_headers: reads_headers || source.on_bad_record == OnBadRecord::DeadLetter,
            on_bad_record: source.on_bad_record,
            dead_letter_topic: source.dead_letter_topic.as_deref().map(Arc::from),
            columns,
        });
    }
    let sinks = spec.sinks.iter().zip(layouts).filter_map(|(sink, layout)| {
        let (columns, layout) = layout?;
        Some(PlannedSink {
            name: sink.name.clone(),
            topic: Arc::from(sink.kafka.topic.as_str()),
            create: sink.kafka.create.clone(),
            columns,
            layout,
        })
    });
    let sinks: Vec<_> = sinks.collect();
    let operators = report::operators(&graph, &sources, &sinks);
    Plan { sinks, sources, graph, operators, decoded, signature: signature::signature(spec, statements) }
}
