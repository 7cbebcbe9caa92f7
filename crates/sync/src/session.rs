//! One session: a `Cluster` and the member behind it.
//!
//! ```text
//!   credential ──> probe ──> gate open ──> learn · namespaces · nodes · pods · replica sets · revisions · events
//!                    ^          │ closes: unreachable, or not the cluster that was joined
//!                    └──────────┴── whoever fails asks for a probe, and waits for the gate
//! ```

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use compact_str::CompactString;
use env::BoxFuture;
use futures_util::{
    StreamExt,
    stream::{self, FuturesUnordered},
};
use http::{Request, Response};
use http_body_util::BodyExt;
use machinery::status::{Reason, Status};
use parking_lot::Mutex;
use serde_json::Value;
use server::{
    Hub,
    body::Body,
    desk::Desk,
    parsed::Parsed,
    views::{Host, Member},
};
use store::WorkspaceId;
use tokio::sync::{Notify, watch};

use crate::{
    apis::{self, Compared, Learned},
    capacity::Capacity,
    claims::{Claimant, Claims, Place},
    client::{Access, Client, Error, get},
    conditions::Conditions,
    copies::{Copies, confirmed::Sessions, leftovers::Leftovers, overrides::Overrides, reporter::Reporter},
    guests::Guests,
    health::{Health, Outcome, Trouble},
    homes::{self, Homes},
    objects,
    reflect::{METADATA, Reflector, Sink, Source, WHOLE, is_too_much},
    rights::Rights,
    room::Room,
    sessions::Options,
    shown::Shown,
    sinks::{Kind, NamespaceSink, NodeSink, ViewSink},
    tokens::{self, Tokens},
    unscheduled::Unscheduled,
    wanted::Wanted,
};
use api::cluster::condition;

const KUBE_SYSTEM: &str = "/api/v1/namespaces/kube-system";
/// Of what is asked to see whether a member is there.
const MAX_PROBE: usize = 1 << 20;
/// A member that wants to be left alone for longer is asked then all the same.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Until an answer to a request that is sent on begins.
const FORWARD_LIMIT: Duration = Duration::from_secs(60);

/// What is shown in workspaces, and where members have it.
const VIEWS: [(&str, Kind); 4] = [
    ("/api/v1/pods", Kind { group: "", resource: "pods", api_version: "v1", kind: "Pod" }),
    (
        "/apis/apps/v1/replicasets",
        Kind { group: "apps", resource: "replicasets", api_version: "apps/v1", kind: "ReplicaSet" },
    ),
    (
        "/apis/apps/v1/controllerrevisions",
        Kind {
            group: "apps",
            resource: "controllerrevisions",
            api_version: "apps/v1",
            kind: "ControllerRevision",
        },
    ),
    ("/api/v1/events", Kind { group: "", resource: "events", api_version: "v1", kind: "Event" }),
];

/// What all sessions share.
pub struct Shared {
    pub hub: Arc<Hub>,
    pub desk: Desk,
    pub options: Options,
    pub claims: Claims,
    pub compared: Compared,
    pub reporter: Reporter,
    pub overrides: Overrides,
    /// Whether clusters can be used, by what is written of them.
    pub readiness: Parsed<bool>,
    /// Those of this process, by the UID of the `Cluster`.
    pub sessions: Sessions,
    /// Turns true when all Assignments were looked at once.
    pub begun: watch::Sender<bool>,
}

pub struct Session {
    pub shared: Arc<Shared>,
    pub place: Place,
    pub claimant: Claimant,
    /// The name of the workspace.
    pub workspace: String,
    pub wanted: watch::Receiver<Wanted>,
    pub known: Mutex<Known>,
    pub capacity: Mutex<Capacity>,
    pub unscheduled: Mutex<Unscheduled>,
    pub homes: Homes,
    pub shown: Shown,
    pub guests: Guests,
    pub tokens: Tokens,
    pub room: Arc<Room>,
    pub copies: Copies,
    pub rights: Rights,
    /// Open: the member can be used.
    pub gate: watch::Sender<bool>,
    /// Something is to be reported.
    pub news: Notify,
    /// There are other pods than before.
    pub recount: Notify,
    /// Other pods wait for a node than before.
    pub waiting: Notify,
    /// The virtual node was changed, by whomever.
    pub node_changed: AtomicBool,
    /// Somebody has reason to doubt that the member is there.
    doubt: Notify,
    /// Turns true when nothing may come from the member any more.
    over: watch::Sender<bool>,
}

