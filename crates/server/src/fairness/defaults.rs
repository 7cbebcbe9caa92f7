//! The flow schemas and priority levels that every workspace has from the start: upstream's.

use machinery::resource::Tree;
use serde_json::{Value, json};

pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// Name, shares, lendable percent, and queues, hand size and length if requests may wait.
type LevelRow = (&'static str, u32, u32, Option<(u32, u32, u32)>);

const LEVELS: &[LevelRow] = &[
    ("catch-all", 5, 0, None),
    ("system", 30, 33, Some((64, 6, 50))),
    ("node-high", 40, 25, Some((64, 6, 50))),
    ("leader-election", 10, 0, Some((16, 4, 50))),
    ("workload-high", 40, 50, Some((128, 6, 50))),
    ("workload-low", 100, 90, Some((128, 6, 50))),
    ("global-default", 20, 50, Some((128, 6, 50))),
];

/// Whom a schema is for: `user:`, `group:` or `account:` (namespace/name) and a name each.
struct SchemaRow {
    name: &'static str,
    level: &'static str,
    precedence: u32,
    by: Option<&'static str>,
    subjects: &'static [&'static str],
    what: What,
}

enum What {
    Everything,
    Probes,
    /// Verbs, group, resources and whether at cluster scope too, each.
    Only(&'static [(&'static [&'static str], &'static str, &'static [&'static str], bool)]),
}

const BY_USER: Option<&str> = Some("ByUser");
const BY_NAMESPACE: Option<&str> = Some("ByNamespace");
const EVERYBODY: &[&str] = &["group:system:unauthenticated", "group:system:authenticated"];
const LEASES: &str = "coordination.k8s.io";

const SCHEMAS: &[SchemaRow] = &[
    SchemaRow {
        name: "exempt",
        level: "exempt",
        precedence: 1,
        by: None,
        subjects: &["group:system:masters"],
        what: What::Everything,
    },
    SchemaRow {
        name: "probes",
        level: "exempt",
        precedence: 2,
        by: None,
        subjects: EVERYBODY,
        what: What::Probes,
    },
    SchemaRow {
        name: "system-leader-election",
        level: "leader-election",
        precedence: 100,
        by: BY_USER,
        subjects: &[
            "user:system:kube-controller-manager",
            "user:system:kube-scheduler",
            "account:kube-system/*",
        ],
        what: What::Only(&[(&["get", "create", "update"], LEASES, &["leases"], false)]),
    },
    SchemaRow {
        name: "system-node-high",
        level: "node-high",
        precedence: 400,
        by: BY_USER,
        subjects: &["group:system:nodes"],
        what: What::Only(&[
            (&["*"], "", &["nodes", "nodes/status"], true),
            (&["*"], LEASES, &["leases"], false),
        ]),
    },
    SchemaRow {
        name: "system-nodes",
        level: "system",
        precedence: 500,
        by: BY_USER,
        subjects: &["group:system:nodes"],
        what: What::Everything,
    },
    SchemaRow {
        name: "kube-controller-manager",
        level: "workload-high",
        precedence: 800,
        by: BY_NAMESPACE,
        subjects: &["user:system:kube-controller-manager"],
        what: What::Everything,
    },
    SchemaRow {
        name: "kube-scheduler",
        level: "workload-high",
        precedence: 800,
        by: BY_NAMESPACE,
        subjects: &["user:system:kube-scheduler"],
        what: What::Everything,
    },
    SchemaRow {
        name: "kube-system-service-accounts",
        level: "workload-high",
        precedence: 900,
        by: BY_NAMESPACE,
        subjects: &["account:kube-system/*"],
        what: What::Everything,
    },
    SchemaRow {
        name: "service-accounts",
        level: "workload-low",
        precedence: 9000,
        by: BY_USER,
        subjects: &["group:system:serviceaccounts"],
        what: What::Everything,
    },
    SchemaRow {
        name: "global-default",
        level: "global-default",
        precedence: 9900,
        by: BY_USER,
        subjects: EVERYBODY,
        what: What::Everything,
    },
    SchemaRow {
        name: "catch-all",
        level: "catch-all",
        precedence: 10000,
        by: BY_USER,
        subjects: EVERYBODY,
        what: What::Everything,
    },
];

