//! How deep the syntax tree of a text can become at most, found before there is a tree: the parser, the planner and the evaluation
//! of an expression are all recursive, and a stack that overflows ends the process.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::{Expr, LogicalPlan};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::violation::Position;

/// Levels that the expressions of a query may have. What people write has a few dozen.
pub(super) const MAX_DEPTH: usize = 200;

/// Levels that a plan may have, those of its expressions included.
pub(super) const MAX_PLAN_DEPTH: usize = 300;

/// The place at which the text goes deeper than [`MAX_DEPTH`].
pub(super) fn too_deep(tokens: &[TokenWithSpan]) -> Option<Position> {
    let mut counter = Counter::default();
    let words = tokens.iter().filter(|t| !matches!(t.token, Token::EOF | Token::Whitespace(_)));
    for token in words {
        counter.count(&token.token);
        if counter.below + counter.level.depth() > MAX_DEPTH {
            return super::position(token.span);
        }
    }
    None
}

/// What is open at a place of the text: the text itself, a parenthesis, a bracket, or a CASE. Operators of one level become levels
/// of the tree, since `a + b + c` is `(a + b) + c`.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    is_case: bool,
    /// UNION and its relatives.
    set: usize,
    /// AND and OR since then: `a = b OR c = d` is one level above its comparisons, however many of them there are.
    loose: usize,
    /// All other operators since then.
    tight: usize,
}

impl Level {
    fn depth(self) -> usize {
        self.set + self.loose + self.tight
    }
}

#[derive(Default)]
struct Counter {
    level: Level,
    /// The levels around it.
    outer: Vec<Level>,
    /// Depth of the levels around it.
    below: usize,
    /// An operator stands before this place, so that a word here is a name, whatever word it is.
    wants_operand: bool,
    /// A `*` here is no multiplication.
    at_item: bool,
}

impl Counter {
    fn count(&mut self, token: &Token) {
        let kind = self.kind(token);
        match kind {
            Kind::Operand => {}
            Kind::Separator => (self.level.loose, self.level.tight) = (0, 0),
            Kind::Set => (self.level.set, self.level.loose, self.level.tight) = (self.level.set + 1, 0, 0),
            Kind::Loose => (self.level.loose, self.level.tight) = (self.level.loose + 1, 0),
            Kind::Infix | Kind::Other => self.level.tight += 1,
            Kind::Open { is_case } => {
                self.level.tight += 1;
                self.below += self.level.depth();
                self.outer.push(std::mem::replace(&mut self.level, Level { is_case, ..Level::default() }));
            }
            Kind::EndOfCase => self.close(),
            Kind::Close => {
                // A CASE without END is no CASE, or the parser's to refuse.
                while self.level.is_case {
                    self.close();
                }
                self.close();
            }
        }
        self.wants_operand = matches!(kind, Kind::Loose | Kind::Infix);
        self.at_item = matches!(kind, Kind::Separator) || *token == Token::Period;
    }

    fn close(&mut self) {
        self.level.is_case = false;
        if let Some(outer) = self.outer.pop() {
            self.below -= outer.depth();
            self.level = outer;
        }
    }

    /// Whatever is not known to be harmless counts as an operator.
    fn kind(&self, token: &Token) -> Kind {
        match token {
            Token::Word(word) if word.quote_style.is_some() => Kind::Operand,
            Token::Word(word) => self.word(word.keyword),
            Token::LParen | Token::LBracket | Token::LBrace => Kind::Open { is_case: false },
            Token::RParen | Token::RBracket | Token::RBrace => Kind::Close,
            Token::Comma => Kind::Separator,
            Token::Number(..) | Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_) => Kind::Operand,
            Token::Mul if self.at_item => Kind::Operand,
            _ => Kind::Infix,
        }
    }

    fn word(&self, keyword: Keyword) -> Kind {
        match keyword {
            Keyword::NoKeyword => Kind::Operand,
            Keyword::CASE => Kind::Open { is_case: true },
            Keyword::END if self.level.is_case => Kind::EndOfCase,
            Keyword::AND | Keyword::OR | Keyword::XOR => Kind::Loose,
            Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS if !self.wants_operand => Kind::Set,
            Keyword::SELECT
            | Keyword::FROM
            | Keyword::WHERE
            | Keyword::AS
            | Keyword::WHEN
            | Keyword::THEN
            | Keyword::ELSE
                if !self.wants_operand =>
            {
                Kind::Separator
            }
            keyword if INFIX.contains(&keyword) => Kind::Infix,
            _ => Kind::Other,
        }
    }
}

/// Levels of a plan. Expressions of operators on top of each other can become one expression, so they count together.
pub(super) fn of_plan(plan: &LogicalPlan) -> usize {
    let inputs = plan.inputs().into_iter().map(of_plan).max().unwrap_or_default();
    let mut deepest = 0;
    let walked = plan.apply_expressions(|expr| {
        deepest = deepest.max(of_expr(expr));
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(walked.is_ok(), "the closure does not fail");
    inputs + deepest + 1
}

fn of_expr(expr: &Expr) -> usize {
    let mut deepest = 0;
    let walked = expr.apply_children(|child| {
        deepest = deepest.max(of_expr(child));
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(walked.is_ok(), "the closure does not fail");
    deepest + 1
}

#[derive(Clone, Copy)]
enum Kind {
    /// A name or a literal.
    Operand,
    /// What follows is beside what was before, not above it.
    Separator,
    Set,
    Loose,
    /// An operator with something after it.
    Infix,
    /// A word that can be a name, a function or an operator.
    Other,
    Open {
        is_case: bool,
    },
    Close,
    EndOfCase,
}

/// Words that are operators, or a part of one.
const INFIX: &[Keyword] = &[
    Keyword::AT,
    Keyword::BETWEEN,
    Keyword::COLLATE,
    Keyword::DISTINCT,
    Keyword::DIV,
    Keyword::ESCAPE,
    Keyword::ILIKE,
    Keyword::IN,
    Keyword::IS,
    Keyword::LIKE,
    Keyword::MATCH,
    Keyword::MEMBER,
    Keyword::MOD,
    Keyword::NOT,
    Keyword::OPERATOR,
    Keyword::OVERLAPS,
    Keyword::REGEXP,
    Keyword::RLIKE,
    Keyword::SIMILAR,
    Keyword::TO,
    Keyword::ZONE,
];
