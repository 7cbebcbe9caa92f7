//! Whose request the writer takes next: each workspace in turn, so that one that writes without pause delays the others
//! by one of its commits at a time.

use std::collections::{HashMap, VecDeque};

use tokio::sync::mpsc;

use super::writer::Request;
use crate::WorkspaceId;

/// Whose a request is; what concerns the whole store is nobody's and has its turn like a workspace.
type Place = Option<WorkspaceId>;

/// Requests that wait, in order for each workspace. Histories are independent, so that the order between workspaces
/// means nothing.
#[derive(Default)]
pub(super) struct Turns {
    waiting: HashMap<Place, VecDeque<Request>>,
    /// Everybody in `waiting`, once, by who is next.
    order: VecDeque<Place>,
    /// Nothing more is let in.
    closed: bool,
}

impl Turns {
    /// Lets in what has come.
    pub(super) fn let_in(&mut self, requests: &mut mpsc::Receiver<Request>) {
        while !self.closed
            && let Ok(request) = requests.try_recv()
        {
            self.push(request);
        }
    }

    pub(super) fn push(&mut self, request: Request) {
        let place = request.workspace().cloned();
        let queue = self.waiting.entry(place.clone()).or_default();
        if queue.is_empty() {
            self.order.push_back(place);
        }
        queue.push_back(request);
    }

    /// The next request of whoever is next, who then comes last.
    pub(super) fn pop(&mut self) -> Option<Request> {
        let place = self.order.pop_front()?;
        let queue = self.waiting.get_mut(&place)?;
        let request = queue.pop_front();
        match queue.is_empty() {
            true => drop(self.waiting.remove(&place)),
            false => self.order.push_back(place),
        }
        request
    }

    /// Undoes [`Turns::pop`].
    pub(super) fn put_back(&mut self, request: Request) {
        let place = request.workspace().cloned();
        let queue = self.waiting.entry(place.clone()).or_default();
        if !queue.is_empty() {
            self.order.pop_back();
        }
        queue.push_front(request);
        self.order.push_front(place);
    }

    /// What waits is still done.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use machinery::Revision;
    use tokio::sync::oneshot;

    use super::*;

    /// The revision tells them apart.
    fn mk_request(workspace: &str, number: u64) -> Request {
        let upto = Revision::from_u64(number).unwrap();
        Request::Compact { workspace: WorkspaceId(workspace.into()), upto, reply: oneshot::channel().0 }
    }

    fn name(request: &Request) -> String {
        match request {
            Request::Compact { workspace, upto, .. } => format!("{workspace}{}", upto.as_u64()),
            _ => "other".to_owned(),
        }
    }

    #[test]
    fn workspaces_take_turns_and_each_keeps_its_order() {
        let mut turns = Turns::default();
        for number in 1..=4 {
            turns.push(mk_request("a", number));
        }
        turns.push(mk_request("b", 1));
        turns.push(Request::Snapshot { reply: oneshot::channel().0 });
        turns.push(mk_request("b", 2));
        let mut taken = Vec::new();
        while let Some(request) = turns.pop() {
            taken.push(name(&request));
        }
        assert_eq!(taken, ["a1", "b1", "other", "a2", "b2", "a3", "a4"]);
    }

    #[test]
    fn what_is_put_back_is_next() {
        let mut turns = Turns::default();
        for (workspace, number) in [("a", 1), ("a", 2), ("b", 1), ("c", 1)] {
            turns.push(mk_request(workspace, number));
        }
        for expected in ["a1", "b1", "c1"] {
            let request = turns.pop().unwrap();
            assert_eq!(name(&request), expected);
            turns.put_back(request);
            assert_eq!(name(&turns.pop().unwrap()), expected);
        }
        assert_eq!(name(&turns.pop().unwrap()), "a2");
        assert!(turns.pop().is_none());
    }
}
