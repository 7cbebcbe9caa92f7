//! Whose turn it is: how the requests of all workspaces share what one process can do at once.
//!
//! ```text
//!   request ──> flows: which schema, level and flow? ──> scheduler: admit · wait · refuse ──> answered, seat given back
//!               (of its workspace, read once)            (pure; one for the process)
//! ```
//!
//! Platform admins and probes of the server's health pass by. Everybody else takes a seat, whatever the workspace's own
//! schemas say: they divide what the workspace may hold, and cannot make it more.

pub mod defaults;
mod flows;
mod scheduler;

use std::{
    sync::{Arc, LazyLock, OnceLock},
    time::Duration,
};

use http::HeaderValue;
use machinery::{
    Object, Revision,
    resource::Tree,
    status::{Reason, Status},
};
use parking_lot::Mutex;
use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};
use store::{Collection, Key, WorkspaceId};
use tokio::sync::oneshot;

use crate::{
    metrics::{
        Counted, ExecutionLabels, FlowLabels, FlowMetrics, PriorityLabels, RejectionLabels, WaitLabels,
    },
    rbac::Attributes,
    recent::Recent,
    space::Space,
    user::User,
};
use flows::Flows;
use scheduler::{Decision, LevelId, Refusal, Request, Scheduler, Seat, TenantId, Ticket, Woken};

/// A list is worth a seat for each so many objects, up to a limit.
const OBJECTS_PER_SEAT: usize = 100;
const MAX_LIST_SEATS: usize = 10;

/// So many of a workspace's schemas and levels count, in the order of their names, as long as they are not larger in
/// all: every request is compared with them before it has a seat. Those that must be there count beside them.
const MAX_SCHEMAS: usize = 256;
const MAX_LEVELS: usize = 64;
const MAX_BYTES: usize = 256 * 1024;

type Notice = oneshot::Sender<Seat>;

/// Decides for all workspaces.
pub struct Fairness {
    env: env::Env,
    /// `None`: there is no limit.
    scheduler: Option<Mutex<Scheduler<Notice>>>,
    /// How long a request may wait.
    patience: Duration,
    /// Who is forgotten has nobody let in or waiting, and begins anew.
    spaces: Recent<Arc<SpaceFlows>>,
    /// Held while a workspace is taken in, so that it is one tenant.
    taking_in: Mutex<()>,
    schemas: Collection,
    levels: Collection,
    metrics: FlowMetrics,
}

/// What is known of one workspace.
struct SpaceFlows {
    /// When its schemas and levels had changed last.
    at: [Revision; 2],
    flows: Arc<Flows>,
    tenant: TenantId,
    /// For each level of `flows`.
    levels: Vec<LevelId>,
    /// For each schema of `flows`.
    schemas: Vec<Tracked>,
}

/// A schema with what is told of it.
struct Tracked {
    /// Found out when the first request asks.
    counting: OnceLock<Counting>,
    labels: FlowLabels,
    dispatched: Counter,
    executing: Gauge,
    executing_seats: Gauge,
    executions: Histogram,
    watch_starts: Histogram,
}

/// What a request was counted under: the answer's headers tell.
#[derive(Clone, Debug)]
pub struct Counting {
    pub schema_uid: HeaderValue,
    pub level_uid: HeaderValue,
    /// Before its turn came.
    pub waited: Duration,
}

/// A seat that is given back when dropped.
pub struct Permit {
    fairness: Arc<Fairness>,
    seat: Option<Seat>,
    began: Duration,
    is_watch: bool,
    known: Arc<SpaceFlows>,
    /// Which schema of those.
    at: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        if let Some(tracked) = self.known.schemas.get(self.at) {
            tracked.executing.dec();
            tracked.executing_seats.dec_by(i64::from(seat.width()));
            let took = self.fairness.env.clock.elapsed().saturating_sub(self.began);
            let timing = if self.is_watch { &tracked.watch_starts } else { &tracked.executions };
            timing.observe(took.as_secs_f64());
        }
        self.fairness.give_back(seat);
    }
}

/// Workspaces that have not changed them share what they have from the start.
static DEFAULT_FLOWS: LazyLock<Arc<Flows>> = LazyLock::new(|| {
    let (schemas, levels): (Vec<Tree>, Vec<Tree>) =
        (defaults::schemas().collect(), defaults::levels().collect());
    Arc::new(Flows::read(&schemas, &levels))
});

