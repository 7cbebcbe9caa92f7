//! gRPC over a connection: messages in frames, and how a call ends.
//!
//! ```text
//!   request   POST /etcdserverpb.KV/Txn    [0 · length · message]
//!   answer    200                          [0 · length · message] …  trailers: grpc-status, grpc-message
//! ```

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use prost::Message;

use super::{
    member::{Connection, Sent},
    options::Endpoint,
    status::{Code, Failure},
};

/// A byte that says whether it is compressed, which nobody asked for, and the length.
const FRAME_HEAD: usize = 5;
/// No answer is longer. Memory is taken as it comes, not as it is announced.
const LONGEST_MESSAGE: usize = 1 << 30;

pub(crate) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(FRAME_HEAD + length);
    frame.put_u8(0);
    // A message of more than 4 GiB is refused by etcd under any length.
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut frame);
    frame.freeze()
}

/// What every call has.
pub(crate) struct Head<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) is_tls: bool,
    pub(crate) method: &'static str,
    pub(crate) token: Option<HeaderValue>,
    /// How long the member is to try; a stream goes on for ever.
    pub(crate) within: Option<Duration>,
}

impl Head<'_> {
    fn request(self, body: Sent) -> Result<Request<Sent>, Failure> {
        let scheme = if self.is_tls { "https" } else { "http" };
        let mut request = Request::post(format!("{scheme}://{}/etcdserverpb.{}", self.endpoint, self.method))
            .header(header::TE, "trailers")
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::USER_AGENT, "hanse")
            // A member that is cut off from the others is to say so at once, and to end its streams.
            .header("hasleader", "true");
        if let Some(within) = self.within {
            request = request.header("grpc-timeout", format!("{}m", within.as_millis().clamp(1, 99_999_999)));
        }
        if let Some(token) = self.token {
            request = request.header("token", token);
        }
        request.body(body).map_err(|error| Failure::Unsent(error.to_string()))
    }
}

/// The one message that answers one message.
pub(crate) async fn unary(
    mut connection: Connection,
    head: Head<'_>,
    message: Bytes,
) -> Result<Bytes, Failure> {
    let mut answer = open(&mut connection, head, Sent::Once(Some(message))).await?;
    let message = answer.next().await?;
    let message = message.ok_or_else(|| Failure::Unanswered("an answer without a message".into()))?;
    // It counts once it has ended well.
    match answer.next().await? {
        None => Ok(message),
        Some(_) => Err(Failure::Unanswered("more than one answer".into())),
    }
}

/// Sends the head of a call and whatever of its body is there.
pub(crate) async fn open(
    connection: &mut Connection,
    head: Head<'_>,
    body: Sent,
) -> Result<Messages, Failure> {
    let request = head.request(body)?;
    let sent = connection.try_send_request(request).await;
    let response = sent.map_err(|mut error| match error.take_message() {
        Some(_) => Failure::before_sending(error.error()),
        None => Failure::after_sending(error.error()),
    })?;
    Messages::of(response)
}

/// The messages that answer a call.
pub(crate) struct Messages {
    body: Incoming,
    unread: BytesMut,
}

impl Messages {
    fn of(response: Response<Incoming>) -> Result<Self, Failure> {
        if let Some(failure) = Failure::in_trailers(response.headers()) {
            return Err(failure);
        }
        let kind = response.headers().get(header::CONTENT_TYPE);
        let is_grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let told = || format!("HTTP {}: is this etcd?", response.status());
        match response.status() {
            StatusCode::OK if is_grpc => Ok(Self { body: response.into_body(), unread: BytesMut::new() }),
            status if status.is_client_error() => {
                Err(Failure::Answered { code: Code::Unimplemented, message: told() })
            }
            _ => Err(Failure::Unanswered(told())),
        }
    }

    /// The next message; `None` after the last one, if all went well. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let Some(frame) = self.body.frame().await else {
                return Err(Failure::Unanswered("the answer was cut short".into()));
            };
            let frame = frame.map_err(|error| Failure::after_sending(&error))?;
            let trailers = match frame.into_data() {
                Ok(data) => {
                    self.unread.extend_from_slice(&data);
                    continue;
                }
                Err(frame) => frame.into_trailers().unwrap_or_default(),
            };
            return match Failure::in_trailers(&trailers) {
                Some(failure) => Err(failure),
                None if trailers.contains_key("grpc-status") && self.unread.is_empty() => Ok(None),
                None => Err(Failure::Unanswered("the answer was cut short".into())),
            };
        }
    }

    fn take(&mut self) -> Result<Option<Bytes>, Failure> {
        let Some((head, rest)) = self.unread.split_first_chunk::<FRAME_HEAD>() else { return Ok(None) };
        let [compressed, length @ ..] = *head;
        let length = u32::from_be_bytes(length) as usize;
        if compressed != 0 || length > LONGEST_MESSAGE {
            return Err(Failure::Unanswered(format!("a frame of {length} bytes, compressed: {compressed}")));
        }
        if rest.len() < length {
            return Ok(None);
        }
        self.unread.advance(FRAME_HEAD);
        Ok(Some(self.unread.split_to(length).freeze()))
    }
}

/// What a message says. Read from a slice, its parts are copies: nobody keeps a whole answer alive for one value.
pub(crate) fn decoded<M: Message + Default>(message: &Bytes) -> Result<M, Failure> {
    M::decode(&message[..])
        .map_err(|error| Failure::Unanswered(format!("an answer that makes no sense: {error}")))
}
