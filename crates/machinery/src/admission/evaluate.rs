//! Expressions of a policy, evaluated for one request.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use cel::{Activation, Eval, EvalError, Program, Record, Value};

use super::{
    allowance::Allowance,
    authorize::{self, Authorizer, ResourceCheck},
    compile::{self, Compiler, Refused, Role},
};
use crate::resource::Tree;

pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// An expression and its program.
pub struct Expression {
    pub text: String,
    program: Result<Program, Refused>,
    depth: u32,
}

impl Expression {
    pub fn compile(compiler: &Compiler, text: &str, role: Role) -> Self {
        Expression::of(text, compiler.compile(text, role))
    }

    pub fn compile_variable(compiler: &mut Compiler, name: &str, text: &str) -> Self {
        Expression::of(text, compiler.variable(name, text))
    }

    fn of(text: &str, program: Result<Program, Refused>) -> Self {
        let depth = program.as_ref().map_or(0, Program::depth);
        Expression { text: text.to_owned(), program, depth }
    }

    /// Why it cannot be evaluated.
    pub fn refused(&self) -> Option<&Refused> {
        self.program.as_ref().err()
    }
}

/// A variable of a policy.
pub struct Variable {
    pub name: String,
    pub expression: Expression,
}

/// What expressions are told about a request.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub object: Option<&'a Tree>,
    pub old: Option<&'a Tree>,
    /// The AdmissionRequest, without the objects.
    pub request: &'a Tree,
    pub params: Option<&'a Tree>,
    pub namespace: Option<&'a Tree>,
    /// Not all expressions may ask.
    pub authorizer: Option<(&'a Arc<dyn Authorizer>, &'a ResourceCheck)>,
}

/// The variables of one evaluation: all expressions that are evaluated together share the values of variables.
pub struct Scope<'a> {
    activation: Activation<'a>,
    variables: Rc<Variables<'a>>,
}

fn value_of(tree: Option<&Tree>) -> Value<'_> {
    tree.map_or(Value::Null, Value::from_untyped_tree)
}

impl<'a> Scope<'a> {
    pub fn new(inputs: &Inputs<'a>, variables: &'a [Variable], allowance: &Rc<Allowance<'a>>) -> Self {
        let mut base = Activation::new()
            .with(compile::OBJECT, value_of(inputs.object))
            .with(compile::OLD_OBJECT, value_of(inputs.old))
            .with(compile::REQUEST, value_of(Some(inputs.request)))
            .with(compile::PARAMS, value_of(inputs.params))
            .with(compile::NAMESPACE, value_of(inputs.namespace));
        if let Some((by, resource)) = inputs.authorizer {
            base = base
                .with(compile::AUTHORIZER, authorize::authorizer(by))
                .with(compile::REQUEST_RESOURCE, authorize::request_resource(by, resource.clone()));
        }
        let variables = Rc::new(Variables {
            variables,
            base,
            values: RefCell::new(vec![Slot::Unknown; variables.len()]),
            allowance: allowance.clone(),
            depth: Cell::new(0),
        });
        let activation = variables.activation();
        Scope { activation, variables }
    }

    /// The value of an expression, or why it has none. `Err`: nothing more may be evaluated, for the budget is spent.
    pub fn evaluate(&self, expression: &Expression) -> Result<Result<Value<'a>, String>, String> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(refused) => return Ok(Err(format!("compilation error: {}", refused.message()))),
        };
        let allowance = &self.variables.allowance;
        let mut budget = allowance.budget();
        let outcome = program.evaluate(&self.activation, &mut budget);
        allowance.charge(&budget);
        if allowance.is_overdrawn() {
            return Err(OUT_OF_BUDGET.to_owned());
        }
        let text = &expression.text;
        Ok(outcome.map_err(|error| format!("expression '{text}' resulted in error: {error}")))
    }
}

#[derive(Clone, Debug)]
enum Slot<'a> {
    Unknown,
    /// Being evaluated: whoever asks for it now would wait for ever.
    Busy,
    Known(Eval<Value<'a>>),
}

/// Values of variables, computed when they are first looked at.
struct Variables<'a> {
    variables: &'a [Variable],
    base: Activation<'a>,
    values: RefCell<Vec<Slot<'a>>>,
    allowance: Rc<Allowance<'a>>,
    depth: Cell<u32>,
}

/// Variables are evaluated within what refers to them: so deep may expressions stand in each other all in all, for the
/// sake of the stack. One expression alone can be nearly as deep.
const MAX_DEPTH: u32 = 400;

impl std::fmt::Debug for Variables<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Variables").field("number", &self.variables.len()).finish_non_exhaustive()
    }
}

impl<'a> Variables<'a> {
    fn activation(self: &Rc<Self>) -> Activation<'a> {
        self.base.clone().with_record(compile::VARIABLES, Rc::new(Fields(self.clone())))
    }

    fn compute(self: &Rc<Self>, variable: &Variable) -> Eval<Value<'a>> {
        let name = &variable.name;
        let program = match &variable.expression.program {
            Ok(program) => program,
            Err(refused) => {
                let why = refused.message();
                return Err(EvalError::invalid(format!(
                    "composited variable {name:?} fails to compile: {why}"
                )));
            }
        };
        let mut budget = self.allowance.budget();
        let outcome = program.evaluate(&self.activation(), &mut budget);
        self.allowance.charge(&budget);
        outcome.map_err(|error| {
            EvalError::invalid(format!("composited variable {name:?} fails to evaluate: {error}"))
        })
    }
}

#[derive(Debug)]
struct Fields<'a>(Rc<Variables<'a>>);

impl<'a> Record<'a> for Fields<'a> {
    fn field(&self, name: &str) -> Option<Eval<Value<'a>>> {
        let all = &self.0;
        // Of two variables with one name the later one counts.
        let at = all.variables.iter().rposition(|variable| variable.name == name)?;
        let variable = all.variables.get(at)?;
        let set = |slot: Slot<'a>| {
            if let Some(place) = all.values.borrow_mut().get_mut(at) {
                *place = slot;
            }
        };
        match all.values.borrow().get(at)? {
            Slot::Known(value) => return Some(value.clone()),
            Slot::Busy => {
                let message = format!("composited variable {name:?} fails to evaluate: it refers to itself");
                return Some(Err(EvalError::invalid(message)));
            }
            Slot::Unknown => {}
        }
        let before = all.depth.get();
        // Some room is taken however plain the expression is.
        let depth = before + variable.expression.depth + 4;
        if before > 0 && depth > MAX_DEPTH {
            let message =
                format!("composited variable {name:?} fails to evaluate: too many stand on each other");
            return Some(Err(EvalError::invalid(message)));
        }
        set(Slot::Busy);
        all.depth.set(depth);
        let value = all.compute(variable);
        all.depth.set(before);
        set(Slot::Known(value.clone()));
        Some(value)
    }
}
