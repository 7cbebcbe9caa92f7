//! Promises 2, 3, 4 and 8: what a commit does, and when it is refused.

use std::{sync::Arc, task::Poll};

use jiff::{SignedDuration, Timestamp};
use machinery::Revision;

use super::*;

table!(
    revisions_grow_by_one_per_record,
    absent_means_absent,
    at_means_last_changed_at,
    guards_hold_at_the_same_point,
    one_failed_expectation_refuses_the_whole_commit,
    senseless_commits_are_refused,
    a_removal_carries_the_last_state_at_its_own_revision,
    workspaces_do_not_share_a_history,
    a_dropped_future_does_not_stop_its_commit,
    concurrent_increments_are_all_counted,
    a_replica_keeps_the_leaders_revisions,
    a_replica_refuses_what_does_not_continue,
    a_new_epoch_continues_the_history,
    objects_expire_as_records,
    a_rewritten_object_expires_by_its_newest_time,
    a_large_object_is_stored,
);

async fn revisions_grow_by_one_per_record(store: Arc<dyn Store>) {
    let start = store.head(&home());
    let one = write(&store, vec![put(&thing("a"), "1", Expect::Absent)]).await;
    assert_eq!(one[0].revision, start.next());
    let many = vec![put(&thing("b"), "1", Expect::Absent), put(&thing("a"), "2", Expect::Anything)];
    let two = write(&store, many).await;
    assert_eq!([two[0].revision, two[1].revision], [start.next().next(), start.next().next().next()]);
    assert_eq!(store.head(&home()), two[1].revision);
    assert_eq!(two[1].object.revision, two[1].revision);
    let object = store.get(&home(), &thing("b")).expect("b is there");
    assert_eq!(object.revision, two[0].revision);
}

async fn absent_means_absent(store: Arc<dyn Store>) {
    let revision = set(&store, &thing("a"), "1").await;
    let again = store.commit(&home(), commit_of(vec![put(&thing("a"), "2", Expect::Absent)])).await;
    assert_conflict(again, &thing("a"), Some(revision));
    write(&store, vec![remove(&thing("a"), Expect::Anything)]).await;
    write(&store, vec![put(&thing("a"), "3", Expect::Absent)]).await;
}

async fn at_means_last_changed_at(store: Arc<dyn Store>) {
    let first = set(&store, &thing("a"), "1").await;
    let second = write(&store, vec![put(&thing("a"), "2", Expect::At(first))]).await[0].revision;
    let stale = store.commit(&home(), commit_of(vec![remove(&thing("a"), Expect::At(first))])).await;
    assert_conflict(stale, &thing("a"), Some(second));
    let nobody = store.commit(&home(), commit_of(vec![put(&thing("b"), "1", Expect::At(first))])).await;
    assert_conflict(nobody, &thing("b"), None);
    write(&store, vec![remove(&thing("a"), Expect::At(second))]).await;
    let gone = store.commit(&home(), commit_of(vec![remove(&thing("a"), Expect::Anything)])).await;
    assert_conflict(gone, &thing("a"), None);
}

async fn guards_hold_at_the_same_point(store: Arc<dyn Store>) {
    let namespace = Key::new("", "namespaces", "", "ns");
    let guarded = |expect| Commit {
        guards: vec![(namespace.clone(), expect)],
        writes: vec![put(&thing("a"), "1", Expect::Anything)],
    };
    let absent = store.commit(&home(), guarded(Expect::At(Revision::BASE))).await;
    assert_conflict(absent, &namespace, None);
    assert!(store.get(&home(), &thing("a")).is_none());
    let revision = set(&store, &namespace, "1").await;
    store.commit(&home(), guarded(Expect::At(revision))).await.expect("the guard holds");
    let present = store.commit(&home(), guarded(Expect::Absent)).await;
    assert_conflict(present, &namespace, Some(revision));
}

async fn one_failed_expectation_refuses_the_whole_commit(store: Arc<dyn Store>) {
    let head = set(&store, &thing("a"), "1").await;
    let mut watch = store.watch(&home(), all_things(), head).expect("watches");
    let writes = vec![put(&thing("b"), "1", Expect::Absent), put(&thing("a"), "2", Expect::Absent)];
    assert_conflict(store.commit(&home(), commit_of(writes)).await, &thing("a"), Some(head));
    assert_eq!((store.head(&home()), store.get(&home(), &thing("b")).is_none()), (head, true));
    assert!(take_all(&mut watch).events.is_empty());
    assert_eq!(set(&store, &thing("b"), "1").await, head.next(), "no revision was consumed");
}

