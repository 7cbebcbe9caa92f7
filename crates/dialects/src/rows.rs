//! The kinds, as rows beside the built-in ones: one table for all workspaces, which costs those nothing that do not use it.

use std::sync::LazyLock;

use api::AGE;
use machinery::{
    field_error::Cause,
    resource::{Cell, Column, Row, Subresource, Tree},
    validation::parts::{Path, object, text},
};
use serde_json::{Value, json};

use crate::{
    CORE_GROUP, DELETE_OPTION_ANNOTATION, DOTTED_GROUP, REGISTRY_GROUP, SCHEDULING_GROUP, TYPED_GROUP,
    TYPES_GROUP, delete_option, members, schema,
    types::{self, TARGETS, Target},
};

/// Every kind of a dialect.
pub fn rows() -> &'static [Row] {
    static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
        let mut rows: Vec<Row> = TARGETS.iter().flat_map(federated).collect();
        rows.extend([scheduling_preference(), type_config(), config(), member(), registered()]);
        rows
    });
    &ROWS
}

const fn column(name: &'static str, description: &'static str, cell: Cell) -> Column {
    Column { name, kind: "string", format: "", description, priority: 0, cell }
}

const NAME: Column = Column { format: "name", ..column("Name", "The name.", Cell::Name) };

const FEDERATED_COLUMNS: &[Column] = &[
    NAME,
    column("Propagated", "Whether all clusters have it as they should.", Cell::Compute(propagated)),
    column("Clusters", "How many clusters have it, of those that should.", Cell::Compute(reached)),
    AGE,
];

fn propagated(object: &Value, _: i64) -> Value {
    let condition = &object["status"]["conditions"][0];
    match condition["reason"].as_str() {
        Some(reason) => json!(reason),
        None => json!(condition["status"].as_str().unwrap_or_default()),
    }
}

fn reached(object: &Value, _: i64) -> Value {
    let clusters = object["status"]["clusters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let well = clusters.iter().filter(|it| it["status"].as_str().unwrap_or_default().is_empty()).count();
    json!(format!("{well}/{}", clusters.len()))
}

/// Rows want names that live as long as the process, and these are made once in it.
fn lasting(name: String) -> &'static str {
    Box::leak(name.into_boxed_str())
}

fn row(group: &'static str, version: &'static str, kind: String, plural: String) -> Row {
    let (kind, plural) = (lasting(kind), lasting(plural));
    let subresources = Box::leak(Box::new([Subresource::status(kind, group, version)]));
    Row {
        group,
        version,
        kind,
        plural,
        singular: lasting(kind.to_lowercase()),
        subresources,
        columns: &[NAME, AGE],
        generation: true,
        ..Row::PLAIN
    }
}

/// In all forms that there were of it.
fn federated(target: &Target) -> Vec<Row> {
    let kind = format!("Federated{}", target.kind);
    let plural = format!("federated{}", target.plural);
    let is_scalable = kinds::of(target.group, target.kind).replicas() == Some("spec.replicas");
    let mut rows = vec![Row {
        short_names: short_names(target.kind),
        categories: &["federated"],
        columns: FEDERATED_COLUMNS,
        schema: Some(if is_scalable { schema::scalable } else { schema::unified }),
        validate: check_unified,
        ..row(TYPES_GROUP, "v1beta1", kind.clone(), plural.clone())
    }];
    if target.typed.is_none() {
        return rows;
    }
    for group in [TYPED_GROUP, DOTTED_GROUP] {
        rows.push(Row {
            columns: FEDERATED_COLUMNS,
            schema: Some(schema::template_alone),
            validate: check_delete_option,
            ..row(group, "v1alpha1", kind.clone(), plural.clone())
        });
        rows.push(Row {
            schema: Some(schema::placement_alone),
            validate: |new, _| object(new, "spec").map(check_selector).unwrap_or_default(),
            ..row(group, "v1alpha1", format!("{kind}Placement"), format!("{}placements", kind.to_lowercase()))
        });
        let shape = if group == TYPED_GROUP { schema::typed_override } else { schema::dotted_override };
        rows.push(Row {
            schema: Some(shape),
            ..row(group, "v1alpha1", format!("{kind}Override"), format!("{}overrides", kind.to_lowercase()))
        });
    }
    rows
}

