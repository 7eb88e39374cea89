use std::collections::HashSet;

use super::{ColumnType, StructField};

/// Nesting that a type may have. Far above what people write, far below what overflows a stack.
const MAX_DEPTH: usize = 16;

/// Digits of a 128-bit decimal.
const MAX_PRECISION: u8 = 38;

/// A type that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("character {position}: {message}")]
pub(crate) struct TypeError {
    /// Place in the text, from 1.
    position: usize,
    message: String,
}

pub(super) fn parse(text: &str) -> Result<ColumnType, TypeError> {
    let mut parser = Parser { chars: text.chars().collect(), next: 0 };
    let column_type = parser.column_type(0)?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(column_type),
        Some(c) => Err(parser.error(format!("expected the end of the type, found `{c}`"))),
    }
}

struct Parser {
    chars: Vec<char>,
    next: usize,
}

impl Parser {
    fn column_type(&mut self, depth: usize) -> Result<ColumnType, TypeError> {
        if depth > MAX_DEPTH {
            return Err(self.error(format!("types may be nested {MAX_DEPTH} deep at most")));
        }
        self.skip_space();
        let start = self.next;
        let name = self.word();
        Ok(match name.to_ascii_uppercase().as_str() {
            "BOOLEAN" => ColumnType::Boolean,
            "INT" => ColumnType::Int,
            "BIGINT" => ColumnType::BigInt,
            "FLOAT" => ColumnType::Float,
            "DOUBLE" => ColumnType::Double,
            "DECIMAL" => self.decimal()?,
            "STRING" => ColumnType::String,
            "BYTES" => ColumnType::Bytes,
            "DATE" => ColumnType::Date,
            "TIMESTAMP_MS" => ColumnType::TimestampMs,
            "TIMESTAMP_US" => ColumnType::TimestampUs,
            "ARRAY" => {
                self.expect('<')?;
                let element = self.column_type(depth + 1)?;
                self.expect('>')?;
                ColumnType::Array(Box::new(element))
            }
            "STRUCT" => self.fields(depth)?,
            other => {
                self.next = start;
                return Err(self.error(unknown(other)));
            }
        })
    }

    fn decimal(&mut self) -> Result<ColumnType, TypeError> {
        self.expect('(')?;
        let precision = self.number(1, MAX_PRECISION, "precision")?;
        self.expect(',')?;
        let scale = self.number(0, precision, "scale")?;
        self.expect(')')?;
        Ok(ColumnType::Decimal { precision, scale })
    }

    fn fields(&mut self, depth: usize) -> Result<ColumnType, TypeError> {
        self.expect('<')?;
        let mut fields = Vec::new();
        let mut names = HashSet::new();
        loop {
            self.skip_space();
            let start = self.next;
            let name = self.field_name()?;
            if !names.insert(name.clone()) {
                self.next = start;
                return Err(self.error(format!("the field `{name}` is there twice")));
            }
            let column_type = self.column_type(depth + 1)?;
            fields.push(StructField { name, column_type });
            self.skip_space();
            if self.peek() != Some(',') {
                break;
            }
            self.next += 1;
        }
        self.expect('>')?;
        Ok(ColumnType::Struct(fields))
    }

    /// A word, or any text in double quotes (a quote inside is doubled).
    fn field_name(&mut self) -> Result<String, TypeError> {
        if self.peek() != Some('"') {
            let name = self.word();
            return if name.is_empty() { Err(self.error("expected the name of a field")) } else { Ok(name) };
        }
        self.next += 1;
        let mut name = String::new();
        loop {
            let Some(c) = self.peek() else {
                return Err(self.error("the quoted name does not end"));
            };
            self.next += 1;
            if c != '"' {
                name.push(c);
            } else if self.peek() == Some('"') {
                self.next += 1;
                name.push('"');
            } else {
                return Ok(name);
            }
        }
    }

    fn number(&mut self, min: u8, max: u8, what: &str) -> Result<u8, TypeError> {
        self.skip_space();
        let start = self.next;
        let word = self.word();
        match word.parse::<u8>() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => {
                self.next = start;
                Err(self.error(format!("the {what} must be a number from {min} to {max}, found `{word}`")))
            }
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.peek().filter(|c| c.is_alphanumeric() || *c == '_') {
            word.push(c);
            self.next += 1;
        }
        word
    }

