//! What a federated object becomes: the plain object, which says in an annotation where it is and what differs there.

use machinery::fnv;
use placement::dialect::kubefed_choice;
use serde_json::{Value, json};

use crate::{
    Federated, MANAGED_LABEL,
    federated::Problem,
    types::{FederatedType, Form},
};

/// What of others counts for a federated object.
#[derive(Clone, Debug)]
pub struct World<'a> {
    pub namespace: Namespace<'a>,
    /// The `ReplicaSchedulingPreference` of its name.
    pub preference: Option<&'a Value>,
    /// Objects of its name in members are taken over.
    pub adopts: bool,
}

/// What its namespace allows.
#[derive(Clone, Debug)]
pub enum Namespace<'a> {
    /// The `placement` of the federated namespace.
    Within(&'a Value),
    /// There is none, so that nothing in it is anywhere.
    NotFederated,
    /// It does not count.
    Anywhere,
}

/// The object to be applied in the namespace of the federated one, under its name.
pub fn translate(
    ty: &FederatedType,
    object: &Value,
    federated: &Federated,
    world: &World<'_>,
) -> Result<Value, Problem> {
    let mut plain = match &federated.template {
        template @ Value::Object(_) => template.clone(),
        _ => json!({}),
    };
    let api_version =
        plain["apiVersion"].as_str().filter(|it| !it.is_empty() && group(it) == ty.target_group);
    plain["apiVersion"] = json!(api_version.unwrap_or(&ty.target_api_version));
    plain["kind"] = json!(ty.target_kind);
    let mut said = said(federated, world, &mut plain)?;
    said["edition"] = json!(edition(object, &said));
    plain["metadata"] = metadata(object, &federated.template, &said, world);
    if let Some(plain) = plain.as_object_mut() {
        plain.remove("status");
    }
    Ok(plain)
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn metadata(object: &Value, template: &Value, said: &Value, world: &World<'_>) -> Value {
    let mut labels = template["metadata"]["labels"].clone();
    let mut annotations = template["metadata"]["annotations"].clone();
    for map in [&mut labels, &mut annotations] {
        if !map.is_object() {
            *map = json!({});
        }
    }
    labels[MANAGED_LABEL] = json!("true");
    annotations[api::FEDERATED_ANNOTATION] = json!(said.to_string());
    if world.adopts {
        annotations[api::ADOPT_ANNOTATION] = json!("true");
    }
    let own = &object["metadata"];
    json!({
        "name": own["name"], "namespace": own["namespace"], "labels": labels, "annotations": annotations,
        "ownerReferences": [{
            "apiVersion": object["apiVersion"], "kind": object["kind"], "name": own["name"], "uid": own["uid"],
            "controller": true, "blockOwnerDeletion": true,
        }],
    })
}

/// What the annotation holds; see `placement::dialect::federated`.
fn said(federated: &Federated, world: &World<'_>, plain: &mut Value) -> Result<Value, Problem> {
    let mut said = json!({"placement": federated.placement});
    if said["placement"].is_null() {
        said["placement"] = json!({});
    }
    let mut overrides = federated.overrides.clone();
    if let Some(preference) = world.preference {
        said["placement"] = scheduled_placement(&federated.placement, preference);
        said["preferences"] = preferences(preference);
        plain["spec"]["replicas"] = preference["spec"]["totalReplicas"].clone();
        drop_replicas(&mut overrides);
    }
    match world.namespace {
        Namespace::Anywhere => {}
        Namespace::NotFederated => said["placement"] = json!({}),
        Namespace::Within(placement) => {
            kubefed_choice(placement).map_err(|problem| Problem::Placement(problem.to_string()))?;
            said["namespace"] = placement.clone();
        }
    }
    if overrides.as_array().is_some_and(|it| !it.is_empty()) {
        said["overrides"] = overrides;
    }
    if federated.retains_replicas {
        said["retainReplicas"] = json!(true);
    }
    Ok(said)
}

/// Tells two states of the federated object apart: clusters report by it which of them they have come to. Most kinds have no
/// generation that would tell.
fn edition(object: &Value, said: &Value) -> String {
    let generation = &object["metadata"]["generation"];
    format!("{:016x}", fnv::hash(format!("{generation} {said}").as_bytes()))
}

/// All clusters, unless only those are meant that the federated object selects.
fn scheduled_placement(own: &Value, preference: &Value) -> Value {
    match preference["spec"]["intersectWithClusterSelector"] == true {
        true => json!({"clusterSelector": own["clusterSelector"]}),
        false => json!({"clusterSelector": {}}),
    }
}

fn preferences(preference: &Value) -> Value {
    let spec = &preference["spec"];
    let all_alike = json!({"*": {"weight": 1}});
    let clusters = spec.get("clusters").filter(|it| it.as_object().is_some_and(|it| !it.is_empty()));
    json!({"rebalance": spec["rebalance"] == true, "clusters": clusters.unwrap_or(&all_alike)})
}

/// The plan says how many there are; all else that differs stays.
fn drop_replicas(overrides: &mut Value) {
    let Some(entries) = overrides.as_array_mut() else { return };
    for entry in entries.iter_mut() {
        if let Some(changes) = entry["clusterOverrides"].as_array_mut() {
            changes.retain(|change| change["path"] != "/spec/replicas");
        }
    }
    entries.retain(|entry| entry["clusterOverrides"].as_array().is_some_and(|it| !it.is_empty()));
}

/// Whether what its namespace allows counts for a form. In the first ones it counts if it is said.
pub fn needs_namespace(form: Form) -> bool {
    form == Form::Unified
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TYPES_GROUP, types};

    fn ty() -> FederatedType {
        types::builtin().into_iter().find(|it| it.is_at(TYPES_GROUP, "federateddeployments")).unwrap()
    }

    fn object() -> Value {
        json!({
            "apiVersion": "types.kubefed.io/v1beta1", "kind": "FederatedDeployment",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        })
    }

    fn federated() -> Federated {
        Federated {
            template: json!({
                "metadata": {"name": "other", "labels": {"app": "web"}, "annotations": {"note": "x"}, "finalizers": ["f"]},
                "spec": {"replicas": 5},
            }),
            placement: json!({"clusterSelector": {"matchLabels": {"size": "big"}}}),
            overrides: json!([
                {"clusterName": "a", "clusterOverrides": [{"path": "/spec/replicas", "value": 1}]},
                {"clusterName": "b", "clusterOverrides": [
                    {"path": "/spec/replicas", "value": 1}, {"path": "/spec/paused", "value": true},
                ]},
            ]),
            retains_replicas: true,
        }
    }

    fn translated(world: &World<'_>) -> (Value, Value) {
        let plain = translate(&ty(), &object(), &federated(), world).unwrap();
        let said = plain["metadata"]["annotations"][api::FEDERATED_ANNOTATION].as_str().unwrap();
        let said = serde_json::from_str(said).unwrap();
        (plain, said)
    }

    #[test]
    fn the_plain_object_is_the_template_under_the_federated_name() {
        let (plain, said) =
            translated(&World { namespace: Namespace::Anywhere, preference: None, adopts: true });
        assert_eq!((&plain["apiVersion"], &plain["kind"]), (&json!("apps/v1"), &json!("Deployment")));
        let metadata = &plain["metadata"];
        assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!("web"), &json!("shop")));
        assert_eq!(metadata["labels"], json!({"app": "web", "kubefed.io/managed": "true"}));
        assert_eq!(metadata["annotations"]["note"], "x");
        assert_eq!(metadata["annotations"]["hanse.io/adopt"], "true");
        assert_eq!(metadata["ownerReferences"][0]["uid"], "u");
        assert!(metadata.get("finalizers").is_none());
        assert_eq!(plain["spec"]["replicas"], 5);
        assert_eq!(said["placement"], federated().placement);
        assert_eq!(said["overrides"], federated().overrides);
        assert_eq!(said["retainReplicas"], true);
    }

    #[test]
    fn whatever_changes_makes_another_edition() {
        let edition = |object: &Value, federated: &Federated, world: &World<'_>| {
            let plain = translate(&ty(), object, federated, world).unwrap();
            let said = plain["metadata"]["annotations"][api::FEDERATED_ANNOTATION].as_str().unwrap();
            serde_json::from_str::<Value>(said).unwrap()["edition"].as_str().unwrap().to_owned()
        };
        let world = World { namespace: Namespace::Anywhere, preference: None, adopts: true };
        let first = edition(&object(), &federated(), &world);
        assert_eq!(edition(&object(), &federated(), &world), first);
        let mut later = object();
        later["metadata"]["generation"] = json!(2);
        assert_ne!(edition(&later, &federated(), &world), first, "its template or what it says of clusters");
        let elsewhere = Federated { placement: json!({"clusters": []}), ..federated() };
        assert_ne!(edition(&object(), &elsewhere, &world), first, "a placement beside it");
        let alike = Federated { overrides: json!([]), ..federated() };
        assert_ne!(edition(&object(), &alike, &world), first, "overrides beside it");
        let within = json!({"clusters": [{"name": "a"}]});
        let world = World { namespace: Namespace::Within(&within), preference: None, adopts: true };
        assert_ne!(edition(&object(), &federated(), &world), first, "its namespace");
    }

    #[test]
    fn a_scheduling_preference_decides_replicas_and_clusters() {
        let mut preference = json!({"spec": {"totalReplicas": 9, "rebalance": true}});
        let world = World { namespace: Namespace::Anywhere, preference: Some(&preference), adopts: false };
        let (plain, said) = translated(&world);
        assert_eq!(plain["spec"]["replicas"], 9);
        assert_eq!(said["placement"], json!({"clusterSelector": {}}));
        assert_eq!(said["preferences"], json!({"rebalance": true, "clusters": {"*": {"weight": 1}}}));
        let kept =
            json!([{"clusterName": "b", "clusterOverrides": [{"path": "/spec/paused", "value": true}]}]);
        assert_eq!(said["overrides"], kept, "only replicas are the plan's");
        preference["spec"]["intersectWithClusterSelector"] = json!(true);
        let world = World { namespace: Namespace::Anywhere, preference: Some(&preference), adopts: false };
        assert_eq!(translated(&world).1["placement"], federated().placement);
    }

    #[test]
    fn a_namespace_that_is_not_federated_has_nothing_anywhere() {
        let world = World { namespace: Namespace::NotFederated, preference: None, adopts: false };
        assert_eq!(translated(&world).1["placement"], json!({}));
        let within = json!({"clusters": [{"name": "a"}]});
        let world = World { namespace: Namespace::Within(&within), preference: None, adopts: false };
        assert_eq!(translated(&world).1["namespace"], within);
    }
}
