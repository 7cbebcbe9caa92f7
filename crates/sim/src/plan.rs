//! What a controller wants done.

use std::time::Duration;

use serde_json::Value;

use crate::Kind;

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
    Create { kind: Kind, object: Value },
    /// The whole object; its resourceVersion, if it has one, must still be right.
    Replace { kind: Kind, object: Value },
    /// As [`Action::Replace`], of what is below `status`.
    Status { kind: Kind, object: Value },
    /// A JSON merge patch; a `metadata.uid` or `metadata.resourceVersion` in it is a precondition.
    Patch { kind: Kind, namespace: String, name: String, patch: Value },
    /// A JSON merge patch of what is below `status`.
    PatchStatus { kind: Kind, namespace: String, name: String, patch: Value },
    /// Only the object with this UID. `grace`: as it says itself if `None`.
    Delete { kind: Kind, namespace: String, name: String, uid: String, grace: Option<u64> },
    /// Puts a pod on a node.
    Bind { namespace: String, name: String, uid: String, node: String },
    /// Of the scale subresource.
    Scale { kind: Kind, namespace: String, name: String, replicas: i64 },
    /// A note for people about `object` (whole, or a reference to it).
    Event { object: Value, warning: bool, reason: &'static str, message: String },
}

impl Plan {
    pub fn nothing() -> Plan {
        Plan::default()
    }

    pub fn then(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// The sooner of what was asked for and this.
    pub fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |before| before.min(after)));
    }
}
