//! Checked expressions as steps of evaluation. The shape of the steps is cel-go's, because its costs follow from them:
//! chains of selections and indexes are one step with qualifiers, constant parts are computed here.

use std::{collections::HashSet, sync::Arc};

use crate::{
    ast::{Call, Comprehension, Expr, ExprKind, Id, Literal, operator},
    budget::Budget,
    check::{Checked, Reference},
    cost::{Rule, rule},
    env::{Env, named_type},
    error::Eval,
    functions::{Function, Singleton},
    library,
    macros::MAP_INSERT,
    types::Type,
    value::{Key, Value},
};

pub struct Node {
    pub id: Id,
    pub kind: NodeKind,
}

pub enum NodeKind {
    Const(Eval<Value<'static>>),
    Attribute(Box<Attribute>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Equal(Box<[Node; 2]>, Rule),
    NotEqual(Box<[Node; 2]>, Rule),
    NotStrictlyFalse(Box<Node>),
    Call(Box<CallNode>),
    /// `value in [constants]`.
    SetMembership(Box<Node>, HashSet<Key<'static>>),
    /// `optional.or(other)` and `optional.orValue(value)`: the argument is evaluated only if needed.
    OptionalOr {
        operands: Box<[Node; 2]>,
        value: bool,
    },
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    Struct(Box<StructNode>),
    Fold(Box<Fold>),
}

/// A variable, or the value of another step, and what is selected from it.
pub struct Attribute {
    pub base: Base,
    pub qualifiers: Vec<Qualifier>,
    /// Whether this is `has(…)`.
    pub test_only: bool,
}

pub enum Base {
    /// A variable of a comprehension around, by its position.
    Local(usize),
    Variable(Arc<str>),
    Conditional(Box<Conditional>),
    Relative(Node),
}

pub struct Conditional {
    pub condition: Node,
    pub truthy: Attribute,
    pub falsy: Attribute,
}

pub struct Qualifier {
    pub key: QualifierKey,
    pub optional: bool,
    pub test_only: bool,
}

pub enum QualifierKey {
    Field(Arc<str>),
    Const(Value<'static>),
    Attribute(Attribute),
    Computed(Node),
}

/// An object to make.
pub struct StructNode {
    pub name: Arc<str>,
    /// Name, value, and whether it is written `?name`.
    pub fields: Vec<(Arc<str>, Node, bool)>,
    /// No type that only describes data can be made by an expression; that fails when it is evaluated.
    pub known: bool,
}

pub struct CallNode {
    pub args: Vec<Node>,
    pub target: Target,
    pub rule: Rule,
    /// Whether evaluation stops at the first argument that fails.
    pub stops_early: bool,
}

pub enum Target {
    Singleton(Arc<Function>, Singleton),
    Overload(Arc<Function>, usize),
    Dispatch(Arc<Function>),
    Regex(RegexFunction, regex::Regex),
}

#[derive(Clone, Copy)]
pub enum RegexFunction {
    Matches,
    Find,
    FindAll,
}

pub struct Fold {
    pub range: Node,
    /// The position of the accumulator; the variables follow.
    pub slot: usize,
    pub two_variables: bool,
    pub init: Node,
    pub condition: Node,
    pub step: Step,
    pub result: Node,
}

/// How a fold goes on. What macros append to is not copied for every element.
pub enum Step {
    Any(Node),
    /// `accumulator + [element]`, perhaps only where a filter holds.
    Append {
        filter: Option<Node>,
        list: Node,
    },
    /// `accumulator` with an entry, or with all entries of a map.
    Insert {
        filter: Option<Node>,
        entry: Vec<Node>,
    },
}

type Plan<T = Node> = Result<T, String>;

pub fn plan(env: &Env, checked: &Checked) -> Plan {
    Planner { env, checked, locals: Vec::new() }.node(&checked.parsed.root)
}

struct Planner<'a> {
    env: &'a Env,
    checked: &'a Checked,
    locals: Vec<Arc<str>>,
}

impl Planner<'_> {
    fn node(&mut self, expr: &Expr) -> Plan {
        let id = expr.id;
        let kind = match &expr.kind {
            ExprKind::Unspecified => return Err("unsupported expr".to_owned()),
            ExprKind::Literal(literal) => NodeKind::Const(Ok(literal.into())),
            ExprKind::Ident(name) => self.ident(id, name)?,
            ExprKind::Select(select) => {
                let mut attribute = self.attribute_of(&select.operand)?;
                attribute.test_only = select.test_only;
                attribute.qualifiers.push(Qualifier {
                    key: QualifierKey::Field(select.field.clone()),
                    optional: false,
                    test_only: select.test_only,
                });
                NodeKind::Attribute(Box::new(attribute))
            }
            ExprKind::Call(call) => return self.call(id, call),
            ExprKind::List(list) => {
                let elements = list.elements.iter().enumerate();
                let elements = elements
                    .map(|(index, element)| Ok((self.node(element)?, list.optional.contains(&index))))
                    .collect::<Plan<Vec<_>>>()?;
                constant_list(elements)
            }
            ExprKind::Map(entries) => {
                let entries = entries
                    .iter()
                    .map(|entry| Ok((self.node(&entry.key)?, self.node(&entry.value)?, entry.optional)))
                    .collect::<Plan<Vec<_>>>()?;
                constant_map(entries)
            }
            ExprKind::Struct(object) => {
                let fields = object
                    .fields
                    .iter()
                    .map(|field| Ok((field.name.clone(), self.node(&field.value)?, field.optional)))
                    .collect::<Plan<Vec<_>>>()?;
                let known = self.env.makes(&object.name);
                NodeKind::Struct(Box::new(StructNode { name: object.name.clone(), fields, known }))
            }
            ExprKind::Comprehension(fold) => NodeKind::Fold(Box::new(self.fold(fold)?)),
        };
        Ok(Node { id, kind })
    }

    fn ident(&self, id: Id, name: &Arc<str>) -> Plan<NodeKind> {
        let name = match self.checked.reference(id) {
            Some(Reference::Name(name)) => name,
            _ => name,
        };
        if let Some(slot) = self.locals.iter().rposition(|local| local == name) {
            return Ok(attribute(Base::Local(slot)));
        }
        if matches!(self.checked.type_of(id), Type::Type(_)) {
            let of = named_type(name).ok_or_else(|| format!("reference to undefined type: {name}"))?;
            return Ok(NodeKind::Const(Ok(Value::Type(of))));
        }
        Ok(attribute(Base::Variable(name.clone())))
    }

    /// The step of an operand as one that takes qualifiers.
    fn attribute_of(&mut self, operand: &Expr) -> Plan<Attribute> {
        let node = self.node(operand)?;
        Ok(as_attribute(node))
    }

    fn call(&mut self, id: Id, call: &Call) -> Plan {
        let operands = call.target.iter().chain(&call.args);
        let mut args = operands.map(|arg| self.node(arg)).collect::<Plan<Vec<_>>>()?;
        let overloads = self.checked.overloads(id);
        let overload = match overloads {
            [only] => Some(only.clone()),
            _ => None,
        };
        let name = &*call.function;
        let kind = match name {
            operator::AND => NodeKind::And(two(args)?),
            operator::OR => NodeKind::Or(two(args)?),
            operator::EQUALS => NodeKind::Equal(two(args)?, rule(name, Some("equals"))),
            operator::NOT_EQUALS => NodeKind::NotEqual(two(args)?, rule(name, Some("not_equals"))),
            operator::CONDITIONAL => conditional(args)?,
            operator::INDEX => index(args, false)?,
            operator::OPT_INDEX | operator::OPT_SELECT => index(args, true)?,
            operator::NOT_STRICTLY_FALSE => NodeKind::NotStrictlyFalse(Box::new(one(args)?)),
            "or" if args.len() == 2 => NodeKind::OptionalOr { operands: two(args)?, value: false },
            "orValue" if args.len() == 2 => NodeKind::OptionalOr { operands: two(args)?, value: true },
            _ => {
                let Some(function) = self.env.function(name) else {
                    return Err(format!("no such overload: {name}"));
                };
                let rule = rule(name, overload.as_deref());
                if overload.as_deref() == Some("in_list")
                    && let Some(kind) = set_membership(&mut args)
                {
                    return Ok(Node { id, kind });
                }
                let (target, stops_early) = target(function, overload.as_deref(), &args)?;
                self.constant_call(name, CallNode { args, target, rule, stops_early })?
            }
        };
        Ok(Node { id, kind })
    }

    /// A conversion of a constant is a constant; one that fails makes no program.
    fn constant_call(&self, name: &str, call: CallNode) -> Plan<NodeKind> {
        let is_conversion = library::CONVERSIONS.contains(&name);
        if !is_conversion || !matches!(call.args.as_slice(), [Node { kind: NodeKind::Const(_), .. }]) {
            return Ok(NodeKind::Call(Box::new(call)));
        }
        let node = Node { id: 0, kind: NodeKind::Call(Box::new(call)) };
        let value = crate::eval::constant(&node, self.env.host(), &mut Budget::new(u64::MAX));
        value.map(|value| NodeKind::Const(Ok(value))).map_err(|error| error.message().to_owned())
    }

    fn fold(&mut self, fold: &Comprehension) -> Plan<Fold> {
        let init = self.node(&fold.init)?;
        let range = self.node(&fold.range)?;
        let slot = self.locals.len();
        self.locals.push(fold.accumulator.clone());
        self.locals.push(fold.variable.clone());
        self.locals.extend(fold.second.clone());
        let condition = self.node(&fold.condition)?;
        let step = self.step(fold)?;
        self.locals.truncate(slot + 1);
        let result = self.node(&fold.result)?;
        self.locals.truncate(slot);
        Ok(Fold { range, slot, two_variables: fold.second.is_some(), init, condition, step, result })
    }

    fn step(&mut self, fold: &Comprehension) -> Plan<Step> {
        let (filter, step) = match filtered(fold) {
            Some((filter, step)) => (Some(filter), step),
            None => (None, &fold.step),
        };
        let ExprKind::Call(call) = &step.kind else { return self.node(&fold.step).map(Step::Any) };
        let [first, rest @ ..] = call.args.as_slice() else { return self.node(&fold.step).map(Step::Any) };
        let goes_on =
            is_accumulator(first, fold) && is_accumulator(&fold.result, fold) && is_true(&fold.condition);
        if !goes_on || call.target.is_some() {
            return self.node(&fold.step).map(Step::Any);
        }
        match (&*call.function, &fold.init.kind, rest) {
            (operator::ADD, ExprKind::List(init), [list @ Expr { kind: ExprKind::List(_), .. }])
                if init.elements.is_empty() =>
            {
                let filter = filter.map(|filter| self.node(filter)).transpose()?;
                Ok(Step::Append { filter, list: self.node(list)? })
            }
            (MAP_INSERT, ExprKind::Map(init), entry) if init.is_empty() => {
                let filter = filter.map(|filter| self.node(filter)).transpose()?;
                let entry = entry.iter().map(|part| self.node(part)).collect::<Plan<Vec<_>>>()?;
                Ok(Step::Insert { filter, entry })
            }
            _ => self.node(&fold.step).map(Step::Any),
        }
    }
}

/// `filter ? step : accumulator`, in a fold.
fn filtered(fold: &Comprehension) -> Option<(&Expr, &Expr)> {
    let ExprKind::Call(call) = &fold.step.kind else { return None };
    match (&*call.function, call.args.as_slice()) {
        (operator::CONDITIONAL, [filter, step, otherwise]) if is_accumulator(otherwise, fold) => {
            Some((filter, step))
        }
        _ => None,
    }
}

fn is_accumulator(expr: &Expr, fold: &Comprehension) -> bool {
    &*fold.accumulator == crate::ast::ACCUMULATOR
        && matches!(&expr.kind, ExprKind::Ident(name) if *name == fold.accumulator)
}

fn is_true(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Literal(Literal::Bool(true)))
}

fn attribute(base: Base) -> NodeKind {
    NodeKind::Attribute(Box::new(Attribute { base, qualifiers: Vec::new(), test_only: false }))
}

/// A step that takes qualifiers: itself, or a new one around it.
fn as_attribute(node: Node) -> Attribute {
    match node.kind {
        NodeKind::Attribute(attribute) if !attribute.test_only => *attribute,
        kind => Attribute {
            base: Base::Relative(Node { id: node.id, kind }),
            qualifiers: Vec::new(),
            test_only: false,
        },
    }
}

fn conditional(args: Vec<Node>) -> Plan<NodeKind> {
    let [condition, truthy, falsy] =
        <[Node; 3]>::try_from(args).map_err(|_| "no such overload: _?_:_(...)".to_owned())?;
    // A branch that is a selection is resolved without being a step of its own.
    let branch = |node: Node| match node.kind {
        NodeKind::Attribute(attribute) => *attribute,
        kind => Attribute {
            base: Base::Relative(Node { id: node.id, kind }),
            qualifiers: Vec::new(),
            test_only: false,
        },
    };
    let (truthy, falsy) = (branch(truthy), branch(falsy));
    Ok(attribute(Base::Conditional(Box::new(Conditional { condition, truthy, falsy }))))
}

fn index(args: Vec<Node>, optional: bool) -> Plan<NodeKind> {
    let [operand, key] = *two(args)?;
    let mut attribute = as_attribute(operand);
    let key = match key.kind {
        NodeKind::Const(Ok(value)) => match value {
            Value::String(text) => QualifierKey::Field(Arc::from(&*text)),
            Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) => QualifierKey::Const(value),
            other => return Err(format!("invalid qualifier type: {}", crate::eval::go_type(&other))),
        },
        NodeKind::Attribute(attribute) => QualifierKey::Attribute(*attribute),
        kind => QualifierKey::Computed(Node { id: key.id, kind }),
    };
    attribute.qualifiers.push(Qualifier { key, optional, test_only: false });
    Ok(NodeKind::Attribute(Box::new(attribute)))
}

