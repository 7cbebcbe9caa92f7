//! Types of expressions: names and overloads are resolved, and what does not fit is reported.

use std::{collections::HashMap, sync::Arc};

use crate::{
    ast::{Call, Comprehension, Expr, ExprKind, Id, List, Literal, MapEntry, Select, Struct, operator},
    env::Env,
    functions::Function,
    parse::Parsed,
    source::Issues,
    types::Type,
    unify::{Substitution, instantiate},
};

/// What a name in an expression refers to.
#[derive(Debug, Clone)]
pub enum Reference {
    /// A variable, or the name of a type.
    Name(Arc<str>),
    /// The overloads that fit; several where types are known only at evaluation.
    Overloads(Vec<Arc<str>>),
}

/// An expression with its types.
#[derive(Debug)]
pub struct Checked {
    pub parsed: Parsed,
    types: Vec<Option<Type>>,
    references: HashMap<Id, Reference>,
}

impl Checked {
    pub fn type_of(&self, id: Id) -> &Type {
        self.types.get(id as usize).and_then(Option::as_ref).unwrap_or(&Type::Dyn)
    }

    pub fn reference(&self, id: Id) -> Option<&Reference> {
        self.references.get(&id)
    }

    pub fn overloads(&self, id: Id) -> &[Arc<str>] {
        match self.references.get(&id) {
            Some(Reference::Overloads(ids)) => ids,
            _ => &[],
        }
    }

    /// The type of every value the expression has.
    pub fn result_type(&self) -> &Type {
        self.type_of(self.parsed.root.id)
    }

    /// Whether the expression refers to a variable.
    pub fn references(&self, name: &str) -> bool {
        self.references
            .values()
            .any(|reference| matches!(reference, Reference::Name(found) if &**found == name))
    }
}

pub fn check(env: &Env, mut parsed: Parsed) -> Result<Checked, Issues> {
    let mut root = std::mem::replace(&mut parsed.root, Expr { id: 0, kind: ExprKind::Unspecified });
    let mut checker = Checker {
        env,
        parsed: &parsed,
        issues: Issues::default(),
        types: Vec::new(),
        references: HashMap::new(),
        substitution: Substitution::default(),
        scopes: Vec::new(),
    };
    checker.check(&mut root);
    let Checker { mut issues, types, references, mut substitution, .. } = checker;
    let types =
        types.into_iter().map(|of: Option<Type>| of.map(|of| substitution.resolve(&of, true))).collect();
    if substitution.exhausted() {
        issues.report(&parsed.source, crate::source::Location::NONE, "expression is too complex to check");
    }
    if !issues.is_empty() {
        return Err(issues);
    }
    parsed.root = root;
    Ok(Checked { parsed, types, references })
}

struct Checker<'a> {
    env: &'a Env,
    parsed: &'a Parsed,
    issues: Issues,
    types: Vec<Option<Type>>,
    references: HashMap<Id, Reference>,
    substitution: Substitution,
    /// The variables of comprehensions around, innermost last.
    scopes: Vec<(Arc<str>, Type)>,
}

