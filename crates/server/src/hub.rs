//! What all requests share.

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use compact_str::CompactString;
use env::Env;
use jiff::Timestamp;
use machinery::{
    Draft, Object, Revision, names,
    resource::Tree,
    status::{About, Status},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::{Change, Commit, Expect, Key, Store, WorkspaceId, Write};
use tokio::sync::watch;

use crate::{
    admission::{pod_security::Surveys, policies::Policies, quota::Quotas, webhooks::Registered},
    audit::{AuditError, AuditOptions, Auditor},
    base,
    fairness::Fairness,
    letters::{Connections, Letters},
    level::{self, Strangers},
    login::Login,
    metrics::Metrics,
    operate::{Operating, Tools},
    parsed::Parsed,
    rbac::Authorizer,
    readings::Readings,
    recent::Recent,
    served::{Served, Servings},
    shares::Shares,
    space::{self, Space},
    streams::Pods,
    tokens::Issuers,
    uids::Uids,
    views::Views,
    webhook::Webhooks,
};

/// How the server is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Largest request body that is read.
    pub max_body_bytes: usize,
    /// Largest object that is stored.
    pub max_object_bytes: usize,
    /// How often a watch that asked for bookmarks gets one.
    pub bookmark_every: Duration,
    /// Longest time a request that is not a watch may take.
    pub request_timeout: Duration,
    /// `https://…`: what the issuers of tokens are below. Empty: where clients reach this server.
    pub issuer: String,
    /// `host:port`, as clients are told to reach this server; empty if that is not known.
    pub advertised: String,
    /// The authority that clients verify this server by, for those who run in pods.
    pub authority_pem: Arc<str>,
    /// Where this server is reached, if that is known.
    pub endpoint: Option<SocketAddr>,
    pub audit: AuditOptions,
    /// Requests worked on at once are the sum of these two; both 0: no limit.
    pub max_requests_inflight: u32,
    pub max_mutating_requests_inflight: u32,
    /// Connections at once; 0: no limit.
    pub max_connections: usize,
    pub tools: Tools,
    /// For at least so long clients can go on from what they saw last.
    pub history_kept: Duration,
    /// Watches that a workspace may have open; 0: no limit.
    pub max_workspace_watches: usize,
    /// What a workspace may store; 0: no limit. The store keeps to it.
    pub max_workspace_objects: u64,
    pub max_workspace_bytes: u64,
    /// Where what was seen of members is kept; `None`: nowhere.
    pub views: Option<PathBuf>,
    /// Memory of requests that are being received, of which a workspace gets a quarter; 0: no limit.
    pub max_request_bytes_inflight: usize,
    /// Whether endpoints may be on loopback, as those of simulated pods are.
    pub loopback_endpoints: bool,
    /// How long the bounds of a divided autoscaler stay after one of its parts has scaled.
    pub autoscaler_window: Duration,
    /// How long the end of a federated object waits for clusters that do not answer; what they have goes when they are
    /// back.
    pub federated_grace: Duration,
}

impl Options {
    /// What each workspace but root may store.
    pub fn bounds(&self) -> store::Bounds {
        let bound = |most: u64| if most == 0 { u64::MAX } else { most };
        store::Bounds { objects: bound(self.max_workspace_objects), bytes: bound(self.max_workspace_bytes) }
    }

    /// What the workspace `name` is called as an issuer of tokens.
    pub fn issuer_of(&self, name: &str) -> String {
        format!("{}/clusters/{name}", self.issuer)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_body_bytes: 3 * 1024 * 1024,
            max_object_bytes: 1536 * 1024,
            bookmark_every: Duration::from_secs(60),
            request_timeout: Duration::from_secs(60),
            issuer: String::new(),
            advertised: String::new(),
            authority_pem: "".into(),
            endpoint: None,
            audit: AuditOptions::default(),
            max_requests_inflight: 400,
            max_mutating_requests_inflight: 200,
            max_connections: 10_000,
            tools: Tools::default(),
            history_kept: Duration::from_secs(5 * 60),
            max_workspace_watches: 10_000,
            max_workspace_objects: 0,
            max_workspace_bytes: 0,
            views: None,
            max_request_bytes_inflight: 256 << 20,
            loopback_endpoints: false,
            autoscaler_window: Duration::from_secs(120),
            federated_grace: Duration::from_secs(60),
        }
    }
}

