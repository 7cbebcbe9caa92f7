//! An OpenAPI v2 document as protobuf, in the messages that Go clients read (`openapi.v2.Document` of gnostic).
//!
//! Messages of one field in several pieces add up, so a document is the concatenation of its parts: what the
//! built-in kinds contribute is encoded once and shared.

use serde_json::{Map, Value};

use super::v2::Part;

/// A message being written.
#[derive(Default)]
struct Message(Vec<u8>);

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

impl Message {
    fn bytes(&mut self, number: u64, bytes: &[u8]) {
        varint(&mut self.0, number << 3 | 2);
        varint(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, number: u64, message: Message) {
        self.bytes(number, &message.0);
    }

    fn text(&mut self, number: u64, value: Option<&Value>) {
        if let Some(text) = value.and_then(Value::as_str).filter(|text| !text.is_empty()) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn texts(&mut self, number: u64, value: Option<&Value>) {
        for text in items(value).filter_map(Value::as_str) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn flag(&mut self, number: u64, value: Option<&Value>) {
        if value.and_then(Value::as_bool) == Some(true) {
            varint(&mut self.0, number << 3);
            self.0.push(1);
        }
    }

    fn whole(&mut self, number: u64, value: Option<&Value>) {
        if let Some(value) = value.and_then(Value::as_i64).filter(|value| *value != 0) {
            varint(&mut self.0, number << 3);
            varint(&mut self.0, value as u64);
        }
    }

    fn real(&mut self, number: u64, value: Option<&Value>) {
        if let Some(value) = value.and_then(Value::as_f64).filter(|value| *value != 0.0) {
            varint(&mut self.0, number << 3 | 1);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// A value of any kind travels as YAML, which JSON is.
    fn any(&mut self, number: u64, value: Option<&Value>) {
        if let Some(value) = value {
            let mut any = Message::default();
            any.bytes(2, value.to_string().as_bytes());
            self.message(number, any);
        }
    }

    fn named(&mut self, number: u64, name: &str, value: Message) {
        let mut named = Message::default();
        named.bytes(1, name.as_bytes());
        named.message(2, value);
        self.message(number, named);
    }

    fn extensions(&mut self, number: u64, object: &Map<String, Value>) {
        for (key, value) in object.iter().filter(|(key, _)| key.starts_with("x-")) {
            let mut named = Message::default();
            named.bytes(1, key.as_bytes());
            named.any(2, Some(value));
            self.message(number, named);
        }
    }
}

fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

fn members(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}

/// What stands at the beginning of every document.
pub fn head(head: &Map<String, Value>) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, head.get("swagger"));
    let mut info = Message::default();
    let given = head.get("info");
    info.text(1, given.and_then(|it| it.get("title")));
    info.text(2, given.and_then(|it| it.get("version")));
    out.message(2, info);
    for requirement in items(head.get("security")) {
        let mut message = Message::default();
        for (name, scopes) in members(Some(requirement)) {
            let mut list = Message::default();
            list.texts(1, Some(scopes));
            message.named(1, name, list);
        }
        out.message(12, message);
    }
    let mut definitions = Message::default();
    for (name, definition) in members(head.get("securityDefinitions")) {
        let mut key = Message::default();
        key.text(1, definition.get("type"));
        key.text(2, definition.get("name"));
        key.text(3, definition.get("in"));
        let mut item = Message::default();
        item.message(2, key);
        definitions.named(1, name, item);
    }
    out.message(13, definitions);
    out.0
}

/// The paths and definitions of a part, to be appended to a document.
pub fn part(part: &Part) -> Vec<u8> {
    let mut out = Message::default();
    let mut paths = Message::default();
    for (path, item) in &part.paths {
        paths.named(2, path, path_item(item));
    }
    out.message(8, paths);
    let mut definitions = Message::default();
    for (name, definition) in &part.definitions {
        definitions.named(1, name, schema(definition));
    }
    out.message(9, definitions);
    out.0
}

fn path_item(item: &Value) -> Message {
    let mut out = Message::default();
    for (number, method) in
        [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (6, "options"), (7, "head"), (8, "patch")]
    {
        if let Some(given) = item.get(method).and_then(Value::as_object) {
            out.message(number, operation(given));
        }
    }
    for given in items(item.get("parameters")) {
        out.message(9, parameter(given));
    }
    out
}

fn operation(given: &Map<String, Value>) -> Message {
    let mut out = Message::default();
    out.texts(1, given.get("tags"));
    out.text(3, given.get("description"));
    out.text(5, given.get("operationId"));
    out.texts(6, given.get("produces"));
    out.texts(7, given.get("consumes"));
    for given in items(given.get("parameters")) {
        out.message(8, parameter(given));
    }
    let mut responses = Message::default();
    for (code, response) in members(given.get("responses")) {
        let mut message = Message::default();
        message.text(1, response.get("description"));
        if let Some(given) = response.get("schema") {
            let mut item = Message::default();
            item.message(1, schema(given));
            message.message(2, item);
        }
        let mut value = Message::default();
        value.message(1, message);
        responses.named(1, code, value);
    }
    out.message(9, responses);
    out.texts(10, given.get("schemes"));
    out.flag(11, given.get("deprecated"));
    out.extensions(13, given);
    out
}

fn parameter(given: &Value) -> Message {
    let mut parameter = Message::default();
    match given.get("in").and_then(Value::as_str) {
        Some("body") => {
            let mut body = Message::default();
            body.text(1, given.get("description"));
            body.text(2, given.get("name"));
            body.text(3, given.get("in"));
            body.flag(4, given.get("required"));
            if let Some(given) = given.get("schema") {
                body.message(5, schema(given));
            }
            parameter.message(1, body);
        }
        place => {
            // Only parameters of queries may be empty, which shifts the numbers of what follows.
            let (number, shift) = if place == Some("path") { (4, 0) } else { (3, 1) };
            let mut message = Message::default();
            message.flag(1, given.get("required"));
            message.text(2, given.get("in"));
            message.text(3, given.get("description"));
            message.text(4, given.get("name"));
            message.text(5 + shift, given.get("type"));
            message.text(6 + shift, given.get("format"));
            message.flag(19 + shift, given.get("uniqueItems"));
            let mut outer = Message::default();
            outer.message(number, message);
            parameter.message(2, outer);
        }
    }
    let mut item = Message::default();
    item.message(1, parameter);
    item
}

fn schema(given: &Value) -> Message {
    let mut out = Message::default();
    let Some(object) = given.as_object() else { return out };
    let get = |key: &str| object.get(key);
    out.text(1, get("$ref"));
    out.text(2, get("format"));
    out.text(3, get("title"));
    out.text(4, get("description"));
    out.any(5, get("default"));
    out.real(6, get("multipleOf"));
    out.real(7, get("maximum"));
    out.flag(8, get("exclusiveMaximum"));
    out.real(9, get("minimum"));
    out.flag(10, get("exclusiveMinimum"));
    out.whole(11, get("maxLength"));
    out.whole(12, get("minLength"));
    out.text(13, get("pattern"));
    out.whole(14, get("maxItems"));
    out.whole(15, get("minItems"));
    out.flag(16, get("uniqueItems"));
    out.whole(17, get("maxProperties"));
    out.whole(18, get("minProperties"));
    out.texts(19, get("required"));
    for value in items(get("enum")) {
        out.any(20, Some(value));
    }
    if let Some(given) = get("additionalProperties") {
        let mut item = Message::default();
        match given {
            Value::Bool(allowed) => {
                item.0.push(2 << 3);
                item.0.push(u8::from(*allowed));
            }
            given => item.message(1, schema(given)),
        }
        out.message(21, item);
    }
    if let Some(name) = get("type").and_then(Value::as_str) {
        let mut item = Message::default();
        item.bytes(1, name.as_bytes());
        out.message(22, item);
    }
    if let Some(given) = get("items") {
        let mut item = Message::default();
        item.message(1, schema(given));
        out.message(23, item);
    }
    for given in items(get("allOf")) {
        out.message(24, schema(given));
    }
    if let Some(properties) = get("properties").and_then(Value::as_object) {
        let mut message = Message::default();
        for (name, given) in properties {
            message.named(1, name, schema(given));
        }
        out.message(25, message);
    }
    out.extensions(31, object);
    out
}
