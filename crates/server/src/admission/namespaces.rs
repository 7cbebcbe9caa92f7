//! What an object's namespace must be like for the object to be made.

use machinery::status::{About, Status};
use store::{Expect, Key};

use crate::context::Context;

/// Namespaced objects need their namespace, and it must not be on its way out. The guard makes that hold at the
/// very point of the commit, so that nothing slips into a namespace that has just been emptied.
pub fn of_new(context: &Context, object: &str) -> Result<Vec<(Key, Expect)>, Status> {
    // An access review asks about a namespace, and makes nothing in it.
    if !context.resource.namespaced || !context.resource.is_stored() {
        return Ok(Vec::new());
    }
    let name = &context.target.namespace;
    let key = Key::new("", "namespaces", "", name);
    let current = context.space.current(&key);
    let about = About { group: "", resource: "namespaces", name };
    let namespace = current.object.ok_or_else(|| Status::not_found(about))?;
    if namespace.head.deleting {
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        let status = Status::forbidden(context.about(object), &why);
        return Err(status.cause(
            "NamespaceTerminating",
            format!("namespace {name} is being terminated"),
            "metadata.namespace",
        ));
    }
    Ok(vec![(key, current.expect)])
}
