//! Moving a whole store into etcd, and closing one that was moved away.

use ::etcd::{Etcd, Keys, Op, Range, Txn};
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

/// Lets servers open what was filled, or was to be moved away and was not.
pub async fn open_up(etcd: &dyn Etcd, prefix: &str) -> Result<(), OpenError> {
    set_closed(etcd, prefix, None).await
}

/// Everything that is kept below `prefix` now, and its first epoch, whoever may open it.
pub async fn read(etcd: &dyn Etcd, prefix: &str) -> Result<(u32, Vec<Snapshot>), OpenError> {
    let layout = Layout::new(prefix);
    let (meta, revision) = meta(etcd, &layout).await?;
    let live = Live::new(live::Options { first_epoch: meta.first_epoch, ..Default::default() });
    super::follow::read_all(etcd, &layout, revision).await?.install(&live);
    Ok((meta.first_epoch, live.snapshots()))
}

/// What all servers agree on, and the revision it was read at. Unlike a server, nobody who moves makes one.
async fn meta(etcd: &dyn Etcd, layout: &Layout) -> Result<(Meta, ::etcd::Revision), OpenError> {
    let found = etcd.range(Range::now(Keys::one(layout.meta()))).await?;
    let Some(kv) = found.kvs.first() else {
        return Err(OpenError::Empty { prefix: layout.prefix().to_owned() });
    };
    let meta = serde_json::from_slice(&kv.value)
        .map_err(|error| OpenError::Store(super::layout::unreadable(&error.to_string())))?;
    Ok((meta, found.revision))
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
    set_closed(etcd, prefix, Some(format!("{LEAVING}{target}"))).await
}

/// All of it is at `target` now: it stays closed.
pub async fn retire(etcd: &dyn Etcd, prefix: &str, target: &str) -> Result<(), OpenError> {
    set_closed(etcd, prefix, Some(format!("it was moved to {target}"))).await
}

/// Whether a move to `target` was begun and not ended.
pub async fn is_leaving(etcd: &dyn Etcd, prefix: &str, target: &str) -> Result<bool, OpenError> {
    let (meta, _) = meta(etcd, &Layout::new(prefix)).await?;
    Ok(meta.closed.is_some_and(|why| why.strip_prefix(LEAVING) == Some(target)))
}

async fn set_closed(etcd: &dyn Etcd, prefix: &str, closed: Option<String>) -> Result<(), OpenError> {
    let layout = Layout::new(prefix);
    let (meta, _) = meta(etcd, &layout).await?;
    if let (Some(why), Some(_)) = (&meta.closed, &closed)
        && !why.starts_with(LEAVING)
    {
        return Err(OpenError::Closed { prefix: layout.prefix().to_owned(), why: why.clone() });
    }
    let meta = Meta { closed, ..meta };
    write(etcd, vec![put(layout.meta(), serde_json::to_vec(&meta).unwrap_or_default().into())]).await
}
