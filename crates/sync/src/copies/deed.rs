//! What is done in the member: look, apply, delete.

use api::assignment::{Propagation, State, Target};
use bytes::Bytes;
use compact_str::CompactString;
use dialects::MANAGED_LABEL;
use http::{Method, StatusCode, header};
use kinds::{Kind, Problem, Subject};
use machinery::{Object, fnv::hash};
use serde_json::{Value, json};
use server::{hub::root_id, views::Placed};
use store::{Collection, ItemKey, WorkspaceId};

use super::{
    Applied,
    compare::{contains, owns, owns_no_more},
    errand::Case,
    federated::Said,
    overrides::{self, Labels, Overrides},
    render::{Recipe, render},
    seen::{Seen, Type},
};
use crate::{
    MANAGER,
    client::{APPLY, Client, Error, JSON, MERGE, get, request},
    session::{Session, Shared},
};

/// The most that one object may be.
const MOST_BYTES: usize = 16 << 20;

/// Where a copy is in the member.
pub struct Place<'a> {
    pub ty: &'a Type,
    pub item: &'a ItemKey,
    /// The namespace was made for the workspace.
    pub made_for_it: bool,
}

/// What is sent to make a copy.
pub struct Sent {
    pub body: Value,
    /// Of all but replicas that an autoscaler decides.
    pub hash: u64,
    /// Of all that it was made from.
    pub inputs: u64,
    autoscaled: Option<Autoscaled>,
    /// How many replicas it has, if an override says so and not the share.
    replicas: Option<u64>,
}

/// Replicas that somebody in the member decides.
#[derive(Clone, Debug)]
struct Autoscaled {
    /// Where they are.
    path: String,
    /// Whether it may be none. An autoscaler leaves alone for ever what was scaled to nothing.
    to_nothing: bool,
}

impl Autoscaled {
    fn replicas(&self, object: &Value) -> Option<Value> {
        let pointer = self.path.trim_start_matches('.').replace('.', "/");
        object.pointer(&format!("/{pointer}")).cloned()
    }
}

impl Sent {
    fn new(body: Value, inputs: u64, autoscaled: Option<Autoscaled>) -> Sent {
        let mut sent = Sent { hash: 0, inputs, body, autoscaled, replicas: None };
        let mut compared = sent.compared().to_string();
        // Nothing is not one of the numbers that are left to others: what is to run again is something else.
        if sent.autoscaled.as_ref().is_some_and(|it| it.replicas(&sent.body) == Some(json!(0))) {
            compared.push('0');
        }
        sent.hash = hash(compared.as_bytes());
        sent
    }

    /// The copy as a member has it that has taken all of it.
    pub fn left_as(&self, seen: &Seen) -> Applied {
        let (uid, left) = (seen.uid.clone(), seen.fingerprint);
        Applied { uid, sent: self.hash, inputs: self.inputs, left, replicas: self.replicas }
    }

    /// What the member is to have, whoever decides the replicas.
    fn compared(&self) -> Value {
        let mut body = self.body.clone();
        if let Some(Autoscaled { path, .. }) = &self.autoscaled {
            take(&mut body, path);
        }
        body
    }

    /// Whether a copy was scaled to nothing, where it is not to be, so that its autoscaler does not look at it.
    fn is_asleep(&self, copy: &Value) -> bool {
        self.autoscaled.as_ref().is_some_and(|it| {
            let is_nothing = |object: &Value| it.replicas(object) == Some(json!(0));
            !it.to_nothing && is_nothing(copy) && !is_nothing(&self.body)
        })
    }

    /// Whether a copy has all of it, and nothing that was sent once and is not any more.
    pub fn is_in(&self, copy: &Value) -> bool {
        if self.is_asleep(copy) {
            return false;
        }
        let mut compared = self.compared();
        // Items of lists leave them out.
        let (api_version, kind) = (take(&mut compared, "apiVersion"), take(&mut compared, "kind"));
        let has_all = contains(copy, &compared);
        put(&mut compared, "apiVersion", api_version);
        put(&mut compared, "kind", kind);
        has_all && owns_no_more(copy, MANAGER, &self.body)
    }

    /// As it is sent to change `copy`: replicas that were ours stay what they are, and those that somebody else has
    /// taken over are not ours to send, unless there are none.
    fn for_copy(&self, copy: &Value) -> Value {
        let mut body = self.body.clone();
        let Some(autoscaled) = self.autoscaled.as_ref().filter(|_| !self.is_asleep(copy)) else {
            return body;
        };
        take(&mut body, &autoscaled.path);
        if owns(copy, MANAGER, &autoscaled.path) {
            put(&mut body, &autoscaled.path, autoscaled.replicas(copy));
        }
        body
    }
}

