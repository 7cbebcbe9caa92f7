//! Which clusters may have an object, how well they suit it, and how much of it they can hold.

use std::collections::BTreeSet;

use kinds::{ClassKind, NodeTerm, Subject, Toleration, divide::rank};
use machinery::{builtin, selector::Requirement};

use crate::{
    cluster::{Cluster, Condition, Effect, HOSTNAME_LABEL, Labels, Offer, units},
    directory::{Directory, Entry, Need},
    input::Input,
    policy::{By, Rule, Spread},
};

const REGION_LABEL: &str = "topology.kubernetes.io/region";
/// Deeper nesting is nobody's wish, and each level costs.
const MOST_LEVELS: usize = 8;

/// Why a cluster may not have an object, or no more of it. Numbers are places in the list that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objection {
    /// The policy does not mean it.
    NotChosen,
    InNoGroup,
    /// The account may not use it.
    NotAllowed,
    /// The pods' node selector: which of its labels.
    NodeSelector(usize),
    /// The pods' node affinity.
    Affinity,
    /// It has no label for this constraint.
    NoPlace(usize),
    /// A taint that is not borne.
    Tainted(usize),
    /// A taint that is not borne, or no longer, and drives out.
    DrivenOut(usize),
    Cordoned,
    NotReady,
    NoGroupVersion,
    NoResource,
    LacksField,
    /// Which of the classes.
    NoClass(usize),
    /// Which of the claims is in other clusters.
    ClaimElsewhere(usize),
    /// Not assigned to where those are that need it.
    NotNeeded,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// It may have it.
    Open,
    /// It keeps what it has and gets no more.
    Keeps,
    /// It gives up what it has as soon as others can have it.
    Leaves,
    /// It must not have it.
    Out,
}

impl Objection {
    /// In one word, as it is written down.
    pub fn word(self) -> String {
        let mut word = format!("{self:?}");
        word.truncate(word.find('(').unwrap_or(word.len()));
        word
    }

    pub fn stance(self) -> Stance {
        use Objection::*;
        match self {
            NotChosen | InNoGroup | NotAllowed | NodeSelector(_) | Affinity | NotNeeded => Stance::Out,
            DrivenOut(_) => Stance::Leaves,
            NoPlace(_) | Tainted(_) | Cordoned | NotReady | NoGroupVersion | NoResource | LacksField
            | NoClass(_) | ClaimElsewhere(_) => Stance::Keeps,
        }
    }
}

/// How well a cluster suits, in parts that are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// It has it already.
    pub here: i64,
    /// What the pods' preferred affinity gives.
    pub affinity: i64,
    /// What taints that would rather not have it take.
    pub taints: i64,
    /// How much is free of what it needs, in hundredths.
    pub free: i64,
}

impl Score {
    pub fn total(&self) -> i64 {
        [self.affinity, self.taints, self.free].into_iter().fold(self.here, i64::saturating_add)
    }
}

/// What is found of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its place in the directory.
    pub cluster: usize,
    pub objection: Option<Objection>,
    /// The group of the policy that it is in.
    pub group: usize,
    pub score: Score,
    /// How many replicas it can hold, those it has included; `None`: not known.
    pub room: Option<u64>,
    /// How many of its pods it has nodes for, if it had none for others for long.
    pub fits: Option<u64>,
    /// How much it is asked for already beyond that, as far as there may be room for it.
    pub asked: u64,
    /// Of which resource there is least: its place in [`Verdicts::needs`].
    pub scarce: usize,
    /// What the policy lets it have: `Some(0)` if it has no share.
    pub max: Option<u64>,
    /// A taint asks to prefer others.
    pub avoided: bool,
    /// A taint is borne for so many seconds only.
    pub leaves_after: Option<i64>,
    /// It has the object now.
    pub present: bool,
    /// The replicas it has now.
    pub current: u64,
    pub rank: u32,
}

impl Verdict {
    pub fn stance(&self) -> Stance {
        self.objection.map_or(Stance::Open, Objection::stance)
    }

    /// Whether it can have anything at all of it.
    pub fn is_feasible(&self) -> bool {
        match self.stance() {
            Stance::Open => true,
            Stance::Keeps | Stance::Leaves => self.present,
            Stance::Out => false,
        }
    }
}

/// What is found of all clusters, in the order of the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    pub all: Vec<Verdict>,
    /// What one replica needs, in units.
    pub needs: Vec<(String, i64)>,
    /// The constraints that are read, those of the policy first.
    pub spread: Vec<Spread>,
}

