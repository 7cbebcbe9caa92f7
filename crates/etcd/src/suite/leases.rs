//! Leases.

use std::time::Duration;

use super::{World, table};
use crate::{Change, Error, LeaseId, Range};

const TTL: Duration = Duration::from_secs(3);

table![
    keys_go_with_their_lease_at_one_revision,
    a_lease_that_is_kept_alive_goes_on,
    a_revoked_lease_is_gone_with_all_its_keys,
    a_key_belongs_to_the_lease_of_its_last_put,
    a_lease_that_never_was_is_gone,
    nothing_is_put_with_a_lease_that_is_gone,
];

async fn grant(world: &World) -> LeaseId {
    world.etcd.grant(TTL).await.expect("the lease is granted")
}

async fn keys_go_with_their_lease_at_one_revision(world: World) {
    let lease = grant(&world).await;
    let put =
        world.do_all(vec![world.leased("a", lease), world.leased("b", lease), world.put_op("c", "")]).await;
    let found = world.etcd.range(Range::now(world.all())).await.expect("read");
    let leases: Vec<_> = found.kvs.iter().map(|kv| kv.lease).collect();
    assert_eq!(leases, [Some(lease), Some(lease), None]);

    let mut watch = world.watch(world.all(), put + 1).await;
    let changes = world.next(&mut watch).await.expect("the watch goes on");
    let told: Vec<_> = changes.events.iter().map(|change| world.show(change, put)).collect();
    assert_eq!(told, ["deleted a @1", "deleted b @1"]);
    assert_eq!(world.found(None).await, ["c="]);
    assert!(matches!(world.etcd.keep_alive(lease).await, Err(Error::LeaseGone)));
}

async fn a_lease_that_is_kept_alive_goes_on(world: World) {
    let lease = grant(&world).await;
    world.do_all(vec![world.leased("a", lease)]).await;
    let start = world.clock.elapsed();
    while world.clock.elapsed() < start + TTL * 2 {
        let goes_on = world.etcd.keep_alive(lease).await.expect("the lease lives");
        assert!(goes_on >= TTL, "{goes_on:?}");
        world.clock.sleep(TTL / 10).await;
    }
    assert_eq!(world.found(None).await, ["a="]);
    world.gone().await;
    assert!(matches!(world.etcd.keep_alive(lease).await, Err(Error::LeaseGone)));
}

async fn a_revoked_lease_is_gone_with_all_its_keys(world: World) {
    let lease = grant(&world).await;
    let put = world.do_all(vec![world.leased("b", lease), world.leased("a", lease)]).await;
    let mut watch = world.watch(world.all(), put + 1).await;
    world.etcd.revoke(lease).await.expect("revoked");
    assert_eq!(world.found(None).await, [""; 0]);
    let changes = world.next(&mut watch).await.expect("the watch goes on");
    assert_eq!(changes.events.iter().map(Change::revision).collect::<Vec<_>>(), [put + 1; 2]);
    assert!(matches!(world.etcd.keep_alive(lease).await, Err(Error::LeaseGone)));
    assert!(matches!(world.etcd.revoke(lease).await, Err(Error::LeaseGone)));

    // One without keys changes nothing.
    let lease = grant(&world).await;
    world.etcd.revoke(lease).await.expect("revoked");
    assert_eq!(world.revision().await, put + 1);
}

async fn a_key_belongs_to_the_lease_of_its_last_put(world: World) {
    let (old, new) = (grant(&world).await, grant(&world).await);
    world.do_all(["a", "b", "c", "d"].map(|name| world.leased(name, old)).to_vec()).await;
    world.do_all(vec![world.put_op("a", ""), world.leased("b", new), world.delete_op("c")]).await;
    world.put("c", "").await;
    world.etcd.revoke(old).await.expect("revoked");
    assert_eq!(world.found(None).await, ["a=", "b=", "c="]);
    world.etcd.revoke(new).await.expect("revoked");
    assert_eq!(world.found(None).await, ["a=", "c="]);
}

async fn a_lease_that_never_was_is_gone(world: World) {
    let lease = LeaseId(0x7fff_1234_5678);
    assert!(matches!(world.etcd.keep_alive(lease).await, Err(Error::LeaseGone)));
    assert!(matches!(world.etcd.revoke(lease).await, Err(Error::LeaseGone)));
}

async fn nothing_is_put_with_a_lease_that_is_gone(world: World) {
    let lease = grant(&world).await;
    world.etcd.revoke(lease).await.expect("revoked");
    let before = world.revision().await;
    let refused = world.try_all(vec![world.put_op("a", ""), world.leased("b", lease)]).await;
    assert!(matches!(refused, Err(Error::LeaseGone)), "{refused:?}");
    assert_eq!((world.revision().await, world.found(None).await), (before, vec![]));
}
