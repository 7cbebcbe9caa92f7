//! From the claims of a verified token to whom they stand for.

use std::collections::BTreeMap;

use cel::{Activation, Budget, Program, Value as CelValue};
use serde_json::{Map, Number, Value, json};

const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Whom a token stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub username: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// How the claims of one issuer are read.
#[derive(Default)]
pub struct Mapping {
    pub(super) username: Option<Source>,
    pub(super) groups: Option<Source>,
    pub(super) uid: Option<Source>,
    /// Key, expression, and the expression's text.
    pub(super) extra: Vec<(String, Program, String)>,
    /// Claims, and the values they must have.
    pub(super) required: Vec<(String, String)>,
    pub(super) claim_rules: Vec<Validation>,
    pub(super) user_rules: Vec<Validation>,
}

/// Where a value comes from.
pub(super) enum Source {
    Claim {
        name: String,
        prefix: String,
    },
    /// With its text.
    Expression(Box<Program>, String),
}

/// Something that must hold.
pub(super) struct Validation {
    pub program: Program,
    pub expression: String,
    pub message: String,
}

type Claims = Map<String, Value>;

impl Mapping {
    /// Whom the claims stand for, or why for nobody.
    pub fn identity(&self, claims: &Claims) -> Result<Identity, String> {
        let seen = Seen::of(self, claims);
        let username = self.username(claims, &seen)?;
        let groups = self.groups(claims, &seen)?;
        let uid = self.uid(claims, &seen)?;
        let extra = self.extra(claims, &seen)?;
        let identity = Identity { username, uid, groups, extra };
        self.check_required(claims)?;
        for rule in &self.claim_rules {
            rule.check(&seen.activation())
                .map_err(|why| format!("oidc: error evaluating claim validation expression: {why}"))?;
        }
        self.check_user(&identity)?;
        Ok(identity)
    }

    fn username(&self, claims: &Claims, seen: &Seen) -> Result<String, String> {
        match &self.username {
            Some(Source::Expression(program, text)) => {
                let failed = |why: String| format!("oidc: error evaluating username claim expression: {why}");
                let value = evaluate(program, text, &seen.activation()).map_err(failed)?;
                let Value::String(name) = value else {
                    return Err(failed("username claim expression must return a string".to_owned()));
                };
                match name.is_empty() {
                    true => Err("oidc: empty username via CEL expression is not allowed".to_owned()),
                    false => Ok(name),
                }
            }
            Some(Source::Claim { name, prefix }) => {
                let username = text_claim(claims, name)
                    .map_err(|why| format!("oidc: parse username claims {name:?}: {why}"))?;
                if name == "email" {
                    check_email(claims)?;
                }
                Ok(format!("{prefix}{username}"))
            }
            None => Err("oidc: no username".to_owned()),
        }
    }

    fn groups(&self, claims: &Claims, seen: &Seen) -> Result<Vec<String>, String> {
        match &self.groups {
            Some(Source::Claim { name, prefix }) => {
                let Some(value) = claims.get(name) else { return Ok(Vec::new()) };
                let groups = one_or_many(value).ok_or_else(|| {
                    format!("oidc: parse groups claim {name:?}: {}", wrong_type(value, "string"))
                })?;
                Ok(groups.into_iter().map(|group| format!("{prefix}{group}")).collect())
            }
            Some(Source::Expression(program, text)) => {
                let value = evaluate(program, text, &seen.activation());
                value
                    .and_then(|value| texts(&value))
                    .map_err(|why| format!("oidc: error evaluating group claim expression: {why}"))
            }
            None => Ok(Vec::new()),
        }
    }

    fn uid(&self, claims: &Claims, seen: &Seen) -> Result<String, String> {
        match &self.uid {
            Some(Source::Claim { name, .. }) => {
                text_claim(claims, name).map_err(|why| format!("oidc: parse uid claim {name:?}: {why}"))
            }
            Some(Source::Expression(program, text)) => {
                let failed = |why: String| format!("oidc: error evaluating uid claim expression: {why}");
                match evaluate(program, text, &seen.activation()).map_err(failed)? {
                    Value::String(uid) => Ok(uid),
                    _ => Err(failed("uid claim expression must return a string".to_owned())),
                }
            }
            None => Ok(String::new()),
        }
    }

    fn extra(&self, claims: &Claims, seen: &Seen) -> Result<BTreeMap<String, Vec<String>>, String> {
        let mut extra = BTreeMap::new();
        if let Some(id) = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, program, text) in &self.extra {
            let value = evaluate(program, text, &seen.activation())?;
            let values = texts(&value)
                .map_err(|why| format!("oidc: error evaluating extra claim expression: {text}: {why}"))?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        Ok(extra)
    }

