//! A watch: a stream of its own on the connection to one member.
//!
//! etcd cuts what does not fit one message into several, also in the middle of a transaction; here they become whole
//! again. Nothing is read ahead: a watch that nobody asks holds up no more than its own window.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use env::{BoxFuture, Clock};
use tokio::sync::mpsc;

use super::{
    call::{self, Messages},
    member::Member,
    status::{Failure, Meaning},
    wire::{Header, WatchRequest, WatchResponse},
    without_effect,
};
use crate::{Change, Changes, Error, Revision, Watcher};

/// A member that is still catching up for us does not answer when asked how far it is; it is asked again after so long.
const ASK_AGAIN: Duration = Duration::from_millis(250);

pub(crate) struct Watching {
    clock: Arc<dyn Clock>,
    member: Arc<Member>,
    requests: mpsc::Sender<Bytes>,
    messages: Messages,
    /// What may not be all of its transaction.
    held: Vec<Change>,
    from: Revision,
    /// With which it was accepted.
    pub(crate) header: Option<Header>,
    /// The member was at least at this revision.
    seen: Revision,
    /// It was asked how far it is, and is asked again then.
    ask_again: Option<Duration>,
    over: Option<Error>,
}

impl Watching {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        member: Arc<Member>,
        requests: mpsc::Sender<Bytes>,
        messages: Messages,
        from: Revision,
    ) -> Self {
        Self {
            clock,
            member,
            requests,
            messages,
            held: Vec::new(),
            from,
            header: None,
            seen: 0,
            ask_again: None,
            over: None,
        }
    }

    /// Waits until the member has taken it.
    pub(crate) async fn accepted(mut self) -> Result<Self, Failure> {
        let ended = || Failure::Unanswered("the watch ended".into());
        let first: WatchResponse = call::decoded(&self.messages.next().await?.ok_or_else(ended)?)?;
        if first.canceled {
            return Err(Failure::in_reason(&first.cancel_reason));
        }
        if !first.created {
            return Err(Failure::Unanswered("a watch that was never accepted".into()));
        }
        self.header = first.header;
        self.seen = first.header.map_or(0, |header| header.revision);
        Ok(self)
    }

    async fn tell(&mut self) -> Result<Changes, Error> {
        if let Some(error) = &self.over {
            return Err(error.clone());
        }
        loop {
            let message = match self.ask_again {
                None => self.messages.next().await,
                Some(at) => {
                    let wait = self.clock.sleep(at.saturating_sub(self.clock.elapsed()));
                    tokio::select! {
                        biased;
                        message = self.messages.next() => message,
                        () = wait => match self.unasked() {
                            Some(changes) => return Ok(changes),
                            None => continue,
                        },
                    }
                }
            };
            let ended = || Failure::Unanswered("the watch ended".into());
            let told = message.and_then(|message| call::decoded(&message.ok_or_else(ended)?));
            match told.map_err(|failure| self.failed(&failure)).and_then(|told| self.take(told)) {
                Ok(Some(changes)) => return Ok(changes),
                Ok(None) => {}
                Err(error) => {
                    self.over = Some(error.clone());
                    return Err(error);
                }
            }
        }
    }

    /// The member did not say how far it is. It does not before it has come to where the watch begins: until then there
    /// is nothing to tell.
    fn unasked(&mut self) -> Option<Changes> {
        if self.from > self.seen {
            self.ask_again = None;
            return Some(Changes { revision: self.seen, events: Vec::new() });
        }
        self.ask_progress();
        None
    }

    fn failed(&self, failure: &Failure) -> Error {
        if failure.meaning() != Meaning::Final {
            self.member.has_failed(self.clock.elapsed());
        }
        without_effect(failure.error())
    }

    fn take(&mut self, told: WatchResponse) -> Result<Option<Changes>, Error> {
        if told.canceled {
            return Err(match told.compact_revision {
                0 => self.failed(&Failure::in_reason(&told.cancel_reason)),
                compacted => Error::Compacted(compacted),
            });
        }
        let revision = told.header.map_or(0, |header| header.revision);
        self.seen = self.seen.max(revision);
        if told.created {
            return Ok(None);
        }
        if told.events.is_empty() && self.held.is_empty() {
            self.ask_again = None;
            return Ok(Some(Changes { revision, events: Vec::new() }));
        }
        self.held.extend(told.events.into_iter().filter_map(|event| event.change()));
        Ok(self.whole(told.fragment))
    }

    /// The transactions of which all has come.
    fn whole(&mut self, more_follows: bool) -> Option<Changes> {
        let last = self.held.last()?.revision();
        let whole = match more_follows {
            true => self.held.partition_point(|change| change.revision() < last),
            false => self.held.len(),
        };
        let rest = self.held.split_off(whole);
        let events = std::mem::replace(&mut self.held, rest);
        // The header tells how far the member is, which may be further than it has told.
        Some(Changes { revision: events.last()?.revision(), events })
    }
}

impl Watcher for Watching {
    fn next(&mut self) -> BoxFuture<'_, Result<Changes, Error>> {
        Box::pin(self.tell())
    }

    fn ask_progress(&mut self) {
        // If nobody listens any more, the stream has ended and `next` says so; if too many wait, it is asked again.
        let _ = self.requests.try_send(call::framed(&WatchRequest::progress()));
        self.ask_again = Some(self.clock.elapsed() + ASK_AGAIN);
    }
}
