//! Following: what all servers write, in the order etcd has it, into the live state of this one.
//!
//! A start reads everything as it was a little while ago and follows from there, so that memory holds the recent
//! history and clients resume their watches. When etcd has forgotten what comes next, everything is read again, and
//! whoever watched what has changed must begin again.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use ::etcd::{
    Change, Changes, Error as EtcdError, Etcd, KeyValue, Keys, Range, Revision as EtcdRevision, WatchFrom,
    after_prefix,
};
use bytes::Bytes;
use compact_str::CompactString;
use machinery::Revision;

use super::{
    blob::{self, ReadError},
    layout::{Head, Layout, Named, Registration, unreadable},
    shared::{Flight, Shared, State, Verdict},
};
use crate::{
    Collection, Error, Key, WorkspaceId,
    live::{Followed, Item, Items, Live, Loaded, Stage, object_from},
};

/// A page of a range is about this large.
const PAGE_BYTES: usize = 4 << 20;
/// A start goes back to where history is noted to begin, or by so many revisions of etcd if it is not.
const FAR: EtcdRevision = 10_000;
/// Where what was there then cannot be read.
const LESS_FAR: [EtcdRevision; 3] = [2_000, 200, 0];
/// No start goes back further: everything since then has to be read, and of objects of the usual size the ring in memory
/// holds no more.
const FURTHEST: EtcdRevision = 50_000;
const PAUSE: Duration = Duration::from_millis(200);

/// Everything, at one revision.
pub(super) struct Everything {
    at: EtcdRevision,
    workspaces: HashMap<WorkspaceId, Read>,
    leaders: HashMap<WorkspaceId, CompactString>,
    servers: HashMap<CompactString, Registration>,
}

struct Read {
    modified: EtcdRevision,
    loaded: Loaded,
}

/// Reads everything as it was at `at`.
pub(super) async fn read_all(
    etcd: &dyn Etcd,
    layout: &Layout,
    at: EtcdRevision,
) -> Result<Everything, ReadError> {
    let mut everything =
        Everything { at, workspaces: HashMap::new(), leaders: HashMap::new(), servers: HashMap::new() };
    let mut objects: HashMap<WorkspaceId, BTreeMap<Collection, Items>> = HashMap::new();
    let mut heads: HashMap<WorkspaceId, (EtcdRevision, Head)> = HashMap::new();
    let Keys { start, end } = followed_keys(layout);
    let mut pages = Pages { start, end, limit: 100 };
    while let Some(page) = pages.next(etcd, at).await? {
        for kv in page {
            let Ok(named) = layout.read(&kv.key) else {
                tracing::warn!(key = %String::from_utf8_lossy(&kv.key), "etcd holds something that is not ours");
                continue;
            };
            match named {
                Named::Object(workspace, key) => {
                    let item = read_item(etcd, layout, &kv, at, false).await?;
                    let items = objects.entry(workspace).or_default().entry(key.collection).or_default();
                    items.insert(key.item, item);
                }
                Named::Head(workspace) => {
                    heads.insert(workspace, (kv.modified, Head::decode(&kv.value)?));
                }
                Named::Leader(workspace) => {
                    everything.leaders.insert(workspace, text(&kv.value)?);
                }
                Named::Server(name) => {
                    everything.servers.insert(name, registration(&kv.value)?);
                }
                Named::Other => {}
            }
        }
    }
    for (workspace, (modified, head)) in heads {
        let collections = objects.remove(&workspace).unwrap_or_default().into_iter().collect();
        let loaded =
            Loaded { head: head.head()?, forgotten: head.forgotten()?, epochs: head.epochs()?, collections };
        everything.workspaces.insert(workspace, Read { modified, loaded });
    }
    match objects.keys().next() {
        Some(workspace) => Err(unreadable(&format!("objects of {workspace}, which has no head")).into()),
        None => Ok(everything),
    }
}

/// All but the parts of large objects, which nobody needs to be told of.
fn followed_keys(layout: &Layout) -> Keys {
    let all = layout.all();
    Keys { start: layout.heads(), end: Some(after_prefix(&all)) }
}

struct Pages {
    start: Bytes,
    end: Option<Bytes>,
    limit: usize,
}

