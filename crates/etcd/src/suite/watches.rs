//! Watches and compaction.

use std::{collections::BTreeMap, time::Duration};

use super::{World, table};
use crate::{Change, Error, Keys, Range, Revision, Watcher};

table![
    a_watch_tells_the_past_and_then_the_present,
    a_watch_tells_of_its_keys_alone,
    all_of_a_transaction_is_told_at_once,
    large_transactions_are_told_whole,
    a_watch_from_the_future_tells_nothing_before,
    asked_for_progress_a_watch_tells_how_far_it_is,
    giving_up_waiting_loses_nothing,
    watches_do_not_disturb_each_other,
    what_was_compacted_is_forgotten,
    a_watch_from_forgotten_history_ends,
    a_watch_that_is_up_to_date_outlives_a_compaction,
];

async fn a_watch_tells_the_past_and_then_the_present(world: World) {
    let base = world.put("a", "0").await;
    world.put("a", "1").await;
    world.delete("a").await;
    let mut watch = world.watch(world.all(), base).await;
    let past = world.told_up_to(&mut watch, base, base + 2).await;
    assert_eq!(past, ["put a=0 @0", "put a=1 @1", "deleted a @2"]);
    let now = world.put("b", "3").await;
    assert_eq!(world.told_up_to(&mut watch, base, now).await, ["put b=3 @3"]);
}

async fn a_watch_tells_of_its_keys_alone(world: World) {
    let base = world.do_all(["a", "ab", "b"].map(|name| world.put_op(name, "")).to_vec()).await;
    let mut one = world.watch(Keys::one(world.key("a")), base).await;
    let mut some = world.watch(Keys::with_prefix(&world.key("a")), base).await;
    world.put("b", "").await;
    let last = world.delete("a").await;
    assert_eq!(world.told_up_to(&mut one, base, last).await, ["put a= @0", "deleted a @2"]);
    assert_eq!(world.told_up_to(&mut some, base, last).await, ["put a= @0", "put ab= @0", "deleted a @2"]);
}

async fn all_of_a_transaction_is_told_at_once(world: World) {
    let base = world.put("gone", "").await;
    let mut watch = world.watch(world.all(), base + 1).await;
    world.do_all(vec![world.put_op("b", "1"), world.delete_op("gone"), world.put_op("a", "1")]).await;
    let changes = world.next(&mut watch).await.expect("the watch goes on");
    let told: Vec<_> = changes.events.iter().map(|change| world.show(change, base)).collect();
    assert_eq!(told, ["put b=1 @1", "deleted gone @1", "put a=1 @1"], "in the order in which it did them");
    let Change::Put(kv) = &changes.events[0] else { panic!("{changes:?}") };
    assert_eq!((kv.created, kv.modified, changes.revision), (base + 1, base + 1, base + 1));
}

/// Much more than one message of gRPC holds is waiting when the watch begins.
async fn large_transactions_are_told_whole(world: World) {
    const PARTS: usize = 11;
    let value = "x".repeat(128 << 10);
    let base = world.revision().await;
    for round in 1..=8 {
        let ops = (0..PARTS).map(|part| world.put_op(&format!("{part:02}"), &value)).collect();
        assert_eq!(world.do_all(ops).await, base + round);
    }
    let mut watch = world.watch(world.all(), base + 1).await;
    let mut told: BTreeMap<Revision, usize> = BTreeMap::new();
    while told.len() < 8 {
        let changes = world.next(&mut watch).await.expect("the watch goes on");
        super::assert_whole(&changes);
        for change in &changes.events {
            assert!(
                change.revision() > told.last_key_value().map_or(base, |(last, _)| *last)
                    || told.contains_key(&change.revision())
            );
            *told.entry(change.revision()).or_default() += 1;
        }
        assert!(told.values().all(|parts| *parts == PARTS), "a transaction was cut: {told:?}");
    }
}

async fn a_watch_from_the_future_tells_nothing_before(world: World) {
    let base = world.put("a", "0").await;
    let mut watch = world.watch(world.all(), base + 2).await;
    world.put("a", "1").await;
    let last = world.put("a", "2").await;
    assert_eq!(world.told_up_to(&mut watch, base, last).await, ["put a=2 @2"]);
}

