//! Certificates: the installation's authority, the server's own, and those of clients.

use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use env::{Clock, Env};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::WebPkiClientVerifier,
    time_provider::TimeProvider,
};

const DAY: i64 = 24 * 3600;
const AUTHORITY_DAYS: i64 = 3650;
const LEAF_DAYS: i64 = 365;

/// Why certificates could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("cannot read or write {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error("certificate or key in {0} is not usable; restore it from a backup")]
    Unusable(PathBuf),
    #[error("{0} groups do not fit into a certificate; two do")]
    TooManyGroups(usize),
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("cannot verify client certificates: {0}")]
    Verifier(String),
}

/// The installation's certificate authority. Everybody it signs for is a user here.
pub struct Authority {
    certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
    now: i64,
}

/// A certificate with its key, as PEM.
pub struct Credential {
    pub certificate_pem: String,
    pub key_pem: String,
}

impl Authority {
    /// Reads the authority kept in `directory`, or makes one on the first start.
    pub fn open(env: &Env, directory: &Path) -> Result<Authority, PkiError> {
        let (certificate_path, key_path) = (directory.join("ca.crt"), directory.join("ca.key"));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| PkiError::Io { path, source }
        };
        env.files.create_dir_all(directory).map_err(failed(directory))?;
        let now = env.clock.now().as_second();
        match env.files.read(&key_path) {
            Ok(key) => {
                let certificate = env.files.read(&certificate_path).map_err(failed(&certificate_path))?;
                let unusable = || PkiError::Unusable(directory.to_owned());
                let key = String::from_utf8(key).map_err(|_| unusable())?;
                let certificate_pem = String::from_utf8(certificate).map_err(|_| unusable())?;
                let key = KeyPair::from_pem(&key).map_err(|_| unusable())?;
                let issuer = Issuer::from_ca_cert_pem(&certificate_pem, key).map_err(|_| unusable())?;
                Ok(Authority { certificate_pem, issuer, now })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (authority, key_pem) = Authority::make(now)?;
                // The key last: a crash in between leaves no key, and the next start makes a new pair.
                let certificate = authority.certificate_pem.as_bytes();
                env.files
                    .write_atomic(&certificate_path, certificate, false)
                    .map_err(failed(&certificate_path))?;
                env.files.write_atomic(&key_path, key_pem.as_bytes(), true).map_err(failed(&key_path))?;
                Ok(authority)
            }
            Err(error) => Err(failed(&key_path)(error)),
        }
    }

    fn make(now: i64) -> Result<(Authority, String), PkiError> {
        let key = KeyPair::generate()?;
        let mut params = params("hanse-ca", &[], now, AUTHORITY_DAYS);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate_pem = params.self_signed(&key)?.pem();
        let key_pem = key.serialize_pem();
        Ok((Authority { certificate_pem, issuer: Issuer::new(params, key), now }, key_pem))
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// A client certificate: the common name is the user, organizations are groups.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Credential, PkiError> {
        if groups.len() > 2 {
            return Err(PkiError::TooManyGroups(groups.len()));
        }
        let mut params = params(user, groups, self.now, LEAF_DAYS);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// The server's own certificate, for every name and address it is reached by.
    pub fn server(&self, hosts: &[String]) -> Result<Credential, PkiError> {
        let mut params = params("hanse", &[], self.now, LEAF_DAYS);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for host in hosts {
            let name = match host.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(host.as_str().try_into()?),
            };
            params.subject_alt_names.push(name);
        }
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Result<Credential, PkiError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Credential { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }
}

fn params(name: &str, organizations: &[&str], now: i64, days: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    // The library keeps one value per attribute type; the second group is pushed under the type's number, which
    // makes the same attribute of it.
    let types = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    for (kind, organization) in types.into_iter().zip(organizations) {
        subject.push(kind, *organization);
    }
    params.distinguished_name = subject;
    // An hour back, for clients whose clocks are behind.
    let time = |seconds: i64| {
        time::OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
    };
    params.not_before = time(now - 3600);
    params.not_after = time(now + days * DAY);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params
}

/// Whether a certificate is valid now is judged by the clock that everything else goes by.
pub struct EnvTime(pub Arc<dyn Clock>);

impl std::fmt::Debug for EnvTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EnvTime")
    }
}

impl TimeProvider for EnvTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// TLS for the listener: HTTP/2 or HTTP/1.1, client certificates optional and verified.
pub fn server_config(
    env: &Env,
    authority: &Authority,
    hosts: &[String],
) -> Result<Arc<ServerConfig>, PkiError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.certificate_pem.as_bytes()) {
        let certificate = certificate.map_err(|error| PkiError::Verifier(error.to_string()))?;
        roots.add(certificate)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|error| PkiError::Verifier(error.to_string()))?;
    let credential = authority.server(hosts)?;
    let unreadable = |error: rustls::pki_types::pem::Error| PkiError::Verifier(error.to_string());
    let chain = CertificateDer::pem_slice_iter(credential.certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(unreadable)?;
    let key = PrivateKeyDer::from_pem_slice(credential.key_pem.as_bytes()).map_err(unreadable)?;
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(EnvTime(env.clock.clone())))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
