//! Streams of members' pods: what they write, read at the member as it comes.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use machinery::status::{Reason, Status};

use super::{forward, kinds::encoded, view::Target};
use crate::{
    body::{Body, Endless},
    context::Context,
};

/// What the member is asked as the client asks it.
const PASSED: [&str; 10] = [
    "container",
    "follow",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "timestamps",
    "tailLines",
    "limitBytes",
    "stream",
    "insecureSkipTLSVerifyBackend",
];

/// A stream of a pod of the view, if it is a member's; `None`: it is the workspace's own. Nothing is held back: what the
/// member sends is sent on, and when the client is gone the member is told.
pub async fn stream(context: &Context) -> Option<Result<Response<Body>, Status>> {
    let view = context.view.as_ref()?;
    let key = context.key(&context.target.name);
    match view.targets(&key).first() {
        Some(target) if context.target.subresource == "log" => Some(read_log(context, target).await),
        Some(target) => Some(Err(no_such_stream(context, target))),
        // Who was never seen may have it: it is not absent.
        None => context.sight().err().filter(|_| view.get(&key).is_none()).map(Err),
    }
}

fn no_such_stream(context: &Context, target: &Target) -> Status {
    let (what, cluster) = (&context.target.subresource, &target.cluster);
    let why = format!("{what} is not passed on to members: pod {} is in cluster {cluster}, ask there", target.name);
    Status::new(Reason::MethodNotAllowed, why)
}

async fn read_log(context: &Context, target: &Target) -> Result<Response<Body>, Status> {
    let asked = PASSED.iter().flat_map(|key| context.query.all(key).map(move |value| (key, value)));
    let query: Vec<String> = asked.map(|(key, value)| format!("{key}={}", encoded(value))).collect();
    let path = format!("{}/log?{}", target.kind.path(&target.namespace, &target.name), query.join("&"));
    let request = Request::builder()
        .method(Method::GET)
        .uri(path.trim_end_matches('?'))
        .header(header::ACCEPT, "*/*")
        .body(Bytes::new())
        .map_err(Status::internal)?;
    let (head, body) = forward::send(context, target, request).await?.into_parts();
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    if let Some(kind) = head.headers.get(header::CONTENT_TYPE) {
        response.headers_mut().insert(header::CONTENT_TYPE, kind.clone());
    }
    if context.query.flag("follow") && head.status == StatusCode::OK {
        response.extensions_mut().insert(Endless);
    }
    Ok(response)
}
