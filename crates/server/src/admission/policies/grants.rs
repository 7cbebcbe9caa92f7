//! Whoever makes a policy look at objects must be allowed to look at them.

use machinery::{field_error::Cause, resource::Tree, status::Status};
use serde_json::Value;
use store::Key;

use super::{super::Admission, GROUP};
use crate::{
    context::Context,
    rbac::Attributes,
    user::{MASTERS, User},
};

/// Refuses a policy whose author may not read all objects of its `paramKind`, and a binding whose author may not read
/// what its `paramRef` names. Says nothing of other kinds.
pub fn may_refer(admission: &Admission<'_>, object: Option<&Tree>) -> Result<(), Status> {
    let context = admission.context;
    let resource = &context.resource;
    let Some(object) = object.filter(|_| resource.group == GROUP && context.target.subresource.is_empty())
    else {
        return Ok(());
    };
    if context.user.in_group(MASTERS) {
        return Ok(());
    }
    let (new, old) = (object.get("spec"), admission.old.and_then(|old| old.get("spec")));
    let (field, why) = match resource.plural.as_str() {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
            ("spec.paramKind", of_policy(context, new, old))
        }
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => {
            ("spec.paramRef", of_binding(context, new, old))
        }
        _ => return Ok(()),
    };
    match why {
        None => Ok(()),
        Some(why) => {
            let causes = vec![Cause::forbidden(field, &why)];
            Err(Status::invalid(&resource.stored_group, &resource.kind, admission.name, causes))
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The group and the resource of a kind of parameters; `*` for what is not known.
fn param_resource(context: &Context, kind: &Value) -> (String, String) {
    let (api_version, kind) = (text(kind, "apiVersion"), text(kind, "kind"));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let served = context.hub.served(&context.space);
    let resource = served.registry.find_kind(api_version, kind).map(|resource| resource.plural.clone());
    (group.to_owned(), resource.unwrap_or_else(|| "*".to_owned()))
}

fn may(
    context: &Context,
    verb: &str,
    (group, resource): &(String, String),
    namespace: &str,
    name: &str,
) -> bool {
    let attributes = Attributes::Resource { verb, group, resource, subresource: "", namespace, name };
    context.hub.authorizer.allows(&context.space, &context.user, &attributes)
}

fn of_policy(context: &Context, new: Option<&Value>, old: Option<&Value>) -> Option<String> {
    let kind = new?.get("paramKind").filter(|kind| !kind.is_null())?;
    if old.and_then(|old| old.get("paramKind")) == Some(kind) {
        return None;
    }
    if may(context, "get", &param_resource(context, kind), "*", "*") {
        return None;
    }
    let (user, kind, version) = (shown(&context.user), text(kind, "kind"), text(kind, "apiVersion"));
    Some(format!(
        "user {user} must have \"get\" permission on all objects of the referenced paramKind (kind={kind}, \
         apiVersion={version})"
    ))
}

fn of_binding(context: &Context, new: Option<&Value>, old: Option<&Value>) -> Option<String> {
    let spec = new?;
    let reference = spec.get("paramRef").filter(|reference| !reference.is_null())?;
    let same = |key: &str| old.and_then(|old| old.get(key)) == spec.get(key);
    if old.is_some() && same("paramRef") && same("policyName") {
        return None;
    }
    let name = text(spec, "policyName");
    let policies = context.resource.plural.replace("policybindings", "policies");
    let policy = context.space.get(&Key::new(GROUP, &policies, "", name));
    let tree = policy.as_ref().and_then(|policy| policy.tree().ok());
    let kind =
        tree.as_ref().and_then(|tree| tree.get("spec")?.get("paramKind")).filter(|kind| !kind.is_null());
    let resource = match kind {
        Some(kind) => param_resource(context, kind),
        None => ("*".to_owned(), "*".to_owned()),
    };
    let param = text(reference, "name");
    let verb = if param.is_empty() { "list" } else { "get" };
    if may(context, verb, &resource, text(reference, "namespace"), param) {
        return None;
    }
    let user = shown(&context.user);
    let everything = format!("does not have \"{verb}\" permission for all groups, versions and resources");
    Some(match kind {
        _ if policy.is_none() => format!(
            "unable to get policy {name} to determine minimum required permissions and user {user} {everything}"
        ),
        Some(kind) if resource.1 == "*" => {
            let kind =
                format!("&ParamKind{{APIVersion:{},Kind:{},}}", text(kind, "apiVersion"), text(kind, "kind"));
            format!(
                "unable to resolve paramKind {kind} to determine minimum required permissions and user {user} \
                 {everything}"
            )
        }
        _ => format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef"),
    })
}

/// A user as upstream's messages show one.
fn shown(user: &User) -> String {
    let extra: Vec<String> =
        user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}
