//! Puts the policies for pods into a member, and says on its `Cluster` how that went.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use api::cluster::condition;
use http::Method;
use serde_json::{Value, json};

use super::{
    policy::{self, Address, GROUP, MUTATING, VALIDATING, VERSIONS, Wanted},
    verdict::Way,
};
use crate::{
    MANAGER, NAMESPACE,
    client::{APPLY, Client, Error, JSON},
    node::says,
    session::Session,
};

/// The member has no mutating policies, or they are turned off.
pub const NOT_SERVED: &str = "NotServed";

/// It did not answer.
const UNREACHABLE: &str = "Unreachable";

/// Nobody said where the hub is.
const NO_ADDRESS: &str = "NoAddress";

/// The policies are there and do nothing yet.
const NOT_IN_FORCE: &str = "NotInForce";

/// The policies are there, and the Secrets that they speak of are not.
pub const SECRETS_MISSING: &str = "SecretsMissing";

/// Namespaces that the policies are tried in: in one, others may refuse everything.
const TRIALS: usize = 3;

/// The policies are there, as they are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// They were seen to do their work.
    InForce,
    /// There is no namespace yet that they are for.
    Untried,
}

/// Why pods of workspaces are not looked after in a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    pub reason: &'static str,
    pub message: String,
}

impl Session {
    /// Keeps the policies as they are to be while the member can be used.
    pub async fn guard_pods(&self, client: &Client) -> Infallible {
        loop {
            let outcome = self.install(client).await;
            if let Err(lack) = &outcome
                && !self.tokens.says(lack)
            {
                tracing::info!(cluster = %self.name(), why = lack.message, "pods are given no tokens of the hub");
            }
            let lack = outcome.as_ref().err().map(|lack| lack.reason);
            if self.tokens.installed(outcome) {
                // Pods waited for it, or are made otherwise now.
                self.copies.look_again(None);
            }
            self.note_tokens();
            tokio::select! {
                () = self.tokens.can_be_tried() => {}
                () = client.env().clock.sleep(self.pause(lack)) => {}
            }
        }
    }

    /// Until the policies are looked at again.
    fn pause(&self, lack: Option<&'static str>) -> Duration {
        let options = &self.shared.options;
        match (lack, self.tokens.way()) {
            // A namespace to try them in makes itself heard.
            (None, Some(Way::Policies) | None) | (Some(NO_ADDRESS), _) => options.learn_every,
            // What a member does not serve it does not a moment later, and one that is newer now stays so.
            (None | Some(NOT_SERVED), Some(Way::Templates)) => options.learn_every / 5,
            (Some(NOT_SERVED | NOT_IN_FORCE | UNREACHABLE), _) => options.retry_after,
            // Perhaps it has much to do; perhaps everything waits for it.
            (Some(_), _) => options.retry_after * 5,
        }
    }

    async fn install(&self, client: &Client) -> Result<Installed, Lack> {
        let Some(address) = Address::read(&self.shared.hub.options.advertised) else {
            let message =
                "the hub does not know by which address pods reach it: start it with --advertise HOST:PORT";
            return Err(Lack { reason: NO_ADDRESS, message: message.to_owned() });
        };
        let served = served(client).await.map_err(|error| refusal(&error))?;
        let version = |resource: &str| served.get(resource).copied();
        let (Some(mutating), Some(validating)) = (version(MUTATING), version(VALIDATING)) else {
            return Err(not_served());
        };
        let namespace = own_namespace(client).await.map_err(|error| refusal(&error))?;
        let owner = json!({
            "apiVersion": "v1", "kind": "Namespace", "name": NAMESPACE, "uid": namespace["metadata"]["uid"],
        });
        for wanted in policy::wanted(&address, (mutating, validating), &owner) {
            ensure(client, &wanted).await.map_err(|error| refusal(&error))?;
        }
        match self.tokens.way() {
            Some(Way::Policies) => Ok(Installed::InForce),
            _ => self.try_policies(client).await,
        }
    }

