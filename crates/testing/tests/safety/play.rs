//! One seed: users work and things break, then all is mended and judged.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use env::{Env, network::sim::SimNet, random::SeededRandom};
use http::Method;
use serde_json::{Value, json};
use server::hub::default_id;
use store::{Store, embedded::EmbeddedStore};
use tokio::time::Instant;

use crate::{
    acts::{self, Act, Chance},
    history::{History, Note, Recorder, Side},
    machine::{HOST, Machine, Running, answer},
    members::{Member, NAMES},
    rest, seeds, standstill,
    wanted::{KINDS, uid, wrong_deletions},
};

/// What users and faults do, before all is mended.
const STEPS: u64 = 60;

pub struct World {
    pub chance: Chance,
    pub net: SimNet,
    pub machine: Machine,
    pub hub: Option<Running>,
    pub members: Vec<Member>,
    pub history: Arc<History>,
    /// What the hub has said to have done, by path: the UID of what is there, or that nothing is to be.
    acknowledged: BTreeMap<String, Option<String>>,
    /// Namespaces that somebody has deleted: what is changed in them goes all the same.
    going: BTreeSet<String>,
    mending: Vec<(Instant, Mend)>,
    /// At which steps a backup is made, and the hub begins again with it.
    older: Option<(u64, u64)>,
    known_at_backup: Option<Acknowledged>,
    /// UIDs of copies in members.
    pub there_at_restore: BTreeSet<String>,
}

/// What was acknowledged when the backup was made, and the namespaces that were going.
type Acknowledged = (BTreeMap<String, Option<String>>, BTreeSet<String>);

/// For one seed in three; not by the chances of everything else, which goes its way in the other two as it always did.
fn older(seed: u64) -> Option<(u64, u64)> {
    let chance = Chance(SeededRandom::new(seed ^ 0xbac0));
    let made = 5 + chance.below(STEPS / 2);
    (chance.below(3) == 0).then(|| (made, made + 2 + chance.below(STEPS / 3)))
}

#[derive(Clone, Copy, Debug)]
enum Mend {
    Hub,
    Link(usize),
    Member(usize),
    Pace(usize),
}

/// All of the workspace, as a hub finds it that is started.
fn begins(history: &Arc<History>, store: &Arc<EmbeddedStore>) -> Recorder {
    let mut objects = Vec::new();
    for collection in store.collections(&default_id()) {
        let Ok(listing) = store.list(&default_id(), &collection, None) else { continue };
        let all = listing.iter(None, None);
        objects.extend(all.map(|(item, object)| {
            (store::Key { collection: collection.clone(), item: item.clone() }, object.clone())
        }));
    }
    history.note(Note::Begins(objects));
    history.follow(store.feed(), Side::Hub)
}

pub async fn play(seed: u64) -> Result<()> {
    let history = History::new();
    standstill::watch(seed, history.clone());
    let mut world = World::start(seed, history).await.context("setting up")?;
    let played = world.run().await;
    if played.is_err() || crate::number("HANSE_SEED").is_some() {
        println!("seed {seed}, what happened:\n  {}", world.history.said().join("\n  "));
        println!("what the hub says of it:\n  {}", rest::assignments(&world).join("\n  "));
    }
    seeds::print_digest(world.history.digest());
    played
}

impl World {
    async fn start(seed: u64, history: Arc<History>) -> Result<World> {
        let net = SimNet::new(HOST);
        let laptop = Env::simulated(seed ^ 0x1a, env::files::sim::SimDisk::new(seed), net.host("laptop"));
        let mut machine = Machine::new(seed, net.clone(), laptop.clock.clone());
        let hub = machine.start(|store| begins(&history, &store)).await?;
        let mut members = Vec::new();
        for (number, name) in (1u64..).zip(NAMES) {
            let member = Member::start(name, seed ^ (number << 50), &net, &laptop, &history).await?;
            member.join(&hub, &laptop).await?;
            members.push(member);
        }
        Ok(World {
            chance: Chance(SeededRandom::new(seed)),
            net,
            machine,
            hub: Some(hub),
            members,
            history,
            acknowledged: BTreeMap::new(),
            going: BTreeSet::new(),
            mending: Vec::new(),
            older: older(seed),
            known_at_backup: None,
            there_at_restore: BTreeSet::new(),
        })
    }

