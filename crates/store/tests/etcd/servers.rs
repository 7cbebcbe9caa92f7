//! Several servers: who writes, who reads what, who takes over.

use std::time::Duration;

use store::{Collection, Commit, Error, Expect, FeedItem, Span, Store, WorkspaceId, etcd::Options};

use super::world::{World, home, put, run, set, thing, value};

async fn level(store: &store::etcd::EtcdStore) -> Result<(), Error> {
    match store.level(&home()) {
        Some(level) => level.await,
        None => Ok(()),
    }
}

#[test]
fn every_server_takes_writes_and_shows_them() {
    run(async || {
        let world = World::new(1);
        let (a, b) = (world.server("a").await, world.server("b").await);
        for round in 0..20 {
            let (writer, reader) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
            let written = set(writer, "x", &round.to_string()).await.expect("commits");
            assert_eq!(value(writer, "x"), Some(round.to_string()), "who wrote reads it");
            level(reader).await.expect("etcd answers");
            assert_eq!(value(reader, "x"), Some(round.to_string()), "a most-recent read sees it");
            assert_eq!(reader.head(&home()), written);
        }
    });
}

#[test]
fn one_commit_waits_for_one_of_each_neighbour_however_many_they_have_sent() {
    run(async || {
        // Given a server that leads three workspaces
        let world = World::new(21);
        let store = world.server("a").await;
        let workspace = |name: &str| WorkspaceId(name.into());
        let commit = |name: &str, value: &str| Commit {
            guards: vec![],
            writes: vec![put(name, value, Expect::Anything)],
        };
        for whose in ["noisy", "quiet", "other"] {
            store.commit(&workspace(whose), commit("first", "1")).await.expect("commits");
        }
        let mut feed = store.feed();
        // When one sends more than fits into many transactions, and then the others one each
        let large = "x".repeat(100_000);
        let mut sent = Vec::new();
        for number in 0..200 {
            sent.push(store.commit(&workspace("noisy"), commit(&format!("n{number}"), &large)));
        }
        for whose in ["quiet", "other"] {
            sent.push(store.commit(&workspace(whose), commit("one", "1")));
        }
        for commit in sent {
            commit.await.expect("commits");
        }
        // Then theirs are in the first, and all of the noisy one's are there in the end
        let mut order = Vec::new();
        while let Some(FeedItem::Event(event)) = feed.try_next() {
            order.push(event.workspace.0.to_string());
        }
        assert_eq!(order.len(), 202);
        for whose in ["quiet", "other"] {
            let at = order.iter().position(|it| it == whose).expect("it was written");
            assert!(at <= 3, "{whose} was written after {at} others");
        }
    });
}

