//! Upstream's own tables of cases, held against our code.
//!
//! `tests/real/tables/record` runs the tests of the modules that Kubernetes is made of and writes down what their
//! functions were given and returned. `HANSE_TABLES` names the directory that it wrote into; without it there is
//! nothing to compare with. The lane `tables` does both.

// A test may look at files; what it tests may not.
#![allow(clippy::disallowed_methods)]

mod builtin;
mod managed;
mod merge;
mod pod_security;
mod schemas;
mod strategic;

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::Value;

/// A call that upstream made.
pub struct Call<'c> {
    pub fields: &'c Value,
}

impl Call<'_> {
    pub fn text(&self, key: &str) -> &str {
        self.fields[key].as_str().unwrap_or_default()
    }

    pub fn is(&self, key: &str) -> bool {
        self.fields[key].as_bool().unwrap_or_default()
    }
}

/// What is not the same, and why that is right. Each must be needed.
struct Exception {
    call: &'static str,
    /// A part of the recorded line that no other has.
    part: &'static str,
    #[expect(dead_code, reason = "read by people")]
    reason: &'static str,
}

const EXCEPTIONS: &[Exception] = &[Exception {
    call: "validate",
    part: "no type found matching: inlined type",
    reason: "a schema that says of a scalar that it is atomic is wrong; our builder takes such a type as it is",
}];

fn directory() -> Option<PathBuf> {
    let directory = std::env::var_os("HANSE_TABLES").map(PathBuf::from);
    if directory.is_none() {
        eprintln!("SKIPPED: HANSE_TABLES is not set; run ./test tables");
    }
    directory
}

/// The recorded calls of one kind, in the order that they were made.
fn recorded(prefix: &str) -> Option<Vec<Vec<Value>>> {
    let directory = directory()?;
    let entries =
        std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)));
    assert!(!paths.is_empty(), "nothing was recorded in {}", directory.display());
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    Some(paths.iter().map(read).collect())
}

/// Counts what agrees and shows what does not.
#[derive(Default)]
struct Tally {
    agreed: BTreeMap<String, usize>,
    failures: Vec<String>,
    used: Vec<usize>,
}

impl Tally {
    fn add(&mut self, call: &Value, outcome: Result<(), String>) {
        let name = call["call"].as_str().unwrap_or_default();
        let Err(why) = outcome else {
            *self.agreed.entry(name.to_owned()).or_default() += 1;
            return;
        };
        let line = call.to_string();
        let excepted =
            EXCEPTIONS.iter().position(|exception| exception.call == name && line.contains(exception.part));
        match excepted {
            Some(at) => self.used.push(at),
            None => self.failures.push(format!("{name}: {why}\n    {}", shortened(&line))),
        }
    }

    /// `least`: how many calls of each kind there must be at least, so that nothing goes missing unnoticed.
    fn finish(self, least: &[(&str, usize)]) {
        println!("agreed: {:?}", self.agreed);
        let shown = self.failures.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
        assert!(self.failures.is_empty(), "{} calls differ\n{shown}", self.failures.len());
        for (call, count) in least {
            let agreed = self.agreed.get(*call).copied().unwrap_or_default();
            assert!(agreed >= *count, "only {agreed} calls of {call} were recorded");
        }
        for (at, exception) in EXCEPTIONS.iter().enumerate() {
            let is_here = least.iter().any(|(call, _)| *call == exception.call);
            assert!(!is_here || self.used.contains(&at), "{} is no exception any more", exception.part);
        }
    }
}

fn shortened(line: &str) -> String {
    line.chars().take(1500).collect()
}

#[test]
fn structured_merge_diff() {
    let Some(processes) = recorded("merge-") else { return };
    let mut tally = Tally::default();
    for calls in &processes {
        let schemas = schemas::read(calls);
        for call in calls.iter().filter(|call| call["call"] != "schema") {
            tally.add(call, merge::check(&schemas, &Call { fields: call }));
        }
    }
    tally.finish(&[
        ("apply", 2000),
        ("update", 700),
        ("validate", 3000),
        ("compare", 200),
        ("merge", 90),
        ("remove", 40),
        ("extract", 60),
        ("fieldSet", 60),
        ("fromJSON", 500),
        ("toJSON", 500),
        ("difference", 1000),
        ("union", 600),
    ]);
}

#[test]
fn managed_fields() {
    let Some(processes) = recorded("managed-") else { return };
    let mut tally = Tally::default();
    for calls in &processes {
        let schemas = schemas::read(calls);
        for call in calls.iter().filter(|call| call["call"] != "schema") {
            tally.add(call, managed::check(&schemas, &Call { fields: call }));
        }
    }
    tally.finish(&[
        ("serverSideApply", 60),
        ("trackUpdate", 40),
        ("capManagers", 10),
        ("decodeManagedFields", 15),
        ("sortManagedFields", 15),
        ("conflictError", 4),
        ("scaleFromParent", 3),
        ("scaleToParent", 14),
    ]);
}

#[test]
fn strategic_merge_patch() {
    let Some(processes) = recorded("strategic-") else { return };
    let mut tally = Tally::default();
    for call in processes.iter().flatten() {
        tally.add(call, strategic::check(&Call { fields: call }));
    }
    tally.finish(&[("strategicMerge", 150)]);
}

#[test]
fn schema_of_built_in_types() {
    let Some(directory) = directory() else { return };
    let text = std::fs::read_to_string(directory.join("schema.json")).unwrap();
    let compared = builtin::compare(&serde_json::from_str(&text).unwrap());
    println!("{} types agree", compared.agreed);
    assert_eq!(compared.differences, Vec::<String>::new());
    assert!(compared.agreed >= 580, "only {} types were compared", compared.agreed);
}

#[test]
fn pod_security_levels() {
    let Some(processes) = recorded("podsecurity") else { return };
    let mut tally = Tally::default();
    for call in processes.iter().flatten() {
        tally.add(call, pod_security::check(&Call { fields: call }));
    }
    tally.finish(&[("podSecurity", 350)]);
}
