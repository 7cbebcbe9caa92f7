//! One request, from headers to answer: who, what, may they, do it.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, request::Parts};
use http_body_util::BodyExt;
use machinery::{
    resource::Resource,
    selector::FieldSelector,
    status::{About, Reason, Status},
};

use crate::{
    audit::Recorder,
    authentication::{self, Asker},
    body::{self, Body},
    context::Context,
    delete, health,
    hub::Hub,
    login::caller::Caller,
    metrics::RequestLabels,
    openapi,
    options::Query,
    pods,
    rbac::Attributes,
    read,
    request::{RequestInfo, ResourceTarget, Target, Verb},
    reviews,
    space::Space,
    swagger,
    user::{self, Impersonated, User},
    watch, write,
};

/// How often a write of a custom object begins again because its definition changed.
const DEFINITION_ATTEMPTS: usize = 5;

/// Answers a request. `connection` is who is at its other end, if that is known.
pub async fn handle<B>(hub: Arc<Hub>, connection: Option<Arc<Caller>>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let started = hub.env.clock.elapsed();
    let (mut parts, body) = request.into_parts();
    let headers = std::mem::take(&mut parts.headers);
    let mut labels = RequestLabels { verb: "", group: "", version: "", resource: "", code: 0 };
    hub.metrics.inflight.inc();
    let mut warnings = Vec::new();
    let answered = answer(&hub, connection.as_ref(), &parts, headers, body, &mut labels, &mut warnings).await;
    hub.metrics.inflight.dec();
    let mut response = answered.unwrap_or_else(|status| body::refusal(&status));
    for warning in &warnings {
        body::warn(&mut response, warning);
    }
    if parts.method == Method::HEAD {
        *response.body_mut() = Body::Whole(None);
    }
    labels.code = response.status().as_u16();
    hub.metrics.request(labels, hub.env.clock.elapsed().saturating_sub(started));
    if let Ok(id) = HeaderValue::from_str(&hub.new_uid()) {
        response.headers_mut().insert("audit-id", id);
    }
    response
}

async fn answer<B>(
    hub: &Arc<Hub>,
    connection: Option<&Arc<Caller>>,
    parts: &Parts,
    headers: HeaderMap,
    body: B,
    labels: &mut RequestLabels,
    warnings: &mut Vec<String>,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let query = Query::parse(parts.uri.query())?;
    let info = RequestInfo::parse(&parts.method, parts.uri.path(), query.flag("watch"))?;
    labels.verb = verb_label(&info, &parts.method);
    let asker = authentication::authenticate(hub, connection, &headers, &info).await?;
    let Asker { user, workspace: of_token, warnings: of_asker } = asker;
    *warnings = of_asker;
    // Without a path prefix the request is for its token's workspace, else for `default`.
    let name = info.workspace.as_deref().or(of_token.as_deref()).unwrap_or(api::DEFAULT);
    let space = match hub.space(name) {
        Ok(space) => space,
        // Whether a workspace exists is nobody's business who is not known here: they see an empty one.
        Err(_) if user.in_group(user::UNAUTHENTICATED) => hub.nowhere(name),
        Err(status) => return Err(status),
    };
    let user = act_as(hub, &space, user, &headers)?;
    let method = parts.method.as_str().to_ascii_lowercase();
    let selected = selected_name(&info, &query);
    let attributes = Attributes::of(&info, if method == "head" { "get" } else { &method }, &selected);
    if !hub.authorizer.allows(&space, &user, &attributes) {
        return Err(forbidden(&info, &selected, &attributes, &user));
    }
    match info.target {
        Target::NonResource => non_resource(hub, &space, &parts.method, &headers, &query, &info.path),
        // Clients that ask for headers alone get none of objects; upstream refuses as well.
        Target::Resource(_) if parts.method == Method::HEAD => Err(Status::method_not_allowed()),
        Target::Resource(target) => resource(hub, space, user, target, query, headers, body, labels).await,
    }
}

/// A list, watch or mass deletion that selects one name is a request for that name: a role may allow just that.
fn selected_name(info: &RequestInfo, query: &Query) -> String {
    let Target::Resource(target) = &info.target else { return String::new() };
    let on_many = matches!(target.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
    if !on_many || !target.name.is_empty() {
        return target.name.clone();
    }
    let selector = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default()).ok();
    selector.and_then(|selector| selector.exact_name().map(str::to_owned)).unwrap_or_default()
}

fn verb_label(info: &RequestInfo, method: &Method) -> &'static str {
    match (&info.target, method) {
        (Target::Resource(target), _) => match target.verb {
            Verb::Get => "GET",
            Verb::List => "LIST",
            Verb::Watch => "WATCH",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
            Verb::DeleteCollection => "DELETECOLLECTION",
        },
        (Target::NonResource, &Method::GET) => "GET",
        _ => "other",
    }
}

