//! Where a peer keeps its objects: in its data directory, or in etcd.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Args;
use env::Env;
use etcd::{Client, Endpoint, Identity, Observed, Tls, User};
use serde::{Deserialize, Serialize};
use server::{
    letters::{EtcdLetters, HttpCourier},
    metrics::EtcdMetrics,
    peer::Sharing,
    pki::Authority,
};
use store::{
    Store,
    embedded::{self, EmbeddedStore},
    etcd::{EtcdStore, OpenError, Options},
};

/// A file in a data directory that says where its objects were moved.
pub const MOVED: &str = "moved-to";

/// How long a start waits for etcd.
const WAIT_FOR_ETCD: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Where objects are kept.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Store")]
pub struct StoreArgs {
    /// Keep objects in etcd, as etcd://HOST:PORT,HOST:PORT/PREFIX, instead of in the data directory. Name all members;
    /// the prefix is `hanse` unless given. Several servers may share one prefix.
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    #[command(flatten)]
    pub etcd: EtcdArgs,
    /// Where the other servers on the same etcd reach this one, by name or address, with or without a port. Where it
    /// listens unless given; it must be given if that is all addresses.
    #[arg(long, value_name = "ADDRESS")]
    pub internal_address: Option<String>,
}

/// How etcd is reached.
#[derive(Args, Clone, Debug, Default)]
pub struct EtcdArgs {
    /// The authorities that etcd's certificates are verified by, PEM. This, or a certificate, makes it TLS.
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,
    /// The certificate to show to etcd, PEM.
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    pub etcd_certfile: Option<PathBuf>,
    /// The key of that certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    /// The user to log in to etcd as.
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    pub etcd_user: Option<String>,
    /// A file that holds the password of that user.
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    pub etcd_password_file: Option<PathBuf>,
}

/// A place in etcd.
pub struct Place {
    pub etcd: Arc<Observed>,
    pub prefix: String,
    /// As it was given, for people.
    pub url: String,
}

/// `etcd://HOST:PORT,…/PREFIX`.
fn parse(url: &str) -> anyhow::Result<(Vec<Endpoint>, String)> {
    let wrong = || format!("{url} is not etcd://HOST:PORT,HOST:PORT/PREFIX");
    let rest = url.strip_prefix("etcd://").with_context(wrong)?;
    let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.trim_matches('/');
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    if !prefix.bytes().all(good) || prefix.split('/').any(|part| part.is_empty() && !prefix.is_empty()) {
        bail!("the prefix of {url} may have letters, digits, dashes, dots and single slashes");
    }
    let endpoints: Result<Vec<Endpoint>, _> = hosts.split(',').map(str::parse).collect();
    let prefix = if prefix.is_empty() { "hanse" } else { prefix };
    Ok((endpoints.with_context(wrong)?, prefix.to_owned()))
}

impl EtcdArgs {
    /// Reaches for the place that `url` names.
    pub fn place(&self, env: &Env, url: &str) -> anyhow::Result<Place> {
        let (endpoints, prefix) = parse(url)?;
        let mut options = etcd::Options::new(endpoints);
        let identity = self.etcd_certfile.clone().zip(self.etcd_keyfile.clone());
        if self.etcd_cafile.is_some() || identity.is_some() {
            let identity = identity.map(|(cert_file, key_file)| Identity { cert_file, key_file });
            options.tls = Some(Tls { ca_file: self.etcd_cafile.clone(), identity });
        }
        if let Some((name, file)) = self.etcd_user.clone().zip(self.etcd_password_file.clone()) {
            let password =
                env.files.read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let password = String::from_utf8(password).context("the password for etcd is no text")?;
            options.user = Some(User { name, password: password.trim_end_matches(['\r', '\n']).to_owned() });
        }
        let etcd = Client::new(env.clone(), options).with_context(|| format!("cannot use {url}"))?;
        let etcd = Observed::new(Arc::new(etcd), env.clock.clone());
        Ok(Place { etcd: Arc::new(etcd), prefix, url: url.to_owned() })
    }
}

