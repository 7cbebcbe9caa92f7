//! `Placement`: which clusters run what, and how it is divided between them.

use std::collections::BTreeSet;

use machinery::{
    field_error::Cause,
    resource::{Cell, Column, Row, Tree},
    validation::parts::{Path, dns_label, items, list, object, qualified_name, text, texts, tolerations},
};
use serde_json::{Value, json};

use crate::{
    AGE, GROUP, VERSION,
    schema::{self, MOST_NAMES, choice, count, flag, list_of, object_of, word},
};

pub const KIND: &str = "Placement";
pub const PLURAL: &str = "placements";
/// In `shares`: every cluster that no other entry names.
pub const EVERY_CLUSTER: &str = "*";

const fn column(name: &'static str, description: &'static str, cell: Cell) -> Column {
    Column { name, kind: "string", format: "", description, priority: 0, cell }
}

const COLUMNS: &[Column] = &[
    Column { format: "name", ..column("Name", "The name, by which objects may ask for it.", Cell::Name) },
    column("Strategy", "How objects are put on the clusters.", Cell::Compute(strategy_cell)),
    column("Clusters", "Which clusters it may use.", Cell::Compute(clusters_cell)),
    Column {
        kind: "integer",
        ..column(
            "Priority",
            "The highest of those that select an object counts.",
            Cell::Path(".spec.priority"),
        )
    },
    AGE,
];

pub const ROW: Row = Row {
    group: GROUP,
    version: VERSION,
    kind: KIND,
    plural: PLURAL,
    singular: "placement",
    namespaced: false,
    short_names: &["pl"],
    categories: &["hanse"],
    columns: COLUMNS,
    schema: Some(shape),
    generation: true,
    validate,
    ..Row::PLAIN
};

fn shape() -> Value {
    let mut spec = object_of(
        "What is wanted.",
        json!({
            "priority": {
                "type": "integer", "format": "int32", "default": 0,
                "description": "Of several that select an object the one with the highest priority counts; then the \
                    one that selects more narrowly; then the first by name.",
            },
            "select": schema::selections(),
            "clusters": schema::clusters("Which clusters may be used; every cluster if it is left out."),
            "groups": list_of(
                "Groups of clusters in the order in which they are wanted: what has no room in the first goes to the \
                 next, and back as soon as there is room again.",
                32,
                group(),
            ),
            "tolerations": list_of("Taints of clusters that do not matter, as in a pod.", 64, toleration()),
            "spread": list_of("Over what the objects are to be spread.", 8, spread()),
            "strategy": choice(
                "Single: all on one cluster. Duplicate: the whole on each. Divide: the replicas are divided between \
                 them; what has no replicas is on each. If it is left out, what suits the kind: a StatefulSet is on one \
                 cluster unless divide says how to divide it, and all others are divided.",
                &["Single", "Duplicate", "Divide"],
                None,
            ),
            "divide": divide(),
        }),
    );
    spec["x-kubernetes-validations"] = json!([
        {
            "rule": "!has(self.divide) || !has(self.strategy) || self.strategy == 'Divide'",
            "message": "only strategy Divide divides: leave it out, or set strategy to Divide", "fieldPath": ".divide",
        },
        {
            "rule": "!has(self.spread) || !has(self.strategy) || self.strategy != 'Single'",
            "message": "what is on one cluster cannot be spread: leave it out, or choose another strategy",
            "fieldPath": ".spread",
        },
    ]);
    schema::kind(
        "A Placement says which clusters run what, and how it is divided between them.",
        json!({"spec": spec}),
    )
}

fn group() -> Value {
    let mut group = schema::clusters("Some of the clusters.");
    group["properties"]["name"] = word("What the group is called in explanations.");
    group["x-kubernetes-validations"] = json!([
        {"rule": "has(self.names) || has(self.selector)", "message": "a group needs names or a selector"},
    ]);
    group
}