async fn senseless_commits_are_refused(store: Arc<dyn Store>) {
    let head = store.head(&home());
    let nothing = store.commit(&home(), Commit::default()).await;
    assert!(matches!(nothing, Err(Error::Invalid(_))), "{nothing:?}");
    let twice = vec![put(&thing("a"), "1", Expect::Absent), remove(&thing("a"), Expect::Anything)];
    let twice = store.commit(&home(), commit_of(twice)).await;
    assert!(matches!(twice, Err(Error::Invalid(_))), "{twice:?}");
    assert_eq!(store.head(&home()), head);
}

async fn a_removal_carries_the_last_state_at_its_own_revision(store: Arc<dyn Store>) {
    let before = set(&store, &thing("a"), "last").await;
    let removed = write(&store, vec![remove(&thing("a"), Expect::At(before))]).await;
    assert_eq!(removed[0].object.revision, before.next());
    assert_eq!(value_of(&removed[0].object), "last");
    assert!(store.get(&home(), &thing("a")).is_none());
    let mut watch = store.watch(&home(), all_things(), before).expect("watches");
    let batch = take_all(&mut watch);
    assert_eq!(told(&batch), ["DELETED ns/a=last"]);
    let event = &batch.events[0];
    assert_eq!(event.object().revision, event.revision);
    assert_eq!(event.old.as_ref().map(|old| old.revision), Some(before));
    assert!(event.after().is_none());
}

async fn workspaces_do_not_share_a_history(store: Arc<dyn Store>) {
    let other = WorkspaceId("other".into());
    let start = store.head(&other);
    set(&store, &thing("a"), "1").await;
    set(&store, &thing("a"), "2").await;
    assert_eq!(store.head(&other), start);
    assert!(store.get(&other, &thing("a")).is_none());
    let commit = commit_of(vec![put(&thing("a"), "x", Expect::Absent)]);
    let committed = store.commit(&other, commit).await.expect("absent there");
    assert_eq!(committed[0].revision, start.next());
    assert_eq!(store.workspaces(), [home(), other]);
}

