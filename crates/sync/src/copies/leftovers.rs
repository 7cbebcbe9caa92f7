//! Copies of which the hub knows nothing: kept, because nobody said that they are to go, and listed where the operator of
//! the cluster looks.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    convert::Infallible,
    sync::Arc,
};

use api::assignment::{NAMESPACE_OF_SHARED, name_of};
use compact_str::CompactString;
use serde_json::{Value, json};
use server::space::Space;
use store::{ItemKey, Key, WorkspaceId};

use super::{
    Copies, reporter,
    seen::{Known, Type},
    work::Errand,
};
use crate::{
    client::{Client, Error, get},
    homes,
    reflect::METADATA_LIST,
    session::{News, Session},
};

/// So many are named in a status; the rest is counted.
const NAMED: usize = 20;
/// So many are named in an Event.
const NAMED_IN_EVENT: usize = 5;
/// Of a list with one object.
const MAX_ANSWER: usize = 4 << 20;
/// Of the Event.
const REASON: &str = "Leftovers";

/// Why nobody wants a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// There is no such workspace, or another one of that name.
    WorkspaceGone,
    /// The workspace has no such object.
    ObjectGone,
    /// The object is there, and is not assigned to this cluster.
    NotAssigned,
}

impl Why {
    fn text(self) -> &'static str {
        match self {
            Why::WorkspaceGone => "WorkspaceGone",
            Why::ObjectGone => "ObjectGone",
            Why::NotAssigned => "NotAssigned",
        }
    }
}

/// A copy that nothing is to be done about, as far as the session knows.
struct Unclaimed {
    ty: Type,
    item: ItemKey,
    uid: CompactString,
    workspace: CompactString,
    workspace_id: CompactString,
    source: CompactString,
    /// The namespace that it is of, or is, by the name it has in the workspace.
    namespace: CompactString,
}

/// What is left over in a member.
#[derive(Default)]
pub struct Leftovers {
    /// Those there are, by what they are sorted by.
    listed: BTreeMap<Place, Leftover>,
    /// Since when, by UID.
    since: HashMap<CompactString, String>,
    /// How many were told of, and which of those that were named.
    told: (usize, BTreeSet<CompactString>),
}

type Place = (CompactString, CompactString, CompactString);

struct Leftover {
    api_version: CompactString,
    uid: CompactString,
    workspace: CompactString,
    why: Why,
}

impl Leftovers {
    /// As they were written down last.
    pub fn recalled(status: &Value) -> Leftovers {
        let status = &status["leftovers"];
        let mut recalled = Leftovers::default();
        for item in status["items"].as_array().into_iter().flatten() {
            let text = |key: &str| item[key].as_str().unwrap_or_default();
            recalled.since.insert(text("uid").into(), text("since").to_owned());
            recalled.told.1.insert(text("uid").into());
        }
        recalled.told.0 = status["count"].as_u64().unwrap_or(0) as usize;
        recalled
    }

    /// For the status of the `Cluster`; `None`: there are none.
    pub fn to_json(&self) -> Option<Value> {
        let item = |((namespace, name, resource), it): (&Place, &Leftover)| {
            let mut item = json!({
                "apiVersion": it.api_version, "resource": resource, "name": name, "uid": it.uid,
                "workspace": it.workspace, "reason": it.why.text(), "since": self.since.get(&it.uid),
            });
            if !namespace.is_empty() {
                item["namespace"] = json!(namespace);
            }
            item
        };
        let items: Vec<Value> = self.listed.iter().take(NAMED).map(item).collect();
        (!items.is_empty()).then(|| json!({"count": self.listed.len(), "items": items}))
    }

    /// Takes down what was found now. What is found for the first time may be about to go, or to be wanted: it counts from
    /// the next time on.
    fn note(&mut self, found: Vec<(Unclaimed, Why)>, now: &str) {
        let before = std::mem::take(&mut self.since);
        self.listed.clear();
        for (it, why) in found {
            let place = (it.item.namespace().into(), it.item.name().into(), it.ty.plural);
            if let Some(since) = before.get(&it.uid) {
                self.since.insert(it.uid.clone(), since.clone());
                let (api_version, uid, workspace) = (it.ty.api_version, it.uid, it.workspace);
                self.listed.insert(place, Leftover { api_version, uid, workspace, why });
            } else {
                self.since.insert(it.uid, now.to_owned());
            }
        }
    }

