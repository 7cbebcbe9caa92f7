//! Simulated clusters as members of a real process: they live on when it dies.

use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;
use store::WorkspaceId;
use testing::simulated::TestClusters;

use crate::{
    history::{History, Note, Recorder, Side},
    members::NAMES,
    real::{KEPT, Members},
    rest::{Copy, is_routine},
    wanted::source,
};

pub struct Simulated {
    clusters: TestClusters,
    workspaces: Vec<(WorkspaceId, &'static str)>,
    history: Arc<History>,
    _recorder: Recorder,
}

impl Simulated {
    pub async fn start() -> Result<Simulated> {
        let clusters = TestClusters::start(&NAMES).await?;
        let mut workspaces = Vec::new();
        for name in NAMES {
            let space = clusters.simulation.hub().space(name);
            let space = space.map_err(|it| anyhow::anyhow!("{}", it.message()))?;
            workspaces.push((space.id().clone(), name));
        }
        let history = History::new();
        // One store has them all.
        let recorder = history.follow(clusters.simulation.hub().store.feed(), Side::Member("any"));
        Ok(Simulated { clusters, workspaces, history, _recorder: recorder })
    }
}

impl Members for Simulated {
    fn kubeconfig(&self, name: &str) -> Result<String> {
        Ok(self.clusters.simulation.kubeconfig(name)?)
    }

    async fn stop(&mut self, name: &'static str) -> Result<()> {
        Ok(self.clusters.simulation.stop(name).await?)
    }

    async fn resume(&mut self, name: &'static str) -> Result<()> {
        Ok(self.clusters.simulation.resume(name).await?)
    }

    async fn until_ready(&mut self) -> Result<()> {
        Ok(())
    }

    async fn copies(&self) -> Result<Vec<Copy>> {
        let store = &self.clusters.simulation.hub().store;
        let mut copies = Vec::new();
        for (workspace, cluster) in &self.workspaces {
            for collection in store.collections(workspace) {
                for (_, object) in store.list(workspace, &collection, None)?.iter(None, None) {
                    let Some(source) = source(object) else { continue };
                    let (plural, object) = (collection.parts().1.to_owned(), Value::Object(object.tree()?));
                    copies.push(Copy { cluster, plural, source, object });
                }
            }
        }
        Ok(copies)
    }

    fn lost(&self) -> Result<Vec<String>> {
        self.history.is_whole()?;
        let is_lost = |event: &store::Event| {
            let is_kept = event.key.item.namespace() == KEPT || event.key.item.name() == KEPT;
            let goes = event.after().is_none_or(|after| after.head.deleting);
            is_kept && goes && source(event.object()).is_some()
        };
        Ok(self.history.read(|notes| {
            let lost = notes.iter().filter(|(_, note)| matches!(note, Note::Changed(_, it) if is_lost(it)));
            lost.map(|(time, note)| format!("{time:?} {}", note.line())).collect()
        }))
    }

    fn written(&self) -> Result<(usize, Vec<String>)> {
        const SHOWN: usize = 20;
        self.history.is_whole()?;
        Ok(self.history.read(|notes| {
            let is_routine =
                |note: &Note| matches!(note, Note::Changed(side, event) if is_routine(*side, event));
            let all: Vec<&Note> = notes.iter().map(|(_, note)| note).filter(|it| !is_routine(it)).collect();
            let last = &all[all.len().saturating_sub(SHOWN)..];
            (all.len(), last.iter().map(|note| note.line()).collect())
        }))
    }
}
