//! The controllers: programs, what they are given by who installs them, and what they are asked for.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    api::text,
    bundle::{Bundle, corpus},
};

const GROUP: &str = "operators.hanse.test";
/// Seconds. Nothing is written for so long: all are content.
const QUIET: u64 = 5;

/// What a file of `tests/corpus/controllers` says.
#[derive(Clone, Debug)]
pub struct Described {
    pub name: String,
    said: Value,
}

/// One controller. It lives in a namespace `NAME-system`; what it is asked for is in `NAME`.
#[derive(Clone, Debug)]
pub struct Controller {
    pub name: String,
    /// What is there before it starts: definitions, its account and its rights, and what else it needs.
    pub install: Bundle,
    /// By which it is installed where it is to run as a workload.
    pub deployment: Value,
    pub replicas: usize,
    /// It knows no other way to a server than that of pods.
    pub in_cluster: bool,
    /// It goes on by a clock of its own: only after so long without a write it is known to rest.
    pub quiet: Duration,
    /// What it is asked for first, and all of that with what is then changed.
    pub used: Bundle,
    pub changed: Bundle,
    /// Kinds of its own.
    pub kinds: Vec<(String, String)>,
}

/// All of them by name, or those that `HANSE_CORPUS` names, separated by commas.
pub fn all() -> Result<Vec<Described>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(corpus().join("controllers"))?.map(|it| Ok(it?.path())).collect::<Result<_>>()?;
    files.sort();
    let mut all = files.iter().map(|it| Described::read(it)).collect::<Result<Vec<_>>>()?;
    if let Ok(wanted) = std::env::var("HANSE_CORPUS") {
        all.retain(|it| wanted.split(',').any(|name| name == it.name));
    }
    Ok(all)
}

impl Described {
    fn read(file: &Path) -> Result<Described> {
        let name = file.file_stem().context("a name")?.to_string_lossy().into_owned();
        let said = fs::read_to_string(file)?;
        let said: Value = serde_saphyr::from_str(&said).with_context(|| name.clone())?;
        ensure!(
            ["/about", "/with"].iter().all(|it| !text(&said, it).is_empty()),
            "{name} does not say what it is"
        );
        Ok(Described { name, said })
    }

    pub fn about(&self) -> &str {
        text(&self.said, "/about")
    }

    /// The library that it is written with, or whose it is.
    pub fn with(&self) -> &str {
        text(&self.said, "/with")
    }

    /// With all that is not ours: programs are built, and manifests looked up, if need be.
    pub fn controller(&self) -> Result<Controller> {
        Controller::of(&self.name, &self.said).with_context(|| self.name.clone())
    }
}

impl Controller {
    fn of(name: &str, said: &Value) -> Result<Controller> {
        let definitions: Vec<Value> = list(&said["definitions"]).map(definition).collect();
        let home = format!("{name}-system");
        let mut install = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home}})];
        install.extend(definitions);
        install.extend(brought(&said["brings"])?);
        install.extend(account(name, &home, &said["rights"]));
        install.extend(list(&said["install"]).cloned());
        let used: Vec<Value> = list(&said["use"]).cloned().collect();
        let mut changed = used.clone();
        for object in list(&said["change"]) {
            let same = changed.iter_mut().find(|it| {
                it["kind"] == object["kind"] && it["metadata"]["name"] == object["metadata"]["name"]
            });
            *same.context("what is changed is not there")? = object.clone();
        }
        let kinds = install.iter().filter(|it| it["kind"] == "CustomResourceDefinition").map(own_kind);
        let kinds = kinds.collect();
        Ok(Controller {
            name: name.to_owned(),
            deployment: deployment(name, &home, said)?,
            replicas: usize::try_from(said["replicas"].as_u64().unwrap_or(1))?,
            in_cluster: said["in-cluster"] == true,
            quiet: Duration::from_secs(said["quiet"].as_u64().unwrap_or(QUIET)),
            install: Bundle::with(&home, install),
            used: Bundle::with(name, used),
            changed: Bundle::with(name, changed),
            kinds,
        })
    }

    /// Where it lives.
    pub fn home(&self) -> &str {
        &self.install.name
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn own_kind(definition: &Value) -> (String, String) {
    let spec = &definition["spec"];
    let served = list(&spec["versions"]).find(|it| it["storage"] == true);
    let version = served.map(|it| text(it, "/name")).unwrap_or_default();
    (format!("{}/{version}", text(spec, "/group")), text(spec, "/names/kind").to_owned())
}

/// Of what the file says in short: a structural schema, and a status that may say anything.
fn definition(short: &Value) -> Value {
    let (kind, plural) = (text(short, "/kind"), text(short, "/plural"));
    let scope = short["scope"].as_str().unwrap_or("Namespaced");
    let version = |name: &str, spec: &Value, storage: bool| {
        let mut subresources = json!({"status": {}});
        if short["scale"].is_object() {
            subresources["scale"] = short["scale"].clone();
        }
        json!({
            "name": name, "served": true, "storage": storage, "subresources": subresources,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": spec},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}},
        })
    };
    let mut versions = vec![version("v1", &short["spec"], true)];
    let more = short["versions"].as_object().into_iter().flatten();
    versions.extend(more.map(|(name, spec)| version(name, spec, false)));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": scope, "versions": versions,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
        },
    })
}

