//! Requests that another server answers: what members have, only the server sees that has the sessions with them.
//!
//! ```text
//!   client ──> this server: who is it, may they ──> the server on duty: may they, and the answer ──> client
//! ```
//!
//! A request goes on as it came, with the secret of the other server (see [`crate::letters`]) and the name of whoever
//! asks in the place of their credential. It goes on once: a server that is not on duty any more says so.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, client::conn::http1, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use machinery::status::{Reason, Status};
use serde_json::{Value, json};
use store::{
    Collection, WorkspaceId,
    etcd::{OnDuty, Registration},
};

use crate::{
    authentication::unauthorized,
    body::{Body, Endless},
    context::Context,
    hub::{self, Hub},
    letters,
    request::Verb,
    service::read_body,
    shares::BodyRoom,
    space::Space,
    streams,
    user::User,
    views::{self, UPGRADE},
};

/// For whom a server asks another one.
const USER: HeaderName = HeaderName::from_static("hanse-relayed-user");

/// What is between two servers, or between the client and the first.
const OWN: [HeaderName; 9] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    USER,
];

/// What this server says in its answers itself.
const SAID_HERE: [&str; 3] =
    ["audit-id", "x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"];

/// How often a watch that was passed on looks whether the other server is still the one to ask.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Whoever a request of another server is for, and in which workspace; `None`: it comes from a client.
pub fn asker(hub: &Hub, headers: &mut HeaderMap) -> Result<Option<(User, WorkspaceId)>, Status> {
    let Some(letters) = hub.letters.as_ref().filter(|_| headers.contains_key(USER)) else { return Ok(None) };
    if !letters::is_from_a_server(&**letters, headers) {
        return Err(unauthorized());
    }
    headers.remove(header::AUTHORIZATION);
    let value = headers.remove(USER).ok_or_else(unauthorized)?;
    let asker = STANDARD.decode(value.as_bytes()).ok().and_then(|bytes| read(&bytes));
    asker.map(Some).ok_or_else(unauthorized)
}

fn read(bytes: &[u8]) -> Option<(User, WorkspaceId)> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let user = User {
        name: value["name"].as_str()?.to_owned(),
        uid: value["uid"].as_str()?.to_owned(),
        groups: serde_json::from_value(value["groups"].clone()).ok()?,
        extra: serde_json::from_value(value["extra"].clone()).ok()?,
        is_hub: false,
    };
    Some((user, WorkspaceId(value["workspace"].as_str()?.into())))
}

fn written(user: &User, workspace: &WorkspaceId) -> Result<HeaderValue, Status> {
    let value = json!({
        "name": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra,
        "workspace": workspace.0.as_str(),
    });
    HeaderValue::from_str(&STANDARD.encode(value.to_string())).map_err(Status::internal)
}

/// Who is to answer a request.
pub enum Answerer {
    Here,
    There(Registration),
    /// Whoever could is not known.
    Nobody,
}

/// Who is to answer. What was passed on once goes no further.
pub fn answerer(context: &Context, is_relayed: bool) -> Answerer {
    let Some(letters) = &context.hub.letters else { return Answerer::Here };
    if !views::shows(&context.resource) || !has_members(context) {
        return Answerer::Here;
    }
    match letters.who_is_on_duty() {
        OnDuty::Here => Answerer::Here,
        OnDuty::There(to) if !is_relayed => Answerer::There(to),
        // Whoever only looks, and can do with less, is told what is known here.
        _ if context.takes_parts() && !context.target.verb.is_write() => Answerer::Here,
        _ => Answerer::Nobody,
    }
}

/// Whether members may have something in the workspace: its own, or those of the platform, which may show in any.
fn has_members(context: &Context) -> bool {
    let clusters = Collection::new(api::GROUP, api::cluster::PLURAL);
    let has_some = |space: &Space| space.stored(&clusters).iter(None, None).next().is_some();
    let platform = || [api::ROOT, api::DEFAULT].iter().filter_map(|name| context.hub.space(name).ok());
    has_some(&context.space) || platform().any(|space| has_some(&space))
}

pub fn nobody() -> Status {
    unavailable("no server sees member clusters at the moment")
}

fn unavailable(why: impl std::fmt::Display) -> Status {
    Status::new(Reason::ServiceUnavailable, why.to_string()).retry_after(1)
}