/// What the server keeps as it is in every workspace.
pub const MANDATORY: [&str; 2] = ["exempt", "catch-all"];

/// The name, if it is one of the default objects: what metrics may tell apart.
pub fn known_name(name: &str) -> &'static str {
    let schemas = SCHEMAS.iter().map(|row| row.name);
    let levels = LEVELS.iter().map(|row| row.0);
    schemas.chain(levels).find(|known| *known == name).unwrap_or("other")
}

pub fn levels() -> impl Iterator<Item = Tree> {
    std::iter::once(exempt_level()).chain(LEVELS.iter().map(level)).filter_map(into_tree)
}

pub fn schemas() -> impl Iterator<Item = Tree> {
    SCHEMAS.iter().map(schema).filter_map(into_tree)
}

pub fn mandatory_levels() -> impl Iterator<Item = Tree> {
    levels().filter(is_mandatory)
}

pub fn mandatory_schemas() -> impl Iterator<Item = Tree> {
    schemas().filter(is_mandatory)
}

fn is_mandatory(tree: &Tree) -> bool {
    let name = tree.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
    name.is_some_and(|name| MANDATORY.contains(&name))
}

fn into_tree(value: Value) -> Option<Tree> {
    match value {
        Value::Object(tree) => Some(tree),
        _ => None,
    }
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name, "generation": 1,
        "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"},
    })
}

fn exempt_level() -> Value {
    json!({
        "kind": "PriorityLevelConfiguration", "apiVersion": VERSION, "metadata": metadata("exempt"),
        "spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}},
        "status": {},
    })
}

fn level((name, shares, lendable, queuing): &LevelRow) -> Value {
    let response = match queuing {
        None => json!({"type": "Reject"}),
        Some((queues, hand, length)) => json!({
            "type": "Queue",
            "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": length},
        }),
    };
    json!({
        "kind": "PriorityLevelConfiguration", "apiVersion": VERSION, "metadata": metadata(name),
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response,
        }},
        "status": {},
    })
}

fn subject(text: &str) -> Value {
    match text.split_once(':') {
        Some(("user", name)) => json!({"kind": "User", "user": {"name": name}}),
        Some(("group", name)) => json!({"kind": "Group", "group": {"name": name}}),
        Some((_, account)) => {
            let (namespace, name) = account.split_once('/').unwrap_or((account, "*"));
            json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}})
        }
        None => Value::Null,
    }
}

fn resource_rule(verbs: &[&str], group: &str, resources: &[&str], cluster_scope: bool) -> Value {
    let mut rule = json!({
        "verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"],
    });
    if cluster_scope {
        rule["clusterScope"] = json!(true);
    }
    rule
}

fn schema(row: &SchemaRow) -> Value {
    let mut rule = json!({"subjects": row.subjects.iter().map(|it| subject(it)).collect::<Vec<_>>()});
    match row.what {
        What::Everything => {
            rule["resourceRules"] = json!([resource_rule(&["*"], "*", &["*"], true)]);
            rule["nonResourceRules"] = json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]);
        }
        What::Probes => {
            let paths = ["/healthz", "/readyz", "/livez"];
            rule["nonResourceRules"] = json!([{"verbs": ["get"], "nonResourceURLs": paths}]);
        }
        What::Only(rules) => {
            let rules = rules.iter().map(|(verbs, group, resources, cluster_scope)| {
                resource_rule(verbs, group, resources, *cluster_scope)
            });
            rule["resourceRules"] = rules.collect();
        }
    }
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": row.level},
        "matchingPrecedence": row.precedence,
        "rules": [rule],
    });
    if let Some(by) = row.by {
        spec["distinguisherMethod"] = json!({"type": by});
    }
    json!({
        "kind": "FlowSchema", "apiVersion": VERSION, "metadata": metadata(row.name),
        "spec": spec, "status": {"conditions": [dangling(row.level, true)]},
    })
}

/// The condition that says whether a schema's level exists, without its time.
pub fn dangling(level: &str, found: bool) -> Value {
    let names = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?}");
    match found {
        true => json!({
            "type": "Dangling", "status": "False", "reason": "Found",
            "message": format!("{names} and it exists"),
        }),
        false => json!({
            "type": "Dangling", "status": "True", "reason": "NotFound",
            "message": format!("{names} but there is no such object"),
        }),
    }
}
