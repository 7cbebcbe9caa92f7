//! Bearer tokens that a workspace issues itself, and what it accepts of them.
//!
//! ```text
//!   TokenRequest ──> claims ──> issuer: the workspace's keys sign ──> jws
//!   Authorization: Bearer … ──> jws ──> issuer: one of the keys verifies ──> claims: is all of it still there?
//! ```
//!
//! Every workspace is an issuer of its own, at `<address of the server>/clusters/<name>`: its keys are in its own
//! store, under a key that no client can reach, and are made when they are first needed.

pub mod bootstrap;
mod claims;
pub mod discovery;
mod issuer;
mod jws;
pub mod legacy;
mod making;
pub mod request;

use std::sync::Arc;

pub use issuer::{ISSUERS, Issuer, Issuers};

use crate::{
    authentication::{Authenticated, Claim},
    hub::Hub,
};

/// The annotation-like key under which a user's `extra` names the credential that was used.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// A longer token is nobody's, and not looked at.
pub const MAX_TOKEN_BYTES: usize = 64 << 10;

/// Service account tokens: those that are asked for, and those that secrets hold.
pub async fn verify(claim: &Claim<'_>) -> Result<Option<Authenticated>, String> {
    let Some(token) = jws::Compact::parse(claim.token) else { return Ok(None) };
    let issuer = claim.hub.issuers.of(claim.hub, claim.space);
    let legacy = token.issuer() == legacy::ISSUER;
    if !legacy && !issuer.is_called(token.issuer()) {
        return Ok(None);
    }
    let Some(token) = token.headed() else { return Ok(None) };
    let claims = claim.hub.issuers.verified(claim.hub, claim.space, &issuer, claim.token, &token)?;
    let audiences = audiences(claim, &claims)?;
    let (user, warnings) = match legacy {
        true => legacy::validate(claim, &claims).await?,
        false => (claims::validate(claim.hub, claim.space, &claims)?, Vec::new()),
    };
    Ok(Some(Authenticated { user: Arc::new(user), audiences, warnings }))
}

/// Those of the token's audiences that are wanted. A token without any is for the API.
fn audiences(claim: &Claim<'_>, claims: &claims::Claims) -> Result<Vec<String>, String> {
    let tokens = if claims.audiences.is_empty() { claim.own } else { &claims.audiences };
    let common: Vec<String> = claim.wanted.iter().filter(|it| tokens.contains(it)).cloned().collect();
    match common.is_empty() {
        true => Err(format!(
            "token audiences {} is invalid for the target audiences {}",
            quoted(tokens),
            quoted(claim.wanted)
        )),
        false => Ok(common),
    }
}

/// A list as Go's `%q` shows it.
fn quoted(list: &[String]) -> String {
    let items: Vec<String> = list.iter().map(|it| machinery::gotext::quote(it)).collect();
    format!("[{}]", items.join(" "))
}

/// The workspace that a token says to be of, on its own word. Other issuers may have names that look like ours.
pub fn claimed_workspace(hub: &Arc<Hub>, token: &str) -> Option<String> {
    let token = jws::Compact::parse(token)?;
    let (_, name) = token.issuer().rsplit_once("/clusters/")?;
    let space = hub.space(name).ok()?;
    hub.issuers.of(hub, &space).is_called(token.issuer()).then(|| name.to_owned())
}
