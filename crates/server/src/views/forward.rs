//! Writes to members' objects: sent on to the member, with the UID of what the client meant.
//!
//! The user's rights were checked as for any object of the workspace; the member is asked with its session's credential.
//! What a client may change is what nothing else in the member would change back: deletions, evictions, ephemeral
//! containers, resources, labels and annotations.

use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use machinery::{
    Object,
    field_error::Cause,
    resource::Tree,
    status::{self, Reason, Status},
};
use serde_json::{Value, json};
use store::Key;

use super::{
    kinds::encoded,
    render, stored,
    view::{Target, View},
};
use crate::{
    admission::{self, Admission, Notes, Operation},
    body::{self, Body},
    context::Context,
    decode,
    delete::Options,
    negotiate::{self, PatchKind},
    patch,
    request::Verb,
    write::{check_preconditions, metadata_of, set_namespace, text},
};

/// Largest answer of a member that is read.
const MAX_ANSWER_BYTES: usize = 8 << 20;
const MERGE_PATCH: &str = "application/merge-patch+json";
pub(super) const JSON: &str = "application/json";

/// A write to an object of the view, if it is a member's; `None`: it is the workspace's own.
pub async fn write(context: &Context, verb: Verb, bytes: &Bytes) -> Option<Result<Response<Body>, Status>> {
    let view = context.view.as_ref()?;
    let name = context.target.name.as_str();
    if name.is_empty() {
        return None;
    }
    let key = context.key(name);
    let targets = view.targets(&key);
    if targets.is_empty() {
        if let Some(answer) = stored::write(context, view, &key, verb, bytes).await {
            return Some(answer);
        }
        // Who was never seen may have it: it is not absent. What is applied may be made.
        let absent = !is_apply(context, verb) && view.get(&key).is_none();
        return context.sight().err().filter(|_| absent).map(Err);
    }
    let write = Forwarded { context, view, targets };
    Some(match (verb, context.target.subresource.as_str()) {
        (Verb::Delete, "") => write.delete(bytes).await,
        (Verb::Patch | Verb::Update, "") => write.relabel(verb, bytes).await,
        (Verb::Patch | Verb::Update, "ephemeralcontainers" | "resize") => write.pass_on(verb, bytes).await,
        (Verb::Create, "eviction") => write.evict(bytes).await,
        _ => Err(write.refusal()),
    })
}

pub(super) fn is_apply(context: &Context, verb: Verb) -> bool {
    let kind = negotiate::patch(&context.headers, context.shown.message().is_some());
    verb == Verb::Patch && matches!(kind, Ok(PatchKind::Apply))
}

/// Deletes an object of the view, if it is a member's; `None`: it is the workspace's own.
pub async fn deleted(
    context: &Context,
    key: &Key,
    options: &Options,
    notes: &mut Notes,
) -> Option<Result<(), Status>> {
    let view = context.view.as_ref()?;
    let targets = view.targets(key);
    if targets.is_empty() {
        return None;
    }
    let write = Forwarded { context, view, targets };
    Some(write.delete_all(key, options, notes).await.map(|_| ()))
}

/// A write to one object of the view.
pub(super) struct Forwarded<'a> {
    pub context: &'a Context,
    pub view: &'a View,
    /// The members that have the object, or a copy of it; at least one.
    pub targets: Vec<Target>,
}

/// What a member said.
pub(super) struct Answer<'a> {
    target: &'a Target,
    pub code: StatusCode,
    pub tree: Tree,
}

