//! Audit, without I/O: which requests a policy wants recorded, and what a record looks like (`audit.k8s.io/v1`).

mod event;
mod policy;

pub use event::{Annotations, Identity, ObjectReference, Record, source_addresses};
pub use policy::{Attributes, Demand, Policy, ResourceAttributes};

use serde::Serialize;

/// How much is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Level {
    None,
    /// Who, what, when and how it ended.
    Metadata,
    /// What was sent, too.
    Request,
    /// And what was answered.
    RequestResponse,
}

impl Level {
    pub const ALL: [Level; 4] = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];

    pub fn as_str(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }

    fn read(text: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.as_str() == text)
    }
}

/// A point in a request's life at which it may be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Stage {
    RequestReceived,
    /// Headers are sent and the body goes on: only requests that stay open have it.
    ResponseStarted,
    ResponseComplete,
    Panic,
}

impl Stage {
    pub const ALL: [Stage; 4] =
        [Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete, Stage::Panic];

    pub fn as_str(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }

    fn read(text: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.as_str() == text)
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    pub fn with(self, stage: Stage) -> Stages {
        Stages(self.0 | 1 << stage as u8)
    }

    pub fn union(self, other: Stages) -> Stages {
        Stages(self.0 | other.0)
    }

    pub fn contains(self, stage: Stage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }
}

/// Whether what is sent to or answered from a resource holds credentials: such bodies are never recorded, whatever the
/// policy says.
pub fn holds_credentials(group: &str, resource: &str, subresource: &str) -> bool {
    matches!(
        (group, resource, subresource),
        ("", "secrets", _) | ("", "serviceaccounts", "token") | ("authentication.k8s.io", "tokenreviews", _)
    )
}
