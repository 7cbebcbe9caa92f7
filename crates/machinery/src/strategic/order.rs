//! The order of merged lists: what the patch says comes first, what only the server has keeps its place among it.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{DIRECTIVE, Merged, SET_ORDER, bad_type, failed, malformed, no_merge_key};
use crate::{gotext, patch::PatchError};

/// What [`element_type`] says of lists of objects.
pub(super) const MAP: &str = "map[string]interface {}";

/// The one Go type of all items; lists of lists do not merge.
pub(super) fn element_type(lists: &[&[Value]]) -> Merged<&'static str> {
    let mut items = lists.iter().copied().flatten();
    let Some(first) = items.next() else {
        return Err(failed("no elements in any of the given slices".to_owned()));
    };
    if first.is_array() {
        return Err(PatchError::Inapplicable("lists of lists are not supported".to_owned()));
    }
    let first = gotext::type_of(first);
    if items.any(|item| gotext::type_of(item) != first) {
        let lists: Vec<Value> = lists.iter().map(|list| Value::Array(list.to_vec())).collect();
        let lists = gotext::plain(&Value::Array(lists));
        return Err(failed(format!("list element types are not identical: {lists}")));
    }
    Ok(first)
}

/// Checks that the items of a patch's list stand in the order that the patch gives.
pub(super) fn check_follows(patch: &[Value], order: &[Value], merge_key: &str) -> Merged {
    if order.is_empty() || patch.is_empty() {
        return Ok(());
    }
    let mut remaining = Vec::new();
    for item in patch {
        if !merge_key.is_empty() && !item.is_object() {
            return Err(bad_type(MAP, item));
        }
        if !is_deletion(item) {
            remaining.push(item);
        }
    }
    let (mut at, mut order_at) = (0, 0);
    while at < remaining.len() && order_at < order.len() {
        // Items with a directive have no place in the order.
        if remaining[at].get(DIRECTIVE).is_some() {
            at += 1;
            continue;
        }
        if key_of(remaining[at], merge_key)? == key_of(&order[order_at], merge_key)? {
            at += 1;
        }
        order_at += 1;
    }
    if at < remaining.len() { Err(out_of_order(patch, order)) } else { Ok(()) }
}

fn out_of_order(patch: &[Value], order: &[Value]) -> PatchError {
    let plain = |list: &[Value]| gotext::plain(&Value::Array(list.to_vec()));
    failed(format!(
        "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
        plain(patch),
        plain(order)
    ))
}

fn key_of<'v>(item: &'v Value, merge_key: &str) -> Merged<&'v Value> {
    if merge_key.is_empty() {
        return Ok(item);
    }
    if !item.is_object() {
        return Err(bad_type(MAP, item));
    }
    item.get(merge_key).ok_or_else(|| no_merge_key(item, merge_key))
}

/// Puts merged items in order: those in `patch_order` as there, the others as in `server_order` and as near as can
/// be to where they were.
pub(super) fn arrange(
    merged: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    merge_key: &str,
    kind: &str,
) -> Merged<Vec<Value>> {
    if kind == MAP && merge_key.is_empty() {
        return Err(malformed("invalid patch format of setElementOrder list"));
    }
    let patch_places = places(patch_order, merge_key)?;
    let server_places = places(server_order, merge_key)?;
    let (mut of_patch, mut of_server) = (Vec::new(), Vec::new());
    for item in merged {
        let key = key_of(&item, merge_key)?.to_string();
        let at_server = server_places.get(&key).copied();
        match patch_places.get(&key) {
            Some(place) => of_patch.push((Some(*place), at_server, item)),
            None => of_server.push((at_server, at_server, item)),
        }
    }
    for items in [&mut of_patch, &mut of_server] {
        deletions_last(items);
        let kept = items.iter().filter(|(_, _, item)| !is_deletion(item)).count();
        sort_by_place(&mut items[..kept]);
    }
    Ok(interleave(of_server, of_patch))
}

/// Where it is to stand, where the server has it, and the item.
type Placed = (Option<usize>, Option<usize>, Value);

/// Where each key first stands.
fn places(items: &[Value], merge_key: &str) -> Merged<HashMap<String, usize>> {
    let mut places = HashMap::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        places.entry(key_of(item, merge_key)?.to_string()).or_insert(at);
    }
    Ok(places)
}

/// The server's order as upstream sees it once the lists are merged: it deletes in place, and new items take the
/// room that deleted ones leave.
pub(super) fn after_merging(server: &[Value], patch: &[Value], merge_key: &str) -> Vec<Value> {
    let key = |item: &Value| item.get(merge_key).map(Value::to_string);
    let gone: HashSet<String> = patch.iter().filter(|item| is_deletion(item)).filter_map(key).collect();
    let mut order: Vec<Value> =
        server.iter().filter(|item| key(item).is_none_or(|key| !gone.contains(&key))).cloned().collect();
    if patch.iter().any(|item| item.get(DIRECTIVE).and_then(Value::as_str) == Some("replace")) {
        return order;
    }
    let mut known: HashSet<String> = order.iter().filter_map(key).collect();
    let room = server.len() - order.len();
    let unmarked = patch.iter().filter(|item| item.get(DIRECTIVE).is_none());
    order.extend(unmarked.filter(|item| key(item).is_some_and(|key| known.insert(key))).take(room).cloned());
    order
}

/// Beyond this, items without a place just come first.
const MAX_UNPLACED: usize = 2000;

/// By place. Upstream's comparison says "before" of any pair where one has no place; its sort, an insertion sort
/// for lists of common length, then has a result that clients see.
fn sort_by_place(items: &mut [Placed]) {
    if items.iter().all(|(place, ..)| place.is_some()) || items.len() > MAX_UNPLACED {
        return items.sort_by_key(|(place, ..)| *place);
    }
    let before =
        |left: Option<usize>, right: Option<usize>| left.zip(right).is_none_or(|(left, right)| left < right);
    for next in 1..items.len() {
        let mut at = next;
        while at > 0 && before(items[at].0, items[at - 1].0) {
            items.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Deletions that were added with an item and so never applied stand last.
fn deletions_last(items: &mut [Placed]) {
    items.sort_by_key(|(_, _, item)| is_deletion(item));
}

fn is_deletion(item: &Value) -> bool {
    item.get(DIRECTIVE).and_then(Value::as_str) == Some("delete")
}

/// Inserts what only the server has before the first item of the patch that the server has behind it.
fn interleave(of_server: Vec<Placed>, of_patch: Vec<Placed>) -> Vec<Value> {
    let mut all = Vec::with_capacity(of_server.len() + of_patch.len());
    let (mut server, mut patch) = (of_server.into_iter().peekable(), of_patch.into_iter().peekable());
    loop {
        let from_server = match (server.peek(), patch.peek()) {
            (None, None) => return all,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some((_, Some(left), _)), Some((_, Some(right), _))) => left < right,
            _ => false,
        };
        let next = if from_server { server.next() } else { patch.next() };
        all.extend(next.map(|(_, _, item)| item));
    }
}
