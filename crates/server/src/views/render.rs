//! From a member's object to how the workspace shows it.

use compact_str::CompactString;
use machinery::{Draft, Object, object::ObjectError, resource::Tree};
use serde_json::{Value, json};
use store::ItemKey;

use super::{kinds::Kind, names};

/// The cluster that an object is in; a label, so that it can be selected by.
pub const CLUSTER: &str = "hanse.io/cluster";
/// The clusters that an object stands for several of, with the replicas of each; an annotation.
pub const REPLICAS: &str = "hanse.io/replicas";
/// What the object is called in its cluster, if that is something else; an annotation.
pub const NAME: &str = "hanse.io/name";
/// The namespace that the object has in its cluster, if that is another one; an annotation.
pub const NAMESPACE: &str = "hanse.io/namespace";
/// The node that a pod runs on in its cluster; an annotation.
pub const NODE: &str = "hanse.io/node";
/// Since when the object was not seen; an annotation.
pub const STALE: &str = "hanse.io/stale";

/// What is said of an object here and not in its cluster.
pub const MARKS: [&str; 6] = [CLUSTER, REPLICAS, NAME, NAMESPACE, NODE, STALE];

/// Labels of pods that hold the UID of their Job.
const OF_JOB: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];

/// Whether a label or annotation is the hub's own, here or in clusters.
pub fn is_own(key: &str) -> bool {
    MARKS.contains(&key)
        || matches!(key, api::SOURCE_ANNOTATION | api::WORKSPACE_LABEL | api::WORKSPACE_ID_LABEL)
}

/// Where an object comes from, and where it shows.
pub struct Shown<'a> {
    pub cluster: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// What is known here of other objects of the same cluster.
pub trait Relations {
    /// The UID that the object with this UID shows by, if that is another one.
    fn uid(&self, uid: &str) -> Option<CompactString>;
    /// Where an object of the cluster shows; `None`: that is not known.
    fn place(&self, kind: &str, namespace: &str, name: &str) -> Option<ItemKey>;
}

/// `tree` is as the member has it. Who set which field there is not kept: it is about half of most objects, and the
/// fields are not set here.
pub fn show(
    kind: Kind,
    mut tree: Tree,
    shown: &Shown<'_>,
    relations: &dyn Relations,
) -> Result<Draft, ObjectError> {
    tree.insert("kind".into(), json!(kind.name()));
    tree.insert("apiVersion".into(), json!(kind.api_version()));
    let home = tree.get("metadata").and_then(|metadata| metadata.get("namespace")).and_then(Value::as_str);
    let home = home.unwrap_or_default().to_owned();
    if kind == Kind::Events {
        for member in ["involvedObject", "related"] {
            relate(&mut tree, member, (&home, shown.namespace), relations);
        }
    }
    let node = (kind == Kind::Pods).then(|| rebind(&mut tree, shown.cluster)).flatten();
    let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Err(ObjectError::Missing("metadata"));
    };
    metadata.remove("managedFields");
    metadata.remove("selfLink");
    let own = metadata.insert("name".into(), json!(shown.name));
    let renamed = own.filter(|own| own != shown.name);
    set(metadata, "labels", CLUSTER, Some(json!(names::label_of(shown.cluster))));
    set(metadata, "annotations", NAME, renamed);
    metadata.insert("namespace".into(), json!(shown.namespace));
    set(metadata, "annotations", NAMESPACE, (home != shown.namespace).then(|| json!(home)));
    set(metadata, "annotations", NODE, node);
    set(metadata, "annotations", STALE, None);
    if kind == Kind::Pods {
        select_by_job(metadata, |uid| relations.uid(uid));
    }
    let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
    for owner in owners.into_iter().flatten() {
        if let Some(uid) = owner["uid"].as_str().and_then(|uid| relations.uid(uid)) {
            owner["uid"] = json!(uid);
        }
    }
    Draft::encode(&tree)
}

/// A Job selects its pods by its UID. Those of a copy name that of the copy: here they are selected by the Job that shows.
fn select_by_job(metadata: &mut Tree, shows_by: impl Fn(&str) -> Option<CompactString>) {
    let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) else { return };
    for key in OF_JOB {
        let uid = labels.get(key).and_then(Value::as_str).and_then(&shows_by);
        if let Some(uid) = uid {
            labels.insert(key.to_owned(), json!(uid));
        }
    }
}

/// The nodes of a workspace are its clusters: whoever looks up the node of a pod, or asks for the pods of a node, finds
/// that. A pod without a node waits for one in its cluster. Answers the node that it has there.
fn rebind(tree: &mut Tree, cluster: &str) -> Option<Value> {
    let node = tree.get_mut("spec")?.get_mut("nodeName")?;
    let is_bound = node.as_str().is_some_and(|node| !node.is_empty());
    is_bound.then(|| std::mem::replace(node, json!(cluster)))
}

