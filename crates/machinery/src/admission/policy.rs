//! Policies and their bindings, read and compiled once, evaluated for many requests.
//!
//! ```text
//!   policy ── criteria ─┐                                ┌─ validating: Decisions ──> Verdict
//!                       ├─> params ──> match conditions ─┤
//!   binding ─ criteria ─┘    (each)                      └─ mutating: an object, changed
//! ```

use serde_json::Value;

use super::{
    compile::{Compiler, Role},
    conditions::Conditions,
    evaluate::{Expression, Variable},
    rules::{Criteria, Subject, Target},
};
use crate::{
    resource::Tree,
    selector::LabelSelector,
    status::{Reason, Status},
    validation::parts::{items, object, text, texts},
};

/// What a failure to evaluate means for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Fail,
    Ignore,
}

impl Failure {
    pub fn read(holder: &Tree) -> Self {
        if text(holder, "failurePolicy") == "Ignore" { Failure::Ignore } else { Failure::Fail }
    }
}

/// The kind of objects that parametrise a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamKind {
    pub group: String,
    pub version: String,
    pub kind: String,
}

impl ParamKind {
    fn read(kind: &Tree) -> Self {
        let written = text(kind, "apiVersion");
        let (group, version) = written.split_once('/').unwrap_or(("", written));
        let text_of = |text: &str| text.to_owned();
        ParamKind { group: text_of(group), version: text_of(version), kind: text_of(text(kind, "kind")) }
    }

    /// Why it cannot be used if nothing of that kind is served.
    pub fn unknown(&self) -> String {
        let ParamKind { group, version, kind } = self;
        format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'")
    }
}

/// A policy of either sort.
pub struct Policy {
    pub name: String,
    pub failure: Failure,
    pub param_kind: Option<ParamKind>,
    criteria: Option<Criteria>,
    pub(super) conditions: Conditions,
    pub(super) variables: Vec<Variable>,
    pub(super) does: Does,
}

pub(super) enum Does {
    Validate { validations: Vec<Validation>, annotations: Vec<Annotation> },
    Mutate { mutations: Vec<Mutation>, again: bool },
}

pub(super) struct Validation {
    pub expression: Expression,
    pub message: String,
    pub message_expression: Option<Expression>,
    pub reason: Reason,
}

pub(super) struct Annotation {
    pub key: String,
    pub value: Expression,
}

/// One change that a policy makes.
pub struct Mutation {
    pub(super) expression: Expression,
    pub(super) role: Role,
}

impl Policy {
    pub fn validating(tree: &Tree) -> Self {
        Policy::read(tree, |compiler, spec| {
            let validations = items(spec, "validations").map(|(_, it)| validation(compiler, it)).collect();
            let annotation = |it: &Tree| Annotation {
                key: text(it, "key").to_owned(),
                value: Expression::compile(compiler, text(it, "valueExpression"), Role::AuditAnnotation),
            };
            let annotations = items(spec, "auditAnnotations").map(|(_, it)| annotation(it)).collect();
            Does::Validate { validations, annotations }
        })
    }

    pub fn mutating(tree: &Tree) -> Self {
        Policy::read(tree, |compiler, spec| {
            let mutations = items(spec, "mutations").filter_map(|(_, it)| mutation(compiler, it)).collect();
            Does::Mutate { mutations, again: text(spec, "reinvocationPolicy") == "IfNeeded" }
        })
    }

    fn read(tree: &Tree, does: impl FnOnce(&Compiler, &Tree) -> Does) -> Self {
        let empty = Tree::new();
        let spec = object(tree, "spec").unwrap_or(&empty);
        let param_kind = object(spec, "paramKind").map(ParamKind::read);
        let mut compiler = Compiler::new(param_kind.is_some()).with_variables();
        let mut variables = Vec::new();
        for (_, it) in items(spec, "variables") {
            let name = text(it, "name");
            let expression = Expression::compile_variable(&mut compiler, name, text(it, "expression"));
            variables.push(Variable { name: name.to_owned(), expression });
        }
        Policy {
            name: name_of(tree),
            failure: Failure::read(spec),
            param_kind,
            criteria: object(spec, "matchConstraints").map(Criteria::of_policy),
            conditions: Conditions::read(&compiler, spec),
            variables,
            does: does(&compiler, spec),
        }
    }

    /// As a request for what the policy is to see this one; none: it is not concerned.
    pub fn matches<'a>(&self, request: &Subject<'a>) -> Result<Option<&'a Target>, Status> {
        match &self.criteria {
            Some(criteria) => criteria.matches(request),
            None => {
                let message = "policy contained no match constraints, a required field";
                Err(Status::new(Reason::Unknown, message))
            }
        }
    }

    pub fn mutations(&self) -> &[Mutation] {
        match &self.does {
            Does::Mutate { mutations, .. } => mutations,
            Does::Validate { .. } => &[],
        }
    }

    /// `reinvocationPolicy: IfNeeded`.
    pub fn is_invoked_again(&self) -> bool {
        matches!(self.does, Does::Mutate { again: true, .. })
    }
}

