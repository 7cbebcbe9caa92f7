//! What differs between two values of a type.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    element::{PathElement, same_value},
    fields::{FieldSet, Filter},
    schema::{ListAtom, MapAtom, TypeRef},
    typed::{Mistakes, Shape, check_scalar, item_element, items, member_type, members},
};
use crate::resource::Tree;

/// The fields that one value has and the other has not, or otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

impl Comparison {
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    pub fn filtered(self, filter: Option<&Filter>) -> Self {
        match filter {
            None => self,
            Some(filter) => Self {
                added: filter.apply(self.added),
                modified: filter.apply(self.modified),
                removed: filter.apply(self.removed),
            },
        }
    }

    fn push(&mut self, element: PathElement, change: Change) {
        let Change { added, modified, removed, below } = change;
        self.added.push(element.clone(), added, below.added);
        self.modified.push(element.clone(), modified, below.modified);
        self.removed.push(element, removed, below.removed);
    }

    fn sorted(self) -> Self {
        Self { added: self.added.sorted(), modified: self.modified.sorted(), removed: self.removed.sorted() }
    }

    fn union(self, other: Self) -> Self {
        Self {
            added: self.added.union(other.added),
            modified: self.modified.union(other.modified),
            removed: self.removed.union(other.removed),
        }
    }
}

/// What became of a value itself, and of what is below it.
#[derive(Default)]
struct Change {
    added: bool,
    modified: bool,
    removed: bool,
    below: Comparison,
}

impl Change {
    fn and(self, other: Self) -> Self {
        Self {
            added: self.added || other.added,
            modified: self.modified || other.modified,
            removed: self.removed || other.removed,
            below: self.below.union(other.below),
        }
    }
}

type Compared<T> = Result<T, Mistakes>;

/// Compares two values of a type.
pub fn compare(ty: TypeRef<'_>, old: &Value, new: &Value) -> Compared<Comparison> {
    Ok(compare_values(ty, Some(old), Some(new))?.below)
}

/// Compares two objects of a type.
pub fn compare_trees(ty: TypeRef<'_>, old: &Tree, new: &Tree) -> Compared<Comparison> {
    match &ty.atom().map {
        Some(map) if !map.is_atomic() => compare_members(ty, map, Some(old), Some(new)),
        _ => Ok(Comparison::default()),
    }
}

fn compare_values(ty: TypeRef<'_>, old: Option<&Value>, new: Option<&Value>) -> Compared<Change> {
    let (change, is_leaf) = match (old, new) {
        (_, None) => compare_as(ty, Shape::of(ty, old)?, old, new)?,
        (None, Some(_)) => compare_as(ty, Shape::of(ty, new)?, old, new)?,
        (Some(_), Some(_)) => {
            let (as_old, as_new) = (Shape::of(ty, old)?, Shape::of(ty, new)?);
            let (change, is_leaf) = compare_as(ty, as_new, old, new)?;
            if as_old.is_like(as_new) {
                (change, is_leaf)
            } else {
                (compare_as(ty, as_old, old, new)?.0.and(change), is_leaf)
            }
        }
    };
    if is_leaf {
        return Ok(change);
    }
    Ok(Change { added: change.added || old.is_none(), removed: change.removed || new.is_none(), ..change })
}

