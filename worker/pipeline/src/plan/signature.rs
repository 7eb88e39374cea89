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
    let mut line = |what: std::fmt::Arguments<'_>| {
        text.push_str(&what.to_string());
        text.push('\n');
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use crate::plan;

    const JOB: &str = r#"{
        "sources": [{"name": "s", "kafka": {"topic": "in", "format": {"json": {}}}, "columns": [{"name": "a", "type": "BIGINT"}]}],
        "sql": "INSERT INTO t SELECT a FROM s WHERE a > 1",
        "sinks": [{"name": "t", "kafka": {"topic": "out", "format": {"json": {}}, "keyColumns": ["a"]}}]
    }"#;

    fn signature(job: &str) -> String {
        let spec = serde_json::from_str(job).unwrap();
        plan(&spec).unwrap().signature().to_owned()
    }

    #[rstest]
    #[case::spaces_comments_and_case("SELECT a FROM s WHERE", "select  a -- x\\n from S where")]
    #[case::the_type_written_otherwise("BIGINT", "bigint")]
    #[case::where_to_start(r#""topic": "in","#, r#""topic": "in", "start": "Latest","#)]
    #[case::bad_records(r#""name": "s","#, r#""name": "s", "onBadRecord": "Skip","#)]
    #[case::how_the_topic_is_made(r#""topic": "out","#, r#""topic": "out", "create": {"partitions": 4},"#)]
    fn what_does_not_change_the_rows_does_not_change_it(#[case] old: &str, #[case] new: &str) {
        assert!(JOB.contains(old));
        assert_eq!(signature(&JOB.replace(old, new)), signature(JOB));
    }

    #[rstest]
    #[case::a_condition("a > 1", "a > 2")]
    #[case::a_topic(r#""topic": "in""#, r#""topic": "in2""#)]
    #[case::a_type("BIGINT", "INT")]
    #[case::the_key(r#", "keyColumns": ["a"]"#, "")]
    #[case::how_the_key_is_written(r#""keyColumns": ["a"]"#, r#""keyColumns": ["a"], "keyFormat": "Json""#)]
    fn what_changes_the_rows_changes_it(#[case] old: &str, #[case] new: &str) {
        assert!(JOB.contains(old));
        assert_ne!(signature(&JOB.replace(old, new)), signature(JOB));
    }

    #[test]
    fn it_stays_the_same_from_version_to_version() {
        assert_eq!(signature(JOB), "a1f24ef3e0e19e41eda66ee77e822e874ff875e263436d7ebc6054c534010e22");
    }
}
