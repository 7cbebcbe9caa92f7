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

/// What is divided anew is so when those that take part are heard of: none of them is away for longer, and the hub is not
/// either.
const DIVIDED_ANEW: Duration = Duration::from_secs(180);

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
    /// The hub has forgotten it, and nobody has said that it is to go: where it is.
    Left,
}

/// What is wanted of an object from some moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    place: Where,
    parts: Parts,
}

/// How an object is shared among the clusters that are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    /// Each has all of it.
    Each,
    /// One of them has all of it.
    One,
    /// Each has some of so many, unless there are too few.
    Divided(u64),
}

fn parts(plural: &str, object: &Value) -> Parts {
    match plural {
        "deployments" => Parts::Divided(object["spec"]["replicas"].as_u64().unwrap_or(1)),
        "statefulsets" | "jobs" | "pods" => Parts::One,
        _ => Parts::Each,
    }
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

    fn all(&self) -> HashMap<String, Wish> {
        let wish = |place: &(String, String, String), object: &Value| Wish {
            place: self.place_of(place, object),
            parts: parts(&place.0, object),
        };
        self.placed().map(|(place, object)| (uid(object).to_owned(), wish(place, object))).collect()
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
    /// Since when what is wanted of each, in order.
    wanted: HashMap<String, Vec<(Duration, Wish)>>,
    /// Where there is a copy that is not on its way out, by its source.
    copies: HashMap<String, BTreeSet<String>>,
    /// Where there was one that went: when, and whether somebody deleted it by hand.
    went: HashMap<(String, String), (Duration, bool)>,
    by_hand: HashSet<String>,
    /// Namespaces of members that are on their way out: whatever is in them goes, too, and their own end was judged.
    ending: HashSet<(String, String)>,
    /// The hub that begins next has forgotten things.
    is_restored: bool,
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
                    judge.is_restored = false;
                }
                Note::Changed(Side::Hub, event)
                    if event.workspace == default_id() && is_users(&event.key) =>
                {
                    judge.hub.put(&event.key, event.after().map(|it| &**it));
                    judge.note(*time);
                }
                Note::Changed(Side::Hub, _) => {}
                Note::Changed(Side::Member(name), event) => judge.member(*time, name, event),
                Note::Restored => judge.is_restored = true,
                Note::ByHand(uid) => drop(judge.by_hand.insert(uid.clone())),
            }
        }
    });
    judge.verdicts
}

impl Judge {
    fn note(&mut self, time: Duration) {
        let now = self.hub.all();
        let gone: Vec<String> = self.wanted.keys().filter(|uid| !now.contains_key(*uid)).cloned().collect();
        for uid in gone {
            let last = self.wanted.get(&uid).and_then(|known| known.last()).map(|(_, wish)| &wish.place);
            let place = match last {
                Some(Where::Left) => continue,
                // Those that had gone before are not wanted either way, and may be left over, too.
                _ if self.is_restored => Where::Left,
                _ => Where::Nowhere,
            };
            self.since(time, uid, Wish { place, parts: Parts::Each });
        }
        for (uid, wish) in now {
            self.since(time, uid, wish);
        }
    }

    fn since(&mut self, time: Duration, uid: String, wish: Wish) {
        let known = self.wanted.entry(uid).or_default();
        if known.last().is_none_or(|(_, last)| *last != wish) {
            known.push((time, wish));
        }
    }

    fn member(&mut self, time: Duration, name: &str, event: &store::Event) {
        if event.key.collection.parts() == ("", "namespaces") {
            let place = (name.to_owned(), event.key.item.name().to_owned());
            match event.after() {
                Some(after) if after.head.deleting => drop(self.ending.insert(place)),
                Some(_) => drop(self.ending.remove(&place)),
                None => {}
            }
        }
        let live = |object: &&std::sync::Arc<machinery::Object>| !object.head.deleting;
        let was = event.old.as_ref().filter(live).and_then(|old| source(old));
        let is = event.after().filter(live).and_then(|new| source(new));
        if let Some(source) = &is {
            self.copies.entry(source.clone()).or_default().insert(name.to_owned());
        }
        let Some(source) = was.filter(|was| is.as_ref() != Some(was)) else { return };
        self.copies.entry(source.clone()).or_default().remove(name);
        let by_hand = self.by_hand.contains(event.object().head.uid.as_str());
        self.went.insert((source.clone(), name.to_owned()), (time, by_hand));
        if event.after().is_some_and(|after| !after.head.deleting) {
            // It is there still, as a copy of another or of none.
            return;
        }
        let place = (name.to_owned(), event.key.item.namespace().to_owned());
        if by_hand || self.ending.contains(&place) {
            return;
        }
        if let Some(why) = self.is_wrong(time, name, &source) {
            let what = format!("{:?} in {name} at {time:?}, a copy of {source}: {why}", event.key);
            self.verdicts.push(what);
        }
    }

