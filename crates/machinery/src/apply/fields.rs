//! Sets of paths: which fields somebody owns.

use std::{cmp::Ordering, fmt};

use serde_json::{Map, Value};

use super::element::{ElementError, PathElement, show_path, write_string};
use crate::gojson;

/// A sorted set of paths into an object.
///
/// ```text
///   {"f:metadata":{"f:labels":{".":{},"f:app":{}}}}      .metadata.labels
///                                                        .metadata.labels.app
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Sorted by element. Each is owned or has something below it.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    element: PathElement,
    /// Whether the path that ends here is in the set.
    owned: bool,
    below: FieldSet,
}

/// Why JSON is no FieldsV1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldsError(pub String);

/// What is below a path that has nothing below it.
pub(super) static NOTHING: FieldSet = FieldSet { nodes: Vec::new() };

impl FieldSet {
    /// The set of some paths of plain members: `of_fields(&[&["metadata", "name"]])`.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<_> = path.iter().map(|name| PathElement::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    /// The empty path names the whole object, which nobody owns.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((element, rest)) = path.split_first() else { return };
        let at = match self.find(element) {
            Ok(at) => at,
            Err(at) => {
                let node = Node { element: element.clone(), owned: false, below: Self::default() };
                self.nodes.insert(at, node);
                at
            }
        };
        let node = &mut self.nodes[at];
        if rest.is_empty() {
            node.owned = true;
        } else {
            node.below.insert(rest);
        }
    }

    /// Adds an element with what is below it, in any order; [`FieldSet::sorted`] must follow.
    pub(super) fn push(&mut self, element: PathElement, owned: bool, below: FieldSet) {
        if owned || !below.is_empty() {
            self.nodes.push(Node { element, owned, below });
        }
    }

    /// Puts what was pushed in order, equal elements united.
    pub(super) fn sorted(mut self) -> Self {
        if !self.nodes.is_sorted_by(|a, b| a.element < b.element) {
            self.nodes.sort_by(|a, b| a.element.cmp(&b.element));
            self.nodes.dedup_by(|next, node| {
                let same = next.element == node.element;
                if same {
                    node.owned |= next.owned;
                    node.below = std::mem::take(&mut node.below).union(std::mem::take(&mut next.below));
                }
                same
            });
        }
        self
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many paths there are.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.owned) + node.below.len()).sum()
    }

    pub fn has(&self, path: &[PathElement]) -> bool {
        let Some((element, rest)) = path.split_first() else { return false };
        let Some(node) = self.node(element) else { return false };
        if rest.is_empty() { node.owned } else { node.below.has(rest) }
    }

    /// Whether the path of this one element is in the set.
    pub fn owns(&self, element: &PathElement) -> bool {
        self.node(element).is_some_and(|node| node.owned)
    }

    /// The paths that begin with an element, without it.
    pub fn below(&self, element: &PathElement) -> &FieldSet {
        self.node(element).map_or(&NOTHING, |node| &node.below)
    }

    /// The first elements of all paths, with whether each is in the set itself, and what is below it.
    pub fn elements(&self) -> impl Iterator<Item = (&PathElement, bool, &FieldSet)> {
        self.nodes.iter().map(|node| (&node.element, node.owned, &node.below))
    }

    /// All paths: at each level first those that end there, as upstream lists them.
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<PathElement>, paths: &mut Vec<Vec<PathElement>>) {
        for node in self.nodes.iter().filter(|node| node.owned) {
            let mut path = prefix.clone();
            path.push(node.element.clone());
            paths.push(path);
        }
        for node in &self.nodes {
            prefix.push(node.element.clone());
            node.below.collect(prefix, paths);
            prefix.pop();
        }
    }

    pub fn union(self, other: FieldSet) -> FieldSet {
        if self.is_empty() {
            return other;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let mut others = other.nodes.into_iter().peekable();
        for mut node in self.nodes {
            while let Some(other) = others.next_if(|other| other.element < node.element) {
                nodes.push(other);
            }
            if let Some(other) = others.next_if(|other| other.element == node.element) {
                node.owned |= other.owned;
                node.below = node.below.union(other.below);
            }
            nodes.push(node);
        }
        nodes.extend(others);
        FieldSet { nodes }
    }

    /// The paths that `other` has not. Paths below one that it has stay.
    pub fn difference(mut self, other: &FieldSet) -> FieldSet {
        self.retain_with(other, |node, other| {
            node.owned &= !other.owned;
            node.below = std::mem::take(&mut node.below).difference(&other.below);
        });
        self
    }

    /// The paths that `other` has not, and nothing below those it has.
    pub fn recursive_difference(mut self, other: &FieldSet) -> FieldSet {
        self.retain_with(other, |node, other| {
            node.owned &= !other.owned;
            let below = std::mem::take(&mut node.below);
            node.below = if other.owned { Self::default() } else { below.recursive_difference(&other.below) };
        });
        self
    }

    /// Changes the nodes that both sets have, and drops those that say nothing any more.
    fn retain_with(&mut self, other: &FieldSet, change: impl Fn(&mut Node, &Node)) {
        let mut others = other.nodes.as_slice();
        self.nodes.retain_mut(|node| {
            others = skip_to(others, &node.element);
            if let Some(other) = others.first().filter(|other| other.element == node.element) {
                change(node, other);
            }
            node.owned || !node.below.is_empty()
        });
    }

    /// The paths that are in both.
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut both = FieldSet::default();
        let mut others = other.nodes.as_slice();
        for node in &self.nodes {
            others = skip_to(others, &node.element);
            let Some(other) = others.first() else { break };
            if other.element == node.element {
                let below = node.below.intersection(&other.below);
                if (node.owned && other.owned) || !below.is_empty() {
                    both.push(node.element.clone(), node.owned && other.owned, below);
                }
            }
        }
        both
    }

    /// Whether all paths are in `other` too.
    pub fn is_within(&self, other: &FieldSet) -> bool {
        self.nodes.iter().all(|node| {
            let same = other.node(&node.element);
            same.is_some_and(|same| (same.owned || !node.owned) && node.below.is_within(&same.below))
        })
    }

    /// The paths that no other path of the set goes on from.
    pub fn leaves(&self) -> FieldSet {
        let mut leaves = FieldSet::default();
        for node in &self.nodes {
            leaves.push(node.element.clone(), node.owned && node.below.is_empty(), node.below.leaves());
        }
        leaves
    }

    /// FieldsV1, byte for byte as upstream writes it.
    pub fn to_json(&self) -> String {
        let mut out = String::from("{");
        self.write(false, &mut out);
        out.push('}');
        out
    }

    fn write(&self, with_self: bool, out: &mut String) {
        let mut comma = false;
        let mut element = String::new();
        if with_self {
            out.push_str("\".\":{}");
            comma = true;
        }
        for node in &self.nodes {
            if std::mem::replace(&mut comma, true) {
                out.push(',');
            }
            element.clear();
            node.element.write(&mut element);
            write_string(&element, false, out);
            out.push_str(":{");
            node.below.write(node.owned && !node.below.is_empty(), out);
            out.push('}');
        }
    }

    /// FieldsV1 as part of an object's tree, whose members are in the order of their names.
    pub fn to_value(&self) -> Value {
        let mut members = Map::new();
        for node in &self.nodes {
            let mut element = String::new();
            node.element.write(&mut element);
            let mut below = node.below.to_value();
            if let (true, Value::Object(below)) = (node.owned && !node.below.is_empty(), &mut below) {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            members.insert(element, below);
        }
        Value::Object(members)
    }

    pub fn from_json(text: &str) -> Result<Self, FieldsError> {
        Self::from_value(&gojson::parse(text.as_bytes()).map_err(FieldsError)?)
    }

    /// Reads FieldsV1. Elements of an unknown kind are left out.
    pub fn from_value(value: &Value) -> Result<Self, FieldsError> {
        Ok(read(value, 0)?.1)
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        match self.nodes.last() {
            Some(last) if last.element < *element => Err(self.nodes.len()),
            _ => self.nodes.binary_search_by(|node| node.element.cmp(element)),
        }
    }

    fn node(&self, element: &PathElement) -> Option<&Node> {
        self.find(element).ok().map(|at| &self.nodes[at])
    }
}

