//! What a token says of its bearer, and whether that is still so.

use std::collections::BTreeMap;

use jiff::Timestamp;
use machinery::{Object, resource::Tree};
use serde_json::{Map, Value, json};
use store::Key;

use super::{CREDENTIAL_ID, legacy};
use crate::{hub::Hub, space::Space, user::User};

/// Clocks differ; upstream forgives as many seconds.
const LEEWAY: i64 = 60;

/// A thing that a token names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    pub name: String,
    pub uid: String,
}

impl Named {
    pub fn of(object: &Object) -> Named {
        Named { name: object.head.name.to_string(), uid: object.head.uid.to_string() }
    }

    fn read(value: &Value) -> Option<Named> {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        value.is_object().then(|| Named { name: text("name"), uid: text("uid") })
    }

    fn to_json(&self) -> Value {
        let members = [("name", &self.name), ("uid", &self.uid)];
        let given = members.into_iter().filter(|(_, text)| !text.is_empty());
        given.map(|(key, text)| (key.to_owned(), json!(text))).collect::<Map<_, _>>().into()
    }
}

/// What a token is bound to: it is good for as long as that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    pub pod: Option<Named>,
    pub secret: Option<Named>,
    pub node: Option<Named>,
}

/// The claims of a token that is signed.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    pub subject: String,
    pub audiences: Vec<String>,
    pub id: String,
    expires: Option<i64>,
    not_before: Option<i64>,
    issued: Option<i64>,
    namespace: String,
    account: Named,
    bound: Bound,
    warn_after: Option<i64>,
    /// Those that only tokens in secrets have.
    pub of_secret: Tree,
}

/// What goes into a new token.
pub struct New<'a> {
    pub issuer: &'a str,
    pub namespace: &'a str,
    pub account: Named,
    pub bound: Bound,
    pub audiences: &'a [String],
    pub now: Timestamp,
    pub seconds: i64,
    /// After so many seconds its use is counted as stale.
    pub warn_after: Option<i64>,
    pub id: &'a str,
}

impl New<'_> {
    pub fn to_json(&self) -> Value {
        let now = self.now.as_second();
        let mut own = json!({"namespace": self.namespace, "serviceaccount": self.account.to_json()});
        let bound = [("pod", &self.bound.pod), ("secret", &self.bound.secret), ("node", &self.bound.node)];
        for (key, named) in bound {
            if let Some(named) = named {
                own[key] = named.to_json();
            }
        }
        if let Some(seconds) = self.warn_after {
            own["warnafter"] = json!(now.saturating_add(seconds));
        }
        json!({
            "iss": self.issuer,
            "sub": subject(self.namespace, &self.account.name),
            "aud": self.audiences,
            "exp": now.saturating_add(self.seconds),
            "nbf": now,
            "iat": now,
            "jti": self.id,
            "kubernetes.io": own,
        })
    }
}

pub fn subject(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

impl Claims {
    pub fn read(payload: &Tree) -> Result<Claims, String> {
        let text = |key: &str| payload.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let date = |value: Option<&Value>| match value {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value
                .as_i64()
                .or_else(|| value.as_f64().map(|seconds| seconds as i64))
                .map(Some)
                .ok_or("go-jose/go-jose/jwt: expected number value to unmarshal NumericDate"),
        };
        let audiences = match payload.get("aud") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(several)) => several
                .iter()
                .map(|it| it.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
                .ok_or("go-jose/go-jose/jwt: expected string or array value to unmarshal to Audience")?,
            Some(_) => {
                return Err(
                    "go-jose/go-jose/jwt: expected string or array value to unmarshal to Audience".into()
                );
            }
        };
        let null = Value::Null;
        let own = payload.get("kubernetes.io").unwrap_or(&null);
        let bound = Bound {
            pod: Named::read(&own["pod"]),
            secret: Named::read(&own["secret"]),
            node: Named::read(&own["node"]),
        };
        Ok(Claims {
            subject: text("sub"),
            audiences,
            id: text("jti"),
            expires: date(payload.get("exp"))?,
            not_before: date(payload.get("nbf"))?,
            issued: date(payload.get("iat"))?,
            namespace: own["namespace"].as_str().unwrap_or_default().to_owned(),
            account: Named::read(&own["serviceaccount"]).unwrap_or_default(),
            bound,
            warn_after: date(own.get("warnafter"))?.filter(|seconds| *seconds != 0),
            of_secret: payload
                .iter()
                .filter(|(key, _)| key.starts_with(legacy::CLAIM))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        })
    }

    fn check_times(&self, now: i64) -> Result<(), &'static str> {
        if self.not_before.is_some_and(|time| now.saturating_add(LEEWAY) < time) {
            return Err("service account token is not valid yet");
        }
        // A token ends with the second it names.
        if self.expires.is_some_and(|time| now.saturating_sub(LEEWAY) > time) {
            return Err("service account token has expired");
        }
        if self.issued.is_some_and(|time| now.saturating_add(LEEWAY) < time) {
            return Err("service account token is issued in the future");
        }
        Ok(())
    }
}

const INVALIDATED: &str = "service account token has been invalidated";

