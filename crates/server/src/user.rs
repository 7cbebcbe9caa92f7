//! Who is asking: client certificates, anonymous, and acting as another.

use std::{collections::BTreeMap, sync::Arc};

use http::HeaderMap;
use machinery::status::{Reason, Status};
use percent_encoding::percent_decode_str;

pub const MASTERS: &str = "system:masters";
pub const AUTHENTICATED: &str = "system:authenticated";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

/// An identity. Certificate users are global names; each workspace's RBAC decides what they may do there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    pub fn anonymous() -> User {
        User { name: "system:anonymous".into(), groups: vec![UNAUTHENTICATED.into()], ..User::default() }
    }

    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|name| name == group)
    }

    /// The identity in a verified client certificate: common name and organizations.
    pub fn from_certificate(der: &[u8]) -> Option<User> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let mut groups: Vec<String> =
            subject.iter_organization().filter_map(|it| it.as_str().ok()).map(str::to_owned).collect();
        groups.push(AUTHENTICATED.into());
        (!name.is_empty()).then(|| User { name, groups, ..User::default() })
    }

    /// Namespace and name, if this is a service account.
    pub fn service_account(name: &str) -> Option<(&str, &str)> {
        name.strip_prefix("system:serviceaccount:")?.split_once(':')
    }
}

/// The connection's own identity, unless the request brings credentials that are not accepted.
pub fn authenticate(connection: Option<&Arc<User>>, headers: &HeaderMap) -> Result<Arc<User>, Status> {
    if let Some(user) = connection {
        return Ok(user.clone());
    }
    if headers.contains_key(http::header::AUTHORIZATION) {
        return Err(Status::new(Reason::Unauthorized, "Unauthorized"));
    }
    Ok(Arc::new(User::anonymous()))
}

/// Whom the request wants to act as; `None` if it does not.
pub fn impersonated(headers: &HeaderMap) -> Result<Option<User>, Status> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = text("impersonate-user").to_owned();
    let uid = text("impersonate-uid").to_owned();
    let mut groups: Vec<String> = headers
        .get_all("impersonate-group")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .map(str::to_owned)
        .collect();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (header, value) in headers {
        let Some(key) = header.as_str().strip_prefix("impersonate-extra-") else { continue };
        let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
        extra.entry(key).or_default().push(value.to_str().unwrap_or_default().to_owned());
    }
    if name.is_empty() {
        if groups.is_empty() && uid.is_empty() && extra.is_empty() {
            return Ok(None);
        }
        return Err(Status::internal(
            "requested impersonation without impersonating a user: the header Impersonate-User is needed",
        ));
    }
    if groups.is_empty()
        && let Some((namespace, _)) = User::service_account(&name)
    {
        groups.push("system:serviceaccounts".into());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    let marker = if name == "system:anonymous" { UNAUTHENTICATED } else { AUTHENTICATED };
    if !groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED) {
        groups.push(marker.into());
    }
    Ok(Some(User { name, uid, groups, extra }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(rows: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in rows {
            headers.append(*name, http::HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_service_account_brings_its_groups() {
        let user = impersonated(&headers(&[("impersonate-user", "system:serviceaccount:ns:sa")])).unwrap().unwrap();
        assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", AUTHENTICATED]);
    }

    #[test]
    fn groups_and_extras_need_a_user() {
        assert_eq!(impersonated(&headers(&[])).unwrap(), None);
        assert_eq!(impersonated(&headers(&[("impersonate-group", "g")])).unwrap_err().code(), 500);
        let user = impersonated(&headers(&[
            ("impersonate-user", "u"),
            ("impersonate-extra-example.com%2fscope", "a"),
            ("impersonate-extra-example.com%2fscope", "b"),
        ]));
        let user = user.unwrap().unwrap();
        assert_eq!(user.extra["example.com/scope"], ["a", "b"]);
    }

    #[test]
    fn a_token_without_an_issuer_is_refused() {
        let bearer = headers(&[("authorization", "Bearer nonsense")]);
        assert_eq!(authenticate(None, &bearer).unwrap_err().code(), 401);
        assert_eq!(authenticate(None, &headers(&[])).unwrap().name, "system:anonymous");
    }
}
