//! Which types fit which, and what type variables stand for.

use std::{collections::HashMap, sync::Arc};

use crate::types::Type;

/// Types share their parts, so that walking one can take exponentially many steps. An expression that needs more than
/// this many is refused; none that is meant for people comes near.
const MAX_STEPS: u64 = 5_000_000;

/// What type variables stand for, with a log so that a failed attempt can be taken back.
#[derive(Default)]
pub struct Substitution {
    bound: HashMap<Arc<str>, Type>,
    log: Vec<(Arc<str>, Option<Type>)>,
    variables: u32,
    steps: u64,
}

impl Substitution {
    pub fn new_variable(&mut self) -> Type {
        let name = format!("_var{}", self.variables);
        self.variables += 1;
        Type::Param(name.into())
    }

    /// Whether checking has taken more work than any sensible expression needs.
    pub fn exhausted(&self) -> bool {
        self.steps > MAX_STEPS
    }

    fn step(&mut self) -> bool {
        self.steps += 1;
        !self.exhausted()
    }

    fn bind(&mut self, variable: &Arc<str>, to: Type) {
        let before = self.bound.insert(variable.clone(), to);
        self.log.push((variable.clone(), before));
    }

    /// Whether a value of one type can be used as the other; on success variables are bound.
    pub fn assignable(&mut self, to: &Type, from: &Type) -> bool {
        self.attempt(|substitution| substitution.fits(to, from))
    }

    pub fn assignable_all(&mut self, to: &[Type], from: &[Type]) -> bool {
        self.attempt(|substitution| substitution.fit_all(to, from))
    }

    fn attempt(&mut self, attempt: impl FnOnce(&mut Self) -> bool) -> bool {
        let mark = self.log.len();
        if attempt(self) {
            self.log.truncate(mark);
            return true;
        }
        for (variable, before) in self.log.drain(mark..).rev() {
            match before {
                Some(before) => self.bound.insert(variable, before),
                None => self.bound.remove(&variable),
            };
        }
        false
    }

    fn fit_all(&mut self, to: &[Type], from: &[Type]) -> bool {
        to.len() == from.len() && to.iter().zip(from).all(|(to, from)| self.fits(to, from))
    }

    fn fits(&mut self, to: &Type, from: &Type) -> bool {
        if !self.step() {
            return false;
        }
        if let Type::Param(variable) = from {
            match self.substitutes(to, variable) {
                Fit::Yes => return true,
                Fit::BoundToOther => return false,
                Fit::Cyclic => {}
            }
        }
        if let Type::Param(variable) = to {
            return matches!(self.substitutes(from, variable), Fit::Yes);
        }
        if to.is_dyn_or_error() || from.is_dyn_or_error() {
            return true;
        }
        match (to, from) {
            (Type::Null, other) | (other, Type::Null) => accepts_null(other),
            (Type::Type(_), other) => matches!(other, Type::Type(_)),
            (Type::List(a), Type::List(b)) => self.fits(a, b),
            (Type::Map(a, b), Type::Map(c, d)) => self.fits(a, c) && self.fits(b, d),
            (Type::Opaque(a, left), Type::Opaque(b, right)) => a == b && self.fit_all(left, right),
            (a, Type::Nullable(b)) => a.inner() == b.inner(),
            (Type::Nullable(_), _) => false,
            (a, b) => a == b,
        }
    }

    /// Whether the variable may stand for the type, and does from now on.
    fn substitutes(&mut self, of: &Type, variable: &Arc<str>) -> Fit {
        if matches!(of, Type::Param(name) if name == variable) {
            return Fit::Yes;
        }
        if let Some(bound) = self.bound.get(variable).cloned() {
            if self.equal(of, &bound) {
                return Fit::Yes;
            }
            if !self.fits(of, &bound) {
                return Fit::BoundToOther;
            }
            let general = self.most_general(of, &bound);
            if self.not_within(variable, &general) {
                self.bind(variable, general);
            }
            return Fit::Yes;
        }
        if self.not_within(variable, of) {
            self.bind(variable, of.clone());
            return Fit::Yes;
        }
        Fit::Cyclic
    }