impl Pages {
    async fn next(&mut self, etcd: &dyn Etcd, at: EtcdRevision) -> Result<Option<Vec<KeyValue>>, ReadError> {
        if self.limit == 0 {
            return Ok(None);
        }
        let keys = Keys { start: self.start.clone(), end: self.end.clone() };
        let ranged = etcd.range(Range { keys, at: Some(at), limit: self.limit, keys_only: false }).await?;
        let bytes: usize = ranged.kvs.iter().map(|kv| kv.value.len() + kv.key.len() + 64).sum();
        match ranged.kvs.last() {
            Some(last) if ranged.more => {
                let mut after = last.key.to_vec();
                after.push(0);
                self.start = after.into();
                let average = bytes / ranged.kvs.len();
                // What comes next may be larger than what came: grow with care.
                self.limit = (PAGE_BYTES / average.max(1)).clamp(8, 5000).min(2 * ranged.kvs.len());
            }
            _ => self.limit = 0,
        }
        Ok(Some(ranged.kvs))
    }
}

async fn read_item(
    etcd: &dyn Etcd,
    layout: &Layout,
    kv: &KeyValue,
    at: EtcdRevision,
    replaces: bool,
) -> Result<Item, ReadError> {
    let (body, expires, place) = blob::read(etcd, layout, &kv.value, at).await?;
    let object = object_from(&body, replaces).map_err(|error| unreadable(&format!("an object: {error}")))?;
    Ok(Item { object, place, expires })
}

fn text(value: &[u8]) -> Result<CompactString, Error> {
    CompactString::from_utf8(value).map_err(|_| unreadable("a name that is no text"))
}

fn registration(value: &[u8]) -> Result<Registration, Error> {
    serde_json::from_slice(value).map_err(|error| unreadable(&format!("a server: {error}")))
}

/// What a start reads.
pub(super) async fn start(etcd: &dyn Etcd, layout: &Layout) -> Result<Everything, ReadError> {
    let now = etcd.range(Range { keys_only: true, ..Range::now(Keys::one(layout.meta())) }).await?;
    let noted = noted(etcd, layout).await?.filter(|at| (1..now.revision).contains(at));
    let wanted = noted.unwrap_or(now.revision - FAR).max(now.revision - FURTHEST).max(1);
    let furthest = now.revision - oldest(etcd, layout, wanted, now.revision).await?;
    let less = LESS_FAR.into_iter().filter(|back| *back < furthest);
    let mut last = EtcdError::Compacted(0);
    for back in std::iter::once(furthest).chain(less) {
        let at = now.revision - back;
        match read_all(etcd, layout, at).await {
            Err(ReadError::Etcd(error @ EtcdError::Compacted(_))) => last = error,
            // As it was before something was put right, or by an older program.
            Err(ReadError::Store(error)) if back > 0 => {
                tracing::debug!(%error, at, "cannot read the state of a while ago");
            }
            other => return other,
        }
    }
    Err(ReadError::Etcd(last))
}

/// The oldest revision from `from` to `to` that etcd still has: somebody may have compacted it by hand since history was noted
/// to begin.
async fn oldest(
    etcd: &dyn Etcd,
    layout: &Layout,
    from: EtcdRevision,
    to: EtcdRevision,
) -> Result<EtcdRevision, EtcdError> {
    let (mut from, mut to) = (from, to);
    let mut at = from;
    while from < to {
        let keys = Keys::one(layout.meta());
        match etcd.range(Range { keys, at: Some(at), limit: 1, keys_only: true }).await {
            Ok(_) => to = at,
            Err(EtcdError::Compacted(_)) => from = at + 1,
            Err(error) => return Err(error),
        }
        at = from + (to - from) / 2;
    }
    Ok(to)
}

/// Where the history that is kept begins, if a server has noted it. What cannot be read is not worth a start.
async fn noted(etcd: &dyn Etcd, layout: &Layout) -> Result<Option<EtcdRevision>, EtcdError> {
    let found = etcd.range(Range::now(Keys::one(layout.history()))).await?;
    let text = found.kvs.first().and_then(|kv| std::str::from_utf8(&kv.value).ok());
    Ok(text.and_then(|text| text.parse().ok()))
}

