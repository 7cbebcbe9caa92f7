//! Pods of a workload that do not run, and what they say of it: for `hanse explain`.

use std::{collections::BTreeMap, fmt::Write};

use env::Env;
use http::Method;
use serde_json::{Value, json};
use sync::client::{Access, query_escaped};

use crate::{assigned::table, client};

/// So many reasons are told.
const TOLD: usize = 10;

/// Pods by the cluster they are in, why they do not run, and what is said of that.
pub type Stuck = BTreeMap<[String; 3], usize>;

/// Of an object that has pods, by the labels that it selects them by; others have none.
pub async fn find(env: &Env, hub: &Access, object: &Value) -> anyhow::Result<Stuck> {
    let Some(labels) = object["spec"]["selector"]["matchLabels"].as_object().filter(|it| !it.is_empty())
    else {
        return Ok(Stuck::new());
    };
    let terms: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let selector = query_escaped(&terms.join(","));
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}");
    let pods = client::call(env, hub, Method::GET, &path, None).await?;
    Ok(sum(pods["items"].as_array().into_iter().flatten()))
}

fn sum<'a>(pods: impl IntoIterator<Item = &'a Value>) -> Stuck {
    let mut stuck = Stuck::new();
    for pod in pods {
        let Some((reason, message)) = why(pod) else { continue };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let cluster = text(&pod["metadata"]["labels"][api::CLUSTER_LABEL]);
        *stuck.entry([cluster, text(reason), text(message)]).or_default() += 1;
    }
    stuck
}

/// Why a pod does not run: reason and message.
fn why(pod: &Value) -> Option<(&Value, &Value)> {
    let containers = ["initContainerStatuses", "containerStatuses"].into_iter();
    let mut waiting = containers
        .flat_map(|list| pod["status"][list].as_array().into_iter().flatten())
        .map(|container| &container["state"]["waiting"])
        // That it is on its way is no reason.
        .filter(|it| {
            it.is_object() && !matches!(it["reason"].as_str(), Some("ContainerCreating" | "PodInitializing"))
        });
    let scheduled = || {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().find(|it| it["type"] == "PodScheduled" && it["status"] == "False")
    };
    let found = waiting.next().or_else(scheduled)?;
    Some((&found["reason"], &found["message"]))
}

pub fn to_json(stuck: &Stuck) -> Value {
    let one = |([cluster, reason, message], pods): (&[String; 3], &usize)| json!({"cluster": cluster, "reason": reason, "message": message, "pods": pods});
    stuck.iter().map(one).collect()
}

pub fn tell(stuck: &Stuck) -> Result<String, std::fmt::Error> {
    let mut told = String::new();
    if stuck.is_empty() {
        return Ok(told);
    }
    writeln!(told, "\n  Pods that do not run:")?;
    let mut rows = vec![["CLUSTER", "PODS", "WHY", "SAYS"].map(str::to_owned)];
    for ([cluster, reason, message], pods) in stuck.iter().take(TOLD) {
        rows.push([cluster.clone(), pods.to_string(), reason.clone(), message.clone()]);
    }
    table(&mut told, &rows)?;
    if stuck.len() > TOLD {
        writeln!(told, "  and {} more reasons", stuck.len() - TOLD)?;
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_do_not_run_are_counted_by_reason() {
        let pod = |cluster: &str, state: Value| {
            json!({
                "metadata": {"labels": {api::CLUSTER_LABEL: cluster}},
                "status": {"containerStatuses": [{"state": state}]},
            })
        };
        let waiting = |reason: &str| json!({"waiting": {"reason": reason, "message": "no such host"}});
        let pending = json!({"status": {"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no cluster"},
        ]}});
        let pods = [
            pod("eu-1", json!({"running": {}})),
            pod("us-1", waiting("ErrImagePull")),
            pod("us-1", waiting("ErrImagePull")),
            pod("us-1", waiting("ContainerCreating")),
            pending,
        ];
        let told = tell(&sum(&pods)).unwrap();
        let rows: Vec<Vec<&str>> =
            told.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["1", "Unschedulable", "no", "cluster"]);
        assert_eq!(rows[2], ["us-1", "2", "ErrImagePull", "no", "such", "host"]);
        assert_eq!(rows.len(), 3);
        assert_eq!(tell(&Stuck::new()).unwrap(), "");
    }
}
