//! Which namespaces of a member belong to workspaces, which Secrets with tokens it has, and when to look at them again.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use compact_str::CompactString;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use super::{
    install::{Installed, Lack, SECRETS_MISSING},
    secret::Kept,
    verdict::{Verdict, Way},
};
use crate::{conditions::Conditions, labels::Claim, objects::Head, reflect::Sink, session::Session};

/// With nothing to do.
const LONG: Duration = Duration::from_secs(60 * 60);
const MOST_BACKOFF: Duration = Duration::from_secs(60);
/// What fails more often in a row is said on the `Cluster`.
const PATIENCE: u32 = 3;
/// Deleted accounts that are remembered until their Secrets are removed; of more, the Secrets stay until their namespace
/// goes.
const MOST_GONE: usize = 100_000;

/// The namespace of a workspace that one of the member is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    pub workspace: CompactString,
    pub namespace: CompactString,
}

/// What came of looking at a namespace.
#[derive(Debug)]
pub enum Outcome {
    /// All is as it is to be, for so long.
    Settled(Duration),
    /// Nothing is to be done there until something changes.
    Nothing,
    Later,
    Failed(String),
}

/// When to look at a namespace again.
struct Turn {
    at: Duration,
    failed: u32,
}

#[derive(Default)]
struct State {
    namespaces: HashMap<CompactString, Owner>,
    by_owner: HashMap<Owner, BTreeSet<CompactString>>,
    secrets: HashMap<CompactString, HashMap<CompactString, Kept>>,
    listed: (bool, bool),
    /// To be looked at now.
    called: BTreeSet<CompactString>,
    turns: HashMap<CompactString, Turn>,
    /// Namespaces of the member with the UIDs of accounts whose deletion was seen.
    gone: HashSet<(CompactString, String)>,
    complaints: BTreeMap<CompactString, String>,
    verdict: Verdict,
}

/// What a session knows of its member's tokens.
#[derive(Default)]
pub struct Tokens {
    state: Mutex<State>,
    bell: Notify,
    /// There may be a namespace to try the policies in.
    trial: Notify,
}

impl Tokens {
    pub async fn called(&self) {
        self.bell.notified().await;
    }

    pub async fn can_be_tried(&self) {
        self.trial.notified().await;
    }

    /// Namespaces that the policies are for, at most so many.
    pub fn some_namespaces(&self, most: usize) -> Vec<CompactString> {
        self.state.lock().namespaces.keys().take(most).cloned().collect()
    }

    fn namespaces_changed(&self) {
        self.bell.notify_one();
        if self.way().is_none() {
            self.trial.notify_one();
        }
    }

    pub fn look_at_everything(&self) {
        let mut state = self.state.lock();
        let all: Vec<CompactString> = state.namespaces.keys().cloned().collect();
        state.called.extend(all);
        drop(state);
        self.bell.notify_one();
    }

    /// An account came, or is another one, or went: then `gone` is the UID of the one that was.
    pub fn account_changed(&self, workspace: &str, namespace: &str, gone: Option<&str>) {
        let owner = Owner { workspace: workspace.into(), namespace: namespace.into() };
        let mut state = self.state.lock();
        let Some(there) = state.by_owner.get(&owner).cloned() else { return };
        if let Some(uid) = gone
            && state.gone.len() < MOST_GONE
        {
            state.gone.extend(there.iter().map(|it| (it.clone(), uid.to_owned())));
        }
        state.called.extend(there);
        drop(state);
        self.bell.notify_one();
    }

    /// The workspace came or went, or signs by another key.
    pub fn workspace_changed(&self, workspace: &str) {
        let mut state = self.state.lock();
        let of_it = state.namespaces.iter().filter(|(_, owner)| owner.workspace == workspace);
        let of_it: Vec<CompactString> = of_it.map(|(name, _)| name.clone()).collect();
        if of_it.is_empty() {
            return;
        }
        state.called.extend(of_it);
        drop(state);
        self.bell.notify_one();
    }