impl Checker<'_> {
    fn report(&mut self, id: Id, message: String) {
        let location = self.parsed.location(id);
        self.issues.report(&self.parsed.source, location, message);
    }

    fn set(&mut self, id: Id, of: Type) {
        let index = id as usize;
        if self.types.len() <= index {
            self.types.resize(index + 1, None);
        }
        self.types[index] = Some(of);
    }

    fn type_of(&self, expr: &Expr) -> Type {
        self.types.get(expr.id as usize).cloned().flatten().unwrap_or(Type::Error)
    }

    fn undeclared(&mut self, id: Id, name: &str) {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
        self.set(id, Type::Error);
    }

    fn mismatch(&mut self, id: Id, expected: &Type, found: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
    }

    /// The type a name has, if it has one.
    fn lookup(&self, name: &str) -> Option<(Arc<str>, Type)> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some((name, of)) = self.scopes.iter().rev().find(|(local, _)| &**local == name) {
            return Some((name.clone(), of.clone()));
        }
        self.env.lookup(name).map(|of| (name.into(), of))
    }

    fn check(&mut self, expr: &mut Expr) {
        if self.substitution.exhausted() {
            return;
        }
        let id = expr.id;
        match &mut expr.kind {
            ExprKind::Unspecified => self.set(id, Type::Error),
            ExprKind::Literal(literal) => {
                let of = literal_type(literal);
                self.set(id, of);
            }
            ExprKind::Ident(name) => {
                let name = name.clone();
                self.check_ident(expr, &name);
            }
            ExprKind::Select(_) => self.check_select(expr),
            ExprKind::Call(_) => self.check_call(expr),
            ExprKind::List(list) => self.check_list(id, list),
            ExprKind::Map(entries) => self.check_map(id, entries),
            ExprKind::Struct(object) => self.check_struct(id, object),
            ExprKind::Comprehension(fold) => self.check_comprehension(id, fold),
        }
    }

    fn check_ident(&mut self, expr: &mut Expr, name: &str) {
        match self.lookup(name) {
            Some((name, of)) => self.resolved(expr, name, of),
            None => self.undeclared(expr.id, name),
        }
    }

    fn resolved(&mut self, expr: &mut Expr, name: Arc<str>, of: Type) {
        self.set(expr.id, of);
        self.references.insert(expr.id, Reference::Name(name.clone()));
        expr.kind = ExprKind::Ident(name);
    }

    fn check_select(&mut self, expr: &mut Expr) {
        if let Some(name) = expr.qualified_name()
            && let Some((name, of)) = self.lookup(&name)
        {
            return self.resolved(expr, name, of);
        }
        let id = expr.id;
        let ExprKind::Select(select) = &mut expr.kind else { return };
        let Select { operand, field, test_only } = &mut **select;
        let of = self.select_field(id, operand, field, false);
        let of = if *test_only { Type::Bool } else { of };
        let of = self.substitution.resolve(&of, false);
        self.set(id, of);
    }

    /// The type of a field of the operand.
    fn select_field(&mut self, id: Id, operand: &mut Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand_type = self.type_of(operand);
        let operand_type = self.substitution.resolve(&operand_type, false);
        let (target, is_optional) = match operand_type.unwrap_optional() {
            Some(inner) => (inner.clone(), true),
            None => (operand_type, false),
        };
        let of = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(name) => self.field_type(id, name, field).unwrap_or(Type::Error),
            Type::Param(_) => {
                self.substitution.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            other if other.is_dyn_or_error() => Type::Dyn,
            other => {
                self.report(id, format!("type '{other}' does not support field selection"));
                Type::Dyn
            }
        };
        if is_optional || optional { Type::optional(of) } else { of }
    }

    fn field_type(&mut self, id: Id, object: &str, field: &str) -> Option<Type> {
        let Ok(of) = self.env.field_type(object, field) else {
            self.report(id, format!("unexpected failed resolution of '{object}'"));
            return None;
        };
        if of.is_none() {
            self.report(id, format!("undefined field '{field}'"));
        }
        of
    }

    fn check_call(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let ExprKind::Call(call) = &mut expr.kind else { return };
        if &*call.function == operator::OPT_SELECT {
            return self.check_optional_select(id, call);
        }
        for arg in &mut call.args {
            self.check(arg);
        }
        let name = call.function.clone();
        let Some(target) = &mut call.target else {
            let plain = name.strip_prefix('.').unwrap_or(&name);
            return match self.env.function(plain).cloned() {
                Some(function) => {
                    call.function = function.name.clone();
                    self.resolve_overload(id, &function, call);
                }
                None => self.undeclared(id, &name),
            };
        };
        // A function whose name has dots looks like a member function.
        if let Some(prefix) = target.qualified_name()
            && let Some(function) =
                self.env.function(&format!("{}.{name}", prefix.trim_start_matches('.'))).cloned()
        {
            call.target = None;
            call.function = function.name.clone();
            return self.resolve_overload(id, &function, call);
        }
        self.check(target);
        match self.env.function(&name).cloned() {
            Some(function) => self.resolve_overload(id, &function, call),
            None => self.undeclared(id, &name),
        }
    }

    fn check_optional_select(&mut self, id: Id, call: &mut Call) {
        let [operand, field] = call.args.as_mut_slice() else {
            return self.set(id, Type::Error);
        };
        let ExprKind::Literal(Literal::String(name)) = &field.kind else {
            return self.set(id, Type::Error);
        };
        let name = name.clone();
        let of = self.select_field(id, operand, &name, true);
        let of = self.substitution.resolve(&of, false);
        self.set(field.id, Type::String);
        self.set(id, of);
        self.references.insert(id, Reference::Overloads(vec!["select_optional_field".into()]));
    }

    fn resolve_overload(&mut self, id: Id, function: &Function, call: &Call) {
        let operands: Vec<&Expr> = call.target.iter().chain(&call.args).collect();
        let mut types: Vec<Type> = operands.iter().map(|operand| self.type_of(operand)).collect();
        if matches!(&*function.name, operator::AND | operator::OR) {
            return self.resolve_logic(id, function, &operands, &types);
        }
        let mut found: Option<Type> = None;
        let mut ids = Vec::new();
        for overload in &function.overloads {
            if overload.member != call.target.is_some() || overload.args.len() != types.len() {
                continue;
            }
            let declared: Vec<&Type> = overload.args.iter().chain([&overload.result]).collect();
            let mut declared = instantiate(&mut self.substitution, &overload.parameters, &declared);
            let result = declared.pop().unwrap_or(Type::Error);
            if !self.substitution.assignable_all(&types, &declared) {
                continue;
            }
            ids.push(overload.id.clone());
            let result = self.substitution.resolve(&result, false);
            found = Some(match found {
                None => result,
                Some(before) if before.is_dyn() || before == result => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(of) = found else {
            for of in &mut types {
                *of = self.substitution.resolve(of, true);
            }
            let signature = signature(&types, call.target.is_some());
            let name = &function.name;
            self.report(id, format!("found no matching overload for '{name}' applied to '{signature}'"));
            return self.set(id, Type::Error);
        };
        self.set(id, of);
        self.references.insert(id, Reference::Overloads(ids));
    }

    fn resolve_logic(&mut self, id: Id, function: &Function, operands: &[&Expr], types: &[Type]) {
        let mut failed = false;
        for (operand, of) in operands.iter().zip(types) {
            if !self.substitution.assignable(of, &Type::Bool) {
                self.mismatch(operand.id, &Type::Bool, of);
                failed = true;
            }
        }
        if failed {
            return self.set(id, Type::Error);
        }
        self.set(id, Type::Bool);
        let ids = function.overloads.iter().map(|overload| overload.id.clone()).collect();
        self.references.insert(id, Reference::Overloads(ids));
    }

    /// The type of an element that may be written `?element`.
    fn element_type(&mut self, expr: &Expr, optional: bool) -> Type {
        let of = self.type_of(expr);
        if !optional {
            return of;
        }
        if let Some(inner) = of.unwrap_optional() {
            return inner.clone();
        }
        if !of.is_dyn() {
            self.mismatch(expr.id, &Type::optional(of.clone()), &of);
        }
        of
    }

    fn check_list(&mut self, id: Id, list: &mut List) {
        let mut joined: Option<Type> = None;
        for (index, element) in list.elements.iter_mut().enumerate() {
            self.check(element);
            let of = self.element_type(element, list.optional.contains(&index));
            joined = Some(self.join(joined, of));
        }
        let of = joined.unwrap_or_else(|| self.substitution.new_variable());
        self.set(id, Type::list(of));
    }

    fn check_map(&mut self, id: Id, entries: &mut [MapEntry]) {
        let (mut keys, mut values): (Option<Type>, Option<Type>) = (None, None);
        for entry in entries {
            self.check(&mut entry.key);
            let of = self.type_of(&entry.key);
            keys = Some(self.join(keys, of));
            self.check(&mut entry.value);
            let of = self.element_type(&entry.value, entry.optional);
            values = Some(self.join(values, of));
        }
        let keys = keys.unwrap_or_else(|| self.substitution.new_variable());
        let values = values.unwrap_or_else(|| self.substitution.new_variable());
        self.set(id, Type::map(keys, values));
    }

    /// The one type elements have, or `dyn`; that a literal's are of one type is checked later.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else { return current };
        if self.substitution.assignable(&previous, &current) {
            return self.substitution.most_general(&previous, &current);
        }
        Type::Dyn
    }

    fn check_struct(&mut self, id: Id, object: &mut Struct) {
        let Some((name, of)) = self.lookup(&object.name) else {
            let name = object.name.clone();
            return self.undeclared(id, &name);
        };
        object.name = name.clone();
        self.references.insert(id, Reference::Name(name));
        let declared = match of {
            Type::Error => Type::Error,
            Type::Type(Some(inner)) if matches!(*inner, Type::Object(_)) => (*inner).clone(),
            Type::Type(inner) => {
                let inner = inner.map_or_else(|| Type::Type(None), |inner| (*inner).clone());
                self.report(id, format!("'{}' is not a message type", inner.name()));
                Type::Error
            }
            other => {
                self.report(id, format!("'{}' is not a type", other.name()));
                Type::Error
            }
        };
        self.set(id, declared.clone());
        for field in &mut object.fields {
            self.check(&mut field.value);
            let expected = match &declared {
                Type::Object(name) => self.field_type(field.id, name, &field.name).unwrap_or(Type::Error),
                _ => Type::Error,
            };
            let found = self.element_type(&field.value, field.optional);
            if !self.substitution.assignable(&expected, &found) {
                let name = &field.name;
                let message =
                    format!("expected type of field '{name}' is '{expected}' but provided type is '{found}'");
                self.report(field.id, message);
            }
        }
    }

    fn check_comprehension(&mut self, id: Id, fold: &mut Comprehension) {
        self.check(&mut fold.range);
        self.check(&mut fold.init);
        let range = self.type_of(&fold.range);
        let range = self.substitution.resolve(&range, false);
        let accumulated = self.type_of(&fold.init);
        let two = fold.second.is_some();
        let (first, second) = match &range {
            Type::List(element) if two => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Error),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Any | Type::Error | Type::Param(_) => {
                self.substitution.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(fold.range.id, message);
                (Type::Error, Type::Error)
            }
        };
        let mark = self.scopes.len();
        self.scopes.push((fold.accumulator.clone(), accumulated.clone()));
        self.scopes.push((fold.variable.clone(), first));
        if let Some(name) = &fold.second {
            self.scopes.push((name.clone(), second));
        }
        self.check(&mut fold.condition);
        self.expect(&fold.condition, &Type::Bool);
        self.check(&mut fold.step);
        self.expect(&fold.step, &accumulated);
        self.scopes.truncate(mark + 1);
        self.check(&mut fold.result);
        self.scopes.truncate(mark);
        let of = self.type_of(&fold.result);
        let of = self.substitution.resolve(&of, false);
        self.set(id, of);
    }

    fn expect(&mut self, expr: &Expr, expected: &Type) {
        let found = self.type_of(expr);
        if !self.substitution.assignable(expected, &found) {
            self.mismatch(expr.id, expected, &found);
        }
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

fn signature(types: &[Type], member: bool) -> String {
    let (target, args) = match types.split_first() {
        Some((target, args)) if member => (format!("{target}."), args),
        _ => (String::new(), types),
    };
    let args: Vec<String> = args.iter().map(Type::to_string).collect();
    format!("{target}({})", args.join(", "))
}
