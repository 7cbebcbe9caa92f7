//! What is known of a member, written where its operator looks: the status of its `Cluster`, its virtual `Node`, Events.
//!
//! What changes what can be done with a cluster is written at once; what merely counts, now and then.

use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use api::cluster::condition;
use http::Method;
use machinery::admission::amounts::{self, Amounts};
use serde_json::{Value, json};
use server::desk::Refused;
use store::Key;

use crate::{
    capacity::Summary,
    client::{JSON, MERGE},
    node::{CORDON_NOTE, Facts, cordoned_by_hand, says},
    session::{News, Session},
    wanted::Wanted,
};

pub const PATCH: &str = "application/json-patch+json";
/// Between two writes, whatever happens.
const LEAST_PAUSE: Duration = Duration::from_millis(500);
/// Pods come and go; how many there are is looked at so long after the first of them did.
const COUNT_PAUSE: Duration = Duration::from_millis(500);

/// What was last written, and when.
#[derive(Default)]
struct Written {
    urgent: Value,
    counted: Value,
    heartbeat: String,
    at: Option<Duration>,
}

/// How a cluster is.
struct Outline {
    ready: bool,
    reason: &'static str,
    message: String,
    since: String,
    version: String,
}

impl Outline {
    fn facts<'a>(&'a self, name: &'a str, wanted: &'a Wanted, summary: &'a Summary) -> Facts<'a> {
        Facts {
            name,
            wanted,
            version: &self.version,
            ready: self.ready,
            reason: self.reason,
            message: &self.message,
            since: &self.since,
            summary,
        }
    }
}

impl Session {
    /// Writes what there is to say, for ever.
    pub async fn report(self: &Arc<Self>) -> Infallible {
        let clock = self.shared.hub.env.clock.clone();
        let mut wanted = self.wanted.clone();
        let mut written = Written::default();
        loop {
            let due = self.due(&written);
            tokio::select! {
                () = self.news.notified() => {}
                () = async { self.recount.notified().await; clock.sleep(COUNT_PAUSE).await } => {}
                changed = wanted.changed() => {
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                    // Labels and taints show on the node.
                    written.urgent = Value::Null;
                }
                () = clock.sleep(due) => {}
            }
            if self.node_changed.swap(false, Ordering::Relaxed) && self.node_needs_care() {
                written.urgent = Value::Null;
            }
            let guests_wait = self.guests.is_pending();
            if self.due(&written).is_zero() {
                self.write(&mut written).await;
            } else if guests_wait {
                self.level_guests().await;
            } else {
                continue;
            }
            clock.sleep(LEAST_PAUSE).await;
        }
    }

    /// What must be known at once.
    fn urgent(&self) -> Option<Value> {
        let known = self.known.lock();
        let learned = &known.learned;
        (!known.reason.is_empty()).then(|| {
            let complaint = self.room.complaint();
            json!([
                known.conditions.outline(),
                known.identity,
                learned.version,
                learned.apis,
                *learned.lacks,
                learned.classes,
                complaint,
                known.leftovers.to_json(),
            ])
        })
    }

    fn counted(&self) -> Value {
        let summary = self.capacity.lock().summary();
        json!([counts(&summary), self.known.lock().message])
    }

    /// How long until something is to be written.
    fn due(&self, written: &Written) -> Duration {
        let options = &self.shared.options;
        let since = |at: Duration| self.shared.hub.env.clock.elapsed().saturating_sub(at);
        let Some(urgent) = self.urgent() else { return options.heartbeat_every };
        let (Some(at), true) = (written.at, urgent == written.urgent) else { return Duration::ZERO };
        if self.known.lock().heartbeat != written.heartbeat && since(at) >= options.heartbeat_every {
            return Duration::ZERO;
        }
        let pause = options.report_every.saturating_sub(since(at));
        match pause.is_zero() && self.counted() == written.counted {
            true => options.heartbeat_every.saturating_sub(since(at)).max(options.report_every),
            false => pause,
        }
    }

    /// Says whether all is seen that there is.
    fn note_completeness(&self) {
        let (complaint, now) = (self.room.complaint(), self.shared.hub.now_text());
        let conditions = &mut self.known.lock().conditions;
        match complaint.is_empty() {
            true => conditions.remove(condition::COMPLETE),
            false => drop(conditions.set(condition::COMPLETE, false, "TooLarge", &complaint, &now)),
        }
    }

