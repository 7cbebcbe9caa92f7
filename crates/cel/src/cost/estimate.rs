//! The least and the most an evaluation can cost, by the types of expressions and the sizes schemas allow.

mod calls;

use std::{collections::HashMap, sync::Arc};

use calls::CallEstimate;

use crate::{
    ast::{ACCUMULATOR, Call, Comprehension, Expr, ExprKind, Id, List, Literal, MapEntry, OLD_ACCUMULATOR},
    check::Checked,
    decl::{Decl, Shape},
    types::Type,
};

/// How large a value can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub min: u64,
    pub max: u64,
}

/// What an evaluation can cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    pub min: u64,
    pub max: u64,
}

/// What an estimate knows about an expression.
#[derive(Debug)]
pub struct Node<'a> {
    /// The variable and the fields selected from it; `@items`, `@values` and `@keys` stand for elements. Empty where
    /// the expression is no part of a variable.
    pub path: &'a [Arc<str>],
    pub of: &'a Type,
}

/// Knows the sizes of variables and their parts.
pub trait SizeEstimator {
    fn size(&self, node: &Node<'_>) -> Option<Size>;
}

/// Knows no sizes.
pub struct NoSizes;

impl SizeEstimator for NoSizes {
    fn size(&self, _: &Node<'_>) -> Option<Size> {
        None
    }
}

/// The sizes a schema allows: whatever the variable is called, its value is of the schema.
impl SizeEstimator for Decl {
    fn size(&self, node: &Node<'_>) -> Option<Size> {
        let (_, path) = node.path.split_first()?;
        let mut decl = self;
        let key = Decl::new(Shape::String);
        for name in path {
            decl = match (&**name, &decl.shape) {
                ("@items" | "@values", Shape::List(inner, _) | Shape::Map(inner)) => inner,
                ("@keys", Shape::Map(_)) => &key,
                ("@items" | "@values" | "@keys", _) => return None,
                (name, Shape::Object(object)) => {
                    object.field(name).filter(|field| field.cel_type().is_some())?
                }
                _ => return None,
            };
        }
        // A map's keys are of a type without a bound of its own.
        let max = if std::ptr::eq(decl, &key) { 0 } else { decl.max_elements };
        Some(Size { min: 0, max })
    }
}

impl Size {
    pub const UNKNOWN: Size = Size { min: 0, max: u64::MAX };

    pub fn fixed(size: u64) -> Self {
        Size { min: size, max: size }
    }

