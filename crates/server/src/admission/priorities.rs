//! Priority classes: what they make of pods, and that only one is the default.

use machinery::{admission::pods, resource::Tree, status::Status};
use serde_json::Value;
use store::{Collection, Key};

use super::{Admission, Operation};
use crate::{base, space::Space};

const GROUP: &str = "scheduling.k8s.io";
const CLASSES: &str = "priorityclasses";

/// The class for pods that name none. Those of the shared base are not for everybody, so only stored ones are asked.
fn default_class(space: &Space) -> Option<Tree> {
    let listing = space.store().list(space.id(), &Collection::new(GROUP, CLASSES), None).ok()?;
    let stored = listing.iter(None, None).filter(|(_, class)| !base::is_whiteout(class));
    let classes: Vec<Tree> = stored.filter_map(|(_, class)| class.tree().ok()).collect();
    pods::default_priority_class(&classes).cloned()
}

pub fn set(admission: &Admission<'_>, object: &mut Tree) -> Result<(), Status> {
    if !admission.is("", "pods") {
        return Ok(());
    }
    if let Some(old) = admission.old {
        pods::keep_priority(object, old);
        return Ok(());
    }
    let space = &admission.context.space;
    let named = object.get("spec").and_then(|spec| spec.get("priorityClassName")).and_then(Value::as_str);
    let class = match named.filter(|name| !name.is_empty()) {
        None => default_class(space),
        Some(name) => {
            let class = space.get(&Key::new(GROUP, CLASSES, "", name)).and_then(|class| class.tree().ok());
            let missing =
                || admission.forbidden(Some(object), &format!("no PriorityClass with name {name} was found"));
            Some(class.ok_or_else(missing)?)
        }
    };
    pods::set_priority(object, class.as_ref()).map_err(|why| admission.forbidden(Some(object), &why))
}

/// There is one default.
pub fn check(admission: &Admission<'_>, object: &Tree) -> Result<(), Status> {
    if !admission.is(GROUP, CLASSES) || object.get("globalDefault") != Some(&Value::Bool(true)) {
        return Ok(());
    }
    let Some(default) = default_class(&admission.context.space) else { return Ok(()) };
    let name = default.get("metadata").and_then(|it| it.get("name")).and_then(Value::as_str);
    let name = name.unwrap_or_default();
    if admission.operation == Operation::Update && name == admission.name {
        return Ok(());
    }
    let why = format!("PriorityClass {name} is already marked as default. Only one default can exist");
    Err(admission.forbidden(Some(object), &why))
}
