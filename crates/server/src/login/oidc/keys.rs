//! The public keys of an issuer (JWKS), and whether one of them signed a token.

use aws_lc_rs::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use base64::{
    Engine,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde_json::Value;

use super::token::Token;

/// More keys than any issuer has: a token that names none is tried with all.
const MAX_KEYS: usize = 64;

const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[derive(Default)]
pub struct Keys(Vec<Key>);

struct Key {
    id: String,
    material: Material,
}

enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// The point, uncompressed.
    Elliptic {
        curve: Curve,
        point: Vec<u8>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Curve {
    P256,
    P384,
    P521,
}

impl Curve {
    fn named(name: &str) -> Option<Curve> {
        match name {
            "P-256" => Some(Curve::P256),
            "P-384" => Some(Curve::P384),
            "P-521" => Some(Curve::P521),
            _ => None,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Curve::P256 => 32,
            Curve::P384 => 48,
            Curve::P521 => 66,
        }
    }
}

impl Keys {
    /// Keys of kinds that sign nothing here are passed over.
    pub fn parse(document: &[u8]) -> Result<Keys, String> {
        let document: Value = serde_json::from_slice(document).map_err(|error| error.to_string())?;
        let keys = document.get("keys").and_then(Value::as_array).ok_or("no keys in the set")?;
        Ok(Keys(keys.iter().filter_map(Key::read).take(MAX_KEYS).collect()))
    }

    pub fn verify(&self, token: &Token<'_>) -> bool {
        let named = |key: &&Key| token.key_id.is_empty() || key.id == token.key_id;
        self.0.iter().filter(named).any(|key| key.verify(token))
    }
}

impl Key {
    fn read(key: &Value) -> Option<Key> {
        let text = |name: &str| key.get(name).and_then(Value::as_str).unwrap_or_default();
        let bytes = |name: &str| BASE64URL.decode(text(name)).ok().filter(|bytes| !bytes.is_empty());
        let material = match text("kty") {
            "RSA" => Material::Rsa { modulus: bytes("n")?, exponent: bytes("e")? },
            "EC" => {
                let curve = Curve::named(text("crv"))?;
                let (x, y) = (bytes("x")?, bytes("y")?);
                let fits = |part: &[u8]| part.len() == curve.bytes();
                let point = (fits(&x) && fits(&y)).then(|| [&[4], x.as_slice(), y.as_slice()].concat())?;
                Material::Elliptic { curve, point }
            }
            _ => return None,
        };
        Some(Key { id: text("kid").to_owned(), material })
    }

    /// The algorithm that the token names must be one for keys of this kind.
    fn verify(&self, token: &Token<'_>) -> bool {
        let (signed, signed_by) = (token.signed.as_bytes(), token.signature.as_slice());
        match &self.material {
            Material::Rsa { modulus, exponent } => {
                let parameters = match token.algorithm.as_str() {
                    "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
                    "RS512" => &signature::RSA_PKCS1_2048_8192_SHA512,
                    "PS256" => &signature::RSA_PSS_2048_8192_SHA256,
                    "PS384" => &signature::RSA_PSS_2048_8192_SHA384,
                    "PS512" => &signature::RSA_PSS_2048_8192_SHA512,
                    _ => return false,
                };
                let start = |bytes: &[u8]| bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
                let key =
                    RsaPublicKeyComponents { n: &modulus[start(modulus)..], e: &exponent[start(exponent)..] };
                key.verify(parameters, signed, signed_by).is_ok()
            }
            Material::Elliptic { curve, point } => {
                let algorithm = match (token.algorithm.as_str(), curve) {
                    ("ES256", Curve::P256) => &signature::ECDSA_P256_SHA256_FIXED,
                    ("ES384", Curve::P384) => &signature::ECDSA_P384_SHA384_FIXED,
                    ("ES512", Curve::P521) => &signature::ECDSA_P521_SHA512_FIXED,
                    _ => return false,
                };
                UnparsedPublicKey::new(algorithm, point).verify(signed, signed_by).is_ok()
            }
        }
    }
}
