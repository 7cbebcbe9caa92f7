//! One request, from headers to answer: who, what, may they, do it.

use std::{any::Any, net::IpAddr, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, request::Parts};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use machinery::{
    resource::Resource,
    selector::FieldSelector,
    status::{self, Reason, Status},
};
use store::WorkspaceId;
use tracing::{Instrument, Span};

use crate::{
    audit::{Arrival, Recorder, Trail},
    authentication::{self, Asker},
    body::{self, Body},
    context::{Context, Elsewhere},
    delete,
    fairness::Counting,
    health,
    hub::Hub,
    letters, level,
    login::caller::Caller,
    metrics::{About, Answered, is_dry_run},
    openapi, operate,
    options::Query,
    pods,
    rbac::Attributes,
    read,
    relay::{self, Answerer},
    request::{RequestInfo, ResourceTarget, Target, Verb},
    reviews,
    shares::{BodyRoom, Claim},
    space::Space,
    streams, swagger, tokens,
    trace::{self, Laps},
    user::{self, Impersonated, User},
    views, watch, write,
};

/// How often a write of a custom object begins again because its definition changed.
const DEFINITION_ATTEMPTS: usize = 5;

/// What operators send is a line of text.
const MAX_OPERATOR_BODY: usize = 64 * 1024;

/// Longer ids than any client makes are not passed on.
const MAX_AUDIT_ID: usize = 256;

/// Where a request comes from, as its connection knows it.
#[derive(Clone, Default)]
pub struct Connection {
    /// Who is at its other end, if that is known.
    pub caller: Option<Arc<Caller>>,
    pub peer: Option<IpAddr>,
    /// Whose it is; `None`: it is not counted.
    pub claim: Option<Arc<Claim>>,
    /// Another server passed it on, for the workspace with this id.
    pub relayed: Option<WorkspaceId>,
}

/// What is learned of a request while it is answered, and outlives a refusal.
struct Findings {
    audit_id: HeaderValue,
    about: About,
    is_dry_run: bool,
    elsewhere: Elsewhere,
    warnings: Vec<String>,
    trail: Trail,
    counting: Option<Counting>,
    /// Too many were at it already.
    turned_away: bool,
}

/// Answers a request.
pub async fn handle<B>(hub: Arc<Hub>, connection: Arc<Connection>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let started = hub.env.clock.elapsed();
    let (mut parts, body) = request.into_parts();
    let mut headers = std::mem::take(&mut parts.headers);
    let connection = match relay::asker(&hub, &mut headers) {
        Ok(None) => connection,
        Ok(Some((user, workspace))) => {
            let caller = Some(Arc::new(Caller::Known(Arc::new(user))));
            Arc::new(Connection { caller, relayed: Some(workspace), ..Connection::default() })
        }
        Err(status) => return body::refusal(&status),
    };
    if parts.uri.path() == letters::PATH && hub.letters.is_some() {
        let answer = letters::answer(&hub, &parts.method, &headers, body).await;
        return answer.unwrap_or_else(|| body::refusal(&Status::no_such_path()));
    }
    let mut findings = Findings {
        audit_id: audit_id(&hub, &headers),
        about: About::default(),
        is_dry_run: false,
        elsewhere: Elsewhere::default(),
        warnings: Vec::new(),
        trail: Trail::default(),
        counting: None,
        turned_away: false,
    };
    let in_flight = hub.metrics.requests.begin(&parts.method);
    let span = trace::begin(&hub, &parts, &headers);
    // Pinned before it is wrapped: it is large, and would be moved with every wrapper.
    let work = Box::pin(answer(&hub, &connection, &parts, headers, body, &mut findings));
    let outcome = AssertUnwindSafe(work.instrument(span.clone())).catch_unwind().await;
    drop(in_flight);
    let Findings { audit_id, about, is_dry_run, elsewhere, warnings, trail, counting, turned_away } =
        findings;
    let mut response = match outcome {
        Ok(answered) => {
            let mut response = answered.unwrap_or_else(|status| body::refusal(&status));
            for warning in &warnings {
                body::warn(&mut response, warning);
            }
            trail.answer(response).await
        }
        Err(panic) => {
            trail.panicked(panic_text(&*panic)).await;
            body::refusal(&Status::internal("this request made the server panic; its log says where"))
        }
    };
    if parts.method == Method::HEAD {
        *response.body_mut() = Body::Whole(None);
    }
    response = hub.metrics.requests.measure(&about, response);
    let answered = Answered {
        dry_run: is_dry_run,
        code: response.status().as_u16(),
        took: hub.env.clock.elapsed().saturating_sub(started),
        elsewhere: elsewhere.sum() + counting.as_ref().map_or(Duration::ZERO, |it| it.waited),
    };
    let (verb, group, resource) = (about.verb, about.group, about.resource);
    trace::end(
        &hub,
        &span,
        &trace::Outcome { verb, group, resource, code: answered.code, took: answered.took },
    );
    hub.metrics.requests.answered(&about, &answered);
    if turned_away || response.status() == StatusCode::GATEWAY_TIMEOUT {
        hub.metrics.requests.terminated(&about, answered.code);
    }
    response.headers_mut().insert("audit-id", audit_id);
    if let Some(Counting { schema_uid, level_uid, .. }) = counting {
        response.headers_mut().insert("x-kubernetes-pf-flowschema-uid", schema_uid);
        response.headers_mut().insert("x-kubernetes-pf-prioritylevel-uid", level_uid);
    }
    response
}

