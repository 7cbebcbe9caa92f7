//! Decides which requests are recorded, by a policy that may change, and hands events to every outlet.

use std::{path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;
use env::Env;
use machinery::audit::{Attributes, Demand, Policy};
use serde_json::Value;
use tokio::sync::watch;

use super::{AuditError, AuditOptions, log, outlet::Outlet, webhook};
use crate::{
    hub,
    metrics::{AuditMetrics, LevelLabels, PluginLabels, ReloadLabels},
};

/// How long events that are not out yet may hold up a stop.
const CLOSING_LIMIT: Duration = Duration::from_secs(10);

/// There is one only if something is recorded somewhere.
pub struct Auditor {
    pub(super) env: Env,
    policy: ArcSwap<Policy>,
    outlets: Vec<Outlet>,
    pub(super) metrics: AuditMetrics,
}

impl Auditor {
    /// `None` if events would go nowhere.
    pub fn open(
        env: &Env,
        options: &AuditOptions,
        metrics: AuditMetrics,
        stopping: watch::Receiver<bool>,
    ) -> Result<Option<Arc<Auditor>>, AuditError> {
        let (policy, text) = match &options.policy_file {
            None => (Policy::standard(), Vec::new()),
            Some(file) => load(env, file).map_err(|why| AuditError::Policy { file: file.clone(), why })?,
        };
        let errors = |plugin| metrics.errors.get_or_create(&PluginLabels { plugin }).clone();
        let mut outlets = Vec::new();
        if let Some(options) = &options.log {
            outlets.push(log::start(env, options, errors("log"))?);
        }
        if let Some(options) = &options.webhook {
            outlets.push(webhook::start(env, options, errors("webhook"))?);
        }
        if outlets.is_empty() {
            return Ok(None);
        }
        let policy = ArcSwap::from_pointee(policy);
        let auditor = Arc::new(Auditor { env: env.clone(), policy, outlets, metrics });
        if let Some(file) = &options.policy_file {
            let follow = follow(auditor.clone(), file.clone(), text, options.reload_every, stopping);
            env.tasks.spawn(Box::pin(follow));
        }
        Ok(Some(auditor))
    }

    pub fn demand(&self, attributes: &Attributes<'_>) -> Demand {
        let demand = self.policy.load().demand(attributes);
        self.metrics.levels.get_or_create(&LevelLabels { level: demand.level.as_str() }).inc();
        demand
    }

    /// False: an outlet is strict, and could not take it.
    pub(super) async fn tell(&self, workspace: &str, event: Bytes) -> bool {
        self.metrics.events.inc();
        let mut taken = true;
        for outlet in &self.outlets {
            taken &= outlet.tell(workspace, event.clone()).await;
        }
        taken
    }

    pub(super) fn tell_now(&self, workspace: &str, event: &Bytes) {
        self.metrics.events.inc();
        for outlet in &self.outlets {
            outlet.tell_now(workspace, event.clone());
        }
    }

    /// Waits for what is not out yet, though not for ever.
    pub async fn close(&self) {
        let all = async {
            for outlet in &self.outlets {
                outlet.flush().await;
            }
        };
        tokio::select! {
            () = all => {}
            () = self.env.clock.sleep(CLOSING_LIMIT) => tracing::warn!("stopping with audit events left behind"),
        }
    }
}

/// A policy, and the file it was read from.
fn load(env: &Env, file: &Path) -> Result<(Policy, Vec<u8>), String> {
    let bytes = env.files.read(file).map_err(|error| error.to_string())?;
    let policy = parse(&bytes)?;
    Ok((policy, bytes))
}

fn parse(bytes: &[u8]) -> Result<Policy, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let tree: Value = serde_saphyr::from_str(text).map_err(|error| format!("not YAML: {error}"))?;
    let (policy, remarks) = Policy::read(&tree)?;
    for remark in remarks {
        tracing::warn!(remark, "the audit policy says something that means nothing");
    }
    Ok(policy)
}

/// Takes over a changed policy. One that is broken changes nothing.
async fn follow(
    auditor: Arc<Auditor>,
    file: std::path::PathBuf,
    mut seen: Vec<u8>,
    every: Duration,
    mut stopping: watch::Receiver<bool>,
) {
    let count = |result| auditor.metrics.reloads.get_or_create(&ReloadLabels { result }).inc();
    loop {
        tokio::select! {
            () = auditor.env.clock.sleep(every) => {}
            () = hub::stopped(&mut stopping) => return,
        }
        let bytes = match auditor.env.files.read(&file) {
            Ok(bytes) => bytes,
            // An editor may be replacing it: the next look will tell.
            Err(error) => {
                tracing::warn!(%error, file = %file.display(), "cannot read the audit policy");
                continue;
            }
        };
        if bytes == seen {
            continue;
        }
        match parse(&bytes) {
            Ok(policy) => {
                auditor.policy.store(Arc::new(policy));
                count("success");
            }
            Err(error) => {
                tracing::error!(%error, file = %file.display(), "the audit policy is broken; the old one holds");
                count("failure");
            }
        }
        seen = bytes;
    }
}
