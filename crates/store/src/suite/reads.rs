//! Promises 4, 5 and 7: lists, and watches that continue them.

use std::{collections::BTreeMap, sync::Arc};

use super::*;
use crate::{FeedItem, ItemKey};

table!(
    an_unknown_workspace_is_empty,
    writes_are_read_back_at_once,
    a_listing_does_not_change_under_its_reader,
    the_past_can_be_listed,
    a_list_inside_a_commit_stands_at_its_end,
    the_future_cannot_be_read,
    collections_and_their_last_changes_are_known,
    a_list_and_its_watch_have_no_gap_and_no_overlap,
    commits_across_collections_appear_at_once,
    the_feed_tells_everything_in_order,
);

async fn an_unknown_workspace_is_empty(store: Arc<dyn Store>) {
    let unknown = WorkspaceId("unknown".into());
    let listing = store.list(&unknown, &things(), None).expect("empty");
    assert_eq!((listing.len(), listing.revision), (0, store.head(&unknown)));
    assert!(store.list(&unknown, &things(), Some(listing.revision)).expect("empty").is_empty());
    assert!(matches!(
        store.list(&unknown, &things(), Some(listing.revision.next())),
        Err(Error::Ahead { .. })
    ));
    assert!(store.collections(&unknown).is_empty());
    assert!(store.workspaces().is_empty());
    let _watch = store.watch(&unknown, all_things(), listing.revision).expect("watches");
    assert!(store.workspaces().is_empty(), "watching makes no history");
}

async fn writes_are_read_back_at_once(store: Arc<dyn Store>) {
    for round in 0..50 {
        let value = round.to_string();
        let before = store.head(&home());
        let revision = set(&store, &thing("a"), &value).await;
        assert_eq!(store.head(&home()), revision);
        assert_eq!(store.get(&home(), &thing("a")).map(|object| value_of(&object)), Some(value.clone()));
        assert_eq!(names_at(&store, None), (revision, vec![format!("ns/a={value}")]));
        let mut watch = store.watch(&home(), all_things(), before).expect("watches");
        let batch = watch.take(10).expect("takes");
        assert_eq!((batch.events.len(), batch.complete_to), (1, revision));
    }
}

async fn a_listing_does_not_change_under_its_reader(store: Arc<dyn Store>) {
    for name in ["a", "b", "c", "d"] {
        set(&store, &thing(name), "1").await;
    }
    let listing = store.list(&home(), &things(), None).expect("lists");
    let first: Vec<ItemKey> = listing.iter(None, None).take(2).map(|(key, _)| key.clone()).collect();
    write(&store, vec![remove(&thing("c"), Expect::Anything), put(&thing("d"), "2", Expect::Anything)]).await;
    let rest: Vec<_> =
        listing.iter(None, first.last()).map(|(key, object)| (key.name(), value_of(object))).collect();
    assert_eq!(rest, [("c", "1".to_owned()), ("d", "1".to_owned())]);
    // A continue token is the revision and the last key; it need not be the same listing.
    let again = store.list(&home(), &things(), Some(listing.revision)).expect("the same revision");
    assert_eq!(again.revision, listing.revision);
    assert_eq!(again.iter(None, first.last()).count(), 2);
    assert_eq!(again.get(&thing("d").item).map(|object| value_of(object)), Some("1".to_owned()));
}

async fn the_past_can_be_listed(store: Arc<dyn Store>) {
    let mut past = vec![names_at(&store, None)];
    for round in 0..20 {
        match round % 4 {
            0 => drop(set(&store, &thing("a"), &round.to_string()).await),
            1 => drop(set(&store, &thing(&format!("n{round}")), "1").await),
            2 => drop(write(&store, vec![remove(&thing("a"), Expect::Anything)]).await),
            _ => drop(set(&store, &Key::new("", "others", "ns", "x"), &round.to_string()).await),
        }
        past.push(names_at(&store, None));
    }
    for (revision, names) in past {
        assert_eq!(names_at(&store, Some(revision)), (revision, names));
    }
}

async fn a_list_inside_a_commit_stands_at_its_end(store: Arc<dyn Store>) {
    set(&store, &thing("a"), "1").await;
    let writes = ["a", "b", "c"].map(|name| put(&thing(name), "2", Expect::Anything));
    let committed = write(&store, writes.to_vec()).await;
    let (inside, end) = (committed[0].revision, committed[2].revision);
    write(&store, vec![remove(&thing("a"), Expect::Anything), put(&thing("c"), "3", Expect::Anything)]).await;
    let whole = vec!["ns/a=2".to_owned(), "ns/b=2".to_owned(), "ns/c=2".to_owned()];
    for at in [inside, committed[1].revision, end] {
        assert_eq!(names_at(&store, Some(at)), (end, whole.clone()));
    }
    let mut watch = store.watch(&home(), all_things(), inside).expect("a watch may resume anywhere");
    let seen = told(&take_all(&mut watch));
    assert_eq!(seen, ["ADDED ns/b=2", "ADDED ns/c=2", "DELETED ns/a=2", "MODIFIED ns/c=3"]);
}

async fn the_future_cannot_be_read(store: Arc<dyn Store>) {
    let head = set(&store, &thing("a"), "1").await;
    let list = store.list(&home(), &things(), Some(head.next()));
    assert!(matches!(list, Err(Error::Ahead { current }) if current == head));
    let watch = store.watch(&home(), all_things(), head.next());
    assert!(matches!(watch, Err(Error::Ahead { current }) if current == head));
}