/// The change, and whether the value is a field as a whole.
fn compare_as(
    ty: TypeRef<'_>,
    shape: Shape<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Compared<(Change, bool)> {
    let below = match shape {
        Shape::Scalar(scalar) => {
            let mut mistakes = check_scalar(scalar, old, "lhs: ");
            let others = check_scalar(scalar, new, "rhs: ");
            if !mistakes.is_empty() && !others.is_empty() {
                mistakes.extend(others);
                return Err(mistakes);
            }
            return Ok((compare_leaves(old, new), true));
        }
        Shape::List(list) => {
            let (old_items, new_items) = (items(old), items(new));
            let is_empty = |items: Option<&Vec<Value>>| items.is_none_or(Vec::is_empty);
            if list.is_atomic() || (is_empty(old_items) && is_empty(new_items)) {
                return Ok((compare_leaves(old, new), true));
            }
            compare_items(ty, list, old_items, new_items)?
        }
        Shape::Map(map) => {
            let (old_members, new_members) = (members(old), members(new));
            let is_empty = |members: Option<&Tree>| members.is_none_or(Tree::is_empty);
            if map.is_atomic() || (is_empty(old_members) && is_empty(new_members)) {
                return Ok((compare_leaves(old, new), true));
            }
            compare_members(ty, map, old_members, new_members)?
        }
    };
    Ok((Change { below, ..Default::default() }, false))
}

fn compare_leaves(old: Option<&Value>, new: Option<&Value>) -> Change {
    match (old, new) {
        (None, _) => Change { added: true, ..Default::default() },
        (_, None) => Change { removed: true, ..Default::default() },
        (Some(old), Some(new)) => Change { modified: !same_value(old, new), ..Default::default() },
    }
}

fn compare_members(
    ty: TypeRef<'_>,
    map: &MapAtom,
    old: Option<&Tree>,
    new: Option<&Tree>,
) -> Compared<Comparison> {
    let mut comparison = Comparison::default();
    let mut mistakes = Mistakes::default();
    for (name, old, new) in zip_members(old, new) {
        let change = member_type(ty, map, name).and_then(|ty| compare_values(ty, old, new));
        match change {
            Ok(change) => comparison.push(PathElement::field(name), change),
            Err(others) => mistakes.extend_below(&PathElement::field(name), others),
        }
    }
    mistakes.into_result(comparison)
}

/// The members of two objects side by side, by name.
pub(super) fn zip_members<'v>(
    left: Option<&'v Tree>,
    right: Option<&'v Tree>,
) -> impl Iterator<Item = (&'v String, Option<&'v Value>, Option<&'v Value>)> {
    let mut left = left.into_iter().flatten().peekable();
    let mut right = right.into_iter().flatten().peekable();
    std::iter::from_fn(move || {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return None,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some((left, _)), Some((right, _))) => left.cmp(right),
        };
        let taken_left = if order.is_le() { left.next() } else { None };
        let taken_right = if order.is_ge() { right.next() } else { None };
        let name = taken_left.or(taken_right)?.0;
        Some((name, taken_left.map(|(_, value)| value), taken_right.map(|(_, value)| value)))
    })
}

type Same<'v> = (Vec<&'v Value>, Vec<&'v Value>);

fn compare_items(
    ty: TypeRef<'_>,
    list: &ListAtom,
    old: Option<&Vec<Value>>,
    new: Option<&Vec<Value>>,
) -> Compared<Comparison> {
    let mut mistakes = Mistakes::default();
    let mut by_element: BTreeMap<PathElement, Same<'_>> = BTreeMap::new();
    for (items, is_new) in [(old, false), (new, true)] {
        for (at, item) in items.into_iter().flatten().enumerate() {
            match item_element(ty, list, item) {
                Ok(element) => {
                    let (old, new) = by_element.entry(element).or_default();
                    if is_new { new.push(item) } else { old.push(item) }
                }
                Err(why) => mistakes.extend(Mistakes::one(format!("element {at}: {why}"))),
            }
        }
    }
    let mut comparison = Comparison::default();
    for (element, (old, new)) in by_element {
        match compare_same(ty.at(list.element), &old, &new) {
            Ok(change) => comparison.push(element, change),
            Err(others) => mistakes.extend_below(&element, others),
        }
    }
    mistakes.into_result(comparison.sorted())
}

/// Compares the items of one key. Those that are there more than once are one field with all they have.
fn compare_same(ty: TypeRef<'_>, old: &[&Value], new: &[&Value]) -> Compared<Change> {
    match (old, new) {
        ([] | [_], [] | [_]) => compare_values(ty, old.first().copied(), new.first().copied()),
        ([_, _, ..], [_, _, ..]) => {
            let same = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same_value(old, new));
            Ok(Change { modified: !same, ..Default::default() })
        }
        ([_, _, ..], _) => {
            let change = match new.first() {
                Some(new) => compare_values(ty, None, Some(new))?,
                None => Change::default(),
            };
            Ok(Change { removed: true, ..change })
        }
        _ => {
            let change = match old.first() {
                Some(old) => compare_values(ty, Some(old), None)?,
                None => Change::default(),
            };
            Ok(Change { added: true, ..change })
        }
    }
}
