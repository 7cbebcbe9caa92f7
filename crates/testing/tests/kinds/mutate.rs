//! Objects with one thing changed.
//!
//! An object is walked together with its type: every field it has is removed, emptied and set to values at the edge
//! of what its type allows and beyond; every field it lacks is set to something likely and something bad. What a
//! mutation is called says where and what, so that it can be found again. No chance is involved: of too many, those
//! are taken whose names have the smallest hashes, so that a further one displaces few.

use machinery::schema::{Field, Message, Type, Types};
use serde_json::{Map, Value, json};

/// One change to an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutation {
    /// `spec.replicas = -1`
    pub name: String,
    place: Vec<Step>,
    /// `None`: removed.
    value: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

/// Which part of an object is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but `status`, and what says which kind it is.
    Main,
    Status,
}

impl Part {
    fn has(self, member: &str) -> bool {
        match self {
            Part::Main => !matches!(member, "apiVersion" | "kind" | "status"),
            Part::Status => member == "status",
        }
    }
}

/// What a client may set of an object's own metadata and is worth setting where it is absent.
const METADATA: [&str; 4] = ["annotations", "finalizers", "generateName", "labels"];
/// In metadata and set by the server, or part of the path.
const KEPT_METADATA: [&str; 9] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];
/// Types that hold themselves are not followed for ever.
const DEPTH: usize = 24;

impl Mutation {
    /// The object with this change. `None` if it has nothing in that place.
    pub fn apply(&self, object: &Value) -> Option<Value> {
        let mut changed = object.clone();
        let (last, before) = self.place.split_last()?;
        let mut at = &mut changed;
        for step in before {
            at = match step {
                Step::Key(key) => at.as_object_mut()?.get_mut(key)?,
                Step::Index(index) => at.as_array_mut()?.get_mut(*index)?,
            };
        }
        match (last, self.value.clone()) {
            (Step::Key(key), Some(value)) => {
                at.as_object_mut()?.insert(key.clone(), value);
            }
            (Step::Key(key), None) => {
                at.as_object_mut()?.remove(key)?;
            }
            (Step::Index(index), Some(value)) => *at.as_array_mut()?.get_mut(*index)? = value,
            (Step::Index(index), None) if *index < at.as_array()?.len() => {
                at.as_array_mut()?.remove(*index);
            }
            (Step::Index(_), None) => return None,
        }
        Some(changed)
    }

    /// In the pod template of a workload: what is wrong there is wrong in a pod as well.
    pub fn is_in_pod_template(&self) -> bool {
        self.name.contains("template.spec.")
    }
}

/// All mutations of a part of an object. Its type may be unknown: then only what is there is changed.
pub fn mutations(types: &Types, message: Option<&Message>, part: Part, object: &Value) -> Vec<Mutation> {
    let mut walk = Walk { types, part, place: Vec::new(), found: Vec::new() };
    if let Value::Object(members) = object {
        walk.members(message, members);
    }
    walk.found
}

/// The `limit` of them whose names have the smallest hashes, in their order. Another `seed` takes others.
pub fn sample(mutations: Vec<Mutation>, limit: usize, seed: &str) -> Vec<Mutation> {
    let hash = |mutation: &Mutation| hash(&format!("{seed} {}", mutation.name));
    let mut hashes: Vec<u64> = mutations.iter().map(hash).collect();
    if hashes.len() <= limit {
        return mutations;
    }
    hashes.sort_unstable();
    let bound = hashes[limit];
    mutations.into_iter().filter(|mutation| hash(mutation) < bound).collect()
}