    /// The namespaces whose turn it is; none before everything was listed.
    pub fn due(&self, now: Duration) -> Vec<CompactString> {
        let mut state = self.state.lock();
        if state.listed != (true, true) {
            return Vec::new();
        }
        let mut due = std::mem::take(&mut state.called);
        due.extend(state.turns.iter().filter(|(_, turn)| turn.at <= now).map(|(name, _)| name.clone()));
        due.into_iter().collect()
    }

    /// Until the next turn.
    pub fn rests(&self, now: Duration) -> Duration {
        let state = self.state.lock();
        let next = state.turns.values().map(|turn| turn.at.saturating_sub(now)).min();
        next.unwrap_or(LONG).min(LONG)
    }

    /// What came of a turn; true if it changes what is to be said of the cluster.
    pub fn note(&self, namespace: CompactString, outcome: Outcome, now: Duration, pause: Duration) -> bool {
        let mut state = self.state.lock();
        let failed = state.turns.get(&namespace).map_or(0, |turn| turn.failed);
        let backoff = |failed: u32| (pause * 2u32.saturating_pow(failed.min(10))).min(MOST_BACKOFF);
        let (turn, complaint) = match outcome {
            Outcome::Settled(rests) => (Some(Turn { at: now + rests, failed: 0 }), None),
            Outcome::Nothing => (None, None),
            Outcome::Later => (Some(Turn { at: now + pause, failed }), None),
            Outcome::Failed(why) => {
                let turn = Turn { at: now + backoff(failed), failed: failed + 1 };
                (Some(turn), (failed + 1 >= PATIENCE).then_some(why))
            }
        };
        match turn {
            Some(turn) => drop(state.turns.insert(namespace.clone(), turn)),
            None => drop(state.turns.remove(&namespace)),
        }
        let before = match &complaint {
            Some(why) => state.complaints.insert(namespace, why.clone()),
            None => state.complaints.remove(&namespace),
        };
        before != complaint
    }

    /// What is known from before: `conditions` are those of the `Cluster`.
    pub fn recalled(conditions: &Conditions) -> Tokens {
        let tokens = Tokens::default();
        tokens.state.lock().verdict = Verdict::recalled(conditions);
        tokens
    }

    /// How pods of workspaces get what they need in the member.
    pub fn way(&self) -> Option<Way> {
        self.state.lock().verdict.way()
    }

    /// Why nothing is to be sent there yet that may become pods.
    pub fn undecided(&self) -> Option<String> {
        let state = self.state.lock();
        if state.verdict.way().is_some() {
            return None;
        }
        let why = match state.verdict.last() {
            Some(Err(lack)) => lack.message.as_str(),
            Some(Ok(())) | None => "it was not seen yet to have its policies in force",
        };
        Some(format!("it is not known yet how pods there get tokens of the workspace: {why}"))
    }

    /// The member has none of the policies that pods need.
    pub fn has_no_policies(&self) -> bool {
        self.way() == Some(Way::Templates)
    }

    /// True if pods are made otherwise now.
    pub fn installed(&self, outcome: Result<Installed, Lack>) -> bool {
        self.state.lock().verdict.hear(outcome)
    }

    /// Whether the last that the member said is this.
    pub fn says(&self, lack: &Lack) -> bool {
        self.state.lock().verdict.last().is_some_and(|last| last.as_ref() == Err(lack))
    }

    /// Whether pods get what they need; `None`: nobody has looked yet.
    pub fn verdict(&self) -> Option<Result<(), Lack>> {
        let state = self.state.lock();
        let installed = state.verdict.last()?.clone();
        let complaint = state.complaints.values().next().map(|first| {
            let more = match state.complaints.len() - 1 {
                0 => String::new(),
                more => format!("; and so for {more} more namespaces"),
            };
            Lack { reason: SECRETS_MISSING, message: format!("{first}{more}") }
        });
        Some(installed.and(complaint.map_or(Ok(()), Err)))
    }

    pub fn owner(&self, namespace: &str) -> Option<Owner> {
        self.state.lock().namespaces.get(namespace).cloned()
    }

    pub fn kept(&self, namespace: &str, account: &str) -> Option<Kept> {
        self.state.lock().secrets.get(namespace)?.get(account).cloned()
    }