/// What a peer runs on.
pub enum Storage {
    Embedded(EmbeddedStore),
    Etcd { store: EtcdStore, sharing: Sharing, etcd: Arc<Observed> },
}

impl Storage {
    pub async fn open(
        env: &Env,
        data: &Path,
        args: &StoreArgs,
        server: &server::Options,
    ) -> anyhow::Result<Storage> {
        env.files.create_dir_all(data).with_context(|| format!("cannot make {}", data.display()))?;
        let directory = data.join("store");
        let (bounds, unbounded) = (server.bounds(), vec![server::hub::root_id()]);
        let Some(url) = &args.store else {
            let marker = data.join(MOVED);
            if let Ok(moved) = env.files.read(&marker) {
                bail!(
                    "what was in {} was moved to {}: start with --store, or remove {} to begin with nothing",
                    data.display(),
                    String::from_utf8_lossy(&moved),
                    marker.display()
                );
            }
            let history_time = server.history_kept;
            let options = embedded::Options { history_time, bounds, unbounded, ..Default::default() };
            let store = EmbeddedStore::open(env, &directory, options)
                .with_context(|| format!("cannot open the store in {}", data.display()))?;
            return Ok(Storage::Embedded(store));
        };
        if env.files.list(&directory).is_ok_and(|names| !names.is_empty()) {
            bail!(
                "{} holds objects, which would not be seen: move them with `hanse migrate --from {} --to {url}`, or name another --data",
                directory.display(),
                data.display()
            );
        }
        let place = args.etcd.place(env, url)?;
        let (prefix, history) = (place.prefix.clone(), server.history_kept);
        let options = Options { prefix, history, bounds, unbounded, ..Options::default() };
        let store = open_etcd(env, &place, options).await?;
        share_authorities(env, &place, &data.join("pki")).await?;
        let letters = Arc::new(EtcdLetters { env: env.clone(), store: store.clone() });
        let sharing = Sharing { address: args.internal_address.clone(), letters };
        Ok(Storage::Etcd { store, sharing, etcd: place.etcd })
    }

    pub fn store(&self) -> Arc<dyn Store> {
        match self {
            Storage::Embedded(store) => Arc::new(store.clone()),
            Storage::Etcd { store, .. } => Arc::new(store.clone()),
        }
    }

    pub fn sharing(&self) -> Option<Sharing> {
        match self {
            Storage::Embedded(_) => None,
            Storage::Etcd { sharing, .. } => Some(sharing.clone()),
        }
    }

    /// Counts and times calls to etcd, if there are any, from now on.
    pub fn measure(&self, metrics: &EtcdMetrics) {
        if let Storage::Etcd { etcd, .. } = self {
            etcd.tell(Arc::new(metrics.clone()));
        }
    }

    pub async fn close(&self) -> anyhow::Result<()> {
        match self {
            Storage::Embedded(store) => store.close().await.context("the store did not close cleanly"),
            Storage::Etcd { store, .. } => {
                store.close().await;
                Ok(())
            }
        }
    }
}

/// Asks again while etcd does not answer, for as long as it may take to be there. Whatever is asked must bear that.
async fn waiting<T>(env: &Env, ask: impl AsyncFn() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let until = env.clock.elapsed() + WAIT_FOR_ETCD;
    loop {
        match ask().await {
            Err(error) if is_passing(&error) && env.clock.elapsed() < until => {
                tracing::warn!(%error, "waiting for etcd");
                env.clock.sleep(ASK_AGAIN).await;
            }
            other => return other,
        }
    }
}

fn is_passing(error: &OpenError) -> bool {
    use etcd::Error::{Uncertain, Unreachable};
    matches!(
        error,
        OpenError::Etcd(Unreachable(_) | Uncertain(_)) | OpenError::Store(store::Error::Unavailable(_))
    )
}

/// Opens a store in etcd, which may take a moment to be there.
pub async fn open_etcd(env: &Env, place: &Place, options: Options) -> anyhow::Result<EtcdStore> {
    let courier = Arc::new(HttpCourier::new(env.clone()));
    let open = async || EtcdStore::open(env, place.etcd.clone(), courier.clone(), options.clone()).await;
    waiting(env, open).await.with_context(|| format!("cannot open the store in {}", place.url))
}

