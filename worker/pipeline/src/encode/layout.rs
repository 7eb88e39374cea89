use std::sync::Arc;

use arrow::datatypes::DataType;
use fencepost_crds::v1alpha1::{KeyFormat, SinkSpec, Violation};

use super::json::{JsonColumn, object_prefix};
use super::{KeyLayout, ObjectField, twice};
use crate::types::sql_name;
use crate::violation::{Reason, violation};

/// Where the columns of a sink's rows go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SinkLayout {
    pub(super) sink: usize,
    pub(super) name: String,
    pub(crate) topic: Arc<str>,
    pub(super) value: Vec<ObjectField>,
    pub(super) key: KeyLayout,
    pub(super) timestamp: Option<usize>,
    pub(super) headers: Vec<(String, usize)>,
    /// Columns of the value that are not in the key. All NULL, with a key: a tombstone.
    pub(super) payload: Vec<usize>,
}

impl SinkLayout {
    /// The layout of the sink with this index, for rows of these columns.
    pub(crate) fn new(sink: usize, spec: &SinkSpec, columns: &[(String, DataType)]) -> Result<Self, Vec<Violation>> {
        let mut planner = Planner { path: format!("sinks[{sink}].kafka"), spec, columns, violations: Vec::new() };
        let timestamp = planner.timestamp();
        let headers = planner.headers();
        let keys = planner.keys();
        let out = |i: usize| timestamp == Some(i) || headers.iter().any(|(_, column)| *column == i);
        let in_value: Vec<usize> = (0..columns.len()).filter(|i| !out(*i)).collect();
        planner.check_value(&in_value);
        if !planner.violations.is_empty() {
            return Err(planner.violations);
        }
        let field = |i: &usize| {
            let (name, _) = columns.get(*i)?;
            Some(ObjectField { column: *i, prefix: object_prefix(name) })
        };
        let key = match (spec.kafka.key_format, keys.as_slice()) {
            (_, []) => KeyLayout::None,
            (KeyFormat::Raw, [column, ..]) => KeyLayout::Raw(*column),
            (KeyFormat::Json, columns) => KeyLayout::Json(columns.iter().filter_map(field).collect()),
        };
        Ok(Self {
            sink,
            name: spec.name.clone(),
            topic: Arc::from(spec.kafka.topic.as_str()),
            value: in_value.iter().filter_map(field).collect(),
            key,
            timestamp,
            payload: in_value.into_iter().filter(|i| !keys.contains(i)).collect(),
            headers,
        })
    }
}

struct Planner<'a> {
    path: String,
    spec: &'a SinkSpec,
    columns: &'a [(String, DataType)],
    violations: Vec<Violation>,
}

impl Planner<'_> {
    fn refuse(&mut self, reason: Reason, field: &str, message: String) {
        self.violations.push(violation(reason, &format!("{}.{field}", self.path), message));
    }

    /// The column of a name, exactly as it is written in the output.
    fn column(&mut self, field: &str, name: &str) -> Option<(usize, DataType)> {
        let found = self.columns.iter().position(|(n, _)| n == name);
        if let Some((i, (_, data_type))) = found.and_then(|i| Some((i, self.columns.get(i)?))) {
            return Some((i, data_type.clone()));
        }
        let names: Vec<&str> = self.columns.iter().map(|(n, _)| n.as_str()).collect();
        let message = format!("the sink has no column `{name}`; its INSERT INTO gives it: {}", names.join(", "));
        self.refuse(Reason::UnknownColumn, field, message);
        None
    }

    fn timestamp(&mut self) -> Option<usize> {
        let name = self.spec.kafka.timestamp_column.clone()?;
        let (column, data_type) = self.column("timestampColumn", &name)?;
        let type_name = sql_name(&data_type);
        if !matches!(data_type, DataType::Timestamp(..)) {
            let message = format!("`{name}` is {type_name}, and the message timestamp needs a TIMESTAMP; CAST it");
            self.refuse(Reason::BadSinkColumn, "timestampColumn", message);
        }
        Some(column)
    }

    fn headers(&mut self) -> Vec<(String, usize)> {
        let mut headers = Vec::new();
        for (i, header) in self.spec.kafka.headers.iter().enumerate() {
            let field = format!("headers[{i}].column");
            let Some((column, data_type)) = self.column(&field, &header.column) else { continue };
            let type_name = sql_name(&data_type);
            if !is_text(&data_type) && !is_bytes(&data_type) {
                let message = format!("`{}` is {type_name}, and a header is STRING or BYTES; CAST it", header.column);
                self.refuse(Reason::BadSinkColumn, &field, message);
            }
            headers.push((header.name.clone(), column));
        }
        headers
    }

    fn keys(&mut self) -> Vec<usize> {
        let spec = self.spec;
        for name in twice(spec.kafka.key_columns.iter()) {
            self.refuse(Reason::DuplicateName, "keyColumns", format!("`{name}` is there twice"));
        }
        if spec.kafka.key_columns.len() > 1 && spec.kafka.key_format == KeyFormat::Raw {
            let message = "a Raw key is one column; use keyFormat: Json for several".to_owned();
            self.refuse(Reason::BadSinkColumn, "keyFormat", message);
        }
        let mut keys = Vec::new();
        for (i, name) in spec.kafka.key_columns.iter().enumerate() {
            let field = format!("keyColumns[{i}]");
            let Some((column, data_type)) = self.column(&field, name) else { continue };
            let type_name = sql_name(&data_type);
            if spec.kafka.key_format == KeyFormat::Raw && !is_key(&data_type) {
                let message = format!(
                    "`{name}` is {type_name}, which has no one text to be a Raw key; CAST it AS STRING, or use keyFormat: Json"
                );
                self.refuse(Reason::BadSinkColumn, &field, message);
            } else if let Some(part) = JsonColumn::unsupported(&data_type) {
                let message = format!("`{name}` is {type_name}, and {part} cannot be written as JSON; CAST it");
                self.refuse(Reason::BadSinkColumn, &field, message);
            }
            keys.push(column);
        }
        keys
    }

    fn check_value(&mut self, in_value: &[usize]) {
        for i in in_value {
            let Some((name, data_type)) = self.columns.get(*i) else { continue };
            let type_name = sql_name(data_type);
            if let Some(part) = JsonColumn::unsupported(data_type) {
                let message = format!(
                    "the column `{name}` of sink `{}` is {type_name}, and {part} cannot be written as JSON; CAST it AS STRING",
                    self.spec.name
                );
                self.violations.push(violation(Reason::BadSinkColumn, "sql", message));
            }
        }
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_))
}

/// Floats are left out: one number has several texts.
fn is_key(data_type: &DataType) -> bool {
    is_text(data_type)
        || is_bytes(data_type)
        || data_type.is_integer()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Date32
                | DataType::Timestamp(..)
                | DataType::Decimal128(..)
                | DataType::Decimal256(..)
        )
}
