//! Rules in CEL: `x-kubernetes-validations`.
//!
//! They are compiled once for a schema and evaluated over an object from the root down, each within the limit of one
//! call and all within the budget of the request. A rule that refers to `oldSelf` is asked only where there is an old
//! value to compare with. What did not change is forgiven here too, and told as a warning.

mod compile;
mod evaluate;

use std::{cell::OnceCell, collections::BTreeMap, rc::Rc, sync::Arc};

use cel::Decl;
use serde_json::{Map, Value};

use super::{
    Path, Structural,
    ratchet::{Counterpart, Items},
};
use crate::field_error::{Cause, CauseReason};

pub use compile::{Compiled, compile};

/// What all rules of one request may cost.
pub const REQUEST_BUDGET: i64 = 10_000_000;
/// What one rule may be estimated to cost.
pub const RULE_COST_LIMIT: u64 = 10_000_000;
/// What all rules of a schema may be estimated to cost.
pub const SCHEMA_COST_LIMIT: u64 = 100_000_000;

/// The rules of a schema and of what is below it.
#[derive(Debug)]
pub struct RuleSet {
    rules: Vec<Compiled>,
    /// Why there is no rule to evaluate though there are some.
    broken: Option<&'static str>,
    declaration: Option<Arc<Decl>>,
    items: Option<Box<RuleSet>>,
    properties: BTreeMap<String, RuleSet>,
    additional: Option<Box<RuleSet>>,
}

/// What rules found.
#[derive(Debug, Default)]
pub struct Findings {
    pub causes: Vec<Cause>,
    /// Failures of rules in what did not change.
    pub warnings: Vec<String>,
}

impl From<Vec<Cause>> for Findings {
    fn from(causes: Vec<Cause>) -> Self {
        Findings { causes, warnings: Vec::new() }
    }
}

impl RuleSet {
    /// Compiles the rules of a schema; `None` if there are none.
    pub fn of(schema: &Structural, is_resource: bool) -> Option<Self> {
        if !has_rules(schema) {
            return None;
        }
        Self::node(schema, is_resource)
    }

    fn node(schema: &Structural, is_resource: bool) -> Option<Self> {
        let declaration = schema.declaration(is_resource).map(Arc::new);
        let items = schema.items.as_deref().and_then(|items| Self::node(items, items.embedded_resource));
        let usable = schema.properties.iter().filter(|(_, property)| {
            // Fields that rules cannot use have none of their own.
            property.is_declarable()
        });
        let properties: BTreeMap<String, RuleSet> = usable
            .filter_map(|(key, property)| {
                Some((key.clone(), Self::node(property, property.embedded_resource)?))
            })
            .collect();
        let additional =
            schema.additional_schema().and_then(|values| Self::node(values, values.embedded_resource));
        if schema.rules.is_empty() && items.is_none() && properties.is_empty() && additional.is_none() {
            return None;
        }
        let (rules, broken) = match &declaration {
            _ if schema.rules.is_empty() => (Vec::new(), None),
            Some(declaration) => (compile(schema, declaration), None),
            None => (Vec::new(), Some("failed to convert to declType for CEL validation rules")),
        };
        Some(Self {
            rules,
            broken,
            declaration,
            items: items.map(Box::new),
            properties,
            additional: additional.map(Box::new),
        })
    }

    /// Evaluates the rules; `ratchets` says whether what did not change is forgiven. The rest of `budget` is left in
    /// it; it is negative when it was spent.
    pub fn check(
        &self,
        new: &Value,
        old: Option<&Value>,
        schema: &Structural,
        ratchets: bool,
        path: &Path<'_>,
        budget: &mut i64,
    ) -> Findings {
        let counterpart = old.filter(|_| ratchets).map(|old| Tracked::new(Counterpart { new, old, schema }));
        let mut pass = Pass { budget: *budget, findings: Findings::default() };
        pass.node(self, schema, new, old, &Ratchet { current: counterpart, nearest: None }, path);
        *budget = pass.budget;
        pass.findings
    }
}

fn has_rules(schema: &Structural) -> bool {
    let spine = schema.items.as_deref().into_iter().chain(schema.additional_schema());
    !schema.rules.is_empty() || spine.chain(schema.properties.values()).any(has_rules)
}

