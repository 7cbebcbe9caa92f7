//! The webhooks of a workspace, ready to be asked.

use std::{sync::Arc, time::Duration};

use machinery::{
    Revision,
    admission::{conditions::Conditions, rules::Criteria},
    definition::{ServiceReference, WebhookClient},
    resource::Tree,
    validation::parts::{items, number, object, text, texts},
};
use store::{Collection, WorkspaceId};

use crate::{recent::Recent, space::Space, webhook::Target};

/// One webhook of a configuration.
pub struct Hook {
    pub configuration: String,
    pub name: String,
    /// Tells it from every other of the workspace.
    pub id: String,
    pub criteria: Criteria,
    pub conditions: Conditions,
    /// `failurePolicy: Ignore`.
    pub fails_open: bool,
    /// `None`: it does not say.
    pub has_side_effects: Option<bool>,
    pub timeout: Option<Duration>,
    pub review_versions: Vec<String>,
    /// `reinvocationPolicy: IfNeeded`.
    pub again_if_needed: bool,
    /// Where it is, or why it cannot be called.
    pub target: Result<Target, String>,
}

impl Hook {
    fn read(configuration: &str, id: String, hook: &Tree) -> Self {
        let seconds = number(hook, "timeoutSeconds").and_then(|seconds| u64::try_from(seconds).ok());
        let has_side_effects = match text(hook, "sideEffects") {
            "" => None,
            class => Some(!matches!(class, "None" | "NoneOnDryRun")),
        };
        let client = object(hook, "clientConfig").map(client).unwrap_or_default();
        Hook {
            configuration: configuration.to_owned(),
            name: text(hook, "name").to_owned(),
            id,
            criteria: Criteria::of_webhook(hook),
            conditions: Conditions::of_webhook(hook),
            fails_open: text(hook, "failurePolicy") == "Ignore",
            has_side_effects,
            timeout: seconds.map(Duration::from_secs),
            review_versions: texts(hook, "admissionReviewVersions").map(str::to_owned).collect(),
            again_if_needed: text(hook, "reinvocationPolicy") == "IfNeeded",
            target: Target::of(&client).map_err(|error| error.to_string()),
        }
    }
}

fn client(config: &Tree) -> WebhookClient {
    let some = |tree: &Tree, key: &str| Some(text(tree, key).to_owned()).filter(|text| !text.is_empty());
    WebhookClient {
        url: some(config, "url"),
        service: object(config, "service").map(|service| ServiceReference {
            namespace: text(service, "namespace").to_owned(),
            name: text(service, "name").to_owned(),
            path: some(service, "path"),
            port: number(service, "port").unwrap_or(443),
        }),
        ca_bundle: text(config, "caBundle").to_owned(),
    }
}

/// The webhooks of every workspace that has some.
pub struct Registered {
    pub mutating: Hooks,
    pub validating: Hooks,
}

impl Default for Registered {
    fn default() -> Self {
        let hooks = |plural: &str| Hooks {
            collection: Collection::new("admissionregistration.k8s.io", plural),
            compiled: Recent::default(),
        };
        Registered {
            mutating: hooks("mutatingwebhookconfigurations"),
            validating: hooks("validatingwebhookconfigurations"),
        }
    }
}

impl Registered {
    pub fn forget(&self, workspace: &WorkspaceId) {
        self.mutating.compiled.forget(workspace);
        self.validating.compiled.forget(workspace);
    }
}

/// The webhooks of one kind of configuration, by workspace.
pub struct Hooks {
    collection: Collection,
    compiled: Recent<Compiled>,
}

#[derive(Clone)]
struct Compiled {
    /// The last change of the configurations when this was made.
    at: Revision,
    hooks: Arc<Vec<Hook>>,
}

impl Hooks {
    /// In the order in which they are asked: by the names of their configurations, and within each as it lists them.
    /// `None`: there are none.
    pub fn of(&self, space: &Space) -> Option<Arc<Vec<Hook>>> {
        // Read before computing: a change in between makes the next request compute again, never use stale ones.
        let at = space.last_change(&self.collection);
        if at == Revision::ZERO {
            return None;
        }
        let known = self.compiled.get(space.id()).filter(|it| it.at == at).map(|it| it.hooks);
        let hooks = known.unwrap_or_else(|| {
            let hooks = Arc::new(self.compile(space));
            self.compiled.insert(space.id(), Compiled { at, hooks: hooks.clone() });
            hooks
        });
        (!hooks.is_empty()).then_some(hooks)
    }

    fn compile(&self, space: &Space) -> Vec<Hook> {
        let mut hooks = Vec::new();
        for (_, configuration) in space.latest(&self.collection).iter(None, None) {
            // Stored bytes were a tree when they were written.
            let Ok(tree) = configuration.tree() else { continue };
            let name = configuration.head.name.as_str();
            for (at, hook) in items(&tree, "webhooks") {
                hooks.push(Hook::read(name, format!("{name}/{at}"), hook));
            }
        }
        hooks
    }
}
