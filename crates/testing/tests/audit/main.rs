//! What is recorded of requests: by which policy, in which shape, where it goes, and what is never in it.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod attacks;
mod receiver;
mod webhook;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use server::{
    Options,
    audit::{AuditOptions, LogOptions},
};
use store::memory::MemoryStore;
use tempfile::TempDir;
use testing::hub::{TestHub, eventually};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A hub with a log.
struct Audited {
    hub: TestHub,
    directory: TempDir,
}

fn policy(rules: &Value) -> String {
    json!({"kind": "Policy", "apiVersion": "audit.k8s.io/v1", "rules": rules}).to_string()
}

impl Audited {
    /// Without rules there is no policy.
    async fn start(rules: Option<Value>) -> Result<Audited> {
        Self::start_with(rules, |_| {}).await
    }

    async fn start_with(rules: Option<Value>, change: impl FnOnce(&mut LogOptions)) -> Result<Audited> {
        let directory = tempfile::tempdir()?;
        let mut log = LogOptions::at(directory.path().join("logs/audit.log"));
        change(&mut log);
        let file = directory.path().join("policy.yaml");
        let policy_file = match &rules {
            Some(rules) => {
                std::fs::write(&file, policy(rules))?;
                Some(file)
            }
            None => None,
        };
        let audit = AuditOptions {
            policy_file,
            reload_every: Duration::from_millis(20),
            log: Some(log),
            ..AuditOptions::default()
        };
        let options = Options { audit, ..Options::default() };
        let hub = TestHub::start_on(Arc::new(MemoryStore::new()), options).await?;
        Ok(Audited { hub, directory })
    }

    fn logs(&self) -> Result<Vec<PathBuf>> {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(self.directory.path().join("logs"))?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        paths.sort();
        Ok(paths)
    }

    fn text(&self) -> Result<String> {
        self.logs()?.iter().map(|path| Ok(std::fs::read_to_string(path)?)).collect()
    }

    fn events(&self) -> Result<Vec<Value>> {
        self.text()?
            .lines()
            .map(|line| serde_json::from_str(line).context("a line that is no JSON"))
            .collect()
    }

    /// `stage verb uri code`, of every event.
    fn summary(&self) -> Result<Vec<String>> {
        let words = |event: &Value| {
            let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            let uri = text("requestURI");
            format!("{} {} {uri} {}", text("stage"), text("verb"), event["responseStatus"]["code"])
        };
        Ok(self.events()?.iter().map(words).collect())
    }
}

fn mk_config_map(name: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"a": "b"}})
}

#[tokio::test]
async fn a_write_is_recorded_with_what_was_sent_and_answered() -> Result<()> {
    let audited = Audited::start(Some(json!([{"level": "RequestResponse"}]))).await?;
    let admin = audited.hub.admin().await?;
    let headers = [
        ("content-type", "application/json"),
        ("user-agent", "kubectl/v1"),
        ("x-forwarded-for", "192.0.2.7"),
        ("audit-id", "mine-1"),
    ];
    let made = admin.call(Method::POST, CONFIG_MAPS, &headers, mk_config_map("c").to_string()).await?;
    assert_eq!(made.code, StatusCode::CREATED);
    assert_eq!(made.headers["audit-id"], "mine-1");
    let events = audited.events()?;
    assert_eq!(
        audited.summary()?,
        [
            format!("RequestReceived create {CONFIG_MAPS} null"),
            format!("ResponseComplete create {CONFIG_MAPS} 201"),
        ]
    );
    let event = &events[1];
    let expected = [
        ("kind", json!("Event")),
        ("apiVersion", json!("audit.k8s.io/v1")),
        ("level", json!("RequestResponse")),
        ("auditID", json!("mine-1")),
        ("sourceIPs", json!(["192.0.2.7", "127.0.0.1"])),
        ("userAgent", json!("kubectl/v1")),
        (
            "objectRef",
            json!({"resource": "configmaps", "namespace": "default", "name": "c", "apiVersion": "v1"}),
        ),
        ("requestObject", mk_config_map("c")),
        ("responseObject", made.json()),
        ("responseStatus", json!({"metadata": {}, "code": 201})),
        (
            "annotations",
            json!({
                "authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "",
                "hanse.io/workspace": "default",
            }),
        ),
    ];
    for (key, value) in expected {
        assert_eq!(event[key], value, "{key}");
    }
    assert_eq!(event["user"]["username"], "admin");
    assert_eq!(event["user"]["groups"], json!(["system:masters", "system:authenticated"]));
    assert_eq!(events[0]["auditID"], "mine-1");
    assert_eq!(events[0].get("requestObject"), None);
    Ok(())
}

