//! A request for a certificate: whom it names, and that who made it has the key.

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::{
    asn1_rs::Oid,
    certification_request::X509CertificationRequest,
    extensions::{GeneralName, ParsedExtension},
    prelude::FromDer,
    x509::{AlgorithmIdentifier, X509Name},
};

use crate::validation::policies::pem;

/// The parts of a name that Go knows, in the order it writes them; others are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    pub country: Vec<String>,
    pub organization: Vec<String>,
    pub organizational_unit: Vec<String>,
    pub locality: Vec<String>,
    pub province: Vec<String>,
    pub street: Vec<String>,
    pub postal_code: Vec<String>,
    pub common_name: String,
    pub serial_number: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlternativeNames {
    pub dns: Vec<String>,
    pub emails: Vec<String>,
    /// Four or sixteen bytes each.
    pub addresses: Vec<Vec<u8>>,
    pub uris: Vec<String>,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub subject: Subject,
    pub names: AlternativeNames,
    /// `SubjectPublicKeyInfo`, DER.
    pub public_key: Vec<u8>,
}

const NO_BLOCK: &str = "PEM block type must be CERTIFICATE REQUEST";

impl Request {
    /// Reads `spec.request`. Says nothing of its signature.
    pub fn parse(pem_text: &[u8]) -> Result<Request, String> {
        with_parsed(pem_text, |request| {
            let info = &request.certification_request_info;
            Ok(Request {
                subject: subject_of(&info.subject),
                names: names_of(request)?,
                public_key: info.subject_pki.raw.to_vec(),
            })
        })
    }

    /// The same, and whoever made it signed it with the key it names.
    pub fn verify(pem_text: &[u8]) -> Result<Request, String> {
        with_parsed(pem_text, check_signature)?;
        Request::parse(pem_text)
    }
}

fn with_parsed<T>(
    pem_text: &[u8],
    read: impl FnOnce(&X509CertificationRequest<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let block = pem::decode(pem_text).filter(|(block, _)| block.label == "CERTIFICATE REQUEST");
    let (block, _) = block.ok_or(NO_BLOCK)?;
    match X509CertificationRequest::from_der(&block.bytes) {
        Ok(([], request)) => read(&request),
        Ok(_) => Err("asn1: syntax error: trailing data".to_owned()),
        Err(_) => Err("asn1: structure error: not a certificate request".to_owned()),
    }
}

fn subject_of(name: &X509Name<'_>) -> Subject {
    let mut subject = Subject::default();
    for attribute in name.iter_attributes() {
        let Ok(value) = attribute.as_str() else { continue };
        let value = value.to_owned();
        let Some([2, 5, 4, kind]) = arcs(attribute.attr_type()) else { continue };
        match kind {
            // Of several the last counts.
            3 => subject.common_name = value,
            5 => subject.serial_number = value,
            6 => subject.country.push(value),
            7 => subject.locality.push(value),
            8 => subject.province.push(value),
            9 => subject.street.push(value),
            10 => subject.organization.push(value),
            11 => subject.organizational_unit.push(value),
            17 => subject.postal_code.push(value),
            _ => {}
        }
    }
    subject
}

fn arcs(oid: &Oid<'_>) -> Option<[u64; 4]> {
    let arcs: Vec<u64> = oid.iter()?.collect();
    arcs.try_into().ok()
}

fn names_of(request: &X509CertificationRequest<'_>) -> Result<AlternativeNames, String> {
    let mut names = AlternativeNames::default();
    let extensions = request.requested_extensions().into_iter().flatten();
    for extension in extensions {
        let ParsedExtension::SubjectAlternativeName(alternatives) = extension else { continue };
        for name in &alternatives.general_names {
            match name {
                GeneralName::DNSName(name) => names.dns.push((*name).to_owned()),
                GeneralName::RFC822Name(name) => names.emails.push((*name).to_owned()),
                GeneralName::URI(uri) => names.uris.push((*uri).to_owned()),
                GeneralName::IPAddress(bytes) if matches!(bytes.len(), 4 | 16) => {
                    names.addresses.push(bytes.to_vec());
                }
                GeneralName::IPAddress(bytes) => {
                    return Err(format!("x509: cannot parse IP address of length {}", bytes.len()));
                }
                _ => {}
            }
        }
    }
    Ok(names)
}

fn check_signature(request: &X509CertificationRequest<'_>) -> Result<(), String> {
    let info = &request.certification_request_info;
    let Check { algorithm, failure } = check_for(&request.signature_algorithm, &info.subject_pki.algorithm)?;
    let key = UnparsedPublicKey::new(algorithm, &info.subject_pki.subject_public_key.data);
    key.verify(info.raw, &request.signature_value.data).map_err(|_| failure.to_owned())
}

struct Check {
    algorithm: &'static dyn VerificationAlgorithm,
    /// What Go says when the signature does not fit.
    failure: &'static str,
}

const UNIMPLEMENTED: &str = "x509: cannot verify signature: algorithm unimplemented";
const RSA_FAILED: &str = "crypto/rsa: verification error";
const ECDSA_FAILED: &str = "x509: ECDSA verification failure";
const ED25519_FAILED: &str = "x509: Ed25519 verification failure";

fn check_for(signature: &AlgorithmIdentifier<'_>, key: &AlgorithmIdentifier<'_>) -> Result<Check, String> {
    let oid = signature.algorithm.to_id_string();
    let rsa = |algorithm: &'static signature::RsaParameters| -> Result<Check, String> {
        Ok(Check { algorithm, failure: RSA_FAILED })
    };
    match oid.as_str() {
        "1.2.840.113549.1.1.4" => Err("x509: cannot verify signature: insecure algorithm MD5-RSA".to_owned()),
        "1.2.840.113549.1.1.5" | "1.3.14.3.2.29" => {
            rsa(&signature::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY)
        }
        "1.2.840.113549.1.1.11" => rsa(&signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY),
        "1.2.840.113549.1.1.12" => rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
        "1.2.840.113549.1.1.13" => rsa(&signature::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY),
        "1.2.840.113549.1.1.10" => rsa(pss(signature).ok_or(UNIMPLEMENTED)?),
        "1.3.101.112" => Ok(Check { algorithm: &signature::ED25519, failure: ED25519_FAILED }),
        "1.2.840.10045.4.3.2" => ecdsa(key, 256),
        "1.2.840.10045.4.3.3" => ecdsa(key, 384),
        "1.2.840.10045.4.3.4" => ecdsa(key, 512),
        _ => Err(UNIMPLEMENTED.to_owned()),
    }
}

