//! Pods run as a service account: it must exist, and its token is mounted into every container that does not mount
//! something else there.

use std::{sync::Arc, time::Duration};

use machinery::{
    Object, names,
    resource::Tree,
    status::{About, Status},
};
use serde_json::{Value, json};
use store::Key;

use super::{Admission, Operation};
use crate::{base, context::Context, tokens::request::OF_PODS, write::text};

const MIRROR: &str = "kubernetes.io/config.mirror";
const ENFORCE_MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";
const VOLUME: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// A new namespace gets its account a moment later; so long a pod waits for it.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(100);

/// Completes a new pod, and checks it at once: upstream says what is wrong here before what is wrong with the pod.
pub async fn mutate(admission: &Admission<'_>, pod: &mut Tree) -> Result<(), Status> {
    if !admission.is("", "pods") || admission.operation != Operation::Create {
        return Ok(());
    }
    if !is_mirror(pod) {
        complete(admission, pod).await?;
    }
    validate(admission, pod).await
}

async fn complete(admission: &Admission<'_>, pod: &mut Tree) -> Result<(), Status> {
    let spec = spec_of(pod);
    if text(spec, "serviceAccountName").is_empty() {
        spec.insert("serviceAccountName".into(), json!(base::ACCOUNT));
        // Its older name is kept equal.
        spec.insert("serviceAccount".into(), json!(base::ACCOUNT));
    }
    let account = account_of(admission, text(spec, "serviceAccountName")).await?;
    let automount = |tree: &Tree| tree.get("automountServiceAccountToken").and_then(Value::as_bool);
    if automount(spec).or_else(|| automount(&account)).unwrap_or(true) {
        mount_token(admission.context, spec);
    }
    let pulls =
        |tree: &Tree| tree.get("imagePullSecrets").and_then(Value::as_array).cloned().unwrap_or_default();
    if pulls(spec).is_empty() && !pulls(&account).is_empty() {
        let named: Vec<Value> = pulls(&account).iter().map(|it| json!({"name": it["name"]})).collect();
        spec.insert("imagePullSecrets".into(), json!(named));
    }
    Ok(())
}

/// Checks a new pod, and containers that are added to one.
pub async fn validate(admission: &Admission<'_>, pod: &Tree) -> Result<(), Status> {
    let adds_containers = admission.is_below("", "pods", "ephemeralcontainers");
    let is_new = admission.is("", "pods") && admission.operation == Operation::Create;
    let adds_containers = adds_containers && admission.operation == Operation::Update;
    if !is_new && !adds_containers {
        return Ok(());
    }
    let empty = Tree::new();
    let spec = pod.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    if is_new && is_mirror(pod) {
        return match mirror_refusal(spec) {
            Some(why) => Err(refuse(admission, why)),
            None => Ok(()),
        };
    }
    let name = text(spec, "serviceAccountName");
    if name.is_empty() {
        let namespace = &admission.context.target.namespace;
        return Err(refuse(
            admission,
            &format!("no service account specified for pod {namespace}/{}", admission.name),
        ));
    }
    let account = account_of(admission, name).await?;
    if !enforces_mountable(&account) {
        return Ok(());
    }
    match unmountable(spec, &account, adds_containers) {
        Some(why) => Err(refuse(admission, &why)),
        None => Ok(()),
    }
}

fn refuse(admission: &Admission<'_>, why: &str) -> Status {
    Status::forbidden(admission.context.about(admission.name), why)
}

fn spec_of(pod: &mut Tree) -> &mut Tree {
    let spec = pod.entry("spec").or_insert_with(|| json!({}));
    if !spec.is_object() {
        *spec = json!({});
    }
    match spec {
        Value::Object(spec) => spec,
        _ => unreachable!("just made an object"),
    }
}

/// A pod that a node runs by itself, and only shows here.
fn is_mirror(pod: &Tree) -> bool {
    let annotations = pod.get("metadata").and_then(|metadata| metadata.get("annotations"));
    annotations.is_some_and(|annotations| annotations.get(MIRROR).is_some())
}

async fn account_of(admission: &Admission<'_>, name: &str) -> Result<Arc<Tree>, Status> {
    let context = admission.context;
    let namespace = &context.target.namespace;
    let key = Key::new("", "serviceaccounts", namespace, name);
    let tries = if name == base::ACCOUNT { TRIES } else { 1 };
    for attempt in 0..tries {
        if attempt > 0 {
            context.hub.env.clock.sleep(PAUSE).await;
        }
        if let Some(account) = context.space.get(&key) {
            let read = |account: &Object| account.tree().ok();
            let account = context.hub.accounts.of(context.space.id(), &key.item, &account, read);
            return account.ok_or_else(|| Status::internal("a service account cannot be read"));
        }
    }
    let missing = Status::not_found(About { group: "", resource: "serviceaccount", name });
    let why = format!("error looking up service account {namespace}/{name}: {}", missing.message());
    Err(refuse(admission, &why))
}

