//! What is the simulation's own: links, faults, and that a seed replays. The rules of etcd are in the suite.

#![allow(clippy::disallowed_methods)] // On paused time.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use env::{Env, files::sim::SimDisk, network::sim::SimNet};

use super::{Faults, SimEtcd};
use crate::{Compare, Error, Etcd, Keys, Op, Range, Txn, WatchFrom};

fn simulated(seed: u64) -> SimEtcd {
    SimEtcd::new(&Env::simulated(seed, SimDisk::new(seed), SimNet::default()), seed)
}

fn put(key: &str, value: &str) -> Txn {
    let op = Op::Put { key: Bytes::from(key.to_owned()), value: Bytes::from(value.to_owned()), lease: None };
    Txn { then: vec![op], ..Txn::default() }
}

async fn value(etcd: &Arc<dyn Etcd>, key: &'static str) -> Option<Bytes> {
    let found = etcd.range(Range::now(Keys::one(key))).await.expect("etcd answers");
    found.kvs.first().map(|kv| kv.value.clone())
}

#[tokio::test(start_paused = true)]
async fn keeps_what_etcd_promises() {
    let env = Env::simulated(1, SimDisk::new(1), SimNet::default());
    crate::suite::run(SimEtcd::new(&env, 1).client("a"), env.clock.clone(), "/suite/").await;
}

#[tokio::test(start_paused = true)]
async fn a_cut_client_gets_no_answer_and_then_finds_nobody_while_others_go_on() {
    let sim = simulated(1);
    let (a, b) = (sim.client("a"), sim.client("b"));
    let mut watch = a.watch(WatchFrom { keys: Keys::one("k"), from: 1 }).await.expect("accepted");

    sim.cut("a");
    assert!(matches!(a.txn(put("k", "a")).await, Err(Error::Uncertain(_))));
    assert!(matches!(a.txn(put("k", "a")).await, Err(Error::Unreachable(_))));
    b.txn(put("k", "b")).await.expect("b is not cut");
    assert!(matches!(watch.next().await, Err(Error::Unreachable(_))));

    sim.heal("a");
    assert_eq!(value(&a, "k").await.as_deref(), Some(&b"b"[..]));
    assert!(matches!(watch.next().await, Err(Error::Unreachable(_))), "a watch does not come back");
}

#[tokio::test(start_paused = true)]
async fn what_a_short_cut_held_back_arrives_after_it() {
    let sim = simulated(1);
    let (a, b) = (sim.client("a"), sim.client("b"));
    let mut watch = a.watch(WatchFrom { keys: Keys::one("k"), from: 1 }).await.expect("accepted");
    sim.cut("a");
    b.txn(put("k", "b")).await.expect("b is not cut");
    let held = tokio::time::timeout(Duration::from_secs(1), watch.next()).await;
    assert!(held.is_err(), "nothing passes");
    sim.heal("a");
    assert_eq!(watch.next().await.expect("the watch goes on").revision, 2);
}

/// Every fate shows, and what the callers were told is true of what happened.
#[tokio::test(start_paused = true)]
async fn faults_follow_from_the_seed_and_answers_are_true() {
    let mut seen = [0; 4];
    for seed in 0..40 {
        let first = run(seed, &mut seen).await;
        assert_eq!(first, run(seed, &mut [0; 4]).await, "seed {seed} does not replay");
    }
    let [answered, unreachable, without, with] = seen;
    assert!(answered > 0 && unreachable > 0 && without > 0 && with > 0, "{seen:?}");
}

