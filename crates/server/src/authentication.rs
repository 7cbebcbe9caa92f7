//! Who is asking: every way to prove it, in one order.
//!
//! ```text
//!   the connection's certificate ──> bearer token ──> nobody in particular (anonymous)
//!                                        │
//!                      Way::ALL: each knows the token, or leaves it to the next, or says what is wrong with it
//! ```
//!
//! A token that nobody vouches for is refused; it never makes its sender anonymous. A request that comes with a
//! certificate pays for none of this.

use std::{borrow::Cow, sync::Arc};

use http::{HeaderMap, HeaderValue};
use machinery::status::{Reason, Status};

use crate::{
    hub::Hub,
    login::caller::{Caller, Identity},
    request::RequestInfo,
    space::Space,
    tokens::{self, bootstrap},
    user::{AUTHENTICATED, UNAUTHENTICATED, User},
};

/// What upstream says of a token that no way knows.
const NOBODYS: &str = "invalid bearer token";
const SPACE_BEFORE: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// Somebody whose token was found good.
#[derive(Clone, Debug)]
pub struct Authenticated {
    pub user: Arc<User>,
    /// Those of the wanted audiences that the token is for.
    pub audiences: Vec<String>,
    /// What the sender should be told.
    pub warnings: Vec<String>,
}

/// A token, and what it is to prove.
pub struct Claim<'a> {
    pub hub: &'a Arc<Hub>,
    /// The workspace that the token has to be good for.
    pub space: &'a Space,
    pub token: &'a str,
    /// Somebody who can be any of these wants to know: for a request, the API itself.
    pub wanted: &'a [String],
    /// What the API of this workspace is called as an audience.
    pub own: &'a [String],
}

impl Claim<'_> {
    /// The answer of a way whose tokens have no audience of their own: they are for the API, and for nobody else.
    /// `None` if somebody else asks.
    pub fn for_the_api(&self, user: User) -> Option<Authenticated> {
        let audiences: Vec<String> = self.wanted.iter().filter(|it| self.own.contains(it)).cloned().collect();
        let user = Arc::new(user);
        (self.wanted.is_empty() || !audiences.is_empty()).then(|| Authenticated {
            user,
            audiences,
            warnings: Vec::new(),
        })
    }
}

/// A kind of bearer token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Issued by the workspace itself.
    ServiceAccount,
    /// Kept in a secret of `kube-system`.
    Bootstrap,
    /// Of an issuer that the operator configured.
    Oidc,
}

impl Way {
    /// In the order they are asked: what is decided here first, what asks others last.
    const ALL: [Way; 3] = [Way::ServiceAccount, Way::Bootstrap, Way::Oidc];

    /// `None`: not a token of this kind. An error says why one of this kind is not good.
    async fn verify(self, claim: &Claim<'_>) -> Result<Option<Authenticated>, String> {
        match self {
            Way::ServiceAccount => tokens::verify(claim).await,
            Way::Bootstrap => Ok(bootstrap::verify(claim)),
            Way::Oidc => {
                let user = claim.hub.login.issuers().verify(claim.hub, claim.token).await?;
                Ok(user.and_then(|user| claim.for_the_api(user)))
            }
        }
    }
}

/// Who sent a request.
pub struct Asker {
    pub user: Arc<User>,
    /// The workspace in which that was verified: the request is about this one, and no other of the same name.
    pub space: Option<Space>,
    pub warnings: Vec<String>,
}

impl Asker {
    fn known(user: Arc<User>) -> Asker {
        Asker { user, space: None, warnings: Vec::new() }
    }
}

pub fn unauthorized() -> Status {
    Status::new(Reason::Unauthorized, "Unauthorized")
}

pub async fn authenticate(
    hub: &Arc<Hub>,
    connection: Option<&Arc<Caller>>,
    headers: &HeaderMap,
    info: &RequestInfo,
) -> Result<Asker, Status> {
    let named = info.workspace.as_deref();
    let certificate = match connection.map(AsRef::as_ref) {
        None => Ok(None),
        Some(Caller::Known(user)) => return Ok(Asker::known(user.clone())),
        Some(Caller::Certificate(presented)) => presented.identity(&hub.login, &hub.metrics.login),
    };
    let certificate = certificate.and_then(|found| match found {
        Some(identity) => by_certificate(hub, identity, named).map(Some),
        None => Ok(None),
    });
    let refused = match certificate {
        Ok(Some(asker)) => return Ok(asker),
        Ok(None) => false,
        Err(why) => {
            tracing::debug!(%why, "refused a certificate");
            true
        }
    };
    let bearer = bearer_token(headers);
    // A certificate that is not good never makes its sender anonymous.
    if !matches!(bearer, Bearer::Token(_)) && (refused || !hub.login.allows_anonymous(&info.path)) {
        return Err(unauthorized());
    }
    match bearer {
        Bearer::None => Ok(Asker::known(Arc::new(User::anonymous()))),
        Bearer::Spaced => {
            let warnings = vec![SPACE_BEFORE.to_owned()];
            Ok(Asker { user: Arc::new(User::anonymous()), space: None, warnings })
        }
        Bearer::Token(token) => {
            let asker = by_token(hub, &token, named).await;
            asker.ok_or_else(unauthorized)
        }
    }
}