/// What is known of the member, beside what it runs.
#[derive(Default)]
pub struct Known {
    pub identity: String,
    pub conditions: Conditions,
    /// Of `Ready`; empty before the first verdict of this session.
    pub reason: &'static str,
    pub message: String,
    pub ready: bool,
    pub heartbeat: String,
    pub learned: Learned,
    pub leftovers: Leftovers,
    /// What nobody was told of yet.
    pub untold: Vec<News>,
}

/// Something of the cluster that people are told of by an Event.
pub struct News {
    pub good: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Session {
    pub fn new(
        shared: Arc<Shared>,
        workspace: String,
        place: Place,
        wanted: watch::Receiver<Wanted>,
        status: &Value,
    ) -> Session {
        let identity = status["identity"].as_str().unwrap_or_default().to_owned();
        let claimant = shared.claims.claimant(place.clone());
        if !identity.is_empty() {
            // Whoever comes later with the same is told when it is probed.
            let _ = shared.claims.claim(&identity, &claimant);
        }
        let hub = shared.hub.clone();
        let learned = Learned {
            version: status["version"].as_str().unwrap_or_default().to_owned(),
            ..Learned::default()
        };
        let was_seen = status["heartbeat"].as_str().is_some_and(|heartbeat| !heartbeat.is_empty());
        let known = Known {
            identity,
            conditions: Conditions::read(status),
            heartbeat: status["heartbeat"].as_str().unwrap_or_default().to_owned(),
            learned,
            leftovers: Leftovers::recalled(status),
            ..Known::default()
        };
        let homes = Homes::new(hub.clone(), place.0.clone());
        let (views, own) = (hub.views.clone(), place.0.clone());
        let tokens = Tokens::recalled(&known.conditions);
        Session {
            workspace,
            wanted,
            known: Mutex::new(known),
            capacity: Mutex::default(),
            unscheduled: Mutex::default(),
            shown: Shown::new(views, own, &place.1, was_seen, homes.generation()),
            homes,
            guests: Guests::default(),
            tokens,
            room: Arc::new(Room::new(shared.options.most_bytes)),
            copies: Copies::default(),
            rights: Rights::default(),
            gate: watch::channel(false).0,
            news: Notify::new(),
            recount: Notify::new(),
            waiting: Notify::new(),
            node_changed: AtomicBool::new(false),
            doubt: Notify::new(),
            over: watch::channel(false).0,
            place,
            claimant,
            shared,
        }
    }

    /// The `Cluster` says which cluster was joined: whoever made it wrote that a moment later.
    pub fn adopt(&self, status: &Value) {
        let identity = status["identity"].as_str().unwrap_or_default();
        let mut known = self.known.lock();
        if known.identity.is_empty() && !identity.is_empty() {
            known.identity = identity.to_owned();
            drop(known);
            // Whoever comes later with the same is told when it is probed.
            let _ = self.shared.claims.claim(identity, &self.claimant);
        }
    }

    pub fn name(&self) -> &CompactString {
        &self.place.1
    }

    /// Something of a workspace is assigned to the cluster, or was.
    pub fn welcome(&self, workspace: &WorkspaceId) {
        let may_be_elsewhere = *workspace != self.place.0 && homes::may_choose(&self.place.0);
        if may_be_elsewhere && self.guests.want(workspace) {
            self.news.notify_one();
        }
    }

    /// Some guests are still to be told.
    pub fn guests_wait(&self) {
        self.guests.wait();
        self.news.notify_one();
    }

    pub fn look_at_node(&self) {
        self.node_changed.store(true, Ordering::Relaxed);
        self.news.notify_one();
    }

    /// The cluster is not joined any more: nothing of it shows, and nobody listens to it.
    pub fn leave(&self) {
        self.shown.leave();
        self.over.send_replace(true);
        self.shared.claims.release(&self.claimant);
    }

    /// The session ends; where it goes on, if anywhere, is another process. The last it did may have been to claim its
    /// cluster.
    pub fn end(&self) {
        self.shown.end();
        self.over.send_replace(true);
        self.shared.claims.release(&self.claimant);
    }

    /// Until nobody wants it any more.
    pub async fn run(self: &Arc<Self>) {
        let mut wanted = self.wanted.clone();
        let links = async {
            loop {
                let link = wanted.borrow_and_update().link.clone();
                let still = tokio::select! {
                    never = Box::pin(self.hold(&link)) => match never {},
                    still = other_link(&mut wanted, &link) => still,
                };
                self.close();
                if !still {
                    return;
                }
            }
        };
        tokio::select! {
            () = links => {}
            never = Box::pin(self.report()) => match never {},
        }
    }

    /// One way to reach the member, for as long as it is the one.
    async fn hold(self: &Arc<Self>, link: &Result<Access, Trouble>) -> Infallible {
        let env = self.shared.hub.env.clone();
        let made = match link {
            Ok(access) => Client::new(env, access, self.shared.options.request_limit)
                .map_err(|error| Trouble { definite: true, ..Trouble::from(&error) }),
            Err(trouble) => Err(trouble.clone()),
        };
        let client = match made {
            Ok(client) => client,
            Err(trouble) => {
                self.judge(&Outcome::Bad(trouble), false);
                return std::future::pending().await;
            }
        };
        let namespaces = Source::new("/api/v1/namespaces", METADATA);
        let nodes = Source::new("/api/v1/nodes", WHOLE);
        // Each is polled only when it has something to do, and none needs room on the stack of the others.
        let mut all: FuturesUnordered<BoxFuture<'_, Infallible>> = FuturesUnordered::new();
        all.push(Box::pin(self.probe(&client)));
        all.push(Box::pin(self.learn(&client)));
        let namespaces = Reflector::new(namespaces, NamespaceSink::new(self), self.room.clone());
        all.push(Box::pin(self.follow(&client, namespaces)));
        let nodes = Reflector::new(nodes, NodeSink::new(self), self.room.clone());
        all.push(Box::pin(self.follow(&client, nodes)));
        let labelled = Source::new(tokens::NAMESPACES, METADATA);
        let labelled = Reflector::new(labelled, tokens::NamespaceSink::new(self), self.room.clone());
        all.push(Box::pin(self.follow(&client, labelled)));
        let secrets = Source::new(tokens::SECRETS, METADATA);
        let secrets = Reflector::new(secrets, tokens::SecretSink::new(self), self.room.clone());
        all.push(Box::pin(self.follow(&client, secrets)));
        all.push(Box::pin(self.whenever_open(|| Box::pin(self.guard_pods(&client)))));
        all.push(Box::pin(self.whenever_open(|| Box::pin(self.keep_tokens(&client)))));
        for (path, kind) in VIEWS {
            let source = Source::new(path, WHOLE);
            let reflector = Reflector::new(source, ViewSink::new(self, kind), self.room.clone());
            all.push(Box::pin(self.follow_view(&client, reflector)));
        }
        all.push(Box::pin(self.run_copies(&client)));
        all.push(Box::pin(self.watch_unscheduled()));
        all.push(Box::pin(self.whenever_open(|| Box::pin(self.keep_rights(&client)))));
        all.push(Box::pin(self.whenever_open(|| Box::pin(self.look_for_leftovers(&client)))));
        match all.next().await {
            Some(never) => match never {},
            None => std::future::pending().await,
        }
    }

    /// Asks again and again how the member is.
    async fn probe(self: &Arc<Self>, client: &Client) -> Infallible {
        let options = &self.shared.options;
        let mut health = Health::default();
        loop {
            let asked = self.ask(client).await;
            let outcome = match asked {
                Ok(()) => Outcome::Good,
                Err(trouble) => Outcome::Bad(trouble),
            };
            let reason = match &outcome {
                Outcome::Good => "Ready",
                Outcome::Bad(trouble) => trouble.reason,
            };
            self.shared.hub.metrics.members.probed(reason);
            let usable = health.note(&outcome);
            if !(usable && outcome != Outcome::Good) {
                self.judge(&outcome, usable);
            }
            self.open_or_close(client, usable);
            if usable && self.shown.try_again() {
                self.homes.list_again();
            }
            let wait = match &outcome {
                Outcome::Good => options.probe_every,
                Outcome::Bad(trouble) => {
                    if !trouble.busy || health.is_busy_again() {
                        client.forget();
                    }
                    trouble.wait.map_or(options.retry_after, |wait| wait.clamp(options.retry_after, MAX_WAIT))
                }
            };
            let doubted = async {
                self.doubt.notified().await;
                // However many doubt it, it is not asked more often.
                client.env().clock.sleep(options.retry_after / 2).await;
            };
            tokio::select! {
                () = client.env().clock.sleep(wait) => {}
                // A member that wants to be left alone is.
                () = doubted, if outcome == Outcome::Good => {}
            }
        }
    }

    /// Whether the member is there and is the one that was joined.
    async fn ask(&self, client: &Client) -> Result<(), Trouble> {
        let heard = client.heard();
        // What others heard meanwhile, beside the answers to these questions.
        let trouble = |error: Error, answers: u64| {
            let busy = matches!(error, Error::Timeout(_)) && client.heard() > heard + answers;
            Trouble { busy, ..Trouble::from(&error) }
        };
        let ready = get("/readyz", "*/*").map_err(|error| trouble(error, 0))?;
        client.demand(ready, MAX_PROBE).await.map_err(|error| trouble(error, 0))?;
        let identity = get(KUBE_SYSTEM, METADATA).map_err(|error| trouble(error, 1))?;
        let found = client.demand(identity, MAX_PROBE).await.map_err(|error| trouble(error, 1))?;
        let identity = objects::head(&found.bytes).map(|head| head.metadata.uid.into_owned());
        match identity.filter(|identity| !identity.is_empty()) {
            Some(identity) => self.recognise(identity),
            None => Err(trouble(Error::Garbage("its namespace kube-system has no UID".into()), 2)),
        }
    }

    fn recognise(&self, identity: String) -> Result<(), Trouble> {
        let mut known = self.known.lock();
        if !known.identity.is_empty() && known.identity != identity {
            let message = format!(
                "another cluster answers at this address: its identity is {identity}, and {} was joined; it is not \
                 used. If it was made anew, unjoin it and join it again",
                known.identity
            );
            return Err(Trouble::definite("IdentityChanged", message));
        }
        if let Err((workspace, name)) = self.shared.claims.claim(&identity, &self.claimant) {
            let message = match workspace == self.place.0 {
                true => format!("the same cluster is joined as {name} already"),
                // Whose it is, is nobody's business here.
                false => "the same cluster is joined in another workspace already".to_owned(),
            };
            return Err(Trouble::definite("AlreadyJoined", message));
        }
        known.identity = identity;
        Ok(())
    }

    /// Takes a verdict down.
    fn judge(&self, outcome: &Outcome, usable: bool) {
        let now = self.shared.hub.now_text();
        let mut known = self.known.lock();
        let (reason, message, reachable) = match outcome {
            Outcome::Good if usable => ("Ready", String::new(), true),
            Outcome::Good => {
                ("Recovering", "it answers again; a little longer, and it is used".to_owned(), true)
            }
            Outcome::Bad(trouble) => (trouble.reason, trouble.message.clone(), trouble.reachable),
        };
        if *outcome == Outcome::Good {
            known.heartbeat.clone_from(&now);
        }
        let reached = if reachable { "Answering" } else { reason };
        let about = if reachable { "" } else { message.as_str() };
        known.conditions.set(condition::REACHABLE, reachable, reached, about, &now);
        if reason == "IdentityChanged" {
            known.conditions.set(condition::IDENTITY_CHANGED, true, reason, &message, &now);
        } else if usable {
            known.conditions.remove(condition::IDENTITY_CHANGED);
        }
        let changed = known.conditions.set(condition::READY, usable, reason, &message, &now);
        if changed {
            let said = match usable {
                true => "the cluster can be used".to_owned(),
                false => format!("the cluster cannot be used: {message}"),
            };
            known.untold.push(News { good: usable, reason, message: said });
        }
        let before = (!known.reason.is_empty()).then_some(known.reason);
        self.shared.hub.metrics.members.moved(before, Some(reason));
        (known.reason, known.message, known.ready) = (reason, message, usable);
        drop(known);
        self.news.notify_one();
    }

    fn open_or_close(self: &Arc<Self>, client: &Client, usable: bool) {
        let is_open = *self.gate.borrow();
        match (is_open, usable) {
            (false, true) => {
                let identity = self.known.lock().identity.clone();
                let (home, cluster) = self.place.clone();
                let over = self.over.subscribe();
                let member = Reached { cluster: cluster.into(), home, client: client.clone(), over };
                self.shown.begin(Arc::new(member), &identity);
                self.gate.send_replace(true);
            }
            (true, false) => self.close(),
            _ => {}
        }
    }

    fn close(&self) {
        self.gate.send_replace(false);
        self.shown.lost();
    }

    /// What the member serves, when the gate opens and now and then.
    async fn learn(&self, client: &Client) -> Infallible {
        let mut gate = self.gate.subscribe();
        loop {
            opened(&mut gate).await;
            let learning = apis::learn(client, &self.place.0, &self.shared.compared);
            let learned = tokio::select! {
                learned = learning => learned,
                () = closed(&mut gate) => continue,
            };
            let pause = match learned {
                Ok(learned) => {
                    self.known.lock().learned = learned;
                    self.news.notify_one();
                    self.shared.options.learn_every
                }
                Err(error) => {
                    tracing::info!(cluster = %self.name(), %error, "cannot learn what a member serves");
                    self.doubt.notify_one();
                    error.retry_after().unwrap_or(self.shared.options.retry_after * 5).min(MAX_WAIT)
                }
            };
            tokio::select! {
                () = client.env().clock.sleep(pause) => {}
                () = closed(&mut gate) => {}
            }
        }
    }

    /// Does `work` while the gate is open, from the beginning each time that it opens.
    async fn whenever_open<'a>(&self, work: impl Fn() -> BoxFuture<'a, Infallible>) -> Infallible {
        let mut gate = self.gate.subscribe();
        loop {
            opened(&mut gate).await;
            tokio::select! {
                never = work() => match never {},
                () = closed(&mut gate) => {}
            }
        }
    }

