//! The strategies: from verdicts on clusters to what each of them gets.

use std::cmp::Reverse;

use kinds::{
    Split, Subject,
    divide::{Algorithm, Preference, Slot},
};

use crate::{
    cluster::Cluster,
    follow::is_claim,
    input::Input,
    parts,
    policy::{By, Rule, Spread, Strategy},
    select::{Stance, Verdict, Verdicts},
    spread::{Divider, Level},
};

/// What each cluster gets, by its place in the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    pub chosen: Vec<bool>,
    pub replicas: Vec<u64>,
    /// Asked for beyond these.
    pub overflow: Vec<u64>,
}

impl Placed {
    pub fn nothing(clusters: usize) -> Self {
        Self { chosen: vec![false; clusters], replicas: vec![0; clusters], overflow: vec![0; clusters] }
    }

    pub fn give(&mut self, cluster: usize, replicas: u64) {
        self.chosen[cluster] = true;
        self.replicas[cluster] = replicas;
    }

    pub fn sum(&self) -> u64 {
        self.replicas.iter().copied().fold(0, u64::saturating_add)
    }
}

/// What suits the kind, where the rule does not say, or asks for what the kind cannot be.
pub fn strategy(rule: &Rule, subject: &Subject, shared_volumes: bool) -> Strategy {
    let is_one = subject.replicas.is_some() || (is_claim(subject) && !shared_volumes);
    match (rule.strategy, subject.splits) {
        _ if subject.every_node => Strategy::Duplicate,
        // A volume is in one cluster; unless it is said that each of them is to have one of its own.
        (Some(Strategy::Duplicate), _) if is_claim(subject) && is_one && !rule.exact => Strategy::Single,
        (Some(Strategy::Single), _) => Strategy::Single,
        (Some(Strategy::Duplicate), _) => Strategy::Duplicate,
        _ if is_indivisible(subject) && is_one => Strategy::Single,
        _ if is_indivisible(subject) => Strategy::Duplicate,
        (None, Split::Ordinals) => Strategy::Single,
        (Some(Strategy::Divide), _) | (None, _) => Strategy::Divide,
    }
}

/// It is in a cluster with all of its pods, or not at all.
pub fn is_indivisible(subject: &Subject) -> bool {
    matches!(subject.splits, Split::Whole | Split::Budget)
}

/// Places by a rule.
pub struct Placer<'a> {
    pub input: &'a Input<'a>,
    pub rule: &'a Rule,
    pub verdicts: &'a Verdicts,
    /// To be placed, without what is in clusters of which nothing is known.
    pub total: u64,
    pub key: &'a str,
}

impl<'a> Placer<'a> {
    pub fn place(&self, strategy: Strategy) -> Placed {
        match strategy {
            Strategy::Single => self.single(),
            Strategy::Duplicate => self.duplicate(),
            Strategy::Divide => self.divide(),
        }
    }

