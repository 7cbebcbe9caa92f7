//! Evictions of members' pods, and of stored ones that run as copies in members.

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use machinery::{resource::Tree, status::Status};
use serde_json::{Value, json};

use super::{
    forward::{Answer, Forwarded, JSON, delete_options, path, request},
    view::Target,
};
use crate::{
    admission::{self, Admission, Notes, Operation},
    body::{self, Body},
    context::Context,
    decode,
    delete::{self, Options},
    write::set_namespace,
};

/// An eviction that was admitted here.
struct Eviction {
    options: Options,
    notes: Notes,
}

impl Forwarded<'_> {
    /// An eviction is admitted by the member, whose disruption budgets are about its pods.
    pub(super) async fn evict(&self, bytes: &Bytes) -> Result<Response<Body>, Status> {
        let eviction = self.eviction(bytes).await?;
        let mut answer = Err(Status::not_found(self.context.about(self.name())));
        for target in &self.targets {
            answer = self.send_eviction(target, &eviction).await;
        }
        let answer = answer?;
        let mut response = body::json(answer.code, &Value::Object(answer.tree));
        eviction.notes.tell(&mut response);
        Ok(response)
    }

    /// Of a pod that is stored here and runs as a copy: the member decides, and when it has agreed the stored one is
    /// deleted. In the other order the pod would be gone though a budget keeps it. If the hub stops in between, the pod is
    /// lost, as it is with any copy that goes: what runs once is made once. A copy out of reach goes after the stored
    /// one, as ever.
    pub(super) async fn evict_stored(&self, bytes: &Bytes) -> Result<Response<Body>, Status> {
        let key = self.context.key(self.name());
        let uid = self.object(&key)?.head.uid.to_string();
        let mut eviction = self.eviction(bytes).await?;
        let reached = self.targets.iter().filter(|target| target.member.is_some()).count().max(1);
        for target in self.targets.iter().take(reached) {
            match self.send_eviction(target, &eviction).await {
                // It is not there any more: nothing is disrupted.
                Err(refusal) if refusal.code() == StatusCode::NOT_FOUND.as_u16() => {}
                answer => drop(answer?),
            }
        }
        // What the client knew was looked at before; since then its status may have been written.
        let options = Options { uid: Some(uid), revision: None, admitted: true, ..eviction.options };
        let Context { hub, space, target, .. } = self.context;
        let pods = Context::own(hub, space, &key.collection, &target.namespace, self.name());
        let pods = pods.ok_or_else(|| Status::internal("pods are not served"))?;
        delete::delete_one(&pods, &key, &options, &mut eviction.notes).await?;
        let done =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        let mut response = body::json(StatusCode::CREATED, &done);
        eviction.notes.tell(&mut response);
        Ok(response)
    }

    /// What the client asks for, once everybody here agrees.
    async fn eviction(&self, bytes: &Bytes) -> Result<Eviction, Status> {
        let decoded = decode::object(self.context, bytes)?;
        let mut tree = decoded.tree;
        set_namespace(self.context, &mut tree)?;
        let object = self.object(&self.context.key(self.name()))?;
        let empty = Tree::new();
        let given = tree.get("deleteOptions").and_then(Value::as_object).unwrap_or(&empty);
        let options = Options::check(self.context, given)?;
        options.check_preconditions(self.context, &object)?;
        let mut notes = Notes::default();
        let admission = Admission::new(self.context, Operation::Create, self.name(), None, options.dry_run);
        admission::ask(&admission, Some(&tree), &mut notes).await?;
        Ok(Eviction { options, notes })
    }

    async fn send_eviction<'t>(&self, target: &'t Target, eviction: &Eviction) -> Result<Answer<'t>, Status> {
        let options = &eviction.options;
        // Of what is stored, the client knows no revision of the copy.
        let exact = options.revision.is_some() && self.view.is_members(&self.context.key(self.name()));
        let body = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": target.name, "namespace": target.namespace},
            "deleteOptions": delete_options(&options.sent, target, exact, options.dry_run),
        });
        self.send(target, request(Method::POST, &path(target, "/eviction"), JSON, &body)?).await
    }
}
