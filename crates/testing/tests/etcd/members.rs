//! Members that die, hang, cannot be reached, or are left alone.

use std::sync::atomic::{AtomicBool, Ordering};

use etcd::{Change, Compare, Error, Etcd, Keys, Options, Range, WatchFrom};
use testing::{
    cuts::Cuts,
    etcd::{EtcdCluster, EtcdOptions},
};

use super::*;

fn three() -> EtcdCluster {
    EtcdCluster::start(EtcdOptions { members: 3, ..EtcdOptions::default() }).expect("starts")
}

/// What became of each attempt to make a key of its own.
#[derive(Default)]
struct Tally {
    acknowledged: Vec<String>,
    without_effect: Vec<String>,
    uncertain: Vec<String>,
}

/// Makes one key after the other, each once, until it is told to stop.
async fn write(etcd: Arc<dyn Etcd>, writer: usize, stop: Arc<AtomicBool>) -> Tally {
    let mut tally = Tally::default();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("/load/{writer}/{number:06}");
        let mut txn = put(&key, "");
        txn.when = vec![Compare::Created(key.clone().into(), 0)];
        match etcd.txn(txn).await {
            Ok(answer) => {
                assert!(answer.held, "{key} was there before it was made: it was sent twice");
                tally.acknowledged.push(key);
            }
            Err(Error::Unreachable(_)) => {
                tally.without_effect.push(key);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(Error::Uncertain(_)) => tally.uncertain.push(key),
            Err(other) => panic!("{key}: {other}"),
        }
    }
    tally
}

