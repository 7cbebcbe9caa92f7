//! Where time and memory go, as pprof files.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use env::BoxFuture;
use http::{Response, StatusCode};
use machinery::status::{Reason, Status};

use super::binary;
use crate::{
    body::{self, Body},
    hub::Hub,
    options::Query,
};

/// As long as upstream takes unless told.
const SECONDS: i64 = 30;
const MOST_SECONDS: i64 = 600;

/// Samples what the threads do.
pub trait CpuProfiler: Send + Sync + 'static {
    /// Samples until `over` resolves, and gives the profile in pprof's format. Dropped before, it stops.
    fn profile(&self, over: BoxFuture<'static, ()>) -> BoxFuture<'static, Result<Vec<u8>, String>>;
}

/// Knows which code holds memory.
pub trait HeapProfiler: Send + Sync + 'static {
    /// The profile in pprof's format.
    fn profile(&self) -> BoxFuture<'static, Result<Vec<u8>, String>>;
}

/// Takes one profile at a time.
pub struct Profiling {
    cpu: Option<Arc<dyn CpuProfiler>>,
    heap: Option<Arc<dyn HeapProfiler>>,
    busy: Arc<AtomicBool>,
}

/// Held while a profile is taken, also if whoever wanted it goes away.
struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn not_built(what: &str) -> Status {
    Status::bad_request(format!("this build has no {what} profiler: it is the feature `profiling`"))
}

impl Profiling {
    pub fn new(cpu: Option<Arc<dyn CpuProfiler>>, heap: Option<Arc<dyn HeapProfiler>>) -> Profiling {
        Profiling { cpu, heap, busy: Arc::default() }
    }

    pub fn index(&self) -> Response<Body> {
        let mut text = String::new();
        if self.cpu.is_some() {
            text.push_str("/debug/pprof/profile?seconds=30\n");
        }
        if self.heap.is_some() {
            text.push_str("/debug/pprof/heap\n");
        }
        body::text(StatusCode::OK, text)
    }

    fn turn(&self) -> Result<Turn, Status> {
        match self.busy.swap(true, Ordering::AcqRel) {
            false => Ok(Turn(self.busy.clone())),
            true => {
                let why = "a profile is being taken; only one is at a time";
                Err(Status::new(Reason::TooManyRequests, why).retry_after(10))
            }
        }
    }

    pub async fn cpu(&self, hub: &Hub, query: &Query) -> Result<Response<Body>, Status> {
        let profiler = self.cpu.as_ref().ok_or_else(|| not_built("CPU"))?;
        let seconds = query.number("seconds")?.unwrap_or(SECONDS);
        if !(1..=MOST_SECONDS).contains(&seconds) {
            return Err(Status::bad_request(format!("seconds must be between 1 and {MOST_SECONDS}")));
        }
        let _turn = self.turn()?;
        let over = hub.env.clock.sleep(Duration::from_secs(seconds as u64));
        let profile = profiler.profile(over).await.map_err(Status::internal)?;
        Ok(binary(Body::Whole(Some(profile.into())), "attachment; filename=\"profile\""))
    }

    pub async fn heap(&self) -> Result<Response<Body>, Status> {
        let profiler = self.heap.as_ref().ok_or_else(|| not_built("heap"))?;
        let _turn = self.turn()?;
        let profile = profiler.profile().await.map_err(Status::bad_request)?;
        Ok(binary(Body::Whole(Some(profile.into())), "attachment; filename=\"heap\""))
    }
}
