//! Flow schemas say whether their priority level exists, and what must always be there is brought back.

use machinery::{resource::Tree, status::Status};
use serde_json::{Value, json};
use store::{Collection, ItemKey, Key, WorkspaceId};

use super::{Controllers, queue::Work};
use crate::{
    fairness::defaults::{self, GROUP},
    replace,
    space::Space,
    write,
};

fn schemas() -> Collection {
    Collection::new(GROUP, "flowschemas")
}

fn levels() -> Collection {
    Collection::new(GROUP, "prioritylevelconfigurations")
}

pub fn observe(controllers: &Controllers, workspace: &WorkspaceId, key: &Key) {
    if key.collection.0.starts_with(GROUP) && (key.collection == schemas() || key.collection == levels()) {
        controllers.queue.add(Work::Flows(workspace.clone()));
    }
}

/// Brings what a workspace has of both to what it should be.
pub async fn settle(controllers: &Controllers, space: &Space) -> Result<(), Status> {
    for tree in defaults::mandatory_levels() {
        keep(controllers, space, &levels(), tree).await?;
    }
    for tree in defaults::mandatory_schemas() {
        keep(controllers, space, &schemas(), tree).await?;
    }
    for (item, object) in space.latest(&schemas()).iter(None, None) {
        let key = Key { collection: schemas(), item: item.clone() };
        let Some(context) = controllers.context_for(space, &key) else { return Ok(()) };
        let now = controllers.hub.now_text();
        replace::edit(&context, &key, &object.head.uid, |tree| {
            let level = level_of(tree);
            let found = space.get(&Key { collection: levels(), item: ItemKey::new("", &level) }).is_some();
            set_dangling(tree, &level, found, &now);
        })
        .await?;
    }
    Ok(())
}

/// An object that nobody may take away or change: it is made again, or gets its `spec` back.
async fn keep(
    controllers: &Controllers,
    space: &Space,
    collection: &Collection,
    mut wanted: Tree,
) -> Result<(), Status> {
    let name =
        wanted.get("metadata").and_then(|it| it.get("name")).and_then(Value::as_str).unwrap_or_default();
    let key = Key { collection: collection.clone(), item: ItemKey::new("", name) };
    let Some(mut context) = controllers.context_for(space, &key) else { return Ok(()) };
    let Some(object) = space.get(&key) else {
        wanted.remove("status");
        context.target.name = String::new();
        let body = Value::Object(wanted).to_string();
        return match write::create(&context, body.into()).await {
            Err(status) if status.code() != 409 => Err(status),
            _ => Ok(()),
        };
    };
    let spec = wanted.remove("spec").unwrap_or_default();
    replace::edit(&context, &key, &object.head.uid, |tree| {
        if tree.get("spec") != Some(&spec) {
            tree.insert("spec".into(), spec.clone());
        }
    })
    .await
}

fn level_of(schema: &Tree) -> String {
    let level = schema.get("spec").and_then(|spec| spec.get("priorityLevelConfiguration"));
    level.and_then(|level| level.get("name")).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Says so, unless it is said already.
fn set_dangling(schema: &mut Tree, level: &str, found: bool, now: &str) {
    let mut wanted = defaults::dangling(level, found);
    let status = schema.entry("status").or_insert_with(|| json!({}));
    if !status.is_object() {
        *status = json!({});
    }
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    let known = conditions.iter_mut().find(|it| it["type"] == "Dangling");
    let says =
        |condition: &Value| ["status", "reason", "message"].iter().all(|key| condition[*key] == wanted[*key]);
    if known.as_deref().is_some_and(says) {
        return;
    }
    wanted["lastTransitionTime"] = json!(now);
    match known {
        Some(condition) => *condition = wanted,
        None => conditions.push(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_changes_only_with_what_is_so() {
        let mut schema =
            json!({"spec": {"priorityLevelConfiguration": {"name": "l"}}}).as_object().unwrap().clone();
        set_dangling(&mut schema, "l", false, "t1");
        let first = schema.clone();
        assert_eq!(first["status"]["conditions"][0]["status"], "True");
        set_dangling(&mut schema, "l", false, "t2");
        assert_eq!(schema, first);
        set_dangling(&mut schema, "l", true, "t3");
        assert_eq!(
            schema["status"]["conditions"],
            json!([{
                "type": "Dangling", "status": "False", "reason": "Found", "lastTransitionTime": "t3",
                "message": "This FlowSchema references the PriorityLevelConfiguration object named \"l\" and it exists",
            }])
        );
    }

    #[test]
    fn conditions_of_others_stay() {
        let mut schema = json!({"status": {"conditions": [{"type": "Mine"}]}}).as_object().unwrap().clone();
        set_dangling(&mut schema, "l", true, "t");
        assert_eq!(schema["status"]["conditions"].as_array().unwrap().len(), 2);
        let mut odd = json!({"status": 7}).as_object().unwrap().clone();
        set_dangling(&mut odd, "l", true, "t");
    }
}
