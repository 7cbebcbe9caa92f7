//! Macros: calls that are rewritten while they are read.

use std::sync::Arc;

use crate::{
    ast::{
        ACCUMULATOR, Call, Comprehension, Expr, ExprKind, Id, List, Literal, OLD_ACCUMULATOR, Select,
        operator,
    },
    parse::TreeBuilder,
};

/// Where a macro was misused, and how.
type Misuse = (Id, String);
type Expansion = Result<Expr, Misuse>;

/// The call, or what it stands for if it is one of a macro.
pub fn expand(
    tree: &mut TreeBuilder,
    id: Id,
    function: &str,
    target: Option<Expr>,
    args: Vec<Expr>,
) -> Result<Expr, Misuse> {
    let Some(expander) = find(function, target.is_some(), args.len()) else {
        let kind = ExprKind::Call(Box::new(Call { target, function: function.into(), args }));
        return Ok(Expr { id, kind });
    };
    let mut build = Build { tree, id };
    match target {
        Some(target) => expander(&mut build, target, args),
        None => has(&mut build, args),
    }
}

type Expander = fn(&mut Build, Expr, Vec<Expr>) -> Expansion;

fn find(function: &str, receiver: bool, args: usize) -> Option<Expander> {
    if !receiver {
        return (function == "has" && args == 1).then_some(|_, target, _| Ok(target));
    }
    Some(match (function, args) {
        ("all", 2 | 3) => |build, target, args| quantifier(build, Quantifier::All, target, args),
        ("exists", 2 | 3) => |build, target, args| quantifier(build, Quantifier::Exists, target, args),
        ("exists_one", 2 | 3) | ("existsOne", 3) => {
            |build, target, args| quantifier(build, Quantifier::ExistsOne, target, args)
        }
        ("map", 2 | 3) => map,
        ("filter", 2) => filter,
        ("transformList", 3 | 4) => transform_list,
        ("transformMap", 3 | 4) => transform_map,
        ("transformMapEntry", 3 | 4) => transform_map_entry,
        ("optMap", 2) => opt_map,
        ("optFlatMap", 2) => opt_flat_map,
        ("sortBy", 2) => sort_by,
        _ => return None,
    })
}

/// Makes expressions that stand where the macro was called.
struct Build<'a> {
    tree: &'a mut TreeBuilder,
    id: Id,
}

impl Build<'_> {
    fn expr(&mut self, kind: ExprKind) -> Expr {
        self.tree.beside(self.id, kind)
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        self.expr(ExprKind::Literal(literal))
    }

    fn ident(&mut self, name: &Arc<str>) -> Expr {
        self.expr(ExprKind::Ident(name.clone()))
    }

    fn accumulator(&mut self) -> Expr {
        self.expr(ExprKind::Ident(ACCUMULATOR.into()))
    }

    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        self.expr(ExprKind::List(List { elements, optional: Vec::new() }))
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.expr(ExprKind::Call(Box::new(Call { target: None, function: function.into(), args })))
    }

    fn member_call(&mut self, function: &str, target: Expr, args: Vec<Expr>) -> Expr {
        self.expr(ExprKind::Call(Box::new(Call { target: Some(target), function: function.into(), args })))
    }

    fn fold(&mut self, range: Expr, variables: Variables, parts: FoldParts) -> Expr {
        self.expr(ExprKind::Comprehension(Box::new(Comprehension {
            range,
            variable: variables.first,
            second: variables.second,
            accumulator: ACCUMULATOR.into(),
            init: parts.init,
            condition: parts.condition,
            step: parts.step,
            result: parts.result,
        })))
    }

    /// `name` bound to `value` in `body`, as a comprehension over nothing.
    fn bind(&mut self, name: &Arc<str>, value: Expr, body: Expr) -> Expr {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(name);
        self.expr(ExprKind::Comprehension(Box::new(Comprehension {
            range,
            variable: "#unused".into(),
            second: None,
            accumulator: name.clone(),
            init: value,
            condition,
            step,
            result: body,
        })))
    }

    /// `filter ? step : accumulator`, or just the step.
    fn filtered(&mut self, filter: Option<Expr>, step: Expr) -> Expr {
        match filter {
            None => step,
            Some(filter) => {
                let unchanged = self.accumulator();
                self.call(operator::CONDITIONAL, vec![filter, step, unchanged])
            }
        }
    }

    fn append(&mut self, element: Expr) -> Expr {
        let accumulator = self.accumulator();
        let list = self.list(vec![element]);
        self.call(operator::ADD, vec![accumulator, list])
    }
}

struct FoldParts {
    init: Expr,
    condition: Expr,
    step: Expr,
    result: Expr,
}

