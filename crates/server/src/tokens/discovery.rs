//! What others need to verify a workspace's tokens without asking it: who issues them, and the public keys.

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use machinery::status::Status;
use serde_json::json;

use crate::{
    body::{self, Body},
    hub::Hub,
    options::Query,
    space::Space,
};

const CONFIGURATION: &str = "/.well-known/openid-configuration";
const KEYS: &str = "/openid/v1/jwks";
/// Hanse's own: `POST` makes a new key or, with `?keys=forget-old`, forgets all but the one that signs.
const ROTATION: &str = "/openid/v1/rotation";

/// `None` if the path is not about tokens.
pub async fn answer(
    hub: &Hub,
    space: &Space,
    method: &Method,
    path: &str,
    query: &Query,
) -> Option<Result<Response<Body>, Status>> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match path.strip_suffix('/').unwrap_or(path) {
        CONFIGURATION if reads => Some(configuration(hub, space).await),
        KEYS if reads => Some(keys(hub, space).await),
        ROTATION if *method == Method::POST => Some(rotate(hub, space, query).await),
        _ => None,
    }
}

async fn configuration(hub: &Hub, space: &Space) -> Result<Response<Body>, Status> {
    let issuer = hub.issuers.signing(hub, space).await?;
    let document = json!({
        "issuer": issuer.name(),
        "jwks_uri": format!("{}{KEYS}", issuer.name()),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
    });
    Ok(public(body::json(StatusCode::OK, &document), "application/json"))
}

async fn keys(hub: &Hub, space: &Space) -> Result<Response<Body>, Status> {
    let issuer = hub.issuers.signing(hub, space).await?;
    let document = json!({"keys": issuer.public_keys()});
    Ok(public(body::encoded(StatusCode::OK, Bytes::from(document.to_string())), "application/jwk-set+json"))
}

/// Others may keep it for an hour, as they may upstream's.
fn public(mut response: Response<Body>, content_type: &'static str) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}

async fn rotate(hub: &Hub, space: &Space, query: &Query) -> Result<Response<Body>, Status> {
    let issuer = match query.get("keys") {
        None | Some("" | "new") => hub.issuers.rotate(hub, space, false).await?,
        Some("only-new") => hub.issuers.rotate(hub, space, true).await?,
        Some("forget-old") => hub.issuers.forget_old(hub, space).await?,
        Some(other) => {
            return Err(Status::bad_request(format!("keys={other} is none of new, only-new, forget-old")));
        }
    };
    let mut ids = issuer.key_ids();
    let document = json!({
        "issuer": issuer.name(), "signs": ids.next().unwrap_or_default(), "verify": ids.collect::<Vec<_>>(),
    });
    Ok(body::json(StatusCode::OK, &document))
}