/// Who bears a token whose signature is good: now, with all it is bound to still there.
pub fn validate(hub: &Hub, space: &Space, claims: &Claims) -> Result<User, String> {
    let now = hub.now().as_second();
    claims.check_times(now)?;
    let Claims { namespace, account, bound, .. } = claims;
    let key = Key::new("", "serviceaccounts", namespace, &account.name);
    let found = space.get(&key).ok_or_else(|| format!("serviceaccounts {:?} not found", account.name))?;
    if found.head.uid != account.uid {
        return Err(format!(
            "service account UID ({}) does not match claim ({})",
            found.head.uid, account.uid
        ));
    }
    if is_long_deleted(&found, now) {
        return Err(format!("service account {namespace}/{} has been deleted", account.name));
    }
    if let Some(secret) = &bound.secret {
        still_there(space, ("secrets", "secret", "secret"), namespace, secret, now)?;
    }
    if let Some(pod) = &bound.pod {
        still_there(space, ("pods", "pod", "pod"), namespace, pod, now)?;
    } else if let Some(node) = &bound.node {
        still_there(space, ("nodes", "node", "node"), "", node, now)?;
    }
    match claims.warn_after {
        Some(seconds) if now > seconds => {
            hub.metrics.tokens.stale.inc();
        }
        Some(_) => {
            hub.metrics.tokens.fresh.inc();
        }
        None => {}
    }
    let mut user = user_of(namespace, &account.name, &account.uid);
    user.extra = extra(&claims.id, bound);
    Ok(user)
}

/// `kind`: the resource, and what it is called in two messages.
fn still_there(
    space: &Space,
    kind: (&str, &str, &str),
    namespace: &str,
    named: &Named,
    now: i64,
) -> Result<(), String> {
    let (resource, what, claim) = kind;
    let object = space.get(&Key::new("", resource, namespace, &named.name)).ok_or(INVALIDATED)?;
    if object.head.uid != named.uid {
        return Err(format!(
            "{what} UID ({}) does not match service account {claim} ref claim ({})",
            object.head.uid, named.uid
        ));
    }
    match is_long_deleted(&object, now) {
        true => Err(INVALIDATED.into()),
        false => Ok(()),
    }
}

/// Its deletion was to be done longer ago than clocks may differ.
fn is_long_deleted(object: &Object, now: i64) -> bool {
    if !object.head.deleting {
        return false;
    }
    let tree = object.tree().unwrap_or_default();
    let time = tree.get("metadata").and_then(|metadata| metadata.get("deletionTimestamp"));
    let time = time.and_then(Value::as_str).and_then(|text| text.parse::<Timestamp>().ok());
    time.is_none_or(|time| time.as_second() < now.saturating_sub(LEEWAY))
}

pub fn user_of(namespace: &str, name: &str, uid: &str) -> User {
    User {
        name: subject(namespace, name),
        uid: uid.to_owned(),
        groups: vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")],
        ..User::default()
    }
}

fn extra(id: &str, bound: &Bound) -> BTreeMap<String, Vec<String>> {
    let mut extra = BTreeMap::new();
    let mut put = |key: &str, value: String| {
        extra.insert(key.to_owned(), vec![value]);
    };
    if !id.is_empty() {
        put(CREDENTIAL_ID, format!("JTI={id}"));
    }
    if let Some(pod) = bound.pod.as_ref().filter(|it| !it.name.is_empty() && !it.uid.is_empty()) {
        put("authentication.kubernetes.io/pod-name", pod.name.clone());
        put("authentication.kubernetes.io/pod-uid", pod.uid.clone());
    }
    if let Some(node) = bound.node.as_ref().filter(|it| !it.name.is_empty()) {
        put("authentication.kubernetes.io/node-name", node.name.clone());
        if !node.uid.is_empty() {
            put("authentication.kubernetes.io/node-uid", node.uid.clone());
        }
    }
    extra
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Claims {
        Claims::read(value.as_object().unwrap()).unwrap()
    }

    #[test]
    fn times_are_forgiven_a_minute() {
        let claims = read(json!({"nbf": 1000, "iat": 1000, "exp": 2000}));
        for (now, expected) in [
            (939, Err("service account token is not valid yet")),
            (940, Ok(())),
            (2060, Ok(())),
            (2061, Err("service account token has expired")),
        ] {
            assert_eq!(claims.check_times(now), expected, "{now}");
        }
        let future = read(json!({"iat": 5000}));
        assert_eq!(future.check_times(1000), Err("service account token is issued in the future"));
        assert_eq!(read(json!({"exp": i64::MIN})).check_times(i64::MIN), Ok(()));
    }

    #[test]
    fn only_what_is_needed_is_kept() {
        let claims = json!({"x": "long", "aud": ["a"], "kubernetes.io/serviceaccount/namespace": "n"});
        let kept = json!({"kubernetes.io/serviceaccount/namespace": "n"});
        assert_eq!(Value::Object(read(claims).of_secret), kept);
    }

    #[test]
    fn an_audience_is_one_or_several() {
        assert_eq!(read(json!({"aud": "a"})).audiences, ["a"]);
        assert_eq!(read(json!({"aud": ["a", "b"]})).audiences, ["a", "b"]);
        assert!(Claims::read(json!({"aud": 1}).as_object().unwrap()).is_err());
        assert!(Claims::read(json!({"aud": [1]}).as_object().unwrap()).is_err());
        assert!(Claims::read(json!({"exp": "soon"}).as_object().unwrap()).is_err());
    }
}