fn pss(signature: &AlgorithmIdentifier<'_>) -> Option<&'static signature::RsaParameters> {
    let parameters =
        x509_parser::signature_algorithm::RsaSsaPssParams::try_from(signature.parameters.as_ref()?);
    match parameters.ok()?.hash_algorithm_oid().to_id_string().as_str() {
        "2.16.840.1.101.3.4.2.1" => Some(&signature::RSA_PSS_2048_8192_SHA256),
        "2.16.840.1.101.3.4.2.2" => Some(&signature::RSA_PSS_2048_8192_SHA384),
        "2.16.840.1.101.3.4.2.3" => Some(&signature::RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

fn ecdsa(key: &AlgorithmIdentifier<'_>, hash_bits: u16) -> Result<Check, String> {
    let curve = key.parameters.as_ref().and_then(|it| it.as_oid().ok()).map(|it| it.to_id_string());
    let algorithm: &'static signature::EcdsaVerificationAlgorithm = match (curve.as_deref(), hash_bits) {
        (Some("1.2.840.10045.3.1.7"), 256) => &signature::ECDSA_P256_SHA256_ASN1,
        (Some("1.2.840.10045.3.1.7"), 384) => &signature::ECDSA_P256_SHA384_ASN1,
        (Some("1.2.840.10045.3.1.7"), 512) => &signature::ECDSA_P256_SHA512_ASN1,
        (Some("1.3.132.0.34"), 256) => &signature::ECDSA_P384_SHA256_ASN1,
        (Some("1.3.132.0.34"), 384) => &signature::ECDSA_P384_SHA384_ASN1,
        (Some("1.3.132.0.34"), 512) => &signature::ECDSA_P384_SHA512_ASN1,
        (Some("1.3.132.0.35"), 256) => &signature::ECDSA_P521_SHA256_ASN1,
        (Some("1.3.132.0.35"), 384) => &signature::ECDSA_P521_SHA384_ASN1,
        (Some("1.3.132.0.35"), 512) => &signature::ECDSA_P521_SHA512_ASN1,
        _ => return Err(UNIMPLEMENTED.to_owned()),
    };
    Ok(Check { algorithm, failure: ECDSA_FAILED })
}
