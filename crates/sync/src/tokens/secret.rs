//! The Secret with an account's token, as a member has it.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use compact_str::CompactString;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::policy::{AUTHORITY, NAMESPACE, SECRET_PREFIX, TOKEN};
use crate::MANAGER;

/// On Secrets with tokens, a label: whoever keeps them finds them by it.
pub const LABEL: &str = "hanse.io/token";
/// Annotations: what the content was made from but the time, and the time.
pub const MARK: &str = "hanse.io/token-mark";
pub const ISSUED: &str = "hanse.io/token-issued";

/// How long a token is good. A session may be cut off from its member for the half of it, and no pod loses its way.
pub const LIFETIME: Duration = Duration::from_secs(48 * 60 * 60);
/// At this age another takes its place.
pub const RENEWED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// What is from a later time than that is of a clock that went wrong.
const CLOCKS_DIFFER: i64 = 300;

/// All that a token and what comes with it depends on.
#[derive(Debug)]
pub struct Basis<'a> {
    /// The name and identity of the workspace.
    pub workspace: (&'a str, &'a str),
    /// As it is called there.
    pub namespace: &'a str,
    pub account: &'a str,
    pub account_uid: &'a str,
    /// The virtual node that the token is bound to, if any.
    pub node_uid: &'a str,
    /// The key that signs.
    pub key_id: &'a str,
    pub authority: &'a str,
}

impl Basis<'_> {
    pub fn mark(&self) -> String {
        let Basis { workspace, namespace, account, account_uid, node_uid, key_id, authority } = self;
        let parts = [workspace.0, workspace.1, namespace, account, account_uid, node_uid, key_id, authority];
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The Secret with `token`, which was issued at `now`.
    pub fn secret(&self, token: &str, now: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": name(self.account),
                "labels": {"app.kubernetes.io/managed-by": MANAGER, LABEL: "true"},
                "annotations": {
                    api::SOURCE_ANNOTATION: self.account_uid, MARK: self.mark(), ISSUED: now,
                },
            },
            "data": {
                TOKEN: STANDARD.encode(token),
                AUTHORITY: STANDARD.encode(self.authority),
                NAMESPACE: STANDARD.encode(self.namespace),
            },
        })
    }
}

pub fn name(account: &str) -> String {
    format!("{SECRET_PREFIX}{account}")
}

/// A Secret that Hanse made in a member, as far as it is known: what is in it is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub uid: String,
    /// The UID of the account.
    pub source: String,
    mark: String,
    /// `None`: it does not say.
    issued: Option<i64>,
}

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: CompactString,
    #[serde(default)]
    namespace: CompactString,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    annotations: std::collections::HashMap<String, String>,
}

impl Kept {
    /// Namespace, account, and what is known.
    pub fn read(object: &[u8]) -> Option<((CompactString, CompactString), Kept)> {
        let Wire { mut metadata } = serde_json::from_slice(object).ok()?;
        let account = metadata.name.strip_prefix(SECRET_PREFIX)?;
        let mut note = |key: &str| metadata.annotations.remove(key).unwrap_or_default();
        let kept = Kept {
            source: note(api::SOURCE_ANNOTATION),
            mark: note(MARK),
            issued: note(ISSUED).parse::<Timestamp>().ok().map(Timestamp::as_second),
            uid: metadata.uid,
        };
        Some(((metadata.namespace, account.into()), kept))
    }

    /// Whether it holds what it is to hold, for long enough.
    pub fn is_good(&self, mark: &str, now: Timestamp) -> bool {
        self.mark == mark && !self.is_due(now)
    }

    pub fn is_due(&self, now: Timestamp) -> bool {
        self.rests(now).is_zero()
    }

    /// How long until another takes its place.
    pub fn rests(&self, now: Timestamp) -> Duration {
        let Some(issued) = self.issued else { return Duration::ZERO };
        let age = now.as_second().saturating_sub(issued);
        match u64::try_from(age) {
            Ok(age) => RENEWED_AFTER.saturating_sub(Duration::from_secs(age)),
            Err(_) if age > -CLOCKS_DIFFER => RENEWED_AFTER,
            Err(_) => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basis() -> Basis<'static> {
        Basis {
            workspace: ("w", "id"),
            namespace: "team",
            account: "robot",
            account_uid: "u1",
            node_uid: "",
            key_id: "k1",
            authority: "PEM",
        }
    }

    fn read(secret: &Value) -> Kept {
        let mut secret = secret.clone();
        secret["metadata"]["uid"] = json!("s1");
        secret["metadata"]["namespace"] = json!("there");
        let ((namespace, account), kept) = Kept::read(secret.to_string().as_bytes()).unwrap();
        assert_eq!((namespace.as_str(), account.as_str()), ("there", "robot"));
        kept
    }

    #[test]
    fn whatever_it_was_made_from_changes_it_is_not_good_any_more() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let secret = basis().secret("a.b.c", "2026-01-01T00:00:00Z");
        assert_eq!(secret["data"]["namespace"], STANDARD.encode("team"));
        let kept = read(&secret);
        assert!(kept.is_good(&basis().mark(), now));
        for other in [
            Basis { workspace: ("w", "id2"), ..basis() },
            Basis { namespace: "t", ..basis() },
            Basis { account_uid: "u2", ..basis() },
            Basis { node_uid: "n", ..basis() },
            Basis { key_id: "k2", ..basis() },
            Basis { authority: "other", ..basis() },
        ] {
            assert!(!kept.is_good(&other.mark(), now), "{other:?}");
        }
    }

    #[test]
    fn it_is_renewed_when_half_of_its_life_is_over() {
        let kept = read(&basis().secret("t", "2026-01-01T00:00:00Z"));
        for (now, rests) in [
            ("2026-01-01T00:00:00Z", RENEWED_AFTER),
            ("2026-01-01T23:59:59Z", Duration::from_secs(1)),
            ("2026-01-02T00:00:00Z", Duration::ZERO),
            ("2027-01-01T00:00:00Z", Duration::ZERO),
            ("2025-12-31T23:59:00Z", RENEWED_AFTER),
            ("2025-12-01T00:00:00Z", Duration::ZERO),
        ] {
            assert_eq!(kept.rests(now.parse().unwrap()), rests, "{now}");
        }
        assert!(RENEWED_AFTER * 2 <= LIFETIME);
    }

    #[test]
    fn what_is_no_such_secret_is_not_read() {
        for text in ["", "{}", r#"{"metadata":{"name":"other"}}"#, r#"{"metadata":{"name":7}}"#] {
            assert_eq!(Kept::read(text.as_bytes()), None, "{text}");
        }
        let bare = r#"{"metadata":{"name":"hanse-token-a","namespace":"n","uid":"u"}}"#;
        let (_, kept) = Kept::read(bare.as_bytes()).unwrap();
        assert!(kept.is_due(Timestamp::MIN) && kept.is_due(Timestamp::MAX));
    }
}