fn one(args: Vec<Node>) -> Plan<Node> {
    let count = args.len();
    args.into_iter().next().ok_or_else(|| format!("no such overload: {count} arguments"))
}

fn two(args: Vec<Node>) -> Plan<Box<[Node; 2]>> {
    <[Node; 2]>::try_from(args)
        .map(Box::new)
        .map_err(|args| format!("no such overload: {} arguments", args.len()))
}

fn constant_list(elements: Vec<(Node, bool)>) -> NodeKind {
    let constant = elements.iter().all(|(node, _)| matches!(node.kind, NodeKind::Const(_)));
    let kind = NodeKind::List(elements);
    if constant { computed(kind) } else { kind }
}

fn constant_map(entries: Vec<(Node, Node, bool)>) -> NodeKind {
    let is_constant = |node: &Node| matches!(node.kind, NodeKind::Const(_));
    let constant = entries.iter().all(|(key, value, _)| is_constant(key) && is_constant(value));
    let kind = NodeKind::Map(entries);
    if constant { computed(kind) } else { kind }
}

/// The value of a step without variables or functions. If it fails it fails when it is evaluated.
fn computed(kind: NodeKind) -> NodeKind {
    let node = Node { id: 0, kind };
    NodeKind::Const(crate::eval::literal(&node))
}

