//! Resource quotas: what objects use, what that leaves, and who is refused.
//!
//! ```text
//!   object ──> Measure (of its kind) ──> usage ──┐
//!   quota  ──> scopes, hard, used ───────────────┴──> charge: new `used`, or why not
//!   all objects of the namespace ──────────────────> Recount: `used` from scratch
//! ```

mod measure;
mod recount;
mod scopes;

use std::collections::BTreeSet;

use serde_json::Value;

pub use measure::{Measure, is_ignored};
pub use recount::Recount;
pub use scopes::Scope;

use super::amounts::{self, Amounts, amounts_in};
use crate::{
    quantity::Quantity,
    resource::Tree,
    validation::parts::{object, text},
};

/// A quota, as those need it who charge it.
#[derive(Clone, Debug)]
pub struct Quota {
    pub name: String,
    pub scopes: Vec<Scope>,
    /// What its author wants.
    pub wanted: Amounts,
    /// What is enforced.
    pub hard: Amounts,
    pub used: Amounts,
}

impl Quota {
    pub fn read(tree: &Tree) -> Quota {
        let empty = Tree::new();
        let spec = object(tree, "spec").unwrap_or(&empty);
        let status = object(tree, "status").unwrap_or(&empty);
        Quota {
            name: object(tree, "metadata").map(|it| text(it, "name")).unwrap_or_default().to_owned(),
            scopes: Scope::all(spec),
            wanted: amounts_in(spec, "hard"),
            hard: amounts_in(status, "hard"),
            used: amounts_in(status, "used"),
        }
    }

    /// Whether it is about objects like this one.
    pub fn matches(&self, measure: &Measure, object: &Tree) -> bool {
        self.names(measure).next().is_some() && self.scopes.iter().all(|scope| measure.is_in(scope, object))
    }

    /// What it limits of what such objects use.
    pub fn names<'a>(&'a self, measure: &'a Measure) -> impl Iterator<Item = &'a str> {
        self.hard.keys().map(String::as_str).filter(|name| measure.has(name))
    }

    /// What an object uses of what it limits; nothing if it is not about it.
    pub fn usage(&self, measure: &Measure, object: Option<&Tree>, now: i64) -> Amounts {
        match object.filter(|object| self.matches(measure, object)) {
            Some(object) => self.masked(measure.usage(object, now)),
            None => Amounts::new(),
        }
    }

    fn masked(&self, mut usage: Amounts) -> Amounts {
        usage.retain(|name, _| self.hard.contains_key(name));
        usage
    }
}

/// A write that may have to be charged.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    pub new: &'a Tree,
    /// `None`: it is created.
    pub old: Option<&'a Tree>,
    pub subresource: &'a str,
    /// Seconds since 1970.
    pub now: i64,
}

/// What each quota has used once the change is made; `None` where it stays as it is. `Err`: why it must not be made.
pub fn charge(
    quotas: &[Quota],
    measure: &Measure,
    change: &Change<'_>,
) -> Result<Vec<Option<Amounts>>, String> {
    let mut outcome = vec![None; quotas.len()];
    let about: Vec<usize> = (0..quotas.len()).filter(|at| quotas[*at].matches(measure, change.new)).collect();
    for quota in about.iter().map(|at| &quotas[*at]) {
        let limited: BTreeSet<&str> = quota.names(measure).collect();
        if let Some(missing) = measure.missing(&limited, change.new) {
            return Err(format!("failed quota: {}: {missing}", quota.name));
        }
        if limited.iter().any(|name| !quota.used.contains_key(*name)) {
            let names = limited.into_iter().collect::<Vec<_>>().join(",");
            return Err(format!("status unknown for quota: {}, resources: {names}", quota.name));
        }
    }
    if about.is_empty() {
        return Ok(outcome);
    }
    let usage = measure.usage(change.new, change.now);
    let negative: Vec<&str> =
        usage.iter().filter(|(_, it)| it.is_negative()).map(|(name, _)| name.as_str()).collect();
    if !negative.is_empty() {
        return Err(format!("quota usage is negative for resource(s): {}", negative.join(",")));
    }
    for at in about {
        let quota = &quotas[at];
        let before = change.old.filter(|old| quota.matches(measure, old));
        let mut requested = match before {
            Some(old) => amounts::growth(&usage, &measure.usage(old, change.now)),
            None => usage.clone(),
        };
        requested.retain(|name, amount| !amount.is_zero() && quota.hard.contains_key(name));
        if !requested.is_empty() {
            outcome[at] = Some(charge_one(quota, &requested, change.subresource)?);
        }
    }
    Ok(outcome)
}

fn charge_one(quota: &Quota, requested: &Amounts, subresource: &str) -> Result<Amounts, String> {
    let mut used = quota.used.clone();
    amounts::add(&mut used, requested);
    let exceeds = |name: &String| match (used.get(name), quota.hard.get(name)) {
        (Some(used), Some(hard)) => used > hard,
        _ => false,
    };
    // What a controller found to be so is not refused.
    let exceeded: BTreeSet<&String> =
        requested.keys().filter(|name| subresource != "status" && exceeds(name)).collect();
    if exceeded.is_empty() {
        return Ok(used);
    }
    let shown = |amounts: &Amounts| {
        let exceeded = amounts.iter().filter(|(name, _)| exceeded.contains(name));
        amounts::text_of(&exceeded.map(|(name, it)| (name.clone(), it.clone())).collect())
    };
    Err(format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        quota.name,
        shown(requested),
        shown(&quota.used),
        shown(&quota.hard)
    ))
}

/// Puts amounts into the status of a quota.
pub fn set_status(quota: &mut Tree, key: &str, amounts: &Amounts) {
    let status = quota.entry("status").or_insert_with(|| Value::Object(Tree::new()));
    let Some(status) = status.as_object_mut() else { return };
    match amounts.is_empty() {
        true => status.remove(key),
        false => status.insert(key.to_owned(), Value::Object(amounts::to_tree(amounts))),
    };
}

fn one() -> Quantity {
    Quantity::new(1, crate::quantity::Format::DecimalSi)
}

#[cfg(test)]
mod tests;