impl<'a> Forwarded<'a> {
    pub(super) fn name(&self) -> &'a str {
        &self.context.target.name
    }

    fn clusters(&self) -> String {
        let names: Vec<&str> = self.targets.iter().map(|target| target.cluster.as_str()).collect();
        names.join(", ")
    }

    /// What may not be done here is done where the object is.
    fn refusal(&self) -> Status {
        let about = self.context.about(self.name());
        let message = format!(
            "{} \"{}\" belongs to cluster {}: here it can be deleted, evicted, given labels and annotations, or be \
             changed by changing what made it",
            about.qualified(),
            self.name(),
            self.clusters()
        );
        Status::new(Reason::MethodNotAllowed, message).about(about)
    }

    pub(super) fn object(&self, key: &Key) -> Result<std::sync::Arc<Object>, Status> {
        self.view.get(key).ok_or_else(|| Status::not_found(self.context.about(key.item.name())))
    }

    async fn delete(&self, bytes: &Bytes) -> Result<Response<Body>, Status> {
        let options = Options::read(self.context, bytes)?;
        self.context.presenter()?;
        let key = self.context.key(self.name());
        let mut notes = Notes::default();
        let answer = self.delete_all(&key, &options, &mut notes).await?;
        let mut response = self.respond(&key, answer, options.dry_run)?;
        notes.tell(&mut response);
        Ok(response)
    }

    async fn delete_all(
        &self,
        key: &Key,
        options: &Options,
        notes: &mut Notes,
    ) -> Result<Answer<'_>, Status> {
        let object = self.object(key)?;
        options.check_preconditions(self.context, &object)?;
        let tree = object.tree().map_err(Status::internal)?;
        let mut admission =
            Admission::new(self.context, Operation::Delete, key.item.name(), Some(&tree), options.dry_run);
        admission.delete_options = Some(&options.sent);
        admission::ask(&admission, None, notes).await?;
        let mut last = None;
        for target in &self.targets {
            let sent = delete_options(&options.sent, target, options.revision.is_some(), options.dry_run);
            let request = request(Method::DELETE, &path(target, ""), JSON, &Value::Object(sent))?;
            last = Some(self.send(target, request).await?);
        }
        last.ok_or_else(|| Status::not_found(self.context.about(key.item.name())))
    }

    /// A patch or an update that changes labels and annotations and nothing else.
    async fn relabel(&self, verb: Verb, bytes: &Bytes) -> Result<Response<Body>, Status> {
        let context = self.context;
        context.presenter()?;
        let dry_run = context.dry_run()?;
        let key = context.key(self.name());
        let object = self.object(&key)?;
        let (new, warnings) = self.asked(verb, bytes, &object)?;
        check_preconditions(context, &new, &object, verb == Verb::Update)?;
        let old = object.tree().map_err(Status::internal)?;
        if rest(&old) != rest(&new) {
            return Err(self.refusal());
        }
        let changes = self.label_changes(&old, &new)?;
        let mut notes = Notes { warnings };
        let admission = Admission::new(context, Operation::Update, self.name(), Some(&old), dry_run);
        admission::ask(&admission, Some(&new), &mut notes).await?;
        let mut response = match changes.is_empty() {
            true => body::encoded(StatusCode::OK, context.present(&object)?),
            false => {
                let exact = !matches!(given_revision(&new), "" | "0");
                let answer = self.patch_all(changes, exact, dry_run).await?;
                self.respond(&key, answer, dry_run)?
            }
        };
        notes.tell(&mut response);
        Ok(response)
    }

    async fn patch_all(&self, changes: Tree, exact: bool, dry_run: bool) -> Result<Answer<'_>, Status> {
        let mut last = Err(Status::not_found(self.context.about(self.name())));
        for target in &self.targets {
            let mut metadata = changes.clone();
            metadata.insert("uid".into(), json!(target.uid));
            if exact {
                metadata.insert("resourceVersion".into(), json!(target.revision));
            }
            let path = path(target, "") + &self.query(dry_run);
            let request = request(Method::PATCH, &path, MERGE_PATCH, &json!({"metadata": metadata}))?;
            last = Ok(self.send(target, request).await?);
        }
        last
    }

    /// What the object would be, in the stored spelling.
    pub(super) fn asked(
        &self,
        verb: Verb,
        bytes: &Bytes,
        object: &Object,
    ) -> Result<(Tree, Vec<String>), Status> {
        let context = self.context;
        let decoded = match verb {
            Verb::Patch => match negotiate::patch(&context.headers, context.shown.message().is_some())? {
                // Who set what in a member is not known here.
                PatchKind::Apply => return Err(self.refusal()),
                kind => patch::apply(context, &patch::Body::read(kind, bytes.clone())?, object)?,
            },
            _ => decode::object(context, bytes)?,
        };
        let mut new = decoded.tree;
        let given = text(metadata_of(&mut new), "name").to_owned();
        if given != self.name() {
            return Err(Status::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({})",
                self.name()
            )));
        }
        set_namespace(context, &mut new)?;
        context.resource.to_storage(&mut new);
        Ok((new, decoded.warnings))
    }

    /// The labels and annotations that become others, as a merge patch of metadata has them.
    fn label_changes(&self, old: &Tree, new: &Tree) -> Result<Tree, Status> {
        let mut changes = Tree::new();
        for map in ["labels", "annotations"] {
            let changed = map_changes(entries(old, map), entries(new, map));
            if let Some(own) = changed.keys().find(|key| render::is_own(key)) {
                let cause = Cause::forbidden(format!("metadata.{map}[{own}]"), "is set by the server");
                let kind = &self.context.resource;
                return Err(Status::invalid(&kind.stored_group, &kind.kind, self.name(), vec![cause]));
            }
            if !changed.is_empty() {
                changes.insert(map.into(), Value::Object(changed));
            }
        }
        Ok(changes)
    }

    /// Ephemeral containers and resources: as the client sent it, about the object it meant.
    async fn pass_on(&self, verb: Verb, bytes: &Bytes) -> Result<Response<Body>, Status> {
        let context = self.context;
        context.presenter()?;
        let dry_run = context.dry_run()?;
        let key = context.key(self.name());
        let object = self.object(&key)?;
        let (new, warnings) = self.asked(verb, bytes, &object)?;
        check_preconditions(context, &new, &object, false)?;
        let old = object.tree().map_err(Status::internal)?;
        let mut notes = Notes { warnings };
        let admission = Admission::new(context, Operation::Update, self.name(), Some(&old), dry_run);
        admission::ask(&admission, Some(&new), &mut notes).await?;
        let mut last = Err(self.refusal());
        for target in &self.targets {
            let path = path(target, &format!("/{}", context.target.subresource)) + &self.query(dry_run);
            let request = match verb {
                Verb::Patch => self.pinned_patch(target, bytes, &path)?,
                _ => request(Method::PUT, &path, JSON, &Value::Object(as_there(&new, target)))?,
            };
            last = Ok(self.send(target, request).await?);
        }
        let mut response = self.respond(&key, last?, dry_run)?;
        notes.tell(&mut response);
        Ok(response)
    }

    /// The client's patch, which the member refuses if the object is another one by now.
    fn pinned_patch(&self, target: &Target, bytes: &Bytes, path: &str) -> Result<Request<Bytes>, Status> {
        let context = self.context;
        let kind = negotiate::patch(&context.headers, context.shown.message().is_some())?;
        let mut patch: Value =
            serde_json::from_slice(bytes).map_err(|error| Status::bad_request(error.to_string()))?;
        let content_type = match (kind, &mut patch) {
            (PatchKind::Json, Value::Array(operations)) => {
                operations.insert(0, json!({"op": "test", "path": "/metadata/uid", "value": target.uid}));
                "application/json-patch+json"
            }
            (PatchKind::Merge | PatchKind::Strategic, Value::Object(tree)) => {
                let metadata = metadata_of(tree);
                metadata.insert("uid".into(), json!(target.uid));
                for (key, there) in [("name", &target.name), ("namespace", &target.namespace)] {
                    if metadata.contains_key(key) {
                        metadata.insert(key.into(), json!(there));
                    }
                }
                if metadata.contains_key("resourceVersion") {
                    metadata.insert("resourceVersion".into(), json!(target.revision));
                }
                if kind == PatchKind::Merge { MERGE_PATCH } else { "application/strategic-merge-patch+json" }
            }
            _ => return Err(Status::bad_request("the patch is not of the kind that it says it is")),
        };
        request(Method::PATCH, path, content_type, &patch)
    }

    /// Who writes, and whether it is meant.
    pub(super) fn query(&self, dry_run: bool) -> String {
        let manager = self.context.query.get("fieldManager").filter(|manager| !manager.is_empty());
        let manager = manager.map(|manager| format!("fieldManager={}", encoded(manager)));
        let dry = dry_run.then(|| "dryRun=All".to_owned());
        let parts: Vec<String> = manager.into_iter().chain(dry).collect();
        if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
    }

    /// What the member answers; its refusals as they are.
    pub(super) async fn send<'t>(
        &self,
        target: &'t Target,
        request: Request<Bytes>,
    ) -> Result<Answer<'t>, Status> {
        let response = send(self.context, target, request).await?;
        let (head, body) = response.into_parts();
        let bytes = read_all(body).await?;
        let tree: Option<Tree> = serde_json::from_slice(&bytes).ok();
        if head.status.is_success() {
            let unreadable = || Status::internal(format!("cluster {} answered no object", target.cluster));
            return Ok(Answer { target, code: head.status, tree: tree.ok_or_else(unreadable)? });
        }
        Err(self.said(target, head.status, tree, &bytes))
    }

    fn said(&self, target: &Target, code: StatusCode, tree: Option<Tree>, bytes: &Bytes) -> Status {
        if code == StatusCode::UNAUTHORIZED {
            return unauthorized(target);
        }
        let Some(mut tree) = tree.filter(|tree| text(tree, "kind") == "Status") else {
            let words = String::from_utf8_lossy(bytes);
            let words: String = words.chars().take(500).collect();
            return Status::internal(format!("cluster {} answered {code}: {words}", target.cluster))
                .with_code(code.as_u16());
        };
        if let Some(details) = tree.get_mut("details").and_then(Value::as_object_mut)
            && text(details, "name") == target.name
        {
            details.insert("name".into(), json!(self.name()));
        }
        // What counts is how it was answered, whatever the words say.
        tree.insert("code".into(), json!(code.as_u16()));
        Status::said(tree)
    }

    fn respond(&self, key: &Key, answer: Answer<'_>, dry_run: bool) -> Result<Response<Body>, Status> {
        let Answer { target, code, tree } = answer;
        if text(&tree, "kind") != target.kind.name() {
            let success = status::success(self.context.about(self.name()), &target.uid);
            return Ok(body::json(code, &success));
        }
        let object = self.view.answered(&key.item, target, tree, !dry_run);
        let object = object.ok_or_else(|| Status::not_found(self.context.about(self.name())))?;
        Ok(body::encoded(code, self.context.present(&object)?))
    }
}

