//! `TokenRequest`: a token for a service account, for a time and an audience, bound to something if asked.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use machinery::{
    Object,
    field_error::Cause,
    resource::Tree,
    status::{About, Status},
};
use serde_json::{Value, json};
use store::Key;

use super::claims::{Bound, Named, New};
use crate::{
    admission::{self, Admission, Notes, Operation},
    body::{self, Body},
    context::Context,
    decode,
    hub::seconds_text,
    managers,
    write::{Along, metadata_of, set_namespace, text},
};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
const HOUR: i64 = 3600;
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;
const MOST_AUDIENCES: usize = 64;
/// Of all together: with them a token is not too long for a header.
const MAX_AUDIENCES_BYTES: usize = 4 << 10;
/// What the volume that pods get asks for. Such a token lives much longer, so that programs which never read it again
/// go on working, and its use after this time is counted.
pub const OF_PODS: i64 = HOUR + 7;
const EXTENDED: i64 = 365 * 24 * HOUR;

/// `POST …/serviceaccounts/NAME/token`
pub async fn create(context: &Context, bytes: &Bytes) -> Result<Response<Body>, Status> {
    let decoded = decode::object(context, bytes)?;
    let mut tree = decoded.tree;
    set_namespace(context, &mut tree)?;
    default_spec(&mut tree);
    managers::track_shown(context, &mut tree);
    let mut notes = Notes { warnings: decoded.warnings };
    let name = context.target.name.as_str();
    let admission = Admission::new(context, Operation::Create, name, None, context.dry_run()?);
    admission::mutate(&admission, Some(&mut tree), &mut notes).await?;
    let account = account_of(context, &mut tree)?;
    let issuer = context.hub.issuers.signing(&context.hub, &context.space).await?;
    let now = context.hub.now();
    complete(&mut tree, &account, issuer.names(), now);
    let spec = Spec::check(&tree)?;
    admission::validate(&admission, Some(&tree), &mut Along::default(), &mut notes).await?;
    let bound = bound_to(context, name, tree.get("spec").and_then(|spec| spec.get("boundObjectRef")))?;
    let warn_after = spec.warn_after(&bound, issuer.names());
    let id = context.hub.new_uid();
    let claims = New {
        issuer: issuer.name(),
        namespace: &context.target.namespace,
        account: Named::of(&account),
        bound,
        audiences: &spec.audiences,
        now,
        seconds: if warn_after.is_some() { EXTENDED } else { spec.seconds },
        warn_after,
        id: &id,
    };
    let token = issuer.sign(&claims.to_json())?;
    context.hub.metrics.tokens.issued.inc();
    let end = now.checked_add(SignedDuration::from_secs(spec.seconds)).unwrap_or(Timestamp::MAX);
    tree.insert("status".into(), json!({"token": token, "expirationTimestamp": seconds_text(end)}));
    let mut response = body::json(StatusCode::CREATED, &Value::Object(tree));
    notes.tell(&mut response);
    Ok(response)
}

fn default_spec(tree: &mut Tree) {
    let spec = tree.entry("spec").or_insert_with(|| json!({}));
    if !spec.is_object() {
        *spec = json!({});
    }
    if spec["expirationSeconds"].is_null() {
        spec["expirationSeconds"] = json!(HOUR);
    }
}

/// The account that the path names, if what the request says of it is right.
fn account_of(context: &Context, tree: &mut Tree) -> Result<Arc<Object>, Status> {
    let name = context.target.name.as_str();
    let metadata = metadata_of(tree);
    let given = text(metadata, "name");
    if !matches!(given, "") && given != name {
        let detail = "must match the service account name if specified";
        let cause = Cause::invalid("metadata.name", &json!(given), detail);
        return Err(Status::invalid(GROUP, KIND, name, vec![cause]));
    }
    let key = Key::new("", "serviceaccounts", &context.target.namespace, name);
    let about = About { group: "", resource: "serviceaccounts", name };
    let account = context.space.get(&key).ok_or_else(|| Status::not_found(about))?;
    let uid = text(metadata, "uid");
    if !uid.is_empty() && uid != account.head.uid {
        let why = format!(
            "the UID in the token request ({uid}) does not match the UID of the service account ({})",
            account.head.uid
        );
        return Err(Status::conflict(About { group: GROUP, resource: KIND, name }, &why));
    }
    Ok(account)
}