/// The heart of one API server.
pub struct Hub {
    pub env: Env,
    pub store: Arc<dyn Store>,
    pub options: Options,
    pub authorizer: Authorizer,
    pub metrics: Metrics,
    /// Turns true when the server stops; watches end then.
    pub stopping: watch::Receiver<bool>,
    pub webhooks: Webhooks,
    pub issuers: Issuers,
    pub policies: Policies,
    /// Whom workspaces want to be asked about their requests.
    pub admission: Registered,
    /// What quotas say, and who charges them.
    pub quotas: Quotas,
    /// Limit ranges, as they were read.
    pub limit_ranges: Parsed<Tree>,
    /// Service accounts that pods run as.
    pub accounts: Parsed<Tree>,
    pub assignments: Readings,
    /// Where pods are looked at because a namespace demands more of them.
    pub surveys: Surveys,
    pub login: Login,
    /// `None`: nothing is recorded.
    pub auditor: Option<Arc<Auditor>>,
    pub fairness: Arc<Fairness>,
    /// Of other servers on the same store; `None`: there are none.
    pub letters: Option<Arc<dyn Letters>>,
    /// Connections with them.
    pub servers: Connections,
    pub operating: Operating,
    pub shares: Shares,
    pub strangers: Strangers,
    /// Where the pods run that are stored here; empty: nowhere.
    pub pods: OnceLock<Arc<dyn Pods>>,
    /// What members have.
    pub views: Views,
    servings: Servings,
    /// Those that were asked for lately.
    spaces: Recent<Space>,
    names: Mutex<Names>,
    uids: Uids,
    installation: Installation,
}

/// What all workspaces are called, kept level with root.
#[derive(Default)]
struct Names {
    by_id: HashMap<WorkspaceId, CompactString>,
    /// Root's workspaces from where `by_id` has them; `None` before the first look.
    since: Option<store::Watch>,
}

impl Names {
    /// Takes over what has changed in root, or all of it where that cannot be told any more.
    fn catch_up(&mut self, store: &dyn Store) -> Result<(), store::Error> {
        const AT_ONCE: usize = 1024;
        if let Some(since) = &mut self.since {
            loop {
                match since.take(AT_ONCE) {
                    Ok(batch) if batch.events.is_empty() => return Ok(()),
                    Ok(batch) => batch.events.iter().for_each(|event| note(&mut self.by_id, event)),
                    Err(_) => break,
                }
            }
        }
        let collection = store::Collection::new(api::GROUP, "workspaces");
        let listing = store.list(&root_id(), &collection, None)?;
        let named = |object: &Arc<Object>| (workspace_id(&object.head.uid), object.head.name.clone());
        self.by_id = listing.iter(None, None).map(|(_, object)| named(object)).collect();
        let span = store::Span { collection, namespace: None };
        self.since = store.watch(&root_id(), span, listing.revision).ok();
        Ok(())
    }
}

fn note(names: &mut HashMap<WorkspaceId, CompactString>, event: &store::Event) {
    let head = &event.object().head;
    let id = workspace_id(&head.uid);
    match event.after() {
        Some(_) => drop(names.insert(id, head.name.clone())),
        None => drop(names.remove(&id)),
    }
}