/// What the other server answers.
pub async fn send<B>(
    context: &Context,
    to: &Registration,
    parts: &Parts,
    body: B,
    waited: Duration,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let hub = &context.hub;
    hub.metrics.relayed.inc();
    let upgrade = context.upgrade.clone().filter(|_| context.headers.contains_key(header::UPGRADE));
    let mut room = BodyRoom::default();
    let answer = async {
        let mut bytes = Bytes::new();
        if context.target.verb.is_write() && upgrade.is_none() {
            let hold = |length| room.hold(hub, &context.space, length);
            bytes = read_body(body, hub.options.max_body_bytes, hold).await?;
            context.audit.request(context, &bytes);
        }
        let request = request(context, to, parts, bytes, upgrade.is_some())?;
        let answer = match is_brief(context) && upgrade.is_none() {
            true => send_shared(hub, to, request).await,
            false => send_alone(hub, to, request).await,
        };
        answer.map_err(|why| {
            unavailable(format!("the server that sees member clusters cannot be reached: {why}"))
        })
    };
    // The other server gives up before that, and says so.
    let limit = hub.options.request_timeout + hub.options.request_timeout / 10;
    let answer = tokio::select! {
        answer = answer => answer?,
        () = hub.env.clock.sleep(limit.saturating_sub(waited)) => {
            return Err(unavailable("the server that sees member clusters does not answer"));
        }
    };
    respond(context, to, answer, upgrade)
}

/// Whether the answer is one object, or little more.
fn is_brief(context: &Context) -> bool {
    let verb = context.target.verb;
    matches!(verb, Verb::Get | Verb::Create | Verb::Update | Verb::Patch | Verb::Delete)
        && !streams::is_stream(context)
}

/// Passes an answer on.
fn respond(
    context: &Context,
    to: &Registration,
    answer: Response<Body>,
    upgrade: Option<OnUpgrade>,
) -> Result<Response<Body>, Status> {
    let hub = &context.hub;
    let (mut head, body) = answer.into_parts();
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    if let (StatusCode::SWITCHING_PROTOCOLS, Some(client)) = (head.status, upgrade) {
        let server = head.extensions.remove::<OnUpgrade>();
        let server = server.ok_or_else(|| Status::internal("the other server cannot leave HTTP behind"))?;
        let mut stopping = hub.stopping.clone();
        hub.env.tasks.spawn(Box::pin(async move {
            tokio::select! {
                () = views::join(client, server) => {}
                () = hub::stopped(&mut stopping) => {}
            }
        }));
        *response.body_mut() = Body::Whole(None);
        copy(&head.headers, response.headers_mut(), |name| UPGRADE.contains(name));
        return Ok(response);
    }
    copy(&head.headers, response.headers_mut(), |name| {
        !OWN.contains(name) && !SAID_HERE.contains(&name.as_str())
    });
    let is_watch = context.target.verb == Verb::Watch;
    let follows = context.target.subresource == "log" && context.query.flag("follow");
    if head.status.is_success() && (is_watch || follows) {
        response.extensions_mut().insert(Endless);
    }
    if is_watch {
        let body = std::mem::replace(response.body_mut(), Body::Whole(None));
        *response.body_mut() = while_on_duty(hub.clone(), to.clone(), body);
    }
    Ok(response)
}

/// A watch ends when another server has taken over: what the first one sees is of the past then.
fn while_on_duty(hub: Arc<Hub>, to: Registration, body: Body) -> Body {
    let is_asked = |hub: &Hub, to: &Registration| {
        let on_duty = hub.letters.as_ref().map(|letters| letters.who_is_on_duty());
        matches!(on_duty, Some(OnDuty::There(now)) if now.url == to.url && now.secret == to.secret)
    };
    Body::stream(stream::unfold((body, hub, to), move |(mut body, hub, to)| async move {
        loop {
            tokio::select! {
                frame = body.frame() => match frame?.ok()?.into_data() {
                    Ok(data) => return Some((data, (body, hub, to))),
                    Err(_) => continue,
                },
                () = hub.env.clock.sleep(LOOK_EVERY) => if !is_asked(&hub, &to) {
                    return None;
                },
            }
        }
    }))
}

fn copy(from: &HeaderMap, to: &mut HeaderMap, wanted: impl Fn(&HeaderName) -> bool) {
    for (name, value) in from.iter().filter(|(name, _)| wanted(name)) {
        to.append(name, value.clone());
    }
}

