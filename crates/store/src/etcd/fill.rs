//! Moving a whole store into etcd, and closing one that was moved away.

use ::etcd::{Compare, Etcd, Keys, Op, Range, Revision, Txn};
use bytes::Bytes;
use env::Env;

use super::{
    OpenError,
    blob::Blobs,
    layout::{FORMAT, Head, Layout, Meta, Named},
};
use crate::{
    Key,
    live::{self, Live, Place, Snapshot},
};

/// Of what etcd takes in one transaction.
const OPS: usize = 100;
const BYTES: usize = 1 << 20;
/// How the reason begins for which a store is closed that is not all there yet; who fills it follows.
const UNFINISHED: &str = "a move into it was not finished";
/// How the reason begins for which a store is closed whose move away may be begun again.
const LEAVING: &str = "a move out of it was not finished: begin it again, to ";

/// Who fills a place. Another one may take it over at any time until it is opened; nothing that this one does there
/// after that has any effect.
#[derive(Debug)]
pub struct Mover {
    layout: Layout,
    /// Why the place is closed while it is this one's: it has a name that no other one has.
    closed: String,
    /// When that was written.
    begun: Revision,
}

/// Puts all workspaces, as they are, where nothing must be. It cannot be opened before [`Mover::open_up`]; trying again
/// begins anew, whoever tries.
pub async fn fill(
    env: &Env,
    etcd: &dyn Etcd,
    prefix: &str,
    first_epoch: u32,
    snapshots: Vec<Snapshot>,
) -> Result<Mover, OpenError> {
    let mover = Mover::begin(env, etcd, prefix, first_epoch).await?;
    for snapshot in snapshots {
        mover.fill_one(env, etcd, &snapshot).await?;
    }
    Ok(mover)
}

/// Everything that is kept below `prefix` now, and its first epoch, whoever may open it.
pub async fn read(etcd: &dyn Etcd, prefix: &str) -> Result<(u32, Vec<Snapshot>), OpenError> {
    let layout = Layout::new(prefix);
    let Agreed { meta, revision, .. } = agreed(etcd, &layout).await?;
    let live = Live::new(live::Options { first_epoch: meta.first_epoch, ..Default::default() });
    super::follow::read_all(etcd, &layout, revision).await?.install(&live);
    Ok((meta.first_epoch, live.snapshots()))
}

/// What all servers agree on, since when, and the revision it was read at.
struct Agreed {
    meta: Meta,
    modified: Revision,
    revision: Revision,
}

/// Unlike a server, nobody who moves makes one.
async fn agreed(etcd: &dyn Etcd, layout: &Layout) -> Result<Agreed, OpenError> {
    let found = etcd.range(Range::now(Keys::one(layout.meta()))).await?;
    let Some(kv) = found.kvs.first() else {
        return Err(OpenError::Empty { prefix: layout.prefix().to_owned() });
    };
    let meta = serde_json::from_slice(&kv.value)
        .map_err(|error| OpenError::Store(super::layout::unreadable(&error.to_string())))?;
    Ok(Agreed { meta, modified: kv.modified, revision: found.revision })
}

fn put(key: Bytes, value: Bytes) -> Op {
    Op::Put { key, value, lease: None }
}

/// When the move began that was not finished there; 0: nothing is below the prefix but what all servers share.
async fn vacant_since(etcd: &dyn Etcd, layout: &Layout) -> Result<Revision, OpenError> {
    let found = etcd.range(Range::now(Keys::one(layout.meta()))).await?;
    if let Some(kv) = found.kvs.first().filter(|kv| is_unfinished(&kv.value)) {
        return Ok(kv.modified);
    }
    let keys = Keys::with_prefix(&layout.all());
    let found = etcd.range(Range { keys_only: true, ..Range::now(keys) }).await?;
    let is_shared = |key: &Bytes| layout.is_shared(key) && matches!(layout.read(key), Ok(Named::Other));
    match found.kvs.iter().all(|kv| is_shared(&kv.key)) {
        true => Ok(0),
        false => Err(OpenError::NotEmpty { prefix: layout.prefix().to_owned() }),
    }
}

