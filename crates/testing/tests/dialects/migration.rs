//! What KubeFed left behind, taken over as the page `docs/migration.md` says; what its `jq` leaves out is read there.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    type_configs::config,
    words::{
        A, B, SYSTEM, create, federated, federation_config, plain, restart, template, until_replicas,
        until_told,
    },
    world::{Member, World, deployment_path, is_rolled_out, path, text},
};

const PAGE: &str = include_str!("../../../../docs/migration.md");
const MANAGED: &str = "kubefed.io/managed";
/// What each cluster runs: the second one has an override.
const REPLICAS: [(&str, u32); 2] = [(A, 2), (B, 3)];

fn more_in_b(replicas: u32) -> Value {
    json!([{"clusterName": B, "clusterOverrides": [{"path": "/spec/replicas", "value": replicas}]}])
}

fn web() -> Value {
    let everywhere = json!({"clusterSelector": {}});
    let spec = json!({"template": template(2), "placement": everywhere, "overrides": more_in_b(3)});
    federated("Deployment", "web", spec)
}

/// As the chart of its last release writes it.
fn configured() -> Value {
    federation_config(json!({
        "scope": "Cluster",
        "controllerDuration": {"availableDelay": "20s", "unavailableDelay": "60s", "cacheSyncTimeout": "5m"},
        "leaderElect": {
            "leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "5s", "resourceLock": "configmaps",
        },
        "featureGates": [
            {"name": "PushReconciler", "configuration": "Enabled"},
            {"name": "SchedulerPreferences", "configuration": "Enabled"},
            {"name": "RawResourceStatusCollection", "configuration": "Disabled"},
        ],
        "clusterHealthCheck": {"period": "10s", "failureThreshold": 3, "successThreshold": 1, "timeout": "3s"},
        "syncController": {"maxConcurrentReconciles": 1, "adoptResources": "Enabled"},
        "statusController": {"maxConcurrentReconciles": 1},
    }))
}

/// What KubeFed had, in the order in which the page applies it.
fn had() -> [Value; 4] {
    [
        configured(),
        config("deployments.apps", "Deployment", "Enabled", false),
        federated("Namespace", NS, json!({"placement": {"clusterSelector": {}}})),
        web(),
    ]
}

/// As the API server of KubeFed's host shows it.
fn in_host(mut object: Value) -> Value {
    object["status"] = json!({"observedGeneration": 4});
    let metadata = &mut object["metadata"];
    metadata["uid"] = json!("b0c3a4a6-6f6e-4b1c-9f3e-0d2a5b8c7e11");
    metadata["resourceVersion"] = json!("48151623");
    metadata["generation"] = json!(4);
    metadata["creationTimestamp"] = json!("2022-05-01T10:00:00Z");
    metadata["finalizers"] = json!(["kubefed.io/sync-controller"]);
    metadata["managedFields"] = json!([{"manager": "kubectl", "operation": "Update"}]);
    object
}

/// The fields of metadata that the page leaves out, the first time that it does so and the next.
fn left_out(time: usize) -> Result<Vec<&'static str>> {
    let rest = PAGE.split(".metadata[").nth(time).and_then(|rest| rest.split_once(']'));
    let (names, _) = rest.context("the page leaves something out")?;
    Ok(names.split(',').map(|name| name.trim_matches('"')).collect())
}

fn without(mut object: Value, fields: &[&str]) -> Value {
    if let Some(whole) = object.as_object_mut() {
        whole.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| !fields.contains(&name.as_str()));
    }
    object
}

/// A cluster as KubeFed left it, which is not joined yet.
async fn left_behind(world: &World, name: &str, replicas: u32) -> Result<Member> {
    world.clusters.simulation.add(name, sim::ClusterOptions::default()).await?;
    let member = world.member(name).await?;
    let (mut namespace, mut web) = (app::namespace(NS), app::deployment("web", replicas));
    namespace["metadata"]["labels"] = json!({MANAGED: "true"});
    web["metadata"]["labels"] = json!({"app": "web", MANAGED: "true"});
    for object in [&namespace, &web] {
        member.create(object).await?;
    }
    let runs = |it: &Value| is_rolled_out(it, u64::from(replicas));
    member.until(&path(&web), "its pods run", runs).await?;
    Ok(member)
}

/// The UID of the Deployment, and those of its pods, with how often they were restarted.
type Life = (String, BTreeSet<(String, u64)>);

async fn life(member: &Member) -> Result<Life> {
    let copy = member.get(&deployment_path("web")).await?;
    Ok((text(&copy, "/metadata/uid").to_owned(), member.pods(NS).await?))
}

