//! The certificates of a cluster.

use std::sync::Arc;

use anyhow::{Result, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// A certificate authority, such as a cluster's own.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
pub struct Issued {
    pub cert_pem: String,
    pub key_pem: String,
}

impl Authority {
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::new([])?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "real-cluster");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub(super) fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    pub(crate) fn serving(&self) -> Result<Issued> {
        self.serving_for(&["127.0.0.1", "localhost", "10.96.0.1", "kubernetes.default.svc"])
    }

    pub(crate) fn serving_for(&self, names: &[&str]) -> Result<Issued> {
        let mut params =
            CertificateParams::new(names.iter().copied().map(str::to_owned).collect::<Vec<_>>())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        // A member of etcd also dials itself with this one.
        self.sign(params, &[ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth])
    }

    /// For a client with this name; at most two groups.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Issued> {
        // rcgen keeps one value per attribute type, but takes the type under its name and under its number.
        let attributes = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
        ensure!(
            groups.len() <= attributes.len(),
            "a certificate can carry at most {} groups",
            attributes.len()
        );
        let mut params = CertificateParams::new([])?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        for (attribute, group) in attributes.into_iter().zip(groups) {
            params.distinguished_name.push(attribute, *group);
        }
        self.sign(params, &[ExtendedKeyUsagePurpose::ClientAuth])
    }

    /// TLS of a client that holds this certificate and trusts this authority.
    pub(crate) fn trusted_by(&self, client: &Issued) -> Result<Arc<rustls::ClientConfig>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(client.cert_pem.as_bytes())?],
                PrivateKeyDer::from_pem_slice(client.key_pem.as_bytes())?,
            )?;
        Ok(Arc::new(tls))
    }

    fn sign(&self, mut params: CertificateParams, usages: &[ExtendedKeyUsagePurpose]) -> Result<Issued> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages.to_vec();
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        Ok(Issued { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
    }
}
