//! Jobs that are over go so long after their end as they say, as upstream's controller has it.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use machinery::{Object, resource::Tree, status::Status};
use parking_lot::Mutex;
use serde_json::Value;
use store::{Collection, Key, WorkspaceId};
use tokio::sync::Notify;

use super::{Controllers, queue::Work};
use crate::{
    admission::Notes,
    alarms::Alarms,
    delete::{self, Options, Propagation},
    space::Space,
};

const FIELD: &[u8] = b"ttlSecondsAfterFinished";
/// A sleep when nothing is set.
const LONG: Duration = Duration::from_secs(3600);

/// Jobs that are over, until their time has come.
#[derive(Default)]
pub struct Finished {
    alarms: Mutex<Alarms<(WorkspaceId, Key)>>,
    changed: Notify,
}

impl Finished {
    pub fn forget(&self, workspace: &WorkspaceId) {
        self.alarms.lock().retain(|(of, _)| of != workspace);
    }
}

pub fn observe(controllers: &Controllers, workspace: &WorkspaceId, key: &Key, new: Option<&Object>) {
    if key.collection != Collection::new("batch", "jobs") {
        return;
    }
    let due = new.filter(|job| !job.head.deleting && says(job)).and_then(|job| due(&job.tree().ok()?));
    let finished = &controllers.finished;
    finished.alarms.lock().set(&(workspace.clone(), key.clone()), due);
    if due.is_some() {
        finished.changed.notify_one();
    }
}

/// Most say nothing of it, and none else need be taken apart.
fn says(job: &Object) -> bool {
    job.body_slice().windows(FIELD.len()).any(|window| window == FIELD)
}

/// When a Job is to go; `None`: not yet, or never.
fn due(job: &Tree) -> Option<Timestamp> {
    let seconds = job.get("spec")?.get("ttlSecondsAfterFinished")?.as_i64()?;
    let conditions = job.get("status")?.get("conditions")?.as_array()?;
    let is_end =
        |it: &&Value| matches!(it["type"].as_str(), Some("Complete" | "Failed")) && it["status"] == "True";
    let ended: Timestamp =
        conditions.iter().find(is_end)?.get("lastTransitionTime")?.as_str()?.parse().ok()?;
    ended.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Queues those whose time has come.
pub async fn watch(controllers: Arc<Controllers>) {
    let (hub, finished) = (&controllers.hub, &controllers.finished);
    loop {
        let (ready, next) = {
            let mut alarms = finished.alarms.lock();
            (alarms.due(hub.now()), alarms.next())
        };
        for (workspace, key) in ready {
            controllers.queue.add(Work::Finished(workspace, key));
        }
        let left = next.map(|next| Duration::try_from(next.duration_since(hub.now())).unwrap_or_default());
        tokio::select! {
            () = hub.env.clock.sleep(left.unwrap_or(LONG)) => {}
            () = finished.changed.notified() => {}
        }
    }
}

/// Deletes a Job whose time has come, as it is now; what it owns goes before it.
pub async fn settle(controllers: &Controllers, space: &Space, key: &Key) -> Result<(), Status> {
    let Some(job) = space.get(key).filter(|job| !job.head.deleting) else { return Ok(()) };
    let now = controllers.hub.now();
    if due(&job.tree().map_err(Status::internal)?).is_none_or(|due| due > now) {
        return Ok(());
    }
    let Some(context) = controllers.context_for(space, key) else { return Ok(()) };
    let options = Options {
        propagation: Some(Propagation::Foreground),
        uid: Some(job.head.uid.to_string()),
        revision: Some(job.revision.to_string()),
        ..Options::default()
    };
    match delete::delete_one(&context, key, &options, &mut Notes::default()).await {
        Err(status) if matches!(status.code(), 404 | 409) => {
            // It is another one by now, and is looked at as such.
            observe(controllers, space.id(), key, space.get(key).as_deref());
            Ok(())
        }
        deleted => deleted.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_is_due_so_long_after_its_end_as_it_says() {
        let job = |seconds: Value, kind: &str, status: &str| {
            let condition =
                json!({"type": kind, "status": status, "lastTransitionTime": "2030-01-01T00:00:00Z"});
            let job = json!({
                "spec": {"ttlSecondsAfterFinished": seconds}, "status": {"conditions": [condition]},
            });
            due(job.as_object().unwrap()).map(|due| due.to_string())
        };
        assert_eq!(job(json!(100), "Complete", "True").as_deref(), Some("2030-01-01T00:01:40Z"));
        assert_eq!(job(json!(0), "Failed", "True").as_deref(), Some("2030-01-01T00:00:00Z"));
        for (seconds, kind, status) in [
            (Value::Null, "Complete", "True"),
            (json!(100), "Complete", "False"),
            (json!(100), "SuccessCriteriaMet", "True"),
            (json!(i64::MAX), "Complete", "True"),
        ] {
            assert_eq!(job(seconds.clone(), kind, status), None, "{seconds} {kind} {status}");
        }
    }
}
