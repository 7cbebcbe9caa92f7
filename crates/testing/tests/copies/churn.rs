//! Objects change and move while links break, hubs end and members are meddled with: whatever is wanted all the while
//! is never deleted, and at rest everything is where it should be.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::{Context, Result, ensure};
use api::assignment::Target;
use env::{Random, random::SeededRandom};
use serde_json::{Value, json};
use store::{Store, memory::MemoryStore};
use testing::hub::eventually;

use crate::{
    hand::{CONFIG_MAP, Hand, draining, target},
    world::{Members, World, brisk, ready},
};

const OBJECTS: usize = 8;
const STEPS: usize = 80;
/// Clusters, and the workspaces that stand for them.
const CLUSTERS: [(&str, &str); 2] = [("eu", "one"), ("us", "two")];

/// What is wanted of one object.
#[derive(Clone, Default)]
struct Wanted {
    data: u64,
    clusters: BTreeSet<&'static str>,
    leaving: BTreeSet<&'static str>,
}

struct Churn {
    members: Members,
    store: Arc<dyn Store>,
    world: World,
    random: SeededRandom,
    is_cut: bool,
    wanted: BTreeMap<String, Wanted>,
    /// UIDs of copies that were wanted ever since they were seen.
    kept: BTreeMap<(String, &'static str), Value>,
}

impl Churn {
    async fn start(seed: u64) -> Result<Churn> {
        let members = Members::start(&["one", "two"]).await?;
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let world = World::start_on(store.clone(), None, brisk()).await?;
        for (cluster, member) in CLUSTERS {
            world.join(cluster, &members.access(member)).await?;
        }
        let hand = Hand::new(&world);
        hand.namespace("shop", &["eu", "us"]).await?;
        let mut wanted = BTreeMap::new();
        for number in 0..OBJECTS {
            let name = format!("c{number}");
            hand.config_map("shop", &name, json!({"n": "0"}), &[]).await?;
            wanted.insert(name, Wanted::default());
        }
        let random = SeededRandom::new(seed);
        Ok(Churn { members, store, world, random, is_cut: false, wanted, kept: BTreeMap::new() })
    }

    fn pick(&self, below: usize) -> usize {
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes);
        (u64::from_le_bytes(bytes) % below as u64) as usize
    }

    async fn copy(&self, member: &str, name: &str) -> Result<Option<Value>> {
        let answer = self.members.get(member, &CONFIG_MAP.path("shop", name)).await?;
        Ok((answer.code == 200).then(|| answer.json()))
    }

    /// What was wanted all the while is the same object as before.
    async fn check(&mut self) -> Result<()> {
        for (cluster, member) in CLUSTERS {
            for (name, wanted) in self.wanted.clone() {
                let key = (name.clone(), cluster);
                let uid = self.copy(member, &name).await?.map(|it| it["metadata"]["uid"].clone());
                if let Some(kept) = self.kept.get(&key) {
                    ensure!(
                        uid.as_ref() == Some(kept),
                        "{name} was deleted in {cluster}: {uid:?} was {kept}"
                    );
                }
                match uid.filter(|_| wanted.clusters.contains(cluster)) {
                    Some(uid) => drop(self.kept.insert(key, uid)),
                    None => drop(self.kept.remove(&key)),
                }
            }
        }
        Ok(())
    }

    async fn assign(&self, name: &str) -> Result<()> {
        let wanted = self.wanted.get(name).context("there is one")?;
        let staying = wanted.clusters.iter().map(|cluster| target(cluster));
        let leaving = wanted.leaving.iter().map(|cluster| draining(cluster));
        let targets: Vec<Target> = staying.chain(leaving).collect();
        Hand::new(&self.world).assign(&CONFIG_MAP, "shop", name, &targets).await
    }

    async fn step(&mut self) -> Result<()> {
        let name = format!("c{}", self.pick(OBJECTS));
        let (cluster, member) = CLUSTERS[self.pick(CLUSTERS.len())];
        match self.pick(12) {
            0..=2 => {
                let wanted = self.wanted.get_mut(&name).context("there is one")?;
                wanted.data += 1;
                let change = json!({"data": {"n": wanted.data.to_string()}});
                Hand::new(&self.world).patch(&CONFIG_MAP, "shop", &name, change).await?;
            }
            3..=5 => {
                let reports = Hand::new(&self.world).reports(&CONFIG_MAP, "shop", &name)?;
                let is_gone = reports.iter().any(|report| report.name == cluster && report.is_gone());
                let wanted = self.wanted.get_mut(&name).context("there is one")?;
                // One that is on its way out may go before it is heard that it should not.
                if !wanted.leaving.contains(cluster) || is_gone {
                    wanted.leaving.remove(cluster);
                    wanted.clusters.insert(cluster);
                    self.assign(&name).await?;
                }
            }
            6 | 7 => {
                let wanted = self.wanted.get_mut(&name).context("there is one")?;
                if wanted.clusters.remove(cluster) {
                    wanted.leaving.insert(cluster);
                }
                self.kept.remove(&(name.clone(), cluster));
                self.assign(&name).await?;
            }
            8 | 9 => {
                let path = format!("/clusters/{member}{}", CONFIG_MAP.path("shop", &name));
                self.members.admin.merge_patch(&path, &json!({"data": {"n": "theirs", "more": "x"}})).await?;
            }
            10 => {
                let address = self.members.hub.peer.address;
                match self.is_cut {
                    true => self.world.cuts.heal(address),
                    false => self.world.cuts.cut(address),
                }
                self.is_cut = !self.is_cut;
            }
            _ => self.restart().await?,
        }
        Ok(())
    }

    /// The hub ends, and another begins on the same store.
    async fn restart(&mut self) -> Result<()> {
        self.world.cuts.heal(self.members.hub.peer.address);
        self.is_cut = false;
        let new = World::start_quietly(self.store.clone()).await?;
        let old = std::mem::replace(&mut self.world, new);
        old.hub.stop().await;
        let new = World::start_on(self.store.clone(), None, brisk()).await?;
        std::mem::replace(&mut self.world, new).hub.stop().await;
        Ok(())
    }

    async fn rest(&mut self) -> Result<()> {
        self.world.cuts.heal(self.members.hub.peer.address);
        for (cluster, member) in CLUSTERS {
            self.world.until(cluster, "Ready").await?;
            ensure!(ready(&self.world.cluster(cluster).await?)["status"] == "True");
            for (name, wanted) in &self.wanted {
                let n = wanted.data.to_string();
                eventually(&format!("{name} rests in {cluster}"), || async {
                    let copy = self.copy(member, name).await?;
                    let is_right = match copy {
                        Some(copy) => wanted.clusters.contains(cluster) && copy["data"]["n"] == *n,
                        None => !wanted.clusters.contains(cluster),
                    };
                    Ok(is_right.then_some(()))
                })
                .await
                .with_context(|| {
                    format!("{:?}", Hand::new(&self.world).reports(&CONFIG_MAP, "shop", name))
                })?;
            }
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wanted_is_never_deleted_and_all_is_right_at_rest() -> Result<()> {
    for seed in [1, 2, 3] {
        let mut churn = Churn::start(seed).await?;
        for step in 0..STEPS {
            churn.step().await.with_context(|| format!("seed {seed}, step {step}"))?;
            churn.check().await.with_context(|| format!("seed {seed}, step {step}"))?;
        }
        churn.rest().await.with_context(|| format!("seed {seed}"))?;
        churn.check().await.with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}
