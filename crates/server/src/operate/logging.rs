//! What is logged, changed while the server runs, for good or for a while.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Response, StatusCode};
use machinery::status::Status;

use crate::{
    body::{self, Body},
    hub::Hub,
    options::Query,
};

/// Longer filters than anybody writes.
const MAX_FILTER: usize = 4096;
/// A level for a while is for minutes; a day is more than anybody means.
const LONGEST: u64 = 24 * 60 * 60;

/// Decides which lines are logged.
pub trait LogFilter: Send + Sync + 'static {
    /// The filter in force, as it was given.
    fn current(&self) -> String;
    /// Puts another in force, or says what is wrong with it.
    fn set(&self, filter: &str) -> Result<(), String>;
}

/// The filter, and who may put an earlier one back.
pub struct LogLevel {
    filter: Option<Arc<dyn LogFilter>>,
    /// How often it was changed: whoever changed it for a while puts the old one back only if nobody came after.
    changes: Arc<AtomicU64>,
}

impl LogLevel {
    pub fn new(filter: Option<Arc<dyn LogFilter>>) -> LogLevel {
        LogLevel { filter, changes: Arc::default() }
    }

    fn filter(&self) -> Result<&Arc<dyn LogFilter>, Status> {
        let none = "this server's log cannot be changed while it runs";
        self.filter.as_ref().ok_or_else(|| Status::bad_request(none))
    }

    pub fn show(&self) -> Result<Response<Body>, Status> {
        Ok(body::text(StatusCode::OK, format!("{}\n", self.filter()?.current())))
    }

    pub fn set(&self, hub: &Hub, wanted: &Bytes, query: &Query) -> Result<Response<Body>, Status> {
        let filter = self.filter()?;
        let wanted = std::str::from_utf8(wanted).ok().map(str::trim).filter(|it| it.len() <= MAX_FILTER);
        let wanted = wanted.map(|wanted| verbosity(wanted).unwrap_or(wanted)).filter(|it| !it.is_empty());
        let wanted = wanted.ok_or_else(|| Status::bad_request("the body must be a level, or a filter"))?;
        let seconds = query.number("seconds")?.unwrap_or(0);
        let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds <= LONGEST);
        let seconds = seconds.ok_or_else(|| Status::bad_request("seconds must be between 0 and 86400"))?;
        let before = filter.current();
        filter.set(wanted).map_err(|why| Status::bad_request(format!("{wanted:?} is no filter: {why}")))?;
        let change = self.changes.fetch_add(1, Ordering::AcqRel) + 1;
        tracing::warn!(filter = wanted, before, "what is logged has changed");
        if seconds == 0 {
            return Ok(body::text(StatusCode::OK, format!("logging {wanted}\n")));
        }
        let (filter, changes) = (filter.clone(), self.changes.clone());
        let over = hub.env.clock.sleep(Duration::from_secs(seconds));
        let text = format!("logging {wanted} for {seconds} s, then {before} again\n");
        hub.env.tasks.spawn(Box::pin(async move {
            over.await;
            if changes.load(Ordering::Acquire) == change && filter.set(&before).is_ok() {
                tracing::warn!(filter = before, "what is logged is as before");
            }
        }));
        Ok(body::text(StatusCode::OK, text))
    }
}

/// kube-apiserver's numbers, by what they show there.
fn verbosity(number: &str) -> Option<&'static str> {
    Some(match number.parse::<u8>().ok()? {
        0 | 1 => "warn",
        2 | 3 => "info",
        4 | 5 => "debug",
        _ => "trace",
    })
}
