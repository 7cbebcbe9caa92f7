//! An issuer of tokens on this machine: https, discovery, keys that rotate, and every way to misbehave.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, anyhow};
use aws_lc_rs::{
    encoding::AsDer,
    hmac,
    rand::SystemRandom,
    rsa::KeySize,
    signature::{self, EcdsaKeyPair, KeyPair, RsaKeyPair},
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

/// A key that an issuer signs with.
pub enum SigningKey {
    Rsa { id: String, pair: RsaKeyPair },
    Elliptic { id: String, pair: EcdsaKeyPair, algorithm: &'static str, curve: &'static str },
}

impl SigningKey {
    pub fn rsa(id: &str) -> Result<SigningKey> {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048)?;
        Ok(SigningKey::Rsa { id: id.to_owned(), pair })
    }

    pub fn elliptic(id: &str, algorithm: &'static str) -> Result<SigningKey> {
        let (kind, curve) = match algorithm {
            "ES256" => (&signature::ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"),
            "ES384" => (&signature::ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"),
            "ES512" => (&signature::ECDSA_P521_SHA512_FIXED_SIGNING, "P-521"),
            other => return Err(anyhow!("no curve for {other}")),
        };
        Ok(SigningKey::Elliptic { id: id.to_owned(), pair: EcdsaKeyPair::generate(kind)?, algorithm, curve })
    }

    fn id(&self) -> &str {
        match self {
            SigningKey::Rsa { id, .. } | SigningKey::Elliptic { id, .. } => id,
        }
    }

    pub fn jwk(&self) -> Value {
        match self {
            SigningKey::Rsa { id, pair } => {
                let key = pair.public_key();
                let number = |bytes: &[u8]| BASE64URL.encode(bytes);
                json!({
                    "kty": "RSA", "kid": id, "use": "sig",
                    "n": number(key.modulus().big_endian_without_leading_zero()),
                    "e": number(key.exponent().big_endian_without_leading_zero()),
                })
            }
            SigningKey::Elliptic { id, pair, curve, .. } => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({"kty": "EC", "kid": id, "crv": curve, "x": BASE64URL.encode(x), "y": BASE64URL.encode(y)})
            }
        }
    }

    /// A token with the key's usual algorithm.
    pub fn token(&self, claims: &Value) -> Result<String> {
        match self {
            SigningKey::Rsa { .. } => self.token_as("RS256", claims),
            SigningKey::Elliptic { algorithm, .. } => self.token_as(algorithm, claims),
        }
    }

    pub fn token_as(&self, algorithm: &str, claims: &Value) -> Result<String> {
        let header = json!({"alg": algorithm, "kid": self.id(), "typ": "JWT"});
        let signed = unsigned(&header, claims);
        let random = SystemRandom::new();
        let signature = match self {
            SigningKey::Rsa { pair, .. } => {
                let padding: &dyn signature::RsaEncoding = match algorithm {
                    "RS384" => &signature::RSA_PKCS1_SHA384,
                    "RS512" => &signature::RSA_PKCS1_SHA512,
                    "PS256" => &signature::RSA_PSS_SHA256,
                    "PS384" => &signature::RSA_PSS_SHA384,
                    "PS512" => &signature::RSA_PSS_SHA512,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut bytes = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &random, signed.as_bytes(), &mut bytes)?;
                bytes
            }
            SigningKey::Elliptic { pair, .. } => pair.sign(&random, signed.as_bytes())?.as_ref().to_vec(),
        };
        Ok(format!("{signed}.{}", BASE64URL.encode(signature)))
    }

    /// Signed with the public key as a secret, for those who let the token choose.
    pub fn hmac_token(&self, claims: &Value) -> Result<String> {
        let SigningKey::Rsa { id, pair } = self else { return Err(anyhow!("only of RSA")) };
        let signed = unsigned(&json!({"alg": "HS256", "kid": id}), claims);
        let public: aws_lc_rs::encoding::PublicKeyX509Der<'_> = pair.public_key().as_der()?;
        let secret = hmac::Key::new(hmac::HMAC_SHA256, public.as_ref());
        Ok(format!("{signed}.{}", BASE64URL.encode(hmac::sign(&secret, signed.as_bytes()))))
    }
}

pub fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", BASE64URL.encode(header.to_string()), BASE64URL.encode(claims.to_string()))
}

/// How an issuer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Honest,
    /// Says to be somebody else.
    Lies,
    NeverAnswers,
    /// Never comes to an end.
    Huge,
    Nonsense,
}

pub struct Issuer {
    pub url: String,
    pub ca_pem: String,
    behaviour: Arc<Behaviour>,
    serving: JoinHandle<()>,
}

struct Behaviour {
    url: String,
    manner: parking_lot::Mutex<Manner>,
    keys: parking_lot::Mutex<Value>,
    asked_for_keys: AtomicUsize,
}

impl Issuer {
    pub async fn start(manner: Manner, keys: &[&SigningKey]) -> Result<Issuer> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://127.0.0.1:{}", listener.local_addr()?.port());
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::from_pem_slice(certified.signing_key.serialize_pem().as_bytes())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let keys = json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()});
        let behaviour = Arc::new(Behaviour {
            url: url.clone(),
            manner: parking_lot::Mutex::new(manner),
            keys: parking_lot::Mutex::new(keys),
            asked_for_keys: AtomicUsize::new(0),
        });
        let answering = behaviour.clone();
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, behaviour) = (acceptor.clone(), answering.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| answer(behaviour.clone(), request));
                    // A client that hangs up ends it.
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Ok(Issuer { url, ca_pem: certified.cert.pem(), behaviour, serving })
    }

    pub fn rotate(&self, keys: &[&SigningKey]) {
        *self.behaviour.keys.lock() = json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()});
    }

    pub fn behave(&self, manner: Manner) {
        *self.behaviour.manner.lock() = manner;
    }

    pub fn asked_for_keys(&self) -> usize {
        self.behaviour.asked_for_keys.load(Ordering::SeqCst)
    }

    /// What a token of this issuer for `name` says.
    pub fn claims(&self, name: &str) -> Value {
        let now = jiff::Timestamp::now().as_second();
        json!({"iss": self.url, "aud": "hanse", "sub": name, "iat": now, "exp": now + 600})
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(
    behaviour: Arc<Behaviour>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let manner = *behaviour.manner.lock();
    let is_discovery = request.uri().path() == "/.well-known/openid-configuration";
    if !is_discovery {
        behaviour.asked_for_keys.fetch_add(1, Ordering::SeqCst);
    }
    let document = match (manner, is_discovery) {
        (Manner::NeverAnswers, _) => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            String::new()
        }
        (Manner::Huge, _) => "[".repeat(8 * 1024 * 1024),
        (Manner::Nonsense, _) => "<html>no</html>".to_owned(),
        (Manner::Lies, true) => {
            json!({"issuer": "https://accounts.example.com", "jwks_uri": format!("{}/keys", behaviour.url)})
                .to_string()
        }
        (_, true) => {
            json!({"issuer": behaviour.url, "jwks_uri": format!("{}/keys", behaviour.url)}).to_string()
        }
        (_, false) => behaviour.keys.lock().to_string(),
    };
    Ok(Response::new(Full::new(document.into())))
}