/// Those of the kind itself, with an f before them.
fn short_names(kind: &str) -> &'static [&'static str] {
    match kind {
        "ConfigMap" => &["fcm"],
        "Service" => &["fsvc"],
        "ServiceAccount" => &["fsa"],
        "Deployment" => &["fdeploy"],
        "ReplicaSet" => &["frs"],
        "Ingress" => &["fing"],
        "DaemonSet" => &["fds"],
        "StatefulSet" => &["fsts"],
        "CronJob" => &["fcj"],
        "HorizontalPodAutoscaler" => &["fhpa"],
        "PersistentVolumeClaim" => &["fpvc"],
        "Namespace" => &["fns"],
        _ => &[],
    }
}

fn check_unified(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let mut causes = check_delete_option(new, old);
    let Some(spec) = object(new, "spec") else { return causes };
    if let Some(overrides) = spec.get("overrides")
        && let Err(problem) = kinds::overrides::read(overrides)
    {
        causes.push(Cause::forbidden("spec.overrides", &problem.to_string()));
    }
    if let Some(placement) = object(spec, "placement") {
        causes.extend(check_selector(placement));
    }
    causes
}

/// One that was stored before it was looked at does not stand in the way of other changes.
fn check_delete_option(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let annotations =
        |tree: &Tree| tree.get("metadata").map(|it| it["annotations"].clone()).unwrap_or_default();
    let asked = annotations(new);
    let is_as_before =
        old.is_some_and(|old| annotations(old)[DELETE_OPTION_ANNOTATION] == asked[DELETE_OPTION_ANNOTATION]);
    let problem = delete_option(&asked).err().filter(|_| !is_as_before);
    let path = format!("metadata.annotations[{DELETE_OPTION_ANNOTATION}]");
    problem.map(|why| Cause::invalid(path, &asked[DELETE_OPTION_ANNOTATION], &why)).into_iter().collect()
}

fn check_selector(placement: &Tree) -> Vec<Cause> {
    let problem = placement::dialect::kubefed_choice(&Value::Object(placement.clone())).err();
    let cause = |problem: placement::Problem| {
        let value = placement.get("clusterSelector").cloned().unwrap_or_default();
        Cause::invalid("spec.placement.clusterSelector", &value, &problem.to_string())
    };
    problem.map(cause).into_iter().collect()
}

fn scheduling_preference() -> Row {
    Row {
        short_names: &["rsp"],
        columns: const {
            &[
                NAME,
                column("Target", "The kind that it is for.", Cell::Path(".spec.targetKind")),
                column("Replicas", "How many there are to be.", Cell::Path(".spec.totalReplicas")),
                column("Unplaced", "How many have no place.", Cell::Path(".status.unplaced")),
                AGE,
            ]
        },
        schema: Some(schema::scheduling_preference),
        validate: check_preferences,
        ..row(
            SCHEDULING_GROUP,
            "v1alpha1",
            "ReplicaSchedulingPreference".into(),
            "replicaschedulingpreferences".into(),
        )
    }
}

fn check_preferences(new: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    let Some(clusters) = object(new, "spec").and_then(|spec| object(spec, "clusters")) else {
        return Vec::new();
    };
    let path = Path::new("spec");
    let path = path.child("clusters");
    let mut causes = Vec::new();
    for (name, entry) in clusters {
        if let (Some(min), Some(max)) = (entry["minReplicas"].as_i64(), entry["maxReplicas"].as_i64())
            && min > max
        {
            let path = path.child(name);
            causes.push(Cause::invalid(
                &path.child("maxReplicas"),
                &json!(max),
                "must not be smaller than minReplicas",
            ));
        }
    }
    causes
}