/// FNV-1a, with its bits mixed: names differ in their ends.
fn hash(text: &str) -> u64 {
    let fnv = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (fnv ^ (fnv >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

struct Walk<'a> {
    types: &'a Types,
    part: Part,
    place: Vec<Step>,
    found: Vec<Mutation>,
}

impl Walk<'_> {
    fn add(&mut self, value: Option<Value>) {
        let what = match &value {
            None => "removed".to_owned(),
            Some(value) => format!("= {}", shorten(&value.to_string())),
        };
        let name = format!("{} {what}", path(&self.place));
        self.found.push(Mutation { name, place: self.place.clone(), value });
    }

    fn inside(&mut self, step: Step, visit: impl FnOnce(&mut Self)) {
        self.place.push(step);
        if self.place.len() <= DEPTH {
            visit(self);
        }
        self.place.pop();
    }

    fn members(&mut self, message: Option<&Message>, members: &Map<String, Value>) {
        let top = self.place.is_empty();
        let in_metadata = self.place == [Step::Key("metadata".into())];
        let part = self.part;
        let skipped = |name: &str| top && !part.has(name) || in_metadata && KEPT_METADATA.contains(&name);
        let types = self.types;
        for (key, value) in members.iter().filter(|(key, _)| !skipped(key)) {
            let field = message.and_then(|message| types.field(message, key));
            self.inside(Step::Key(key.clone()), |walk| match field {
                Some(field) => walk.present(&field.ty, types.enum_values(field), value),
                None => walk.present(&inferred(value), &[], value),
            });
        }
        let Some(message) = message else { return };
        for field in types.fields(message).filter(|field| !members.contains_key(field.name)) {
            let wanted = if in_metadata { METADATA.contains(&field.name) } else { !skipped(field.name) };
            if wanted {
                self.inside(Step::Key(field.name.into()), |walk| walk.absent(field));
            }
        }
    }

    fn present(&mut self, ty: &Type, values: &[&'static str], value: &Value) {
        self.add(None);
        for other in changes(ty, values, value) {
            self.add(Some(other));
        }
        match (ty, value) {
            (Type::Message(id), Value::Object(members)) => {
                let types = self.types;
                self.members(Some(types.message(*id)), members);
            }
            (Type::Raw, Value::Object(members)) => self.members(None, members),
            (Type::List(element), Value::Array(items)) => {
                for (at, item) in items.iter().enumerate() {
                    self.inside(Step::Index(at), |walk| walk.present(element, values, item));
                }
            }
            (Type::Map(element), Value::Object(members)) => {
                for (key, value) in members {
                    self.inside(Step::Key(key.clone()), |walk| walk.present(element, values, value));
                }
            }
            _ => {}
        }
    }

    fn absent(&mut self, field: &Field) {
        for value in additions(&field.ty, self.types.enum_values(field)) {
            self.add(Some(value));
        }
    }
}

/// What a value without a declared type seems to be.
fn inferred(value: &Value) -> Type {
    match value {
        Value::String(_) => Type::String,
        Value::Bool(_) => Type::Bool,
        Value::Number(_) => Type::Int64,
        Value::Array(items) => Type::List(Box::new(items.first().map_or(Type::String, inferred))),
        Value::Object(_) | Value::Null => Type::Raw,
    }
}

/// What a value that is there is changed to.
fn changes(ty: &Type, values: &[&'static str], value: &Value) -> Vec<Value> {
    let mut changes = match (ty, value) {
        (Type::String, Value::String(text)) => changed_text(values, text),
        (Type::Bytes, _) => vec![json!(""), json!("not base64!"), json!("AAEC")],
        (Type::Bool, Value::Bool(given)) => vec![json!(!given), json!("yes")],
        (Type::Int32 | Type::Int64, _) => {
            let mut numbers: Vec<Value> = [-1, 0, 1, 65536, 2_147_483_647].map(Value::from).into();
            numbers.extend([json!(1.5), json!("7")]);
            numbers
        }
        (Type::Float64, _) => vec![json!(-1.5), json!(0)],
        (Type::Time | Type::MicroTime, _) => {
            vec![json!("yesterday"), json!("2025-06-07T08:09:10Z"), json!("2025-06-07T08:09:10.123456Z")]
        }
        (Type::Duration, _) => vec![json!("x"), json!("-1s"), json!("5m0s")],
        (Type::Quantity, _) => ["-1", "1m", "0", "1.5Gi", "3e3", "x", ""].map(Value::from).into(),
        (Type::IntOrString, _) => {
            vec![json!("150%"), json!("50%"), json!("x"), json!(""), json!(-1), json!(0), json!(65536)]
        }
        (Type::Message(_) | Type::Raw, Value::Object(members)) if !members.is_empty() => {
            vec![json!({}), json!("text")]
        }
        (Type::List(_) | Type::Wrapped(_), Value::Array(items)) => changed_list(items),
        (Type::Map(element), Value::Object(members)) => changed_map(element, values, members),
        _ => Vec::new(),
    };
    changes.retain(|change| change != value);
    changes
}

fn changed_text(values: &[&'static str], text: &str) -> Vec<Value> {
    let mut texts: Vec<String> = ["", "-bad-", "UPPER_case"].map(String::from).into();
    texts.push("x".repeat(300));
    if values.is_empty() {
        texts.push("other".into());
    } else {
        texts.extend(values.iter().map(|value| (*value).to_owned()));
        texts.push("Nonesuch".into());
    }
    if text.contains('/') {
        texts.extend(["../up", "a//b", "/a/../b", "a:b", "https://user@example.com/a?b#c"].map(String::from));
    }
    if text.parse::<std::net::IpAddr>().is_ok() {
        let addresses = ["300.1.1.1", "127.0.0.1", "169.254.1.1", "224.0.0.1", "0.0.0.0", "::1", "010.0.0.1"];
        texts.extend(addresses.map(String::from));
    }
    if text.split_once('/').is_some_and(|(address, _)| address.parse::<std::net::IpAddr>().is_ok()) {
        texts.extend(["10.0.0.0/33", "10.0.0.1/8", "10.0.0.0/8", "::/0", "2001:db8::/64"].map(String::from));
    }
    if text.contains('.') {
        texts.extend(["a..b", "*.example.com", "example.com."].map(String::from));
    }
    let mut changes: Vec<Value> = texts.into_iter().map(Value::from).collect();
    changes.push(json!(7));
    changes
}

fn changed_list(items: &[Value]) -> Vec<Value> {
    let mut changes = vec![json!([]), json!("text")];
    if let Some(first) = items.first() {
        let mut doubled = vec![first.clone()];
        doubled.extend_from_slice(items);
        changes.push(doubled.into());
    }
    changes
}

fn changed_map(element: &Type, values: &[&'static str], members: &Map<String, Value>) -> Vec<Value> {
    let likely = members.values().next().cloned().unwrap_or_else(|| likely(element, values));
    let with = |key: &str, value: Value| {
        let mut changed = members.clone();
        changed.insert(key.into(), value);
        Value::Object(changed)
    };
    let mut changes =
        vec![json!({}), with("-bad key-", likely.clone()), with("", likely.clone()), with("fine", likely)];
    changes.extend(bad(element, values).into_iter().map(|bad| with("fine", bad)));
    changes
}

/// What a field that is not there is set to.
fn additions(ty: &Type, values: &[&'static str]) -> Vec<Value> {
    let mut additions = vec![likely(ty, values)];
    additions.extend(bad(ty, values));
    if *ty == Type::Bool {
        additions.push(json!(false));
    }
    additions
}

fn likely(ty: &Type, values: &[&'static str]) -> Value {
    match ty {
        Type::String => json!(values.first().copied().unwrap_or("some-text")),
        Type::Bytes => json!("AAEC"),
        Type::Bool => json!(true),
        Type::Int32 | Type::Int64 | Type::Float64 | Type::IntOrString => json!(1),
        Type::Time => json!("2025-06-07T08:09:10Z"),
        Type::MicroTime => json!("2025-06-07T08:09:10.123456Z"),
        Type::Duration => json!("5m0s"),
        Type::Quantity => json!("1"),
        Type::Raw | Type::Message(_) => json!({}),
        Type::List(element) | Type::Wrapped(element) => json!([likely(element, values)]),
        Type::Map(element) => json!({"one": likely(element, values)}),
        Type::SchemaOrBool(_) | Type::SchemaOrArray(_) | Type::SchemaOrStrings(_) => json!({}),
    }
}

fn bad(ty: &Type, values: &[&'static str]) -> Vec<Value> {
    match ty {
        Type::String if values.is_empty() => vec![json!("-Bad/Text_")],
        Type::String => vec![json!("Nonesuch")],
        Type::Bytes => vec![json!("not base64!")],
        Type::Int32 | Type::Int64 | Type::IntOrString => vec![json!(-1), json!(0)],
        Type::Time | Type::MicroTime => vec![json!("yesterday")],
        Type::Duration => vec![json!("-1s")],
        Type::Quantity => vec![json!("-1")],
        Type::List(element) => bad(element, values).into_iter().map(|bad| json!([bad])).collect(),
        Type::Map(element) => vec![json!({"-bad-": likely(element, values)})],
        _ => Vec::new(),
    }
}

/// `spec.containers[0].name`
fn path(place: &[Step]) -> String {
    let mut text = String::new();
    for step in place {
        match step {
            Step::Index(index) => text.push_str(&format!("[{index}]")),
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => text.push_str(&format!(".{key}")),
        }
    }
    text
}

fn shorten(text: &str) -> String {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(object: &Value) -> Vec<String> {
        let types = Types::builtin();
        let found = mutations(types, types.get_kind("apps", "v1", "Deployment"), Part::Main, object);
        found.into_iter().map(|mutation| mutation.name).collect()
    }

    #[test]
    fn every_field_is_changed_and_every_missing_one_added() {
        let names = names(&json!({"spec": {"replicas": 3, "strategy": {"type": "Recreate"}}}));
        for expected in [
            "spec removed",
            "spec = {}",
            "spec.replicas removed",
            "spec.replicas = -1",
            "spec.strategy.type = \"RollingUpdate\"",
            "spec.strategy.type = \"Nonesuch\"",
            "spec.strategy.rollingUpdate = {}",
            "spec.paused = true",
            "spec.minReadySeconds = -1",
        ] {
            assert!(names.iter().any(|name| name == expected), "{expected} is not in {names:#?}");
        }
    }

    #[test]
    fn a_mutation_changes_one_place() {
        let object =
            json!({"spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "app"}]}}}});
        let types = Types::builtin();
        for mutation in mutations(types, types.get_kind("apps", "v1", "Deployment"), Part::Main, &object) {
            let changed = mutation.apply(&object).expect("the place is there");
            assert_ne!(changed, object, "{}", mutation.name);
        }
    }

    #[test]
    fn a_sample_hardly_changes_when_there_is_more_to_choose_from() {
        let mutation =
            |at: usize| Mutation { name: format!("field{at} removed"), place: Vec::new(), value: None };
        let few = sample((0..1000).map(mutation).collect(), 100, "");
        let many = sample((0..1010).map(mutation).collect(), 100, "");
        assert_eq!(few.len(), 100);
        assert!(few.iter().filter(|mutation| many.contains(mutation)).count() > 90);
    }
}
