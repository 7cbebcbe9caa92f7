//! `hanse explain KIND/NAME`: where an object of the hub runs, why, and what came of it, from its Assignment.

use std::fmt::Write;

use anyhow::{anyhow, bail};
use api::assignment::{self, Assignment, Report, Spec, State, Status, Target};
use env::Env;
use http::Method;
use kinds::{Health, Travel};
use serde::Deserialize;
use serde_json::{Value, json};
use server::views::{CLUSTER, REPLICAS};
use sync::client::Access;

use crate::{client, stuck};

pub async fn run(env: &Env, hub: &Access, object: &str, namespace: &str, json: bool) -> anyhow::Result<()> {
    let Some((kind, name)) =
        object.split_once('/').filter(|(kind, name)| !kind.is_empty() && !name.is_empty())
    else {
        bail!("{object} is not KIND/NAME, as in deployment/web");
    };
    let resource = find(env, hub, kind).await?;
    let path = match resource.namespaced {
        true => format!("{}/namespaces/{namespace}/{}/{name}", resource.root, resource.name),
        false => format!("{}/{}/{name}", resource.root, resource.name),
    };
    let object = client::call(env, hub, Method::GET, &path, None).await?;
    let inside = if resource.namespaced { namespace } else { name };
    let own = assignment::name_of(&resource.group, &resource.name, name);
    let path = format!(
        "/apis/{}/namespaces/{inside}/{}?fieldSelector=metadata.name={own}",
        api::API_VERSION,
        assignment::PLURAL
    );
    let listed = client::call(env, hub, Method::GET, &path, None).await?;
    let assignment = listed["items"][0].clone();
    let stuck = stuck::find(env, hub, &object).await?;
    match json {
        true => println!(
            "{}",
            serde_json::to_string_pretty(
                &json!({"object": object, "assignment": assignment, "stuck": stuck::to_json(&stuck)})
            )?
        ),
        false => print!("{}{}", tell(&object, &assignment)?, stuck::tell(&stuck)?),
    }
    Ok(())
}

/// A kind as the hub serves it.
struct Resource {
    group: String,
    name: String,
    namespaced: bool,
    /// What its paths begin with.
    root: String,
}

/// Finds a kind by what kubectl calls it: `deployment`, `deployments.apps`, `deploy`.
async fn find(env: &Env, hub: &Access, kind: &str) -> anyhow::Result<Resource> {
    let kind = kind.to_lowercase();
    let mut roots = vec![(String::new(), "/api/v1".to_owned())];
    let groups = client::call(env, hub, Method::GET, "/apis", None).await?;
    for group in groups["groups"].as_array().into_iter().flatten() {
        let preferred = group["preferredVersion"]["groupVersion"].as_str().unwrap_or_default();
        roots.push((group["name"].as_str().unwrap_or_default().to_owned(), format!("/apis/{preferred}")));
    }
    for (group, root) in roots {
        let served = client::call(env, hub, Method::GET, &root, None).await?;
        for resource in served["resources"].as_array().into_iter().flatten() {
            let text = |key: &str| resource[key].as_str().unwrap_or_default().to_owned();
            let name = text("name");
            let mut names = vec![name.clone(), text("singularName"), text("kind").to_lowercase()];
            names.push(format!("{name}.{group}"));
            names.extend(
                resource["shortNames"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .map(str::to_owned),
            );
            if !name.contains('/') && names.contains(&kind) {
                return Ok(Resource { group, name, namespaced: resource["namespaced"] == true, root });
            }
        }
    }
    Err(anyhow!("the hub serves no kind {kind}"))
}

/// Why there is no Assignment for it.
fn why_nowhere(object: &Value) -> &'static str {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    match kinds::of(group, &kind).travel(&text(&object["metadata"]["name"])) {
        Travel::Stays => "objects of its kind, or of its name, are not placed",
        Travel::IfSelected => {
            "objects of its kind are placed only if a Placement selects them, or they name clusters themselves with the \
             annotation hanse.io/clusters"
        }
        Travel::Follows | Travel::Named => {
            "nothing that is placed needs it, or there are no clusters to place it on"
        }
        Travel::WithNamespace => {
            "nothing of its namespace is placed, or there are no clusters to place it on"
        }
        Travel::Placed => "nothing places it yet, or there are no clusters to place it on",
    }
}

