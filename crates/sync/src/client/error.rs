//! Why a server did not do what it was asked, in words for its operator and as a reason for a condition.

use std::{error::Error as _, io, time::Duration};

use http::{HeaderMap, StatusCode, header};
use rustls::{AlertDescription, CertificateError};
use serde::Deserialize;

/// Longer messages of others are cut.
const MAX_MESSAGE: usize = 512;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the client was given makes no sense: it must be given something else.
    #[error("{0}")]
    Access(String),
    /// There is no such name. It may come.
    #[error("{0}")]
    Resolve(String),
    /// Nobody is there, or the way is broken.
    #[error("{0}")]
    Dial(String),
    /// The server is not trusted, or does not trust the client's certificate.
    #[error("{why}")]
    Tls { reason: &'static str, why: String },
    /// The connection ended before the answer did.
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The server says no.
    #[error("{message}")]
    Refused { code: u16, reason: String, message: String, retry_after: Option<Duration> },
    #[error("the answer is longer than {0} bytes")]
    TooLarge(usize),
    /// There is more of it than anybody here can hold.
    #[error("its objects are more than {0} bytes")]
    Overfull(usize),
    /// The answer is not what a Kubernetes API answers.
    #[error("the answer makes no sense: {0}")]
    Garbage(String),
}

/// What is read of a `v1.Status`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    kind: String,
    message: String,
    reason: String,
    details: Option<Details>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: u64,
}

impl Error {
    /// One word for a condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Access(_) => "AccessInvalid",
            Error::Resolve(_) => "NameNotFound",
            Error::Dial(_) | Error::Broken(_) => "Unreachable",
            Error::Tls { reason, .. } => reason,
            Error::Timeout(_) => "Timeout",
            Error::Refused { code: 401, .. } => "Unauthorized",
            Error::Refused { code: 403, .. } => "Forbidden",
            Error::Refused { code: 429, .. } => "Throttled",
            Error::Refused { code: 500.., .. } => "NotReady",
            Error::Refused { .. } => "Refused",
            Error::TooLarge(_) | Error::Garbage(_) => "BadAnswer",
            Error::Overfull(_) => "TooLarge",
        }
    }

    /// Whether the server answers at all: it is there, whatever it says.
    pub fn is_answer(&self) -> bool {
        matches!(self, Error::Refused { .. } | Error::TooLarge(_) | Error::Overfull(_) | Error::Garbage(_))
    }

    pub fn code(&self) -> Option<u16> {
        match self {
            Error::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// What the client goes on from is forgotten there; it must list again.
    pub fn is_gone(&self) -> bool {
        self.code() == Some(410)
    }

    /// How long the server wants to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    pub(super) fn refused(code: StatusCode, headers: &HeaderMap, bytes: &[u8]) -> Error {
        let said: Said = serde_json::from_slice(bytes).unwrap_or_default();
        let is_status = said.kind == "Status" && !said.message.is_empty();
        let message = match is_status {
            true => said.message,
            false => format!("the server answered {code}: {}", String::from_utf8_lossy(bytes).trim()),
        };
        let after = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let after = after.or(said.details.map(|it| it.retry_after_seconds)).filter(|seconds| *seconds > 0);
        Error::Refused {
            code: code.as_u16(),
            reason: said.reason,
            message: message.chars().take(MAX_MESSAGE).collect(),
            retry_after: after.map(Duration::from_secs),
        }
    }

    /// What an `ERROR` of a watch says.
    pub(super) fn told(object: &[u8]) -> Error {
        let code = serde_json::from_slice::<serde_json::Value>(object).ok();
        let code = code.and_then(|it| u16::try_from(it["code"].as_u64()?).ok());
        let code = code.and_then(|code| StatusCode::from_u16(code).ok());
        Error::refused(code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &HeaderMap::new(), object)
    }

    /// A connection that ended; if a side did not trust the other, that is why.
    pub(super) fn broken(error: &hyper::Error) -> Error {
        let mut source = error.source();
        let mut text = error.to_string();
        while let Some(cause) = source {
            if let Some(cause) = cause.downcast_ref::<io::Error>()
                && cause.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
            {
                return Error::distrusted(cause);
            }
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        Error::Broken(text)
    }

    pub(super) fn distrusted(error: &io::Error) -> Error {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let tls = |reason, why: &str| Error::Tls { reason, why: why.to_owned() };
        match inner {
            None => Error::Broken(format!("while TLS began: {error}")),
            Some(rustls::Error::InvalidCertificate(why)) => match why {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    tls("CertificateExpired", "the certificate of the server has expired")
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    tls("CertificateNotValidYet", "the certificate of the server is not valid yet")
                }
                // An authority of the same name with another key is another one.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => tls(
                    "CertificateUntrusted",
                    "the certificate of the server is signed by none of the authorities in caBundle",
                ),
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    tls("CertificateUntrusted", "the certificate of the server is for another name")
                }
                other => tls("CertificateUntrusted", &format!("the certificate of the server: {other}")),
            },
            Some(rustls::Error::AlertReceived(alert)) => match alert {
                AlertDescription::CertificateExpired => {
                    tls("Unauthorized", "the server says that the client's certificate has expired")
                }
                AlertDescription::BadCertificate
                | AlertDescription::UnknownCA
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateRequired
                | AlertDescription::AccessDenied => {
                    tls("Unauthorized", "the server does not accept the client's certificate")
                }
                other => tls("TLSFailed", &format!("the server ended TLS: {other:?}")),
            },
            Some(other) => tls("TLSFailed", &format!("TLS failed: {other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_the_server_said() {
        let status = br#"{"kind":"Status","message":"pods is forbidden","reason":"Forbidden","details":{"retryAfterSeconds":3}}"#;
        let error = Error::refused(StatusCode::FORBIDDEN, &HeaderMap::new(), status);
        assert_eq!((error.to_string().as_str(), error.reason()), ("pods is forbidden", "Forbidden"));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
        let page = [b'x'; 10_000];
        let error = Error::refused(StatusCode::BAD_GATEWAY, &HeaderMap::new(), &page);
        assert_eq!((error.to_string().len(), error.reason()), (MAX_MESSAGE, "NotReady"));
    }

    #[test]
    fn an_error_of_a_watch_has_its_code() {
        assert!(Error::told(br#"{"kind":"Status","code":410,"message":"too old"}"#).is_gone());
        assert_eq!(Error::told(b"nonsense").code(), Some(500));
    }
}
