//! What the tests of this crate share: a host, schemas, and values written so that they can be compared.
#![allow(dead_code, reason = "each test uses its part")]

pub mod generate;
pub mod oracle;
pub mod random;

use std::{any::Any, cmp::Ordering, collections::BTreeMap, sync::Arc};

use cel::{Activation, Budget, CompileError, Decl, Env, ListType, ObjectType, Opaque, Shape, Value};
use serde_json::{Value as Json, json};

/// A host with the simplest quantities that can be: whole multiples of thousandths.
pub struct TestHost;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Milli(i128);

impl cel::Host for TestHost {
    fn parse_quantity(&self, text: &str) -> Result<Arc<dyn cel::Quantity>, String> {
        const SUFFIXES: &[(&str, i128)] = &[
            ("Ki", 1000 << 10),
            ("Mi", 1000 << 20),
            ("Gi", 1000 << 30),
            ("m", 1),
            ("k", 1_000_000),
            ("M", 1_000_000_000),
            ("G", 1_000_000_000_000),
            ("", 1000),
        ];
        for (suffix, factor) in SUFFIXES {
            if let Some(digits) = text.strip_suffix(suffix)
                && let Ok(number) = digits.parse::<i64>()
            {
                return Ok(Arc::new(Milli(i128::from(number) * factor)));
            }
        }
        Err("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            .into())
    }

    fn check_name(&self, _: &str, name: &str) -> Vec<String> {
        let valid = name.bytes().all(|byte| byte.is_ascii_lowercase());
        if valid { Vec::new() } else { vec!["not lower case".into()] }
    }
}

impl cel::Quantity for Milli {
    fn compare(&self, other: &dyn cel::Quantity) -> Ordering {
        self.cmp(other.as_any().downcast_ref().unwrap())
    }

    fn add(&self, other: &dyn cel::Quantity) -> Arc<dyn cel::Quantity> {
        Arc::new(Milli(self.0 + other.as_any().downcast_ref::<Milli>().unwrap().0))
    }

    fn subtract(&self, other: &dyn cel::Quantity) -> Arc<dyn cel::Quantity> {
        Arc::new(Milli(self.0 - other.as_any().downcast_ref::<Milli>().unwrap().0))
    }

    fn as_integer(&self) -> Option<i64> {
        (self.0 % 1000 == 0).then_some((self.0 / 1000) as i64)
    }

    fn as_approximate_float(&self) -> f64 {
        self.0 as f64 * 0.001
    }

    fn sign(&self) -> i64 {
        self.0.signum() as i64
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The declaration of an OpenAPI schema, with the names and bounds Kubernetes gives it.
pub fn declare(schema: &Json, name: &str) -> Decl {
    let number = |key: &str| schema[key].as_u64();
    let flag = |key: &str| schema[key].as_bool().unwrap_or(false);
    if flag("x-kubernetes-int-or-string") {
        let decl = Decl::new(Shape::IntOrString).nullable(flag("nullable"));
        return number("maxLength").map_or(decl.clone(), |length| decl.max_elements(length * 4));
    }
    let shape = match schema["type"].as_str() {
        Some("boolean") => Shape::Bool,
        Some("integer") => Shape::Int,
        Some("number") => Shape::Double,
        Some("string") => match schema["format"].as_str() {
            Some("byte") => Shape::Bytes,
            Some("duration") => Shape::Duration,
            Some("date") => Shape::Date,
            Some("date-time") => Shape::DateTime,
            _ => Shape::String,
        },
        Some("array") => {
            let items = declare(&schema["items"], &format!("{name}.@idx"));
            let kind = match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => ListType::Set,
                Some("map") => {
                    let keys = schema["x-kubernetes-list-map-keys"].as_array().cloned().unwrap_or_default();
                    ListType::Map(keys.iter().filter_map(Json::as_str).map(String::from).collect())
                }
                _ => ListType::Atomic,
            };
            Shape::List(Arc::new(items), kind)
        }
        Some("object") if schema["additionalProperties"].is_object() => {
            Shape::Map(Arc::new(declare(&schema["additionalProperties"], &format!("{name}.@elem"))))
        }
        Some("object") => return declare_object(schema, name),
        _ => Shape::Preserved,
    };
    let bound = match &shape {
        Shape::List(..) => number("maxItems"),
        Shape::Map(_) => number("maxProperties"),
        Shape::String => number("maxLength").map(|length| length * 4).or_else(|| longest(schema)),
        Shape::Bytes => number("maxLength"),
        _ => None,
    };
    let decl = Decl::new(shape).nullable(flag("nullable"));
    bound.map_or(decl.clone(), |bound| decl.max_elements(bound))
}

fn longest(schema: &Json) -> Option<u64> {
    schema["enum"].as_array()?.iter().filter_map(Json::as_str).map(|text| text.len() as u64).max()
}

fn declare_object(schema: &Json, name: &str) -> Decl {
    let mut fields = BTreeMap::new();
    let mut min_size = 2;
    for (property, schema_of) in schema["properties"].as_object().into_iter().flatten() {
        let escaped = cel::escape(property).unwrap_or_else(|| property.clone());
        let decl = declare(schema_of, &format!("{name}.{escaped}"));
        let required = schema["required"].as_array().is_some_and(|names| names.contains(&json!(property)));
        if required && schema_of["default"].is_null() && decl.cel_type().is_some() {
            min_size += property.len() as u64 + decl.min_size + 4;
        }
        fields.insert(property.clone(), Arc::new(decl));
    }
    let nullable = schema["nullable"].as_bool().unwrap_or(false);
    Decl::new(Shape::Object(ObjectType::new(name, fields))).min_size(min_size).nullable(nullable)
}

/// A question: an expression with the data it is asked about.
#[derive(Clone)]
pub struct Question {
    pub expr: String,
    pub schema: Json,
    pub self_value: Json,
    pub old_value: Json,
    pub data: Json,
    pub limit: u64,
}

impl Question {
    pub fn new(expr: &str) -> Self {
        Question {
            expr: expr.to_owned(),
            schema: schema(),
            self_value: value(),
            old_value: old_value(),
            data: data(),
            limit: 1_000_000,
        }
    }
}

/// What an implementation makes of a question.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    pub issues: String,
    pub program: String,
    pub of: String,
    pub value: String,
    pub error: String,
    pub cost: u64,
    pub min: u64,
    pub max: u64,
    pub uses_old: bool,
}

impl Answer {
    /// The answer as a line that says only what there is to say.
    pub fn to_line(&self, question: &Question) -> String {
        let mut line = serde_json::Map::new();
        line.insert("expr".into(), json!(question.expr));
        let texts = [
            ("issues", &self.issues),
            ("program", &self.program),
            ("type", &self.of),
            ("value", &self.value),
            ("error", &self.error),
        ];
        for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            line.insert(key.into(), json!(text));
        }
        if self.issues.is_empty() && self.program.is_empty() {
            line.insert("cost".into(), json!([self.cost, self.min, self.max]));
        }
        Json::Object(line).to_string()
    }
}