    fn equal(&mut self, a: &Type, b: &Type) -> bool {
        if !self.step() {
            return false;
        }
        match (a, b) {
            (Type::List(a), Type::List(b)) => Arc::ptr_eq(a, b) || self.equal(a, b),
            (Type::Map(a, b), Type::Map(c, d)) => self.equal(a, c) && self.equal(b, d),
            (a, b) => a.inner() == b.inner(),
        }
    }

    fn not_within(&mut self, variable: &Arc<str>, of: &Type) -> bool {
        if !self.step() {
            return false;
        }
        match of {
            Type::Param(name) if name == variable => false,
            Type::Param(name) => match self.bound.get(name).cloned() {
                Some(bound) => self.not_within(variable, &bound),
                None => true,
            },
            Type::List(inner) | Type::Type(Some(inner)) => self.not_within(variable, inner),
            Type::Map(key, value) => self.not_within(variable, key) && self.not_within(variable, value),
            Type::Opaque(_, parameters) => parameters.iter().all(|inner| self.not_within(variable, inner)),
            _ => true,
        }
    }

    /// The type that fits more values.
    pub fn most_general(&mut self, a: &Type, b: &Type) -> Type {
        if self.less_specific(a, b) { a.clone() } else { b.clone() }
    }

    fn less_specific(&mut self, a: &Type, b: &Type) -> bool {
        if !self.step() || a.is_dyn() || matches!(a, Type::Param(_)) {
            return true;
        }
        if b.is_dyn() || matches!(b, Type::Param(_)) {
            return false;
        }
        match (a, b) {
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) => self.less_specific(a, b),
            (Type::Map(a, b), Type::Map(c, d)) => self.less_specific(a, c) && self.less_specific(b, d),
            (Type::Opaque(a, left), Type::Opaque(b, right)) => {
                a == b
                    && left.len() == right.len()
                    && left.iter().zip(right.iter()).all(|(left, right)| self.less_specific(left, right))
            }
            (a, b) => a.inner() == b.inner(),
        }
    }

    /// The type with its variables replaced; those that stand for nothing become `dyn` if so wished.
    pub fn resolve(&mut self, of: &Type, free_to_dyn: bool) -> Type {
        if !self.step() {
            return Type::Dyn;
        }
        match of {
            Type::Param(name) => match self.bound.get(name).cloned() {
                Some(bound) => self.resolve(&bound, free_to_dyn),
                None if free_to_dyn => Type::Dyn,
                None => of.clone(),
            },
            Type::List(element) => Type::list(self.resolve(element, free_to_dyn)),
            Type::Map(key, value) => {
                Type::map(self.resolve(key, free_to_dyn), self.resolve(value, free_to_dyn))
            }
            Type::Type(Some(inner)) => self.resolve(inner, free_to_dyn).of(),
            Type::Opaque(name, parameters) => {
                let parameters: Vec<Type> =
                    parameters.iter().map(|inner| self.resolve(inner, free_to_dyn)).collect();
                Type::Opaque(name.clone(), parameters.into())
            }
            other => other.clone(),
        }
    }
}

enum Fit {
    Yes,
    /// The variable stands for a type that does not fit.
    BoundToOther,
    /// The variable is part of the type.
    Cyclic,
}

fn accepts_null(of: &Type) -> bool {
    matches!(
        of,
        Type::Null
            | Type::Opaque(..)
            | Type::Object(_)
            | Type::Duration
            | Type::Timestamp
            | Type::Nullable(_)
    )
}

/// The declaration of a function with fresh variables for its parameters.
pub fn instantiate(substitution: &mut Substitution, parameters: &[Arc<str>], types: &[&Type]) -> Vec<Type> {
    let fresh: HashMap<Arc<str>, Type> =
        parameters.iter().map(|name| (name.clone(), substitution.new_variable())).collect();
    types.iter().map(|of| replace(of, &fresh)).collect()
}

fn replace(of: &Type, fresh: &HashMap<Arc<str>, Type>) -> Type {
    match of {
        Type::Param(name) => fresh.get(name).unwrap_or(of).clone(),
        Type::List(element) => Type::list(replace(element, fresh)),
        Type::Map(key, value) => Type::map(replace(key, fresh), replace(value, fresh)),
        Type::Type(Some(inner)) => replace(inner, fresh).of(),
        Type::Opaque(name, parameters) => {
            Type::Opaque(name.clone(), parameters.iter().map(|inner| replace(inner, fresh)).collect())
        }
        other => other.clone(),
    }
}
