//! What a federated object becomes: the plain object, which says in an annotation where it is and what differs there.

use machinery::{admission::pod_security, fnv};
use placement::dialect::kubefed_choice;
use serde_json::{Map, Value, json};

use crate::{
    Federated, MANAGED_LABEL, ORPHAN_ANNOTATION,
    federated::Problem,
    types::{FederatedType, Form},
};

/// What the annotation on a plain object says whose copies stay.
pub const KEEP: &str = "Keep";

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
    if orphans(object) {
        // It may be deleted before its federated object is, such as with its namespace.
        annotations[api::ON_DELETE_ANNOTATION] = json!(KEEP);
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

/// Labels that a federated namespace has for its namespace, but for those that say what pods may do there: it is written inside,
/// by those who are bound by them.
pub fn namespace_labels(object: &Value) -> Map<String, Value> {
    let labels = object["spec"]["template"]["metadata"]["labels"].as_object().into_iter().flatten();
    let own = labels.filter(|(key, _)| !key.starts_with(pod_security::PREFIX));
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Labels of pod security that a namespace has from when its federated namespace set them: they stay, whatever that says now,
/// or whoever is bound by one could lift it there. `owns`: nobody else has given it the label.
pub fn kept_pod_security(namespace: &Value, owns: impl Fn(&str) -> bool) -> Map<String, Value> {
    let labels = namespace["metadata"]["labels"].as_object().into_iter().flatten();
    let kept = labels.filter(|(key, _)| key.starts_with(pod_security::PREFIX) && owns(key));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// What of pod security a federated namespace asks for in vain, in words; empty: nothing.
pub fn left_out(object: &Value, namespace: &Value) -> String {
    let labels = object["spec"]["template"]["metadata"]["labels"].as_object().into_iter().flatten();
    let is_left_out = |key: &str, value: &Value| {
        key.starts_with(pod_security::PREFIX) && namespace["metadata"]["labels"].get(key) != Some(value)
    };
    let keys: Vec<&str> =
        labels.filter(|(key, value)| is_left_out(key, value)).map(|(key, _)| key.as_str()).collect();
    if keys.is_empty() {
        return String::new();
    }
    format!("labels of pod security are not set from here, but on the Namespace itself: {}", keys.join(", "))
}

/// Whether copies of a federated object are left where they are when it is deleted.
pub fn orphans(object: &Value) -> bool {
    object["metadata"]["annotations"][ORPHAN_ANNOTATION] == "true"
}

/// Whether copies of a plain object stay because of what its federated object says. `owns`: that has given it its annotation,
/// and nobody else.
pub fn keeps(object: &Value, plain: &Value, owns: bool) -> bool {
    let says_so = |object: &Value| object["metadata"]["annotations"][api::ON_DELETE_ANNOTATION] == KEEP;
    orphans(object) || says_so(&object["spec"]["template"]) || (says_so(plain) && !owns)
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
        put_replicas(plain, preference)?;
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

fn put_replicas(plain: &mut Value, preference: &Value) -> Result<(), Problem> {
    let no_object = || Problem::Template("the spec of the template is no object".to_owned());
    let spec = plain.as_object_mut().ok_or_else(no_object)?.entry("spec").or_insert(Value::Null);
    if spec.is_null() {
        *spec = json!({});
    }
    let replicas = preference["spec"]["totalReplicas"].clone();
    spec.as_object_mut().ok_or_else(no_object)?.insert("replicas".to_owned(), replicas);
    Ok(())
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
        if let Some(changes) = entry.get_mut("clusterOverrides").and_then(Value::as_array_mut) {
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
    fn the_plain_object_says_whether_its_copies_stay() {
        let world = World { namespace: Namespace::Anywhere, preference: None, adopts: true };
        let said = |object: &Value, federated: &Federated| {
            let plain = translate(&ty(), object, federated, &world).unwrap();
            plain["metadata"]["annotations"][api::ON_DELETE_ANNOTATION].clone()
        };
        let mut object = object();
        assert_eq!(said(&object, &federated()), Value::Null);
        object["metadata"]["annotations"] = json!({ORPHAN_ANNOTATION: "true"});
        assert_eq!(said(&object, &federated()), KEEP);
        object["metadata"]["annotations"] = json!({ORPHAN_ANNOTATION: "false"});
        assert_eq!(said(&object, &federated()), Value::Null, "it is taken away again");
        let mut own = federated();
        own.template["metadata"]["annotations"][api::ON_DELETE_ANNOTATION] = json!(KEEP);
        assert_eq!(said(&object, &own), KEEP, "whatever the template says is kept");
    }

    #[test]
    fn who_is_bound_by_pod_security_does_not_set_it() {
        let labels = json!({"team": "a", "pod-security.kubernetes.io/enforce": "privileged"});
        let object = json!({"spec": {"template": {"metadata": {"labels": labels}}}});
        assert_eq!(Value::Object(namespace_labels(&object)), json!({"team": "a"}));
        for odd in [json!({}), json!({"spec": {"template": {"metadata": {"labels": "all"}}}})] {
            assert!(namespace_labels(&odd).is_empty());
        }
    }

    #[test]
    fn pod_security_that_was_set_once_is_not_lifted() {
        let (enforce, audit) = ("pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/audit");
        let namespace =
            json!({"metadata": {"labels": {enforce: "restricted", audit: "baseline", "team": "a"}}});
        let kept = kept_pod_security(&namespace, |key| key != audit);
        assert_eq!(Value::Object(kept), json!({enforce: "restricted"}), "others look after theirs");
        for odd in [json!({}), json!({"metadata": {"labels": "all"}})] {
            assert!(kept_pod_security(&odd, |_| true).is_empty());
        }
        let asking = |labels: Value| json!({"spec": {"template": {"metadata": {"labels": labels}}}});
        assert_eq!(left_out(&asking(json!({enforce: "restricted", "team": "b"})), &namespace), "");
        let told = left_out(&asking(json!({enforce: "privileged", audit: "baseline"})), &namespace);
        assert!(told.contains(enforce) && !told.contains(audit), "{told}");
    }

    /// An annotation that was only taken over from the federated object goes with what it said; what somebody wrote stays.
    #[test]
    fn copies_stay_for_whoever_said_so() {
        let orphan = json!({"metadata": {"annotations": {ORPHAN_ANNOTATION: "true"}}});
        let said = json!({"metadata": {"annotations": {api::ON_DELETE_ANNOTATION: KEEP}}});
        let template = json!({"spec": {"template": said}});
        let none = json!({"metadata": {"annotations": {ORPHAN_ANNOTATION: "false"}}});
        let rows = [
            (&orphan, &none, true, true),
            (&template, &said, true, true),
            (&none, &said, false, true),
            (&none, &said, true, false),
            (&none, &none, false, false),
        ];
        for (object, plain, owns, stays) in rows {
            assert_eq!(keeps(object, plain, owns), stays, "{object} {plain} {owns}");
        }
    }

    #[test]
    fn replicas_have_no_place_in_what_is_no_object() {
        let preference = json!({"spec": {"totalReplicas": 9}});
        let world = World { namespace: Namespace::Anywhere, preference: Some(&preference), adopts: false };
        for spec in [json!("none"), json!(["a"]), json!(7), json!(true)] {
            let wrong = Federated { template: json!({"spec": spec}), ..federated() };
            let problem = translate(&ty(), &object(), &wrong, &world).unwrap_err();
            assert!(matches!(&problem, Problem::Template(why) if why.contains("spec")), "{problem}");
        }
        for template in [json!({"spec": null}), json!({}), Value::Null] {
            let empty = Federated { template, ..federated() };
            assert_eq!(translate(&ty(), &object(), &empty, &world).unwrap()["spec"], json!({"replicas": 9}));
        }
        let odd = json!(["a", 7, null, [], {"clusterName": "b", "clusterOverrides": "none"}]);
        let odd = Federated { overrides: odd, ..federated() };
        assert!(translate(&ty(), &object(), &odd, &world).is_ok(), "they are refused where they are read");
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
