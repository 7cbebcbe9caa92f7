//! What expressions can name: variables, types and functions.

use std::{collections::HashMap, fmt, sync::Arc};

use crate::{
    check::{self, Checked},
    decl::{Decl, ObjectType},
    functions::{Function, Functions, Host},
    library, parse, patches, plan,
    program::Program,
    source::Issues,
    types::{self, Type},
    validate,
};

/// An environment to compile expressions in. Copies are cheap and can be extended each on its own.
#[derive(Clone)]
pub struct Env {
    functions: Arc<Functions>,
    variables: HashMap<Arc<str>, Type>,
    objects: HashMap<Arc<str>, Arc<ObjectType>>,
    records: HashMap<Arc<str>, Arc<HashMap<String, Type>>>,
    patches: bool,
    host: Arc<dyn Host>,
}

/// An object's type that the environment does not have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnknownType;

/// Why an expression has no program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompileError {
    /// It cannot be read or does not fit its types.
    Issues(Issues),
    /// It is well typed but a constant part of it can have no value, such as `int('x')`; Kubernetes reports this as a
    /// failed instantiation of the program.
    Instantiation { reason: String, result_type: Type },
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::Issues(issues) => issues.fmt(f),
            CompileError::Instantiation { reason, .. } => f.write_str(reason),
        }
    }
}

impl std::error::Error for CompileError {}

impl Env {
    /// The environment of Kubernetes 1.36, without variables.
    pub fn kubernetes(host: Arc<dyn Host>) -> Self {
        Env {
            functions: Arc::new(library::functions()),
            variables: HashMap::new(),
            objects: HashMap::new(),
            records: HashMap::new(),
            patches: false,
            host,
        }
    }

    /// Declares a variable.
    pub fn variable(mut self, name: &str, of: Type) -> Self {
        self.variables.insert(name.into(), of);
        self
    }

    /// Declares a variable whose values a schema types. What the schema keeps untyped is `dyn`.
    pub fn declared(mut self, name: &str, decl: &Decl) -> Self {
        self = self.types_of(decl);
        self.variable(name, decl.cel_type().unwrap_or(Type::Dyn))
    }

    /// Makes the object types of a schema known.
    pub fn types_of(mut self, decl: &Decl) -> Self {
        let objects = &mut self.objects;
        decl.each_object(&mut |object| objects.insert(object.name.clone(), object.clone()).is_none());
        self
    }

    /// Declares a variable that has fields of the given types; an [`Activation`](crate::Activation) has their values.
    pub fn record(
        mut self,
        name: &str,
        type_name: &str,
        fields: impl IntoIterator<Item = (String, Type)>,
    ) -> Self {
        self.records.insert(type_name.into(), Arc::new(fields.into_iter().collect()));
        self.variable(name, Type::object(type_name))
    }

    /// Lets expressions make what changes objects: `Object{…}`, `Object.spec{…}`, `JSONPatch{…}`.
    pub fn with_patches(mut self) -> Self {
        library::add_patches(Arc::make_mut(&mut self.functions));
        self.patches = true;
        self
    }

    /// Reads and checks an expression and plans its evaluation.
    pub fn compile(&self, text: &str) -> Result<Program, CompileError> {
        let checked = self.check(text).map_err(CompileError::Issues)?;
        match plan::plan(self, &checked) {
            Ok(plan) => Ok(Program::new(checked, plan, self.host.clone())),
            Err(reason) => {
                let result_type = checked.type_of(checked.parsed.root.id).clone();
                Err(CompileError::Instantiation { reason, result_type })
            }
        }
    }

    /// Reads and checks an expression.
    pub fn check(&self, text: &str) -> Result<Checked, Issues> {
        let parsed = parse::parse(text)?;
        let checked = check::check(self, parsed)?;
        validate::validate(self, &checked)?;
        Ok(checked)
    }

    pub(crate) fn function(&self, name: &str) -> Option<&Arc<Function>> {
        self.functions.get(name)
    }

    /// The type of an object's field, if it has that field; `Err` where the object's type is not known.
    pub(crate) fn field_type(&self, object: &str, field: &str) -> Result<Option<Type>, UnknownType> {
        if self.patches && patches::is_patch_type(object) {
            return Ok(Some(patches::field_type(object, field)));
        }
        if let Some(fields) = self.records.get(object) {
            return Ok(fields.get(field).cloned());
        }
        self.objects.get(object).map(|object| object.field_type(field)).ok_or(UnknownType)
    }

    /// Whether expressions can make objects of the type.
    pub(crate) fn makes(&self, name: &str) -> bool {
        self.patches && patches::is_patch_type(name)
    }

    pub(crate) fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// The type of a variable, or of the name of a type.
    pub(crate) fn lookup(&self, name: &str) -> Option<Type> {
        if let Some(of) = self.variables.get(name) {
            return Some(of.clone());
        }
        if let Some(of) = named_type(name) {
            return Some(of.of());
        }
        if self.makes(name) || self.records.contains_key(name) {
            return Some(Type::object(name).of());
        }
        match name {
            // Kubernetes knows these two names beside a schema, though no expression with them can be evaluated.
            "duration" if !self.objects.is_empty() => Some(Type::Duration.of()),
            "timestamp" if !self.objects.is_empty() => Some(Type::Timestamp.of()),
            _ => self.objects.get(name).map(|object| Type::Object(object.name.clone()).of()),
        }
    }
}

/// The types that have a name in expressions.
pub(crate) fn named_type(name: &str) -> Option<Type> {
    let param = |name: &str| Type::Param(name.into());
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "google.protobuf.Duration" => Type::Duration,
        "int" => Type::Int,
        "list" => Type::list(param("A")),
        "map" => Type::map(param("A"), param("B")),
        "null_type" => Type::Null,
        "string" => Type::String,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "type" => Type::Type(None),
        "uint" => Type::Uint,
        types::OPTIONAL => Type::optional(param("V")),
        types::IP | types::CIDR => Type::Opaque(name.into(), Arc::new([])),
        _ => return None,
    })
}
