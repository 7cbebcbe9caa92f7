//! Copies in a real Kubernetes cluster: what its API server makes of them is no reason to write them again.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

#[allow(dead_code)] // It serves other tests too.
#[path = "../copies/hand.rs"]
mod hand;
#[allow(dead_code)]
#[path = "../members/world.rs"]
mod world;

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context, Result};
use api::assignment::{Propagation, Report};
use base64::{Engine, prelude::BASE64_STANDARD};
use env::Env;
use hand::{CONFIG_MAP, CREW, DEPLOYMENT, Hand, NAMESPACE, Spot, define_crews, share, target, writes};
use http::Method;
use serde_json::{Value, json};
use store::{Store, memory::MemoryStore};
use sync::{client::Access, kubeconfig::Kubeconfig};
use testing::{
    client::Client,
    real::{Options, RealCluster},
};
use world::{World, brisk};

const fn spot(group: &'static str, plural: &'static str, kind: &'static str) -> Spot {
    Spot { group, version: "v1", plural, kind }
}

/// An object of every kind that travels, as users write them.
fn objects() -> Vec<(Spot, Value)> {
    let labels = json!({"app": "web"});
    let pod = json!({
        "containers": [{
            "name": "c", "image": "nginx", "ports": [{"containerPort": 80}],
            "resources": {"requests": {"cpu": "1000m", "memory": "1Gi"}},
            "env": [{"name": "A", "value": "b"}],
            "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
            "volumeMounts": [{"name": "settings", "mountPath": "/settings"}],
        }],
        "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
    });
    let once = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    let selector = json!({"matchLabels": labels});
    let named = |mut rest: Value| {
        rest["metadata"] = json!({"name": "web"});
        rest
    };
    vec![
        (
            spot("", "configmaps", "ConfigMap"),
            named(json!({"data": {"a": "1"}, "binaryData": {"b": "AA=="}})),
        ),
        (spot("", "secrets", "Secret"), named(json!({"stringData": {"key": "value"}}))),
        (
            spot("", "services", "Service"),
            named(
                json!({"spec": {"type": "LoadBalancer", "selector": labels, "ports": [{"port": 80, "targetPort": 80}]}}),
            ),
        ),
        (spot("", "serviceaccounts", "ServiceAccount"), named(json!({}))),
        (
            spot("", "persistentvolumeclaims", "PersistentVolumeClaim"),
            named(
                json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
            ),
        ),
        (
            spot("", "limitranges", "LimitRange"),
            named(json!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "0.5"}}]}})),
        ),
        (DEPLOYMENT, named(json!({"spec": {"replicas": 2, "selector": selector, "template": template}}))),
        (
            spot("apps", "statefulsets", "StatefulSet"),
            named(
                json!({"spec": {"serviceName": "web", "replicas": 2, "selector": selector, "template": template}}),
            ),
        ),
        (
            spot("apps", "daemonsets", "DaemonSet"),
            named(json!({"spec": {"selector": selector, "template": template}})),
        ),
        (
            spot("batch", "jobs", "Job"),
            named(json!({"spec": {"parallelism": 2, "completions": 2, "template": {"spec": once}}})),
        ),
        (
            spot("batch", "cronjobs", "CronJob"),
            named(
                json!({"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": once}}}}}),
            ),
        ),
        (
            Spot {
                version: "v2",
                ..spot("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
            },
            named(json!({"spec": {
                "minReplicas": 2, "maxReplicas": 5,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "metrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60},
                }}],
            }})),
        ),
        (
            spot("policy", "poddisruptionbudgets", "PodDisruptionBudget"),
            named(json!({"spec": {"minAvailable": 1, "selector": selector}})),
        ),
        (
            spot("networking.k8s.io", "ingresses", "Ingress"),
            named(json!({"spec": {"rules": [{"host": "web.example.com", "http": {"paths": [{
                "path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}},
            }]}}]}})),
        ),
        (
            spot("networking.k8s.io", "networkpolicies", "NetworkPolicy"),
            named(json!({"spec": {"podSelector": selector, "ingress": [{"ports": [{"port": 80}]}]}})),
        ),
    ]
}

fn access(cluster: &RealCluster) -> Result<Access> {
    let kubeconfig = Kubeconfig::read(&Env::real(), &cluster.kubeconfig)?.context("it was written")?;
    Ok(kubeconfig.access(&Env::real(), kubeconfig.current_context())?)
}

