//! Resource quotas: what objects use, what that leaves, and who is refused.
//!
//! ```text
//!   object ──> Measure (of its kind) ──> usage ──┐
//!   quota  ──> scopes, hard ─────────────────────┴──> Demand ──> charge: new `used`, or why not
//!   all objects of the namespace ──────────────────> Recount: `used` from scratch
//! ```

mod measure;
mod recount;
mod scopes;

use std::{borrow::Borrow, collections::BTreeSet};

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

    /// Whether the same is asked of both for every object, though they may have used different amounts.
    pub fn is_as(&self, other: &Quota) -> bool {
        self.name == other.name
            && self.scopes == other.scopes
            && self.hard == other.hard
            && self.used.keys().eq(other.used.keys())
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

/// What a change asks of the quotas of its namespace. It stays so for as long as they are [about the same](Quota::is_as),
/// whatever else they are charged with meanwhile.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Of each quota; `None` where nothing is asked.
    asked: Vec<Option<Amounts>>,
    /// What a controller found to be so is not refused.
    is_fact: bool,
}

impl Demand {
    /// `Err`: why the change must not be made, however much is left.
    pub fn of(
        quotas: &[impl Borrow<Quota>],
        measure: &Measure,
        change: &Change<'_>,
    ) -> Result<Demand, String> {
        let mut demand = Demand { asked: vec![None; quotas.len()], is_fact: change.subresource == "status" };
        let about = |(_, quota): &(usize, &Quota)| quota.matches(measure, change.new);
        let about: Vec<(usize, &Quota)> =
            quotas.iter().map(Borrow::borrow).enumerate().filter(about).collect();
        for (_, quota) in &about {
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
            return Ok(demand);
        }
        let usage = measure.usage(change.new, change.now);
        let negative: Vec<&str> =
            usage.iter().filter(|(_, it)| it.is_negative()).map(|(name, _)| name.as_str()).collect();
        if !negative.is_empty() {
            return Err(format!("quota usage is negative for resource(s): {}", negative.join(",")));
        }
        for (at, quota) in about {
            let before = change.old.filter(|old| quota.matches(measure, old));
            let mut requested = match before {
                Some(old) => amounts::growth(&usage, &measure.usage(old, change.now)),
                None => usage.clone(),
            };
            requested.retain(|name, amount| !amount.is_zero() && quota.hard.contains_key(name));
            demand.asked[at] = Some(requested).filter(|requested| !requested.is_empty());
        }
        Ok(demand)
    }

    pub fn is_nothing(&self) -> bool {
        self.asked.iter().all(Option::is_none)
    }

    /// What each quota has used once this is met too; `None` where it stays as it is. `Err`: why it cannot be. `quotas`
    /// are those that it was made for, in the same order.
    pub fn charge(&self, quotas: &[impl Borrow<Quota>]) -> Result<Vec<Option<Amounts>>, String> {
        let each = quotas.iter().map(Borrow::borrow).zip(&self.asked);
        each.map(|(quota, asked)| asked.as_ref().map(|asked| self.charge_one(quota, asked)).transpose())
            .collect()
    }

    fn charge_one(&self, quota: &Quota, requested: &Amounts) -> Result<Amounts, String> {
        let mut used = quota.used.clone();
        amounts::add(&mut used, requested);
        let exceeds = |name: &String| match (used.get(name), quota.hard.get(name)) {
            (Some(used), Some(hard)) => used > hard,
            _ => false,
        };
        let exceeded: BTreeSet<&String> =
            requested.keys().filter(|name| !self.is_fact && exceeds(name)).collect();
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