    /// What to tell of those that were not told of yet.
    fn news(&mut self, cluster: &str) -> Option<News> {
        let named: BTreeSet<CompactString> =
            self.listed.values().take(NAMED).map(|it| it.uid.clone()).collect();
        let is_new = self.listed.len() > self.told.0 || !named.is_subset(&self.told.1);
        self.told = (self.listed.len(), named);
        if !is_new {
            return None;
        }
        let name = |((namespace, name, resource), it): (&Place, &Leftover)| match namespace.is_empty() {
            true => format!("{resource} {name} ({})", it.why.text()),
            false => format!("{resource} {namespace}/{name} ({})", it.why.text()),
        };
        let mut names: Vec<String> = self.listed.iter().take(NAMED_IN_EVENT).map(name).collect();
        if self.listed.len() > names.len() {
            names.push(format!("and {} more", self.listed.len() - names.len()));
        }
        let message = format!(
            "{} copies in the cluster are kept though the hub knows nothing of them: {}; see: hanse leftovers {cluster}",
            self.listed.len(),
            names.join(", "),
        );
        Some(News { good: false, reason: REASON, message })
    }
}

impl Copies {
    /// Copies at places that no errand is about. `None`: not everything is known that is looked at.
    fn unclaimed(&self) -> Option<Vec<Unclaimed>> {
        let state = self.state.lock();
        if !state.namespaces.complete || state.types.values().any(|it| it.known == Known::Not) {
            return None;
        }
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        for (ty, of_type) in state.types.iter().filter(|(_, it)| it.known == Known::Listed) {
            for (item, copy) in of_type.unclaimed() {
                let within = if item.namespace().is_empty() { item.name() } else { item.namespace() };
                // A kind may be looked at in two versions.
                if !seen.insert(copy.uid.clone()) {
                    continue;
                }
                found.push(Unclaimed {
                    ty: ty.clone(),
                    item: item.clone(),
                    uid: copy.uid.clone(),
                    workspace: copy.workspace.clone(),
                    workspace_id: copy.workspace_id.clone(),
                    source: copy.source.clone(),
                    namespace: state.namespaces.name_in_workspace(within),
                });
            }
        }
        Some(found)
    }

    /// Whether objects of this kind, in whatever version, are looked at.
    fn is_followed(&self, ty: &Type) -> bool {
        self.state.lock().types.keys().any(|it| it.plural == ty.plural && it.group() == ty.group())
    }

    fn follow(&self, ty: Type) {
        let mut state = self.state.lock();
        if !state.types.contains_key(&ty) {
            state.types.insert(ty.clone(), Default::default());
            state.unfollowed.push(ty);
        }
        drop(state);
        self.work.wake.notify_one();
    }
}

impl Session {
    /// Looks again and again for copies that nobody wants.
    pub async fn look_for_leftovers(self: &Arc<Self>, client: &Client) -> Infallible {
        let mut begun = self.shared.begun.subscribe();
        // Until every Assignment was looked at, nobody knows what is wanted.
        if begun.wait_for(|begun| *begun).await.is_err() {
            return std::future::pending().await;
        }
        let mut looked = BTreeSet::new();
        loop {
            let kinds = self.known.lock().learned.kinds.clone();
            if !kinds.is_subset(&looked) {
                match self.follow_what_has_copies(client, &kinds).await {
                    Ok(()) => looked = kinds,
                    Err(error) => self.recover(client, &error).await,
                }
            }
            let options = &self.shared.options;
            let pause = if self.note_leftovers() { options.heartbeat_every } else { options.retry_after };
            client.env().clock.sleep(pause).await;
        }
    }

    /// Kinds of which there are copies that nothing is assigned of are looked at as well.
    async fn follow_what_has_copies(&self, client: &Client, kinds: &BTreeSet<Type>) -> Result<(), Error> {
        for ty in kinds {
            if self.copies.is_followed(ty) {
                continue;
            }
            let request = get(&format!("{}&limit=1", ty.selected()), METADATA_LIST)?;
            let list: Value = match client.demand(request, MAX_ANSWER).await {
                Ok(whole) => serde_json::from_slice(&whole.bytes).unwrap_or_default(),
                // A kind that may not be looked at has no copies: whoever makes them may.
                Err(error) if matches!(error.code(), Some(403..=405)) => continue,
                Err(error) => return Err(error),
            };
            if list["items"].as_array().is_some_and(|items| !items.is_empty()) {
                self.copies.follow(ty.clone());
            }
        }
        Ok(())
    }

    /// Whether all that is to be looked at was there to be looked at.
    fn note_leftovers(&self) -> bool {
        let Some(unclaimed) = self.copies.unclaimed() else { return false };
        let unwanted = unclaimed.into_iter().filter_map(|it| self.why_unwanted(&it).map(|why| (it, why)));
        let found: Vec<(Unclaimed, Why)> = unwanted.collect();
        let now = self.shared.hub.now_text();
        let mut known = self.known.lock();
        let before = known.leftovers.to_json();
        known.leftovers.note(found, &now);
        if known.leftovers.to_json() != before {
            let news = known.leftovers.news(self.name());
            known.untold.extend(news);
            drop(known);
            self.news.notify_one();
        }
        true
    }

