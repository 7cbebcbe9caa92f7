//! How much of the members a view shows.

use machinery::status::{Reason, Status};

/// The clusters that a list cannot be sure about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Never seen whole.
    pub unseen: Vec<String>,
    /// Seen, but not since the time that is given.
    pub stale: Vec<(String, String)>,
    /// Clusters of the platform that have something here and cannot show, for one of the workspace's own has their name.
    pub masked: Vec<String>,
    /// Why it is not known which clusters there are.
    pub damaged: Option<String>,
}

impl Sight {
    /// Whether something may be missing that was never seen.
    pub fn is_partial(&self) -> bool {
        !self.unseen.is_empty() || self.damaged.is_some()
    }

    /// Why there is no answer, unless a partial one is asked for.
    pub fn refusal(&self) -> Status {
        let mut message = match &self.damaged {
            Some(why) => why.clone(),
            None => format!("not seen yet: cluster {}", self.unseen.join(", ")),
        };
        message.push_str(
            "; for an answer without them send the header Hanse-Partial: true, or ask with ?partial=true",
        );
        Status::new(Reason::ServiceUnavailable, message).retry_after(1)
    }

    /// What a reader should know of an answer.
    pub fn warnings(&self) -> Vec<String> {
        let unseen = self
            .unseen
            .iter()
            .map(|name| format!("cluster {name} was not seen yet: its objects are missing"));
        let stale = self.stale.iter().map(|(name, since)| {
            format!("cluster {name} was not seen since {since}: its objects may have changed")
        });
        let masked = self.masked.iter().map(|name| {
            format!("cluster {name} of the platform does not show: a cluster of this workspace has its name")
        });
        self.damaged.clone().into_iter().chain(unseen).chain(stale).chain(masked).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_never_seen_is_missing_and_who_was_is_old() {
        assert!(!Sight::default().is_partial());
        let stale = Sight { stale: vec![("eu-1".into(), "2026-01-01T00:00:00Z".into())], ..Sight::default() };
        assert!(!stale.is_partial());
        assert_eq!(
            stale.warnings(),
            ["cluster eu-1 was not seen since 2026-01-01T00:00:00Z: its objects may have changed"]
        );
        let unseen = Sight { unseen: vec!["eu-1".into(), "us-1".into()], ..Sight::default() };
        assert!(unseen.is_partial());
        assert_eq!(unseen.refusal().code(), 503);
        assert_eq!(unseen.refusal().retry_after_seconds(), Some(1));
        assert!(unseen.refusal().message().contains("eu-1, us-1"), "{}", unseen.refusal().message());
        assert_eq!(unseen.warnings().len(), 2);
    }
}
