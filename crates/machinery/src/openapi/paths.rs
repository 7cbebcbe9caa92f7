//! The paths of a document: which verbs each resource answers.

use serde_json::{Map, Value, json};

use super::{GROUP_VERSION_KIND, META, component_name, list_schema_name, other_kind, reference, schema_name};
use crate::{
    resource::{Resource, Subresource},
    schema::Types,
};

/// Names and types of query parameters.
type Parameters<'a> = &'a [(&'a str, &'a str)];

const LIST: Parameters<'static> = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const WRITE: Parameters<'static> =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const PATCH: Parameters<'static> =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];
const DELETE: Parameters<'static> = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const DELETE_COLLECTION: Parameters<'static> = &[
    ("continue", "string"),
    ("dryRun", "string"),
    ("fieldSelector", "string"),
    ("gracePeriodSeconds", "integer"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("timeoutSeconds", "integer"),
];
const PATCH_TYPES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
const MEDIA_TYPES: &[&str] = &["application/json", "application/yaml"];

/// A verb on one object: as RBAC calls it, as HTTP does, and how operation ids begin.
struct ItemVerb {
    verb: &'static str,
    method: &'static str,
    word: &'static str,
    parameters: Parameters<'static>,
    codes: &'static [&'static str],
}

const ITEM_VERBS: &[ItemVerb] = &[
    ItemVerb { verb: "get", method: "get", word: "read", parameters: &[], codes: &["200"] },
    ItemVerb { verb: "update", method: "put", word: "replace", parameters: WRITE, codes: &["200", "201"] },
    ItemVerb { verb: "patch", method: "patch", word: "patch", parameters: PATCH, codes: &["200", "201"] },
    ItemVerb { verb: "delete", method: "delete", word: "delete", parameters: DELETE, codes: &["200", "202"] },
    ItemVerb {
        verb: "create",
        method: "post",
        word: "create",
        parameters: WRITE,
        codes: &["200", "201", "202"],
    },
];

pub(super) fn paths(types: &Types, resources: &[&Resource]) -> Value {
    let mut paths = Map::new();
    if let Some(first) = resources.first() {
        paths.insert(format!("{}/", root(first)), discovery(first));
    }
    for resource in resources {
        Described { types, resource }.paths(&mut paths);
    }
    Value::Object(paths)
}

/// `/api/v1` or `/apis/apps/v1`.
fn root(resource: &Resource) -> String {
    let prefix = if resource.group.is_empty() { "/api" } else { "/apis" };
    format!("{prefix}/{}", resource.api_version)
}

fn discovery(resource: &Resource) -> Value {
    let schema = format!("{META}.APIResourceList");
    json!({"get": {
        "operationId": format!("get{}APIResources", group_version_name(resource)),
        "tags": [tag(resource)],
        "responses": answers(&["200"], &schema),
    }})
}

/// `CoreV1`, `RbacAuthorizationV1`.
fn group_version_name(resource: &Resource) -> String {
    let group = if resource.group.is_empty() { "core" } else { resource.group.trim_end_matches(".k8s.io") };
    let words = group.split('.').chain([resource.version.as_str()]).flat_map(|word| word.split('-'));
    words.map(capitalized).collect()
}

fn tag(resource: &Resource) -> String {
    let name = group_version_name(resource);
    let group = &name[..name.len() - resource.version.len()];
    format!("{}{}_{}", group[..1].to_lowercase(), &group[1..], resource.version)
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

struct Described<'r> {
    types: &'r Types,
    resource: &'r Resource,
}

/// What one operation says of itself.
struct Operation<'a> {
    verb: &'a str,
    id: String,
    parameters: Parameters<'a>,
    body: Option<Value>,
    answer: String,
    codes: &'a [&'a str],
}

