//! What shows members who we are, once a password did.

use std::time::Duration;

use http::HeaderValue;
use tokio::sync::Mutex;

use super::{
    call::{self, Head},
    member::Connection,
    options::User,
    status::{Failure, Meaning},
    wire::{AuthenticateRequest, AuthenticateResponse},
};

/// Tokens live for five minutes, as etcd is usually set up; one is not used for longer than this.
const RENEW_AFTER: Duration = Duration::from_secs(4 * 60);

/// The token of our user, good at every member.
pub(crate) struct Tokens {
    user: Option<User>,
    current: Mutex<Option<Token>>,
}

#[derive(Clone)]
pub(crate) struct Token {
    /// `None`: etcd does not want one.
    pub(crate) value: Option<HeaderValue>,
    since: Duration,
    number: u64,
}

impl Token {
    pub(crate) fn nobody() -> Self {
        Self { value: None, since: Duration::ZERO, number: 0 }
    }
}

impl Tokens {
    pub(crate) fn new(user: Option<User>) -> Self {
        Self { user, current: Mutex::default() }
    }

    /// The token, or a new one if that is old or is the one that was refused. Others wait for the same.
    pub(crate) async fn get(
        &self,
        now: Duration,
        refused: Option<&Token>,
        connection: &Connection,
        head: Head<'_>,
    ) -> Result<Token, Failure> {
        let Some(user) = &self.user else { return Ok(Token::nobody()) };
        let mut current = self.current.lock().await;
        let number = current.as_ref().map_or(0, |token| token.number);
        let is_good = |token: &&Token| {
            now < token.since + RENEW_AFTER && refused.is_none_or(|refused| refused.number != token.number)
        };
        if let Some(token) = current.as_ref().filter(is_good) {
            return Ok(token.clone());
        }
        let value = authenticate(user, connection, head).await?;
        let token = Token { value, since: now, number: number + 1 };
        *current = Some(token.clone());
        Ok(token)
    }

    pub(crate) fn can_renew(&self) -> bool {
        self.user.is_some()
    }
}

async fn authenticate(
    user: &User,
    connection: &Connection,
    head: Head<'_>,
) -> Result<Option<HeaderValue>, Failure> {
    let request = AuthenticateRequest { name: user.name.clone(), password: user.password.clone() };
    let answer = match call::unary(connection.clone(), head, call::framed(&request)).await {
        Ok(message) => call::decoded::<AuthenticateResponse>(&message)?,
        Err(failure) if failure.says_auth_is_off() => return Ok(None),
        // What the token was for has not been sent, whatever became of this.
        Err(failure) if failure.meaning() == Meaning::Uncertain => {
            return Err(Failure::Unsent(failure.error().to_string()));
        }
        Err(failure) => return Err(failure),
    };
    let mut value = HeaderValue::try_from(answer.token);
    if let Ok(value) = &mut value {
        value.set_sensitive(true);
    }
    value.map(Some).map_err(|_| Failure::Unsent("a token that fits no header".into()))
}
