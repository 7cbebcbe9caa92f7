//! An older backup, restored once: it knows nothing of what was assigned, moved and deleted since, and no copy in a member
//! goes because of that.

use testing::{hub::eventually, simulated::TestClusters};

use super::*;

const NAMESPACES: &str = "/api/v1/namespaces";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "web:1"}]},
            },
        },
    })
}

/// Waits for a copy with so many replicas that runs, and answers its UID.
async fn running(member: &Client, name: &str, replicas: u32) -> Result<Value> {
    eventually(&format!("{replicas} of {name} run"), || async {
        let found = member.get(&format!("{DEPLOYMENTS}/{name}")).await?.json();
        let is_there = found["spec"]["replicas"] == replicas && found["status"]["readyReplicas"] == replicas;
        Ok(is_there.then(|| found["metadata"]["uid"].clone()))
    })
    .await
}

async fn gone(client: &Client, path: &str) -> Result<()> {
    let what = format!("{path} is gone");
    eventually(&what, || async { Ok((client.get(path).await?.code == StatusCode::NOT_FOUND).then_some(())) })
        .await
}

/// What is in a member, by name: UID, and whether it is on its way out.
async fn there(member: &Client, path: &str) -> Result<Vec<(String, Value, bool)>> {
    let list = member.get(path).await?.json();
    let items = list["items"].as_array().cloned().unwrap_or_default().into_iter();
    Ok(items
        .map(|it| {
            let metadata = &it["metadata"];
            let name = metadata["name"].as_str().unwrap_or_default().to_owned();
            (name, metadata["uid"].clone(), !metadata["deletionTimestamp"].is_null())
        })
        .collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_backup_deletes_no_copy() -> Result<()> {
    // Given what is assigned, in a backup
    let (directory, data) = mk_place()?;
    let clusters = TestClusters::start(&["eu-1", "us-1"]).await?;
    let (eu, us) = (clusters.admin("eu-1").await?, clusters.admin("us-1").await?);
    let hub = HubProcess::start(&data)?;
    let kubeconfig = hub.kubeconfig();
    for name in ["eu-1", "us-1"] {
        let config = directory.path().join(name);
        std::fs::write(&config, clusters.simulation.kubeconfig(name)?)?;
        done(&["join", name, "--kubeconfig", text(&config), "--hub-kubeconfig", text(&kubeconfig)])?;
    }
    let client = hub.client().await?;
    let in_eu = json!({"hanse.io/clusters": "eu-1"});
    create(&client, NAMESPACES, json!({"metadata": {"name": "shop", "annotations": in_eu}})).await?;
    for name in ["stays", "moves"] {
        create(&client, DEPLOYMENTS, deployment(name, 2)).await?;
    }
    create(&client, MAPS, json!({"metadata": {"name": "goes"}, "data": {"a": "b"}})).await?;
    let stays = running(&eu, "stays", 2).await?;
    running(&eu, "moves", 2).await?;
    eventually("the map is there", || async {
        Ok((eu.get(&format!("{MAPS}/goes")).await?.code == StatusCode::OK).then_some(()))
    })
    .await?;
    let file = directory.path().join("backup");
    done(&["backup", "--kubeconfig", text(&kubeconfig), text(&file)])?;

    // When things are made, moved, scaled and deleted after it, and it is restored
    create(&client, DEPLOYMENTS, deployment("later", 2)).await?;
    let to_us = json!({"metadata": {"annotations": {"hanse.io/clusters": "us-1"}}});
    client.merge_patch(&format!("{DEPLOYMENTS}/moves"), &to_us).await?;
    client.merge_patch(&format!("{DEPLOYMENTS}/stays"), &json!({"spec": {"replicas": 3}})).await?;
    client.delete(&format!("{MAPS}/goes")).await?;
    let later = running(&eu, "later", 2).await?;
    let moved = running(&us, "moves", 2).await?;
    running(&eu, "stays", 3).await?;
    gone(&eu, &format!("{MAPS}/goes")).await?;
    gone(&eu, &format!("{DEPLOYMENTS}/moves")).await?;
    hub.stop()?;
    let restored = directory.path().join("restored");
    done(&["restore", "--data", text(&restored), text(&file)])?;
    let hub = HubProcess::start(&restored)?;
    let client = hub.client().await?;

    // Then all that the backup says is there again
    assert_eq!(running(&eu, "stays", 2).await?, stays, "it is the same one, scaled");
    running(&eu, "moves", 2).await?;
    eventually("the map is there again", || async {
        Ok((eu.get(&format!("{MAPS}/goes")).await?.code == StatusCode::OK).then_some(()))
    })
    .await?;
    eventually("the hub says what is", || async {
        let found = client.get(&format!("{DEPLOYMENTS}/moves")).await?.json();
        Ok((found["status"]["readyReplicas"] == 2).then_some(()))
    })
    .await?;
    // And what it does not know of is left alone
    let left = there(&us, DEPLOYMENTS).await?;
    assert_eq!(left, [("moves".to_owned(), moved, false)]);
    let left = there(&eu, DEPLOYMENTS).await?;
    assert!(left.contains(&("later".to_owned(), later.clone(), false)), "{left:?}");
    assert!(left.iter().all(|(_, _, deleting)| !deleting), "{left:?}");
    // Made anew, it takes over the copy that is there
    create(&client, DEPLOYMENTS, deployment("later", 3)).await?;
    assert_eq!(running(&eu, "later", 3).await?, later);
    client.delete(&format!("{DEPLOYMENTS}/later")).await?;
    gone(&eu, &format!("{DEPLOYMENTS}/later")).await?;
    hub.stop()
}
