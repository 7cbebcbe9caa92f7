//! Moving a whole store into etcd: what is there afterwards, and two moves to one place.

use std::sync::Arc;

use etcd::{Faults, Keys, Range};
use store::{
    Collection, Error, Span, Store,
    etcd::{EtcdStore, Mover, NoCourier, OpenError, Options, fill},
};

use super::world::{World, home, run, set, value};

/// A store somewhere else.
async fn source(world: &World, name: &str) -> EtcdStore {
    let options = Options { prefix: name.to_owned(), ..Options::default() };
    let store = world.server_with(name, name, options).await;
    set(&store, "whose", name).await.expect("commits");
    store
}

/// Moves what is in `store` to where servers look for it.
async fn fill_from(world: &World, store: &EtcdStore, link: &str) -> Result<Mover, OpenError> {
    let snapshots = store.snapshot(&home()).into_iter().collect();
    let etcd = world.etcd.client(link);
    fill(&world.env, &*etcd, &Options::default().prefix, 1, snapshots).await
}

async fn open_up(world: &World, mover: &Mover) -> Result<(), OpenError> {
    let etcd = world.etcd.client("operator");
    mover.open_up(&*etcd).await
}

async fn count(world: &World, prefix: &[u8]) -> usize {
    let found = world.etcd.client("operator").range(Range::now(Keys::with_prefix(prefix))).await;
    found.expect("reads").kvs.len()
}

/// Why no server can start there.
async fn why_closed(world: &World) -> String {
    let etcd = world.etcd.client("early");
    match EtcdStore::open(&world.env, etcd, Arc::new(NoCourier), Options::default()).await {
        Err(OpenError::Closed { why, .. }) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a server has started on half of it"),
    }
}

#[test]
fn of_two_moves_to_one_place_the_later_one_has_it() {
    run(async || {
        // Given a move that has written everything and opened nothing when another one begins
        let world = World::new(51);
        let (one, two) = (source(&world, "one").await, source(&world, "two").await);
        let first = fill_from(&world, &one, "first").await.expect("nothing is there");
        let second = fill_from(&world, &two, "second").await.expect("the first is not finished");
        // When the first would open it, then it is told why not, and nobody else can
        let refused = open_up(&world, &first).await;
        assert!(matches!(refused, Err(OpenError::Superseded { .. })), "{refused:?}");
        assert!(why_closed(&world).await.starts_with("a move into it was not finished"));
        // And the second has it, with nothing of the first
        open_up(&world, &second).await.expect("it is its own");
        let server = world.server("server").await;
        assert_eq!(value(&server, "whose").as_deref(), Some("two"));
        assert_eq!(server.head(&home()), two.head(&home()));
        // and for good.
        let late = fill_from(&world, &one, "first").await;
        assert!(matches!(late, Err(OpenError::NotEmpty { .. })), "{late:?}");
        let refused = open_up(&world, &first).await;
        assert!(matches!(refused, Err(OpenError::Superseded { .. })), "{refused:?}");
    });
}

#[test]
fn a_move_whose_place_was_taken_writes_nothing_any_more() {
    run(async || {
        // Given a move that takes a while
        let world = World::new(52);
        let (one, two) = (source(&world, "one").await, source(&world, "two").await);
        for number in 0..10 {
            set(&one, &format!("large-{number}"), &"x".repeat(600_000)).await.expect("commits");
        }
        let delay = std::time::Duration::from_millis(50);
        world.etcd.set_faults("slow", Faults { delay, ..Faults::NONE });
        let slow = fill_from(&world, &one, "slow");
        // When another one begins as soon as something of the first is there
        let quick = async {
            while count(&world, b"/hanse/b/").await == 0 {
                world.env.clock.sleep(std::time::Duration::from_millis(1)).await;
            }
            fill_from(&world, &two, "quick").await
        };
        let (slow, quick) = tokio::join!(slow, quick);
        // Then the first stops
        assert!(matches!(slow, Err(OpenError::Superseded { .. })), "{slow:?}");
        // and what it wrote is gone, before and after it was noticed.
        let quick = quick.expect("the first is not finished");
        assert_eq!(count(&world, b"/hanse/b/").await, 0);
        assert_eq!(count(&world, b"/hanse/o/").await, 1);
        open_up(&world, &quick).await.expect("it is its own");
        let server = world.server("server").await;
        assert_eq!(value(&server, "whose").as_deref(), Some("two"));
    });
}

#[test]
fn a_move_that_was_cut_off_is_begun_anew() {
    run(async || {
        // Given a move that was cut off, by a program of before movers had names
        let world = World::new(53);
        let one = source(&world, "one").await;
        drop(fill_from(&world, &one, "mover").await.expect("nothing is there"));
        let meta = br#"{"format":1,"firstEpoch":1,"closed":"a move into it was not finished"}"#;
        let put = etcd::Op::Put { key: "/hanse/meta".into(), value: meta[..].into(), lease: None };
        let old = etcd::Txn { then: vec![put], ..etcd::Txn::default() };
        world.etcd.client("operator").txn(old).await.expect("writes");
        // When it is begun again, then it comes to its end
        let again = fill_from(&world, &one, "mover").await.expect("it was not finished");
        open_up(&world, &again).await.expect("it is its own");
        let server = world.server("server").await;
        assert_eq!(value(&server, "whose").as_deref(), Some("one"));
    });
}

#[test]
fn watches_go_on_from_the_last_write_before_a_move_and_from_no_earlier_one() {
    run(async || {
        // Given a store that was written to twice
        let world = World::new(54);
        let one = source(&world, "one").await;
        let before = one.head(&home());
        let last = set(&one, "x", "1").await.expect("commits");
        // When it is moved
        let mover = fill_from(&world, &one, "mover").await.expect("nothing is there");
        open_up(&world, &mover).await.expect("it is its own");
        let server = world.server("server").await;
        // Then whoever has seen the last write goes on there, of whatever kind it was
        let span = |resource: &str| Span { collection: Collection::new("", resource), namespace: None };
        for resource in ["things", "others"] {
            let mut watch = server.watch(&home(), span(resource), last).expect("nothing happened since");
            assert!(watch.take(10).expect("takes").events.is_empty());
            // and whoever has not is told to list, also if nothing happened that concerns it.
            let refused = server.watch(&home(), span(resource), before).map(drop);
            assert!(matches!(refused, Err(Error::Expired { .. })), "{resource}: {refused:?}");
        }
    });
}
