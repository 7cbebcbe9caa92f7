//! gRPC to the members of an etcd cluster.
//!
//! ```text
//!   Client ── order of members ── Member ── connection (TLS, HTTP/2) ── call: one message, or a stream
//!                                    └── health: who failed rests, and others are asked first
//! ```
//!
//! A call stays with the member that answered last. It goes on to the next one only if this one certainly did nothing:
//! it could not be reached, or said so. What was sent and not answered is never sent again. All answers are of one
//! cluster, the one that answered first.
//!
//! This is gRPC by hand on hyper, because only there is it known whether a request has left, and that decides what the
//! caller is told.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use env::{BoxFuture, Env};
use prost::Message;
use tokio::sync::mpsc;

use crate::{
    Error, Etcd, KeyValue, LeaseId, Range, Ranged, Revision, Txn, TxnAnswer, WatchFrom, Watcher, limits,
};

mod call;
mod member;
mod options;
mod status;
mod tokens;
mod watching;
pub(crate) mod wire;

use call::Head;
use member::{Connection, Member, Sent};
pub use options::{Endpoint, Identity, Misconfigured, Options, Tls, User};
use status::{Failure, Meaning};
use tokens::{Token, Tokens};
use watching::Watching;
use wire::{
    Acknowledged, Headed, Header, LeaseRequest, LeaseResponse, RangeRequest, RangeResponse, TxnRequest,
    TxnResponse, WatchRequest,
};

/// An election is over in a second or two; the members are asked again after so long.
const ASK_FOR_LEADER: Duration = Duration::from_millis(100);
/// So many requests of a watch wait to be sent.
const REQUESTS_AHEAD: usize = 8;

/// How long a member may take to pass on that a lease's holder is alive, and how many are asked.
const BEAT: Duration = Duration::from_secs(1);
const BEATS: usize = 3;

/// A client of one cluster. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    env: Env,
    members: Vec<Arc<Member>>,
    /// Who answered last.
    current: AtomicUsize,
    /// The cluster that answered first; 0: none yet.
    cluster: AtomicU64,
    is_tls: bool,
    tokens: Tokens,
    timeout: Duration,
}

impl Client {
    /// Reads the files that `options` names, but dials nobody yet.
    pub fn new(env: Env, options: Options) -> Result<Self, Misconfigured> {
        if options.endpoints.is_empty() {
            return Err(Misconfigured("no endpoint of etcd".into()));
        }
        if let Some(tls) = &options.tls {
            tls.load(&*env.files)?;
            options.endpoints.iter().try_for_each(|endpoint| options::server_name(endpoint).map(drop))?;
        }
        // So that not all clients begin with the same one.
        let first = env.random.next_u64() % options.endpoints.len() as u64;
        let is_tls = options.tls.is_some();
        let member = |endpoint| Arc::new(Member::new(endpoint, options.tls.clone()));
        let shared = Shared {
            members: options.endpoints.into_iter().map(member).collect(),
            current: AtomicUsize::new(first as usize),
            cluster: AtomicU64::new(0),
            is_tls,
            tokens: Tokens::new(options.user),
            timeout: options.timeout,
            env,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// One message for one message.
    async fn ask<A: Message + Headed + Default>(
        &self,
        method: &'static str,
        request: &impl Message,
    ) -> Result<A, Error> {
        self.ask_within(self.shared.timeout, method, request).await
    }

    async fn ask_within<A: Message + Headed + Default>(
        &self,
        timeout: Duration,
        method: &'static str,
        request: &impl Message,
    ) -> Result<A, Error> {
        let question = Question { method, message: call::framed(request) };
        let answer = self.shared.anywhere(&question, timeout).await;
        let answer: Result<A, _> = answer.and_then(|answer| call::decoded(&answer));
        let answer = answer.map_err(|failure| failure.error())?;
        self.shared.check_cluster(answer.header())?;
        Ok(answer)
    }

    async fn begin(&self, watch: WatchFrom) -> Result<Watching, Error> {
        let opening = Opening { first: call::framed(&WatchRequest::from(&watch)), from: watch.from };
        let begun = self.shared.anywhere(&opening, self.shared.timeout).await;
        let watching = begun.map_err(|failure| without_effect(failure.error()))?;
        self.shared.check_cluster(watching.header)?;
        Ok(watching)
    }
}

/// What a member is asked.
trait Asked: Sync {
    type Answer: Send;

    fn ask(&self, way: Way<'_>) -> impl Future<Output = Result<Self::Answer, Failure>> + Send;
}

/// How to ask.
struct Way<'a> {
    shared: &'a Shared,
    member: &'a Arc<Member>,
    connection: Connection,
    token: Token,
    /// How much time is left.
    left: Duration,
}

/// For one message.
struct Question {
    method: &'static str,
    message: Bytes,
}

impl Asked for Question {
    type Answer = Bytes;

    async fn ask(&self, way: Way<'_>) -> Result<Bytes, Failure> {
        let head = way.shared.head(way.member, self.method, way.token, Some(way.left));
        call::unary(way.connection, head, self.message.clone()).await
    }
}

/// For a watch.
struct Opening {
    first: Bytes,
    from: Revision,
}

impl Asked for Opening {
    type Answer = Watching;

    async fn ask(&self, mut way: Way<'_>) -> Result<Watching, Failure> {
        let (requests, body) = mpsc::channel(REQUESTS_AHEAD);
        let _ = requests.try_send(self.first.clone());
        let head = way.shared.head(way.member, "Watch/Watch", way.token, None);
        let messages = call::open(&mut way.connection, head, Sent::Stream(body)).await?;
        let clock = way.shared.env.clock.clone();
        Watching::new(clock, way.member.clone(), requests, messages, self.from).accepted().await
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.env.clock.elapsed()
    }

    /// A cluster that is made from a backup, or anew, has another id.
    fn check_cluster(&self, header: Option<Header>) -> Result<(), Error> {
        let Some(cluster) = header.map(|header| header.cluster).filter(|cluster| *cluster != 0) else {
            return Ok(());
        };
        match self.cluster.compare_exchange(0, cluster, Ordering::Relaxed, Ordering::Relaxed) {
            Err(first) if first != cluster => {
                Err(Error::Replaced(format!("it is the cluster {cluster:x}, and was {first:x}")))
            }
            _ => Ok(()),
        }
    }

    fn head<'a>(
        &self,
        member: &'a Member,
        method: &'static str,
        token: Token,
        within: Option<Duration>,
    ) -> Head<'a> {
        Head { endpoint: &member.endpoint, is_tls: self.is_tls, method, token: token.value, within }
    }

