//! Whom a webhook is trusted by: the certificates of its bundle, or whom this machine trusts.
//!
//! A bundle may hold the very certificate that is served, as it does where somebody made one and signed it with itself. That
//! one is trusted by its bytes, also if it calls itself an authority: upstream's client does so, and rustls would refuse it.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// `bundle`: PEM; empty: whom this machine trusts.
pub fn trust(bundle: &[u8]) -> Result<ClientConfig, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    if bundle.is_empty() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(config.with_root_certificates(roots).with_no_client_auth());
    }
    let mut named = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        let certificate = certificate.map_err(|error| format!("caBundle: {error}"))?;
        roots.add(certificate.clone()).map_err(|error| format!("caBundle: {error}"))?;
        named.push(certificate);
    }
    if named.is_empty() {
        // Nobody is trusted.
        return Ok(config.with_root_certificates(roots).with_no_client_auth());
    }
    let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| format!("caBundle: {error}"))?;
    let verifier = Arc::new(Named { named, signed });
    Ok(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// Trusts certificates of a bundle, and those that they signed.
#[derive(Debug)]
struct Named {
    named: Vec<CertificateDer<'static>>,
    signed: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        served: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.named.iter().any(|it| it.as_ref() == served.as_ref()) {
            return self.signed.verify_server_cert(served, between, name, ocsp, now);
        }
        // Nobody has to vouch for it; all else must be right.
        check_use(served, now)?;
        verify_server_name(&ParsedCertificate::try_from(served)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        served: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, served, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        served: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, served, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// Whether it holds now, and is for servers if it says what it is for.
fn check_use(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return Err(CertificateError::BadEncoding.into());
    };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = certificate.validity();
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    match certificate.extended_key_usage() {
        Err(_) => Err(CertificateError::BadEncoding.into()),
        Ok(Some(usage)) if !usage.value.server_auth && !usage.value.any => {
            Err(CertificateError::InvalidPurpose.into())
        }
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
        date_time_ymd,
    };

    use super::*;

    fn params() -> CertificateParams {
        let mut params = CertificateParams::new(["hook.example.com".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2027, 1, 1));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    fn self_signed(params: CertificateParams) -> CertificateDer<'static> {
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn verifier(bundle: &[&CertificateDer<'static>]) -> Named {
        let mut roots = RootCertStore::empty();
        bundle.iter().for_each(|it| roots.add((*it).clone()).unwrap());
        let provider = Arc::new(aws_lc_rs::default_provider());
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        Named { named: bundle.iter().map(|it| (*it).clone()).collect(), signed }
    }

    /// At the beginning of a year.
    fn verified(verifier: &Named, served: &CertificateDer<'_>, name: &str, year: i32) -> Result<(), Error> {
        let now = date_time_ymd(year, 1, 2).unix_timestamp();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now.try_into().unwrap()));
        let name = ServerName::try_from(name).unwrap();
        verifier.verify_server_cert(served, &[], &name, &[], now).map(|_| ())
    }

    #[test]
    fn a_certificate_that_is_in_the_bundle_itself_is_trusted_though_it_is_an_authority() {
        let served = self_signed(params());
        let other = self_signed(params());
        let bundle = verifier(&[&other, &served]);
        assert_eq!(verified(&bundle, &served, "hook.example.com", 2026), Ok(()));
        let invalid = |error: CertificateError| Err(Error::InvalidCertificate(error));
        assert!(matches!(
            verified(&bundle, &served, "other.example.com", 2026),
            Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. }))
        ));
        assert_eq!(
            verified(&bundle, &served, "hook.example.com", 2025),
            invalid(CertificateError::NotValidYet)
        );
        assert_eq!(verified(&bundle, &served, "hook.example.com", 2028), invalid(CertificateError::Expired));
        let without = verifier(&[&other]);
        assert!(verified(&without, &served, "hook.example.com", 2026).is_err(), "same names, other bytes");
    }

    #[test]
    fn what_it_may_be_used_for_counts() {
        let for_usage = |usage: ExtendedKeyUsagePurpose| {
            let mut params = params();
            params.extended_key_usages = vec![usage];
            self_signed(params)
        };
        let rows = [
            (ExtendedKeyUsagePurpose::ServerAuth, true),
            (ExtendedKeyUsagePurpose::Any, true),
            (ExtendedKeyUsagePurpose::ClientAuth, false),
        ];
        for (usage, trusted) in rows {
            let served = for_usage(usage.clone());
            let result = verified(&verifier(&[&served]), &served, "hook.example.com", 2026);
            assert_eq!(result.is_ok(), trusted, "{usage:?}: {result:?}");
        }
    }

    #[test]
    fn what_an_authority_of_the_bundle_signed_is_trusted_unless_it_is_one_itself() {
        let authority = CertifiedIssuer::self_signed(params(), KeyPair::generate().unwrap()).unwrap();
        let signed = |is_ca: IsCa| {
            let mut params = params();
            params.is_ca = is_ca;
            params.signed_by(&KeyPair::generate().unwrap(), &authority).unwrap().der().clone()
        };
        let bundle = verifier(&[authority.der()]);
        assert_eq!(verified(&bundle, &signed(IsCa::NoCa), "hook.example.com", 2026), Ok(()));
        let another = signed(IsCa::Ca(BasicConstraints::Unconstrained));
        assert!(verified(&bundle, &another, "hook.example.com", 2026).is_err());
    }
}