    async fn run(&mut self) -> Result<()> {
        self.say("begins");
        for act in acts::population(&self.chance) {
            self.act(act).await;
        }
        for step in 0..STEPS {
            self.step().await?;
            match self.older {
                Some((made, _)) if made == step => self.back_up().await,
                Some((_, restored)) if restored == step => self.restore().await?,
                _ => {}
            }
        }
        self.mend_all().await?;
        rest::settle(self).await?;
        self.history.is_whole()?;
        let wrong = wrong_deletions(&self.history);
        ensure!(wrong.is_empty(), "deleted, and still wanted:\n  {}", wrong.join("\n  "));
        rest::is_quiet(self).await?;
        for member in self.members.drain(..) {
            member.recorder.end().await?;
        }
        self.history.is_whole()
    }

    fn say(&self, what: impl std::fmt::Display) {
        self.history.say(what);
    }

    async fn step(&mut self) -> Result<()> {
        match self.chance.below(10) {
            0..7 => {
                let act = acts::act(&self.chance);
                self.act(act).await;
            }
            _ => self.fault().await?,
        }
        let pause = match self.chance.below(4) {
            0 => 0,
            1 => self.chance.below(200),
            2 => self.chance.below(5_000),
            _ => self.chance.below(40_000),
        };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if !self.machine.disk.has_power() {
            self.say("the power is gone");
            self.kill_hub(true).await?;
        }
        self.mend_due().await
    }

    async fn act(&mut self, act: Act) {
        let Some(hub) = &self.hub else { return };
        let asked = hub.begin(act.method.clone(), &act.path, act.content_type, act.body.as_ref());
        let answered = answer(asked).await;
        let code = answered.as_ref().map(|it| it.0);
        self.say(format!("{} {} {} -> {code:?}", act.method, act.path, act.body.clone().unwrap_or_default()));
        self.learn(&act, answered);
    }

    /// What was done for certain, and what nobody knows any more.
    fn learn(&mut self, act: &Act, answered: Option<(u16, Value)>) {
        let path = match act.method {
            Method::POST => {
                let name = act.body.as_ref().and_then(|it| it["metadata"]["name"].as_str());
                format!("{}/{}", act.path, name.unwrap_or_default())
            }
            _ => act.path.clone(),
        };
        let is_namespace = act.path.starts_with("/api/v1/namespaces") && act.path.matches('/').count() <= 4;
        if act.method == Method::POST && matches!(answered, Some((200..300, _))) {
            // Nothing is made in one that goes.
            self.going.retain(|namespace| *namespace != path && !is_in(&path, namespace));
        } else if is_namespace && act.method == Method::DELETE && !matches!(answered, Some((400..500, _))) {
            self.going.insert(path.clone());
        }
        let is_lost = self.going.iter().any(|namespace| is_in(&path, namespace));
        let goes = |object: &Value| is_lost || !object["metadata"]["deletionTimestamp"].is_null();
        match answered {
            Some((200..300, object)) if act.method != Method::DELETE && !goes(&object) => {
                let uid = uid(&object).to_owned();
                self.acknowledged.insert(path, Some(uid));
            }
            // A refusal changes nothing.
            Some((400..500, _)) => {}
            _ => {
                // With a namespace goes all that is in it.
                self.acknowledged.retain(|known, _| !known.starts_with(&path) && !is_in(known, &path));
            }
        }
    }