fn complete(tree: &mut Tree, account: &Object, own: &[String], now: Timestamp) {
    let metadata = metadata_of(tree);
    metadata.insert("name".into(), json!(account.head.name));
    metadata.insert("uid".into(), json!(account.head.uid));
    metadata.insert("creationTimestamp".into(), json!(seconds_text(now)));
    tree.remove("status");
    let Some(spec) = tree.get_mut("spec").and_then(Value::as_object_mut) else { return };
    // Shown also where there is none.
    spec.entry("boundObjectRef").or_insert(Value::Null);
    if spec.get("audiences").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        spec.insert("audiences".into(), json!(own));
    }
}

struct Spec {
    audiences: Vec<String>,
    seconds: i64,
}

impl Spec {
    fn check(tree: &Tree) -> Result<Spec, Status> {
        let null = Value::Null;
        let spec = tree.get("spec").unwrap_or(&null);
        let seconds = spec["expirationSeconds"].as_i64().unwrap_or(HOUR);
        let detail = match seconds {
            ..SHORTEST => "may not specify a duration less than 10 minutes",
            SHORTEST..=LONGEST => "",
            _ => "may not specify a duration larger than 2^32 seconds",
        };
        if !detail.is_empty() {
            let cause = Cause::invalid("spec.expirationSeconds", &json!(seconds), detail);
            return Err(Status::invalid(GROUP, KIND, "", vec![cause]));
        }
        let audiences = spec["audiences"].as_array().into_iter().flatten();
        let audiences: Vec<String> = audiences.filter_map(Value::as_str).map(str::to_owned).collect();
        let field = "spec.audiences";
        if audiences.len() > MOST_AUDIENCES {
            let cause = Cause::too_many(field, audiences.len(), MOST_AUDIENCES);
            return Err(Status::invalid(GROUP, KIND, "", vec![cause]));
        }
        if audiences.iter().map(String::len).sum::<usize>() > MAX_AUDIENCES_BYTES {
            let cause = Cause::too_long(field, MAX_AUDIENCES_BYTES);
            return Err(Status::invalid(GROUP, KIND, "", vec![cause]));
        }
        Ok(Spec { audiences, seconds })
    }

    fn warn_after(&self, bound: &Bound, own: &[String]) -> Option<i64> {
        let for_the_api = self.audiences.iter().all(|audience| own.contains(audience));
        (bound.pod.is_some() && self.seconds == OF_PODS && for_the_api).then_some(self.seconds)
    }
}

/// What the token is to be bound to, as it is now.
fn bound_to(context: &Context, account: &str, reference: Option<&Value>) -> Result<Bound, Status> {
    let Some(reference) = reference.filter(|reference| reference.is_object()) else {
        return Ok(Bound::default());
    };
    let part = |key: &str| reference[key].as_str().unwrap_or_default();
    let (name, kind) = (part("name"), part("kind"));
    let (group, version) = match part("apiVersion").split_once('/') {
        // What is not a version at all is taken for none.
        Some((_, version)) if version.contains('/') => ("", ""),
        Some(parts) => parts,
        None => ("", part("apiVersion")),
    };
    let (resource, namespace) = match (group, kind) {
        ("", "Pod") => ("pods", context.target.namespace.as_str()),
        ("", "Secret") => ("secrets", context.target.namespace.as_str()),
        ("", "Node") => ("nodes", ""),
        _ => {
            return Err(Status::bad_request(format!(
                "cannot bind token to object of type {group}/{version}, Kind={kind}"
            )));
        }
    };
    let about = About { group: "", resource, name };
    let object = context
        .space
        .get(&Key::new("", resource, namespace, name))
        .ok_or_else(|| Status::not_found(about))?;
    let named = Some(Named::of(&object));
    let bound = match kind {
        "Pod" => Bound { pod: named, node: node_of(context, account, &object)?, ..Bound::default() },
        "Secret" => Bound { secret: named, ..Bound::default() },
        _ => Bound { node: named, ..Bound::default() },
    };
    let uid = part("uid");
    if !uid.is_empty() && uid != object.head.uid {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        return Err(Status::conflict(About { group: "", resource: kind, name }, &why));
    }
    Ok(bound)
}

/// The node that a pod of this account runs on; with its name alone if it is not there.
fn node_of(context: &Context, account: &str, pod: &Object) -> Result<Option<Named>, Status> {
    let tree = pod.tree().map_err(Status::internal)?;
    let spec =
        |key: &str| tree.get("spec").and_then(|spec| spec[key].as_str()).unwrap_or_default().to_owned();
    if spec("serviceAccountName") != account {
        return Err(Status::bad_request(format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        )));
    }
    let name = spec("nodeName");
    if name.is_empty() {
        return Ok(None);
    }
    let node = context.space.get(&Key::new("", "nodes", "", &name));
    Ok(Some(node.map_or_else(|| Named { name, uid: String::new() }, |node| Named::of(&node))))
}
