//! All requests of a kind, to the real server and, if it is there, to Hanse.
//!
//! ```text
//!   upstream's object ─────────────────────────────┐
//!   valid objects ──> changed ──> try to create    ├──> answers of both
//!        └──> create ──> as stored ──> changed ──> try to update; and its status
//! ```

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{
    objects::Base,
    plan::{self, Case, Verb},
    scope::Kind,
    server::{Reply, Server},
    translate::Translation,
};

/// A request and what came back.
pub struct Answered {
    pub case: Case,
    /// What the real server had stored, if this is an update.
    pub old: Option<Arc<Value>>,
    pub kube: Reply,
    pub hanse: Option<Reply>,
}

/// Everything about one kind.
#[derive(Default)]
pub struct KindRun {
    pub answered: Vec<Answered>,
    /// Objects that both servers have, and what each calls things in it.
    pub created: Vec<(Base, Translation)>,
    /// What Hanse said to a valid object that it does not take.
    pub not_created: Vec<(String, Reply)>,
}

pub struct Servers {
    pub kube: Server,
    /// `None`: only the real server is asked, or Hanse has no such kind.
    pub hanse: Option<Server>,
}

/// Without a change for so long, an object is left alone.
const QUIET: Duration = Duration::from_millis(1500);

impl Servers {
    /// `valid` and `upstream` are the objects of all kinds.
    pub async fn run(&self, kind: &Kind, valid: &[Base], upstream: &[Base]) -> Result<KindRun> {
        let mut run = KindRun::default();
        for base in upstream.iter().filter(|base| base.kind == kind) {
            let object = base.object.clone();
            let case = Case { name: "upstream's own object".into(), verb: Verb::Create, object };
            run.answered.extend(self.attempt_all(base, vec![case], None, Translation::default()).await?);
        }
        let own: Vec<&Base> = valid.iter().filter(|base| base.kind == kind).collect();
        for base in &own {
            let cases = plan::cases(base, Verb::Create, &base.object);
            run.answered.extend(self.attempt_all(base, cases, None, Translation::default()).await?);
        }
        // Created only now: what exists would be refused again.
        for base in own {
            self.run_updates(base, &mut run).await?;
        }
        Ok(run)
    }

    async fn run_updates(&self, base: &Base, run: &mut KindRun) -> Result<()> {
        let kube = self.kube.create(base).await?;
        if !kube.is_accepted() {
            bail!("{} {} is not valid: {}", base.kind, base.name, kube.body);
        }
        let stored = settled(&self.kube, base).await?;
        let mut translation = Translation::default();
        if let Some(hanse) = &self.hanse {
            let created = hanse.create(base).await?;
            if !created.is_accepted() {
                run.not_created.push((base.name.clone(), created));
                return Ok(());
            }
            translation = Translation::between(&stored, &settled(hanse, base).await?);
        }
        run.created.push((base.clone(), translation.clone()));
        let mut sent = stored.clone();
        if let Some(metadata) = sent["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let mut cases = plan::cases(base, Verb::Update, &sent);
        if let Some(status) = base.object.get("status") {
            sent["status"] = status.clone();
            cases.extend(plan::cases(base, Verb::UpdateStatus, &sent));
        }
        run.answered.extend(self.attempt_all(base, cases, Some(Arc::new(stored)), translation).await?);
        Ok(())
    }

    async fn attempt_all(
        &self,
        base: &Base,
        cases: Vec<Case>,
        old: Option<Arc<Value>>,
        translation: Translation,
    ) -> Result<Vec<Answered>> {
        let base = Arc::new(base.clone());
        let translation = Arc::new(translation);
        let running: Vec<_> = cases
            .into_iter()
            .map(|case| {
                let (kube, hanse) = (self.kube.clone(), self.hanse.clone());
                let (base, old, translation) = (base.clone(), old.clone(), translation.clone());
                tokio::spawn(async move {
                    let theirs = kube.attempt(&base, &case).await?;
                    let ours = match &hanse {
                        Some(hanse) => {
                            let translated = Case { object: translation.there(&case.object), ..case.clone() };
                            let reply = hanse.attempt(&base, &translated).await?;
                            Some(Reply { body: translation.back(&reply.body), ..reply })
                        }
                        None => None,
                    };
                    anyhow::Ok(Answered { case, old, kube: theirs, hanse: ours })
                })
            })
            .collect();
        let mut answered = Vec::with_capacity(running.len());
        for task in running {
            answered.push(task.await.context("a request panicked")??);
        }
        Ok(answered)
    }
}

/// The object as a server has it when its controllers are done with it.
async fn settled(server: &Server, base: &Base) -> Result<Value> {
    let mut stored = server.get(base, &[]).await?.body;
    while base.kind.is_written_by_controllers() {
        tokio::time::sleep(QUIET).await;
        let later = server.get(base, &[]).await?.body;
        if later == stored {
            break;
        }
        stored = later;
    }
    Ok(stored)
}
