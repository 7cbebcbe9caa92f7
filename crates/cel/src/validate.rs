//! What is wrong with well-typed expressions: constants that can have no value, formats that do not fit their
//! arguments, literals of mixed types.

use crate::{
    ast::{Call, Expr, ExprKind, Id, Literal},
    budget::Budget,
    check::Checked,
    env::Env,
    error::EvalError,
    functions::Context,
    library::{self, Clause, Verb},
    source::Issues,
    types::Type,
    value::Value,
};

pub fn validate(env: &Env, checked: &Checked) -> Result<(), Issues> {
    let mut validator = Validator { env, checked, issues: Issues::default() };
    let root = &checked.parsed.root;
    for name in ["duration", "timestamp", "matches"] {
        walk(root, &mut |expr, _| validator.literal_argument(name, expr));
    }
    walk(root, &mut |expr, in_format| {
        if let ExprKind::List(_) = expr.kind
            && !in_format
        {
            validator.homogeneous_list(expr);
        }
    });
    walk(root, &mut |expr, in_format| {
        if let ExprKind::Map(_) = expr.kind
            && !in_format
        {
            validator.homogeneous_map(expr);
        }
    });
    walk(root, &mut |expr, _| validator.format(expr));
    if validator.issues.is_empty() { Ok(()) } else { Err(validator.issues) }
}

/// Visits every expression, with whether it is part of a call of `format`.
fn walk(root: &Expr, visit: &mut impl FnMut(&Expr, bool)) {
    fn go(expr: &Expr, in_format: bool, visit: &mut impl FnMut(&Expr, bool)) {
        visit(expr, in_format);
        match &expr.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select(select) => go(&select.operand, in_format, visit),
            ExprKind::Call(call) => {
                let in_format = in_format || &*call.function == "format";
                call.target.iter().chain(&call.args).for_each(|arg| go(arg, in_format, visit));
            }
            ExprKind::List(list) => list.elements.iter().for_each(|element| go(element, in_format, visit)),
            ExprKind::Map(entries) => entries.iter().for_each(|entry| {
                go(&entry.key, in_format, visit);
                go(&entry.value, in_format, visit);
            }),
            ExprKind::Struct(object) => {
                object.fields.iter().for_each(|field| go(&field.value, in_format, visit))
            }
            ExprKind::Comprehension(fold) => {
                let parts = [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result];
                parts.into_iter().for_each(|part| go(part, in_format, visit));
            }
        }
    }
    go(root, false, visit);
}

struct Validator<'a> {
    env: &'a Env,
    checked: &'a Checked,
    issues: Issues,
}