    /// Keeps a collection level while the gate is open.
    async fn follow<S: Sink>(&self, client: &Client, mut reflector: Reflector<S>) -> Infallible {
        let mut gate = self.gate.subscribe();
        loop {
            opened(&mut gate).await;
            let metrics = &self.shared.hub.metrics.members;
            let error = tokio::select! {
                error = reflector.run(client, &self.shared.options, metrics) => error,
                () = closed(&mut gate) => continue,
            };
            self.recover(client, &error).await;
        }
    }

    /// The same for what is shown in workspaces: it is listed again when namespaces belong elsewhere.
    async fn follow_view<S: Sink>(&self, client: &Client, mut reflector: Reflector<S>) -> Infallible {
        let mut gate = self.gate.subscribe();
        let mut generation = self.homes.generation();
        loop {
            if gate.has_changed().unwrap_or(false) {
                reflector.begin_anew();
            }
            opened(&mut gate).await;
            if !self.homes.is_complete() {
                // An error would mean that the session is gone, and this with it.
                let _ = generation.changed().await;
                continue;
            }
            // Changed while nobody watched: after an error, or while the member was away.
            if generation.has_changed().unwrap_or(false) {
                generation.mark_unchanged();
                reflector.begin_anew();
            }
            let metrics = &self.shared.hub.metrics.members;
            let error = tokio::select! {
                error = reflector.run(client, &self.shared.options, metrics) => error,
                () = closed(&mut gate) => {
                    // What was seen is confirmed by a list when the member is back.
                    reflector.begin_anew();
                    continue;
                }
                _ = generation.changed() => {
                    reflector.begin_anew();
                    // Several namespaces may be on their way.
                    client.env().clock.sleep(self.shared.options.retry_after / 4).await;
                    continue;
                }
            };
            self.recover(client, &error).await;
        }
    }