/// The authorities of a peer, as all its servers have them.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Authorities {
    certificate: String,
    key: String,
    kubelet_certificate: String,
    kubelet_key: String,
}

const AUTHORITIES: &str = "authorities";
const KUBELET: &str = "kubelet-serving";

impl Authorities {
    fn files(pki: &Path) -> [PathBuf; 4] {
        let kubelet = pki.join(KUBELET);
        [pki.join("ca.crt"), pki.join("ca.key"), kubelet.join("ca.crt"), kubelet.join("ca.key")]
    }

    /// `None` if there are none. Some without the others are made whole by whoever opens them, and are not ours to lose.
    fn read(env: &Env, pki: &Path) -> anyhow::Result<Option<Self>> {
        if env.files.read(&pki.join("ca.key")).is_ok() {
            Authority::open(env, pki)?;
            Authority::open(env, &pki.join(KUBELET))?;
        }
        let mut texts = Vec::new();
        for path in Self::files(pki) {
            match env.files.read(&path) {
                Ok(bytes) => texts.push(String::from_utf8(bytes).context("a certificate that is no text")?),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
            }
        }
        let Ok([certificate, key, kubelet_certificate, kubelet_key]) = <[String; 4]>::try_from(texts) else {
            return Ok(None);
        };
        Ok(Some(Self { certificate, key, kubelet_certificate, kubelet_key }))
    }

    fn write(&self, env: &Env, pki: &Path) -> anyhow::Result<()> {
        env.files
            .create_dir_all(&pki.join(KUBELET))
            .with_context(|| format!("cannot make {}", pki.display()))?;
        let texts = [&self.certificate, &self.key, &self.kubelet_certificate, &self.kubelet_key];
        for (path, text) in Self::files(pki).iter().zip(texts) {
            let private = path.extension().is_some_and(|extension| extension == "key");
            env.files
                .write_atomic(path, text.as_bytes(), private)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// Sees to it that all servers on one etcd sign with the same authorities: those of the first.
pub async fn share_authorities(env: &Env, place: &Place, pki: &Path) -> anyhow::Result<()> {
    let failed = || format!("cannot share the authorities in {}", place.url);
    let own = Authorities::read(env, pki)?;
    let agreed =
        waiting(env, async || Ok(store::etcd::shared_value(&*place.etcd, &place.prefix, AUTHORITIES).await?));
    let agreed = agreed.await.with_context(failed)?;
    let agreed = match agreed {
        Some(agreed) => agreed,
        None => {
            Authority::open(env, pki)?;
            Authority::open(env, &pki.join(KUBELET))?;
            let fresh = Authorities::read(env, pki)?.context("no authorities were made")?;
            let fresh = serde_json::to_vec(&fresh)?;
            // Whoever was first counts, also if that was this one and the answer was lost.
            let put = waiting(env, async || {
                Ok(store::etcd::share_value(&*place.etcd, &place.prefix, AUTHORITIES, fresh.clone().into())
                    .await?)
            });
            put.await.with_context(failed)?
        }
    };
    let agreed: Authorities = serde_json::from_slice(&agreed)
        .with_context(|| format!("the authorities in {} are not readable", place.url))?;
    match own {
        Some(own) if own == agreed => Ok(()),
        Some(_) => bail!(
            "{} holds other authorities than {}: remove it to use those, and give clients new credentials",
            pki.display(),
            place.url
        ),
        None => agreed.write(env, pki),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_etcd_are_read() {
        let (endpoints, prefix) = parse("etcd://a:2379,10.0.0.1:1,[::1]:5/registry/hanse/").unwrap();
        let shown: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
        assert_eq!(
            (shown.join(" ").as_str(), prefix.as_str()),
            ("a:2379 10.0.0.1:1 [::1]:5", "registry/hanse")
        );
        assert_eq!(parse("etcd://a").unwrap().1, "hanse");
        for wrong in ["http://a:1", "etcd://", "etcd://a:x", "etcd://a/p q", "etcd://a/p//q", "etcd://a,,b"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
