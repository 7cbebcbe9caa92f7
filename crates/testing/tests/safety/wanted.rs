//! What the hub's own objects say of where their copies are to be, at every moment; and the judgement of deletions.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use serde_json::Value;
use server::hub::default_id;
use store::Key;

use crate::history::{History, Note, Side};

/// A deletion may have been under way for so long when it stopped being right: a request takes no longer than this.
const UNDER_WAY: Duration = Duration::from_secs(20);

/// What users write, by group and plural.
pub const KINDS: [(&str, &str); 5] =
    [("", "configmaps"), ("apps", "deployments"), ("apps", "statefulsets"), ("batch", "jobs"), ("", "pods")];

/// Where an object is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// Its user does not want it any more, or never did.
    Nowhere,
    /// Hanse may choose.
    Anywhere,
    In(BTreeSet<String>),
    /// It follows others, which are in these for certain.
    With(BTreeSet<String>),
    /// As long as it lives.
    Everywhere,
}

type Objects = BTreeMap<(String, String, String), Value>;

/// The objects of the hub's workspace at some moment.
#[derive(Default)]
pub struct Hub {
    /// By plural, namespace and name.
    pub objects: Objects,
}

fn is_users(key: &Key) -> bool {
    let (group, plural) = key.collection.parts();
    KINDS.contains(&(group, plural))
        || (group, plural) == ("", "namespaces")
        || (group, plural) == (api::GROUP, api::placement::PLURAL)
}

