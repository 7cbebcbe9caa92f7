//! Requests that another server answers: what members have, only the server sees that has the sessions with them.
//!
//! ```text
//!   client ──> this server: who is it, may they ──> the server on duty: may they, and the answer ──> client
//! ```
//!
//! A request goes on as it came, with the secret of the other server (see [`crate::letters`]) and the name of whoever
//! asks in the place of their credential. It goes on once: a server that is not on duty any more says so.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use machinery::{
    resource::Resource,
    status::{Reason, Status},
};
use serde_json::{Value, json};
use store::{Collection, etcd::Registration};

use crate::{
    body::{Body, Endless},
    hub::{self, Hub},
    letters,
    request::Verb,
    space::Space,
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

/// Whoever a request of another server is for; `None`: it comes from a client.
pub fn asker(hub: &Hub, headers: &mut HeaderMap) -> Result<Option<User>, Status> {
    let Some(letters) = hub.letters.as_ref().filter(|_| headers.contains_key(USER)) else { return Ok(None) };
    let refused = || Status::new(Reason::Unauthorized, "Unauthorized".to_owned());
    if !letters::is_from_a_server(&**letters, headers) {
        return Err(refused());
    }
    headers.remove(header::AUTHORIZATION);
    let value = headers.remove(USER).ok_or_else(refused)?;
    let user = STANDARD.decode(value.as_bytes()).ok().and_then(|bytes| read(&bytes));
    user.map(Some).ok_or_else(refused)
}

fn read(bytes: &[u8]) -> Option<User> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    Some(User {
        name: value["name"].as_str()?.to_owned(),
        uid: value["uid"].as_str()?.to_owned(),
        groups: serde_json::from_value(value["groups"].clone()).ok()?,
        extra: serde_json::from_value(value["extra"].clone()).ok()?,
        is_hub: false,
    })
}

fn written(user: &User) -> Result<HeaderValue, Status> {
    let value = json!({"name": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra});
    HeaderValue::from_str(&STANDARD.encode(value.to_string())).map_err(Status::internal)
}

/// The server that is to answer for objects of a kind, if it is another one.
pub fn to(hub: &Hub, space: &Space, resource: &Resource) -> Option<Registration> {
    let letters = hub.letters.as_ref()?;
    if !views::shows(resource) {
        return None;
    }
    let clusters = Collection::new(api::GROUP, api::cluster::PLURAL);
    let has_clusters = |space: &Space| space.stored(&clusters).iter(None, None).next().is_some();
    // Clusters of the platform may show in any workspace.
    let platform = || [api::ROOT, api::DEFAULT].iter().filter_map(|name| hub.space(name).ok());
    let shows = has_clusters(space) || platform().any(|space| has_clusters(&space));
    letters.on_duty_elsewhere().filter(|_| shows)
}

/// A request that goes on.
pub struct Relayed<'a> {
    pub to: Registration,
    pub space: &'a Space,
    pub user: &'a User,
    pub parts: &'a Parts,
    pub headers: &'a HeaderMap,
    pub verb: Verb,
    pub body: Bytes,
}

