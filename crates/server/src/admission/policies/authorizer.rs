//! What expressions may ask about rights.

use std::{fmt, sync::Arc};

use machinery::admission::authorize::{self, Check, Decision, ResourceCheck};

use crate::{
    context::Context,
    hub::Hub,
    rbac::Attributes,
    space::Space,
    user::{MASTERS, User},
};

/// Answers for who makes the request, and for service accounts of the workspace.
pub struct Authorizer {
    hub: Arc<Hub>,
    space: Space,
    user: Arc<User>,
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizer").field("user", &self.user.name).finish_non_exhaustive()
    }
}

impl Authorizer {
    pub fn of(context: &Context) -> Arc<dyn authorize::Authorizer> {
        let (hub, space, user) = (context.hub.clone(), context.space.clone(), context.user.clone());
        Arc::new(Authorizer { hub, space, user })
    }
}

fn service_account(namespace: &str, name: &str) -> User {
    User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")],
        ..User::default()
    }
}

impl authorize::Authorizer for Authorizer {
    fn check(&self, account: Option<(&str, &str)>, what: &Check<'_>) -> Decision {
        let account = account.map(|(namespace, name)| service_account(namespace, name));
        let user = account.as_ref().unwrap_or(&self.user);
        let attributes = match what {
            Check::Path { verb, path } => Attributes::NonResource { verb, path },
            Check::Resource { verb, resource } => {
                let ResourceCheck { group, resource, subresource, namespace, name } = resource;
                Attributes::Resource { verb, group, resource, subresource, namespace, name }
            }
        };
        if user.in_group(MASTERS) {
            return Decision { allowed: true, ..Decision::default() };
        }
        let reason = self.hub.authorizer.policy(&self.space).reason(user, &attributes);
        Decision { allowed: reason.is_some(), reason: reason.unwrap_or_default(), error: None }
    }
}
