//! The objects of a run: of one kind, with a payload that differs from object to object and does not compress.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::Result;
use bytes::Bytes;
use http::{Method, Uri};
use memchr::memmem;

use crate::{
    client::{self, Endpoint, Request},
    setting::GROUP,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    ConfigMap,
    /// Passes pod security, gets its limits and is charged to a quota.
    Pod,
    /// Custom: has a schema with defaults and a rule.
    Thing,
}

impl Kind {
    pub fn collection(self, namespace: &str) -> String {
        match self {
            Self::ConfigMap => format!("/api/v1/namespaces/{namespace}/configmaps"),
            Self::Pod => format!("/api/v1/namespaces/{namespace}/pods"),
            Self::Thing => format!("/apis/{GROUP}/v1/namespaces/{namespace}/things"),
        }
    }

    fn group_version(self) -> String {
        match self {
            Self::ConfigMap | Self::Pod => "v1".to_owned(),
            Self::Thing => format!("{GROUP}/v1"),
        }
    }

    /// What is around the payload.
    fn content(self) -> (&'static str, &'static str) {
        match self {
            Self::ConfigMap => (r#""data":{"payload":""#, r#""}}"#),
            Self::Pod => (
                r#""spec":{"automountServiceAccountToken":false,"securityContext":{"runAsNonRoot":true,
                "seccompProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"main",
                "image":"registry.example/app:1","securityContext":{"allowPrivilegeEscalation":false,
                "capabilities":{"drop":["ALL"]}},"env":[{"name":"PAYLOAD","value":""#,
                r#""}]}]}}"#,
            ),
            Self::Thing => (r#""spec":{"size":3,"label":""#, r#""}}"#),
        }
    }
}

/// What is done to one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Create,
    Update,
    MergePatch,
    StrategicPatch,
    /// Server-side apply of a ConfigMap that depends only on its name: the first time it makes the object, and from
    /// the second on it changes nothing.
    Apply,
    ApplyUnchanged,
    Get,
    Delete,
}

/// The objects `bench-000000`, `bench-000001`, … of one namespace.
pub struct Population {
    pub kind: Kind,
    pub namespace: String,
    payload: usize,
    /// How many payloads were drawn. No two are equal: an update that changes nothing need not be written.
    drawn: AtomicU64,
    collection: Uri,
    members: Vec<Member>,
}

struct Member {
    name: String,
    uri: Uri,
    /// The same, asked for by the manager `bench`.
    apply: Uri,
    /// As last answered, for the next update; 0 before the first answer.
    version: AtomicU64,
}

impl Population {
    /// What is to be made; nothing is there yet. `payload` is in bytes.
    pub fn new(
        endpoint: &Endpoint,
        kind: Kind,
        namespace: &str,
        count: usize,
        payload: usize,
    ) -> Result<Arc<Self>> {
        let path = kind.collection(namespace);
        let members = (0..count).map(|index| {
            let name = format!("bench-{index:06}");
            let uri = endpoint.uri(&format!("{path}/{name}"))?;
            let apply = endpoint.uri(&format!("{path}/{name}?fieldManager=bench"))?;
            Ok(Member { name, uri, apply, version: AtomicU64::new(0) })
        });
        Ok(Arc::new(Self {
            kind,
            namespace: namespace.to_owned(),
            payload,
            drawn: AtomicU64::new(0),
            collection: endpoint.uri(&path)?,
            members: members.collect::<Result<_>>()?,
        }))
    }

    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// The `sequence`-th request of a row; after the last object it begins again with the first. An update carries
    /// the version it replaces, as a controller's does.
    pub fn request(&self, verb: Verb, sequence: usize) -> Request {
        let member = &self.members[sequence % self.members.len()];
        match verb {
            Verb::Create => {
                let body = self.with_payload(self.head(member, 0));
                client::with_body(Method::POST, self.collection.clone(), JSON, body)
            }
            Verb::Update => {
                let body = self.with_payload(self.head(member, member.version.load(Ordering::Relaxed)));
                client::with_body(Method::PUT, member.uri.clone(), JSON, body)
            }
            Verb::MergePatch => {
                let body = self.with_payload("{".to_owned());
                client::with_body(Method::PATCH, member.uri.clone(), MERGE_PATCH, body)
            }
            Verb::StrategicPatch => {
                let body = self.with_payload("{".to_owned());
                client::with_body(Method::PATCH, member.uri.clone(), STRATEGIC_PATCH, body)
            }
            Verb::Apply | Verb::ApplyUnchanged => {
                let number = (sequence % self.members.len()) as u64;
                let body = self.with_numbered_payload(self.head(member, 0), number);
                client::with_body(Method::PATCH, member.apply.clone(), APPLY, body)
            }
            Verb::Get => client::get(member.uri.clone()),
            Verb::Delete => client::bare(Method::DELETE, member.uri.clone()),
        }
    }

    /// An object up to its content; version 0 is none.
    fn head(&self, member: &Member, version: u64) -> String {
        let Member { name, .. } = member;
        let Self { kind, namespace, .. } = self;
        let group_version = kind.group_version();
        let version = if version == 0 { String::new() } else { format!(r#","resourceVersion":"{version}""#) };
        format!(
            r#"{{"apiVersion":"{group_version}","kind":"{kind:?}","metadata":{{"name":"{name}","namespace":"{namespace}"{version}}},"#
        )
    }

    fn with_payload(&self, head: String) -> Bytes {
        self.with_numbered_payload(head, self.drawn.fetch_add(1, Ordering::Relaxed))
    }

    fn with_numbered_payload(&self, head: String, number: u64) -> Bytes {
        let mut body = head.into_bytes();
        let (before, after) = self.kind.content();
        body.reserve_exact(before.len() + self.payload + after.len());
        body.extend_from_slice(before.as_bytes());
        append_payload(&mut body, &self.namespace, number, self.payload);
        body.extend_from_slice(after.as_bytes());
        body.into()
    }

    /// Takes note of the answer to `request(_, sequence)`.
    pub fn answered(&self, sequence: usize, body: &[u8]) {
        if let Some(version) = resource_version(body) {
            self.members[sequence % self.members.len()].version.store(version, Ordering::Relaxed);
        }
    }
}

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Appends `length` base64 characters from a generator seeded with the other two (SplitMix64).
fn append_payload(body: &mut Vec<u8>, namespace: &str, number: u64, length: usize) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const CHARACTERS_PER_WORD: usize = 10;
    let salt = namespace.bytes().fold(0_u64, |salt, byte| salt.wrapping_mul(31).wrapping_add(byte.into()));
    let mut state = (salt << 40) ^ (number << 8);
    let end = body.len() + length;
    while body.len() < end {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        let characters: [u8; CHARACTERS_PER_WORD] =
            std::array::from_fn(|place| ALPHABET[(word >> (6 * place)) as usize & 63]);
        body.extend_from_slice(&characters);
    }
    body.truncate(end);
}

/// The first `resourceVersion` in an object or event, found without parsing the rest.
pub fn resource_version(json: &[u8]) -> Option<u64> {
    number_after(json, b"\"resourceVersion\":\"")
}

/// The number in the name of an object or of an event's object.
pub fn index(json: &[u8]) -> Option<usize> {
    usize::try_from(number_after(json, b"\"name\":\"bench-")?).ok()
}

fn number_after(json: &[u8], marker: &[u8]) -> Option<u64> {
    let rest = &json[memmem::find(json, marker)? + marker.len()..];
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn population() -> Population {
        population_of(Kind::ConfigMap)
    }

    fn population_of(kind: Kind) -> Population {
        let uri = Uri::from_static("https://127.0.0.1:1/");
        let (apply, version) = (uri.clone(), AtomicU64::new(0));
        let member = Member { name: "bench-000000".to_owned(), uri: uri.clone(), apply, version };
        Population {
            kind,
            namespace: "bench".to_owned(),
            payload: 1024,
            drawn: AtomicU64::new(0),
            collection: uri,
            members: vec![member],
        }
    }

    async fn body(population: &Population, verb: Verb) -> serde_json::Value {
        let body = population.request(verb, 0).into_body().collect().await.unwrap();
        serde_json::from_slice(&body.to_bytes()).unwrap()
    }

    #[tokio::test]
    async fn every_payload_has_its_length_and_differs_from_the_last() {
        let population = population();
        let mut last = serde_json::Value::Null;
        for verb in [Verb::Create, Verb::Update, Verb::Update, Verb::MergePatch] {
            let payload = body(&population, verb).await["data"]["payload"].take();
            assert_eq!(payload.as_str().unwrap().len(), 1024);
            assert_ne!(payload, last);
            last = payload;
        }
    }

    #[tokio::test]
    async fn objects_of_every_kind_are_whole() {
        for (kind, payload) in [
            (Kind::ConfigMap, "/data/payload"),
            (Kind::Pod, "/spec/containers/0/env/0/value"),
            (Kind::Thing, "/spec/label"),
        ] {
            let object = body(&population_of(kind), Verb::Create).await;
            assert_eq!(object["kind"], format!("{kind:?}"));
            assert_eq!(object.pointer(payload).unwrap().as_str().unwrap().len(), 1024);
        }
    }

    #[tokio::test]
    async fn applying_again_says_the_same() {
        let population = population();
        let first = body(&population, Verb::Apply).await;
        assert_eq!(first["data"]["payload"].as_str().unwrap().len(), 1024);
        assert_eq!(body(&population, Verb::ApplyUnchanged).await, first);
    }

    #[tokio::test]
    async fn an_update_carries_the_version_it_replaces() {
        let population = population();
        assert!(body(&population, Verb::Update).await["metadata"]["resourceVersion"].is_null());
        population.answered(0, br#"{"metadata":{"resourceVersion":"12"}}"#);
        assert_eq!(body(&population, Verb::Update).await["metadata"]["resourceVersion"], "12");
    }

    #[test]
    fn numbers_are_read_out_of_an_event() {
        let event =
            br#"{"type":"ADDED","object":{"metadata":{"name":"bench-000123","resourceVersion":"4567"}}}"#;
        assert_eq!(index(event), Some(123));
        assert_eq!(resource_version(event), Some(4567));
        assert_eq!(resource_version(b"{}"), None);
    }
}
