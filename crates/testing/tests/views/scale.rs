//! Many clusters with many pods: what it costs is printed, what is shown is counted.

use std::time::Instant;

use anyhow::Result;
use bytes::Bytes;
use env::Env;
use serde_json::{Value, json};

use crate::{World, pods};

const CLUSTERS: usize = 100;
const PODS: usize = 1000;

/// About as large as real ones are.
fn mk_large_pod(cluster: usize, at: usize) -> Value {
    let container = json!({
        "name": "main", "image": "registry.example.com/team/service:v1.2.3", "resources": {"requests": {"cpu": "100m"}},
        "env": (0..20).map(|at| json!({"name": format!("VARIABLE_{at}"), "value": "some value of a variable"})).collect::<Vec<_>>(),
    });
    json!({
        "metadata": {
            "name": format!("web-7d4b9c6f5d-{cluster:02}-{at:04}"), "namespace": "shop", "uid": format!("{cluster}-{at}"),
            "resourceVersion": "1", "labels": {"app": "web", "pod-template-hash": "7d4b9c6f5d"},
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": "x".repeat(1500)}}],
        },
        "spec": {"nodeName": format!("node-{}", at % 50), "containers": [container]},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    })
}

fn resident() -> f64 {
    Env::real().process.usage().map_or(0.0, |usage| usage.resident_bytes as f64 / 1e6)
}

#[tokio::test]
#[ignore = "takes its time"]
async fn a_hundred_clusters_of_a_thousand_pods() -> Result<()> {
    let world = World::start().await?;
    let before = resident();
    let begun = Instant::now();
    let mut bytes = 0;
    for cluster in 0..CLUSTERS {
        let name = format!("cluster-{cluster}");
        let views = world.views();
        views.expect(&world.workspace(), &name);
        let objects: Vec<Bytes> =
            (0..PODS).map(|at| Bytes::from(mk_large_pod(cluster, at).to_string())).collect();
        bytes += objects.iter().map(Bytes::len).sum::<usize>();
        views.replace(&world.workspace(), &name, &pods(), objects.into_iter().map(Into::into).collect());
    }
    let held = resident() - before;
    println!(
        "{} pods of {} bytes: {:.1?}, {held:.0} MB more",
        CLUSTERS * PODS,
        bytes / CLUSTERS / PODS,
        begun.elapsed()
    );
    let begun = Instant::now();
    for at in 0..PODS {
        let mut pod = mk_large_pod(50, at);
        pod["status"]["phase"] = json!("Succeeded");
        pod["metadata"]["resourceVersion"] = json!("2");
        let pod = Bytes::from(pod.to_string());
        world.views().put(&world.workspace(), "cluster-50", &pods(), pod.into());
    }
    println!("one change: {:.1?}", begun.elapsed() / PODS as u32);
    let begun = Instant::now();
    world.views().lost(&world.workspace(), "cluster-50");
    println!("a lost cluster: {:.1?}", begun.elapsed());
    let begun = Instant::now();
    let path = format!("{}?fieldSelector=status.phase%3DSucceeded", crate::PODS);
    assert_eq!(world.names(&path).await?.len(), PODS);
    println!("a selected list: {:.1?}", begun.elapsed());
    Ok(())
}
