//! The hub's own API, asked from inside its process: the same checks, audit and metrics as for everybody else.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use crate::{
    Hub,
    login::caller::Caller,
    service::{self, Connection},
    user::User,
};

/// A refusal of the hub.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    pub code: u16,
    pub message: String,
}

/// A way to the hub's API.
pub struct Desk {
    hub: Arc<Hub>,
    connection: Arc<Connection>,
    manager: &'static str,
}

impl Desk {
    /// `user`: in whose name it asks. `manager`: whose the fields are that it writes.
    pub fn new(hub: Arc<Hub>, user: &str, manager: &'static str) -> Desk {
        let caller = Some(Arc::new(Caller::Known(Arc::new(User::hub(user)))));
        Desk { hub, connection: Arc::new(Connection { caller, ..Connection::default() }), manager }
    }

    /// `path` begins below `/clusters/<workspace>`.
    pub async fn call(
        &self,
        workspace: &str,
        method: Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Value, Refused> {
        let failed = |message: String| Refused { code: 500, message };
        let mark = if path.contains('?') { '&' } else { '?' };
        let uri = format!("/clusters/{workspace}{path}{mark}fieldManager={}", self.manager);
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::USER_AGENT, self.manager)
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|error| failed(error.to_string()))?;
        let response = Box::pin(service::handle(self.hub.clone(), self.connection.clone(), request)).await;
        let code = response.status();
        let Ok(body) = response.into_body().collect().await;
        let answer: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        match code.is_success() {
            true => Ok(answer),
            false => {
                let message = answer["message"].as_str().unwrap_or("refused without a message").to_owned();
                Err(Refused { code: code.as_u16(), message })
            }
        }
    }
}
