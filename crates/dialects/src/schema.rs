//! What the kinds of dialects look like. What upstream left open stays open; what makes no sense is refused.

use api::schema::{anything, choice, count, flag, kind, list_of, object_of, selector_of, word};
use serde_json::{Value, json};

const MOST_CLUSTERS: usize = 4096;

fn open(description: &str) -> Value {
    json!({"type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": true})
}

fn template() -> Value {
    open("The object as clusters get it. Its name and namespace are those of the federated object.")
}

fn named_clusters() -> Value {
    let mut cluster = object_of("A cluster.", json!({"name": word("Its name.")}));
    cluster["required"] = json!(["name"]);
    let mut clusters =
        list_of("Clusters by name; if it is given, the selector does not count.", MOST_CLUSTERS, cluster);
    clusters["nullable"] = json!(true);
    clusters
}

fn cluster_selector() -> Value {
    let mut selector = selector_of("Clusters by label; an empty selector means all of them.", false);
    selector["nullable"] = json!(true);
    selector
}

fn placement_of() -> Value {
    object_of(
        "In which clusters it is; with neither names nor a selector in none.",
        json!({"clusters": named_clusters(), "clusterSelector": cluster_selector()}),
    )
}

fn overrides_of() -> Value {
    let mut change = object_of(
        "One change, as in a JSON patch.",
        json!({
            "op": {"type": "string", "enum": ["", "add", "remove", "replace"], "description": "What is done; replace if it is left out."},
            "path": {"type": "string", "maxLength": 1024, "description": "Where, as a JSON pointer."},
            "value": anything("What is put there."),
        }),
    );
    change["required"] = json!(["path"]);
    let entry = object_of(
        "What differs in one cluster.",
        json!({
            "clusterName": word("The cluster."),
            "clusterOverrides": list_of("The changes, one after the other.", 256, change),
        }),
    );
    list_of("What differs in single clusters.", MOST_CLUSTERS, entry)
}

fn status() -> Value {
    let condition = json!({
        "type": "object", "required": ["type", "status"], "properties": {
            "type": word("Propagation."),
            "status": word("Whether all clusters have it as they should."),
            "reason": word("Why not, in one word."),
            "message": {"type": "string", "description": "Why not."},
            "lastUpdateTime": word("When something was last said."),
            "lastTransitionTime": word("Since when it is so."),
        },
    });
    let cluster = json!({
        "type": "object", "required": ["name"], "properties": {
            "name": word("The cluster."),
            "status": word("What is not as it should be, in one word; empty: nothing."),
            "remoteStatus": anything("The status of the copy there, if it is collected."),
        },
    });
    object_of(
        "What came of it.",
        json!({
            "observedGeneration": {"type": "integer", "format": "int64", "description": "What all this is about."},
            "conditions": {"type": "array", "items": condition, "description": "Whether it is propagated."},
            "clusters": {"type": "array", "items": cluster, "description": "What each cluster says."},
        }),
    )
}

/// Optional members of `spec`, which is required itself but may be empty.
fn federated(description: &str, mut spec: Value, scalable: bool) -> Value {
    if scalable {
        spec["retainReplicas"] = flag("Replicas are left to the clusters once it is there.");
    }
    kind(description, json!({"spec": object_of("What is wanted.", spec), "status": status()}))
}

pub fn unified() -> Value {
    let spec = json!({"template": template(), "placement": placement_of(), "overrides": overrides_of()});
    federated("An object that is in several clusters.", spec, false)
}

pub fn scalable() -> Value {
    let spec = json!({"template": template(), "placement": placement_of(), "overrides": overrides_of()});
    federated("An object that is in several clusters.", spec, true)
}

/// Of the forms with three objects.
pub fn template_alone() -> Value {
    let spec = json!({"template": template()});
    federated("An object that may be in several clusters; others of its name say in which.", spec, false)
}

pub fn placement_alone() -> Value {
    let names = json!({
        "type": "array", "maxItems": MOST_CLUSTERS, "items": {"type": "string", "maxLength": 253},
        "nullable": true, "description": "The names of the clusters.",
    });
    let spec =
        object_of("The clusters.", json!({"clusterNames": names, "clusterSelector": cluster_selector()}));
    let open_status = open("Nothing is said.");
    kind(
        "In which clusters the federated object of this name is.",
        json!({"spec": spec, "status": open_status}),
    )
}

pub fn typed_override() -> Value {
    let mut entry = open("What differs in one cluster: its name, and one field.");
    entry["properties"] = json!({"clusterName": word("The cluster.")});
    entry["required"] = json!(["clusterName"]);
    let spec = json!({"overrides": list_of("What differs in single clusters.", MOST_CLUSTERS, entry)});
    let spec = object_of("What differs.", spec);
    kind("What differs between the clusters of the federated object of this name.", json!({"spec": spec}))
}

pub fn dotted_override() -> Value {
    let change = object_of(
        "One change.",
        json!({
            "path": {"type": "string", "maxLength": 1024, "description": "Where, in dots: spec.replicas."},
            "value": anything("What is put there."),
        }),
    );
    let entry = object_of(
        "What differs in one cluster.",
        json!({
            "clusterName": word("The cluster."),
            "clusterOverrides": list_of("The changes, one after the other.", 256, change),
        }),
    );
    let spec = json!({"overrides": list_of("What differs in single clusters.", MOST_CLUSTERS, entry)});
    let spec = object_of("What differs.", spec);
    kind("What differs between the clusters of the federated object of this name.", json!({"spec": spec}))
}