/// What says that a copy was written by a session: everything but what controllers of the cluster do.
async fn written(admin: &Client) -> Result<BTreeMap<String, Value>> {
    let mut written = BTreeMap::new();
    for (spot, _) in objects() {
        let path = spot.path("shop", "web");
        let object = admin.get(&path).await?.json();
        let fields = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let by_us: Vec<Value> = fields.into_iter().filter(|it| it["manager"] == "hanse").collect();
        assert_eq!(by_us.len(), 1, "{path}: {object}");
        written.insert(path, json!([object["metadata"]["uid"], object["metadata"]["generation"], by_us]));
    }
    Ok(written)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_is_copied_found_again_and_removed() -> Result<()> {
    let options = Options { controller_manager: true, fsync: false, ..Options::default() };
    let cluster = tokio::task::spawn_blocking(|| RealCluster::start(options)).await??;
    let identity = (cluster.admin_cert_pem.as_str(), cluster.admin_key_pem.as_str());
    let admin = Client::connect(&cluster.url, &cluster.ca_pem, Some(identity)).await?;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let world = World::start_on(store.clone(), None, brisk()).await?;
    world.join("eu-1", &access(&cluster)?).await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    for (spot, object) in objects() {
        hand.make(&spot, "shop", object).await?;
        let own = if spot.kind == "ConfigMap" { target("eu-1") } else { share("eu-1", 2) };
        hand.assign(&spot, "shop", "web", &[own]).await?;
    }
    for (spot, _) in objects() {
        hand.until_applied(&spot, "shop", "web", "eu-1").await?;
    }
    let observed = |it: &Report| it.applied && it.status["observedGeneration"] == it.copy_generation;
    hand.until(&DEPLOYMENT, "shop", "web", "eu-1", observed).await?;
    let before = written(&admin).await?;
    world.hub.stop().await;

    let world = World::start_on(store, None, brisk()).await?;
    let hand = Hand::new(&world);
    hand.config_map("shop", "last", json!({}), &["eu-1"]).await?;
    hand.until_applied(&CONFIG_MAP, "shop", "last", "eu-1").await?;
    // Each was looked at: what is told of it again is what it was told before.
    for (spot, _) in objects() {
        let touch = json!({"metadata": {"annotations": {"hanse.io/touched": "yes"}}});
        hand.patch(&spot, "shop", "web", touch).await?;
    }
    hand.config_map("shop", "very-last", json!({}), &["eu-1"]).await?;
    hand.until_applied(&CONFIG_MAP, "shop", "very-last", "eu-1").await?;
    assert_eq!(written(&admin).await?, before);
    assert_eq!((writes(&world, "created").await?, writes(&world, "applied").await?), (2, 0));

    for (spot, _) in objects() {
        let mode = if spot.kind == "Job" { Propagation::Foreground } else { Propagation::Background };
        hand.assign_as(&spot, "shop", "web", &[share("eu-1", 2)], |spec| spec.propagation = Some(mode))
            .await?;
        hand.unassign(&spot, "shop", "web").await?;
    }
    for name in ["last", "very-last"] {
        hand.unassign(&CONFIG_MAP, "shop", name).await?;
    }
    hand.unassign(&NAMESPACE, "shop", "shop").await?;
    for (spot, _) in objects() {
        hand.until(&spot, "shop", "web", "eu-1", Report::is_gone).await?;
    }
    hand.until(&NAMESPACE, "shop", "shop", "eu-1", Report::is_gone).await?;
    assert_eq!(admin.get("/api/v1/namespaces/shop").await?.code, 404);
    Ok(())
}

/// A real API server grants what the session asks for its role, and its policy keeps that within bounds.
#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_somebody_defined_is_copied_without_rights_being_given_by_hand() -> Result<()> {
    let options = Options { controller_manager: true, fsync: false, ..Options::default() };
    let cluster = tokio::task::spawn_blocking(|| RealCluster::start(options)).await??;
    let identity = (cluster.admin_cert_pem.as_str(), cluster.admin_key_pem.as_str());
    let admin = Client::connect(&cluster.url, &cluster.ca_pem, Some(identity)).await?;
    let world = World::start().await?;
    world.join("eu-1", &access(&cluster)?).await?;
    define_crews(&admin, "").await?;
    define_crews(&world.admin, "").await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    let crew = json!({
        "apiVersion": "example.com/v1", "kind": "Crew", "metadata": {"name": "hulk"}, "spec": {"sailors": 2},
    });
    hand.make(&CREW, "shop", crew).await?;
    hand.assign(&CREW, "shop", "hulk", &[target("eu-1")]).await?;
    hand.until_applied(&CREW, "shop", "hulk", "eu-1").await?;
    assert_eq!(admin.get(&CREW.path("shop", "hulk")).await?.json()["spec"]["sailors"], 2);
    assert_eq!(hand.warnings("shop", "hulk").await?, [""; 0], "it was not refused first");
    let status = json!({"status": {"ready": true}});
    admin.merge_patch(&format!("{}/status", CREW.path("shop", "hulk")), &status).await?;
    hand.until(&CREW, "shop", "hulk", "eu-1", |it| it.status["ready"] == true).await?;

    // The session's own token can have nothing else put into the role.
    let secret = world.admin.get("/api/v1/namespaces/hanse-system/secrets/cluster-eu-1").await?.json();
    let token = BASE64_STANDARD.decode(secret["data"]["token"].as_str().context("a token")?)?;
    let bearer = format!("Bearer {}", String::from_utf8(token)?);
    let nobody = Client::connect(&cluster.url, &cluster.ca_pem, None).await?;
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/merge-patch+json")];
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/hanse:session:placed";
    for (group, resource, code) in
        [("rbac.authorization.k8s.io", "clusterroles", 422), ("", "nodes", 422), ("a.b", "c", 200)]
    {
        let rule = json!({"rules": [{"apiGroups": [group], "resources": [resource], "verbs": ["get"]}]});
        let answer = nobody.call(Method::PATCH, role, &headers, rule.to_string()).await?;
        assert_eq!(answer.code, code, "{group}/{resource}: {}", answer.text());
    }
    hand.unassign(&CREW, "shop", "hulk").await?;
    Ok(())
}