/// Puts keys on a faulty link; what was told of each, and the keys that there are in the end.
async fn run(seed: u64, seen: &mut [usize; 4]) -> (Vec<String>, Vec<Bytes>) {
    let sim = simulated(seed);
    let (faulty, sound) = (sim.client("faulty"), sim.client("sound"));
    sim.set_faults("faulty", Faults::HARSH);
    let mut told = Vec::new();
    for number in 0..50 {
        told.push(faulty.txn(put(&format!("{number:02}"), "")).await);
    }
    tokio::time::sleep(Faults::HARSH.late_by * 2).await;
    let all = Keys { start: Bytes::from_static(b"0"), end: Some(Bytes::from_static(b"a")) };
    let found = sound.range(Range::now(all)).await.expect("the sound link answers").kvs;
    let found: Vec<Bytes> = found.into_iter().map(|kv| kv.key).collect();
    for (number, told) in told.iter().enumerate() {
        let there = found.contains(&Bytes::from(format!("{number:02}")));
        match told {
            Ok(_) => assert!(there, "seed {seed}: {number} was acknowledged"),
            Err(Error::Unreachable(_)) => assert!(!there, "seed {seed}: {number} had no effect"),
            Err(Error::Uncertain(_)) => {}
            Err(other) => panic!("seed {seed}: {number}: {other}"),
        }
        let fate = match told {
            Ok(_) => 0,
            Err(Error::Unreachable(_)) => 1,
            _ => 2 + usize::from(there),
        };
        seen[fate] += 1;
    }
    (told.iter().map(|told| format!("{told:?}")).collect(), found)
}

#[tokio::test(start_paused = true)]
async fn a_late_call_has_its_effect_after_its_caller_gave_up() {
    let sim = simulated(3);
    let (faulty, sound) = (sim.client("faulty"), sim.client("sound"));
    let late = Faults { late: 1000, late_by: Duration::from_secs(60), ..Faults::NONE };
    sim.set_faults("faulty", late);
    assert!(matches!(faulty.txn(put("k", "late")).await, Err(Error::Uncertain(_))));
    assert_eq!(value(&sound, "k").await, None);
    // Whoever wants to be sure changes what the late one compares.
    let mut guarded = put("k", "guarded");
    guarded.when = vec![Compare::Modified(Bytes::from_static(b"fence"), 0)];
    assert!(matches!(faulty.txn(guarded).await, Err(Error::Uncertain(_))));
    sound.txn(put("fence", "")).await.expect("taken");
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(value(&sound, "k").await.as_deref(), Some(&b"late"[..]));
}