/// Follows everything by one watch after the other until `last` has been told.
async fn follow(etcd: Arc<dyn Etcd>, last: Arc<tokio::sync::OnceCell<String>>) -> Vec<String> {
    let (mut told, mut from) = (Vec::new(), 1);
    loop {
        let watch = WatchFrom { keys: Keys::with_prefix(b"/load/"), from };
        let Ok(mut watch) = etcd.watch(watch).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        while let Ok(changes) = watch.next().await {
            for change in changes.events {
                let Change::Put(kv) = change else { panic!("nothing is deleted") };
                told.push(String::from_utf8_lossy(&kv.key).into_owned());
            }
            from = changes.revision + 1;
            if last.get().is_some_and(|last| told.last() == Some(last)) {
                return told;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_killed_under_load_make_no_answer_untrue_and_no_watch_miss_a_thing() {
    let mut cluster = three();
    let all = client(options(&cluster));
    let (stop, last) = (Arc::new(AtomicBool::new(false)), Arc::new(tokio::sync::OnceCell::new()));
    let follower = tokio::spawn(follow(client_in(Env::real(), options(&cluster)), last.clone()));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            // Each begins with any of them.
            let etcd =
                client_in(Env::real(), Options { timeout: Duration::from_secs(3), ..options(&cluster) });
            tokio::spawn(write(etcd, writer, stop.clone()))
        })
        .collect();
    let cluster = tokio::task::spawn_blocking(move || {
        for _ in 0..3 {
            std::thread::sleep(Duration::from_secs(2));
            let leader = cluster.leader().expect("a leader");
            cluster.kill(leader);
            cluster.leader().expect("a new leader");
            std::thread::sleep(Duration::from_secs(1));
            cluster.restart(leader).expect("comes back");
        }
        cluster
    });
    let _cluster = cluster.await.expect("the killer ends");
    stop.store(true, Ordering::Relaxed);
    let mut tallies = Vec::new();
    for writer in writers {
        tallies.push(writer.await.expect("the writer ends"));
    }
    // What is uncertain has its effect now or never: the requests that etcd still holds are tried for seven seconds.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let end = "/load/end".to_owned();
    last.set(end.clone()).expect("set once");
    persistently(async || all.txn(put(&end, "")).await).await;
    let told = tokio::time::timeout(PATIENCE, follower).await.expect("told in time").expect("follows");

    let range = Range::now(Keys::with_prefix(b"/load/"));
    let mut found = persistently(async || all.range(range.clone()).await).await.kvs;
    found.sort_by_key(|kv| kv.modified);
    let found: Vec<_> = found.iter().map(|kv| String::from_utf8_lossy(&kv.key).into_owned()).collect();
    assert!(told == found, "the watches told {} of {}, or not in order", told.len(), found.len());

    let count = |of: fn(&Tally) -> &Vec<String>| tallies.iter().map(|tally| of(tally).len()).sum::<usize>();
    println!(
        "{} acknowledged, {} without effect, {} uncertain",
        count(|tally| &tally.acknowledged),
        count(|tally| &tally.without_effect),
        count(|tally| &tally.uncertain)
    );
    let found: std::collections::HashSet<_> = found.into_iter().collect();
    for tally in &tallies {
        assert!(!tally.acknowledged.is_empty());
        let lost = tally.acknowledged.iter().filter(|key| !found.contains(*key));
        assert_eq!(lost.collect::<Vec<_>>(), [""; 0], "acknowledged and lost");
        let untrue = tally.without_effect.iter().filter(|key| found.contains(*key));
        assert_eq!(untrue.collect::<Vec<_>>(), [""; 0], "without effect, and there");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_hangs_is_left_after_one_call_and_its_watch_ends() {
    let cluster = three();
    let client = client(Options { timeout: Duration::from_secs(3), ..options(&cluster) });
    client.txn(put("k", "0")).await.expect("taken");
    let mut watch = client.watch(watch_of("k", 1)).await.expect("accepted");
    cluster.stop(0).expect("stops");
    let mut uncertain = 0;
    let mut round = 0;
    persistently(async || {
        round += 1;
        let outcome = client.txn(put("k", round.to_string())).await;
        uncertain += usize::from(matches!(outcome, Err(Error::Uncertain(_))));
        outcome
    })
    .await;
    assert!(uncertain >= 1, "the first one went to a member that does not answer");
    let ended = end_of(&mut watch).await;
    assert!(matches!(ended, Error::Unreachable(_)), "{ended:?}");
    let mut watch = client.watch(watch_of("k", 1)).await.expect("accepted elsewhere");
    watch.next().await.expect("told");
    cluster.go_on(0).expect("goes on");
    client.txn(put("k", "last")).await.expect("taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_drops_everything_is_noticed_and_gone_around() {
    let cluster = three();
    let cuts = Cuts::default();
    let env = Env { network: Arc::new(cuts.clone()), ..first_first() };
    let options = Options { timeout: Duration::from_secs(4), ..options(&cluster) };
    let used = client_in(env.clone(), options.clone());
    used.txn(put("k", "0")).await.expect("taken");
    let mut watch = used.watch(watch_of("k", 1)).await.expect("accepted");

    cuts.cut(cluster.address(0));
    let lost = used.txn(put("k", "1")).await;
    assert!(matches!(lost, Err(Error::Uncertain(_))), "{lost:?}");
    used.txn(put("k", "2")).await.expect("another member takes it");
    let ended = end_of(&mut watch).await;
    assert!(matches!(ended, Error::Unreachable(_)), "{ended:?}");

    // Who has no connection yet finds out by dialling, and has lost nothing.
    let fresh = client_in(env, options);
    let dials = cuts.dials(cluster.address(0));
    for round in 0..20 {
        fresh.txn(put("k", round.to_string())).await.expect("taken");
    }
    let dials = cuts.dials(cluster.address(0)) - dials;
    assert_eq!(dials, 1, "one that cannot be reached is not tried for every call");
    cuts.heal(cluster.address(0));
    used.txn(put("k", "3")).await.expect("taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nobody_is_there_nothing_happens_and_where_they_come_back_it_goes_on() {
    let mut cluster = EtcdCluster::start(EtcdOptions::default()).expect("starts");
    let client = client(options(&cluster));
    client.txn(put("k", "0")).await.expect("taken");
    let mut watch = client.watch(watch_of("k", 1)).await.expect("accepted");
    cluster.kill(0);
    assert!(matches!(end_of(&mut watch).await, Error::Unreachable(_)));
    for _ in 0..5 {
        let lost = client.txn(put("k", "1")).await;
        assert!(matches!(lost, Err(Error::Unreachable(_))), "{lost:?}");
        assert!(matches!(value(&client, "k").await, Err(Error::Unreachable(_))));
        assert!(client.watch(watch_of("k", 1)).await.is_err());
    }
    cluster.restart(0).expect("comes back");
    let found = persistently(async || value(&client, "k").await).await;
    assert_eq!(found.as_deref(), Some(&b"0"[..]));
    client.txn(put("k", "2")).await.expect("taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_the_others_ends_its_watches_and_takes_nothing() {
    let mut cluster = three();
    let alone = Options { endpoints: options(&cluster).endpoints[..1].to_vec(), ..options(&cluster) };
    let client = client(alone);
    client.txn(put("k", "0")).await.expect("taken");
    let mut watch = client.watch(watch_of("k", 1)).await.expect("accepted");
    cluster.kill(1);
    cluster.kill(2);
    let ended = end_of(&mut watch).await;
    assert!(matches!(ended, Error::Unreachable(_)), "{ended:?}");
    // It knows by now that nobody leads, so that nothing is uncertain.
    let lost = client.txn(put("k", "1")).await;
    assert!(matches!(lost, Err(Error::Unreachable(_))), "{lost:?}");
    assert!(client.watch(watch_of("k", 1)).await.is_err());
    cluster.restart(1).expect("comes back");
    persistently(async || client.txn(put("k", "2")).await).await;
    assert_eq!(value(&client, "k").await.expect("read").as_deref(), Some(&b"2"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_in_its_place_is_found_out() {
    let mut cluster = EtcdCluster::start(EtcdOptions::default()).expect("starts");
    let etcd = client(options(&cluster));
    let lease = etcd.grant(Duration::from_secs(600)).await.expect("granted");
    etcd.txn(put("/one", "1")).await.expect("taken");
    let cluster = tokio::task::spawn_blocking(move || {
        cluster.begin_anew("another").expect("begins anew");
        cluster
    });
    let _cluster = cluster.await.expect("it ends well");
    let replaced = |outcome: Result<(), Error>| match outcome {
        Err(Error::Replaced(_)) => Ok(()),
        Err(error @ (Error::Unreachable(_) | Error::Uncertain(_))) => Err(error),
        other => panic!("{other:?}"),
    };
    persistently(async || replaced(value(&etcd, "/one").await.map(drop))).await;
    persistently(async || replaced(etcd.txn(put("/two", "2")).await.map(drop))).await;
    persistently(async || replaced(etcd.keep_alive(lease).await.map(drop))).await;
    persistently(async || replaced(etcd.watch(watch_of("/one", 1)).await.map(drop))).await;
    persistently(async || replaced(etcd.compact(2).await)).await;
}
