//! What workloads say of themselves when they have come to rest: on a real control plane (kube-apiserver,
//! kube-controller-manager, kube-scheduler, and kwok for nodes) and on a simulated cluster.
//!
//! Every case is a few steps in a namespace of its own. Afterwards all objects of the namespace that controllers write
//! are compared, without what every cluster chooses by itself (times, UIDs, hashes, addresses).

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod cluster;
mod snapshot;
mod table;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Result;
use tokio::task::JoinSet;

use self::{
    cluster::Cluster,
    snapshot::Snapshot,
    table::{ACCEPTED, CASES},
};

/// A small machine runs both control planes.
const AT_ONCE: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workloads_come_to_rest_as_on_a_real_cluster() -> Result<()> {
    let (real, simulated) = tokio::try_join!(Cluster::real(), Cluster::simulated())?;
    let (real, simulated) = (Arc::new(real), Arc::new(simulated));
    let (expected, found) = tokio::try_join!(rest(real.clone()), rest(simulated.clone()))?;
    let mut used = vec![false; ACCEPTED.len()];
    let mut problems = Vec::new();
    for (case, upstream) in &expected {
        for difference in snapshot::differences(upstream, &found[case]) {
            let known = ACCEPTED.iter().position(|(of, place, _)| {
                (*of == "*" || of == case) && snapshot::fits(place, &difference.place)
            });
            match known {
                Some(at) => used[at] = true,
                None if difference.place.starts_with("events/")
                    && is_dropped(&real, case, (&expected, &found[case]), &difference.place).await? => {}
                None => problems.push(format!("{case}: {difference}")),
            }
        }
    }
    for ((case, place, reason), _) in ACCEPTED.iter().zip(&used).filter(|(_, used)| !**used) {
        problems.push(format!("{case}: {place} does not differ any more: {reason}"));
    }
    assert!(problems.is_empty(), "{} differences\n{}", problems.len(), problems.join("\n"));
    println!("{} workloads say the same at rest", CASES.len());
    Ok(())
}

/// Upstream writes events when it finds the time, and where many come at once it drops some: one that is missing there is
/// no difference if it comes late, or if upstream says the same of another object of that kind.
async fn is_dropped(
    real: &Cluster,
    case: &str,
    (expected, found): (&BTreeMap<&'static str, Snapshot>, &Snapshot),
    place: &str,
) -> Result<bool> {
    if !found.has(place) {
        return Ok(false);
    }
    if expected.values().any(|snapshot| snapshot.says_such(place)) {
        return Ok(true);
    }
    for _ in 0..30 {
        if real.snapshot(case).await?.has(place) {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(false)
}

/// Runs all cases, some at a time, and returns what is there in the end.
async fn rest(cluster: Arc<Cluster>) -> Result<BTreeMap<&'static str, Snapshot>> {
    let mut snapshots = BTreeMap::new();
    let mut running = JoinSet::new();
    for case in CASES {
        if running.len() == AT_ONCE {
            collect(&mut running, &mut snapshots).await?;
        }
        let cluster = cluster.clone();
        running.spawn(async move { anyhow::Ok((case.name, cluster.run(case).await?)) });
    }
    while !running.is_empty() {
        collect(&mut running, &mut snapshots).await?;
    }
    Ok(snapshots)
}

async fn collect(
    running: &mut JoinSet<Result<(&'static str, Snapshot)>>,
    snapshots: &mut BTreeMap<&'static str, Snapshot>,
) -> Result<()> {
    let Some(done) = running.join_next().await else { return Ok(()) };
    let (case, snapshot) = done??;
    snapshots.insert(case, snapshot);
    Ok(())
}
