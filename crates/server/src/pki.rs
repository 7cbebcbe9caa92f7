//! Certificates: the installation's authority, the server's own, and those of clients.

use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use env::{Clock, Env, Random};
use jiff::{SignedDuration, Timestamp};
use machinery::certificates::{self, Request, Template, der};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, SigningKey,
};
use rustls::{
    pki_types::{CertificateDer, UnixTime, pem::PemObject},
    time_provider::TimeProvider,
};
use x509_parser::extensions::ParsedExtension;

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
    #[error("{0} has no usable certificates, or a key that is not theirs")]
    Unfit(PathBuf),
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
    /// Its own name, DER.
    name: Vec<u8>,
    key_id: Vec<u8>,
    not_after: Timestamp,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
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
        match env.files.read(&key_path) {
            Ok(key) => {
                let certificate = env.files.read(&certificate_path).map_err(failed(&certificate_path))?;
                let unusable = || PkiError::Unusable(directory.to_owned());
                let key = String::from_utf8(key).map_err(|_| unusable())?;
                let certificate_pem = String::from_utf8(certificate).map_err(|_| unusable())?;
                let key = KeyPair::from_pem(&key).map_err(|_| unusable())?;
                let issuer = Issuer::from_ca_cert_pem(&certificate_pem, key).map_err(|_| unusable())?;
                Authority::of(env, certificate_pem, issuer).ok_or_else(unusable)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (certificate_pem, issuer) = make(env.clock.now().as_second())?;
                // The key last: a crash in between leaves no key, and the next start makes a new pair.
                env.files
                    .write_atomic(&certificate_path, certificate_pem.as_bytes(), false)
                    .map_err(failed(&certificate_path))?;
                let key_pem = issuer.key().serialize_pem();
                env.files.write_atomic(&key_path, key_pem.as_bytes(), true).map_err(failed(&key_path))?;
                let unusable = || PkiError::Unusable(directory.to_owned());
                Authority::of(env, certificate_pem, issuer).ok_or_else(unusable)
            }
            Err(error) => Err(failed(&key_path)(error)),
        }
    }

    fn of(env: &Env, certificate_pem: String, issuer: Issuer<'static, KeyPair>) -> Option<Authority> {
        let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).ok()?;
        let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
        let name = certificate.subject().as_raw().to_vec();
        let key_id = certificate.extensions().iter().find_map(|it| match it.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        let not_after = Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()?;
        let key_id = key_id.unwrap_or_default();
        let (clock, random) = (env.clock.clone(), env.random.clone());
        Some(Authority { certificate_pem, issuer, name, key_id, not_after, clock, random })
    }

    fn now(&self) -> i64 {
        self.clock.now().as_second()
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// A client certificate: the common name is the user, organizations are groups.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Credential, PkiError> {
        if groups.len() > 2 {
            return Err(PkiError::TooManyGroups(groups.len()));
        }
        let mut params = params(user, groups, self.now(), LEAF_DAYS);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// The server's own certificate, for every name and address it is reached by.
    pub fn server(&self, hosts: &[String]) -> Result<Credential, PkiError> {
        let mut params = params("hanse", &[], self.now(), LEAF_DAYS);
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

    /// A certificate for who made `request`, as PEM; good in `workspace` alone, if one is given.
    pub fn issue(
        &self,
        request: &Request,
        usages: &[&str],
        wanted_seconds: Option<i64>,
        longest: Duration,
        workspace: Option<&str>,
    ) -> Result<String, String> {
        let longest = SignedDuration::try_from(longest).map_err(|error| error.to_string())?;
        let (not_before, not_after) =
            certificates::lifetime(self.clock.now(), wanted_seconds, longest, self.not_after)?;
        let algorithm =
            signature_algorithm(self.issuer.key()).ok_or("the authority's key is of no known kind")?;
        let mut serial = [0; 16];
        self.random.fill(&mut serial);
        let template = Template {
            serial,
            algorithm: &algorithm,
            issuer: &self.name,
            issuer_key_id: &self.key_id,
            not_before,
            not_after,
            usages,
            workspace,
        };
        let to_be_signed = certificates::to_be_signed(request, &template)?;
        let signature = self.issuer.key().sign(&to_be_signed);
        let signature = signature.map_err(|error| format!("failed to sign certificate: {error}"))?;
        Ok(certificates::pem("CERTIFICATE", &certificates::certificate(to_be_signed, &algorithm, &signature)))
    }

    fn sign(&self, params: CertificateParams) -> Result<Credential, PkiError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Credential { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }
}

/// An authority's certificate, and what signs for it.
fn make(now: i64) -> Result<(String, Issuer<'static, KeyPair>), PkiError> {
    let key = KeyPair::generate()?;
    let mut params = params("hanse-ca", &[], now, AUTHORITY_DAYS);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let certificate_pem = params.self_signed(&key)?.pem();
    Ok((certificate_pem, Issuer::new(params, key)))
}

/// `AlgorithmIdentifier` of what `key` signs, DER.
fn signature_algorithm(key: &KeyPair) -> Option<Vec<u8>> {
    let elliptic: [(&rcgen::SignatureAlgorithm, &[u64]); 4] = [
        (&rcgen::PKCS_ECDSA_P256_SHA256, &[1, 2, 840, 10045, 4, 3, 2]),
        (&rcgen::PKCS_ECDSA_P384_SHA384, &[1, 2, 840, 10045, 4, 3, 3]),
        (&rcgen::PKCS_ECDSA_P521_SHA512, &[1, 2, 840, 10045, 4, 3, 4]),
        (&rcgen::PKCS_ED25519, &[1, 3, 101, 112]),
    ];
    let rsa: [(&rcgen::SignatureAlgorithm, &[u64]); 3] = [
        (&rcgen::PKCS_RSA_SHA256, &[1, 2, 840, 113549, 1, 1, 11]),
        (&rcgen::PKCS_RSA_SHA384, &[1, 2, 840, 113549, 1, 1, 12]),
        (&rcgen::PKCS_RSA_SHA512, &[1, 2, 840, 113549, 1, 1, 13]),
    ];
    let null = der::tagged(0x05, &[]);
    let plain =
        elliptic.into_iter().map(|(kind, arcs)| (kind, der::sequence(&[der::object_identifier(arcs)])));
    let with_null = rsa
        .into_iter()
        .map(|(kind, arcs)| (kind, der::sequence(&[der::object_identifier(arcs), null.clone()])));
    plain.chain(with_null).find(|(kind, _)| *kind == key.algorithm()).map(|(_, encoded)| encoded)
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