struct Variables {
    first: Arc<str>,
    second: Option<Arc<str>>,
}

fn has(build: &mut Build, args: Vec<Expr>) -> Expansion {
    match args.into_iter().next() {
        Some(Expr { kind: ExprKind::Select(select), .. }) => {
            Ok(build.expr(ExprKind::Select(Box::new(Select { test_only: true, ..*select }))))
        }
        other => Err((other.map_or(build.id, |arg| arg.id), "invalid argument to has() macro".into())),
    }
}

/// The name of an iteration variable.
fn variable(expr: &Expr, otherwise: &str) -> Result<Arc<str>, Misuse> {
    let ExprKind::Ident(name) = &expr.kind else {
        return Err((expr.id, otherwise.to_owned()));
    };
    Ok(name.clone())
}

fn not_accumulator(expr: &Expr, name: &str) -> Result<(), Misuse> {
    if name == ACCUMULATOR || name == OLD_ACCUMULATOR {
        return Err((expr.id, "iteration variable overwrites accumulator variable".into()));
    }
    Ok(())
}

fn one_variable(expr: &Expr, otherwise: &str) -> Result<Variables, Misuse> {
    let first = variable(expr, otherwise)?;
    not_accumulator(expr, &first)?;
    Ok(Variables { first, second: None })
}

fn two_variables(first: &Expr, second: &Expr) -> Result<Variables, Misuse> {
    const SIMPLE: &str = "argument must be a simple name";
    let first_name = variable(first, SIMPLE)?;
    let second_name = variable(second, SIMPLE)?;
    if first_name == second_name {
        return Err((second.id, format!("duplicate variable name: {first_name}")));
    }
    not_accumulator(first, &first_name)?;
    not_accumulator(second, &second_name)?;
    Ok(Variables { first: first_name, second: Some(second_name) })
}

/// The last expressions of the arguments: an optional filter and what is computed.
fn tail(args: Vec<Expr>, variables: usize) -> (Option<Expr>, Option<Expr>) {
    let mut rest = args.into_iter().skip(variables);
    let first = rest.next();
    match rest.next() {
        Some(second) => (first, Some(second)),
        None => (None, first),
    }
}

fn computed(build: &Build, args: Vec<Expr>, variables: usize) -> Result<(Option<Expr>, Expr), Misuse> {
    match tail(args, variables) {
        (filter, Some(expr)) => Ok((filter, expr)),
        _ => Err((build.id, "missing argument".into())),
    }
}

#[derive(Clone, Copy)]
enum Quantifier {
    All,
    Exists,
    ExistsOne,
}

fn quantifier(build: &mut Build, kind: Quantifier, target: Expr, args: Vec<Expr>) -> Expansion {
    let variables = match args.as_slice() {
        [first, second, _] => two_variables(first, second)?,
        [first, ..] => one_variable(first, "argument must be a simple name")?,
        [] => return Err((build.id, "missing argument".into())),
    };
    let count = if variables.second.is_some() { 2 } else { 1 };
    let (_, predicate) = computed(build, args, count)?;
    let parts = match kind {
        Quantifier::All => {
            let init = build.literal(Literal::Bool(true));
            let so_far = build.accumulator();
            let condition = build.call(operator::NOT_STRICTLY_FALSE, vec![so_far]);
            let so_far = build.accumulator();
            let step = build.call(operator::AND, vec![so_far, predicate]);
            FoldParts { init, condition, step, result: build.accumulator() }
        }
        Quantifier::Exists => {
            let init = build.literal(Literal::Bool(false));
            let so_far = build.accumulator();
            let negated = build.call(operator::NOT, vec![so_far]);
            let condition = build.call(operator::NOT_STRICTLY_FALSE, vec![negated]);
            let so_far = build.accumulator();
            let step = build.call(operator::OR, vec![so_far, predicate]);
            FoldParts { init, condition, step, result: build.accumulator() }
        }
        Quantifier::ExistsOne => {
            let init = build.literal(Literal::Int(0));
            let condition = build.literal(Literal::Bool(true));
            let so_far = build.accumulator();
            let one = build.literal(Literal::Int(1));
            let more = build.call(operator::ADD, vec![so_far, one]);
            let step = build.filtered(Some(predicate), more);
            let count = build.accumulator();
            let one = build.literal(Literal::Int(1));
            FoldParts { init, condition, step, result: build.call(operator::EQUALS, vec![count, one]) }
        }
    };
    Ok(build.fold(target, variables, parts))
}

fn list_fold(build: &mut Build, target: Expr, variables: Variables, step: Expr) -> Expr {
    let init = build.list(Vec::new());
    let condition = build.literal(Literal::Bool(true));
    let result = build.accumulator();
    build.fold(target, variables, FoldParts { init, condition, step, result })
}

