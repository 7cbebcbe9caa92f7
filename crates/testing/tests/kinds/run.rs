//! All requests of a kind, to the real server and, if it is there, to Hanse.
//!
//! ```text
//!   upstream's object ─────────────────────────────┐
//!   valid objects ──> changed ──> try to create    ├──> answers of both
//!        └──> create ──> as stored ──> changed ──> try to update
//! ```

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{
    objects::{self, Base},
    plan::{self, Case, Verb},
    scope::Kind,
    server::{Reply, Server},
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
    /// Objects that both servers have.
    pub created: Vec<Base>,
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

/// What one server calls a thing, and the other.
type Substitutes = Vec<(String, String)>;

impl Servers {
    pub async fn run(&self, kind: &'static Kind, bases: &[Base]) -> Result<KindRun> {
        let mut run = KindRun::default();
        if let Some(base) = objects::upstream(kind)? {
            let object = base.object.clone();
            let case = Case { name: "upstream's own object".into(), verb: Verb::Create, object };
            run.answered.extend(self.attempt_all(&base, vec![case], None, Vec::new()).await?);
        }
        let own: Vec<&Base> = bases.iter().filter(|base| base.kind == kind).collect();
        for base in &own {
            let cases = plan::cases(base, Verb::Create, &base.object);
            run.answered.extend(self.attempt_all(base, cases, None, Vec::new()).await?);
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
        let stored = self.settled(base).await?;
        let mut substitutes = Vec::new();
        if let Some(hanse) = &self.hanse {
            let created = hanse.create(base).await?;
            if !created.is_accepted() {
                run.not_created.push((base.name.clone(), created));
                return Ok(());
            }
            substitutes = substitutes_of(&stored, &hanse.get(base, &[]).await?.body);
        }
        run.created.push(base.clone());
        let mut sent = stored.clone();
        if let Some(metadata) = sent["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let cases = plan::cases(base, Verb::Update, &sent);
        run.answered.extend(self.attempt_all(base, cases, Some(Arc::new(stored)), substitutes).await?);
        Ok(())
    }

    /// The object as the real server has it when its controllers are done with it.
    async fn settled(&self, base: &Base) -> Result<Value> {
        let mut stored = self.kube.get(base, &[]).await?.body;
        while base.kind.is_written_by_controllers() {
            tokio::time::sleep(QUIET).await;
            let later = self.kube.get(base, &[]).await?.body;
            if later == stored {
                break;
            }
            stored = later;
        }
        Ok(stored)
    }

    async fn attempt_all(
        &self,
        base: &Base,
        cases: Vec<Case>,
        old: Option<Arc<Value>>,
        substitutes: Substitutes,
    ) -> Result<Vec<Answered>> {
        let base = Arc::new(base.clone());
        let substitutes = Arc::new(substitutes);
        let running: Vec<_> = cases
            .into_iter()
            .map(|case| {
                let (kube, hanse) = (self.kube.clone(), self.hanse.clone());
                let (base, old, substitutes) = (base.clone(), old.clone(), substitutes.clone());
                tokio::spawn(async move {
                    let theirs = kube.attempt(&base, &case).await?;
                    let ours = match &hanse {
                        Some(hanse) => {
                            let object = substitute(&case.object, &substitutes);
                            let case = Case { object, ..case.clone() };
                            let reply = hanse.attempt(&base, &case).await?;
                            let back: Substitutes = substitutes
                                .iter()
                                .map(|(kube, hanse)| (hanse.clone(), kube.clone()))
                                .collect();
                            Some(Reply { body: substitute(&reply.body, &back), ..reply })
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

/// Values that each server chose: what one is called at the other.
fn substitutes_of(kube: &Value, hanse: &Value) -> Substitutes {
    let text =
        |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(String::from);
    ["/metadata/uid", "/metadata/resourceVersion", "/metadata/creationTimestamp", "/spec/clusterIP"]
        .into_iter()
        .filter_map(|pointer| Some((text(kube, pointer)?, text(hanse, pointer)?)))
        .filter(|(kube, hanse)| kube != hanse)
        .collect()
}

/// Replaces texts that are one of the values as a whole.
fn substitute(value: &Value, substitutes: &Substitutes) -> Value {
    match value {
        Value::String(text) => {
            let other = substitutes.iter().find(|(from, _)| from == text);
            Value::from(other.map_or(text.as_str(), |(_, to)| to.as_str()))
        }
        Value::Array(items) => items.iter().map(|item| substitute(item, substitutes)).collect(),
        Value::Object(members) => Value::Object(
            members.iter().map(|(key, it)| (key.clone(), substitute(it, substitutes))).collect(),
        ),
        other => other.clone(),
    }
}
