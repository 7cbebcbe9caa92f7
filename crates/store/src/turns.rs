//! Whose request the writer takes next: each workspace in turn, so that one that writes without pause delays the others
//! by one of its commits at a time.

use std::collections::{HashMap, VecDeque};

use tokio::sync::mpsc;

use crate::WorkspaceId;

/// What waits for a writer.
pub(crate) trait Waits {
    /// Whose it is; `None`: it concerns the whole store, is nobody's, and has its turn like a workspace.
    fn workspace(&self) -> Option<&WorkspaceId>;
}

type Place = Option<WorkspaceId>;

/// Requests that wait, in order for each workspace. Histories are independent, so that the order between workspaces
/// means nothing.
pub(crate) struct Turns<R> {
    waiting: HashMap<Place, VecDeque<R>>,
    /// Everybody in `waiting`, once, by who is next.
    order: VecDeque<Place>,
    /// Nothing more is let in.
    closed: bool,
}

impl<R> Default for Turns<R> {
    fn default() -> Self {
        Self { waiting: HashMap::new(), order: VecDeque::new(), closed: false }
    }
}

impl<R: Waits> Turns<R> {
    /// Lets in what has come.
    pub(crate) fn let_in(&mut self, requests: &mut mpsc::Receiver<R>) {
        while !self.closed
            && let Ok(request) = requests.try_recv()
        {
            self.push(request);
        }
    }

    pub(crate) fn push(&mut self, request: R) {
        let place = request.workspace().cloned();
        let queue = self.waiting.entry(place.clone()).or_default();
        if queue.is_empty() {
            self.order.push_back(place);
        }
        queue.push_back(request);
    }

    /// The next request of whoever is next, who then comes last.
    pub(crate) fn pop(&mut self) -> Option<R> {
        let place = self.order.pop_front()?;
        let queue = self.waiting.get_mut(&place)?;
        let request = queue.pop_front();
        match queue.is_empty() {
            true => drop(self.waiting.remove(&place)),
            false => self.order.push_back(place),
        }
        request
    }

    /// Undoes [`Turns::pop`], if nothing was let in since.
    pub(crate) fn put_back(&mut self, request: R) {
        let place = request.workspace().cloned();
        let queue = self.waiting.entry(place.clone()).or_default();
        if !queue.is_empty() {
            self.order.pop_back();
        }
        queue.push_front(request);
        self.order.push_front(place);
    }

    /// Those that wait in vain; the others keep their places.
    pub(crate) fn take_out(&mut self, mut in_vain: impl FnMut(&R) -> bool) -> Vec<R> {
        let mut taken = Vec::new();
        for queue in self.waiting.values_mut() {
            let (out, stay): (Vec<R>, Vec<R>) = queue.drain(..).partition(&mut in_vain);
            queue.extend(stay);
            taken.extend(out);
        }
        self.waiting.retain(|_, queue| !queue.is_empty());
        self.order.retain(|place| self.waiting.contains_key(place));
        taken
    }

    /// What waits is still done.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Request(Place, u64);

    impl Waits for Request {
        fn workspace(&self) -> Option<&WorkspaceId> {
            self.0.as_ref()
        }
    }

    fn mk_request(workspace: &str, number: u64) -> Request {
        Request(Some(WorkspaceId(workspace.into())), number)
    }

    fn name(Request(place, number): &Request) -> String {
        place.as_ref().map_or_else(|| "other".to_owned(), |workspace| format!("{workspace}{number}"))
    }

    fn rest(mut turns: Turns<Request>) -> Vec<String> {
        std::iter::from_fn(|| turns.pop()).map(|request| name(&request)).collect()
    }

    #[test]
    fn workspaces_take_turns_and_each_keeps_its_order() {
        let mut turns = Turns::default();
        for number in 1..=4 {
            turns.push(mk_request("a", number));
        }
        turns.push(mk_request("b", 1));
        turns.push(Request(None, 0));
        turns.push(mk_request("b", 2));
        assert_eq!(rest(turns), ["a1", "b1", "other", "a2", "b2", "a3", "a4"]);
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

    #[test]
    fn who_waits_in_vain_leaves_the_others_where_they_are() {
        let mut turns = Turns::default();
        for (workspace, number) in [("a", 1), ("b", 1), ("a", 2), ("c", 2), ("a", 1), ("c", 3)] {
            turns.push(mk_request(workspace, number));
        }
        let mut taken: Vec<String> =
            turns.take_out(|Request(_, number)| *number == 1).iter().map(name).collect();
        taken.sort();
        assert_eq!(taken, ["a1", "a1", "b1"]);
        assert_eq!(rest(turns), ["a2", "c2", "c3"]);
    }
}
