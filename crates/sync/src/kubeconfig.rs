//! Kubeconfig files, as kubectl reads them: from a context to an address and a credential.

use std::path::{Path, PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use env::Env;
use serde_json::{Value, json};

use crate::client::{Access, Identity};

/// Why a kubeconfig is of no use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not a kubeconfig: {why}", path.display())]
    Format { path: PathBuf, why: String },
    #[error("{} has no {name:?} in its {list}", path.display())]
    Missing { path: PathBuf, list: &'static str, name: String },
    /// It asks for something that is not done here; the text says what to do instead.
    #[error("user {user:?} of {}: {why}", path.display())]
    Unsupported { path: PathBuf, user: String, why: String },
    #[error("{0}")]
    Data(String),
}

/// A kubeconfig file.
#[derive(Clone)]
pub struct Kubeconfig {
    pub path: PathBuf,
    pub config: Value,
}

/// Ways to log in that need other programs, or are no more.
const UNSUPPORTED: &[(&str, &str)] = &[
    (
        "exec",
        "it gets its credential from another program, which is not run here; use a client certificate or a token, \
         such as that of `kubectl create token`",
    ),
    ("auth-provider", "auth providers are gone from Kubernetes; use a client certificate or a token"),
    ("username", "Kubernetes takes no passwords any more; use a client certificate or a token"),
    ("as", "acting as another user is not done here; use a credential of that user"),
];

impl Kubeconfig {
    /// `Ok(None)`: there is no such file.
    pub fn read(env: &Env, path: &Path) -> Result<Option<Kubeconfig>, Error> {
        let bytes = match env.files.read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Read { path: path.to_owned(), source }),
        };
        let failed = |why: String| Error::Format { path: path.to_owned(), why };
        let text = String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8".into()))?;
        let config: Value = serde_saphyr::from_str(&text).map_err(|error| failed(error.to_string()))?;
        match config.is_object() {
            true => Ok(Some(Kubeconfig { path: path.to_owned(), config })),
            false => Err(failed("it is empty".into())),
        }
    }

    pub fn current_context(&self) -> &str {
        self.config["current-context"].as_str().unwrap_or_default()
    }

    /// What `list` calls `name`: an entry of `clusters`, `contexts` or `users`.
    pub fn entry(&self, list: &'static str, name: &str) -> Result<&Value, Error> {
        let mut entries = self.config[list].as_array().into_iter().flatten();
        let entry = entries.find(|entry| entry["name"] == name);
        entry.ok_or_else(|| Error::Missing { path: self.path.clone(), list, name: name.to_owned() })
    }

    /// How to reach the server of the context, and as whom.
    pub fn access(&self, env: &Env, context: &str) -> Result<Access, Error> {
        let context = &self.entry("contexts", context)?["context"];
        let named = |key: &str| context[key].as_str().unwrap_or_default();
        let cluster = &self.entry("clusters", named("cluster"))?["cluster"];
        let user = &self.entry("users", named("user"))?["user"];
        let unsupported = |why: &str| {
            let (path, user) = (self.path.clone(), named("user").to_owned());
            Error::Unsupported { path, user, why: why.to_owned() }
        };
        if let Some((_, why)) = UNSUPPORTED.iter().find(|(key, _)| is_set(&user[*key])) {
            return Err(unsupported(why));
        }
        if cluster["insecure-skip-tls-verify"] == true {
            return Err(unsupported(
                "its cluster says insecure-skip-tls-verify: a server that is not verified is given no credential; \
                 put the certificate of its authority into certificate-authority-data",
            ));
        }
        if is_set(&cluster["proxy-url"]) {
            return Err(unsupported("its cluster is behind a proxy (proxy-url), which is not supported"));
        }
        Ok(Access {
            server: cluster["server"].as_str().unwrap_or_default().trim_end_matches('/').to_owned(),
            authority: self.data(env, cluster, "certificate-authority")?.unwrap_or_default(),
            server_name: cluster["tls-server-name"].as_str().map(str::to_owned),
            identity: self.identity(env, user)?.ok_or_else(|| unsupported("it has no credential"))?,
        })
    }

    fn identity(&self, env: &Env, user: &Value) -> Result<Option<Identity>, Error> {
        // As kubectl: a file wins over what is inline, and a token over a certificate.
        if let Some(file) = user["tokenFile"].as_str().filter(|file| !file.is_empty()) {
            let token = String::from_utf8(self.file(env, file)?);
            let token = token.map_err(|_| Error::Data(format!("the token in {file} is not UTF-8")))?;
            return Ok(Some(Identity::Token(token.trim().to_owned())));
        }
        if let Some(token) = user["token"].as_str().filter(|token| !token.is_empty()) {
            return Ok(Some(Identity::Token(token.to_owned())));
        }
        let certificate = self.data(env, user, "client-certificate")?;
        let key = self.data(env, user, "client-key")?;
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some(Identity::Certificate { certificate, key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(Error::Data(format!("{} has no client-key", self.path.display()))),
            (None, Some(_)) => Err(Error::Data(format!("{} has no client-certificate", self.path.display()))),
        }
    }

    /// What is in the file, under `KEY-data`, or in another file that `KEY` names.
    fn data(&self, env: &Env, entry: &Value, key: &str) -> Result<Option<Vec<u8>>, Error> {
        if let Some(text) = entry[format!("{key}-data")].as_str().filter(|text| !text.is_empty()) {
            let data = STANDARD.decode(text.split_whitespace().collect::<String>());
            return data.map(Some).map_err(|_| Error::Data(format!("{key}-data is not base64")));
        }
        let file = entry[key].as_str().filter(|file| !file.is_empty());
        file.map(|file| self.file(env, file)).transpose()
    }

    /// Beside the kubeconfig unless its name says otherwise.
    fn file(&self, env: &Env, name: &str) -> Result<Vec<u8>, Error> {
        let path = self.path.parent().unwrap_or(Path::new("")).join(name);
        env.files.read(&path).map_err(|source| Error::Read { path, source })
    }

    /// Puts an entry into a list, in place of one of the same name.
    pub fn put(&mut self, list: &'static str, entry: Value) {
        if !self.config[list].is_array() {
            self.config[list] = json!([]);
        }
        if let Some(entries) = self.config[list].as_array_mut() {
            entries.retain(|it| it["name"] != entry["name"]);
            entries.push(entry);
        }
    }
}

