//! Lays one value over another.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    compare::zip_members,
    element::PathElement,
    schema::{ListAtom, MapAtom, TypeRef},
    typed::{Mistakes, Shape, check_scalar, item_element, items, member_type, members},
};
use crate::resource::Tree;

/// `old` with all that `new` says. Both were checked.
pub fn merge(ty: TypeRef<'_>, old: &Value, new: &Value) -> Result<Value, Mistakes> {
    let shape = Shape::of(ty, Some(new))?;
    if !Shape::of(ty, Some(old))?.is_like(shape) {
        return Ok(new.clone());
    }
    match shape {
        Shape::Scalar(scalar) => {
            let mut mistakes = check_scalar(scalar, Some(old), "lhs: ");
            let others = check_scalar(scalar, Some(new), "rhs: ");
            if !mistakes.is_empty() && !others.is_empty() {
                mistakes.extend(others);
                return Err(mistakes);
            }
            Ok(new.clone())
        }
        Shape::List(list) => {
            let (old, new_items) = (items(Some(old)), items(Some(new)));
            match (old.filter(|items| !items.is_empty()), new_items.filter(|items| !items.is_empty())) {
                _ if list.is_atomic() => Ok(new.clone()),
                (None, _) => Ok(new.clone()),
                (Some(old), None) => Ok(Value::Array(old.clone())),
                (Some(old), Some(new)) => merge_items(ty, list, old, new).map(Value::Array),
            }
        }
        Shape::Map(map) => {
            let (old, new_members) = (members(Some(old)), members(Some(new)));
            match (
                old.filter(|members| !members.is_empty()),
                new_members.filter(|members| !members.is_empty()),
            ) {
                _ if map.is_atomic() => Ok(new.clone()),
                (None, _) => Ok(new.clone()),
                (Some(old), None) => Ok(Value::Object(old.clone())),
                (Some(old), Some(new)) => merge_members(ty, map, old, new).map(Value::Object),
            }
        }
    }
}

/// An object with all that another says.
pub fn merge_trees(ty: TypeRef<'_>, old: &Tree, new: &Tree) -> Result<Tree, Mistakes> {
    match &ty.atom().map {
        Some(map) if !map.is_atomic() => merge_members(ty, map, old, new),
        _ => Ok(new.clone()),
    }
}

fn merge_members(ty: TypeRef<'_>, map: &MapAtom, old: &Tree, new: &Tree) -> Result<Tree, Mistakes> {
    let mut mistakes = Mistakes::default();
    let mut merged = Tree::new();
    for (name, old, new) in zip_members(Some(old), Some(new)) {
        let value = match (old, new) {
            (Some(old), Some(new)) => member_type(ty, map, name).and_then(|ty| merge(ty, old, new)),
            (Some(value), None) | (None, Some(value)) => Ok(value.clone()),
            (None, None) => continue,
        };
        match value {
            Ok(value) => drop(merged.insert(name.clone(), value)),
            Err(others) => mistakes.extend_below(&PathElement::field(name), others),
        }
    }
    mistakes.into_result(merged)
}

/// The items of a list with what tells them apart.
struct Indexed<'v> {
    elements: Vec<PathElement>,
    /// By element; those that are there more than once are nothing to merge with.
    items: BTreeMap<PathElement, &'v Value>,
}

impl<'v> Indexed<'v> {
    fn new(
        ty: TypeRef<'_>,
        list: &ListAtom,
        items: &'v [Value],
        allow_duplicates: bool,
        mistakes: &mut Mistakes,
    ) -> Self {
        let mut index = Self { elements: Vec::with_capacity(items.len()), items: BTreeMap::new() };
        for (at, item) in items.iter().enumerate() {
            let element = match item_element(ty, list, item) {
                Ok(element) => element,
                Err(why) => {
                    mistakes.extend(Mistakes::one(format!("element {at}: {why}")));
                    continue;
                }
            };
            if index.items.contains_key(&element) {
                if !allow_duplicates {
                    mistakes.extend(Mistakes::one(format!("duplicate entries for key {element}")));
                    continue;
                }
                index.items.insert(element.clone(), &Value::Null);
            } else {
                index.items.insert(element.clone(), item);
            }
            index.elements.push(element);
        }
        index
    }
}

/// Merges lists with keys, and sets.
fn merge_items(
    ty: TypeRef<'_>,
    list: &ListAtom,
    old: &[Value],
    new: &[Value],
) -> Result<Vec<Value>, Mistakes> {
    let mut mistakes = Mistakes::default();
    let over = Indexed::new(ty, list, new, false, &mut mistakes);
    let base = Indexed::new(ty, list, old, true, &mut mistakes);
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let mut merged = Vec::with_capacity(old.len().max(new.len()));
    for step in order(&base, &over) {
        let element = match step {
            Step::Old(at) => {
                merged.extend(old.get(at).cloned());
                continue;
            }
            Step::New(element) => element,
        };
        match (base.items.get(element), over.items.get(element)) {
            (Some(old), Some(new)) => match merge(ty.at(list.element), old, new) {
                Ok(value) => merged.push(value),
                Err(others) => mistakes.extend_below(element, others),
            },
            (old, new) => merged.extend(new.or(old).map(|item| (*item).clone())),
        }
    }
    mistakes.into_result(merged)
}

enum Step<'e> {
    /// An item that only the old list has, by its place.
    Old(usize),
    /// An item of the new list, merged with that of the old one.
    New(&'e PathElement),
}

/// Items of the new list come in its order. Those that only the old list has stay between the ones that they were
/// between.
fn order<'e>(base: &'e Indexed<'_>, over: &'e Indexed<'_>) -> Vec<Step<'e>> {
    let mut shared = over.elements.iter().filter(|element| base.items.contains_key(element));
    let mut next_shared = shared.next();
    let mut taken = BTreeSet::new();
    let mut steps = Vec::with_capacity(base.elements.len().max(over.elements.len()));
    let (mut old, mut new) = (0, 0);
    while old < base.elements.len() || new < over.elements.len() {
        if let (Some(old_element), Some(new_element)) = (base.elements.get(old), over.elements.get(new)) {
            if old_element == new_element {
                taken.insert(new_element);
                steps.push(Step::New(new_element));
                (old, new) = (old + 1, new + 1);
                next_shared = shared.next();
                continue;
            }
            let is_shared = over.items.contains_key(old_element);
            if is_shared && next_shared.is_some_and(|next| next != old_element) {
                // It comes where the new list has it.
                old += 1;
                continue;
            }
        }
        if let Some(element) = base.elements.get(old) {
            if !over.items.contains_key(element) {
                steps.push(Step::Old(old));
                old += 1;
                continue;
            }
            if taken.contains(element) {
                old += 1;
            }
        }
        if let Some(element) = over.elements.get(new) {
            taken.insert(element);
            steps.push(Step::New(element));
            new += 1;
            if next_shared == Some(element) {
                next_shared = shared.next();
            }
        }
    }
    steps
}
