//! What every namespace has for those who run in it: the service account `default` and the authority's certificate;
//! and the secrets that hold tokens of accounts, which are filled, and go with their account.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderValue, header};
use machinery::{Object, resource::Tree, status::Status};
use memchr::memmem;
use serde_json::{Value, json};
use store::{Collection, Key, WorkspaceId};

use super::{Controllers, namespaces_collection, queue::Work};
use crate::{
    admission::Notes,
    base,
    context::Context,
    delete::{self, Options},
    replace,
    space::Space,
    tokens::legacy,
    write::{self, Managers, metadata_of, text},
};

/// After so many objects others of this thread have their turn.
const AT_ONCE: usize = 16;
const SECRET_TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

fn accounts() -> Collection {
    Collection::new("", "serviceaccounts")
}

fn secrets() -> Collection {
    Collection::new("", "secrets")
}

/// What a change of an object asks for.
pub fn observe(
    controllers: &Controllers,
    workspace: &WorkspaceId,
    key: &Key,
    old: Option<&Object>,
    new: Option<&Object>,
) {
    // Most changes are of other kinds; they are told apart by these few.
    let (group, resource) = key.collection.parts();
    if !group.is_empty() {
        return;
    }
    let name = key.item.name();
    let outfit = |namespace: &str| controllers.queue.add(Work::Outfit(workspace.clone(), namespace.into()));
    match resource {
        "namespaces" if new.is_some_and(|it| !it.head.deleting) => outfit(name),
        "configmaps" if name == base::ROOT_CA => outfit(key.item.namespace()),
        "serviceaccounts" => {
            if name == base::ACCOUNT && new.is_none() {
                outfit(key.item.namespace());
            }
            // The first look finds accounts and secrets alike, and a change of the same account changes no secret.
            let is_another = |new: &Object| old.is_some_and(|old| old.head.uid != new.head.uid);
            if new.is_none_or(is_another) {
                let namespace = key.item.namespace().into();
                controllers.queue.add(Work::TokenSecrets(workspace.clone(), namespace));
            }
        }
        "secrets" if [old, new].into_iter().flatten().any(may_hold_token) => {
            controllers.queue.add(Work::TokenSecret(workspace.clone(), key.clone()));
        }
        _ => {}
    }
}

/// Without reading all of it: secrets may be large, and most hold something else.
fn may_hold_token(secret: &Object) -> bool {
    memmem::find(secret.body_slice(), SECRET_TYPE.as_bytes()).is_some()
}

/// Accounts of a namespace are gone: its secrets that hold tokens are looked at.
pub async fn queue_secrets(controllers: &Controllers, space: &Space, namespace: &str) {
    let listing = space.latest(&secrets());
    let all: Vec<_> = listing.iter(Some(namespace), None).collect();
    for some in all.chunks(AT_ONCE) {
        for (item, _) in some.iter().filter(|(_, object)| may_hold_token(object)) {
            let key = Key { collection: secrets(), item: (*item).clone() };
            controllers.queue.add(Work::TokenSecret(space.id().clone(), key));
        }
        tokio::task::yield_now().await;
    }
}

/// Sees to it that a namespace has what every namespace has.
pub async fn outfit(controllers: &Controllers, space: &Space, namespace: &str) -> Result<(), Status> {
    if !is_living(space, namespace) {
        return Ok(());
    }
    let account = Key::new("", "serviceaccounts", namespace, base::ACCOUNT);
    if space.get(&account).is_none() {
        create(controllers, space, &account, base::default_account(namespace)).await?;
    }
    let authority = &*controllers.hub.options.authority_pem;
    let root = Key::new("", "configmaps", namespace, base::ROOT_CA);
    let Some(object) = space.get(&root) else {
        return create(controllers, space, &root, base::root_ca(namespace, authority)).await;
    };
    let wanted = json!({"ca.crt": authority});
    let described = |tree: &Tree| {
        let annotations = tree.get("metadata").and_then(|metadata| metadata.get("annotations"));
        annotations.and_then(|it| it[base::DESCRIPTION].as_str()).is_some_and(|text| !text.is_empty())
    };
    let tree = object.tree().map_err(Status::internal)?;
    if tree.get("data") == Some(&wanted) && described(&tree) {
        return Ok(());
    }
    let Some(context) = controllers.context_for(space, &root) else { return Ok(()) };
    replace::edit(&context, &root, &object.head.uid, |tree| {
        tree.insert("data".into(), wanted.clone());
        let annotations = metadata_of(tree).entry("annotations").or_insert_with(|| json!({}));
        annotations[base::DESCRIPTION] = json!(base::ROOT_CA_DESCRIPTION);
    })
    .await
}

fn is_living(space: &Space, namespace: &str) -> bool {
    let key = Key { collection: namespaces_collection(), item: store::ItemKey::new("", namespace) };
    space.get(&key).is_some_and(|object| !object.head.deleting)
}

