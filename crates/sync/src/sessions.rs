//! Who has a session: every `Cluster` of every workspace, from when it is there until it is gone.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
    time::Duration,
};

use api::assignment;
use compact_str::CompactString;
use machinery::Object;
use serde_json::Value;
use server::{
    Hub,
    desk::Desk,
    duty::{self, during},
    hub::{default_id, root_id},
    parsed::Parsed,
    views::Host,
};
use store::{Collection, Event, FeedItem, Key, WorkspaceId};
use tokio::sync::watch;

use crate::{
    apis::Compared,
    claims::{Claims, Place},
    copies::{dispatch::Dispatch, overrides::Overrides, reporter::Reporter},
    guests,
    session::{Session, Shared},
    wanted::Wanted,
};

/// How sessions go about it.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often a member that is well is asked how it is.
    pub probe_every: Duration,
    /// The least pause after something went wrong.
    pub retry_after: Duration,
    /// How long one request may take.
    pub request_limit: Duration,
    /// How often counts are written that have changed.
    pub report_every: Duration,
    /// How often it is written that a member was heard of, if nothing else is to be.
    pub heartbeat_every: Duration,
    /// How often a member is asked what it serves.
    pub learn_every: Duration,
    /// How long a watch is asked to last.
    pub watch_lasts: Duration,
    /// A watch that is silent for longer, bookmarks included, is taken for dead.
    pub watch_idle: Duration,
    /// Of one member, how many bytes of objects are looked at, as they are sent.
    pub most_bytes: usize,
    /// A pod that no node takes counts as one that has no room after so long: until then room may be made.
    pub unschedulable_after: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            probe_every: Duration::from_secs(10),
            retry_after: Duration::from_secs(2),
            request_limit: Duration::from_secs(10),
            report_every: Duration::from_secs(5),
            heartbeat_every: Duration::from_secs(60),
            learn_every: Duration::from_secs(300),
            watch_lasts: Duration::from_secs(600),
            watch_idle: Duration::from_secs(150),
            most_bytes: 1 << 30,
            unschedulable_after: Duration::from_secs(kinds::running::UNSCHEDULABLE_AFTER.unsigned_abs()),
        }
    }
}

/// Starts them; they end when the hub stops. Of several servers on one store, the one on duty has them.
pub fn start(hub: &Arc<Hub>, options: Options) {
    let own = hub.clone();
    duty::serve(hub, "sessions", move |ended| {
        let feed = own.store.feed();
        let sessions = Sessions::new(own.clone(), options.clone(), ended.clone());
        let shared = sessions.shared.clone();
        own.env
            .tasks
            .spawn(Box::pin(during(ended.clone(), async move { match shared.reporter.run().await {} })));
        own.env.tasks.spawn(Box::pin(during(ended, sessions.follow(feed))));
    });
}

struct Sessions {
    hub: Arc<Hub>,
    shared: Arc<Shared>,
    ended: watch::Receiver<bool>,
    running: HashMap<Place, Running>,
    dispatch: Dispatch,
    /// Clusters by the Secret they name.
    by_secret: HashMap<(WorkspaceId, String, String), HashSet<Place>>,
}

struct Running {
    session: Arc<Session>,
    wanted: watch::Sender<Wanted>,
}

fn clusters() -> Collection {
    Collection::new(api::GROUP, api::cluster::PLURAL)
}

fn created(object: &Object) -> String {
    let tree = object.tree().unwrap_or_default();
    let created = tree.get("metadata").and_then(|it| it.get("creationTimestamp")).and_then(Value::as_str);
    created.unwrap_or_default().to_owned()
}

impl Sessions {
    fn new(hub: Arc<Hub>, options: Options, ended: watch::Receiver<bool>) -> Sessions {
        let shared = Arc::new(Shared {
            desk: Desk::new(hub.clone(), "system:hanse:sync", crate::MANAGER),
            hub: hub.clone(),
            options,
            claims: Claims::default(),
            compared: Compared::default(),
            reporter: Reporter::new(hub.clone()),
            overrides: Overrides::default(),
            readiness: Parsed::default(),
            sessions: Default::default(),
            begun: watch::channel(false).0,
        });
        let dispatch = Dispatch::new(hub.clone());
        Sessions { hub, shared, ended, running: HashMap::new(), dispatch, by_secret: HashMap::new() }
    }

    async fn follow(mut self, mut feed: store::Feed) {
        // The feed began before this look, so nothing falls between them.
        self.look_at_everything().await;
        loop {
            match feed.next().await {
                FeedItem::Event(event) => self.observe(&event),
                FeedItem::WorkspaceRemoved(workspace) => self.forget(&workspace),
                FeedItem::Lagged => self.look_at_everything().await,
            }
        }
    }

