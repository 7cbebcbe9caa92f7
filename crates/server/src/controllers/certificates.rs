//! Approved requests for certificates are signed, and old requests go.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use machinery::{
    Object,
    certificates::{Signer, usages_of},
    resource::Tree,
    status::Status,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use store::{Collection, Key, WorkspaceId};

use super::{Controllers, queue::Work};
use crate::{
    admission::{
        Notes,
        certificates::{GROUP, RESOURCE, request_of, spec_text},
    },
    delete::{self, Options},
    hub::{Hub, root_id},
    space::Space,
    user::MASTERS,
    write,
};

/// As upstream: looked at every hour; decided requests stay an hour, undecided ones a day.
const CLEAN_EVERY: Duration = Duration::from_secs(3600);
const KEEP_DECIDED: SignedDuration = SignedDuration::from_hours(1);
const KEEP_PENDING: SignedDuration = SignedDuration::from_hours(24);

pub fn collection() -> Collection {
    Collection::new(GROUP, RESOURCE)
}

pub fn observe(controllers: &Controllers, workspace: &WorkspaceId, key: &Key, new: Option<&Object>) {
    if new.is_some() && key.collection == collection() {
        controllers.queue.add(Work::SigningRequest(workspace.clone(), key.item.name().into()));
    }
}

/// What is to be said of a request.
enum Verdict {
    Signed(String),
    Refused(String),
}

/// Signs a request that is approved, or says why not.
pub async fn settle(controllers: &Controllers, space: &Space, name: &str) -> Result<(), Status> {
    let key = Key { collection: collection(), item: store::ItemKey::new("", name) };
    let Some(object) = space.get(&key) else { return Ok(()) };
    let mut tree = object.tree().map_err(Status::internal)?;
    if !is_due(&tree) {
        return Ok(());
    }
    let signer_name = spec_text(&tree, "signerName");
    let Some(signer) = Signer::named(signer_name) else { return Ok(()) };
    let hub = &controllers.hub;
    let verdict = decide(hub, space, signer, &tree).map_err(|error| {
        hub.metrics.login.signing(label(signer), "error");
        Status::internal(format!("cannot sign {name:?}: {error}"))
    })?;
    let outcome = match &verdict {
        Verdict::Signed(_) => "signed",
        Verdict::Refused(_) => "refused",
    };
    record(&mut tree, verdict, &hub.now_text());
    let Some(mut context) = controllers.context_for(space, &key) else { return Ok(()) };
    context.target.subresource = "status".to_owned();
    context.manage_as("kube-controller-manager");
    write::update(&context, Value::Object(tree).to_string().into()).await?;
    hub.metrics.login.signing(label(signer), outcome);
    Ok(())
}

fn label(signer: Signer) -> &'static str {
    match signer {
        Signer::ApiClient => "kube-apiserver-client",
        Signer::KubeletClient => "kube-apiserver-client-kubelet",
        Signer::KubeletServing => "kubelet-serving",
        Signer::LegacyUnknown => "legacy-unknown",
    }
}

fn conditions(tree: &Tree) -> impl Iterator<Item = &Value> {
    let list = tree.get("status").and_then(|status| status.get("conditions"));
    list.and_then(Value::as_array).into_iter().flatten()
}

fn certificate(tree: &Tree) -> &str {
    let text = tree.get("status").and_then(|status| status.get("certificate")).and_then(Value::as_str);
    text.unwrap_or_default()
}

/// Approved, not denied, not failed, and not signed yet.
fn is_due(tree: &Tree) -> bool {
    let has = |kind: &str| conditions(tree).any(|it| it["type"] == kind);
    has("Approved") && !has("Denied") && !has("Failed") && certificate(tree).is_empty()
}

fn decide(hub: &Arc<Hub>, space: &Space, signer: Signer, tree: &Tree) -> Result<Verdict, String> {
    let request = request_of(tree)?;
    let usages = usages_of(tree);
    if let Err(why) = signer.check(&request, &usages) {
        return Ok(Verdict::Refused(why));
    }
    // Admission refuses it where upstream does; no signer may make a platform admin of anybody.
    if request.subject.organization.iter().any(|group| group == MASTERS) {
        return Ok(Verdict::Refused(format!("the group {MASTERS} is never signed for")));
    }
    let wanted = tree.get("spec").and_then(|spec| spec.get("expirationSeconds")).and_then(Value::as_i64);
    // What is approved in a workspace is good there; root is for the whole installation.
    let workspace = (*space.id() != root_id()).then(|| space.id().0.as_str());
    let login = &hub.login;
    let authority = match signer {
        Signer::ApiClient | Signer::KubeletClient => &login.authority,
        // Those serve: were they of the authority that clients know this server by, they could take its place.
        Signer::KubeletServing | Signer::LegacyUnknown => &login.kubelet_authority,
    };
    let longest = login.options.signing_duration;
    authority.issue(&request, &usages, wanted, longest, workspace).map(Verdict::Signed)
}

