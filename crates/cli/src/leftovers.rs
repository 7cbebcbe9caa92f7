//! `hanse leftovers`: copies in member clusters that nothing in the hub wants.

use anyhow::bail;
use env::Env;
use serde_json::{Value, json};
use sync::{client::Access, join::CLUSTERS};

use crate::{client, clusters::aligned};

const HEADINGS: [&str; 7] = ["CLUSTER", "RESOURCE", "NAMESPACE", "NAME", "WORKSPACE", "WHY", "SINCE"];

const ADVICE: &str = "\
To keep one, apply the object again, in its workspace and namespace and by its name: where it is placed it is taken over as it
runs. If WHY is WorkspaceGone, its workspace is another one by now: set hanse.io/adopt: \"true\" on the object as well.
To be rid of one, delete it in the cluster itself, as its admin: kubectl --context CLUSTER delete RESOURCE NAME -n NAMESPACE";

pub async fn list(env: &Env, hub: &Access, cluster: Option<&str>, as_json: bool) -> anyhow::Result<()> {
    let list = client::client(env, hub)?.get(CLUSTERS).await?;
    let all = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_meant = |it: &&Value| cluster.is_none_or(|cluster| it["metadata"]["name"] == cluster);
    let clusters: Vec<&Value> = all.iter().filter(is_meant).collect();
    if let (Some(cluster), true) = (cluster, clusters.is_empty()) {
        bail!("{cluster} is not joined; see: hanse clusters");
    }
    let with: Vec<&Value> = clusters.into_iter().filter(|it| count(it) > 0).collect();
    if as_json {
        let found =
            |it: &&Value| json!({"cluster": it["metadata"]["name"], "leftovers": it["status"]["leftovers"]});
        println!("{}", with.iter().map(found).collect::<Value>());
        return Ok(());
    }
    if with.is_empty() {
        eprintln!("nothing is left over");
        return Ok(());
    }
    print!("{}", table(&with));
    eprintln!("\n{ADVICE}");
    Ok(())
}

fn count(cluster: &Value) -> u64 {
    cluster["status"]["leftovers"]["count"].as_u64().unwrap_or(0)
}

fn table(clusters: &[&Value]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    let mut more = String::new();
    for cluster in clusters {
        let name = cluster["metadata"]["name"].as_str().unwrap_or_default();
        let items = cluster["status"]["leftovers"]["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        rows.extend(items.iter().map(|item| row(name, item)));
        let unnamed = count(cluster).saturating_sub(items.len() as u64);
        if unnamed > 0 {
            more.push_str(&format!("{name} has {unnamed} more\n"));
        }
    }
    aligned(&rows) + &more
}

fn row(cluster: &str, item: &Value) -> Vec<String> {
    let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
    let resource = match text("apiVersion").split_once('/') {
        Some((group, _)) => format!("{}.{group}", text("resource")),
        None => text("resource"),
    };
    let rest = ["namespace", "name", "workspace", "reason", "since"].map(text);
    [cluster.to_owned(), resource].into_iter().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_is_counted() {
        let item = json!({
            "apiVersion": "apps/v1", "resource": "deployments", "namespace": "shop", "name": "web", "workspace": "team",
            "reason": "ObjectGone", "since": "2026-01-01T00:00:00Z",
        });
        let cluster = json!({
            "metadata": {"name": "eu-1"}, "status": {"leftovers": {"count": 3, "items": [item]}},
        });
        let text = table(&[&cluster]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], HEADINGS);
        let row = ["eu-1", "deployments.apps", "shop", "web", "team", "ObjectGone", "2026-01-01T00:00:00Z"];
        assert_eq!(lines[1], row);
        assert_eq!(text.lines().last(), Some("eu-1 has 2 more"));
    }
}
