//! Somebody else's certificate authority, and what it signs.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};

pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// PEM of a certificate and of its key.
pub struct Signed {
    pub certificate: String,
    pub key: String,
}

impl Signed {
    pub fn identity(&self) -> (&str, &str) {
        (&self.certificate, &self.key)
    }
}

fn subject(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject
}

impl Authority {
    pub fn mk(name: &str) -> Result<Authority> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key)?.pem();
        Ok(Authority { pem, issuer: Issuer::new(params, key) })
    }

    fn sign(&self, mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Result<Signed> {
        let key = KeyPair::generate()?;
        params.extended_key_usages = vec![purpose];
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Signed { certificate, key: key.serialize_pem() })
    }

    pub fn client(&self, name: &str, group: Option<&str>) -> Result<Signed> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(name, group);
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// One whose time is over.
    pub fn expired_client(&self, name: &str) -> Result<Signed> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(name, None);
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// One that is for servers, with the name of a user.
    pub fn server(&self, name: &str, host: &str) -> Result<Signed> {
        let mut params = CertificateParams::new(vec![host.to_owned()])?;
        params.distinguished_name = subject(name, None);
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)
    }
}

/// A request for a certificate: PEM, and the key it is made with.
pub fn request(name: &str, groups: &[&str], hosts: &[&str]) -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>())?;
    let mut subject = subject(name, None);
    let kinds = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    for (kind, group) in kinds.into_iter().zip(groups) {
        subject.push(kind, *group);
    }
    params.distinguished_name = subject;
    Ok((params.serialize_request(&key)?.pem()?, key.serialize_pem()))
}
