//! A watch on a simulated cluster: reads on in what the revisions did, whenever it is asked.

use std::time::Duration;

use env::BoxFuture;

use super::{Faults, SimClient, mvcc::Reader};
use crate::{Change, Changes, Error, Keys, Revision, Watcher};

/// How many revisions etcd tells at once, at most.
const MOST_AT_ONCE: usize = 1000;

pub(super) struct SimWatcher {
    client: SimClient,
    keys: Keys,
    /// `None`: it is over.
    reader: Option<Reader>,
    /// Of this revision deletions are no longer told.
    worn: Revision,
    progress_asked: bool,
    /// The breaks of the link when it began.
    breaks: u64,
    /// What comes next is on its way until then.
    arrives: Option<Duration>,
    over: Option<Error>,
}

/// What a look at the cluster found.
enum Found {
    Changes(Changes),
    /// Nothing yet; look again then at the latest, or when something stirs.
    Nothing(Option<Duration>),
}

impl SimWatcher {
    pub(super) fn new(client: SimClient, keys: Keys, from: Revision) -> Self {
        let breaks = client.link().0.breaks;
        let mut state = client.sim.state();
        let worn = state.mvcc.compacted();
        let (reader, over) = match state.mvcc.read_from(from) {
            Ok(reader) => (Some(reader), None),
            Err(error) => (None, Some(error)),
        };
        drop(state);
        Self { client, keys, reader, worn, progress_asked: false, breaks, arrives: None, over }
    }

    fn look(&mut self, reader: Reader) -> Result<Found, Error> {
        let sim = self.client.sim.clone();
        let now = sim.now();
        let (link, timeout) = self.client.link();
        if link.breaks != self.breaks || link.is_broken(now, timeout) {
            return Err(Error::Unreachable("the connection was closed".into()));
        }
        if let Some(since) = link.cut_since {
            return Ok(Found::Nothing(Some(since + timeout)));
        }
        let mut state = sim.state();
        let mvcc = &mut state.mvcc;
        let unread = mvcc.unread(reader, &self.keys);
        if unread == 0 && !self.progress_asked {
            return Ok(Found::Nothing(mvcc.next_expiry()));
        }
        let random = &sim.shared.random;
        let arrives = *self.arrives.get_or_insert_with(|| now + link.faults.wait(random));
        if now < arrives {
            return Ok(Found::Nothing(Some(arrives)));
        }
        self.arrives = None;
        if link.faults.ends_watch(random) {
            return Err(Error::Unreachable("the stream was reset".into()));
        }
        if unread == 0 {
            self.progress_asked = false;
            return Ok(Found::Changes(Changes { revision: mvcc.revision(), events: Vec::new() }));
        }
        let most = match link.faults {
            Faults::NONE => MOST_AT_ONCE,
            // How much comes at once is up to the wire.
            _ => 1 + random.below(unread as u64) as usize,
        };
        let mut events = mvcc.read(reader, &self.keys, most.min(MOST_AT_ONCE));
        let revision = events.last().map_or_else(|| mvcc.revision(), Change::revision);
        // A compaction keeps what the keys were at its revision, thus also the puts that it made, but no trace of what
        // it deleted.
        events.retain(|change| !matches!(change, Change::Deleted(_, at) if *at <= self.worn));
        Ok(Found::Changes(Changes { revision, events }))
    }

    async fn tell(&mut self) -> Result<Changes, Error> {
        let shared = self.client.sim.shared.clone();
        let mut stirred = shared.stirred.subscribe();
        loop {
            let again = match (self.reader, &self.over) {
                (Some(reader), None) => match self.look(reader) {
                    Ok(Found::Changes(changes)) => return Ok(changes),
                    Ok(Found::Nothing(again)) => again,
                    Err(error) => {
                        self.over = Some(error.clone());
                        return Err(error);
                    }
                },
                (_, over) => {
                    let ended = || Error::Unreachable("the watch is over".into());
                    return Err(over.clone().unwrap_or_else(ended));
                }
            };
            let Some(again) = again else {
                let _ = stirred.changed().await;
                continue;
            };
            tokio::select! {
                biased;
                _ = stirred.changed() => {}
                () = shared.env.clock.sleep(again.saturating_sub(shared.env.clock.elapsed())) => {}
            }
        }
    }
}

impl Drop for SimWatcher {
    fn drop(&mut self) {
        if let Some(reader) = self.reader {
            self.client.sim.state().mvcc.stop_reading(reader);
        }
    }
}

impl Watcher for SimWatcher {
    fn next(&mut self) -> BoxFuture<'_, Result<Changes, Error>> {
        Box::pin(self.tell())
    }

    fn ask_progress(&mut self) {
        self.progress_asked = true;
    }
}
