use datafusion_sql::sqlparser::ast::Statement;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use fencepost_crds::v1alpha1::Violation;

use super::dialect::PipelineDialect;
use super::{depth, position};
use crate::violation::{Position, Reason, sql_violation};

/// Nesting of expressions. The parser and the planner are recursive.
const RECURSION_LIMIT: usize = 50;

/// Reads statement by statement, so that an error in one does not hide those in the others.
pub(super) fn parse(sql: &str) -> (Vec<Statement>, Vec<Violation>) {
    let tokens = match Tokenizer::new(&PipelineDialect, sql).tokenize_with_location() {
        Ok(tokens) => tokens,
        Err(e) => {
            let at = Position { line: e.location.line, column: e.location.column };
            return (Vec::new(), vec![sql_violation(Reason::SqlSyntax, Some(at), e.message)]);
        }
    };
    let mut statements = Vec::new();
    let mut violations = Vec::new();
    for tokens in tokens.split(|t| t.token == Token::SemiColon) {
        if tokens.iter().all(|t| matches!(t.token, Token::Whitespace(_) | Token::EOF)) {
            continue;
        }
        match parse_one(tokens) {
            Ok(statement) => statements.push(statement),
            Err(violation) => violations.push(violation),
        }
    }
    if statements.is_empty() && violations.is_empty() {
        violations.push(sql_violation(Reason::SqlSyntax, None, "there is no statement: write INSERT INTO … SELECT …"));
    }
    (statements, violations)
}

fn parse_one(tokens: &[TokenWithSpan]) -> Result<Statement, Violation> {
    if let Some(at) = depth::too_deep(tokens) {
        let limit = depth::MAX_DEPTH;
        let message = format!(
            "here the statement has more than {limit} levels of operators, parentheses and UNIONs; split it with views, or use IN \
             instead of many ORs"
        );
        return Err(sql_violation(Reason::UnsupportedSql, Some(at), message));
    }
    let mut parser =
        Parser::new(&PipelineDialect).with_recursion_limit(RECURSION_LIMIT).with_tokens_with_locations(tokens.to_vec());
    let statement = parser.parse_statement().map_err(|e| syntax_violation(e, tokens))?;
    let rest = parser.peek_token();
    if rest.token == Token::EOF {
        return Ok(statement);
    }
    let message = format!("expected `;` or the end of the text, found `{}`", rest.token);
    Err(sql_violation(Reason::SqlSyntax, position(rest.span), message))
}

fn syntax_violation(error: ParserError, tokens: &[TokenWithSpan]) -> Violation {
    let message = match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
        ParserError::RecursionLimitExceeded => {
            let start = tokens.iter().find_map(|t| position(t.span));
            let message = format!("expressions may be nested {RECURSION_LIMIT} deep at most");
            return sql_violation(Reason::SqlSyntax, start, message);
        }
    };
    if let Some((text, at)) = split_position(&message) {
        return sql_violation(Reason::SqlSyntax, Some(at), decapitalize(text));
    }
    // Errors at the end of the text carry no place.
    let end = tokens
        .iter()
        .rev()
        .find(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF))
        .map(|t| Position { line: t.span.end.line, column: t.span.end.column });
    sql_violation(
        Reason::SqlSyntax,
        end,
        decapitalize(&message.replace("found: EOF", "found the end of the statement")),
    )
}

/// `Expected: x, found: y at Line: 1, Column: 2` in its two parts.
fn split_position(message: &str) -> Option<(&str, Position)> {
    let (text, at) = message.rsplit_once(" at Line: ")?;
    let (line, column) = at.split_once(", Column: ")?;
    Some((text, Position { line: line.parse().ok()?, column: column.parse().ok()? }))
}

fn decapitalize(message: &str) -> String {
    let message = message.strip_prefix("sql parser error: ").unwrap_or(message);
    for (theirs, ours) in [("Expected: ", "expected "), ("Expected ", "expected ")] {
        if let Some(rest) = message.strip_prefix(theirs) {
            return format!("{ours}{}", rest.replacen(", found: ", ", found ", 1));
        }
    }
    message.to_owned()
}
