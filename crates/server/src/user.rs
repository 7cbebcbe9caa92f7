//! Identities: those in client certificates, nobody in particular, and acting as another.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue};
use machinery::{resource::Author, status::Status};
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};
use x509_parser::{asn1_rs::Oid, certificate::X509Certificate, x509::X509Name};

/// Kubernetes' attribute for a user's UID in a certificate's subject.
const UID_ATTRIBUTE: [u64; 8] = [1, 3, 6, 1, 4, 1, 57683, 2];

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
    /// It is this hub itself, from inside its process. No certificate, token or header makes anybody that.
    pub is_hub: bool,
}

impl User {
    /// The hub, in one of its parts. It may do everything, also what no role allows.
    pub fn hub(name: &str) -> User {
        User { name: name.to_owned(), groups: vec![MASTERS.into()], is_hub: true, ..User::default() }
    }

    pub fn anonymous() -> User {
        User { name: "system:anonymous".into(), groups: vec![UNAUTHENTICATED.into()], ..User::default() }
    }

    pub fn as_author(&self) -> Author<'_> {
        Author { name: &self.name, uid: &self.uid, groups: &self.groups, extra: &self.extra }
    }

    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|name| name == group)
    }

    /// The identity in a client certificate: common name, organizations and, if it has one, UID. `None` if it names
    /// nobody.
    pub fn from_certificate(der: &[u8], certificate: &X509Certificate<'_>) -> Result<Option<User>, String> {
        let subject = certificate.subject();
        // Of several names the last counts.
        let name = subject.iter_common_name().filter_map(|it| it.as_str().ok()).last().unwrap_or_default();
        if name.is_empty() {
            return Ok(None);
        }
        let uid = uid_of(subject)?;
        let mut groups: Vec<String> =
            subject.iter_organization().filter_map(|it| it.as_str().ok()).map(str::to_owned).collect();
        groups.push(AUTHENTICATED.into());
        let digest: String = Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect();
        let credential =
            ("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("X509SHA256={digest}")]);
        Ok(Some(User { name: name.to_owned(), uid, groups, extra: [credential].into(), is_hub: false }))
    }

    /// Namespace and name, if this is a service account.
    pub fn service_account(name: &str) -> Option<(&str, &str)> {
        name.strip_prefix("system:serviceaccount:")?.split_once(':')
    }
}

fn uid_of(subject: &X509Name<'_>) -> Result<String, String> {
    let oid = Oid::from(&UID_ATTRIBUTE).map_err(|_| "no such attribute".to_owned())?;
    let mut uids = Vec::new();
    for attribute in subject.iter_by_oid(&oid) {
        uids.push(attribute.as_str().map_err(|_| "unable to parse UID into a string".to_owned())?);
    }
    match uids.as_slice() {
        [] => Ok(String::new()),
        [""] => Err("UID cannot be an empty string".to_owned()),
        [uid] => Ok((*uid).to_owned()),
        several => Err(format!("expected 1 UID, but found multiple: [{}]", several.join(" "))),
    }
}

/// Whom a request wants to act as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonated {
    pub user: User,
    /// The groups it asked for itself; the others follow from the name.
    pub asked_groups: Vec<String>,
}

/// `None` if it does not want to.
pub fn impersonated(headers: &HeaderMap) -> Result<Option<Impersonated>, Status> {
    let text = |name: &str| headers.get(name).map(utf8).transpose().map(Option::unwrap_or_default);
    let name = text("impersonate-user")?;
    let uid = text("impersonate-uid")?;
    let asked_groups =
        headers.get_all("impersonate-group").iter().map(utf8).collect::<Result<Vec<_>, _>>()?;
    let mut groups = asked_groups.clone();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (header, value) in headers {
        let Some(key) = header.as_str().strip_prefix("impersonate-extra-") else { continue };
        let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
        extra.entry(key).or_default().push(utf8(value)?);
    }
    if name.is_empty() {
        if groups.is_empty() && uid.is_empty() && extra.is_empty() {
            return Ok(None);
        }
        return Err(Status::bad_request(
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
    Ok(Some(Impersonated { user: User { name, uid, groups, extra, is_hub: false }, asked_groups }))
}

/// Go clients send names as UTF-8. What cannot be read must not be taken for absent: the request would run as its
/// sender.
fn utf8(value: &HeaderValue) -> Result<String, Status> {
    let text = std::str::from_utf8(value.as_bytes());
    text.map(str::to_owned).map_err(|_| Status::bad_request("an Impersonate header is not UTF-8"))
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
        let user = impersonated(&headers(&[("impersonate-user", "system:serviceaccount:ns:sa")]))
            .unwrap()
            .unwrap()
            .user;
        assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", AUTHENTICATED]);
    }

    #[test]
    fn groups_and_extras_need_a_user() {
        assert_eq!(impersonated(&headers(&[])).unwrap(), None);
        assert_eq!(impersonated(&headers(&[("impersonate-group", "g")])).unwrap_err().code(), 400);
        let user = impersonated(&headers(&[
            ("impersonate-user", "u"),
            ("impersonate-extra-example.com%2fscope", "a"),
            ("impersonate-extra-example.com%2fscope", "b"),
        ]));
        let user = user.unwrap().unwrap().user;
        assert_eq!(user.extra["example.com/scope"], ["a", "b"]);
    }
}
