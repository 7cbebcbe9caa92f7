//! `Cluster`: a member, a Kubernetes cluster that runs workloads.

use machinery::{
    field_error::Cause,
    gotext, names,
    quantity::Quantity,
    resource::{Cell, Column, Row, Subresource, Tree},
    schema::base64_canonical,
    validation::parts::{Path, dns_label, dns_subdomain, entries, object, qualified_name, taints, text},
};
use serde_json::{Value, json};

use crate::{
    AGE, GROUP, REGION_LABEL, VERSION, ZONE_LABEL,
    assignment::SHARED,
    schema::{self, amounts, anything, choice, count, flag, list_of, object_of, word},
};

pub const KIND: &str = "Cluster";
pub const PLURAL: &str = "clusters";

/// The types of conditions in its status.
pub mod condition {
    /// It can be used: reachable, ready, and the cluster that was joined.
    pub const READY: &str = "Ready";
    /// Its API answers.
    pub const REACHABLE: &str = "Reachable";
    /// Another cluster answers at its address.
    pub const IDENTITY_CHANGED: &str = "IdentityChanged";
    /// All that it has of the kinds that show is seen; it is said only where that is not so.
    pub const COMPLETE: &str = "Complete";
    /// Pods of workspaces get the hub's tokens there.
    pub const TOKENS: &str = "Tokens";
}

const fn column(name: &'static str, description: &'static str, cell: Cell) -> Column {
    Column { name, kind: "string", format: "", description, priority: 0, cell }
}

const COLUMNS: &[Column] = &[
    Column {
        format: "name",
        ..column("Name", "The name, which is also that of its virtual node.", Cell::Name)
    },
    column("Ready", "Whether it can be used.", Cell::Compute(ready)),
    column("Version", "The release of Kubernetes it runs.", Cell::Path(".status.version")),
    column("Region", "From its label topology.kubernetes.io/region.", Cell::Compute(region)),
    column("Zone", "From its label topology.kubernetes.io/zone.", Cell::Compute(zone)),
    Column {
        kind: "integer",
        ..column("Nodes", "How many nodes it has.", Cell::Path(".status.nodes.total"))
    },
    column("CPU", "Processors that pods ask for, of those there are.", Cell::Compute(cpu)),
    column("Memory", "Memory that pods ask for, of what there is.", Cell::Compute(memory)),
    AGE,
    column("Reason", "Why it is not ready.", Cell::Compute(reason)),
];

pub const ROW: Row = Row {
    group: GROUP,
    version: VERSION,
    kind: KIND,
    plural: PLURAL,
    singular: "cluster",
    namespaced: false,
    short_names: &["cl"],
    categories: &["hanse"],
    subresources: &[Subresource::status(KIND, GROUP, VERSION)],
    columns: COLUMNS,
    name_rule: names::label_name,
    generation: true,
    schema: Some(shape),
    validate,
    ..Row::PLAIN
};

fn shape() -> Value {
    let secret = object_of(
        "The Secret that holds the credential.",
        json!({"namespace": word("Its namespace."), "name": word("Its name.")}),
    );
    let taint = json!({
        "type": "object", "required": ["key", "effect"], "properties": {
            "key": word("The key, as in a taint of a node."),
            "value": word("The value."),
            "effect": word("NoSchedule, PreferNoSchedule or NoExecute."),
            "timeAdded": word("When it was added."),
        },
    });
    let capacity = object_of(
        "How much of the cluster may be used.",
        json!({
            "bounds": amounts("Amounts that are not exceeded, whatever there is."),
            "overcommit": amounts("How much of what there is may be promised; 1 is all of it."),
        }),
    );
    let spec = object_of(
        "How the cluster is reached, and what it may be used for.",
        json!({
            "endpoint": {"type": "string", "description": "Where its API is reached: https://HOST:PORT."},
            "caBundle": {"type": "string", "description": "Certificates of its authorities, PEM in base64."},
            "tlsServerName": word("The name in its certificate, if it is not the host's."),
            "secretRef": secret,
            "taints": list_of("Keep objects away that do not tolerate them.", 64, taint),
            "unschedulable": flag("Nothing new is put there; what runs there stays."),
            "capacity": capacity,
            "accounts": list_of("Accounts that may use it; all of them if it is left out.", 4096, word("")),
            "admits": list_of(
                "Kinds in no namespace that workspaces bring along which do not have the cluster themselves: none if it \
                 is left out.",
                16,
                choice("A kind.", &SHARED.map(|(_, kind)| kind), None),
            ),
            "namespaces": choice(
                "Same: namespaces have the same name there. Prefixed: the workspace comes before it.",
                &["Same", "Prefixed"],
                Some("Same"),
            ),
            "network": choice(
                "How pods reach those of other clusters: directly, through gateways, or not at all.",
                &["Flat", "Gateway", "None"],
                Some("None"),
            ),
        }),
    );
    schema::kind(
        "A Cluster is a member: a Kubernetes cluster that runs workloads.",
        json!({
            "spec": spec, "status": status_shape(),
        }),
    )
}