impl Fairness {
    /// `total` seats; 0: no limit.
    pub fn new(env: env::Env, total: u32, patience: Duration, metrics: FlowMetrics) -> Arc<Fairness> {
        if total > 0 {
            let limits = || DEFAULT_FLOWS.levels().iter().filter_map(|it| Some((it, it.limits?.shares)));
            let all: u32 = limits().map(|(_, shares)| shares).sum();
            for (level, shares) in limits() {
                let labels = PriorityLabels { priority_level: defaults::known_name(&level.name) };
                let nominal = Scheduler::<Notice>::nominal(total, shares, all);
                metrics.nominal.get_or_create(&labels).set(i64::from(nominal));
            }
        }
        Arc::new(Fairness {
            env,
            scheduler: (total > 0).then(|| Mutex::new(Scheduler::new(total))),
            patience,
            spaces: Recent::default(),
            taking_in: Mutex::default(),
            schemas: Collection::new(defaults::GROUP, "flowschemas"),
            levels: Collection::new(defaults::GROUP, "prioritylevelconfigurations"),
            metrics,
        })
    }

    /// Lets a request pass, now or when it is its turn. The permit is to be held while it is worked on. `is_admin`: it
    /// is a platform admin's own, not that of somebody who acts as one.
    pub async fn enter(
        self: &Arc<Self>,
        space: &Space,
        user: &User,
        is_admin: bool,
        request: &Attributes<'_>,
        counting: &mut Option<Counting>,
    ) -> Result<Option<Permit>, Status> {
        let Some(scheduler) = &self.scheduler else { return Ok(None) };
        if stays_open(request) {
            return Ok(None);
        }
        let known = self.flows_of(space, scheduler);
        let at = match is_admin {
            true => known.flows.exempt(),
            false => known.flows.classify(user, request),
        };
        let (Some(schema), Some(tracked)) = (known.flows.schemas().get(at), known.schemas.get(at)) else {
            return Ok(None);
        };
        let uids = || self.counting(space, &known.flows, schema);
        *counting = Some(tracked.counting.get_or_init(uids).clone());
        if is_admin || is_probe(request) {
            tracked.dispatched.inc();
            return Ok(None);
        }
        let Some(level) = known.levels.get(schema.level) else { return Ok(None) };
        let width = width(space, request);
        let wanted = Request { tenant: known.tenant, level: *level, flow: schema.flow(user, request), width };
        let seat = match self.ask(scheduler, &wanted) {
            Asked::Admitted(seat) => seat,
            Asked::Waits(waiting) => {
                let (waited, seat) = self.wait(waiting, tracked).await;
                if let Some(counting) = counting {
                    counting.waited = waited;
                }
                seat?
            }
            Asked::Refused(why) => return Err(self.refuse(tracked, why)),
        };
        tracked.dispatched.inc();
        let began = self.env.clock.elapsed();
        tracked.executing.inc();
        tracked.executing_seats.inc_by(i64::from(seat.width()));
        let is_watch = matches!(request, Attributes::Resource { verb: "watch", .. });
        Ok(Some(Permit { fairness: self.clone(), seat: Some(seat), began, is_watch, known, at }))
    }

    fn ask(self: &Arc<Self>, scheduler: &Mutex<Scheduler<Notice>>, request: &Request) -> Asked {
        let now = self.env.clock.elapsed();
        let mut receiver = None;
        let mut scheduler = scheduler.lock();
        let decision = scheduler.arrive(request, now, || {
            let (sender, waiting) = oneshot::channel();
            receiver = Some(waiting);
            sender
        });
        match (decision, receiver) {
            (Decision::Admit(seat), _) => Asked::Admitted(seat),
            (Decision::Wait(ticket), Some(receiver)) => {
                let woken = scheduler.catch_up(now);
                drop(scheduler);
                self.notify(woken);
                Asked::Waits(Waiting { fairness: self.clone(), ticket: Some(ticket), receiver })
            }
            (Decision::Wait(_), None) => Asked::Refused(Refusal::QueueFull),
            (Decision::Reject(why), _) => Asked::Refused(why),
        }
    }