impl Described<'_> {
    fn paths(&self, paths: &mut Map<String, Value>) {
        let resource = self.resource;
        let namespace = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
        let collection = format!("{}{namespace}/{}", root(resource), resource.plural);
        self.collection(paths, &collection);
        if resource.namespaced && resource.verb_allowed("list") {
            let id = format!("list{}{}ForAllNamespaces", group_version_name(resource), resource.kind);
            let operation = self.operation(self.list_operation(id));
            paths.insert(format!("{}/{}", root(resource), resource.plural), json!({"get": operation}));
        }
        let item = format!("{collection}/{{name}}");
        let own = schema_name(resource);
        self.item(paths, &item, resource.row.verbs, &own, "");
        for subresource in &resource.subresources {
            let schema = self.subresource_schema(subresource);
            let path = format!("{item}/{}", subresource.name);
            self.item(paths, &path, subresource.verbs, &schema, &capitalized(subresource.name));
        }
    }

    fn subresource_schema(&self, subresource: &Subresource) -> String {
        let message = other_kind(self.types, self.resource, subresource);
        message.map_or_else(|| schema_name(self.resource), |message| component_name(message.name))
    }

    fn id(&self, verb: &str, suffix: &str) -> String {
        let scope = if self.resource.namespaced { "Namespaced" } else { "" };
        format!("{verb}{}{scope}{}{suffix}", group_version_name(self.resource), self.resource.kind)
    }

    fn list_operation(&self, id: String) -> Operation<'static> {
        let answer = list_schema_name(self.resource);
        Operation { verb: "list", id, parameters: LIST, body: None, answer, codes: &["200"] }
    }

    fn collection(&self, paths: &mut Map<String, Value>, path: &str) {
        let resource = self.resource;
        let mut operations = Map::new();
        if resource.verb_allowed("list") {
            operations.insert("get".to_owned(), self.operation(self.list_operation(self.id("list", ""))));
        }
        if resource.verb_allowed("create") {
            let answer = schema_name(resource);
            let operation = Operation {
                verb: "post",
                id: self.id("create", ""),
                parameters: WRITE,
                body: Some(body(&["*/*"], &answer, true)),
                answer,
                codes: &["200", "201", "202"],
            };
            operations.insert("post".to_owned(), self.operation(operation));
        }
        if resource.verb_allowed("deletecollection") {
            let id = self.id("delete", "").replace(
                &group_version_name(resource),
                &format!("{}Collection", group_version_name(resource)),
            );
            let operation = Operation {
                verb: "deletecollection",
                id,
                parameters: DELETE_COLLECTION,
                body: Some(body(&["*/*"], &format!("{META}.DeleteOptions"), false)),
                answer: format!("{META}.Status"),
                codes: &["200"],
            };
            operations.insert("delete".to_owned(), self.operation(operation));
        }
        self.insert(paths, path, operations, &[]);
    }

    fn item(&self, paths: &mut Map<String, Value>, path: &str, verbs: &[&str], schema: &str, suffix: &str) {
        let mut operations = Map::new();
        // To create is the collection's business, except below an object.
        let answered = ITEM_VERBS
            .iter()
            .filter(|it| verbs.contains(&it.verb) && (it.verb != "create" || !suffix.is_empty()));
        for ItemVerb { verb, method, word, parameters, codes } in answered {
            let body = match *verb {
                "get" => None,
                "delete" => Some(body(&["*/*"], &format!("{META}.DeleteOptions"), false)),
                "patch" => Some(body(self.patch_types(), &format!("{META}.Patch"), true)),
                _ => Some(body(&["*/*"], schema, true)),
            };
            let answer = if *verb == "delete" { format!("{META}.Status") } else { schema.to_owned() };
            let operation =
                Operation { verb: method, id: self.id(word, suffix), parameters, body, answer, codes };
            operations.insert((*method).to_owned(), self.operation(operation));
        }
        self.insert(paths, path, operations, &["name"]);
    }

    fn insert(
        &self,
        paths: &mut Map<String, Value>,
        path: &str,
        mut operations: Map<String, Value>,
        named: &[&str],
    ) {
        if operations.is_empty() {
            return;
        }
        let scope: &[&str] = if self.resource.namespaced { &["namespace"] } else { &[] };
        let in_path = named.iter().chain(scope).map(|name| {
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}})
        });
        let all: Vec<Value> = in_path.chain([query("pretty", "string")]).collect();
        operations.insert("parameters".to_owned(), Value::Array(all));
        paths.insert(path.to_owned(), Value::Object(operations));
    }

    /// Strategic merge needs types that say how lists merge; clients look here whether they may use it.
    fn patch_types(&self) -> &'static [&'static str] {
        if self.resource.message().is_some() { PATCH_TYPES } else { &PATCH_TYPES[..PATCH_TYPES.len() - 1] }
    }

    fn operation(&self, operation: Operation<'_>) -> Value {
        let resource = self.resource;
        let mut out = json!({
            "operationId": operation.id,
            "tags": [tag(resource)],
            "responses": answers(operation.codes, &operation.answer),
            "x-kubernetes-action": operation.verb,
            GROUP_VERSION_KIND: {"group": resource.group, "kind": resource.kind, "version": resource.version},
        });
        if !operation.parameters.is_empty() {
            let parameters = operation.parameters.iter().map(|(name, kind)| query(name, kind));
            out["parameters"] = parameters.collect();
        }
        if let Some(body) = operation.body {
            out["requestBody"] = body;
        }
        out
    }
}

fn query(name: &str, kind: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
}

fn body(media_types: &[&str], schema: &str, required: bool) -> Value {
    let mut body = json!({"content": content(media_types, schema)});
    if required {
        body["required"] = json!(true);
    }
    body
}

fn content(media_types: &[&str], schema: &str) -> Value {
    let by_type = media_types.iter().map(|media| ((*media).to_owned(), json!({"schema": reference(schema)})));
    Value::Object(by_type.collect())
}

fn answers(codes: &[&str], schema: &str) -> Value {
    let text = |code: &str| match code {
        "200" => "OK",
        "201" => "Created",
        "202" => "Accepted",
        _ => "Unauthorized",
    };
    let good = codes.iter().map(|code| {
        ((*code).to_owned(), json!({"description": text(code), "content": content(MEDIA_TYPES, schema)}))
    });
    let refused = ("401".to_owned(), json!({"description": text("401")}));
    Value::Object(good.chain([refused]).collect())
}
