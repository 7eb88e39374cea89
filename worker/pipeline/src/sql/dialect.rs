use datafusion_sql::sqlparser::dialect::Dialect;

/// The SQL of pipelines: standard SQL without the special words of any database. In other dialects `user`, a likely column
/// of a stream, is a function.
#[derive(Debug)]
pub(super) struct PipelineDialect;

impl Dialect for PipelineDialect {
    fn is_identifier_start(&self, ch: char) -> bool {
        ch.is_alphabetic() || ch == '_'
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        ch.is_alphanumeric() || ch == '_' || ch == '$'
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '"' || ch == '`'
    }

    fn supports_lambda_functions(&self) -> bool {
        true
    }

    fn supports_trailing_commas(&self) -> bool {
        false
    }

    fn supports_projection_trailing_commas(&self) -> bool {
        false
    }

    fn supports_dictionary_syntax(&self) -> bool {
        true
    }

    fn supports_in_empty_list(&self) -> bool {
        false
    }

    fn supports_select_wildcard_except(&self) -> bool {
        true
    }

    fn supports_select_wildcard_replace(&self) -> bool {
        true
    }

    fn supports_bitwise_shift_operators(&self) -> bool {
        true
    }

    fn allow_extract_custom(&self) -> bool {
        true
    }

    fn allow_extract_single_quotes(&self) -> bool {
        true
    }

    fn supports_nested_comments(&self) -> bool {
        true
    }

    fn supports_string_escape_constant(&self) -> bool {
        true
    }

    fn supports_select_wildcard_exclude(&self) -> bool {
        true
    }

    fn supports_array_typedef_with_brackets(&self) -> bool {
        true
    }

    fn supports_parens_around_table_factor(&self) -> bool {
        true
    }
}
