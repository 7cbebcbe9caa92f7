//! What a member does with new pods of workspaces, by its own answers.
//!
//! Only two answers tell: it has the policies, or it serves none. Whatever else it says, that it is busy, that it allows
//! nothing, nothing at all, tells nothing of pods, and what was known stays. The two are not believed at once when they
//! contradict what is known either: several API servers of different ages may answer at one address, and every change
//! of mind makes all pods of a member anew.

use api::cluster::condition;

use super::install::{Installed, Lack, NOT_SERVED, SECRETS_MISSING};
use crate::conditions::Conditions;

/// So often in a row a member that had policies says that it serves none before it is believed.
const TO_TEMPLATES: u32 = 2;
/// The other way it can wait: templates are good everywhere.
const TO_POLICIES: u32 = 5;

/// How pods of workspaces get what they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The member gives it to them.
    Policies,
    /// It is in what is sent there.
    Templates,
}

#[derive(Debug, Default)]
pub struct Verdict {
    way: Option<Way>,
    /// How often in a row it answered otherwise.
    contrary: u32,
    last: Option<Result<(), Lack>>,
}

impl Verdict {
    /// What is known from before: `conditions` are those of the `Cluster`.
    pub fn recalled(conditions: &Conditions) -> Verdict {
        let lack = |reason| Lack { reason, message: String::new() };
        let (way, last) = match conditions.says(condition::TOKENS) {
            // Only where there are policies Secrets are spoken of.
            Some(("True", _) | (_, SECRETS_MISSING)) => (Some(Way::Policies), Some(Ok(()))),
            Some((_, NOT_SERVED)) => (Some(Way::Templates), Some(Err(lack(NOT_SERVED)))),
            _ => (None, None),
        };
        Verdict { way, contrary: 0, last }
    }

    /// `None`: nobody knows, and nothing is to be sent there that may become pods.
    pub fn way(&self) -> Option<Way> {
        self.way
    }

    /// What the member said last.
    pub fn last(&self) -> Option<&Result<(), Lack>> {
        self.last.as_ref()
    }

    /// What came of putting the policies there; true if the way is another now.
    pub fn hear(&mut self, outcome: Result<Installed, Lack>) -> bool {
        let told = match &outcome {
            Ok(Installed::InForce) => Some(Way::Policies),
            Err(lack) if lack.reason == NOT_SERVED => Some(Way::Templates),
            Ok(Installed::Untried) | Err(_) => None,
        };
        self.last = Some(outcome.map(drop));
        told.is_some_and(|told| self.consider(told))
    }

    fn consider(&mut self, told: Way) -> bool {
        if self.way == Some(told) {
            self.contrary = 0;
            return false;
        }
        self.contrary += 1;
        let enough = match (self.way, told) {
            (None, _) => 1,
            (_, Way::Templates) => TO_TEMPLATES,
            (_, Way::Policies) => TO_POLICIES,
        };
        if self.contrary < enough {
            return false;
        }
        (self.way, self.contrary) = (Some(told), 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Installed::{InForce, Untried};

    fn lack<T>(reason: &'static str) -> Result<T, Lack> {
        Err(Lack { reason, message: "no".to_owned() })
    }

    fn heard(outcomes: &[Result<Installed, Lack>]) -> Verdict {
        let mut verdict = Verdict::default();
        for outcome in outcomes {
            verdict.hear(outcome.clone());
        }
        verdict
    }

    #[test]
    fn what_tells_nothing_of_pods_decides_nothing() {
        for reason in ["Refused", "Forbidden", "NoAddress", "Unreachable"] {
            assert_eq!(heard(&[lack(reason)]).way(), None, "{reason}");
            assert_eq!(heard(&[Ok(InForce), lack(reason)]).way(), Some(Way::Policies), "{reason}");
            let old = heard(&[lack(NOT_SERVED), lack(reason)]);
            assert_eq!(old.way(), Some(Way::Templates), "{reason}");
            assert_eq!(old.last(), Some(&lack(reason)), "it is said all the same");
        }
    }

    #[test]
    fn policies_count_when_they_were_seen_to_be_in_force() {
        let mut verdict = heard(&[Ok(Untried)]);
        assert_eq!((verdict.way(), verdict.last()), (None, Some(&Ok(()))));
        assert!(verdict.hear(Ok(InForce)));
        assert_eq!(verdict.way(), Some(Way::Policies));
    }

    #[test]
    fn api_servers_of_different_ages_at_one_address_change_the_way_once() {
        let mut verdict = heard(&[Ok(InForce)]);
        assert!(!verdict.hear(lack(NOT_SERVED)), "once may be an accident");
        assert!(!verdict.hear(Ok(InForce)));
        assert!(!verdict.hear(lack(NOT_SERVED)));
        assert!(!verdict.hear(lack("Refused")));
        assert!(verdict.hear(lack(NOT_SERVED)));
        for _ in 0..3 {
            (1..TO_POLICIES).for_each(|_| assert!(!verdict.hear(Ok(InForce))));
            assert!(!verdict.hear(lack(NOT_SERVED)));
        }
        (1..TO_POLICIES).for_each(|_| assert!(!verdict.hear(Ok(InForce))));
        assert!(verdict.hear(Ok(InForce)), "the last of the old ones is gone");
        assert_eq!(verdict.way(), Some(Way::Policies));
    }

    #[test]
    fn what_the_cluster_said_is_known_again() {
        for (status, reason, way) in [
            (true, "Installed", Some(Way::Policies)),
            (false, SECRETS_MISSING, Some(Way::Policies)),
            (false, NOT_SERVED, Some(Way::Templates)),
            (false, "Refused", None),
            (false, "Forbidden", None),
        ] {
            let mut conditions = Conditions::default();
            conditions.set(condition::TOKENS, status, reason, "", "2026-01-01T00:00:00Z");
            assert_eq!(Verdict::recalled(&conditions).way(), way, "{reason}");
        }
    }
}