#[test]
fn a_conflict_leaves_the_loser_with_what_it_lost_to() {
    run(async || {
        let world = World::new(2);
        let (a, b) = (world.server("a").await, world.server("b").await);
        let first = set(&a, "x", "1").await.expect("commits");
        level(&b).await.expect("etcd answers");
        let second = set(&a, "x", "2").await.expect("commits");
        let stale = Commit { guards: vec![], writes: vec![put("x", "3", Expect::At(first))] };
        match b.commit(&home(), stale).await {
            Err(Error::Conflict { key, current }) => {
                assert_eq!(key, thing("x"));
                assert_eq!(current.map(|object| object.revision), Some(second));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(value(&b, "x").as_deref(), Some("2"), "it can be decided again at once");
    });
}

#[test]
fn who_is_asked_often_for_what_nobody_leads_begins_to_lead_it() {
    run(async || {
        // Given a workspace whose leader has gone
        let world = World::new(13);
        let (a, b, c) = (world.server("a").await, world.server("b").await, world.server("c").await);
        set(&a, "x", "1").await.expect("commits");
        a.close().await;
        // Somebody is on duty again, and nobody leads anything else.
        world.env.clock.sleep(Options::default().lease * 2).await;
        let led = b.standing().led;
        // When it is read once, then it has no leader
        level(&b).await.expect("etcd answers");
        world.env.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(b.standing().led, led);
        assert!(b.level(&home()).is_some(), "it has to ask");
        // When it is read often, then the one that is asked leads it, and need not ask any more
        for _ in 0..20 {
            level(&b).await.expect("etcd answers");
        }
        world.env.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(b.standing().led, led + 1);
        assert!(b.level(&home()).is_none(), "it knows");
        assert!(c.level(&home()).is_some(), "who does not lead has to ask");
        // And what others write it shows
        set(&c, "x", "2").await.expect("is passed on");
        level(&b).await.expect("etcd answers");
        assert_eq!(value(&b, "x").as_deref(), Some("2"));
        // And when it is cut off, it stops answering before anybody else can write
        world.etcd.cut("b");
        world.post.close("b");
        set(&c, "x", "3").await.expect("c takes over");
        assert!(level(&b).await.is_err(), "b does not say that what it has is the latest");
        world.etcd.heal("b");
        world.post.open("b", &b);
        level(&b).await.expect("etcd answers");
        assert_eq!(value(&b, "x").as_deref(), Some("3"));
    });
}

#[test]
fn somebody_is_on_duty() {
    run(async || {
        let world = World::new(3);
        let (a, b) = (world.server("a").await, world.server("b").await);
        let (mut a_duty, mut b_duty) = (a.duty().expect("shared"), b.duty().expect("shared"));
        a_duty.wait_for(|duty| *duty).await.expect("a is on duty");
        assert!(!*b_duty.borrow());
        a.close().await;
        b_duty.wait_for(|duty| *duty).await.expect("b takes over");
    });
}

#[test]
fn a_server_that_dies_is_replaced_after_its_lease() {
    run(async || {
        let world = World::new(4);
        let (a, b) = (world.server("a").await, world.server("b").await);
        set(&a, "x", "1").await.expect("commits");
        world.etcd.cut("a");
        world.post.close("a");
        let began = world.env.clock.elapsed();
        set(&b, "x", "2").await.expect("b takes over");
        let took = world.env.clock.elapsed() - began;
        assert!(took <= Options::default().lease * 2, "{took:?}");
        assert_eq!(value(&a, "x").as_deref(), Some("1"), "a shows what it knew");
        assert!(level(&a).await.is_err(), "but does not say that it is the latest");
        let refused = set(&a, "x", "3").await;
        assert!(matches!(refused, Err(Error::Unavailable(_) | Error::Unknown(_))), "{refused:?}");
        world.etcd.heal("a");
        world.post.open("a", &a);
        level(&a).await.expect("etcd answers again");
        assert_eq!(value(&a, "x").as_deref(), Some("2"), "what was refused or unknown did not happen later");
        set(&a, "x", "4").await.expect("passes it on");
        level(&b).await.expect("etcd answers");
        assert_eq!(value(&b, "x").as_deref(), Some("4"));
    });
}

/// What it took, on the clock of the world.
async fn timed<T>(world: &World, work: impl Future<Output = T>) -> (T, Duration) {
    let began = world.env.clock.elapsed();
    let done = work.await;
    (done, world.env.clock.elapsed() - began)
}

#[test]
fn servers_cut_off_from_etcd_say_so_soon() {
    run(async || {
        let Options { lease, grace, patience, .. } = Options::default();
        let world = World::new(12);
        let (a, b) = (world.server("a").await, world.server("b").await);
        set(&a, "x", "1").await.expect("commits");
        level(&b).await.expect("etcd answers");
        for name in ["a", "b"] {
            world.etcd.cut(name);
        }
        // Whoever asks when it is lost waits for about a lease
        let asked = async { tokio::join!(set(&a, "x", "2"), set(&b, "x", "3"), level(&b)) };
        let ((sent, passed_on, read), took) = timed(&world, asked).await;
        assert!(matches!(sent, Err(Error::Unknown(_))), "it may have been done: {sent:?}");
        assert!(matches!(passed_on, Err(Error::Unknown(_) | Error::Unavailable(_))), "{passed_on:?}");
        assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
        assert!(took <= lease + grace && took < patience, "{took:?}");
        // and from then on it is known that there is nothing to wait for.
        for store in [&a, &b] {
            let (write, took) = timed(&world, set(store, "x", "4")).await;
            assert!(
                matches!(&write, Err(Error::Unavailable(why)) if why.contains("not heard of")),
                "{write:?}"
            );
            assert!(took <= 2 * grace, "{took:?}");
            let (read, took) = timed(&world, level(store)).await;
            assert!(
                matches!(&read, Err(Error::Unavailable(why)) if why.contains("not heard of")),
                "{read:?}"
            );
            assert!(took <= 2 * grace, "{took:?}");
            assert!(store.is_well().is_err());
            assert_eq!(value(store, "x").as_deref(), Some("1"), "who asks for less is answered");
        }
        for name in ["a", "b"] {
            world.etcd.heal(name);
        }
        world.env.clock.sleep(lease).await;
        for store in [&a, &b] {
            level(store).await.expect("etcd answers");
            assert!(
                matches!(value(store, "x").as_deref(), Some("1" | "2" | "3")),
                "what was refused was not done"
            );
        }
        set(&a, "x", "5").await.expect("commits");
        set(&b, "x", "6").await.expect("commits");
    });
}

#[test]
fn a_restored_etcd_is_noticed() {
    run(async || {
        let world = World::new(13);
        let (a, b) = (world.server("a").await, world.server("b").await);
        set(&a, "x", "1").await.expect("commits");
        level(&b).await.expect("etcd answers");
        let backup = world.etcd.back_up();
        set(&a, "x", "2").await.expect("commits");
        level(&b).await.expect("etcd answers");
        world.etcd.restore(backup);
        // Whoever asks first finds out, and so does the other when it asks.
        let told = |error: Result<(), Error>| match error {
            Err(Error::Unavailable(why)) => why.contains("have to be started again"),
            _ => false,
        };
        assert!(told(level(&b).await));
        let written = set(&a, "x", "3").await;
        assert!(matches!(written, Err(Error::Unknown(_) | Error::Unavailable(_))), "{written:?}");
        world.env.clock.sleep(Options::default().lease).await;
        for store in [&a, &b] {
            assert!(told(level(store).await));
            assert!(told(set(store, "x", "4").await.map(drop)));
            assert!(store.is_well().is_err_and(|why| why.contains("have to be started again")));
            assert_eq!(store.standing().led, 0);
            assert_eq!(value(store, "x").as_deref(), Some("2"), "who asks for less is answered");
        }
        // Those that are started in their place go on with what there is.
        world.post.close("a");
        world.post.close("b");
        let again = world.server("c").await;
        assert_eq!(value(&again, "x").as_deref(), Some("1"));
        set(&again, "x", "5").await.expect("commits");
    });
}

#[test]
fn a_server_that_missed_forgotten_history_begins_again() {
    run(async || {
        let world = World::new(5);
        let (a, b) = (world.server("a").await, world.server("b").await);
        let first = set(&a, "x", "1").await.expect("commits");
        level(&b).await.expect("etcd answers");
        let span = store::Span { collection: store::Collection::new("", "things"), namespace: None };
        let mut watch = b.watch(&home(), span, first).expect("watches");
        let mut feed = b.feed();
        world.etcd.cut("b");
        set(&a, "x", "2").await.expect("commits");
        set(&a, "y", "2").await.expect("commits");
        let client = world.etcd.client("operator");
        client.compact(world.etcd.revision()).await.expect("compacts");
        world.env.clock.sleep(Duration::from_secs(2)).await;
        world.etcd.heal("b");
        level(&b).await.expect("etcd answers");
        assert_eq!((value(&b, "x"), value(&b, "y")), (Some("2".into()), Some("2".into())));
        watch.changed().await;
        assert!(matches!(watch.take(10), Err(Error::Expired { .. })), "it cannot be told what happened");
        assert!(matches!(feed.next().await, store::FeedItem::Lagged));
        set(&b, "x", "3").await.expect("goes on");
    });
}

/// Nothing of before may take effect while a leader answers from memory: it would be seen elsewhere first.
#[test]
fn what_was_under_way_when_history_was_forgotten_never_lands_under_the_same_leader() {
    run(async || {
        let moment = Duration::from_millis(100);
        // Given a leader that lags behind what etcd has forgotten
        let world = World::new(14);
        let (a, b) = (world.server("a").await, world.server("b").await);
        set(&a, "x", "1").await.expect("commits");
        level(&b).await.expect("etcd answers");
        let elsewhere = WorkspaceId("elsewhere".into());
        let commit = |text: &str| Commit { guards: vec![], writes: vec![put("y", text, Expect::Anything)] };
        b.commit(&elsewhere, commit("1")).await.expect("commits");
        world.env.clock.sleep(moment).await;
        world.etcd.end_watches("a");
        for text in ["2", "3"] {
            b.commit(&elsewhere, commit(text)).await.expect("commits");
        }
        world.etcd.client("operator").compact(world.etcd.revision()).await.expect("compacts");
        // and that sends something just before it notices, which is on its way for a long time
        world.env.clock.sleep(moment).await;
        let late_by = Duration::from_secs(1000);
        world.etcd.set_faults("a", etcd::Faults { late: 1000, late_by, ..etcd::Faults::NONE });
        let sending = {
            let a = a.clone();
            tokio::spawn(async move { set(&a, "x", "2").await })
        };
        world.env.clock.sleep(Duration::from_millis(1)).await;
        assert!(a.standing().under_way);
        world.etcd.set_faults("a", etcd::Faults::NONE);
        let sent = sending.await.expect("it is answered");
        assert!(matches!(sent, Err(Error::Unknown(_))), "{sent:?}");
        // When it leads again, and answers from memory
        world.env.clock.sleep(moment).await;
        for _ in 0..20 {
            level(&a).await.expect("etcd answers");
        }
        world.env.clock.sleep(Duration::from_secs(1)).await;
        assert!(a.level(&home()).is_none(), "it knows");
        assert_eq!(value(&a, "x").as_deref(), Some("1"), "it has not landed before that");
        // Then what it sent before has no effect any more
        world.env.clock.sleep(late_by).await;
        for store in [&a, &b] {
            level(store).await.expect("etcd answers");
            assert_eq!(value(store, "x").as_deref(), Some("1"));
        }
        set(&a, "x", "3").await.expect("goes on");
    });
}

#[test]
fn a_removed_workspace_is_gone_everywhere() {
    run(async || {
        let world = World::new(6);
        let (a, b) = (world.server("a").await, world.server("b").await);
        set(&a, "x", "1").await.expect("commits");
        level(&b).await.expect("etcd answers");
        b.remove_workspace(&home()).await.expect("removes");
        assert_eq!(value(&b, "x"), None);
        level(&a).await.expect("etcd answers");
        assert_eq!(value(&a, "x"), None);
        let found = world.etcd.client("operator");
        for left in ["/hanse/o/home/", "/hanse/h/home", "/hanse/l/home"] {
            let keys = etcd::Keys::with_prefix(left.as_bytes());
            assert!(found.range(etcd::Range::now(keys)).await.expect("reads").kvs.is_empty(), "{left}");
        }
        // And nothing grows with those that ever were.
        world.env.clock.sleep(Duration::from_secs(1)).await;
        let led = [a.standing().led, b.standing().led];
        for round in 0..20 {
            let writer = if round % 2 == 0 { &a } else { &b };
            let passing = WorkspaceId(format!("passing-{round}").into());
            let writes = vec![put("x", "1", Expect::Absent)];
            writer.commit(&passing, Commit { guards: vec![], writes }).await.expect("commits");
            writer.remove_workspace(&passing).await.expect("removes");
        }
        world.env.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!([a.standing().led, b.standing().led], led);
        let leaders = etcd::Keys::with_prefix(b"/hanse/l/");
        let leaders = found.range(etcd::Range::now(leaders)).await.expect("reads").kvs;
        assert_eq!(leaders.len(), led.iter().sum::<usize>(), "{leaders:?}");
    });
}

#[test]
fn a_full_etcd_refuses_writes_and_answers_reads() {
    run(async || {
        let world = World::new(7);
        let a = world.server("a").await;
        set(&a, "x", "1").await.expect("commits");
        world.etcd.set_full(true);
        let refused = set(&a, "x", "2").await;
        assert!(matches!(refused, Err(Error::NoSpace(_))), "{refused:?}");
        assert_eq!(value(&a, "x").as_deref(), Some("1"));
        world.etcd.set_full(false);
        set(&a, "x", "3").await.expect("commits");
    });
}

#[test]
fn the_write_that_fills_etcd_is_acknowledged() {
    run(async || {
        let world = World::new(9);
        let (a, b) = (world.server("a").await, world.server("b").await);
        set(&a, "x", "1").await.expect("commits");
        world.etcd.fill_with_next();
        set(&a, "x", "2").await.expect("etcd carried it out, whatever it says");
        assert_eq!(value(&a, "x").as_deref(), Some("2"));
        level(&b).await.expect("etcd answers");
        assert_eq!(value(&b, "x").as_deref(), Some("2"));
        let refused = set(&b, "x", "3").await;
        assert!(matches!(refused, Err(Error::NoSpace(_))), "{refused:?}");
        world.etcd.set_full(false);
        set(&b, "x", "4").await.expect("commits");
        assert_eq!(value(&b, "x").as_deref(), Some("4"));
    });
}

#[test]
fn who_fills_etcd_by_beginning_to_lead_leads() {
    run(async || {
        let world = World::new(10);
        let a = world.server("a").await;
        a.duty().expect("shared").wait_for(|duty| *duty).await.expect("nothing else is written");
        world.etcd.fill_with_next();
        let refused = set(&a, "x", "1").await;
        assert!(matches!(refused, Err(Error::NoSpace(_))), "{refused:?}");
        world.etcd.set_full(false);
        set(&a, "x", "2").await.expect("commits");
    });
}

#[test]
fn a_large_object_that_fills_etcd_leaves_nothing_behind() {
    run(async || {
        let world = World::new(11);
        let a = world.server("a").await;
        set(&a, "x", "1").await.expect("commits");
        world.etcd.fill_with_next();
        let refused = set(&a, "large", &"x".repeat(2 << 20)).await;
        assert!(matches!(refused, Err(Error::NoSpace(_))), "{refused:?}");
        let parts = etcd::Keys::with_prefix(b"/hanse/b/");
        let left = world.etcd.client("operator").range(etcd::Range::now(parts)).await.expect("reads");
        assert!(left.kvs.is_empty(), "{:?}", left.kvs.iter().map(|kv| &kv.key).collect::<Vec<_>>());
        world.etcd.set_full(false);
        set(&a, "large", &"y".repeat(2 << 20)).await.expect("commits");
    });
}

#[test]
fn a_commit_behind_a_compaction_that_changes_nothing_is_written() {
    run(async || {
        let world = World::new(8);
        let a = world.server("a").await;
        let head = set(&a, "x", "1").await.expect("commits");
        a.compact(&home(), head).await.expect("compacts");
        // Asked for together, so that the writer finds one behind the other.
        let again = a.compact(&home(), head);
        let writes = vec![put("x", "2", Expect::At(head))];
        let commit = a.commit(&home(), Commit { guards: vec![], writes });
        let replica = vec![(head.next().next(), put("y", "1", Expect::Absent))];
        let once_more = a.compact(&home(), head);
        let commit_at = a.commit_at(&home(), head.next(), replica);
        again.await.expect("nothing to do");
        commit.await.expect("commits");
        once_more.await.expect("nothing to do");
        commit_at.await.expect("continues");
        assert_eq!((value(&a, "x").as_deref(), value(&a, "y").as_deref()), (Some("2"), Some("1")));
    });
}

#[test]
fn a_start_resumes_what_is_left_where_somebody_has_compacted_by_hand() {
    run(async || {
        // Given a server that has written for a while when somebody compacts etcd to its last revision
        let world = World::new(32);
        let first = world.server("first").await;
        for number in 0..300 {
            set(&first, "x", &number.to_string()).await.expect("commits");
        }
        let before = set(&first, "x", "before").await.expect("commits");
        let left = set(&first, "x", "left").await.expect("commits");
        world.etcd.client("operator").compact(world.etcd.revision()).await.expect("compacts");
        // and goes on
        const WRITES: usize = 1_200;
        for number in 0..WRITES {
            set(&first, "x", &number.to_string()).await.expect("commits");
        }
        // When another starts, then whoever has followed up to there goes on
        let second = world.server("second").await;
        let span = Span { collection: Collection::new("", "things"), namespace: None };
        let mut watch = second.watch(&home(), span.clone(), left).expect("what is left is resumed");
        let mut told = 0;
        while told < WRITES {
            let batch = watch.take(1000).expect("takes");
            assert!(!batch.events.is_empty(), "{told} are missing some");
            told += batch.events.len();
        }
        assert_eq!(told, WRITES);
        // and whoever has not is told so.
        assert!(matches!(second.watch(&home(), span, before), Err(Error::Expired { .. })));
    });
}

#[test]
fn a_start_resumes_all_history_that_is_kept_however_much_it_is() {
    run(async || {
        const WRITES: usize = 10_500;
        // Given a server that has run for longer than history is kept
        let world = World::new(31);
        let first = world.server("first").await;
        set(&first, "x", "old").await.expect("commits");
        world.env.clock.sleep(2 * Options::default().history).await;
        // and many revisions of etcd in less time than that
        let began = world.env.clock.elapsed();
        let before = set(&first, "x", "new").await.expect("commits");
        for number in 0..WRITES {
            set(&first, "x", &number.to_string()).await.expect("commits");
        }
        assert!(world.env.clock.elapsed() - began < Options::default().history);
        // When another starts, then whoever followed the first goes on there
        let second = world.server("second").await;
        let span = Span { collection: Collection::new("", "things"), namespace: None };
        let mut watch = second.watch(&home(), span, before).expect("history is resumed");
        let mut told = 0;
        while told < WRITES {
            let batch = watch.take(1000).expect("takes");
            assert!(!batch.events.is_empty(), "{told} are missing some");
            told += batch.events.len();
        }
        assert_eq!(told, WRITES);
        // And nothing is written while nothing happens
        world.env.clock.sleep(4 * Options::default().history).await;
        let idle = second.standing().followed;
        world.env.clock.sleep(4 * Options::default().history).await;
        assert_eq!(second.standing().followed, idle);
    });
}

/// Nothing was there before it and nothing is there after it, so that only what was followed tells that it had no effect.
#[test]
fn a_first_write_that_was_lost_with_the_lease_holds_up_nothing() {
    run(async || {
        // Given a server that has just begun to lead a workspace of which there is nothing yet
        let world = World::new(34);
        let (a, b) = (world.server("a").await, world.server("b").await);
        set(&a, "x", "1").await.expect("commits");
        let fresh = WorkspaceId("fresh".into());
        let commit = || Commit { guards: vec![], writes: vec![put("first", "1", Expect::Absent)] };
        let led = a.standing().led;
        world.etcd.set_faults("a", etcd::Faults { delay: Duration::from_millis(50), ..etcd::Faults::NONE });
        let sending = tokio::spawn(a.commit(&fresh, commit()));
        while a.standing().led == led || !a.standing().under_way {
            world.env.clock.sleep(Duration::from_millis(1)).await;
        }
        // When its first write is lost, and it does not hear of etcd until others may lead
        world.etcd.cut("a");
        world.env.clock.sleep(Options::default().lease * 3).await;
        world.etcd.set_faults("a", etcd::Faults::NONE);
        world.etcd.heal("a");
        let sent = sending.await.expect("it is answered");
        assert!(matches!(sent, Err(Error::Unknown(_))), "{sent:?}");
        // Then it goes on, though nobody else writes there
        world.env.clock.sleep(Options::default().lease).await;
        assert!(!a.standing().under_way, "it is known that nothing came of it");
        set(&a, "x", "2").await.expect("commits");
        a.commit(&fresh, commit()).await.expect("it was never written");
        level(&b).await.expect("etcd answers");
        assert_eq!(value(&b, "x").as_deref(), Some("2"));
    });
}

#[test]
fn a_server_starts_while_etcd_is_full_and_shows_what_is_there() {
    run(async || {
        // Given an etcd that has no room left, and no server
        let world = World::new(35);
        let a = world.server("a").await;
        set(&a, "x", "1").await.expect("commits");
        a.close().await;
        world.post.close("a");
        world.etcd.set_full(true);
        // When one is started, then it reads and says why it does not write
        let b = world.server("b").await;
        level(&b).await.expect("etcd answers");
        assert_eq!(value(&b, "x").as_deref(), Some("1"));
        let refused = set(&b, "x", "2").await;
        assert!(matches!(&refused, Err(Error::NoSpace(_))), "{refused:?}");
        assert!(b.is_well().is_err_and(|why| why.contains("space")));
        // and when there is room, it does so without being started again.
        world.etcd.set_full(false);
        world.env.clock.sleep(Options::default().lease * 2).await;
        set(&b, "x", "3").await.expect("commits");
        b.is_well().expect("it leads");
    });
}
