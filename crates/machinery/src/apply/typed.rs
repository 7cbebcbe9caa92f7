//! Values seen through their type: whether they fit it, and which fields they have.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use compact_str::CompactString;
use serde_json::Value;

use super::{
    element::PathElement,
    fields::FieldSet,
    schema::{ListAtom, ListMerge, MapAtom, Scalar, TypeRef},
};
use crate::{gotext, resource::Tree};

/// Mistakes in a value, each with where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(Vec<(String, String)>);

impl Mistakes {
    pub(super) fn one(why: impl Into<String>) -> Self {
        Self(vec![(String::new(), why.into())])
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn extend(&mut self, others: Mistakes) {
        self.0.extend(others.0);
    }

    /// Adds mistakes that were made below an element.
    pub(super) fn extend_below(&mut self, element: &PathElement, others: Mistakes) {
        let element = if others.is_empty() { String::new() } else { element.to_string() };
        self.0.extend(others.0.into_iter().map(|(path, why)| (format!("{element}{path}"), why)));
    }

    pub(super) fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |(path, why): &(String, String)| match path.as_str() {
            "" => why.clone(),
            path => format!("{path}: {why}"),
        };
        if let [only] = self.0.as_slice() {
            return f.write_str(&show(only));
        }
        f.write_str("errors:")?;
        self.0.iter().try_for_each(|mistake| write!(f, "\n  {}", show(mistake)))
    }
}

impl std::error::Error for Mistakes {}

/// Which of the things that a type allows a value is taken for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'s> {
    Scalar(Scalar),
    List(&'s ListAtom),
    Map(&'s MapAtom),
}

impl<'s> Shape<'s> {
    /// A value that is nothing that the type allows is taken for what comes first, and found wrong there.
    pub(super) fn of(ty: TypeRef<'s>, value: Option<&Value>) -> Result<Self, Mistakes> {
        let atom = ty.atom();
        let fitting = match value {
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => atom.scalar.map(Shape::Scalar),
            Some(Value::Array(_)) => atom.list.as_ref().map(Shape::List),
            Some(Value::Object(_)) => atom.map.as_ref().map(Shape::Map),
            Some(Value::Null) | None => None,
        };
        fitting
            .or(atom.map.as_ref().map(Shape::Map))
            .or(atom.scalar.map(Shape::Scalar))
            .or(atom.list.as_ref().map(Shape::List))
            .ok_or_else(no_type)
    }

    pub(super) fn is_like(self, other: Shape<'_>) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// For a member that the type does not know of.
fn no_type() -> Mistakes {
    Mistakes::one("schema error: invalid atom: inlined")
}

/// The type of a member.
pub(super) fn member_type<'s>(ty: TypeRef<'s>, map: &MapAtom, name: &str) -> Result<TypeRef<'s>, Mistakes> {
    map.member(name).map(|id| ty.at(id)).ok_or_else(no_type)
}

pub(super) fn members(value: Option<&Value>) -> Option<&Tree> {
    value.and_then(Value::as_object)
}

pub(super) fn items(value: Option<&Value>) -> Option<&Vec<Value>> {
    value.and_then(Value::as_array)
}

/// How an item of a list is told from the others.
pub(super) fn item_element(ty: TypeRef<'_>, list: &ListAtom, item: &Value) -> Result<PathElement, String> {
    match &list.merge {
        ListMerge::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListMerge::Keys(keys) if !keys.is_empty() => keyed_element(ty, list, keys, item),
        ListMerge::Keys(_) | ListMerge::Set => match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null".to_owned())
            }
            scalar => Ok(PathElement::value(scalar.clone())),
        },
    }
}

fn keyed_element(
    ty: TypeRef<'_>,
    list: &ListAtom,
    keys: &[CompactString],
    item: &Value,
) -> Result<PathElement, String> {
    let members = match item {
        Value::Object(members) => members,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let element = ty.at(list.element).atom();
    let mut fields = Vec::with_capacity(keys.len());
    for key in keys {
        if let Some(value) = members.get(key.as_str()) {
            fields.push((key.clone(), value.clone()));
            continue;
        }
        let Some(map) = &element.map else {
            let why = "associative list may not have non-map types";
            return Err(format!("couldn't find default value for {key}: {why}"));
        };
        let default = map.field(key).and_then(|field| field.default.as_ref());
        // A key without a default is left out: with it, it would be another item.
        fields.extend(
            default.filter(|default| !default.is_null()).map(|default| (key.clone(), default.clone())),
        );
    }
    if fields.is_empty() {
        let keys: Vec<String> = keys.iter().map(|key| gotext::quote(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
             values for any key fields)",
            keys.join(" ")
        ));
    }
    Ok(PathElement::key(fields))
}

/// Whether the same item may be in a list more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    Refused,
    /// As in objects that were written by other means than apply.
    Allowed,
}

/// Checks a value against its type.
pub fn validate(ty: TypeRef<'_>, value: &Value, duplicates: Duplicates) -> Result<(), Mistakes> {
    let mistakes = check(ty, value, duplicates);
    mistakes.into_result(())
}

/// Checks an object against its type.
pub fn validate_tree(ty: TypeRef<'_>, tree: &Tree, duplicates: Duplicates) -> Result<(), Mistakes> {
    let mistakes = match &ty.atom().map {
        Some(map) => check_members(ty, map, tree, duplicates),
        None => no_type(),
    };
    mistakes.into_result(())
}