    /// Secrets of accounts that are not there and were seen to be deleted: those that were never seen may be known again
    /// later, by a hub that was restored from an older state.
    pub fn forsaken(&self, namespace: &str, is_there: impl Fn(&str) -> bool) -> Vec<(CompactString, Kept)> {
        let state = self.state.lock();
        let kept = state.secrets.get(namespace).into_iter().flatten();
        let was_seen =
            |kept: &Kept| state.gone.contains(&(CompactString::from(namespace), kept.source.clone()));
        kept.filter(|(account, kept)| !is_there(account) && was_seen(kept))
            .map(|(account, kept)| (account.clone(), kept.clone()))
            .collect()
    }

    pub fn removed(&self, namespace: &str, account: &str) {
        let mut state = self.state.lock();
        let Some(kept) = state.secrets.get_mut(namespace).and_then(|it| it.remove(account)) else { return };
        state.gone.remove(&(namespace.into(), kept.source));
    }

    /// All accounts of the namespace were seen to: of those that are gone, only they are remembered that have a Secret.
    pub fn tidy(&self, namespace: &str) {
        let State { gone, secrets, .. } = &mut *self.state.lock();
        let has_secret = |uid: &str| {
            secrets.get(namespace).into_iter().flat_map(HashMap::values).any(|kept| kept.source == uid)
        };
        gone.retain(|(of, uid)| of != namespace || has_secret(uid));
    }

    pub fn written(&self, secret: &Value) {
        if let Some((at, kept)) = Kept::read(secret.to_string().as_bytes()) {
            self.state.lock().secrets.entry(at.0).or_default().insert(at.1, kept);
        }
    }
}

impl State {
    /// True if it is another's now.
    fn put_namespace(&mut self, name: CompactString, owner: Owner) -> bool {
        if self.namespaces.get(&name) == Some(&owner) {
            return false;
        }
        self.remove_namespace(&name);
        self.by_owner.entry(owner.clone()).or_default().insert(name.clone());
        self.called.insert(name.clone());
        self.namespaces.insert(name, owner);
        true
    }

    fn remove_namespace(&mut self, name: &CompactString) {
        let Some(owner) = self.namespaces.remove(name) else { return };
        if let Some(names) = self.by_owner.get_mut(&owner) {
            names.remove(name);
            if names.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
        self.turns.remove(name);
        self.called.remove(name);
        self.complaints.remove(name);
        self.gone.retain(|(namespace, _)| namespace != name);
    }
}

/// The namespace, and whose it is; nobody's if it is on its way out.
fn read_namespace(object: &[u8]) -> Option<(CompactString, Option<Owner>)> {
    let (name, claim) = Claim::read(object)?;
    let namespace = claim.name_there(&name);
    let workspace = claim.workspace.filter(|_| !claim.deleting);
    Some((name, workspace.map(|workspace| Owner { workspace, namespace })))
}

/// Hears of the member's namespaces.
pub struct NamespaceSink {
    session: Arc<Session>,
    listing: HashMap<CompactString, Owner>,
}

impl NamespaceSink {
    pub fn new(session: &Arc<Session>) -> NamespaceSink {
        NamespaceSink { session: session.clone(), listing: HashMap::new() }
    }

    fn tokens(&self) -> &Tokens {
        &self.session.tokens
    }
}

impl Sink for NamespaceSink {
    fn begin(&mut self) {
        self.listing.clear();
    }

    fn listed_one(&mut self, object: &[u8]) {
        if let Some((name, Some(owner))) = read_namespace(object) {
            self.listing.insert(name, owner);
        }
    }

    fn end(&mut self) {
        let listing = std::mem::take(&mut self.listing);
        let mut state = self.tokens().state.lock();
        let left: Vec<CompactString> =
            state.namespaces.keys().filter(|name| !listing.contains_key(*name)).cloned().collect();
        left.iter().for_each(|name| state.remove_namespace(name));
        for (name, owner) in listing {
            state.put_namespace(name, owner);
        }
        state.listed.0 = true;
        drop(state);
        self.tokens().namespaces_changed();
    }