impl Everything {
    /// Puts everything in place, in a live state that is empty.
    pub fn install(self, live: &Live) -> Installed {
        let mut applied = HashMap::new();
        for (workspace, read) in self.workspaces {
            applied.insert(workspace.clone(), read.modified);
            live.load(&workspace, read.loaded);
        }
        Installed { at: self.at, applied, leaders: self.leaders, servers: self.servers }
    }
}

/// What of everything is not in the live state.
pub(super) struct Installed {
    pub at: EtcdRevision,
    pub applied: HashMap<WorkspaceId, EtcdRevision>,
    pub leaders: HashMap<WorkspaceId, CompactString>,
    pub servers: HashMap<CompactString, Registration>,
}

/// Waits until all that had been written when it was called has been followed.
pub(super) async fn catch_up(shared: &Shared) -> Result<(), Error> {
    let heads = Keys::with_prefix(&shared.layout.heads());
    let range = Range { keys_only: true, ..Range::now(heads) };
    let heads = shared.etcd.range(range).await.map_err(super::writer::store_error)?;
    for kv in heads.kvs {
        if let Ok(Named::Head(workspace)) = shared.layout.read(&kv.key) {
            until_there(shared, &workspace, kv.modified).await?;
        }
    }
    Ok(())
}

/// As [`Shared::until_applied`], for as long as it gets any further.
async fn until_there(shared: &Shared, workspace: &WorkspaceId, revision: EtcdRevision) -> Result<(), Error> {
    loop {
        let before = shared.state().progress;
        match shared.until_applied(workspace, revision).await {
            Err(error) if shared.state().progress == before => return Err(error),
            Err(_) => {}
            Ok(()) => return Ok(()),
        }
    }
}

/// Follows for as long as the server runs, from after revision `from`.
pub(super) async fn follow(shared: Arc<Shared>, mut from: EtcdRevision) {
    loop {
        let ended = tokio::select! {
            biased;
            ended = follow_once(&shared, &mut from) => ended,
            () = shared.until(|state| state.closing.then_some(())) => return,
        };
        match ended {
            Ended::Watch(EtcdError::Compacted(_)) => {
                tracing::warn!(from, "etcd has forgotten what comes next: reading everything again");
                resync(&shared, &mut from).await;
            }
            Ended::Watch(EtcdError::Replaced(_)) => return,
            Ended::Watch(error) => tracing::debug!(%error, "following etcd again"),
            Ended::Unreadable(error) => {
                tracing::error!(%error, "cannot follow what was written: reading everything again");
                resync(&shared, &mut from).await;
            }
        }
        shared.env.clock.sleep(PAUSE).await;
    }
}

enum Ended {
    Watch(EtcdError),
    Unreadable(Error),
}

async fn follow_once(shared: &Shared, from: &mut EtcdRevision) -> Ended {
    // What was followed last is told again, which changes nothing: so history that was forgotten right after it is
    // noticed, of which etcd does not tell what it deleted.
    let watch = WatchFrom { keys: followed_keys(&shared.layout), from: *from };
    let mut watcher = match shared.etcd.watch(watch).await {
        Ok(watcher) => watcher,
        Err(error) => return Ended::Watch(error),
    };
    loop {
        let told = tokio::select! {
            biased;
            told = watcher.next() => told,
            () = nobody_tells(shared) => {
                watcher.ask_progress();
                continue;
            }
        };
        let changes = match told {
            Ok(changes) => changes,
            Err(error) => return Ended::Watch(error),
        };
        let revision = changes.revision;
        match take_in(shared, changes).await {
            Ok(()) => {}
            Err(ReadError::Etcd(error)) => return Ended::Watch(error),
            Err(ReadError::Store(error)) => return Ended::Unreadable(error),
        }
        shared.change(|state| state.has_followed(revision));
        *from = revision.max(*from);
    }
}

/// Somebody has waited for a while to hear that something was followed.
async fn nobody_tells(shared: &Shared) {
    shared.until(|state| (state.awaited > state.followed).then_some(())).await;
    shared.env.clock.sleep(PAUSE).await;
}