fn status_shape() -> Value {
    // What members say of themselves is not refused for its length.
    let said = |description: &str| json!({"type": "string", "description": description});
    let condition = json!({
        "type": "object", "required": ["type", "status"], "properties": {
            "type": said("What it is about."),
            "status": choice("Whether it is so.", &["True", "False", "Unknown"], None),
            "reason": said("Why, in one word."),
            "message": {"type": "string", "description": "Why."},
            "lastTransitionTime": {"type": "string", "description": "Since when."},
        },
    });
    let api = object_of(
        "A version of a group that the cluster serves.",
        json!({
            "groupVersion": said("Its name."),
            "resources": {"type": "array", "items": {"type": "string"}, "description": "What it has."},
        }),
    );
    let leftover = object_of(
        "A copy that nothing in the hub wants.",
        json!({
            "apiVersion": said("Of which API it is."),
            "resource": said("Of which kind it is, as in paths."),
            "namespace": said("The namespace of the cluster that it is in."),
            "name": said("Its name."),
            "uid": said("Its UID in the cluster."),
            "workspace": said("The workspace that it was made for."),
            "reason": said("WorkspaceGone, ObjectGone or NotAssigned."),
            "since": said("When it was found."),
        }),
    );
    object_of(
        "What is known of the cluster.",
        json!({
            "identity": said("The UID of its namespace kube-system, which no other cluster has."),
            "version": said("The release of Kubernetes it runs."),
            "conditions": {
                "type": "array", "items": condition, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"], "description": "Whether it can be used.",
            },
            "heartbeat": said("When it last answered."),
            "apis": {"type": "array", "items": api, "description": "What its API serves."},
            "classes": {
                "type": "object", "description": "The names of its classes, by their kind: StorageClass, PriorityClass, \
                IngressClass, RuntimeClass.",
                "additionalProperties": {"type": "array", "items": {"type": "string"}},
            },
            "skew": anything("Fields that this API has and the cluster's does not."),
            "capacity": amounts("What its nodes have."),
            "allocatable": amounts("What pods can use of it."),
            "requested": amounts("What its pods ask for."),
            "nodes": object_of("How many nodes it has.", json!({
                "total": count("All of them."), "ready": count("Those that can be used."),
                "unschedulable": count("Those that take no more pods."),
            })),
            "leftovers": object_of("Copies that the cluster has and nothing in the hub wants. They are kept.", json!({
                "count": count("All of them."),
                "items": {"type": "array", "items": leftover, "description": "The first of them."},
            })),
            "peer": said("Which peer keeps in touch with it."),
        }),
    )
}

fn validate(new: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    let path = Path::new("spec");
    let Some(spec) = object(new, "spec") else { return vec![Cause::required("spec", "")] };
    let mut causes = Vec::new();
    causes.extend(check_endpoint(text(spec, "endpoint")));
    causes.extend(check_bundle(text(spec, "caBundle")));
    let server_name = text(spec, "tlsServerName");
    if !server_name.is_empty() {
        causes.extend(dns_subdomain(server_name, &path.child("tlsServerName")));
    }
    causes.extend(check_secret(spec, &path));
    causes.extend(taints(spec, "taints", &path));
    causes.extend(check_capacity(spec, &path));
    causes.extend(check_accounts(spec, &path));
    causes
}

/// Only HTTPS: what is sent there are credentials.
fn check_endpoint(endpoint: &str) -> Option<Cause> {
    const FIELD: &str = "spec.endpoint";
    if endpoint.is_empty() {
        return Some(Cause::required(FIELD, "where the API of the cluster is reached, as https://HOST:PORT"));
    }
    let wrong = |why| Some(Cause::invalid(FIELD, &json!(endpoint), why));
    let Some(rest) = endpoint.strip_prefix("https://") else { return wrong("must begin with https://") };
    let authority = rest.split('/').next().unwrap_or_default();
    let bare = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    if bare.is_empty() {
        return wrong("must name a host");
    }
    if rest.contains(['?', '#', '@', ' ']) {
        return wrong("must have no user, query or fragment");
    }
    None
}

fn check_bundle(bundle: &str) -> Option<Cause> {
    if bundle.is_empty() {
        return None;
    }
    base64_canonical(bundle).err().map(|why| Cause::invalid_unseen("spec.caBundle", &why))
}

fn check_secret(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let path = path.child("secretRef");
    let Some(secret) = object(spec, "secretRef") else {
        return vec![Cause::required(&path, "the Secret that holds the credential")];
    };
    let mut causes = Vec::new();
    causes.extend(dns_label(text(secret, "namespace"), &path.child("namespace")));
    causes.extend(dns_subdomain(text(secret, "name"), &path.child("name")));
    causes
}

/// `bounds` are amounts; `overcommit` says how much of what there is may be promised, 1 being all of it.
fn check_capacity(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let Some(capacity) = object(spec, "capacity") else { return causes };
    let path = path.child("capacity");
    for list in ["bounds", "overcommit"] {
        let path = path.child(list);
        for (name, value) in entries(capacity, list) {
            let entry = path.child(name);
            causes.extend(qualified_name(name, &entry));
            match Quantity::parse(&gotext::plain(value)) {
                Ok(amount) if !amount.is_negative() => {}
                Ok(_) => causes.push(Cause::invalid(&entry, value, "must not be negative")),
                Err(_) => causes.push(Cause::invalid(&entry, value, "must be a quantity")),
            }
        }
    }
    causes
}

