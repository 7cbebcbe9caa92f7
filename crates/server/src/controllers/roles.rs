//! A cluster role with an aggregation rule has the rules of all roles that it selects.
//!
//! What a request may do is computed from the selected roles themselves, so nothing waits for this; it makes the
//! object show what holds.

use machinery::{Object, selector::LabelSelector, status::Status};
use serde_json::{Value, json};
use store::{Collection, ItemKey, Key, WorkspaceId};

use super::{Controllers, queue::Work};
use crate::{
    rbac::{GROUP, Rule, rules_of},
    space::Space,
    write,
};

fn collection() -> Collection {
    Collection::new(GROUP, "clusterroles")
}

/// Who depends on whom is not known, so a change of one is looked at for all.
pub fn observe(controllers: &Controllers, workspace: &WorkspaceId, key: &Key) {
    if key.collection == collection() {
        controllers.queue.add(Work::Roles(workspace.clone()));
    }
}

/// Brings every aggregated role of a workspace to what its rule selects. What this changes is looked at again, so
/// that roles that select such roles follow.
pub async fn aggregate(controllers: &Controllers, space: &Space) -> Result<(), Status> {
    let mut outcome = Ok(());
    for (name, uid, rules) in differences(space) {
        let key = Key { collection: collection(), item: ItemKey::new("", &name) };
        let Some(mut context) = controllers.context_for(space, &key) else { return Ok(()) };
        context.manage_as("clusterrole-aggregation-controller");
        context.apply_by_force();
        let config = json!({
            "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1",
            // Of this one: it must not come back if it was deleted meanwhile.
            "metadata": {"name": name, "uid": uid},
            "rules": rules.iter().map(Rule::to_json).collect::<Vec<_>>(),
        });
        // One that cannot be written must not hold up the others.
        if let Err(status) = write::patch(&context, config.to_string().into()).await
            && !matches!(status.code(), 404 | 409)
        {
            outcome = Err(status);
        }
    }
    outcome
}

/// Name, UID and rules of the roles that do not have the rules they should.
fn differences(space: &Space) -> Vec<(String, String, Vec<Rule>)> {
    let listing = space.latest(&collection());
    let all: Vec<(&Object, _)> = listing
        .iter(None, None)
        .filter_map(|(_, object)| Some((object.as_ref(), object.tree().ok()?)))
        .collect();
    let mut different = Vec::new();
    for (object, tree) in &all {
        let Some(rule) = tree.get("aggregationRule").filter(|rule| !rule.is_null()) else { continue };
        let selectors = rule.get("clusterRoleSelectors").and_then(Value::as_array).into_iter().flatten();
        // One selector that cannot be read leaves the role as it is.
        let Ok(selectors) = selectors.map(LabelSelector::from_object).collect::<Result<Vec<_>, _>>() else {
            continue;
        };
        let mut rules: Vec<Rule> = Vec::new();
        for selector in &selectors {
            let selected = all.iter().filter(|(other, _)| {
                other.head.name != object.head.name && selector.matches(&other.head.labels)
            });
            for rule in selected.flat_map(|(_, tree)| rules_of(tree)) {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
        if rules != rules_of(tree) {
            different.push((object.head.name.to_string(), object.head.uid.to_string(), rules));
        }
    }
    different
}