fn list<'a>(tree: &'a Tree, key: &str) -> impl Iterator<Item = &'a Value> {
    tree.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn mount_token(context: &Context, spec: &mut Tree) {
    let prepared =
        list(spec, "volumes").filter_map(|it| it["name"].as_str()).find(|it| it.starts_with(VOLUME));
    let volume = prepared.map_or_else(
        || {
            let mut random = [0; 8];
            context.hub.env.random.fill(&mut random);
            names::generate_name(VOLUME, random)
        },
        str::to_owned,
    );
    let had = prepared.is_some();
    let mount = json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH});
    let mut mounted = false;
    for key in ["initContainers", "containers"] {
        for container in spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            if list(container, "volumeMounts").any(|it| it["mountPath"] == MOUNT_PATH) {
                continue;
            }
            push(container, "volumeMounts", mount.clone());
            mounted = true;
        }
    }
    if mounted && !had {
        push(spec, "volumes", json!({"name": volume, "projected": token_volume()}));
    }
}

fn push(tree: &mut Tree, key: &str, item: Value) {
    let list = tree.entry(key).or_insert_with(|| json!([]));
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}

fn token_volume() -> Value {
    let namespace = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
    json!({
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": OF_PODS, "path": "token"}},
            {"configMap": {"name": base::ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
        ],
        "defaultMode": 0o644,
    })
}

/// What a pod that only mirrors another may not have.
fn mirror_refusal(spec: &Tree) -> Option<&'static str> {
    if !text(spec, "serviceAccountName").is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    if names_secrets(spec) {
        return Some("a mirror pod may not reference secrets");
    }
    let takes_token = list(spec, "volumes").any(|volume| {
        let sources = volume.pointer("/projected/sources").and_then(Value::as_array);
        sources.into_iter().flatten().any(|source| source.get("serviceAccountToken").is_some())
    });
    takes_token.then_some("a mirror pod may not use ServiceAccountToken volume projections")
}

/// Where a volume names a secret.
const SECRETS_OF_VOLUMES: [&str; 10] = [
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/flexVolume/secretRef/name",
    "/rbd/secretRef/name",
    "/secret/secretName",
    "/scaleIO/secretRef/name",
    "/iscsi/secretRef/name",
    "/storageos/secretRef/name",
    "/csi/nodePublishSecretRef/name",
];

fn names_secrets(spec: &Tree) -> bool {
    let named = |value: &Value, path: &str| {
        value.pointer(path).and_then(Value::as_str).is_some_and(|name| !name.is_empty())
    };
    let by_volume = |volume: &Value| {
        let sources = volume.pointer("/projected/sources").and_then(Value::as_array);
        SECRETS_OF_VOLUMES.iter().any(|path| named(volume, path))
            || sources.into_iter().flatten().any(|source| named(source, "/secret/name"))
    };
    let by_container = |container: &Value| container_secrets(container).any(|(_, name)| !name.is_empty());
    list(spec, "imagePullSecrets").any(|it| named(it, "/name"))
        || list(spec, "volumes").any(by_volume)
        || ["initContainers", "containers", "ephemeralContainers"]
            .iter()
            .any(|kind| list(spec, kind).any(by_container))
}

fn name_of(value: &Value) -> &str {
    value["name"].as_str().unwrap_or_default()
}

/// The secrets that a container's environment is from: the variable, if it is one, and the name.
fn container_secrets(container: &Value) -> impl Iterator<Item = (Option<&str>, &str)> {
    let items = |key: &str| container[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let by_variable = items("env").iter().filter_map(|variable| {
        Some((Some(name_of(variable)), name_of(variable.pointer("/valueFrom/secretKeyRef")?)))
    });
    let whole = items("envFrom").iter().filter_map(|source| Some((None, name_of(source.get("secretRef")?))));
    by_variable.chain(whole)
}

fn enforces_mountable(account: &Tree) -> bool {
    let value = account
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations"))
        .and_then(|annotations| annotations.get(ENFORCE_MOUNTABLE))
        .and_then(Value::as_str);
    // What Go takes for true.
    matches!(value, Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// What the pod uses that its account does not list, in words.
fn unmountable(spec: &Tree, account: &Tree, only_ephemeral: bool) -> Option<String> {
    let account_name = account.get("metadata").and_then(|it| it["name"].as_str()).unwrap_or_default();
    let lists = |key: &str, name: &str| list(account, key).any(|it| it["name"] == name);
    let because =
        format!("is not allowed because service account {account_name} does not reference that secret");
    if !only_ephemeral {
        for volume in list(spec, "volumes") {
            let name = volume.get("secret").map(|secret| secret["secretName"].as_str().unwrap_or_default());
            if let Some(name) = name.filter(|name| !lists("secrets", name)) {
                return Some(format!("volume with secret.secretName=\"{name}\" {because}"));
            }
        }
    }
    let kinds: &[(&str, &str)] = match only_ephemeral {
        true => &[("ephemeralContainers", "ephemeral container")],
        false => &[("initContainers", "init container"), ("containers", "container")],
    };
    for (key, what) in kinds {
        for container in list(spec, key) {
            let used = container_secrets(container).find(|(_, name)| !lists("secrets", name));
            let Some((variable, name)) = used else { continue };
            let by = variable.map_or("envFrom".to_owned(), |variable| format!("envVar {variable}"));
            let container = name_of(container);
            return Some(format!(
                "{what} {container} with {by} referencing secret.secretName=\"{name}\" {because}"
            ));
        }
    }
    let pulls = list(spec, "imagePullSecrets").filter(|_| !only_ephemeral);
    for (at, pull) in pulls.enumerate() {
        let name = name_of(pull);
        if !lists("imagePullSecrets", name) {
            return Some(format!(
                "imagePullSecrets[{at}].name=\"{name}\" is not allowed because service account {account_name} does \
                 not reference that imagePullSecret"
            ));
        }
    }
    None
}
