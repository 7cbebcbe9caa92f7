//! How people and programs prove who they are, by what the operator gave: certificates and issuers of tokens.
//!
//! ```text
//!   serving certificate, client CAs ──┐ files, read again when they change
//!   authentication configuration   ───┤ (a broken one is refused, and the last good one stays)
//!                                     v
//!   Login ──> TLS for new connections · whether a client's certificate is good now · whether a token is
//! ```

pub mod caller;
mod metrics;
pub mod oidc;
mod tls;

use std::{fmt::Display, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use env::Env;
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::sync::Notify;

use crate::{
    hub::{self, Hub},
    pki::{Authority, PkiError},
    webhook::Webhooks,
};
pub use metrics::LoginMetrics;
use oidc::{ConfigError, Issuers};
use tls::{Serving, Trust};

/// What an operator may say about logging in.
#[derive(Clone, Debug)]
pub struct LoginOptions {
    /// Certificate and key to serve with; the installation's authority makes one if they are not given.
    pub serving: Option<(PathBuf, PathBuf)>,
    /// Authorities whose client certificates are good, beside the installation's own.
    pub client_ca: Option<PathBuf>,
    /// `AuthenticationConfiguration`: issuers of tokens, and who may come without any.
    pub authentication_config: Option<PathBuf>,
    /// How often files are looked at.
    pub reload_every: Duration,
    /// How long certificates live that are signed on request, at most.
    pub signing_duration: Duration,
}

impl Default for LoginOptions {
    fn default() -> Self {
        Self {
            serving: None,
            client_ca: None,
            authentication_config: None,
            reload_every: Duration::from_secs(10),
            signing_duration: Duration::from_secs(365 * 24 * 3600),
        }
    }
}

/// Why nobody could log in.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error(transparent)]
    Certificates(#[from] PkiError),
    #[error(transparent)]
    Issuers(#[from] ConfigError),
}

/// Everything that decides who somebody is, as it is now.
pub struct Login {
    env: Env,
    pub options: LoginOptions,
    pub authority: Arc<Authority>,
    /// Signs what kubelets serve with. Another than the one that clients know this server by.
    pub kubelet_authority: Authority,
    /// Names and addresses for a certificate of our own.
    hosts: Vec<String>,
    /// What the issuers of workspaces are below.
    own_issuer: String,
    tls: ArcSwap<Tls>,
    issuers: ArcSwap<Issuers>,
    /// Asks issuers, apart from the webhooks of workspaces: whatever those do, people can log in.
    client: Webhooks,
    /// They are others than before.
    new_issuers: Notify,
    /// Contents that were refused, so that they are told of once.
    refused: Mutex<Refused>,
}

/// TLS with one serving certificate and one set of authorities.
struct Tls {
    config: Arc<ServerConfig>,
    serving: Arc<Serving>,
    trust: Arc<Trust>,
}

#[derive(Default)]
struct Refused {
    serving: Option<String>,
    trust: Option<String>,
    issuers: Option<String>,
}

impl Login {
    /// What cannot be read now is an error: nothing older could be used instead.
    pub fn open(
        env: &Env,
        authority: Arc<Authority>,
        kubelet_authority: Authority,
        hosts: Vec<String>,
        own_issuer: String,
        options: LoginOptions,
    ) -> Result<Login, LoginError> {
        let serving = Arc::new(Serving::read(env, &authority, &hosts, options.serving.as_ref())?);
        let trust = Arc::new(Trust::read(env, &authority, options.client_ca.as_ref(), 0)?);
        let tls = Tls { config: tls::config(env, &serving, &trust)?, serving, trust };
        let config = options.authentication_config.as_ref();
        let issuers =
            config.map(|path| Issuers::read(env, path, &own_issuer)).transpose()?.unwrap_or_default();
        let (tls, issuers) = (ArcSwap::from_pointee(tls), ArcSwap::from_pointee(issuers));
        let (env, refused) = (env.clone(), Mutex::default());
        Ok(Login {
            env,
            options,
            authority,
            kubelet_authority,
            hosts,
            own_issuer,
            tls,
            issuers,
            client: Webhooks::default(),
            new_issuers: Notify::new(),
            refused,
        })
    }

    /// For the next connection.
    pub fn tls(&self) -> Arc<ServerConfig> {
        self.tls.load().config.clone()
    }

    pub fn trust(&self) -> Arc<Trust> {
        self.tls.load().trust.clone()
    }

    pub fn issuers(&self) -> Arc<Issuers> {
        self.issuers.load_full()
    }

    /// Whether a request without credentials is answered.
    pub fn allows_anonymous(&self, path: &str) -> bool {
        self.issuers.load().anonymous.as_ref().is_none_or(|anonymous| anonymous.allows(path))
    }

    /// What a client must trust to reach this server.
    pub fn serving_authorities_pem(&self) -> String {
        let own = self.authority.certificate_pem();
        match &self.options.serving {
            Some(_) => format!("{own}{}", self.tls.load().serving.chain_pem()),
            None => own.to_owned(),
        }
    }

    /// Looks at the files, and takes what has changed.
    fn reload(&self, hub: &Arc<Hub>) {
        self.reload_certificates(&hub.metrics.login);
        let Some(path) = &self.options.authentication_config else { return };
        if self.issuers.load().is_current(&self.env, path) {
            return;
        }
        let read = Issuers::read(&self.env, path, &self.own_issuer);
        if let Some(issuers) = self.taken("authentication_config", read, &hub.metrics.login) {
            self.issuers.store(Arc::new(issuers));
            self.new_issuers.notify_one();
        }
    }

    fn reload_certificates(&self, metrics: &LoginMetrics) {
        let current = self.tls.load_full();
        let now = self.env.clock.now().as_second();
        let serving = match current.serving.is_current(&self.env, self.options.serving.as_ref(), now) {
            true => None,
            false => {
                let read =
                    Serving::read(&self.env, &self.authority, &self.hosts, self.options.serving.as_ref());
                self.taken("serving", read, metrics)
            }
        };
        let trust = match current.trust.is_current(&self.env, self.options.client_ca.as_ref()) {
            true => None,
            false => {
                let path = self.options.client_ca.as_ref();
                let read = Trust::read(&self.env, &self.authority, path, current.trust.generation + 1);
                self.taken("client_ca", read, metrics)
            }
        };
        if serving.is_none() && trust.is_none() {
            return;
        }
        let serving = serving.map_or_else(|| current.serving.clone(), Arc::new);
        let trust = trust.map_or_else(|| current.trust.clone(), Arc::new);
        match tls::config(&self.env, &serving, &trust) {
            Ok(config) => self.tls.store(Arc::new(Tls { config, serving, trust })),
            Err(error) => tracing::error!(%error, "cannot use the new certificates; the old ones stay"),
        }
    }

    /// What was read, if it is good; what is not is told of once, and the old stays.
    fn taken<T, E: Display>(
        &self,
        what: &'static str,
        read: Result<T, E>,
        metrics: &LoginMetrics,
    ) -> Option<T> {
        let mut refused = self.refused.lock();
        let before = match what {
            "serving" => &mut refused.serving,
            "client_ca" => &mut refused.trust,
            _ => &mut refused.issuers,
        };
        match read {
            Ok(new) => {
                *before = None;
                metrics.reloaded(what, true);
                tracing::info!(what, "took the new content of a file");
                Some(new)
            }
            Err(error) => {
                let told = error.to_string();
                if before.as_ref() != Some(&told) {
                    metrics.reloaded(what, false);
                    tracing::error!(what, %error, "cannot use the new content of a file; the old one stays");
                    *before = Some(told);
                }
                None
            }
        }
    }
}

/// Asks new issuers where their keys are. Not where files are read: that thread has no network.
async fn ask_issuers(hub: Arc<Hub>) {
    let mut stopping = hub.stopping.clone();
    loop {
        hub.login.issuers().discover(&hub);
        tokio::select! {
            () = hub.login.new_issuers.notified() => {}
            () = hub::stopped(&mut stopping) => return,
        }
    }
}

/// Follows the files until the server stops.
pub fn follow(hub: &Arc<Hub>) {
    hub.env.tasks.spawn(Box::pin(ask_issuers(hub.clone())));
    let hub = hub.clone();
    let env = hub.env.clone();
    let work = async move {
        let mut stopping = hub.stopping.clone();
        loop {
            tokio::select! {
                () = hub.env.clock.sleep(hub.login.options.reload_every) => {}
                () = hub::stopped(&mut stopping) => return,
            }
            hub.login.reload(&hub);
            hub.metrics.login.serving_not_after.set(hub.login.tls.load().serving.not_after);
        }
    };
    env.tasks.spawn_blocking_loop("reload", Box::pin(work));
}
