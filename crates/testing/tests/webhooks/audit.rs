//! What webhooks say and do is in the audit log, under upstream's keys.

use std::sync::Arc;

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use server::{
    Options,
    audit::{AuditOptions, LogOptions},
};
use store::memory::MemoryStore;
use testing::{
    hub::{TestHub, eventually},
    webhook::{Reply, Webhook},
};

use crate::{MAPS, MUTATING, VALIDATING, configuration, hook, made, map, patched, reviewed};

/// The annotations of the event about making a config map, at an audit level.
async fn annotations(level: &str) -> Result<Value> {
    let directory = tempfile::tempdir()?;
    let (policy, log) = (directory.path().join("policy.yaml"), directory.path().join("audit.log"));
    let rules = json!([{"level": level, "resources": [{"group": "", "resources": ["configmaps"]}]}]);
    let text = json!({"kind": "Policy", "apiVersion": "audit.k8s.io/v1", "rules": rules}).to_string();
    std::fs::write(&policy, text)?;
    let audit = AuditOptions {
        policy_file: Some(policy),
        log: Some(LogOptions::at(log.clone())),
        ..AuditOptions::default()
    };
    let options = Options { audit, ..Options::default() };
    let hub = TestHub::start_on(Arc::new(MemoryStore::new()), options).await?;
    let webhook = Webhook::start(|asked| match asked.path.split('?').next().unwrap_or_default() {
        "/patch" => patched(asked, &json!([{"op": "add", "path": "/data/b", "value": "2"}])),
        "/notes" => {
            let long = "ü".repeat(10_000);
            let notes = json!({"checked": "yes", "not a key!": "dropped", "long": long});
            reviewed(asked, json!({"allowed": true, "auditAnnotations": notes}))
        }
        _ => Reply::Close,
    })
    .await?;
    let client = hub.admin().await?;
    let mut open = hook(&webhook, "/open");
    open["failurePolicy"] = json!("Ignore");
    let hooks = [hook(&webhook, "/patch"), open.clone()];
    made(&client, MUTATING, &configuration("c", &hooks)).await?;
    made(&client, VALIDATING, &configuration("c", &[hook(&webhook, "/notes"), open])).await?;
    let answer = client.post(MAPS, &map("m")).await?;
    assert_eq!(answer.code, StatusCode::CREATED, "{}", answer.text());
    eventually("it is recorded", || async {
        let text = std::fs::read_to_string(&log)?;
        let mut events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let last = events.rfind(|it| it["stage"] == "ResponseComplete");
        Ok(last.map(|it| it["annotations"].clone()))
    })
    .await
}

#[tokio::test]
async fn what_webhooks_say_and_do_is_recorded() -> Result<()> {
    let mutation =
        |webhook: &str, mutated: bool| json!({"configuration": "c", "webhook": webhook, "mutated": mutated});
    let read = |value: &Value| serde_json::from_str::<Value>(value.as_str().unwrap_or_default()).ok();
    for (level, has_patch) in [("Metadata", false), ("Request", true)] {
        let found = annotations(level).await?;
        let prefix = "mutation.webhook.admission.k8s.io/round_0_index_";
        assert_eq!(read(&found[format!("{prefix}0")]), Some(mutation("patch.webhooks.io", true)), "{found}");
        assert_eq!(read(&found[format!("{prefix}1")]), Some(mutation("open.webhooks.io", false)));
        assert_eq!(found[format!("failed-open.{prefix}1")], "open.webhooks.io");
        assert_eq!(
            found["failed-open.validating.webhook.admission.k8s.io/round_0_index_1"],
            "open.webhooks.io"
        );
        assert_eq!(found["notes.webhooks.io/checked"], "yes");
        assert!(!found.to_string().contains("dropped"), "{found}");
        assert_eq!(
            found["notes.webhooks.io/long"].as_str().map(str::len),
            Some(10 * 1024),
            "the rest is cut off"
        );
        let patch = &found["patch.webhook.admission.k8s.io/round_0_index_0"];
        assert_eq!(patch.is_string(), has_patch, "{level}: {found}");
    }
    Ok(())
}