/// A value with its old one; whether they are the same is found out at most once.
#[derive(Clone)]
struct Tracked<'a> {
    counterpart: Counterpart<'a>,
    unchanged: Rc<OnceCell<bool>>,
}

impl<'a> Tracked<'a> {
    fn new(counterpart: Counterpart<'a>) -> Self {
        Self { counterpart, unchanged: Rc::default() }
    }

    fn is_unchanged(&self) -> bool {
        *self.unchanged.get_or_init(|| self.counterpart.is_unchanged())
    }
}

/// What decides whether a failure is forgiven.
#[derive(Clone, Default)]
struct Ratchet<'a> {
    current: Option<Tracked<'a>>,
    /// The nearest value above that has an old one.
    nearest: Option<Tracked<'a>>,
}

impl<'a> Ratchet<'a> {
    fn forgives(&self) -> bool {
        self.current.as_ref().or(self.nearest.as_ref()).is_some_and(Tracked::is_unchanged)
    }

    fn key(&self, key: &str) -> Self {
        let Some(current) = &self.current else { return self.clone() };
        if self.nearest.is_none() && matches!(key, "apiVersion" | "kind") {
            // A change of version would not be seen in these.
            return Self::default();
        }
        Self { current: current.counterpart.key(key).map(Tracked::new), nearest: Some(current.clone()) }
    }

    fn item(&self, olds: Option<&Items<'a>>, new: &'a Value) -> Self {
        let Some(current) = &self.current else { return self.clone() };
        let counterpart = olds.and_then(|olds| olds.counterpart(new));
        Self { current: counterpart.map(Tracked::new), nearest: Some(current.clone()) }
    }
}

struct Pass {
    budget: i64,
    findings: Findings,
}

impl Pass {
    fn node<'a>(
        &mut self,
        rules: &RuleSet,
        schema: &'a Structural,
        new: &'a Value,
        old: Option<&'a Value>,
        ratchet: &Ratchet<'a>,
        path: &Path<'_>,
    ) {
        if new.is_null() || self.budget < 0 {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        self.expressions(rules, schema, new, old, ratchet, path);
        match new {
            Value::Array(items) => self.items(rules, schema, items, old, ratchet, path),
            Value::Object(members) => self.members(rules, schema, members, old, ratchet, path),
            _ => {}
        }
    }

    fn items<'a>(
        &mut self,
        rules: &RuleSet,
        schema: &'a Structural,
        items: &'a [Value],
        old: Option<&'a Value>,
        ratchet: &Ratchet<'a>,
        path: &Path<'_>,
    ) {
        let (Some(rules), Some(item_schema)) = (&rules.items, schema.items.as_deref()) else { return };
        let olds = old.and_then(Value::as_array).and_then(|old| Items::of(old, schema));
        for (at, item) in items.iter().enumerate() {
            if self.budget < 0 {
                return;
            }
            let old = olds.as_ref().and_then(|olds| olds.old(item));
            let ratchet = ratchet.item(olds.as_ref(), item);
            self.node(rules, item_schema, item, old, &ratchet, &path.index(at));
        }
    }

    fn members<'a>(
        &mut self,
        rules: &RuleSet,
        schema: &'a Structural,
        members: &'a Map<String, Value>,
        old: Option<&'a Value>,
        ratchet: &Ratchet<'a>,
        path: &Path<'_>,
    ) {
        let comparable = matches!(schema.map_type.as_deref(), None | Some("granular" | "atomic"));
        let old = old.filter(|_| comparable).and_then(Value::as_object);
        let old_of = |key: &str| old.and_then(|old| old.get(key));
        if let (Some(rules), Some(values)) = (&rules.additional, schema.additional_schema()) {
            for (key, value) in members {
                self.node(rules, values, value, old_of(key), &ratchet.key(key), &path.key(key));
            }
        }
        for (key, rules) in &rules.properties {
            let (Some(value), Some(property)) = (members.get(key), schema.properties.get(key)) else {
                continue;
            };
            self.node(rules, property, value, old_of(key), &ratchet.key(key), &path.child(key));
        }
    }
}

/// Whether a cause keeps rules from being evaluated: they could not rely on the shape of the object.
pub fn is_blocked_by(cause: &Cause) -> bool {
    matches!(
        cause.reason,
        CauseReason::NotSupported
            | CauseReason::Required
            | CauseReason::TooLong
            | CauseReason::TooMany
            | CauseReason::TypeInvalid
    )
}