fn toleration() -> Value {
    object_of(
        "A taint that does not matter.",
        json!({
            "key": word("The key of the taint; none with operator Exists: every taint."),
            "operator": choice("Whether the value counts.", &["Equal", "Exists"], None),
            "value": word("The value of the taint."),
            "effect": choice(
                "The effect of the taint; none: every effect.",
                &["", "NoSchedule", "PreferNoSchedule", "NoExecute"],
                None,
            ),
            "tolerationSeconds": {
                "type": "integer", "format": "int64",
                "description": "With effect NoExecute: for how long what runs there may stay; for ever if it is left out.",
            },
        }),
    )
}

fn spread() -> Value {
    let mut spread = object_of(
        "Over the values of a label of clusters, such as their region.",
        json!({
            "topologyKey": word("The label."),
            "maxSkew": {
                "type": "integer", "format": "int32", "minimum": 1, "default": 1,
                "description": "By how many replicas (or clusters, where there are none) two values may differ.",
            },
            "minDomains": {
                "type": "integer", "format": "int32", "minimum": 1, "description": "At least so many values.",
            },
            "maxDomains": {
                "type": "integer", "format": "int32", "minimum": 1, "description": "No more values than this.",
            },
            "whenUnsatisfiable": choice(
                "DoNotSchedule: what cannot be spread so waits. ScheduleAnyway: it is put where it differs least.",
                &["DoNotSchedule", "ScheduleAnyway"],
                Some("DoNotSchedule"),
            ),
        }),
    );
    spread["required"] = json!(["topologyKey"]);
    spread["x-kubernetes-validations"] = json!([{
        "rule": "!has(self.minDomains) || !has(self.maxDomains) || self.minDomains <= self.maxDomains",
        "message": "minDomains must not be greater than maxDomains",
    }]);
    spread
}

fn divide() -> Value {
    let mut share = object_of(
        "What one cluster, or each of several, gets.",
        json!({
            "cluster": word("The name of a cluster, or * for each that no other entry is for."),
            "selector": schema::selector_of("Each cluster with these labels that is not named in an entry.", true),
            "min": count("At least so many replicas, if there are enough."),
            "max": count("At most so many replicas."),
            "weight": count("Its share, in proportion to the weights of the others."),
        }),
    );
    share["x-kubernetes-validations"] = json!([
        {"rule": "has(self.cluster) != has(self.selector)", "message": "needs a cluster or a selector, not both"},
        {
            "rule": "!has(self.min) || !has(self.max) || self.min <= self.max",
            "message": "min must not be greater than max",
        },
    ]);
    let mut divide = object_of(
        "How replicas are divided.",
        json!({
            "by": choice(
                "Even: equal shares. Weight: in proportion to the weights. Capacity: in proportion to what is free.",
                &["Even", "Weight", "Capacity"],
                Some("Even"),
            ),
            "algorithm": choice(
                "Fair: exact, and moves as few replicas as it can. Federation: what Kubernetes federation did.",
                &["Fair", "Federation"],
                Some("Fair"),
            ),
            "rebalance": flag(
                "Whether replicas that run well are moved to come closer to the shares that are wanted.",
            ),
            "shares": list_of("What single clusters get. What no entry is for gets an equal share, or by Weight nothing.", MOST_NAMES, share),
        }),
    );
    divide["x-kubernetes-validations"] = json!([
        {
            "rule": "self.by != 'Weight' || (has(self.shares) && self.shares.exists(share, has(share.weight) && share.weight > 0))",
            "message": "by Weight needs a share with a weight above 0", "fieldPath": ".by",
        },
        {
            "rule": "self.by == 'Weight' || !has(self.shares) || !self.shares.exists(share, has(share.weight))",
            "message": "weights count only with by: Weight", "fieldPath": ".by",
        },
        {
            "rule": "self.algorithm != 'Federation' || self.by != 'Capacity'",
            "message": "Federation divides evenly or by weight", "fieldPath": ".algorithm",
        },
    ]);
    divide
}

