//! The shared base: objects that every workspace has without storing them.
//!
//! Default namespaces with their service accounts, roles, bindings, priority classes and the Service `kubernetes` are
//! one read-only table under all workspaces. A workspace stores only
//! what it changes: an edited base object is stored whole, a deleted one leaves a *whiteout* at its key.

pub mod kubernetes;

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{Arc, LazyLock},
};

use machinery::{
    Draft, EventType, Object, Revision,
    apply::{self, BuiltinVersion, Request},
    builtin,
    resource::{Resource, Row, Tree, group_version},
    validation,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use store::{Collection, ItemKey};

use crate::fairness::defaults;

const RBAC: &str = "rbac.authorization.k8s.io";
const RBAC_VERSION: &str = "rbac.authorization.k8s.io/v1";
const WHITEOUT_START: &[u8] = br#"{"kind":"Whiteout","#;

/// The namespaces that exist from the start.
pub const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

type Table = HashMap<Collection, BTreeMap<ItemKey, Tree>>;

static BASE: LazyLock<Table> = LazyLock::new(build);

/// The service account that every namespace has.
pub const ACCOUNT: &str = "default";
/// The config map with the authority's certificate that every namespace has.
pub const ROOT_CA: &str = "kube-root-ca.crt";
pub const DESCRIPTION: &str = "kubernetes.io/description";
pub const ROOT_CA_DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the \
     internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes \
     clusters.";

pub fn default_account(namespace: &str) -> Value {
    json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": ACCOUNT, "namespace": namespace}})
}

pub fn root_ca(namespace: &str, authority_pem: &str) -> Value {
    let annotations = json!({DESCRIPTION: ROOT_CA_DESCRIPTION});
    json!({
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": ROOT_CA, "namespace": namespace, "annotations": annotations},
        "data": {"ca.crt": authority_pem},
    })
}

/// The collections that the base has something in.
pub fn collections() -> impl Iterator<Item = &'static Collection> {
    BASE.keys()
}

/// What the base has in `collection`.
pub fn of(collection: &Collection) -> Option<&'static BTreeMap<ItemKey, Tree>> {
    BASE.get(collection)
}

/// What makes the base of one workspace on one peer different from all others.
#[derive(Clone, Default)]
pub struct Place {
    /// What the UIDs of its objects are derived from.
    pub identity: String,
    /// RFC 3339; when its objects were created.
    pub created: String,
    /// Where the peer is reached.
    pub endpoint: Option<SocketAddr>,
    /// The authority of the installation.
    pub authority_pem: Arc<str>,
}

/// A base object as one workspace sees it: with a UID and a creation time of its own.
pub fn seal(template: &Tree, place: &Place, item: &ItemKey) -> Option<Arc<Object>> {
    let Place { identity, created, endpoint, authority_pem } = place;
    let mut tree = template.clone();
    kubernetes::complete(&mut tree, created, *endpoint);
    let kind = tree.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = tree.get_mut("metadata")?.as_object_mut()?;
    metadata.insert("uid".into(), json!(derive_uid(&[identity, &kind, &item.0])));
    metadata.insert("creationTimestamp".into(), json!(created));
    for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
        entry["time"] = json!(created);
    }
    if let Some(pem) = tree.get_mut("data").and_then(|data| data.get_mut("ca.crt")) {
        *pem = json!(**authority_pem);
    }
    let conditions = tree.get_mut("status").and_then(|status| status.get_mut("conditions"));
    for condition in conditions.and_then(Value::as_array_mut).into_iter().flatten() {
        condition["lastTransitionTime"] = json!(created);
    }
    let draft = Draft::encode(&tree).ok()?;
    Some(Arc::new(draft.seal(Revision::BASE, EventType::Added)))
}

