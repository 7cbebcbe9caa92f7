//! Reading and changing a user's kubeconfig.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use env::Env;
use serde_json::{Value, json};
use server::kubeconfig;

/// A kubeconfig file, and how to reach a Hanse through it.
pub struct Kubeconfig {
    path: PathBuf,
    config: Value,
}

/// What a client needs of a context.
pub struct Access {
    /// `https://host:port`, without a workspace.
    pub server: String,
    pub authority: Vec<u8>,
    pub identity: Identity,
}

/// Who a client is.
pub enum Identity {
    Certificate { certificate: Vec<u8>, key: Vec<u8> },
    Token(String),
}

impl Kubeconfig {
    /// The file that was named, else the one of `hanse dev` in this directory, else kubectl's own.
    pub fn open(env: &Env, named: Option<PathBuf>) -> anyhow::Result<Kubeconfig> {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let candidates = match named {
            Some(path) => vec![path],
            None => vec![PathBuf::from(".hanse/kubeconfig"), home.join(".kube/config")],
        };
        for path in &candidates {
            match env.files.read(path) {
                Ok(bytes) => {
                    let text = String::from_utf8(bytes)
                        .with_context(|| format!("{} is not UTF-8", path.display()))?;
                    let config = serde_saphyr::from_str(&text)
                        .with_context(|| format!("{} is not a kubeconfig", path.display()))?;
                    return Ok(Kubeconfig { path: path.clone(), config });
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
            }
        }
        bail!("no kubeconfig found; name one with --kubeconfig, or start `hanse dev` first")
    }

    fn entry<'a>(&'a self, list: &str, name: &str) -> anyhow::Result<&'a Value> {
        let entries = self.config[list].as_array().into_iter().flatten();
        let entry = entries.into_iter().find(|entry| entry["name"] == name);
        entry.ok_or_else(|| anyhow!("{} has no {name:?} in its {list}", self.path.display()))
    }

    /// By the current context.
    pub fn access(&self, env: &Env) -> anyhow::Result<Access> {
        self.access_by(env, self.config["current-context"].as_str().unwrap_or_default())
    }

    /// By the context of that name.
    pub fn access_by(&self, env: &Env, current: &str) -> anyhow::Result<Access> {
        let context = &self.entry("contexts", current)?["context"];
        let cluster = &self.entry("clusters", context["cluster"].as_str().unwrap_or_default())?["cluster"];
        let user = &self.entry("users", context["user"].as_str().unwrap_or_default())?["user"];
        let server = cluster["server"].as_str().unwrap_or_default();
        let server = server.split_once("/clusters/").map_or(server, |(server, _)| server);
        let identity = if let Some(token) = user["token"].as_str() {
            Identity::Token(token.to_owned())
        } else if let Some(file) = user["tokenFile"].as_str() {
            let token = String::from_utf8(self.file(env, file)?).context("the token is not UTF-8")?;
            Identity::Token(token.trim().to_owned())
        } else {
            Identity::Certificate {
                certificate: self.data(env, user, "client-certificate")?,
                key: self.data(env, user, "client-key")?,
            }
        };
        let authority = self.data(env, cluster, "certificate-authority")?;
        Ok(Access { server: server.trim_end_matches('/').to_owned(), authority, identity })
    }

    /// What is in the file, under `KEY-data`, or in another file that `KEY` names.
    fn data(&self, env: &Env, entry: &Value, key: &str) -> anyhow::Result<Vec<u8>> {
        if let Some(text) = entry[format!("{key}-data")].as_str() {
            return STANDARD.decode(text).with_context(|| format!("{key}-data is not base64"));
        }
        let file = entry[key].as_str().ok_or_else(|| anyhow!("{} has no {key}", self.path.display()))?;
        self.file(env, file)
    }

    /// Beside the kubeconfig unless its name says otherwise.
    fn file(&self, env: &Env, name: &str) -> anyhow::Result<Vec<u8>> {
        let path = self.path.parent().unwrap_or(Path::new("")).join(name);
        env.files.read(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Adds a context for `workspace`, like the current one in all else, and makes it the current one.
    pub fn use_workspace(&mut self, env: &Env, workspace: &str) -> anyhow::Result<()> {
        let current = self.config["current-context"].as_str().unwrap_or_default().to_owned();
        let context = self.entry("contexts", &current)?["context"].clone();
        let cluster =
            self.entry("clusters", context["cluster"].as_str().unwrap_or_default())?["cluster"].clone();
        let authority = cluster["certificate-authority-data"].as_str().unwrap_or_default().to_owned();
        let server = self.access(env)?.server;
        // The two contexts that `hanse dev` writes have names of their own.
        let name = if workspace == api::DEFAULT { "hanse" } else { workspace };
        let user = context["user"].as_str().unwrap_or_default();
        self.put("clusters", kubeconfig::cluster(name, &server, workspace, &authority));
        self.put("contexts", kubeconfig::context_entry(name, user));
        self.config["current-context"] = json!(name);
        let text = kubeconfig::to_yaml(&self.config);
        env.files
            .write_atomic(&self.path, text.as_bytes(), true)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn put(&mut self, list: &str, entry: Value) {
        if let Some(entries) = self.config[list].as_array_mut() {
            entries.retain(|it| it["name"] != entry["name"]);
            entries.push(entry);
        }
    }

    /// What `hanse dev` writes when it starts again: the contexts that the user has added since, and the one in use,
    /// stay; credentials and addresses are the new ones. `fresh` is a kubeconfig with a cluster at least.
    pub fn continued(env: &Env, path: &Path, fresh: &str) -> anyhow::Result<String> {
        let mut config: Value = serde_saphyr::from_str(fresh).context("the new kubeconfig does not parse")?;
        let old = env.files.read(path).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let Some(old) = old.and_then(|text| serde_saphyr::from_str::<Value>(&text).ok()) else {
            return Ok(fresh.to_owned());
        };
        let mut continued = Kubeconfig { path: path.to_owned(), config: config.clone() };
        let server = continued.access(env)?.server;
        let authority = config["clusters"][0]["cluster"]["certificate-authority-data"].clone();
        let user = config["users"][0]["name"].clone();
        let known = |list: &str, entry: &Value| {
            config[list].as_array().into_iter().flatten().any(|it| it["name"] == entry["name"])
        };
        for cluster in old["clusters"].as_array().into_iter().flatten().filter(|it| !known("clusters", it)) {
            let address = cluster["cluster"]["server"].as_str().unwrap_or_default();
            let Some((_, workspace)) = address.split_once("/clusters/") else { continue };
            let name = cluster["name"].as_str().unwrap_or_default();
            let authority = authority.as_str().unwrap_or_default();
            continued.put("clusters", kubeconfig::cluster(name, &server, workspace, authority));
            continued.put("contexts", kubeconfig::context_entry(name, user.as_str().unwrap_or_default()));
        }
        config = continued.config.clone();
        let current = old["current-context"].clone();
        if config["contexts"].as_array().into_iter().flatten().any(|it| it["name"] == current) {
            config["current-context"] = current;
        }
        Ok(kubeconfig::to_yaml(&config))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}
