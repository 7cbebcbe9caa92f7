//! When clients saw what: every object on its way from the hub to its members, and its status on the way back.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{sleep, timeout_at},
};

use crate::{
    client::{self, Connection, Endpoint},
    figures::Latencies,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Deployment,
    ConfigMap,
}

impl Kind {
    pub fn collection(self, namespace: &str) -> String {
        match self {
            Self::Deployment => format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
            Self::ConfigMap => format!("/api/v1/namespaces/{namespace}/configmaps"),
        }
    }

    fn everywhere(self) -> &'static str {
        match self {
            Self::Deployment => "/apis/apps/v1/deployments",
            Self::ConfigMap => "/api/v1/configmaps",
        }
    }
}

/// Who saw something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Witness {
    Hub,
    Member(usize),
}

/// What is to become of an object.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// So many are to have it.
    pub members: usize,
    /// How many pods are ready in each copy at last, and how many the hub shows then; `None`: it has no status.
    pub ready: Option<(u64, u64)>,
    /// What is written in a ConfigMap; others do not count.
    pub mark: Option<String>,
}

/// One object on its way.
struct Trace {
    wish: Wish,
    sent: Instant,
    has: HashSet<usize>,
    arrived: Option<Instant>,
    ready: HashSet<usize>,
    all_ready: Option<Instant>,
    summed_up: Option<Instant>,
}

impl Trace {
    fn is_done(&self) -> bool {
        self.arrived.is_some() && (self.wish.ready.is_none() || self.summed_up.is_some())
    }
}

type Name = (Kind, String);

#[derive(Default)]
struct State {
    traces: HashMap<Name, Trace>,
    /// Those that are not where they should be, and those of which not all is known that should be.
    under_way: usize,
    open: usize,
    /// Watches that ended, and were opened again.
    reopened: u64,
}

#[derive(Default)]
pub struct Traces {
    state: Mutex<State>,
    changed: Notify,
}

/// What of an event is looked at.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
    #[serde(default)]
    data: Data,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    generation: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    observed_generation: i64,
    ready_replicas: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    mark: Option<String>,
}

/// How long everything took that is on its way or has arrived.
#[derive(Default)]
pub struct Times {
    /// From sending it until all members had it.
    pub arrived: Latencies,
    /// From sending it until the hub showed all pods as ready.
    pub summed_up: Latencies,
    /// From the last pod's being ready in the last member until the hub showed it.
    pub lag: Latencies,
    /// The last of each.
    pub all_arrived: Duration,
    pub all_summed_up: Duration,
}

impl Traces {
    /// From now on it is waited for.
    pub fn expect(&self, kind: Kind, name: &str, wish: Wish) {
        let mut state = self.state.lock();
        let trace = Trace {
            wish,
            sent: Instant::now(),
            has: HashSet::new(),
            arrived: None,
            ready: HashSet::new(),
            all_ready: None,
            summed_up: None,
        };
        let old = state.traces.insert((kind, name.to_owned()), trace);
        state.under_way += usize::from(old.as_ref().is_none_or(|old| old.arrived.is_some()));
        state.open += usize::from(old.is_none_or(|old| old.is_done()));
    }

    pub fn forget_all(&self) {
        let mut state = self.state.lock();
        *state = State { reopened: state.reopened, ..State::default() };
    }

    pub fn reopened(&self) -> u64 {
        self.state.lock().reopened
    }

    /// How many are not in all of their members yet.
    pub fn under_way(&self) -> usize {
        self.state.lock().under_way
    }

    pub fn has_arrived(&self, kind: Kind, name: &str) -> bool {
        self.state.lock().traces.get(&(kind, name.to_owned())).is_some_and(|trace| trace.arrived.is_some())
    }

    fn see(&self, witness: Witness, kind: Kind, line: &[u8]) -> Result<()> {
        let event: Event<'_> = serde_json::from_slice(line)?;
        match &*event.kind {
            "ADDED" | "MODIFIED" => {}
            "ERROR" => bail!("a watch was told of an error"),
            _ => return Ok(()),
        }
        let now = Instant::now();
        let Object { metadata, status, data } = event.object;
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(trace) = state.traces.get_mut(&(kind, metadata.name)) else { return Ok(()) };
        let (was_there, was_done) = (trace.arrived.is_some(), trace.is_done());
        match witness {
            Witness::Member(member) => trace.in_member(member, &status, &data, now),
            Witness::Hub => {
                let all = trace.wish.ready.map(|(_, all)| all);
                let is_level = status.observed_generation >= metadata.generation.max(1);
                if is_level && all == Some(status.ready_replicas) {
                    trace.summed_up.get_or_insert(now);
                }
            }
        }
        state.under_way -= usize::from(!was_there && trace.arrived.is_some());
        state.open -= usize::from(!was_done && trace.is_done());
        if state.under_way == 0 || state.open == 0 {
            self.changed.notify_waiters();
        }
        Ok(())
    }

