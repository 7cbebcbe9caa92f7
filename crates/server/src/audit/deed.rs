//! What the hub does by itself: no request asks for it, and it is recorded as if one had.

use bytes::Bytes;
use machinery::{
    audit::{Annotations, Attributes, Identity, Level, ObjectReference, Record, ResourceAttributes, Stage},
    names,
};

use super::Auditor;
use crate::user::User;

/// A write that is done.
pub struct Deed {
    /// In whose name.
    pub user: &'static str,
    pub verb: &'static str,
    /// The name of the workspace.
    pub workspace: String,
    pub object: ObjectReference,
    /// The object as it was written, as JSON.
    pub body: Option<Bytes>,
    pub annotations: Annotations,
}

impl Deed {
    fn path(&self) -> String {
        let ObjectReference { resource, namespace, name, api_group, api_version, .. } = &self.object;
        let workspace = &self.workspace;
        format!(
            "/clusters/{workspace}/apis/{api_group}/{api_version}/namespaces/{namespace}/{resource}/{name}"
        )
    }
}

impl Auditor {
    /// Records it, as far as the policy asks for it.
    pub async fn note(&self, deed: Deed) {
        let (path, user) = (deed.path(), User::hub(deed.user));
        let resource = ResourceAttributes {
            group: &deed.object.api_group,
            resource: &deed.object.resource,
            subresource: "",
            namespace: &deed.object.namespace,
            name: &deed.object.name,
        };
        let demand = self.demand(&Attributes {
            user: Some((&user.name, &user.groups)),
            verb: deed.verb,
            path: &path,
            resource: Some(resource),
        });
        if demand.level == Level::None {
            return;
        }
        let now = self.env.clock.now();
        let mut bytes = [0; 16];
        self.env.random.fill(&mut bytes);
        let mut record = Record::new(demand, names::uuid_v4(bytes), now);
        record.request_uri = path;
        record.verb = deed.verb.into();
        record.user = Identity { username: user.name, groups: user.groups, ..Identity::default() };
        record.object = Some(deed.object);
        record.annotations = deed.annotations;
        record.annotations.add("hanse.io/workspace", deed.workspace.as_str());
        if record.wants_request()
            && let Some(body) = deed.body.and_then(|body| serde_json::from_slice(&body).ok())
        {
            record.set_request_object(body);
        }
        record.set_response(if deed.verb == "create" { 201 } else { 200 }, None);
        if record.tells(Stage::ResponseComplete) {
            self.tell(&deed.workspace, record.encode(Stage::ResponseComplete, now).into()).await;
        }
    }
}