async fn take_in(shared: &Shared, changes: Changes) -> Result<(), ReadError> {
    let mut rest = changes.events.as_slice();
    while let Some(first) = rest.first() {
        let revision = first.revision();
        let end = rest.iter().position(|change| change.revision() != revision).unwrap_or(rest.len());
        let (one, later) = rest.split_at(end);
        take_in_one(shared, revision, one).await?;
        rest = later;
    }
    Ok(())
}

/// All that one transaction did.
async fn take_in_one(shared: &Shared, revision: EtcdRevision, changes: &[Change]) -> Result<(), ReadError> {
    let mut heads: Vec<(WorkspaceId, Option<Head>)> = Vec::new();
    let mut puts: HashMap<WorkspaceId, Vec<(Key, &KeyValue)>> = HashMap::new();
    for change in changes {
        let Ok(named) = shared.layout.read(change.key()) else {
            tracing::warn!(key = %String::from_utf8_lossy(change.key()), "somebody else writes where we do");
            continue;
        };
        match (named, change) {
            (Named::Head(workspace), Change::Put(kv)) => {
                heads.push((workspace, Some(Head::decode(&kv.value)?)));
            }
            (Named::Head(workspace), Change::Deleted(..)) => heads.push((workspace, None)),
            (Named::Object(workspace, key), Change::Put(kv)) => {
                puts.entry(workspace).or_default().push((key, kv));
            }
            // The head says what was removed.
            (Named::Object(..), Change::Deleted(..)) | (Named::Other, _) => {}
            (Named::Leader(workspace), Change::Put(kv)) => {
                let name = text(&kv.value)?;
                shared.change(|state| state.leaders.insert(workspace, name));
            }
            (Named::Leader(workspace), Change::Deleted(..)) => {
                shared.change(|state| {
                    state.leaders.remove(&workspace);
                    // Unless it was claimed anew after that.
                    if state.led.get(&workspace).is_some_and(|created| *created < revision) {
                        state.led.remove(&workspace);
                    }
                });
            }
            (Named::Server(name), Change::Put(kv)) => {
                let registration = registration(&kv.value)?;
                shared.change(|state| state.servers.insert(name, registration));
            }
            (Named::Server(name), Change::Deleted(..)) => {
                shared.change(|state| state.servers.remove(&name));
            }
        }
    }
    for (workspace, head) in heads {
        if !is_news(shared, &workspace, revision, head.as_ref()).await {
            continue;
        }
        let puts = puts.remove(&workspace).unwrap_or_default();
        match head {
            Some(head) => apply(shared, &workspace, revision, &head, puts).await?,
            None => {
                let _order = shared.order.lock();
                shared.live.remove_workspace(&workspace);
                shared.live.sweep();
                shared.change(|state| state.forget(&workspace, revision));
            }
        }
    }
    Ok(())
}

/// Whether a head is to be applied here. What this server wrote itself, it shows itself; if that is under way, it is
/// told what was seen of it.
async fn is_news(
    shared: &Shared,
    workspace: &WorkspaceId,
    revision: EtcdRevision,
    head: Option<&Head>,
) -> bool {
    enum Step {
        News,
        Known,
        Wait,
    }
    let look = |state: &mut State| {
        let gone = head.is_none() && !state.applied.contains_key(workspace);
        if gone || state.has_seen(workspace, revision) {
            return Step::Known;
        }
        match &mut state.flight {
            Some(flight) if flight.workspaces.contains(workspace) => {
                let its_own = match head {
                    Some(head) => head.by == flight.by,
                    None => flight.removes,
                };
                flight.verdict = Some(if its_own { Verdict::Landed(revision) } else { Verdict::Lost });
                Step::Wait
            }
            _ => {
                // Somebody else wrote: this server does not lead it.
                state.led.remove(workspace);
                Step::News
            }
        }
    };
    loop {
        match shared.change(look) {
            Step::News => return true,
            Step::Known => return false,
            Step::Wait => {}
        }
        // Another one may be under way by then, which has not been told.
        let settled = |state: &State| {
            let told = |flight: &&Flight| flight.workspaces.contains(workspace) && flight.verdict.is_some();
            state.flight.as_ref().filter(told).is_none().then_some(())
        };
        shared.until(settled).await;
    }
}

