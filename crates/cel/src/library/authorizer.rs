//! The authorizer's methods: declared here, answered by the host's objects.

use crate::{
    error::{Eval, EvalError},
    functions::{Body, Functions},
    value::{Opaque, Value},
};

/// A row for a method that the host's object answers.
macro_rules! methods {
    ($($method:literal, $id:literal, $signature:literal;)*) => {
        &[$(($method, $id, $signature, (|_, args| call($method, args)) as Body)),*]
    };
}

pub fn add(functions: &mut Functions) {
    functions.add(methods! {
        "path", "authorizer_path",
            "kubernetes.authorization.Authorizer.(string) kubernetes.authorization.PathCheck";
        "group", "authorizer_group",
            "kubernetes.authorization.Authorizer.(string) kubernetes.authorization.GroupCheck";
        "serviceAccount", "authorizer_serviceaccount",
            "kubernetes.authorization.Authorizer.(string, string) kubernetes.authorization.Authorizer";
        "resource", "groupcheck_resource",
            "kubernetes.authorization.GroupCheck.(string) kubernetes.authorization.ResourceCheck";
        "subresource", "resourcecheck_subresource",
            "kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck";
        "namespace", "resourcecheck_namespace",
            "kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck";
        "name", "resourcecheck_name",
            "kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck";
        "check", "pathcheck_check",
            "kubernetes.authorization.PathCheck.(string) kubernetes.authorization.Decision";
        "check", "resourcecheck_check",
            "kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.Decision";
        "errored", "decision_errored", "kubernetes.authorization.Decision.() bool";
        "error", "decision_error", "kubernetes.authorization.Decision.() string";
        "allowed", "decision_allowed", "kubernetes.authorization.Decision.() bool";
        "reason", "decision_reason", "kubernetes.authorization.Decision.() string";
        "fieldSelector", "authorizer_fieldselector",
            "kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck";
        "labelSelector", "authorizer_labelselector",
            "kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck";
    });
}

fn call<'a>(method: &str, args: &[Value<'a>]) -> Eval<Value<'a>> {
    match args.split_first() {
        Some((Value::Opaque(Opaque::Host(object)), rest)) => object.call(method, rest),
        _ => Err(EvalError::no_such_overload()),
    }
}