async fn create(controllers: &Controllers, space: &Space, key: &Key, tree: Value) -> Result<(), Status> {
    let Some(mut context) = controllers.context_for(space, key) else { return Ok(()) };
    context.headers.insert(header::USER_AGENT, HeaderValue::from_static("hanse"));
    let Value::Object(tree) = tree else { return Ok(()) };
    let created = write::create_tree(&context, tree, Managers::Track, false, &mut context.stopwatch()).await;
    match created {
        Ok(_) => Ok(()),
        // It is there, or its namespace is going; whatever changes that comes here again. Anything else, such as a
        // quota that is used up, may change without a word.
        Err(status) if status.code() == 409 || !is_living(space, key.item.namespace()) => Ok(()),
        Err(status) => Err(status),
    }
}

/// Fills a secret that is to hold a token, or removes it when there is no account for it.
pub async fn fill(controllers: &Controllers, space: &Space, key: &Key) -> Result<(), Status> {
    let Some(secret) = space.get(key) else { return release(controllers, space, key).await };
    let tree = secret.tree().map_err(Status::internal)?;
    if text(&tree, "type") != SECRET_TYPE {
        return Ok(());
    }
    let namespace = key.item.namespace();
    let note = |name: &str| {
        let annotations = tree.get("metadata").and_then(|metadata| metadata.get("annotations"));
        annotations.and_then(|it| it[name].as_str()).unwrap_or_default().to_owned()
    };
    let (name, uid) = (note(ACCOUNT_NAME), note(ACCOUNT_UID));
    if name.is_empty() {
        return Ok(());
    }
    let Some(context) = controllers.context_for(space, key) else { return Ok(()) };
    let account = space.get(&Key::new("", "serviceaccounts", namespace, &name));
    let Some(account) = account.filter(|account| uid.is_empty() || account.head.uid == uid) else {
        return remove(&context, key, &secret).await;
    };
    let missing = Missing::of(controllers, &tree);
    if !missing.any() {
        return Ok(());
    }
    let hub = &controllers.hub;
    let token = match missing.token {
        true => {
            let issuer = hub.issuers.signing(hub, space).await?;
            Some(legacy::sign(&issuer, namespace, &name, &account.head.uid, &secret.head.name)?)
        }
        false => None,
    };
    let authority = STANDARD.encode(hub.options.authority_pem.as_bytes());
    replace::edit(&context, key, &secret.head.uid, |tree| {
        let missing = Missing::of(controllers, tree);
        let data = tree.entry("data").or_insert_with(|| json!({}));
        if missing.authority {
            data["ca.crt"] = json!(authority);
        }
        if missing.namespace {
            data["namespace"] = json!(STANDARD.encode(namespace));
        }
        if let Some(token) = token.as_ref().filter(|_| missing.token) {
            data["token"] = json!(STANDARD.encode(token));
        }
        let annotations = metadata_of(tree).entry("annotations").or_insert_with(|| json!({}));
        annotations[ACCOUNT_NAME] = json!(name);
        annotations[ACCOUNT_UID] = json!(account.head.uid);
    })
    .await
}

/// What a secret for a token lacks.
struct Missing {
    authority: bool,
    namespace: bool,
    token: bool,
}

impl Missing {
    fn of(controllers: &Controllers, secret: &Tree) -> Missing {
        let data = |key: &str| {
            let value = secret.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
            STANDARD.decode(value.unwrap_or_default()).unwrap_or_default()
        };
        let authority = controllers.hub.options.authority_pem.as_bytes();
        Missing {
            authority: !authority.is_empty() && data("ca.crt") != authority,
            namespace: data("namespace").is_empty(),
            token: data("token").is_empty(),
        }
    }

    fn any(&self) -> bool {
        self.authority || self.namespace || self.token
    }
}

async fn remove(context: &Context, key: &Key, secret: &Object) -> Result<(), Status> {
    let options = Options { uid: Some(secret.head.uid.to_string()), ..Options::default() };
    match delete::delete_one(context, key, &options, &mut Notes::default()).await {
        Ok(_) => Ok(()),
        Err(status) if matches!(status.code(), 404 | 409) => Ok(()),
        Err(status) => Err(status),
    }
}

/// A secret is gone: accounts that name it among theirs do so no more.
async fn release(controllers: &Controllers, space: &Space, secret: &Key) -> Result<(), Status> {
    let (namespace, name) = (secret.item.namespace(), secret.item.name());
    for (item, account) in space.latest(&accounts()).iter(Some(namespace), None) {
        if memmem::find(account.body_slice(), name.as_bytes()).is_none() {
            continue;
        }
        let tree = account.tree().map_err(Status::internal)?;
        let names = |it: &Value| it["name"] == name;
        if !tree.get("secrets").and_then(Value::as_array).is_some_and(|secrets| secrets.iter().any(names)) {
            continue;
        }
        let key = Key { collection: accounts(), item: item.clone() };
        let Some(context) = controllers.context_for(space, &key) else { continue };
        replace::edit(&context, &key, &account.head.uid, |tree| {
            if let Some(secrets) = tree.get_mut("secrets").and_then(Value::as_array_mut) {
                secrets.retain(|it| !names(it));
            }
        })
        .await?;
    }
    Ok(())
}