fn name_of(tree: &Tree) -> String {
    object(tree, "metadata").map_or_else(String::new, |metadata| text(metadata, "name").to_owned())
}

fn validation(compiler: &Compiler, it: &Tree) -> Validation {
    let message_expression = match text(it, "messageExpression") {
        "" => None,
        written => Some(Expression::compile(compiler, written, Role::Message)),
    };
    Validation {
        expression: Expression::compile(compiler, text(it, "expression"), Role::Validation),
        message: text(it, "message").to_owned(),
        message_expression,
        reason: match text(it, "reason") {
            "Unauthorized" => Reason::Unauthorized,
            "Forbidden" => Reason::Forbidden,
            "RequestEntityTooLarge" => Reason::RequestEntityTooLarge,
            _ => Reason::Invalid,
        },
    }
}

fn mutation(compiler: &Compiler, it: &Tree) -> Option<Mutation> {
    let (key, role) = match text(it, "patchType") {
        "ApplyConfiguration" => ("applyConfiguration", Role::ApplyConfiguration),
        "JSONPatch" => ("jsonPatch", Role::JsonPatch),
        _ => return None,
    };
    let written = text(object(it, key)?, "expression");
    Some(Mutation { expression: Expression::compile(compiler, written, role), role })
}

/// What a validating binding does about a failed validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Deny,
    Warn,
    Audit,
}

impl Action {
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Deny => "Deny",
            Action::Warn => "Warn",
            Action::Audit => "Audit",
        }
    }
}

/// What puts a policy in force, and for what.
pub struct Binding {
    pub name: String,
    pub policy: String,
    criteria: Option<Criteria>,
    param_ref: Option<ParamRef>,
    pub actions: Vec<Action>,
}

struct ParamRef {
    name: String,
    namespace: String,
    selector: Option<Result<LabelSelector, String>>,
    /// `parameterNotFoundAction: Deny`.
    denies: bool,
}

impl Binding {
    pub fn read(tree: &Tree) -> Self {
        let empty = Tree::new();
        let spec = object(tree, "spec").unwrap_or(&empty);
        let action = |text: &str| match text {
            "Deny" => Some(Action::Deny),
            "Warn" => Some(Action::Warn),
            "Audit" => Some(Action::Audit),
            _ => None,
        };
        Binding {
            name: name_of(tree),
            policy: text(spec, "policyName").to_owned(),
            criteria: object(spec, "matchResources").map(Criteria::of_policy),
            param_ref: object(spec, "paramRef").map(ParamRef::read),
            actions: texts(spec, "validationActions").filter_map(action).collect(),
        }
    }

    pub fn matches(&self, request: &Subject<'_>) -> Result<bool, Status> {
        match &self.criteria {
            None => Ok(true),
            Some(criteria) => Ok(criteria.matches(request)?.is_some()),
        }
    }

    /// The parameters to evaluate the policy with. `namespaced`: whether objects of the policy's kind of parameters are
    /// in namespaces.
    pub fn params<'a>(&'a self, namespaced: Option<bool>, namespace: &'a str) -> Result<Wanted<'a>, String> {
        match (&self.param_ref, namespaced) {
            (Some(reference), Some(namespaced)) => reference.wanted(namespaced, namespace),
            _ => Ok(Wanted::Nothing),
        }
    }

    /// Whether it is all right that there are none of the parameters that were wanted.
    pub fn accepts_none(&self) -> Result<(), String> {
        match &self.param_ref {
            Some(ParamRef { denies: true, .. }) => {
                Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Which parameters a policy is to be evaluated with, once with each.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// It is evaluated without any.
    Nothing,
    /// `namespace` is empty for kinds that are in none.
    One {
        namespace: &'a str,
        name: &'a str,
    },
    Selected {
        namespace: &'a str,
        selector: &'a LabelSelector,
    },
}

impl ParamRef {
    fn read(reference: &Tree) -> Self {
        let selector = reference.get("selector").filter(|selector| !Value::is_null(selector));
        ParamRef {
            name: text(reference, "name").to_owned(),
            namespace: text(reference, "namespace").to_owned(),
            selector: selector.map(LabelSelector::from_object),
            denies: text(reference, "parameterNotFoundAction") == "Deny",
        }
    }

    fn wanted<'a>(&'a self, namespaced: bool, namespace: &'a str) -> Result<Wanted<'a>, String> {
        let namespace = match (namespaced, self.namespace.as_str(), namespace) {
            (false, "", _) => "",
            (false, _, _) => {
                return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
            }
            (true, "", "") => {
                let why =
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
                return Err(why.into());
            }
            (true, "", namespace) => namespace,
            (true, namespace, _) => namespace,
        };
        match (&self.selector, self.name.as_str()) {
            (Some(_), name) if !name.is_empty() => {
                Err("paramRef.name and paramRef.selector are mutually exclusive".into())
            }
            (Some(Ok(selector)), _) => Ok(Wanted::Selected { namespace, selector }),
            (Some(Err(why)), _) => Err(why.clone()),
            (None, "") => Err("one of name or selector must be provided".into()),
            (None, name) => Ok(Wanted::One { namespace, name }),
        }
    }
}
