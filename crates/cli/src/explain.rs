//! `hanse explain`: where objects would run, and why, by the code that decides it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use env::Env;
use http::Method;
use kinds::{Share, Subject};
use machinery::{
    builtin,
    resource::{Resource, Row},
    schema::{self, Types},
};
use placement::{
    Cluster, Decision, Directory, Explanation, Fields, Input, Namespace, Policies, Policy, decide, follow,
};
use serde_json::{Value, json};
use sync::client::Access;

use crate::{args::HubArgs, assigned, client};

#[derive(Args)]
pub struct ExplainArgs {
    /// An object of the hub: where it runs, why, and what each cluster says of it.
    #[arg(value_name = "KIND/NAME", conflicts_with_all = ["files", "clusters", "account"])]
    object: Option<String>,
    /// The namespace of the object.
    #[arg(short = 'n', long, default_value = "default", conflicts_with = "files")]
    namespace: String,
    /// Files with objects, as YAML or JSON; - is stdin. Placements, Namespaces and Clusters among them count as if they
    /// were applied; everything else is explained.
    #[arg(short = 'f', long = "filename", value_name = "FILE", required_unless_present = "object")]
    files: Vec<PathBuf>,
    /// A file with Clusters, as `kubectl get clusters -o yaml` prints them or written by hand: then no hub is asked. One
    /// without a status is taken for ready.
    #[arg(long, value_name = "FILE")]
    clusters: Option<PathBuf>,
    /// Whose workspace it is; nobody's in particular unless given.
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubArgs,
}

pub async fn run(env: &Env, args: ExplainArgs) -> anyhow::Result<()> {
    if let Some(object) = &args.object {
        return assigned::run(env, &args.hub.access(env)?, object, &args.namespace, args.json).await;
    }
    let mut world = World { account: args.account, ..World::default() };
    match &args.clusters {
        Some(path) => {
            for object in read(env, path)? {
                ensure!(
                    is_own(&object, api::cluster::KIND),
                    "{}: {} is no Cluster",
                    path.display(),
                    named(&object)
                );
                world.add(object)?;
            }
        }
        None => world.ask(env, &args.hub.access(env)?).await?,
    }
    for path in &args.files {
        for object in read(env, path)? {
            world.add(object).with_context(|| path.display().to_string())?;
        }
    }
    ensure!(
        !world.objects.is_empty(),
        "there is nothing to explain: the files hold no objects that could run"
    );
    let told = world.explain();
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&told.iter().map(shown).collect::<Vec<_>>())?),
        false => print!("{}", told.iter().map(|it| it.words.render()).collect::<Vec<_>>().join("\n")),
    }
    Ok(())
}

fn shown(told: &Told) -> Value {
    let cluster = |(name, share): (&String, &Share)| (name.clone(), json!(share.replicas));
    let clusters: serde_json::Map<String, Value> = told.decision.shares.iter().map(cluster).collect();
    json!({"explanation": told.words, "clusters": clusters, "pending": told.decision.pending})
}

/// The objects of a file; those of a list one by one.
fn read(env: &Env, path: &Path) -> anyhow::Result<Vec<Value>> {
    let bytes = match path == Path::new("-") {
        true => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).context("cannot read stdin")?;
            bytes
        }
        false => env.files.read(path).with_context(|| format!("cannot read {}", path.display()))?,
    };
    let text = std::str::from_utf8(&bytes).with_context(|| format!("{} is not UTF-8", path.display()))?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).with_context(|| format!("{} is not YAML", path.display()))?;
    let mut objects = Vec::new();
    for document in documents.into_iter().filter(|it| !it.is_null()) {
        match document["items"].as_array() {
            Some(items) if document["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) => {
                objects.extend(items.iter().cloned());
            }
            _ => objects.push(document),
        }
    }
    Ok(objects)
}

fn is_own(object: &Value, kind: &str) -> bool {
    object["apiVersion"] == api::API_VERSION && object["kind"] == kind
}

