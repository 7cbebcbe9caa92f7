//! Checks values against the value validations of a schema, in the words of upstream's OpenAPI validator.
//!
//! Its habits are matched where clients see them: which branch of an `anyOf` is blamed (the one that got furthest),
//! that a text passes where a format is given for something else, that an integer is compared as an integer.

mod number;

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Number, Value};

use super::{Additional, Path, Structural, format, ratchet::Counterpart};
use crate::{
    field_error::{Cause, CauseReason},
    gotext,
};

/// What of a schema counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As objects are checked: formats that are not supported say nothing; int-or-string is a type.
    Objects,
    /// As defaults are checked when a definition is made.
    Defaults,
}

/// What is wrong with `value`; `base` is where it stands. Errors in what equals its counterpart are forgiven.
pub fn check(
    value: &Value,
    schema: &Structural,
    base: &Path<'_>,
    reading: Reading,
    counterpart: Option<Counterpart<'_>>,
) -> Vec<Cause> {
    told(Pass { reading }.ratcheted(value, schema, &Path::Root, counterpart, true), base)
}

/// What is wrong with a new `status`, alone.
pub fn check_status(status: &Value, schema: &Structural, counterpart: Option<Counterpart<'_>>) -> Vec<Cause> {
    let base = Path::Root;
    check(status, schema, &base.child("status"), Reading::Objects, counterpart)
}

/// Every message is told once.
fn told(outcome: Outcome, base: &Path<'_>) -> Vec<Cause> {
    let mut told = HashSet::new();
    let causes = outcome.faults.into_iter().filter(|fault| told.insert(fault.message.clone()));
    causes.map(|fault| fault.into_cause(base)).collect()
}

/// One thing that is wrong.
pub(super) struct Fault {
    message: String,
    /// Where; none for what upstream tells of no field.
    place: Option<String>,
    kind: Kind,
}

enum Kind {
    /// A sentence about the object as a whole.
    Sentence,
    Required,
    TooLong(i64),
    TooMany {
        count: i64,
        max: i64,
    },
    NotSupported {
        value: Value,
        supported: Vec<String>,
    },
    Type(Value),
    Invalid(Value),
}

impl Fault {
    fn sentence(message: String) -> Self {
        Self { message, place: None, kind: Kind::Sentence }
    }

    fn at(place: &str, message: String, kind: Kind) -> Self {
        Self { message, place: Some(place.to_owned()), kind }
    }

    fn invalid(place: &str, what: &str, value: Value) -> Self {
        Self::at(place, format!("{place} in body {what}"), Kind::Invalid(value))
    }

    fn wrong_type(place: &str, expected: &str, found: &str) -> Self {
        let message = format!("{place} in body must be of type {expected}: {}", gotext::quote(found));
        Self::at(place, message, Kind::Type(found.into()))
    }

    fn into_cause(self, base: &Path<'_>) -> Cause {
        let field = match self.place.as_deref().map(|place| place.strip_prefix('.').unwrap_or(place)) {
            None | Some("") => base.to_string(),
            Some(place) => base.child(place).to_string(),
        };
        match self.kind {
            Kind::Sentence => Cause::invalid(field, &"".into(), &self.message),
            Kind::Required => Cause::required(field, ""),
            // No bound that is negative is kept, whatever the value is; upstream then names none.
            Kind::TooLong(max) => match usize::try_from(max) {
                Ok(max) => Cause::too_long(field, max),
                Err(_) => Cause::unbounded(CauseReason::TooLong, field, None, "value is too long"),
            },
            Kind::TooMany { count, max } => match usize::try_from(max) {
                Ok(max) => Cause::too_many(field, usize::try_from(count).unwrap_or_default(), max),
                Err(_) => Cause::unbounded(CauseReason::TooMany, field, Some(count), "has too many items"),
            },
            Kind::NotSupported { value, supported } => {
                let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
                Cause::not_supported(field, &value, &supported)
            }
            Kind::Type(value) => Cause::type_invalid(field, &value, &self.message),
            Kind::Invalid(value) => Cause::invalid(field, &value, &self.message),
        }
    }
}

/// What a check found, and how many of its parts held.
#[derive(Default)]
struct Outcome {
    faults: Vec<Fault>,
    matches: usize,
}

impl Outcome {
    fn is_good(&self) -> bool {
        self.faults.is_empty()
    }

    fn merge(&mut self, other: Outcome) {
        self.faults.extend(other.faults);
        self.matches += other.matches;
    }

