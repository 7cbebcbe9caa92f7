//! The contract of a store, on the server that leads and on one that does not.

use std::sync::{Arc, Mutex};

use store::{Store, WorkspaceId, suite};

use super::world::{World, run, set};

#[test]
fn a_server_alone_keeps_the_contract() {
    run(async || {
        let worlds = Mutex::new(Vec::new());
        let make = async |_: &'static str| {
            let world = World::new(7);
            let store = world.server("a").await;
            worlds.lock().unwrap().push(world);
            Arc::new(store) as Arc<dyn Store>
        };
        suite::run(make).await;
    });
}

#[test]
fn a_server_that_leads_nothing_keeps_the_contract() {
    run(async || {
        let worlds = Mutex::new(Vec::new());
        let make = async |_: &'static str| {
            let world = World::new(8);
            let leader = world.server("leader").await;
            for workspace in ["home", "other", "new"] {
                let workspace = WorkspaceId(workspace.into());
                // To lead it without leaving a trace.
                let claimed = leader.compact(&workspace, store_origin(&leader, &workspace)).await;
                claimed.expect("nothing to forget");
            }
            let other = world.server("other").await;
            worlds.lock().unwrap().push(world);
            Arc::new(other) as Arc<dyn Store>
        };
        suite::run(make).await;
    });
}

fn store_origin(store: &dyn Store, workspace: &WorkspaceId) -> machinery::Revision {
    store.head(workspace)
}

#[test]
fn what_was_committed_is_there_after_a_start() {
    run(async || {
        let world = World::new(9);
        let first = world.server("first").await;
        let large = "x".repeat(2 << 20);
        let before = set(&first, "a", "1").await.expect("commits");
        set(&first, "large", &large).await.expect("commits");
        let head = set(&first, "a", "2").await.expect("commits");
        first.close().await;
        let second = world.server("second").await;
        assert_eq!(super::world::value(&second, "a").as_deref(), Some("2"));
        assert_eq!(super::world::value(&second, "large"), Some(large));
        assert_eq!(second.head(&super::world::home()), head);
        let span = store::Span { collection: store::Collection::new("", "things"), namespace: None };
        let mut watch = second.watch(&super::world::home(), span, before).expect("history is resumed");
        assert_eq!(watch.take(10).expect("takes").events.len(), 2);
        set(&second, "a", "3").await.expect("leads at once");
    });
}