/// What this crate makes of a question.
pub fn answer(env: &Env, decl: &Decl, question: &Question) -> Answer {
    let mut answer = Answer::default();
    let program = match env.compile(&question.expr) {
        Ok(program) => program,
        Err(CompileError::Issues(issues)) => {
            answer.issues = issues.to_string();
            return answer;
        }
        Err(CompileError::Instantiation { reason, result_type }) => {
            answer.program = reason;
            answer.of = type_string(&result_type);
            return answer;
        }
    };
    answer.of = type_string(program.result_type());
    answer.uses_old = program.references("oldSelf");
    let estimate = program.estimate(decl);
    (answer.min, answer.max) = (estimate.min, estimate.max);
    let activation = Activation::new()
        .with_result("self", Value::from_json(&question.self_value, decl))
        .with_result("oldSelf", Value::from_json(&question.old_value, decl))
        .with("data", Value::from_untyped_json(&question.data));
    let mut budget = Budget::new(question.limit);
    match program.evaluate(&activation, &mut budget) {
        // What shares its parts can be too long to be written out.
        Ok(value) if question.limit > 20_000 || value.to_json().is_ok() => answer.value = render(&value),
        Ok(_) => answer.value = "no JSON".into(),
        Err(error) => answer.error = error.message().to_owned(),
    }
    answer.cost = budget.spent();
    answer
}

/// A type as cel-go's own types are printed.
fn type_string(of: &cel::Type) -> String {
    use cel::Type;
    match of {
        Type::List(element) => format!("list({})", type_string(element)),
        Type::Map(key, value) => format!("map({}, {})", type_string(key), type_string(value)),
        Type::Type(Some(inner)) => format!("type({})", type_string(inner)),
        Type::Opaque(name, parameters) if !parameters.is_empty() => {
            let parameters: Vec<String> = parameters.iter().map(type_string).collect();
            format!("{name}({})", parameters.join(", "))
        }
        other => other.name().to_owned(),
    }
}

pub fn env(decl: &Decl) -> Env {
    Env::kubernetes(Arc::new(TestHost))
        .declared("self", decl)
        .declared("oldSelf", decl)
        .variable("data", cel::Type::Dyn)
}