/// The request as it came, but for who asks.
fn request(
    context: &Context,
    to: &Registration,
    parts: &Parts,
    body: Bytes,
    upgrades: bool,
) -> Result<Request<Full<Bytes>>, Status> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    // Without a path prefix the credential says which workspace is meant, and it stays here.
    let inside = match path.starts_with("/clusters/") {
        true => String::new(),
        false => format!("/clusters/{}", context.space.name()),
    };
    let mut request =
        Request::builder().method(parts.method.clone()).uri(format!("{}{inside}{path}", to.url));
    if let Some(headers) = request.headers_mut() {
        // Whoever they act as was settled here.
        let is_theirs = |name: &HeaderName| !OWN.contains(name) && !name.as_str().starts_with("impersonate-");
        copy(&context.headers, headers, is_theirs);
        if upgrades {
            copy(&context.headers, headers, |name| OWN.contains(name) && UPGRADE.contains(name));
        }
        let mut secret = HeaderValue::from_str(&format!("Bearer {}", to.secret)).map_err(Status::internal)?;
        secret.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, secret);
        headers.insert(USER, written(&context.user, context.space.id())?);
    }
    request.body(Full::new(body)).map_err(Status::internal)
}

/// Over the connection that all share. What is answered is read at once, however slowly the client reads, so that nobody
/// waits for anybody else's client.
async fn send_shared(
    hub: &Hub,
    to: &Registration,
    request: Request<Full<Bytes>>,
) -> Result<Response<Body>, String> {
    let mut connection = hub.servers.to(to).await?;
    let sent = async {
        connection.ready().await?;
        connection.send_request(request).await
    };
    let sent: Result<Response<Incoming>, hyper::Error> = sent.await;
    let answer = sent.map_err(|error| {
        hub.servers.forget(to);
        error.to_string()
    })?;
    whole(answer).await
}

async fn whole(answer: Response<Incoming>) -> Result<Response<Body>, String> {
    let (head, body) = answer.into_parts();
    let bytes = Limited::new(body, letters::MAX_BYTES).collect().await.map_err(|error| error.to_string())?;
    Ok(Response::from_parts(head, bytes.to_bytes().into()))
}

/// Over a connection of its own: it may be long, and may leave HTTP behind.
async fn send_alone(
    hub: &Hub,
    to: &Registration,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<Body>, String> {
    let stream = letters::connect(&hub.env, to, b"http/1.1").await?;
    let made = http1::handshake(TokioIo::new(stream)).await;
    let (mut connection, driver) = made.map_err(|error| error.to_string())?;
    hub.env.tasks.spawn(Box::pin(async move {
        // Whoever uses the connection is told of its end.
        let _ = driver.with_upgrades().await;
    }));
    let host = request.uri().authority().map(|host| host.to_string()).unwrap_or_default();
    let host = HeaderValue::from_str(&host).map_err(|error| error.to_string())?;
    request.headers_mut().insert(header::HOST, host);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    *request.uri_mut() = path.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    let answer = connection.send_request(request).await.map_err(|error| error.to_string())?;
    if answer.status().is_client_error() || answer.status().is_server_error() {
        return whole(answer).await;
    }
    let (head, body) = answer.into_parts();
    // Whoever reads it sees it end; that it broke off, HTTP has no word for at this point. The connection is open for as
    // long as somebody reads.
    let frames = stream::unfold((body, connection), |(mut body, connection)| async move {
        loop {
            match body.frame().await?.ok()?.into_data() {
                Ok(data) => return Some((data, (body, connection))),
                Err(_) => continue,
            }
        }
    });
    Ok(Response::from_parts(head, Body::stream(frames)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_arrives_as_it_was_sent_and_is_never_hanse_itself() {
        let user = User {
            name: "Zoë, of ops".into(),
            uid: "7".into(),
            groups: vec!["team a".into(), "system:authenticated".into()],
            extra: [("scopes".to_owned(), vec!["read".to_owned()])].into(),
            is_hub: true,
        };
        let workspace = WorkspaceId("team".into());
        let sent = written(&user, &workspace).expect("any text can be sent");
        let bytes = STANDARD.decode(sent.as_bytes()).expect("as it was encoded");
        assert_eq!(read(&bytes), Some((User { is_hub: false, ..user }, workspace)));
        for wrong in [
            "",
            "{}",
            r#"{"name": "a"}"#,
            r#"{"name": 7, "uid": "", "groups": [], "extra": {}, "workspace": "a"}"#,
        ] {
            assert_eq!(read(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
