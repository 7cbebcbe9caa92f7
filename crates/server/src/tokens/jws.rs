//! Signed tokens on the wire: `header.payload.signature`, each in base64url.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use serde_json::{Map, Value, json};

use super::MAX_TOKEN_BYTES;

/// The one algorithm that is signed with and accepted. What a token says of its algorithm is compared with this,
/// never followed.
const ALGORITHM: &str = "RS256";

/// A token that has the shape of one. Nothing of it is verified.
pub struct Compact<'a> {
    /// What is signed: header and payload as they were sent.
    signed: &'a str,
    header: &'a str,
    signature: &'a str,
    payload: Map<String, Value>,
}

/// The same, with a header that can be read.
pub struct Headed<'a> {
    pub signed: &'a str,
    pub signature: Vec<u8>,
    pub payload: Map<String, Value>,
    /// The key it says to be signed with; empty: it does not say.
    pub key_id: String,
    /// Its algorithm is ours, and it asks for nothing that we do not know.
    pub understood: bool,
}

impl<'a> Compact<'a> {
    /// `None` if it is not a token of this kind at all.
    pub fn parse(token: &'a str) -> Option<Compact<'a>> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        if payload.contains('.') {
            return None;
        }
        let payload = BASE64URL.decode(payload).ok()?;
        let payload = serde_json::from_slice::<Map<String, Value>>(&payload).ok()?;
        Some(Compact { signed, header, signature, payload })
    }

    /// On its own word.
    pub fn issuer(&self) -> &str {
        self.payload.get("iss").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn headed(self) -> Option<Headed<'a>> {
        let header = BASE64URL.decode(self.header).ok()?;
        let header = serde_json::from_slice::<Map<String, Value>>(&header).ok()?;
        let signature = BASE64URL.decode(self.signature).ok()?;
        let text = |key: &str| header.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let understood =
            text("alg") == ALGORITHM && !header.contains_key("crit") && !header.contains_key("b64");
        let (signed, payload) = (self.signed, self.payload);
        Some(Headed { signed, signature, payload, key_id: text("kid"), understood })
    }
}

/// What is to be signed.
pub fn unsigned(key_id: &str, payload: &Value) -> String {
    let header = json!({"alg": ALGORITHM, "kid": key_id});
    format!("{}.{}", BASE64URL.encode(header.to_string()), BASE64URL.encode(payload.to_string()))
}

pub fn signed(unsigned: &str, signature: &[u8]) -> String {
    format!("{unsigned}.{}", BASE64URL.encode(signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_the_shape_of_a_token_is_read() {
        let part = |text: &str| BASE64URL.encode(text);
        let (header, payload) = (part(r#"{"alg":"RS256","kid":"k"}"#), part(r#"{"iss":"https://a"}"#));
        let good = format!("{header}.{payload}.{}", part("s"));
        let token = Compact::parse(&good).unwrap();
        assert_eq!(token.issuer(), "https://a");
        let token = token.headed().unwrap();
        assert!(token.understood && token.key_id == "k" && token.signature == b"s");
        for bad in [
            "",
            "a",
            "a.b",
            "a.b.c.d",
            "..",
            "a.!!.c",
            &format!("{header}.{}.x", part("[1]")),
            &format!("{header}.{}.x", part("{")),
            &format!("{header}.{payload}=.x"),
            &format!("{header}.{payload}.{}", "x".repeat(MAX_TOKEN_BYTES)),
        ] {
            assert!(Compact::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn another_algorithm_is_not_understood() {
        for header in [
            r#"{"alg":"none"}"#,
            r#"{"alg":"HS256"}"#,
            r#"{"alg":"rs256"}"#,
            r#"{}"#,
            r#"{"alg":["RS256"]}"#,
            r#"{"alg":"RS256","crit":["exp"]}"#,
            r#"{"alg":"RS256","b64":false}"#,
        ] {
            let token = format!("{}.{}.", BASE64URL.encode(header), BASE64URL.encode("{}"));
            assert!(!Compact::parse(&token).unwrap().headed().unwrap().understood, "{header}");
        }
    }
}
