use serde_json::{Value, json};

use super::{
    super::{
        fields::tests::Random,
        schema::{ListMerge, MapField, Scalar, Schema, SchemaBuilder, TypeId},
    },
    *,
};

/// Objects that hold themselves in every way that there is.
fn schema() -> (Schema, TypeId) {
    let mut builder = SchemaBuilder::new();
    let object = builder.declare("object");
    let (text, number) = (builder.scalar(Scalar::String), builder.scalar(Scalar::Numeric));
    let keyed = builder.list(object, ListMerge::Keys(["name".into()].into()));
    let set = builder.list(text, ListMerge::Set);
    let atomic_list = builder.list(object, ListMerge::Atomic);
    let labels = builder.object([], Some(text), false);
    let labels = builder.map(labels);
    let whole = builder.with_atomic(object, true);
    let types = [
        ("name", text),
        ("number", number),
        ("child", object),
        ("keyed", keyed),
        ("set", set),
        ("list", atomic_list),
        ("labels", labels),
        ("whole", whole),
        ("any", builder.deduced()),
    ];
    let fields = types.map(|(name, ty)| MapField { name: name.into(), ty, default: None });
    let map = builder.object(fields, None, false);
    builder.define(object, super::super::Atom { map: Some(map), ..Default::default() });
    (builder.build(), object)
}

fn random_object(random: &mut Random, depth: usize) -> Value {
    let mut object = Tree::new();
    if random.below(2) == 0 {
        object.insert("number".to_owned(), json!(random.below(2)));
    }
    for name in ["keyed", "set", "labels", "list", "whole", "child", "any"] {
        if depth == 0 || random.below(3) > 0 {
            continue;
        }
        let children = |random: &mut Random| -> Vec<Value> {
            (0..random.below(3)).map(|_| random_object(random, depth - 1)).collect()
        };
        let value = match name {
            "keyed" => {
                let mut items = children(random);
                for (at, item) in items.iter_mut().enumerate() {
                    item["name"] = json!(["x", "y", "z"][(at + random.below(2)) % 3]);
                }
                items.dedup_by(|a, b| a["name"] == b["name"]);
                json!(items)
            }
            "set" => json!(["p", "q", "r"][random.below(3)..]),
            "labels" => (0..random.below(3))
                .map(|at| (format!("l{at}"), json!(random.below(2).to_string())))
                .collect(),
            "list" => json!(children(random)),
            _ => random_object(random, depth - 1),
        };
        object.insert(name.to_owned(), value);
    }
    Value::Object(object)
}

struct OneVersion;

impl Versions for OneVersion {
    fn type_at(&self, _: &str) -> Option<TypeRef<'_>> {
        None
    }

    fn convert(&self, _: &Tree, _: &str) -> Result<Tree, String> {
        Err("there is one version".to_owned())
    }
}

fn tree(mut value: Value) -> Tree {
    without_empty(&mut value);
    match value {
        Value::Object(tree) => tree,
        other => panic!("no object: {other}"),
    }
}

/// Without objects and lists that are empty: whether those are there or not is not always the same the second time,
/// neither here nor upstream.
fn without_empty(value: &mut Value) {
    let is_empty = |value: &Value| match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        other => other.is_null(),
    };
    match value {
        Value::Array(items) => {
            items.iter_mut().for_each(without_empty);
            items.retain(|item| !is_empty(item));
        }
        Value::Object(members) => {
            members.values_mut().for_each(without_empty);
            members.retain(|_, member| !is_empty(member));
        }
        _ => {}
    }
}

/// A live object that some have written to, and their sets.
fn history(updater: &Updater<'_>, ty: TypeRef<'_>, random: &mut Random) -> (Tree, Managers) {
    let (mut live, mut managers) = (Tree::new(), Managers::new());
    for _ in 0..random.below(6) {
        let other = tree(random_object(random, 3));
        let manager = ["a", "b", "c"][random.below(3)];
        let (old, new) = (Object::new(&live, ty, "v1"), Object::new(&other, ty, "v1"));
        if random.below(3) == 0 {
            managers = updater.update(&old, &new, managers, "updater").unwrap();
            live = other;
        } else {
            let (object, after) = updater.apply(&old, &new, managers, manager, true).unwrap();
            (live, managers) = (object.unwrap_or(live), after);
        }
    }
    (live, managers)
}

#[test]
fn applying_twice_is_applying_once() {
    let (schema, object) = schema();
    let (ty, updater) = (schema.get(object), Updater { versions: &OneVersion, filters: &[] });
    for seed in 1..1000 {
        let mut random = Random::new(seed);
        let (live, managers) = history(&updater, ty, &mut random);
        let config = tree(random_object(&mut random, 3));
        let config = Object::new(&config, ty, "v1");
        let (once, after) =
            updater.apply(&Object::new(&live, ty, "v1"), &config, managers, "a", true).unwrap();
        let once = once.unwrap_or(live);
        let (twice, again) =
            updater.apply(&Object::new(&once, ty, "v1"), &config, after.clone(), "a", false).unwrap();
        assert_eq!(twice.map(Value::Object), None, "seed {seed}: {once:?}");
        assert_eq!(again, after, "seed {seed}");
    }
}