fn type_config() -> Row {
    Row {
        short_names: &["ftc"],
        schema: Some(schema::type_config),
        validate: check_type_config,
        ..row(CORE_GROUP, "v1beta1", "FederatedTypeConfig".into(), "federatedtypeconfigs".into())
    }
}

fn check_type_config(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let mut causes = check_name_of_config(new);
    causes.extend(check_federated_group(new, old));
    causes
}

/// One that was stored before it was looked at does not stand in the way of other changes.
fn check_federated_group(new: &Tree, old: Option<&Tree>) -> Option<Cause> {
    let refused = |tree: &Tree| {
        let (group, plural) = types::federated_kind(&Value::Object(tree.clone()));
        types::refusal(&group, &plural).map(|why| (group, why))
    };
    let (group, why) = refused(new)?;
    let was_stored = old.and_then(refused).is_some_and(|(before, _)| before == group);
    (!was_stored).then(|| Cause::invalid("spec.federatedType.group", &json!(group), &why))
}

fn check_name_of_config(new: &Tree) -> Vec<Cause> {
    let Some(target) = object(new, "spec").and_then(|spec| object(spec, "targetType")) else {
        return Vec::new();
    };
    let name = object(new, "metadata").map(|it| text(it, "name")).unwrap_or_default();
    let (plural, group) = (text(target, "pluralName"), text(target, "group"));
    if plural.is_empty() {
        return Vec::new();
    }
    let expected = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    // A group that is left out is the name's.
    if name == expected || (group.is_empty() && name.split('.').next() == Some(plural)) {
        return Vec::new();
    }
    let why = format!("must be {expected:?}, by the target's plural name and group");
    vec![Cause::invalid("metadata.name", &json!(name), &why)]
}

fn config() -> Row {
    Row {
        schema: Some(schema::config),
        validate: |new, old| {
            let scope = |tree: &Tree| object(tree, "spec").map(|spec| text(spec, "scope").to_owned());
            match old.and_then(scope).filter(|it| !it.is_empty()) {
                Some(before) if scope(new).as_deref() != Some(before.as_str()) => {
                    vec![Cause::invalid("spec.scope", &json!(scope(new)), "cannot be changed")]
                }
                _ => Vec::new(),
            }
        },
        ..row(CORE_GROUP, "v1beta1", "KubeFedConfig".into(), "kubefedconfigs".into())
    }
}

fn member() -> Row {
    Row {
        short_names: &["kfc"],
        columns: const {
            &[
                NAME,
                AGE,
                column("Ready", "Whether it can be used.", Cell::Compute(ready)),
                column("Kubernetes-Version", "What it runs.", Cell::Path(".status.kubernetesVersion")),
            ]
        },
        schema: Some(schema::member),
        validate: |new, _| members::check(new),
        ..row(CORE_GROUP, "v1beta1", members::KUBEFED_KIND.into(), members::KUBEFED_PLURAL.into())
    }
}

fn ready(object: &Value, _: i64) -> Value {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    json!(
        conditions
            .iter()
            .find(|it| it["type"] == "Ready")
            .and_then(|it| it["status"].as_str())
            .unwrap_or_default()
    )
}

fn registered() -> Row {
    Row {
        columns: const {
            &[
                NAME,
                column(
                    "Client-CIDR",
                    "Which clients its address is for.",
                    Cell::Compute(|it, _| endpoint(it, "clientCIDR")),
                ),
                column(
                    "Server",
                    "Where it is reached.",
                    Cell::Compute(|it, _| endpoint(it, "serverAddress")),
                ),
                AGE,
            ]
        },
        schema: Some(schema::registered),
        ..row(REGISTRY_GROUP, "v1alpha1", "Cluster".into(), "clusters".into())
    }
}