    /// Somebody has reason to ask whether the member is there.
    pub fn doubt(&self) {
        self.doubt.notify_one();
    }

    pub async fn recover(&self, client: &Client, error: &Error) {
        tracing::debug!(cluster = %self.name(), %error, "a stream from a member ended");
        let options = &self.shared.options;
        let pause = match error {
            // It is well, and nothing that is done here makes it smaller.
            error if is_too_much(error) => {
                tracing::warn!(cluster = %self.name(), why = self.room.complaint(), "a member is too large");
                self.news.notify_one();
                options.learn_every
            }
            _ => {
                self.doubt.notify_one();
                error.retry_after().unwrap_or_default().clamp(options.retry_after, MAX_WAIT)
            }
        };
        client.env().clock.sleep(pause).await;
    }
}

impl Host for Session {
    fn show_in(&self, workspace: &WorkspaceId) {
        self.shown.show_in(workspace);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.hub.views.host_is_gone(&self.wanted.borrow().uid);
        let reason = self.known.lock().reason;
        if !reason.is_empty() {
            self.shared.hub.metrics.members.moved(Some(reason), None);
        }
    }
}

/// False: nobody wants the session any more.
async fn other_link(wanted: &mut watch::Receiver<Wanted>, link: &Result<Access, Trouble>) -> bool {
    wanted.wait_for(|wanted| wanted.link != *link).await.is_ok()
}

