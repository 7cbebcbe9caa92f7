//! Real control planes as members, whose nodes kwok pretends to be. What was written in one is what its own audit log says.

use std::{path::PathBuf, thread};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use testing::{
    real::{Options, RealCluster},
    simulated::connect,
};

use crate::{
    members::NAMES,
    real::{KEPT, Members},
    rest::Copy,
    wanted::KINDS,
};

const SESSION: &str = "system:serviceaccount:hanse-system:hanse-session";

struct Plane {
    name: &'static str,
    cluster: RealCluster,
    audit: PathBuf,
    /// How often it was killed.
    kills: usize,
}

pub struct Planes {
    planes: Vec<Plane>,
    _directory: TempDir,
}

/// All that is deleted, whoever does it; and all that sessions write.
fn policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "verbs": ["get", "list", "watch"]},
            {"level": "Metadata", "users": [SESSION]},
            {"level": "Metadata", "verbs": ["delete", "deletecollection"]},
            {"level": "None"},
        ],
    })
}

impl Planes {
    pub fn start() -> Result<Planes> {
        let directory = tempfile::tempdir()?;
        let rules = directory.path().join("policy");
        std::fs::write(&rules, policy().to_string())?;
        let start = |name: &'static str| -> Result<Plane> {
            let audit = directory.path().join(format!("{name}.audit"));
            let options = Options {
                controller_manager: true,
                nodes: vec![format!("{name}-node")],
                // It is killed, and the machine goes on.
                fsync: false,
                apiserver_args: vec![
                    format!("--audit-policy-file={}", rules.display()),
                    format!("--audit-log-path={}", audit.display()),
                ],
                ..Options::default()
            };
            Ok(Plane { name, cluster: RealCluster::start(options)?, audit, kills: 0 })
        };
        let planes: Result<Vec<Plane>> = thread::scope(|scope| {
            let starting = NAMES.map(|name| scope.spawn(move || start(name)));
            let started = starting.into_iter().map(|it| it.join().expect("a thread that does not panic"));
            started.collect()
        });
        Ok(Planes { planes: planes?, _directory: directory })
    }

    fn plane(&mut self, name: &str) -> Result<&mut Plane> {
        self.planes.iter_mut().find(|it| it.name == name).context("no such member")
    }
}

impl Plane {
    /// What was asked of it and done, but for what was only tried and for tokens, which are renewed by a clock.
    fn deeds(&self) -> Result<Vec<Value>> {
        let text = std::fs::read_to_string(&self.audit)?;
        // The last line of one that was killed may be half of one.
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let is_done = |it: &Value| {
            let is_trial = it["requestURI"].as_str().is_some_and(|it| it.contains("dryRun=All"));
            let is_token =
                it["objectRef"]["resource"] == "secrets" || it["objectRef"]["subresource"] == "token";
            let code = it["responseStatus"]["code"].as_u64().unwrap_or_default();
            !is_trial && !is_token && (200..300).contains(&code)
        };
        Ok(events.filter(is_done).collect())
    }
}

fn told(name: &str, deed: &Value) -> String {
    let (object, at) = (&deed["objectRef"], &deed["requestReceivedTimestamp"]);
    let who = &deed["user"]["username"];
    format!("{at} {name}: {who} {} {} {}", deed["verb"], object["resource"], object["name"])
}

impl Members for Planes {
    fn kubeconfig(&self, name: &str) -> Result<String> {
        let plane = self.planes.iter().find(|it| it.name == name).context("no such member")?;
        Ok(std::fs::read_to_string(&plane.cluster.kubeconfig)?)
    }

    async fn stop(&mut self, name: &'static str) -> Result<()> {
        let plane = self.plane(name)?;
        // In turn, so that both are.
        plane.kills += 1;
        let parts: &[&str] = match plane.kills % 3 {
            0 => &["kube-apiserver", "etcd"],
            1 => &["kube-apiserver"],
            _ => &["etcd"],
        };
        parts.iter().try_for_each(|part| plane.cluster.kill(part))
    }

    async fn resume(&mut self, name: &'static str) -> Result<()> {
        self.plane(name)?.cluster.restart()
    }

    async fn until_ready(&mut self) -> Result<()> {
        for plane in &mut self.planes {
            tokio::task::block_in_place(|| plane.cluster.wait_until_ready())?;
        }
        ensure!(self.planes.iter().any(|plane| plane.kills > 0), "none of them was ever killed");
        Ok(())
    }

    async fn copies(&self) -> Result<Vec<Copy>> {
        let mut copies = Vec::new();
        for plane in &self.planes {
            let client = connect(&std::fs::read_to_string(&plane.cluster.kubeconfig)?).await?;
            for (group, plural) in KINDS.into_iter().chain([("", "namespaces")]) {
                let root = match group.is_empty() {
                    true => "/api/v1".to_owned(),
                    false => format!("/apis/{group}/v1"),
                };
                let list =
                    client.get(&format!("{root}/{plural}?labelSelector={}", api::WORKSPACE_LABEL)).await?;
                ensure!(list.code == 200, "{} {plural}: {}", plane.name, list.text());
                for object in list.json()["items"].as_array().into_iter().flatten() {
                    let source = &object["metadata"]["annotations"][api::SOURCE_ANNOTATION];
                    let Some(source) = source.as_str().map(str::to_owned) else { continue };
                    let (cluster, plural, object) = (plane.name, plural.to_owned(), object.clone());
                    copies.push(Copy { cluster, plural, source, object });
                }
            }
        }
        Ok(copies)
    }

    fn lost(&self) -> Result<Vec<String>> {
        let mut lost = Vec::new();
        for plane in &self.planes {
            for deed in plane.deeds()? {
                let object = &deed["objectRef"];
                let is_kept = object["namespace"] == KEPT || object["name"] == KEPT;
                let goes = deed["verb"] == "delete" || deed["verb"] == "deletecollection";
                // Pods and what is between are their controllers' affair, and none of them had a reason.
                if is_kept && goes && object["resource"] != "events" {
                    lost.push(told(plane.name, &deed));
                }
            }
        }
        Ok(lost)
    }

    fn written(&self) -> Result<(usize, Vec<String>)> {
        let (mut count, mut last) = (0, Vec::new());
        for plane in &self.planes {
            let deeds = plane.deeds()?;
            let own: Vec<&Value> = deeds.iter().filter(|it| it["user"]["username"] == SESSION).collect();
            count += own.len();
            last.extend(own.iter().rev().take(5).map(|deed| told(plane.name, deed)));
        }
        Ok((count, last))
    }
}
