//! The record of one request: an `audit.k8s.io/v1` Event for each of its stages.

use std::{borrow::Cow, collections::BTreeMap, net::IpAddr};

use compact_str::CompactString;
use jiff::Timestamp;
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value};

use super::{Demand, Level, Stage};

/// Longer names of clients are cut.
const MAX_USER_AGENT: usize = 1024;

/// Most events without bodies are not larger.
const USUAL_BYTES: usize = 1024;

/// Who somebody is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    #[serde(skip_serializing_if = "CompactString::is_empty")]
    pub resource: CompactString,
    #[serde(skip_serializing_if = "CompactString::is_empty")]
    pub namespace: CompactString,
    #[serde(skip_serializing_if = "CompactString::is_empty")]
    pub name: CompactString,
    #[serde(skip_serializing_if = "CompactString::is_empty")]
    pub uid: CompactString,
    #[serde(skip_serializing_if = "CompactString::is_empty")]
    pub api_group: CompactString,
    #[serde(skip_serializing_if = "CompactString::is_empty")]
    pub api_version: CompactString,
    #[serde(skip_serializing_if = "CompactString::is_empty")]
    pub resource_version: CompactString,
    #[serde(skip_serializing_if = "CompactString::is_empty")]
    pub subresource: CompactString,
}

/// All that is known of a request so far.
#[derive(Clone, Debug)]
pub struct Record {
    pub demand: Demand,
    pub audit_id: String,
    pub request_uri: String,
    pub verb: CompactString,
    pub user: Identity,
    pub impersonated: Option<Identity>,
    pub source_addresses: Vec<String>,
    pub user_agent: String,
    pub object: Option<ObjectReference>,
    pub received: Timestamp,
    pub annotations: Annotations,
    ending: Option<Ending>,
    request_object: Option<Value>,
    response_object: Option<Value>,
}

