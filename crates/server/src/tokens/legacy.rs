//! Tokens that secrets of the type `kubernetes.io/service-account-token` hold: they have no end and no audience, and
//! are good for as long as the secret has them.

use base64::{Engine, engine::general_purpose::STANDARD};
use machinery::{resource::Tree, status::Status};
use serde_json::{Value, json};
use store::Key;

use super::{
    Issuer,
    claims::{self, Claims},
};
use crate::{
    authentication::Claim,
    context::Context,
    replace,
    user::User,
    write::{metadata_of, text},
};

/// What upstream's tokens of this kind are issued by, whoever signs them.
pub const ISSUER: &str = "kubernetes/serviceaccount";
pub const CLAIM: &str = "kubernetes.io/serviceaccount/";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALIDATED: &str = "Token has been invalidated";
const USE_OTHERS: &str = "Use tokens from the TokenRequest API or manually created secret-based tokens instead of \
                          auto-generated secret-based tokens.";

/// A token for the account `name`, to be kept in a secret.
pub fn sign(issuer: &Issuer, namespace: &str, name: &str, uid: &str, secret: &str) -> Result<String, Status> {
    issuer.sign(&json!({
        "iss": ISSUER,
        "sub": claims::subject(namespace, name),
        format!("{CLAIM}service-account.name"): name,
        format!("{CLAIM}service-account.uid"): uid,
        format!("{CLAIM}secret.name"): secret,
        format!("{CLAIM}namespace"): namespace,
    }))
}

/// Who bears such a token, and what they should be told.
pub async fn validate(claim: &Claim<'_>, claims: &Claims) -> Result<(User, Vec<String>), String> {
    let own = |key: &str| text(&claims.of_secret, &format!("{CLAIM}{key}"));
    let (namespace, secret_name) = (own("namespace"), own("secret.name"));
    let (name, uid) = (own("service-account.name"), own("service-account.uid"));
    for (value, what) in [
        (claims.subject.as_str(), "sub"),
        (namespace, "namespace"),
        (secret_name, "secretName"),
        (name, "serviceAccountName"),
        (uid, "serviceAccountUID"),
    ] {
        if value.is_empty() {
            return Err(format!("{what} claim is missing"));
        }
    }
    if claims.subject != claims::subject(namespace, name) {
        return Err("sub claim is invalid".into());
    }
    let key = Key::new("", "secrets", namespace, secret_name);
    let secret = claim.space.get(&key).filter(|secret| !secret.head.deleting).ok_or(INVALIDATED)?;
    let tree = secret.tree().map_err(|_| INVALIDATED)?;
    let kept =
        tree.get("data").and_then(|data| data.get("token")).and_then(Value::as_str).unwrap_or_default();
    let kept = STANDARD.decode(kept).unwrap_or_default();
    if aws_lc_rs::constant_time::verify_slices_are_equal(&kept, claim.token.as_bytes()).is_err() {
        return Err("Token does not match server's copy".into());
    }
    let account = claim.space.get(&Key::new("", "serviceaccounts", namespace, name));
    let account = account.ok_or_else(|| format!("serviceaccounts {name:?} not found"))?;
    if account.head.deleting {
        return Err(format!("ServiceAccount {namespace}/{name} has been deleted"));
    }
    if account.head.uid != uid {
        return Err(format!("ServiceAccount UID ({}) does not match claim ({uid})", account.head.uid));
    }
    claim.hub.metrics.tokens.legacy.inc();
    note_use(claim, &key, &secret.head.uid, secret.head.label(LAST_USED)).await;
    if secret.head.label(INVALID_SINCE).is_some_and(|since| !since.is_empty()) {
        return Err(format!(
            "the token in secret {namespace}/{secret_name} for service account {namespace}/{name} has been marked \
             invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the \
             '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
        ));
    }
    let account = account.tree().unwrap_or_default();
    let warnings = if refers_to(&account, secret_name) { vec![USE_OTHERS.to_owned()] } else { Vec::new() };
    Ok((claims::user_of(namespace, name, uid), warnings))
}

/// An account's list names the secrets that were made for it.
fn refers_to(account: &Tree, secret: &str) -> bool {
    let secrets = account.get("secrets").and_then(Value::as_array).into_iter().flatten();
    secrets.into_iter().any(|it| it["name"] == secret)
}

/// Once a day the secret says that its token is in use; that it cannot be said is no reason to refuse.
async fn note_use(claim: &Claim<'_>, key: &Key, uid: &str, last: Option<&str>) {
    let day = |seconds: i64| {
        let time = jiff::Timestamp::from_second(seconds).unwrap_or_default().to_string();
        time.get(..10).unwrap_or_default().to_owned()
    };
    let now = claim.hub.now().as_second();
    let (today, tomorrow) = (day(now), day(now.saturating_add(24 * 3600)));
    if last.is_some_and(|last| last == today || last == tomorrow) {
        return;
    }
    let (namespace, name) = (key.item.namespace(), key.item.name());
    let Some(context) = Context::own(claim.hub, claim.space, &key.collection, namespace, name) else {
        return;
    };
    let noted = replace::edit(&context, key, uid, |tree| {
        metadata_of(tree).entry("labels").or_insert_with(|| json!({}))[LAST_USED] = json!(today);
    });
    if let Err(status) = noted.await {
        tracing::debug!(%status, "cannot note the use of a token");
    }
}
