//! Members' pods by kubectl itself.

use std::path::Path;

use anyhow::Result;
use bytes::Bytes;
use serde_json::json;
use store::Collection;
use tokio::process::Command;

use crate::{Cluster, World, create, mk_pod};

struct Kubectl {
    program: std::path::PathBuf,
    directory: tempfile::TempDir,
}

impl Kubectl {
    fn new(world: &World) -> Result<Kubectl> {
        let directory = tempfile::tempdir()?;
        let config = world.hub.peer.admin_kubeconfig(&[("default", "default")])?;
        std::fs::write(directory.path().join("config"), config)?;
        Ok(Kubectl { program: testing::real::build(&["kubectl"])?.join("kubectl"), directory })
    }

    /// What it prints, all of it; it must succeed.
    async fn run(&self, line: &str) -> Result<String> {
        let home: &Path = self.directory.path();
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(home.join("config")).args(["-n", "shop"]).args(line.split(' '));
        let output = command.env("HOME", home).output().await?;
        let said = String::from_utf8([output.stdout, output.stderr].concat())?;
        anyhow::ensure!(output.status.success(), "kubectl {line}: {said}");
        Ok(said)
    }
}

#[tokio::test]
#[ignore = "needs kubectl"]
async fn kubectl_sees_and_changes_members_pods() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let us = Cluster::joined(&world, "us-1", &["web"]).await?;
    create(&world.client, crate::PODS, &mk_pod("mine")).await?;
    let kubectl = Kubectl::new(&world)?;
    let wide = kubectl.run("get pods -o wide --show-labels").await?;
    for words in ["mine", "web ", "web-us-1", "hanse.io/cluster=us-1", "NOMINATED NODE"] {
        assert!(wide.contains(words), "{wide}");
    }
    assert!(!kubectl.run("get pods -l hanse.io/cluster=eu-1").await?.contains("web-us-1"));
    assert!(kubectl.run("get pods --chunk-size=1 -o name").await?.lines().count() == 3);
    let pod = us.pod("web").await?;
    let event = json!({
        "metadata": {"name": "web.1", "namespace": "shop", "uid": "e1"}, "reason": "Started", "message": "is up",
        "type": "Normal", "count": 1, "source": {"component": "kubelet"},
        "involvedObject": {
            "kind": "Pod", "apiVersion": "v1", "namespace": "shop", "name": "web", "uid": pod["metadata"]["uid"],
        },
    });
    us.put(&world, &Collection::new("", "events"), &event);
    let described = kubectl.run("describe pod web-us-1").await?;
    assert!(described.contains("hanse.io/name: web") && described.contains("is up"), "{described}");
    let lines = us.session.next_log();
    let writes = tokio::spawn(async move { lines.send(Bytes::from_static(b"a line\n")).await });
    assert_eq!(kubectl.run("logs web-us-1").await?, "a line\n");
    writes.await??;
    kubectl.run("label pod web-us-1 tier=front").await?;
    kubectl.run("annotate pod web-us-1 note=x").await?;
    let there = us.pod("web").await?;
    assert_eq!(
        (&there["metadata"]["labels"]["tier"], &there["metadata"]["annotations"]["note"]),
        (&json!("front"), &json!("x"))
    );
    let refused = kubectl.run("set image pod/web main=example.com/other").await.unwrap_err();
    assert!(refused.to_string().contains("belongs to cluster eu-1"), "{refused}");
    kubectl.run("delete pod web-us-1 --wait=false").await?;
    us.report_all(&world).await?;
    eu.lose(&world);
    let partial = kubectl.run("get pods").await?;
    assert!(
        partial.contains("Warning: cluster eu-1 was not seen since") && !partial.contains("web-us-1"),
        "{partial}"
    );
    Ok(())
}