/// A search in constants by their hashes, which costs nothing. `None` leaves the call as it is.
fn set_membership(args: &mut Vec<Node>) -> Option<NodeKind> {
    let [_, Node { kind: NodeKind::Const(Ok(Value::List(list))), .. }] = args.as_slice() else { return None };
    if list.is_empty() {
        return Some(NodeKind::Const(Ok(Value::Bool(false))));
    }
    let mut set = HashSet::new();
    for element in list.values().ok()? {
        let primitive = matches!(
            element,
            Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_)
        );
        if !primitive {
            return None;
        }
        set.insert(Key::of(&element));
        // The same number in the other types.
        match element {
            Value::Double(double) => {
                set.extend(crate::value::whole(double).map(Key::Int));
                set.extend(crate::value::whole_unsigned(double).map(Key::Uint));
            }
            Value::Int(int) => {
                set.insert(Key::of(&Value::Double(int as f64)));
                set.extend(u64::try_from(int).ok().map(Key::Uint));
            }
            Value::Uint(uint) => {
                set.insert(Key::of(&Value::Double(uint as f64)));
                set.extend(i64::try_from(uint).ok().map(Key::Int));
            }
            _ => {}
        }
    }
    let needle = args.swap_remove(0);
    Some(NodeKind::SetMembership(Box::new(needle), set))
}

