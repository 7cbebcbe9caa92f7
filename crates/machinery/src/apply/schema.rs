//! How values merge: which lists are sets or have keys, which objects are one field as a whole.
//!
//! ```text
//!   schema::Types (built-in kinds) ──┐
//!   openAPIV3Schema (custom kinds) ──┼──> SchemaBuilder ──> Schema ──> TypeRef: what a value is merged by
//!   by hand ─────────────────────────┘
//! ```

mod builtin;
mod structural;

pub use structural::StructuralError;

use std::{collections::HashMap, sync::LazyLock};

use compact_str::CompactString;
use serde_json::Value;

use crate::schema::{Message, Types};

/// Types that refer to each other.
#[derive(Debug)]
pub struct Schema {
    atoms: Vec<Atom>,
    names: HashMap<String, TypeId>,
}

/// A type of a [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(u32);

/// A type together with the schema that it is of.
#[derive(Clone, Copy, Debug)]
pub struct TypeRef<'s> {
    schema: &'s Schema,
    id: TypeId,
}

/// What a value may be: a scalar, a list, an object, or one of several.
#[derive(Clone, Debug, Default)]
pub struct Atom {
    pub scalar: Option<Scalar>,
    pub list: Option<ListAtom>,
    pub map: Option<MapAtom>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    Numeric,
    String,
    Boolean,
    /// Any of them.
    Untyped,
}

#[derive(Clone, Debug)]
pub struct ListAtom {
    pub element: TypeId,
    pub merge: ListMerge,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListMerge {
    /// One field as a whole.
    Atomic,
    /// Items are scalars, each a field of its own.
    Set,
    /// Items are objects, told apart by these members.
    Keys(Box<[CompactString]>),
}

#[derive(Clone, Debug, Default)]
pub struct MapAtom {
    /// Sorted by name; [`SchemaBuilder`] sees to it.
    fields: Box<[MapField]>,
    /// The type of members that are no `fields`; such must not be if there is none.
    element: Option<TypeId>,
    /// One field as a whole.
    atomic: bool,
    /// Nothing is known about its members: they are of whatever type they look like.
    deduced: bool,
}

#[derive(Clone, Debug)]
pub struct MapField {
    pub name: CompactString,
    pub ty: TypeId,
    /// What an item's key is taken to be where it is left out.
    pub default: Option<Value>,
}

static BUILTIN: LazyLock<Schema> = LazyLock::new(|| builtin::build(Types::builtin()));

impl Schema {
    /// The schema of all built-in types.
    pub fn builtin() -> &'static Schema {
        &BUILTIN
    }

    /// The type of a built-in message.
    pub fn of_message(message: &Message) -> Option<TypeRef<'static>> {
        Self::builtin().named(message.name)
    }

    pub fn named(&self, name: &str) -> Option<TypeRef<'_>> {
        self.names.get(name).map(|id| TypeRef { schema: self, id: *id })
    }

    /// For objects that no schema is known of: members are fields, lists are one field as a whole.
    pub fn deduced() -> TypeRef<'static> {
        TypeRef { schema: Self::builtin(), id: DEDUCED }
    }

    /// The type that [`SchemaBuilder`] gave this id.
    pub fn get(&self, id: TypeId) -> TypeRef<'_> {
        TypeRef { schema: self, id }
    }

    pub(super) fn atom(&self, id: TypeId) -> &Atom {
        // Every id was given by the builder of some schema; one of another schema means nothing here.
        self.atoms.get(id.0 as usize).unwrap_or(&self.atoms[UNTYPED.0 as usize])
    }
}

impl<'s> TypeRef<'s> {
    pub fn atom(self) -> &'s Atom {
        self.schema.atom(self.id)
    }

    /// A type that this one refers to.
    pub fn at(self, id: TypeId) -> Self {
        Self { schema: self.schema, id }
    }

    pub fn id(self) -> TypeId {
        self.id
    }

    pub(super) fn is(self, other: TypeRef<'_>) -> bool {
        std::ptr::eq(self.schema, other.schema) && self.id == other.id
    }
}

impl MapAtom {
    pub fn field(&self, name: &str) -> Option<&MapField> {
        let at = self.fields.binary_search_by(|field| field.name.as_str().cmp(name)).ok()?;
        Some(&self.fields[at])
    }

    /// The type of a member, declared or not.
    pub fn member(&self, name: &str) -> Option<TypeId> {
        self.field(name).map(|field| field.ty).or(self.element)
    }

    pub fn fields(&self) -> &[MapField] {
        &self.fields
    }

    pub fn element(&self) -> Option<TypeId> {
        self.element
    }

    pub fn is_atomic(&self) -> bool {
        self.atomic
    }

    pub(super) fn is_deduced(&self) -> bool {
        self.deduced
    }
}

