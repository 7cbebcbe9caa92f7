//! Which requests are made: every valid object as it is and with one thing changed, created and put in the place of
//! itself, by its own path and by that of its status; and upstream's own object.

use machinery::schema::Types;
use serde_json::Value;

use super::{
    mutate::{self, Mutation, Part},
    objects::Base,
    scope::Kind,
};

/// A request to write an object, only to be tried.
#[derive(Clone, Debug)]
pub struct Case {
    /// `deployment-rich create: spec.replicas = -1`
    pub name: String,
    pub verb: Verb,
    pub object: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Create,
    Update,
    /// An update by the path `status`.
    UpdateStatus,
}

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::UpdateStatus => "status",
        }
    }
}

/// How many mutations of one object are tried.
struct Limits {
    create: usize,
    update: usize,
    /// Of those, in a pod template: pods themselves have the same rules.
    in_template: usize,
}

fn limits(kind: &Kind) -> Limits {
    match kind.kind {
        "Pod" => Limits { create: 3000, update: 600, in_template: 0 },
        _ => Limits { create: 700, update: 500, in_template: 120 },
    }
}

/// `object` as it is, and changed: as authored to be created, as stored to be put back, with the authored status if
/// that is to be put.
pub fn cases(base: &Base, verb: Verb, object: &Value) -> Vec<Case> {
    let name = |what: &str| format!("{} {}: {what}", base.name, verb.as_str());
    let mut cases = vec![Case { name: name("as it is"), verb, object: object.clone() }];
    for mutation in chosen(base, verb, object) {
        if let Some(object) = mutation.apply(object) {
            cases.push(Case { name: name(&mutation.name), verb, object });
        }
    }
    cases
}

fn chosen(base: &Base, verb: Verb, object: &Value) -> Vec<Mutation> {
    let types = Types::builtin();
    let kind = base.kind;
    let message = types.get_kind(kind.group, kind.version, kind.kind);
    let limits = limits(kind);
    let part = if verb == Verb::UpdateStatus { Part::Status } else { Part::Main };
    let all = mutate::mutations(types, message, part, object);
    let (inside, outside): (Vec<_>, Vec<_>) = all.into_iter().partition(Mutation::is_in_pod_template);
    let limit = if verb == Verb::Create { limits.create } else { limits.update };
    let seed = format!("{} {}", base.name, verb.as_str());
    let mut chosen = mutate::sample(outside, limit, &seed);
    chosen.extend(mutate::sample(inside, limits.in_template.min(limit), &seed));
    chosen
}
