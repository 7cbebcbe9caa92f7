//! Ids, where they stand, and copies of trees.

use super::MAX_NODES;
use crate::ast::{Call, Comprehension, Expr, ExprKind, Id, List, MapEntry, Select, Struct, StructField};

/// Hands out ids and remembers where they stand.
pub struct TreeBuilder {
    pub(super) offsets: Vec<Option<u32>>,
    nodes: usize,
}

impl Default for TreeBuilder {
    /// The first id is 1: nothing is at 0.
    fn default() -> Self {
        TreeBuilder { offsets: vec![None], nodes: 0 }
    }
}

impl TreeBuilder {
    pub fn id_at(&mut self, offset: Option<u32>) -> Id {
        self.nodes += 1;
        self.offsets.push(offset);
        (self.offsets.len() - 1) as Id
    }

    /// A new expression that stands where the expression `id` does.
    pub fn beside(&mut self, id: Id, kind: ExprKind) -> Expr {
        let offset = self.offset(id);
        Expr { id: self.id_at(offset), kind }
    }

    pub(super) fn offset(&self, id: Id) -> Option<u32> {
        self.offsets.get(id as usize).copied().flatten()
    }

    pub fn too_large(&self) -> bool {
        self.nodes > MAX_NODES
    }

    /// The expression again, under new ids. What would make the tree too large is left out; `too_large` then says so.
    pub fn copy(&mut self, expr: &Expr) -> Expr {
        if self.too_large() {
            return Expr { id: expr.id, kind: ExprKind::Unspecified };
        }
        let offset = self.offset(expr.id);
        let id = self.id_at(offset);
        let kind = match &expr.kind {
            ExprKind::Unspecified => ExprKind::Unspecified,
            ExprKind::Literal(literal) => ExprKind::Literal(literal.clone()),
            ExprKind::Ident(name) => ExprKind::Ident(name.clone()),
            ExprKind::Select(select) => ExprKind::Select(Box::new(Select {
                operand: self.copy(&select.operand),
                field: select.field.clone(),
                test_only: select.test_only,
            })),
            ExprKind::Call(call) => {
                let args = call.args.iter().map(|arg| self.copy(arg)).collect();
                let target = call.target.as_ref().map(|target| self.copy(target));
                ExprKind::Call(Box::new(Call { target, function: call.function.clone(), args }))
            }
            ExprKind::List(list) => ExprKind::List(List {
                elements: list.elements.iter().map(|element| self.copy(element)).collect(),
                optional: list.optional.clone(),
            }),
            ExprKind::Map(entries) => ExprKind::Map(
                entries
                    .iter()
                    .map(|entry| MapEntry {
                        key: self.copy(&entry.key),
                        value: self.copy(&entry.value),
                        optional: entry.optional,
                    })
                    .collect(),
            ),
            ExprKind::Struct(object) => ExprKind::Struct(Box::new(Struct {
                name: object.name.clone(),
                fields: object
                    .fields
                    .iter()
                    .map(|field| StructField {
                        id: self.id_at(offset),
                        name: field.name.clone(),
                        value: self.copy(&field.value),
                        optional: field.optional,
                    })
                    .collect(),
            })),
            ExprKind::Comprehension(fold) => ExprKind::Comprehension(Box::new(Comprehension {
                range: self.copy(&fold.range),
                variable: fold.variable.clone(),
                second: fold.second.clone(),
                accumulator: fold.accumulator.clone(),
                init: self.copy(&fold.init),
                condition: self.copy(&fold.condition),
                step: self.copy(&fold.step),
                result: self.copy(&fold.result),
            })),
        };
        Expr { id, kind }
    }
}

/// Terms joined by operators as a balanced tree, so that a long chain is not a deep tree.
pub(super) fn balanced(function: &str, terms: &mut [Option<Expr>], operators: &[Id]) -> Expr {
    if operators.is_empty() {
        return terms[0].take().unwrap_or(Expr { id: 0, kind: ExprKind::Unspecified });
    }
    let middle = operators.len() / 2;
    let (left, right) = terms.split_at_mut(middle + 1);
    let args = vec![
        balanced(function, left, &operators[..middle]),
        balanced(function, right, &operators[middle + 1..]),
    ];
    let call = Call { target: None, function: function.into(), args };
    Expr { id: operators[middle], kind: ExprKind::Call(Box::new(call)) }
}
