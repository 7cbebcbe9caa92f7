//! A full store, and history that is forgotten while it is read.

use etcd::{Change, Error};
use serde_json::json;
use testing::etcd::{EtcdCluster, EtcdOptions};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_store_takes_no_more_until_there_is_room() {
    let args = vec![format!("--quota-backend-bytes={}", 8 << 20)];
    let cluster = EtcdCluster::start(EtcdOptions { args, ..EtcdOptions::default() }).expect("starts");
    let client = client(options(&cluster));
    let lease = client.grant(Duration::from_secs(600)).await.expect("granted");
    let large = "x".repeat(256 << 10);
    let full = loop {
        match client.txn(put("large", large.clone())).await {
            Ok(answer) => assert!(answer.revision < 1000, "it is never full"),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::NoSpace(_)), "{full:?}");
    let refused = client.txn(put("small", "")).await;
    assert!(matches!(refused, Err(Error::NoSpace(_))), "{refused:?}");
    let refused = client.grant(Duration::from_secs(60)).await;
    assert!(matches!(refused, Err(Error::NoSpace(_))), "{refused:?}");

    // What makes no use of room goes on.
    client.keep_alive(lease).await.expect("kept alive");
    value(&client, "large").await.expect("read");
    let delete = Txn { then: vec![Op::Delete(Keys::one("large"))], ..Txn::default() };
    let deleted = client.txn(delete).await.expect("deleted").revision;
    client.compact(deleted).await.expect("compacted");
    persistently(async || {
        make_room(&cluster);
        match client.txn(put("small", "")).await {
            // What was compacted is cleared away in the background.
            Err(Error::NoSpace(why)) => Err(Error::Unreachable(why)),
            outcome => outcome,
        }
    })
    .await;
}

/// As an operator does.
fn make_room(cluster: &EtcdCluster) {
    cluster.gateway(0, "/v3/maintenance/defragment", &json!({})).expect("defragmented");
    let alarm = |body| cluster.gateway(0, "/v3/maintenance/alarm", &body).expect("answered");
    let raised = alarm(json!({"action": "GET"}));
    for raised in raised["alarms"].as_array().into_iter().flatten() {
        alarm(json!({"action": "DEACTIVATE", "alarm": raised["alarm"], "memberID": raised["memberID"]}));
    }
}

/// Nobody reads the watch while much is written and compacted: it tells everything in order, or as far as it can
/// and then why not further.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_under_a_slow_watch_makes_no_gap() {
    let cluster = EtcdCluster::start(EtcdOptions::default()).expect("starts");
    let client = client(options(&cluster));
    let first = client.txn(put("k", "")).await.expect("taken").revision;
    let mut watch = client.watch(watch_of("k", first)).await.expect("accepted");
    let value = Bytes::from("x".repeat(64 << 10));
    let mut last = first;
    for _ in 0..700 {
        last = client.txn(put("k", value.clone())).await.expect("taken").revision;
    }
    client.compact(last).await.expect("compacted");
    let mut next = first;
    let read = async {
        while next <= last {
            match watch.next().await {
                Ok(changes) => {
                    for change in changes.events {
                        assert!(matches!(change, Change::Put(_)));
                        assert_eq!(change.revision(), next, "a gap");
                        next += 1;
                    }
                }
                Err(Error::Compacted(at)) => {
                    assert_eq!(at, last);
                    return;
                }
                Err(other) => panic!("after {next} of {last}: {other}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, read).await.expect("told in time");
    println!("told {} of {}", next - first, last - first + 1);
}