fn forbidden(info: &RequestInfo, name: &str, attributes: &Attributes<'_>, user: &User) -> Status {
    let why = attributes.refusal(user);
    match &info.target {
        Target::Resource(target) => {
            Status::forbidden(About { group: &target.group, resource: &target.resource, name }, &why)
        }
        Target::NonResource => Status::forbidden_path(&why),
    }
}

/// Impersonation: every part of the identity that is put on must be allowed.
fn act_as(hub: &Hub, space: &Space, user: Arc<User>, headers: &HeaderMap) -> Result<Arc<User>, Status> {
    let Some(Impersonated { user: other, asked_groups }) = user::impersonated(headers)? else {
        return Ok(user);
    };
    let mut wanted: Vec<(&str, &str, String, &str, &str)> = Vec::new();
    match User::service_account(&other.name) {
        Some((namespace, name)) => wanted.push(("", "serviceaccounts", String::new(), namespace, name)),
        None => wanted.push(("", "users", String::new(), "", &other.name)),
    }
    wanted.extend(asked_groups.iter().map(|group| ("", "groups", String::new(), "", group.as_str())));
    const GROUP: &str = "authentication.k8s.io";
    if !other.uid.is_empty() {
        wanted.push((GROUP, "uids", String::new(), "", &other.uid));
    }
    for (key, values) in &other.extra {
        wanted.extend(values.iter().map(|value| (GROUP, "userextras", key.clone(), "", value.as_str())));
    }
    for (group, resource, subresource, namespace, name) in &wanted {
        let attributes =
            Attributes::Resource { verb: "impersonate", group, resource, subresource, namespace, name };
        if !hub.authorizer.allows(space, &user, &attributes) {
            let about = About { group, resource, name };
            return Err(Status::forbidden(about, &attributes.refusal(&user)));
        }
    }
    drop(wanted);
    Ok(Arc::new(other))
}

fn non_resource(
    hub: &Hub,
    space: &Space,
    method: &Method,
    headers: &HeaderMap,
    query: &Query,
    path: &str,
) -> Result<Response<Body>, Status> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed());
    }
    let served = hub.served(space);
    if let Some(answer) = served.discovered().answer(path, headers) {
        return answer;
    }
    if let Some(answer) = openapi::answer(served.openapi(), path, headers) {
        return Ok(answer);
    }
    if path == "/openapi/v2" {
        return swagger::answer(&served.swagger(), headers);
    }
    if let Some(answer) = health::answer(hub, path, query) {
        return Ok(answer);
    }
    // Inside a group that is served the answer is a Status; outside of the API it is a plain page.
    let inside = path.starts_with("/api/") || served.discovered().has_group(path);
    match inside {
        true => Err(Status::no_such_path()),
        false => Ok(body::text(StatusCode::NOT_FOUND, "404 page not found\n".into())),
    }
}

#[allow(clippy::too_many_arguments)]
async fn resource<B>(
    hub: &Arc<Hub>,
    space: Space,
    user: Arc<User>,
    target: ResourceTarget,
    query: Query,
    headers: HeaderMap,
    body: B,
    labels: &mut RequestLabels,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let served = hub.served(&space);
    let resource = served.registry.find(&target.group, &target.version, &target.resource);
    let resource = resource.ok_or_else(Status::no_such_path)?.clone();
    // Of the row: all custom kinds count as one, or tenants could grow the metrics without bound.
    let row = &resource.row;
    (labels.group, labels.version, labels.resource) = (row.group, row.version, row.plural);
    check_path(&resource, &target)?;
    let verb = target.verb;
    let shown = shown_kind(&resource, &target);
    let audit = Recorder::off();
    let context = Context { hub: hub.clone(), space, resource, shown, target, query, headers, user, audit };
    let deprecation = context.resource.custom().and_then(|custom| custom.version.deprecation.clone());
    let answer = answer_about(hub, context, verb, body).await;
    match deprecation {
        Some(text) => answer.map(|mut response| {
            body::warn(&mut response, &text);
            response
        }),
        None => answer,
    }
}