fn is_unfinished(meta: &[u8]) -> bool {
    let meta: Option<Meta> = serde_json::from_slice(meta).ok();
    meta.and_then(|meta| meta.closed).is_some_and(|why| why.starts_with(UNFINISHED))
}

impl Mover {
    /// Takes the place, if need be from whoever did not finish; what that one left there goes.
    async fn begin(env: &Env, etcd: &dyn Etcd, prefix: &str, first_epoch: u32) -> Result<Self, OpenError> {
        let layout = Layout::new(prefix);
        let vacant = vacant_since(etcd, &layout).await?;
        let closed = format!("{UNFINISHED} (number {})", super::new_name(env));
        let meta = Meta { format: FORMAT, first_epoch, closed: Some(closed.clone()) };
        // Never gone in between: of several who begin at once one is let in, and whoever is behind finds it changed.
        let take = Txn {
            when: vec![Compare::Modified(layout.meta(), vacant)],
            then: vec![put(layout.meta(), serde_json::to_vec(&meta).unwrap_or_default().into())],
            ..Txn::default()
        };
        let taken = etcd.txn(take).await?;
        let mover = Self { layout, closed, begun: taken.revision };
        if !taken.held {
            return Err(mover.superseded());
        }
        let all = [mover.layout.blobs(), mover.layout.heads(), mover.layout.objects()];
        let clear = all.iter().map(|prefix| Op::Delete(Keys::with_prefix(prefix))).collect();
        mover.write(etcd, clear).await?;
        Ok(mover)
    }

    fn superseded(&self) -> OpenError {
        OpenError::Superseded { prefix: self.layout.prefix().to_owned() }
    }

    /// Only while the place is this one's: another one may have written there meanwhile, or opened it.
    async fn write(&self, etcd: &dyn Etcd, ops: Vec<Op>) -> Result<(), OpenError> {
        let when = vec![Compare::Modified(self.layout.meta(), self.begun)];
        let answer = etcd.txn(Txn { when, then: ops, ..Txn::default() }).await?;
        if answer.held { Ok(()) } else { Err(self.superseded()) }
    }

    async fn fill_one(&self, env: &Env, etcd: &dyn Etcd, snapshot: &Snapshot) -> Result<(), OpenError> {
        let (mut ops, mut bytes) = (Vec::new(), 0);
        for (collection, items) in snapshot.collections() {
            for (item, kept) in items.iter() {
                let mut blobs = Blobs::default();
                let (stored, _): (_, Place) = blobs.place(env, kept.object.body(), kept.expires);
                for part in blobs.puts(&self.layout) {
                    self.write(etcd, vec![part]).await?;
                }
                let key = Key { collection: collection.clone(), item: item.clone() };
                let value = stored.encode();
                if ops.len() >= OPS || bytes + value.len() > BYTES {
                    self.write(etcd, std::mem::take(&mut ops)).await?;
                    bytes = 0;
                }
                bytes += value.len() + 256;
                ops.push(put(self.layout.object(snapshot.id(), &key), value));
            }
        }
        let head = moved_head(snapshot);
        ops.push(put(self.layout.head(snapshot.id()), head.encode()));
        self.write(etcd, ops).await
    }

    /// Lets servers open what was filled.
    pub async fn open_up(&self, etcd: &dyn Etcd) -> Result<(), OpenError> {
        let is_this_one = |why: Option<&str>| why == Some(&self.closed);
        match set_closed(etcd, self.layout.prefix(), None, is_this_one).await {
            Err(OpenError::Closed { .. }) => Err(self.superseded()),
            other => other,
        }
    }
}

fn moved_head(snapshot: &Snapshot) -> Head {
    let state = snapshot.state();
    let head = Head {
        revision: state.head.as_u64(),
        // What happened before is not there.
        forgotten: state.head.as_u64(),
        past: Vec::new(),
        epoch: 0,
        after: state.head.as_u64(),
        ends: Vec::new(),
        removed: Vec::new(),
        by: "moved".to_owned(),
    };
    head.with_epochs(&state.epochs)
}

