//! The authorizer as expressions see it: `authorizer.group('apps').resource('deployments').check('create').allowed()`.

use std::{any::Any, fmt, sync::Arc};

use cel::{Eval, EvalError, Object, Opaque, Value, types};

use crate::names;

/// Answers what somebody may do. Who makes the request is known to the implementation.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// `account`: not who makes the request, but the service account of this namespace and name.
    fn check(&self, account: Option<(&str, &str)>, what: &Check<'_>) -> Decision;
}

/// What somebody may do or not.
#[derive(Clone, Copy, Debug)]
pub enum Check<'a> {
    Path { verb: &'a str, path: &'a str },
    Resource { verb: &'a str, resource: &'a ResourceCheck },
}

#[derive(Clone, Debug, Default)]
pub struct ResourceCheck {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, Default)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

/// `authorizer`.
pub fn authorizer(by: &Arc<dyn Authorizer>) -> Value<'static> {
    Handle { by: by.clone(), account: None, held: Held::Authorizer }.into_value()
}

/// `authorizer.requestResource`.
pub fn request_resource(by: &Arc<dyn Authorizer>, resource: ResourceCheck) -> Value<'static> {
    Handle { by: by.clone(), account: None, held: Held::Resource(resource) }.into_value()
}

#[derive(Clone, Debug)]
struct Handle {
    by: Arc<dyn Authorizer>,
    account: Option<(String, String)>,
    held: Held,
}

#[derive(Clone, Debug)]
enum Held {
    Authorizer,
    Path(String),
    Group(String),
    Resource(ResourceCheck),
    Decision(Decision),
}

impl Handle {
    fn into_value(self) -> Value<'static> {
        Value::Opaque(Opaque::Host(Arc::new(self)))
    }

    fn with(&self, held: Held) -> Eval<Value<'static>> {
        Ok(Handle { by: self.by.clone(), account: self.account.clone(), held }.into_value())
    }

    fn decide(&self, what: &Check<'_>) -> Eval<Value<'static>> {
        let account = self.account.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        self.with(Held::Decision(self.by.check(account, what)))
    }

    fn service_account(&self, namespace: &str, name: &str) -> Eval<Value<'static>> {
        if !names::is_dns1123_subdomain(name).is_empty() {
            return Err(EvalError::invalid("Invalid service account name"));
        }
        if !names::is_dns1123_label(namespace).is_empty() {
            return Err(EvalError::invalid("Invalid service account namespace"));
        }
        let account = Some((namespace.to_owned(), name.to_owned()));
        Ok(Handle { by: self.by.clone(), account, held: Held::Authorizer }.into_value())
    }

    fn narrowed(&self, narrow: impl FnOnce(&mut ResourceCheck)) -> Eval<Value<'static>> {
        let Held::Resource(resource) = &self.held else { return Err(EvalError::no_such_overload()) };
        let mut resource = resource.clone();
        narrow(&mut resource);
        self.with(Held::Resource(resource))
    }
}

impl Object for Handle {
    fn type_name(&self) -> &'static str {
        match self.held {
            Held::Authorizer => types::AUTHORIZER,
            Held::Path(_) => types::PATH_CHECK,
            Held::Group(_) => types::GROUP_CHECK,
            Held::Resource(_) => types::RESOURCE_CHECK,
            Held::Decision(_) => types::DECISION,
        }
    }

    fn call(&self, method: &str, args: &[Value<'_>]) -> Eval<Value<'static>> {
        let given: Vec<&str> = args.iter().filter_map(Value::as_str).collect();
        match (&self.held, method, given.as_slice()) {
            (Held::Authorizer, "path", [path]) if path.trim().is_empty() => {
                Err(EvalError::invalid("path must not be empty"))
            }
            (Held::Authorizer, "path", [path]) => self.with(Held::Path((*path).to_owned())),
            (Held::Authorizer, "group", [group]) => self.with(Held::Group((*group).to_owned())),
            (Held::Authorizer, "serviceAccount", [namespace, name]) => self.service_account(namespace, name),
            (Held::Group(_), "resource", [resource]) if resource.trim().is_empty() => {
                Err(EvalError::invalid("resource must not be empty"))
            }
            (Held::Group(group), "resource", [resource]) => self.with(Held::Resource(ResourceCheck {
                group: group.clone(),
                resource: (*resource).to_owned(),
                ..ResourceCheck::default()
            })),
            (Held::Resource(_), "subresource", [it]) => {
                self.narrowed(|held| held.subresource = (*it).to_owned())
            }
            (Held::Resource(_), "namespace", [it]) => self.narrowed(|held| held.namespace = (*it).to_owned()),
            (Held::Resource(_), "name", [it]) => self.narrowed(|held| held.name = (*it).to_owned()),
            // Roles do not look at selectors, so that nothing follows from them.
            (Held::Resource(_), "fieldSelector" | "labelSelector", [_]) => self.narrowed(|_| {}),
            (Held::Path(path), "check", [verb]) => self.decide(&Check::Path { verb, path }),
            (Held::Resource(resource), "check", [verb]) => self.decide(&Check::Resource { verb, resource }),
            (Held::Decision(decision), "allowed", []) => Ok(Value::Bool(decision.allowed)),
            (Held::Decision(decision), "reason", []) => Ok(Value::string(decision.reason.as_str())),
            (Held::Decision(decision), "errored", []) => Ok(Value::Bool(decision.error.is_some())),
            (Held::Decision(decision), "error", []) => {
                Ok(Value::string(decision.error.as_deref().unwrap_or_default()))
            }
            _ => Err(EvalError::no_such_overload()),
        }
    }

    fn equals(&self, _: &dyn Object) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
