//! How calls fail, and what that says about their effect.

use std::error::Error as StdError;

use http::HeaderMap;

use super::options::Endpoint;
use crate::Error;

/// Why a member did not do what it was asked.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It never left: nobody was there.
    Unsent(String),
    /// It never left: TLS refused, on either side.
    Distrusted(String),
    /// It left, and the connection broke or time ran out.
    Unanswered(String),
    /// It was answered by an error.
    Answered { code: Code, message: String },
}

/// gRPC's codes that are told apart here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Ok,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    OutOfRange,
    Unimplemented,
    Unauthenticated,
    Other(u32),
}

impl From<u32> for Code {
    fn from(code: u32) -> Self {
        match code {
            0 => Code::Ok,
            3 => Code::InvalidArgument,
            5 => Code::NotFound,
            7 => Code::PermissionDenied,
            8 => Code::ResourceExhausted,
            9 => Code::FailedPrecondition,
            11 => Code::OutOfRange,
            12 => Code::Unimplemented,
            16 => Code::Unauthenticated,
            other => Code::Other(other),
        }
    }
}

/// What a failure means to whoever asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing happened, and another member may do it.
    Elsewhere,
    /// Nothing happened: nobody leads. In a moment somebody may.
    NoLeader,
    /// Nothing happened: the token is no longer good.
    Token,
    /// It may have happened, and this member may be in trouble.
    Uncertain,
    /// The cluster has spoken.
    Final,
}

/// What etcd says, word for word after `etcdserver: `; by these and not by the codes they are told apart, as etcd
/// sends some of them with the code for the unknown.
mod said {
    pub(super) const NO_LEADER: &str = "no leader";
    pub(super) const ELSEWHERE: [&str; 5] = [
        "too many requests",
        "not capable",
        "rpc not supported for learner",
        "raft proposal dropped",
        "not a primary lessor",
    ];
    /// The token is unknown, or older than the last change of users and roles; or there is none and one is needed.
    pub(super) const TOKEN: [&str; 3] =
        ["invalid auth token", "revision of auth store is old", "user name is empty"];
    pub(super) const DENIED: [&str; 2] =
        ["permission denied", "authentication failed, invalid user ID or password"];
    pub(super) const COMPACTED: &str = "mvcc: required revision has been compacted";
    pub(super) const NO_SPACE: &str = "mvcc: database space exceeded";
    pub(super) const NO_LEASE: &str = "requested lease not found";
    pub(super) const TOO_LARGE: [&str; 2] = ["request is too large", "too many operations in txn request"];
    pub(super) const REFUSED: [&str; 2] = ["corrupt cluster", "mvcc: watcher range is empty"];
    pub(super) const NO_AUTH: &str = "authentication is not enabled";
    /// Says gRPC, not etcd, before it reads the message.
    pub(super) const MESSAGE_TOO_LARGE: &str = "received message larger than max";
}

impl Failure {
    /// The error in the trailers, or in the headers of an answer that is nothing but one.
    pub(crate) fn in_trailers(trailers: &HeaderMap) -> Option<Self> {
        let status = trailers.get("grpc-status")?;
        let Some(code) = status.to_str().ok().and_then(|code| code.parse::<u32>().ok()) else {
            return Some(Failure::Unanswered(format!("grpc-status {status:?}")));
        };
        let message = trailers.get("grpc-message").map(|message| percent_decoded(message.as_bytes()));
        match Code::from(code) {
            Code::Ok => None,
            code => Some(Failure::Answered { code, message: message.unwrap_or_default() }),
        }
    }

    /// What the reason of a cancelled watch says, which is an error as Go prints one.
    pub(crate) fn in_reason(reason: &str) -> Self {
        let message = reason.rsplit_once("desc = ").map_or(reason, |(_, message)| message);
        Failure::Answered { code: Code::Other(2), message: message.to_owned() }
    }

