//! Records of what is decided here, in the audit log beside those of requests.

use std::sync::Arc;

use machinery::audit::{Annotations, ObjectReference};
use serde_json::Value;
use server::{
    Hub,
    audit::{Auditor, Deed},
};
use store::{Change, Commit, Expect};

use crate::queue::Id;

/// Who decides, to those who read the log.
const USER: &str = "system:hanse:placement";
/// An annotation of records: what was told of it.
const TRANSITION: &str = "hanse.io/transition";

/// What a commit does to an Assignment, for the record; `None`: nothing, or nothing is recorded.
pub fn deed(hub: &Hub, id: &Id, commit: &Commit) -> Option<(Arc<Auditor>, Deed)> {
    let auditor = hub.auditor.clone()?;
    let key = id.assignment();
    let write = commit.writes.iter().find(|write| write.key == key)?;
    let (verb, body) = match (&write.change, &write.expect) {
        (Change::Remove, _) => ("delete", None),
        (Change::Put { draft, .. }, Expect::Absent) => ("create", Some(draft.body().clone())),
        (Change::Put { draft, .. }, _) => ("update", Some(draft.body().clone())),
    };
    let object = ObjectReference {
        resource: api::assignment::PLURAL.into(),
        namespace: key.item.namespace().into(),
        name: key.item.name().into(),
        api_group: api::GROUP.into(),
        api_version: api::VERSION.into(),
        ..ObjectReference::default()
    };
    let mut annotations = Annotations::default();
    if let Some(told) = told(commit) {
        annotations.add(TRANSITION, told);
    }
    let workspace = hub.space_by_id(&id.workspace)?.name().to_string();
    Some((auditor, Deed { user: USER, verb, workspace, object, body, annotations }))
}

/// The Events of a commit, in words.
fn told(commit: &Commit) -> Option<String> {
    let events = commit.writes.iter().filter(|write| write.key.collection.parts() == ("", "events"));
    let told = events.filter_map(|write| {
        let Change::Put { draft, .. } = &write.change else { return None };
        let event: Value = serde_json::from_slice(draft.body()).ok()?;
        Some(format!("{}: {}", event["reason"].as_str()?, event["message"].as_str()?))
    });
    let told = told.collect::<Vec<_>>().join("; ");
    (!told.is_empty()).then_some(told)
}

pub async fn note(deed: Option<(Arc<Auditor>, Deed)>) {
    if let Some((auditor, deed)) = deed {
        auditor.note(deed).await;
    }
}
