//! What only those who run the server ask for: backups, room on its disk, profiles, what it logs.
//!
//! All of it tells of every workspace or changes something for all of them, so it is root's alone: whoever may use it is
//! decided by root's roles, and in another workspace nobody may.

pub mod clusters;
mod logging;
mod profiles;

use std::{sync::Arc, sync::atomic::AtomicU64};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderValue, Method, Response, StatusCode, header};
use machinery::status::Status;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use serde_json::json;
use store::{WorkspaceId, backup::Export};

use crate::{
    body::{self, Body},
    hub::{Hub, root_id, store_refusal},
    options::Query,
    space::Space,
    trace::Traces,
};

pub use logging::{LogFilter, LogLevel};
pub use profiles::{CpuProfiler, HeapProfiler, Profiling};

/// Everything that is stored, as a file that `hanse restore` reads.
const BACKUP: &str = "/operate/v1/backup";
/// Forgets history, of all workspaces or of `?workspace=`.
const COMPACT: &str = "/operate/v1/compact";
/// What is logged; named as upstream names it.
const LOG_LEVEL: &str = "/debug/flags/v";
const RUNTIME: &str = "/debug/runtime";

/// Whether `path` is of the server as a whole, and so of root.
pub fn is_of_server(path: &str) -> bool {
    path.starts_with("/operate/") || path.starts_with("/debug/")
}

/// What the program that the server runs in can do for operators.
#[derive(Clone, Default)]
pub struct Tools {
    pub log: Option<Arc<dyn LogFilter>>,
    pub cpu: Option<Arc<dyn CpuProfiler>>,
    pub heap: Option<Arc<dyn HeapProfiler>>,
    pub traces: Option<Arc<dyn Traces>>,
    pub clusters: Option<Arc<dyn clusters::SimulatedClusters>>,
}

impl std::fmt::Debug for Tools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tools { log, cpu, heap, traces, clusters } = self;
        let there = [log.is_some(), cpu.is_some(), heap.is_some(), traces.is_some(), clusters.is_some()];
        write!(f, "Tools(log, cpu, heap, traces, clusters: {there:?})")
    }
}

/// What operators do, counted.
#[derive(Clone, Default)]
pub struct OperateMetrics {
    backups: Counter<u64, AtomicU64>,
    backup_bytes: Counter<u64, AtomicU64>,
    last_backup: Gauge,
    compactions: Counter<u64, AtomicU64>,
}

impl OperateMetrics {
    pub fn register(registry: &mut Registry) -> OperateMetrics {
        let metrics = OperateMetrics::default();
        registry.register("hanse_backups", "Backups that were sent whole", metrics.backups.clone());
        registry.register("hanse_backup_bytes", "Bytes of backups sent", metrics.backup_bytes.clone());
        registry.register(
            "hanse_last_backup_timestamp_seconds",
            "When the last backup was sent whole; 0: none since the start",
            metrics.last_backup.clone(),
        );
        registry.register(
            "hanse_compactions",
            "Times that somebody had history forgotten",
            metrics.compactions.clone(),
        );
        metrics
    }
}

/// What is kept between requests.
pub struct Operating {
    pub log: LogLevel,
    profiling: Profiling,
}

impl Operating {
    pub fn new(tools: Tools) -> Operating {
        Operating { log: LogLevel::new(tools.log), profiling: Profiling::new(tools.cpu, tools.heap) }
    }
}

