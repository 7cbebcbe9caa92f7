//! A cluster role with an aggregation rule has the rules of all roles that it selects.
//!
//! What a request may do is computed from the selected roles themselves, so nothing waits for this; it makes the
//! object show what holds.

use std::collections::HashSet;

use machinery::status::Status;
use serde_json::{Value, json};
use store::{Collection, ItemKey, Key, WorkspaceId};

use super::{After, Controllers, queue::Work};
use crate::{
    rbac::{ClusterRoles, GROUP, Rule},
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

/// Brings every aggregated role of a workspace to what its rule selects. When that changed anything, or did not work,
/// the next look waits: somebody there, such as a webhook, may change it back each time.
pub async fn aggregate(controllers: &Controllers, space: &Space) -> After {
    let roles = ClusterRoles::read(space);
    let limit = controllers.hub.options.max_object_bytes;
    let mut after = After::Done;
    let collecting: Vec<_> = roles.collecting().collect();
    for role in collecting {
        // Every one of them may collect all others.
        tokio::task::yield_now().await;
        let name = role.name();
        let sources = roles.sources(name).unwrap_or_default();
        let Some(rules) = sum(sources.into_iter().flat_map(|some| some.iter()), limit) else {
            tracing::warn!(workspace = %space.id(), role = name, "selects more rules than fit in an object");
            continue;
        };
        if rules.iter().copied().eq(role.rules().iter()) {
            continue;
        }
        // One that cannot be written must not hold up the others.
        match show(controllers, space, name, &rules).await {
            Err(status) if status.code() == 413 => {
                tracing::warn!(workspace = %space.id(), role = name, %status, "cannot show its rules");
            }
            Err(status) => {
                tracing::debug!(workspace = %space.id(), role = name, %status, "will try again");
                after = After::Rest;
            }
            Ok(()) => after = After::Rest,
        }
    }
    after
}

/// Each rule once; `None` if they do not fit in an object of `limit` bytes.
fn sum<'a>(all: impl Iterator<Item = &'a Rule>, limit: usize) -> Option<Vec<&'a Rule>> {
    let (mut rules, mut known, mut bytes) = (Vec::new(), HashSet::new(), 0);
    for rule in all.filter(|rule| known.insert(*rule)) {
        bytes += rule.text_bytes();
        if bytes > limit {
            return None;
        }
        rules.push(rule);
    }
    Some(rules)
}

async fn show(controllers: &Controllers, space: &Space, name: &str, rules: &[&Rule]) -> Result<(), Status> {
    let key = Key { collection: collection(), item: ItemKey::new("", name) };
    let Some(role) = space.get(&key) else { return Ok(()) };
    let Some(mut context) = controllers.context_for(space, &key) else { return Ok(()) };
    context.manage_as("clusterrole-aggregation-controller");
    context.apply_by_force();
    let config = json!({
        "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1",
        // Of this one: it must not come back if it was deleted meanwhile.
        "metadata": {"name": name, "uid": role.head.uid},
        "rules": rules.iter().map(|rule| rule.to_json()).collect::<Vec<Value>>(),
    });
    write::patch(&context, config.to_string().into()).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_rule(verb: &str) -> Rule {
        Rule { verbs: vec![verb.to_owned()], ..Rule::default() }
    }

    #[test]
    fn rules_stand_once_and_no_more_than_fit() {
        let (get, list) = (mk_rule("get"), mk_rule("list"));
        let all = [&get, &list, &get, &list];
        assert_eq!(sum(all.into_iter(), 1000), Some(vec![&get, &list]));
        assert_eq!(sum(all.into_iter(), 5), None);
    }
}
