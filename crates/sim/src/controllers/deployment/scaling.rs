//! How large each set is to be.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::{
    KIND, Work,
    sets::{DESIRED, MOST, by_age, is_active, is_rolling},
};
use crate::{Action, controllers::replica_set::replicas, kind, tree};

impl Work<'_> {
    /// One step from the old sets to the new one, never above what may be added nor below what must be available.
    pub(super) fn roll(&mut self) {
        if self.sync_revision(true) {
            return;
        }
        let Some(new) = self.sets.new.clone() else { return };
        if self.grow_new(&new) || self.shrink_old(&new) {
            return self.report_rollout();
        }
        if self.is_complete(&self.deployment["status"]) {
            self.clean_up();
        }
        self.report_rollout();
    }

    fn grow_new(&mut self, new: &Value) -> bool {
        let size = replicas(new);
        match size.cmp(&self.fence.replicas) {
            Ordering::Equal => false,
            Ordering::Greater => self.resize(new, self.fence.replicas),
            Ordering::Less => self.resize(new, self.size_of_new(size)),
        }
    }

    /// How large the new set may be, if it is `size` now.
    pub(super) fn size_of_new(&self, size: i64) -> i64 {
        if !is_rolling(self.deployment) {
            return self.fence.replicas;
        }
        let old: i64 = self.sets.old.iter().map(replicas).sum();
        let room = self.fence.most() - (old + size);
        if room <= 0 {
            return size;
        }
        size + room.min(self.fence.replicas - size)
    }

    fn shrink_old(&mut self, new: &Value) -> bool {
        let mut old: Vec<(Value, i64)> = self
            .sets
            .old
            .iter()
            .filter(|set| is_active(set))
            .map(|set| (set.clone(), replicas(set)))
            .collect();
        if old.is_empty() {
            return false;
        }
        let all = old.iter().map(|(_, size)| size).sum::<i64>() + replicas(new);
        let not_yet = replicas(new) - available(new);
        let may_go = all - self.fence.least_available() - not_yet;
        if may_go <= 0 {
            return false;
        }
        // Those that are not available go first: they only take room.
        let mut gone = 0;
        for (set, size) in &mut old {
            let useless = (*size - available(set)).max(0).min(may_go - gone);
            *size -= useless;
            gone += useless;
        }
        let available: i64 = self.sets.total("/status/availableReplicas");
        let mut spare = (available - self.fence.least_available()).max(0);
        for (_, size) in &mut old {
            let less = spare.min(*size);
            *size -= less;
            spare -= less;
        }
        let mut shrunk = false;
        for (set, size) in &old {
            shrunk |= self.resize(set, *size);
        }
        shrunk
    }

    /// All old pods go before the first new one comes.
    pub(super) fn recreate(&mut self) {
        if self.sync_revision(false) {
            return;
        }
        let mut shrunk = false;
        for set in self.sets.old.clone().iter().filter(|set| is_active(set)) {
            shrunk |= self.resize(set, 0);
        }
        if shrunk || self.old_pods_run() {
            return self.report_rollout();
        }
        if self.sets.new.is_none() {
            self.sync_revision(true);
            return;
        }
        if let Some(new) = self.sets.new.clone() {
            self.resize(&new, self.fence.replicas);
        }
        if self.is_complete(&self.deployment["status"]) {
            self.clean_up();
        }
        self.report_rollout();
    }

    fn old_pods_run(&self) -> bool {
        let namespace = tree::namespace(self.deployment);
        self.sets.old.iter().any(|set| {
            tree::number(set, "/status/replicas").unwrap_or(0) > 0
                || self.world.pods_of(namespace, tree::uid(set)).iter().any(|pod| !pod.is_finished())
        })
    }

    /// Spreads a change of the number of replicas over all sets that have pods, so that it does not hasten a rollout.
    pub(super) fn scale_in_proportion(&mut self) {
        if let Some(only) = self.sets.active_or_latest().cloned() {
            self.resize(&only, self.fence.replicas);
            return;
        }
        if self.sets.new.as_ref().is_some_and(|new| self.is_saturated(new)) {
            for set in self.sets.old.clone().iter().filter(|set| is_active(set)) {
                self.resize(set, 0);
            }
            return;
        }
        if !is_rolling(self.deployment) {
            return;
        }
        let mut active: Vec<Value> = self.sets.all().filter(|set| is_active(set)).cloned().collect();
        let allowed = if self.fence.replicas > 0 { self.fence.most() } else { 0 };
        let to_add = allowed - active.iter().map(replicas).sum::<i64>();
        // Larger sets first; of equal ones the newer when growing, the older when shrinking.
        active.sort_by(|one, other| {
            let age = if to_add > 0 { by_age(other, one) } else { by_age(one, other) };
            replicas(other).cmp(&replicas(one)).then(age)
        });
        let mut sizes: Vec<i64> = active.iter().map(replicas).collect();
        let mut added = 0;
        for (set, size) in active.iter().zip(&mut sizes) {
            let part = self.proportion(set, to_add, added);
            *size += part;
            added += part;
        }
        if let Some(first) = sizes.first_mut() {
            *first = (*first + to_add - added).max(0);
        }
        for (set, size) in active.iter().zip(sizes) {
            self.resize_or_annotate(set, size);
        }
    }

    fn proportion(&self, set: &Value, to_add: i64, added: i64) -> i64 {
        let size = replicas(set);
        if size == 0 || to_add == 0 || to_add == added {
            return 0;
        }
        let fraction = if self.fence.replicas == 0 {
            -size
        } else {
            let most =
                tree::annotation(set, MOST).parse::<u32>().ok().map(i64::from).filter(|most| *most > 0);
            let before = most.or_else(|| tree::number(self.deployment, "/status/replicas")).unwrap_or(0);
            if before == 0 { 0 } else { rounded(size.saturating_mul(self.fence.most()), before) - size }
        };
        let allowed = to_add - added;
        if to_add > 0 { fraction.min(allowed) } else { fraction.max(allowed) }
    }

    fn is_saturated(&self, set: &Value) -> bool {
        let wanted = self.fence.replicas;
        replicas(set) == wanted
            && tree::annotation(set, DESIRED).parse() == Ok(wanted)
            && available(set) == wanted
    }

    fn resize(&mut self, set: &Value, size: i64) -> bool {
        replicas(set) != size && self.resize_or_annotate(set, size)
    }

    /// Says whether the size changes.
    fn resize_or_annotate(&mut self, set: &Value, size: i64) -> bool {
        let (before, name) = (replicas(set), tree::name(set));
        let (desired, most) = (self.fence.replicas.to_string(), self.fence.most().to_string());
        if before == size && tree::annotation(set, DESIRED) == desired && tree::annotation(set, MOST) == most
        {
            return false;
        }
        let patch = json!({
            "metadata": { "annotations": { DESIRED: desired, MOST: most } },
            "spec": { "replicas": size },
        });
        self.plan.then(Action::patch(kind::REPLICA_SETS, set, patch));
        if before == size {
            return false;
        }
        let way = if before < size { "up" } else { "down" };
        let message = format!("Scaled {way} replica set {name} from {before} to {size}");
        self.plan.note(KIND, self.deployment, "ScalingReplicaSet", message);
        true
    }
}

fn available(set: &Value) -> i64 {
    tree::number(set, "/status/availableReplicas").unwrap_or(0)
}

/// To the nearest whole number.
fn rounded(product: i64, divisor: i64) -> i64 {
    (product as f64 / divisor as f64).round() as i64
}