async fn answer_about<B>(
    hub: &Arc<Hub>,
    context: Context,
    verb: Verb,
    body: B,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    match verb {
        Verb::Get => read::get(&context).await,
        Verb::List => read::list(&context).await,
        Verb::Watch => watch::watch(&context).await,
        _ => {
            let limit = hub.options.request_timeout;
            let timer = hub.env.clock.sleep(limit);
            let mut context = context;
            let limit_bytes = hub.options.max_body_bytes;
            let work = async {
                let bytes = read_body(body, limit_bytes).await?;
                for _ in 0..DEFINITION_ATTEMPTS {
                    let answer = write_verb(&context, verb, bytes.clone()).await;
                    // A custom object is only written if its definition is still the one it was checked against.
                    match renewed(&context).filter(|_| answer.is_err()) {
                        Some(resource) => {
                            context.shown = shown_kind(&resource, &context.target);
                            context.resource = resource;
                        }
                        None => return answer,
                    }
                }
                write_verb(&context, verb, bytes).await
            };
            tokio::select! {
                done = work => done,
                () = timer => Err(timed_out(limit)),
            }
        }
    }
}

async fn write_verb(context: &Context, verb: Verb, bytes: Bytes) -> Result<Response<Body>, Status> {
    match verb {
        Verb::Create if !context.resource.is_stored() => reviews::review(context, &bytes),
        Verb::Create if !context.target.subresource.is_empty() => pods::create_below(context, &bytes).await,
        Verb::Create => write::create(context, bytes).await,
        Verb::Update => write::update(context, bytes).await,
        Verb::Patch => write::patch(context, bytes).await,
        Verb::Delete => delete::delete(context, bytes).await,
        _ => delete::delete_collection(context, bytes).await,
    }
}

/// A custom kind whose definition has changed since the request was looked at, as it is now.
fn renewed(context: &Context) -> Option<Arc<Resource>> {
    context.resource.custom()?;
    let target = &context.target;
    let served = context.hub.served(&context.space);
    let now = served.registry.find(&target.group, &target.version, &target.resource)?;
    (!Arc::ptr_eq(now, &context.resource)).then(|| now.clone())
}

/// The kind of what is sent and answered at `target`.
fn shown_kind(resource: &Arc<Resource>, target: &ResourceTarget) -> Arc<Resource> {
    let other = resource
        .subresource(&target.subresource)
        .filter(|it| !matches!(it.kind, "") && *it.kind != *resource.kind);
    other.and_then(Resource::at_path).map_or_else(|| resource.clone(), Arc::new)
}

/// Scope, verb and subresource must be the resource's own.
fn check_path(resource: &Resource, target: &ResourceTarget) -> Result<(), Status> {
    if !resource.is_stored() && !target.name.is_empty() {
        return Err(Status::no_such_path());
    }
    let allowed = match target.subresource.as_str() {
        "" => resource.verb_allowed(target.verb.as_str()),
        name => {
            let subresource = resource.subresource(name).ok_or_else(Status::no_such_path)?;
            subresource.verbs.contains(&target.verb.as_str())
        }
    };
    if !resource.namespaced && !target.namespace.is_empty() {
        return Err(Status::no_such_path());
    }
    // Without a namespace a namespaced resource can only be listed and watched, over all of them.
    let everywhere = resource.namespaced && target.namespace.is_empty();
    if everywhere && !(target.name.is_empty() && matches!(target.verb, Verb::List | Verb::Watch)) {
        return match target.name.is_empty() {
            true => Err(Status::method_not_allowed()),
            false => Err(Status::no_such_path()),
        };
    }
    let on_collection = target.name.is_empty() && matches!(target.verb, Verb::Update | Verb::Patch);
    let create_on_item =
        !target.name.is_empty() && target.verb == Verb::Create && target.subresource.is_empty();
    if !allowed || on_collection || create_on_item {
        return Err(Status::method_not_allowed());
    }
    Ok(())
}

fn timed_out(limit: Duration) -> Status {
    let message = format!("request did not complete within the allowed {} seconds", limit.as_secs());
    Status::new(Reason::Timeout, message).retry_after(1)
}

/// The whole body, if it is not larger than `limit`.
async fn read_body<B>(mut body: B, limit: usize) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let too_large =
        || Status::new(Reason::RequestEntityTooLarge, format!("Request entity too large: limit is {limit}"));
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let mut first: Option<Bytes> = None;
    let mut joined: Option<BytesMut> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Status::bad_request("the body of the request ended too early"))?;
        let Ok(data) = frame.into_data() else { continue };
        let so_far = joined.as_ref().map_or(first.as_ref().map_or(0, Bytes::len), BytesMut::len);
        if so_far + data.len() > limit {
            return Err(too_large());
        }
        match (&mut joined, first.take()) {
            (Some(joined), _) => joined.extend_from_slice(&data),
            (None, None) => first = Some(data),
            (None, Some(start)) => {
                let mut all = BytesMut::with_capacity(start.len() + data.len());
                all.extend_from_slice(&start);
                all.extend_from_slice(&data);
                joined = Some(all);
            }
        }
    }
    Ok(joined.map(BytesMut::freeze).or(first).unwrap_or_default())
}
