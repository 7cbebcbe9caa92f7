//! Promise 6: watches, and the end of history.

use std::sync::Arc;

use super::*;

table!(
    a_watch_delivers_its_span_and_nothing_else,
    a_watch_sees_the_first_object_of_its_collection,
    a_watch_resumes_anywhere,
    a_watch_takes_no_more_than_asked,
    a_waiting_watch_is_woken,
    a_watch_shows_whole_commits_that_can_be_read,
    from_the_beginning_is_a_position,
    compacted_history_has_expired,
    compacted_history_takes_no_memory,
    an_idle_watch_outlives_compaction,
    all_history_can_be_forgotten,
    a_snapshot_stands_still,
    a_removed_workspace_ends_its_watches,
);

async fn a_watch_delivers_its_span_and_nothing_else(store: Arc<dyn Store>) {
    let head = store.head(&home());
    let in_other_namespace = Key::new("", "things", "ns2", "a");
    let mut everywhere = store.watch(&home(), all_things(), head).expect("watches");
    let mut here = store.watch(&home(), things_of("ns"), head).expect("watches");
    set(&store, &thing("a"), "1").await;
    set(&store, &in_other_namespace, "2").await;
    set(&store, &Key::new("", "others", "ns", "a"), "3").await;
    set(&store, &Key::new("", "things", "", "a"), "4").await;
    let last = set(&store, &thing("a"), "5").await;
    let batch = take_all(&mut here);
    assert_eq!(told(&batch), ["ADDED ns/a=1", "MODIFIED ns/a=5"]);
    assert_eq!(batch.complete_to, last);
    let all = told(&take_all(&mut everywhere));
    assert_eq!(all, ["ADDED ns/a=1", "ADDED ns2/a=2", "ADDED -/a=4", "MODIFIED ns/a=5"]);
    let other = set(&store, &in_other_namespace, "6").await;
    let nothing = here.take(10).expect("takes");
    assert!(nothing.events.is_empty());
    assert_eq!(nothing.complete_to, other, "a bookmark moves on without events");
}

async fn a_watch_sees_the_first_object_of_its_collection(store: Arc<dyn Store>) {
    let head = store.head(&home());
    let mut watch = store.watch(&home(), all_things(), head).expect("watches");
    assert!(take_all(&mut watch).events.is_empty());
    set(&store, &thing("a"), "1").await;
    watch.changed().await;
    assert_eq!(told(&take_all(&mut watch)), ["ADDED ns/a=1"]);
}

async fn a_watch_resumes_anywhere(store: Arc<dyn Store>) {
    let start = store.head(&home());
    let mut revisions = vec![start];
    for round in 0..5 {
        let writes = ["a", "b"].map(|name| put(&thing(name), &round.to_string(), Expect::Anything));
        revisions.extend(write(&store, writes.to_vec()).await.iter().map(|committed| committed.revision));
    }
    for (index, after) in revisions.iter().enumerate() {
        let mut watch = store.watch(&home(), all_things(), *after).expect("watches");
        let seen: Vec<_> = take_all(&mut watch).events.iter().map(|event| event.revision).collect();
        assert_eq!(seen, revisions[index + 1..]);
    }
}

async fn a_watch_takes_no_more_than_asked(store: Arc<dyn Store>) {
    let start = store.head(&home());
    for round in 0..10 {
        set(&store, &thing("a"), &round.to_string()).await;
    }
    let mut watch = store.watch(&home(), all_things(), start).expect("watches");
    let mut position = start;
    for expected in [4, 4, 2, 0] {
        let batch = watch.take(4).expect("takes");
        assert_eq!(batch.events.len(), expected);
        position = batch.events.last().map_or(position, |event| event.revision);
        assert_eq!(batch.complete_to, position);
        // Whoever resumes where it was complete continues it.
        let mut other = store.watch(&home(), all_things(), batch.complete_to).expect("watches");
        let next = take_all(&mut other).events.first().map(|event| event.revision);
        assert_eq!(next, (position < store.head(&home())).then(|| position.next()));
    }
}