/// What an object asks of a cluster, prepared once.
struct Demand<'a> {
    input: &'a Input<'a>,
    rule: &'a Rule,
    tolerations: Vec<&'a Toleration>,
    needs: Vec<Need<'a>>,
    spread: &'a [Spread],
    /// By the place of the offer.
    offers: Vec<Option<Objection>>,
    /// Requirements of the node selector and the affinity are on nodes' labels.
    subject: &'a Subject,
}

/// Judges every cluster of the directory under a rule.
pub fn select(input: &Input<'_>, rule: &Rule) -> Verdicts {
    let spread = constraints(input.subject, rule);
    let demand = Demand {
        input,
        rule,
        tolerations: input.subject.tolerations.iter().chain(&rule.tolerations).collect(),
        needs: needs(input.subject),
        spread: &spread,
        offers: offers(input),
        subject: input.subject,
    };
    let mut all = Vec::with_capacity(input.directory.len());
    let key = input.key();
    for (at, entry) in input.directory.entries().iter().enumerate() {
        all.push(demand.verdict(at, entry, &key));
    }
    note_current(input, &mut all);
    for (verdict, entry) in all.iter_mut().zip(input.directory.entries()) {
        demand.measure(entry, verdict);
    }
    let needs = demand.needs.iter().map(|need| (need.resource.to_owned(), need.amount)).collect();
    Verdicts { all, needs, spread }
}

/// Judges for what goes where others are: only what the cluster takes, and who may use it, matters.
pub fn select_for_follower(input: &Input<'_>, wanted: impl Fn(&str) -> bool) -> Verdicts {
    let offers = offers(input);
    let key = input.key();
    let judge = |(at, entry): (usize, &Entry)| {
        let name = entry.cluster.name.as_str();
        let objection = if !wanted(name) {
            Some(Objection::NotNeeded)
        } else if !is_allowed(input, &entry.cluster) {
            Some(Objection::NotAllowed)
        } else {
            offers[entry.offer].or_else(|| objection_to_brought(input, &entry.cluster))
        };
        Verdict { objection, ..Verdict::of(at, rank(name, &key)) }
    };
    let mut all: Vec<Verdict> = input.directory.entries().iter().enumerate().map(judge).collect();
    note_current(input, &mut all);
    Verdicts { all, ..Verdicts::default() }
}

impl Verdict {
    fn of(cluster: usize, rank: u32) -> Self {
        Self {
            cluster,
            objection: None,
            group: 0,
            score: Score::default(),
            room: None,
            fits: None,
            asked: 0,
            scarce: 0,
            max: None,
            avoided: false,
            leaves_after: None,
            present: false,
            current: 0,
            rank,
        }
    }
}

fn note_current(input: &Input<'_>, all: &mut [Verdict]) {
    for (name, share) in input.current {
        if let Some(verdict) = input.directory.position(name).and_then(|at| all.get_mut(at)) {
            (verdict.present, verdict.current) = (true, share.replicas);
            verdict.fits = input.fits.get(name).copied();
        }
    }
}

/// Those of the policy and, after them, of the pods. That pods are on different nodes is the members' own business.
fn constraints(subject: &Subject, rule: &Rule) -> Vec<Spread> {
    let of_pods = subject.spread.iter().filter(|it| it.topology_key != HOSTNAME_LABEL).map(Spread::from);
    let named = |it: &Spread| rule.spread.iter().any(|rule| rule.key == it.key);
    let of_pods = of_pods.filter(|it| !named(it));
    rule.spread.iter().cloned().chain(of_pods).take(MOST_LEVELS).collect()
}

/// What one replica needs, in units.
pub fn needs_of(subject: &Subject) -> Vec<(String, i64)> {
    needs(subject).iter().map(|need| (need.resource.to_owned(), need.amount)).collect()
}

fn needs(subject: &Subject) -> Vec<Need<'_>> {
    let needs = subject.needs.iter().map(|(name, amount)| (name, units(name, amount)));
    needs.filter(|(_, amount)| *amount > 0).map(|(name, amount)| Need::new(name, amount)).collect()
}

/// What is wrong with each offer of the directory.
fn offers(input: &Input<'_>) -> Vec<Option<Objection>> {
    let subject = input.subject;
    let group_version = match subject.group.as_str() {
        "" => subject.version.clone(),
        group => format!("{group}/{}", subject.version),
    };
    let resource = input.resource.or_else(|| plural(subject));
    input
        .directory
        .offers()
        .iter()
        .map(|offer| objection_to(offer, input, &group_version, resource))
        .collect()
}