    async fn look_at_everything(&mut self) {
        let mut found: Vec<(Place, Arc<Object>)> = Vec::new();
        let mut nodes = Vec::new();
        for workspace in self.hub.store.workspaces() {
            tokio::task::yield_now().await;
            let here = guests::nodes_in(&self.hub, &workspace).into_iter();
            nodes.extend(here.map(|(uid, node)| (workspace.clone(), uid, node)));
            let Ok(listing) = self.hub.store.list(&workspace, &clusters(), None) else { continue };
            let here = listing.iter(None, None);
            found
                .extend(here.map(|(item, object)| ((workspace.clone(), item.name().into()), object.clone())));
        }
        // Of two that are the same cluster, the one that was first has it.
        found.sort_by_cached_key(|(_, object)| (created(object), object.head.uid.clone()));
        let there: HashSet<Place> = found.iter().map(|(place, _)| place.clone()).collect();
        let gone: Vec<Place> = self.running.keys().filter(|place| !there.contains(*place)).cloned().collect();
        gone.iter().for_each(|place| self.leave(place));
        for (place, object) in found {
            self.take_up(place, &object);
        }
        self.drop_strangers(&there);
        self.take_up_nodes(nodes);
        self.dispatch.look_at_everything().await;
        self.shared.begun.send_replace(true);
    }

    /// Nodes in workspaces of others are kept level as long as there is the cluster that they stand for.
    fn take_up_nodes(&self, nodes: Vec<(WorkspaceId, String, Arc<Object>)>) {
        let mut gone = Vec::new();
        for (workspace, uid, node) in nodes {
            match self.dispatch.session(&uid) {
                Some(session) => session.welcome(&workspace),
                None => gone.push((workspace, node.head.name.to_string(), uid)),
            }
        }
        self.remove_nodes(gone);
    }

    /// In the background: there may be many of them.
    fn remove_nodes(&self, gone: Vec<(WorkspaceId, String, String)>) {
        if gone.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        let removing = async move {
            // The session that ends may be about to write one: so it is looked at twice.
            for _ in 0..2 {
                for (workspace, name, uid) in &gone {
                    guests::remove(&shared.hub, &shared.desk, workspace, name, uid).await;
                }
                shared.hub.env.clock.sleep(shared.options.retry_after).await;
            }
        };
        self.hub.env.tasks.spawn(Box::pin(during(self.ended.clone(), removing)));
    }

    /// Clusters that were unjoined while nobody looked still show.
    fn drop_strangers(&self, there: &HashSet<Place>) {
        // Those of the platform's own workspaces may show anywhere.
        let may_show = |workspace: &WorkspaceId, cluster: &str| {
            let places = [workspace.0.as_str(), api::ROOT, api::DEFAULT];
            places.iter().any(|place| there.contains(&(WorkspaceId((*place).into()), cluster.into())))
        };
        for workspace in self.hub.views.workspaces() {
            for cluster in self.hub.views.clusters(&workspace) {
                if !may_show(&workspace, &cluster) {
                    self.hub.views.leave(&workspace, &cluster);
                }
            }
        }
    }

    fn observe(&mut self, event: &Event) {
        let (group, resource) = event.key.collection.parts();
        match (group, resource) {
            (api::GROUP, api::cluster::PLURAL) => {
                let place = (event.workspace.clone(), event.key.item.name().into());
                match event.after() {
                    Some(object) => self.take_up(place, object),
                    None => self.leave(&place),
                }
            }
            ("", "secrets") => self.look_at_secret(&event.workspace, &event.key),
            ("", "nodes") => {
                let place = (event.workspace.clone(), event.key.item.name().into());
                if let Some(running) = self.running.get(&place) {
                    running.session.look_at_node();
                    if is_another(event) {
                        running.session.tokens.look_at_everything();
                    }
                }
                let namesakes = self.running.iter().filter(|(it, _)| it.1 == place.1);
                for (_, Running { session, .. }) in namesakes {
                    if session.guests.look_at(&event.workspace) {
                        session.news.notify_one();
                    }
                }
            }
            ("", "serviceaccounts") if is_another(event) => self.look_at_account(event),
            (api::GROUP, assignment::PLURAL) if is_of_namespace(event) => self.look_at_namespace(event),
            (api::GROUP, server::tokens::ISSUERS) => {
                if let Some(name) = self.name_of(&event.workspace) {
                    self.running.values().for_each(|it| it.session.tokens.workspace_changed(&name));
                }
            }
            (api::GROUP, "workspaces") if event.workspace == root_id() => {
                self.running.values().for_each(|running| running.session.homes.look_again());
                let name = event.key.item.name();
                self.running.values().for_each(|running| running.session.tokens.workspace_changed(name));
            }
            _ => {}
        }
        self.dispatch.observe(event);
    }

