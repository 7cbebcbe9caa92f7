//! TLS for the listener: HTTP/2 or HTTP/1.1, the certificate to serve with, and the authorities of clients.
//!
//! A client certificate is only asked for during the handshake, and its holder must prove to have the key; whether
//! it is good is decided with each request, as upstream does. So a bad one is answered with 401, and one that
//! expires, or whose authority goes, is good no longer on connections that exist.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use env::Env;
use machinery::certificates;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{
        ClientHello, ResolvesServerCert, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

use crate::pki::{Authority, EnvTime, PkiError};

/// What the server shows.
pub struct Serving {
    key: Arc<CertifiedKey>,
    /// As the files had it; empty for one of our own.
    content: (Vec<u8>, Vec<u8>),
    /// Of our own: when it is time for the next, in seconds since 1970.
    renew_at: Option<i64>,
    pub not_after: i64,
}

/// Whose client certificates are good.
pub struct Trust {
    verifier: Arc<dyn ClientCertVerifier>,
    content: Vec<u8>,
    /// Differs whenever the authorities do.
    pub generation: u64,
}

fn read(env: &Env, path: &Path) -> Result<Vec<u8>, PkiError> {
    env.files.read(path).map_err(|source| PkiError::Io { path: path.to_owned(), source })
}

impl Serving {
    pub fn read(
        env: &Env,
        authority: &Authority,
        hosts: &[String],
        files: Option<&(PathBuf, PathBuf)>,
    ) -> Result<Serving, PkiError> {
        match files {
            Some((certificate, key)) => {
                let content = (read(env, certificate)?, read(env, key)?);
                let unusable = |_| PkiError::Unfit(certificate.clone());
                let serving = Serving::of(content.clone(), None).map_err(unusable)?;
                Ok(Serving { content, ..serving })
            }
            None => {
                let made = authority.server(hosts)?;
                let content = (made.certificate_pem.into_bytes(), made.key_pem.into_bytes());
                Ok(Serving { content: Default::default(), ..Serving::of(content, Some(env))? })
            }
        }
    }

    fn of((certificate, key): (Vec<u8>, Vec<u8>), own: Option<&Env>) -> Result<Serving, PkiError> {
        let unreadable = |error: rustls::pki_types::pem::Error| PkiError::Verifier(error.to_string());
        let chain = CertificateDer::pem_slice_iter(&certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(unreadable)?;
        let not_after = chain.first().and_then(|leaf| not_after(leaf));
        let not_after = not_after.ok_or_else(|| PkiError::Verifier("no certificate".to_owned()))?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(unreadable)?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = Arc::new(CertifiedKey::from_der(chain, key, &provider)?);
        // With a third of its life left there is time for whoever has to be told.
        let renew_at = own.map(|env| {
            let now = env.clock.now().as_second();
            now + (not_after - now) * 2 / 3
        });
        Ok(Serving { key, content: Default::default(), renew_at, not_after })
    }

    /// Whether the files still have what this was made of, or this is not yet due to be replaced.
    pub fn is_current(&self, env: &Env, files: Option<&(PathBuf, PathBuf)>, now: i64) -> bool {
        match files {
            Some((certificate, key)) => {
                let same = |path, content: &Vec<u8>| env.files.read(path).is_ok_and(|now| now == *content);
                same(certificate, &self.content.0) && same(key, &self.content.1)
            }
            None => self.renew_at.is_none_or(|at| now < at),
        }
    }

    pub fn chain_pem(&self) -> String {
        self.key.cert.iter().map(|der| certificates::pem("CERTIFICATE", der)).collect()
    }
}

fn not_after(der: &[u8]) -> Option<i64> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

impl Trust {
    pub fn read(
        env: &Env,
        authority: &Authority,
        file: Option<&PathBuf>,
        generation: u64,
    ) -> Result<Trust, PkiError> {
        let content = file.map(|path| read(env, path)).transpose()?.unwrap_or_default();
        let mut roots = RootCertStore::empty();
        add(&mut roots, authority.certificate_pem().as_bytes())?;
        if let Some(path) = file {
            let unfit = |_| PkiError::Unfit(path.clone());
            if add(&mut roots, &content).map_err(unfit)? == 0 {
                return Err(PkiError::Unfit(path.clone()));
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|error| PkiError::Verifier(error.to_string()))?;
        Ok(Trust { verifier, content, generation })
    }

    pub fn is_current(&self, env: &Env, file: Option<&PathBuf>) -> bool {
        file.is_none_or(|path| env.files.read(path).is_ok_and(|now| now == self.content))
    }

    /// Whether a certificate, sent with those that lead to an authority, is good now.
    pub fn check(&self, chain: &[CertificateDer<'static>], now: UnixTime) -> Result<(), rustls::Error> {
        let (leaf, intermediates) = chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        self.verifier.verify_client_cert(leaf, intermediates, now).map(drop)
    }
}

/// How many there are.
fn add(roots: &mut RootCertStore, pem: &[u8]) -> Result<usize, PkiError> {
    let before = roots.len();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| PkiError::Verifier(error.to_string()))?;
        roots.add(certificate)?;
    }
    Ok(roots.len() - before)
}

pub fn config(env: &Env, serving: &Serving, trust: &Trust) -> Result<Arc<ServerConfig>, PkiError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(EnvTime(env.clock.clone())))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(AskOnly(trust.verifier.clone())))
        .with_cert_resolver(Arc::new(Always(serving.key.clone())));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Asks for a certificate of the authorities it knows, and takes any that its holder has the key of.
#[derive(Debug)]
struct AskOnly(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AskOnly {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
