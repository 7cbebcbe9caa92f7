//! The objects of one namespace that may go to members: who names whom, and where they are.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use kinds::{Share, Subject};
use placement::follow;
use store::Key;

/// What is known of one object.
#[derive(Clone, Debug)]
pub struct Known {
    pub subject: Arc<Subject>,
    /// Where it is assigned, clusters that are to lose it included.
    pub placed: BTreeMap<String, Share>,
}

impl Known {
    /// Whether others go where it goes because they are its neighbours.
    fn is_workload(&self) -> bool {
        self.subject.replicas.is_some() && !self.subject.every_node
    }
}

/// Kinds that are named by others, in pods above all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Named {
    ConfigMap,
    Secret,
    ServiceAccount,
    Claim,
}

impl Named {
    fn of(subject: &Subject) -> Option<Named> {
        if !subject.group.is_empty() {
            return None;
        }
        match subject.kind.as_str() {
            "ConfigMap" => Some(Named::ConfigMap),
            "Secret" => Some(Named::Secret),
            "ServiceAccount" => Some(Named::ServiceAccount),
            "PersistentVolumeClaim" => Some(Named::Claim),
            _ => None,
        }
    }

    fn all(subject: &Subject) -> impl Iterator<Item = (Named, &String)> {
        let references = &subject.references;
        let of = |named: Named, names| std::iter::repeat(named).zip::<&BTreeSet<String>>(names);
        of(Named::ConfigMap, &references.config_maps)
            .chain(of(Named::Secret, &references.secrets))
            .chain(of(Named::ServiceAccount, &references.service_accounts))
            .chain(of(Named::Claim, &references.claims))
    }
}

#[derive(Debug, Default)]
pub struct Namespace {
    objects: BTreeMap<Key, Known>,
    /// Who names it.
    namers: HashMap<(Named, String), BTreeSet<Key>>,
    /// By kind and name.
    named: HashMap<(Named, String), Key>,
    /// Followers that say themselves whom they follow: by selector, target or service.
    seekers: BTreeSet<Key>,
    /// Followers of either sort.
    followers: BTreeSet<Key>,
    /// How many workloads each cluster has of the namespace.
    neighbours: Counts,
    /// How many objects of any sort.
    occupied: Counts,
}

/// Clusters, and how many objects they have.
#[derive(Debug, Default)]
struct Counts(BTreeMap<String, usize>);

impl Counts {
    /// Whether one of them had none before.
    fn add<'a>(&mut self, clusters: impl IntoIterator<Item = &'a String>) -> bool {
        let before = self.0.len();
        for cluster in clusters {
            *self.0.entry(cluster.clone()).or_default() += 1;
        }
        self.0.len() > before
    }

    /// Whether one of them has none any more.
    fn subtract<'a>(&mut self, clusters: impl IntoIterator<Item = &'a String>) -> bool {
        let before = self.0.len();
        for cluster in clusters {
            if let Some(count) = self.0.get_mut(cluster) {
                *count -= 1;
                if *count == 0 {
                    self.0.remove(cluster);
                }
            }
        }
        self.0.len() < before
    }

    fn names(&self) -> BTreeSet<String> {
        self.0.keys().cloned().collect()
    }
}

impl Namespace {
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub fn get(&self, key: &Key) -> Option<&Known> {
        self.objects.get(key)
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.objects.keys()
    }

    pub fn all(&self) -> impl Iterator<Item = (&Key, &Known)> {
        self.objects.iter()
    }

    /// Notes an object as it is now. Answers what must be decided again because of it, itself included; nothing if it is
    /// as it was.
    pub fn put(&mut self, key: &Key, subject: Subject) -> Vec<Key> {
        let old = self.objects.get(key);
        if old.is_some_and(|old| *old.subject == subject) {
            return Vec::new();
        }
        let placed = old.map(|old| old.placed.clone()).unwrap_or_default();
        let mut concerned = match old.map(|old| old.subject.clone()) {
            Some(old) => self.led_by(&old),
            None => BTreeSet::new(),
        };
        self.forget(key);
        concerned.extend(self.led_by(&subject));
        concerned.extend(self.mounting(&subject));
        concerned.insert(key.clone());
        self.note(key, Known { subject: Arc::new(subject), placed });
        concerned.into_iter().collect()
    }