/// What a call runs, and whether it stops at the first argument that fails.
fn target(function: &Arc<Function>, overload: Option<&str>, args: &[Node]) -> Plan<(Target, bool)> {
    if let Some(found) = constant_regex(&function.name, args)? {
        return Ok((found, true));
    }
    if let Some(singleton) = function.singleton {
        return Ok((Target::Singleton(function.clone(), singleton), args.len() > 2));
    }
    let position = overload.and_then(|id| function.overloads.iter().position(|overload| &*overload.id == id));
    match position {
        Some(position) => {
            let stops_early = function.overloads[position].stops_early;
            Ok((Target::Overload(function.clone(), position), stops_early))
        }
        None => {
            let stops_early = match function.overloads.as_slice() {
                [only] => only.stops_early,
                _ => true,
            };
            Ok((Target::Dispatch(function.clone()), stops_early))
        }
    }
}

/// A regular expression that is constant is compiled here; one that is none makes no program.
fn constant_regex(name: &str, args: &[Node]) -> Plan<Option<Target>> {
    let function = match name {
        "matches" => RegexFunction::Matches,
        "find" => RegexFunction::Find,
        "findAll" => RegexFunction::FindAll,
        _ => return Ok(None),
    };
    match args.get(1).map(|arg| &arg.kind) {
        Some(NodeKind::Const(Ok(Value::String(pattern)))) => {
            Ok(Some(Target::Regex(function, library::compile_regex(pattern)?)))
        }
        _ => Ok(None),
    }
}