/// A UID that follows from `parts` (of the form that RFC 9562 keeps for such ones, version 8).
fn derive_uid(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let digest = hash.finalize();
    let mut bytes = [0u8; 16];
    bytes.copy_from_slice(&digest[..16]);
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// What is stored at the key of a base object that was deleted. It says that it is being deleted, as its object was, so that
/// it has its place also where a workspace may hold no more: there are no more of them than objects in the base. Nobody is
/// shown when that was.
pub fn whiteout(object: &Object) -> Option<Draft> {
    let tree = json!({
        "kind": "Whiteout",
        "apiVersion": "hanse.io/v1alpha1",
        "metadata": {
            "name": object.head.name, "namespace": object.head.namespace, "uid": object.head.uid,
            "deletionTimestamp": "1970-01-01T00:00:00Z",
        },
    });
    Draft::encode(tree.as_object()?).ok()
}

pub fn is_whiteout(object: &Object) -> bool {
    object.body_slice().starts_with(WHITEOUT_START)
}

fn build() -> Table {
    let mut table = Table::new();
    let mut add = |group: &str, resource: &str, namespace: &str, name: &str, tree: Value| {
        if let Value::Object(mut tree) = tree {
            manage(&mut tree);
            let items = table.entry(Collection::new(group, resource)).or_default();
            items.insert(ItemKey::new(namespace, name), tree);
        }
    };
    for name in NAMESPACES {
        let mut tree = json!({
            "kind": "Namespace", "apiVersion": "v1",
            "metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]},
        });
        if let Some(tree) = tree.as_object_mut() {
            validation::default_namespace(tree);
        }
        add("", "namespaces", "", name, tree);
        add("", "serviceaccounts", name, ACCOUNT, default_account(name));
        add("", "configmaps", name, ROOT_CA, root_ca(name, ""));
    }
    for role in cluster_roles() {
        let name = role["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        add(RBAC, "clusterroles", "", &name, role);
    }
    for (role, groups) in CLUSTER_BINDINGS {
        let subjects: Vec<Value> =
            groups.iter().map(|group| json!({"kind": "Group", "apiGroup": RBAC, "name": group})).collect();
        let tree = json!({
            "kind": "ClusterRoleBinding", "apiVersion": RBAC_VERSION,
            "metadata": bootstrap_metadata(role),
            "subjects": subjects,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        });
        add(RBAC, "clusterrolebindings", "", role, tree);
    }
    for (name, value, description) in PRIORITIES {
        let tree = json!({
            "kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1",
            "metadata": {"name": name, "generation": 1},
            "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority",
        });
        add("scheduling.k8s.io", "priorityclasses", "", name, tree);
    }
    for tree in defaults::levels() {
        let name = name_of(&tree);
        add(defaults::GROUP, "prioritylevelconfigurations", "", &name, Value::Object(tree));
    }
    for tree in defaults::schemas() {
        let name = name_of(&tree);
        add(defaults::GROUP, "flowschemas", "", &name, Value::Object(tree));
    }
    for (group, resource, namespace, name, tree) in kubernetes::objects() {
        add(group, resource, namespace, &name, tree);
    }
    table
}

fn name_of(tree: &Tree) -> String {
    let name = tree.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}

/// Whoever changes an object of the base takes its fields from Hanse, as from anybody else.
fn manage(tree: &mut Tree) {
    let text = |key: &str| tree.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let same = |row: &&Row| row.kind == kind && group_version(row.group, row.version) == api_version;
    let Some(resource) = builtin::rows().find(same).map(|row| Resource::new(row.clone())) else { return };
    let ty = resource.message().and_then(apply::Schema::of_message);
    let Some(ty) = ty else { return };
    let versions = BuiltinVersion { api_version: &api_version, ty };
    let request = Request {
        versions: &versions,
        api_version: &api_version,
        kind: &kind,
        empty: resource.empty(),
        manager: "hanse",
        subresource: "",
        filters: &[],
        now: "",
    };
    let mut tracked = tree.clone();
    // What the server says by itself is nobody's.
    tracked.remove("status");
    let spec: &[&str] = match kind.as_str() {
        "Namespace" => &["finalizers"],
        "Service" => &["clusterIPs", "ipFamilies"],
        _ => &[],
    };
    if let Some(Value::Object(tracked)) = tracked.get_mut("spec") {
        tracked.retain(|key, _| !spec.contains(&key.as_str()));
    }
    apply::track_update(&request, None, &mut tracked, false);
    let managed = tracked.get("metadata").and_then(|metadata| metadata.get("managedFields")).cloned();
    if let (Some(managed), Some(metadata)) = (managed, tree.get_mut("metadata")) {
        metadata["managedFields"] = managed;
    }
}

/// Priority classes that nobody may define otherwise.
const PRIORITIES: [(&str, i64, &str); 2] = [
    ("system-cluster-critical", 2_000_000_000, "For pods that must run in the cluster, on whichever node."),
    ("system-node-critical", 2_000_001_000, "For pods that must run on the node they are on."),
];

fn bootstrap_metadata(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

const CLUSTER_BINDINGS: &[(&str, &[&str])] = &[
    ("cluster-admin", &["system:masters"]),
    ("system:basic-user", &["system:authenticated"]),
    ("system:discovery", &["system:authenticated"]),
    ("system:monitoring", &["system:monitoring"]),
    ("system:public-info-viewer", &["system:authenticated", "system:unauthenticated"]),
    ("system:service-account-issuer-discovery", &["system:serviceaccounts"]),
];

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

fn urls(urls: &[&str]) -> Value {
    json!({"nonResourceURLs": urls, "verbs": ["get"]})
}

const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Groups (`core` is the one without a name), resources and verbs.
type Grant = (&'static str, &'static str, &'static [&'static str]);

/// What `system:aggregate-to-view` grants: groups, resources, verbs.
const VIEW: &[Grant] = &[
    (
        "core",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods \
         replicationcontrollers replicationcontrollers/scale serviceaccounts services \
         services/status",
        READ,
    ),
    (
        "core",
        "bindings limitranges namespaces/status pods/log pods/status \
         replicationcontrollers/status resourcequotas resourcequotas/status",
        READ,
    ),
    ("core", "namespaces", READ),
    ("core events.k8s.io", "events", READ),
    ("discovery.k8s.io", "endpointslices", READ),
    (
        "apps",
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale \
         deployments/status replicasets replicasets/scale replicasets/status statefulsets \
         statefulsets/scale statefulsets/status",
        READ,
    ),
    ("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", READ),
    ("batch", "cronjobs cronjobs/status jobs jobs/status", READ),
    (
        "extensions",
        "daemonsets daemonsets/status deployments deployments/scale deployments/status \
         ingresses ingresses/status networkpolicies replicasets replicasets/scale \
         replicasets/status replicationcontrollers/scale",
        READ,
    ),
    ("policy", "poddisruptionbudgets poddisruptionbudgets/status", READ),
    ("networking.k8s.io", "ingresses ingresses/status networkpolicies", READ),
    ("resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates", READ),
];

/// What `system:aggregate-to-edit` grants: groups, resources, verbs.
const EDIT: &[Grant] = &[
    ("core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy", READ),
    ("core", "serviceaccounts", &["impersonate"]),
    ("core", "pods pods/attach pods/exec pods/portforward pods/proxy", WRITE),
    ("core", "pods/eviction", &["create"]),
    (
        "core",
        "configmaps persistentvolumeclaims replicationcontrollers \
         replicationcontrollers/scale secrets serviceaccounts services services/proxy",
        WRITE,
    ),
    ("core", "serviceaccounts/token", &["create"]),
    ("core events.k8s.io", "events", WRITE),
    (
        "apps",
        "daemonsets deployments deployments/rollback deployments/scale replicasets \
         replicasets/scale statefulsets statefulsets/scale",
        WRITE,
    ),
    ("autoscaling", "horizontalpodautoscalers", WRITE),
    ("batch", "cronjobs jobs", WRITE),
    (
        "extensions",
        "daemonsets deployments deployments/rollback deployments/scale ingresses \
         networkpolicies replicasets replicasets/scale replicationcontrollers/scale",
        WRITE,
    ),
    ("policy", "poddisruptionbudgets", WRITE),
    ("networking.k8s.io", "ingresses networkpolicies", WRITE),
    ("coordination.k8s.io", "leases", ALL),
    ("resource.k8s.io", "resourceclaims resourceclaimtemplates", WRITE),
];

/// What `system:aggregate-to-admin` grants: groups, resources, verbs.
const ADMIN: &[Grant] = &[
    ("authorization.k8s.io", "localsubjectaccessreviews", &["create"]),
    ("rbac.authorization.k8s.io", "rolebindings roles", ALL),
];

fn rules(grants: &[Grant]) -> Vec<Value> {
    let group = |name| if name == "core" { "" } else { name };
    grants
        .iter()
        .map(|(groups, resources, verbs)| {
            let groups: Vec<&str> = groups.split(' ').map(group).collect();
            let resources: Vec<&str> = resources.split_whitespace().collect();
            rule(&groups, &resources, verbs)
        })
        .collect()
}

fn cluster_roles() -> Vec<Value> {
    let role = |name: &str, rules: Vec<Value>| {
        json!({
            "kind": "ClusterRole", "apiVersion": RBAC_VERSION,
            "metadata": bootstrap_metadata(name), "rules": rules,
        })
    };
    // `admin` collects what is labelled for it; so do `edit` and `view`, so that a CRD's author can join in.
    let aggregate = |name: &str, upwards: Option<&str>, rules: Vec<Value>| {
        let mut metadata = bootstrap_metadata(name);
        if let Some(above) = upwards {
            metadata["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{above}")] = json!("true");
        }
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{name}");
        json!({
            "kind": "ClusterRole", "apiVersion": RBAC_VERSION, "metadata": metadata,
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]},
            "rules": rules,
        })
    };
    let part = |name: &str, rules: Vec<Value>| {
        let mut tree = role(&format!("system:aggregate-to-{name}"), rules);
        tree["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{name}")] = json!("true");
        tree
    };
    let everything = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    let every_url = json!({"nonResourceURLs": ["*"], "verbs": ["*"]});
    vec![
        role("cluster-admin", vec![everything, every_url]),
        // In the order that aggregation gives: of the roles selected, by name.
        aggregate("admin", None, rules(&[EDIT, VIEW, ADMIN].concat())),
        aggregate("edit", Some("admin"), rules(&[EDIT, VIEW].concat())),
        aggregate("view", Some("edit"), rules(VIEW)),
        part("admin", rules(ADMIN)),
        part("edit", rules(EDIT)),
        part("view", rules(VIEW)),
        role(
            "system:basic-user",
            vec![
                rule(
                    &["authorization.k8s.io"],
                    &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                    &["create"],
                ),
                rule(&["authentication.k8s.io"], &["selfsubjectreviews"], &["create"]),
            ],
        ),
        role(
            "system:discovery",
            vec![urls(&[
                "/api",
                "/api/*",
                "/apis",
                "/apis/*",
                "/healthz",
                "/livez",
                "/openapi",
                "/openapi/*",
                "/readyz",
                "/version",
                "/version/",
            ])],
        ),
        role(
            "system:monitoring",
            vec![
                urls(&[
                    "/flagz",
                    "/healthz",
                    "/healthz/*",
                    "/livez",
                    "/livez/*",
                    "/metrics",
                    "/metrics/slis",
                    "/readyz",
                    "/readyz/*",
                    "/statusz",
                ]),
                rule(&[""], &["nodes/metrics"], &["get"]),
            ],
        ),
        role(
            "system:public-info-viewer",
            vec![urls(&["/healthz", "/livez", "/readyz", "/version", "/version/"])],
        ),
        role(
            "system:service-account-issuer-discovery",
            vec![urls(&[
                "/.well-known/openid-configuration",
                "/.well-known/openid-configuration/",
                "/openid/v1/jwks",
                "/openid/v1/jwks/",
            ])],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_see_the_same_objects_with_uids_of_their_own() {
        let collection = Collection::new("", "namespaces");
        let (item, template) = of(&collection).unwrap().iter().next().unwrap();
        let place = |identity: &str| Place {
            identity: identity.into(),
            created: "2030-01-01T00:00:00Z".into(),
            endpoint: None,
            authority_pem: "".into(),
        };
        let one = seal(template, &place("w1"), item).unwrap();
        let again = seal(template, &place("w1"), item).unwrap();
        let other = seal(template, &place("w2"), item).unwrap();
        assert_eq!(one.head.name, "default");
        assert_eq!(one.body(), again.body());
        assert_ne!(one.head.uid, other.head.uid);
        let gone = whiteout(&one).unwrap();
        assert!(gone.head().deleting, "a full workspace takes it");
        assert!(is_whiteout(&gone.seal(Revision::BASE, EventType::Added)));
        assert!(!is_whiteout(&one));
    }

    #[test]
    fn every_bound_role_exists() {
        let roles = of(&Collection::new(RBAC, "clusterroles")).unwrap();
        for (role, _) in CLUSTER_BINDINGS {
            assert!(roles.contains_key(&ItemKey::new("", role)), "{role}");
        }
    }
}