/// What the other server answers.
pub async fn send(hub: &Hub, relayed: Relayed<'_>) -> Result<Response<Body>, Status> {
    hub.metrics.relayed.inc();
    let upgrade = relayed.parts.extensions.get::<OnUpgrade>();
    let upgrade = upgrade.filter(|_| relayed.headers.contains_key(header::UPGRADE)).cloned();
    let unreachable = |why: String| {
        let text = format!("the server that sees member clusters cannot be reached: {why}");
        Status::new(Reason::ServiceUnavailable, text).retry_after(1)
    };
    let request = request(&relayed, upgrade.is_some())?;
    let answer = async {
        match upgrade.is_some() {
            true => send_alone(hub, &relayed.to, request).await,
            false => send_shared(hub, &relayed.to, request).await,
        }
    };
    // It gives up on a request before that, and says so.
    let limit = hub.options.request_timeout + hub.options.request_timeout / 10;
    let answer = tokio::select! {
        answer = answer => answer.map_err(unreachable)?,
        () = hub.env.clock.sleep(limit) => return Err(unreachable("it does not answer".to_owned())),
    };
    let (head, body) = answer.into_parts();
    let mut response = Response::new(passed_on(body));
    *response.status_mut() = head.status;
    if let (StatusCode::SWITCHING_PROTOCOLS, Some(client)) = (head.status, upgrade) {
        let server = head.extensions.get::<OnUpgrade>().cloned();
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
    if relayed.verb == Verb::Watch {
        response.extensions_mut().insert(Endless);
    }
    Ok(response)
}

fn copy(from: &HeaderMap, to: &mut HeaderMap, wanted: impl Fn(&HeaderName) -> bool) {
    for (name, value) in from.iter().filter(|(name, _)| wanted(name)) {
        to.append(name, value.clone());
    }
}

fn request(relayed: &Relayed<'_>, upgrades: bool) -> Result<Request<Full<Bytes>>, Status> {
    let path = relayed.parts.uri.path_and_query().map_or("/", |path| path.as_str());
    // Without a path prefix the credential says which workspace is meant, and it stays here.
    let inside = match path.starts_with("/clusters/") {
        true => String::new(),
        false => format!("/clusters/{}", relayed.space.name()),
    };
    let uri = match upgrades {
        true => format!("{inside}{path}"),
        false => format!("{}{inside}{path}", relayed.to.url),
    };
    let mut request = Request::builder().method(relayed.parts.method.clone()).uri(uri);
    if let Some(headers) = request.headers_mut() {
        // Whoever they act as was settled here.
        copy(relayed.headers, headers, |name| {
            !OWN.contains(name) && !name.as_str().starts_with("impersonate-")
        });
        if upgrades {
            let host = relayed.to.url.trim_start_matches("https://");
            headers.insert(header::HOST, HeaderValue::from_str(host).map_err(Status::internal)?);
            copy(relayed.headers, headers, |name| OWN.contains(name) && UPGRADE.contains(name));
        }
        let secret = format!("Bearer {}", relayed.to.secret);
        let mut secret = HeaderValue::from_str(&secret).map_err(Status::internal)?;
        secret.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, secret);
        headers.insert(USER, written(relayed.user)?);
    }
    request.body(Full::new(relayed.body.clone())).map_err(Status::internal)
}

/// Over the connection that all requests share.
async fn send_shared(
    hub: &Hub,
    to: &Registration,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, String> {
    let mut connection = hub.servers.to(to).await?;
    let sent = async {
        connection.ready().await?;
        connection.send_request(request).await
    };
    let sent: Result<_, hyper::Error> = sent.await;
    sent.map_err(|error| {
        hub.servers.forget(to);
        error.to_string()
    })
}

/// Over a connection of its own, which it takes with it when it leaves HTTP behind.
async fn send_alone(
    hub: &Hub,
    to: &Registration,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, String> {
    let stream = letters::connect(&hub.env, to, b"http/1.1").await?;
    let made = http1::handshake(TokioIo::new(stream)).await;
    let (mut connection, driver) = made.map_err(|error| error.to_string())?;
    hub.env.tasks.spawn(Box::pin(async move {
        // Whoever uses the connection is told of its end.
        let _ = driver.with_upgrades().await;
    }));
    connection.send_request(request).await.map_err(|error| error.to_string())
}

/// Whoever reads it sees it end; that it broke off, HTTP has no word for at this point.
fn passed_on(body: Incoming) -> Body {
    Body::stream(stream::unfold(body, |mut body| async move {
        loop {
            match body.frame().await?.ok()?.into_data() {
                Ok(data) => return Some((data, body)),
                Err(_) => continue,
            }
        }
    }))
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
        let sent = written(&user).expect("any text can be sent");
        let bytes = STANDARD.decode(sent.as_bytes()).expect("as it was encoded");
        assert_eq!(read(&bytes), Some(User { is_hub: false, ..user }));
        for wrong in ["", "{}", r#"{"name": "a"}"#, r#"{"name": 7, "uid": "", "groups": [], "extra": {}}"#] {
            assert_eq!(read(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