/// Manifests that come inside a Go module: they are not ours to keep.
fn brought(said: &Value) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for from in list(said) {
        // What nobody has built anything of yet is not there either.
        let module = Command::new("go")
            .args(["mod", "download", "-json", text(from, "/module")])
            .current_dir(corpus().join("../real").join(text(from, "/of")))
            .output()
            .context("go")?;
        let said: Value = serde_json::from_slice(&module.stdout).context("go mod download")?;
        ensure!(module.status.success() && said["Dir"].is_string(), "{said}");
        let module = PathBuf::from(text(&said, "/Dir"));
        for file in list(&from["files"]).filter_map(Value::as_str) {
            let read = fs::read_to_string(module.join(file)).with_context(|| file.to_owned())?;
            all.extend(Bundle::of(file, &[read])?.objects);
        }
    }
    Ok(all)
}

/// What charts of operators have: an account, and what it may do with what.
fn account(name: &str, home: &str, rights: &Value) -> Vec<Value> {
    let always = [
        json!({"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}),
        json!({"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["*"]}),
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}),
        json!({"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get", "list", "watch"]}),
        json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]}),
    ];
    let further = rights.as_object().into_iter().flatten();
    let further = further
        .map(|(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": ["*"]}));
    let rules: Vec<Value> = always.into_iter().chain(further).collect();
    let title = format!("corpus-{name}");
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": home}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": title}, "rules": rules}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": title},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": title},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": home}],
        }),
    ]
}

fn deployment(name: &str, home: &str, said: &Value) -> Result<Value> {
    let command =
        list(&said["program"]).filter_map(Value::as_str).map(located).collect::<Result<Vec<_>>>()?;
    let own =
        json!({"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}});
    let mut variables = vec![own];
    for (name, value) in said["variables"].as_object().into_iter().flatten() {
        variables.push(json!({"name": name, "value": located(value.as_str().unwrap_or_default())?}));
    }
    let labels = json!({"app": name});
    Ok(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": home},
        "spec": {
            "replicas": said["replicas"].as_u64().unwrap_or(1), "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "serviceAccountName": name,
                "containers": [{"name": "controller", "image": "example.com/controller:1", "command": command, "env": variables}],
            }},
        },
    }))
}

/// Where programs are on this machine: `{clients}` and `{real}` are where they are built, `{sources}` is `tests/clients`.
fn located(word: &str) -> Result<String> {
    if let Some(tool) = word.strip_prefix("{real}/") {
        return Ok(testing::real::build(&[tool])?.join(tool).display().to_string());
    }
    let set = std::env::var("HANSE_CLIENTS_CACHE");
    let cache = std::env::var("XDG_CACHE_HOME").or_else(|_| std::env::var("HOME").map(|it| it + "/.cache"));
    let clients = set.or_else(|_| cache.map(|it| it + "/hanse/clients"))?;
    let sources = corpus().join("../clients").canonicalize()?.display().to_string();
    Ok(word.replace("{clients}", &clients).replace("{sources}", &sources))
}