/// Whether the path that led here is in the set, and what is below it.
fn read(value: &Value, depth: usize) -> Result<(bool, FieldSet), FieldsError> {
    if depth > gojson::MAX_DEPTH {
        return Err(FieldsError("too many levels".to_owned()));
    }
    let members = match value {
        Value::Object(members) => members,
        Value::Null => return Ok((true, FieldSet::default())),
        other => return Err(FieldsError(format!("expect {{ or n, but found {other}"))),
    };
    let mut is_member = false;
    let mut set = FieldSet { nodes: Vec::with_capacity(members.len()) };
    for (name, value) in members {
        if name == "." {
            is_member = true;
            continue;
        }
        let element = match PathElement::parse(name) {
            Ok(element) => element,
            Err(ElementError::UnknownType) => continue,
            Err(error) => return Err(FieldsError(format!("parsing key as path element: {error}"))),
        };
        let (owned, below) = read(value, depth + 1)?;
        set.push(element, owned, below);
    }
    Ok((is_member || set.is_empty(), set.sorted()))
}

/// What is left of sorted nodes from the first that is not before `element`.
fn skip_to<'n>(nodes: &'n [Node], element: &PathElement) -> &'n [Node] {
    let before = nodes.iter().take_while(|node| node.element < *element).count();
    &nodes[before..]
}