/// A certificate that was signed in a workspace is good there alone.
fn by_certificate(hub: &Arc<Hub>, identity: &Identity, named: Option<&str>) -> Result<Asker, String> {
    let Some(own) = &identity.workspace else { return Ok(Asker::known(identity.user.clone())) };
    let name = match named {
        Some(name) => Some(name.to_owned()),
        None => hub.space_by_id(own).map(|space| space.name().to_owned()),
    };
    // By its name, which is asked of the store: what is known by its id may be on its way out.
    let space = name.and_then(|name| hub.space(&name).ok()).filter(|space| space.id() == own);
    let space = space.ok_or_else(|| format!("the certificate is good in the workspace {own:?} only"))?;
    Ok(Asker { user: identity.user.clone(), space: Some(space), warnings: Vec::new() })
}

async fn by_token(hub: &Arc<Hub>, token: &str, named: Option<&str>) -> Option<Asker> {
    let of_token = if named.is_none() { tokens::claimed_workspace(hub, token) } else { None };
    let workspace = named.or(of_token.as_deref()).unwrap_or(api::DEFAULT);
    // A workspace that does not exist has no tokens; that is all a stranger learns of it.
    let space = hub.space(workspace).ok()?;
    let own = own_audiences(hub, &space);
    match verify(&Claim { hub, space: &space, token, wanted: &own, own: &own }).await {
        Ok(Authenticated { user, warnings, .. }) => {
            hub.metrics.tokens.accepted.inc();
            Some(Asker { user, space: Some(space), warnings })
        }
        Err(why) => {
            hub.metrics.tokens.refused.inc();
            tracing::debug!(workspace, %why, "refused a token");
            None
        }
    }
}

/// What the API of a workspace is called as an audience.
pub fn own_audiences(hub: &Hub, space: &Space) -> Vec<String> {
    hub.issuers.of(hub, space).names().to_vec()
}

/// Asks every way; an error says what each that knows the token has against it.
pub async fn verify(claim: &Claim<'_>) -> Result<Authenticated, String> {
    let mut errors: Vec<String> = Vec::new();
    for way in Way::ALL {
        match way.verify(claim).await {
            Ok(Some(mut found)) => {
                add_marker(&mut found.user);
                return Ok(found);
            }
            Ok(None) => {}
            Err(why) if errors.contains(&why) => {}
            Err(why) => errors.push(why),
        }
    }
    // As upstream puts it, where a token is first held against the server's own.
    Err(match errors.as_slice() {
        [] => NOBODYS.to_owned(),
        several => format!("[{NOBODYS}, {}]", several.join(", ")),
    })
}

/// Whoever is known is in the group of those who are.
fn add_marker(user: &mut Arc<User>) {
    if !user.in_group(AUTHENTICATED) && !user.in_group(UNAUTHENTICATED) {
        Arc::make_mut(user).groups.push(AUTHENTICATED.into());
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Bearer<'a> {
    /// Other schemes mean nothing here, as upstream.
    None,
    /// Nothing where the token should be, and something after it.
    Spaced,
    Token(Cow<'a, str>),
}

fn bearer_token(headers: &HeaderMap) -> Bearer<'_> {
    let Some(value) = headers.get(http::header::AUTHORIZATION).map(HeaderValue::as_bytes) else {
        return Bearer::None;
    };
    let text = match String::from_utf8_lossy(value) {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    };
    let mut parts = text.splitn(3, ' ');
    let scheme = parts.next().unwrap_or_default();
    let (Some(token), true) = (parts.next(), scheme.eq_ignore_ascii_case("bearer")) else {
        return Bearer::None;
    };
    match (token.is_empty(), parts.next()) {
        (true, Some(_)) => Bearer::Spaced,
        (true, None) => Bearer::None,
        (false, _) => Bearer::Token(Cow::Owned(token.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_stands_where_upstream_looks_for_it() {
        let token = |text: &'static str| Bearer::Token(Cow::Borrowed(text));
        for (header, expected) in [
            ("Bearer abc", token("abc")),
            ("bEARER abc", token("abc")),
            ("Bearer abc and more", token("abc")),
            ("Bearer", Bearer::None),
            ("Bearer ", Bearer::None),
            ("Bearer  abc", Bearer::Spaced),
            ("Basic abc", Bearer::None),
            ("", Bearer::None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", HeaderValue::from_static(header));
            assert_eq!(bearer_token(&headers), expected, "{header:?}");
        }
        assert_eq!(bearer_token(&HeaderMap::new()), Bearer::None);
    }
}
