//! Tokens of issuers that the operator trusts: OpenID Connect, by `AuthenticationConfiguration`.
//!
//! ```text
//!   configuration file ──> Issuers ──> each: discovery (tried until it succeeds) ──> keys (fetched when one is missing)
//!                             ^
//!   token: whose? ────────────┘ signature, times, audience ──> claims ──> whom they stand for
//! ```
//!
//! Nothing that an issuer says is waited for without an end or read without a bound, and a token makes nobody ask an
//! issuer more often than once in a while.

mod keys;
mod token;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use env::Env;
use machinery::{
    authentication::{self, Anonymous, Identity, Jwt, Mapping},
    field_error::Cause,
};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use crate::{
    hub::{self, Hub},
    user::User,
    webhook::{Target, Webhooks},
};
use keys::Keys;
use token::Token;

const WELL_KNOWN: &str = "/.well-known/openid-configuration";
/// As long as upstream's client waits.
const FETCH_LIMIT: Duration = Duration::from_secs(30);
/// As long as a request waits for keys.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Between attempts to find out where an issuer's keys are.
const DISCOVER_EVERY: Duration = Duration::from_secs(10);
/// Between attempts to fetch keys.
const KEYS_EVERY: Duration = Duration::from_secs(1);
/// Of a discovery document, and of a set of keys.
const MAX_DOCUMENT: usize = 1024 * 1024;

/// The issuers of one configuration, and who may come without a token.
#[derive(Default)]
pub struct Issuers {
    all: Vec<Arc<Issuer>>,
    pub anonymous: Option<Anonymous>,
    content: Vec<u8>,
}

/// One issuer.
struct Issuer {
    config: Jwt,
    mapping: Mapping,
    state: RwLock<State>,
    /// Whoever fetches keys holds it; the others wait for what comes of it.
    fetching: tokio::sync::Mutex<()>,
    last_fetch: Mutex<Option<Duration>>,
}

#[derive(Default)]
struct State {
    /// Where its keys are; unknown until discovery has succeeded.
    keys_url: Option<String>,
    keys: Arc<Keys>,
}

/// Why a configuration is not used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path}: {why}")]
    Wrong { path: PathBuf, why: String },
}

impl Issuers {
    /// `own`: what the issuers of workspaces are below; none of them can be configured.
    pub fn read(env: &Env, path: &Path, own: &str) -> Result<Issuers, ConfigError> {
        let content =
            env.files.read(path).map_err(|source| ConfigError::Io { path: path.to_owned(), source })?;
        let wrong = |why: String| ConfigError::Wrong { path: path.to_owned(), why };
        let text = std::str::from_utf8(&content).map_err(|error| wrong(error.to_string()))?;
        let tree: Value = serde_saphyr::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let configuration = authentication::parse(tree).map_err(wrong)?;
        let is_own = |url: &&String| url.strip_prefix(own).is_some_and(|rest| rest.starts_with("/clusters/"));
        let urls = configuration.jwt.iter().map(|jwt| &jwt.issuer.url);
        let disallowed: Vec<String> = urls.filter(is_own).cloned().collect();
        let mappings =
            authentication::compile(&configuration, &disallowed).map_err(|all| wrong(told(&all)))?;
        let issuers = configuration.jwt.into_iter().zip(mappings);
        let all = issuers.map(|(config, mapping)| Arc::new(Issuer::new(config, mapping))).collect();
        Ok(Issuers { all, anonymous: configuration.anonymous, content })
    }

    pub fn is_current(&self, env: &Env, path: &Path) -> bool {
        env.files.read(path).is_ok_and(|content| content == self.content)
    }

    /// Begins to find out where the keys are; ends when nobody has these issuers any more.
    pub fn discover(&self, hub: &Arc<Hub>) {
        for issuer in &self.all {
            let (hub, issuer) = (hub.clone(), Arc::downgrade(issuer));
            let env = hub.env.clone();
            env.tasks.spawn(Box::pin(async move {
                let mut stopping = hub.stopping.clone();
                while let Some(issuer) = issuer.upgrade() {
                    match issuer.discover(&hub.env, &hub.login.client).await {
                        Ok(()) => return,
                        Err(why) => {
                            tracing::error!(issuer = issuer.config.issuer.url, %why, "cannot reach an issuer");
                            hub.metrics.login.attempt("discovery", false);
                        }
                    }
                    drop(issuer);
                    tokio::select! {
                        () = hub.env.clock.sleep(DISCOVER_EVERY) => {}
                        () = crate::hub::stopped(&mut stopping) => return,
                    }
                }
            }));
        }
    }

