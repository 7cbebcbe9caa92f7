//! `hanse join`, `hanse clusters` and `hanse unjoin`: the member clusters of a workspace.

use std::{path::Path, time::Duration};

use anyhow::{Context, anyhow, bail};
use env::Env;
use http::{Method, header};
use serde_json::{Map, Value, json};
use sync::{
    client::{Access, Client, MAX_ANSWER, request},
    join::{self, CLUSTERS},
    kubeconfig::Kubeconfig,
    unjoin,
};

use crate::client;

const LOOK_EVERY: Duration = Duration::from_millis(300);

pub fn member_access(env: &Env, path: &Path, context: Option<&str>) -> anyhow::Result<Access> {
    let config = Kubeconfig::read(env, path)?.ok_or_else(|| anyhow!("{} does not exist", path.display()))?;
    Ok(config.access(env, context.unwrap_or(config.current_context()))?)
}

/// The labels of a cluster from what was said on the command line.
pub fn labels(
    region: Option<String>,
    zone: Option<String>,
    others: &[String],
) -> anyhow::Result<Map<String, Value>> {
    let mut labels = Map::new();
    for label in others.iter().filter(|label| !label.is_empty()) {
        let (key, value) = label.split_once('=').ok_or_else(|| anyhow!("--labels {label}: not KEY=VALUE"))?;
        labels.insert(key.to_owned(), json!(value));
    }
    for (key, value) in [(api::REGION_LABEL, region), (api::ZONE_LABEL, zone)] {
        labels.extend(value.map(|value| (key.to_owned(), json!(value))));
    }
    Ok(labels)
}

pub async fn join(
    env: &Env,
    name: &str,
    labels: Map<String, Value>,
    hub: &Access,
    member: &Access,
    wait: Duration,
) -> anyhow::Result<()> {
    let (hub, admin) = (client::client(env, hub)?, client::client(env, member)?);
    let request = join::Request { name, labels, hub: &hub, member: &admin, access: member };
    let joined = join::join(&request).await.with_context(|| format!("{name} is not joined"))?;
    let again = if joined.again { " again" } else { "" };
    eprintln!("{name} joined{again}: {} (identity {})", joined.version, joined.identity);
    tell_readiness(&hub, name, wait).await
}

/// Waits until the cluster is ready, and says what keeps it from it.
async fn tell_readiness(hub: &Client, name: &str, wait: Duration) -> anyhow::Result<()> {
    let clock = hub.env().clock.clone();
    let began = clock.elapsed();
    loop {
        let cluster = hub.get(&format!("{CLUSTERS}/{name}")).await?;
        let ready = api::cluster::condition(&cluster, api::cluster::condition::READY);
        if ready.is_some_and(|it| it["status"] == "True") {
            eprintln!("{name} is ready; see it with: hanse clusters");
            return Ok(());
        }
        if clock.elapsed().saturating_sub(began) >= wait {
            let text = |key: &str| ready.and_then(|it| it[key].as_str()).unwrap_or_default();
            match ready {
                Some(_) => eprintln!("{name} is not ready yet: {}: {}", text("reason"), text("message")),
                None => eprintln!("{name} is not ready yet: no session with it has begun"),
            }
            return Ok(());
        }
        clock.sleep(LOOK_EVERY).await;
    }
}

pub async fn list(env: &Env, hub: &Access, as_json: bool) -> anyhow::Result<()> {
    let accept = match as_json {
        true => "application/json",
        false => "application/json;as=Table;g=meta.k8s.io;v=v1",
    };
    let request = request(Method::GET, CLUSTERS, &[(header::ACCEPT, accept)], Default::default())?;
    let answer = client::client(env, hub)?.demand(request, MAX_ANSWER).await?;
    if as_json {
        println!("{}", String::from_utf8_lossy(&answer.bytes));
        return Ok(());
    }
    let table: Value = serde_json::from_slice(&answer.bytes).context("the answer is not JSON")?;
    let rows = rows(&table);
    if rows.len() < 2 {
        eprintln!("no clusters; join one with: hanse join NAME --kubeconfig FILE");
        return Ok(());
    }
    print!("{}", aligned(&rows));
    Ok(())
}

/// The cells of a `Table` as text, headings first.
fn rows(table: &Value) -> Vec<Vec<String>> {
    let columns = table["columnDefinitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let shown: Vec<usize> = (0..columns.len()).filter(|at| columns[*at]["priority"] == 0).collect();
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let heading = shown.iter().map(|at| text(&columns[*at]["name"]).to_uppercase()).collect();
    let below = table["rows"].as_array().into_iter().flatten();
    let below = below.map(|row| shown.iter().map(|at| text(&row["cells"][*at])).collect());
    std::iter::once(heading).chain(below).collect()
}

pub fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|it| it.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("   ").trim_end());
        text.push('\n');
    }
    text
}

pub async fn unjoin(
    env: &Env,
    name: &str,
    hub: &Access,
    member: Option<&Access>,
    forget: bool,
    delete_namespaces: bool,
) -> anyhow::Result<()> {
    let hub = client::client(env, hub)?;
    let admin = member.map(|member| client::client(env, member)).transpose()?;
    let request = unjoin::Request { name, hub: &hub, member: admin.as_ref(), forget, delete_namespaces };
    let unjoined = unjoin::unjoin(&request).await.with_context(|| format!("{name} is not unjoined"))?;
    if !unjoined.was_joined && admin.is_none() {
        bail!("{name} is not joined; see: hanse clusters");
    }
    for copy in &unjoined.removed {
        eprintln!("deleted in the member: {copy}");
    }
    for namespace in &unjoined.deleted {
        eprintln!("namespace {namespace} is being deleted in the member");
    }
    for namespace in &unjoined.kept {
        eprintln!(
            "namespace {namespace} stays in the member: it is labelled {} and was not made by Hanse",
            api::WORKSPACE_LABEL
        );
    }
    if let Some(why) = &unjoined.left_behind {
        eprintln!("something stays in the member: {why}");
    }
    if forget {
        eprintln!(
            "nothing was changed in the member; its namespace {} can be deleted there",
            sync::NAMESPACE
        );
    }
    eprintln!("{name} unjoined; what runs there goes on");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_from_the_flags() {
        let made = labels(Some("eu".into()), None, &["tier=gold".into(), String::new()]).unwrap();
        assert_eq!(Value::Object(made), json!({"tier": "gold", "topology.kubernetes.io/region": "eu"}));
        assert!(labels(None, None, &["gold".into()]).is_err());
    }

    #[test]
    fn a_table_lines_up() {
        let table = json!({
            "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Odd", "priority": 1}, {"name": "Nodes", "priority": 0}],
            "rows": [{"cells": ["eu-1", "x", 3]}, {"cells": ["b", "x", null]}],
        });
        assert_eq!(aligned(&rows(&table)), "NAME   NODES\neu-1   3\nb\n");
    }
}
