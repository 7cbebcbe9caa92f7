//! Streams to pods: their logs, and commands in them.

use std::sync::Arc;

use env::BoxFuture;
use http::{HeaderMap, Response};
use hyper::upgrade::OnUpgrade;
use machinery::{Object, status::Status};

use crate::{body::Body, context::Context, options::Query, space::Space, views};

/// Where pods run that this server stores.
pub trait Pods: Send + Sync + 'static {
    fn open(&self, ask: Ask) -> BoxFuture<'static, Result<Response<Body>, Status>>;
}

/// A request for a stream, by somebody who may have it.
pub struct Ask {
    pub space: Space,
    pub pod: Arc<Object>,
    /// `log`, `exec`
    pub what: String,
    pub query: Query,
    pub headers: HeaderMap,
    /// The connection itself, for streams in both directions.
    pub upgrade: Option<OnUpgrade>,
}

/// Whether the path is one that streams.
pub fn is_stream(context: &Context) -> bool {
    context.resource.plural == "pods" && matches!(context.target.subresource.as_str(), "log" | "exec")
}

/// Of a member's pod from the member, of a stored one from where it runs.
pub async fn open(context: &Context) -> Result<Response<Body>, Status> {
    if let Some(answer) = views::stream(context).await {
        return answer;
    }
    let name = context.target.name.as_str();
    let pod = context.space.get(&context.key(name)).ok_or_else(|| Status::not_found(context.about(name)))?;
    let Some(pods) = context.hub.pods.get() else {
        return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
    };
    let ask = Ask {
        space: context.space.clone(),
        pod,
        what: context.target.subresource.clone(),
        query: context.query.clone(),
        headers: context.headers.clone(),
        upgrade: context.upgrade.clone(),
    };
    pods.open(ask).await
}
