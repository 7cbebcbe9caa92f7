//! An Assignment as a value: what those read and write who decide, and who act.

use machinery::{Object, object::ObjectError, resource::Tree};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An Assignment as those read and write it who decide and who act.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assignment {
    pub spec: Spec,
    pub status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    pub object: Reference,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<Target>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finished: Vec<Part>,
    pub decision: Decision,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagation: Option<Propagation>,
}

/// What was done of a Job by a copy that is not there any more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Part {
    pub cluster: String,
    pub completions: u64,
    /// Which copy did it: how many were there before.
    #[serde(skip_serializing_if = "is_zero")]
    pub run: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The object that is assigned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reference {
    pub api_version: String,
    pub kind: String,
    pub resource: String,
    pub name: String,
    pub uid: String,
}

impl Reference {
    /// Whether it is a namespace.
    pub fn is_namespace(&self) -> bool {
        self.group().is_empty() && self.kind == "Namespace"
    }

    /// Whether it is in no namespace, and not one itself.
    pub fn is_shared(&self) -> bool {
        super::SHARED.contains(&(self.group(), self.kind.as_str()))
    }

    pub fn is_in_namespace(&self) -> bool {
        !self.is_namespace() && !self.is_shared()
    }

    /// Empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// A cluster that the object is assigned to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Target {
    pub name: String,
    /// Of its `Cluster`.
    pub uid: String,
    pub state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u64>,
    /// Asked for beyond these, though there is no room for them now: so it is noticed when there is.
    #[serde(skip_serializing_if = "is_zero")]
    pub overflow: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completions: Option<u64>,
    /// Of a Job: how many copies there were before, each of which did its part.
    #[serde(skip_serializing_if = "is_zero")]
    pub run: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_ordinal: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

/// How far an object is in a cluster. What is decided is one of two, `Assigned` or `Draining`; that it is ready is what
/// comes of it, and is told by the report: see [`Assignment::state`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// It is to run there.
    #[default]
    Assigned,
    /// It does. Never in a decision.
    Ready,
    /// It is to go once it is not needed.
    Draining,
}

/// How copies are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
    /// They are not: they stay, and are nobody's.
    Keep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    Single,
    Duplicate,
    Divide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    Fair,
    Federation,
}

impl Decision {
    /// Of so many clusters it is written down what was found of them.
    pub const MOST_VERDICTS: usize = 32;
}

/// Why it is so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Decision {
    pub layer: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    pub pending: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<Verdict>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Verdict {
    pub cluster: String,
    pub feasible: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<Report>,
}

/// What one cluster says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    pub name: String,
    /// Of its `Cluster`.
    pub uid: String,
    /// Of the object that the copy was made from; 0: none was made.
    pub generation: i64,
    /// Of the copy.
    pub copy_generation: i64,
    pub applied: bool,
    /// The copy does well, as far as its status says.
    #[serde(skip_serializing_if = "is_false")]
    pub ready: bool,
    /// The revision of the object, epoch and number in one, of which was sent what the copy was last made of. An older one
    /// than was told before, or one that this history does not have, is told by somebody who is behind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// The hash of what was sent, by which it is known whether the copy is still made of that.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rendered: String,
    /// Of what is federated: which edition of the federated object the copy was made of, or found to be as it should be.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub edition: String,
    /// One of [`reason`], or what the member says.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Which of the copies that follow each other it is about.
    #[serde(skip_serializing_if = "is_zero")]
    pub run: u64,
    /// How many of its pods the cluster has nodes for, if it had none for others for long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fits: Option<u64>,
    /// How many replicas the copy has, if an override says so and not the share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u64>,
    /// Of the copy.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub status: Value,
}

/// Why a copy is not there as it should be.
pub mod reason {
    /// It was removed, or never was: nothing of it is left that Hanse made.
    pub const GONE: &str = "Gone";
    /// The member has an object of that name which is not a copy, and nobody said that it may be taken over.
    pub const CONFLICT: &str = "Conflict";
    /// The member refused it.
    pub const REFUSED: &str = "Refused";
    /// It cannot be made from the object.
    pub const INVALID: &str = "Invalid";
    /// The member cannot be reached, or has not been yet.
    pub const UNREACHABLE: &str = "Unreachable";
}

impl Report {
    pub fn is_gone(&self) -> bool {
        self.reason == reason::GONE
    }
}

/// Spec and status of an Assignment, as they are stored.
#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

impl Assignment {
    pub fn read(object: &Object) -> Result<Assignment, ObjectError> {
        let Wire { spec, status } = serde_json::from_slice(object.body_slice())?;
        Ok(Assignment { spec, status })
    }

    /// Puts spec and status into an object, whose other members stay.
    pub fn write(&self, tree: &mut Tree) -> Result<(), ObjectError> {
        tree.insert("spec".into(), serde_json::to_value(&self.spec)?);
        tree.insert("status".into(), serde_json::to_value(&self.status)?);
        Ok(())
    }

    /// How far it is in one of its clusters: what was decided, and what the cluster says of the copy that it is to have now.
    pub fn state(&self, target: &Target) -> State {
        let is_ready = || self.report(&target.uid).is_some_and(|it| it.ready && it.run == target.run);
        match target.state {
            State::Draining => State::Draining,
            State::Assigned | State::Ready if is_ready() => State::Ready,
            State::Assigned | State::Ready => State::Assigned,
        }
    }

    /// The report of the cluster whose `Cluster` has this UID.
    pub fn report(&self, uid: &str) -> Option<&Report> {
        self.status.clusters.iter().find(|report| report.uid == uid)
    }
}
