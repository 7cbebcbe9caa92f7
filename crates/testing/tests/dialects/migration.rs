//! What KubeFed and Karmada left behind, taken over as the page `docs/migration.md` says; what its commands take off, and
//! what it has of policies, is read there.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use testing::hub::TestHub;

use crate::{
    app::{self, NS},
    type_configs::config,
    words::{
        A, B, SYSTEM, create, documents, federated, federation_config, plain, restart, template,
        until_replicas, until_told,
    },
    world::{Member, World, assignment_path, collection, deployment_path, is_rolled_out, path, shares, text},
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

/// The patches by which the page takes something off: of what KubeFed had, and of a plain object that is kept.
fn taken_off() -> Result<[Value; 2]> {
    let patches = PAGE.split('\'').filter(|it| it.starts_with(r#"{"metadata":"#));
    let patches: Vec<Value> = patches.map(serde_json::from_str).collect::<Result<_, _>>()?;
    <[Value; 2]>::try_from(patches).map_err(|patches| anyhow!("the page has other patches: {patches:?}"))
}

/// As `kubectl patch --type=merge` does with a patch that only takes off.
fn without(mut object: Value, patch: &Value) -> Value {
    let (Some(members), Some(patch)) = (object.as_object_mut(), patch.as_object()) else { return object };
    for (name, patch) in patch {
        if patch.is_null() {
            members.remove(name);
        } else if let Some(member) = members.get_mut(name) {
            *member = without(member.take(), patch);
        }
    }
    object
}

/// A cluster that somebody left so, with a namespace of theirs, and that is not joined yet.
async fn left_behind(world: &World, name: &str, mark: &str, web: &Value) -> Result<Member> {
    world.clusters.simulation.add(name, sim::ClusterOptions::default()).await?;
    let member = world.member(name).await?;
    let mut namespace = app::namespace(NS);
    namespace["metadata"]["labels"] = json!({mark: "true"});
    for object in [&namespace, web] {
        member.create(object).await?;
    }
    let replicas = web["spec"]["replicas"].as_u64().unwrap_or(0);
    member.until(&path(web), "its pods run", |it| is_rolled_out(it, replicas)).await?;
    Ok(member)
}

fn by_kubefed(replicas: u32) -> Value {
    let mut web = app::deployment("web", replicas);
    web["metadata"]["labels"] = json!({"app": "web", MANAGED: "true"});
    web
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
            let member = left_behind(&world, name, MANAGED, &by_kubefed(replicas)).await?;
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
        let [patch, _] = taken_off()?;
        for object in had() {
            create(&world, &without(in_host(object), &patch)).await?;
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
    let [_, patch] = taken_off()?;
    let kept = without(world.get(&path(&whole)).await?, &patch);

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
    migrated.runs_on(0).await?;

    // The namespace comes last: by now all that is in it is placed by other words.
    let namespace = path(&federated("Namespace", NS, json!({})));
    world.client.delete(&namespace).await?;
    world.until_gone(&namespace).await?;
    migrated.runs_on(1).await
}

/// Of the page's example: where Karmada had how many replicas, and of which image.
const BY_KARMADA: [(&str, u32, &str); 2] = [("eu-1", 4, "web:1"), ("us-1", 2, "us.example/web:1")];
const KARMADA: &str = "karmada.io/managed";
const WORK: &str = "work.karmada.io/name";

fn of_image(replicas: u32, image: &str) -> Value {
    let mut web = app::deployment("web", replicas);
    web["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
    web
}

/// As Karmada has it in a cluster: a share, by its override, with its marks.
fn by_karmada(cluster: &str, replicas: u32, image: &str) -> Value {
    let mut web = of_image(replicas, image);
    web["metadata"]["labels"] = json!({
        "app": "web", KARMADA: "true",
        "propagationpolicy.karmada.io/permanent-id": "8b6f2f0c-6f0e-4a4b-8f5b-3f1f9e0c2d11",
        "resourcebinding.karmada.io/permanent-id": "1d5f9f6e-9b1c-4a3e-a7a4-5c8a2b7e4f22",
        "work.karmada.io/permanent-id": "f0a7c1de-2c3b-4d59-9c69-6b1e8d7f3a33",
    });
    web["metadata"]["annotations"] = json!({
        "propagationpolicy.karmada.io/name": "web", "propagationpolicy.karmada.io/namespace": NS,
        "resourcebinding.karmada.io/name": "web-deployment", "resourcebinding.karmada.io/namespace": NS,
        "resourcetemplate.karmada.io/managed-labels": format!("app,{KARMADA}"),
        "resourcetemplate.karmada.io/uid": "b0c3a4a6-6f6e-4b1c-9f3e-0d2a5b8c7e11",
        WORK: "web-687f7fb96f", "work.karmada.io/namespace": format!("karmada-es-{cluster}"),
    });
    web
}

/// What the page says in YAML, of Hanse's own kinds.
fn in_own_words() -> Result<Vec<Value>> {
    let fenced = PAGE.split("\n```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut all = Vec::new();
    for block in fenced {
        all.extend(documents(block)?);
    }
    all.retain(|it| it["apiVersion"] == api::API_VERSION);
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_takes_what_the_page_says_in_its_words() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let mut kinds = BTreeSet::new();
    for object in in_own_words()? {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", collection(&object));
        let taken = client.post(&path, &object).await?;
        assert_eq!(taken.code, 201, "{object}: {}", taken.text());
        kinds.insert(text(&object, "/kind").to_owned());
    }
    assert_eq!(kinds, BTreeSet::from(["Override".to_owned(), "Placement".to_owned()]));
    Ok(())
}

/// A cluster as Karmada left it.
struct Left {
    name: &'static str,
    member: Member,
    copy: Value,
    life: Life,
}

/// What somebody says of an object, without what becomes of it.
fn saying(object: &Value) -> [&Value; 3] {
    [&object["metadata"]["labels"], &object["metadata"]["annotations"], &object["spec"]]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_karmada_left_behind_is_taken_over_when_that_is_told_and_not_before() -> Result<()> {
    let world = World::start(&[]).await?;
    let names = BY_KARMADA.map(|(name, ..)| name);
    let web = of_image(6, "web:1");
    let mut all = Vec::new();
    for (name, replicas, image) in BY_KARMADA {
        let member = left_behind(&world, name, KARMADA, &by_karmada(name, replicas, image)).await?;
        let copy = member.get(&path(&web)).await?;
        all.push(Left { name, copy, life: life(&member).await?, member });
        world.join(name).await?;
    }

    // The page's policies, then the same manifest. That anything may be taken over is not told.
    world.namespace(NS).await?;
    world.apply_all(&in_own_words()?).await?;
    world.apply(&web).await?;
    let is_refused = |it: &Value| {
        let said = it["status"]["clusters"].as_array().into_iter().flatten();
        said.filter(|it| it["reason"] == "Conflict").count() == names.len()
    };
    let assigned = world.until(&assignment_path(&web), "both have one already", is_refused).await?;
    let as_karmada = BY_KARMADA.map(|(name, replicas, _)| (name.to_owned(), u64::from(replicas)));
    assert_eq!(shares(&assigned), as_karmada);
    world.barrier(NS, 0, &names).await?;
    for left in &all {
        let copy = left.member.get(&path(&web)).await?;
        assert_eq!(saying(&copy), saying(&left.copy), "{}", left.name);
        assert_eq!(life(&left.member).await?, left.life, "{}", left.name);
    }

    let adopt = json!({"hanse.io/adopt": "true"});
    world.annotate(&path(&app::namespace(NS)), adopt).await?;
    world.until_rolled_out("web", 6).await?;
    // Karmada lets go, and takes its marks off.
    let off = json!({"metadata": {"labels": {KARMADA: null}, "annotations": {WORK: null}}});
    for left in &all {
        let written = left.member.client.merge_patch(&path(&web), &off).await?;
        assert_eq!(written.code, 200, "{}", written.text());
    }
    world.barrier(NS, 1, &names).await?;
    for left in &all {
        let copy = left.member.get(&path(&web)).await?;
        assert_eq!(life(&left.member).await?, left.life, "{}", left.name);
        assert_eq!(copy["spec"], left.copy["spec"], "{}", left.name);
        let [labels, annotations, _] = saying(&copy);
        assert_eq!(labels["hanse.io/workspace"], "default", "{}", left.name);
        assert!(labels.get(KARMADA).is_none() && annotations.get(WORK).is_none(), "{copy}");
    }
    Ok(())
}