    /// How long it waited, and what for.
    async fn wait(&self, mut waiting: Waiting, tracked: &Tracked) -> (Duration, Result<Seat, Status>) {
        let _in_queue = Counted::new(&self.metrics.in_queue.get_or_create(&tracked.labels));
        let began = self.env.clock.elapsed();
        let timer = self.env.clock.sleep(self.patience);
        let seat = tokio::select! {
            seat = &mut waiting.receiver => seat.ok(),
            () = timer => None,
        };
        let waited = self.env.clock.elapsed().saturating_sub(began);
        let FlowLabels { priority_level, flow_schema } = tracked.labels;
        let execute = if seat.is_some() { "true" } else { "false" };
        let labels = WaitLabels { priority_level, flow_schema, execute };
        self.metrics.waits.get_or_create(&labels).observe(waited.as_secs_f64());
        match seat {
            Some(seat) => {
                waiting.ticket = None;
                (waited, Ok(seat))
            }
            None => (waited, Err(self.refuse(tracked, Refusal::TimeOut))),
        }
    }

    fn refuse(&self, tracked: &Tracked, why: Refusal) -> Status {
        let FlowLabels { priority_level, flow_schema } = tracked.labels;
        let labels = RejectionLabels { priority_level, flow_schema, reason: why.as_str() };
        self.metrics.rejected.get_or_create(&labels).inc();
        Status::new(Reason::TooManyRequests, "Too many requests, please try again later.").retry_after(1)
    }

    fn give_back(&self, seat: Seat) {
        let Some(scheduler) = &self.scheduler else { return };
        let now = self.env.clock.elapsed();
        let woken = scheduler.lock().finish(seat, now);
        self.notify(woken);
    }

    /// Tells those whose turn it is. Who is gone gives its seat to the next.
    fn notify(&self, mut woken: Woken<Notice>) {
        while let Some((notice, seat)) = woken.pop() {
            if let (Err(seat), Some(scheduler)) = (notice.send(seat), &self.scheduler) {
                woken.extend(scheduler.lock().finish(seat, self.env.clock.elapsed()));
            }
        }
    }

    fn flows_of(&self, space: &Space, scheduler: &Mutex<Scheduler<Notice>>) -> Arc<SpaceFlows> {
        // Read before computing: a change in between makes the next request compute again.
        let at = [space.last_change(&self.schemas), space.last_change(&self.levels)];
        if let Some(known) = self.spaces.get(space.id()).filter(|known| known.at == at) {
            return known;
        }
        let flows = self.read(space, at);
        let schemas = flows.schemas().iter().map(|it| self.track(&flows, it)).collect();
        let alone = self.taking_in.lock();
        let before = self.spaces.get(space.id());
        if let Some(known) = before.as_ref().filter(|known| known.at == at) {
            return known.clone();
        }
        let (tenant, levels, woken) = {
            let mut scheduler = scheduler.lock();
            let (tenant, levels) = scheduler.configure(before.map(|known| known.tenant), flows.levels());
            (tenant, levels, scheduler.catch_up(self.env.clock.elapsed()))
        };
        let known = Arc::new(SpaceFlows { at, flows, tenant, levels, schemas });
        self.remember(space, &known, scheduler);
        drop(alone);
        self.notify(woken);
        known
    }

    /// Nobody who is about to ask for a seat, holds one or waits for one is forgotten: it would be two tenants for a
    /// while.
    fn remember(&self, space: &Space, known: &Arc<SpaceFlows>, scheduler: &Mutex<Scheduler<Notice>>) {
        let may_go =
            |known: &Arc<SpaceFlows>| Arc::strong_count(known) == 1 && scheduler.lock().is_idle(known.tenant);
        for gone in self.spaces.insert_and_forget(space.id(), known.clone(), may_go) {
            scheduler.lock().forget(gone.tenant);
        }
    }

    fn read(&self, space: &Space, at: [Revision; 2]) -> Arc<Flows> {
        if at == [Revision::ZERO; 2] {
            return DEFAULT_FLOWS.clone();
        }
        let levels = first_of(space, &self.levels, MAX_LEVELS);
        Arc::new(Flows::read(&first_of(space, &self.schemas, MAX_SCHEMAS), &levels))
    }