impl ListAtom {
    pub fn is_atomic(&self) -> bool {
        self.merge == ListMerge::Atomic
    }
}

/// Any value, which is one field as a whole.
const UNTYPED: TypeId = TypeId(0);
/// Any value; members of objects are fields of their own.
const DEDUCED: TypeId = TypeId(1);

/// Builds a [`Schema`]. Types may be declared first and defined later, since they may refer to themselves.
#[derive(Debug)]
pub struct SchemaBuilder {
    atoms: Vec<Atom>,
    names: HashMap<String, TypeId>,
    /// Copies of types, made atomic or not; made when all are defined.
    overridden: Vec<Override>,
}

#[derive(Debug)]
struct Override {
    of: TypeId,
    atomic: bool,
    copy: TypeId,
}

impl Default for SchemaBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl SchemaBuilder {
    pub fn new() -> Self {
        let any = |element: TypeId, atomic: bool| Atom {
            scalar: Some(Scalar::Untyped),
            list: Some(ListAtom { element: UNTYPED, merge: ListMerge::Atomic }),
            map: Some(MapAtom {
                element: Some(element),
                atomic,
                deduced: element == DEDUCED,
                ..Default::default()
            }),
        };
        let atoms = vec![any(UNTYPED, true), any(DEDUCED, false)];
        Self { atoms, names: HashMap::new(), overridden: Vec::new() }
    }

    /// Any value, which is one field as a whole.
    pub fn untyped(&self) -> TypeId {
        UNTYPED
    }

    /// Any value; members of objects are fields of their own. What `x-kubernetes-preserve-unknown-fields` means.
    pub fn deduced(&self) -> TypeId {
        DEDUCED
    }

    /// The type of a name, to be defined before or after.
    pub fn declare(&mut self, name: &str) -> TypeId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let id = self.add(self.atoms[DEDUCED.0 as usize].clone());
        self.names.insert(name.to_owned(), id);
        id
    }

    /// Says what a declared type is.
    pub fn define(&mut self, id: TypeId, atom: Atom) {
        if let Some(place) = self.atoms.get_mut(id.0 as usize) {
            *place = atom;
        }
    }

    /// A type without a name.
    pub fn add(&mut self, atom: Atom) -> TypeId {
        let id = TypeId(u32::try_from(self.atoms.len()).unwrap_or(0));
        self.atoms.push(atom);
        id
    }

    pub fn scalar(&mut self, scalar: Scalar) -> TypeId {
        self.add(Atom { scalar: Some(scalar), ..Default::default() })
    }

    pub fn list(&mut self, element: TypeId, merge: ListMerge) -> TypeId {
        self.add(Atom { list: Some(ListAtom { element, merge }), ..Default::default() })
    }

    pub fn map(&mut self, map: MapAtom) -> TypeId {
        self.add(Atom { map: Some(map), ..Default::default() })
    }

    /// An object with these members; others are of type `element`, or not allowed.
    pub fn object(
        &self,
        fields: impl IntoIterator<Item = MapField>,
        element: Option<TypeId>,
        atomic: bool,
    ) -> MapAtom {
        let mut fields: Vec<MapField> = fields.into_iter().collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        fields.dedup_by(|a, b| a.name == b.name);
        let deduced = fields.is_empty() && element.is_some_and(|element| self.is_deduced(element));
        MapAtom { fields: fields.into(), element, atomic, deduced }
    }

    fn is_deduced(&self, element: TypeId) -> bool {
        let is_named = || self.names.values().any(|id| *id == element);
        let scalar = self.atoms.get(element.0 as usize).and_then(|atom| atom.scalar);
        element == DEDUCED || (element != UNTYPED && scalar == Some(Scalar::Untyped) && !is_named())
    }

    /// The same type, but for this use of it one field as a whole, or not.
    pub fn with_atomic(&mut self, of: TypeId, atomic: bool) -> TypeId {
        let same = |made: &&Override| made.of == of && made.atomic == atomic;
        if let Some(made) = self.overridden.iter().find(same) {
            return made.copy;
        }
        let copy = self.add(Atom::default());
        self.overridden.push(Override { of, atomic, copy });
        copy
    }

    pub fn build(mut self) -> Schema {
        for made in std::mem::take(&mut self.overridden) {
            let mut atom = self.atoms.get(made.of.0 as usize).cloned().unwrap_or_default();
            match (&mut atom.map, &mut atom.list) {
                (Some(map), _) => map.atomic = made.atomic,
                (None, Some(list)) if made.atomic => list.merge = ListMerge::Atomic,
                (None, Some(list)) if list.is_atomic() => list.merge = ListMerge::Set,
                _ => {}
            }
            self.define(made.copy, atom);
        }
        Schema { atoms: self.atoms, names: self.names }
    }
}

#[cfg(test)]
mod tests;
