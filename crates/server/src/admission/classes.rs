//! Default classes of storage and ingresses, what protects storage in use, and how nodes begin.

use machinery::{
    admission::{classes, pods},
    resource::Tree,
    status::Status,
};
use store::{Collection, Key};

use super::{Admission, Operation};

const STORAGE: (&str, &str) = ("storage.k8s.io", "storageclasses");
const INGRESS: (&str, &str) = ("networking.k8s.io", "ingressclasses");

fn all(admission: &Admission<'_>, (group, resource): (&str, &str)) -> Vec<Tree> {
    let listing = admission.context.space.latest(&Collection::new(group, resource));
    listing.iter(None, None).filter_map(|(_, class)| class.tree().ok()).collect()
}

/// A node takes no pods until it is known to be ready.
pub fn taint_new_node(admission: &Admission<'_>, object: &mut Tree) {
    if admission.operation == Operation::Create && admission.is("", "nodes") {
        pods::taint_new_node(object);
    }
}

pub fn set_storage_class(admission: &Admission<'_>, object: &mut Tree) {
    if admission.operation == Operation::Create
        && admission.is("", "persistentvolumeclaims")
        && classes::storage_class(object).is_none()
        && let Some(name) = classes::default_storage_class(&all(admission, STORAGE))
    {
        classes::set_in_spec(object, "storageClassName", &name);
    }
}

pub fn set_ingress_class(admission: &Admission<'_>, object: &mut Tree) {
    if admission.operation == Operation::Create
        && admission.is("networking.k8s.io", "ingresses")
        && !classes::has_ingress_class(object)
        && let Some(name) = classes::default_ingress_class(&all(admission, INGRESS))
    {
        classes::set_in_spec(object, "ingressClassName", &name);
    }
}

/// Holds storage that may be in use.
pub fn protect(admission: &Admission<'_>, object: &mut Tree) {
    let context = admission.context;
    if admission.operation == Operation::Create
        && context.target.subresource.is_empty()
        && let Some(finalizer) = classes::protection(&context.resource.stored_group, &context.resource.plural)
    {
        classes::protect(object, finalizer);
    }
}

pub fn check_growth(admission: &Admission<'_>, object: &Tree) -> Result<(), Status> {
    let Some(old) = admission.old.filter(|_| admission.is("", "persistentvolumeclaims")) else {
        return Ok(());
    };
    let class =
        |name: &str| admission.context.space.get(&Key::new(STORAGE.0, STORAGE.1, "", name))?.tree().ok();
    classes::check_growth(object, old, class).map_err(|why| admission.forbidden(Some(object), why))
}