/// `None` if the path is none of these. `body` is what came with a `PUT`.
pub async fn answer(
    hub: &Arc<Hub>,
    space: &Space,
    method: &Method,
    path: &str,
    query: &Query,
    body: impl AsyncFnOnce() -> Result<Bytes, Status>,
) -> Option<Result<Response<Body>, Status>> {
    if !is_of_server(path) {
        return None;
    }
    if *space.id() != root_id() {
        let why = format!(
            "{path} is about the whole server, and served in the workspace root only: ask for /clusters/root{path}"
        );
        return Some(Err(Status::forbidden_path(&why)));
    }
    if let Some(answer) = clusters::answer(hub, method, path, query).await {
        return Some(answer);
    }
    let reads = matches!(*method, Method::GET | Method::HEAD);
    Some(match path.strip_suffix('/').unwrap_or(path) {
        BACKUP if *method == Method::GET => backup(hub).await,
        COMPACT if *method == Method::POST => compact(hub, query).await,
        LOG_LEVEL if reads => hub.operating.log.show(),
        LOG_LEVEL if *method == Method::PUT => match body().await {
            Ok(level) => hub.operating.log.set(hub, &level, query),
            Err(status) => Err(status),
        },
        RUNTIME if reads => Ok(body::json(StatusCode::OK, &runtime())),
        "/debug/pprof" if reads => Ok(hub.operating.profiling.index()),
        "/debug/pprof/profile" if *method == Method::GET => hub.operating.profiling.cpu(hub, query).await,
        "/debug/pprof/heap" if *method == Method::GET => hub.operating.profiling.heap().await,
        BACKUP | COMPACT | LOG_LEVEL | RUNTIME => Err(Status::method_not_allowed()),
        "/debug/pprof" | "/debug/pprof/profile" | "/debug/pprof/heap" => Err(Status::method_not_allowed()),
        _ => return None,
    })
}

/// Bytes that are made as the socket takes them.
fn binary(body: Body, name: &'static str) -> Response<Body> {
    let mut response = body::encoded(StatusCode::OK, body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static(name));
    response
}

/// Until this server has seen whatever any server acknowledged before.
async fn level(hub: &Hub) -> Result<(), Status> {
    const AT_ONCE: usize = 64;
    let behind: Vec<_> = hub.store.workspaces().iter().filter_map(|id| hub.store.level(id)).collect();
    let mut levelled = stream::iter(behind).buffer_unordered(AT_ONCE);
    while let Some(outcome) = levelled.next().await {
        outcome.map_err(store_refusal)?;
    }
    Ok(())
}

async fn backup(hub: &Arc<Hub>) -> Result<Response<Body>, Status> {
    tracing::info!("a backup begins");
    level(hub).await?;
    let export = Export::of(&hub.env, &*hub.store);
    let pieces = stream::unfold((hub.clone(), export), |(hub, mut export)| async move {
        let metrics = &hub.metrics.operate;
        let Some(piece) = export.next() else {
            metrics.backups.inc();
            metrics.last_backup.set(hub.now().as_second());
            return None;
        };
        metrics.backup_bytes.inc_by(piece.len() as u64);
        Some((Bytes::from(piece), (hub, export)))
    });
    Ok(binary(Body::stream(pieces), "attachment; filename=\"hanse.backup\""))
}

async fn compact(hub: &Hub, query: &Query) -> Result<Response<Body>, Status> {
    let workspaces: Vec<WorkspaceId> = match query.get("workspace").filter(|name| !name.is_empty()) {
        Some(name) => vec![hub.space(name)?.id().clone()],
        None => hub.store.workspaces(),
    };
    let count = workspaces.len();
    tracing::info!(workspaces = count, "history is being forgotten");
    let freed = hub.store.forget_history(workspaces).await.map_err(store_refusal)?;
    hub.metrics.operate.compactions.inc();
    Ok(body::json(StatusCode::OK, &json!({"workspaces": count, "freedBytes": freed})))
}

/// How busy the threads are that answer requests.
fn runtime() -> serde_json::Value {
    let metrics = tokio::runtime::Handle::current().metrics();
    let workers: Vec<_> = (0..metrics.num_workers())
        .map(|worker| {
            json!({
                "busySeconds": metrics.worker_total_busy_duration(worker).as_secs_f64(),
                "parks": metrics.worker_park_count(worker),
            })
        })
        .collect();
    json!({
        "tasks": metrics.num_alive_tasks(),
        "queued": metrics.global_queue_depth(),
        "workers": workers,
    })
}