    /// Notes that an object is gone. Answers what must be decided again because of it.
    pub fn remove(&mut self, key: &Key) -> Vec<Key> {
        let Some(old) = self.objects.get(key).map(|old| old.subject.clone()) else { return Vec::new() };
        let mut concerned = self.led_by(&old);
        concerned.extend(self.mounting(&old));
        if self.forget(key) {
            concerned.extend(self.followers.iter().cloned());
        }
        concerned.into_iter().collect()
    }

    /// Notes where an object is assigned now. Answers what must be decided again because of it, and whether the
    /// namespace itself must: there is something of it in a cluster that had nothing before, or the other way round.
    pub fn place(&mut self, key: &Key, placed: BTreeMap<String, Share>) -> (Vec<Key>, bool) {
        let Some(known) = self.objects.get_mut(key).filter(|known| known.placed != placed) else {
            return Default::default();
        };
        let was = std::mem::replace(&mut known.placed, placed);
        let (is_workload, subject, is) = (known.is_workload(), known.subject.clone(), known.placed.keys());
        let came: Vec<String> = is.filter(|name| !was.contains_key(*name)).cloned().collect();
        let went: Vec<String> = was.into_keys().filter(|name| !known.placed.contains_key(name)).collect();
        let moves = self.occupied.add(&came) | self.occupied.subtract(&went);
        let mut concerned = self.led_by(&subject);
        if follow::is_claim(&subject) {
            concerned.extend(self.waiting_for(key));
        }
        if is_workload && (self.neighbours.add(&came) | self.neighbours.subtract(&went)) {
            concerned.extend(self.followers.iter().cloned());
        }
        (concerned.into_iter().collect(), moves)
    }

    /// Where those are that a follower follows, with the replicas they have there.
    pub fn referrers(&self, follower: &Subject) -> BTreeMap<String, u64> {
        let of = |known: &'_ Known| (known.subject.clone(), known.placed.clone());
        let leaders: Vec<(Arc<Subject>, BTreeMap<String, Share>)> = match Named::of(follower) {
            Some(named) => {
                let keys = self.namers.get(&(named, follower.name.clone()));
                keys.into_iter().flatten().filter_map(|key| self.objects.get(key)).map(of).collect()
            }
            None => self
                .objects
                .values()
                .filter(|it| !it.placed.is_empty() && follow::leads(&it.subject, follower))
                .map(of)
                .collect(),
        };
        follow::referrers(follower, leaders.iter().map(|(subject, placed)| (subject.as_ref(), placed)))
    }

    /// Where the workloads are.
    pub fn neighbourhood(&self) -> BTreeSet<String> {
        self.neighbours.names()
    }

    /// Where anything of it is.
    pub fn occupied(&self) -> BTreeSet<String> {
        self.occupied.names()
    }

    /// Who mounts it, if it is a claim: they can only run where it is.
    fn mounting(&self, claim: &Subject) -> impl Iterator<Item = Key> {
        let is_claim = follow::is_claim(claim);
        let namers = self.namers.get(&(Named::Claim, claim.name.clone())).filter(|_| is_claim);
        namers.into_iter().flatten().cloned()
    }

    /// Whether pods mount the claim, none of which has a place yet.
    pub fn is_awaited(&self, claim: &Subject) -> bool {
        let mut mounting = self.mounting(claim).filter_map(|key| self.objects.get(&key)).peekable();
        mounting.peek().is_some() && mounting.all(|it| it.placed.is_empty())
    }

    /// The claims that a workload mounts and that are in clusters, and in which.
    pub fn claims_of(&self, workload: &Subject) -> BTreeMap<String, BTreeSet<String>> {
        let names = workload.references.claims.iter();
        let known = names.filter_map(|name| {
            let claim = self.objects.get(self.named.get(&(Named::Claim, name.clone()))?)?;
            Some((name.clone(), claim.placed.keys().cloned().collect::<BTreeSet<String>>()))
        });
        known.filter(|(_, clusters)| !clusters.is_empty()).collect()
    }

