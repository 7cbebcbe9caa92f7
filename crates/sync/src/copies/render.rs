//! The copy of an object that one cluster gets.

use std::collections::BTreeMap;

use api::assignment::{State, Target};
use kinds::{Kind, Pods, Problem, Share, Split, overrides::Change};
use serde_json::{Map, Value, json};

/// All that a copy is made from.
pub struct Recipe<'a> {
    pub kind: &'a Kind,
    /// The hub's.
    pub object: &'a Value,
    /// All clusters that it is assigned to.
    pub targets: &'a [Target],
    /// The one that the copy is for.
    pub own: &'a Target,
    /// In the order in which they are made.
    pub changes: &'a [&'a [Change]],
    /// The name of the workspace, and its id.
    pub workspace: (&'a str, &'a str),
    /// In the member; empty for a namespace itself.
    pub namespace: &'a str,
    /// In the member.
    pub name: &'a str,
    pub source_uid: &'a str,
    /// What the member said of it last.
    pub status: &'a Value,
}

/// `None`: this cluster gets none of it.
pub fn render(recipe: &Recipe<'_>) -> Result<Option<Value>, Problem> {
    let shares = shares(recipe);
    // A share that is not said is all of it.
    let whole = kinds::generic(None);
    let kind = match recipe.kind.split {
        Split::Budget if recipe.own.replicas.is_none() => &whole,
        _ => recipe.kind,
    };
    let Some(mut copy) = kind.split_for(recipe.object, &shares, &recipe.own.name)? else {
        return Ok(None);
    };
    for changes in recipe.changes {
        kinds::overrides::apply(&mut copy, changes)?;
    }
    recipe.kind.stop_if_failing(recipe.object, recipe.status, &mut copy);
    finish(&mut copy, recipe);
    if let Pods::Template(path) = recipe.kind.pods {
        disclaim(&mut copy, path);
    }
    Ok(Some(copy))
}

/// Of those that stay; one that is to go has its own beside nobody's.
fn shares(recipe: &Recipe<'_>) -> BTreeMap<String, Share> {
    let wanted = recipe.kind.wanted(recipe.object).unwrap_or(0);
    let share = |target: &Target| Share {
        replicas: target.replicas.unwrap_or(wanted),
        overflow: target.overflow,
        completions: target.completions,
        run: target.run,
        ordinals: target.first_ordinal,
        min: target.min,
        max: target.max,
    };
    let named = |target: &Target| (target.name.clone(), share(target));
    match recipe.own.state {
        State::Draining => BTreeMap::from([named(recipe.own)]),
        _ => recipe.targets.iter().filter(|target| target.state != State::Draining).map(named).collect(),
    }
}

fn is_own(key: &str) -> bool {
    key.strip_prefix(api::GROUP).is_some_and(|rest| rest.starts_with('/')) || placement::dialect::is_read(key)
}

