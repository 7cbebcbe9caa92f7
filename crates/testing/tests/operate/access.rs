//! What is of the whole server is for those whom root allows it, in root.

use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http::Method;
use parking_lot::Mutex;
use serde_json::json;
use server::{
    Options,
    operate::{LogFilter, Tools},
};
use store::memory::MemoryStore;
use testing::hub::{TestHub, eventually};

use super::create;

const OURS: [(Method, &str); 7] = [
    (Method::GET, "/operate/v1/backup"),
    (Method::POST, "/operate/v1/compact"),
    (Method::GET, "/debug/flags/v"),
    (Method::PUT, "/debug/flags/v"),
    (Method::GET, "/debug/pprof/profile"),
    (Method::GET, "/debug/pprof/heap"),
    (Method::GET, "/debug/runtime"),
];

#[tokio::test]
async fn nobody_is_let_in_whom_root_does_not_allow_it() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let workspaces = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";
    create(&admin, workspaces, json!({"metadata": {"name": "team"}})).await?;
    let binding = |name: &str| {
        json!({
            "metadata": {"name": name}, "subjects": [{"kind": "User", "name": "jane"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        })
    };
    let bindings = "rbac.authorization.k8s.io/v1/clusterrolebindings";
    create(&admin, &format!("/clusters/team/apis/{bindings}"), binding("owner")).await?;
    let (jane, nobody) = (hub.user("jane", &[]).await?, hub.nobody().await?);
    for (method, path) in OURS {
        for prefix in ["", "/clusters/root", "/clusters/team", "/clusters/default"] {
            for (who, client) in [("jane", &jane), ("nobody", &nobody)] {
                let answer = client.call(method.clone(), &format!("{prefix}{path}"), &[], "debug").await?;
                assert_eq!(answer.code, 403, "{who} {method} {prefix}{path}: {}", answer.text());
            }
        }
        // Of a workspace, not even a platform admin is told what is not the workspace's.
        let answer = admin.call(method.clone(), &format!("/clusters/team{path}"), &[], "debug").await?;
        assert_eq!(answer.code, 403, "{method} {path}");
        assert!(answer.text().contains(&format!("ask for /clusters/root{path}")), "{}", answer.text());
    }
    // Once root has bound her, she is in.
    create(&admin, &format!("/clusters/root/apis/{bindings}"), binding("operator")).await?;
    for path in ["/debug/runtime", "/clusters/root/debug/runtime"] {
        let answer = jane.get(path).await?;
        assert_eq!(answer.code, 200, "{}", answer.text());
        assert!(answer.json()["tasks"].as_u64() > Some(0), "{}", answer.text());
    }
    for (method, path) in [(Method::POST, "/operate/v1/backup"), (Method::GET, "/operate/v1/compact")] {
        assert_eq!(jane.call(method, path, &[], "").await?.code, 405, "{path}");
    }
    assert_eq!(jane.get("/debug/nothing").await?.code, 404);
    Ok(())
}

/// A backup holds every tenant's secrets, so a role for it alone can be given, and is enough.
#[tokio::test]
async fn a_role_for_backups_is_for_backups() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let rbac = "/clusters/root/apis/rbac.authorization.k8s.io/v1";
    let rule = json!({"nonResourceURLs": ["/operate/v1/backup"], "verbs": ["get"]});
    create(&admin, &format!("{rbac}/clusterroles"), json!({"metadata": {"name": "b"}, "rules": [rule]})).await?;
    let binding = json!({
        "metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "cron"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "b"},
    });
    create(&admin, &format!("{rbac}/clusterrolebindings"), binding).await?;
    let cron = hub.user("cron", &[]).await?;
    let backup = cron.get("/operate/v1/backup").await?;
    assert_eq!((backup.code.as_u16(), &backup.bytes[..8]), (200, b"HANSECKP".as_slice()));
    assert_eq!(cron.get("/debug/flags/v").await?.code, 403);
    let compact = cron.call(Method::POST, "/operate/v1/compact", &[], "").await?;
    assert_eq!(compact.code, 403);
    let metrics = admin.get("/metrics").await?.text();
    assert!(metrics.contains("hanse_backups_total 1\n"), "{metrics}");
    assert!(metrics.contains(&format!("hanse_backup_bytes_total {}\n", backup.bytes.len())), "{metrics}");
    Ok(())
}

struct Filter(Mutex<String>);

impl LogFilter for Filter {
    fn current(&self) -> String {
        self.0.lock().clone()
    }

    fn set(&self, filter: &str) -> Result<(), String> {
        if filter.contains('!') {
            return Err("an exclamation".to_owned());
        }
        *self.0.lock() = filter.to_owned();
        Ok(())
    }
}

#[tokio::test]
async fn a_log_level_comes_and_goes() -> Result<()> {
    let filter = Arc::new(Filter(Mutex::new("warn".to_owned())));
    let tools = Tools { log: Some(filter.clone()), ..Tools::default() };
    let options = Options { tools, ..Options::default() };
    let hub = TestHub::start_on(Arc::new(MemoryStore::new()), options).await?;
    let admin = hub.admin().await?;
    let put = async |query: &str, level: &str| -> Result<(u16, String)> {
        let path = format!("/debug/flags/v{query}");
        let answer = admin.call(Method::PUT, &path, &[], Bytes::from(level.to_owned())).await?;
        Ok((answer.code.as_u16(), answer.text()))
    };
    assert_eq!(admin.get("/debug/flags/v").await?.text(), "warn\n");
    // kube-apiserver's numbers mean what they show there.
    for (given, is) in [("4", "debug"), ("0", "warn"), ("2", "info"), ("10", "trace"), (" server=debug\n", "server=debug")] {
        assert_eq!(put("", given).await?, (200, format!("logging {is}\n")));
        assert_eq!(filter.current(), is);
    }
    for (query, level) in
        [("", ""), ("", "wow!"), ("?seconds=-1", "info"), ("?seconds=86401", "info"), ("?seconds=soon", "info")]
    {
        assert_eq!(put(query, level).await?.0, 400, "{query} {level}");
    }
    assert_eq!(put("", &"x".repeat(5000)).await?.0, 400);
    assert_eq!(put("", &"x".repeat(100_000)).await?.0, 413);
    assert_eq!(filter.current(), "server=debug", "what is refused changes nothing");
    // For a while.
    put("?seconds=1", "trace").await?;
    assert_eq!(filter.current(), "trace");
    eventually("the old level is back", || async { Ok((filter.current() == "server=debug").then_some(())) }).await?;
    // Unless somebody else came in between.
    put("?seconds=1", "trace").await?;
    put("", "error").await?;
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    assert_eq!(filter.current(), "error");
    Ok(())
}