    fn put(&mut self, object: &[u8], _: &Head<'_>) {
        let Some((name, owner)) = read_namespace(object) else { return };
        let mut state = self.tokens().state.lock();
        let news = match owner {
            Some(owner) => state.put_namespace(name, owner),
            None => {
                state.remove_namespace(&name);
                false
            }
        };
        drop(state);
        if news {
            self.tokens().namespaces_changed();
        }
    }

    fn removed(&mut self, object: &[u8], _: &Head<'_>) {
        if let Some((name, _)) = read_namespace(object) {
            self.tokens().state.lock().remove_namespace(&name);
        }
    }
}

/// Hears of the Secrets with tokens.
pub struct SecretSink {
    session: Arc<Session>,
    listing: HashMap<CompactString, HashMap<CompactString, Kept>>,
}

impl SecretSink {
    pub fn new(session: &Arc<Session>) -> SecretSink {
        SecretSink { session: session.clone(), listing: HashMap::new() }
    }
}

impl Sink for SecretSink {
    fn begin(&mut self) {
        self.listing.clear();
    }

    fn listed_one(&mut self, object: &[u8]) {
        if let Some(((namespace, account), kept)) = Kept::read(object) {
            self.listing.entry(namespace).or_default().insert(account, kept);
        }
    }

    fn end(&mut self) {
        let listing = std::mem::take(&mut self.listing);
        let mut state = self.session.tokens.state.lock();
        state.secrets = listing;
        state.listed.1 = true;
        drop(state);
        self.session.tokens.look_at_everything();
    }

    fn put(&mut self, object: &[u8], _: &Head<'_>) {
        let Some(((namespace, account), kept)) = Kept::read(object) else { return };
        let mut state = self.session.tokens.state.lock();
        let old = state.secrets.entry(namespace.clone()).or_default().insert(account, kept.clone());
        if old.as_ref() == Some(&kept) {
            return;
        }
        // Somebody else may have changed it.
        state.called.insert(namespace);
        drop(state);
        self.session.tokens.bell.notify_one();
    }

