use serde_json::json;

use super::*;

/// A small generator of good enough randomness (xorshift64*); every test names its seeds.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

fn random_element(random: &mut Random) -> PathElement {
    let scalars =
        [json!("a"), json!("é\n<"), json!(1), json!(1.5), json!(true), json!(9_007_199_254_740_993i64)];
    let scalar = scalars[random.below(scalars.len())].clone();
    match random.below(6) {
        0 => PathElement::key([("name".into(), scalar)]),
        1 => PathElement::key([("port".into(), json!(random.below(3))), ("name".into(), scalar)]),
        2 => PathElement::Value(scalar),
        3 => PathElement::Index(random.below(3) as i64),
        _ => PathElement::field(["a", "b", "c\"", "."][random.below(4)]),
    }
}

fn random_set(random: &mut Random) -> FieldSet {
    let mut set = FieldSet::default();
    for _ in 0..random.below(12) {
        let path: Vec<_> = (0..=random.below(4)).map(|_| random_element(random)).collect();
        set.insert(&path);
    }
    set
}

#[test]
fn sets_are_sets() {
    for seed in 1..2000 {
        let mut random = Random::new(seed);
        let (a, b, c) = (random_set(&mut random), random_set(&mut random), random_set(&mut random));
        let union = |a: &FieldSet, b: &FieldSet| a.clone().union(b.clone());
        let minus = |a: &FieldSet, b: &FieldSet| a.clone().difference(b);
        assert_eq!(union(&a, &b), union(&b, &a), "seed {seed}");
        assert_eq!(union(&a, &union(&b, &c)), union(&union(&a, &b), &c), "seed {seed}");
        assert_eq!(union(&a, &a), a, "seed {seed}");
        assert_eq!(a.intersection(&b), b.intersection(&a), "seed {seed}");
        assert_eq!(minus(&minus(&a, &b), &c), minus(&a, &union(&b, &c)), "seed {seed}");
        assert_eq!(union(&minus(&a, &b), &a.intersection(&b)), a, "seed {seed}");
        assert!(minus(&a, &a).is_empty() && minus(&a, &b).intersection(&b).is_empty(), "seed {seed}");
        assert_eq!(a.len() + b.len(), union(&a, &b).len() + a.intersection(&b).len(), "seed {seed}");
        assert!(a.is_within(&union(&a, &b)), "seed {seed}");
        assert_eq!(a.is_within(&b), minus(&a, &b).is_empty(), "seed {seed}");
        assert!(a.clone().recursive_difference(&b).is_within(&minus(&a, &b)), "seed {seed}");
        assert!(a.leaves().is_within(&a), "seed {seed}");
        assert!(union(&a, &b).paths().iter().all(|path| a.has(path) || b.has(path)), "seed {seed}");
    }
}

#[test]
fn what_is_written_can_be_read() {
    for seed in 1..2000 {
        let set = random_set(&mut Random::new(seed));
        assert_eq!(FieldSet::from_json(&set.to_json()), Ok(set.clone()), "seed {seed}");
        assert_eq!(FieldSet::from_value(&set.to_value()), Ok(set.clone()), "seed {seed}");
        assert_eq!(FieldSet::from_json(&set.to_json()).unwrap().to_json(), set.to_json(), "seed {seed}");
    }
}

#[test]
fn written_as_upstream_writes_it() {
    for text in [
        "{}",
        r#"{"f:a":{}}"#,
        r#"{"f:metadata":{"f:labels":{".":{},"f:app":{}}}}"#,
        r#"{"f:a":{},"k:{\"name\":\"a\"}":{},"k:{\"port\":80}":{},"k:{\"port\":443}":{},"v:1":{},"v:20":{},"v:\"a\"":{},"v:true":{},"i:3":{},"i:20":{}}"#,
        r#"{"f:\u0008\u000c\n\"\\":{}}"#,
        r#"{"k:{\"name\":\"\\u003c\"}":{}}"#,
    ] {
        assert_eq!(FieldSet::from_json(text).unwrap().to_json(), text);
    }
}

#[test]
fn what_is_no_set_is_refused() {
    for text in [
        "",
        "[]",
        "1",
        r#"{"a":{}}"#,
        r#"{"f:a":1}"#,
        r#"{"f:a":{"x":{}}}"#,
        r#"{"i:x":{}}"#,
        r#"{"v:":{}}"#,
        r#"{"k:[]":{}}"#,
        r#"{"v:1e999":{}}"#,
    ] {
        assert!(FieldSet::from_json(text).is_err(), "{text}");
    }
    for (text, read) in [
        ("null", "{}"),
        (r#"{"f:a":null}"#, r#"{"f:a":{}}"#),
        (r#"{"x:later":{},"f:a":{}}"#, r#"{"f:a":{}}"#),
    ] {
        assert_eq!(FieldSet::from_json(text).unwrap().to_json(), read);
    }
}

#[test]
fn paths_are_shown_in_gos_words() {
    let set = FieldSet::from_json(
        r#"{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{}}}},"f:l":{"v:\"a\"":{},"v:1000000":{},"i:2":{}}}"#,
    );
    let shown = ".l[=1e+06]\n.l[=\"a\"]\n.l[2]\n.spec.ports[port=80,protocol=\"TCP\"]\n.spec.ports[port=80,protocol=\"TCP\"].name";
    assert_eq!(set.unwrap().to_string(), shown);
}

#[test]
fn filters_leave_what_a_write_may_own() {
    let set = FieldSet::from_json(
        r#"{"f:metadata":{"f:labels":{}},"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:resources":{"f:limits":{}}}}},"f:status":{"f:phase":{}}}"#,
    )
    .unwrap();
    let exclude = Filter::Exclude(FieldSet::of_fields(&[&["status"], &["metadata", "labels"]]));
    assert!(exclude.apply(set.clone()).paths().iter().all(|path| path[0] == PathElement::field("spec")));
    let field = |name: &str| Some(PathElement::field(name));
    let resources = [field("spec"), field("containers"), None, field("resources")];
    let include = Filter::Include(Matcher::prefixes([resources.as_slice()]));
    let left = r#"{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:resources":{"f:limits":{}}}}}}"#;
    assert_eq!(include.apply(set).to_json(), left);
}