    fn add(self, other: Size) -> Size {
        Size { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn multiply(self, other: Size) -> Size {
        Size { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn by_factor(self, factor: f64) -> Cost {
        Cost { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    fn by_cost(self, cost: Cost) -> Cost {
        Cost { min: self.min.saturating_mul(cost.min), max: self.max.saturating_mul(cost.max) }
    }

    fn union(self, other: Size) -> Size {
        Size { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

impl Cost {
    pub fn fixed(cost: u64) -> Self {
        Cost { min: cost, max: cost }
    }

    fn add(self, other: Cost) -> Cost {
        Cost { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn multiply(self, other: Cost) -> Cost {
        Cost { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn by_factor(self, factor: f64) -> Cost {
        Cost { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    fn union(self, other: Cost) -> Cost {
        Cost { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Casts from floats saturate, as the bounds of the estimate do.
fn scale(value: u64, factor: f64) -> u64 {
    (value as f64 * factor).ceil() as u64
}

/// The estimate of an expression.
pub fn estimate(checked: &Checked, sizes: &dyn SizeEstimator) -> Cost {
    let mut estimator = Estimator {
        checked,
        sizes,
        paths: HashMap::new(),
        locals: HashMap::new(),
        computed: HashMap::new(),
        computed_entries: HashMap::new(),
    };
    estimator.cost(&checked.parsed.root)
}

type Path = Vec<Arc<str>>;

/// What elements of a list or map can be.
#[derive(Debug, Clone, Copy)]
struct Entries {
    is_list: bool,
    key: Size,
    value: Size,
}

impl Entries {
    fn union(self, other: Entries) -> Entries {
        Entries {
            is_list: self.is_list,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

#[derive(Debug, Clone)]
struct Local {
    path: Path,
    size: Option<Size>,
    entries: Option<Entries>,
}

struct Estimator<'a> {
    checked: &'a Checked,
    sizes: &'a dyn SizeEstimator,
    paths: HashMap<Id, Path>,
    locals: HashMap<Arc<str>, Vec<Local>>,
    computed: HashMap<Id, Size>,
    computed_entries: HashMap<Id, Entries>,
}

/// Which element of a range a variable is.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Key,
    Value,
    /// The only variable: a list's element or a map's key.
    Single,
}

impl Estimator<'_> {
    fn type_of(&self, expr: &Expr) -> &Type {
        self.checked.type_of(expr.id)
    }

    fn cost(&mut self, expr: &Expr) -> Cost {
        match &expr.kind {
            ExprKind::Unspecified => Cost::fixed(0),
            ExprKind::Literal(_) => Cost::fixed(0),
            ExprKind::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => vec![name.clone()],
                };
                self.paths.insert(expr.id, path);
                Cost::fixed(1)
            }
            ExprKind::Select(select) => {
                let operand = self.cost(&select.operand);
                if select.test_only {
                    return operand;
                }
                let selects =
                    matches!(self.type_of(&select.operand), Type::Map(..) | Type::Object(_) | Type::Param(_));
                let mut path = self.path(&select.operand);
                path.push(select.field.clone());
                self.paths.insert(expr.id, path);
                operand.add(Cost::fixed(u64::from(selects)))
            }
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List(list) => self.list(expr, list),
            ExprKind::Map(entries) => self.map(expr, entries),
            ExprKind::Struct(object) => {
                let fields = object.fields.iter();
                fields.fold(Cost::fixed(40), |sum, field| sum.add(self.cost(&field.value)))
            }
            ExprKind::Comprehension(fold) if is_bind(fold) => self.bind(expr, fold),
            ExprKind::Comprehension(fold) => self.comprehension(expr, fold),
        }
    }

    fn list(&mut self, expr: &Expr, list: &List) -> Cost {
        let mut sum = Cost::fixed(10);
        let mut item = empty_size(list.elements.is_empty());
        for element in &list.elements {
            sum = sum.add(self.cost(element));
            item = item.union(self.size_or_unknown(element));
        }
        self.computed_entries.insert(expr.id, Entries { is_list: true, key: Size::fixed(1), value: item });
        sum
    }

    fn map(&mut self, expr: &Expr, entries: &[MapEntry]) -> Cost {
        let mut sum = Cost::fixed(30);
        let (mut key, mut value) = (empty_size(entries.is_empty()), empty_size(entries.is_empty()));
        for entry in entries {
            sum = sum.add(self.cost(&entry.key)).add(self.cost(&entry.value));
            key = key.union(self.size_or_unknown(&entry.key));
            value = value.union(self.size_or_unknown(&entry.value));
        }
        self.computed_entries.insert(expr.id, Entries { is_list: false, key, value });
        sum
    }

    fn comprehension(&mut self, expr: &Expr, fold: &Comprehension) -> Cost {
        let mut sum = self.cost(&fold.range).add(self.cost(&fold.init));
        self.push_expression(&fold.accumulator, &fold.init);
        match &fold.second {
            Some(second) => {
                self.push_element(&fold.variable, &fold.range, Role::Key);
                self.push_element(second, &fold.range, Role::Value);
            }
            None => self.push_element(&fold.variable, &fold.range, Role::Single),
        }
        let each = self.cost(&fold.condition).add(self.cost(&fold.step));
        self.pop(&fold.variable);
        if let Some(second) = &fold.second {
            self.pop(second);
        }
        sum = sum.add(self.cost(&fold.result));
        self.pop(&fold.accumulator);
        let count = self.size_or_unknown(&fold.range);
        sum = sum.add(count.by_cost(each));
        match &fold.init.kind {
            ExprKind::Literal(_) => {
                if let Some(size) = self.size(&fold.init) {
                    self.computed.insert(expr.id, size);
                }
            }
            ExprKind::List(_) | ExprKind::Map(_) => {
                self.computed.insert(expr.id, count);
                if let Some(entries) = self.entries(&fold.step) {
                    self.computed_entries.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        sum
    }

    fn bind(&mut self, expr: &Expr, fold: &Comprehension) -> Cost {
        let sum = self.cost(&fold.range).add(self.cost(&fold.init));
        self.push_expression(&fold.accumulator, &fold.init);
        let sum = sum.add(self.cost(&fold.result));
        self.pop(&fold.accumulator);
        self.copy_sizes(expr, &fold.result);
        sum
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        if let Some(size) = self.size(from) {
            self.computed.insert(to.id, size);
        }
        if let Some(entries) = self.entries(from) {
            self.computed_entries.insert(to.id, entries);
        }
    }

    // Variables of comprehensions.

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.get(name).and_then(|stack| stack.last())
    }

    fn push(&mut self, name: &Arc<str>, local: Local) {
        self.locals.entry(name.clone()).or_default().push(local);
    }

    fn pop(&mut self, name: &str) {
        if let Some(stack) = self.locals.get_mut(name) {
            stack.pop();
        }
    }

    fn push_expression(&mut self, name: &Arc<str>, expr: &Expr) {
        let path = self.path(expr);
        let entries = self.entries(expr);
        let size = self.size(expr);
        self.push(name, Local { path, size, entries });
    }

    fn push_element(&mut self, name: &Arc<str>, range: &Expr, role: Role) {
        let entries = self.entries(range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.type_of(range), Type::List(_)),
        };
        let (part, size) = match (role, is_list) {
            (Role::Key, true) => ("@indices", entries.map(|entries| entries.key)),
            (Role::Key, false) | (Role::Single, false) => ("@keys", entries.map(|entries| entries.key)),
            (Role::Value, false) => ("@values", entries.map(|entries| entries.value)),
            (Role::Value, true) | (Role::Single, true) => ("@items", entries.map(|entries| entries.value)),
        };
        let mut path = self.path(range);
        path.push(part.into());
        self.push(name, Local { path, size, entries: None });
    }

    // Sizes.

    fn path(&self, expr: &Expr) -> Path {
        if let ExprKind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Size {
        self.size(expr).unwrap_or(Size::UNKNOWN)
    }

    fn size(&mut self, expr: &Expr) -> Option<Size> {
        if let Some(size) = self.computed.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(expr) {
            return Some(size);
        }
        let path = self.path(expr);
        if let Some(size) = self.sizes.size(&Node { path: &path, of: self.type_of(expr) }) {
            self.computed.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(self.type_of(expr)) {
            return Some(Size::fixed(1));
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn entries(&self, expr: &Expr) -> Option<Entries> {
        if let Some(entries) = self.computed_entries.get(&expr.id) {
            return Some(*entries);
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        }
    }

    // Calls.

    fn call(&mut self, expr: &Expr, call: &Call) -> Cost {
        if &*call.function == "dyn"
            && let Some(arg) = call.args.first()
        {
            let cost = self.cost(arg);
            self.copy_sizes(expr, arg);
            return cost.add(Cost::fixed(1));
        }
        let mut arg_costs = Vec::with_capacity(call.args.len());
        let mut args = Vec::with_capacity(call.args.len());
        for arg in &call.args {
            arg_costs.push(self.cost(arg));
            args.push(self.operand(arg));
        }
        let overloads = self.checked.overloads(expr.id);
        if overloads.is_empty() {
            return Cost::fixed(0);
        }
        let (target_cost, target) = match &call.target {
            Some(target) => (self.cost(target), Some(self.operand(target))),
            None => (Cost::fixed(0), None),
        };
        let mut total = Cost { min: u64::MAX, max: 0 };
        let mut result: Option<Size> = None;
        for overload in overloads {
            let estimate: CallEstimate =
                self.call_cost(expr, &call.function, overload, target.as_ref(), &args, &arg_costs);
            total = total.union(estimate.cost);
            if let Some(size) = estimate.result {
                result = Some(result.map_or(size, |result| result.union(size)));
            }
            let part = match &**overload {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(part), Some(container)) = (part, call.args.first()) {
                result = self.entries(container).map(|entries| entries.value);
                let mut path = self.path(container);
                path.push(part.into());
                self.paths.insert(expr.id, path);
            }
            if result.is_none() {
                result = self.size(expr);
            }
        }
        if let Some(size) = result {
            self.computed.insert(expr.id, size);
        }
        target_cost.add(total)
    }

    /// What is known about an operand of a call.
    fn operand<'e>(&mut self, expr: &'e Expr) -> Operand<'e> {
        let mut path = self.path(expr);
        if path.first().is_some_and(|first| &**first == ACCUMULATOR || &**first == OLD_ACCUMULATOR) {
            path.clear();
        }
        Operand { expr, path, of: self.type_of(expr).clone(), size: self.size(expr) }
    }
}

/// An operand of a call as estimates of libraries see it.
struct Operand<'e> {
    expr: &'e Expr,
    path: Path,
    of: Type,
    size: Option<Size>,
}

/// `name` bound to a value, which costs no more than value and body.
fn is_bind(fold: &Comprehension) -> bool {
    let empty = matches!(&fold.range.kind, ExprKind::List(list) if list.elements.is_empty());
    let never = matches!(fold.condition.kind, ExprKind::Literal(Literal::Bool(false)));
    empty && never && &*fold.accumulator != OLD_ACCUMULATOR
}

fn empty_size(empty: bool) -> Size {
    Size { min: if empty { 0 } else { u64::MAX }, max: 0 }
}

fn literal_size(expr: &Expr) -> Option<Size> {
    Some(Size::fixed(match &expr.kind {
        ExprKind::Literal(Literal::String(text)) => text.chars().count() as u64,
        ExprKind::Literal(Literal::Bytes(bytes)) => bytes.len() as u64,
        ExprKind::Literal(_) => 1,
        ExprKind::List(list) => list.elements.len() as u64,
        ExprKind::Map(entries) => entries.len() as u64,
        _ => return None,
    }))
}

fn is_scalar(of: &Type) -> bool {
    match of {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Nullable(inner) => is_scalar(inner),
        other => other.unwrap_optional().is_some_and(is_scalar),
    }
}