    fn removed(&mut self, object: &[u8], _: &Head<'_>) {
        let Some(((namespace, account), kept)) = Kept::read(object) else { return };
        let mut state = self.session.tokens.state.lock();
        let Some(of_namespace) = state.secrets.get_mut(&namespace) else { return };
        if of_namespace.get(&account).is_none_or(|known| known.uid != kept.uid) {
            return;
        }
        of_namespace.remove(&account);
        if of_namespace.is_empty() {
            state.secrets.remove(&namespace);
        }
        // The namespace may be on its way out; else it is made again.
        state.called.insert(namespace);
        drop(state);
        self.session.tokens.bell.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owner(workspace: &str, namespace: &str) -> Owner {
        Owner { workspace: workspace.into(), namespace: namespace.into() }
    }

    fn ledger(namespaces: &[(&str, &str, &str)]) -> Tokens {
        let tokens = Tokens::default();
        let mut state = tokens.state.lock();
        for (name, workspace, namespace) in namespaces {
            state.put_namespace((*name).into(), owner(workspace, namespace));
        }
        state.listed = (true, true);
        drop(state);
        tokens
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_namespace_is_of_the_workspace_that_its_labels_name() {
        let read = |metadata: Value| read_namespace(json!({"metadata": metadata}).to_string().as_bytes());
        for (labels, expected) in [
            (json!({"hanse.io/workspace": "w"}), Some(owner("w", "a"))),
            (json!({"hanse.io/workspace": "w", "hanse.io/namespace": "b"}), Some(owner("w", "b"))),
            (json!({"hanse.io/workspace": ""}), None),
            (json!({}), None),
        ] {
            assert_eq!(
                read(json!({"name": "a", "labels": labels})),
                Some(("a".into(), expected)),
                "{labels}"
            );
        }
        let leaving = json!({"name": "a", "labels": {"hanse.io/workspace": "w"}, "deletionTimestamp": "t"});
        assert_eq!(read(leaving), Some(("a".into(), None)));
        assert_eq!(read(json!(7)), None);
    }

    #[test]
    fn only_those_that_a_change_concerns_are_looked_at() {
        let tokens = ledger(&[("a", "w", "a"), ("w2-a", "w2", "a"), ("b", "w", "b")]);
        assert_eq!(tokens.due(SECOND), ["a", "b", "w2-a"]);
        assert!(tokens.due(SECOND).is_empty());
        tokens.account_changed("w2", "a", None);
        tokens.account_changed("w3", "a", None);
        assert_eq!(tokens.due(SECOND), ["w2-a"]);
        tokens.workspace_changed("w");
        assert_eq!(tokens.due(SECOND), ["a", "b"]);
    }

    #[test]
    fn nothing_is_done_before_all_is_known() {
        let tokens = ledger(&[("a", "w", "a")]);
        tokens.state.lock().listed.1 = false;
        assert!(tokens.due(SECOND).is_empty());
        tokens.state.lock().listed.1 = true;
        assert_eq!(tokens.due(SECOND), ["a"], "it was not forgotten");
    }

    #[test]
    fn what_fails_waits_longer_each_time_and_is_told_in_the_end() {
        let tokens = ledger(&[("a", "w", "a")]);
        tokens.installed(Ok(Installed::InForce));
        let fail = |now| tokens.note("a".into(), Outcome::Failed("no".into()), now, SECOND);
        assert!(!fail(SECOND));
        assert_eq!(tokens.rests(SECOND), SECOND);
        assert!(!fail(SECOND * 2));
        assert_eq!(tokens.rests(SECOND * 2), SECOND * 2);
        assert_eq!(tokens.verdict(), Some(Ok(())));
        assert!(fail(SECOND * 4));
        assert_eq!(tokens.verdict().unwrap().unwrap_err().message, "no");
        assert!((0..20).all(|_| !fail(SECOND * 4)), "it is told once");
        assert_eq!(tokens.rests(SECOND * 4), MOST_BACKOFF);
        assert!(tokens.note("a".into(), Outcome::Settled(SECOND * 9), SECOND * 5, SECOND));
        assert_eq!((tokens.verdict(), tokens.rests(SECOND * 5)), (Some(Ok(())), SECOND * 9));
    }

    #[test]
    fn a_secret_is_forsaken_only_when_its_account_was_seen_to_go() {
        let tokens = ledger(&[("a", "w", "a")]);
        for account in ["seen", "unseen", "made-again"] {
            let metadata = json!({
                "name": format!("hanse-token-{account}"), "namespace": "a", "uid": "s",
                "annotations": {api::SOURCE_ANNOTATION: format!("{account}-uid")},
            });
            tokens.written(&json!({"metadata": metadata}));
        }
        tokens.account_changed("w", "a", Some("seen-uid"));
        tokens.account_changed("w", "a", Some("made-again-uid"));
        let forsaken = tokens.forsaken("a", |account| account == "made-again");
        assert_eq!(forsaken.iter().map(|(account, _)| account.as_str()).collect::<Vec<_>>(), ["seen"]);
        tokens.removed("a", "seen");
        assert!(tokens.forsaken("a", |_| false).iter().all(|(account, _)| account == "made-again"));
    }

    #[test]
    fn accounts_that_are_gone_are_forgotten_with_their_secrets() {
        let tokens = ledger(&[("a", "w", "a"), ("b", "w", "b")]);
        let annotations = json!({api::SOURCE_ANNOTATION: "kept"});
        let metadata =
            json!({"name": "hanse-token-k", "namespace": "a", "uid": "s", "annotations": annotations});
        tokens.written(&json!({"metadata": metadata}));
        for (namespace, uid) in [("a", "kept"), ("a", "had none"), ("b", "of another")] {
            tokens.account_changed("w", namespace, Some(uid));
        }
        tokens.tidy("a");
        let mut left: Vec<String> = tokens.state.lock().gone.iter().map(|(_, uid)| uid.clone()).collect();
        left.sort();
        assert_eq!(left, ["kept", "of another"]);
    }
}