async fn a_waiting_watch_is_woken(store: Arc<dyn Store>) {
    const ROUNDS: usize = 200;
    let head = store.head(&home());
    let watchers: Vec<_> = (0..4)
        .map(|_| {
            let mut watch = store.watch(&home(), things_of("ns"), head).expect("watches");
            tokio::spawn(async move {
                let mut seen = 0;
                while seen < ROUNDS {
                    watch.changed().await;
                    let batch = watch.take(usize::MAX).expect("takes");
                    assert!(!batch.events.is_empty(), "woken for nothing");
                    seen += batch.events.len();
                }
            })
        })
        .collect();
    for round in 0..ROUNDS {
        set(&store, &thing("a"), &round.to_string()).await;
        set(&store, &Key::new("", "things", "elsewhere", "a"), "1").await;
    }
    for watcher in watchers {
        watcher.await.expect("the watcher ends well");
    }
}

async fn a_watch_shows_whole_commits_that_can_be_read(store: Arc<dyn Store>) {
    const WRITES: usize = 40;
    const COMMITS: usize = 60;
    let mut watch = store.watch(&home(), all_things(), store.head(&home())).expect("watches");
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0..COMMITS {
                let key = |name: usize| thing(&name.to_string());
                let value = round.to_string();
                let writes = (0..WRITES).map(|name| put(&key(name), &value, Expect::Anything));
                write(&store, writes.collect()).await;
            }
        })
    };
    let mut seen = 0;
    while seen < WRITES * COMMITS {
        // Without waiting to be woken, to look at every moment there is.
        let batch = watch.take(usize::MAX).expect("takes");
        assert_eq!(batch.events.len() % WRITES, 0, "part of a commit");
        if let Some(last) = batch.events.last() {
            assert_eq!(batch.complete_to, last.commit_end);
            let read = store.get(&home(), &last.key).expect("what was shown can be read");
            assert!(read.revision >= last.revision);
        }
        seen += batch.events.len();
        tokio::task::yield_now().await;
    }
    assert_eq!(seen, WRITES * COMMITS, "each event once");
    writer.await.expect("the writer ends well");
}

async fn from_the_beginning_is_a_position(store: Arc<dyn Store>) {
    set(&store, &thing("a"), "1").await;
    for nothing_seen in [Revision::ZERO, Revision::BASE] {
        let mut watch = store.watch(&home(), all_things(), nothing_seen).expect("the whole history is there");
        assert_eq!(told(&take_all(&mut watch)), ["ADDED ns/a=1"]);
    }
    store.compact(&home(), store.head(&home())).await.expect("compacts");
    assert!(matches!(store.watch(&home(), all_things(), Revision::ZERO), Err(Error::Expired { .. })));
}

async fn compacted_history_has_expired(store: Arc<dyn Store>) {
    let first = set(&store, &thing("a"), "1").await;
    let second = set(&store, &thing("a"), "2").await;
    let third = set(&store, &thing("b"), "3").await;
    let mut behind = store.watch(&home(), all_things(), first).expect("watches");
    let mut level = store.watch(&home(), all_things(), second).expect("watches");
    store.compact(&home(), second).await.expect("compacts");
    assert!(matches!(behind.take(10), Err(Error::Expired { oldest }) if oldest >= second));
    behind.changed().await;
    assert_eq!(told(&take_all(&mut level)), ["ADDED ns/b=3"]);
    for gone in [Revision::start_of_epoch(first.epoch()), first] {
        assert!(matches!(store.watch(&home(), all_things(), gone), Err(Error::Expired { .. })));
        assert!(matches!(store.list(&home(), &things(), Some(gone)), Err(Error::Expired { .. })));
    }
    assert_eq!(names_at(&store, Some(second)).1, ["ns/a=2"]);
    assert_eq!(names_at(&store, None), (third, vec!["ns/a=2".to_owned(), "ns/b=3".to_owned()]));
    store.compact(&home(), first).await.expect("has been done");
    let future = store.compact(&home(), third.next()).await;
    assert!(matches!(future, Err(Error::Ahead { .. })));
    store.compact(&home(), third).await.expect("compacts");
    let mut watch = store.watch(&home(), all_things(), third).expect("the head is never gone");
    assert!(take_all(&mut watch).events.is_empty());
}

