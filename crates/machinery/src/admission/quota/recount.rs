//! What a namespace uses, counted from scratch.

use super::{Amounts, Measure, Quota};
use crate::{
    admission::amounts,
    quantity::{Format, Quantity},
    resource::Tree,
};

/// One count, for one quota: objects are shown to it, kind by kind.
pub struct Recount<'a> {
    quota: &'a Quota,
    used: Amounts,
}

impl<'a> Recount<'a> {
    pub fn new(quota: &'a Quota) -> Self {
        Recount { quota, used: Amounts::new() }
    }

    /// Begins with a kind: what is limited of it is known from now on, be it zero. False: nothing of it is limited.
    pub fn begin(&mut self, measure: &Measure) -> bool {
        let mut limited = false;
        for name in self.quota.wanted.keys().filter(|name| measure.has(name)) {
            let zero = Quantity::new(0, Format::DecimalSi);
            self.used.entry(name.clone()).or_insert(zero);
            limited = true;
        }
        limited
    }

    /// Whether the quota says of everything of a kind that is limited how much is used.
    pub fn is_known(&self, measure: &Measure) -> bool {
        let mut limited = self.quota.wanted.keys().filter(|name| measure.has(name));
        limited.all(|name| self.quota.used.contains_key(name))
    }

    pub fn add(&mut self, measure: &Measure, object: &Tree, now: i64) {
        if self.quota.scopes.iter().all(|scope| measure.is_in(scope, object)) {
            let mut usage = measure.usage(object, now);
            usage.retain(|name, _| self.quota.wanted.contains_key(name));
            amounts::add(&mut self.used, &usage);
        }
    }

    /// As many objects of a kind that is only counted.
    pub fn add_many(&mut self, measure: &Measure, count: usize) {
        let Measure::Count(names) = measure else { return };
        if count == 0 || !self.quota.scopes.is_empty() {
            return;
        }
        let count = Quantity::new(i64::try_from(count).unwrap_or(i64::MAX), Format::DecimalSi);
        let limited = names.iter().filter(|name| self.quota.wanted.contains_key(*name));
        amounts::add(&mut self.used, &limited.map(|name| (name.clone(), count.clone())).collect());
    }

    /// What is used now, if the quota does not say so already. What nobody could count stays as it was.
    pub fn finish(self) -> Option<Amounts> {
        let mut used = self.quota.used.clone();
        used.extend(self.used);
        used.retain(|name, _| self.quota.wanted.contains_key(name));
        let is_known = used == self.quota.used && self.quota.hard == self.quota.wanted;
        (!is_known).then_some(used)
    }
}
