//! The same webhooks on a real kube-apiserver and on Hanse: they must be asked the same, and their answers must do the
//! same.
//!
//! ```text
//!   scenes ──> configurations ──> requests ──> what webhooks were asked ┐
//!              on both servers    to both      what the client was told ┴─> compare
//! ```
//!
//! Every webhook's path says what it answers. `REVIEWS=text` runs only the scenes whose title contains the text.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod replies;
mod scenes;
mod users;

use std::{
    cell::Cell,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};
use testing::{
    client::Client,
    compare::{Body, Relation, Reply, compare},
    hub::{TestHub, eventually},
    real::{Options, RealCluster},
    webhook::{Asked, Webhook},
};

use scenes::{Scene, Step};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// A server, and the webhooks that it calls.
struct Side {
    client: Client,
    webhook: Webhook,
}

impl Side {
    fn configuration(&self, scene: &Scene, number: usize, mutating: bool) -> Option<(String, Value)> {
        let hooks: Vec<&Value> = scene.hooks.iter().filter(|hook| hook["mutating"] == mutating).collect();
        if hooks.is_empty() {
            return None;
        }
        let kind = if mutating { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" };
        // Servers need a moment until a configuration counts; this one says that it does.
        let marker = json!({
            "name": "marker.reviews.io", "path": "/marker", "objectSelector": {"matchLabels": {"marker": kind}},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        });
        let hooks = hooks.into_iter().chain([&marker]).map(|hook| {
            let mut hook = hook.clone();
            let fields = hook.as_object_mut()?;
            fields.remove("mutating");
            let path = fields.remove("path")?;
            let url = format!("{}{}", self.webhook.url, path.as_str()?);
            fields.entry("clientConfig").or_insert(json!({"url": url, "caBundle": self.webhook.ca_bundle}));
            fields.entry("sideEffects").or_insert(json!("None"));
            fields.entry("admissionReviewVersions").or_insert(json!(["v1"]));
            Some(hook)
        });
        let hooks: Vec<Option<Value>> = hooks.collect();
        let path = format!("{GROUP}/{}s", kind.to_lowercase());
        Some((path, json!({"metadata": {"name": format!("scene-{number}")}, "webhooks": hooks})))
    }

    async fn prepare(&self, scene: &Scene, number: usize) -> Result<()> {
        let namespace = json!({"metadata": {"name": format!("s{number}"), "labels": {"scene": "yes"}}});
        self.made("/api/v1/namespaces", &namespace).await?;
        for (path, object) in &scene.before {
            self.made(&path.replace("<ns>", &format!("s{number}")), object).await?;
        }
        for mutating in [true, false] {
            let Some((path, configuration)) = self.configuration(scene, number, mutating) else { continue };
            self.made(&path, &configuration).await?;
            let kind =
                if mutating { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" };
            let probe = json!({"metadata": {"generateName": "probe-", "labels": {"marker": kind}}});
            let last = Cell::new(String::new());
            eventually("the configuration counts", || async {
                let answer =
                    self.client.post("/api/v1/namespaces/default/configmaps?dryRun=All", &probe).await?;
                last.set(answer.text());
                Ok((answer.code == StatusCode::BAD_REQUEST).then_some(()))
            })
            .await
            .with_context(|| format!("{}: {}", self.webhook.url, last.take()))?;
        }
        self.webhook.take();
        Ok(())
    }

    async fn made(&self, path: &str, object: &Value) -> Result<()> {
        let answer = self.client.post(path, object).await?;
        // Hanse gives namespaces their service account by itself.
        let is_there = answer.code == StatusCode::CONFLICT && path.ends_with("serviceaccounts");
        if !answer.code.is_success() && !is_there {
            bail!("cannot make {object} at {path}: {}", answer.text());
        }
        if path.ends_with("customresourcedefinitions") {
            let group = object["spec"]["group"].as_str().unwrap_or_default();
            let version = object["spec"]["versions"][0]["name"].as_str().unwrap_or_default();
            let plural = object["spec"]["names"]["plural"].as_str().unwrap_or_default();
            let path = format!("/apis/{group}/{version}/{plural}");
            eventually("it is served", || async {
                Ok((self.client.get(&path).await?.code == StatusCode::OK).then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    async fn finish(&self, scene: &Scene, number: usize) -> Result<()> {
        for mutating in [true, false] {
            let Some((path, _)) = self.configuration(scene, number, mutating) else { continue };
            self.client.delete(&format!("{path}/scene-{number}")).await?;
        }
        Ok(())
    }

    /// What the client was told, and what webhooks were asked meanwhile.
    async fn perform(&self, step: &Step, number: usize) -> Result<(Reply, Vec<Asked>)> {
        let path = step.path.replace("<ns>", &format!("s{number}"));
        // The real server writes from a cache, which may be behind; it asks twice then. A list makes it catch up.
        self.client.get(&collection(&path)).await?;
        let (method, content_type) = match step.method {
            "APPLY" => (Method::PATCH, "application/apply-patch+yaml"),
            "PATCH" => (Method::PATCH, "application/merge-patch+json"),
            other => (Method::from_bytes(other.as_bytes())?, "application/json"),
        };
        let body = step.body.as_ref().map(Value::to_string).unwrap_or_default();
        let headers = [("content-type", content_type), ("user-agent", "reviews/1")];
        let answer = self.client.call(method, &path, &headers, Bytes::from(body)).await?;
        let text = answer.text().replace(&self.webhook.url, "https://webhook");
        let body = match serde_json::from_str(&text) {
            Ok(mut value) => {
                once_each(&mut value);
                Body::Json(value)
            }
            Err(_) => Body::Text(text),
        };
        let mut headers = HeaderMap::new();
        for warning in answer.headers.get_all("warning") {
            headers.append("warning", warning.clone());
        }
        let mut asked = self.webhook.take();
        // The real server runs without controllers, so what Hanse does by itself has no counterpart.
        asked.retain(|asked| {
            let by = &asked.body["request"]["userInfo"]["username"];
            !asked.path.starts_with("/marker") && by != "system:hanse"
        });
        if !step.keeps_order {
            asked.sort_by(|a, b| a.path.cmp(&b.path));
        }
        Ok((Reply { code: answer.code.as_u16(), headers, body }, asked))
    }
}

/// Where the objects of a path are listed.
fn collection(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let version = if parts.first() == Some(&"api") { 2 } else { 3 };
    let is_inside = parts.get(version) == Some(&"namespaces") && parts.len() > version + 2;
    let end = version + if is_inside { 3 } else { 1 };
    format!("/{}", parts[..end.min(parts.len())].join("/"))
}

/// Upstream validates some kinds more than once and lists what it found each time.
fn once_each(answer: &mut Value) {
    let causes = answer.pointer_mut("/details/causes").and_then(Value::as_array_mut);
    if let Some(causes) = causes {
        let mut seen: Vec<Value> = Vec::new();
        causes.retain(|cause| {
            let is_new = !seen.contains(cause);
            seen.push(cause.clone());
            is_new
        });
    }
}

/// The real server begins an update again if its cache was behind, and asks again: what it asked last counts.
fn asked_last(step: &Step, mut on_kube: Vec<Asked>, on_hanse: &[Asked]) -> Vec<Asked> {
    let paths = |asked: &[Asked]| asked.iter().map(|it| it.path.clone()).collect::<Vec<_>>();
    if step.only_who {
        on_kube.dedup_by(|a, b| a.path == b.path);
    } else if paths(&on_kube).ends_with(&paths(on_hanse)) && !on_hanse.is_empty() {
        on_kube.drain(..on_kube.len() - on_hanse.len());
    }
    on_kube
}

fn review(asked: &Asked) -> Reply {
    let body = json!({"path": asked.path, "review": asked.body});
    Reply { code: 200, headers: HeaderMap::new(), body: Body::Json(body) }
}

fn code(reply: &Reply) -> Reply {
    Reply { code: reply.code, headers: HeaderMap::new(), body: Body::Text(String::new()) }
}

/// Runs a scene; every difference as a line.
async fn run(kube: &Side, hanse: &Side, scene: &Scene, number: usize) -> Result<Vec<String>> {
    tokio::try_join!(kube.prepare(scene, number), hanse.prepare(scene, number))?;
    let mut relation = Relation::default();
    let mut found = Vec::new();
    for step in &scene.steps {
        let (mut on_kube, mut on_hanse) =
            tokio::try_join!(kube.perform(step, number), hanse.perform(step, number))?;
        if step.only_who {
            on_hanse.1.dedup_by(|a, b| a.path == b.path);
        }
        on_kube.1 = asked_last(step, on_kube.1, &on_hanse.1);
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64;
        let title = format!("{}: {} {}", scene.title, step.method, step.path);
        let mut note = |what: String, differences: Vec<testing::compare::Difference>| {
            for it in differences {
                found.push(format!(
                    "{title} · {what} {}\n    kube  {}\n    hanse {}",
                    it.place, it.kube, it.hanse
                ));
            }
        };
        let paths = |asked: &[Asked]| asked.iter().map(|it| it.path.clone()).collect::<Vec<_>>();
        if paths(&on_kube.1) != paths(&on_hanse.1) {
            let (kube, hanse) = (format!("{:?}", paths(&on_kube.1)), format!("{:?}", paths(&on_hanse.1)));
            note("asked".into(), vec![testing::compare::Difference { place: String::new(), kube, hanse }]);
        }
        if step.only_who {
            note("code".into(), compare(&mut relation, now, &code(&on_kube.0), &code(&on_hanse.0)));
            continue;
        }
        for (at, (on_kube, on_hanse)) in on_kube.1.iter().zip(&on_hanse.1).enumerate() {
            note(format!("review {at}"), compare(&mut relation, now, &review(on_kube), &review(on_hanse)));
        }
        note("answer".into(), compare(&mut relation, now, &on_kube.0, &on_hanse.0));
    }
    tokio::try_join!(kube.finish(scene, number), hanse.finish(scene, number))?;
    Ok(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_are_asked_and_obeyed_as_by_kube_apiserver() -> Result<()> {
    let options = Options { fsync: false, ..Options::default() };
    let cluster = tokio::task::spawn_blocking(|| RealCluster::start(options)).await??;
    let (certificate, key) = cluster.issue("ann", &["dev", "system:masters"])?;
    let client = Client::connect(&cluster.url, &cluster.ca_pem, Some((&certificate, &key))).await?;
    let kube = Side { client, webhook: Webhook::start(replies::reply).await? };
    let hub = TestHub::start().await?;
    let client = hub.user("ann", &["dev", "system:masters"]).await?;
    let hanse = Side { client, webhook: Webhook::start(replies::reply).await? };
    let only = std::env::var("REVIEWS").ok();
    let mut found = Vec::new();
    let (mut count, mut steps) = (0, 0);
    for (number, scene) in scenes::all().into_iter().chain(users::all()?).enumerate() {
        if only.as_ref().is_some_and(|text| !scene.title.contains(text.as_str())) {
            continue;
        }
        count += 1;
        steps += scene.steps.len();
        found.extend(run(&kube, &hanse, &scene, number).await?);
    }
    println!("{count} scenes, {steps} requests, {} differences", found.len());
    assert!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}
