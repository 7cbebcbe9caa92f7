//! Pods in members talk to the hub: they get tokens of their workspace, and never one of the cluster they run in.
//!
//! ```text
//!   policy    what a new pod is given: the hub's address, and a Secret for a token     evaluated in the member
//!   install   puts the policies there, says on the Cluster how that went
//!   verdict   whether there are any, by what the member answers
//!   secret    that Secret: token, authority, namespace                                 written by the session
//!   template  the same done to what is sent, where a member has no such policies
//!   ledger    which there are, which there are to be, when it is whose turn
//! ```
//!
//! A pod whose Secret is not there yet waits for it, as Kubernetes does with every volume. With the hub away pods are
//! made and healed all the same, and the Secrets are what they were.

mod install;
mod ledger;
pub mod policy;
pub mod secret;
pub mod template;
mod verdict;

use std::{convert::Infallible, time::Duration};

use api::assignment;
use compact_str::CompactString;
use env::BoxFuture;
use futures_util::{StreamExt, stream};
use http::Method;
use kinds::{Kind, Pods, Problem};
use serde_json::{Value, json};
use server::space::Space;
use store::{Collection, Key};

use crate::{
    client::{Client, Error, JSON, MERGE},
    homes::may_choose,
    session::Session,
};
pub use ledger::{NamespaceSink, SecretSink, Tokens};
use ledger::{Outcome, Owner};
use policy::{Address, MAX_ACCOUNT};
use secret::{Basis, Kept, LIFETIME, RENEWED_AFTER};
use template::Facts;

/// The member's namespaces that belong to workspaces.
pub const NAMESPACES: &str = "/api/v1/namespaces?labelSelector=hanse.io%2Fworkspace";
/// The Secrets that are kept here. What is in them stays there.
pub const SECRETS: &str = "/api/v1/secrets?labelSelector=hanse.io%2Ftoken";
/// Namespaces that are seen to at once.
const AT_ONCE: usize = 8;

/// Why a Secret was not written.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Member(#[from] Error),
    #[error("the hub issues no token: {0}")]
    Hub(String),
    #[error(
        "there is a Secret of that name that Hanse did not make: rename it, or pods of that account get no token"
    )]
    InTheWay,
}

/// What tokens for a workspace's accounts are bound to.
enum Binding {
    /// Only to the account.
    Account,
    /// Also to the node that stands for the cluster, by its UID: unjoined, it takes the tokens with it.
    Node(String),
    /// The node is still to be made.
    Awaited,
}

impl Session {
    /// Keeps the Secrets with tokens while the member can be used.
    pub async fn keep_tokens(&self, client: &Client) -> Infallible {
        let clock = self.shared.hub.env.clock.clone();
        // Whatever was under way when it was lost is begun again.
        self.tokens.look_at_everything();
        loop {
            let due = self.tokens.due(clock.elapsed());
            let all = stream::iter(due);
            all.for_each_concurrent(AT_ONCE, |namespace| self.see_to(client, namespace)).await;
            let rests = self.tokens.rests(clock.elapsed());
            tokio::select! {
                () = self.tokens.called() => {}
                () = clock.sleep(rests) => {}
            }
        }
    }

