//! Streams to pods: their logs, and commands in them.

use std::sync::Arc;

use env::BoxFuture;
use http::{HeaderMap, Response};
use hyper::upgrade::OnUpgrade;
use machinery::{Object, status::Status};

use crate::{body::Body, context::Context, options::Query, rbac::Attributes, space::Space, views};

/// Where pods run that this server stores.
pub trait Pods: Send + Sync + 'static {
    fn open(&self, ask: Ask) -> BoxFuture<'static, Result<Response<Body>, Status>>;
}

/// A request for a stream, by somebody who may have it.
pub struct Ask {
    pub space: Space,
    pub pod: Arc<Object>,
    /// `log`, `exec`, `attach`, `portforward`
    pub what: String,
    pub query: Query,
    pub headers: HeaderMap,
    /// The connection itself, for streams in both directions.
    pub upgrade: Option<OnUpgrade>,
}

/// Whether the path is one that streams.
pub fn is_stream(context: &Context) -> bool {
    let below = context.target.subresource.as_str();
    context.resource.plural == "pods" && matches!(below, "log" | "exec" | "attach" | "portforward")
}

/// Of a member's pod from the member, of a stored one from where it runs.
pub async fn open(context: &Context) -> Result<Response<Body>, Status> {
    let name = context.target.name.as_str();
    if context.target.subresource != "log" {
        may_create(context)?;
    }
    if let Some(answer) = Box::pin(views::stream(context)).await {
        return answer;
    }
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

/// Whoever does something in a pod must be allowed to create it, also if the request is a GET, as WebSockets begin.
fn may_create(context: &Context) -> Result<(), Status> {
    let target = &context.target;
    let attributes = Attributes::Resource {
        verb: "create",
        group: &target.group,
        resource: &target.resource,
        subresource: &target.subresource,
        namespace: &target.namespace,
        name: &target.name,
    };
    match context.hub.authorizer.allows(&context.space, &context.user, &attributes) {
        true => Ok(()),
        false => Err(Status::forbidden(context.about(&target.name), &attributes.refusal(&context.user))),
    }
}