async fn asked_for_progress_a_watch_tells_how_far_it_is(world: World) {
    let base = world.put("other", "").await;
    // Nothing has happened since, so that there is nothing behind it either.
    let mut idle = world.watch(Keys::one(world.key("a")), base + 1).await;
    idle.ask_progress();
    let told = world.next(&mut idle).await.expect("the watch goes on");
    assert!(told.events.is_empty() && told.revision <= base, "{told:?}");

    let mut watch = world.watch(Keys::one(world.key("a")), base).await;
    let last = world.put("other", "").await;
    for watch in [&mut watch, &mut idle] {
        // What comes first may have been on its way already.
        let mut told = base - 1;
        while told < last {
            watch.ask_progress();
            let changes = world.next(watch).await.expect("the watch goes on");
            assert!(changes.events.is_empty() && changes.revision >= told, "{changes:?}");
            told = changes.revision;
        }
        assert_eq!(told, last);
    }

    let put = world.put("a", "1").await;
    assert_eq!(world.told_up_to(&mut watch, put, put).await, ["put a=1 @0"]);
}

async fn giving_up_waiting_loses_nothing(world: World) {
    let base = world.revision().await;
    let mut watch = world.watch(world.all(), base + 1).await;
    let (mut told, mut written) = (Vec::new(), 0);
    while told.len() < 30 {
        if written < 30 {
            written += 1;
            world.put("a", &written.to_string()).await;
        }
        tokio::select! {
            changes = watch.next() => {
                told.extend(changes.expect("the watch goes on").events.iter().map(Change::revision));
            }
            () = world.clock.sleep(Duration::from_millis(1)) => {}
        }
    }
    assert_eq!(told, (base + 1..=base + 30).collect::<Vec<_>>());
}

async fn watches_do_not_disturb_each_other(world: World) {
    let base = world.revision().await;
    let mut watches: Vec<Box<dyn Watcher>> = Vec::new();
    for _ in 0..20 {
        watches.push(world.watch(world.all(), base + 1).await);
    }
    let last = world.put("a", "1").await;
    // Those that are dropped unread hold nobody up.
    for watch in watches.iter_mut().skip(10) {
        assert_eq!(world.told_up_to(watch, base, last).await, ["put a=1 @1"]);
    }
}

async fn what_was_compacted_is_forgotten(world: World) {
    let first = world.put("a", "1").await;
    world.put("a", "2").await;
    let last = world.put("b", "3").await;
    world.etcd.compact(first + 1).await.expect("compacted");
    let past = Range { at: Some(first), ..Range::now(world.all()) };
    assert!(matches!(world.etcd.range(past).await, Err(Error::Compacted(_))));
    assert_eq!(world.found(Some(first + 1)).await, ["a=2"]);
    assert_eq!(world.found(None).await, ["a=2", "b=3"]);
    assert!(matches!(world.etcd.compact(first + 1).await, Err(Error::Compacted(_))));
    assert!(matches!(world.etcd.compact(last + 1).await, Err(Error::Refused(_))));
}

async fn a_watch_from_forgotten_history_ends(world: World) {
    let first = world.put("a", "1").await;
    world.put("a", "2").await;
    let last = world.put("a", "3").await;
    world.etcd.compact(last).await.expect("compacted");
    for from in [first, last - 1] {
        let watch = crate::WatchFrom { keys: world.all(), from };
        let ended = match world.etcd.watch(watch).await {
            Ok(mut watch) => world.next(&mut watch).await.map(drop),
            Err(error) => Err(error),
        };
        assert!(matches!(ended, Err(Error::Compacted(at)) if at == last || at == 0), "{ended:?}");
    }
    let mut watch = world.watch(world.all(), last + 1).await;
    let next = world.put("a", "4").await;
    assert_eq!(world.told_up_to(&mut watch, last, next).await, ["put a=4 @1"]);
}

async fn a_watch_that_is_up_to_date_outlives_a_compaction(world: World) {
    let base = world.put("a", "0").await;
    let mut watch = world.watch(world.all(), base).await;
    assert_eq!(world.told_up_to(&mut watch, base, base).await, ["put a=0 @0"]);
    let last = world.put("other", "1").await;
    assert_eq!(world.told_up_to(&mut watch, base, last).await, ["put other=1 @1"]);
    world.etcd.compact(last).await.expect("compacted");
    let next = world.delete("a").await;
    assert_eq!(world.told_up_to(&mut watch, base, next).await, ["deleted a @2"]);
}
