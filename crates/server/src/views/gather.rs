//! What sessions tell of their members before anybody looks.
//!
//! A pod that starts is told of five times within a second, and each time it costs as much to show. So what is told is
//! gathered, the newest of each object, and shown when somebody reads, and after a while in any case: see
//! [`View::level`](super::view::View::level). Whoever watches is told of each step.

use std::{collections::HashMap, mem, sync::Weak, time::Duration};

use compact_str::CompactString;
use store::ItemKey;
use tokio::sync::watch;

use super::{Inner, Sighting, kinds::Kind};
use crate::hub;

/// So long what was told waits at most.
const AT_LATEST: Duration = Duration::from_secs(1);
/// Whoever reads waits for all that was gathered: so much is soon shown.
const MOST: usize = 256;
const MOST_BYTES: usize = 2 << 20;

/// What was told, oldest first.
#[derive(Default)]
pub(super) struct Gathered {
    told: Vec<Told>,
    /// Where the newest state of an object is among them, by where its cluster has it.
    newest: HashMap<(CompactString, Kind, ItemKey), usize>,
    bytes: usize,
}

/// Something that a session told.
pub(super) struct Told {
    pub cluster: CompactString,
    pub kind: Kind,
    pub object: Sighting,
    /// It is gone, and was last so.
    pub is_gone: bool,
}

impl Gathered {
    /// Takes the place of what was told of the same object, if that is all that was told of it.
    pub fn add(&mut self, told: Told) {
        let Some(own) = told.object.own.clone() else {
            // It may be any of them.
            self.newest.clear();
            return self.push(told);
        };
        let place = (told.cluster.clone(), told.kind, own);
        if told.is_gone {
            // What comes after it is another object.
            self.newest.remove(&place);
            return self.push(told);
        }
        match self.newest.get(&place).and_then(|at| self.told.get_mut(*at)) {
            Some(before) => {
                self.bytes = self.bytes + told.object.object.len() - before.object.object.len();
                *before = told;
            }
            None => {
                self.newest.insert(place, self.told.len());
                self.push(told);
            }
        }
    }

    fn push(&mut self, told: Told) {
        self.bytes += told.object.object.len();
        self.told.push(told);
    }

    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.told.len() >= MOST || self.bytes >= MOST_BYTES
    }

    pub fn take(&mut self) -> Vec<Told> {
        self.newest.clear();
        self.bytes = 0;
        mem::take(&mut self.told)
    }

    /// What was told of a cluster does not count.
    pub fn forget(&mut self, cluster: &str) {
        let rest = self.take().into_iter().filter(|told| told.cluster != cluster);
        rest.for_each(|told| self.add(told));
    }
}

/// Shows what was gathered, where nobody asks.
pub(super) async fn show(inner: Weak<Inner>, mut stopping: watch::Receiver<bool>) {
    loop {
        let Some((told, clock)) = inner.upgrade().map(|it| (it.told.clone(), it.env.clock.clone())) else {
            return;
        };
        let turn = async {
            told.notified().await;
            clock.sleep(AT_LATEST).await;
        };
        tokio::select! {
            () = turn => {}
            () = hub::stopped(&mut stopping) => return,
        }
        let Some(inner) = inner.upgrade() else { return };
        for view in inner.views.read().values().cloned().collect::<Vec<_>>() {
            if view.has_gathered() {
                drop(view.level());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, content: &'static str, is_gone: bool) -> Told {
        let own = (!name.is_empty()).then(|| ItemKey::new("shop", name));
        let object = Sighting { object: content.into(), own, namespace: None };
        Told { cluster: "eu-1".into(), kind: Kind::Pods, object, is_gone }
    }

    fn contents(gathered: &mut Gathered) -> Vec<String> {
        let text = |told: Told| String::from_utf8(told.object.object.to_vec()).unwrap();
        gathered.take().into_iter().map(text).collect()
    }

    #[test]
    fn the_newest_of_an_object_counts_and_an_end_is_an_end() {
        let mut gathered = Gathered::default();
        for (name, content, is_gone) in [
            ("a", "a1", false),
            ("b", "b1", false),
            ("a", "a2", false),
            ("a", "a gone", true),
            ("a", "a3", false),
            ("a", "a4", false),
            ("", "any", false),
            ("b", "b2", false),
        ] {
            gathered.add(told(name, content, is_gone));
        }
        assert_eq!(contents(&mut gathered), ["a2", "b1", "a gone", "a4", "any", "b2"]);
        assert!(gathered.is_empty() && gathered.bytes == 0);
    }

    #[test]
    fn what_a_cluster_told_can_be_forgotten() {
        let mut gathered = Gathered::default();
        gathered.add(told("a", "a1", false));
        gathered.add(Told { cluster: "eu-2".into(), ..told("a", "other", false) });
        gathered.forget("eu-1");
        gathered.add(Told { cluster: "eu-2".into(), ..told("a", "newer", false) });
        assert_eq!((gathered.bytes, contents(&mut gathered)), (5, vec!["newer".to_owned()]));
    }

    #[test]
    fn there_is_never_much_to_wait_for() {
        let mut gathered = Gathered::default();
        for number in 0..MOST {
            assert!(!gathered.is_full());
            gathered.add(told(&format!("pod-{number}"), "x", false));
        }
        assert!(gathered.is_full());
    }
}