    /// `None`: not of any of these issuers. An error says what is wrong with a token of one of them.
    pub async fn verify(&self, hub: &Arc<Hub>, text: &str) -> Result<Option<User>, String> {
        if self.all.is_empty() {
            return Ok(None);
        }
        let Some(token) = Token::parse(text) else { return Ok(None) };
        let Some(issuer) = self.all.iter().find(|it| it.config.issuer.url == token.issuer()) else {
            return Ok(None);
        };
        let verified = issuer.verify(hub, &token).await;
        hub.metrics.login.attempt("oidc", verified.is_ok());
        let Identity { username, uid, groups, extra } = verified?;
        Ok(Some(User { name: username, uid, groups, extra, is_hub: false }))
    }
}

/// All that is wrong, in one line, as upstream tells it.
fn told(causes: &[Cause]) -> String {
    let all: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    match all.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

impl Issuer {
    fn new(config: Jwt, mapping: Mapping) -> Issuer {
        Issuer {
            config,
            mapping,
            state: RwLock::default(),
            fetching: tokio::sync::Mutex::default(),
            last_fetch: Mutex::default(),
        }
    }

    fn target(&self, url: &str) -> Target {
        Target::new(url, self.config.issuer.certificate_authority.as_bytes())
    }

    async fn discover(&self, env: &Env, client: &Webhooks) -> Result<(), String> {
        let issuer = &self.config.issuer;
        let url = match issuer.discovery_url.as_str() {
            "" => format!("{}{WELL_KNOWN}", issuer.url.trim_end_matches('/')),
            other => other.to_owned(),
        };
        let answer = client.fetch(env, hub::root_id(), &self.target(&url), FETCH_LIMIT, MAX_DOCUMENT).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let document: Value = serde_json::from_slice(&answer)
            .map_err(|error| format!("oidc: failed to decode provider discovery object: {error}"))?;
        let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("issuer") != issuer.url {
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {:?} got {:?}",
                issuer.url,
                text("issuer")
            ));
        }
        if text("jwks_uri").is_empty() {
            return Err("provider did not return JWKS URL".to_owned());
        }
        self.state.write().keys_url = Some(text("jwks_uri").to_owned());
        Ok(())
    }

    async fn verify(&self, hub: &Arc<Hub>, token: &Token<'_>) -> Result<Identity, String> {
        let failed = |why: String| format!("oidc: verify token: {why}");
        if self.state.read().keys_url.is_none() {
            return Err("oidc: authenticator not initialized".to_owned());
        }
        token.check_algorithm().map_err(failed)?;
        self.check_signature(hub, token)
            .await
            .map_err(|why| failed(format!("failed to verify signature: {why}")))?;
        let issuer = &self.config.issuer;
        token.check_claims(&issuer.url, &issuer.audiences, hub.now()).map_err(failed)?;
        self.mapping.identity(&token.claims)
    }

    /// By the keys at hand, else by those that the issuer has now.
    async fn check_signature(&self, hub: &Arc<Hub>, token: &Token<'_>) -> Result<(), String> {
        let known = self.state.read().keys.clone();
        if known.verify(token) {
            return Ok(());
        }
        let timer = hub.env.clock.sleep(REQUEST_LIMIT);
        let newer = tokio::select! {
            newer = self.newer_keys(hub, &known) => newer?,
            () = timer => return Err("fetching keys context deadline exceeded".to_owned()),
        };
        match newer.is_some_and(|keys| keys.verify(token)) {
            true => Ok(()),
            false => Err("failed to verify id token signature".to_owned()),
        }
    }

    /// Other keys than `known`; `None` if there is no reason to ask again yet.
    async fn newer_keys(&self, hub: &Arc<Hub>, known: &Arc<Keys>) -> Result<Option<Arc<Keys>>, String> {
        let _fetching = self.fetching.lock().await;
        let current = self.state.read().keys.clone();
        if !Arc::ptr_eq(&current, known) {
            return Ok(Some(current));
        }
        let now = hub.env.clock.elapsed();
        let recently = |last: Duration| now.saturating_sub(last) < KEYS_EVERY;
        if self.last_fetch.lock().is_some_and(recently) {
            return Ok(None);
        }
        *self.last_fetch.lock() = Some(now);
        let url = self.state.read().keys_url.clone().unwrap_or_default();
        let (client, target) = (&hub.login.client, self.target(&url));
        let fetched = client.fetch(&hub.env, hub::root_id(), &target, FETCH_LIMIT, MAX_DOCUMENT).await;
        hub.metrics.login.attempt("keys", fetched.is_ok());
        let fetched = fetched.map_err(|error| format!("fetching keys {error}"))?;
        let keys = Arc::new(Keys::parse(&fetched).map_err(|why| format!("fetching keys {why}"))?);
        self.state.write().keys = keys.clone();
        Ok(Some(keys))
    }
}