    /// Of a connection that could not be made or used, before anything was sent.
    pub(crate) fn before_sending(error: &(dyn StdError + 'static)) -> Self {
        let told = in_full(error);
        if is_distrust(error) { Failure::Distrusted(told) } else { Failure::Unsent(told) }
    }

    /// Of a connection that broke after something was sent.
    pub(crate) fn after_sending(error: &(dyn StdError + 'static)) -> Self {
        let told = in_full(error);
        let refused = causes(error).filter_map(|cause| cause.downcast_ref::<h2::Error>());
        // By HTTP/2's rules a stream that is refused was not looked at.
        let mut refused = refused.filter(|error| error.is_remote() && error.is_reset());
        match refused.any(|error| error.reason() == Some(h2::Reason::REFUSED_STREAM)) {
            true => Failure::Unsent(told),
            false => Failure::Unanswered(told),
        }
    }

    /// Says who it was.
    pub(crate) fn at(endpoint: &Endpoint, failure: Self) -> Self {
        match failure {
            Failure::Unsent(why) => Failure::Unsent(format!("{endpoint}: {why}")),
            Failure::Distrusted(why) => Failure::Distrusted(format!("{endpoint}: {why}")),
            other => other,
        }
    }

    fn words(&self) -> &str {
        match self {
            Failure::Answered { message, .. } => message.strip_prefix("etcdserver: ").unwrap_or(message),
            _ => "",
        }
    }

    pub(crate) fn says_auth_is_off(&self) -> bool {
        self.words() == said::NO_AUTH
    }

    pub(crate) fn meaning(&self) -> Meaning {
        let words = self.words();
        match self {
            Failure::Unsent(_) | Failure::Distrusted(_) => Meaning::Elsewhere,
            Failure::Unanswered(_) => Meaning::Uncertain,
            _ if words == said::NO_LEADER => Meaning::NoLeader,
            _ if said::ELSEWHERE.contains(&words) => Meaning::Elsewhere,
            _ if said::TOKEN.contains(&words) => Meaning::Token,
            _ if matches!(self.error(), Error::Uncertain(_)) => Meaning::Uncertain,
            _ => Meaning::Final,
        }
    }

    /// What the caller is told.
    pub(crate) fn error(&self) -> Error {
        let words = self.words();
        let owned = || words.to_owned();
        match self {
            Failure::Unsent(why) => Error::Unreachable(why.clone()),
            Failure::Distrusted(why) => Error::Denied(why.clone()),
            Failure::Unanswered(why) => Error::Uncertain(why.clone()),
            Failure::Answered { code, .. } => match words {
                said::NO_LEADER => Error::Unreachable(owned()),
                said::COMPACTED => Error::Compacted(0),
                said::NO_SPACE => Error::NoSpace(owned()),
                said::NO_LEASE => Error::LeaseGone,
                _ if said::REFUSED.contains(&words) => Error::Refused(owned()),
                _ if said::ELSEWHERE.contains(&words) => Error::Unreachable(owned()),
                _ if said::TOKEN.contains(&words) || said::DENIED.contains(&words) => Error::Denied(owned()),
                _ if said::TOO_LARGE.contains(&words) => Error::TooLarge(owned()),
                _ if words.contains(said::MESSAGE_TOO_LARGE) => Error::TooLarge(owned()),
                _ => by_code(*code, owned()),
            },
        }
    }
}

/// Of words that are not known. Only codes that etcd gives to requests which it did not try are taken for that.
fn by_code(code: Code, words: String) -> Error {
    match code {
        Code::PermissionDenied | Code::Unauthenticated => Error::Denied(words),
        Code::InvalidArgument
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented => Error::Refused(words),
        Code::Ok | Code::ResourceExhausted | Code::Other(_) => Error::Uncertain(words),
    }
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| {
        // An `io::Error` shows the source of what it wraps, not what it wraps.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        wrapped.map(|wrapped| wrapped as &(dyn StdError + 'static)).or_else(|| error.source())
    })
}

fn is_distrust(error: &(dyn StdError + 'static)) -> bool {
    causes(error).filter_map(|cause| cause.downcast_ref()).any(|error| match error {
        rustls::Error::InvalidCertificate(_) => true,
        rustls::Error::AlertReceived(alert) => ends_handshake(*alert),
        _ => false,
    })
}

/// What a server says of the certificate that it was shown, before it reads anything else.
fn ends_handshake(alert: rustls::AlertDescription) -> bool {
    use rustls::AlertDescription as Alert;
    matches!(
        alert,
        Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::CertificateRequired
    )
}

/// An error with its causes, each said once.
fn in_full(error: &(dyn StdError + 'static)) -> String {
    let mut told = String::new();
    for cause in causes(error).map(ToString::to_string) {
        if !told.contains(&cause) {
            told = if told.is_empty() { cause } else { format!("{told}: {cause}") };
        }
    }
    told
}

fn percent_decoded(text: &[u8]) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let hex = |bytes: &[u8]| u8::from_str_radix(std::str::from_utf8(bytes).ok()?, 16).ok();
        match after.get(..2).filter(|_| *first == b'%').and_then(hex) {
            Some(byte) => {
                decoded.push(byte);
                rest = &after[2..];
            }
            None => {
                decoded.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: u32, message: &str) -> Failure {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", code.into());
        trailers.insert("grpc-message", message.parse().expect("a header"));
        Failure::in_trailers(&trailers).expect("a failure")
    }

    /// Whether it can have had an effect is what decides between these; the words are those of etcd 3.4 to 3.6.
    #[test]
    fn what_etcd_says_is_told_apart_by_its_effect() {
        let table: &[(u32, &str, &str, Meaning)] = &[
            (14, "etcdserver: no leader", "Unreachable", Meaning::NoLeader),
            (2, "etcdserver: too many requests", "Unreachable", Meaning::Elsewhere),
            (2, "raft proposal dropped", "Unreachable", Meaning::Elsewhere),
            (9, "etcdserver: not capable", "Unreachable", Meaning::Elsewhere),
            (9, "etcdserver: rpc not supported for learner", "Unreachable", Meaning::Elsewhere),
            (2, "not a primary lessor", "Unreachable", Meaning::Elsewhere),
            (14, "etcdserver: request timed out", "Uncertain", Meaning::Uncertain),
            (
                14,
                "etcdserver: request timed out, possibly due to previous leader failure",
                "Uncertain",
                Meaning::Uncertain,
            ),
            (14, "etcdserver: leader changed", "Uncertain", Meaning::Uncertain),
            (14, "etcdserver: server stopped", "Uncertain", Meaning::Uncertain),
            (14, "the connection is draining", "Uncertain", Meaning::Uncertain),
            (4, "context deadline exceeded", "Uncertain", Meaning::Uncertain),
            (1, "context canceled", "Uncertain", Meaning::Uncertain),
            (2, "something new", "Uncertain", Meaning::Uncertain),
            (8, "something new", "Uncertain", Meaning::Uncertain),
            (13, "something new", "Uncertain", Meaning::Uncertain),
            (11, "etcdserver: mvcc: required revision has been compacted", "Compacted", Meaning::Final),
            (11, "etcdserver: mvcc: required revision is a future revision", "Refused", Meaning::Final),
            (5, "etcdserver: requested lease not found", "LeaseGone", Meaning::Final),
            (3, "etcdserver: request is too large", "TooLarge", Meaning::Final),
            (3, "etcdserver: too many operations in txn request", "TooLarge", Meaning::Final),
            (8, "grpc: received message larger than max (3 vs. 2)", "TooLarge", Meaning::Final),
            (8, "grpc: trying to send message larger than max (3 vs. 2)", "Uncertain", Meaning::Uncertain),
            (8, "etcdserver: mvcc: database space exceeded", "NoSpace", Meaning::Final),
            (3, "etcdserver: duplicate key given in txn request", "Refused", Meaning::Final),
            (3, "etcdserver: key is not provided", "Refused", Meaning::Final),
            (15, "etcdserver: corrupt cluster", "Refused", Meaning::Final),
            (7, "etcdserver: permission denied", "Denied", Meaning::Final),
            (3, "etcdserver: authentication failed, invalid user ID or password", "Denied", Meaning::Final),
            (16, "etcdserver: invalid auth token", "Denied", Meaning::Token),
            (3, "etcdserver: revision of auth store is old", "Denied", Meaning::Token),
            (3, "etcdserver: user name is empty", "Denied", Meaning::Token),
        ];
        for (code, message, error, meaning) in table {
            let failure = answered(*code, message);
            let name = format!("{:?}", failure.error());
            assert!(name.starts_with(error), "{message}: {name}");
            assert_eq!(failure.meaning(), *meaning, "{message}");
        }
    }

    #[test]
    fn only_a_status_of_zero_is_none_of_an_error() {
        let of = |status: &'static str| {
            Failure::in_trailers(&HeaderMap::from_iter([(
                "grpc-status".parse().expect("a name"),
                status.parse().expect("a value"),
            )]))
        };
        assert!(of("0").is_none());
        for wrong in ["", "x", "-1", "99999999999"] {
            assert!(matches!(of(wrong), Some(Failure::Unanswered(_))), "{wrong}");
        }
    }

    #[test]
    fn a_cancelled_watch_says_the_same_as_a_failed_call() {
        let told =
            Failure::in_reason("rpc error: code = PermissionDenied desc = etcdserver: permission denied");
        assert!(matches!(told.error(), Error::Denied(_)), "{told:?}");
        let told = Failure::in_reason("etcdserver: invalid auth token");
        assert_eq!(told.meaning(), Meaning::Token);
    }

    #[test]
    fn messages_are_percent_decoded_and_never_refused() {
        for (encoded, decoded) in [("a%20b", "a b"), ("100%", "100%"), ("%zz%4", "%zz%4"), ("%C3%A4", "ä")] {
            assert_eq!(percent_decoded(encoded.as_bytes()), decoded);
        }
    }
}