#[tokio::test]
async fn refusals_name_the_reason_and_who_was_turned_away() -> Result<()> {
    let rules = json!([{"level": "Metadata", "omitStages": ["RequestReceived"]}]);
    let audited = Audited::start(Some(rules)).await?;
    let stranger = audited.hub.user("eve", &["strangers"]).await?;
    assert_eq!(stranger.get(&format!("{CONFIG_MAPS}/x")).await?.code, StatusCode::FORBIDDEN);
    let nobody = audited.hub.nobody().await?;
    let answer = nobody.call(Method::GET, CONFIG_MAPS, &[("authorization", "Bearer secret")], "").await?;
    assert_eq!(answer.code, StatusCode::UNAUTHORIZED);
    let events = audited.events()?;
    assert_eq!(events[0]["responseStatus"]["reason"], "Forbidden");
    assert_eq!(events[0]["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(events[1]["stage"], "ResponseStarted");
    let message = "Authentication failed, attempted: bearer";
    assert_eq!(events[1]["responseStatus"], json!({"metadata": {}, "message": message, "code": 401}));
    assert_eq!(events[1]["user"], json!({}));
    assert_eq!(events.len(), 2);
    assert!(!audited.text()?.contains("Bearer secret"));
    Ok(())
}

#[tokio::test]
async fn who_acts_as_another_is_recorded_as_both() -> Result<()> {
    let audited = Audited::start(Some(json!([{"level": "Metadata", "users": ["admin"]}]))).await?;
    let admin = audited.hub.admin().await?;
    let headers = [("impersonate-user", "ann"), ("impersonate-group", "devs")];
    let answer = admin.call(Method::GET, CONFIG_MAPS, &headers, "").await?;
    assert_eq!(answer.code, StatusCode::FORBIDDEN);
    let event = audited.events()?.pop().context("no event")?;
    assert_eq!(event["user"]["username"], "admin");
    assert_eq!(
        event["impersonatedUser"],
        json!({"username": "ann", "groups": ["devs", "system:authenticated"]})
    );
    Ok(())
}

#[tokio::test]
async fn a_watch_is_recorded_when_it_starts_and_when_it_ends() -> Result<()> {
    let audited = Audited::start(Some(json!([{"level": "RequestResponse", "verbs": ["watch"]}]))).await?;
    let admin = audited.hub.admin().await?;
    let path = format!("{CONFIG_MAPS}?watch=1");
    let mut lines = admin.watch(&path).await?;
    admin.post(CONFIG_MAPS, &mk_config_map("c")).await?;
    lines.expect().await?;
    let started = [format!("RequestReceived watch {path} null"), format!("ResponseStarted watch {path} 200")];
    assert_eq!(audited.summary()?, started);
    drop(lines);
    let ended = format!("ResponseComplete watch {path} 200");
    eventually("the end of the watch is recorded", async || {
        Ok(audited.summary()?.contains(&ended).then_some(()))
    })
    .await
}

#[tokio::test]
async fn without_a_policy_writes_and_refusals_are_recorded() -> Result<()> {
    let audited = Audited::start(None).await?;
    let admin = audited.hub.admin().await?;
    admin.post(CONFIG_MAPS, &mk_config_map("c")).await?;
    admin.get(&format!("{CONFIG_MAPS}/c")).await?;
    admin.get(CONFIG_MAPS).await?;
    admin.get("/version").await?;
    admin.get(&format!("{CONFIG_MAPS}/absent")).await?;
    admin.delete(&format!("{CONFIG_MAPS}/c")).await?;
    assert_eq!(
        audited.summary()?,
        [
            format!("ResponseComplete create {CONFIG_MAPS} 201"),
            format!("ResponseComplete get {CONFIG_MAPS}/absent 404"),
            format!("ResponseComplete delete {CONFIG_MAPS}/c 200"),
        ]
    );
    assert_eq!(audited.events()?[2]["responseStatus"]["status"], "Success");
    Ok(())
}

#[tokio::test]
async fn secrets_are_in_no_event_whatever_the_policy_says() -> Result<()> {
    let audited = Audited::start(Some(json!([{"level": "RequestResponse"}]))).await?;
    let admin = audited.hub.admin().await?;
    let (plain, changed) = ("correct-horse-battery", "staple-it-to-the-wall");
    let secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"},
        "stringData": {"password": plain}});
    assert_eq!(admin.post(SECRETS, &secret).await?.code, StatusCode::CREATED);
    let path = format!("{SECRETS}/s");
    for path in [&path, SECRETS, "/api/v1/secrets"] {
        assert!(admin.get(path).await?.text().contains(&BASE64_STANDARD.encode(plain)));
    }
    let patch = json!({"stringData": {"password": changed}});
    assert_eq!(admin.merge_patch(&path, &patch).await?.code, StatusCode::OK);
    let applied = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"},
        "data": {"password": BASE64_STANDARD.encode(plain)}});
    let headers = [("content-type", "application/apply-patch+yaml")];
    let apply = format!("{path}?fieldManager=m&force=true");
    assert_eq!(admin.call(Method::PATCH, &apply, &headers, applied.to_string()).await?.code, StatusCode::OK);
    let mut broken = secret.clone();
    broken["metadata"]["name"] = json!("NOT VALID");
    assert_eq!(admin.post(SECRETS, &broken).await?.code, StatusCode::UNPROCESSABLE_ENTITY);
    admin.delete(&path).await?;
    admin.post(SECRETS, &secret).await?;
    admin.delete(SECRETS).await?;
    let review = json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1",
        "spec": {"token": plain}});
    admin.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await?;
    let account = json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "robot"}});
    admin.post("/api/v1/namespaces/default/serviceaccounts", &account).await?;
    let request = json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}});
    let issued = admin.post("/api/v1/namespaces/default/serviceaccounts/robot/token", &request).await?;
    assert_eq!(issued.code, StatusCode::CREATED, "{}", issued.text());
    let token = issued.json()["status"]["token"].as_str().context("no token")?.to_owned();
    let text = audited.text()?;
    assert!(
        text.contains("\"subresource\":\"token\"") && !text.contains(&token),
        "the token is in the audit log"
    );
    assert!(text.contains("\"resource\":\"secrets\""), "secrets are recorded, without their contents");
    for hidden in [plain, changed] {
        assert!(!text.contains(hidden), "{hidden} is in the audit log");
        assert!(!text.contains(&BASE64_STANDARD.encode(hidden)), "{hidden} is in the audit log");
    }
    Ok(())
}