/// Where the servers are that are alive, and how many workspaces are led.
pub async fn servers(etcd: &dyn Etcd, prefix: &str) -> Result<(Vec<String>, usize), OpenError> {
    let layout = Layout::new(prefix);
    let found = etcd.range(Range::now(Keys::with_prefix(&layout.servers()))).await?;
    let url = |value: &Bytes| {
        let registration: Option<super::Registration> = serde_json::from_slice(value).ok();
        registration.map_or_else(|| "unknown".to_owned(), |registration| registration.url)
    };
    let led = Range { keys_only: true, ..Range::now(Keys::with_prefix(&layout.leaders())) };
    let led = etcd.range(led).await?;
    Ok((found.kvs.iter().map(|kv| url(&kv.value)).collect(), led.kvs.len()))
}

/// Closes what is to be moved to `target`: whoever opens it from now on is told so, and whoever has it open cannot begin
/// to lead any more. A move that was begun and not ended may be begun again, also to elsewhere.
pub async fn leave(etcd: &dyn Etcd, prefix: &str, target: &str) -> Result<(), OpenError> {
    set_closed(etcd, prefix, Some(leaving(target)), may_leave).await
}

/// Fails as [`leave`] would, and changes nothing.
pub async fn can_leave(etcd: &dyn Etcd, prefix: &str) -> Result<(), OpenError> {
    let Agreed { meta, .. } = agreed(etcd, &Layout::new(prefix)).await?;
    if may_leave(meta.closed.as_deref()) { Ok(()) } else { Err(refused(prefix, meta.closed)) }
}

/// Lets servers open again what was to be moved to `target` and was not, unless somebody moves it elsewhere by now.
pub async fn stay(etcd: &dyn Etcd, prefix: &str, target: &str) -> Result<(), OpenError> {
    set_closed(etcd, prefix, None, |why| why == Some(&leaving(target))).await
}

/// All of it is at `target` now: it stays closed. That is refused if somebody has begun to move it elsewhere.
pub async fn retire(etcd: &dyn Etcd, prefix: &str, target: &str) -> Result<(), OpenError> {
    let moved = moved(target);
    set_closed(etcd, prefix, Some(moved.clone()), |why| why == Some(&leaving(target)) || why == Some(&moved))
        .await
}

/// Whether a move to `target` was begun. It may be over but for the target's own part in it.
pub async fn is_leaving(etcd: &dyn Etcd, prefix: &str, target: &str) -> Result<bool, OpenError> {
    let Agreed { meta, .. } = agreed(etcd, &Layout::new(prefix)).await?;
    Ok(meta.closed.is_some_and(|why| why == leaving(target) || why == moved(target)))
}

/// Whether there is something that servers may open.
pub async fn is_open(etcd: &dyn Etcd, prefix: &str) -> Result<bool, OpenError> {
    match agreed(etcd, &Layout::new(prefix)).await {
        Ok(Agreed { meta, .. }) => Ok(meta.closed.is_none()),
        Err(OpenError::Empty { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn leaving(target: &str) -> String {
    format!("{LEAVING}{target}")
}

fn moved(target: &str) -> String {
    format!("it was moved to {target}")
}

fn may_leave(closed: Option<&str>) -> bool {
    closed.is_none_or(|why| why.starts_with(LEAVING))
}

fn refused(prefix: &str, closed: Option<String>) -> OpenError {
    let why = closed.unwrap_or_else(|| "somebody has opened it again".to_owned());
    OpenError::Closed { prefix: Layout::new(prefix).prefix().to_owned(), why }
}

/// Several may move it at once: each goes on from what it has seen, or not at all.
async fn set_closed(
    etcd: &dyn Etcd,
    prefix: &str,
    closed: Option<String>,
    may: impl Fn(Option<&str>) -> bool,
) -> Result<(), OpenError> {
    let layout = Layout::new(prefix);
    loop {
        let Agreed { meta, modified, .. } = agreed(etcd, &layout).await?;
        if !may(meta.closed.as_deref()) {
            return Err(refused(prefix, meta.closed));
        }
        let meta = Meta { closed: closed.clone(), ..meta };
        let value = serde_json::to_vec(&meta).unwrap_or_default().into();
        let when = vec![Compare::Modified(layout.meta(), modified)];
        let change = Txn { when, then: vec![put(layout.meta(), value)], ..Txn::default() };
        if etcd.txn(change).await?.held {
            return Ok(());
        }
    }
}