fn validate(new: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    let path = Path::new("spec");
    let Some(spec) = object(new, "spec") else { return Vec::new() };
    let mut causes = schema::check_selections(spec, &path);
    let named = match object(spec, "clusters") {
        Some(clusters) => {
            causes.extend(schema::check_clusters(clusters, &path.child("clusters")));
            clusters.contains_key("names").then(|| texts(clusters, "names").collect())
        }
        None => None,
    };
    causes.extend(check_groups(spec, named.as_ref(), &path));
    causes.extend(tolerations(spec, "tolerations", &path));
    causes.extend(check_spread(spec, &path));
    if let Some(divide) = object(spec, "divide") {
        causes.extend(check_shares(divide, named.as_ref(), &path.child("divide")));
    }
    causes
}

const ELSEWHERE: &str = "is not among spec.clusters.names, so nothing could run there";

fn check_groups(spec: &Tree, named: Option<&BTreeSet<&str>>, path: &Path<'_>) -> Vec<Cause> {
    let path = path.child("groups");
    let mut causes = Vec::new();
    for (at, group) in items(spec, "groups") {
        let path = path.index(at);
        causes.extend(schema::check_clusters(group, &path));
        for (at, name) in texts(group, "names").enumerate() {
            if named.is_some_and(|named| !named.contains(name)) {
                causes.push(Cause::invalid(&path.child("names").index(at), &json!(name), ELSEWHERE));
            }
        }
    }
    causes
}

fn check_spread(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let path = path.child("spread");
    let mut causes = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, spread) in items(spec, "spread") {
        let key = text(spread, "topologyKey");
        let path = path.index(at);
        let field = path.child("topologyKey");
        causes.extend(qualified_name(key, &field));
        if !seen.insert(key) {
            causes.push(Cause::duplicate(&field, &json!(key)));
        }
    }
    causes
}

fn check_shares(divide: &Tree, named: Option<&BTreeSet<&str>>, path: &Path<'_>) -> Vec<Cause> {
    let path = path.child("shares");
    let mut causes = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, share) in items(divide, "shares") {
        let path = path.index(at);
        causes.extend(schema::check_cluster_selector(share, &path));
        let Some(name) = share.get("cluster").and_then(Value::as_str) else { continue };
        let field = path.child("cluster");
        if !seen.insert(name) {
            causes.push(Cause::duplicate(&field, &json!(name)));
        }
        if name == EVERY_CLUSTER {
            continue;
        }
        causes.extend(dns_label(name, &field));
        if named.is_some_and(|named| !named.contains(name)) {
            causes.push(Cause::invalid(&field, &json!(name), ELSEWHERE));
        }
    }
    causes
}

/// What is written, or follows from it.
fn strategy_cell(placement: &Value, _: i64) -> Value {
    let written = placement.pointer("/spec/strategy").and_then(Value::as_str);
    let divides = placement.pointer("/spec/divide").is_some_and(Value::is_object);
    json!(written.unwrap_or(if divides { "Divide" } else { "by kind" }))
}

/// Names, as many as there is room for; `selected` where labels decide; `all`.
fn clusters_cell(placement: &Value, _: i64) -> Value {
    const SHOWN: usize = 3;
    let clusters = placement.pointer("/spec/clusters").and_then(Value::as_object);
    let names = clusters.map(|clusters| list(clusters, "names")).unwrap_or_default();
    let mut parts: Vec<&str> = names.iter().take(SHOWN).filter_map(Value::as_str).collect();
    let more = format!("{} more", names.len().saturating_sub(SHOWN));
    if names.len() > SHOWN {
        parts.push(&more);
    }
    if clusters.is_some_and(|clusters| clusters.contains_key("selector")) {
        parts.push("selected");
    }
    match parts.is_empty() {
        true => json!("all"),
        false => json!(parts.join(",")),
    }
}