    fn see_to<'a>(&'a self, client: &'a Client, namespace: CompactString) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let outcome = self.settle(client, &namespace).await;
            let now = self.shared.hub.env.clock.elapsed();
            if self.tokens.note(namespace, outcome, now, self.shared.options.retry_after) {
                self.note_tokens();
            }
        })
    }

    /// Completes what is sent to a namespace of the member that was made for a workspace: pods as the policies there would,
    /// and where there are none, templates of pods; there it is also refused what the policies refuse.
    pub fn complete_pods(
        &self,
        kind: &Kind,
        space: &Space,
        home: &str,
        namespace: &str,
        body: &mut Value,
    ) -> Result<(), Problem> {
        let is_alone = self.tokens.has_no_policies();
        let at = match kind.pods {
            Pods::None => return Ok(()),
            Pods::Itself => "spec".to_owned(),
            Pods::Template(_) if !is_alone => return Ok(()),
            Pods::Template(path) => format!("{path}.spec"),
        };
        let Some(spec) = body.pointer_mut(&format!("/{}", at.replace('.', "/"))) else { return Ok(()) };
        let mut address = None;
        if is_alone {
            address = Address::read(&self.shared.hub.options.advertised);
            let account = Key::new("", "serviceaccounts", home, template::account(spec));
            let account = space.get(&account).and_then(|account| account.tree().ok());
            let wanted = account.and_then(|account| account.get("automountServiceAccountToken")?.as_bool());
            template::mount(spec, wanted);
        }
        template::rewrite(spec, &Facts { address: address.as_ref(), home, mapped: home != namespace });
        match template::refused(spec).filter(|_| is_alone) {
            Some(reason) => Err(Problem::Invalid { field: format!("{at}.volumes"), reason }),
            None => Ok(()),
        }
    }

    /// The workspace that a namespace is of, if its label counts: whoever labels namespaces in a cluster of the platform
    /// gets tokens only of those that the hub sends there.
    fn space_of(&self, owner: &Owner) -> Option<Space> {
        let space = self.shared.hub.space(&owner.workspace).ok()?;
        let is_own = *space.id() == self.place.0;
        (is_own || may_choose(&self.place.0) && self.is_sent_here(&space, &owner.namespace)).then_some(space)
    }

    fn is_sent_here(&self, space: &Space, namespace: &str) -> bool {
        let name = assignment::name_of("", "namespaces", namespace);
        let stored = space.get(&Key::new(api::GROUP, assignment::PLURAL, namespace, &name));
        let Some(assignment) = stored.and_then(|it| self.shared.hub.assignments.read(&it).ok()) else {
            return false;
        };
        let uid = &self.wanted.borrow().uid;
        assignment.spec.clusters.iter().any(|target| target.uid == *uid)
    }

    /// Makes the Secrets of one namespace what they are to be.
    async fn settle(&self, client: &Client, namespace: &CompactString) -> Outcome {
        let Some(owner) = self.tokens.owner(namespace) else { return Outcome::Nothing };
        let Some(space) = self.space_of(&owner) else { return Outcome::Nothing };
        match self.homes.is_for(namespace, space.id()) {
            Some(true) => {}
            // It was made for a workspace that had this name before.
            Some(false) => return Outcome::Nothing,
            None => return Outcome::Later,
        }
        let node = match self.binding(&space) {
            Binding::Account => String::new(),
            Binding::Node(uid) => uid,
            Binding::Awaited => return Outcome::Later,
        };
        let listing = space.latest(&Collection::new("", "serviceaccounts"));
        let accounts = listing.iter(Some(&owner.namespace), None);
        let accounts: Vec<(CompactString, String)> = accounts
            .filter(|(item, object)| !object.head.deleting && item.name().len() <= MAX_ACCOUNT)
            .map(|(item, object)| (item.name().into(), object.head.uid.to_string()))
            .collect();
        drop(listing);
        let mut rests = RENEWED_AFTER;
        // What is wrong with one is no reason to leave the others without.
        let mut first_failure = None;
        for (account, uid) in &accounts {
            let at = (namespace, account);
            match self.provide(client, &space, &owner, at, uid, &node).await {
                Ok(until) => rests = rests.min(until),
                Err(failure) => {
                    self.shared.hub.metrics.members.token("Failed");
                    let what = format!("Secret {namespace}/{}: {failure}", secret::name(account));
                    tracing::info!(cluster = %self.name(), what, "a token is not where pods look for it");
                    let is_lost = matches!(&failure, Failure::Member(error) if !error.is_answer());
                    first_failure.get_or_insert(what);
                    if is_lost {
                        // Nor does it answer for the others.
                        break;
                    }
                }
            }
        }
        let is_there = |account: &str| accounts.iter().any(|(name, _)| name == account);
        for (account, kept) in self.tokens.forsaken(namespace, is_there) {
            match self.remove(client, namespace, &account, &kept).await {
                Ok(()) => self.tokens.removed(namespace, &account),
                Err(failure) => {
                    let what = format!("Secret {namespace}/{}: {failure}", secret::name(&account));
                    first_failure.get_or_insert(what);
                }
            }
        }
        if let Some(failure) = first_failure {
            return Outcome::Failed(failure);
        }
        self.tokens.tidy(namespace);
        Outcome::Settled(rests)
    }

    fn binding(&self, space: &Space) -> Binding {
        // Nodes stand for clusters where those are.
        if *space.id() != self.place.0 {
            return Binding::Account;
        }
        match space.get(&Key::new("", "nodes", "", self.name())) {
            None => Binding::Awaited,
            Some(node) => {
                let stands_for_it = node.head.label(api::CLUSTER_LABEL) == Some(self.name().as_str());
                match stands_for_it {
                    true => Binding::Node(node.head.uid.to_string()),
                    false => Binding::Account,
                }
            }
        }
    }

    /// One Secret; answers for how long it is good.
    async fn provide(
        &self,
        client: &Client,
        space: &Space,
        owner: &Owner,
        (namespace, account): (&CompactString, &CompactString),
        uid: &str,
        node: &str,
    ) -> Result<Duration, Failure> {
        let hub = &self.shared.hub;
        let authority = hub.login.serving_authorities_pem();
        let key_id = || hub.issuers.of(hub, space).key_ids().next().unwrap_or_default().to_owned();
        let key = key_id();
        let mut basis = Basis {
            workspace: (space.name(), &space.id().0),
            namespace: &owner.namespace,
            account,
            account_uid: uid,
            node_uid: node,
            key_id: &key,
            authority: &authority,
        };
        let kept = self.tokens.kept(namespace, account);
        if let Some(kept) = kept.as_ref().filter(|kept| kept.is_good(&basis.mark(), hub.now())) {
            return Ok(kept.rests(hub.now()));
        }
        let now = hub.now_text();
        let token = self.issue(&basis).await?;
        // The first token of a workspace has its key made.
        let key = key_id();
        basis.key_id = &key;
        let secret = basis.secret(&token, &now);
        let written = self.write_secret(client, namespace, account, kept.as_ref(), secret).await?;
        self.tokens.written(&written);
        hub.metrics.members.token(if kept.is_some() { "Renewed" } else { "Made" });
        Ok(RENEWED_AFTER)
    }

    /// As anybody else who asks for one.
    async fn issue(&self, basis: &Basis<'_>) -> Result<String, Failure> {
        let mut request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "metadata": {"uid": basis.account_uid},
            "spec": {"expirationSeconds": LIFETIME.as_secs()},
        });
        if !basis.node_uid.is_empty() {
            request["spec"]["boundObjectRef"] = json!({"apiVersion": "v1", "kind": "Node", "name": self.name().as_str(), "uid": basis.node_uid});
        }
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", basis.namespace, basis.account);
        let answer = self.shared.desk.call(basis.workspace.0, Method::POST, &path, JSON, &request).await;
        let answer = answer.map_err(|refused| Failure::Hub(refused.message))?;
        let token = answer["status"]["token"].as_str();
        token.map(str::to_owned).ok_or_else(|| Failure::Hub("there is none in its answer".to_owned()))
    }

    async fn write_secret(
        &self,
        client: &Client,
        namespace: &str,
        account: &str,
        kept: Option<&Kept>,
        mut secret: Value,
    ) -> Result<Value, Failure> {
        let path = format!("/api/v1/namespaces/{namespace}/secrets");
        let of_one = format!("{path}/{}", secret::name(account));
        let by = format!("fieldManager={}", crate::MANAGER);
        if let Some(kept) = kept {
            secret["metadata"]["uid"] = json!(kept.uid);
            let patched = client.call(Method::PATCH, &format!("{of_one}?{by}"), MERGE, Some(&secret)).await;
            if let Err(error) = &patched
                && matches!(error.code(), Some(404 | 409))
            {
                self.tokens.removed(namespace, account);
            }
            return Ok(patched?);
        }
        match client.call(Method::POST, &format!("{path}?{by}"), JSON, Some(&secret)).await {
            Ok(made) => Ok(made),
            Err(error) if error.code() == Some(409) => {
                let found = client.get(&of_one).await?;
                if found["metadata"]["labels"][secret::LABEL].is_null() {
                    return Err(Failure::InTheWay);
                }
                // It was made by a session before this one, and the watch is behind.
                self.tokens.written(&found);
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The account was seen to be deleted.
    async fn remove(
        &self,
        client: &Client,
        namespace: &str,
        account: &str,
        kept: &Kept,
    ) -> Result<(), Error> {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{}", secret::name(account));
        let options = json!({"preconditions": {"uid": kept.uid}});
        match client.call(Method::DELETE, &path, JSON, Some(&options)).await {
            Ok(_) => self.shared.hub.metrics.members.token("Removed"),
            // Somebody else's by now, or gone.
            Err(error) if matches!(error.code(), Some(404 | 409)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