/// Why a hub did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the store refused its first write: {0}")]
    Store(#[from] store::Error),
    #[error(transparent)]
    Audit(#[from] AuditError),
}

/// What makes this installation different from every other; kept in root since its first start.
struct Installation {
    uid: String,
    created: String,
}

pub fn root_id() -> WorkspaceId {
    WorkspaceId(api::ROOT.into())
}

pub fn default_id() -> WorkspaceId {
    WorkspaceId(api::DEFAULT.into())
}

/// Not a served resource, so no client can reach it.
fn installation_key() -> Key {
    Key::new("hanse.io", "installations", "", "self")
}

impl Hub {
    pub async fn open(
        env: Env,
        store: Arc<dyn Store>,
        options: Options,
        login: Login,
        letters: Option<Arc<dyn Letters>>,
        stopping: watch::Receiver<bool>,
    ) -> Result<Arc<Hub>, OpenError> {
        let metrics = Metrics::default();
        let auditor = Auditor::open(&env, &options.audit, metrics.audit.clone(), stopping.clone())?;
        let seats = options.max_requests_inflight.saturating_add(options.max_mutating_requests_inflight);
        let fairness = Fairness::new(env.clone(), seats, options.request_timeout / 4, metrics.flow.clone());
        let installation = Installation::load(&env, &store).await?;
        let operating = Operating::new(options.tools.clone());
        let webhooks = Webhooks::new(options.tools.traces.clone());
        let shares = Shares::new(options.max_request_bytes_inflight);
        let views = Views::open(env.clone(), store.clone(), options.views.clone(), stopping.clone());
        let loopback_endpoints = options.loopback_endpoints;
        let servers = Connections::new(env.clone());
        Ok(Arc::new(Hub {
            env,
            store,
            options,
            authorizer: Authorizer::default(),
            metrics,
            stopping,
            webhooks,
            issuers: Issuers::default(),
            policies: Policies::default(),
            admission: Registered::default(),
            quotas: Quotas::default(),
            limit_ranges: Parsed::default(),
            accounts: Parsed::default(),
            assignments: Readings::default(),
            surveys: Surveys::default(),
            login,
            auditor,
            fairness,
            letters,
            servers,
            operating,
            shares,
            strangers: Strangers::default(),
            pods: OnceLock::new(),
            views,
            servings: Servings::new(loopback_endpoints),
            spaces: Recent::default(),
            names: Mutex::default(),
            uids: Uids::default(),
            installation,
        }))
    }

    /// The resources that a workspace serves now.
    pub fn served(&self, space: &Space) -> Arc<Served> {
        self.servings.of(space)
    }

    pub fn now(&self) -> Timestamp {
        self.env.clock.now()
    }

    /// As `creationTimestamp` has it: whole seconds.
    pub fn now_text(&self) -> String {
        seconds_text(self.now())
    }

    pub fn new_uid(&self) -> String {
        self.uids.next(&*self.env.random)
    }

    /// The workspace called `name`; 404 if there is none, also while it is being deleted.
    pub fn space(&self, name: &str) -> Result<Space, Status> {
        let object = self.workspace_object(name)?;
        let id = object.as_ref().map_or_else(|| WorkspaceId(name.into()), |it| workspace_id(&it.head.uid));
        if let Some(space) = self.spaces.get(&id) {
            return Ok(space);
        }
        let created = object
            .and_then(|object| object.tree().ok())
            .and_then(|tree| Some(tree.get("metadata")?.get("creationTimestamp")?.as_str()?.to_owned()))
            .unwrap_or_else(|| self.installation.created.clone());
        let identity = format!("{}/{id}", self.installation.uid);
        let space = Space::new(id.clone(), name, self.place(identity, created), self.store.clone());
        self.spaces.insert(&id, space.clone());
        // It may have gone meanwhile. One that is forgotten was marked before, and must not be remembered after.
        let now = self.workspace_object(name).inspect_err(|_| drop(self.spaces.forget(&id)))?;
        if now.is_some_and(|now| workspace_id(&now.head.uid) != id) {
            self.spaces.forget(&id);
        }
        Ok(space)
    }

    /// What a workspace is kept as in root; `None` for those that are always there.
    fn workspace_object(&self, name: &str) -> Result<Option<Arc<Object>>, Status> {
        if matches!(name, api::ROOT | api::DEFAULT) {
            return Ok(None);
        }
        let key = Key::new(api::GROUP, "workspaces", "", name);
        let object = self.store.get(&root_id(), &key).filter(|object| !object.head.deleting);
        let about = About { group: api::GROUP, resource: "workspaces", name };
        object.map(Some).ok_or_else(|| Status::not_found(about))
    }

    /// A workspace that does not exist, as a stranger sees it: the shared base and nothing else.
    pub fn nowhere(&self, name: &str) -> Space {
        let place = self.place(name.to_owned(), self.installation.created.clone());
        Space::new(space::nowhere(), name, place, self.store.clone())
    }

    fn place(&self, identity: String, created: String) -> base::Place {
        let authority_pem = self.options.authority_pem.clone();
        base::Place { identity, created, endpoint: self.options.endpoint, authority_pem }
    }

    /// The workspace with the id `id`, for controllers, which read the feed of all of them. It may be on its way out.
    pub fn space_by_id(&self, id: &WorkspaceId) -> Option<Space> {
        if let Some(space) = self.spaces.get(id) {
            return Some(space);
        }
        let name = match *id == root_id() || *id == default_id() {
            true => id.0.clone(),
            false => self.name_of(id)?,
        };
        self.space(&name).ok().filter(|space| space.id() == id)
    }

    pub fn name_of(&self, id: &WorkspaceId) -> Option<CompactString> {
        let mut names = self.names.lock();
        names.catch_up(&*self.store).ok()?;
        names.by_id.get(id).cloned()
    }

    /// How much was asked of workspaces that are awake.
    pub fn requests(&self) -> Vec<(u64, WorkspaceId)> {
        self.spaces.all().into_iter().map(|space| (space.requests(), space.id().clone())).collect()
    }

    pub fn requests_of(&self, id: &WorkspaceId) -> u64 {
        self.spaces.get(id).map_or(0, |space| space.requests())
    }

    pub fn forget_space(&self, id: &WorkspaceId) {
        self.spaces.forget(id);
        self.authorizer.forget(id);
        self.policies.forget(id);
        self.servings.forget(id);
        self.issuers.forget(id);
        self.fairness.forget(id);
        self.admission.forget(id);
        self.quotas.forget(id);
        self.limit_ranges.forget(id);
        self.accounts.forget(id);
        self.views.forget_space(id);
    }

    /// Forgets all that root does not have any more.
    pub fn forget_missing(&self) {
        for space in self.spaces.all() {
            if self.space_by_id(space.id()).is_none() {
                self.forget_space(space.id());
            }
        }
    }

    /// As [`Hub::space`], of one that another server may just have made.
    pub async fn find_space(&self, name: &str) -> Result<Space, Status> {
        match self.space(name) {
            Err(missing) => match level::for_stranger(self, &root_id()).await? {
                true => self.space(name),
                false => Err(missing),
            },
            found => found,
        }
    }

    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}

/// Resolves when the server stops.
pub async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that whoever could say so is gone, which is as good as being told.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// A workspace's short id: the first half of its object's UID, so that a re-created workspace is another one.
pub fn workspace_id(uid: &str) -> WorkspaceId {
    WorkspaceId(uid.chars().filter(|it| *it != '-').take(16).collect())
}

pub fn seconds_text(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

impl Installation {
    async fn load(env: &Env, store: &Arc<dyn Store>) -> Result<Installation, store::Error> {
        let key = installation_key();
        let unnamed = || store::Error::Unavailable("no installation identity".into());
        if let Some(object) = store.get(&root_id(), &key)
            && let Some(found) = Installation::read(&object.tree().unwrap_or_default())
        {
            return Ok(found);
        }
        let mut bytes = [0; 16];
        env.random.fill(&mut bytes);
        let tree = json!({
            "kind": "Installation", "apiVersion": api::API_VERSION,
            "metadata": {
                "name": "self",
                "uid": names::uuid_v4(bytes),
                "creationTimestamp": seconds_text(env.clock.now()),
            },
        });
        let Value::Object(tree) = tree else { unreachable!("an object literal") };
        let draft = Draft::encode(&tree).map_err(|error| store::Error::Unavailable(error.to_string()))?;
        let change = Change::Put { draft, expires: None };
        let commit = Commit { guards: vec![], writes: vec![Write { key, expect: Expect::Absent, change }] };
        match store.commit(&root_id(), commit).await {
            // Another server was faster.
            Err(store::Error::Conflict { current: Some(theirs), .. }) => {
                let tree = theirs.tree().unwrap_or_default();
                return Installation::read(&tree).ok_or_else(unnamed);
            }
            committed => committed?,
        };
        Installation::read(&tree).ok_or_else(unnamed)
    }

    fn read(tree: &serde_json::Map<String, Value>) -> Option<Installation> {
        let metadata = tree.get("metadata")?;
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).map(str::to_owned);
        Some(Installation { uid: text("uid")?, created: text("creationTimestamp")? })
    }
}

/// A store's refusal, as a client reads it. Conflicts are for the caller, who knows what was meant.
pub fn store_refusal(error: store::Error) -> Status {
    use machinery::status::Reason;
    match error {
        store::Error::Expired { .. } => {
            Status::expired("The resourceVersion for the provided watch is too old.")
        }
        store::Error::Ahead { current } => too_large(None, current),
        store::Error::Full { usage, bounds } => full(usage, bounds),
        store::Error::NoSpace(why) => {
            Status::new(Reason::ServiceUnavailable, format!("no space left on the store's disk: {why}"))
                .retry_after(5)
        }
        store::Error::Unavailable(why) => {
            Status::new(Reason::ServiceUnavailable, format!("the store is not available: {why}"))
                .retry_after(5)
        }
        // As kube-apiserver when etcd does not answer in time. Without `Retry-After`: a client that sends a write again
        // by itself might do it twice.
        store::Error::Unknown(why) => Status::new(
            Reason::Timeout,
            format!(
                "Timeout: the outcome of the write is unknown, it may have happened or happen yet: {why}"
            ),
        ),
        store::Error::Conflict { key, .. } => Status::internal(format!("unexpected conflict on {key:?}")),
        other @ (store::Error::Discontinuous { .. } | store::Error::Invalid(_)) => Status::internal(other),
    }
}

/// As a quota that is used up: trying again does not help.
fn full(usage: store::Usage, bounds: store::Bounds) -> Status {
    let part = |held: u64, most: u64, what: &str| match most {
        u64::MAX => format!("{held} {what}"),
        most => format!("{held} of {most} {what}"),
    };
    let (objects, bytes) =
        (part(usage.objects, bounds.objects, "objects"), part(usage.bytes, bounds.bytes, "bytes"));
    let message = format!("the workspace is full: it holds {objects}, {bytes}; delete what is not needed");
    Status::new(machinery::status::Reason::Forbidden, message)
}

/// The revision asked for has not happened here yet.
pub fn too_large(wanted: Option<Revision>, current: Revision) -> Status {
    use machinery::status::Reason;
    let wanted = wanted.map(|wanted| format!(": {wanted}")).unwrap_or_default();
    Status::new(Reason::Timeout, format!("Timeout: Too large resource version{wanted}, current: {current}"))
        .cause("ResourceVersionTooLarge", "Too large resource version", "")
        .retry_after(1)
}
