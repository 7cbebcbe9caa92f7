//! Conditions of the whole, of those of the copies.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Member, Whole, latest};
use crate::fields::{list, put, text};

/// At most so many clusters have their say in a message.
const QUOTED: usize = 3;

pub(crate) fn of<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    list(status, "conditions").iter().find(|condition| text(condition, "type") == kind)
}

pub(crate) fn status_of<'a>(status: &'a Value, kind: &str) -> &'a str {
    of(status, kind).map(|condition| text(condition, "status")).unwrap_or_default()
}

/// A condition of the whole. The time of its transition is the one it has, if it is as it was; else that of the last
/// copy whose condition of this type changed; else none.
pub(crate) fn condition(whole: &Whole<'_>, kind: &str, status: &str, reason: &str, message: &str) -> Value {
    let mut condition = json!({"type": kind, "status": status, "reason": reason, "message": message});
    let old = of(whole.old, kind).filter(|old| text(old, "status") == status);
    for time in ["lastTransitionTime", "lastUpdateTime", "lastProbeTime"] {
        let members = || whole.staying().filter_map(|member| of(member.status(), kind));
        let known = match old.map(|old| text(old, time)).filter(|known| !known.is_empty()) {
            Some(known) if time == "lastTransitionTime" => Some(known),
            old => latest(members().map(|it| text(it, time)).chain(old)),
        };
        if let Some(known) = known {
            put(&mut condition, time, known);
        }
    }
    if message.is_empty() {
        crate::fields::remove(&mut condition, "message");
    }
    condition
}

/// The types of conditions that say that something is wrong, or not there yet, when they are true.
fn is_negative(kind: &str) -> bool {
    const WORDS: [&str; 13] = [
        "Progressing",
        "Degraded",
        "Stalled",
        "Reconciling",
        "Failed",
        "Suspended",
        "Paused",
        "Resizing",
        "FailureTarget",
        "ScalingLimited",
        "DisruptionTarget",
        "Terminating",
        "Deleting",
    ];
    const ENDS: [&str; 6] = ["Failure", "Failed", "Error", "Pressure", "Unavailable", "Pending"];
    WORDS.contains(&kind) || ENDS.iter().any(|end| kind.ends_with(end))
}

/// The conditions of all copies, type by type, without those of `but`.
pub(crate) fn merged(whole: &Whole<'_>, but: &[&str]) -> Vec<Value> {
    let mut kinds: Vec<&str> = Vec::new();
    let mut seen = BTreeSet::new();
    for condition in whole.staying().flat_map(|member| list(member.status(), "conditions")) {
        let kind = text(condition, "type");
        if !kind.is_empty() && !but.contains(&kind) && seen.insert(kind) {
            kinds.push(kind);
        }
    }
    kinds.into_iter().map(|kind| merge(whole, kind)).collect()
}

/// One condition of the whole: what says that things are well is true if it is in all copies, and what says that they
/// are not if it is in any.
pub(crate) fn merge(whole: &Whole<'_>, kind: &str) -> Value {
    let deciding: &[&str] = match is_negative(kind) {
        true => &["True", "Unknown"],
        false => &["False", "Unknown", ""],
    };
    fn status<'a>(member: &Member<'a>, kind: &str) -> &'a str {
        match status_of(member.status(), kind) {
            known @ ("True" | "False" | "") => known,
            _ => "Unknown",
        }
    }
    for decides in deciding {
        let who: Vec<&Member<'_>> =
            whole.staying().filter(|member| status(member, kind) == *decides).collect();
        if !who.is_empty() {
            return decided(whole, kind, if decides.is_empty() { "Unknown" } else { decides }, &who);
        }
    }
    let rest = if is_negative(kind) { "False" } else { "True" };
    let who: Vec<&Member<'_>> = whole.staying().filter(|member| status(member, kind) == rest).collect();
    decided(whole, kind, rest, &who)
}

/// A condition as the clusters that decided it give the reasons.
pub(crate) fn decided(whole: &Whole<'_>, kind: &str, status: &str, who: &[&Member<'_>]) -> Value {
    let conditions = || who.iter().filter_map(|member| of(member.status(), kind));
    let mut reasons = conditions().map(|it| text(it, "reason")).filter(|reason| !reason.is_empty());
    let reason = reasons.next().unwrap_or("NotReported").to_owned();
    condition(whole, kind, status, &reason, &quote(whole, kind, who))
}

/// What clusters say, each by its name if there are several.
pub(crate) fn quote(whole: &Whole<'_>, kind: &str, who: &[&Member<'_>]) -> String {
    let said = |member: &&Member<'_>| {
        let message = of(member.status(), kind).map(|it| text(it, "message")).unwrap_or_default();
        match (message, whole.sole().is_some()) {
            ("", true) => String::new(),
            ("", false) => member.name.to_owned(),
            (message, true) => message.to_owned(),
            (message, false) => format!("{}: {message}", member.name),
        }
    };
    let mut said: Vec<String> = who.iter().take(QUOTED).map(said).collect();
    if who.len() > QUOTED {
        said.push(format!("and {} more clusters", who.len() - QUOTED));
    }
    said.join("; ")
}