/// A value as the oracle writes it.
pub fn render(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => format!("{value}u"),
        Value::Double(_) => format!("double {value}"),
        Value::String(text) => render_bytes('s', text.as_bytes()),
        Value::Bytes(bytes) => render_bytes('b', bytes),
        Value::Duration(nanos) => format!("duration {nanos}"),
        Value::Timestamp(time) => format!("timestamp {}", time.rfc3339()),
        Value::Optional(None) => "none".into(),
        Value::Optional(Some(value)) => format!("some({})", render(value)),
        Value::Opaque(Opaque::Ip(_)) => format!("ip {value}"),
        Value::Opaque(Opaque::Cidr(_)) => format!("cidr {value}"),
        Value::Opaque(Opaque::Url(_)) => format!("url {value}"),
        Value::Opaque(Opaque::Semver(_)) => format!("semver {value}"),
        Value::Opaque(Opaque::Format(_)) => format!("format {value}"),
        Value::Opaque(_) => "quantity".into(),
        Value::Type(of) => format!("type {}", of.name()),
        Value::List(list) => {
            let parts: Vec<String> = list.iter().map(render_result).collect();
            format!("[{}]", parts.join(", "))
        }
        Value::Map(map) => {
            let mut parts: Vec<String> = map
                .keys()
                .iter()
                .map(|key| {
                    let found = map.find(key).map(|found| found.unwrap_or(Value::Null));
                    format!("{}: {}", render(key), render_result(found))
                })
                .collect();
            parts.sort();
            format!("{{{}}}", parts.join(", "))
        }
        Value::Preserved(_) => "*common.unknownPreserved".into(),
        Value::Struct(made) => format!("object {}", made.name),
    }
}

fn render_result(value: cel::Eval<Value<'_>>) -> String {
    match value {
        Ok(value) => render(&value),
        Err(error) => format!("error {error}"),
    }
}

fn render_bytes(kind: char, bytes: &[u8]) -> String {
    let mut out = format!("{kind}\"");
    for byte in bytes {
        match byte {
            b' '..=b'~' if !matches!(byte, b'"' | b'\\') => out.push(*byte as char),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

/// A schema with something of everything.
pub fn schema() -> Json {
    json!({"type": "object", "required": ["name", "replicas"], "properties": {
        "name": {"type": "string", "maxLength": 20},
        "text": {"type": "string"},
        "mode": {"type": "string", "enum": ["On", "Off", "Automatic"]},
        "replicas": {"type": "integer"},
        "max": {"type": "integer", "default": 5},
        "ratio": {"type": "number"},
        "enabled": {"type": "boolean"},
        "port": {"x-kubernetes-int-or-string": true},
        "timeout": {"type": "string", "format": "duration"},
        "since": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "blob": {"type": "string", "format": "byte", "maxLength": 100},
        "maybe": {"type": "string", "nullable": true},
        "namespace": {"type": "string"},
        "dash-name": {"type": "integer"},
        "tags": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 8}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "nested": {"type": "array", "maxItems": 3, "items": {"type": "array", "maxItems": 4, "items": {"type": "integer"}}},
        "ports": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "maxLength": 10}, "number": {"type": "integer"}}}},
        "labels": {"type": "object", "maxProperties": 4, "additionalProperties": {"type": "string", "maxLength": 16}},
        "limits": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": true}},
        "spec": {"type": "object", "properties": {
            "a": {"type": "integer"},
            "b": {"type": "object", "properties": {"c": {"type": "string"}}},
            "free": {"x-kubernetes-preserve-unknown-fields": true}}},
        "free": {"x-kubernetes-preserve-unknown-fields": true}
    }})
}

pub fn value() -> Json {
    json!({"name": "web", "text": "The quick brown fox", "mode": "On", "replicas": 3, "max": 5, "ratio": 0.5,
        "enabled": true, "port": 80, "timeout": "1h30m", "since": "2026-11-15T13:00:00.25Z", "day": "2026-11-15",
        "blob": "aGVsbG8=", "maybe": null, "namespace": "default", "dash-name": 7,
        "tags": ["a", "b", "c", "a"], "set": ["x", "y", "z"], "numbers": [3, 1, 2], "nested": [[1, 2], [3], []],
        "ports": [{"name": "http", "number": 80}, {"name": "dns", "number": 53}],
        "labels": {"app": "web", "tier": "front"}, "limits": {"cpu": 2, "memory": "4Gi"},
        "spec": {"a": 1, "b": {"c": "deep"}, "free": {"x": [1]}}, "free": {"any": "thing"}})
}

pub fn old_value() -> Json {
    let mut old = value();
    old["replicas"] = json!(2);
    old["set"] = json!(["z", "y", "x"]);
    old["ports"] = json!([{"name": "dns", "number": 53}, {"name": "http", "number": 80}]);
    old["tags"] = json!(["a", "b"]);
    old
}

pub fn data() -> Json {
    json!({"int": 1, "double": 1.5, "text": "hi", "list": [1, 2.5, "x", null], "map": {"k": {"n": 1}}, "yes": true,
        "nothing": null, "words": ["one", "two", "three"]})
}