/// Whatever was said before: whose it is, and where.
fn finish(copy: &mut Value, recipe: &Recipe<'_>) {
    let (api_version, kind) = (recipe.object["apiVersion"].clone(), recipe.object["kind"].clone());
    let Some(copy) = copy.as_object_mut() else { return };
    copy.insert("apiVersion".into(), api_version);
    copy.insert("kind".into(), kind);
    copy.remove("status");
    let metadata = copy.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    let Some(metadata) = metadata.as_object_mut() else { return };
    for key in ["uid", "resourceVersion", "managedFields", "ownerReferences", "finalizers", "generateName"] {
        metadata.remove(key);
    }
    metadata.insert("name".into(), json!(recipe.name));
    match recipe.namespace.is_empty() {
        true => drop(metadata.remove("namespace")),
        false => drop(metadata.insert("namespace".into(), json!(recipe.namespace))),
    }
    let mut labels = without_own(metadata.remove("labels"));
    labels.insert(api::WORKSPACE_LABEL.into(), json!(recipe.workspace.0));
    labels.insert(api::WORKSPACE_ID_LABEL.into(), json!(recipe.workspace.1));
    let has_other_name = recipe.namespace.is_empty() && recipe.object["metadata"]["name"] != recipe.name;
    if has_other_name {
        labels.insert(api::NAMESPACE_LABEL.into(), recipe.object["metadata"]["name"].clone());
    }
    if recipe.object["metadata"]["annotations"][api::FEDERATED_ANNOTATION].is_string() {
        // As in KubeFed. A "false" is the member's to say, and whoever unjoins finds copies by a "true".
        labels.insert(dialects::MANAGED_LABEL.into(), json!("true"));
    }
    metadata.insert("labels".into(), Value::Object(labels));
    let mut annotations = without_own(metadata.remove("annotations"));
    annotations.insert(api::SOURCE_ANNOTATION.into(), json!(recipe.source_uid));
    if recipe.own.run > 0 {
        annotations.insert(api::RUN_ANNOTATION.into(), json!(recipe.own.run.to_string()));
    }
    metadata.insert("annotations".into(), Value::Object(annotations));
}

/// Takes out of a template what only copies may say of themselves: pods that are made from it are no copies of anything.
fn disclaim(copy: &mut Value, template: &str) {
    for map in ["labels", "annotations"] {
        let pointer = format!("/{}/metadata/{map}", template.replace('.', "/"));
        let Some(map) = copy.pointer_mut(&pointer).and_then(Value::as_object_mut) else { continue };
        for key in
            [api::WORKSPACE_LABEL, api::WORKSPACE_ID_LABEL, api::NAMESPACE_LABEL, api::SOURCE_ANNOTATION]
        {
            map.remove(key);
        }
    }
}

/// Labels or annotations, without those that Hanse gave a meaning in the hub.
fn without_own(map: Option<Value>) -> Map<String, Value> {
    let Some(Value::Object(mut map)) = map else { return Map::new() };
    map.retain(|key, _| !is_own(key));
    map
}

#[cfg(test)]
mod tests {
    use dialects::translate::{Namespace, World, translate};

    use super::*;

    fn target(name: &str, state: State, replicas: Option<u64>) -> Target {
        Target { name: name.into(), uid: format!("{name}-uid"), state, replicas, ..Target::default() }
    }