    fn fault(&mut self, fault: Fault) {
        self.faults.push(fault);
    }
}

struct Pass {
    reading: Reading,
}

impl Pass {
    /// Forgives errors in a value that equals its counterpart.
    fn ratcheted(
        &self,
        value: &Value,
        schema: &Structural,
        path: &Path<'_>,
        counterpart: Option<Counterpart<'_>>,
        is_root: bool,
    ) -> Outcome {
        let mut outcome = self.node(value, schema, path, counterpart, is_root);
        if !outcome.is_good() && counterpart.is_some_and(|counterpart| counterpart.is_unchanged()) {
            outcome.faults.clear();
        }
        outcome
    }

    fn plain(&self, value: &Value, schema: &Structural, path: &Path<'_>) -> Outcome {
        self.node(value, schema, path, None, false)
    }

    fn node(
        &self,
        value: &Value,
        schema: &Structural,
        path: &Path<'_>,
        counterpart: Option<Counterpart<'_>>,
        is_root: bool,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        if value.is_null() {
            match self.null_mistake(schema, path) {
                Some(fault) => outcome.fault(fault),
                None => outcome.matches += 1,
            }
            outcome.faults.extend(enum_mistake(value, schema, path));
            return outcome;
        }
        let types = self.types(schema);
        if !types.is_empty() || !self.format(schema).is_empty() {
            match self.type_mistake(value, schema, &types, path) {
                Some(fault) => outcome.fault(fault),
                None => outcome.matches += 1,
            }
            outcome.matches += 1;
        }
        outcome.merge(self.junctors(value, schema, path));
        outcome.matches += 1;
        match value {
            Value::String(text) => {
                outcome.faults.extend(text_mistake(text, schema, path));
                outcome.matches += 1;
                if format::is_known_format(self.format(schema)) {
                    outcome.faults.extend(self.format_mistake(text, schema, path));
                    outcome.matches += 1;
                }
            }
            Value::Number(number) => {
                let format = self.format(schema);
                outcome.faults.extend(number::mistakes(number, schema, &types, format, path));
                outcome.matches += 2;
            }
            Value::Array(items) => {
                outcome.merge(self.items(items, schema, path, counterpart));
                outcome.matches += 2;
            }
            _ => {}
        }
        outcome.faults.extend(enum_mistake(value, schema, path));
        outcome.matches += 1;
        if let Value::Object(members) = value {
            outcome.merge(self.members(members, schema, path, counterpart, is_root));
            outcome.matches += 1;
        }
        outcome.matches += 1;
        outcome
    }