pub fn scheduling_preference() -> Value {
    let preference = object_of(
        "What one cluster gets.",
        json!({
            "minReplicas": {"type": "integer", "format": "int64", "minimum": 0, "description": "At least so many."},
            "maxReplicas": {"type": "integer", "format": "int64", "minimum": 0, "nullable": true, "description": "At most so many."},
            "weight": {"type": "integer", "format": "int64", "minimum": 0, "description": "Its share, by weight."},
        }),
    );
    let clusters = json!({
        "type": "object", "additionalProperties": preference,
        "description": "By the name of a cluster, or * for those that are not named; none: all alike.",
    });
    let mut spec = object_of(
        "How replicas are divided.",
        json!({
            "targetKind": choice("The kind that it is for.", &["FederatedDeployment", "FederatedReplicaSet"], None),
            "totalReplicas": count("How many there are in all clusters together."),
            "rebalance": flag("Whether replicas that run are moved to match the weights."),
            "intersectWithClusterSelector": flag("Only clusters that the federated object selects are used."),
            "clusters": clusters,
        }),
    );
    spec["required"] = json!(["targetKind", "totalReplicas"]);
    kind(
        "How the replicas of the federated object of this name are divided between clusters.",
        json!({"spec": spec, "status": open("What came of it.")}),
    )
}

pub fn type_config() -> Value {
    let api_resource = |description: &str| {
        object_of(
            description,
            json!({
                "group": word("The group of its API."),
                "version": word("The version."),
                "kind": word("The kind."),
                "pluralName": word("Its name in paths."),
                "scope": word("Cluster or Namespaced."),
            }),
        )
    };
    let mut spec = object_of(
        "Which kind is made of which.",
        json!({
            "targetType": api_resource("What clusters get."),
            "federatedType": api_resource("What it is made of."),
            "statusType": api_resource("Where its status is collected."),
            "propagation": choice("Whether it is brought about.", &["Enabled", "Disabled"], None),
            "statusCollection": choice("Whether the status of copies is shown.", &["Enabled", "Disabled"], None),
        }),
    );
    spec["required"] = json!(["targetType", "federatedType", "propagation"]);
    kind("A kind that can be federated.", json!({"spec": spec, "status": open("Whether it is.")}))
}

pub fn config() -> Value {
    let mut spec = open("How federation works here.");
    spec["properties"] = json!({
        "scope": choice("Whether it is for all namespaces or for one.", &["Cluster", "Namespaced"], None),
        "syncController": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "adoptResources": choice("Whether objects of the name are taken over.", &["Enabled", "Disabled"], None),
            },
        },
    });
    kind("How federation works here.", json!({"spec": spec, "status": open("Nothing is said.")}))
}

pub fn member() -> Value {
    let mut secret =
        object_of("The Secret with the token, in the same namespace.", json!({"name": word("Its name.")}));
    secret["required"] = json!(["name"]);
    let mut spec = object_of(
        "How the cluster is reached.",
        json!({
            "apiEndpoint": {"type": "string", "description": "Where its API is."},
            "caBundle": {"type": "string", "format": "byte", "description": "Certificates of its authorities, PEM in base64."},
            "secretRef": secret,
            "disabledTLSValidations": {
                "type": "array", "items": {"type": "string"}, "description": "What of its certificate is not verified.",
            },
            "proxyURL": {"type": "string", "description": "A proxy on the way to it."},
        }),
    );
    spec["required"] = json!(["apiEndpoint", "secretRef"]);
    kind("A cluster that objects are federated to.", json!({"spec": spec, "status": member_status()}))
}

fn member_status() -> Value {
    let mut status = open("What is known of the cluster.");
    status["properties"] = json!({"kubernetesVersion": {"type": "string", "description": "What it runs."}});
    status
}

pub fn registered() -> Value {
    let reference = |description: &str| {
        object_of(
            description,
            json!({"kind": word("Its kind."), "name": word("Its name."), "namespace": word("Its namespace.")}),
        )
    };
    let endpoint = object_of(
        "An address.",
        json!({"clientCIDR": word("Which clients it is for."), "serverAddress": word("A host, with a port or without.")}),
    );
    let spec = object_of(
        "How the cluster is reached. Pointers to credentials, never credentials.",
        json!({
            "kubernetesApiEndpoints": object_of("Of its API.", json!({
                "serverEndpoints": list_of("Addresses of one API server.", 64, endpoint),
                "caBundle": {"type": "string", "format": "byte", "description": "Certificates of its authorities, PEM in base64."},
            })),
            "authInfo": object_of("How to prove who one is.", json!({
                "user": reference("For people."),
                "controller": reference("For controllers: a Secret."),
            })),
        }),
    );
    let mut whole = kind(
        "A cluster in a registry of clusters.",
        json!({"spec": spec, "status": open("What is known of the cluster.")}),
    );
    whole["required"] = json!([]);
    whole
}