/// What was noted of a request on its way: few, so that a search costs less than a tree.
#[derive(Clone, Debug, Default)]
pub struct Annotations(Vec<(Cow<'static, str>, CompactString)>);

impl Annotations {
    /// What is said first about a key stays, as upstream.
    pub fn add(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<CompactString>) {
        let key = key.into();
        if let Err(at) = self.0.binary_search_by(|(known, _)| known.cmp(&key)) {
            self.0.insert(at, (key, value.into()));
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Annotations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// How a request ended, as a `Status` says it.
#[derive(Clone, Debug)]
struct Ending {
    code: u16,
    /// What else is known; of most requests nothing.
    more: Map<String, Value>,
}

impl Serialize for Ending {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("code", &self.code)?;
        map.serialize_entry("metadata", &Map::new())?;
        for (key, value) in &self.more {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// As it goes over the wire; the type is told by whoever puts it into a line or a list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    level: Level,
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    stage: Stage,
    #[serde(rename = "requestURI")]
    request_uri: &'a str,
    verb: &'a str,
    user: &'a Identity,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<&'a Identity>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[_]>::is_empty")]
    source_addresses: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<&'a ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<&'a Ending>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_object: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_object: Option<&'a Value>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "Annotations::is_empty")]
    annotations: &'a Annotations,
}

impl Record {
    pub fn new(demand: Demand, audit_id: String, received: Timestamp) -> Record {
        Record {
            demand,
            audit_id,
            request_uri: String::new(),
            verb: CompactString::default(),
            user: Identity::default(),
            impersonated: None,
            source_addresses: Vec::new(),
            user_agent: String::new(),
            object: None,
            received,
            annotations: Annotations::default(),
            ending: None,
            request_object: None,
            response_object: None,
        }
    }

    /// What the client calls itself, cut to a sensible length.
    pub fn set_user_agent(&mut self, text: &str) {
        let mut end = text.len().min(MAX_USER_AGENT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.user_agent = text[..end].to_owned();
        if end < text.len() {
            self.user_agent.push_str("...TRUNCATED");
        }
    }

    /// Whether what is sent will be looked at: for the name of what is created, if for nothing else.
    pub fn wants_request(&self) -> bool {
        self.demand.level >= Level::Request || self.object.as_ref().is_some_and(|it| it.name.is_empty())
    }

    pub fn wants_response(&self) -> bool {
        self.demand.level >= Level::RequestResponse
    }

    /// An object that was sent. It also tells what a path to a collection does not.
    pub fn set_request_object(&mut self, mut object: Value) {
        if let (Some(reference), Some(metadata)) = (&mut self.object, object.get("metadata")) {
            let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
            let known = [
                (&mut reference.namespace, "namespace"),
                (&mut reference.name, "name"),
                (&mut reference.uid, "uid"),
                (&mut reference.resource_version, "resourceVersion"),
            ];
            for (field, key) in known {
                if field.is_empty() {
                    *field = text(key).into();
                }
            }
        }
        if self.demand.level >= Level::Request {
            self.clean(&mut object);
            self.request_object = Some(object);
        }
    }

    /// A patch, or options, which name nothing.
    pub fn set_request_body(&mut self, body: Value) {
        if self.demand.level >= Level::Request {
            self.request_object = Some(body);
        }
    }

    /// How it ended, and the answer if that is wanted. A `Status` is told of at every level.
    pub fn set_response(&mut self, code: u16, answer: Option<Value>) {
        let mut more = Map::new();
        if let Some(Value::Object(answer)) = answer.as_ref().filter(|it| is_status(it)) {
            for key in ["status", "message", "reason", "details"] {
                if let Some(value) = answer.get(key) {
                    more.insert(key.into(), value.clone());
                }
            }
        }
        self.ending = Some(Ending { code, more });
        if self.demand.level >= Level::RequestResponse {
            self.response_object = answer.map(|mut answer| {
                self.clean(&mut answer);
                answer
            });
        }
    }

    /// How it ended, in words of the server's own.
    pub fn set_end(&mut self, code: u16, status: &str, reason: &str, message: &str) {
        let mut more = Map::new();
        for (key, text) in [("status", status), ("message", message), ("reason", reason)] {
            if !text.is_empty() {
                more.insert(key.into(), text.into());
            }
        }
        self.ending = Some(Ending { code, more });
    }

    pub fn response_code(&self) -> Option<u16> {
        self.ending.as_ref().map(|ending| ending.code)
    }

    /// Whether this stage is to be told. A refusal is told by its end.
    pub fn tells(&self, stage: Stage) -> bool {
        if self.demand.level == Level::None || self.demand.omit_stages.contains(stage) {
            return false;
        }
        !self.demand.refusals_only || self.response_code().is_some_and(|code| code >= 400)
    }

    /// The event of a stage, as a JSON object without its type.
    pub fn encode(&self, stage: Stage, now: Timestamp) -> Vec<u8> {
        let stage_time = if stage == Stage::RequestReceived { self.received } else { now };
        let event = Event {
            level: self.demand.level,
            audit_id: &self.audit_id,
            stage,
            request_uri: &self.request_uri,
            verb: &self.verb,
            user: &self.user,
            impersonated_user: self.impersonated.as_ref(),
            source_addresses: &self.source_addresses,
            user_agent: &self.user_agent,
            object_ref: self.object.as_ref(),
            response_status: self.ending.as_ref(),
            request_object: self.request_object.as_ref(),
            response_object: self.response_object.as_ref(),
            request_received_timestamp: format!("{:.6}", self.received),
            stage_timestamp: format!("{stage_time:.6}"),
            annotations: &self.annotations,
        };
        let mut encoded = Vec::with_capacity(USUAL_BYTES);
        match serde_json::to_writer(&mut encoded, &event) {
            Ok(()) => encoded,
            // Only maps with keys that are no text fail to encode.
            Err(_) => Vec::new(),
        }
    }

    fn clean(&self, object: &mut Value) {
        if self.demand.omit_managed_fields {
            drop_managed_fields(object);
        }
    }
}

fn is_status(answer: &Value) -> bool {
    answer.get("kind").and_then(Value::as_str) == Some("Status")
}

/// Of an object, of the items of a list, and of the objects in the rows of a table.
fn drop_managed_fields(object: &mut Value) {
    fn drop_one(object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
    drop_one(object);
    object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(drop_one);
    for row in object.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        row.get_mut("object").into_iter().for_each(drop_one);
    }
}

/// From where a request came: by its own word, then by its connection. Only the last is certain.
pub fn source_addresses(forwarded_for: &str, real_ip: &str, peer: Option<IpAddr>) -> Vec<String> {
    let mut addresses: Vec<IpAddr> =
        forwarded_for.split(',').filter_map(|part| part.trim().parse().ok()).collect();
    if let Ok(real) = real_ip.trim().parse()
        && !addresses.contains(&real)
    {
        addresses.push(real);
    }
    if let Some(peer) = peer.map(|it| it.to_canonical())
        && addresses.last() != Some(&peer)
    {
        addresses.push(peer);
    }
    addresses.iter().map(IpAddr::to_string).collect()
}

#[cfg(test)]
mod tests;