    fn types<'s>(&self, schema: &'s Structural) -> Vec<&'s str> {
        if schema.int_or_string && self.reading == Reading::Objects {
            return vec!["integer", "string"];
        }
        Some(schema.type_name.as_str()).filter(|name| !name.is_empty()).into_iter().collect()
    }

    fn format<'s>(&self, schema: &'s Structural) -> &'s str {
        if self.reading == Reading::Objects && !format::is_supported(schema) { "" } else { &schema.format }
    }

    fn null_mistake(&self, schema: &Structural, path: &Path<'_>) -> Option<Fault> {
        let types = self.types(schema);
        let allowed = types.is_empty() || types.contains(&"null") || schema.nullable;
        (!allowed).then(|| Fault::wrong_type(&path.in_body(), &types.join(","), "null"))
    }

    fn type_mistake(
        &self,
        value: &Value,
        schema: &Structural,
        types: &[&str],
        path: &Path<'_>,
    ) -> Option<Fault> {
        let format = self.format(schema);
        let (found, found_format) = type_of(value);
        let whole_float =
            found == "number" && types.contains(&"integer") && value.as_f64().is_some_and(number::is_whole);
        let fits = types.contains(&found) || whole_float || found == "integer" && types.contains(&"number");
        let is_text_or_list = matches!(value, Value::String(_) | Value::Array(_));
        if !is_text_or_list && !format.is_empty() && !fits && found_format != format {
            return Some(Fault::wrong_type(&path.in_body(), format, found_format));
        }
        let is_number = types.contains(&"number") || types.contains(&"integer");
        if !is_number && !format.is_empty() && is_text_or_list {
            // The format is to say what the text is.
            return None;
        }
        (!fits).then(|| Fault::wrong_type(&path.in_body(), &types.join(","), found))
    }

    fn format_mistake(&self, text: &str, schema: &Structural, path: &Path<'_>) -> Option<Fault> {
        let format = self.format(schema);
        (!format::matches(format, text)).then(|| Fault::wrong_type(&path.in_body(), format, text))
    }

    fn junctors(&self, value: &Value, schema: &Structural, path: &Path<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        let place = || gotext::quote(&path.in_body());
        if !schema.any_of.is_empty() {
            outcome.merge(self.any_of(value, schema, path));
        }
        if !schema.one_of.is_empty() {
            outcome.merge(self.one_of(value, schema, path));
        }
        if !schema.all_of.is_empty() {
            let mut good = 0;
            for branch in &schema.all_of {
                let result = self.plain(value, branch, path);
                good += usize::from(result.is_good());
                outcome.merge(result);
            }
            if good != schema.all_of.len() {
                let none = if good == 0 { ". None validated" } else { "" };
                let message = format!("{} must validate all the schemas (allOf){none}", place());
                outcome.fault(Fault::sentence(message));
            }
        }
        if let Some(not) = &schema.not
            && self.plain(value, not, path).is_good()
        {
            outcome.fault(Fault::sentence(format!("{} must not validate the schema (not)", place())));
        }
        outcome.matches += 1;
        outcome
    }

    fn any_of(&self, value: &Value, schema: &Structural, path: &Path<'_>) -> Outcome {
        let mut best: Option<Outcome> = None;
        for branch in &schema.any_of {
            let result = self.plain(value, branch, path);
            if result.is_good() {
                return result;
            }
            if best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        let mut outcome = Outcome::default();
        let place = gotext::quote(&path.in_body());
        outcome.fault(Fault::sentence(format!("{place} must validate at least one schema (anyOf)")));
        outcome.merge(best.unwrap_or_default());
        outcome
    }

    fn one_of(&self, value: &Value, schema: &Structural, path: &Path<'_>) -> Outcome {
        let (mut good, mut first, mut best) = (0, None, None::<Outcome>);
        for branch in &schema.one_of {
            let result = self.plain(value, branch, path);
            if result.is_good() {
                good += 1;
                best = None;
                first = first.or(Some(result));
            } else if good == 0 && best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        if good == 1 {
            return first.unwrap_or_default();
        }
        let found = if good == 0 {
            "Found none valid".to_owned()
        } else {
            format!("Found {good} valid alternatives")
        };
        let place = gotext::quote(&path.in_body());
        let mut outcome = Outcome::default();
        outcome.fault(Fault::sentence(format!(
            "{place} must validate one and only one schema (oneOf). {found}"
        )));
        outcome.merge(best.unwrap_or_default());
        outcome
    }

    fn items(
        &self,
        items: &[Value],
        schema: &Structural,
        path: &Path<'_>,
        counterpart: Option<Counterpart<'_>>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(item_schema) = &schema.items {
            let olds = counterpart.and_then(|counterpart| counterpart.items());
            for (at, item) in items.iter().enumerate() {
                let old = olds.as_ref().and_then(|olds| olds.counterpart(item));
                outcome.merge(self.ratcheted(item, item_schema, &path.index(at), old, false));
            }
        }
        let count = items.len() as i64;
        let place = || path.in_body();
        if let Some(min) = schema.min_items.filter(|min| count < *min) {
            let what = format!("should have at least {min} items");
            outcome.fault(Fault::invalid(&place(), &what, count.into()));
        }
        if let Some(max) = schema.max_items.filter(|max| count > *max) {
            let message = format!("{} in body should have at most {max} items", place());
            outcome.fault(Fault::at(&place(), message, Kind::TooMany { count, max }));
        }
        if schema.unique_items {
            let mut seen = BTreeSet::new();
            if !items.iter().all(|item| seen.insert(item.to_string())) {
                outcome.fault(Fault::invalid(&place(), "shouldn't contain duplicates", "".into()));
            }
        }
        outcome
    }

    fn members(
        &self,
        members: &Map<String, Value>,
        schema: &Structural,
        path: &Path<'_>,
        counterpart: Option<Counterpart<'_>>,
        is_root: bool,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        outcome.faults.extend(count_mistakes(members, schema, path));
        for (key, value) in members.iter().filter(|(key, _)| !schema.properties.contains_key(*key)) {
            match &schema.additional {
                Some(Additional::Allowed(false)) => {
                    let place = path.in_body();
                    let message = format!("{place}.{key} in body is a forbidden property");
                    outcome.fault(Fault::at(&place, message, Kind::Invalid(key.as_str().into())));
                }
                Some(Additional::Schema(additional)) => {
                    let old = counterpart.and_then(|counterpart| counterpart.key(key));
                    outcome.merge(self.ratcheted(value, additional, &path.key(key), old, false));
                }
                _ => {}
            }
        }
        for (key, property) in &schema.properties {
            let Some(value) = members.get(key) else { continue };
            // A change of version would not be seen in these.
            let is_type = is_root && matches!(key.as_str(), "kind" | "apiVersion");
            let old = counterpart.filter(|_| !is_type).and_then(|counterpart| counterpart.key(key));
            outcome.merge(self.ratcheted(value, property, &path.child(key), old, false));
        }
        for key in schema.required.iter().filter(|key| !members.contains_key(*key)) {
            let place = format!("{}.{key}", path.in_body());
            outcome.fault(Fault::at(&place, format!("{place} in body is required"), Kind::Required));
        }
        outcome
    }
}

