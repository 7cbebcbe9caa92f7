//! The objects that say how requests are counted: what is there from the start, what is kept, and what they say.

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use testing::{
    client::Client,
    hub::{TestHub, eventually},
};

use super::{FLOWS, mk_schema};

async fn dangling(client: &Client, name: &str) -> Result<Value> {
    let schema = client.get(&format!("{FLOWS}/flowschemas/{name}")).await?.json();
    let conditions = schema["status"]["conditions"].as_array().cloned().unwrap_or_default();
    Ok(conditions.into_iter().find(|it| it["type"] == "Dangling").unwrap_or_default())
}

async fn names(client: &Client, kind: &str) -> Result<Vec<String>> {
    let list = client.get(&format!("{FLOWS}/{kind}")).await?.json();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.iter().map(|it| it["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect())
}

#[tokio::test]
async fn every_workspace_has_upstreams_schemas_and_levels() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let levels = names(&admin, "prioritylevelconfigurations").await?;
    let expected = [
        "catch-all",
        "exempt",
        "global-default",
        "leader-election",
        "node-high",
        "system",
        "workload-high",
        "workload-low",
    ];
    assert_eq!(levels, expected);
    let schemas = names(&admin, "flowschemas").await?;
    let expected = [
        "catch-all",
        "exempt",
        "global-default",
        "kube-controller-manager",
        "kube-scheduler",
        "kube-system-service-accounts",
        "probes",
        "service-accounts",
        "system-leader-election",
        "system-node-high",
        "system-nodes",
    ];
    assert_eq!(schemas, expected);
    for name in schemas {
        let condition = dangling(&admin, &name).await?;
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&json!("False"), &json!("Found")),
            "{name}"
        );
        assert!(condition["lastTransitionTime"].is_string());
    }
    Ok(())
}

#[tokio::test]
async fn a_schema_says_whether_its_level_is_there() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    admin.post(&format!("{FLOWS}/flowschemas"), &mk_schema("s", "mine", "ann")).await?;
    let says = async |status: &'static str| {
        eventually("the condition follows", async || {
            let condition = dangling(&admin, "s").await?;
            Ok((condition["status"] == status).then_some(condition))
        })
        .await
    };
    let message = says("True").await?["message"].clone();
    let names = "This FlowSchema references the PriorityLevelConfiguration object named \"mine\"";
    assert_eq!(message, format!("{names} but there is no such object"));
    let level = json!({
        "metadata": {"name": "mine"},
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}},
    });
    let path = format!("{FLOWS}/prioritylevelconfigurations");
    assert_eq!(admin.post(&path, &level).await?.code, StatusCode::CREATED);
    says("False").await?;
    admin.delete(&format!("{path}/mine")).await?;
    says("True").await?;
    Ok(())
}

#[tokio::test]
async fn what_is_mandatory_comes_back() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let path = format!("{FLOWS}/flowschemas/catch-all");
    let before = admin.get(&path).await?.json();
    admin.delete(&path).await?;
    eventually("it is made again", async || {
        let now = admin.get(&path).await?;
        Ok((now.code == StatusCode::OK && now.json()["spec"] == before["spec"]).then_some(()))
    })
    .await?;
    eventually("it says that its level is there", async || {
        Ok((dangling(&admin, "catch-all").await?["reason"] == "Found").then_some(()))
    })
    .await
}
