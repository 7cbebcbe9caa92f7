//! The applications: folders of manifests, as people apply them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// One application. What names no namespace is for one that has the bundle's name.
#[derive(Clone, Debug)]
pub struct Bundle {
    pub name: String,
    /// In the order of the files, but namespaces and definitions first, as appliers do.
    pub objects: Vec<Value>,
    /// What its manifests begin with: what the application is.
    pub about: String,
}

/// Of this repository.
pub fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus")
}

/// All of them by name, or those that `HANSE_CORPUS` names, separated by commas.
pub fn all() -> Result<Vec<Bundle>> {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(corpus().join("apps"))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    if let Ok(wanted) = std::env::var("HANSE_CORPUS") {
        let wanted: Vec<&str> = wanted.split(',').collect();
        names.retain(|name| wanted.contains(&name.as_str()));
    }
    names.iter().map(|name| Bundle::read(name)).collect()
}

impl Bundle {
    fn read(name: &str) -> Result<Bundle> {
        let folder = corpus().join("apps").join(name);
        let mut files: Vec<PathBuf> =
            fs::read_dir(&folder)?.map(|it| Ok(it?.path())).collect::<Result<_>>()?;
        files.sort();
        let mut texts = Vec::new();
        for file in &files {
            texts.push(fs::read_to_string(file).with_context(|| file.display().to_string())?);
        }
        Self::of(name, &texts)
    }

    /// Of manifests as they are written.
    pub fn of(name: &str, manifests: &[String]) -> Result<Bundle> {
        let about = manifests.first().and_then(|it| it.lines().next()).unwrap_or_default();
        let about = about.strip_prefix("# ").unwrap_or_default().to_owned();
        let mut objects: Vec<Value> = Vec::new();
        for text in manifests {
            // As kubectl reads it: `0400` is octal.
            let mut options = serde_saphyr::Options::default();
            options.legacy_octal_numbers = true;
            let read = |text: &str| serde_saphyr::from_multiple_with_options(text, options.clone());
            let read: Vec<Value> = server::yaml::lenient(text, read).with_context(|| name.to_owned())?;
            objects.extend(read.into_iter().filter(|it| !it.is_null()));
        }
        ensure!(!objects.is_empty(), "{name} holds nothing");
        Ok(Bundle { about, ..Self::with(name, objects) })
    }

    /// Of objects, in the order in which they are to be applied.
    pub fn with(name: &str, mut objects: Vec<Value>) -> Bundle {
        let first = ["Namespace", "CustomResourceDefinition"];
        let rank = |it: &Value| first.iter().position(|kind| it["kind"] == *kind).unwrap_or(9);
        objects.sort_by_key(rank);
        Bundle { name: name.to_owned(), objects, about: String::new() }
    }

    /// Where its objects are: its own, unless it says all, and those that it brings.
    pub fn namespaces(&self) -> Vec<Value> {
        let brought = self.objects.iter().filter(|it| it["kind"] == "Namespace");
        let mut all: Vec<Value> = brought.cloned().collect();
        if !all.iter().any(|it| it["metadata"]["name"] == self.name) {
            all.push(json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": self.name, "labels": {"pod-security.kubernetes.io/enforce": "baseline"}},
            }));
        }
        all
    }

    /// All that is not a namespace.
    pub fn contents(&self) -> impl DoubleEndedIterator<Item = &Value> {
        self.objects.iter().filter(|it| it["kind"] != "Namespace")
    }

    /// The kinds in it, each once.
    pub fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = self.contents().filter_map(|it| it["kind"].as_str()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// One object of many fields, or many of one kind, is not yet an application of parts that need each other.
    pub fn has_several_kinds(&self) -> bool {
        self.kinds().len() > 1
    }
}