    fn deployment() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3,
                "labels": {"app": "web", "hanse.io/wave": "1"},
                "annotations": {
                    "note": "x", "hanse.io/clusters": "a,b",
                    "federation.alpha.kubernetes.io/cluster-selector": "[]",
                },
                "ownerReferences": [{}], "finalizers": ["f"], "managedFields": [{}],
            },
            "spec": {"replicas": 5, "template": {"metadata": {"labels": {"hanse.io/kept": "yes"}}}},
            "status": {"replicas": 1},
        })
    }

    fn rendered(targets: &[Target], own: usize, changes: &[&[Change]]) -> Result<Option<Value>, Problem> {
        let (object, kind) = (deployment(), kinds::of("apps", "Deployment"));
        render(&Recipe {
            kind: &kind,
            object: &object,
            targets,
            own: &targets[own],
            changes,
            workspace: ("team", "0123"),
            namespace: "team-shop",
            name: "web",
            source_uid: "u",
            status: &Value::Null,
        })
    }

    #[test]
    fn a_copy_has_its_share_and_says_whose_it_is() {
        let targets = [target("a", State::Assigned, Some(3)), target("b", State::Ready, Some(2))];
        let copy = rendered(&targets, 1, &[]).unwrap().unwrap();
        assert_eq!(
            copy,
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {
                    "name": "web", "namespace": "team-shop",
                    "labels": {"app": "web", "hanse.io/workspace": "team", "hanse.io/workspace-id": "0123"},
                    "annotations": {"note": "x", "hanse.io/source-uid": "u"},
                },
                "spec": {"replicas": 2, "template": {"metadata": {"labels": {"hanse.io/kept": "yes"}}}},
            })
        );
    }

    #[test]
    fn one_that_is_to_go_keeps_its_own_share() {
        let targets = [target("a", State::Assigned, Some(5)), target("b", State::Draining, Some(2))];
        assert_eq!(rendered(&targets, 0, &[]).unwrap().unwrap()["spec"]["replicas"], 5);
        assert_eq!(rendered(&targets, 1, &[]).unwrap().unwrap()["spec"]["replicas"], 2);
    }

    #[test]
    fn a_share_that_is_not_said_is_all_of_it() {
        let targets = [target("a", State::Assigned, None)];
        assert_eq!(rendered(&targets, 0, &[]).unwrap().unwrap()["spec"]["replicas"], 5);
    }

    #[test]
    fn overrides_are_made_and_cannot_hide_whose_it_is() {
        let change = |operation: &str, path: &str, value: Value| Change {
            operation: operation.into(),
            path: path.into(),
            value,
        };
        let targets = [target("a", State::Assigned, Some(1))];
        let first = [change("replace", "/spec/replicas", json!(7))];
        let second = [
            change("replace", "/spec/replicas", json!(8)),
            change("add", "/metadata/labels/hanse.io~1workspace", json!("other")),
            change("replace", "/metadata/name", json!("other")),
        ];
        let copy = rendered(&targets, 0, &[&first, &second]).unwrap().unwrap();
        assert_eq!((&copy["spec"]["replicas"], &copy["metadata"]["name"]), (&json!(8), &json!("web")));
        assert_eq!(copy["metadata"]["labels"][api::WORKSPACE_LABEL], "team");
        let missing = [change("replace", "/spec/paused", json!(true))];
        assert!(rendered(&targets, 0, &[&missing]).is_err(), "there is nothing to replace");
    }

    /// KubeFed's own case, and the ways in which an override can say so.
    #[test]
    fn a_federated_copy_is_managed_whatever_its_template_and_overrides_say() {
        let vectors: Value =
            serde_json::from_str(include_str!("../../../kinds/tests/data/kubefed.json")).unwrap();
        let cases = vectors["overrides"]["cases"].as_array().unwrap().iter();
        let mut rows: Vec<(Value, Value, Value)> = cases
            .filter(|case| case.get("expectLabels").is_some())
            .map(|case| (case["template"].clone(), case["overrides"].clone(), case["expectLabels"].clone()))
            .collect();
        assert_eq!(rows.len(), 1);
        let (labelled, managed) =
            (json!({"metadata": {"labels": {"app": "web"}}}), "/metadata/labels/kubefed.io~1managed");
        let (both, one) =
            (json!({"app": "web", "kubefed.io/managed": "true"}), json!({"kubefed.io/managed": "true"}));
        rows.extend([
            (labelled.clone(), json!([{"op": "add", "path": managed, "value": "false"}]), both.clone()),
            (labelled.clone(), json!([{"path": managed, "value": "false"}]), both.clone()),
            (labelled.clone(), json!([{"op": "remove", "path": managed}]), both),
            (labelled.clone(), json!([{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]), {
                json!({"x": "y", "kubefed.io/managed": "true"})
            }),
            (labelled, json!([{"op": "remove", "path": "/metadata/labels"}]), one),
        ]);
        let types = dialects::types::builtin();
        let ty = types.iter().find(|it| it.is_at(dialects::TYPES_GROUP, "federatedconfigmaps")).unwrap();
        let whole = json!({"metadata": {"name": "settings", "namespace": "shop", "uid": "u"}});
        let targets = [target("a", State::Assigned, None)];
        for (template, changes, mut expected) in rows {
            let overrides = json!([{"clusterName": "a", "clusterOverrides": changes}]);
            let federated = dialects::Federated { template, overrides, ..dialects::Federated::default() };
            let world = World { namespace: Namespace::Anywhere, preference: None, adopts: false };
            let object = translate(ty, &whole, &federated, &world).unwrap();
            let changes = kinds::overrides::read(&federated.overrides).unwrap();
            let copy = render(&Recipe {
                kind: &kinds::of("", "ConfigMap"),
                object: &object,
                targets: &targets,
                own: &targets[0],
                changes: &[&changes["a"]],
                workspace: ("team", "0123"),
                namespace: "shop",
                name: "settings",
                source_uid: "u",
                status: &Value::Null,
            });
            expected[api::WORKSPACE_LABEL] = json!("team");
            expected[api::WORKSPACE_ID_LABEL] = json!("0123");
            assert_eq!(copy.unwrap().unwrap()["metadata"]["labels"], expected, "{changes:?}");
        }
        // Of others the label is a label like any other.
        let change = Change {
            operation: "add".into(),
            path: "/metadata/labels/kubefed.io~1managed".into(),
            value: json!("x"),
        };
        let copy = rendered(&targets, 0, &[&[change]]).unwrap().unwrap();
        assert_eq!(copy["metadata"]["labels"]["kubefed.io/managed"], "x");
    }

    #[test]
    fn pods_made_from_a_template_cannot_say_that_they_are_copies() {
        let metadata = json!({
            "labels": {
                "app": "web", "hanse.io/workspace": "other", "hanse.io/workspace-id": "x", "hanse.io/kept": "yes",
            },
            "annotations": {"note": "x", "hanse.io/source-uid": "another's"},
        });
        let left = json!({"labels": {"app": "web", "hanse.io/kept": "yes"}, "annotations": {"note": "x"}});
        let template = json!({"metadata": metadata, "spec": {}});
        let rows = [
            ("apps", "Deployment", json!({"template": template}), "/spec/template"),
            ("apps", "StatefulSet", json!({"template": template}), "/spec/template"),
            (
                "batch",
                "CronJob",
                json!({"jobTemplate": {"spec": {"template": template}}}),
                "/spec/jobTemplate/spec/template",
            ),
        ];
        let targets = [target("a", State::Assigned, None)];
        for (group, name, spec, path) in rows {
            let object = json!({"kind": name, "metadata": {"name": "web", "uid": "u"}, "spec": spec});
            let recipe = Recipe {
                kind: &kinds::of(group, name),
                object: &object,
                targets: &targets,
                own: &targets[0],
                changes: &[],
                workspace: ("team", "0123"),
                namespace: "shop",
                name: "web",
                source_uid: "u",
                status: &Value::Null,
            };
            let copy = render(&recipe).unwrap().unwrap();
            assert_eq!(copy.pointer(path).unwrap()["metadata"], left, "{name}");
        }
    }

    #[test]
    fn a_namespace_with_another_name_says_which_it_is() {
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "uid": "u", "labels": {
                "kubernetes.io/metadata.name": "shop", "pod-security.kubernetes.io/enforce": "baseline",
            }},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        });
        let (targets, kind) = ([target("a", State::Assigned, None)], kinds::of("", "Namespace"));
        let recipe = |name| Recipe {
            kind: &kind,
            object: &object,
            targets: &targets,
            own: &targets[0],
            changes: &[],
            workspace: ("team", "0123"),
            namespace: "",
            name,
            source_uid: "u",
            status: &Value::Null,
        };
        let copy = render(&recipe("team-shop")).unwrap().unwrap();
        assert_eq!(
            copy["metadata"],
            json!({
                "name": "team-shop", "annotations": {"hanse.io/source-uid": "u"},
                "labels": {
                    "pod-security.kubernetes.io/enforce": "baseline",
                    "hanse.io/workspace": "team", "hanse.io/workspace-id": "0123",
                    "hanse.io/namespace": "shop",
                },
            })
        );
        let same = render(&recipe("shop")).unwrap().unwrap();
        assert_eq!(same["metadata"]["labels"].get(api::NAMESPACE_LABEL), None);
    }
}