impl Validator<'_> {
    fn report(&mut self, id: Id, message: String) {
        let location = self.checked.parsed.location(id);
        self.issues.report(&self.checked.parsed.source, location, message);
    }

    /// The first argument of a conversion or of `matches`, where it is a literal.
    fn literal_argument(&mut self, name: &str, expr: &Expr) {
        let ExprKind::Call(call) = &expr.kind else { return };
        if &*call.function != name {
            return;
        }
        let Some(Expr { id, kind: ExprKind::Literal(literal) }) = call.args.first() else { return };
        let valid = match (name, literal) {
            ("matches", Literal::String(pattern)) => library::compile_regex(pattern).is_ok(),
            ("matches", _) => true,
            _ => self.converts(name, literal),
        };
        if !valid {
            self.report(*id, format!("invalid {name} argument"));
        }
    }

    fn converts(&self, name: &str, literal: &Literal) -> bool {
        let Some(function) = self.env.function(name) else { return false };
        let mut context = Context { budget: &mut Budget::new(u64::MAX), host: self.env.host() };
        function.dispatch(&mut context, &[Value::from(literal)]).is_ok()
    }

    fn homogeneous_list(&mut self, expr: &Expr) {
        let ExprKind::List(list) = &expr.kind else { return };
        let mut expected: Option<Type> = None;
        for (index, element) in list.elements.iter().enumerate() {
            let of = self.element_type(element, list.optional.contains(&index));
            match &expected {
                None => expected = Some(of),
                Some(expected) if expected.is_equivalent(&of) => {}
                Some(expected) => {
                    let message = format!("expected type '{expected}' but found '{of}'");
                    return self.report(element.id, message);
                }
            }
        }
    }

    fn homogeneous_map(&mut self, expr: &Expr) {
        let ExprKind::Map(entries) = &expr.kind else { return };
        let mut expected: Option<(Type, Type)> = None;
        for entry in entries {
            let key = self.element_type(&entry.key, false);
            let value = self.element_type(&entry.value, entry.optional);
            let Some((keys, values)) = &expected else {
                expected = Some((key, value));
                continue;
            };
            let key_fits = keys.is_equivalent(&key);
            let value_fits = values.is_equivalent(&value);
            let (keys, values) = (keys.to_string(), values.to_string());
            if !key_fits {
                self.report(entry.key.id, format!("expected type '{keys}' but found '{key}'"));
            }
            if !value_fits {
                self.report(entry.value.id, format!("expected type '{values}' but found '{value}'"));
            }
        }
    }

    fn element_type(&self, expr: &Expr, optional: bool) -> Type {
        let of = self.checked.type_of(expr.id);
        match of.unwrap_optional() {
            Some(inner) if optional => inner.clone(),
            _ => of.clone(),
        }
    }

    /// `"literal".format([…])`: every clause must fit its argument, and every argument have a clause.
    fn format(&mut self, expr: &Expr) {
        let ExprKind::Call(call) = &expr.kind else { return };
        let Call { target: Some(target), function, args } = &**call else { return };
        let (ExprKind::Literal(Literal::String(format)), [Expr { kind: ExprKind::List(list), .. }]) =
            (&target.kind, args.as_slice())
        else {
            return;
        };
        if &**function != "format" {
            return;
        }
        let mut seen = 0;
        let mut at = expr.id;
        let outcome = library::clauses(
            format,
            None,
            |_| Ok(()),
            |index, clause| {
                seen = index + 1;
                let Some(arg) = list.elements.get(index) else {
                    return Err(EvalError::invalid(format!("index {index} out of range")));
                };
                match self.misfit(&clause, arg) {
                    None => Ok(()),
                    Some(id) => {
                        at = id;
                        let name = self.checked.type_of(id).name();
                        Err(EvalError::invalid(clause.complaint(name)))
                    }
                }
            },
        );
        match outcome {
            Err(error) => self.report(at, error.message().to_owned()),
            Ok(()) if list.elements.len() > seen => {
                let given = list.elements.len();
                let message =
                    format!("too many arguments supplied to string.format (expected {seen}, got {given})");
                self.report(expr.id, message);
            }
            Ok(()) => {}
        }
    }

    /// The expression whose type the clause cannot write.
    fn misfit(&self, clause: &Clause, arg: &Expr) -> Option<Id> {
        let of = self.checked.type_of(arg.id).inner();
        let fits = match (clause.verb, of) {
            (_, Type::Dyn) => true,
            (Verb::String, of) => !matches!(of, Type::Opaque(..) | Type::Object(_) | Type::Error | Type::Any),
            (Verb::Decimal | Verb::Octal, of) => matches!(of, Type::Int | Type::Uint),
            (Verb::Fixed | Verb::Scientific, of) => matches!(of, Type::Double | Type::String),
            (Verb::Binary, of) => matches!(of, Type::Int | Type::Uint | Type::Bool),
            (Verb::Hex { .. }, of) => matches!(of, Type::Int | Type::Uint | Type::String | Type::Bytes),
        };
        if !fits {
            return Some(arg.id);
        }
        if clause.verb != Verb::String {
            return None;
        }
        match &arg.kind {
            ExprKind::List(list) => list.elements.iter().find_map(|element| self.misfit(clause, element)),
            ExprKind::Map(entries) => entries.iter().find_map(|entry| {
                self.misfit(clause, &entry.key).or_else(|| self.misfit(clause, &entry.value))
            }),
            _ => None,
        }
    }
}