    async fn until(&self, what: &str, patience: Duration, left: impl Fn(&State) -> usize) -> Result<()> {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let changed = self.changed.notified();
            if left(&self.state.lock()) == 0 {
                return Ok(());
            }
            // Looked at now and then in any case: what is lost is found by nobody's telling.
            let soon = (tokio::time::Instant::now() + Duration::from_secs(5)).min(deadline);
            if timeout_at(soon, changed).await.is_err() && tokio::time::Instant::now() >= deadline {
                let state = self.state.lock();
                let missing = state.traces.iter().find(|(_, trace)| !trace.is_done());
                bail!(
                    "{} of {} are not {what} after {} s; one of them: {:?}",
                    left(&state),
                    state.traces.len(),
                    patience.as_secs(),
                    missing.map(|(name, trace)| (name, trace.has.len(), trace.ready.len())),
                );
            }
        }
    }

    pub async fn all_arrived(&self, patience: Duration) -> Result<()> {
        self.until("in all members", patience, |state| state.under_way).await
    }

    pub async fn all_done(&self, patience: Duration) -> Result<()> {
        self.until("in all members with their status back", patience, |state| state.open).await
    }

    /// Since `began`, for what is measured of all together.
    pub fn times(&self, began: Instant) -> Times {
        let mut times = Times::default();
        for trace in self.state.lock().traces.values() {
            if let Some(arrived) = trace.arrived {
                times.arrived.record(arrived - trace.sent);
                times.all_arrived = times.all_arrived.max(arrived - began);
            }
            if let Some(summed_up) = trace.summed_up {
                times.summed_up.record(summed_up - trace.sent);
                times.all_summed_up = times.all_summed_up.max(summed_up - began);
                if let Some(ready) = trace.all_ready {
                    times.lag.record(summed_up.saturating_duration_since(ready));
                }
            }
        }
        times
    }
}

impl Trace {
    fn in_member(&mut self, member: usize, status: &Status, data: &Data, now: Instant) {
        if self.wish.mark.is_some() && self.wish.mark != data.mark {
            return;
        }
        self.has.insert(member);
        if self.has.len() >= self.wish.members {
            self.arrived.get_or_insert(now);
        }
        if self
            .wish
            .ready
            .is_some_and(|(each, _)| status.observed_generation > 0 && status.ready_replicas >= each)
        {
            self.ready.insert(member);
            if self.ready.len() >= self.wish.members {
                self.all_ready.get_or_insert(now);
            }
        }
    }
}

/// A watch that goes on until this is dropped.
pub struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What begins later is seen. A watch that ends is opened again, and then tells of everything that is there.
pub fn watch(traces: &Arc<Traces>, endpoint: &Endpoint, witness: Witness, kind: Kind) -> Watch {
    let (traces, endpoint) = (traces.clone(), endpoint.clone());
    Watch(tokio::spawn(async move {
        loop {
            // One that cannot be opened is that of a hub which is down because it is restarted.
            if let Ok((_connection, body)) = open(&endpoint, witness, kind).await {
                let ended = follow(&traces, body, witness, kind).await;
                eprintln!("  a watch of {kind:?}s at {witness:?} has ended, and is opened again: {ended:?}");
                traces.state.lock().reopened += 1;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }))
}

async fn open(endpoint: &Endpoint, witness: Witness, kind: Kind) -> Result<(Connection, Incoming)> {
    // Only copies carry the label; in the hub everything is looked at.
    let selector = match witness {
        Witness::Hub => "",
        Witness::Member(_) => "&labelSelector=hanse.io%2Fworkspace",
    };
    let uri = endpoint.uri(&format!("{}?watch=true{selector}", kind.everywhere()))?;
    let mut connection = endpoint.connect().await?;
    let body = connection.open(client::get(uri)).await?.into_body();
    Ok((connection, body))
}

async fn follow(traces: &Traces, mut body: Incoming, witness: Witness, kind: Kind) -> Result<()> {
    let mut rest: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        rest.extend_from_slice(&data);
        let mut begin = 0;
        while let Some(length) = memchr::memchr(b'\n', &rest[begin..]) {
            traces.see(witness, kind, &rest[begin..begin + length])?;
            begin += length + 1;
        }
        rest.drain(..begin);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn see(traces: &Traces, witness: Witness, ready: u64) {
        let line = format!(
            r#"{{"type":"MODIFIED","object":{{"metadata":{{"name":"a","generation":1}},"spec":{{}},
            "status":{{"observedGeneration":1,"readyReplicas":{ready}}}}}}}"#
        );
        traces.see(witness, Kind::Deployment, line.as_bytes()).unwrap();
    }

    #[test]
    fn an_object_has_arrived_with_its_last_member_and_is_done_with_its_sum() {
        let traces = Traces::default();
        let began = Instant::now();
        traces.expect(Kind::Deployment, "a", Wish { members: 2, ready: Some((3, 6)), mark: None });
        see(&traces, Witness::Member(0), 3);
        see(&traces, Witness::Member(0), 3);
        assert_eq!((traces.under_way(), traces.state.lock().open), (1, 1), "one has it twice");
        see(&traces, Witness::Member(1), 0);
        see(&traces, Witness::Hub, 3);
        assert_eq!((traces.under_way(), traces.state.lock().open), (0, 1), "it is there, and not ready");
        see(&traces, Witness::Member(1), 3);
        see(&traces, Witness::Hub, 6);
        assert_eq!(traces.state.lock().open, 0);
        let times = traces.times(began);
        assert_eq!((times.arrived.len(), times.summed_up.len(), times.lag.len()), (1, 1, 1));
    }

    #[test]
    fn only_what_was_written_last_counts() {
        let traces = Traces::default();
        let see = |mark: &str| {
            let line = format!(
                r#"{{"type":"ADDED","object":{{"metadata":{{"name":"a"}},"data":{{"mark":"{mark}"}}}}}}"#
            );
            traces.see(Witness::Member(0), Kind::ConfigMap, line.as_bytes()).unwrap();
        };
        let wish = Wish { members: 1, ready: None, mark: Some("2".into()) };
        traces.expect(Kind::ConfigMap, "a", wish);
        see("1");
        assert_eq!(traces.under_way(), 1);
        see("2");
        assert_eq!(traces.under_way(), 0);
    }
}
