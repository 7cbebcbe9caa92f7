//! What all requests share.

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

use env::Env;
use jiff::Timestamp;
use machinery::{
    Draft, Object, Revision, names,
    status::{About, Status},
};
use parking_lot::RwLock;
use serde_json::{Value, json};
use store::{Change, Commit, Expect, Key, Store, WorkspaceId, Write};
use tokio::sync::watch;

use crate::{
    admission::{pod_security::Surveys, policies::Policies, quota::Turns, webhooks::Registered},
    audit::{AuditError, AuditOptions, Auditor},
    base,
    fairness::Fairness,
    letters::Letters,
    login::Login,
    metrics::Metrics,
    operate::{Operating, Tools},
    rbac::Authorizer,
    served::{Served, Servings},
    space::Space,
    tokens::Issuers,
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
}

impl Options {
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
            authority_pem: "".into(),
            endpoint: None,
            audit: AuditOptions::default(),
            max_requests_inflight: 400,
            max_mutating_requests_inflight: 200,
            max_connections: 10_000,
            tools: Tools::default(),
            history_kept: Duration::from_secs(5 * 60),
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
    /// Who may charge the quotas of a namespace.
    pub quota_turns: Turns,
    /// Where pods are looked at because a namespace demands more of them.
    pub surveys: Surveys,
    pub login: Login,
    /// `None`: nothing is recorded.
    pub auditor: Option<Arc<Auditor>>,
    pub fairness: Arc<Fairness>,
    /// Of other servers on the same store; `None`: there are none.
    pub letters: Option<Arc<dyn Letters>>,
    pub operating: Operating,
    servings: Servings,
    spaces: RwLock<Spaces>,
    installation: Installation,
}

/// The workspaces that were asked for, and what all of them are called.
#[derive(Default)]
struct Spaces {
    by_name: HashMap<String, Space>,
    names: HashMap<WorkspaceId, String>,
    /// What `names` has at least is what root had then.
    names_at: Option<Revision>,
}

impl Spaces {
    fn by_id(&self, id: &WorkspaceId) -> Option<&Space> {
        self.by_name.get(self.names.get(id)?).filter(|space| space.id() == id)
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
            quota_turns: Turns::default(),
            surveys: Surveys::default(),
            login,
            auditor,
            fairness,
            letters,
            operating,
            servings: Servings::new(),
            spaces: RwLock::default(),
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
        let mut bytes = [0; 16];
        self.env.random.fill(&mut bytes);
        names::uuid_v4(bytes)
    }