    fn counting(&self, space: &Space, flows: &Flows, schema: &flows::Schema) -> Counting {
        let uid = |collection: &Collection, name: &str| {
            let key = Key { collection: collection.clone(), item: store::ItemKey::new("", name) };
            let uid = space.get(&key).map(|object| object.head.uid.to_string()).unwrap_or_default();
            HeaderValue::try_from(uid).unwrap_or(HeaderValue::from_static(""))
        };
        Counting {
            schema_uid: uid(&self.schemas, &schema.name),
            level_uid: uid(&self.levels, flows.level_name(schema)),
            waited: Duration::ZERO,
        }
    }

    fn track(&self, flows: &Flows, schema: &flows::Schema) -> Tracked {
        let labels = FlowLabels {
            priority_level: defaults::known_name(flows.level_name(schema)),
            flow_schema: defaults::known_name(&schema.name),
        };
        // Shown before anybody has waited.
        drop(self.metrics.in_queue.get_or_create(&labels));
        let FlowLabels { priority_level, flow_schema } = labels;
        let waits = WaitLabels { priority_level, flow_schema, execute: "true" };
        drop(self.metrics.waits.get_or_create(&waits));
        let execution = |r#type| {
            let labels = ExecutionLabels { priority_level, flow_schema, r#type };
            self.metrics.executions.get_or_create(&labels).clone()
        };
        Tracked {
            counting: OnceLock::new(),
            dispatched: self.metrics.dispatched.get_or_create(&labels).clone(),
            executing: self.metrics.executing.get_or_create(&labels).clone(),
            executing_seats: self.metrics.executing_seats.get_or_create(&labels).clone(),
            executions: execution("regular"),
            watch_starts: execution("watch"),
            labels,
        }
    }

    pub fn forget(&self, workspace: &WorkspaceId) {
        let known = self.spaces.forget(workspace);
        if let (Some(known), Some(scheduler)) = (known, &self.scheduler) {
            scheduler.lock().forget(known.tenant);
        }
    }
}

/// The first objects of a collection that are not too many, nor too large together.
fn first_of(space: &Space, collection: &Collection, most: usize) -> Vec<Tree> {
    let mut left = MAX_BYTES;
    let listing = space.latest(collection);
    let mut fitting = |object: &Object| {
        let rest = left.checked_sub(object.body_slice().len());
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let fit = listing.iter(None, None).take(most).filter(|(_, object)| fitting(object));
    fit.filter_map(|(_, object)| object.tree().ok()).collect()
}

enum Asked {
    Admitted(Seat),
    Waits(Waiting),
    Refused(Refusal),
}

/// A place in a queue that is given up when dropped.
struct Waiting {
    fairness: Arc<Fairness>,
    ticket: Option<Ticket>,
    receiver: oneshot::Receiver<Seat>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let (Some(ticket), Some(scheduler)) = (self.ticket.take(), &self.fairness.scheduler) else { return };
        if scheduler.lock().give_up(ticket).is_some() {
            return;
        }
        // It was let in at the last moment: either the seat is here, or whoever brings it finds nobody.
        self.receiver.close();
        if let Ok(seat) = self.receiver.try_recv() {
            self.fairness.give_back(seat);
        }
    }
}

/// Streams to and from pods last as long as people look at them; a watch counts while it begins.
fn stays_open(request: &Attributes<'_>) -> bool {
    let Attributes::Resource { subresource, .. } = request else { return false };
    matches!(*subresource, "attach" | "exec" | "log" | "portforward" | "proxy")
}

/// Whether the server is well must be answered when it is not.
fn is_probe(request: &Attributes<'_>) -> bool {
    let Attributes::NonResource { path, .. } = request else { return false };
    let root = path.strip_prefix('/').and_then(|path| path.split('/').next());
    matches!(root, Some("healthz" | "livez" | "readyz"))
}

/// How many seats a request is worth: long lists are more work.
fn width(space: &Space, request: &Attributes<'_>) -> u32 {
    let Attributes::Resource { verb: "list", group, resource, name: "", .. } = *request else { return 1 };
    let listing = space.store().list(space.id(), &Collection::new(group, resource), None);
    let count = listing.map_or(0, |listing| listing.len());
    (count / OBJECTS_PER_SEAT).clamp(1, MAX_LIST_SEATS) as u32
}