/// What upstream calls the type and the format of a value.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
    }
}

fn count_mistakes(members: &Map<String, Value>, schema: &Structural, path: &Path<'_>) -> Vec<Fault> {
    let count = members.len() as i64;
    let place = || path.in_body();
    let mut faults = Vec::new();
    if let Some(min) = schema.min_properties.filter(|min| count < *min) {
        faults.push(Fault::invalid(
            &place(),
            &format!("should have at least {min} properties"),
            count.into(),
        ));
    }
    if let Some(max) = schema.max_properties.filter(|max| count > *max) {
        let message = format!("{} in body should have at most {max} properties", place());
        faults.push(Fault::at(&place(), message, Kind::TooMany { count, max }));
    }
    faults
}

/// The first thing that is wrong with a text.
fn text_mistake(text: &str, schema: &Structural, path: &Path<'_>) -> Option<Fault> {
    let len = || text.chars().count() as i64;
    if let Some(max) = schema.max_length.filter(|max| len() > *max) {
        let place = path.in_body();
        let message = format!("{place} in body should be at most {max} chars long");
        return Some(Fault::at(&place, message, Kind::TooLong(max)));
    }
    if let Some(min) = schema.min_length.filter(|min| len() < *min) {
        let what = format!("should be at least {min} chars long");
        return Some(Fault::invalid(&path.in_body(), &what, text.into()));
    }
    let pattern = schema.pattern.as_ref()?;
    let what = match pattern.is_found_in(text) {
        Ok(true) => return None,
        Ok(false) => format!("should match '{}'", pattern.text),
        Err(error) => format!("should match '{}, but pattern is invalid: {error}'", pattern.text),
    };
    Some(Fault::invalid(&path.in_body(), &what, text.into()))
}

fn enum_mistake(value: &Value, schema: &Structural, path: &Path<'_>) -> Option<Fault> {
    if schema.enumeration.is_empty() || schema.enumeration.iter().any(|allowed| equals_as(value, allowed)) {
        return None;
    }
    let place = path.in_body();
    let shown: Vec<String> = schema.enumeration.iter().map(gotext::plain).collect();
    let supported = schema.enumeration.iter().map(|allowed| match allowed {
        Value::String(text) => text.clone(),
        other => gotext::json(other),
    });
    let kind = Kind::NotSupported { value: value.clone(), supported: supported.collect() };
    Some(Fault::at(&place, format!("{place} in body should be one of [{}]", shown.join(" ")), kind))
}

/// Whether `value`, converted to the type of `allowed` as Go converts, is that. Nothing equals null.
fn equals_as(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (_, Value::Null) => false,
        (Value::Number(value), Value::Number(allowed)) => number_equals_as(value, allowed),
        // Go makes of a number the character that it stands for.
        (Value::Number(value), Value::String(allowed)) => {
            let c = value.as_i64().map(|code| u32::try_from(code).ok().and_then(char::from_u32));
            c.is_some_and(|c| allowed.chars().eq([c.unwrap_or('\u{fffd}')]))
        }
        (value, allowed) => value == allowed,
    }
}

fn number_equals_as(value: &Number, allowed: &Number) -> bool {
    match (value.as_i64(), allowed.as_i64()) {
        (Some(value), Some(allowed)) => value == allowed,
        (None, Some(allowed)) => value.as_f64().is_some_and(|value| number::go_i64(value) == allowed),
        _ => value.as_f64() == allowed.as_f64(),
    }
}