fn check_accounts(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let path = path.child("accounts");
    let accounts = spec.get("accounts").and_then(Value::as_array).into_iter().flatten().enumerate();
    let mut causes = Vec::new();
    for (at, account) in accounts {
        let path = path.index(at);
        causes.extend(dns_label(account.as_str().unwrap_or_default(), &path));
    }
    causes
}

/// The condition of that type in the status of a `Cluster`.
pub fn condition<'a>(cluster: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = cluster.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().find(|it| it["type"] == kind)
}

fn ready(cluster: &Value, _: i64) -> Value {
    let status = condition(cluster, condition::READY).and_then(|it| it["status"].as_str());
    json!(status.unwrap_or("Unknown"))
}

fn reason(cluster: &Value, _: i64) -> Value {
    let ready = condition(cluster, condition::READY);
    let reason = ready.filter(|it| it["status"] != "True").and_then(|it| it["reason"].as_str());
    json!(reason.unwrap_or_default())
}

fn label(cluster: &Value, label: &str) -> Value {
    json!(cluster["metadata"]["labels"][label].as_str().unwrap_or_default())
}

fn region(cluster: &Value, _: i64) -> Value {
    label(cluster, REGION_LABEL)
}

fn zone(cluster: &Value, _: i64) -> Value {
    label(cluster, ZONE_LABEL)
}

fn cpu(cluster: &Value, _: i64) -> Value {
    used(cluster, "cpu")
}

fn memory(cluster: &Value, _: i64) -> Value {
    used(cluster, "memory")
}

/// `1500m/8`; nothing while nothing is known.
fn used(cluster: &Value, resource: &str) -> Value {
    let of = |list: &str| cluster["status"][list][resource].as_str();
    match (of("requested"), of("allocatable")) {
        (requested, Some(allocatable)) => json!(format!("{}/{allocatable}", requested.unwrap_or("0"))),
        _ => json!(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Value {
        json!({"endpoint": "https://10.0.0.1:6443", "secretRef": {"namespace": "hanse-system", "name": "cluster-a"}})
    }

    fn causes(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut cluster = json!({"metadata": {"name": "a"}, "spec": spec()});
        change(&mut cluster["spec"]);
        crate::tests::refusals(&ROW, cluster)
    }

    #[test]
    fn a_good_cluster_is_accepted() {
        let found = causes(|spec| {
            spec["caBundle"] = json!("YQ==");
            spec["endpoint"] = json!("https://hub.example:7443/clusters/east");
            spec["taints"] = json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]);
            spec["capacity"] =
                json!({"bounds": {"cpu": "10", "memory": "1Ti"}, "overcommit": {"cpu": "1.5"}});
            spec["accounts"] = json!(["team-a"]);
            spec["network"] = json!("Flat");
        });
        assert_eq!(found, [] as [String; 0]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases: [(&str, Value, &str); 11] = [
            ("endpoint", json!("http://a"), "spec.endpoint"),
            ("endpoint", json!("https://:6443"), "spec.endpoint"),
            ("endpoint", json!("https://me@a"), "spec.endpoint"),
            ("endpoint", json!(7), "spec.endpoint"),
            ("caBundle", json!("!"), "spec.caBundle"),
            ("secretRef", json!({"name": "a"}), "spec.secretRef.namespace"),
            ("taints", json!([{"key": "a", "effect": "Never"}]), "spec.taints[0].effect"),
            ("taints", json!(["a"]), "spec.taints[0]"),
            ("capacity", json!({"bounds": {"cpu": "-1"}}), "spec.capacity.bounds.cpu"),
            ("accounts", json!(["A b"]), "spec.accounts[0]"),
            ("namespaces", json!("Other"), "spec.namespaces"),
        ];
        for (field, value, place) in cases {
            let found = causes(|spec| spec[field] = value.clone());
            assert!(found.iter().any(|cause| cause.starts_with(place)), "{field} {value}: {found:?}");
        }
    }

    #[test]
    fn a_table_shows_what_an_operator_asks_first() {
        let cluster = json!({
            "metadata": {"labels": {REGION_LABEL: "eu"}},
            "status": {
                "allocatable": {"cpu": "8", "memory": "16Gi"}, "requested": {"cpu": "1500m"},
                "conditions": [{"type": "Ready", "status": "False", "reason": "Unreachable"}],
            },
        });
        let shown = COLUMNS.iter().filter_map(|column| match column.cell {
            Cell::Compute(compute) => Some(compute(&cluster, 0)),
            _ => None,
        });
        assert_eq!(
            json!(shown.collect::<Vec<_>>()),
            json!(["False", "eu", "", "1500m/8", "0/16Gi", "Unreachable"])
        );
    }
}