    /// The workspace called `name`; 404 if there is none, also while it is being deleted.
    pub fn space(&self, name: &str) -> Result<Space, Status> {
        let object = self.workspace_object(name)?;
        let id = object.as_ref().map_or_else(|| WorkspaceId(name.into()), |it| workspace_id(&it.head.uid));
        if let Some(space) = self.spaces.read().by_name.get(name).filter(|space| *space.id() == id) {
            return Ok(space.clone());
        }
        let created = object
            .and_then(|object| object.tree().ok())
            .and_then(|tree| Some(tree.get("metadata")?.get("creationTimestamp")?.as_str()?.to_owned()))
            .unwrap_or_else(|| self.installation.created.clone());
        let identity = format!("{}/{id}", self.installation.uid);
        let space = Space::new(id.clone(), name, self.place(identity, created), self.store.clone());
        let mut spaces = self.spaces.write();
        // It may have gone meanwhile. One that is forgotten was marked before, and must not be remembered after.
        let now = self.workspace_object(name)?;
        if now.is_none_or(|now| workspace_id(&now.head.uid) == id) {
            spaces.by_name.insert(name.to_owned(), space.clone());
            spaces.names.insert(id, name.to_owned());
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
        let id = WorkspaceId("nowhere".into());
        let place = self.place(name.to_owned(), self.installation.created.clone());
        Space::new(id, name, place, self.store.clone())
    }

    fn place(&self, identity: String, created: String) -> base::Place {
        let authority_pem = self.options.authority_pem.clone();
        base::Place { identity, created, endpoint: self.options.endpoint, authority_pem }
    }

    /// The workspace with the id `id`, for controllers, which read the feed of all of them. It may be on its way out.
    pub fn space_by_id(&self, id: &WorkspaceId) -> Option<Space> {
        if let Some(space) = self.spaces.read().by_id(id) {
            return Some(space.clone());
        }
        let name = match *id == root_id() || *id == default_id() {
            true => id.0.to_string(),
            false => self.name_of(id)?,
        };
        self.space(&name).ok().filter(|space| space.id() == id)
    }

    /// Root is read only if its workspaces have changed since the last time.
    fn name_of(&self, id: &WorkspaceId) -> Option<String> {
        let collection = store::Collection::new(api::GROUP, "workspaces");
        let at = self.store.last_change(&root_id(), &collection);
        {
            let spaces = self.spaces.read();
            if spaces.names_at == Some(at) {
                return spaces.names.get(id).cloned();
            }
        }
        let listing = self.store.list(&root_id(), &collection, None).ok()?;
        let all = listing.iter(None, None);
        let names: HashMap<WorkspaceId, String> =
            all.map(|(_, object)| (workspace_id(&object.head.uid), object.head.name.to_string())).collect();
        let name = names.get(id).cloned();
        let mut spaces = self.spaces.write();
        let always = [root_id(), default_id()].into_iter().map(|id| (id.clone(), id.0.to_string()));
        spaces.names = names.into_iter().chain(always).collect();
        spaces.names_at = Some(at);
        name
    }

    pub fn forget_space(&self, name: &str, id: &WorkspaceId) {
        {
            let mut spaces = self.spaces.write();
            if spaces.by_name.get(name).is_some_and(|space| space.id() == id) {
                spaces.by_name.remove(name);
            }
            spaces.names.remove(id);
        }
        self.authorizer.forget(id);
        self.policies.forget(id);
        self.servings.forget(id);
        self.issuers.forget(id);
        self.fairness.forget(id);
        self.admission.forget(id);
    }

    /// As [`Hub::forget_space`], of one that is gone from the store.
    pub fn forget_id(&self, id: &WorkspaceId) {
        let name = self.spaces.read().names.get(id).cloned();
        if let Some(name) = name {
            self.forget_space(&name, id);
        }
    }

    /// Forgets all that root does not have any more.
    pub fn forget_missing(&self) {
        let known: Vec<WorkspaceId> = self.spaces.read().names.keys().cloned().collect();
        for id in known {
            if self.name_of(&id).is_none() && id != root_id() && id != default_id() {
                self.forget_id(&id);
            }
        }
    }

    /// As [`Hub::space`], of one that another server may just have made.
    pub async fn find_space(&self, name: &str) -> Result<Space, Status> {
        match self.space(name) {
            Err(missing) => match self.store.level(&root_id()) {
                Some(level) => {
                    level.await.map_err(store_refusal)?;
                    self.space(name)
                }
                None => Err(missing),
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
        store::Error::NoSpace(why) => {
            Status::new(Reason::ServiceUnavailable, format!("no space left on the store's disk: {why}"))
                .retry_after(5)
        }
        store::Error::Unavailable(why) => {
            Status::new(Reason::ServiceUnavailable, format!("the store is not available: {why}"))
                .retry_after(5)
        }
        store::Error::Unknown(why) => Status::internal(format!("the outcome of the write is unknown: {why}")),
        store::Error::Conflict { key, .. } => Status::internal(format!("unexpected conflict on {key:?}")),
        other @ (store::Error::Discontinuous { .. } | store::Error::Invalid(_)) => Status::internal(other),
    }
}

/// The revision asked for has not happened here yet.
pub fn too_large(wanted: Option<Revision>, current: Revision) -> Status {
    use machinery::status::Reason;
    let wanted = wanted.map(|wanted| format!(": {wanted}")).unwrap_or_default();
    Status::new(Reason::Timeout, format!("Timeout: Too large resource version{wanted}, current: {current}"))
        .cause("ResourceVersionTooLarge", "Too large resource version", "")
        .retry_after(1)
}