async fn collections_and_their_last_changes_are_known(store: Arc<dyn Store>) {
    let other = Key::new("apps", "others", "ns", "x");
    assert_eq!(store.last_change(&home(), &things()), Revision::ZERO);
    let writes = vec![put(&thing("a"), "1", Expect::Absent), put(&other, "1", Expect::Absent)];
    let both = write(&store, writes).await[1].revision;
    assert_eq!(store.last_change(&home(), &things()), both, "the end of the commit");
    let removed = write(&store, vec![remove(&other, Expect::Anything)]).await[0].revision;
    assert_eq!(store.last_change(&home(), &things()), both);
    assert_eq!(store.last_change(&home(), &other.collection), removed);
    assert_eq!(store.collections(&home()), [Collection::new("apps", "others"), things()]);
}

/// Lists, watches from there, and checks that the list with all events applied is the list at the end.
async fn follow(store: Arc<dyn Store>, until: String) {
    let listing = store.list(&home(), &things(), None).expect("lists");
    let mut mirror: BTreeMap<ItemKey, Revision> =
        listing.iter(None, None).map(|(key, object)| (key.clone(), object.revision)).collect();
    let mut watch = store.watch(&home(), all_things(), listing.revision).expect("watches");
    let mut position = listing.revision;
    loop {
        watch.changed().await;
        let batch = watch.take(3).expect("the watch goes on");
        for event in &batch.events {
            assert!(event.revision > position, "in order, and each once");
            position = event.revision;
            let before = mirror.get(&event.key.item).copied();
            assert_eq!(event.old.as_ref().map(|old| old.revision), before, "nothing was skipped");
            match event.after() {
                Some(object) => mirror.insert(event.key.item.clone(), object.revision),
                None => mirror.remove(&event.key.item),
            };
            if event.key.item.name() == until {
                return;
            }
        }
        assert!(batch.complete_to >= position);
        let now = store.list(&home(), &things(), Some(batch.complete_to)).expect("the past is there");
        if now.revision == batch.complete_to {
            let listed = now.iter(None, None).map(|(key, object)| (key.clone(), object.revision));
            assert_eq!(listed.collect::<BTreeMap<_, _>>(), mirror, "at {:?}", now.revision);
        }
    }
}

async fn a_list_and_its_watch_have_no_gap_and_no_overlap(store: Arc<dyn Store>) {
    let writer = |store: Arc<dyn Store>, number: usize| async move {
        for round in 0..60 {
            let key = thing(&format!("w{number}-{}", round % 7));
            let other = Key::new("", "others", "ns", &format!("w{number}"));
            let writes = match (round % 5, store.get(&home(), &key)) {
                (0, Some(_)) => vec![remove(&key, Expect::Anything)],
                (1, _) => vec![put(&key, "x", Expect::Anything), put(&other, "x", Expect::Anything)],
                _ => vec![put(&key, &round.to_string(), Expect::Anything)],
            };
            write(&store, writes).await;
            tokio::task::yield_now().await;
        }
    };
    let writers: Vec<_> = (0..4).map(|number| tokio::spawn(writer(store.clone(), number))).collect();
    let mut readers = Vec::new();
    for _ in 0..20 {
        readers.push(tokio::spawn(follow(store.clone(), "end".to_owned())));
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.expect("the writer ends well");
    }
    set(&store, &thing("end"), "1").await;
    for reader in readers {
        // Again and again: a reader that lists after the end waits for the next one.
        while !reader.is_finished() {
            set(&store, &thing("end"), "2").await;
            tokio::task::yield_now().await;
        }
        reader.await.expect("the reader ends well");
    }
}

async fn commits_across_collections_appear_at_once(store: Arc<dyn Store>) {
    let twin = |resource: &str| Key::new("", resource, "ns", "twin");
    let (left, right) = (twin("lefts"), twin("rights"));
    let writer = {
        let (store, left, right) = (store.clone(), left.clone(), right.clone());
        tokio::spawn(async move {
            for round in 0..300 {
                let value = round.to_string();
                let both = vec![put(&left, &value, Expect::Anything), put(&right, &value, Expect::Anything)];
                write(&store, both).await;
            }
        })
    };
    let read = |key: &Key| {
        let object = store.get(&home(), key)?;
        Some((object.revision, value_of(&object).parse::<usize>().expect("a number")))
    };
    while !writer.is_finished() {
        let first = read(&left);
        let second = read(&right);
        // What is read later is never from an earlier commit.
        assert!(first.map(|(_, value)| value) <= second.map(|(_, value)| value), "{first:?} {second:?}");
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer ends well");
}

async fn the_feed_tells_everything_in_order(store: Arc<dyn Store>) {
    set(&store, &thing("before"), "1").await;
    let mut feed = store.feed();
    let other = WorkspaceId("other".into());
    write(&store, vec![put(&thing("a"), "1", Expect::Anything), put(&thing("b"), "1", Expect::Anything)])
        .await;
    let commit = commit_of(vec![put(&thing("a"), "9", Expect::Anything)]);
    store.commit(&other, commit).await.expect("commits");
    write(&store, vec![remove(&thing("a"), Expect::Anything)]).await;
    store.remove_workspace(&other).await.expect("removes");
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(match feed.next().await {
            FeedItem::Event(event) => format!("{} {}", event.workspace, told_one(&event)),
            FeedItem::WorkspaceRemoved(workspace) => format!("{workspace} removed"),
            FeedItem::Lagged => "lagged".to_owned(),
        });
    }
    let expected = ["home ADDED ns/a=1", "home ADDED ns/b=1", "other ADDED ns/a=9", "home DELETED ns/a=1"];
    assert_eq!(seen[..4], expected);
    assert_eq!(seen[4], "other removed");
    assert!(feed.try_next().is_none());
}