fn is_set(value: &Value) -> bool {
    !value.is_null() && value != ""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(cluster: Value, user: Value) -> Kubeconfig {
        let config = json!({
            "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        });
        Kubeconfig { path: "kubeconfig".into(), config }
    }

    #[test]
    fn a_context_leads_to_an_address_and_a_credential() {
        let cluster = json!({
            "server": "https://a:6443/", "certificate-authority-data": "Y2E=", "tls-server-name": "kubernetes",
        });
        let access = config(cluster.clone(), json!({"token": "secret"})).access(&Env::real(), "a").unwrap();
        assert_eq!((access.server.as_str(), &access.authority[..]), ("https://a:6443", &b"ca"[..]));
        assert_eq!(access.server_name.as_deref(), Some("kubernetes"));
        assert!(access.identity == Identity::Token("secret".into()));
        let user = json!({"client-certificate-data": "Yw==", "client-key-data": "aw=="});
        let access = config(cluster, user).access(&Env::real(), "a").unwrap();
        assert!(access.identity == Identity::Certificate { certificate: b"c".into(), key: b"k".into() });
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_what_to_do_instead() {
        let server = || json!({"server": "https://a"});
        let cases = [
            (server(), json!({"exec": {"command": "aws"}}), "another program"),
            (server(), json!({"auth-provider": {"name": "gcp"}}), "auth providers"),
            (server(), json!({"username": "me", "password": "x"}), "passwords"),
            (server(), json!({"token": "t", "as": "other"}), "acting as"),
            (server(), json!({}), "no credential"),
            (server(), json!({"client-certificate-data": "Yw=="}), "client-key"),
            (server(), json!({"client-certificate-data": "!", "client-key-data": "aw=="}), "base64"),
            (
                json!({"server": "https://a", "insecure-skip-tls-verify": true}),
                json!({"token": "t"}),
                "not verified",
            ),
            (json!({"server": "https://a", "proxy-url": "http://p"}), json!({"token": "t"}), "proxy"),
        ];
        for (cluster, user, expected) in cases {
            let refused =
                config(cluster, user).access(&Env::real(), "a").err().map(|error| error.to_string());
            assert!(refused.as_ref().is_some_and(|text| text.contains(expected)), "{refused:?}: {expected}");
        }
        let missing = config(server(), json!({})).access(&Env::real(), "b").err();
        assert!(missing.is_some_and(|error| error.to_string().contains("contexts")));
    }
}
