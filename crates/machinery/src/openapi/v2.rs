//! OpenAPI v2, for older clients and Argo CD: the same documents in the older form, all group versions in one.

use serde_json::{Map, Value, json};

use super::{GROUP_VERSION_KIND, REFERENCE, custom, document, schema_name};
use crate::resource::Resource;

const DEFINITION: &str = "#/definitions/";
const ANSWERS: [&str; 2] = ["application/json", "application/yaml"];

/// What some resources contribute to the document of a workspace.
#[derive(Debug, Default)]
pub struct Part {
    pub paths: Map<String, Value>,
    pub definitions: Map<String, Value>,
}

/// The document's beginning: all but `paths` and `definitions`.
pub fn head() -> Map<String, Value> {
    Map::from_iter([
        ("swagger".to_owned(), json!("2.0")),
        ("info".to_owned(), json!({"title": "Kubernetes", "version": "unversioned"})),
        (
            "securityDefinitions".to_owned(),
            json!({"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}}),
        ),
        ("security".to_owned(), json!([{"BearerToken": []}])),
    ])
}

/// `resources` of one group version.
pub fn part(resources: &[&Resource]) -> Part {
    let mut part = Part::default();
    let Value::Object(mut document) = document(resources) else { return part };
    if let Some(Value::Object(paths)) = document.remove("paths") {
        part.paths = paths.into_iter().map(|(path, item)| (path, path_item(item))).collect();
    }
    let schemas = document.remove("components").and_then(|mut it| it.get_mut("schemas").map(Value::take));
    if let Some(Value::Object(schemas)) = schemas {
        part.definitions = schemas.into_iter().map(|(name, it)| (name, schema(it))).collect();
    }
    for resource in resources {
        if let Some(custom) = resource.structural() {
            let name = schema_name(resource);
            let Value::Object(mut published) = schema(custom::older_schema(custom)) else { continue };
            let kind = part
                .definitions
                .get_mut(&name)
                .and_then(|it| it.get_mut(GROUP_VERSION_KIND))
                .map(Value::take);
            published.extend(kind.map(|kind| (GROUP_VERSION_KIND.to_owned(), kind)));
            part.definitions.insert(name, Value::Object(published));
        }
    }
    part
}

/// A schema without what the older form cannot say.
fn schema(value: Value) -> Value {
    let Value::Object(from) = value else { return value };
    let from = match only_reference(&from) {
        Some(reference) => {
            let others = from.into_iter().filter(|(key, _)| key == "description" || key.starts_with("x-"));
            return Value::Object(others.chain([("$ref".to_owned(), reference)]).collect());
        }
        None => from,
    };
    let mut to = Map::new();
    let is_union = from.contains_key("oneOf") && !from.contains_key("type");
    let nullable = from.get("nullable") == Some(&json!(true));
    for (key, value) in from {
        let value = match key.as_str() {
            "oneOf" | "anyOf" | "not" | "nullable" | "default" => continue,
            // Null is no type that can be told beside another.
            "type" | "items" | "properties" | "additionalProperties" if nullable => continue,
            "$ref" => renamed(value),
            "properties" => match value {
                Value::Object(all) => all.into_iter().map(|(name, it)| (name, schema(it))).collect(),
                other => other,
            },
            "items" | "additionalProperties" => schema(value),
            "allOf" => match value {
                Value::Array(all) => all.into_iter().map(schema).collect(),
                other => other,
            },
            _ => value,
        };
        to.insert(key, value);
    }
    if is_union && !nullable {
        to.insert("type".to_owned(), json!("string"));
    }
    Value::Object(to)
}

/// A reference that stands alone or, because it has siblings, in an `allOf`.
fn only_reference(schema: &Map<String, Value>) -> Option<Value> {
    let reference = match schema.get("allOf") {
        Some(Value::Array(all)) if all.len() == 1 => all[0].get("$ref")?,
        _ => schema.get("$ref")?,
    };
    Some(renamed(reference.clone()))
}

fn renamed(reference: Value) -> Value {
    match reference.as_str().and_then(|text| text.strip_prefix(REFERENCE)) {
        Some(name) => json!(format!("{DEFINITION}{name}")),
        None => reference,
    }
}

fn path_item(item: Value) -> Value {
    let Value::Object(item) = item else { return item };
    let convert = |(key, value): (String, Value)| match key.as_str() {
        "parameters" => (key, parameters(value)),
        method => {
            let operation = operation(method == "patch", value);
            (key, operation)
        }
    };
    Value::Object(item.into_iter().map(convert).collect())
}

fn parameters(value: Value) -> Value {
    let Value::Array(all) = value else { return value };
    all.into_iter().map(parameter).collect()
}

fn parameter(value: Value) -> Value {
    let Value::Object(mut parameter) = value else { return value };
    if let Some(Value::Object(schema)) = parameter.remove("schema") {
        parameter.extend(schema.into_iter().filter(|(key, _)| key == "type" || key == "format"));
    }
    parameter.entry("uniqueItems").or_insert(json!(true));
    Value::Object(parameter)
}

fn operation(is_patch: bool, value: Value) -> Value {
    let Value::Object(mut operation) = value else { return value };
    let request = operation.remove("requestBody");
    let types = request.as_ref().and_then(|it| it.get("content")).and_then(Value::as_object);
    let types: Vec<String> = types.into_iter().flatten().map(|(media, _)| media.clone()).collect();
    let body = request.and_then(body_parameter);
    let given = operation.remove("parameters").map_or(json!([]), parameters);
    let all: Vec<Value> = body.into_iter().chain(given.as_array().into_iter().flatten().cloned()).collect();
    if !all.is_empty() {
        operation.insert("parameters".to_owned(), Value::Array(all));
    }
    let consumes = if is_patch { json!(types) } else { json!(["*/*"]) };
    operation.insert("consumes".to_owned(), consumes);
    operation.insert("produces".to_owned(), json!(ANSWERS));
    operation.insert("schemes".to_owned(), json!(["https"]));
    if let Some(Value::Object(responses)) = operation.get_mut("responses") {
        for response in responses.values_mut().filter_map(Value::as_object_mut) {
            let found = response.remove("content").and_then(first_schema);
            response.extend(found.map(|it| ("schema".to_owned(), it)));
        }
    }
    Value::Object(operation)
}

fn first_schema(mut content: Value) -> Option<Value> {
    let first = content.as_object_mut()?.values_mut().next()?;
    Some(schema(first.get_mut("schema")?.take()))
}

fn body_parameter(mut body: Value) -> Option<Value> {
    let required = body.get("required").and_then(Value::as_bool).unwrap_or(false);
    let schema = first_schema(body.get_mut("content")?.take())?;
    let mut parameter = json!({"name": "body", "in": "body", "schema": schema});
    if required {
        parameter["required"] = json!(true);
    }
    Some(parameter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;

    fn resources() -> Vec<Resource> {
        let core = builtin::rows().filter(|row| row.group.is_empty());
        core.map(|row| Resource::new(row.clone())).collect()
    }

    #[test]
    fn references_stand_alone_and_point_to_definitions() {
        let resources = resources();
        let part = part(&resources.iter().collect::<Vec<_>>());
        let config_map = &part.definitions["io.k8s.api.core.v1.ConfigMap"];
        assert_eq!(
            config_map["properties"]["metadata"],
            json!({
                "$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
                "description": "Standard object's metadata.",
            })
        );
        let text = Value::Object(part.definitions).to_string() + &Value::Object(part.paths).to_string();
        for left in ["components/schemas", "requestBody", "\"oneOf\"", "\"nullable\""] {
            assert!(!text.contains(left), "{left}");
        }
    }

    #[test]
    fn bodies_are_parameters() {
        let resources = resources();
        let part = part(&resources.iter().collect::<Vec<_>>());
        let post = &part.paths["/api/v1/namespaces/{namespace}/configmaps"]["post"];
        let body = &post["parameters"][0];
        assert_eq!(body["in"], "body");
        assert_eq!(body["schema"], json!({"$ref": "#/definitions/io.k8s.api.core.v1.ConfigMap"}));
        assert_eq!(
            post["responses"]["200"]["schema"],
            json!({"$ref": "#/definitions/io.k8s.api.core.v1.ConfigMap"})
        );
    }
}
