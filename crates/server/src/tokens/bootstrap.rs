//! Tokens with which a node or a cluster introduces itself: `<id>.<secret>`, kept in a secret of `kube-system`.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use machinery::resource::Tree;
use serde_json::Value;
use store::Key;

use crate::{
    authentication::{Authenticated, Claim},
    user::User,
    write::text,
};

pub const NAMESPACE: &str = "kube-system";
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";

pub fn verify(claim: &Claim<'_>) -> Option<Authenticated> {
    let (id, secret) = parts(claim.token)?;
    let object = claim.space.get(&Key::new("", "secrets", NAMESPACE, &format!("bootstrap-token-{id}")))?;
    if object.head.deleting {
        return None;
    }
    let tree = object.tree().ok()?;
    let user = user_of(&tree, id, secret, claim.hub.now())?;
    claim.for_the_api(user)
}

fn parts(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| text.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

fn data(tree: &Tree, key: &str) -> String {
    let encoded = tree.get("data").and_then(|data| data.get(key)).and_then(Value::as_str).unwrap_or_default();
    STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

fn user_of(secret: &Tree, id: &str, given: &str, now: Timestamp) -> Option<User> {
    let kept = data(secret, "token-secret");
    let equal = aws_lc_rs::constant_time::verify_slices_are_equal(kept.as_bytes(), given.as_bytes()).is_ok();
    let good = text(secret, "type") == SECRET_TYPE
        && equal
        && data(secret, "token-id") == id
        && !matches!(end(secret, now), End::Over)
        && data(secret, "usage-bootstrap-authentication") == "true";
    if !good {
        return None;
    }
    let mut groups = BTreeSet::from([GROUP.to_owned()]);
    let extra = data(secret, "auth-extra-groups");
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        groups.insert(is_group(group).then(|| group.to_owned())?);
    }
    let groups = groups.into_iter().collect();
    Some(User { name: format!("system:bootstrap:{id}"), groups, ..User::default() })
}

fn is_group(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("system:bootstrappers:") else { return false };
    let plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    rest.len() <= 256
        && rest.bytes().all(|it| plain(it) || matches!(it, b':' | b'-'))
        && rest.bytes().last().is_some_and(plain)
}

/// When a bootstrap token ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Never,
    At(Timestamp),
    Over,
}

/// What cannot be read has ended, as upstream.
pub fn end(secret: &Tree, now: Timestamp) -> End {
    let text = data(secret, "expiration");
    if text.is_empty() {
        return End::Never;
    }
    match text.parse::<Timestamp>() {
        Ok(time) if time > now => End::At(time),
        _ => End::Over,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn mk_secret(changes: &[(&str, &str)]) -> Tree {
        let mut data: BTreeMap<&str, String> = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ]
        .map(|(key, value)| (key, STANDARD.encode(value)))
        .into();
        data.extend(changes.iter().map(|(key, value)| (*key, STANDARD.encode(value))));
        let tree = json!({"type": SECRET_TYPE, "data": data});
        tree.as_object().unwrap().clone()
    }

    #[test]
    fn a_token_is_good_while_its_secret_says_so() {
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let try_with =
            |changes: &[(&str, &str)]| user_of(&mk_secret(changes), "abcdef", "0123456789abcdef", now);
        let user =
            try_with(&[("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a")]).unwrap();
        assert_eq!(user.name, "system:bootstrap:abcdef");
        assert_eq!(user.groups, [GROUP, "system:bootstrappers:a", "system:bootstrappers:b"]);
        assert!(try_with(&[("expiration", "2030-01-01T00:00:01Z")]).is_some());
        for bad in [
            ("expiration", "2030-01-01T00:00:00Z"),
            ("expiration", "tomorrow"),
            ("token-id", "fedcba"),
            ("token-secret", "0123456789abcdee"),
            ("token-secret", ""),
            ("usage-bootstrap-authentication", "false"),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:"),
            ("auth-extra-groups", "system:bootstrappers:a,"),
        ] {
            assert_eq!(try_with(&[bad]), None, "{bad:?}");
        }
    }

    #[test]
    fn a_bootstrap_token_has_its_form() {
        assert_eq!(parts("abcdef.0123456789abcdef"), Some(("abcdef", "0123456789abcdef")));
        for bad in
            ["", "abcdef", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcde", "abcdef.0123456789abcdef.x"]
        {
            assert_eq!(parts(bad), None, "{bad}");
        }
    }
}
