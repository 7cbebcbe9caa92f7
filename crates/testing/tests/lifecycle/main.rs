//! What workloads say of themselves when they have come to rest: on a real control plane (kube-apiserver,
//! kube-controller-manager, kube-scheduler, and kwok for nodes) and on a simulated cluster.
//!
//! Every case is a few steps in a namespace of its own. Afterwards all objects of the namespace that controllers write
//! are compared, without what every cluster chooses by itself (times, UIDs, hashes, addresses).

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod cluster;
mod snapshot;
mod table;

use std::collections::BTreeMap;

use anyhow::Result;

use self::{
    cluster::Cluster,
    snapshot::Snapshot,
    table::{ACCEPTED, CASES},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workloads_come_to_rest_as_on_a_real_cluster() -> Result<()> {
    let (real, simulated) = tokio::try_join!(Cluster::real(), Cluster::simulated())?;
    let (expected, found) = tokio::try_join!(rest(&real), rest(&simulated))?;
    let mut used = vec![false; ACCEPTED.len()];
    let mut problems = Vec::new();
    for (case, expected) in &expected {
        for difference in snapshot::differences(expected, &found[case]) {
            let known = ACCEPTED.iter().position(|(of, place, _)| {
                (*of == "*" || of == case) && snapshot::fits(place, &difference.place)
            });
            match known {
                Some(at) => used[at] = true,
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

/// Runs all cases, and returns what is there in the end.
async fn rest(cluster: &Cluster) -> Result<BTreeMap<&'static str, Snapshot>> {
    let mut snapshots = BTreeMap::new();
    for case in CASES {
        cluster.begin(case).await?;
    }
    for case in CASES {
        snapshots.insert(case.name, cluster.finish(case).await?);
    }
    Ok(snapshots)
}