fn names(text: &str) -> BTreeSet<String> {
    text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

fn annotated(object: &Value) -> Option<BTreeSet<String>> {
    object["metadata"]["annotations"]["hanse.io/clusters"].as_str().map(names)
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

impl Hub {
    pub fn put(&mut self, key: &Key, object: Option<&machinery::Object>) {
        if !is_users(key) {
            return;
        }
        let (_, plural) = key.collection.parts();
        let place = (plural.to_owned(), key.item.namespace().to_owned(), key.item.name().to_owned());
        match object.and_then(|object| object.tree().ok()) {
            Some(tree) => drop(self.objects.insert(place, Value::Object(tree))),
            None => drop(self.objects.remove(&place)),
        }
    }

    fn namespace(&self, name: &str) -> Option<&Value> {
        self.objects.get(&("namespaces".to_owned(), String::new(), name.to_owned()))
    }

    /// What a Placement says of everything in a namespace: there is one at most.
    fn policy(&self, namespace: &str) -> Option<BTreeSet<String>> {
        let all = self.objects.iter().filter(|((plural, ..), _)| plural == api::placement::PLURAL);
        let selects = |policy: &Value| policy["spec"]["select"][0]["namespaces"][0] == namespace;
        let policy = all.map(|(_, policy)| policy).find(|it| selects(it) && !is_deleting(it))?;
        let names = policy["spec"]["clusters"]["names"].as_array()?.iter().filter_map(Value::as_str);
        Some(names.map(str::to_owned).collect())
    }

    pub fn place_of(&self, place: &(String, String, String), object: &Value) -> Where {
        if is_deleting(object) {
            return Where::Nowhere;
        }
        if place.0 == "namespaces" {
            return Where::Everywhere;
        }
        let Some(namespace) = self.namespace(&place.1).filter(|it| !is_deleting(it)) else {
            return Where::Nowhere;
        };
        if place.0 == "configmaps" {
            // An annotation of the namespace is about those that it follows.
            let said = annotated(object).or_else(|| self.policy(&place.1));
            return said.map_or_else(|| Where::With(self.leaders(&place.1)), Where::In);
        }
        let said = annotated(object).or_else(|| annotated(namespace)).or_else(|| self.policy(&place.1));
        said.map_or(Where::Anywhere, Where::In)
    }

    /// Where there are workloads of a namespace for certain.
    fn leaders(&self, namespace: &str) -> BTreeSet<String> {
        let workloads = self.placed().filter(|(place, _)| place.1 == namespace && place.0 != "configmaps");
        let places = workloads.filter_map(|(place, object)| match self.place_of(place, object) {
            Where::In(clusters) if clusters.len() == 1 => Some(clusters),
            _ => None,
        });
        places.flatten().collect()
    }

    /// What is placed at all.
    pub fn placed(&self) -> impl Iterator<Item = (&(String, String, String), &Value)> {
        let stays = |place: &(String, String, String)| {
            place.0 == api::placement::PLURAL || place.2 == "kube-root-ca.crt"
        };
        self.objects.iter().filter(move |(place, _)| !stays(place))
    }

    fn all(&self) -> HashMap<String, Where> {
        self.placed().map(|(place, object)| (uid(object).to_owned(), self.place_of(place, object))).collect()
    }
}

/// Of which object of the hub it is a copy; `None`: it is none.
pub fn source(object: &machinery::Object) -> Option<String> {
    object.head.label(api::WORKSPACE_LABEL)?;
    let tree = object.tree().ok()?;
    Some(tree.get("metadata")?["annotations"][api::SOURCE_ANNOTATION].as_str()?.to_owned())
}

#[derive(Default)]
struct Judge {
    hub: Hub,
    /// Since when each is to be where, in order.
    wanted: HashMap<String, Vec<(Duration, Where)>>,
    /// Where there is a copy that is not on its way out, by its source.
    copies: HashMap<String, BTreeSet<String>>,
    /// Where there ever was one.
    ever: HashMap<String, BTreeSet<String>>,
    by_hand: HashSet<String>,
    verdicts: Vec<String>,
}

/// Every deletion of a copy that nobody asked for.
pub fn wrong_deletions(history: &History) -> Vec<String> {
    let mut judge = Judge::default();
    history.read(|notes| {
        for (time, note) in notes {
            match note {
                Note::Begins(objects) => {
                    judge.hub.objects.clear();
                    objects.iter().for_each(|(key, object)| judge.hub.put(key, Some(object)));
                    judge.note(*time);
                }
                Note::Changed(Side::Hub, event)
                    if event.workspace == default_id() && is_users(&event.key) =>
                {
                    judge.hub.put(&event.key, event.after().map(|it| &**it));
                    judge.note(*time);
                }
                Note::Changed(Side::Hub, _) => {}
                Note::Changed(Side::Member(name), event) => judge.member(*time, name, event),
                Note::ByHand(uid) => drop(judge.by_hand.insert(uid.clone())),
            }
        }
    });
    judge.verdicts
}

impl Judge {
    fn note(&mut self, time: Duration) {
        let now = self.hub.all();
        for uid in self.wanted.keys().filter(|uid| !now.contains_key(*uid)).cloned().collect::<Vec<_>>() {
            self.since(time, uid, Where::Nowhere);
        }
        for (uid, place) in now {
            self.since(time, uid, place);
        }
    }

    fn since(&mut self, time: Duration, uid: String, place: Where) {
        let known = self.wanted.entry(uid).or_default();
        if known.last().is_none_or(|(_, last)| *last != place) {
            known.push((time, place));
        }
    }

    fn member(&mut self, time: Duration, name: &str, event: &store::Event) {
        let live = |object: &&std::sync::Arc<machinery::Object>| !object.head.deleting;
        let was = event.old.as_ref().filter(live).and_then(|old| source(old));
        let is = event.after().filter(live).and_then(|new| source(new));
        if let Some(source) = &is {
            self.copies.entry(source.clone()).or_default().insert(name.to_owned());
            self.ever.entry(source.clone()).or_default().insert(name.to_owned());
        }
        let Some(source) = was.filter(|was| is.as_ref() != Some(was)) else { return };
        self.copies.entry(source.clone()).or_default().remove(name);
        if event.after().is_some_and(|after| !after.head.deleting) {
            // It is there still, as a copy of another or of none.
            return;
        }
        if self.by_hand.contains(event.object().head.uid.as_str()) {
            return;
        }
        let is_whole = event.key.collection.parts().1 == "configmaps";
        if let Some(why) = self.is_wrong(time, name, &source, is_whole) {
            let what = format!("{:?} in {name} at {time:?}, a copy of {source}: {why}", event.key);
            self.verdicts.push(what);
        }
    }

    /// `is_whole`: each cluster that is named has all of it.
    fn is_wrong(&self, time: Duration, name: &str, source: &str, is_whole: bool) -> Option<String> {
        let Some(known) = self.wanted.get(source) else {
            return Some("its source was never there".to_owned());
        };
        let begin = time.saturating_sub(UNDER_WAY);
        let first = known.iter().rposition(|(since, _)| *since <= begin).unwrap_or(0);
        let lately: Vec<&Where> = known[first..].iter().map(|(_, place)| place).collect();
        let others = self.copies.get(source).map_or(0, BTreeSet::len);
        let ever = self.ever.get(source);
        for place in &lately {
            match place {
                Where::Nowhere => return None,
                Where::Anywhere if others > 0 => return None,
                Where::In(clusters) if !clusters.contains(name) => {
                    let arrived = ever.is_some_and(|ever| clusters.iter().any(|it| ever.contains(it)));
                    return (!arrived && lately.len() == 1)
                        .then(|| format!("it was to move to {clusters:?}, and never was there"));
                }
                Where::With(clusters) if !clusters.contains(name) => return None,
                // One of them has it, or each has a share.
                Where::In(clusters) if !is_whole && clusters.len() > 1 && others > 0 => return None,
                Where::Anywhere | Where::Everywhere | Where::In(_) | Where::With(_) => {}
            }
        }
        Some(format!("it was to be {lately:?}"))
    }
}
