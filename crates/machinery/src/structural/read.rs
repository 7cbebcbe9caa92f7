//! Reads a schema from JSON. What has another type than upstream's is taken as absent: definitions are conformed to
//! their type before they come here.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Additional, Dependency, Pattern, Rule, Structural, Unsupported};

impl Structural {
    /// Reads an `openAPIV3Schema`.
    pub fn read(schema: &Value) -> Self {
        match schema.as_object() {
            Some(members) => Reader(members).schema(),
            None => Self::default(),
        }
    }
}

struct Reader<'v>(&'v Map<String, Value>);

impl Reader<'_> {
    fn schema(&self) -> Structural {
        Structural {
            type_name: self.text("type"),
            title: self.text("title"),
            description: self.text("description"),
            nullable: self.flag("nullable"),
            default: self.0.get("default").filter(|value| !value.is_null()).cloned(),
            example: self.0.get("example").filter(|value| !value.is_null()).cloned(),
            external_docs: self.0.get("externalDocs").and_then(Value::as_object).map(|docs| {
                let docs = Reader(docs);
                (docs.text("description"), docs.text("url"))
            }),
            properties: self.schemas_by_name("properties"),
            additional: self.0.get("additionalProperties").and_then(additional),
            items: self.0.get("items").filter(|items| items.is_object()).map(boxed),
            format: self.text("format"),
            pattern: Some(self.text("pattern")).filter(|text| !text.is_empty()).map(Pattern::new),
            maximum: self.float("maximum"),
            exclusive_maximum: self.flag("exclusiveMaximum"),
            minimum: self.float("minimum"),
            exclusive_minimum: self.flag("exclusiveMinimum"),
            multiple_of: self.float("multipleOf"),
            max_length: self.whole("maxLength"),
            min_length: self.whole("minLength"),
            max_items: self.whole("maxItems"),
            min_items: self.whole("minItems"),
            unique_items: self.flag("uniqueItems"),
            max_properties: self.whole("maxProperties"),
            min_properties: self.whole("minProperties"),
            required: self.texts("required"),
            enumeration: self.list("enum").to_vec(),
            all_of: self.schemas("allOf"),
            any_of: self.schemas("anyOf"),
            one_of: self.schemas("oneOf"),
            not: self.0.get("not").filter(|not| not.is_object()).map(boxed),
            preserve_unknown_fields: self
                .0
                .get("x-kubernetes-preserve-unknown-fields")
                .and_then(Value::as_bool),
            embedded_resource: self.flag("x-kubernetes-embedded-resource"),
            int_or_string: self.flag("x-kubernetes-int-or-string"),
            list_type: self.optional_text("x-kubernetes-list-type"),
            list_map_keys: self.texts("x-kubernetes-list-map-keys"),
            map_type: self.optional_text("x-kubernetes-map-type"),
            rules: self
                .list("x-kubernetes-validations")
                .iter()
                .filter_map(Value::as_object)
                .map(|rule| Reader(rule).rule())
                .collect(),
            unsupported: self.unsupported(),
        }
    }

    fn rule(&self) -> Rule {
        Rule {
            rule: self.text("rule"),
            message: self.text("message"),
            message_expression: self.text("messageExpression"),
            reason: self.optional_text("reason"),
            field_path: self.text("fieldPath"),
            optional_old_self: self.0.get("optionalOldSelf").and_then(Value::as_bool),
        }
    }

    fn unsupported(&self) -> Option<Box<Unsupported>> {
        let dependencies = self.0.get("dependencies").and_then(Value::as_object);
        let found = Unsupported {
            id: self.text("id"),
            schema: self.text("$schema"),
            reference: self.optional_text("$ref"),
            pattern_properties: self.schemas_by_name("patternProperties"),
            dependencies: dependencies
                .map(|all| all.iter().map(|(name, value)| (name.clone(), dependency(value))).collect()),
            additional_items: self.0.get("additionalItems").and_then(additional),
            definitions: self.schemas_by_name("definitions"),
            item_schemas: self.schemas("items"),
        };
        (found != Unsupported::default()).then(|| Box::new(found))
    }

    fn text(&self, key: &str) -> String {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn optional_text(&self, key: &str) -> Option<String> {
        self.0.get(key).and_then(Value::as_str).map(str::to_owned)
    }

    fn flag(&self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    fn float(&self, key: &str) -> Option<f64> {
        self.0.get(key).and_then(Value::as_f64)
    }

    fn whole(&self, key: &str) -> Option<i64> {
        self.0.get(key).and_then(Value::as_i64)
    }

    fn list(&self, key: &str) -> &[Value] {
        self.0.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn texts(&self, key: &str) -> Vec<String> {
        self.list(key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    fn schemas(&self, key: &str) -> Vec<Structural> {
        self.list(key).iter().map(Structural::read).collect()
    }

    fn schemas_by_name(&self, key: &str) -> BTreeMap<String, Structural> {
        let members = self.0.get(key).and_then(Value::as_object).into_iter().flatten();
        members.map(|(name, schema)| (name.clone(), Structural::read(schema))).collect()
    }
}

fn boxed(schema: &Value) -> Box<Structural> {
    Box::new(Structural::read(schema))
}

fn additional(value: &Value) -> Option<Additional> {
    match value {
        Value::Bool(allowed) => Some(Additional::Allowed(*allowed)),
        Value::Object(_) => Some(Additional::Schema(boxed(value))),
        _ => None,
    }
}

fn dependency(value: &Value) -> Dependency {
    match value {
        Value::Array(names) => {
            Dependency::Properties(names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        }
        _ => Dependency::Schema(boxed(value)),
    }
}
