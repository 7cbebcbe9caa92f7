//! Expressions as a tree, macros expanded.

use std::sync::Arc;

/// Names an expression within one tree.
pub type Id = u32;

#[derive(Debug, Clone)]
pub struct Expr {
    pub id: Id,
    pub kind: ExprKind,
}

#[derive(Debug, Clone)]
pub enum ExprKind {
    /// What could not be read; a tree that has one is never checked.
    Unspecified,
    Literal(Literal),
    Ident(Arc<str>),
    Select(Box<Select>),
    Call(Box<Call>),
    List(List),
    Map(Vec<MapEntry>),
    Struct(Box<Struct>),
    Comprehension(Box<Comprehension>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

#[derive(Debug, Clone)]
pub struct Select {
    pub operand: Expr,
    pub field: Arc<str>,
    /// Whether this is `has(operand.field)`.
    pub test_only: bool,
}

#[derive(Debug, Clone)]
pub struct Call {
    pub target: Option<Expr>,
    pub function: Arc<str>,
    pub args: Vec<Expr>,
}

#[derive(Debug, Clone)]
pub struct List {
    pub elements: Vec<Expr>,
    /// Positions of the elements written `?element`, in order.
    pub optional: Vec<usize>,
}

#[derive(Debug, Clone)]
pub struct MapEntry {
    pub key: Expr,
    pub value: Expr,
    pub optional: bool,
}

#[derive(Debug, Clone)]
pub struct Struct {
    pub name: Arc<str>,
    pub fields: Vec<StructField>,
}

#[derive(Debug, Clone)]
pub struct StructField {
    pub id: Id,
    pub name: Arc<str>,
    pub value: Expr,
    pub optional: bool,
}

/// A fold of a list or map: every macro that iterates becomes one.
#[derive(Debug, Clone)]
pub struct Comprehension {
    pub range: Expr,
    pub variable: Arc<str>,
    /// The second variable of a two-variable comprehension.
    pub second: Option<Arc<str>>,
    pub accumulator: Arc<str>,
    pub init: Expr,
    pub condition: Expr,
    pub step: Expr,
    pub result: Expr,
}

/// The accumulator of macros: no identifier a user can write.
pub const ACCUMULATOR: &str = "@result";
/// Its name in older releases, which users still may not use.
pub const OLD_ACCUMULATOR: &str = "__result__";

/// Names of operators as functions.
pub mod operator {
    pub const CONDITIONAL: &str = "_?_:_";
    pub const AND: &str = "_&&_";
    pub const OR: &str = "_||_";
    pub const NOT: &str = "!_";
    pub const EQUALS: &str = "_==_";
    pub const NOT_EQUALS: &str = "_!=_";
    pub const LESS: &str = "_<_";
    pub const LESS_EQUALS: &str = "_<=_";
    pub const GREATER: &str = "_>_";
    pub const GREATER_EQUALS: &str = "_>=_";
    pub const ADD: &str = "_+_";
    pub const SUBTRACT: &str = "_-_";
    pub const MULTIPLY: &str = "_*_";
    pub const DIVIDE: &str = "_/_";
    pub const MODULO: &str = "_%_";
    pub const NEGATE: &str = "-_";
    pub const INDEX: &str = "_[_]";
    pub const OPT_INDEX: &str = "_[?_]";
    pub const OPT_SELECT: &str = "_?._";
    pub const IN: &str = "@in";
    pub const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
}

impl Expr {
    /// How many expressions stand in each other, at most.
    pub fn depth(&self) -> u32 {
        let deepest = |parts: &mut dyn Iterator<Item = &Expr>| parts.map(Expr::depth).max().unwrap_or(0);
        1 + match &self.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => 0,
            ExprKind::Select(select) => select.operand.depth(),
            ExprKind::Call(call) => deepest(&mut call.target.iter().chain(&call.args)),
            ExprKind::List(list) => deepest(&mut list.elements.iter()),
            ExprKind::Map(entries) => {
                deepest(&mut entries.iter().flat_map(|entry| [&entry.key, &entry.value]))
            }
            ExprKind::Struct(object) => deepest(&mut object.fields.iter().map(|field| &field.value)),
            ExprKind::Comprehension(fold) => {
                let parts = [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result];
                deepest(&mut parts.into_iter())
            }
        }
    }

    /// `a.b.c` as one name, where the expression is nothing but that.
    pub fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name.to_string()),
            ExprKind::Select(select) if !select.test_only => {
                Some(format!("{}.{}", select.operand.qualified_name()?, select.field))
            }
            _ => None,
        }
    }
}