async fn a_dropped_future_does_not_stop_its_commit(store: Arc<dyn Store>) {
    let mut watch = store.watch(&home(), all_things(), store.head(&home())).expect("watches");
    let mut commit = store.commit(&home(), commit_of(vec![put(&thing("a"), "1", Expect::Absent)]));
    std::future::poll_fn(|context| {
        let _ = commit.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
    drop(commit);
    watch.changed().await;
    assert_eq!(told(&take_all(&mut watch)), ["ADDED ns/a=1"]);
}

async fn concurrent_increments_are_all_counted(store: Arc<dyn Store>) {
    const TASKS: usize = 8;
    const EACH: usize = 25;
    set(&store, &thing("counter"), "0").await;
    let increment = async |store: &Arc<dyn Store>| loop {
        let current = store.get(&home(), &thing("counter")).expect("the counter is there");
        let next = value_of(&current).parse::<usize>().expect("a number") + 1;
        let write = put(&thing("counter"), &next.to_string(), Expect::At(current.revision));
        match store.commit(&home(), commit_of(vec![write])).await {
            Ok(_) => return,
            Err(Error::Conflict { .. }) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
    };
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..EACH {
                    increment(&store).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well");
    }
    let counter = store.get(&home(), &thing("counter")).expect("the counter is there");
    assert_eq!(value_of(&counter), (TASKS * EACH).to_string());
}

async fn a_replica_keeps_the_leaders_revisions(store: Arc<dyn Store>) {
    let head = store.head(&home());
    let first = vec![
        (head.next(), put(&thing("a"), "1", Expect::Anything)),
        (head.next().next(), put(&thing("b"), "1", Expect::Anything)),
    ];
    store.commit_at(&home(), head, first).await.expect("continues");
    let end = head.next().next();
    assert_eq!(store.head(&home()), end);
    assert_eq!(store.get(&home(), &thing("a")).map(|object| object.revision), Some(head.next()));
    let later = Revision::start_of_epoch(head.epoch() + 3).next();
    store
        .commit_at(&home(), end, vec![(later, remove(&thing("a"), Expect::Anything))])
        .await
        .expect("later epoch");
    assert_eq!(store.head(&home()), later);
    let mut watch = store.watch(&home(), all_things(), head.next()).expect("inside the first commit");
    assert_eq!(told(&take_all(&mut watch)), ["ADDED ns/b=1", "DELETED ns/a=1"]);
    let lost = store.watch(&home(), all_things(), end.next());
    assert!(matches!(lost, Err(Error::Expired { .. })), "a revision that is not part of this history");
}

async fn a_replica_refuses_what_does_not_continue(store: Arc<dyn Store>) {
    let head = set(&store, &thing("a"), "1").await;
    let record = |revision| vec![(revision, put(&thing("b"), "1", Expect::Anything))];
    let refused = [
        (head, record(head)),
        (head, record(head.next().next())),
        (head.next(), record(head.next().next())),
        (Revision::start_of_epoch(head.epoch()), record(head.next())),
        (head, record(Revision::start_of_epoch(head.epoch() + 1))),
        (head, record(Revision::start_of_epoch(head.epoch() + 1).next().next())),
    ];
    for (after, records) in refused {
        let result = store.commit_at(&home(), after, records).await;
        assert!(matches!(result, Err(Error::Discontinuous { head: at }) if at == head), "{result:?}");
    }
    let gap = vec![
        (head.next(), put(&thing("b"), "1", Expect::Anything)),
        (head.next().next().next(), put(&thing("c"), "1", Expect::Anything)),
    ];
    assert!(matches!(store.commit_at(&home(), head, gap).await, Err(Error::Discontinuous { .. })));
    let diverged = vec![(head.next(), remove(&thing("nobody"), Expect::Anything))];
    assert_conflict(store.commit_at(&home(), head, diverged).await, &thing("nobody"), None);
    assert_eq!(store.head(&home()), head);
}

async fn a_new_epoch_continues_the_history(store: Arc<dyn Store>) {
    let end = set(&store, &thing("a"), "1").await;
    let same = store.begin_epoch(&home(), end.epoch()).await;
    assert!(matches!(same, Err(Error::Discontinuous { .. })));
    let start = store.begin_epoch(&home(), end.epoch() + 2).await.expect("later");
    assert_eq!((start, store.head(&home())), (Revision::start_of_epoch(end.epoch() + 2), start));
    let mut from_before =
        store.watch(&home(), all_things(), end).expect("the last revision of the old epoch");
    assert_eq!(names_at(&store, Some(start)), (start, vec!["ns/a=1".to_owned()]));
    assert_eq!(set(&store, &thing("a"), "2").await, start.next());
    assert_eq!(told(&take_all(&mut from_before)), ["MODIFIED ns/a=2"]);
    for lost in [end.next(), Revision::start_of_epoch(end.epoch() + 1)] {
        assert!(matches!(store.watch(&home(), all_things(), lost), Err(Error::Expired { .. })), "{lost:?}");
        assert!(matches!(store.list(&home(), &things(), Some(lost)), Err(Error::Expired { .. })), "{lost:?}");
    }
    let unknown = WorkspaceId("new".into());
    assert_eq!(store.begin_epoch(&unknown, 40).await.expect("later"), Revision::start_of_epoch(40));
}

fn expiring(name: &str, expires: Timestamp) -> Write {
    let change = Change::Put { draft: draft(name, "1"), expires: Some(expires) };
    Write { key: thing(name), expect: Expect::Anything, change }
}

async fn objects_expire_as_records(store: Arc<dyn Store>) {
    let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1);
    let soon = now + SignedDuration::from_secs(10);
    write(&store, vec![expiring("early", now), expiring("late", soon)]).await;
    let head = set(&store, &thing("stays"), "1").await;
    let mut watch = store.watch(&home(), all_things(), head).expect("watches");
    assert_eq!(store.expire(now - SignedDuration::from_secs(1)).await.expect("nothing to do"), 0);
    assert_eq!(store.expire(now).await.expect("expires"), 1);
    assert_eq!(store.expire(now).await.expect("once"), 0);
    assert_eq!(told(&take_all(&mut watch)), ["DELETED ns/early=1"]);
    assert_eq!(store.head(&home()), head.next());
    write(&store, vec![remove(&thing("late"), Expect::Anything)]).await;
    assert_eq!(store.expire(soon).await.expect("it is gone already"), 0);
    assert_eq!(names_at(&store, None).1, ["ns/stays=1"]);
}

async fn a_rewritten_object_expires_by_its_newest_time(store: Arc<dyn Store>) {
    let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1);
    let later = now + SignedDuration::from_secs(10);
    write(&store, vec![expiring("longer", now), expiring("kept", now), expiring("shorter", later)]).await;
    write(&store, vec![expiring("longer", later), expiring("shorter", now)]).await;
    set(&store, &thing("kept"), "2").await;
    assert_eq!(store.expire(now).await.expect("expires"), 1);
    assert_eq!(names_at(&store, None).1, ["ns/kept=2", "ns/longer=1"]);
    assert_eq!(store.expire(later).await.expect("expires"), 1);
    assert_eq!(names_at(&store, None).1, ["ns/kept=2"]);
}

async fn a_large_object_is_stored(store: Arc<dyn Store>) {
    let value = "x".repeat(3 << 20);
    let before = set(&store, &thing("small"), "1").await;
    set(&store, &thing("large"), &value).await;
    set(&store, &thing("small"), "2").await;
    assert_eq!(store.get(&home(), &thing("large")).map(|object| value_of(&object)), Some(value));
    let mut watch = store.watch(&home(), all_things(), before).expect("watches");
    assert_eq!(take_all(&mut watch).events.len(), 2);
}