    async fn write(&self, written: &mut Written) {
        self.note_completeness();
        let (Some(urgent), counted) = (self.urgent(), self.counted()) else { return };
        let wanted = self.wanted.borrow().clone();
        let summary = self.capacity.lock().summary();
        let told = async {
            self.write_status(&wanted, &summary).await?;
            self.write_node(&wanted, &summary).await?;
            self.level_guests().await;
            self.tell().await;
            Ok::<(), Refused>(())
        };
        match told.await {
            Ok(()) => {
                written.heartbeat = self.known.lock().heartbeat.clone();
                (written.urgent, written.counted) = (urgent, counted);
                written.at = Some(self.shared.hub.env.clock.elapsed());
            }
            // The Cluster is gone, and the session is about to hear of it.
            Err(refused) if refused.code == 404 => {}
            Err(refused) => {
                tracing::warn!(cluster = %self.name(), %refused, "cannot write what is known of a cluster");
                self.shared.hub.env.clock.sleep(self.shared.options.retry_after).await;
            }
        }
    }

    async fn call(&self, method: Method, path: &str, kind: &str, body: &Value) -> Result<Value, Refused> {
        self.shared.hub.metrics.members.status_writes.inc();
        self.shared.desk.call(&self.workspace, method, path, kind, body).await
    }