/// A request to a member, or why there is nobody to ask.
pub(super) async fn send(
    context: &Context,
    target: &Target,
    request: Request<Bytes>,
) -> Result<Response<Body>, Status> {
    let method = request.method().clone();
    let outcome = match &target.member {
        Some(member) => member.send(request).await,
        None => {
            // Nobody knows when it is back: clients that are told to wait do so for a minute, without a word.
            let message = format!(
                "cluster {} is not connected: `kubectl describe cluster` says why, to whoever may see it",
                target.cluster
            );
            Err(Status::new(Reason::ServiceUnavailable, message))
        }
    };
    let code = outcome.as_ref().map(|response| response.status().as_u16()).unwrap_or(0);
    context.hub.metrics.views.forwarded(&method, code);
    outcome
}

pub(super) fn path(target: &Target, below: &str) -> String {
    format!("{}{below}", target.kind.path(&target.namespace, &target.name))
}

pub(super) fn request(
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<Request<Bytes>, Status> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content_type)
        .header(header::ACCEPT, JSON)
        .body(Bytes::from(body.to_string()))
        .map_err(Status::internal)
}

/// The client's options, for just the object it meant. `exact`: and only if nobody changed it.
pub(super) fn delete_options(given: &Tree, target: &Target, exact: bool, dry_run: bool) -> Tree {
    let mut options = given.clone();
    options.insert("kind".into(), json!("DeleteOptions"));
    options.insert("apiVersion".into(), json!("v1"));
    let mut preconditions = json!({"uid": target.uid});
    if exact {
        preconditions["resourceVersion"] = json!(target.revision);
    }
    options.insert("preconditions".into(), preconditions);
    if dry_run {
        options.insert("dryRun".into(), json!(["All"]));
    }
    options
}

