//! Streams of members' pods: what they write, and what is done in them.

use bytes::Bytes;
use http::{HeaderName, Method, Request, Response, StatusCode, header, response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use machinery::status::Status;

use super::{forward, kinds::encoded, view::Target};
use crate::{
    body::{Body, Endless},
    context::Context,
    hub,
    request::Verb,
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

/// A stream of a pod of the view, if it is a member's or a member has a copy of it; `None`: it is the workspace's own.
/// Nothing is held back: what the member sends is sent on, and when the client is gone the member is told.
pub async fn stream(context: &Context) -> Option<Result<Response<Body>, Status>> {
    let view = context.view.as_ref()?;
    let key = context.key(&context.target.name);
    let target = view.targets(&key).into_iter().next().or_else(|| view.copies(&key).into_iter().next());
    match &target {
        Some(target) if context.target.subresource == "log" => Some(read_log(context, target).await),
        Some(target) => Some(connect(context, target).await),
        None => {
            // Who was never seen may have it, or a copy of it: it is not absent. A stored one may run here.
            let may_be_there = view.get(&key).is_none() || context.hub.pods.get().is_none();
            context.sight().err().filter(|_| may_be_there).map(Err)
        }
    }
}

/// What a client and a member say to each other before they leave HTTP behind.
pub const UPGRADE: [HeaderName; 8] = [
    header::CONNECTION,
    header::UPGRADE,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::SEC_WEBSOCKET_EXTENSIONS,
    header::SEC_WEBSOCKET_ACCEPT,
    HeaderName::from_static("x-stream-protocol-version"),
];

/// Commands, attaching, ports: the client's connection is joined to one with the member, whatever they speak on it.
async fn connect(context: &Context, target: &Target) -> Result<Response<Body>, Status> {
    let Some(client) = context.upgrade.clone().filter(|_| context.headers.contains_key(header::UPGRADE))
    else {
        return Err(Status::bad_request("Upgrade request required"));
    };
    let query: Vec<String> =
        context.query.pairs().map(|(key, value)| format!("{}={}", encoded(key), encoded(value))).collect();
    let below = &context.target.subresource;
    let path = format!("{}/{below}?{}", target.kind.path(&target.namespace, &target.name), query.join("&"));
    let method = if context.target.verb == Verb::Create { Method::POST } else { Method::GET };
    let mut request = Request::builder().method(method).uri(path.trim_end_matches('?'));
    for name in UPGRADE {
        for value in context.headers.get_all(&name) {
            request = request.header(&name, value);
        }
    }
    let request = request.body(Bytes::new()).map_err(Status::internal)?;
    let (mut head, body) = forward::send(context, target, request).await?.into_parts();
    if head.status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(passed_on(&head, body));
    }
    let member = head.extensions.remove::<OnUpgrade>();
    let member = member.ok_or_else(|| Status::internal("the session cannot leave HTTP behind"))?;
    let mut stopping = context.hub.stopping.clone();
    let over = target.member.as_ref().map(|member| member.over());
    // If there is none now, it was there a moment ago.
    let over = async move { futures_util::future::OptionFuture::from(over).await.unwrap_or_default() };
    context.hub.env.tasks.spawn(Box::pin(async move {
        tokio::select! {
            () = join(client, member) => {}
            () = over => {}
            () = hub::stopped(&mut stopping) => {}
        }
    }));
    let mut response = Response::new(Body::Whole(None));
    *response.status_mut() = head.status;
    for name in UPGRADE {
        for value in head.headers.get_all(&name) {
            response.headers_mut().append(&name, value.clone());
        }
    }
    Ok(response)
}

/// Passes on what either side says until both have said all.
pub async fn join(client: OnUpgrade, member: OnUpgrade) {
    let (Ok(client), Ok(member)) = tokio::join!(client, member) else { return };
    let (mut client, mut member) = (TokioIo::new(client), TokioIo::new(member));
    if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut member).await {
        tracing::debug!(%error, "a stream to a member's pod ended");
    }
}

/// What the member answers, and of what kind it is.
fn passed_on(head: &response::Parts, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    if let Some(kind) = head.headers.get(header::CONTENT_TYPE) {
        response.headers_mut().insert(header::CONTENT_TYPE, kind.clone());
    }
    response
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
    if head.status == StatusCode::UNAUTHORIZED {
        return Err(forward::unauthorized(target));
    }
    let mut response = passed_on(&head, body);
    if context.query.flag("follow") && head.status == StatusCode::OK {
        response.extensions_mut().insert(Endless);
    }
    Ok(response)
}
