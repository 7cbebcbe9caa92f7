//! Clearing a member of leftovers: copies that nothing in the hub wants, by somebody who says so. The hub alone never
//! deletes them.
//!
//! What the status of the `Cluster` lists was found a while ago. So each is looked at again, in the member and in the hub,
//! and goes only as it was then: somebody may have applied its object meanwhile.

use http::Method;
use serde_json::{Value, json};

use crate::{
    client::{Client, Error, JSON},
    join::{CLUSTERS, Refusal, secret_path, uid},
    unjoin::session_client,
};

/// Labels of an Assignment that name its clusters begin so.
const CLUSTER_LABELS: &str = "cluster.hanse.io%2F";

/// What to clear, and how.
pub struct Request<'a> {
    pub name: &'a str,
    /// The API of the workspace that the cluster is joined to.
    pub hub: &'a Client,
    /// The API of another workspace of the hub: of those the copies are.
    pub workspace: &'a dyn Fn(&str) -> Result<Client, Error>,
    /// As an admin of the member; without it, as its session.
    pub member: Option<&'a Client>,
    /// Nothing is changed.
    pub dry_run: bool,
}

/// What becomes of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is deleted, or would be.
    Goes,
    /// It stays, and why.
    Stays(String),
}

/// One that was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleared {
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub fate: Fate,
}

pub async fn clear(request: &Request<'_>) -> Result<Vec<Cleared>, Refusal> {
    let cluster = request.hub.find(&format!("{CLUSTERS}/{}", request.name)).await.map_err(Refusal::Hub)?;
    let Some(cluster) = cluster else {
        return Err(Refusal::No(format!("{} is not joined; see: hanse clusters", request.name)));
    };
    let own;
    let member = match request.member {
        Some(member) => member,
        None => {
            let secret = request.hub.find(&secret_path(request.name)).await.map_err(Refusal::Hub)?;
            own = session_client(request.hub.env(), &cluster, secret.as_ref()).map_err(|why| {
                Refusal::No(format!(
                    "the member cannot be reached: {why}; give an admin's --kubeconfig of it"
                ))
            })?;
            &own
        }
    };
    let system = member.get("/api/v1/namespaces/kube-system").await.map_err(Refusal::Member)?;
    let (found, joined) = (uid(&system).map_err(Refusal::Member)?, &cluster["status"]["identity"]);
    if *joined != found {
        return Err(Refusal::No(format!("the cluster that answers is {found}, and {joined} was joined")));
    }
    let mut cleared = Vec::new();
    for item in cluster["status"]["leftovers"]["items"].as_array().into_iter().flatten() {
        let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
        let fate = one(request, member, item).await?;
        let (resource, namespace, name) = (text("resource"), text("namespace"), text("name"));
        cleared.push(Cleared { resource, namespace, name, fate });
    }
    Ok(cleared)
}

async fn one(request: &Request<'_>, member: &Client, item: &Value) -> Result<Fate, Refusal> {
    let stays = |why: &str| Ok(Fate::Stays(why.to_owned()));
    let path = path(item);
    let Some(copy) = member.find(&path).await.map_err(Refusal::Member)? else {
        return stays("it is gone already");
    };
    let metadata = &copy["metadata"];
    let source = metadata["annotations"][api::SOURCE_ANNOTATION].as_str().unwrap_or_default();
    if metadata["uid"] != item["uid"] || source.is_empty() {
        return stays("another one is there by now");
    }
    match is_wanted(request, item, source).await {
        Ok(false) => {}
        Ok(true) => return stays("the hub wants it by now"),
        // That something is not known is no reason to delete it.
        Err(error) => return stays(&format!("it cannot be said whether the hub wants it: {error}")),
    }
    if request.dry_run {
        return Ok(Fate::Goes);
    }
    // Whoever takes it over changes it.
    let options = json!({
        "propagationPolicy": "Background",
        "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
    });
    match member.call(Method::DELETE, &path, JSON, Some(&options)).await {
        Ok(_) => Ok(Fate::Goes),
        Err(error) if error.code() == Some(404) => stays("it is gone already"),
        Err(error) if error.code() == Some(409) => stays("it was changed at this very moment"),
        Err(error) => Err(Refusal::Member(error)),
    }
}

/// Whether an Assignment names this cluster for the object that the copy is of, or for one that would take it over.
async fn is_wanted(request: &Request<'_>, item: &Value, source: &str) -> Result<bool, Error> {
    let text = |key: &str| item[key].as_str().unwrap_or_default();
    let workspace = (request.workspace)(text("workspace"))?;
    let assigned = format!(
        "/apis/{}/{}?labelSelector={CLUSTER_LABELS}{}",
        api::API_VERSION,
        api::assignment::PLURAL,
        request.name
    );
    // Without its workspace nothing wants it.
    let Some(list) = workspace.find(&assigned).await? else { return Ok(false) };
    let group = |api_version: &str| api_version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
    let is_it = |assignment: &Value| {
        let object = &assignment["spec"]["object"];
        let said = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, home) = (said(&object["name"]), said(&assignment["metadata"]["namespace"]));
        // A namespace may have another name there, which ends with its own.
        let is_there = match text("namespace") {
            "" if object["kind"] == "Namespace" => text("name").ends_with(&name),
            "" => text("name") == name,
            namespace => text("name") == name && namespace.ends_with(&home),
        };
        let is_alike = object["resource"] == text("resource")
            && group(&said(&object["apiVersion"])) == group(text("apiVersion"));
        object["uid"] == source || (is_alike && is_there)
    };
    Ok(list["items"].as_array().into_iter().flatten().any(is_it))
}

fn path(item: &Value) -> String {
    let text = |key: &str| item[key].as_str().unwrap_or_default();
    let api_version = text("apiVersion");
    let root = if api_version.contains('/') { "apis" } else { "api" };
    match text("namespace") {
        "" => format!("/{root}/{api_version}/{}/{}", text("resource"), text("name")),
        namespace => {
            format!("/{root}/{api_version}/namespaces/{namespace}/{}/{}", text("resource"), text("name"))
        }
    }
}
