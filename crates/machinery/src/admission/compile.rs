//! Expressions of policies and of webhooks' match conditions: what they may name, and what must come out of them.

use std::sync::Arc;

use cel::{CompileError, Decl, Env, ListType, ObjectType, Program, Shape, Type, types};

use crate::expressions;

pub const OBJECT: &str = "object";
pub const OLD_OBJECT: &str = "oldObject";
pub const PARAMS: &str = "params";
pub const REQUEST: &str = "request";
pub const NAMESPACE: &str = "namespaceObject";
pub const AUTHORIZER: &str = "authorizer";
pub const REQUEST_RESOURCE: &str = "authorizer.requestResource";
pub const VARIABLES: &str = "variables";

/// What an expression is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    MatchCondition,
    Variable,
    Validation,
    Message,
    AuditAnnotation,
    ApplyConfiguration,
    JsonPatch,
}

impl Role {
    /// The types its value may have; none: any.
    fn results(self) -> Vec<Type> {
        match self {
            Role::MatchCondition | Role::Validation => vec![Type::Bool],
            Role::Variable => Vec::new(),
            Role::Message => vec![Type::String],
            Role::AuditAnnotation => vec![Type::String, Type::Null],
            Role::ApplyConfiguration => vec![Type::object("Object")],
            Role::JsonPatch => vec![Type::list(Type::object("JSONPatch"))],
        }
    }

    fn makes_patches(self) -> bool {
        matches!(self, Role::ApplyConfiguration | Role::JsonPatch)
    }
}

/// Why an expression has no program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    Invalid(String),
    /// It is well formed but cannot be made to run.
    Internal(String),
}

impl Refused {
    pub fn message(&self) -> &str {
        match self {
            Refused::Invalid(message) | Refused::Internal(message) => message,
        }
    }
}

/// Compiles the expressions of one policy or webhook. Variables are known to what comes after them.
pub struct Compiler {
    base: Env,
    authorized: Env,
    /// Names and types; none: expressions know no `variables`.
    variables: Option<Vec<(String, Type)>>,
}

impl Compiler {
    /// For expressions without variables; `params` says whether they can refer to parameters.
    pub fn new(params: bool) -> Self {
        let mut base = expressions::environment()
            .variable(OBJECT, Type::Dyn)
            .variable(OLD_OBJECT, Type::Dyn)
            .declared(NAMESPACE, &namespace_type())
            .declared(REQUEST, &request_type());
        if params {
            base = base.variable(PARAMS, Type::Dyn);
        }
        let authorized = base
            .clone()
            .variable(AUTHORIZER, Type::object(types::AUTHORIZER))
            .variable(REQUEST_RESOURCE, Type::object(types::RESOURCE_CHECK));
        Compiler { base, authorized, variables: None }
    }

    /// For expressions that can refer to variables.
    pub fn with_variables(mut self) -> Self {
        self.variables = Some(Vec::new());
        self
    }

    pub fn compile(&self, text: &str, role: Role) -> Result<Program, Refused> {
        let mut env = if role == Role::Message { self.base.clone() } else { self.authorized.clone() };
        if let Some(variables) = &self.variables {
            env = env.record(VARIABLES, "kubernetes.variables", variables.iter().cloned());
        }
        if role.makes_patches() {
            env = env.with_patches();
        }
        let (program, result) = match env.compile(text) {
            Ok(program) => {
                let result = program.result_type().clone();
                (Ok(program), result)
            }
            Err(CompileError::Issues(issues)) => {
                return Err(Refused::Invalid(format!("compilation failed: {issues}")));
            }
            // The type is looked at first.
            Err(CompileError::Instantiation { reason, result_type }) => {
                (Err(Refused::Internal(format!("program instantiation failed: {reason}"))), result_type)
            }
        };
        check_result(&role.results(), &result)?;
        program
    }

    /// Compiles a variable and makes it known; one that cannot be compiled is known too, as anything.
    pub fn variable(&mut self, name: &str, text: &str) -> Result<Program, Refused> {
        let compiled = self.compile(text, Role::Variable);
        let of = compiled.as_ref().map_or(Type::Dyn, |program| as_field(program.result_type()));
        if let Some(variables) = &mut self.variables {
            variables.push((name.to_owned(), of));
        }
        compiled
    }
}

