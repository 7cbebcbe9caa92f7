//! Reading and changing a user's kubeconfig.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use env::Env;
use serde_json::Value;
use server::kubeconfig;
use sync::{client::Access, kubeconfig::Kubeconfig as Contexts};

/// A kubeconfig file, and how to reach a Hanse through it.
pub struct Kubeconfig(Contexts);

impl Kubeconfig {
    /// The file that was named, else the one of `hanse dev` in this directory, else kubectl's own.
    pub fn open(env: &Env, named: Option<PathBuf>) -> anyhow::Result<Kubeconfig> {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let candidates = match named {
            Some(path) => vec![path],
            None => vec![PathBuf::from(".hanse/kubeconfig"), home.join(".kube/config")],
        };
        for path in &candidates {
            if let Some(found) = Contexts::read(env, path)? {
                return Ok(Kubeconfig(found));
            }
        }
        bail!("no kubeconfig found; name one with --kubeconfig, or start `hanse dev` first")
    }

    /// By the current context.
    pub fn access(&self, env: &Env) -> anyhow::Result<Access> {
        self.access_by(env, self.0.current_context())
    }

    /// By the context of that name; to the server as a whole, whatever workspace the context is for.
    pub fn access_by(&self, env: &Env, context: &str) -> anyhow::Result<Access> {
        let mut access = self.0.access(env, context)?;
        if let Some((server, _)) = access.server.split_once("/clusters/") {
            access.server = server.to_owned();
        }
        Ok(access)
    }

    /// To one workspace: the one that is named, else that of the context.
    pub fn workspace(
        &self,
        env: &Env,
        context: Option<&str>,
        workspace: Option<&str>,
    ) -> anyhow::Result<Access> {
        let mut access = self.0.access(env, context.unwrap_or(self.0.current_context()))?;
        if let Some(workspace) = workspace {
            let server = access.server.split_once("/clusters/").map_or(&*access.server, |(server, _)| server);
            access.server = format!("{server}/clusters/{workspace}");
        }
        Ok(access)
    }

    /// Adds a context for `workspace`, like the current one in all else, and makes it the current one.
    pub fn use_workspace(&mut self, env: &Env, workspace: &str) -> anyhow::Result<()> {
        let context = self.0.entry("contexts", self.0.current_context())?["context"].clone();
        let cluster =
            self.0.entry("clusters", context["cluster"].as_str().unwrap_or_default())?["cluster"].clone();
        let authority = cluster["certificate-authority-data"].as_str().unwrap_or_default().to_owned();
        let server = self.access(env)?.server;
        // The two contexts that `hanse dev` writes have names of their own.
        let name = if workspace == api::DEFAULT { "hanse" } else { workspace };
        let user = context["user"].as_str().unwrap_or_default();
        self.0.put("clusters", kubeconfig::cluster(name, &server, workspace, &authority));
        self.0.put("contexts", kubeconfig::context_entry(name, user));
        self.0.config["current-context"] = name.into();
        let text = kubeconfig::to_yaml(&self.0.config);
        env.files
            .write_atomic(&self.0.path, text.as_bytes(), true)
            .with_context(|| format!("cannot write {}", self.0.path.display()))
    }

    /// `config` with the contexts of `others` besides its own.
    pub fn combined(config: &str, others: &[String]) -> anyhow::Result<String> {
        let parse = |text: &str| -> anyhow::Result<Value> {
            serde_saphyr::from_str(text).context("a kubeconfig does not parse")
        };
        let mut combined = Contexts { path: PathBuf::new(), config: parse(config)? };
        for other in others {
            let other = parse(other)?;
            for list in ["clusters", "users", "contexts"] {
                for entry in other[list].as_array().into_iter().flatten() {
                    combined.put(list, entry.clone());
                }
            }
        }
        Ok(kubeconfig::to_yaml(&combined.config))
    }

    /// What `hanse dev` writes when it starts again: the contexts that the user has added since, and the one in use,
    /// stay; credentials and addresses are the new ones. `fresh` is a kubeconfig with a cluster at least.
    pub fn continued(env: &Env, path: &Path, fresh: &str) -> anyhow::Result<String> {
        let mut config: Value = serde_saphyr::from_str(fresh).context("the new kubeconfig does not parse")?;
        let old = env.files.read(path).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let Some(old) = old.and_then(|text| serde_saphyr::from_str::<Value>(&text).ok()) else {
            return Ok(fresh.to_owned());
        };
        let mut continued = Kubeconfig(Contexts { path: path.to_owned(), config: config.clone() });
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
            continued.0.put("clusters", kubeconfig::cluster(name, &server, workspace, authority));
            continued.0.put("contexts", kubeconfig::context_entry(name, user.as_str().unwrap_or_default()));
        }
        config = continued.0.config.clone();
        let current = old["current-context"].clone();
        if config["contexts"].as_array().into_iter().flatten().any(|it| it["name"] == current) {
            config["current-context"] = current;
        }
        Ok(kubeconfig::to_yaml(&config))
    }

    pub fn path(&self) -> &Path {
        &self.0.path
    }
}