/// What an event is about is called here what it shows by. What does not show is at least in the namespace that the
/// event is in, if it was. `moved`: the event's namespace there, and here.
fn relate(tree: &mut Tree, member: &str, moved: (&str, &str), relations: &dyn Relations) {
    let Some(about) = tree.get_mut(member).and_then(Value::as_object_mut) else { return };
    let text = |key: &str| about.get(key).and_then(Value::as_str).unwrap_or_default();
    let place = relations.place(text("kind"), text("namespace"), text("name"));
    let is_near = !moved.0.is_empty() && text("namespace") == moved.0;
    let uid = relations.uid(text("uid"));
    if let Some(place) = place {
        about.insert("name".into(), json!(place.name()));
        about.insert("namespace".into(), json!(place.namespace()));
    } else if is_near {
        about.insert("namespace".into(), json!(moved.1));
    }
    if let Some(uid) = uid {
        about.insert("uid".into(), json!(uid));
    }
}

/// Sets or removes one label or annotation.
pub fn set(metadata: &mut Tree, map: &str, key: &str, value: Option<Value>) {
    match value {
        Some(value) => {
            let entries = metadata.entry(map).or_insert_with(|| json!({}));
            if !entries.is_object() {
                *entries = json!({});
            }
            entries[key] = value;
        }
        None => {
            let Some(entries) = metadata.get_mut(map).and_then(Value::as_object_mut) else { return };
            entries.remove(key);
            if entries.is_empty() {
                metadata.remove(map);
            }
        }
    }
}

/// The object with or without the mark that it was not seen since `since`; `None`: it is so already.
pub fn mark(object: &Object, since: Option<&str>) -> Option<Draft> {
    let mut tree = object.tree().ok()?;
    let marked = tree.get("metadata")?.get("annotations").and_then(|it| it.get(STALE)).is_some();
    if marked == since.is_some() {
        return None;
    }
    set(tree.get_mut("metadata")?.as_object_mut()?, "annotations", STALE, since.map(|since| json!(since)));
    Draft::encode(&tree).ok()
}

/// The object, owned by `to` instead of `from`; `None`: it was not owned by `from`.
pub fn reown(object: &Object, from: &str, to: &str) -> Option<Draft> {
    if !object.head.owners.iter().any(|owner| owner.uid == from) {
        return None;
    }
    let mut tree = object.tree().ok()?;
    let metadata = tree.get_mut("metadata")?.as_object_mut()?;
    select_by_job(metadata, |uid| (uid == from).then(|| to.into()));
    let owners = metadata.get_mut("ownerReferences")?.as_array_mut()?;
    for owner in owners.iter_mut().filter(|owner| owner["uid"] == from) {
        owner["uid"] = json!(to);
    }
    Draft::encode(&tree).ok()
}