    fn expect(&mut self, wanted: char) -> Result<(), TypeError> {
        self.skip_space();
        match self.peek() {
            Some(c) if c == wanted => {
                self.next += 1;
                Ok(())
            }
            Some(c) => Err(self.error(format!("expected `{wanted}`, found `{c}`"))),
            None => Err(self.error(format!("expected `{wanted}`, found the end"))),
        }
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.next += 1;
        }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.next).copied()
    }

    fn error(&self, message: impl Into<String>) -> TypeError {
        TypeError { position: self.next + 1, message: message.into() }
    }
}

/// Names of other systems lead to ours.
fn unknown(name: &str) -> String {
    let instead = match name {
        "INTEGER" | "INT4" | "SMALLINT" | "TINYINT" | "INT32" => "INT",
        "LONG" | "INT8" | "INT64" => "BIGINT",
        "REAL" | "FLOAT4" | "FLOAT32" => "FLOAT",
        "FLOAT8" | "FLOAT64" => "DOUBLE",
        "VARCHAR" | "CHAR" | "TEXT" | "UTF8" => "STRING",
        "BINARY" | "VARBINARY" | "BYTEA" | "BLOB" => "BYTES",
        "BOOL" => "BOOLEAN",
        "NUMERIC" => "DECIMAL(p, s)",
        "TIMESTAMP" | "TIMESTAMP_LTZ" | "DATETIME" | "TIMESTAMPTZ" => "TIMESTAMP_MS or TIMESTAMP_US",
        "LIST" => "ARRAY<type>",
        "ROW" | "MAP" => "STRUCT<name type, …>",
        "" => return "expected a type".to_owned(),
        _ => {
            return format!(
                "`{name}` is not a type: use BOOLEAN, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), STRING, BYTES, DATE, \
                 TIMESTAMP_MS, TIMESTAMP_US, ARRAY<type> or STRUCT<name type, …>"
            );
        }
    };
    format!("`{name}` is not a type: use {instead}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("BIGINT", "BIGINT")]
    #[case(" string ", "STRING")]
    #[case("decimal( 10 ,2 )", "DECIMAL(10, 2)")]
    #[case("array<array<int>>", "ARRAY<ARRAY<INT>>")]
    #[case("STRUCT<city STRING, \"zip code\" INT>", "STRUCT<\"city\" STRING, \"zip code\" INT>")]
    fn a_type_is_read_whatever_its_case_and_spaces(#[case] text: &str, #[case] canonical: &str) {
        let parsed = parse(text).unwrap();
        assert_eq!(parsed.to_string(), canonical);
        assert_eq!(parse(canonical).unwrap(), parsed);
    }

    #[rstest]
    #[case("VARCHAR", "character 1: `VARCHAR` is not a type: use STRING")]
    #[case("DECIMAL(39, 2)", "character 9: the precision must be a number from 1 to 38, found `39`")]
    #[case("DECIMAL(4, 5)", "character 12: the scale must be a number from 0 to 4, found `5`")]
    #[case("ARRAY<INT", "character 10: expected `>`, found the end")]
    #[case("STRUCT<a INT, a INT>", "character 15: the field `a` is there twice")]
    #[case("INT INT", "character 5: expected the end of the type, found `I`")]
    #[case("STRUCT<>", "character 8: expected the name of a field")]
    #[case("", "character 1: expected a type")]
    fn a_type_that_cannot_be_read_says_where_and_why(#[case] text: &str, #[case] message: &str) {
        assert_eq!(parse(text).unwrap_err().to_string(), message);
    }

    #[test]
    fn a_type_nested_too_deep_is_refused() {
        let text = format!("{}INT{}", "ARRAY<".repeat(2000), ">".repeat(2000));
        assert!(parse(&text).unwrap_err().to_string().contains("16 deep"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,80}|((ARRAY<|STRUCT<|INT|STRING|a |\"b\" |,|>|DECIMAL\\(5, 2\\)){1,8})") {
            if let Ok(parsed) = parse(&text) {
                prop_assert_eq!(parse(&parsed.to_string()).unwrap(), parsed);
            }
        }
    }
}