    fn cluster(&self, at: usize) -> &'a Cluster {
        &self.input.directory.entries()[at].cluster
    }

    fn groups(&self) -> usize {
        self.rule.groups.len().max(1)
    }

    fn verdicts(&self) -> impl Iterator<Item = &'a Verdict> {
        self.verdicts.all.iter()
    }

    /// What it may have, in a group or because it has it.
    fn most(&self, verdict: &Verdict) -> u64 {
        let room = verdict.room.unwrap_or(u64::MAX).min(self.total);
        if verdict.stance() == Stance::Open { room } else { room.min(verdict.current) }
    }

    /// The first group that has a cluster for all of it; in it the one that has it, else the best.
    fn single(&self) -> Placed {
        let mut placed = Placed::nothing(self.verdicts.all.len());
        let stays = |it: &Verdict| self.holds(it) && !self.rule.rebalance;
        let order = |it: &&Verdict| {
            let holds_all = self.most(it) >= self.total;
            let group = if holds_all || stays(it) { it.group } else { usize::MAX };
            let leaves = it.stance() == Stance::Leaves;
            let suits = (Reverse(self.most(it)), Reverse(it.score.total()));
            (leaves, group, !stays(it), suits, it.rank, it.cluster)
        };
        let candidates = self.verdicts().filter(|it| it.is_feasible());
        if let Some(best) = candidates.min_by_key(order).filter(|it| self.suffices(it)) {
            placed.give(best.cluster, self.most(best));
        }
        placed
    }

    /// It has some of it: none is as good as not to have it, unless none is wanted.
    pub fn holds(&self, verdict: &Verdict) -> bool {
        let is_some = verdict.current > 0 || self.total == 0 || is_indivisible(self.input.subject);
        verdict.present && is_some
    }

    /// Whether its room is worth sending it there: for some of what can be divided, else for all.
    fn suffices(&self, verdict: &Verdict) -> bool {
        let least = if is_indivisible(self.input.subject) { self.total } else { self.total.min(1) };
        self.holds(verdict) || self.most(verdict) >= least
    }

    /// All clusters of the first group that has one, as far as the constraints let them.
    fn duplicate(&self) -> Placed {
        let mut placed = Placed::nothing(self.verdicts.all.len());
        let stays = |it: &&Verdict| it.is_feasible() && it.stance() != Stance::Leaves && self.suffices(it);
        let leaving = self.verdicts().filter(|it| it.is_feasible() && it.stance() == Stance::Leaves);
        let group = self.verdicts().filter(stays).map(|it| it.group).min();
        let mut members: Vec<&Verdict> =
            self.verdicts().filter(stays).filter(|it| Some(it.group) == group).collect();
        for spread in &self.verdicts.spread {
            members = self.thin_out(spread, members);
        }
        if members.is_empty() {
            members = leaving.collect();
        }
        for member in members {
            placed.give(member.cluster, self.most(member));
        }
        placed
    }

    /// Copies count as replicas do: one for each cluster.
    fn thin_out(&self, spread: &Spread, members: Vec<&'a Verdict>) -> Vec<&'a Verdict> {
        let one = |it: &&Verdict| Slot {
            rank: it.rank,
            max: Some(1),
            current: u64::from(it.present),
            frozen: it.stance() != Stance::Open,
            ..Slot::open(&self.cluster(it.cluster).name, "")
        };
        if !spread.required && spread.max_domains.is_none() {
            return members;
        }
        let slots: Vec<Slot<'_>> = members.iter().map(one).collect();
        let divider = Divider {
            slots: &slots,
            levels: vec![self.level(spread, &members)],
            held: slots.iter().map(|slot| slot.frozen).collect(),
            rebalance: false,
            algorithm: Algorithm::Fair,
            key: self.key,
        };
        let taken = divider.divide(members.len() as u64);
        members.into_iter().zip(taken).filter(|(_, taken)| *taken > 0).map(|(it, _)| it).collect()
    }

    fn level(&self, spread: &'a Spread, members: &[&Verdict]) -> Level<'a> {
        let place = |it: &&Verdict| self.cluster(it.cluster).label(&spread.key);
        Level { spread, places: members.iter().map(place).collect() }
    }

    /// One group after the other takes what it can hold; what then is left stays where it was to leave.
    fn divide(&self) -> Placed {
        let mut placed = Placed::nothing(self.verdicts.all.len());
        let is_spread = !self.verdicts.spread.is_empty();
        let by_ordinals = self.input.subject.splits == Split::Ordinals && !self.rule.rebalance && !is_spread;
        if by_ordinals && self.runs() {
            self.divide_ordinals(&mut placed);
        } else {
            let mut left = self.total;
            for group in 0..self.groups() {
                let members: Vec<&Verdict> = self.members().filter(|it| it.group == group).collect();
                left -= self.fill(&members, left, &mut placed);
            }
            self.keep_leaving(left, &mut placed);
        }
        if self.total == 0 {
            self.stand_by(&mut placed);
        }
        placed
    }

    fn members(&self) -> impl Iterator<Item = &'a Verdict> {
        self.verdicts().filter(|it| it.is_feasible() && it.stance() != Stance::Leaves)
    }

    fn runs(&self) -> bool {
        self.members().any(|it| it.current > 0)
    }

    fn keep_leaving(&self, left: u64, placed: &mut Placed) {
        let leaving: Vec<&Verdict> =
            self.verdicts().filter(|it| it.is_feasible() && it.stance() == Stance::Leaves).collect();
        self.fill(&leaving, left, placed);
    }

    /// Nothing is to run, and the object is to be somewhere all the same: where it is, or where it would suit best of those
    /// that would be given some of it if there were any.
    fn stand_by(&self, placed: &mut Placed) {
        self.members().filter(|it| it.present).for_each(|it| placed.give(it.cluster, 0));
        if placed.chosen.contains(&true) {
            return;
        }
        let best = self.verdicts().filter(|it| it.stance() == Stance::Open);
        let order = |it: &&Verdict| {
            let is_last = self.is_given_nothing(&self.slot(it));
            (is_last, it.group, Reverse(it.score.total()), it.rank, it.cluster)
        };
        if let Some(best) = best.min_by_key(order) {
            placed.give(best.cluster, 0);
        }
    }

    /// Divides over members as the rule says; how many that took.
    fn fill(&self, members: &[&'a Verdict], total: u64, placed: &mut Placed) -> u64 {
        if members.is_empty() || total == 0 {
            return 0;
        }
        // Who is to have nothing is no place to spread over.
        let (members, mut slots): (Vec<&'a Verdict>, Vec<Slot<'a>>) = members
            .iter()
            .map(|it| (*it, self.slot(it)))
            .filter(|(_, slot)| !self.is_given_nothing(slot))
            .unzip();
        let is_open: Vec<bool> = slots.iter().map(|it| !it.frozen).collect();
        let avoided = |at: usize| members[at].avoided && is_open[at];
        let some_are_avoided = (0..members.len()).any(avoided);
        (0..members.len()).filter(|at| avoided(*at)).for_each(|at| slots[at].frozen = true);
        let divide =
            |slots: &[Slot<'a>], rebalance| self.divider(&members, slots, &is_open, rebalance).divide(total);
        let mut shares = divide(&slots, self.rule.rebalance);
        let taken = |shares: &[u64]| shares.iter().copied().fold(0, u64::saturating_add);
        // Who is avoided gets what the others have no room for.
        if some_are_avoided && taken(&shares) < total {
            for (at, slot) in slots.iter_mut().enumerate() {
                (slot.frozen, slot.current) = (!is_open[at], shares[at]);
            }
            shares = divide(&slots, false);
        }
        let sum = taken(&shares);
        for (member, share) in members.iter().zip(&shares).filter(|(_, share)| **share > 0) {
            placed.give(member.cluster, *share);
        }
        self.overflow(&members, &is_open, &shares, total, placed);
        sum
    }

    /// As federation does it, clusters whose nodes are full are asked for as many as they would have if they were not: so
    /// it is noticed when they are not. Without rebalancing, for what nobody else can have.
    fn overflow(
        &self,
        members: &[&'a Verdict],
        is_open: &[bool],
        shares: &[u64],
        total: u64,
        placed: &mut Placed,
    ) {
        if !self.asks_for_more() || members.iter().all(|it| it.fits.is_none()) {
            return;
        }
        // Pods that wait for nodes say that there are none: they must not go because room is held for them.
        let capacity = |it: &Verdict| it.room.map(|room| room.max(it.current.saturating_add(it.asked)));
        let slots: Vec<Slot<'a>> =
            members.iter().map(|it| Slot { capacity: capacity(it), ..self.slot(it) }).collect();
        let wished = self.divider(members, &slots, is_open, self.rule.rebalance).divide(total);
        let mut left = match self.rule.rebalance {
            true => u64::MAX,
            false => shares.iter().fold(total, |left, share| left.saturating_sub(*share)),
        };
        for (at, member) in members.iter().enumerate().filter(|(_, it)| it.fits.is_some()) {
            let over = wished[at].saturating_sub(shares[at]).min(left);
            if over > 0 {
                placed.give(member.cluster, shares[at]);
                placed.overflow[member.cluster] = over;
                left -= over;
            }
        }
    }

    /// Whether what pods say of the room counts: they must be there to say it.
    fn asks_for_more(&self) -> bool {
        self.rule.algorithm == Algorithm::Federation && self.input.subject.splits == Split::Replicas
    }

    fn divider<'s>(
        &'s self,
        members: &[&Verdict],
        slots: &'s [Slot<'a>],
        is_open: &[bool],
        rebalance: bool,
    ) -> Divider<'s, 'a> {
        let useful = self.verdicts.spread.iter();
        let levels = useful.map(|spread| self.level(spread, members)).collect();
        let held = is_open.iter().map(|is_open| !is_open).collect();
        Divider { slots, levels, held, rebalance, algorithm: self.rule.algorithm, key: self.key }
    }

    /// By the policy, or because it has nothing and can gain nothing; whatever room there is.
    fn is_given_nothing(&self, slot: &Slot<'_>) -> bool {
        let keeps_nothing = slot.current == 0 || (self.rule.rebalance && !slot.frozen);
        let is_weightless = self.rule.by == By::Weight && slot.weight == 0 && slot.min == 0;
        let stays_empty = slot.frozen && slot.current == 0;
        slot.max == Some(0) || stays_empty || (is_weightless && keeps_nothing)
    }

    fn slot(&self, verdict: &Verdict) -> Slot<'a> {
        let cluster = self.cluster(verdict.cluster);
        let Preference { min, max, weight } = self.rule.asked_of(&cluster.name, &cluster.labels);
        let by_room = self.rule.by == By::Capacity;
        let fits = verdict.fits.filter(|_| self.asks_for_more());
        Slot {
            name: &cluster.name,
            rank: verdict.rank,
            weight: if by_room { verdict.room.unwrap_or(self.total.max(1)) } else { weight },
            min,
            max,
            capacity: verdict.room.into_iter().chain(fits).min(),
            current: verdict.current,
            frozen: verdict.stance() != Stance::Open,
        }
    }

    /// Pods with names of their own stay where they are: the last range grows and shrinks, others are new.
    fn divide_ordinals(&self, placed: &mut Placed) {
        let start = |it: &Verdict| {
            let share = self.input.current.get(self.cluster(it.cluster).name.as_str());
            share.and_then(|it| it.ordinals).unwrap_or(u64::MAX)
        };
        let mut running: Vec<&Verdict> = self.members().filter(|it| it.current > 0).collect();
        running.sort_by_key(|it| (start(it), it.cluster));
        let bound = |it: &Verdict| {
            let slot = self.slot(it);
            let most = if slot.weight > 0 { u64::MAX } else { slot.min.max(slot.current) };
            self.most(it).min(slot.max.unwrap_or(u64::MAX)).min(most)
        };
        // Who may keep nothing does not hold the last range.
        running.retain(|it| bound(it) > 0);
        let kept: Vec<u64> = running.iter().map(|it| it.current.min(bound(it))).collect();
        let most_of_last = running.last().map_or(0, |it| bound(it));
        let (shares, left) = parts::keep_ordinals(self.total, &kept, most_of_last);
        for (member, share) in running.iter().zip(shares).filter(|(_, share)| *share > 0) {
            placed.give(member.cluster, share);
        }
        let new = |group| move |it: &&Verdict| it.current == 0 && it.group == group;
        let mut left = left;
        for group in 0..self.groups() {
            let new: Vec<&Verdict> = self.members().filter(new(group)).collect();
            left -= self.fill(&new, left, placed);
        }
        self.keep_leaving(left, placed);
    }

    /// What there is, and no more.
    pub fn as_it_is(&self) -> Placed {
        let mut placed = Placed::nothing(self.verdicts.all.len());
        let present = self.verdicts().filter(|it| it.present && it.is_feasible());
        present.for_each(|it| placed.give(it.cluster, it.current));
        placed
    }

    /// The first that has room for all of it, and if it is there already, it.
    pub fn first_of(&self, order: &[&Verdict]) -> Placed {
        let mut placed = Placed::nothing(self.verdicts.all.len());
        let first = order.iter().find(|it| it.present).or_else(|| order.iter().find(|it| self.suffices(it)));
        if let Some(first) = first {
            placed.give(first.cluster, self.most(first));
        }
        placed
    }

    /// Fills clusters one after the other, what runs first: those that are there keep what they have, and some may get
    /// more.
    pub fn in_order(&self, order: &[&Verdict], may_grow: impl Fn(&Verdict) -> bool) -> Placed {
        let mut placed = Placed::nothing(self.verdicts.all.len());
        let mut left = self.total;
        for member in order.iter().filter(|it| it.present && it.stance() != Stance::Leaves) {
            let share = member.current.min(self.most(member)).min(left);
            placed.give(member.cluster, share);
            left -= share;
        }
        for member in order.iter().filter(|it| may_grow(it)) {
            let extra = self.most(member).saturating_sub(placed.replicas[member.cluster]).min(left);
            if extra > 0 {
                placed.give(member.cluster, placed.replicas[member.cluster] + extra);
                left -= extra;
            }
        }
        // Who was left with nothing of what there is, is left.
        for member in order.iter().filter(|_| self.total > 0) {
            placed.chosen[member.cluster] &= placed.replicas[member.cluster] > 0;
        }
        placed
    }
}