    /// All members: first those that do not rest, beginning with the one that answered last; then those that rest, the
    /// shortest first.
    fn order(&self) -> Vec<usize> {
        let (count, now) = (self.members.len(), self.now());
        let mut first = self.current.load(Ordering::Relaxed);
        if self.members[first].rests_until() > now {
            // Its clients spread over the others.
            first = (self.env.random.next_u64() % count as u64) as usize;
        }
        let mut order: Vec<_> = (0..count).map(|at| (first + at) % count).collect();
        order.sort_by_key(|at| Some(self.members[*at].rests_until()).filter(|until| *until > now));
        order
    }

    /// Asks member after member until one did it, or may have.
    async fn anywhere<A: Asked>(&self, asked: &A, timeout: Duration) -> Result<A::Answer, Failure> {
        let deadline = self.now() + timeout;
        loop {
            let mut last = Failure::Unsent("there are no members".into());
            let mut is_election = false;
            for at in self.order() {
                let member = &self.members[at];
                let outcome = self.at(member, deadline, asked).await;
                let meaning = outcome.as_ref().map_or_else(Failure::meaning, |_| Meaning::Final);
                match outcome {
                    Err(failure) if !matches!(meaning, Meaning::Final | Meaning::Token) => {
                        member.has_failed(self.now());
                        member.leave(&failure);
                        if meaning == Meaning::Uncertain {
                            return Err(failure);
                        }
                        is_election |= meaning == Meaning::NoLeader;
                        last = Failure::at(&member.endpoint, failure);
                    }
                    answered => {
                        member.is_well();
                        self.current.store(at, Ordering::Relaxed);
                        return answered;
                    }
                }
            }
            if !is_election || self.now() + ASK_FOR_LEADER >= deadline {
                return Err(last);
            }
            self.env.clock.sleep(ASK_FOR_LEADER).await;
        }
    }