fn named(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("(none)").to_owned();
    format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// All that decisions are made from.
#[derive(Default)]
struct World {
    directory: Directory,
    /// The status of clusters that have one.
    reported: BTreeMap<String, Value>,
    policies: Policies,
    root: Policies,
    namespaces: BTreeMap<String, Namespace>,
    account: Option<String>,
    objects: Vec<Object>,
}

struct Object {
    subject: Subject,
    fields: Fields,
    plural: Option<&'static str>,
}

/// An object, and what was decided.
struct Told {
    subject: Subject,
    decision: Decision,
    words: Explanation,
}

impl World {
    /// What the hub knows.
    async fn ask(&mut self, env: &Env, access: &Access) -> anyhow::Result<()> {
        let own = format!("/apis/{}", api::API_VERSION);
        for path in [format!("{own}/clusters"), format!("{own}/placements"), "/api/v1/namespaces".to_owned()]
        {
            let list = client::call(env, access, Method::GET, &path, None).await?;
            let text = |key: &str| list[key].as_str().unwrap_or_default().to_owned();
            let (kind, version) = (text("kind"), text("apiVersion"));
            for item in list["items"].as_array().into_iter().flatten() {
                let mut item = item.clone();
                item["kind"] = json!(kind.trim_end_matches("List"));
                item["apiVersion"] = json!(version);
                self.add(item)?;
            }
        }
        // Only admins of the platform may look there, and it is for them to know.
        let shared = format!("/clusters/{}{own}/placements", api::ROOT);
        if let Ok(list) = client::call(
            env,
            &Access { server: origin(&access.server), ..access.clone() },
            Method::GET,
            &shared,
            None,
        )
        .await
        {
            for item in list["items"].as_array().into_iter().flatten() {
                self.root.put(Policy::read(item)?);
            }
        }
        Ok(())
    }

    fn add(&mut self, object: Value) -> anyhow::Result<()> {
        let name = named(&object);
        if is_own(&object, api::cluster::KIND) {
            let is_written = object["status"]["conditions"].is_null();
            let mut cluster =
                Cluster::read(&object).ok_or_else(|| anyhow!("{name}: a Cluster needs a name"))?;
            if is_written {
                // What was reported of it goes on being so.
                cluster = match self.reported.get(cluster.name.as_str()) {
                    Some(status) => {
                        let mut object = object;
                        object["status"] = status.clone();
                        Cluster::read(&object).unwrap_or(cluster)
                    }
                    None => cluster.assumed_ready(),
                };
            } else {
                self.reported.insert(cluster.name.to_string(), object["status"].clone());
            }
            self.directory.put(cluster);
        } else if is_own(&object, api::placement::KIND) {
            let admitted = api::admit(&api::placement::ROW, object);
            let object =
                admitted.map_err(|causes| anyhow!("{name} would be refused: {}", causes.join("; ")))?;
            self.policies.put(Policy::read(&object)?);
        } else if object["apiVersion"] == "v1" && object["kind"] == "Namespace" {
            let metadata = &object["metadata"];
            let texts = |key: &str| serde_json::from_value(metadata[key].clone()).unwrap_or_default();
            let namespace = Namespace { labels: texts("labels"), annotations: texts("annotations") };
            self.namespaces.insert(metadata["name"].as_str().unwrap_or_default().to_owned(), namespace);
        } else {
            self.objects.push(Object::read(object).with_context(|| name.clone())?);
        }
        Ok(())
    }

    /// Those that others follow first, then those that follow them, and those that follow these.
    fn explain(mut self) -> Vec<Told> {
        const LONGEST_CHAIN: usize = 3;
        let objects = std::mem::take(&mut self.objects);
        let mut told: BTreeMap<usize, Told> = BTreeMap::new();
        let mut home: Option<String> = None;
        for (at, object) in objects.iter().enumerate().filter(|(_, it)| !follow::is_follower(&it.subject)) {
            let decided = self.decide(object, home.as_deref(), &told);
            for (cluster, amounts) in &decided.decision.reservations {
                self.directory.reserve(cluster, amounts);
            }
            if decided.decision.source.is_empty() && home.is_none() {
                home = decided.decision.shares.keys().next().cloned();
            }
            told.insert(at, decided);
        }
        for _ in 0..LONGEST_CHAIN {
            for (at, object) in objects.iter().enumerate().filter(|(_, it)| follow::is_follower(&it.subject))
            {
                let decided = self.decide(object, home.as_deref(), &told);
                told.insert(at, decided);
            }
        }
        told.into_values().collect()
    }

    fn decide(&self, object: &Object, home: Option<&str>, told: &BTreeMap<usize, Told>) -> Told {
        let nothing = Namespace::default();
        let subject = &object.subject;
        let placed = || told.values().map(|it| (&it.subject, &it.decision.shares));
        let referrers = follow::referrers(subject, placed());
        let neighbours: BTreeSet<String> = follow::neighbours(&subject.namespace, placed());
        let input = Input {
            resource: object.plural,
            fields: &object.fields,
            namespace: self.namespaces.get(&subject.namespace).unwrap_or(&nothing),
            account: self.account.as_deref(),
            workspace: &self.policies,
            root: &self.root,
            home,
            referrers: &referrers,
            neighbours: &neighbours,
            ..Input::new(subject, &self.directory)
        };
        let decision = decide(&input);
        let words = decision.explain(&input);
        Told { subject: subject.clone(), decision, words }
    }
}

/// Without the workspace.
fn origin(server: &str) -> String {
    server.split("/clusters/").next().unwrap_or(server).to_owned()
}

impl Object {
    /// As it would be stored: with what its author left open.
    fn read(mut object: Value) -> anyhow::Result<Object> {
        let version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        ensure!(!version.is_empty() && !kind.is_empty(), "an object needs apiVersion and kind");
        let row = builtin::rows().find(|row| {
            row.kind == kind && machinery::resource::group_version(row.group, row.version) == version
        });
        if let Some(row) = row {
            object = filled(row, object)?;
        }
        if row.is_none_or(|row| row.namespaced) && object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = json!("default");
        }
        let subject = kinds::subject(&object)?;
        Ok(Object { fields: Fields::used(&object), plural: row.map(|row| row.plural), subject })
    }
}

/// With what the server would fill in.
fn filled(row: &Row, mut object: Value) -> anyhow::Result<Value> {
    let resource = Resource::new(row.clone());
    if let Some(message) = resource.message() {
        schema::conform(Types::builtin(), message, &mut object, schema::Options::default())
            .map_err(|error| anyhow!("{error}"))?;
    }
    let Value::Object(mut tree) = object else { bail!("it is not an object") };
    resource.fill_defaults(&mut tree);
    Ok(Value::Object(tree))
}
