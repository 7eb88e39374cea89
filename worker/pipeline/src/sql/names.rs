//! Names keep their case, and a name without quotes finds its declaration whatever its case, as long as there is one.
//!
//! JSON fields are often `camelCase`, and SQL folds names. So instead of folding, names without quotes are matched with all names
//! that the spec and the text declare: an exact match stays, a single match in another case is taken, and everything else is left
//! to the planner, which says that it does not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    AccessExpr, Expr, Ident, ObjectName, ObjectNamePart, Select, SelectItem, Subscript, TableAlias, TableFactor, Value,
    VisitMut, Visitor, VisitorMut,
};

use super::{Statement, walk};

/// All declared names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    by_folded: BTreeMap<String, BTreeSet<String>>,
}

impl Names {
    pub(crate) fn declare(&mut self, name: &str) {
        self.by_folded.entry(name.to_lowercase()).or_default().insert(name.to_owned());
    }

    /// Declares what the statements declare: views, their columns, aliases.
    pub(crate) fn declare_statement(&mut self, statement: &Statement) {
        if statement.kind == super::StatementKind::View {
            self.declare(&statement.target);
        }
        for column in &statement.columns {
            self.declare(column);
        }
        walk(&statement.query, &mut Declarations(self));
    }

    /// Rewrites the names of the statement.
    pub(crate) fn resolve(&self, statement: &mut Statement) {
        let ControlFlow::Continue(()) = VisitMut::visit(&mut statement.query, &mut Resolver(self));
        if statement.kind == super::StatementKind::Insert
            && let Some(name) = self.canonical(&statement.target)
        {
            statement.target = name.to_owned();
        }
    }

    /// The declared name that this one means, when that is a different one.
    fn canonical(&self, name: &str) -> Option<&str> {
        let candidates = self.by_folded.get(&name.to_lowercase())?;
        if candidates.contains(name) || candidates.len() != 1 {
            return None;
        }
        candidates.first().map(String::as_str)
    }

    fn resolve_ident(&self, ident: &mut Ident) {
        if ident.quote_style.is_none()
            && let Some(name) = self.canonical(&ident.value)
        {
            ident.value = name.to_owned();
        }
    }
}

struct Declarations<'a>(&'a mut Names);

impl Declarations<'_> {
    fn alias(&mut self, alias: &TableAlias) {
        self.0.declare(&alias.name.value);
        for column in &alias.columns {
            self.0.declare(&column.name.value);
        }
    }
}

impl Visitor for Declarations<'_> {
    type Break = Infallible;

    fn pre_visit_query(&mut self, query: &datafusion_sql::sqlparser::ast::Query) -> ControlFlow<Infallible> {
        for cte in query.with.iter().flat_map(|w| &w.cte_tables) {
            self.alias(&cte.alias);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Infallible> {
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                self.0.declare(&alias.value);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Infallible> {
        if let TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } = table {
            self.alias(alias);
        }
        ControlFlow::Continue(())
    }
}

struct Resolver<'a>(&'a Names);

impl VisitorMut for Resolver<'_> {
    type Break = Infallible;

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<Infallible> {
        for part in &mut relation.0 {
            if let ObjectNamePart::Identifier(ident) = part {
                self.0.resolve_ident(ident);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Infallible> {
        for item in &mut select.projection {
            name_field_access(item);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        match expr {
            Expr::Identifier(ident) => self.0.resolve_ident(ident),
            Expr::CompoundIdentifier(idents) => {
                for ident in idents {
                    self.0.resolve_ident(ident);
                }
            }
            Expr::CompoundFieldAccess { access_chain, .. } => {
                for access in access_chain {
                    self.subscript(access);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Resolver<'_> {
    /// `items[1].sku` as `items[1]['sku']`, which the planner knows.
    fn subscript(&self, access: &mut AccessExpr) {
        if let AccessExpr::Dot(Expr::Identifier(ident)) = access {
            self.0.resolve_ident(ident);
            let name = Value::SingleQuotedString(ident.value.clone()).with_span(ident.span);
            *access = AccessExpr::Subscript(Subscript::Index { index: Expr::Value(name) });
        }
    }
}

/// `addr['city']` without a name is called `city`, as `addr.city` is.
fn name_field_access(item: &mut SelectItem) {
    let SelectItem::UnnamedExpr(expr) = item else { return };
    let name = match expr {
        // The planner gives a column its own name; a field gets it here. For a qualified column it is the same one.
        Expr::CompoundIdentifier(idents) => idents.last().cloned(),
        Expr::CompoundFieldAccess { access_chain, .. } => match access_chain.last() {
            Some(AccessExpr::Dot(Expr::Identifier(ident))) => Some(ident.clone()),
            Some(AccessExpr::Subscript(Subscript::Index { index: Expr::Value(value) })) => match &value.value {
                Value::SingleQuotedString(name) => Some(Ident::with_quote('"', name.clone())),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    if let Some(alias) = name {
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
    }
}

/// Whether a node mentions any name at all. Only for tests of the resolver's reach.
#[cfg(test)]
fn mentions(node: &impl datafusion_sql::sqlparser::ast::Visit, wanted: &str) -> bool {
    struct Find<'a>(&'a str, bool);
    impl Visitor for Find<'_> {
        type Break = Infallible;
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Infallible> {
            match expr {
                Expr::Identifier(i) if i.value == self.0 => self.1 = true,
                Expr::CompoundIdentifier(is) if is.iter().any(|i| i.value == self.0) => self.1 = true,
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut find = Find(wanted, false);
    walk(node, &mut find);
    find.1
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::another_case_is_found("SELECT USERID FROM t", "userId", true)]
    #[case::quotes_are_taken_literally("SELECT \"USERID\" FROM t", "USERID", true)]
    #[case::two_candidates_are_not_guessed_between("SELECT AB FROM t", "AB", true)]
    #[case::an_exact_match_stays("SELECT aB FROM t", "aB", true)]
    #[case::inside_functions("SELECT upper(userid) AS u FROM t", "userId", true)]
    #[case::inside_where("SELECT 1 AS one FROM t WHERE userid = 'x'", "userId", true)]
    #[case::qualified("SELECT t.userid FROM t", "userId", true)]
    fn a_name_finds_its_declaration(#[case] query: &str, #[case] wanted: &str, #[case] found: bool) {
        let mut names = Names::default();
        for name in ["t", "userId", "ab", "aB"] {
            names.declare(name);
        }
        let mut statement = crate::sql::read(&format!("INSERT INTO k {query}")).unwrap().remove(0);
        names.resolve(&mut statement);
        assert_eq!(mentions(&statement.query, wanted), found);
    }
}
