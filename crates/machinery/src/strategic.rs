//! Strategic merge patch: a merge patch that knows which lists merge, and by which key.
//!
//! | in a patch | means |
//! | --- | --- |
//! | `$patch: replace` | this object, or the list that this item is in, replaces the original |
//! | `$patch: delete` | the object becomes empty; in a list, the item with this key goes |
//! | `$retainKeys: [a, b]` | members of the original that are not named go |
//! | `$deleteFromPrimitiveList/x: [1]` | these items of list `x` go |
//! | `$setElementOrder/x: [...]` | the order of list `x` after merging |
//!
//! What `null` names goes. Lists merge where the table says so and are replaced otherwise.

mod order;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::{
    gojson, gotext,
    patch::PatchError,
    schema::{Message, PatchStrategy, Type, Types},
};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

type Tree = Map<String, Value>;
type Merged<T = ()> = Result<T, PatchError>;

/// Applies a strategic merge patch to an object of type `message`. On an error `original` is left half done.
pub fn strategic_merge(types: &Types, message: &Message, original: &mut Value, patch: Value) -> Merged {
    let patch = match patch {
        Value::Object(patch) => patch,
        Value::Null => return Ok(()),
        other => {
            let found = gojson::type_name(&other);
            let message =
                format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            return Err(PatchError::Malformed(message));
        }
    };
    let merge = Merge { types };
    let tree = match original.take() {
        Value::Object(tree) => tree,
        _ => Tree::new(),
    };
    *original = Value::Object(merge.map(tree, patch, Lookup::Message(message))?);
    Ok(())
}

fn malformed(text: &str) -> PatchError {
    PatchError::Malformed(text.to_owned())
}

fn failed(text: String) -> PatchError {
    PatchError::Inapplicable(text)
}

fn bad_type(expected: &str, found: &Value) -> PatchError {
    failed(format!("expected a {expected}, but received a {}", gotext::type_of(found)))
}

fn no_merge_key(item: &Value, merge_key: &str) -> PatchError {
    failed(format!("map: {} does not contain declared merge key: {merge_key}", gotext::plain(item)))
}

/// The type of an object while walking down.
#[derive(Clone, Copy)]
enum Lookup<'t> {
    Message(&'t Message),
    /// A Go struct without fields of its own in JSON.
    Opaque(&'static str),
    /// Any other Go type, by its kind.
    Other(&'static str),
}

/// How a field merges.
struct Rule<'t> {
    element: Lookup<'t>,
    strategy: PatchStrategy,
    merge_key: Option<&'static str>,
}

struct Merge<'t> {
    types: &'t Types,
}

