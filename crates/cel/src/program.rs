//! A compiled expression.

use std::{rc::Rc, sync::Arc};

use crate::{
    budget::Budget,
    check::Checked,
    cost::{Cost, SizeEstimator},
    error::Eval,
    eval,
    functions::Host,
    plan::Node,
    types::Type,
    value::Value,
};

/// An expression that was read, checked and planned; it can be evaluated any number of times.
pub struct Program {
    checked: Checked,
    plan: Node,
    host: Arc<dyn Host>,
}

/// The values of variables.
#[derive(Debug, Clone, Default)]
pub struct Activation<'a> {
    variables: Vec<(&'a str, Eval<Value<'a>>)>,
    records: Vec<(&'a str, Rc<dyn Record<'a> + 'a>)>,
}

/// A variable whose fields are computed when they are looked at; see [`Env::record`](crate::Env::record).
pub trait Record<'a>: std::fmt::Debug {
    /// The value of a field; none if there is no such field.
    fn field(&self, name: &str) -> Option<Eval<Value<'a>>>;
}

impl<'a> Activation<'a> {
    pub fn new() -> Self {
        Activation::default()
    }

    pub fn with(mut self, name: &'a str, value: Value<'a>) -> Self {
        self.variables.push((name, Ok(value)));
        self
    }

    /// A variable whose data does not fit its schema fails where it is used.
    pub fn with_result(mut self, name: &'a str, value: Eval<Value<'a>>) -> Self {
        self.variables.push((name, value));
        self
    }

    pub fn with_record(mut self, name: &'a str, record: Rc<dyn Record<'a> + 'a>) -> Self {
        self.records.push((name, record));
        self
    }

    pub(crate) fn record(&self, name: &str) -> Option<&Rc<dyn Record<'a> + 'a>> {
        self.records.iter().find(|(variable, _)| *variable == name).map(|(_, record)| record)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Eval<Value<'a>>> {
        self.variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value)
    }
}

impl Program {
    pub(crate) fn new(checked: Checked, plan: Node, host: Arc<dyn Host>) -> Self {
        Program { checked, plan, host }
    }

    /// The type of every value the expression has.
    pub fn result_type(&self) -> &Type {
        self.checked.type_of(self.checked.parsed.root.id)
    }

    /// How many expressions stand in each other, at most: what evaluation takes of the stack.
    pub fn depth(&self) -> u32 {
        self.checked.parsed.root.depth()
    }

    /// Whether the expression refers to a variable.
    pub fn references(&self, variable: &str) -> bool {
        self.checked.references(variable)
    }

    /// What an evaluation costs at least and at most.
    pub fn estimate(&self, sizes: &dyn SizeEstimator) -> Cost {
        crate::cost::estimate(&self.checked, sizes)
    }

    /// Evaluates the expression until it has a value or the budget is spent.
    pub fn evaluate<'a>(&self, activation: &Activation<'a>, budget: &mut Budget) -> Eval<Value<'a>> {
        eval::evaluate(&self.plan, activation, &*self.host, budget)
    }
}

/// Programs are compiled once and evaluated by whoever has a request.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Program>();
};