fn map_fold(build: &mut Build, target: Expr, variables: Variables, step: Expr) -> Expr {
    let init = build.expr(ExprKind::Map(Vec::new()));
    let condition = build.literal(Literal::Bool(true));
    let result = build.accumulator();
    build.fold(target, variables, FoldParts { init, condition, step, result })
}

fn map(build: &mut Build, target: Expr, args: Vec<Expr>) -> Expansion {
    let Some(first) = args.first() else { return Err((build.id, "missing argument".into())) };
    let variables = one_variable(first, "argument is not an identifier")?;
    let (filter, element) = computed(build, args, 1)?;
    let step = build.append(element);
    let step = build.filtered(filter, step);
    Ok(list_fold(build, target, variables, step))
}

fn filter(build: &mut Build, target: Expr, args: Vec<Expr>) -> Expansion {
    let Some(first) = args.first() else { return Err((build.id, "missing argument".into())) };
    let variables = one_variable(first, "argument is not an identifier")?;
    let element = first.clone();
    let (_, predicate) = computed(build, args, 1)?;
    let step = build.append(element);
    let step = build.filtered(Some(predicate), step);
    Ok(list_fold(build, target, variables, step))
}

fn transform_variables(build: &Build, args: &[Expr]) -> Result<Variables, Misuse> {
    match args {
        [first, second, ..] => two_variables(first, second),
        _ => Err((build.id, "missing argument".into())),
    }
}

fn transform_list(build: &mut Build, target: Expr, args: Vec<Expr>) -> Expansion {
    let variables = transform_variables(build, &args)?;
    let (filter, element) = computed(build, args, 2)?;
    let step = build.append(element);
    let step = build.filtered(filter, step);
    Ok(list_fold(build, target, variables, step))
}

/// Puts an entry into the accumulated map.
pub const MAP_INSERT: &str = "cel.@mapInsert";

fn transform_map(build: &mut Build, target: Expr, args: Vec<Expr>) -> Expansion {
    let variables = transform_variables(build, &args)?;
    let (filter, value) = computed(build, args, 2)?;
    let so_far = build.accumulator();
    let key = build.ident(&variables.first);
    let step = build.call(MAP_INSERT, vec![so_far, key, value]);
    let step = build.filtered(filter, step);
    Ok(map_fold(build, target, variables, step))
}

fn transform_map_entry(build: &mut Build, target: Expr, args: Vec<Expr>) -> Expansion {
    let variables = transform_variables(build, &args)?;
    let (filter, entry) = computed(build, args, 2)?;
    let so_far = build.accumulator();
    let step = build.call(MAP_INSERT, vec![so_far, entry]);
    let step = build.filtered(filter, step);
    Ok(map_fold(build, target, variables, step))
}

fn opt_map(build: &mut Build, target: Expr, args: Vec<Expr>) -> Expansion {
    optional(build, target, args, "optMap", |build, bound| build.call("optional.of", vec![bound]))
}

fn opt_flat_map(build: &mut Build, target: Expr, args: Vec<Expr>) -> Expansion {
    optional(build, target, args, "optFlatMap", |_, bound| bound)
}

fn optional(
    build: &mut Build,
    target: Expr,
    args: Vec<Expr>,
    name: &str,
    wrap: fn(&mut Build, Expr) -> Expr,
) -> Expansion {
    let Some(first) = args.first() else { return Err((build.id, "missing argument".into())) };
    let bound = variable(first, &format!("{name}() variable name must be a simple identifier"))?;
    let (_, body) = computed(build, args, 1)?;
    let again = build.tree.copy(&target);
    let present = build.member_call("hasValue", target, Vec::new());
    let value = build.member_call("value", again, Vec::new());
    let computed = build.bind(&bound, value, body);
    let wrapped = wrap(build, computed);
    let none = build.call("optional.none", Vec::new());
    Ok(build.call(operator::CONDITIONAL, vec![present, wrapped, none]))
}

fn sort_by(build: &mut Build, target: Expr, args: Vec<Expr>) -> Expansion {
    if matches!(
        target.kind,
        ExprKind::Literal(_) | ExprKind::Map(_) | ExprKind::Struct(_) | ExprKind::Unspecified
    ) {
        let message =
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err((target.id, message.into()));
    }
    let input: Arc<str> = "@__sortBy_input__".into();
    let range = build.ident(&input);
    let keys = map(build, range, args)?;
    let list = build.ident(&input);
    let sorted = build.member_call("@sortByAssociatedKeys", list, vec![keys]);
    Ok(build.bind(&input, target, sorted))
}