    /// Asks one member, once more if the token was no longer good.
    async fn at<A: Asked>(
        &self,
        member: &Arc<Member>,
        deadline: Duration,
        asked: &A,
    ) -> Result<A::Answer, Failure> {
        let unsent = || Failure::Unsent("dialling took too long".into());
        let dialled = self.until(deadline, member.connection(&self.env)).await;
        let connection = dialled.unwrap_or_else(|| Err(unsent()))?;
        let mut refused: Option<Token> = None;
        loop {
            let nobody = Token::nobody();
            let head = self.head(member, "Auth/Authenticate", nobody, None);
            let token = self.tokens.get(self.now(), refused.as_ref(), &connection, head);
            let token = self.until(deadline, token).await.unwrap_or_else(|| Err(unsent()))?;
            let left = deadline.saturating_sub(self.now());
            let (connection, token) = (connection.clone(), token.clone());
            let way = Way { shared: self, member, connection, token: token.clone(), left };
            let outcome = self.until(deadline, asked.ask(way)).await;
            let late = || Err(Failure::Unanswered("the call took too long".into()));
            match outcome.unwrap_or_else(late) {
                Err(failure)
                    if failure.meaning() == Meaning::Token
                        && refused.is_none()
                        && self.tokens.can_renew() =>
                {
                    refused = Some(token);
                }
                outcome => return outcome,
            }
        }
    }

    async fn until<T>(&self, deadline: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.env.clock.sleep(deadline.saturating_sub(self.now())) => None,
        }
    }
}

/// Reads and watches change nothing: whatever went wrong, there is no effect to wonder about.
fn without_effect(error: Error) -> Error {
    match error {
        Error::Uncertain(why) => Error::Unreachable(why),
        other => other,
    }
}

fn key_values(kvs: Vec<wire::Kv>) -> Vec<KeyValue> {
    kvs.into_iter().map(KeyValue::from).collect()
}

impl Etcd for Client {
    fn range(&self, range: Range) -> BoxFuture<'static, Result<Ranged, Error>> {
        let client = self.clone();
        Box::pin(async move {
            let asked = client.ask("KV/Range", &RangeRequest::from(&range)).await;
            let answer: RangeResponse = asked.map_err(without_effect)?;
            let revision = answer.header.map_or(0, |header| header.revision);
            Ok(Ranged { revision, kvs: key_values(answer.kvs), more: answer.more })
        })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'static, Result<TxnAnswer, Error>> {
        let client = self.clone();
        Box::pin(async move {
            let answer: TxnResponse = client.ask("KV/Txn", &TxnRequest::from(&txn)).await?;
            let ranges = answer.responses.into_iter().filter_map(|response| response.range);
            Ok(TxnAnswer {
                held: answer.succeeded,
                revision: answer.header.map_or(0, |header| header.revision),
                ranges: ranges.map(|range| key_values(range.kvs)).collect(),
            })
        })
    }

    fn watch(&self, watch: WatchFrom) -> BoxFuture<'static, Result<Box<dyn Watcher>, Error>> {
        let client = self.clone();
        Box::pin(async move { Ok(Box::new(client.begin(watch).await?) as Box<dyn Watcher>) })
    }

    fn grant(&self, ttl: Duration) -> BoxFuture<'static, Result<LeaseId, Error>> {
        let client = self.clone();
        Box::pin(async move {
            let ttl = i64::try_from(limits::whole_seconds(ttl)).unwrap_or(i64::MAX);
            let answer: LeaseResponse =
                client.ask("Lease/LeaseGrant", &wire::LeaseGrantRequest { ttl }).await?;
            Ok(LeaseId(answer.id))
        })
    }

    /// A stream for every beat: it comes with a token that is good now, to a member that can be reached now.
    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'static, Result<Duration, Error>> {
        let client = self.clone();
        Box::pin(async move {
            let request = LeaseRequest { id: lease.0 };
            let mut beats = 1;
            let answer: LeaseResponse = loop {
                match client.ask_within(BEAT, "Lease/LeaseKeepAlive", &request).await {
                    // Said twice, it does no harm: a member that hangs must not cost the lease.
                    Err(Error::Uncertain(_)) if beats < BEATS => beats += 1,
                    answer => break answer?,
                }
            };
            match u64::try_from(answer.ttl) {
                Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds)),
                _ => Err(Error::LeaseGone),
            }
        })
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'static, Result<(), Error>> {
        let client = self.clone();
        Box::pin(async move {
            let request = LeaseRequest { id: lease.0 };
            client.ask::<Acknowledged>("Lease/LeaseRevoke", &request).await.map(drop)
        })
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'static, Result<(), Error>> {
        let client = self.clone();
        Box::pin(async move {
            let request = wire::CompactionRequest { revision };
            client.ask::<Acknowledged>("KV/Compact", &request).await.map(drop)
        })
    }
}