struct Migrated {
    world: World,
    members: Vec<Member>,
    /// Of each, as KubeFed left it.
    before: Vec<Life>,
}

impl Migrated {
    /// The steps of the page, up to the look at what came of them.
    async fn start() -> Result<Migrated> {
        let world = World::start(&[]).await?;
        let (mut members, mut before) = (Vec::new(), Vec::new());
        for (name, replicas) in REPLICAS {
            let member = left_behind(&world, name, replicas).await?;
            before.push(life(&member).await?);
            members.push(member);
        }

        // 1. The clusters are joined.
        for (name, _) in REPLICAS {
            world.join(name).await?;
        }
        // 2. KubeFed's controller is stopped: here, there is none. 3. What it had is applied.
        for namespace in [SYSTEM, NS] {
            world.namespace(namespace).await?;
        }
        let fields = left_out(1)?;
        for object in had() {
            create(&world, &without(in_host(object), &fields)).await?;
        }
        // 4. It says that all is well.
        let migrated = Migrated { world, members, before };
        migrated.until_well().await?;
        Ok(migrated)
    }

    async fn until_well(&self) -> Result<()> {
        for object in [federated("Namespace", NS, json!({})), web()] {
            until_told(&self.world, &object, &[(A, ""), (B, "")], "True").await?;
        }
        Ok(())
    }

    /// Whatever was under way is over, and all runs as KubeFed left it.
    async fn runs_on(&self, round: usize) -> Result<()> {
        self.world.barrier(NS, round, &[A, B]).await?;
        for ((member, before), (name, replicas)) in self.members.iter().zip(&self.before).zip(REPLICAS) {
            assert_eq!(&life(member).await?, before, "{name}");
            let copy = member.get(&deployment_path("web")).await?;
            assert_eq!(copy["spec"]["replicas"], replicas, "{name}");
            assert_eq!(copy["metadata"]["labels"]["hanse.io/workspace"], "default", "{name}");
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kubefed_left_behind_is_taken_over_as_it_runs() -> Result<()> {
    let mut migrated = Migrated::start().await?;
    migrated.runs_on(0).await?;
    restart(&mut migrated.world, &[A, B]).await?;
    migrated.until_well().await?;
    migrated.runs_on(1).await?;
    for member in &migrated.members {
        let copy = member.get(&deployment_path("web")).await?;
        assert_eq!(copy["metadata"]["labels"][MANAGED], "true");
    }

    // From now on it is looked after here.
    let more = json!({"spec": {"overrides": more_in_b(4)}});
    migrated.world.patch(&path(&web()), more).await?;
    until_replicas(&migrated.members[1], &plain(&web()), 4).await?;
    migrated.until_well().await?;
    let pods = migrated.members[1].pods(NS).await?;
    assert!(pods.is_superset(&migrated.before[1].1), "{pods:?}");
    Ok(())
}

/// What the federated object said, in Hanse's words.
fn said() -> [Value; 2] {
    let select = json!([{"kinds": ["Deployment"], "namespaces": [NS], "names": ["web"]}]);
    let mk = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "hanse.io/v1alpha1", "kind": kind, "metadata": {"name": "web"}, "spec": spec,
        })
    };
    let patches = json!([{"path": "/spec/replicas", "value": 3}]);
    [
        mk("Placement", json!({"select": select, "strategy": "Duplicate"})),
        mk("Override", json!({"select": select, "clusters": {"names": [B]}, "patches": patches})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_federated_kinds_are_left_behind_and_nothing_is_restarted() -> Result<()> {
    let migrated = Migrated::start().await?;
    let (world, whole) = (&migrated.world, plain(&web()));
    let mut kept = without(world.get(&path(&whole)).await?, &left_out(2)?);
    for (map, key) in [("annotations", "hanse.io/federated"), ("labels", MANAGED)] {
        kept["metadata"][map].as_object_mut().context("it has some")?.remove(key);
    }

    world.annotate(&path(&web()), json!({"kubefed.io/orphan": "true"})).await?;
    world.client.delete(&path(&web())).await?;
    world.until_gone(&path(&web())).await?;
    world.until_gone(&path(&whole)).await?;
    world.apply_all(&said()).await?;
    let made = create(world, &kept).await?;
    for member in &migrated.members {
        let is_its = |it: &Value| {
            it["metadata"]["annotations"]["hanse.io/source-uid"] == made["metadata"]["uid"]
                && it["metadata"]["labels"].get(MANAGED).is_none()
        };
        member.until(&deployment_path("web"), "it is taken over again", is_its).await?;
    }
    migrated.runs_on(0).await
}
