//! Ranges and transactions.

use bytes::Bytes;

use super::{World, table};
use crate::{Compare, Error, Keys, Op, Range, Txn, limits};

table![
    a_key_knows_when_it_was_made_and_last_written,
    a_key_that_comes_again_is_a_new_one,
    a_range_reads_in_order_and_says_if_there_is_more,
    a_range_without_values,
    ranges_have_the_ends_that_they_say,
    the_past_can_be_read_and_the_future_not,
    a_comparison_decides_between_the_branches,
    what_is_not_there_has_revision_zero,
    one_transaction_is_one_revision,
    what_changes_nothing_makes_no_revision,
    ranges_in_a_transaction_see_what_it_did_before,
    no_key_is_put_twice_or_put_and_deleted,
    both_branches_may_put_the_same_key,
    only_so_many_operations,
    only_so_many_bytes,
    a_key_is_not_empty,
];

async fn a_key_knows_when_it_was_made_and_last_written(world: World) {
    let made = world.put("a", "1").await;
    let written = world.put("a", "2").await;
    assert_eq!(written, made + 1);
    let found = world.etcd.range(Range::now(world.all())).await.expect("read");
    let [kv] = &found.kvs[..] else { panic!("one key: {found:?}") };
    assert_eq!((kv.created, kv.modified, kv.lease), (made, written, None));
    assert_eq!((&kv.key, &kv.value[..]), (&world.key("a"), &b"2"[..]));
    assert_eq!(found.revision, written);
    assert!(!found.more);
}

async fn a_key_that_comes_again_is_a_new_one(world: World) {
    world.put("a", "1").await;
    world.delete("a").await;
    let again = world.put("a", "2").await;
    let found = world.etcd.range(Range::now(world.all())).await.expect("read");
    assert_eq!((found.kvs[0].created, found.kvs[0].modified), (again, again));
}

async fn a_range_reads_in_order_and_says_if_there_is_more(world: World) {
    world.do_all(["c", "a", "b"].map(|name| world.put_op(name, name)).to_vec()).await;
    for (limit, names, more) in
        [(0, &["a", "b", "c"][..], false), (2, &["a", "b"], true), (3, &["a", "b", "c"], false)]
    {
        let found = world.etcd.range(Range { limit, ..Range::now(world.all()) }).await.expect("read");
        let found_names: Vec<_> = found.kvs.iter().map(|kv| world.name(&kv.key)).collect();
        assert_eq!(
            (found_names.as_slice(), found.more),
            (&names.iter().map(ToString::to_string).collect::<Vec<_>>()[..], more)
        );
    }
}

async fn a_range_without_values(world: World) {
    let put = world.put("a", "1").await;
    let found = world.etcd.range(Range { keys_only: true, ..Range::now(world.all()) }).await.expect("read");
    assert_eq!((found.kvs[0].value.len(), found.kvs[0].modified), (0, put));
}

async fn ranges_have_the_ends_that_they_say(world: World) {
    world.do_all(["a", "ab", "b", "c"].map(|name| world.put_op(name, "")).to_vec()).await;
    let key = |name: &str| world.key(name);
    let ranges = [
        (Keys::one(key("a")), "a"),
        (Keys { start: key("a"), end: Some(Bytes::new()) }, "a"),
        (Keys::with_prefix(&key("a")), "a ab"),
        (Keys { start: key("ab"), end: Some(key("c")) }, "ab b"),
        (Keys { start: key("c"), end: Some(key("a")) }, ""),
        (Keys::one(key("nothing")), ""),
    ];
    for (keys, expected) in ranges {
        let found = world.etcd.range(Range::now(keys.clone())).await.expect("read");
        let names: Vec<_> = found.kvs.iter().map(|kv| world.name(&kv.key)).collect();
        assert_eq!(names.join(" "), expected, "{keys:?}");
        let inside = ["a", "ab", "b", "c"].into_iter().filter(|name| keys.contains(&key(name)));
        assert_eq!(inside.collect::<Vec<_>>().join(" "), expected, "{keys:?}");
    }
}