    async fn write_status(&self, wanted: &Wanted, summary: &Summary) -> Result<(), Refused> {
        let mut status = {
            let known = self.known.lock();
            json!({
                "identity": known.identity,
                "version": known.learned.version,
                "conditions": known.conditions.to_json(),
                "heartbeat": known.heartbeat,
                "apis": known.learned.apis_json(),
                "skew": known.learned.skew_json(),
                "capacity": shown(&summary.capacity),
                "allocatable": shown(&summary.allocatable),
                "requested": shown(&summary.requested),
                "nodes": {
                    "total": summary.nodes, "ready": summary.ready, "unschedulable": summary.unschedulable,
                },
                "peer": self.shared.hub.options.issuer,
            })
        };
        if let Some(classes) = &self.known.lock().learned.classes {
            status["classes"] = json!(classes);
        }
        if let Some(leftovers) = self.known.lock().leftovers.to_json() {
            status["leftovers"] = leftovers;
        }
        if status["identity"] == ""
            && let Some(status) = status.as_object_mut()
        {
            status.remove("identity");
        }
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": wanted.uid},
            {"op": "add", "path": "/status", "value": status},
        ]);
        let path = format!("/apis/{}/clusters/{}/status", api::API_VERSION, self.name());
        self.call(Method::PATCH, &path, PATCH, &patch).await.map(drop)
    }

    fn outline(&self) -> Outline {
        let known = self.known.lock();
        Outline {
            ready: known.ready,
            reason: known.reason,
            message: known.message.clone(),
            since: known.conditions.since(condition::READY).to_owned(),
            version: known.learned.version.clone(),
        }
    }

    /// Workspaces that use the cluster see what has become of it.
    async fn level_guests(&self) {
        let (wanted, summary) = (self.wanted.borrow().clone(), self.capacity.lock().summary());
        let outline = self.outline();
        // Before the first verdict there is nothing to say.
        if outline.reason.is_empty() {
            return;
        }
        match self.tell_guests(&outline.facts(self.name(), &wanted, &summary)).await {
            Ok(false) => {}
            Ok(true) => self.guests_wait(),
            Err(refused) => {
                tracing::warn!(cluster = %self.name(), %refused, "cannot write a virtual node");
                self.shared.hub.env.clock.sleep(self.shared.options.retry_after).await;
                self.guests_wait();
            }
        }
    }

    /// From the first time that the cluster could be used, until it is unjoined.
    async fn write_node(&self, wanted: &Wanted, summary: &Summary) -> Result<(), Refused> {
        let outline = self.outline();
        let (facts, ready) = (outline.facts(self.name(), wanted, summary), outline.ready);
        match self.node() {
            None if ready => self.create_node(&facts).await,
            None => Ok(()),
            Some(node) if node["metadata"]["labels"][api::CLUSTER_LABEL] != **self.name() => {
                tracing::warn!(cluster = %self.name(), "a node of that name is there already, and stays as it is");
                Ok(())
            }
            Some(node) => match cordoned_by_hand(&node) {
                Some(cordoned) => self.cordon(wanted, cordoned).await,
                None => self.update_node(&facts, &node).await,
            },
        }
    }

    fn node(&self) -> Option<Value> {
        let space = self.shared.hub.space_by_id(&self.place.0)?;
        let node = space.get(&Key::new("", "nodes", "", self.name()))?;
        node.tree().ok().map(Value::Object)
    }

    /// Somebody removed it, or wants something of the cluster by it.
    fn node_needs_care(&self) -> bool {
        self.node().map_or(self.known.lock().ready, |node| cordoned_by_hand(&node).is_some())
    }

    async fn create_node(&self, facts: &Facts<'_>) -> Result<(), Refused> {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": facts.name, "labels": facts.labels(), "ownerReferences": facts.owner(),
                "annotations": {CORDON_NOTE: facts.note()},
            },
            "spec": facts.spec(),
            "status": facts.status(),
        });
        self.call(Method::POST, "/api/v1/nodes", JSON, &node).await.map(drop)
    }

    async fn update_node(&self, facts: &Facts<'_>, node: &Value) -> Result<(), Refused> {
        let path = format!("/api/v1/nodes/{}", facts.name);
        let test = json!({"op": "test", "path": "/metadata/uid", "value": node["metadata"]["uid"]});
        let metadata = json!({"labels": facts.labels(), "annotations": {CORDON_NOTE: facts.note()}});
        let spec = facts.spec();
        let same_spec = ["taints", "unschedulable"].iter().all(|key| node["spec"][key] == spec[key]);
        if !says(&node["metadata"], &metadata) || !same_spec {
            let mut annotations = node["metadata"]["annotations"].clone();
            annotations[CORDON_NOTE] = json!(facts.note());
            let mut patch = vec![
                test.clone(),
                json!({"op": "add", "path": "/metadata/labels", "value": facts.labels()}),
                json!({"op": "add", "path": "/metadata/annotations", "value": annotations}),
            ];
            for key in ["taints", "unschedulable"] {
                let place = format!("/spec/{key}");
                match (node["spec"].get(key), spec.get(key)) {
                    (_, Some(value)) => patch.push(json!({"op": "add", "path": place, "value": value})),
                    (Some(_), None) => patch.push(json!({"op": "remove", "path": place})),
                    (None, None) => {}
                }
            }
            self.call(Method::PATCH, &path, PATCH, &Value::Array(patch)).await?;
        }
        let status = facts.status();
        let same = ["capacity", "allocatable"].iter().all(|key| node["status"][key] == status[key]);
        if same && says(&node["status"], &status) {
            return Ok(());
        }
        let patch = json!([test, {"op": "add", "path": "/status", "value": status}]);
        self.call(Method::PATCH, &format!("{path}/status"), PATCH, &patch).await.map(drop)
    }

    /// `kubectl cordon` on the node is about the cluster.
    async fn cordon(&self, wanted: &Wanted, cordoned: bool) -> Result<(), Refused> {
        let note =
            json!({"metadata": {"annotations": {CORDON_NOTE: if cordoned { "true" } else { "false" }}}});
        let change = json!({"metadata": {"uid": wanted.uid}, "spec": {"unschedulable": cordoned}});
        let path = format!("/apis/{}/clusters/{}", api::API_VERSION, self.name());
        self.call(Method::PATCH, &path, MERGE, &change).await?;
        self.call(Method::PATCH, &format!("/api/v1/nodes/{}", self.name()), MERGE, &note).await.map(drop)
    }

    /// Events of what became of it. They are for people, who can do without.
    async fn tell(&self) {
        let untold = std::mem::take(&mut self.known.lock().untold);
        for news in untold {
            let event = self.event(&news);
            let told = self.call(Method::POST, "/api/v1/namespaces/default/events", JSON, &event).await;
            if let Err(refused) = told {
                tracing::info!(cluster = %self.name(), %refused, "cannot write an event");
            }
        }
    }

    fn event(&self, news: &News) -> Value {
        let hub = &self.shared.hub;
        let now = hub.now_text();
        let uid = hub.new_uid();
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": format!("{}.{}", self.name(), uid.get(..8).unwrap_or("0")), "namespace": "default"},
            "involvedObject": {
                "apiVersion": api::API_VERSION, "kind": api::cluster::KIND, "name": self.name().as_str(),
                "uid": self.wanted.borrow().uid,
            },
            "type": if news.good { "Normal" } else { "Warning" },
            "reason": news.reason,
            "message": news.message,
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
            "source": {"component": "hanse-sync"},
        })
    }
}

fn shown(amounts: &Amounts) -> Value {
    Value::Object(amounts::to_tree(amounts))
}

fn counts(summary: &Summary) -> Value {
    json!([
        summary.nodes,
        summary.ready,
        summary.unschedulable,
        shown(&summary.capacity),
        shown(&summary.allocatable),
        shown(&summary.requested),
    ])
}