impl<'t> Merge<'t> {
    fn of_type(&self, ty: &Type) -> Lookup<'t> {
        match ty {
            Type::Message(id) => Lookup::Message(self.types.message(*id)),
            Type::Raw => Lookup::Opaque("RawExtension"),
            Type::Quantity => Lookup::Opaque("Quantity"),
            Type::IntOrString => Lookup::Opaque("IntOrString"),
            Type::Time | Type::MicroTime | Type::Duration => Lookup::Opaque("Time"),
            Type::SchemaOrBool(_) => Lookup::Opaque("JSONSchemaPropsOrBool"),
            Type::SchemaOrArray(_) => Lookup::Opaque("JSONSchemaPropsOrArray"),
            Type::SchemaOrStrings(_) => Lookup::Opaque("JSONSchemaPropsOrStringArray"),
            Type::List(_) | Type::Wrapped(_) | Type::Bytes => Lookup::Other("slice"),
            Type::Map(_) => Lookup::Other("map"),
            Type::String => Lookup::Other("string"),
            Type::Bool => Lookup::Other("bool"),
            Type::Int32 => Lookup::Other("int32"),
            Type::Int64 => Lookup::Other("int64"),
            Type::Float64 => Lookup::Other("float64"),
        }
    }

    /// The rule for member `key`, which holds a list if `is_list`.
    fn rule(&self, holder: Lookup<'t>, key: &str, is_list: bool) -> Merged<Rule<'t>> {
        let unknown = |name: &str| {
            let key = gotext::quote(key);
            failed(format!("unable to find api field in struct {name} for the json field {key}"))
        };
        let message = match holder {
            Lookup::Message(message) => message,
            Lookup::Opaque(name) => return Err(unknown(name)),
            Lookup::Other(kind) => {
                return Err(failed(format!(
                    "merging an object in json but data type is not struct, instead is: {kind}"
                )));
            }
        };
        let field = self.types.field(message, key).ok_or_else(|| unknown(message.short_name()))?;
        let element = match (&field.ty, is_list) {
            (ty, false) => self.of_type(ty),
            (Type::List(element) | Type::Wrapped(element), true) => self.of_type(element),
            (Type::Bytes, true) => Lookup::Other("uint8"),
            // Upstream takes a pointer for one to a list.
            (ty, true) if field.pointer => self.of_type(ty),
            _ => return Err(failed("expected slice or array type, but got: struct".to_owned())),
        };
        Ok(Rule { element, strategy: field.patch_strategy, merge_key: field.patch_merge_key })
    }

    fn map(&self, mut original: Tree, mut patch: Tree, holder: Lookup<'t>) -> Merged<Tree> {
        if let Some(directive) = patch.get(DIRECTIVE) {
            return match directive.as_str() {
                Some("replace") => {
                    patch.remove(DIRECTIVE);
                    Ok(patch)
                }
                Some("delete") => Ok(Tree::new()),
                _ => Err(unknown_directive(&Value::Object(patch))),
            };
        }
        retain_keys(&mut original, &mut patch)?;
        self.ordered_lists(&mut original, &mut patch, holder)?;
        for (key, value) in patch {
            self.member(&mut original, &key, value, holder)?;
        }
        Ok(original)
    }

    fn member(&self, original: &mut Tree, key: &str, patch: Value, holder: Lookup<'t>) -> Merged {
        let is_deletion = key.starts_with(DELETE_FROM_LIST);
        let key = if is_deletion { list_name(key, DELETE_FROM_LIST)? } else { key };
        if patch.is_null() {
            original.remove(key);
            return Ok(());
        }
        let current = original.get_mut(key);
        match (current, patch) {
            (Some(current @ Value::Object(_)), Value::Object(patch)) => {
                let rule = self.rule(holder, key, false)?;
                *current = Value::Object(match (rule.strategy.replace, current.take()) {
                    (false, Value::Object(tree)) => self.map(tree, patch, rule.element)?,
                    _ => patch,
                });
            }
            (Some(current @ Value::Array(_)), Value::Array(patch)) => {
                let rule = self.rule(holder, key, true)?;
                if !rule.strategy.merge && !is_deletion {
                    *current = Value::Array(patch);
                    return Ok(());
                }
                let Value::Array(items) = current.take() else { return Ok(()) };
                *current = Value::Array(self.list(items, patch, &rule, is_deletion)?);
            }
            _ if is_deletion => {}
            (current, mut patch) => {
                let both_scalars =
                    current.is_some_and(|current| gotext::type_of(current) == gotext::type_of(&patch));
                if !both_scalars {
                    discard_nulls(&mut patch);
                }
                match without_directives(patch) {
                    Some(value) => drop(original.insert(key.to_owned(), value)),
                    None => drop(original.remove(key)),
                }
            }
        }
        Ok(())
    }

    /// Merges the lists that the patch gives an order for, and takes them out of the patch.
    fn ordered_lists(&self, original: &mut Tree, patch: &mut Tree, holder: Lookup<'t>) -> Merged {
        let directives: Vec<String> =
            patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
        for directive in directives {
            let order = match patch.remove(&directive) {
                Some(Value::Array(order)) => order,
                other => return Err(bad_type("[]interface {}", &other.unwrap_or_default())),
            };
            let key = list_name(&directive, SET_ORDER)?;
            let server = take_list(original, key)?;
            let given = take_list(patch, key)?;
            let rule = self.rule(holder, key, true)?;
            let merge_key = rule.merge_key.unwrap_or_default();
            order::check_follows(given.as_deref().unwrap_or_default(), &order, merge_key)?;
            let mut server_order = server.clone().unwrap_or_default();
            let given_order = given.clone().unwrap_or_default();
            let merged = match (server, given) {
                (None, None) => continue,
                (Some(server), None) => server,
                (None, Some(given)) => given.into_iter().filter_map(without_directives).collect(),
                (Some(server), Some(given)) if rule.strategy.merge => {
                    self.list(server, given, &rule, false)?
                }
                (Some(_), Some(given)) => given,
            };
            let kind = order::element_type(&[&server_order, &given_order])?;
            if kind == order::MAP && rule.strategy.merge {
                server_order = order::after_merging(&server_order, &given_order, merge_key);
            }
            let all = order::arrange(merged, &order, &server_order, merge_key, kind)?;
            original.insert(key.to_owned(), Value::Array(all));
        }
        Ok(())
    }

    fn list(
        &self,
        original: Vec<Value>,
        patch: Vec<Value>,
        rule: &Rule<'t>,
        is_deletion: bool,
    ) -> Merged<Vec<Value>> {
        if original.is_empty() && patch.is_empty() {
            return Ok(original);
        }
        let kind = order::element_type(&[&original, &patch])?;
        if kind != order::MAP {
            if is_deletion {
                let gone: HashSet<String> = patch.iter().map(Value::to_string).collect();
                return Ok(original.into_iter().filter(|item| !gone.contains(&item.to_string())).collect());
            }
            let mut seen = HashSet::new();
            let both = original.iter().chain(&patch).filter(|item| seen.insert(item.to_string()));
            let merge_key = rule.merge_key.unwrap_or_default();
            return order::arrange(both.cloned().collect(), &patch, &original, merge_key, kind);
        }
        let merge_key = rule.merge_key.ok_or_else(|| {
            let name = match rule.element {
                Lookup::Message(_) | Lookup::Opaque(_) => "struct",
                Lookup::Other(kind) => kind,
            };
            failed(format!("cannot merge lists without merge key for {name}"))
        })?;
        let (original, patch) = apply_item_directives(original, patch, merge_key)?;
        let server_order = keys_only(&original, merge_key);
        let patch_order = keys_only(&patch, merge_key);
        let merged = self.items(original, patch, merge_key, rule.element)?;
        order::arrange(merged, &patch_order, &server_order, merge_key, kind)
    }

    /// Merges items with equal keys and adds the others at the end.
    fn items(
        &self,
        mut original: Vec<Value>,
        patch: Vec<Value>,
        merge_key: &str,
        element: Lookup<'t>,
    ) -> Merged<Vec<Value>> {
        let mut places: HashMap<String, usize> = HashMap::new();
        for (at, item) in original.iter().enumerate() {
            if let Some(key) = item.get(merge_key) {
                places.entry(key.to_string()).or_insert(at);
            }
        }
        for item in patch {
            let key = item.get(merge_key).ok_or_else(|| no_merge_key(&item, merge_key))?.to_string();
            let Some(at) = places.get(&key).copied() else {
                places.insert(key, original.len());
                original.push(item);
                continue;
            };
            if let (Value::Object(tree), Value::Object(item)) = (original[at].take(), item) {
                original[at] = Value::Object(self.map(tree, item, element)?);
            }
        }
        Ok(original)
    }
}