/// Where an object is that clusters have made for another one.
fn made_in_a_cluster(object: &Value) -> Option<String> {
    let metadata = &object["metadata"];
    let place = match (&metadata["labels"][CLUSTER], &metadata["annotations"][REPLICAS]) {
        (Value::String(cluster), _) => format!("cluster {cluster}"),
        (_, Value::String(shares)) => format!("clusters {shares}"),
        _ => return None,
    };
    let owners = metadata["ownerReferences"].as_array();
    let owner = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
    let named = owner.and_then(|owner| Some((owner["kind"].as_str()?, owner["name"].as_str()?)));
    Some(match named {
        Some((kind, name)) => format!(
            "is in {place}, made there for {kind} {name}: `hanse explain {}/{name}` says why",
            kind.to_lowercase()
        ),
        None => format!("is in {place}, and was made there"),
    })
}

fn tell(object: &Value, assignment: &Value) -> anyhow::Result<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut told = String::new();
    let namespace = match text(&object["metadata"]["namespace"]) {
        namespace if namespace.is_empty() => String::new(),
        namespace => format!("{namespace}/"),
    };
    writeln!(told, "{} {namespace}{}", text(&object["kind"]), text(&object["metadata"]["name"]))?;
    if assignment.is_null() {
        match made_in_a_cluster(object) {
            Some(made) => writeln!(told, "  {made}.")?,
            None => writeln!(told, "  is in the hub alone: {}.", why_nowhere(object))?,
        }
        return Ok(told);
    }
    let spec = Spec::deserialize(&assignment["spec"])?;
    let status = Status::deserialize(&assignment["status"]).unwrap_or_default();
    let assigned = Assignment { spec, status };
    let Assignment { spec, status } = &assigned;
    let decision = &spec.decision;
    let policy = if decision.policy.is_empty() { String::new() } else { format!(" ({})", decision.policy) };
    let strategy = decision.strategy.map(|it| format!(", {it:?}")).unwrap_or_default();
    writeln!(told, "  decided by: {}{policy}{strategy}", decision.layer)?;
    if !decision.message.is_empty() {
        writeln!(told, "  {}", decision.message)?;
    }
    writeln!(told)?;
    let mut rows = vec![["CLUSTER", "STATE", "SHARE", "COPY", "SAYS"].map(str::to_owned)];
    for target in &spec.clusters {
        let report = status.clusters.iter().find(|report| report.uid == target.uid);
        rows.push([
            target.name.clone(),
            word(assigned.state(target)).to_owned(),
            share(target),
            copy(report, object),
            says(object, target, report),
        ]);
    }
    if spec.clusters.is_empty() {
        writeln!(told, "  It is in no cluster.")?;
    } else {
        table(&mut told, &rows)?;
    }
    let others = decision.verdicts.iter().filter(|it| !it.message.is_empty());
    let others: Vec<[String; 2]> = others.map(|it| [it.cluster.clone(), it.message.clone()]).collect();
    if !others.is_empty() {
        writeln!(told, "\n  What was found:")?;
        table(&mut told, &others)?;
    }
    Ok(told)
}

fn word(state: State) -> &'static str {
    match state {
        State::Assigned => "Assigned",
        State::Ready => "Ready",
        State::Draining => "Draining",
    }
}