#[tokio::test(start_paused = true)]
async fn a_watch_on_a_faulty_link_goes_on_without_gaps() {
    for seed in 0..20 {
        let sim = simulated(seed);
        let (faulty, sound) = (sim.client("faulty"), sim.client("sound"));
        sim.set_faults("faulty", Faults::HARSH);
        let writer = tokio::spawn(async move {
            for number in 0..200 {
                sound.txn(put("k", &number.to_string())).await.expect("the sound link answers");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let (mut told, mut breaks) = (Vec::new(), 0);
        let mut from = 1;
        while told.len() < 200 {
            let Ok(mut watch) = faulty.watch(WatchFrom { keys: Keys::one("k"), from }).await else {
                continue;
            };
            while let Ok(changes) = watch.next().await {
                told.extend(changes.events.iter().map(crate::Change::revision));
                from = changes.revision + 1;
                if told.len() >= 200 {
                    break;
                }
            }
            breaks += 1;
        }
        writer.await.expect("the writer ends");
        assert_eq!(told, (2..202).collect::<Vec<_>>(), "seed {seed}, {breaks} watches");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_ends_watches_and_prolongs_leases() {
    let sim = simulated(1);
    let a = sim.client("a");
    let lease = a.grant(Duration::from_secs(10)).await.expect("granted");
    let mut watch = a.watch(WatchFrom { keys: Keys::one("k"), from: 1 }).await.expect("accepted");
    tokio::time::sleep(Duration::from_secs(9)).await;
    sim.change_leader();
    assert!(watch.next().await.is_err());
    tokio::time::sleep(Duration::from_secs(9)).await;
    a.keep_alive(lease).await.expect("the lease goes on");
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(matches!(a.keep_alive(lease).await, Err(Error::LeaseGone)));
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_of_a_lease_that_runs_out_while_nobody_calls() {
    let sim = simulated(1);
    let a = sim.client("a");
    let lease = a.grant(Duration::from_secs(10)).await.expect("granted");
    let mine = |key: &'static str| Op::Put {
        key: Bytes::from_static(key.as_bytes()),
        value: Bytes::new(),
        lease: Some(lease),
    };
    a.txn(Txn { then: vec![mine("x"), mine("y")], ..Txn::default() }).await.expect("taken");
    let mut watch = a.watch(WatchFrom { keys: Keys::with_prefix(b"x"), from: 3 }).await.expect("accepted");
    let told = watch.next().await.expect("told");
    assert_eq!((told.revision, told.events.len()), (3, 1));
    assert_eq!(sim.revision(), 3, "one revision takes all keys of a lease");
}

#[tokio::test(start_paused = true)]
async fn a_full_store_takes_deletions_only() {
    let sim = simulated(1);
    let a = sim.client("a");
    a.txn(put("k", "v")).await.expect("taken");
    sim.set_full(true);
    assert!(matches!(a.txn(put("k", "w")).await, Err(Error::NoSpace(_))));
    assert!(matches!(a.grant(Duration::from_secs(5)).await, Err(Error::NoSpace(_))));
    let delete = Txn { then: vec![Op::Delete(Keys::one("k"))], ..Txn::default() };
    a.txn(delete).await.expect("deletions make room");
    sim.set_full(false);
    a.txn(put("k", "w")).await.expect("taken");
}

#[tokio::test(start_paused = true)]
async fn the_transaction_that_fills_the_store_is_carried_out() {
    let sim = simulated(1);
    let a = sim.client("a");
    sim.fill_with_next();
    let delete = Txn { then: vec![Op::Delete(Keys::one("k"))], ..Txn::default() };
    a.txn(delete).await.expect("that fills nothing");
    assert!(matches!(a.txn(put("k", "v")).await, Err(Error::NoSpace(_))));
    let found = a.range(Range::now(Keys::one("k"))).await.expect("read");
    assert_eq!(found.kvs.len(), 1);
    assert!(matches!(a.txn(put("k", "w")).await, Err(Error::NoSpace(_))), "from then on it is full");
    sim.set_full(false);
    sim.set_faults("a", Faults { filling: 1000, ..Faults::NONE });
    assert!(matches!(a.txn(put("l", "v")).await, Err(Error::NoSpace(_))));
    let found = a.range(Range::now(Keys::one("l"))).await.expect("reads fill nothing");
    assert_eq!(found.kvs.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restored_store_is_what_it_was_and_ends_watches() {
    let sim = simulated(1);
    let a = sim.client("a");
    a.txn(put("k", "v")).await.expect("taken");
    let backup = sim.back_up();
    let before = sim.revision();
    a.txn(put("k", "w")).await.expect("taken");
    let mut watch = a.watch(WatchFrom { keys: Keys::one("k"), from: before + 2 }).await.expect("accepted");
    sim.restore(backup);
    assert!(watch.next().await.is_err());
    let found = a.range(Range::now(Keys::one("k"))).await.expect("read");
    assert_eq!((found.revision, &found.kvs[0].value[..]), (before, &b"v"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_runs_on_many_threads_and_the_real_clock() {
    let sim = SimEtcd::new(&Env::real(), 5);
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let etcd = sim.client("shared");
            tokio::spawn(async move {
                for _ in 0..50 {
                    etcd.txn(put(&format!("k{writer}"), "v")).await.expect("taken");
                }
            })
        })
        .collect();
    let mut watch = sim
        .client("watcher")
        .watch(WatchFrom { keys: Keys::with_prefix(b"k"), from: 2 })
        .await
        .expect("accepted");
    let mut told = 0;
    while told < 400 {
        told += watch.next().await.expect("told").events.len();
    }
    for writer in writers {
        writer.await.expect("the writer ends");
    }
    assert_eq!((sim.revision(), told), (401, 400));
}