/// An object of the view as its member knows it.
fn as_there(shown: &Tree, target: &Target) -> Tree {
    let mut tree = shown.clone();
    let metadata = metadata_of(&mut tree);
    metadata.insert("name".into(), json!(target.name));
    metadata.insert("namespace".into(), json!(target.namespace));
    metadata.insert("uid".into(), json!(target.uid));
    if metadata.contains_key("resourceVersion") {
        metadata.insert("resourceVersion".into(), json!(target.revision));
    }
    let node = metadata.get("annotations").and_then(|annotations| annotations.get(render::NODE)).cloned();
    for map in ["labels", "annotations"] {
        for key in render::MARKS {
            render::set(metadata, map, key, None);
        }
    }
    if let Some((node, spec)) = node.zip(tree.get_mut("spec").and_then(Value::as_object_mut)) {
        spec.insert("nodeName".into(), node);
    }
    tree
}

fn entries<'t>(tree: &'t Tree, map: &str) -> Option<&'t Tree> {
    tree.get("metadata")?.get(map)?.as_object()
}

/// What makes `new` of `old`: entries that are new or other, and null for those that go.
pub(super) fn map_changes(old: Option<&Tree>, new: Option<&Tree>) -> Tree {
    let empty = Tree::new();
    let (old, new) = (old.unwrap_or(&empty), new.unwrap_or(&empty));
    let set = new.iter().filter(|(key, value)| old.get(*key) != Some(value));
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    set.map(|(key, value)| (key.clone(), value.clone())).chain(gone).collect()
}