/// One path on each line.
impl fmt::Display for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.paths().iter().map(|path| show_path(path)).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl<'p> FromIterator<&'p [PathElement]> for FieldSet {
    fn from_iter<I: IntoIterator<Item = &'p [PathElement]>>(paths: I) -> Self {
        let mut set = Self::default();
        paths.into_iter().for_each(|path| set.insert(path));
        set
    }
}

/// Which fields a write may own: not those that it cannot change.
#[derive(Clone, Debug)]
pub enum Filter {
    /// All but these and what is below them: `status`, for a write to the object itself.
    Exclude(FieldSet),
    /// Those that match, for a subresource that writes little.
    Include(Matcher),
}

impl Filter {
    pub fn apply(&self, set: FieldSet) -> FieldSet {
        match self {
            Self::Exclude(exclude) => set.recursive_difference(exclude),
            Self::Include(matcher) => matcher.select(set),
        }
    }
}

/// Matches paths by how they begin.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    /// Matches whatever follows.
    all: bool,
    /// What the next element may be (`None`: anything), sorted; and what then follows.
    next: Vec<(Option<PathElement>, Matcher)>,
}

impl Matcher {
    /// Matches paths that begin with one of the prefixes, and what is on the way to them. `None` stands for any
    /// element.
    pub fn prefixes<'p>(prefixes: impl IntoIterator<Item = &'p [Option<PathElement>]>) -> Self {
        let mut matcher = Self::default();
        for prefix in prefixes {
            matcher.add(prefix);
        }
        matcher
    }

    fn add(&mut self, prefix: &[Option<PathElement>]) {
        let Some((element, rest)) = prefix.split_first() else {
            *self = Self { all: true, next: Vec::new() };
            return;
        };
        if self.all {
            return;
        }
        // `None` sorts first and so is tried first.
        let at = match self.next.binary_search_by(|(other, _)| other.cmp(element)) {
            Ok(at) => at,
            Err(at) => {
                self.next.insert(at, (element.clone(), Self::default()));
                at
            }
        };
        self.next[at].1.add(rest);
    }

    fn select(&self, mut set: FieldSet) -> FieldSet {
        if self.all {
            return set;
        }
        set.nodes.retain_mut(|node| {
            let matches = |(element, _): &&(Option<PathElement>, Matcher)| {
                element.as_ref().is_none_or(|element| element.cmp(&node.element) == Ordering::Equal)
            };
            let Some((_, rest)) = self.next.iter().find(matches) else { return false };
            node.below = rest.select(std::mem::take(&mut node.below));
            node.owned || !node.below.is_empty()
        });
        set
    }
}

#[cfg(test)]
pub(super) mod tests;