    /// Where claims are: one that nothing mounts yet goes there, so that one pod can mount them all.
    pub fn claimed(&self) -> BTreeSet<String> {
        self.claims().flat_map(|(_, it)| it.placed.keys().cloned()).collect()
    }

    fn claims(&self) -> impl Iterator<Item = (&Key, &Known)> {
        let claims = self.named.iter().filter(|((named, _), _)| *named == Named::Claim);
        claims.filter_map(|(_, key)| Some((key, self.objects.get(key)?)))
    }

    /// The claims that an object must know the place of before it has one itself: those it mounts, and if it is a claim,
    /// all others.
    pub fn waits_for(&self, subject: &Subject) -> Vec<Key> {
        let is_claim = follow::is_claim(subject);
        let matters = |it: &Subject| is_claim || subject.references.claims.contains(&it.name);
        let unplaced = self.claims().filter(|(_, it)| it.placed.is_empty() && matters(&it.subject));
        unplaced
            .filter(|(_, it)| it.subject.name != subject.name || !is_claim)
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Who may have waited for a claim: those that mount it, and claims that have no place.
    pub fn waiting_for(&self, key: &Key) -> BTreeSet<Key> {
        let Some(claim) = self.objects.get(key).filter(|it| follow::is_claim(&it.subject)) else {
            return BTreeSet::new();
        };
        let claims = self.claims().filter(|(other, it)| it.placed.is_empty() && *other != key);
        self.mounting(&claim.subject).chain(claims.map(|(key, _)| key.clone())).collect()
    }

    fn led_by(&self, leader: &Subject) -> BTreeSet<Key> {
        let named = Named::all(leader).filter_map(|(kind, name)| self.named.get(&(kind, name.clone())));
        let seeking = self.seekers.iter().filter(|key| {
            self.objects.get(*key).is_some_and(|follower| follow::leads(leader, &follower.subject))
        });
        named.chain(seeking).cloned().collect()
    }

    fn note(&mut self, key: &Key, known: Known) {
        let subject = known.subject.clone();
        for (named, name) in Named::all(&subject) {
            self.namers.entry((named, name.clone())).or_default().insert(key.clone());
        }
        let named = Named::of(&subject);
        if let Some(named) = named {
            self.named.insert((named, subject.name.clone()), key.clone());
        }
        if follow::is_follower(&subject) {
            self.followers.insert(key.clone());
            if named.is_none() {
                self.seekers.insert(key.clone());
            }
        }
        if known.is_workload() {
            self.neighbours.add(known.placed.keys());
        }
        self.occupied.add(known.placed.keys());
        self.objects.insert(key.clone(), known);
    }

    /// Whether a cluster has no workload of the namespace any more.
    fn forget(&mut self, key: &Key) -> bool {
        let Some(known) = self.objects.remove(key) else { return false };
        for (named, name) in Named::all(&known.subject) {
            let entry = (named, name.clone());
            if let Some(namers) = self.namers.get_mut(&entry) {
                namers.remove(key);
                if namers.is_empty() {
                    self.namers.remove(&entry);
                }
            }
        }
        if let Some(named) = Named::of(&known.subject) {
            self.named.remove(&(named, known.subject.name.clone()));
        }
        self.seekers.remove(key);
        self.followers.remove(key);
        self.occupied.subtract(known.placed.keys());
        known.is_workload() && self.neighbours.subtract(known.placed.keys())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn key(resource: &str, name: &str) -> Key {
        Key::new(if resource == "deployments" { "apps" } else { "" }, resource, "shop", name)
    }

    fn subject(object: Value) -> Subject {
        kinds::subject(&object).unwrap()
    }

    fn web(config: &str) -> Subject {
        subject(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
                {"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": config}}]},
            ]}}},
        }))
    }

    fn plain(kind: &str, name: &str) -> Subject {
        subject(json!({
            "apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "shop"},
            "spec": {"selector": {"app": "web"}},
        }))
    }

    fn placed(clusters: &[&str]) -> BTreeMap<String, Share> {
        clusters.iter().map(|name| ((*name).to_owned(), Share { replicas: 2, ..Share::default() })).collect()
    }

    #[test]
    fn a_claim_and_who_mounts_it_are_in_one_cluster() {
        let job = subject(json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "import", "namespace": "shop"},
            "spec": {"template": {"spec": {
                "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "work"}}],
            }}},
        }));
        let (claim, other) =
            (plain("PersistentVolumeClaim", "work"), plain("PersistentVolumeClaim", "other"));
        let claim_key = key("persistentvolumeclaims", "work");
        let other_key = key("persistentvolumeclaims", "other");
        let job_key = Key::new("batch", "jobs", "shop", "import");
        let mut namespace = Namespace::default();
        namespace.put(&claim_key, claim.clone());
        namespace.put(&other_key, other.clone());
        assert!(!namespace.is_awaited(&claim), "nothing mounts it");
        assert_eq!(
            namespace.waits_for(&other),
            std::slice::from_ref(&claim_key),
            "they may have to be in one place"
        );
        namespace.put(&job_key, job.clone());
        assert!(namespace.is_awaited(&claim) && !namespace.is_awaited(&other));
        assert_eq!(namespace.waits_for(&job), std::slice::from_ref(&claim_key));
        assert!(namespace.claims_of(&job).is_empty());

        let (concerned, _) = namespace.place(&claim_key, placed(&["eu-1"]));
        assert!(concerned.contains(&job_key) && concerned.contains(&other_key), "{concerned:?}");
        assert_eq!(namespace.claims_of(&job), [("work".to_owned(), ["eu-1".to_owned()].into())].into());
        assert_eq!(namespace.claimed(), ["eu-1".to_owned()].into());
        assert!(namespace.waits_for(&job).is_empty());
        namespace.place(&job_key, placed(&["eu-1"]));
        assert!(!namespace.is_awaited(&claim));
        assert!(namespace.remove(&claim_key).contains(&job_key), "it may go elsewhere with the next");
    }

    #[test]
    fn those_who_follow_are_decided_again_when_their_leader_changes() {
        let mut namespace = Namespace::default();
        assert_eq!(namespace.put(&key("configmaps", "a"), plain("ConfigMap", "a")).len(), 1);
        assert_eq!(namespace.put(&key("configmaps", "b"), plain("ConfigMap", "b")).len(), 1);
        assert_eq!(namespace.put(&key("services", "web"), plain("Service", "web")).len(), 1);
        let concerned = namespace.put(&key("deployments", "web"), web("a"));
        let expected = [key("deployments", "web"), key("configmaps", "a"), key("services", "web")];
        assert_eq!(concerned.iter().collect::<BTreeSet<_>>(), expected.iter().collect());
        assert!(namespace.put(&key("deployments", "web"), web("a")).is_empty(), "it is as it was");

        // All of them, since those that nobody names go with their neighbours.
        let (concerned, spreads) = namespace.place(&key("deployments", "web"), placed(&["eu-1"]));
        assert_eq!((concerned.len(), spreads), (3, true));
        assert_eq!(namespace.place(&key("deployments", "web"), placed(&["eu-1"])), (Vec::new(), false));
        assert!(!namespace.place(&key("configmaps", "a"), placed(&["eu-1"])).1, "something is there already");
        assert_eq!(namespace.referrers(&plain("ConfigMap", "a")), [("eu-1".to_owned(), 2)].into());
        assert_eq!(namespace.referrers(&plain("Service", "web")), [("eu-1".to_owned(), 2)].into());
        assert!(namespace.referrers(&plain("ConfigMap", "b")).is_empty());

        let concerned = namespace.put(&key("deployments", "web"), web("b"));
        assert!(concerned.contains(&key("configmaps", "a")) && concerned.contains(&key("configmaps", "b")));
        assert_eq!(namespace.remove(&key("deployments", "web")).len(), 3);
        assert!(
            namespace.neighbourhood().is_empty() && namespace.referrers(&plain("ConfigMap", "b")).is_empty()
        );
    }
}