/// How many replicas are sent, if that is not what the cluster is to have of them.
fn overridden(kind: &Kind, object: &Value, body: &Value, own: &Target) -> Option<u64> {
    let sent = kind.replicas().and_then(|_| kind.wanted(body))?;
    let share = own.replicas.or_else(|| kind.wanted(object))?;
    (sent != share.saturating_add(own.overflow)).then_some(sent)
}

fn autoscalers() -> Collection {
    Collection::new("autoscaling", "horizontalpodautoscalers")
}

/// Whether somebody else has set what the object is about. One that was made here, by a request whose answer was lost,
/// has nobody else's: controllers set its status and mark it.
fn is_made_by_others(object: &[u8]) -> bool {
    let object: Value = serde_json::from_slice(object).unwrap_or_default();
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let others =
        entries.filter(|it| it["manager"] != MANAGER && it["subresource"].as_str().unwrap_or("").is_empty());
    let about = |it: &Value| {
        let fields = it["fieldsV1"].as_object().into_iter().flatten();
        fields.map(|(field, _)| field.as_str()).any(|field| !matches!(field, "f:metadata" | "f:status"))
    };
    others.into_iter().any(about)
}

/// Takes out what is at a path, as in `.spec.replicas`.
fn take(value: &mut Value, path: &str) -> Option<Value> {
    let path = path.trim_start_matches('.');
    let (holders, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut place = value;
    for key in holders.split('.').filter(|key| !key.is_empty()) {
        place = place.get_mut(key)?;
    }
    place.as_object_mut()?.remove(last)
}

fn put(value: &mut Value, path: &str, new: Option<Value>) {
    let Some(new) = new else { return };
    let path = path.trim_start_matches('.');
    let (holders, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut place = value;
    for key in holders.split('.').filter(|key| !key.is_empty()) {
        let Some(members) = place.as_object_mut() else { return };
        place = members.entry(key).or_insert_with(|| json!({}));
    }
    if let Some(members) = place.as_object_mut() {
        members.insert(last.to_owned(), new);
    }
}

/// Whether it may be one that fails because a part of it did. Hardly any does, and none else need be taken apart.
pub(super) fn says_failing(object: &Object) -> bool {
    memchr::memmem::find(object.body_slice(), b"\"FailureTarget\"").is_some()
}

/// What tells two states of an object apart that copies are made from. What has a generation has a new one with everything
/// but its metadata and its status.
fn made_from(object: &Object) -> (i64, u64) {
    match object.head.generation {
        0 => (0, object.revision.as_u64()),
        generation => (generation, hash(object.metadata_after_revision())),
    }
}

impl Session {
    /// Of all that a copy is made from: while it is the same, so is the copy.
    pub(super) fn inputs(&self, case: &Case, place: &Place<'_>) -> u64 {
        let (spec, store) = (&case.assignment.spec, case.space.store());
        let mut text = format!("{:?}{}", place.item, case.source_uid());
        for target in &spec.clusters {
            // Whether the others are ready makes no difference.
            let stays = target.state != State::Draining;
            let Target { name, replicas, overflow, completions, run, first_ordinal, min, max, .. } = target;
            text.push_str(&format!(
                "{name}{stays}{replicas:?}+{overflow}{completions:?}/{run}{first_ordinal:?}{min:?}{max:?}"
            ));
        }
        let of_object = case.object.as_deref().map(made_from);
        let stops = case.object.as_deref().is_some_and(|object| self.stops(case, object));
        let of_namespace = self.hub_namespace(case).map(|namespace| namespace.revision);
        let changed =
            |workspace: &WorkspaceId, collection: &Collection| store.last_change(workspace, collection);
        let own = &case.errand.workspace;
        let layers = [changed(&root_id(), &overrides::collection()), changed(own, &overrides::collection())];
        let scalers = changed(own, &autoscalers());
        let kinds = changed(own, &Collection::new("apiextensions.k8s.io", "customresourcedefinitions"));
        // Pods of a member without policies say themselves whose token they mount.
        let accounts =
            self.tokens.has_no_policies().then(|| changed(own, &Collection::new("", "serviceaccounts")));
        let labels = &self.wanted.borrow().labels;
        text.push_str(&format!(
            "{of_object:?}{stops}{of_namespace:?}{layers:?}{scalers:?}{kinds:?}{accounts:?}{labels:?}"
        ));
        hash(text.as_bytes())
    }

    /// Whether what is left of it here is to end.
    fn stops(&self, case: &Case, object: &Object) -> bool {
        says_failing(object) && {
            let status = case.known_report().map_or(&Value::Null, |known| &known.status);
            let tree = object.tree().map(Value::Object).unwrap_or_default();
            self.kind(case).stops(&tree, status)
        }
    }

    /// `None`: this cluster gets none of it, or the object is gone.
    pub(super) fn sent(&self, case: &Case, place: &Place<'_>, inputs: u64) -> Result<Option<Sent>, Problem> {
        let Some(object) = &case.object else { return Ok(None) };
        let tree = object.tree().map_err(|_| Problem::Missing("fields that can be read"))?;
        let tree = Value::Object(tree);
        let kind = self.kind(case);
        let chosen = self.chosen_overrides(case);
        let said = Said::read(object, self.name())?;
        let mut changes = chosen.changes();
        changes.push(&said.changes);
        let mut body = render(&Recipe {
            kind: &kind,
            object: &tree,
            targets: &case.assignment.spec.clusters,
            own: &case.own,
            changes: &changes,
            workspace: (case.space.name(), &case.errand.workspace.0),
            namespace: if case.is_namespace { "" } else { place.item.namespace() },
            name: place.item.name(),
            source_uid: case.source_uid(),
            status: case.known_report().map_or(&Value::Null, |known| &known.status),
        })?;
        if let Some(body) = body.as_mut().filter(|_| place.made_for_it) {
            let (home, namespace) = (case.errand.item.namespace(), place.item.namespace());
            self.complete_pods(&kind, &case.space, home, namespace, body)?;
        }
        // As in one cluster, what somebody scales to nothing is not autoscaled.
        let scales = kind.wanted(&tree) != Some(0);
        let is_theirs = said.retains_replicas || (scales && self.is_autoscaled(case));
        let replicas = kind.replicas().filter(|_| is_theirs);
        let autoscaled =
            replicas.map(|path| Autoscaled { path: path.to_owned(), to_nothing: said.retains_replicas });
        let Some(body) = body else { return Ok(None) };
        let replicas = overridden(&kind, &tree, &body, &case.own).filter(|_| autoscaled.is_none());
        Ok(Some(Sent { replicas, ..Sent::new(body, inputs, autoscaled) }))
    }

    fn chosen_overrides(&self, case: &Case) -> super::overrides::Chosen {
        let Shared { hub, overrides, .. } = &*self.shared;
        let layers = match case.errand.workspace == root_id() {
            true => [Default::default(), overrides.of(&*hub.store, &root_id())],
            false => {
                [overrides.of(&*hub.store, &root_id()), overrides.of(&*hub.store, &case.errand.workspace)]
            }
        };
        let namespace = self.hub_namespace(case).map(|it| it.head.labels.to_vec()).unwrap_or_default();
        Overrides::choose(layers, &subject(case), &namespace, (self.name(), &self.cluster_labels()))
    }

    /// Those of the Cluster, and those that its virtual node has beside them.
    fn cluster_labels(&self) -> Labels {
        let own = [api::CLUSTER_LABEL, "kubernetes.io/hostname"].map(|key| (key.into(), self.name().clone()));
        let mut labels: Labels = own.into();
        for (key, value) in &self.wanted.borrow().labels {
            if !labels.iter().any(|(known, _)| known == key) {
                labels.push((key.into(), value.as_str().unwrap_or_default().into()));
            }
        }
        labels
    }

    /// Whether an autoscaler of the workspace decides the replicas of the object.
    fn is_autoscaled(&self, case: &Case) -> bool {
        let reference = &case.assignment.spec.object;
        let listing = case.space.stored(&autoscalers());
        let name = format!("\"{}\"", reference.name);
        listing.iter(Some(case.errand.item.namespace()), None).any(|(_, object)| {
            // Most are about others, and need not be read for that.
            if memchr::memmem::find(object.body_slice(), name.as_bytes()).is_none() {
                return false;
            }
            let Ok(tree) = object.tree() else { return false };
            let Some(target) = tree.get("spec").map(|spec| &spec["scaleTargetRef"]) else { return false };
            let group =
                target["apiVersion"].as_str().unwrap_or_default().split_once('/').map_or("", |it| it.0);
            target["name"] == *reference.name
                && target["kind"] == *reference.kind
                && group == reference.group()
        })
    }

    /// Asks the member for the object.
    pub(super) async fn look(&self, client: &Client, place: &Place<'_>) -> Result<Option<Seen>, Error> {
        let path = place.ty.path(place.item);
        match client.demand(get(&path, JSON)?, MOST_BYTES).await {
            Ok(whole) => {
                let garbage = || Error::Garbage(format!("{path} is answered with no object"));
                let (_, seen) = Seen::read(&whole.bytes).ok_or_else(garbage)?;
                self.copies.saw(place.ty, place.item, &seen);
                Ok(Some(seen))
            }
            Err(error) if error.code() == Some(404) => {
                self.copies.saw_none(place.ty, place.item);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// `uid`: of the object that is changed; `None`: there is none, and one is made.
    pub(super) async fn apply(
        &self,
        client: &Client,
        case: &Case,
        place: &Place<'_>,
        sent: &Sent,
        uid: Option<&CompactString>,
    ) -> Result<Seen, Error> {
        let mut body = sent.body.clone();
        if let Some(uid) = uid {
            if sent.autoscaled.is_some() {
                let there = self.look(client, place).await?.and_then(|seen| seen.body);
                let there: Value =
                    there.and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
                body = sent.for_copy(&there);
            }
            put(&mut body, "metadata.uid", Some(json!(uid)));
        }
        if uid.is_none() {
            // What it owns may be seen before the answer.
            let from = Placed { uid: case.source_uid().to_owned(), duplicated: case.is_duplicated() };
            let object =
                [case.assignment.spec.object.kind.as_str(), place.item.namespace(), place.item.name()];
            self.shared.hub.views.announce(&case.errand.workspace, self.name(), object, from);
        }
        let force = if uid.is_some() { "&force=true" } else { "" };
        let path = format!("{}?fieldManager={MANAGER}{force}", place.ty.path(place.item));
        let headers = [(header::CONTENT_TYPE, APPLY), (header::ACCEPT, JSON)];
        let request = request(Method::PATCH, &path, &headers, Bytes::from(body.to_string()))?;
        let whole = client.demand(request, MOST_BYTES).await?;
        let garbage = || Error::Garbage(format!("{path} is answered with no object"));
        let (_, mut seen) = Seen::read(&whole.bytes).ok_or_else(garbage)?;
        seen.body = None;
        if uid.is_none() && whole.code != StatusCode::CREATED && is_made_by_others(&whole.bytes) {
            return Err(self.withdraw(client, place, sent, &seen).await);
        }
        self.shared.hub.metrics.copies.wrote(if uid.is_some() { "applied" } else { "created" });
        self.copies.saw(place.ty, place.item, &seen);
        self.copies.settle(&case.errand, sent.left_as(&seen));
        if case.is_namespace {
            // Whatever waits for it need not wait until the member tells.
            self.namespace_put(&whole.bytes);
        }
        Ok(seen)
    }

    /// Somebody made an object of that name after it was looked for, and what was sent was merged into it: all that it
    /// has from here alone is taken back, and it is looked at again as somebody else's.
    async fn withdraw(&self, client: &Client, place: &Place<'_>, sent: &Sent, seen: &Seen) -> Error {
        let mut nothing = json!({
            "apiVersion": sent.body["apiVersion"], "kind": sent.body["kind"],
            "metadata": {"name": place.item.name(), "uid": seen.uid},
        });
        if !place.item.namespace().is_empty() {
            nothing["metadata"]["namespace"] = json!(place.item.namespace());
        }
        let path = format!("{}?fieldManager={MANAGER}&force=true", place.ty.path(place.item));
        let headers = [(header::CONTENT_TYPE, APPLY), (header::ACCEPT, JSON)];
        let request = request(Method::PATCH, &path, &headers, Bytes::from(nothing.to_string()));
        let taken_back = match request {
            Ok(request) => client.demand(request, MOST_BYTES).await.map(|_| ()),
            Err(error) => Err(error),
        };
        self.copies.saw_none(place.ty, place.item);
        match taken_back {
            Ok(()) => {
                Error::Garbage("somebody else made an object of that name at the same moment".to_owned())
            }
            Err(error) => error,
        }
    }

    /// Takes off what says that it is a copy, and of whom; what is there then.
    pub(super) async fn let_go(
        &self,
        client: &Client,
        place: &Place<'_>,
        uid: &str,
    ) -> Result<Option<Seen>, Error> {
        let patch = json!({"metadata": {
            "uid": uid, "annotations": {api::SOURCE_ANNOTATION: null, api::RUN_ANNOTATION: null},
            "labels": {
                api::WORKSPACE_LABEL: null, api::WORKSPACE_ID_LABEL: null, api::NAMESPACE_LABEL: null,
                MANAGED_LABEL: null,
            },
        }});
        let headers = [(header::CONTENT_TYPE, MERGE), (header::ACCEPT, JSON)];
        let path = format!("{}?fieldManager={MANAGER}", place.ty.path(place.item));
        let request = request(Method::PATCH, &path, &headers, Bytes::from(patch.to_string()))?;
        match client.demand(request, MOST_BYTES).await {
            Ok(_) => self.shared.hub.metrics.copies.wrote("applied"),
            Err(error) if error.code() == Some(404) => {}
            Err(error) => return Err(error),
        }
        self.copies.saw_none(place.ty, place.item);
        self.look(client, place).await
    }

    /// What is left of it then.
    pub(super) async fn delete(
        &self,
        client: &Client,
        case: &Case,
        place: &Place<'_>,
        uid: &str,
    ) -> Result<Option<Seen>, Error> {
        let policy = match case.propagation() {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
            // A cluster that is left, with the object still there.
            Propagation::Keep => "Background",
        };
        let mut options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy, "preconditions": {"uid": uid},
        });
        // A pod has as long to end as its user gave it.
        if let Some(seconds) = case.grace() {
            options["gracePeriodSeconds"] = json!(seconds);
        }
        let headers = [(header::CONTENT_TYPE, JSON), (header::ACCEPT, JSON)];
        let body = Bytes::from(options.to_string());
        let request = request(Method::DELETE, &place.ty.path(place.item), &headers, body)?;
        match client.demand(request, MOST_BYTES).await {
            Ok(_) => self.shared.hub.metrics.copies.wrote("deleted"),
            Err(error) if error.code() == Some(404) => {}
            Err(error) => return Err(error),
        }
        self.look(client, place).await
    }
}

/// What selectors ask for.
fn subject(case: &Case) -> Subject {
    let reference = &case.assignment.spec.object;
    let labels = case.object.as_ref().map(|object| &object.head.labels[..]).unwrap_or_default();
    Subject {
        group: reference.group().to_owned(),
        kind: reference.kind.clone(),
        namespace: case.namespace().to_owned(),
        name: reference.name.clone(),
        labels: labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        ..Subject::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(autoscaled: bool) -> Sent {
        let body =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 2, "paused": true}});
        let autoscaled =
            autoscaled.then(|| Autoscaled { path: "spec.replicas".to_owned(), to_nothing: false });
        Sent::new(body, 0, autoscaled)
    }

    /// A copy with so many replicas, which are ours or somebody else's.
    fn copy(replicas: u64, owner: &str) -> Value {
        let fields = |fields: Value| json!({"f:spec": fields});
        let mut applied = vec![json!({
            "manager": MANAGER, "operation": "Apply", "fieldsV1": fields(json!({"f:paused": {}})),
        })];
        applied.push(json!({
            "manager": owner, "operation": "Apply", "fieldsV1": fields(json!({"f:replicas": {}})),
        }));
        json!({"metadata": {"managedFields": applied}, "spec": {"replicas": replicas, "paused": true}})
    }

    #[test]
    fn replicas_count_unless_an_autoscaler_decides_them() {
        assert!(sent(false).is_in(&copy(2, MANAGER)));
        assert!(!sent(false).is_in(&copy(7, MANAGER)));
        assert!(sent(true).is_in(&copy(7, MANAGER)));
        assert!(sent(true).is_in(&copy(7, "hpa")));
        assert_ne!(sent(true).hash, sent(false).hash, "that one decides them now is a change");
    }

    #[test]
    fn replicas_that_somebody_took_over_are_not_sent_and_ours_stay_what_they_are() {
        assert_eq!(sent(false).for_copy(&copy(7, "hpa"))["spec"]["replicas"], 2);
        assert_eq!(sent(true).for_copy(&copy(7, MANAGER))["spec"]["replicas"], 7);
        assert_eq!(sent(true).for_copy(&copy(7, "hpa"))["spec"].get("replicas"), None);
    }

    #[test]
    fn what_was_scaled_to_nothing_wakes_up_unless_the_member_may_do_that() {
        for owner in [MANAGER, "kubectl"] {
            assert!(!sent(true).is_in(&copy(0, owner)));
            assert_eq!(sent(true).for_copy(&copy(0, owner))["spec"]["replicas"], 2);
        }
        let nothing =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 0, "paused": true}});
        let asleep = Sent::new(nothing, 0, sent(true).autoscaled);
        assert!(asleep.is_in(&copy(0, MANAGER)));
        assert_ne!(asleep.hash, sent(true).hash, "so that a copy is not taken for what is to run again");
        let mut to_nothing = sent(true);
        to_nothing.autoscaled.as_mut().unwrap().to_nothing = true;
        assert!(to_nothing.is_in(&copy(0, "hpa")));
        assert_eq!(to_nothing.for_copy(&copy(0, MANAGER))["spec"]["replicas"], 0);
    }
}