/// Applies the items of a patch that are directives, and leaves the others.
fn apply_item_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
) -> Merged<(Vec<Value>, Vec<Value>)> {
    let mut others = Vec::new();
    let mut gone = HashSet::new();
    let mut replaces = false;
    for item in patch {
        match item.get(DIRECTIVE).map(Value::as_str) {
            None => others.push(item),
            Some(Some("delete")) => {
                let key = item.get(merge_key).ok_or_else(|| no_merge_key(&item, merge_key))?;
                gone.insert(key.to_string());
            }
            Some(Some("replace")) => replaces = true,
            Some(Some("merge")) => {
                return Err(failed("merging lists cannot yet be specified in the patch".to_owned()));
            }
            Some(_) => return Err(unknown_directive(&item)),
        }
    }
    if replaces {
        return Ok((others, Vec::new()));
    }
    original.retain(|item| !item.get(merge_key).is_some_and(|key| gone.contains(&key.to_string())));
    Ok((original, others))
}

fn unknown_directive(patch: &Value) -> PatchError {
    let directive = patch.get(DIRECTIVE).cloned().unwrap_or_default();
    let directive = match &directive {
        Value::String(text) => text.clone(),
        other => format!("%!s({}={})", gotext::type_of(other), gotext::plain(other)),
    };
    failed(format!("unknown patch type: {directive} in map: {}", gotext::plain(patch)))
}

/// Items reduced to their merge keys, in order.
fn keys_only(items: &[Value], merge_key: &str) -> Vec<Value> {
    let key_of = |item: &Value| match item.get(merge_key) {
        Some(key) => Value::Object([(merge_key.to_owned(), key.clone())].into_iter().collect()),
        None => item.clone(),
    };
    items.iter().map(key_of).collect()
}

fn retain_keys(original: &mut Tree, patch: &mut Tree) -> Merged {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = || malformed("invalid patch format of retainKeys");
    let kept: HashSet<&str> =
        directive.as_array().ok_or_else(bad)?.iter().filter_map(Value::as_str).collect();
    let is_directive = |key: &str| key.starts_with(DELETE_FROM_LIST) || key.starts_with(SET_ORDER);
    let stray = |(key, value): (&String, &Value)| {
        !value.is_null() && !is_directive(key) && !kept.contains(key.as_str())
    };
    if patch.iter().any(stray) {
        return Err(bad());
    }
    original.retain(|key, _| kept.contains(key.as_str()));
    Ok(())
}

/// The `x` of `$setElementOrder/x`.
fn list_name<'k>(key: &'k str, directive: &str) -> Merged<&'k str> {
    let name = key.split_once('/').filter(|(prefix, _)| *prefix == directive).map(|(_, name)| name);
    name.ok_or_else(|| match directive {
        SET_ORDER => malformed("invalid patch format of setElementOrder list"),
        _ => malformed("invalid patch format of primitive list"),
    })
}

fn take_list(tree: &mut Tree, key: &str) -> Merged<Option<Vec<Value>>> {
    match tree.remove(key) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(bad_type("[]interface {}", &other)),
    }
}

/// A value without its directives; `None` if it is one itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(members) if members.contains_key(DIRECTIVE) => None,
        Value::Object(members) => {
            let members =
                members.into_iter().filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(Value::Object(members.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