fn objection_to(
    offer: &Offer,
    input: &Input<'_>,
    group_version: &str,
    resource: Option<&str>,
) -> Option<Objection> {
    if let Some(apis) = &offer.apis {
        let Some(resources) = apis.get(group_version) else { return Some(Objection::NoGroupVersion) };
        if resource.is_some_and(|resource| !resources.contains(resource)) {
            return Some(Objection::NoResource);
        }
    }
    if !offer.lacks.is_empty() && input.fields.first_in(&offer.lacks).is_some() {
        return Some(Objection::LacksField);
    }
    let classes = offer.classes.as_ref()?;
    let is_missing = |class| !classes.contains(class) && !input.brought.contains_key(class);
    input.subject.classes.iter().position(is_missing).map(Objection::NoClass)
}

/// Of the classes that the workspace brings: one that the cluster neither has nor takes.
fn objection_to_brought(input: &Input<'_>, cluster: &Cluster) -> Option<Objection> {
    if input.brought.is_empty() {
        return None;
    }
    let classes = cluster.offer.classes.as_ref()?;
    let is_missing = |class: &(ClassKind, String)| {
        let takes = |takers: &BTreeSet<String>| takers.contains(cluster.name.as_str());
        !classes.contains(class) && input.brought.get(class).is_some_and(|takers| !takes(takers))
    };
    input.subject.classes.iter().position(is_missing).map(Objection::NoClass)
}

fn plural(subject: &Subject) -> Option<&'static str> {
    let is_it = |row: &&machinery::resource::Row| {
        row.kind == subject.kind && row.group == subject.group && row.version == subject.version
    };
    builtin::rows().find(is_it).map(|row| row.plural)
}

fn is_allowed(input: &Input<'_>, cluster: &Cluster) -> bool {
    cluster.serves(input.account)
}