/// The client's own, so that it finds its request again, or a new one.
fn audit_id(hub: &Hub, headers: &HeaderMap) -> HeaderValue {
    let usable = |id: &&HeaderValue| !id.is_empty() && id.len() <= MAX_AUDIT_ID && id.to_str().is_ok();
    match headers.get("audit-id").filter(usable) {
        Some(id) => id.clone(),
        None => HeaderValue::try_from(hub.new_uid()).unwrap_or(HeaderValue::from_static("")),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("of unknown cause")
}

async fn answer<B>(
    hub: &Arc<Hub>,
    connection: &Connection,
    parts: &Parts,
    headers: HeaderMap,
    body: B,
    findings: &mut Findings,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let query = Query::parse(parts.uri.query())?;
    let info = RequestInfo::parse(&parts.method, parts.uri.path(), query.flag("watch"))?;
    findings.about = About::verb(verb_label(&info, &parts.method, &headers));
    findings.is_dry_run = is_dry_run(&query);
    let method = parts.method.as_str().to_ascii_lowercase();
    let selected = selected_name(&info, &query);
    let attributes = Attributes::of(&info, if method == "head" { "get" } else { &method }, &selected);
    let arrival = |auditor, audit_id, user, workspace| Arrival {
        auditor,
        audit_id,
        parts,
        headers: &headers,
        peer: connection.peer,
        info: &info,
        attributes: &attributes,
        user,
        workspace,
        charged: if hub.space(workspace).is_ok() { workspace } else { "" },
    };
    let asked_for = info.workspace.as_deref();
    let mut laps = Laps::start(hub);
    let mut asker = authentication::authenticate(hub, connection.caller.as_ref(), &headers, &info).await;
    if asker.is_err()
        && let Ok(space) = hub.space(asked_for.unwrap_or(api::DEFAULT))
        && level::for_stranger(hub, space.id()).await?
    {
        // What a token is of, another server may just have made.
        asker = authentication::authenticate(hub, connection.caller.as_ref(), &headers, &info).await;
    }
    let asker = match asker {
        Ok(asker) => asker,
        Err(status) => {
            if let Some(auditor) = &hub.auditor {
                let id = findings.audit_id.to_str().unwrap_or_default();
                let arrival = arrival(auditor, id, None, asked_for.unwrap_or(api::DEFAULT));
                findings.trail.turn_away(arrival, status.code()).await;
            }
            return Err(status);
        }
    };
    laps.lap("stage.authenticate");
    let Asker { user, space: verified, warnings: of_asker } = asker;
    findings.warnings = of_asker;
    if let Some(claim) = &connection.claim {
        claim.settle(hub, &user, verified.as_ref())?;
    }
    // Without a path prefix the request is for its credential's workspace, else for `default`.
    let name = asked_for.or(verified.as_ref().map(Space::name)).unwrap_or(api::DEFAULT).to_owned();
    if trace::is_on() {
        Span::current().record("workspace", name.as_str());
    }
    let mut audit = Recorder::off();
    // What another server passes on it has recorded.
    if let Some(auditor) = hub.auditor.as_ref().filter(|_| connection.relayed.is_none()) {
        let id = findings.audit_id.to_str().unwrap_or_default();
        audit = findings.trail.begin(arrival(auditor, id, Some(&user), &name)).await?;
    }
    let is_verified = verified.is_some();
    let found = match verified {
        Some(space) => Ok(space),
        None => hub.find_space(&name).await,
    };
    let asker = user;
    let mut space = as_seen_by(hub, &asker, &name, found)?;
    let mut waited = Duration::ZERO;
    // The seat is given back when this function returns; what a watch or a list streams later needs none.
    let (user, _permit) = loop {
        space.count_request();
        let user = act_as(hub, &space, asker.clone(), &headers, &audit)?;
        // Who may act as anybody in a workspace does not become a platform admin to the others by it.
        // Whether somebody acts is not known of what is passed on; it was let in once already.
        let is_admin =
            asker.in_group(user::MASTERS) && Arc::ptr_eq(&asker, &user) && connection.relayed.is_none();
        let permit = hub.fairness.enter(&space, &user, is_admin, &attributes, &mut findings.counting).await;
        findings.turned_away = permit.is_err();
        let permit = permit?;
        let Target::Resource(target) = &info.target else { break (user, permit) };
        let began = hub.env.clock.elapsed();
        let found = level::found_again(hub, &space, target, &query, waited).await?;
        waited += hub.env.clock.elapsed().saturating_sub(began);
        let now = as_seen_by(hub, &asker, &name, found)?;
        if now.id() == space.id() {
            break (user, permit);
        }
        // Another server has made it anew. Who was verified in the old one is nobody there.
        if is_verified {
            return Err(authentication::unauthorized());
        }
        space = now;
    };
    // A workspace of the same name is another one.
    if connection.relayed.as_ref().is_some_and(|id| id != space.id()) {
        return Err(authentication::unauthorized());
    }
    laps.lap("stage.wait");
    let reason = hub.authorizer.decide(&space, &user, &attributes, audit.is_on());
    let allowed = reason.is_some();
    if allowed { &hub.metrics.allowed } else { &hub.metrics.denied }.inc();
    audit.annotate("authorization.k8s.io/decision", if allowed { "allow" } else { "forbid" });
    audit.annotate("authorization.k8s.io/reason", reason.unwrap_or_default());
    if !allowed {
        return Err(forbidden(&info, &selected, &attributes, &user));
    }
    match info.target {
        Target::NonResource => {
            non_resource(hub, &space, &parts.method, &headers, &query, &info.path, body).await
        }
        // Clients that ask for headers alone get none of objects; upstream refuses as well.
        Target::Resource(_) if parts.method == Method::HEAD => Err(Status::method_not_allowed()),
        Target::Resource(target) => {
            let elsewhere = findings.elsewhere.clone();
            let about = &mut findings.about;
            let is_relayed = connection.relayed.is_some();
            resource(
                hub, space, user, target, query, parts, headers, body, audit, elsewhere, about, waited,
                is_relayed,
            )
            .await
        }
    }
}

/// Whether a workspace exists is nobody's business who is not known here: they see an empty one.
fn as_seen_by(hub: &Hub, user: &User, name: &str, found: Result<Space, Status>) -> Result<Space, Status> {
    match found {
        Err(_) if user.in_group(user::UNAUTHENTICATED) => Ok(hub.nowhere(name)),
        found => found,
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

fn verb_label(info: &RequestInfo, method: &Method, headers: &HeaderMap) -> &'static str {
    match (&info.target, method) {
        (Target::Resource(target), _) => match target.verb {
            Verb::Get => "GET",
            Verb::List => "LIST",
            Verb::Watch => "WATCH",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::Patch if is_apply(headers) => "APPLY",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
            Verb::DeleteCollection => "DELETECOLLECTION",
        },
        (Target::NonResource, &Method::GET) => "GET",
        _ => "other",
    }
}

fn is_apply(headers: &HeaderMap) -> bool {
    let kind = headers.get(http::header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/apply-patch"))
}

fn forbidden(info: &RequestInfo, name: &str, attributes: &Attributes<'_>, user: &User) -> Status {
    let why = attributes.refusal(user);
    match &info.target {
        Target::Resource(target) => {
            Status::forbidden(status::About { group: &target.group, resource: &target.resource, name }, &why)
        }
        Target::NonResource => Status::forbidden_path(&why),
    }
}

/// Impersonation: every part of the identity that is put on must be allowed.
fn act_as(
    hub: &Hub,
    space: &Space,
    user: Arc<User>,
    headers: &HeaderMap,
    audit: &Recorder,
) -> Result<Arc<User>, Status> {
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
            let about = status::About { group, resource, name };
            return Err(Status::forbidden(about, &attributes.refusal(&user)));
        }
    }
    drop(wanted);
    audit.impersonates(&other);
    Ok(Arc::new(other))
}

async fn non_resource<B>(
    hub: &Arc<Hub>,
    space: &Space,
    method: &Method,
    headers: &HeaderMap,
    query: &Query,
    path: &str,
    body: B,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let read = async || read_body(body, MAX_OPERATOR_BODY, |_| Ok(())).await;
    if let Some(answer) = operate::answer(hub, space, method, path, query, read).await {
        return answer;
    }
    if let Some(answer) = tokens::discovery::answer(hub, space, method, path, query).await {
        return answer;
    }
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
    if let Some(answer) = health::answer(hub, space, path, query) {
        return answer;
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
    parts: &Parts,
    headers: HeaderMap,
    body: B,
    audit: Recorder,
    elsewhere: Elsewhere,
    about: &mut About,
    waited: Duration,
    is_relayed: bool,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let served = hub.served(&space);
    let resource = served.registry.find(&target.group, &target.version, &target.resource);
    let resource = resource.ok_or_else(Status::no_such_path)?.clone();
    about.set(&resource, &target);
    check_path(&resource, &target)?;
    let verb = target.verb;
    let upgrade = parts.extensions.get::<OnUpgrade>().cloned();
    let shown = shown_kind(&resource, &target);
    let about = about.clone();
    let hub = hub.clone();
    let view = hub.views.for_kind(space.id(), &resource.stored_group, &resource.plural);
    let context = Context {
        hub,
        space,
        view,
        resource,
        shown,
        target,
        query,
        headers,
        user,
        audit,
        about,
        elsewhere,
        upgrade,
    };
    match relay::answerer(&context, is_relayed) {
        Answerer::Here => {}
        Answerer::There(to) => return Box::pin(relay::send(&context, &to, parts, body, waited)).await,
        Answerer::Nobody => return Err(relay::nobody()),
    }
    let deprecation = match context.resource.custom() {
        Some(custom) => custom.version.deprecation.clone(),
        None => context.resource.row.deprecation.map(str::to_owned),
    };
    let answer = answer_about(context, verb, body, waited).await;
    match deprecation {
        Some(text) => answer.map(|mut response| {
            body::warn_first(&mut response, &text);
            response
        }),
        None => answer,
    }
}

/// `waited`: so much of its time is gone.
async fn answer_about<B>(
    context: Context,
    verb: Verb,
    body: B,
    waited: Duration,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let clock = context.hub.env.clock.clone();
    let most = context.hub.options.request_timeout;
    // What is large is put elsewhere: this is part of what every request, also the smallest, moves about.
    if verb == Verb::Watch {
        return Box::pin(watch::watch(&context)).await;
    }
    if streams::is_stream(&context) {
        return Box::pin(streams::open(&context)).await;
    }
    let asked = context.query.timeout(most)?;
    if verb.is_write() {
        check_writer(&context)?;
        return tokio::select! {
            done = Box::pin(write_with(context, verb, body)) => done,
            () = clock.sleep(asked.unwrap_or(most).saturating_sub(waited)) => Err(timed_out()),
        };
    }
    let read = async {
        match verb {
            Verb::Get => read::get(&context).await,
            _ => Box::pin(read::list(&context)).await,
        }
    };
    match asked {
        // A read waits for nothing that has no limit of its own, and needs no timer.
        None => read.await,
        Some(limit) => tokio::select! {
            done = read => done,
            () = clock.sleep(limit.saturating_sub(waited)) => Err(timed_out()),
        },
    }
}

/// What Hanse alone writes nobody else does, whatever roles say.
fn check_writer(context: &Context) -> Result<(), Status> {
    let row = &context.resource.row;
    if !row.system_written || context.user.is_hub {
        return Ok(());
    }
    let target = &context.target;
    let about = status::About { group: &target.group, resource: &target.resource, name: &target.name };
    Err(Status::forbidden(about, "only Hanse writes it, to say what it decided"))
}

/// A write, from its body to its answer.
async fn write_with<B>(mut context: Context, verb: Verb, body: B) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let mut room = BodyRoom::default();
    let hold = |length| room.hold(&context.hub, &context.space, length);
    let bytes = read_body(body, context.hub.options.max_body_bytes, hold).await?;
    context.hub.metrics.requests.received(&context.resource, context.about.verb, bytes.len());
    context.audit.request(&context, &bytes);
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
}

async fn write_verb(context: &Context, verb: Verb, bytes: Bytes) -> Result<Response<Body>, Status> {
    // Boxed, so that writes of other objects keep no room for it.
    if context.view.is_some()
        && let Some(answer) = Box::pin(views::write(context, verb, &bytes)).await
    {
        return answer;
    }
    match verb {
        Verb::Create if !context.resource.is_stored() => reviews::review(context, &bytes).await,
        Verb::Create if context.target.subresource == "token" => {
            tokens::request::create(context, &bytes).await
        }
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

/// Without `Retry-After`: a client that sends a write again by itself might do it twice.
pub fn timed_out() -> Status {
    let why = "request did not complete within requested timeout - context deadline exceeded";
    Status::new(Reason::Timeout, format!("Timeout: {why}"))
}

/// The whole body, if it is not larger than `limit` and there is room for it: `hold` is told how much it has become.
pub async fn read_body<B>(
    mut body: B,
    limit: usize,
    mut hold: impl FnMut(usize) -> Result<(), Status>,
) -> Result<Bytes, Status>
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
        hold(so_far + data.len())?;
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
