//! Views: kinds whose objects come also from member clusters.
//!
//! ```text
//!   sessions ── replace · put · remove · lost ──┐
//!                                               ├──> one history per workspace ──> get · list · watch
//!   store ───── what is stored in these kinds ──┘    (memory; resourceVersions of its own)
//! ```
//!
//! Sessions with members report what they see, as the member sent it. Nothing of it is written to the store, and nothing
//! is taken for gone because it was not seen.

use std::sync::Arc;

use bytes::Bytes;
use env::{BoxFuture, Env};
use http::{Request, Response};
use machinery::status::Status;
use store::{Collection, Store, WorkspaceId};

use crate::body::Body;

/// A member cluster as the hub's views know it: what a session with it implements.
pub trait Member: Send + Sync + 'static {
    /// The name of its `Cluster`.
    fn cluster(&self) -> &str;

    /// Sends a request on to the member with the session's own credential; its path and query are as the member has
    /// them, without scheme and host. The answer is streamed: dropping its body ends the stream at the member.
    /// `Err`: the member was not reached; whatever it answers itself, refusals too, is `Ok`.
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Status>>;
}

/// What a member's object was placed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The UID of the object in the workspace.
    pub uid: String,
    /// Each of its clusters has a whole copy of it, so that names below it are equal everywhere.
    pub duplicated: bool,
}

/// The views of all workspaces. Cheap to clone; clones share.
#[derive(Clone)]
pub struct Views(Arc<Inner>);

struct Inner {
    _env: Env,
    _store: Arc<dyn Store>,
}

/// The kinds that members' objects are shown of.
pub fn collections() -> [Collection; 4] {
    [
        Collection::new("", "pods"),
        Collection::new("apps", "replicasets"),
        Collection::new("apps", "controllerrevisions"),
        Collection::new("", "events"),
    ]
}

impl Views {
    pub fn new(env: Env, store: Arc<dyn Store>) -> Views {
        Views(Arc::new(Inner { _env: env, _store: store }))
    }

    /// The cluster is joined and shows in `workspace`; its session has not begun. Until it was seen, lists say so.
    pub fn expect(&self, _workspace: &WorkspaceId, _cluster: &str) {}

    /// The clusters that show in `workspace`, whether they have a session or not.
    pub fn clusters(&self, _workspace: &WorkspaceId) -> Vec<String> {
        Vec::new()
    }

    /// The workspaces that clusters show in.
    pub fn workspaces(&self) -> Vec<WorkspaceId> {
        Vec::new()
    }

    /// A session with the cluster has begun; `identity` is the UID of the member's `kube-system` namespace. What was
    /// known of it before stays, unconfirmed; if it was another cluster by that name, all of it goes.
    pub fn join(&self, _workspace: &WorkspaceId, _member: Arc<dyn Member>, _identity: &str) {}

    /// All objects of one collection at the member: what is not among them is gone.
    pub fn replace(
        &self,
        _workspace: &WorkspaceId,
        _cluster: &str,
        _collection: &Collection,
        _objects: Vec<Bytes>,
    ) {
    }

    /// One object is at the member as it is here.
    pub fn put(&self, _workspace: &WorkspaceId, _cluster: &str, _collection: &Collection, _object: Bytes) {}

    /// One object is gone from the member; this is its last state.
    pub fn remove(&self, _workspace: &WorkspaceId, _cluster: &str, _collection: &Collection, _object: Bytes) {
    }

    /// The member's object with the UID `uid` was placed from an object of the workspace: what it owns there shows as
    /// owned by that one.
    pub fn placed(&self, _workspace: &WorkspaceId, _cluster: &str, _uid: &str, _from: Placed) {}

    /// The session lost its connection: what it reported stays, marked as stale.
    pub fn lost(&self, _workspace: &WorkspaceId, _cluster: &str) {}

    /// The cluster is not joined any more: all it reported goes.
    pub fn leave(&self, _workspace: &WorkspaceId, _cluster: &str) {}
}
