//! The objects to begin with: our own valid ones, and those that upstream tests its own serialisation with.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::scope::{KINDS, Kind, NAMESPACE};

/// A valid object, as its author wrote it.
#[derive(Clone, Debug)]
pub struct Base {
    pub kind: &'static Kind,
    pub name: String,
    pub object: Value,
}

/// The valid objects of every kind, from a folder of YAML.
pub fn valid(folder: &Path) -> Result<Vec<Base>> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    let mut bases = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path)?;
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(&text).with_context(|| format!("in {}", path.display()))?;
        for object in objects {
            bases.push(Base::new(object).with_context(|| format!("in {}", path.display()))?);
        }
    }
    for kind in KINDS {
        let own = bases.iter().filter(|base| base.kind == kind).count();
        ensure!(own >= 2, "{kind} has no minimal and rich object");
    }
    Ok(bases)
}

impl Base {
    fn new(object: Value) -> Result<Base> {
        let Some(kind) = Kind::of(&object) else {
            bail!("a kind that is not compared: {} {}", object["apiVersion"], object["kind"]);
        };
        let name = object["metadata"]["name"].as_str().context("an object without a name")?.to_owned();
        Ok(Base { kind, name, object })
    }

    /// With its own metadata every such object would be refused for that alone.
    fn of_upstream(kind: &'static Kind, mut object: Value) -> Base {
        let name = format!("upstream-{}", kind.kind.to_lowercase());
        let metadata = object["metadata"].take();
        object["metadata"] = json!({
            "name": name,
            "labels": metadata["labels"],
            "annotations": metadata["annotations"],
            "ownerReferences": metadata["ownerReferences"],
        });
        if kind.namespaced {
            object["metadata"]["namespace"] = json!(NAMESPACE);
        }
        Base { kind, name, object }
    }
}

/// The objects with every field set that upstream has for its kinds, in the Go module cache; not every kind has one.
/// Their values are names of fields, so that hardly any is valid.
pub fn upstream() -> Result<Vec<Base>> {
    let folder = test_data()?;
    let mut bases = Vec::new();
    for kind in KINDS {
        let path = folder.join(format!("{kind}.json"));
        if path.exists() {
            let object = serde_json::from_slice(&std::fs::read(&path)?)?;
            bases.push(Base::of_upstream(kind, object));
        }
    }
    ensure!(!bases.is_empty(), "{} has no objects", folder.display());
    Ok(bases)
}

fn test_data() -> Result<PathBuf> {
    let modules = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/real/kube-apiserver"));
    // The release of the types that Hanse has, which is pinned where they are generated.
    let table = include_str!("../../../machinery/data/types.txt");
    let version = table.split_once("modules ").and_then(|(_, rest)| rest.split_once(';'));
    let (version, _) = version.context("the table of types does not say its release")?;
    let found = Command::new("go")
        .args(["mod", "download", "-json", &format!("k8s.io/api@{version}")])
        .current_dir(modules)
        .output()
        .context("cannot run go")?;
    ensure!(found.status.success(), "k8s.io/api: {}", String::from_utf8_lossy(&found.stderr));
    let module: Value = serde_json::from_slice(&found.stdout)?;
    let directory = module["Dir"].as_str().context("a module without a directory")?;
    Ok(Path::new(directory).join("testdata/HEAD"))
}
