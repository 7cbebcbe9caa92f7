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
    backup::Totals,
    live::{self, Live, Place, Snapshot},
};

/// Of what etcd takes in one transaction.
const OPS: usize = 100;
const BYTES: usize = 1 << 20;
const UNFINISHED: &str = "a move into it was not finished";
/// How the reason begins for which a store is closed whose move away may be begun again.
const LEAVING: &str = "a move out of it was not finished: begin it again, to ";

/// Puts all workspaces, as they are, where nothing must be. It cannot be opened before [`open_up`]; trying again begins
/// anew.
pub async fn fill(
    env: &Env,
    etcd: &dyn Etcd,
    prefix: &str,
    first_epoch: u32,
    snapshots: Vec<Snapshot>,
) -> Result<Totals, OpenError> {
    let layout = Layout::new(prefix);
    clear_unfinished(etcd, &layout).await?;
    let meta = Meta { format: FORMAT, first_epoch, closed: Some(UNFINISHED.to_owned()) };
    write(etcd, vec![put(layout.meta(), serde_json::to_vec(&meta).unwrap_or_default().into())]).await?;
    let mut totals = Totals::default();
    for snapshot in snapshots {
        totals.workspaces += 1;
        totals.objects += fill_one(env, etcd, &layout, &snapshot).await?;
    }
    Ok(totals)
}

/// Lets servers open what was filled.
pub async fn open_up(etcd: &dyn Etcd, prefix: &str) -> Result<(), OpenError> {
    set_closed(etcd, prefix, None, |why| why == Some(UNFINISHED)).await
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

async fn write(etcd: &dyn Etcd, ops: Vec<Op>) -> Result<(), OpenError> {
    etcd.txn(Txn { then: ops, ..Txn::default() }).await?;
    Ok(())
}

/// Makes sure that nothing is below the prefix, but for what all servers share; what an unfinished move left goes.
async fn clear_unfinished(etcd: &dyn Etcd, layout: &Layout) -> Result<(), OpenError> {
    let found = etcd.range(Range::now(Keys::one(layout.meta()))).await?;
    let meta: Option<Meta> = found.kvs.first().and_then(|kv| serde_json::from_slice(&kv.value).ok());
    if meta.is_some_and(|meta| meta.closed.as_deref() == Some(UNFINISHED)) {
        let all = [layout.blobs(), layout.heads(), layout.objects()];
        write(etcd, all.iter().map(|prefix| Op::Delete(Keys::with_prefix(prefix))).collect()).await?;
        return write(etcd, vec![Op::Delete(Keys::one(layout.meta()))]).await;
    }
    let keys = Keys::with_prefix(&layout.all());
    let found = etcd.range(Range { keys_only: true, ..Range::now(keys) }).await?;
    let is_shared = |key: &Bytes| layout.is_shared(key) && matches!(layout.read(key), Ok(Named::Other));
    match found.kvs.iter().all(|kv| is_shared(&kv.key)) {
        true => Ok(()),
        false => Err(OpenError::NotEmpty { prefix: layout.prefix().to_owned() }),
    }
}

async fn fill_one(
    env: &Env,
    etcd: &dyn Etcd,
    layout: &Layout,
    snapshot: &Snapshot,
) -> Result<u64, OpenError> {
    let mut objects = 0;
    let (mut ops, mut bytes) = (Vec::new(), 0);
    for (collection, items) in snapshot.collections() {
        for (item, kept) in items.iter() {
            objects += 1;
            let mut blobs = Blobs::default();
            let (stored, _): (_, Place) = blobs.place(env, kept.object.body(), kept.expires);
            blobs.write(etcd, layout).await?;
            let key = Key { collection: collection.clone(), item: item.clone() };
            let value = stored.encode();
            if ops.len() >= OPS || bytes + value.len() > BYTES {
                write(etcd, std::mem::take(&mut ops)).await?;
                bytes = 0;
            }
            bytes += value.len() + 256;
            ops.push(put(layout.object(snapshot.id(), &key), value));
        }
    }
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
    ops.push(put(layout.head(snapshot.id()), head.with_epochs(&state.epochs).encode()));
    write(etcd, ops).await?;
    Ok(objects)
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
