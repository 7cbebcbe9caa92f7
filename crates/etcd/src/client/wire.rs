//! etcd's messages, as far as they are used: the same field numbers as in its `rpc.proto`, `kv.proto` and `auth.proto`.

use bytes::Bytes;

use crate::{Change, Compare, KeyValue, Keys, LeaseId, Op, Range, Txn, WatchFrom};

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "1")]
    pub cluster: u64,
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

/// An answer that says which cluster gave it.
pub(crate) trait Headed {
    fn header(&self) -> Option<Header>;
}

macro_rules! headed {
    ($($answer:ty),*) => {
        $(impl Headed for $answer {
            fn header(&self) -> Option<Header> {
                self.header
            }
        })*
    };
}

headed!(RangeResponse, TxnResponse, LeaseResponse, Acknowledged);

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Kv {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub limit: i64,
    #[prost(int64, tag = "4")]
    pub revision: i64,
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<Kv>,
    #[prost(bool, tag = "3")]
    pub more: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    #[prost(int64, tag = "3")]
    pub lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    pub request: Option<Request>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

/// Of what operations answer, only what ranges found is of use.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub range: Option<RangeResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Comparison {
    #[prost(int32, tag = "1")]
    pub result: i32,
    #[prost(int32, tag = "2")]
    pub target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    #[prost(oneof = "Compared", tags = "5, 6")]
    pub compared: Option<Compared>,
}

const EQUAL: i32 = 0;
const GREATER: i32 = 1;
const TARGET_CREATE: i32 = 1;
const TARGET_MOD: i32 = 2;

#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub(crate) enum Compared {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Comparison>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub revision: i64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub ttl: i64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// Of a grant and of a beat.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct LeaseResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub id: i64,
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}

/// Whatever else is answered, it is not looked at.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Acknowledged {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct WatchProgressRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub token: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub create: Option<WatchCreateRequest>,
    #[prost(message, optional, tag = "3")]
    pub progress: Option<WatchProgressRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    #[prost(bool, tag = "4")]
    pub progress_notify: bool,
    #[prost(bool, tag = "8")]
    pub fragment: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(bool, tag = "3")]
    pub created: bool,
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    #[prost(bool, tag = "7")]
    pub fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Event {
    /// 0: it was put; 1: it was deleted.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(message, optional, tag = "2")]
    pub kv: Option<Kv>,
}

const EVENT_DELETE: i32 = 1;

fn range_end(keys: &Keys) -> Bytes {
    keys.end.clone().unwrap_or_default()
}

impl From<Kv> for KeyValue {
    fn from(kv: Kv) -> Self {
        Self {
            key: kv.key,
            value: kv.value,
            created: kv.create_revision,
            modified: kv.mod_revision,
            lease: Some(LeaseId(kv.lease)).filter(|lease| lease.0 != 0),
        }
    }
}

impl From<&Range> for RangeRequest {
    fn from(range: &Range) -> Self {
        Self {
            key: range.keys.start.clone(),
            range_end: range_end(&range.keys),
            limit: i64::try_from(range.limit).unwrap_or(i64::MAX),
            revision: range.at.unwrap_or(0),
            keys_only: range.keys_only,
        }
    }
}

impl From<&Op> for RequestOp {
    fn from(op: &Op) -> Self {
        let request = match op {
            Op::Put { key, value, lease } => Request::Put(PutRequest {
                key: key.clone(),
                value: value.clone(),
                lease: lease.map_or(0, |lease| lease.0),
            }),
            Op::Delete(keys) => Request::DeleteRange(DeleteRangeRequest {
                key: keys.start.clone(),
                range_end: range_end(keys),
            }),
            Op::Range(keys) => Request::Range(RangeRequest::from(&Range::now(keys.clone()))),
        };
        Self { request: Some(request) }
    }
}

impl From<&Compare> for Comparison {
    fn from(compare: &Compare) -> Self {
        let (result, target, key, compared) = match compare {
            Compare::Created(key, revision) => {
                (EQUAL, TARGET_CREATE, key, Compared::CreateRevision(*revision))
            }
            Compare::Modified(key, revision) => (EQUAL, TARGET_MOD, key, Compared::ModRevision(*revision)),
            Compare::Exists(key) => (GREATER, TARGET_CREATE, key, Compared::CreateRevision(0)),
        };
        Self { result, target, key: key.clone(), compared: Some(compared) }
    }
}

impl From<&Txn> for TxnRequest {
    fn from(txn: &Txn) -> Self {
        Self {
            compare: txn.when.iter().map(Comparison::from).collect(),
            success: txn.then.iter().map(RequestOp::from).collect(),
            failure: txn.otherwise.iter().map(RequestOp::from).collect(),
        }
    }
}

impl From<&WatchFrom> for WatchRequest {
    fn from(watch: &WatchFrom) -> Self {
        let create = WatchCreateRequest {
            key: watch.keys.start.clone(),
            range_end: range_end(&watch.keys),
            start_revision: watch.from,
            progress_notify: true,
            fragment: true,
        };
        Self { create: Some(create), progress: None }
    }
}

impl WatchRequest {
    pub(crate) fn progress() -> Self {
        Self { create: None, progress: Some(WatchProgressRequest {}) }
    }
}

impl Event {
    /// What it tells; nothing if it does not say of which key.
    pub(crate) fn change(self) -> Option<Change> {
        let kv = self.kv?;
        Some(match self.kind {
            EVENT_DELETE => Change::Deleted(kv.key, kv.mod_revision),
            _ => Change::Put(kv.into()),
        })
    }
}