fn check_result(expected: &[Type], found: &Type) -> Result<(), Refused> {
    if expected.is_empty() || expected.contains(found) {
        return Ok(());
    }
    let found = found.declared();
    let wanted: Vec<String> = expected.iter().map(Type::declared).collect();
    Err(Refused::Invalid(match wanted.as_slice() {
        [wanted] => format!("must evaluate to {wanted} but got {found}"),
        wanted => format!("must evaluate to one of [{}] but got {found}", wanted.join(" ")),
    }))
}

/// The type that a variable has for other expressions: what is neither plain nor a list or map is anything.
pub(super) fn as_field(of: &Type) -> Type {
    match of {
        Type::Any
        | Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => of.clone(),
        Type::List(element) => Type::list(as_field(element)),
        Type::Map(key, value) => Type::map(as_field(key), as_field(value)),
        _ => Type::Dyn,
    }
}

fn object(name: &str, fields: &[(&str, Decl)]) -> Decl {
    let fields = fields.iter().map(|(name, decl)| ((*name).to_owned(), Arc::new(decl.clone())));
    Decl::new(Shape::Object(ObjectType::new(name, fields)))
}

fn list_of(items: Decl) -> Decl {
    Decl::new(Shape::List(Arc::new(items), ListType::Atomic))
}

fn map_of(values: Decl) -> Decl {
    Decl::new(Shape::Map(Arc::new(values)))
}

/// The AdmissionRequest as expressions know it; the objects in it have variables of their own.
pub(super) fn request_type() -> Decl {
    let text = || Decl::new(Shape::String);
    let kind = || {
        let fields = [("group", text()), ("version", text()), ("kind", text())];
        object("kubernetes.GroupVersionKind", &fields)
    };
    let resource = || {
        let fields = [("group", text()), ("version", text()), ("resource", text())];
        object("kubernetes.GroupVersionResource", &fields)
    };
    let user = [
        ("username", text()),
        ("uid", text()),
        ("groups", list_of(text())),
        ("extra", map_of(list_of(text()))),
    ];
    let fields = [
        ("kind", kind()),
        ("resource", resource()),
        ("subResource", text()),
        ("requestKind", kind()),
        ("requestResource", resource()),
        ("requestSubResource", text()),
        ("name", text()),
        ("namespace", text()),
        ("operation", text()),
        ("userInfo", object("kubernetes.UserInfo", &user)),
        ("dryRun", Decl::new(Shape::Bool)),
        ("options", Decl::new(Shape::Dyn)),
    ];
    object("kubernetes.AdmissionRequest", &fields)
}

pub(super) fn namespace_type() -> Decl {
    let text = || Decl::new(Shape::String);
    let time = || Decl::new(Shape::DateTime);
    let condition = [
        ("status", text()),
        ("type", text()),
        ("lastTransitionTime", time()),
        ("message", text()),
        ("reason", text()),
    ];
    let conditions = list_of(object("kubernetes.NamespaceCondition", &condition));
    let metadata = [
        ("name", text()),
        ("generateName", text()),
        ("namespace", text()),
        ("labels", map_of(text())),
        ("annotations", map_of(text())),
        // Upstream's spelling, under which nothing is found.
        ("UID", text()),
        ("creationTimestamp", time()),
        ("deletionGracePeriodSeconds", Decl::new(Shape::Int)),
        ("deletionTimestamp", time()),
        ("generation", Decl::new(Shape::Int)),
        ("resourceVersion", text()),
        ("finalizers", list_of(text())),
    ];
    let fields = [
        ("metadata", object("kubernetes.NamespaceMetadata", &metadata)),
        ("spec", object("kubernetes.NamespaceSpec", &[("finalizers", list_of(text()))])),
        ("status", object("kubernetes.NamespaceStatus", &[("conditions", conditions), ("phase", text())])),
    ];
    object("kubernetes.Namespace", &fields)
}