    async fn fault(&mut self) -> Result<()> {
        let which = self.chance.below(NAMES.len() as u64) as usize;
        let name = NAMES[which];
        let lasts = Duration::from_millis(self.chance.below(90_000));
        let due = Instant::now() + lasts;
        match self.chance.below(10) {
            0 | 1 => {
                let changes = self.chance.below(60);
                self.say(format!("the power goes after {changes} changes"));
                self.machine.disk.crash_after(changes);
            }
            2 => {
                // In the middle of what it does about this.
                let act = acts::act(&self.chance);
                self.say(format!("killed in {} {} {:?}", act.method, act.path, act.body));
                let asked = self
                    .hub
                    .as_ref()
                    .map(|hub| hub.begin(act.method.clone(), &act.path, act.content_type, act.body.as_ref()));
                for _ in 0..self.chance.below(300) {
                    tokio::task::yield_now().await;
                }
                self.kill_hub(false).await?;
                let answered = match asked {
                    Some(mut asked) => asked.try_recv().ok().and_then(Result::ok),
                    None => return Ok(()),
                };
                self.learn(&act, answered);
            }
            3 | 4 => {
                self.say(format!("no link to {name} for {lasts:?}"));
                self.net.partition(HOST, name);
                if self.chance.below(2) == 0 {
                    self.net.reset(HOST, name);
                }
                self.mending.push((due, Mend::Link(which)));
            }
            5 => {
                self.say(format!("{name} is down for {lasts:?}"));
                self.members[which].simulation.stop(name).await?;
                self.mending.push((due, Mend::Member(which)));
            }
            6 => {
                self.say(format!("{name} is slow for {lasts:?}"));
                let delay = Duration::from_millis(100 + self.chance.below(12_000));
                self.members[which].simulation.slow(name, delay)?;
                self.mending.push((due, Mend::Pace(which)));
            }
            7 => {
                self.say(format!("{name} forgets its history"));
                let member = &self.members[which];
                member.store.compact(&member.workspace, member.store.head(&member.workspace)).await?;
                self.net.reset(HOST, name);
            }
            8 => self.change_by_hand(which).await?,
            _ => self.delete_by_hand(which).await?,
        }
        Ok(())
    }

    /// Some copy in a member: its path and UID.
    async fn some_copy(&self, which: usize) -> Result<Option<(&'static str, String, String)>> {
        // A pod that somebody deletes where it runs has ended, and a job that is over is not begun again.
        let plural = self.chance.of(&KINDS[..3]).1;
        let group = KINDS.iter().find(|it| it.1 == plural).map_or("", |it| it.0);
        let path =
            if group.is_empty() { format!("/api/v1/{plural}") } else { format!("/apis/{group}/v1/{plural}") };
        let path = format!("{path}?labelSelector={}", api::WORKSPACE_LABEL);
        let (_, list) = self.members[which].ask(Method::GET, &path, None).await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        if items.is_empty() {
            return Ok(None);
        }
        let item = &items[self.chance.below(items.len() as u64) as usize]["metadata"];
        let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
        Ok(Some((plural, acts::path(plural, &text("namespace"), &text("name")), text("uid"))))
    }

    async fn change_by_hand(&mut self, which: usize) -> Result<()> {
        let Some((plural, path, _)) = self.some_copy(which).await? else { return Ok(()) };
        let body = match plural {
            "configmaps" => json!({"data": {"version": "by hand"}}),
            _ => json!({"spec": {"replicas": 9}}),
        };
        let (code, _) = self.members[which].ask(Method::PATCH, &path, Some(body)).await?;
        self.say(format!("changed by hand in {}: {path} -> {code}", NAMES[which]));
        Ok(())
    }

    async fn delete_by_hand(&mut self, which: usize) -> Result<()> {
        let Some((_, path, uid)) = self.some_copy(which).await? else { return Ok(()) };
        self.history.note(Note::ByHand(uid));
        let (code, _) = self.members[which].ask(Method::DELETE, &path, None).await?;
        self.say(format!("deleted by hand in {}: {path} -> {code}", NAMES[which]));
        Ok(())
    }