    /// An API server takes a moment to act by new policies, and one that was told to ignore them never does.
    async fn try_policies(&self, client: &Client) -> Result<Installed, Lack> {
        let mut outcome = Ok(Installed::Untried);
        for namespace in self.tokens.some_namespaces(TRIALS) {
            outcome = try_in(client, &namespace).await.map(|()| Installed::InForce);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Writes down whether pods of workspaces get what they need.
    pub fn note_tokens(&self) {
        let Some(state) = self.tokens.verdict() else { return };
        let now = self.shared.hub.now_text();
        let conditions = &mut self.known.lock().conditions;
        let address = &self.shared.hub.options.advertised;
        match state {
            Ok(()) => {
                let message = format!("pods of workspaces reach their workspace at {address}");
                conditions.set(condition::TOKENS, true, "Installed", &message, &now);
            }
            // No answer tells nothing: what is known must not be forgotten because of it, for after a restart nothing would
            // be sent there until it is known again.
            Err(lack) if lack.reason == UNREACHABLE && self.tokens.way().is_some() => return,
            Err(lack) => {
                conditions.set(condition::TOKENS, false, lack.reason, &lack.message, &now);
            }
        }
        self.news.notify_one();
    }
}

/// What is Hanse's in a member belongs to its namespace. Joining makes it; a cluster that was merely written down has none.
async fn own_namespace(client: &Client) -> Result<Value, Error> {
    if let Some(namespace) = client.find(&format!("/api/v1/namespaces/{NAMESPACE}")).await? {
        return Ok(namespace);
    }
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"app.kubernetes.io/managed-by": MANAGER}},
    });
    client.call(Method::POST, "/api/v1/namespaces", JSON, Some(&namespace)).await
}

fn not_served() -> Lack {
    let message = format!(
        "it serves no MutatingAdmissionPolicies (they are on by default from Kubernetes 1.36): what is \
         placed there gets the hub's tokens all the same, and pods that others make in namespaces of workspaces get the \
         cluster's own. Upgrade it, or turn them on: --feature-gates=MutatingAdmissionPolicy=true \
         --runtime-config={GROUP}/v1beta1=true"
    );
    Lack { reason: NOT_SERVED, message }
}

/// Asks for what the validating policy refuses, without making anything: once it does, no pod has a token of the member's.
async fn try_in(client: &Client, namespace: &str) -> Result<(), Lack> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": "hanse-trial", "annotations": {"kubernetes.io/service-account.name": "default"},
        },
    });
    let path = format!("/api/v1/namespaces/{namespace}/secrets?dryRun=All&fieldManager={MANAGER}");
    let by_policy = format!("ValidatingAdmissionPolicy '{}'", policy::NAME);
    match client.call(Method::POST, &path, JSON, Some(&secret)).await {
        Ok(_) => Err(Lack {
            reason: NOT_IN_FORCE,
            message: "the policies for pods are there and not in force: that takes a moment, or its API server runs with \
                      --disable-admission-plugins=ValidatingAdmissionPolicy"
                .to_owned(),
        }),
        Err(error) if error.to_string().contains(&by_policy) => Ok(()),
        Err(error) => {
            let reason = if error.code().is_some() { "Refused" } else { UNREACHABLE };
            Err(Lack { reason, message: format!("the policies for pods could not be tried: {error}") })
        }
    }
}

fn refusal(error: &Error) -> Lack {
    match error.code() {
        Some(403) => Lack {
            reason: "Forbidden",
            message: format!(
                "{error}; join the cluster again, and its account gets the rights that it lacks"
            ),
        },
        Some(_) => Lack { reason: "Refused", message: error.to_string() },
        None => Lack { reason: UNREACHABLE, message: error.to_string() },
    }
}

/// In which version the member has which resource of the group; the newest that has it.
async fn served(client: &Client) -> Result<BTreeMap<String, &'static str>, Error> {
    let mut served = BTreeMap::new();
    for version in VERSIONS {
        let Some(list) = client.find(&format!("/apis/{GROUP}/{version}")).await? else { continue };
        for resource in list["resources"].as_array().into_iter().flatten() {
            if let Some(name) = resource["name"].as_str() {
                served.entry(name.to_owned()).or_insert(version);
            }
        }
        if served.contains_key(MUTATING) && served.contains_key(VALIDATING) {
            break;
        }
    }
    Ok(served)
}

/// Writes nothing if it is there already.
async fn ensure(client: &Client, wanted: &Wanted) -> Result<(), Error> {
    let Wanted { path, object } = wanted;
    let mut object = object.clone();
    let found = client.find(path).await?;
    // Nothing is overwritten but the one that was looked at.
    let force = found.is_some();
    if let Some(found) = found {
        if ["metadata", "spec"].iter().all(|part| says(&found[part], &object[part])) {
            return Ok(());
        }
        object["metadata"]["uid"] = found["metadata"]["uid"].clone();
    }
    let path = format!("{path}?fieldManager={MANAGER}&force={force}");
    client.call(Method::PATCH, &path, APPLY, Some(&object)).await.map(|_: Value| ())
}
