//! Where the members are, whom to trust and as whom to come.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use env::Files;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// At least one; better all members.
    pub endpoints: Vec<Endpoint>,
    /// `None`: in the clear.
    pub tls: Option<Tls>,
    pub user: Option<User>,
    /// How long a call may take in all: longer than an election, which takes a second or two.
    pub timeout: Duration,
}

impl Options {
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// In the clear and as nobody.
    pub fn new(endpoints: Vec<Endpoint>) -> Self {
        Self { endpoints, tls: None, user: None, timeout: Self::TIMEOUT }
    }
}

/// `host:port` of a member's client URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    pub port: u16,
}

impl Endpoint {
    pub const PORT: u16 = 2379;
}

impl FromStr for Endpoint {
    type Err = Misconfigured;

    /// `host`, `host:port`, `[::1]` or `[::1]:port`.
    fn from_str(text: &str) -> Result<Self, Misconfigured> {
        let wrong = || Misconfigured(format!("{text:?} is not HOST:PORT"));
        let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']').ok_or_else(wrong)) {
            Some(bracketed) => {
                let (host, port) = bracketed?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or_else(wrong)?) })
            }
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(Self::PORT), |port| port.parse().map_err(|_| wrong()))?;
        let endpoint = Self { host: host.to_owned(), port };
        let usable = !host.is_empty() && endpoint.to_string().parse::<http::uri::Authority>().is_ok();
        if usable { Ok(endpoint) } else { Err(wrong()) }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(formatter, "[{}]:{}", self.host, self.port),
            false => write!(formatter, "{}:{}", self.host, self.port),
        }
    }
}

/// PEM files. They are read again for every connection, so that they can be replaced while we run.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Whom to trust; `None`: whom this machine trusts.
    pub ca_file: Option<PathBuf>,
    pub identity: Option<Identity>,
}

/// A client's certificate with what leads to its authority, and its key.
#[derive(Clone, Debug)]
pub struct Identity {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

#[derive(Clone)]
pub struct User {
    pub name: String,
    pub password: String,
}

impl fmt::Debug for User {
    /// Without the password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Options that cannot work.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misconfigured(pub(crate) String);

impl Tls {
    /// Reads the files.
    pub(crate) fn load(&self, files: &dyn Files) -> Result<Arc<ClientConfig>, Misconfigured> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Misconfigured(error.to_string()))?
            .with_root_certificates(self.roots(files)?);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(Identity { cert_file, key_file }) => {
                let chain = certificates(files, cert_file)?;
                let key = PrivateKeyDer::from_pem_slice(&read(files, key_file)?)
                    .map_err(|error| Misconfigured(format!("{}: {error}", key_file.display())))?;
                let shown = format!("{}, {}", cert_file.display(), key_file.display());
                let made = builder.with_client_auth_cert(chain, key);
                made.map_err(|error| Misconfigured(format!("{shown}: {error}")))?
            }
        };
        // gRPC servers insist on it.
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }

    fn roots(&self, files: &dyn Files) -> Result<RootCertStore, Misconfigured> {
        let mut roots = RootCertStore::empty();
        match &self.ca_file {
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            Some(path) => {
                for certificate in certificates(files, path)? {
                    let added = roots.add(certificate);
                    added.map_err(|error| Misconfigured(format!("{}: {error}", path.display())))?;
                }
            }
        }
        Ok(roots)
    }
}

pub(crate) fn server_name(endpoint: &Endpoint) -> Result<ServerName<'static>, Misconfigured> {
    let name = ServerName::try_from(endpoint.host.clone());
    name.map_err(|error| Misconfigured(format!("{}: {error}", endpoint.host)))
}

fn read(files: &dyn Files, path: &Path) -> Result<Vec<u8>, Misconfigured> {
    files.read(path).map_err(|error| Misconfigured(format!("{}: {error}", path.display())))
}

fn certificates(files: &dyn Files, path: &Path) -> Result<Vec<CertificateDer<'static>>, Misconfigured> {
    let pem = read(files, path)?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(Misconfigured(format!("{}: no certificate in it", path.display()))),
        Err(error) => Err(Misconfigured(format!("{}: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_people_write_them() {
        for (text, host, port) in [
            ("a:1", "a", 1),
            ("etcd.example", "etcd.example", 2379),
            ("127.0.0.1:80", "127.0.0.1", 80),
            ("[::1]:5", "::1", 5),
            ("[::1]", "::1", 2379),
        ] {
            let endpoint: Endpoint = text.parse().expect(text);
            assert_eq!((endpoint.host.as_str(), endpoint.port), (host, port), "{text}");
        }
        for wrong in ["", ":1", "a:", "a:x", "a:70000", "[::1", "[::1]5", "http://a:1", "a b:1", "a/b"] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }
}