    /// What was wanted of it at any time since then, in order.
    fn lately(&self, source: &str, begin: Duration) -> Option<&[(Duration, Wish)]> {
        let known = self.wanted.get(source)?;
        let first = known.iter().rposition(|(since, _)| *since <= begin).unwrap_or(0);
        Some(&known[first..])
    }

    /// Whether a cluster has a copy, or had when a request was sent that is answered by `time`; what somebody deleted by
    /// hand after it was to be there (`since`) had arrived, too.
    fn is_there(&self, source: &str, cluster: &str, time: Duration, since: Duration) -> bool {
        let has = self.copies.get(source).is_some_and(|copies| copies.contains(cluster));
        let went = self.went.get(&(source.to_owned(), cluster.to_owned()));
        has || went.is_some_and(|(went, by_hand)| *went + UNDER_WAY >= time || (*by_hand && *went >= since))
    }

    fn is_wrong(&self, time: Duration, name: &str, source: &str) -> Option<String> {
        let Some(lately) = self.lately(source, time.saturating_sub(UNDER_WAY)) else {
            return Some("its source was never there".to_owned());
        };
        let others = self.copies.get(source).map_or(0, BTreeSet::len);
        let mut never_arrived = None;
        for (since, wish) in lately {
            match &wish.place {
                Where::Nowhere => return None,
                Where::Anywhere if others > 0 => return None,
                Where::With(clusters) if !clusters.contains(name) => return None,
                Where::In(clusters) if !clusters.contains(name) => {
                    if clusters.iter().any(|it| self.is_there(source, it, time, *since)) {
                        return None;
                    }
                    never_arrived = Some(format!("it was to move to {clusters:?}, and is not there"));
                }
                Where::In(clusters) if others > 0 && self.may_lose(time, source, clusters) => return None,
                Where::Anywhere | Where::Everywhere | Where::In(_) | Where::With(_) | Where::Left => {}
            }
        }
        never_arrived.or_else(|| Some(format!("it was to be {lately:?}")))
    }