async fn compacted_history_takes_no_memory(store: Arc<dyn Store>) {
    let other = WorkspaceId("other".into());
    let writes = vec![put(&thing("a"), "1", Expect::Anything)];
    store.commit(&other, commit_of(writes)).await.expect("the commit is taken");
    set(&store, &thing("a"), "1").await;
    let was = [home(), other.clone()].map(|id| store.get(&id, &thing("a")).expect("is there"));
    let was = was.map(|object| Arc::downgrade(&object));
    store.remove_workspace(&other).await.expect("removes");
    let head = set(&store, &thing("a"), "2").await;
    store.compact(&home(), head).await.expect("compacts");
    // Whoever made them durable may hold them for a moment longer.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(
        was.iter().all(|object| object.upgrade().is_none()),
        "neither what was replaced nor what is removed"
    );
}

async fn an_idle_watch_outlives_compaction(store: Arc<dyn Store>) {
    let quiet = Span { collection: Collection::new("", "quiet"), namespace: None };
    let mut watch = store.watch(&home(), quiet, store.head(&home())).expect("watches");
    let mut head = store.head(&home());
    for round in 0..10 {
        head = set(&store, &thing("a"), &round.to_string()).await;
    }
    store.compact(&home(), head).await.expect("compacts");
    let batch = watch.take(10).expect("it has missed nothing");
    assert_eq!((batch.events.len(), batch.complete_to), (0, head));
    set(&store, &Key::new("", "quiet", "ns", "a"), "1").await;
    watch.changed().await;
    assert_eq!(told(&take_all(&mut watch)), ["ADDED ns/a=1"]);
}

async fn all_history_can_be_forgotten(store: Arc<dyn Store>) {
    let first = set(&store, &thing("a"), "1").await;
    let last = set(&store, &thing("a"), "2").await;
    store.forget_history(vec![home(), WorkspaceId("unknown".into())]).await.expect("forgets");
    assert!(matches!(store.watch(&home(), all_things(), first), Err(Error::Expired { .. })));
    let mut watch = store.watch(&home(), all_things(), last).expect("the head is never gone");
    set(&store, &thing("b"), "3").await;
    assert_eq!(told(&take_all(&mut watch)), ["ADDED ns/b=3"]);
    assert_eq!(names_at(&store, None).1, ["ns/a=2", "ns/b=3"]);
}

async fn a_snapshot_stands_still(store: Arc<dyn Store>) {
    assert!(store.snapshot(&home()).is_none(), "a workspace without a history has none");
    let writes = ["a", "b"].map(|name| put(&thing(name), "1", Expect::Anything));
    let head = write(&store, writes.to_vec()).await.last().expect("a record").revision;
    let snapshot = store.snapshot(&home()).expect("has a history");
    set(&store, &thing("a"), "2").await;
    set(&store, &Key::new("", "others", "ns", "c"), "1").await;
    assert_eq!((snapshot.id(), snapshot.state().head), (&home(), head));
    let holds = |(collection, items): &(Collection, crate::live::Items)| {
        let items = items.iter().map(|(key, item)| format!("{}={}", key.0, value_of(&item.object)));
        (collection.clone(), items.collect::<Vec<_>>())
    };
    let held: Vec<_> =
        snapshot.collections().iter().map(holds).filter(|(_, items)| !items.is_empty()).collect();
    assert_eq!(held, [(things(), vec!["ns/a=1".to_owned(), "ns/b=1".to_owned()])]);
}

async fn a_removed_workspace_ends_its_watches(store: Arc<dyn Store>) {
    let head = set(&store, &thing("a"), "1").await;
    let mut waiting = store.watch(&home(), all_things(), head).expect("watches");
    let waiter = tokio::spawn(async move {
        waiting.changed().await;
        waiting.take(10)
    });
    tokio::task::yield_now().await;
    store.remove_workspace(&home()).await.expect("removes");
    let ended = waiter.await.expect("the waiter ends well");
    assert!(matches!(ended, Err(Error::Expired { .. })), "{ended:?}");
    assert!(store.get(&home(), &thing("a")).is_none());
    assert!(store.list(&home(), &things(), None).expect("empty").is_empty());
    assert!(store.workspaces().is_empty());
    store.remove_workspace(&home()).await.expect("nothing to do");
    assert_eq!(store.expire(jiff::Timestamp::MAX).await.expect("nothing to do"), 0);
}