    fn check_required(&self, claims: &Claims) -> Result<(), String> {
        for (name, wanted) in &self.required {
            if !claims.contains_key(name) {
                return Err(format!("oidc: required claim {name} not present in ID token"));
            }
            let value = text_claim(claims, name).map_err(|why| format!("oidc: parse claim {name}: {why}"))?;
            if value != *wanted {
                return Err(format!(
                    "oidc: required claim {name} value does not match. Got = {value}, want = {wanted}"
                ));
            }
        }
        Ok(())
    }

    fn check_user(&self, identity: &Identity) -> Result<(), String> {
        if self.user_rules.is_empty() {
            return Ok(());
        }
        let user = json!({
            "username": identity.username, "uid": identity.uid,
            "groups": identity.groups, "extra": identity.extra,
        });
        let activation = Activation::new().with("user", CelValue::from_untyped_json(&user));
        for rule in &self.user_rules {
            rule.check(&activation)
                .map_err(|why| format!("oidc: error evaluating user info validation rule: {why}"))?;
        }
        Ok(())
    }

    /// Names of fields are escaped in expressions only if they have to be.
    fn has_escapes(&self) -> bool {
        let sources = [&self.username, &self.groups, &self.uid].into_iter().flatten();
        let texts = sources.filter_map(|source| match source {
            Source::Expression(_, text) => Some(text),
            Source::Claim { .. } => None,
        });
        texts
            .chain(self.extra.iter().map(|(_, _, text)| text))
            .chain(self.claim_rules.iter().map(|rule| &rule.expression))
            .any(|text| text.contains("__"))
    }

    fn has_expressions(&self) -> bool {
        let sources = [&self.username, &self.groups, &self.uid];
        sources.iter().any(|source| matches!(source, Some(Source::Expression(..))))
            || !self.extra.is_empty()
            || !self.claim_rules.is_empty()
    }
}

/// Claims as expressions see them: every number is a double, as in Go, and where an expression escapes names, fields
/// can be found by their escaped names too.
struct Seen(Value);

impl Seen {
    fn of(mapping: &Mapping, claims: &Claims) -> Seen {
        if !mapping.has_expressions() {
            return Seen(Value::Null);
        }
        Seen(shown(&Value::Object(claims.clone()), mapping.has_escapes()))
    }

    fn activation(&self) -> Activation<'_> {
        Activation::new().with("claims", CelValue::from_untyped_json(&self.0))
    }
}

fn shown(value: &Value, escape: bool) -> Value {
    match value {
        Value::Number(number) => {
            number.as_f64().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
        }
        Value::Array(items) => Value::Array(items.iter().map(|item| shown(item, escape)).collect()),
        Value::Object(members) => {
            let mut all = Map::new();
            for (name, value) in members {
                let value = shown(value, escape);
                if let Some(escaped) = cel::escape(name).filter(|it| escape && it != name) {
                    all.insert(escaped, value.clone());
                }
                all.insert(name.clone(), value);
            }
            Value::Object(all)
        }
        other => other.clone(),
    }
}

impl Validation {
    fn check(&self, activation: &Activation<'_>) -> Result<(), String> {
        match evaluate(&self.program, &self.expression, activation)? {
            Value::Bool(true) => Ok(()),
            Value::Bool(false) => {
                Err(format!("validation expression '{}' failed: {}", self.expression, self.message))
            }
            _ => Err("validation expression must return a boolean".to_owned()),
        }
    }
}

fn evaluate(program: &Program, text: &str, activation: &Activation<'_>) -> Result<Value, String> {
    let value = program.evaluate(activation, &mut Budget::default()).and_then(|value| value.to_json());
    value.map_err(|error| format!("expression '{text}' resulted in error: {error}"))
}

fn texts(value: &Value) -> Result<Vec<String>, String> {
    let wrong = || "expression must return a string or a list of strings".to_owned();
    let all = match value {
        Value::Null => Vec::new(),
        _ => one_or_many(value).ok_or_else(wrong)?,
    };
    Ok(all.into_iter().filter(|text| !text.is_empty()).collect())
}

fn one_or_many(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

fn text_claim(claims: &Claims, name: &str) -> Result<String, String> {
    match claims.get(name) {
        None => Err("claim not present".to_owned()),
        Some(Value::String(text)) => Ok(text.clone()),
        // As Go reads it.
        Some(Value::Null) => Ok(String::new()),
        Some(other) => Err(wrong_type(other, "string")),
    }
}

fn check_email(claims: &Claims) -> Result<(), String> {
    match claims.get("email_verified") {
        None | Some(Value::Bool(true)) => Ok(()),
        Some(Value::Bool(false) | Value::Null) => Err("oidc: email not verified".to_owned()),
        Some(other) => Err(format!("oidc: parse 'email_verified' claim: {}", wrong_type(other, "bool"))),
    }
}

fn wrong_type(value: &Value, wanted: &str) -> String {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {kind} into Go value of type {wanted}")
}