async fn the_past_can_be_read_and_the_future_not(world: World) {
    let first = world.put("a", "1").await;
    let second = world.do_all(vec![world.put_op("a", "2"), world.put_op("b", "2")]).await;
    let third = world.delete("a").await;
    assert_eq!(world.found(Some(first)).await, ["a=1"]);
    assert_eq!(world.found(Some(second)).await, ["a=2", "b=2"]);
    assert_eq!(world.found(Some(third)).await, ["b=2"]);
    assert_eq!(world.found(None).await, ["b=2"]);
    let past = world.etcd.range(Range { at: Some(first), ..Range::now(world.all()) }).await.expect("read");
    assert_eq!(past.revision, third, "it says how far the store is, not what was asked for");
    let future = Range { at: Some(third + 1), ..Range::now(world.all()) };
    assert!(matches!(world.etcd.range(future).await, Err(Error::Refused(_))));
}

async fn a_comparison_decides_between_the_branches(world: World) {
    let made = world.put("a", "1").await;
    let written = world.put("a", "2").await;
    let a = || world.key("a");
    for (when, held) in [
        (vec![], true),
        (vec![Compare::Modified(a(), written)], true),
        (vec![Compare::Modified(a(), made)], false),
        (vec![Compare::Modified(a(), 0)], false),
        (vec![Compare::Created(a(), made)], true),
        (vec![Compare::Created(a(), written)], false),
        (vec![Compare::Created(a(), made), Compare::Modified(a(), written)], true),
        (vec![Compare::Created(a(), made), Compare::Modified(a(), made)], false),
    ] {
        let (then, otherwise) = (vec![world.put_op("r", "then")], vec![world.put_op("r", "otherwise")]);
        let shown = format!("{when:?}");
        let before = world.revision().await;
        let answer = world.etcd.txn(Txn { when, then, otherwise }).await.expect("taken");
        assert_eq!((answer.held, answer.revision), (held, before + 1), "{shown}");
        let expected = if held { "r=then" } else { "r=otherwise" };
        assert_eq!(world.found(None).await, ["a=2", expected], "{shown}");
    }
}

async fn what_is_not_there_has_revision_zero(world: World) {
    let absent = || vec![Compare::Created(world.key("a"), 0), Compare::Modified(world.key("a"), 0)];
    let make = || Txn { when: absent(), then: vec![world.put_op("a", "")], ..Txn::default() };
    assert!(world.etcd.txn(make()).await.expect("taken").held);
    assert!(!world.etcd.txn(make()).await.expect("taken").held);
    world.delete("a").await;
    assert!(world.etcd.txn(make()).await.expect("taken").held);
}

async fn one_transaction_is_one_revision(world: World) {
    let before = world.do_all(vec![world.put_op("x", ""), world.put_op("y", "")]).await;
    let all =
        vec![world.put_op("b", "1"), world.delete_op("x"), world.put_op("a", "1"), world.delete_op("y")];
    assert_eq!(world.do_all(all).await, before + 1);
    let found = world.etcd.range(Range::now(world.all())).await.expect("read");
    assert!(found.kvs.iter().all(|kv| (kv.created, kv.modified) == (before + 1, before + 1)), "{found:?}");
    assert_eq!(world.found(None).await, ["a=1", "b=1"]);
}

async fn what_changes_nothing_makes_no_revision(world: World) {
    let before = world.put("a", "").await;
    assert_eq!(world.do_all(vec![]).await, before);
    assert_eq!(world.delete("nothing").await, before);
    let failing = Txn {
        when: vec![Compare::Modified(world.key("a"), 0)],
        then: vec![world.put_op("a", "")],
        ..Txn::default()
    };
    let answer = world.etcd.txn(failing).await.expect("taken");
    assert_eq!((answer.held, answer.revision), (false, before));
    // A put of what is there already is a write.
    assert_eq!(world.put("a", "").await, before + 1);
}