async fn apply(
    shared: &Shared,
    workspace: &WorkspaceId,
    revision: EtcdRevision,
    head: &Head,
    puts: Vec<(Key, &KeyValue)>,
) -> Result<(), ReadError> {
    let mut records = Vec::with_capacity(puts.len() + head.removed.len());
    for (key, kv) in puts {
        let replaces = kv.created != kv.modified;
        let item = read_item(&*shared.etcd, &shared.layout, kv, revision, replaces).await?;
        records.push(Followed { revision: item.object.revision, key, put: Some(item) });
    }
    for (at, key) in head.removed()? {
        records.push(Followed { revision: at, key, put: None });
    }
    records.sort_by_key(|record| record.revision);
    let (_order, live) = (shared.order.lock(), &shared.live);
    if live.head(workspace) != head.position_before()? && !records.is_empty() {
        return Err(Error::Discontinuous { head: live.head(workspace) }.into());
    }
    let mut stage = Stage::new(live);
    for end in head.ends()? {
        let later = records.partition_point(|record| record.revision <= end);
        let rest = records.split_off(later);
        stage.follow(workspace, std::mem::replace(&mut records, rest))?;
    }
    if !records.is_empty() {
        return Err(unreadable("records that belong to no commit").into());
    }
    live.publish(stage);
    settle_position(live, workspace, head)?;
    shared.change(|state| {
        state.applied.insert(workspace.clone(), revision);
        state.progress += 1;
    });
    Ok(())
}

/// What a head says beside its records: that an epoch began, or that history was forgotten.
fn settle_position(live: &Live, workspace: &WorkspaceId, head: &Head) -> Result<(), Error> {
    let (wanted, forgotten) = (head.head()?, head.forgotten()?);
    if live.head(workspace) < wanted && head.ends.is_empty() && wanted.seq() == 0 {
        live.begin_epoch(workspace, wanted);
    }
    if live.head(workspace) != wanted {
        return Err(Error::Discontinuous { head: live.head(workspace) });
    }
    let known: Option<Revision> = live.position(workspace).map(|(_, forgotten, _)| forgotten);
    if known.is_some_and(|known| known < forgotten) {
        live.compact(workspace, forgotten);
        live.sweep();
    }
    Ok(())
}

/// Reads everything again; what has changed meanwhile is put in place as it is.
async fn resync(shared: &Shared, from: &mut EtcdRevision) {
    shared.change(|state| {
        state.resyncing = true;
        state.led.clear();
        if let Some(flight) = &mut state.flight {
            flight.verdict.get_or_insert(Verdict::Unknowable);
        }
    });
    shared.until(|state| state.flight.is_none().then_some(())).await;
    let everything = loop {
        let now = shared.etcd.range(Range::now(Keys::one(shared.layout.meta()))).await;
        let read = match now {
            Ok(now) => read_all(&*shared.etcd, &shared.layout, now.revision).await,
            Err(error) => Err(ReadError::Etcd(error)),
        };
        match read {
            Ok(everything) => break everything,
            // It goes on as it is, for those who do not ask for the latest.
            Err(ReadError::Etcd(EtcdError::Replaced(_))) => return,
            Err(ReadError::Etcd(error)) => tracing::warn!(%error, "cannot read everything"),
            Err(ReadError::Store(error)) => tracing::error!(%error, "cannot read everything"),
        }
        shared.env.clock.sleep(PAUSE * 5).await;
    };
    let _order = shared.order.lock();
    let live = &shared.live;
    for workspace in live.workspaces() {
        if !everything.workspaces.contains_key(&workspace) {
            live.remove_workspace(&workspace);
        }
    }
    let mut applied = HashMap::new();
    for (workspace, read) in everything.workspaces {
        applied.insert(workspace.clone(), read.modified);
        let Loaded { head, forgotten, epochs, .. } = &read.loaded;
        if live.position(&workspace).as_ref() != Some(&(*head, *forgotten, epochs.clone())) {
            live.replace(&workspace, read.loaded);
        }
    }
    *from = everything.at;
    shared.change(|state| {
        state.applied = applied;
        state.has_followed(everything.at);
        state.leaders = everything.leaders;
        state.servers = everything.servers;
        state.resyncing = false;
    });
}