    /// `power`: what was not synced is lost, too.
    async fn kill_hub(&mut self, power: bool) -> Result<()> {
        let Some(hub) = self.hub.take() else { return Ok(()) };
        hub.kill().await?;
        if power {
            self.machine.disk.crash();
        }
        let lasts = Duration::from_millis(self.chance.below(30_000));
        self.say(format!("the hub is down for {lasts:?}"));
        self.mending.push((Instant::now() + lasts, Mend::Hub));
        Ok(())
    }

    /// If it can be made now.
    async fn back_up(&mut self) {
        let Some(hub) = &self.hub else { return };
        let made = hub.back_up().await;
        self.say(format!("a backup: {made:?}"));
        self.known_at_backup = made.is_ok().then(|| (self.acknowledged.clone(), self.going.clone()));
    }

    /// The hub begins again with what it was at the backup; members have gone on since then.
    async fn restore(&mut self) -> Result<()> {
        let Some((acknowledged, going)) = self.known_at_backup.take() else { return Ok(()) };
        self.kill_hub(false).await?;
        while let Err(error) = self.machine.restore() {
            ensure!(!self.machine.disk.has_power(), "a backup cannot be restored: {error:#}");
            self.machine.disk.crash();
        }
        self.say("the backup is restored");
        (self.acknowledged, self.going) = (acknowledged, going);
        self.history.note(Note::Restored);
        let copies = rest::copies_of(self)?;
        self.there_at_restore = copies.iter().map(|copy| uid(&copy.object).to_owned()).collect();
        Ok(())
    }

    async fn mend_due(&mut self) -> Result<()> {
        let now = Instant::now();
        let (due, later): (Vec<_>, Vec<_>) = self.mending.drain(..).partition(|(due, _)| *due <= now);
        self.mending = later;
        for (_, mend) in due {
            self.mend(mend).await?;
        }
        Ok(())
    }

    async fn mend_all(&mut self) -> Result<()> {
        if !self.machine.disk.has_power() {
            self.kill_hub(true).await?;
        }
        self.machine.disk.crash_after(u64::MAX);
        for (_, mend) in std::mem::take(&mut self.mending) {
            self.mend(mend).await?;
        }
        self.say("all is mended");
        Ok(())
    }

    async fn mend(&mut self, mend: Mend) -> Result<()> {
        self.say(format!("mended: {mend:?}"));
        match mend {
            Mend::Link(which) => self.net.heal(HOST, NAMES[which]),
            Mend::Member(which) => self.members[which].simulation.resume(NAMES[which]).await?,
            Mend::Pace(which) => self.members[which].simulation.slow(NAMES[which], Duration::ZERO)?,
            Mend::Hub => return self.start_hub().await,
        }
        Ok(())
    }

    async fn start_hub(&mut self) -> Result<()> {
        let history = self.history.clone();
        let hub = loop {
            match self.machine.start(|store| begins(&history, &store)).await {
                Ok(hub) => break hub,
                // The power may go again.
                Err(_) if !self.machine.disk.has_power() => self.machine.disk.crash(),
                Err(error) => return Err(error.context("the hub does not start again")),
            }
        };
        for (path, uid) in &self.acknowledged {
            let found = answer(hub.begin(Method::GET, path, "application/json", None)).await;
            let Some((_, found)) = found else { continue };
            let found = found["metadata"]["uid"].as_str().map(str::to_owned);
            ensure!(found == *uid, "{path} was acknowledged as {uid:?} and is {found:?} after a restart");
        }
        self.hub = Some(hub);
        Ok(())
    }
}

fn is_in(path: &str, namespace: &str) -> bool {
    namespace
        .strip_prefix("/api/v1")
        .is_some_and(|below| below.starts_with("/namespaces/") && path.contains(below))
}