async fn ranges_in_a_transaction_see_what_it_did_before(world: World) {
    world.put("a", "1").await;
    let then = vec![
        Op::Range(Keys::one(world.key("a"))),
        world.put_op("b", "2"),
        Op::Range(world.all()),
        Op::Range(Keys::one(world.key("nothing"))),
    ];
    let answer = world.etcd.txn(Txn { then, ..Txn::default() }).await.expect("taken");
    let shown: Vec<Vec<_>> =
        answer.ranges.iter().map(|kvs| kvs.iter().map(|kv| world.name(&kv.key)).collect()).collect();
    assert_eq!(shown, [vec!["a"], vec!["a", "b"], vec![]]);
    assert_eq!(answer.ranges[1][1].modified, answer.revision);
}

async fn no_key_is_put_twice_or_put_and_deleted(world: World) {
    let put = || world.put_op("a", "");
    for ops in [
        vec![put(), put()],
        vec![put(), world.delete_op("a")],
        vec![world.delete_op("a"), put()],
        vec![put(), Op::Delete(world.all())],
    ] {
        for (then, otherwise) in [(ops.clone(), vec![]), (vec![], ops)] {
            let refused = world.etcd.txn(Txn { when: vec![], then, otherwise }).await;
            assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
        }
    }
    assert_eq!(world.found(None).await, [""; 0]);
    world.do_all(vec![world.delete_op("a"), Op::Delete(world.all())]).await;
}

async fn both_branches_may_put_the_same_key(world: World) {
    let txn =
        Txn { when: vec![], then: vec![world.put_op("a", "1")], otherwise: vec![world.put_op("a", "2")] };
    world.etcd.txn(txn).await.expect("taken");
    assert_eq!(world.found(None).await, ["a=1"]);
}

async fn only_so_many_operations(world: World) {
    let puts = |count: usize| (0..count).map(|at| world.put_op(&at.to_string(), "")).collect::<Vec<_>>();
    let compares = |count: usize| vec![Compare::Modified(world.key("nothing"), 0); count];
    let most = limits::TXN_OPS;
    let txn = Txn { when: compares(most), then: puts(most), otherwise: puts(most) };
    world.etcd.txn(txn).await.expect("taken");
    for txn in [
        Txn { when: compares(most + 1), ..Txn::default() },
        Txn { then: puts(most + 1), ..Txn::default() },
        Txn { otherwise: puts(most + 1), ..Txn::default() },
    ] {
        let refused = world.etcd.txn(txn).await;
        assert!(matches!(refused, Err(Error::TooLarge(_))), "{refused:?}");
    }
    assert_eq!(world.found(None).await.len(), most);
}

async fn only_so_many_bytes(world: World) {
    let put = |bytes: usize| vec![world.put_op("a", &"x".repeat(bytes))];
    world.do_all(put(limits::REQUEST_BYTES - 1024)).await;
    // The larger ones do not come as far as the store itself.
    for bytes in [limits::REQUEST_BYTES, limits::REQUEST_BYTES * 2, limits::REQUEST_BYTES * 20] {
        let refused = world.try_all(put(bytes)).await;
        assert!(matches!(refused, Err(Error::TooLarge(_))), "{bytes}: {refused:?}");
    }
    let found = world.etcd.range(Range::now(world.all())).await.expect("read");
    assert_eq!(found.kvs[0].value.len(), limits::REQUEST_BYTES - 1024);
}

async fn a_key_is_not_empty(world: World) {
    let nothing = || Keys { start: Bytes::new(), end: Some(world.key("a")) };
    let put = Op::Put { key: Bytes::new(), value: Bytes::new(), lease: None };
    for op in [put, Op::Delete(nothing()), Op::Range(nothing())] {
        assert!(matches!(world.try_all(vec![op]).await, Err(Error::Refused(_))));
    }
    assert!(matches!(world.etcd.range(Range::now(nothing())).await, Err(Error::Refused(_))));
    let compare = Txn { when: vec![Compare::Modified(Bytes::new(), 0)], ..Txn::default() };
    assert!(matches!(world.etcd.txn(compare).await, Err(Error::Refused(_))));
}
