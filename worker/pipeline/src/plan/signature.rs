use std::fmt::Write;

use fencepost_crds::v1alpha1::PipelineSpec;
use sha2::{Digest, Sha256};

use crate::sql::Statement;
use crate::types::ColumnType;

/// Version of the text that is hashed. A change of the text without a change here would restart running jobs for nothing.
const VERSION: u32 = 1;

/// Hash of what determines which rows come out for which records: tables, and the statements as the parser understands them
/// (spaces, comments and the case of keywords do not count). Where a source starts, what becomes of bad records, and how topics
/// are made are left out.
pub(super) fn signature(spec: &PipelineSpec, statements: &[Statement]) -> String {
    hex::encode(Sha256::digest(text(spec, statements)))
}

fn text(spec: &PipelineSpec, statements: &[Statement]) -> String {
    let mut text = format!("fencepost pipeline {VERSION}\n");
    // Writing to a String does not fail.
    let mut line = |what: std::fmt::Arguments<'_>| {
        let _: std::fmt::Result = writeln!(text, "{what}");
    };
    for source in &spec.sources {
        line(format_args!("source {:?} {:?} json", source.name, source.kafka.topic));
        for column in &source.columns {
            let data_type = ColumnType::parse(&column.data_type).map(|t| t.to_string()).unwrap_or_default();
            let required = if column.required { "required" } else { "optional" };
            line(format_args!("column {:?} {data_type} {required} {:?}", column.name, column.metadata));
        }
    }
    for statement in statements {
        line(format_args!("{:?} {:?} {:?} {}", statement.kind, statement.target, statement.columns, statement.query));
    }
    for sink in &spec.sinks {
        let kafka = &sink.kafka;
        line(format_args!("sink {:?} {:?} json", sink.name, kafka.topic));
        line(format_args!("key {:?} {}", kafka.key_columns, kafka.key_format));
        line(format_args!("timestamp {:?}", kafka.timestamp_column));
        for header in &kafka.headers {
            line(format_args!("header {:?} {:?}", header.name, header.column));
        }
    }
    text
}