#[tokio::test]
async fn a_changed_policy_holds_and_a_broken_one_changes_nothing() -> Result<()> {
    let audited = Audited::start(Some(json!([{"level": "None"}]))).await?;
    let admin = audited.hub.admin().await?;
    let file = audited.directory.path().join("policy.yaml");
    let reloaded = async |result: &str, times: usize| {
        eventually("the policy is read again", async || {
            let metrics = admin.get("/metrics").await?.text();
            let line = format!("hanse_audit_policy_reloads_total{{result=\"{result}\"}} {times}");
            Ok(metrics.contains(&line).then_some(()))
        })
        .await
    };
    admin.get(CONFIG_MAPS).await?;
    assert_eq!(audited.summary()?, Vec::<String>::new());
    let rules =
        json!([{"level": "Metadata", "omitStages": ["RequestReceived"], "resources": [{"group": ""}]}]);
    std::fs::write(&file, policy(&rules))?;
    reloaded("success", 1).await?;
    admin.get(CONFIG_MAPS).await?;
    assert_eq!(audited.summary()?.len(), 1);
    std::fs::write(&file, policy(&json!([{"level": "Everything"}])))?;
    reloaded("failure", 1).await?;
    admin.get(CONFIG_MAPS).await?;
    assert_eq!(audited.summary()?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_policy_that_is_broken_at_the_start_is_refused() -> Result<()> {
    let refused = Audited::start(Some(json!([{"level": "Everything"}]))).await;
    let why = refused.err().context("it started")?.to_string();
    assert!(why.contains("rules[0].level: Unsupported value: \"Everything\""), "{why}");
    Ok(())
}

#[tokio::test]
async fn a_full_log_is_set_aside_and_no_event_is_lost() -> Result<()> {
    let rules =
        json!([{"level": "Metadata", "omitStages": ["RequestReceived"], "resources": [{"group": ""}]}]);
    let audited = Audited::start_with(Some(rules), |log| log.max_size_bytes = 3000).await?;
    let admin = audited.hub.admin().await?;
    for at in 0..20 {
        admin.get(&format!("{CONFIG_MAPS}/c-{at}")).await?;
    }
    assert!(audited.logs()?.len() > 3, "{:?}", audited.logs()?);
    let mut seen: Vec<String> =
        audited.events()?.iter().map(|it| it["objectRef"]["name"].to_string()).collect();
    seen.sort();
    let mut expected: Vec<String> = (0..20).map(|at| format!("\"c-{at}\"")).collect();
    expected.sort();
    assert_eq!(seen, expected);
    for path in audited.logs()? {
        assert!(std::fs::metadata(&path)?.len() <= 3000, "{}", path.display());
    }
    Ok(())
}

#[tokio::test]
async fn workspaces_are_told_apart() -> Result<()> {
    let audited = Audited::start(None).await?;
    let admin = audited.hub.admin().await?;
    let workspace =
        json!({"kind": "Workspace", "apiVersion": "hanse.io/v1alpha1", "metadata": {"name": "team"}});
    admin.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &workspace).await?;
    admin.post(&format!("/clusters/team{CONFIG_MAPS}"), &mk_config_map("c")).await?;
    let names: Vec<String> =
        audited.events()?.iter().map(|it| it["annotations"]["hanse.io/workspace"].to_string()).collect();
    assert_eq!(names, ["\"root\"", "\"team\""]);
    Ok(())
}