fn endpoint(cluster: &Value, field: &str) -> Value {
    let first = &cluster["spec"]["kubernetesApiEndpoints"]["serverEndpoints"][0];
    json!(first[field].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_is_served_once() {
        let all: BTreeSet<_> = rows().iter().map(|row| (row.group, row.plural)).collect();
        assert_eq!(all.len(), rows().len());
        assert!(rows().iter().all(|row| crate::is_dialect(row.group)));
    }

    fn refused(kind: &str, object: Value) -> Vec<String> {
        let row = rows().iter().find(|row| row.kind == kind).unwrap();
        api::admit(row, object).err().unwrap_or_default()
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_place() {
        let federated = |spec: Value| json!({"metadata": {"name": "a"}, "spec": spec});
        let entry =
            |changes: Value| json!({"overrides": [{"clusterName": "a", "clusterOverrides": changes}]});
        let made_of = |group: &str| {
            let federated = json!({"group": group});
            json!({"targetType": {"kind": "Widget"}, "federatedType": federated, "propagation": "Enabled"})
        };
        let rows = [
            (
                "FederatedDeployment",
                entry(json!([{"path": "/metadata/name", "value": "x"}])),
                "spec.overrides",
            ),
            (
                "FederatedDeployment",
                entry(json!([{"path": "/spec/a", "value": 1}, {"path": "/spec/a", "value": 2}])),
                "spec.overrides",
            ),
            ("FederatedDeployment", entry(json!([{"op": "move", "path": "/spec/a"}])), "spec.overrides[0]"),
            (
                "FederatedConfigMap",
                json!({"placement": {"clusterSelector": {"matchExpressions": [{"key": "a", "operator": "Nope"}]}}}),
                "spec.placement.clusterSelector",
            ),
            (
                "ReplicaSchedulingPreference",
                json!({"targetKind": "FederatedDeployment", "totalReplicas": -1}),
                "spec.totalReplicas",
            ),
            (
                "ReplicaSchedulingPreference",
                json!({"targetKind": "FederatedDeployment", "totalReplicas": 9, "clusters": {"a": {"minReplicas": 5, "maxReplicas": 4}}}),
                "spec.clusters.a.maxReplicas",
            ),
            (
                "ReplicaSchedulingPreference",
                json!({"targetKind": "FederatedDeployment", "totalReplicas": 9, "clusters": {"a": {"weight": -1}}}),
                "spec.clusters.a.weight",
            ),
            ("FederatedTypeConfig", made_of("apps"), "spec.federatedType.group"),
            ("FederatedTypeConfig", made_of("networking.k8s.io"), "spec.federatedType.group"),
            ("FederatedTypeConfig", made_of(api::GROUP), "spec.federatedType.group"),
            ("FederatedTypeConfig", made_of(CORE_GROUP), "spec.federatedType.group"),
        ];
        for (kind, spec, place) in rows {
            let found = refused(kind, federated(spec.clone()));
            assert!(found.iter().any(|it| it.contains(place)), "{kind} {spec}: {found:?}");
        }
        for group in [TYPES_GROUP, "example.com", ""] {
            let found = refused("FederatedTypeConfig", federated(made_of(group)));
            assert_eq!(found, [] as [String; 0], "{group}");
        }
        for (plural, is_refused) in [("federatedconfigmaps", false), ("federatedwidgets", true)] {
            let mut first_form = made_of(TYPED_GROUP);
            first_form["federatedType"]["pluralName"] = json!(plural);
            let found = refused("FederatedTypeConfig", federated(first_form));
            assert_eq!(!found.is_empty(), is_refused, "{plural}: {found:?}");
        }
        assert_eq!(refused("FederatedConfigMap", federated(json!({}))), [] as [String; 0]);
        assert_eq!(
            refused(
                "FederatedConfigMap",
                federated(json!({"placement": {"clusters": null, "clusterSelector": {}}}))
            ),
            [] as [String; 0]
        );
    }
}
