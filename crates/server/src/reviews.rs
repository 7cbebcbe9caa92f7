//! Access reviews: may somebody do something, and who am I. Answered at once, never stored.

use bytes::Bytes;
use http::{Response, StatusCode};
use machinery::{field_error::Cause, resource::Tree, status::Status};
use serde_json::{Map, Value, json};

use crate::{
    admission::{self, Admission, Notes, Operation},
    authentication::{self, Claim},
    body::{self, Body},
    context::Context,
    decode::{self, Decoded},
    managers,
    negotiate::Shape,
    rbac::{Attributes, Rule},
    user::{MASTERS, User},
    write::Along,
};

pub async fn review(context: &Context, bytes: &Bytes) -> Result<Response<Body>, Status> {
    let dry_run = context.dry_run()?;
    let shape = context.presenter()?.shape;
    let Decoded { mut tree, warnings, .. } = decode::object(context, bytes)?;
    let metadata = tree.entry("metadata").or_insert_with(|| json!({}));
    if context.resource.namespaced {
        metadata["namespace"] = json!(context.target.namespace);
    }
    managers::track(context, None, &mut tree, false).await;
    let mut notes = Notes::default();
    let admission = Admission::new(context, Operation::Create, "", None, dry_run);
    admission::mutate(&admission, Some(&mut tree), &mut notes).await?;
    refuse_metadata(context, &tree)?;
    let status = status(context, &tree).await?;
    // Upstream asks when it knows that the question can be answered, and before it does.
    admission::validate(&admission, Some(&tree), &mut Along::default(), &mut notes).await?;
    let mut response = body::json(StatusCode::CREATED, &Value::Object(shown(context, tree, status, shape)));
    for warning in &warnings {
        body::warn(&mut response, warning);
    }
    notes.tell(&mut response);
    Ok(response)
}

/// The answer.
async fn status(context: &Context, tree: &Tree) -> Result<Value, Status> {
    Ok(match context.resource.kind.as_str() {
        "SelfSubjectReview" => json!({"userInfo": user_info(&context.user)}),
        "SelfSubjectAccessReview" => access(context, tree, &context.user)?,
        "SubjectAccessReview" => access(context, tree, &subject(context, tree)?)?,
        "LocalSubjectAccessReview" => {
            let user = subject(context, tree)?;
            same_namespace(context, tree)?;
            access(context, tree, &user)?
        }
        "SelfSubjectRulesReview" => rules(context, tree)?,
        "TokenReview" => token(context, tree).await?,
        kind => return Err(Status::internal(format!("no review of kind {kind}"))),
    })
}

/// A review with its answer, in the shape that was asked for.
fn shown(context: &Context, mut tree: Tree, status: Value, shape: Shape) -> Tree {
    match context.resource.kind.as_str() {
        // Upstream answers this one with a new object that says nothing of what was asked.
        "SelfSubjectRulesReview" => {
            tree.insert("spec".into(), json!({}));
            tree.insert("metadata".into(), json!({}));
        }
        "SelfSubjectReview" => {
            tree.entry("metadata").or_insert_with(|| json!({}))["creationTimestamp"] =
                json!(context.hub.now_text());
        }
        _ => {}
    }
    tree.insert("status".into(), status);
    if shape == Shape::Partial {
        tree.retain(|key, _| key == "metadata");
        tree.insert("kind".into(), json!("PartialObjectMetadata"));
        tree.insert("apiVersion".into(), json!("meta.k8s.io/v1"));
    }
    tree
}

/// A review is nobody's object: it has no name.
fn refuse_metadata(context: &Context, tree: &Tree) -> Result<(), Status> {
    // Upstream does not look at that of reviews of tokens.
    if context.resource.kind == "TokenReview" {
        return Ok(());
    }
    let metadata = tree.get("metadata").and_then(Value::as_object);
    let named = metadata.is_some_and(|it| it.keys().any(|key| key != "namespace" && key != "managedFields"));
    if named {
        let cause = Cause::invalid("metadata", tree.get("metadata").unwrap_or(&Value::Null), "must be empty");
        return Err(invalid(context, vec![cause]));
    }
    Ok(())
}

fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    info.insert("username".into(), json!(user.name));
    if !user.uid.is_empty() {
        info.insert("uid".into(), json!(user.uid));
    }
    info.insert("groups".into(), json!(user.groups));
    if !user.extra.is_empty() {
        info.insert("extra".into(), json!(user.extra));
    }
    Value::Object(info)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn invalid(context: &Context, causes: Vec<Cause>) -> Status {
    Status::invalid(&context.resource.group, &context.resource.kind, "", causes)
}

fn subject(context: &Context, tree: &Tree) -> Result<User, Status> {
    let null = Value::Null;
    let spec = tree.get("spec").unwrap_or(&null);
    let groups: Vec<String> = spec["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let name = text(spec, "user").to_owned();
    if name.is_empty() && groups.is_empty() {
        let detail = "at least one of user or group must be specified";
        return Err(invalid(context, vec![Cause::invalid("spec.user", &json!(name), detail)]));
    }
    Ok(User { name, uid: text(spec, "uid").to_owned(), groups, ..User::default() })
}

fn same_namespace(context: &Context, tree: &Tree) -> Result<(), Status> {
    let namespace = tree
        .get("spec")
        .and_then(|spec| spec.get("resourceAttributes"))
        .map_or("", |attributes| text(attributes, "namespace"));
    if namespace != context.target.namespace {
        let detail = "must match metadata.namespace";
        let cause = Cause::invalid("spec.resourceAttributes.namespace", &json!(namespace), detail);
        return Err(invalid(context, vec![cause]));
    }
    Ok(())
}

fn access(context: &Context, tree: &Tree, user: &User) -> Result<Value, Status> {
    let null = Value::Null;
    let spec = tree.get("spec").unwrap_or(&null);
    let (resource, path) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    let attributes = match (resource, path) {
        (Some(resource), None) => Attributes::Resource {
            verb: text(resource, "verb"),
            group: text(resource, "group"),
            resource: text(resource, "resource"),
            subresource: text(resource, "subresource"),
            namespace: text(resource, "namespace"),
            name: text(resource, "name"),
        },
        (None, Some(path)) => Attributes::NonResource { verb: text(path, "verb"), path: text(path, "path") },
        (Some(_), Some(_)) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            return Err(invalid(
                context,
                vec![Cause::invalid("spec.nonResourceAttributes", path.unwrap_or(&null), detail)],
            ));
        }
        (None, None) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            return Err(invalid(context, vec![Cause::invalid("spec.resourceAttributes", &null, detail)]));
        }
    };
    if user.in_group(MASTERS) {
        return Ok(json!({"allowed": true}));
    }
    match context.hub.authorizer.policy(&context.space).reason(user, &attributes) {
        Some(reason) => Ok(json!({"allowed": true, "reason": reason})),
        None => Ok(json!({"allowed": false})),
    }
}

/// What upstream answers to a token: who bears it and for which of the audiences, or what is wrong with it.
async fn token(context: &Context, tree: &Tree) -> Result<Value, Status> {
    let null = Value::Null;
    let spec = tree.get("spec").unwrap_or(&null);
    let token = text(spec, "token");
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let own = authentication::own_audiences(&context.hub, &context.space);
    let asked: Vec<String> = spec["audiences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let wanted = if asked.is_empty() { &own } else { &asked };
    // It is read as a header would be.
    let token = token.split(' ').next().unwrap_or_default();
    let claim = Claim { hub: &context.hub, space: &context.space, token, wanted, own: &own };
    Ok(match authentication::verify(&claim).await {
        Ok(found) => {
            json!({"authenticated": true, "user": user_info(&found.user), "audiences": found.audiences})
        }
        Err(why) => json!({"user": {}, "error": why}),
    })
}

fn rules(context: &Context, tree: &Tree) -> Result<Value, Status> {
    let namespace = tree.get("spec").map_or("", |spec| text(spec, "namespace"));
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let mut rules = context.hub.authorizer.policy(&context.space).rules_for(&context.user, namespace);
    if context.user.in_group(MASTERS) {
        let held = rules.clone();
        rules.extend(Rule::everything().into_iter().filter(|rule| !held.contains(rule)));
    }
    let (urls, resources): (Vec<_>, Vec<_>) =
        rules.iter().partition(|rule| !rule.non_resource_urls.is_empty());
    let shown = |rules: Vec<&Rule>| rules.into_iter().map(Rule::to_json).collect::<Vec<_>>();
    Ok(json!({"resourceRules": shown(resources), "nonResourceRules": shown(urls), "incomplete": false}))
}
