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
    client::{APPLY, Client, Error},
    node::says,
    session::Session,
};

/// The member has no mutating policies, or they are turned off.
pub const NOT_SERVED: &str = "NotServed";

/// It did not answer.
const UNREACHABLE: &str = "Unreachable";

/// Nobody said where the hub is.
const NO_ADDRESS: &str = "NoAddress";

/// The policies are there, and the Secrets that they speak of are not.
pub const SECRETS_MISSING: &str = "SecretsMissing";

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
            client.env().clock.sleep(self.pause(lack)).await;
        }
    }

    /// Until the policies are looked at again.
    fn pause(&self, lack: Option<&'static str>) -> Duration {
        let options = &self.shared.options;
        match (lack, self.tokens.way()) {
            (None, Some(Way::Policies)) | (Some(NO_ADDRESS), _) => options.learn_every,
            // What a member does not serve it does not a moment later, and one that is newer now stays so.
            (None | Some(NOT_SERVED), Some(Way::Templates)) => options.learn_every / 5,
            (None | Some(NOT_SERVED | UNREACHABLE), _) => options.retry_after,
            // Perhaps it has much to do; perhaps everything waits for it.
            (Some(_), _) => options.retry_after * 5,
        }
    }

    async fn install(&self, client: &Client) -> Result<(), Lack> {
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
        let path = format!("/api/v1/namespaces/{NAMESPACE}");
        let namespace = client.get(&path).await.map_err(|error| refusal(&error))?;
        let owner = json!({
            "apiVersion": "v1", "kind": "Namespace", "name": NAMESPACE, "uid": namespace["metadata"]["uid"],
        });
        for wanted in policy::wanted(&address, (mutating, validating), &owner) {
            ensure(client, &wanted).await.map_err(|error| refusal(&error))?;
        }
        Ok(())
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
            Err(lack) => {
                conditions.set(condition::TOKENS, false, lack.reason, &lack.message, &now);
            }
        }
        self.news.notify_one();
    }
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
    if let Some(found) = client.find(path).await?
        && ["metadata", "spec"].iter().all(|part| says(&found[part], &object[part]))
    {
        return Ok(());
    }
    let path = format!("{path}?fieldManager={MANAGER}&force=true");
    client.call(Method::PATCH, &path, APPLY, Some(object)).await.map(|_: Value| ())
}
