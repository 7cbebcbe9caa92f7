//! Brings sets up to date with a schema that changed since they were written: what became one field as a whole is
//! owned as such by whoever owned a part of it.

use super::{
    element::PathElement,
    fields::FieldSet,
    schema::{MapAtom, TypeRef},
};

/// The set as the type has it now; `None` if nothing changed.
pub fn reconcile(ty: TypeRef<'_>, set: &FieldSet) -> Option<FieldSet> {
    let (_, changed) = replaced(ty, set, false);
    if changed.is_empty() {
        return None;
    }
    Some(set.clone().recursive_difference(&changed).union(changed))
}

/// Whether the value itself is one field now, and which fields below it are.
fn replaced(ty: TypeRef<'_>, set: &FieldSet, is_leaf: bool) -> (bool, FieldSet) {
    let none = (false, FieldSet::default());
    let atom = ty.atom();
    match (&atom.map, atom.scalar, &atom.list) {
        (Some(map), ..) if map.is_deduced() => none,
        (Some(map), ..) if !is_leaf && map.is_atomic() => (!set.is_empty(), FieldSet::default()),
        (Some(map), ..) => (false, below(set, |element| member_type(ty, map, element))),
        (None, Some(_), _) => none,
        (None, None, Some(list)) if !is_leaf && list.is_atomic() => (true, FieldSet::default()),
        (None, None, Some(list)) => (false, below(set, |_| Some(ty.at(list.element)))),
        (None, None, None) => none,
    }
}

fn below<'s>(set: &FieldSet, type_of: impl Fn(&PathElement) -> Option<TypeRef<'s>>) -> FieldSet {
    let mut changed = FieldSet::default();
    for (element, owned, below) in set.elements() {
        // Members that the type does not know stay as they are.
        let Some(ty) = type_of(element) else { continue };
        let (is_whole, below) = replaced(ty, below, owned && below.is_empty());
        changed.push(element.clone(), is_whole, below);
    }
    changed
}

fn member_type<'s>(ty: TypeRef<'s>, map: &MapAtom, element: &PathElement) -> Option<TypeRef<'s>> {
    let id = match element {
        PathElement::Field(name) => map.member(name),
        _ => map.element(),
    };
    id.map(|id| ty.at(id))
}

/// The set with every declared member that has something below it in the set.
pub fn with_named_fields(ty: Option<TypeRef<'_>>, set: &FieldSet) -> FieldSet {
    let atom = ty.map(TypeRef::atom);
    let map = atom.and_then(|atom| atom.map.as_ref());
    let list = atom.and_then(|atom| atom.list.as_ref());
    let mut out = FieldSet::default();
    for (element, owned, below) in set.elements() {
        let (is_declared, id) = match (element, map, list) {
            (PathElement::Field(name), Some(map), _) => (map.field(name).is_some(), map.member(name)),
            (PathElement::Key(_), _, Some(list)) => (false, Some(list.element)),
            _ => (false, None),
        };
        let type_below = ty.and_then(|ty| id.map(|id| ty.at(id)));
        let owned = owned || (is_declared && !below.is_empty());
        out.push(element.clone(), owned, with_named_fields(type_below, below));
    }
    out
}
