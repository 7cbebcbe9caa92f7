//! A token as it is sent: `header.payload.signature`, each in base64url. Nothing of it is true until it is verified.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use crate::tokens::MAX_TOKEN_BYTES;

/// What issuers may sign with. No secret that is shared, and never nothing.
const ALGORITHMS: [&str; 9] =
    ["ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"];
/// Clocks differ.
const LEEWAY: SignedDuration = SignedDuration::from_mins(1);
const GOOGLE: &str = "https://accounts.google.com";

pub struct Token<'a> {
    /// Header and payload as they were sent.
    pub signed: &'a str,
    pub signature: Vec<u8>,
    pub algorithm: String,
    /// Empty: it does not say.
    pub key_id: String,
    pub claims: Map<String, Value>,
    /// It asks for what is not known here.
    critical: bool,
}

impl<'a> Token<'a> {
    /// `None` if it has not the form of such a token.
    pub fn parse(text: &'a str) -> Option<Token<'a>> {
        if text.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let object = |part: &str| -> Option<Map<String, Value>> {
            serde_json::from_slice(&BASE64URL.decode(part).ok()?).ok()
        };
        let (header, claims) = (object(header)?, object(payload)?);
        let text = |key: &str| header.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Token {
            signed,
            signature: BASE64URL.decode(signature).ok()?,
            algorithm: text("alg"),
            key_id: text("kid"),
            claims,
            critical: header.contains_key("crit") || header.contains_key("b64"),
        })
    }

    /// On its own word.
    pub fn issuer(&self) -> &str {
        match self.claims.get("iss").and_then(Value::as_str).unwrap_or_default() {
            // Google leaves the scheme out, sometimes.
            "accounts.google.com" => GOOGLE,
            issuer => issuer,
        }
    }

    pub fn check_algorithm(&self) -> Result<(), String> {
        if self.critical {
            return Err("oidc: malformed jwt: unsupported crit header".to_owned());
        }
        if !ALGORITHMS.contains(&self.algorithm.as_str()) {
            let supported: Vec<String> = ALGORITHMS.iter().map(|name| format!("{name:?}")).collect();
            return Err(format!(
                "oidc: id token signed with unsupported algorithm, expected [{}] got {:?}",
                supported.join(" "),
                self.algorithm
            ));
        }
        Ok(())
    }

    /// What the claims say of themselves, once the signature is known to be good.
    pub fn check_claims(&self, issuer: &str, audiences: &[String], now: Timestamp) -> Result<(), String> {
        if self.issuer() != issuer {
            return Err(format!(
                "oidc: id token issued by a different provider, expected {issuer:?} got {:?}",
                self.issuer()
            ));
        }
        let given = self.audiences();
        if !given.iter().any(|it| audiences.contains(it)) {
            let mut wanted = audiences.to_vec();
            wanted.sort();
            let wanted = match wanted.as_slice() {
                [one] => format!("audience {one:?}"),
                several => format!("audience in {}", quoted(several)),
            };
            return Err(format!("oidc: expected {wanted} got {}", quoted(&given)));
        }
        let expiry = self.time("exp")?.unwrap_or(Timestamp::MIN);
        if expiry < now {
            return Err(format!("oidc: token is expired (Token Expiry: {expiry})"));
        }
        let soon = now.checked_add(LEEWAY).unwrap_or(now);
        if let Some(start) = self.time("nbf")?.filter(|start| soon < *start) {
            return Err(format!("oidc: current time {now} before the nbf (not before) time: {start}"));
        }
        Ok(())
    }

    fn audiences(&self) -> Vec<String> {
        match self.claims.get("aud") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(several)) => {
                several.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            _ => Vec::new(),
        }
    }

    fn time(&self, claim: &str) -> Result<Option<Timestamp>, String> {
        let seconds = match self.claims.get(claim) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => {
                number.as_i64().or_else(|| number.as_f64().map(|number| number as i64))
            }
            Some(_) => None,
        };
        let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        time.map(Some).ok_or_else(|| format!("oidc: failed to unmarshal claims: {claim} is no time"))
    }
}

fn quoted(texts: &[String]) -> String {
    let all: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", all.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_token(header: &str, claims: &str) -> String {
        format!("{}.{}.{}", BASE64URL.encode(header), BASE64URL.encode(claims), BASE64URL.encode("s"))
    }

    #[test]
    fn only_known_algorithms_are_looked_at() {
        for (header, good) in [
            (r#"{"alg":"RS256"}"#, true),
            (r#"{"alg":"ES512"}"#, true),
            (r#"{"alg":"none"}"#, false),
            (r#"{"alg":"None"}"#, false),
            (r#"{"alg":"HS256"}"#, false),
            (r#"{"alg":["RS256"]}"#, false),
            (r#"{"alg":"EdDSA"}"#, false),
            (r#"{}"#, false),
            (r#"{"alg":"RS256","crit":["exp"]}"#, false),
            (r#"{"alg":"RS256","b64":false}"#, false),
        ] {
            let text = mk_token(header, "{}");
            assert_eq!(Token::parse(&text).unwrap().check_algorithm().is_ok(), good, "{header}");
        }
    }

    #[test]
    fn claims_must_be_for_us_and_now() {
        let now = Timestamp::from_second(1000).unwrap();
        let audiences = ["a".to_owned(), "b".to_owned()];
        for (claims, good) in [
            (r#"{"iss":"i","aud":"a","exp":1001}"#, true),
            (r#"{"iss":"i","aud":["x","b"],"exp":1001.5,"nbf":1060}"#, true),
            (r#"{"iss":"j","aud":"a","exp":1001}"#, false),
            (r#"{"iss":"i","aud":"c","exp":1001}"#, false),
            (r#"{"iss":"i","aud":[],"exp":1001}"#, false),
            (r#"{"iss":"i","exp":1001}"#, false),
            (r#"{"iss":"i","aud":"a","exp":999}"#, false),
            (r#"{"iss":"i","aud":"a"}"#, false),
            (r#"{"iss":"i","aud":"a","exp":"1001"}"#, false),
            (r#"{"iss":"i","aud":"a","exp":1e300}"#, false),
            (r#"{"iss":"i","aud":"a","exp":1001,"nbf":1061}"#, false),
        ] {
            let text = mk_token("{}", claims);
            assert_eq!(
                Token::parse(&text).unwrap().check_claims("i", &audiences, now).is_ok(),
                good,
                "{claims}"
            );
        }
    }

    #[test]
    fn what_is_no_token_is_left_to_others() {
        for text in ["", "a", "a.b", "a.b.c", "..", "{}", "e30.e30.!", "e30.e30.e30.e30", "W10.e30.e30"] {
            assert!(Token::parse(text).is_none(), "{text}");
        }
    }
}