/// All of an object that a client could mean to change, but its labels and annotations.
fn rest(tree: &Tree) -> Tree {
    let mut rest = tree.clone();
    rest.remove("status");
    let metadata = metadata_of(&mut rest);
    metadata.retain(|key, _| matches!(key.as_str(), "name" | "namespace" | "ownerReferences" | "finalizers"));
    rest
}

fn given_revision(tree: &Tree) -> &str {
    let metadata = tree.get("metadata").and_then(Value::as_object);
    metadata.map_or("", |metadata| text(metadata, "resourceVersion"))
}

async fn read_all(mut body: Body) -> Result<Bytes, Status> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame;
        let Ok(data) = frame.into_data() else { continue };
        if all.len() + data.len() > MAX_ANSWER_BYTES {
            return Err(Status::internal("the member's answer is too large"));
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

/// It is the session that is not known there, not whoever asks.
pub(super) fn unauthorized(target: &Target) -> Status {
    let why = format!("cluster {} refuses the credential of its session", target.cluster);
    Status::new(Reason::ServiceUnavailable, why).retry_after(5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::kinds::Kind;

    fn tree(value: Value) -> Tree {
        let Value::Object(tree) = value else { panic!("an object") };
        tree
    }

    fn target() -> Target {
        Target {
            cluster: "eu-1".into(),
            member: None,
            kind: Kind::Pods,
            namespace: "shop".into(),
            name: "web".into(),
            uid: "u1".into(),
            revision: "17".into(),
        }
    }

    #[test]
    fn only_what_changed_is_sent() {
        let rows = [
            (json!({}), json!({}), json!({})),
            (json!({"a": "1"}), json!({"a": "1", "b": "2"}), json!({"b": "2"})),
            (json!({"a": "1", "b": "2"}), json!({"a": "3"}), json!({"a": "3", "b": null})),
        ];
        for (old, new, changes) in rows {
            assert_eq!(map_changes(old.as_object(), new.as_object()), tree(changes), "{old} {new}");
        }
        assert_eq!(map_changes(None, None), Tree::new());
    }

    #[test]
    fn labels_status_and_bookkeeping_are_no_change_of_the_rest() {
        let old = tree(
            json!({"metadata": {"name": "a", "labels": {"x": "y"}, "generation": 1}, "spec": {"n": 1}, "status": {}}),
        );
        let relabelled = tree(json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"n": 1}}));
        assert_eq!(rest(&old), rest(&relabelled));
        let changed = tree(json!({"metadata": {"name": "a"}, "spec": {"n": 2}}));
        assert_ne!(rest(&old), rest(&changed));
    }

    #[test]
    fn a_deletion_is_about_the_very_object() {
        let given =
            tree(json!({"gracePeriodSeconds": 3, "preconditions": {"resourceVersion": "of the view"}}));
        let options = delete_options(&given, &target(), true, true);
        assert_eq!(
            Value::Object(options),
            json!({
                "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 3, "dryRun": ["All"],
                "preconditions": {"uid": "u1", "resourceVersion": "17"},
            })
        );
        let options = delete_options(&given, &target(), false, false);
        assert_eq!(options["preconditions"], json!({"uid": "u1"}));
    }

    #[test]
    fn members_do_not_see_the_marks_of_the_hub() {
        let shown = tree(json!({"metadata": {
            "name": "web-eu-1", "namespace": "front", "resourceVersion": "9", "labels": {"hanse.io/cluster": "eu-1", "app": "web"},
            "annotations": {"hanse.io/name": "web", "hanse.io/namespace": "shop", "hanse.io/node": "worker-3"},
        }, "spec": {"nodeName": "eu-1"}}));
        let there = json!({
            "name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "17", "labels": {"app": "web"},
        });
        let spec = json!({"nodeName": "worker-3"});
        assert_eq!(Value::Object(as_there(&shown, &target())), json!({"metadata": there, "spec": spec}));
    }
}
