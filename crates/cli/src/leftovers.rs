//! `hanse leftovers`: copies in member clusters that nothing in the hub wants.

use std::time::Duration;

use anyhow::bail;
use env::Env;
use serde_json::{Value, json};
use sync::{
    clear::{self, Cleared, Fate},
    client::Access,
    join::CLUSTERS,
};

use crate::{client, clusters::aligned};

/// Of each request.
const LIMIT: Duration = Duration::from_secs(20);

const HEADINGS: [&str; 7] = ["CLUSTER", "RESOURCE", "NAMESPACE", "NAME", "WORKSPACE", "WHY", "SINCE"];

const ADVICE: &str = "\
To keep one, apply the object again, in its workspace and namespace and by its name: where it is placed it is taken over as it
runs. If WHY is WorkspaceGone, its workspace is another one by now: set hanse.io/adopt: \"true\" on the object as well.
To be rid of all: hanse leftovers CLUSTER --delete
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

/// Deletes those of one cluster that nothing wants; without `yes` it only says which.
pub async fn delete(
    env: &Env,
    hub: &Access,
    name: &str,
    member: Option<&Access>,
    yes: bool,
) -> anyhow::Result<()> {
    let own = client::client(env, hub)?;
    let admin = member.map(|member| client::client(env, member)).transpose()?;
    let base = hub.server.split("/clusters/").next().unwrap_or_default().trim_end_matches('/');
    let workspace = |name: &str| {
        let access = Access { server: format!("{base}/clusters/{name}"), ..hub.clone() };
        sync::client::Client::new(env.clone(), &access, LIMIT)
    };
    let request =
        clear::Request { name, hub: &own, workspace: &workspace, member: admin.as_ref(), dry_run: !yes };
    let cleared = clear::clear(&request).await?;
    if cleared.is_empty() {
        eprintln!("nothing is left over in {name}");
        return Ok(());
    }
    print!("{}", told(&cleared, yes));
    match yes {
        // As many as are named; others may be named next.
        true => eprintln!("\nThe list follows within a minute or two: hanse leftovers {name}"),
        false => eprintln!("\nNothing was changed. To do it: hanse leftovers {name} --delete --yes"),
    }
    Ok(())
}

fn told(cleared: &[Cleared], done: bool) -> String {
    let mut rows = vec![["RESOURCE", "NAMESPACE", "NAME", "WHAT"].map(str::to_owned).to_vec()];
    rows.extend(cleared.iter().map(|it| {
        let what = match &it.fate {
            Fate::Goes if done => "deleted".to_owned(),
            Fate::Goes => "would be deleted".to_owned(),
            Fate::Stays(why) => format!("stays: {why}"),
        };
        vec![it.resource.clone(), it.namespace.clone(), it.name.clone(), what]
    }));
    aligned(&rows)
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
    fn what_goes_and_what_stays_is_said() {
        let one = |name: &str, fate: Fate| Cleared {
            resource: "configmaps".into(),
            namespace: "shop".into(),
            name: name.into(),
            fate,
        };
        let cleared = [one("old", Fate::Goes), one("new", Fate::Stays("the hub wants it by now".into()))];
        assert!(told(&cleared, false).contains("would be deleted"));
        let done = told(&cleared, true);
        let lines: Vec<&str> = done.lines().collect();
        assert!(lines[1].contains("old") && lines[1].ends_with("deleted"), "{done}");
        assert!(lines[2].ends_with("stays: the hub wants it by now"), "{done}");
    }

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
