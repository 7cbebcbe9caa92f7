//! What containers cannot start without.

use serde_json::Value;

use crate::{
    Kind, World,
    kind::{CONFIG_MAPS, SECRETS},
    tree,
};

/// What a volume is made of and is not there: the whole pod waits for it.
pub fn missing_volume(world: &dyn World, pod: &Value) -> Option<String> {
    let sources: [(&str, Kind, &str); 2] = [
        ("/configMap/name", CONFIG_MAPS, "/configMap/optional"),
        ("/secret/secretName", SECRETS, "/secret/optional"),
    ];
    for volume in tree::items(pod, "/spec/volumes") {
        for (pointer, kind, optional) in sources {
            let name = tree::text(volume, pointer);
            if !name.is_empty() && !tree::flag(volume, optional) && is_missing(world, pod, kind, name) {
                let volume = tree::text(volume, "/name");
                let what = kind.plural.trim_end_matches('s');
                return Some(format!(
                    "MountVolume.SetUp failed for volume \"{volume}\" : {what} \"{name}\" not found"
                ));
            }
        }
    }
    None
}

/// What a container's environment is made of and is not there.
pub fn missing_variable(world: &dyn World, pod: &Value, container: &Value) -> Option<String> {
    let whole = tree::items(container, "/envFrom").flat_map(|it| {
        [("configMapRef", CONFIG_MAPS), ("secretRef", SECRETS)].map(|(member, kind)| (it.get(member), kind))
    });
    let single = tree::items(container, "/env").flat_map(|it| {
        let from = it.get("valueFrom");
        [("configMapKeyRef", CONFIG_MAPS), ("secretKeyRef", SECRETS)]
            .map(|(member, kind)| (from.and_then(|from| from.get(member)), kind))
    });
    for (reference, kind) in whole.chain(single) {
        let Some(reference) = reference.filter(|it| !tree::flag(it, "/optional")) else { continue };
        let name = tree::text(reference, "/name");
        let what = kind.plural.trim_end_matches('s');
        let Some(object) = world.get(kind, tree::namespace(pod), name) else {
            return Some(format!("{what} \"{name}\" not found"));
        };
        let key = tree::text(reference, "/key");
        let has = |member: &str| object.get(member).is_some_and(|it| it.get(key).is_some());
        if !key.is_empty() && !has("data") && !has("binaryData") {
            let place = if kind == SECRETS { "Secret" } else { "ConfigMap" };
            return Some(format!("couldn't find key {key} in {place} {}/{name}", tree::namespace(pod)));
        }
    }
    None
}

fn is_missing(world: &dyn World, pod: &Value, kind: Kind, name: &str) -> bool {
    world.get(kind, tree::namespace(pod), name).is_none()
}