/// Whether the object has just this content.
pub fn is_same(object: &Object, draft: &Draft) -> bool {
    object.body_slice().len() == draft.sealed_len(object.revision)
        && object.body_slice() == draft.seal(object.revision, machinery::EventType::Modified).body_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Known;

    impl Relations for Known {
        fn uid(&self, uid: &str) -> Option<CompactString> {
            (uid == "member-deployment").then(|| "hub-deployment".into())
        }

        fn place(&self, kind: &str, _: &str, name: &str) -> Option<ItemKey> {
            (kind == "Pod" && name == "web-0").then(|| ItemKey::new("shop", "web-0-eu-1"))
        }
    }

    fn shown(kind: Kind, object: Value, name: &str) -> Value {
        let Value::Object(tree) = object else { panic!("an object") };
        let draft = show(kind, tree, &Shown { cluster: "eu-1", namespace: "shop", name }, &Known).unwrap();
        serde_json::from_slice(draft.body()).unwrap()
    }

    #[test]
    fn an_object_says_where_it_is_and_what_it_is_called_there() {
        let pod = json!({"metadata": {
            "name": "web-0", "namespace": "shop", "uid": "u1", "resourceVersion": "5", "managedFields": [{}],
            "annotations": {"hanse.io/stale": "long ago"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "member-deployment"},
                {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "u9"},
            ],
        }});
        let mine = shown(Kind::Pods, pod.clone(), "web-0-eu-1");
        assert_eq!((&mine["kind"], &mine["apiVersion"]), (&json!("Pod"), &json!("v1")));
        let metadata = &mine["metadata"];
        assert_eq!(metadata["name"], "web-0-eu-1");
        assert_eq!(metadata["uid"], "u1");
        assert_eq!(metadata["labels"], json!({"hanse.io/cluster": "eu-1"}));
        assert_eq!(metadata["annotations"], json!({"hanse.io/name": "web-0"}));
        assert_eq!(metadata["ownerReferences"][0]["uid"], "hub-deployment");
        assert_eq!(metadata["ownerReferences"][1]["uid"], "u9");
        assert!(metadata["managedFields"].is_null() && metadata["resourceVersion"].is_null());
        let same = shown(Kind::Pods, pod, "web-0");
        assert!(same["metadata"]["annotations"].is_null());
    }

    #[test]
    fn pods_of_a_job_are_selected_by_the_job_that_shows() {
        let labels = |uid: &str| json!({"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid, "job-name": "j"});
        let pod = |uid: &str| {
            json!({"metadata": {
                "name": "j-1", "namespace": "shop", "uid": "u1", "labels": labels(uid),
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid}],
            }})
        };
        let of = |object: &Value| {
            let labels = &object["metadata"]["labels"];
            [&labels["batch.kubernetes.io/controller-uid"], &labels["controller-uid"], &labels["job-name"]]
                .map(Value::clone)
        };
        let mine = shown(Kind::Pods, pod("member-deployment"), "j-1");
        assert_eq!(of(&mine), [json!("hub-deployment"), json!("hub-deployment"), json!("j")]);
        // It may be learnt later of which object the Job is a copy.
        let Value::Object(tree) = shown(Kind::Pods, pod("later"), "j-1") else { panic!("an object") };
        let early =
            Draft::encode(&tree).unwrap().seal(machinery::Revision::BASE, machinery::EventType::Added);
        let owned = reown(&early, "later", "hub-job").unwrap();
        let owned: Value = serde_json::from_slice(owned.body()).unwrap();
        assert_eq!(of(&owned), [json!("hub-job"), json!("hub-job"), json!("j")]);
        assert_eq!(owned["metadata"]["ownerReferences"][0]["uid"], "hub-job");
    }

    #[test]
    fn a_pod_is_on_the_node_of_its_cluster() {
        let rows = [
            (
                json!({"nodeName": "worker-3"}),
                json!({"nodeName": "eu-1"}),
                json!({"hanse.io/node": "worker-3"}),
            ),
            (json!({"nodeName": ""}), json!({"nodeName": ""}), json!(null)),
            (json!({}), json!({}), json!(null)),
            (json!(null), json!(null), json!(null)),
        ];
        for (there, here, annotations) in rows {
            let pod = json!({"metadata": {"name": "web-0", "namespace": "shop", "uid": "u1"}, "spec": there});
            let mine = shown(Kind::Pods, pod, "web-0");
            assert_eq!((&mine["spec"], &mine["metadata"]["annotations"]), (&here, &annotations), "{there}");
        }
    }

    #[test]
    fn an_event_is_about_what_shows_here() {
        let event = json!({
            "metadata": {"name": "e", "namespace": "shop", "uid": "u2"},
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-0", "uid": "u1"},
            "related": {"kind": "Deployment", "name": "web", "uid": "member-deployment"},
        });
        let mine = shown(Kind::Events, event, "e");
        assert_eq!(mine["involvedObject"]["name"], "web-0-eu-1");
        assert_eq!(mine["involvedObject"]["uid"], "u1");
        assert_eq!(mine["related"]["uid"], "hub-deployment");
        assert!(mine["related"]["namespace"].is_null(), "it had none");
    }

    #[test]
    fn what_is_in_a_namespace_of_another_name_says_so() {
        let event = json!({
            "metadata": {"name": "e", "namespace": "acme-shop", "uid": "u2"},
            "involvedObject": {"kind": "Pod", "namespace": "acme-shop", "name": "web-0", "uid": "u1"},
            "related": {"kind": "ConfigMap", "namespace": "acme-shop", "name": "web-0"},
        });
        let mine = shown(Kind::Events, event, "e");
        assert_eq!(mine["metadata"]["namespace"], "shop");
        assert_eq!(mine["metadata"]["annotations"], json!({"hanse.io/namespace": "acme-shop"}));
        assert_eq!(mine["involvedObject"]["namespace"], "shop");
        assert_eq!(mine["related"], json!({"kind": "ConfigMap", "namespace": "shop", "name": "web-0"}));
        let elsewhere = json!({
            "metadata": {"name": "e", "namespace": "acme-shop", "uid": "u2"},
            "involvedObject": {"kind": "ConfigMap", "namespace": "other", "name": "c"},
        });
        assert_eq!(shown(Kind::Events, elsewhere, "e")["involvedObject"]["namespace"], "other");
    }

    #[test]
    fn marks_come_and_go() {
        let Value::Object(tree) = json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": {"x": 1}
        }) else {
            panic!("an object")
        };
        let plain = Draft::encode(&tree).unwrap();
        let sealed = plain.seal(machinery::Revision::BASE, machinery::EventType::Added);
        assert!(mark(&sealed, None).is_none());
        let marked = mark(&sealed, Some("2026-01-01T00:00:00Z")).unwrap();
        let marked = marked.seal(machinery::Revision::BASE, machinery::EventType::Added);
        assert!(!is_same(&marked, &plain));
        assert!(mark(&marked, Some("2026-01-02T00:00:00Z")).is_none(), "the first time stays");
        assert!(is_same(&sealed, &mark(&marked, None).unwrap()));
    }
}
