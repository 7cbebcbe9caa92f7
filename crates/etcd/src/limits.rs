//! What etcd takes, with its usual settings.

use std::{collections::HashSet, time::Duration};

use prost::Message;

use crate::{Compare, Error, Keys, Op, Txn, client::wire::TxnRequest};

/// So many comparisons, and so many operations in either branch, may a transaction have (`--max-txn-ops`).
pub const TXN_OPS: usize = 128;
/// So many bytes may a transaction that writes have, as it goes over the wire (`--max-request-bytes`).
pub const REQUEST_BYTES: usize = 3 << 19;

/// No lease is shorter: half as long again as an election takes, in whole seconds.
const SHORTEST_LEASE: u64 = 2;
const LONGEST_LEASE: u64 = 9_000_000_000;

/// How long a lease for `ttl` really goes: leases have whole seconds.
pub(crate) fn granted(ttl: Duration) -> Result<Duration, Error> {
    let seconds = whole_seconds(ttl);
    match seconds {
        ..=LONGEST_LEASE => Ok(Duration::from_secs(seconds.max(SHORTEST_LEASE))),
        _ => Err(Error::Refused("too large lease TTL".into())),
    }
}

pub(crate) fn whole_seconds(ttl: Duration) -> u64 {
    ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0))
}

pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    match key {
        [] => Err(Error::Refused("key is not provided".into())),
        _ => Ok(()),
    }
}

/// Refuses what etcd refuses, whatever it holds.
pub(crate) fn check(txn: &Txn) -> Result<(), Error> {
    if txn.when.len().max(txn.then.len()).max(txn.otherwise.len()) > TXN_OPS {
        return Err(Error::TooLarge("too many operations in txn request".into()));
    }
    for compare in &txn.when {
        let (Compare::Created(key, _) | Compare::Modified(key, _) | Compare::Exists(key)) = compare;
        check_key(key)?;
    }
    check_branch(&txn.then)?;
    check_branch(&txn.otherwise)?;
    match bytes(txn) {
        ..=REQUEST_BYTES => Ok(()),
        _ => Err(Error::TooLarge("request is too large".into())),
    }
}

/// No key may be put twice, nor be put and deleted.
fn check_branch(ops: &[Op]) -> Result<(), Error> {
    let deleted: Vec<&Keys> =
        ops.iter().filter_map(|op| if let Op::Delete(k) = op { Some(k) } else { None }).collect();
    let mut put = HashSet::new();
    for op in ops {
        match op {
            Op::Put { key, .. } => {
                check_key(key)?;
                if !put.insert(&key[..]) || deleted.iter().any(|keys| keys.contains(key)) {
                    return Err(Error::Refused("duplicate key given in txn request".into()));
                }
            }
            Op::Delete(keys) | Op::Range(keys) => check_key(&keys.start)?,
        }
    }
    Ok(())
}

/// As many bytes as go to the other members: the transaction, and who it came from.
fn bytes(txn: &Txn) -> usize {
    const ENVELOPE: usize = 32;
    TxnRequest::from(txn).encoded_len() + ENVELOPE
}
