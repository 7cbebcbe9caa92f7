//! The `Override`s of workspaces, read once for as long as they are the same.

use std::{collections::HashMap, sync::Arc};

use compact_str::CompactString;
use kinds::{Subject, overrides::Change};
use machinery::{Object, Revision};
use parking_lot::Mutex;
use placement::Policy;
use serde_json::Value;
use store::{Collection, Store, WorkspaceId};

pub fn collection() -> Collection {
    Collection::new(api::GROUP, api::overrides::PLURAL)
}

/// An `Override`.
pub struct Override {
    /// What it selects, and in which clusters: those two blocks are a Placement's.
    policy: Policy,
    changes: Vec<Change>,
}

impl Override {
    /// `None`: it makes no sense. The API lets none of these in.
    pub fn read(object: &Object) -> Option<Override> {
        let object = Value::Object(object.tree().ok()?);
        let policy = Policy::read(&object).ok()?;
        let patches = object["spec"]["patches"].as_array().into_iter().flatten();
        let change = |patch: &Value| Change {
            operation: patch["op"].as_str().unwrap_or("replace").to_owned(),
            path: patch["path"].as_str().unwrap_or_default().to_owned(),
            value: patch["value"].clone(),
        };
        Some(Override { policy, changes: patches.map(change).collect() })
    }

    pub fn selects(&self, subject: &Subject, namespace: &Labels) -> bool {
        self.policy.selects(subject, namespace).is_some()
    }
}

pub type Labels = Vec<(CompactString, CompactString)>;

/// Those of one workspace.
type Layer = Arc<Vec<Override>>;

/// Those of all workspaces that have any, and the change they were read after.
#[derive(Default)]
pub struct Overrides(Mutex<HashMap<WorkspaceId, (Revision, Layer)>>);

/// Those that concern an object in a cluster, in the order in which they are made.
pub struct Chosen {
    all: [Layer; 2],
    chosen: Vec<(usize, usize)>,
}

impl Chosen {
    pub fn changes(&self) -> Vec<&[Change]> {
        let one = |(layer, at): &(usize, usize)| {
            self.all.get(*layer).and_then(|all| all.get(*at)).map(|it| it.changes.as_slice())
        };
        self.chosen.iter().filter_map(one).collect()
    }
}

impl Overrides {
    pub fn of(&self, store: &dyn Store, workspace: &WorkspaceId) -> Layer {
        let changed = store.last_change(workspace, &collection());
        if changed == Revision::ZERO {
            return Arc::default();
        }
        if let Some((_, known)) = self.0.lock().get(workspace).filter(|(at, _)| *at == changed) {
            return known.clone();
        }
        let Ok(listing) = store.list(workspace, &collection(), None) else { return Arc::default() };
        let read: Vec<Override> =
            listing.iter(None, None).filter_map(|(_, object)| Override::read(object)).collect();
        let read = Arc::new(read);
        let mut known = self.0.lock();
        // Of workspaces that are gone nothing is asked any more. That is seldom, so it is looked for seldom.
        if known.len().is_power_of_two() {
            known.retain(|id, _| store.last_change(id, &collection()) != Revision::ZERO);
        }
        known.insert(workspace.clone(), (changed, read.clone()));
        read
    }

    /// `layers`: root's, then the workspace's. By priority, then by name; of two that are alike in both, root's is
    /// first.
    pub fn choose(
        layers: [Layer; 2],
        subject: &Subject,
        namespace: &Labels,
        cluster: (&str, &Labels),
    ) -> Chosen {
        let mut chosen: Vec<(i64, String, usize, usize)> = Vec::new();
        for (layer, all) in layers.iter().enumerate() {
            for (at, one) in all.iter().enumerate() {
                if one.selects(subject, namespace) && one.policy.rule.clusters.holds(cluster.0, cluster.1) {
                    chosen.push((one.policy.priority, one.policy.name.clone(), layer, at));
                }
            }
        }
        chosen.sort();
        Chosen { all: layers, chosen: chosen.into_iter().map(|(_, _, layer, at)| (layer, at)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use machinery::{Draft, EventType};
    use serde_json::json;

    use super::*;

    fn mk_override(name: &str, priority: i64, spec: Value) -> Override {
        let mut object = json!({
            "apiVersion": api::API_VERSION, "kind": "Override", "metadata": {"name": name},
            "spec": {"priority": priority, "patches": [{"op": "add", "path": "/data/by", "value": name}]},
        });
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let draft = Draft::encode(object.as_object().unwrap()).unwrap();
        Override::read(&draft.seal(Revision::ZERO, EventType::Added)).unwrap()
    }

    #[test]
    fn those_that_select_the_object_and_the_cluster_are_made_in_order() {
        let everything = json!({"select": [{}]});
        let root = vec![mk_override("b", 0, everything.clone()), mk_override("late", 9, everything.clone())];
        let own = vec![
            mk_override("a", 0, everything),
            mk_override("other", 0, json!({"select": [{"kinds": ["Secret"]}]})),
            mk_override("elsewhere", 0, json!({"select": [{}], "clusters": {"names": ["us"]}})),
            mk_override(
                "labelled",
                1,
                json!({
                    "select": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
                    "clusters": {"selector": {"matchLabels": {"zone": "1"}}},
                }),
            ),
        ];
        let subject = Subject {
            kind: "ConfigMap".into(),
            name: "c".into(),
            labels: [("app".to_owned(), "web".to_owned())].into(),
            ..Subject::default()
        };
        let labels: Labels = vec![("zone".into(), "1".into())];
        let chosen =
            Overrides::choose([Arc::new(root), Arc::new(own)], &subject, &Vec::new(), ("eu", &labels));
        let by: Vec<&Value> = chosen.changes().iter().map(|changes| &changes[0].value).collect();
        assert_eq!(by, ["a", "b", "labelled", "late"]);
    }
}