    /// A `Cluster` is there, new or changed.
    fn take_up(&mut self, place: Place, object: &Arc<Object>) {
        let Some(space) = self.hub.space_by_id(&place.0) else { return };
        let Some(wanted) = Wanted::read(&space, object) else { return };
        if object.head.deleting {
            return self.leave(&place);
        }
        if let Some(running) = self.running.get(&place) {
            let (is_same, known_secret) = {
                let now = running.wanted.borrow();
                (now.uid == wanted.uid, now.secret.clone())
            };
            if is_same {
                running.session.adopt(&status(object));
                self.note_secret(&place, Some(&known_secret), Some(&wanted.secret));
                running_change(&self.running, &place, wanted);
                return;
            }
            // One of the same name was made in its place.
            self.leave(&place);
        }
        self.note_secret(&place, None, Some(&wanted.secret));
        let status = status(object);
        let uid = wanted.uid.clone();
        let (sender, receiver) = watch::channel(wanted);
        let name = space.name().to_owned();
        let session = Arc::new(Session::new(self.shared.clone(), name, place.clone(), receiver, &status));
        self.hub.views.host(&uid, Arc::downgrade(&session) as Weak<dyn Host>);
        self.dispatch.add(&uid, &session);
        self.shared.sessions.add(&uid, &session);
        let work = session.clone();
        let ended = self.ended.clone();
        self.hub.env.tasks.spawn(Box::pin(async move {
            during(ended, work.run()).await;
            work.end();
        }));
        self.running.insert(place, Running { session, wanted: sender });
    }

    /// `None`: there is no such workspace, or nobody who wants to know.
    fn name_of(&self, workspace: &WorkspaceId) -> Option<CompactString> {
        match *workspace == root_id() || *workspace == default_id() {
            _ if self.running.is_empty() => None,
            true => Some(workspace.0.clone()),
            false => self.hub.name_of(workspace),
        }
    }

    fn look_at_account(&self, event: &Event) {
        let Some(workspace) = self.name_of(&event.workspace) else { return };
        let gone = event.old.as_ref().map(|old| old.head.uid.as_str());
        for running in self.running.values() {
            running.session.tokens.account_changed(&workspace, event.key.item.namespace(), gone);
        }
    }

    /// It is sent to other clusters than before, or to none.
    fn look_at_namespace(&self, event: &Event) {
        let generation = |object: Option<&Arc<Object>>| object.map(|object| object.head.generation);
        if !is_another(event) && generation(event.old.as_ref()) == generation(event.after()) {
            return;
        }
        let Some(workspace) = self.name_of(&event.workspace) else { return };
        for running in self.running.values() {
            running.session.tokens.account_changed(&workspace, event.key.item.namespace(), None);
        }
    }

    fn look_at_secret(&mut self, workspace: &WorkspaceId, key: &Key) {
        let secret = (workspace.clone(), key.item.namespace().to_owned(), key.item.name().to_owned());
        let Some(places) = self.by_secret.get(&secret).cloned() else { return };
        for place in places {
            let cluster = Key::new(api::GROUP, api::cluster::PLURAL, "", &place.1);
            if let Some(object) = self.hub.store.get(workspace, &cluster) {
                self.take_up(place, &object);
            }
        }
    }

    fn note_secret(&mut self, place: &Place, old: Option<&(String, String)>, new: Option<&(String, String)>) {
        let key = |secret: &(String, String)| (place.0.clone(), secret.0.clone(), secret.1.clone());
        if let Some(old) = old.filter(|old| Some(*old) != new).map(key)
            && let Some(places) = self.by_secret.get_mut(&old)
        {
            places.remove(place);
            if places.is_empty() {
                self.by_secret.remove(&old);
            }
        }
        if let Some(new) = new.map(key) {
            self.by_secret.entry(new).or_default().insert(place.clone());
        }
    }

    /// A `Cluster` is gone. Its node goes with it by its owner, and so does all that shows of it.
    fn leave(&mut self, place: &Place) {
        let Some(running) = self.running.remove(place) else { return };
        let secret = running.wanted.borrow().secret.clone();
        self.note_secret(place, Some(&secret), None);
        let uid = running.wanted.borrow().uid.clone();
        self.dispatch.remove(&uid);
        self.shared.sessions.remove(&uid);
        running.session.leave();
        let guests = running.session.guests.all().into_iter();
        self.remove_nodes(guests.map(|it| (it, place.1.to_string(), uid.clone())).collect());
    }

    fn forget(&mut self, workspace: &WorkspaceId) {
        let gone: Vec<Place> = self.running.keys().filter(|place| place.0 == *workspace).cloned().collect();
        gone.iter().for_each(|place| self.leave(place));
        self.dispatch.forget(workspace);
        for Running { session, .. } in self.running.values() {
            session.guests.forget(workspace);
            session.homes.look_again();
            session.shown.forget(workspace);
        }
    }
}

/// Something came, went, or was made anew: not merely changed.
fn is_another(event: &Event) -> bool {
    let uid = |object: Option<&Arc<Object>>| object.map(|object| object.head.uid.clone());
    uid(event.old.as_ref()) != uid(event.after())
}

/// Whether an assignment is that of the namespace it is in.
fn is_of_namespace(event: &Event) -> bool {
    let item = &event.key.item;
    item.name() == assignment::name_of("", "namespaces", item.namespace())
}

/// The session goes on, with what is wanted of it now.
fn running_change(running: &HashMap<Place, Running>, place: &Place, wanted: Wanted) {
    if let Some(running) = running.get(place) {
        running.wanted.send_if_modified(|now| {
            let changed = *now != wanted;
            if changed {
                *now = wanted;
            }
            changed
        });
    }
}

fn status(object: &Object) -> Value {
    object.tree().ok().and_then(|mut tree| tree.remove("status")).unwrap_or_default()
}
