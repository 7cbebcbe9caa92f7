//! What a controller wants done.

use std::time::Duration;

use serde_json::Value;

use crate::{Kind, Pod, kind, tree};

/// What brings an object nearer to what it should be. Actions are carried out in order; one that is refused ends the
/// plan, and the object is looked at again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// Look again after so long, whatever happens until then.
    pub again: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Create {
        kind: Kind,
        object: Value,
    },
    /// The whole object; its resourceVersion, if it has one, must still be right.
    Replace {
        kind: Kind,
        object: Value,
    },
    /// As [`Action::Replace`], of what is below `status`.
    Status {
        kind: Kind,
        object: Value,
    },
    /// A JSON merge patch; a `metadata.uid` or `metadata.resourceVersion` in it is a precondition.
    Patch {
        kind: Kind,
        namespace: String,
        name: String,
        patch: Value,
    },
    /// A JSON merge patch of what is below `status`.
    PatchStatus {
        kind: Kind,
        namespace: String,
        name: String,
        patch: Value,
    },
    /// Only the object with this UID. `grace`: as it says itself if `None`.
    Delete {
        kind: Kind,
        namespace: String,
        name: String,
        uid: String,
        grace: Option<u64>,
        propagation: Propagation,
    },
    /// Puts a pod on a node.
    Bind {
        namespace: String,
        name: String,
        uid: String,
        node: String,
    },
    /// Of the scale subresource.
    Scale {
        kind: Kind,
        namespace: String,
        name: String,
        replicas: i64,
    },
    /// A note for people about `object` (whole, or a reference to it).
    Event {
        object: Value,
        warning: bool,
        reason: &'static str,
        message: String,
    },
    /// A note about `object` that says `message` and the name of what this plan created last, which the API server may
    /// have chosen.
    Announce {
        object: Value,
        reason: &'static str,
        message: &'static str,
    },
}

/// What happens to the dependents of what is deleted, as in the options of a deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// As the kind says.
    #[default]
    Default,
    Background,
    Foreground,
}

impl Propagation {
    pub fn policy(self) -> Option<&'static str> {
        match self {
            Propagation::Default => None,
            Propagation::Background => Some("Background"),
            Propagation::Foreground => Some("Foreground"),
        }
    }
}

impl Action {
    pub fn create(kind: Kind, object: Value) -> Action {
        Action::Create { kind, object }
    }

    /// Of an object in full.
    pub fn delete(kind: Kind, object: &Value) -> Action {
        Action::delete_with(kind, object, Propagation::Default)
    }

    pub fn delete_with(kind: Kind, object: &Value, propagation: Propagation) -> Action {
        Action::Delete {
            kind,
            namespace: tree::namespace(object).to_owned(),
            name: tree::name(object).to_owned(),
            uid: tree::uid(object).to_owned(),
            grace: None,
            propagation,
        }
    }

    pub fn delete_pod(pod: &Pod) -> Action {
        Action::Delete {
            kind: kind::PODS,
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            uid: pod.uid.to_string(),
            grace: None,
            propagation: Propagation::Default,
        }
    }

    /// A merge patch of an object that must still be the one with this UID.
    pub fn patch(kind: Kind, object: &Value, mut patch: Value) -> Action {
        patch["metadata"]["uid"] = tree::uid(object).into();
        Action::Patch {
            kind,
            namespace: tree::namespace(object).to_owned(),
            name: tree::name(object).to_owned(),
            patch,
        }
    }
}

impl Plan {
    pub fn nothing() -> Plan {
        Plan::default()
    }

    pub fn then(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Tells people about `object`.
    pub fn note(&mut self, kind: Kind, object: &Value, reason: &'static str, message: impl Into<String>) {
        let object = tree::reference(kind, object);
        self.then(Action::Event { object, warning: false, reason, message: message.into() });
    }

    pub fn warn(&mut self, kind: Kind, object: &Value, reason: &'static str, message: impl Into<String>) {
        let object = tree::reference(kind, object);
        self.then(Action::Event { object, warning: true, reason, message: message.into() });
    }

    /// Sets the status of `object` unless it says the same already.
    pub fn set_status(&mut self, kind: Kind, object: &Value, status: Value) {
        if tree::same(object.get("status").unwrap_or(&Value::Null), &status) {
            return;
        }
        let mut object = object.clone();
        object["status"] = status;
        self.then(Action::Status { kind, object });
    }

    /// The sooner of what was asked for and this.
    pub fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |before| before.min(after)));
    }
}