fn check(ty: TypeRef<'_>, value: &Value, duplicates: Duplicates) -> Mistakes {
    match Shape::of(ty, Some(value)) {
        Err(mistakes) => mistakes,
        Ok(Shape::Scalar(scalar)) => check_scalar(scalar, Some(value), ""),
        Ok(Shape::List(list)) => match value {
            Value::Null => Mistakes::default(),
            Value::Array(items) => check_items(ty, list, items, duplicates),
            other => Mistakes::one(format!("expected list, got &{{{}}}", gotext::plain(other))),
        },
        Ok(Shape::Map(map)) => match value {
            Value::Null => Mistakes::default(),
            Value::Object(members) => check_members(ty, map, members, duplicates),
            other => Mistakes::one(format!("expected map, got &{{{}}}", gotext::plain(other))),
        },
    }
}

pub(super) fn check_scalar(scalar: Scalar, value: Option<&Value>, prefix: &str) -> Mistakes {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Mistakes::default() };
    let fits = match scalar {
        Scalar::Numeric => value.is_number(),
        Scalar::String => value.is_string(),
        Scalar::Boolean => value.is_boolean(),
        Scalar::Untyped => value.is_number() || value.is_string() || value.is_boolean(),
    };
    if fits {
        return Mistakes::default();
    }
    let plain = || format!("&{{{}}}", gotext::plain(value));
    Mistakes::one(match scalar {
        Scalar::Numeric => format!("{prefix}expected numeric (int or float), got {}", gotext::type_of(value)),
        Scalar::String => {
            format!(
                "{prefix}expected string, got &value.valueUnstructured{{Value:{}}}",
                gotext::syntax(value)
            )
        }
        Scalar::Boolean => format!("{prefix}expected boolean, got {}", plain()),
        Scalar::Untyped => format!("{prefix}expected any scalar, got {}", plain()),
    })
}

fn check_items(ty: TypeRef<'_>, list: &ListAtom, items: &[Value], duplicates: Duplicates) -> Mistakes {
    let mut mistakes = Mistakes::default();
    let mut seen = BTreeSet::new();
    for (at, item) in items.iter().enumerate() {
        let element = if list.is_atomic() {
            PathElement::Index(at as i64)
        } else {
            match item_element(ty, list, item) {
                Ok(element) => element,
                Err(why) => {
                    mistakes.extend(Mistakes::one(format!("element {at}: {why}")));
                    return mistakes;
                }
            }
        };
        if !list.is_atomic() && duplicates == Duplicates::Refused && !seen.insert(element.clone()) {
            mistakes.extend(Mistakes::one(format!("duplicate entries for key {element}")));
        }
        mistakes.extend_below(&element, check(ty.at(list.element), item, duplicates));
    }
    mistakes
}

fn check_members(ty: TypeRef<'_>, map: &MapAtom, members: &Tree, duplicates: Duplicates) -> Mistakes {
    let mut mistakes = Mistakes::default();
    for (name, value) in members {
        let Some(id) = map.member(name) else {
            let why = Mistakes::one("field not declared in schema");
            mistakes.extend_below(&PathElement::field(name), why);
            break;
        };
        mistakes.extend_below(&PathElement::field(name), check(ty.at(id), value, duplicates));
    }
    mistakes
}

/// The fields that a value has.
pub fn field_set(ty: TypeRef<'_>, value: &Value) -> Result<FieldSet, Mistakes> {
    Ok(fields_of(ty, value)?.1)
}

/// The fields that an object has.
pub fn tree_field_set(ty: TypeRef<'_>, tree: &Tree) -> Result<FieldSet, Mistakes> {
    match &ty.atom().map {
        Some(map) if map.is_atomic() => Ok(FieldSet::default()),
        Some(map) => fields_of_members(ty, map, tree),
        None => Err(no_type()),
    }
}

/// Whether the value is a field itself, and those below it.
fn fields_of(ty: TypeRef<'_>, value: &Value) -> Result<(bool, FieldSet), Mistakes> {
    let none = (false, FieldSet::default());
    match (Shape::of(ty, Some(value))?, value) {
        (Shape::Scalar(_), _) => Ok((true, FieldSet::default())),
        (Shape::List(list), _) if list.is_atomic() => Ok((true, FieldSet::default())),
        (Shape::Map(map), _) if map.is_atomic() => Ok((true, FieldSet::default())),
        (Shape::List(list), Value::Array(items)) => Ok((false, fields_of_items(ty, list, items)?)),
        (Shape::Map(map), Value::Object(members)) => Ok((false, fields_of_members(ty, map, members)?)),
        _ => Ok(none),
    }
}

fn fields_of_items(ty: TypeRef<'_>, list: &ListAtom, items: &[Value]) -> Result<FieldSet, Mistakes> {
    // An item that is there more than once is one field with all it has.
    let mut seen: BTreeMap<PathElement, Option<&Value>> = BTreeMap::new();
    for item in items {
        let Ok(element) = item_element(ty, list, item) else { continue };
        seen.entry(element).and_modify(|item| *item = None).or_insert(Some(item));
    }
    let mut set = FieldSet::default();
    for (element, item) in seen {
        let below = match item {
            Some(item) => fields_of(ty.at(list.element), item)?.1,
            None => FieldSet::default(),
        };
        set.push(element, true, below);
    }
    Ok(set.sorted())
}

fn fields_of_members(ty: TypeRef<'_>, map: &MapAtom, members: &Tree) -> Result<FieldSet, Mistakes> {
    let mut set = FieldSet::default();
    for (name, value) in members {
        let (owned, below) = fields_of(member_type(ty, map, name)?, value)?;
        let is_empty = value.is_null() || value.as_object().is_some_and(Tree::is_empty);
        let owned = owned || is_empty || map.field(name).is_none();
        set.push(PathElement::field(name), owned, below);
    }
    Ok(set.sorted())
}