impl Demand<'_> {
    fn verdict(&self, at: usize, entry: &Entry, key: &str) -> Verdict {
        let mut verdict = Verdict::of(at, 0);
        let cluster = &entry.cluster;
        if !self.rule.clusters.holds(&cluster.name, &cluster.labels) {
            verdict.objection = Some(Objection::NotChosen);
            return verdict;
        }
        verdict.rank = rank(&cluster.name, key);
        if !self.rule.groups.is_empty() {
            let groups = &self.rule.groups;
            match groups.iter().position(|it| it.choice.holds(&cluster.name, &cluster.labels)) {
                Some(group) => verdict.group = group,
                None => {
                    verdict.objection = Some(Objection::InNoGroup);
                    return verdict;
                }
            }
        }
        verdict.objection = self.objection(entry, &mut verdict);
        verdict
    }

    fn objection(&self, entry: &Entry, verdict: &mut Verdict) -> Option<Objection> {
        let cluster = &entry.cluster;
        if !is_allowed(self.input, cluster) {
            return Some(Objection::NotAllowed);
        }
        if let Some(objection) = self.unwanted_by_pods(&cluster.labels) {
            return Some(objection);
        }
        let taint = self.taint(cluster, verdict);
        if let Some(Objection::DrivenOut(_)) = taint {
            return taint;
        }
        let lacking = |it: &Spread| it.required && !it.of_pods && cluster.label(&it.key).is_none();
        if let Some(at) = self.spread.iter().position(lacking) {
            return Some(Objection::NoPlace(at));
        }
        let is_elsewhere = |clusters: &BTreeSet<String>| !clusters.contains(cluster.name.as_str());
        if !self.input.shared_volumes
            && let Some(at) = self.input.claims.values().position(is_elsewhere)
        {
            return Some(Objection::ClaimElsewhere(at));
        }
        let offer = self.offers[entry.offer].or_else(|| objection_to_brought(self.input, cluster));
        if offer.is_some() {
            return offer;
        }
        if cluster.condition != Condition::Ready {
            return Some(Objection::NotReady);
        }
        let is_cordoned = || self.input.cordoned.contains(cluster.name.as_str());
        if cluster.unschedulable || (!self.input.cordoned.is_empty() && is_cordoned()) {
            return Some(Objection::Cordoned);
        }
        taint
    }

    fn unwanted_by_pods(&self, labels: &Labels) -> Option<Objection> {
        let differs = |(key, value): (&String, &String)| {
            let found = labels.iter().find(|(known, _)| known == key).map(|(_, found)| found);
            found.map_or(!is_about_nodes(key), |found| found != value)
        };
        if let Some(at) = self.subject.node_selector.iter().position(differs) {
            return Some(Objection::NodeSelector(at));
        }
        let terms = self.subject.required_affinity.as_ref()?;
        (!terms.iter().any(|term| holds(term, labels))).then_some(Objection::Affinity)
    }

    /// The worst that a taint does.
    fn taint(&self, cluster: &Cluster, verdict: &mut Verdict) -> Option<Objection> {
        let mut worst = None;
        for (at, taint) in cluster.taints.iter().enumerate() {
            let mut borne = self.tolerations.iter().filter(|it| taint.is_borne_by(it));
            match taint.effect {
                Effect::PreferNoSchedule => verdict.avoided |= borne.next().is_none(),
                Effect::NoSchedule => {
                    if borne.next().is_none() {
                        worst = worst.or(Some(Objection::Tainted(at)));
                    }
                }
                Effect::NoExecute => {
                    // As for pods, the shortest time counts; none given is for ever.
                    let mut seconds = borne.map(|it| it.seconds).peekable();
                    if seconds.peek().is_none() {
                        return Some(Objection::DrivenOut(at));
                    }
                    if let Some(least) = seconds.flatten().min() {
                        let least = taint.left(least, self.input.now);
                        if least <= 0 {
                            return Some(Objection::DrivenOut(at));
                        }
                        verdict.leaves_after =
                            Some(verdict.leaves_after.map_or(least, |known| known.min(least)));
                    }
                }
            }
        }
        worst
    }

    /// Of what it is asked for beyond what it has nodes for, how much it may be asked for still: what is held for this object
    /// is held for that, too.
    fn asked(&self, entry: &Entry, current: u64) -> u64 {
        let name = entry.cluster.name.as_str();
        let asked = self.input.current.get(name).map_or(0, |share| share.overflow);
        if asked == 0 {
            return 0;
        }
        let room = entry.room(&self.needs, current, self.input.held.get(name));
        room.map_or(asked, |room| asked.min(room.fits))
    }

    /// How much it can hold, and how well it suits.
    fn measure(&self, entry: &Entry, verdict: &mut Verdict) {
        if !verdict.is_feasible() {
            return;
        }
        let room = entry.room(&self.needs, verdict.current, None);
        verdict.asked = self.asked(entry, verdict.current);
        if let Some(room) = room {
            verdict.room = Some(verdict.current.saturating_add(room.fits));
            verdict.scarce = room.scarce;
        }
        if !self.rule.shares.is_empty() {
            let share = self.rule.shares.of(&entry.cluster.name, &entry.cluster.labels);
            let is_without =
                share.map_or(self.rule.by == By::Weight, |it| it.weight == 0 && self.rule.by == By::Weight);
            verdict.max = share.and_then(|it| if is_without { Some(it.min) } else { it.max });
            verdict.max = verdict.max.or(is_without.then_some(0));
        }
        let wished =
            self.subject.preferred_affinity.iter().filter(|it| holds(&it.term, &entry.cluster.labels));
        verdict.score = Score {
            here: if verdict.present { 100 } else { 0 },
            affinity: wished.map(|it| it.weight).fold(0, i64::saturating_add),
            taints: if verdict.avoided { -100 } else { 0 },
            free: room.map_or(0, |it| it.free),
        };
    }
}

/// Labels that nodes have and clusters need not: what they say of the nodes inside is for the member's scheduler.
fn is_about_nodes(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    let is_kubernetes =
        domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io");
    is_kubernetes && key != REGION_LABEL
}

fn holds(term: &NodeTerm, labels: &Labels) -> bool {
    let says = |requirement: &Requirement| {
        let is_absent = || !labels.iter().any(|(key, _)| key == requirement.key());
        requirement.matches(labels) || (is_about_nodes(requirement.key()) && is_absent())
    };
    !term.names_node && !term.labels.is_empty() && term.labels.iter().all(says)
}

/// The names of the clusters that may have the object under the rule.
pub fn feasible<'d>(verdicts: &Verdicts, directory: &'d Directory) -> Vec<&'d str> {
    let open = verdicts.all.iter().filter(|it| it.stance() == Stance::Open);
    open.filter_map(|it| directory.entries().get(it.cluster)).map(|it| it.cluster.name.as_str()).collect()
}