    /// `None`: it is wanted.
    fn why_unwanted(&self, it: &Unclaimed) -> Option<Why> {
        let Some(space) = self.workspace_of(it) else { return Some(Why::WorkspaceGone) };
        let (group, plural) = (it.ty.group(), it.ty.plural.as_str());
        let is_namespace = group.is_empty() && plural == "namespaces";
        let is_shared = !is_namespace && it.item.namespace().is_empty();
        let (within, name) = match is_namespace {
            true => ("", it.namespace.as_str()),
            false if is_shared => ("", it.item.name()),
            false => (it.namespace.as_str(), it.item.name()),
        };
        let of_assignment = if is_shared { NAMESPACE_OF_SHARED } else { it.namespace.as_str() };
        let errand = Errand::new(space.id(), of_assignment, &name_of(group, plural, name));
        let readings = &self.shared.hub.assignments;
        let assignment = space.get(&reporter::key(&errand)).and_then(|it| readings.read(&it).ok());
        let is_assigned = assignment.is_some_and(|assignment| {
            let uid = &self.wanted.borrow().uid;
            assignment.spec.object.uid == it.source
                && assignment.spec.clusters.iter().any(|target| target.uid == *uid)
        });
        if is_assigned {
            return None;
        }
        let object = space.get(&Key::new(group, plural, within, name));
        Some(match object.is_some_and(|object| object.head.uid == it.source) {
            true => Why::NotAssigned,
            false => Why::ObjectGone,
        })
    }

    /// The workspace that a copy says it is of; of others than the platform's own clusters it is none of others.
    fn workspace_of(&self, it: &Unclaimed) -> Option<Space> {
        let space = match it.workspace_id.is_empty() {
            true => self.shared.hub.space(&it.workspace).ok()?,
            false => self.shared.hub.space_by_id(&WorkspaceId(it.workspace_id.clone()))?,
        };
        (*space.id() == self.place.0 || homes::may_choose(&self.place.0)).then_some(space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unclaimed(name: &str) -> (Unclaimed, Why) {
        let it = Unclaimed {
            ty: Type { api_version: "v1".into(), plural: "configmaps".into() },
            item: ItemKey::new("shop", name),
            uid: format!("uid-{name}").into(),
            workspace: "team".into(),
            workspace_id: CompactString::default(),
            source: "source".into(),
            namespace: "shop".into(),
        };
        (it, Why::ObjectGone)
    }

    fn names(leftovers: &Leftovers) -> Vec<String> {
        leftovers.listed.keys().map(|(_, name, _)| name.to_string()).collect()
    }

    #[test]
    fn what_is_seen_twice_counts_and_is_told_of_once() {
        let mut leftovers = Leftovers::default();
        leftovers.note(vec![unclaimed("a")], "1");
        assert!(names(&leftovers).is_empty(), "it may be about to go");
        assert!(leftovers.news("eu-1").is_none());
        leftovers.note(vec![unclaimed("a"), unclaimed("b")], "2");
        assert_eq!(names(&leftovers), ["a"]);
        let status = leftovers.to_json().unwrap();
        assert_eq!((&status["count"], &status["items"][0]["since"]), (&json!(1), &json!("1")));
        let told = leftovers.news("eu-1").unwrap().message;
        assert!(
            told.contains("configmaps shop/a (ObjectGone)") && told.contains("hanse leftovers eu-1"),
            "{told}"
        );
        assert!(leftovers.news("eu-1").is_none());
        leftovers.note(vec![unclaimed("b")], "3");
        assert_eq!(names(&leftovers), ["b"]);
        assert!(leftovers.news("eu-1").is_some(), "it is another one");
        leftovers.note(vec![], "4");
        assert_eq!((leftovers.to_json(), leftovers.news("eu-1").is_some()), (None, false));
    }

    #[test]
    fn a_crowd_is_counted_and_its_first_are_named() {
        let mut leftovers = Leftovers::default();
        let crowd = |at: usize| (0..at).map(|at| unclaimed(&format!("n{at:03}"))).collect::<Vec<_>>();
        leftovers.note(crowd(100), "1");
        leftovers.note(crowd(100), "2");
        let status = leftovers.to_json().unwrap();
        assert_eq!(status["count"], 100);
        assert_eq!(status["items"].as_array().unwrap().len(), NAMED);
        assert_eq!(status["items"][0]["name"], "n000");
        assert!(leftovers.news("eu-1").unwrap().message.contains("and 95 more"));
        // After a restart, nothing of it is news.
        let mut recalled = Leftovers::recalled(&json!({"leftovers": status}));
        recalled.note(crowd(100), "3");
        recalled.note(crowd(100), "4");
        assert_eq!(recalled.to_json().unwrap(), status);
        assert!(recalled.news("eu-1").is_none());
    }
}