    /// Whether one of the clusters that are named may be left without a copy, while others have one: there are fewer parts
    /// than clusters, or it was another number of parts or clusters a while ago.
    fn may_lose(&self, time: Duration, source: &str, clusters: &BTreeSet<String>) -> bool {
        let lately = self.lately(source, time.saturating_sub(DIVIDED_ANEW)).unwrap_or_default();
        let places: Vec<&Where> = lately.iter().map(|(_, wish)| &wish.place).collect();
        let is_moved = places.windows(2).any(|pair| pair[0] != pair[1]);
        lately.iter().any(|(_, wish)| match wish.parts {
            Parts::Each => false,
            Parts::One => is_moved,
            Parts::Divided(replicas) => is_moved || replicas < clusters.len() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use machinery::Draft;
    use serde_json::json;
    use store::{Change, Commit, Expect, Store, WorkspaceId, Write, memory::MemoryStore};

    use super::*;
    use crate::history::Recorder;

    const LATER: Duration = Duration::from_secs(600);

    struct World {
        history: Arc<History>,
        hub: MemoryStore,
        members: Vec<(&'static str, MemoryStore)>,
        recorders: Vec<Recorder>,
    }

    fn write(store: &MemoryStore, workspace: &WorkspaceId, key: Key, change: Change) {
        let commit =
            Commit { guards: Vec::new(), writes: vec![Write { key, expect: Expect::Anything, change }] };
        store.commit_now(workspace, &commit).expect("it is written");
    }

    fn put(tree: &Value) -> Change {
        let draft = tree.as_object().map(Draft::encode).expect("an object").expect("a valid object");
        Change::Put { draft, expires: None }
    }

    fn web_key() -> Key {
        Key::new("apps", "deployments", "shop", "web")
    }

    impl World {
        /// With a Deployment of so many replicas, in a namespace.
        fn new(replicas: u64, clusters: &str) -> World {
            let (history, hub) = (History::new(), MemoryStore::new());
            let members = vec![("a", MemoryStore::new()), ("b", MemoryStore::new())];
            let mut recorders = vec![history.follow(hub.feed(), Side::Hub)];
            recorders
                .extend(members.iter().map(|(name, store)| history.follow(store.feed(), Side::Member(name))));
            let world = World { history, hub, members, recorders };
            let shop =
                json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop", "uid": "n"}});
            write(&world.hub, &default_id(), Key::new("", "namespaces", "", "shop"), put(&shop));
            world.wants(replicas, clusters);
            world
        }

        fn wants(&self, replicas: u64, clusters: &str) {
            let metadata = json!({
                "name": "web", "namespace": "shop", "uid": "u", "annotations": {"hanse.io/clusters": clusters},
            });
            let web = json!({
                "kind": "Deployment", "apiVersion": "apps/v1", "metadata": metadata, "spec": {"replicas": replicas},
            });
            write(&self.hub, &default_id(), web_key(), put(&web));
        }

        fn member(&self, name: &str) -> &MemoryStore {
            self.members.iter().find(|it| it.0 == name).map(|it| &it.1).expect("it is one of them")
        }

        fn arrives(&self, name: &str) {
            let metadata = json!({
                "name": "web", "namespace": "shop", "uid": format!("copy-{name}"),
                "labels": {api::WORKSPACE_LABEL: "default"}, "annotations": {api::SOURCE_ANNOTATION: "u"},
            });
            let copy = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": metadata});
            write(self.member(name), &WorkspaceId(name.into()), web_key(), put(&copy));
        }

        fn goes(&self, name: &str) {
            write(self.member(name), &WorkspaceId(name.into()), web_key(), Change::Remove);
        }

        /// So long nothing happens; whoever records has heard of everything before.
        async fn passes(&self, time: Duration) {
            tokio::time::sleep(time).await;
        }

        async fn verdicts(self) -> usize {
            for recorder in self.recorders {
                recorder.end().await.expect("it ends");
            }
            self.history.is_whole().expect("nothing is missing");
            wrong_deletions(&self.history).len()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_goes_only_where_there_are_too_few() {
        for (replicas, expected) in [(6, 1), (1, 0)] {
            let world = World::new(replicas, "a,b");
            world.arrives("a");
            world.arrives("b");
            world.passes(LATER).await;
            world.goes("a");
            assert_eq!(world.verdicts().await, expected, "{replicas} replicas");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_moves_is_there_before_it_leaves() {
        for (arrives, pause, expected) in
            [(true, Duration::from_secs(5), 0), (false, Duration::from_secs(5), 1), (false, LATER, 1)]
        {
            let world = World::new(3, "a");
            world.arrives("a");
            world.passes(LATER).await;
            world.wants(3, "b");
            if arrives {
                world.arrives("b");
            }
            world.passes(pause).await;
            world.goes("a");
            assert_eq!(world.verdicts().await, expected, "{arrives} {pause:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_had_been_there_long_ago_has_not_arrived() {
        let world = World::new(3, "b");
        world.arrives("b");
        world.passes(LATER).await;
        world.wants(3, "a");
        world.arrives("a");
        world.passes(LATER).await;
        world.goes("b");
        world.passes(LATER).await;
        world.wants(3, "b");
        world.passes(LATER).await;
        world.goes("a");
        assert_eq!(world.verdicts().await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_restored_hub_has_forgotten_stays() {
        for (is_restored, expected) in [(true, 1), (false, 0)] {
            let world = World::new(3, "a");
            world.arrives("a");
            world.passes(LATER).await;
            if is_restored {
                world.history.note(Note::Restored);
            }
            world.history.note(Note::Begins(Vec::new()));
            world.passes(LATER).await;
            world.goes("a");
            assert_eq!(world.verdicts().await, expected, "restored: {is_restored}");
        }
    }
}