pub async fn opened(gate: &mut watch::Receiver<bool>) {
    if gate.wait_for(|open| *open).await.is_err() {
        std::future::pending::<()>().await;
    }
}

pub async fn closed(gate: &mut watch::Receiver<bool>) {
    if gate.wait_for(|open| !*open).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The member as views know it.
struct Reached {
    cluster: String,
    home: WorkspaceId,
    client: Client,
    over: watch::Receiver<bool>,
}

impl Member for Reached {
    fn cluster(&self) -> &str {
        &self.cluster
    }

    fn home(&self) -> &WorkspaceId {
        &self.home
    }

    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let (client, cluster, over) = (self.client.clone(), self.cluster.clone(), self.over());
        Box::pin(async move {
            let answer = client.send(request, FORWARD_LIMIT).await.map_err(|error| {
                let reason = match error {
                    Error::Timeout(_) => Reason::Timeout,
                    _ => Reason::ServiceUnavailable,
                };
                Status::new(reason, format!("cluster {cluster}: {error}")).retry_after(5)
            })?;
            let (parts, body) = answer.response.into_parts();
            // Whoever reads it sees it end; that it broke off, HTTP has no word for at this point.
            let frames = stream::unfold(body, |mut body| async move {
                loop {
                    match body.frame().await?.ok()?.into_data() {
                        Ok(data) => return Some((data, body)),
                        Err(_) => continue,
                    }
                }
            });
            Ok(Response::from_parts(parts, Body::stream(frames.take_until(over))))
        })
    }

    fn over(&self) -> BoxFuture<'static, ()> {
        let mut over = self.over.clone();
        // A session that is gone without a word is over as well.
        Box::pin(async move { drop(over.wait_for(|over| *over).await) })
    }
}