fn record(tree: &mut Tree, verdict: Verdict, now: &str) {
    let status = tree.entry("status").or_insert_with(|| json!({}));
    match verdict {
        Verdict::Signed(pem) => status["certificate"] = json!(STANDARD.encode(pem)),
        Verdict::Refused(why) => {
            let condition = json!({
                "type": "Failed", "status": "True", "reason": "SignerValidationFailure",
                "message": why, "lastUpdateTime": now,
            });
            match status.get_mut("conditions").and_then(Value::as_array_mut) {
                Some(conditions) => conditions.push(condition),
                None => status["conditions"] = json!([condition]),
            }
        }
    }
}

/// Has old requests looked for, for ever. What is done about them may have to wait for somebody in their workspace, so
/// each workspace has work of its own.
pub async fn clean(controllers: Arc<Controllers>) {
    let hub = &controllers.hub;
    loop {
        for workspace in hub.store.workspaces() {
            let listing = hub.store.list(&workspace, &collection(), None);
            if listing.is_ok_and(|listing| listing.iter(None, None).next().is_some()) {
                controllers.queue.add(Work::OldSigningRequests(workspace));
            }
        }
        hub.env.clock.sleep(CLEAN_EVERY).await;
    }
}

/// Deletes the requests of a workspace that nobody needs any more. What cannot be deleted is tried again when the next
/// look is due.
pub async fn delete_old(controllers: &Controllers, space: &Space) {
    for (item, object) in space.latest(&collection()).iter(None, None) {
        tokio::task::yield_now().await;
        if !object.tree().is_ok_and(|tree| is_old(&tree, controllers.hub.now())) {
            continue;
        }
        let key = Key { collection: collection(), item: item.clone() };
        let Some(context) = controllers.context_for(space, &key) else { return };
        let options = Options { uid: Some(object.head.uid.to_string()), ..Options::default() };
        if let Err(status) = delete::delete_one(&context, &key, &options, &mut Notes::default()).await {
            tracing::debug!(name = %object.head.name, %status, "cannot delete an old certificate request");
        }
    }
}

fn is_old(tree: &Tree, now: Timestamp) -> bool {
    let older = |time: Option<&Value>, than: SignedDuration| {
        let time = time.and_then(Value::as_str).and_then(|text| text.parse::<Timestamp>().ok());
        time.is_some_and(|time| now.duration_since(time) > than)
    };
    let issued = !certificate(tree).is_empty();
    let past = |kind: &str, than| {
        conditions(tree).any(|it| it["type"] == kind && older(it.get("lastUpdateTime"), than))
    };
    let created = tree.get("metadata").and_then(|metadata| metadata.get("creationTimestamp"));
    let approved = conditions(tree).any(|it| it["type"] == "Approved");
    past("Denied", KEEP_DECIDED)
        || past("Failed", KEEP_DECIDED)
        || past("Approved", if issued { KEEP_DECIDED } else { KEEP_PENDING })
        || (conditions(tree).next().is_none() && older(created, KEEP_PENDING))
        || (approved && issued && is_expired(certificate(tree), now))
}

fn is_expired(encoded: &str, now: Timestamp) -> bool {
    let pem = STANDARD.decode(encoded).unwrap_or_default();
    let Ok(der) = CertificateDer::from_pem_slice(&pem) else { return false };
    let parsed = x509_parser::parse_x509_certificate(&der);
    parsed.is_ok_and(|(_, certificate)| now.as_second() > certificate.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_request(created: &str, conditions: &[(&str, &str)], certificate: &str) -> Tree {
        let conditions: Vec<Value> =
            conditions.iter().map(|(kind, at)| json!({"type": kind, "lastUpdateTime": at})).collect();
        let tree = json!({
            "metadata": {"creationTimestamp": created},
            "status": {"conditions": conditions, "certificate": certificate},
        });
        tree.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn requests_go_when_their_time_has_come() {
        let now: Timestamp = "2030-01-02T12:00:00Z".parse().unwrap();
        let (minutes, hours, days) = ("2030-01-02T11:30:00Z", "2030-01-02T10:00:00Z", "2030-01-01T10:00:00Z");
        for (created, conditions, certificate, old) in [
            (hours, &[][..], "", false),
            (days, &[], "", true),
            (days, &[("Approved", minutes)], "", false),
            (days, &[("Approved", hours)], "", false),
            (days, &[("Approved", days)], "", true),
            (days, &[("Approved", minutes)], "eA==", false),
            (days, &[("Approved", hours)], "eA==", true),
            (days, &[("Denied", minutes)], "", false),
            (days, &[("Denied", hours)], "", true),
            (days, &[("Approved", minutes), ("Failed", hours)], "", true),
            (days, &[("Other", days)], "", false),
        ] {
            let request = mk_request(created, conditions, certificate);
            assert_eq!(is_old(&request, now), old, "{request:?}");
        }
    }

    #[test]
    fn only_what_is_approved_is_signed_and_only_once() {
        let at = "2030-01-01T10:00:00Z";
        for (conditions, certificate, due) in [
            (&[][..], "", false),
            (&[("Approved", at)], "", true),
            (&[("Approved", at)], "eA==", false),
            (&[("Denied", at)], "", false),
            (&[("Approved", at), ("Denied", at)], "", false),
            (&[("Approved", at), ("Failed", at)], "", false),
        ] {
            assert_eq!(is_due(&mk_request(at, conditions, certificate)), due, "{conditions:?}");
        }
    }
}
