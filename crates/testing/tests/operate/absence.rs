//! An older backup knows less than members have, and nothing of what they own goes because of it.

use testing::{hub::eventually, simulated::TestClusters};

use super::*;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn owned_by(name: &str, kind: &str, owner: &Value) -> Value {
    let metadata = &owner["metadata"];
    let owner = json!({"apiVersion": "v1", "kind": kind, "name": metadata["name"], "uid": metadata["uid"]});
    json!({"metadata": {"name": name, "ownerReferences": [owner]}})
}

async fn is_there(client: &Client, name: &str) -> Result<bool> {
    Ok(client.get(&format!("{CONFIG_MAPS}/{name}")).await?.code == StatusCode::OK)
}

/// Waits until the collector has looked at all that was there before.
async fn collector_has_looked(client: &Client) -> Result<()> {
    let nobody = json!({"metadata": {"name": "nobody", "uid": "nobody"}});
    create(client, CONFIG_MAPS, owned_by("canary", "Secret", &nobody)).await?;
    eventually("the collector has looked", || async {
        Ok((!is_there(client, "canary").await?).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_backup_deletes_nothing_that_members_own() -> Result<()> {
    let (directory, data) = mk_place()?;
    let clusters = TestClusters::start(&["eu-1"]).await?;
    let member = clusters.admin("eu-1").await?;
    let pod =
        json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}});
    let pod = create(&member, PODS, pod).await?;
    let config = directory.path().join("member");
    std::fs::write(&config, clusters.simulation.kubeconfig("eu-1")?)?;

    let hub = HubProcess::start(&data)?;
    let kubeconfig = hub.kubeconfig();
    done(&["join", "eu-1", "--kubeconfig", text(&config), "--hub-kubeconfig", text(&kubeconfig)])?;
    let client = hub.client().await?;
    eventually("the pod is seen", || async {
        Ok((client.get(&format!("{PODS}/web")).await?.code == StatusCode::OK).then_some(()))
    })
    .await?;
    create(&client, CONFIG_MAPS, owned_by("of-the-pod", "Pod", &pod)).await?;
    let file = directory.path().join("backup");
    done(&["backup", "--kubeconfig", text(&kubeconfig), text(&file)])?;
    // What comes later is not in it.
    mk_config_map(&client, "later").await?;
    hub.stop()?;

    clusters.simulation.stop("eu-1").await?;
    let restored = directory.path().join("restored");
    done(&["restore", "--data", text(&restored), text(&file)])?;
    let hub = HubProcess::start(&restored)?;
    let client = hub.client().await?;
    assert!(!is_there(&client, "later").await?);
    collector_has_looked(&client).await?;
    assert!(is_there(&client, "of-the-pod").await?, "its owner is out of sight, which is not gone");
    let list = client.get(PODS).await?;
    assert_eq!(list.code, StatusCode::SERVICE_UNAVAILABLE, "{}", list.text());
    let partial = client.get(&format!("{PODS}?partial=true")).await?;
    assert_eq!(partial.code, StatusCode::OK);
    assert!(partial.headers.contains_key("warning"), "a list that is not whole says so");

    clusters.simulation.resume("eu-1").await?;
    eventually("the pod is seen again", || async {
        Ok((client.get(&format!("{PODS}/web")).await?.code == StatusCode::OK).then_some(()))
    })
    .await?;
    collector_has_looked(&client).await?;
    assert!(is_there(&client, "of-the-pod").await?);
    // Positive evidence. The connections of before went with the cluster.
    let member = clusters.admin("eu-1").await?;
    member.delete(&format!("{PODS}/web?gracePeriodSeconds=0")).await?;
    eventually("what the pod owned goes with it", || async {
        Ok((!is_there(&client, "of-the-pod").await?).then_some(()))
    })
    .await?;
    hub.stop()
}
