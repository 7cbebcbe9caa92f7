//! The contract of [`Store`] as tests that every implementation runs.
//!
//! Each case gets a store of its own, empty, and panics with the promise that was broken.

mod history;
mod reads;
mod writes;

use std::sync::Arc;

use compact_str::CompactString;
use env::BoxFuture;
use machinery::{Draft, Revision};
use serde_json::json;

use crate::{
    Batch, Change, Collection, Commit, Committed, Error, Expect, Key, Span, Store, Watch, WorkspaceId, Write,
};

/// One test: its name and what it does.
pub type Case = (&'static str, fn(Arc<dyn Store>) -> BoxFuture<'static, ()>);

/// All cases.
pub fn cases() -> Vec<Case> {
    [writes::CASES, reads::CASES, history::CASES].concat()
}

/// Runs every case on a store that `make` makes for it, under the case's name.
pub async fn run(make: impl AsyncFn(&'static str) -> Arc<dyn Store>) {
    for (name, case) in cases() {
        println!("case {name}");
        case(make(name).await).await;
    }
}

/// A `ConfigMap`-like object whose `data.v` is `value`.
pub fn draft(name: &str, value: &str) -> Draft {
    let tree = json!({"kind": "Thing", "apiVersion": "v1", "metadata": {"name": name}, "data": {"v": value}});
    let encoded = tree.as_object().map(Draft::encode);
    encoded.expect("an object").expect("a valid object")
}

/// The `data.v` of an object made by [`draft`].
pub fn value_of(object: &machinery::Object) -> String {
    let tree = object.tree().expect("a valid object");
    tree["data"]["v"].as_str().expect("a value").to_owned()
}

fn home() -> WorkspaceId {
    WorkspaceId("home".into())
}

fn things() -> Collection {
    Collection::new("", "things")
}

fn thing(name: &str) -> Key {
    Key::new("", "things", "ns", name)
}

fn all_things() -> Span {
    Span { collection: things(), namespace: None }
}

fn things_of(namespace: &str) -> Span {
    Span { collection: things(), namespace: Some(CompactString::from(namespace)) }
}

fn put(key: &Key, value: &str, expect: Expect) -> Write {
    let change = Change::Put { draft: draft(key.item.name(), value), expires: None };
    Write { key: key.clone(), expect, change }
}

fn remove(key: &Key, expect: Expect) -> Write {
    Write { key: key.clone(), expect, change: Change::Remove }
}

fn commit_of(writes: Vec<Write>) -> Commit {
    Commit { guards: Vec::new(), writes }
}

/// Commits in [`home`] and expects success.
async fn write(store: &Arc<dyn Store>, writes: Vec<Write>) -> Vec<Committed> {
    store.commit(&home(), commit_of(writes)).await.expect("the commit is taken")
}

/// Puts one object in [`home`], whatever was there.
async fn set(store: &Arc<dyn Store>, key: &Key, value: &str) -> Revision {
    write(store, vec![put(key, value, Expect::Anything)]).await[0].revision
}

fn assert_conflict<T: std::fmt::Debug>(result: Result<T, Error>, key: &Key, current: Option<Revision>) {
    match result {
        Err(Error::Conflict { key: at, current: found }) => {
            assert_eq!((&at, found.map(|object| object.revision)), (key, current));
        }
        other => panic!("expected a conflict at {key:?}, got {other:?}"),
    }
}

/// What an event says, for comparison: `ADDED ns/a=1`.
fn told_one(event: &crate::Event) -> String {
    format!("{} {}={}", event.event_type().as_str(), event.key.item.0, value_of(event.object()))
}

fn told(batch: &Batch) -> Vec<String> {
    batch.events.iter().map(|event| told_one(event)).collect()
}

/// Takes everything there is now.
fn take_all(watch: &mut Watch) -> Batch {
    let mut all = watch.take(usize::MAX).expect("the watch goes on");
    while let Some(more) =
        Some(watch.take(usize::MAX).expect("the watch goes on")).filter(|m| !m.events.is_empty())
    {
        all.events.extend(more.events);
        all.complete_to = more.complete_to;
    }
    all
}

fn names_at(store: &Arc<dyn Store>, at: Option<Revision>) -> (Revision, Vec<String>) {
    let listing = store.list(&home(), &things(), at).expect("the list is there");
    let line =
        |(key, object): (&crate::ItemKey, &Arc<machinery::Object>)| format!("{}={}", key.0, value_of(object));
    (listing.revision, listing.iter(None, None).map(line).collect())
}

/// Boxes the cases' futures so that a table can hold them.
macro_rules! table {
    ($($name:ident),+ $(,)?) => {
        pub(super) const CASES: &[crate::suite::Case] =
            &[$((stringify!($name), |store| Box::pin($name(store)))),+];
    };
}
use table;