fn share(target: &Target) -> String {
    let parts = [
        target.replicas.map(|it| format!("{it} replicas")),
        target.completions.map(|it| format!("{it} completions")),
        target.first_ordinal.filter(|it| *it > 0).map(|it| format!("from {it}")),
        target.max.map(|max| format!("{} to {max}", target.min.unwrap_or(1))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "all".to_owned() } else { parts.join(", ") }
}

fn copy(report: Option<&Report>, object: &Value) -> String {
    match report {
        None => "not yet".to_owned(),
        Some(report)
            if report.applied
                && report.generation >= object["metadata"]["generation"].as_i64().unwrap_or(0) =>
        {
            "applied".to_owned()
        }
        Some(report) if report.applied => format!("of generation {}", report.generation),
        Some(report) => report.reason.clone(),
    }
}

/// How the copy does, as far as its status says.
fn says(object: &Value, target: &Target, report: Option<&Report>) -> String {
    let Some(report) = report else { return String::new() };
    if !report.message.is_empty() {
        return report.message.clone();
    }
    if !report.applied {
        return String::new();
    }
    let mut copy = object.clone();
    copy["status"] = report.status.clone();
    copy["metadata"]["generation"] = json!(report.copy_generation);
    let wanted = report.replicas.or(target.replicas);
    if let Some(replicas) = wanted.filter(|_| copy["spec"]["replicas"].is_number()) {
        copy["spec"]["replicas"] = json!(replicas);
    }
    match kinds::health(&copy) {
        Health::Healthy => "healthy".to_owned(),
        Health::Suspended => "suspended".to_owned(),
        Health::Progressing(why) | Health::Degraded(why) | Health::Unknown(why) => why,
    }
}

pub fn table<const N: usize>(told: &mut String, rows: &[[String; N]]) -> std::fmt::Result {
    for row in rows {
        let mut line = String::from(" ");
        for (at, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
            write!(line, " {cell:width$} ")?;
        }
        writeln!(told, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_says_where_it_is_and_what_is_wrong_there() {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "generation": 2}, "spec": {"replicas": 5},
        });
        let assignment = json!({
            "spec": {
                "object": {}, "decision": {
                    "layer": "Namespace", "policy": "hanse.io/clusters", "strategy": "Divide", "pending": 0,
                    "verdicts": [{"cluster": "ap-1", "feasible": false, "message": "it is cordoned"}],
                },
                "clusters": [
                    {"name": "eu-1", "uid": "1", "state": "Assigned", "replicas": 3},
                    {"name": "us-1", "uid": "2", "state": "Assigned", "replicas": 2},
                    {"name": "us-2", "uid": "3", "state": "Assigned", "replicas": 0},
                    {"name": "us-3", "uid": "4", "state": "Draining", "replicas": 1},
                ],
            },
            "status": {"clusters": [
                {"name": "us-1", "uid": "2", "generation": 2, "applied": false, "reason": "Refused", "message": "quota exceeded"},
                {"name": "us-2", "uid": "3", "generation": 2, "applied": true, "ready": true},
                {"name": "us-3", "uid": "4", "generation": 2, "applied": true, "ready": true},
            ]},
        });
        let told = tell(&object, &assignment).unwrap();
        for part in [
            "Deployment shop/web",
            "Namespace (hanse.io/clusters), Divide",
            "3 replicas",
            "not yet",
            "Refused",
            "quota exceeded",
            "it is cordoned",
        ] {
            assert!(told.contains(part), "{part} in\n{told}");
        }
        let row = |name: &str| told.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
        for (name, state) in
            [("eu-1", "Assigned"), ("us-1", "Assigned"), ("us-2", "Ready"), ("us-3", "Draining")]
        {
            assert_eq!(row(name).split_whitespace().nth(1), Some(state), "{told}");
        }
        assert!(tell(&object, &Value::Null).unwrap().contains("in the hub alone: nothing places it yet"));
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web-0", "labels": {"hanse.io/cluster": "eu-1"}, "ownerReferences": [
                {"kind": "StatefulSet", "name": "web", "controller": true},
            ]},
        });
        let of_set = tell(&pod, &Value::Null).unwrap();
        assert!(of_set.contains("is in cluster eu-1, made there for StatefulSet web"), "{of_set}");
        assert!(of_set.contains("`hanse explain statefulset/web`"), "{of_set}");
        pod["metadata"]["ownerReferences"] = Value::Null;
        assert!(tell(&pod, &Value::Null).unwrap().contains("is in cluster eu-1, and was made there"));
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "web"}});
        assert!(
            tell(&role, &Value::Null)
                .unwrap()
                .contains("objects of its kind, or of its name, are not placed")
        );
        let own = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "web"}});
        assert!(tell(&own, &Value::Null).unwrap().contains("only if a Placement selects them"));
    }
}
