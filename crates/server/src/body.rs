//! Response bodies: whole, or streamed as the socket takes them.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use machinery::status::Status;
use serde_json::Value;

/// What is sent back. A stream is pulled by the socket: nothing is prepared that is not about to be sent.
pub enum Body {
    Whole(Option<Bytes>),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

/// Says of a response that it has no end of its own, and that its client can go on with another.
#[derive(Clone, Copy)]
pub struct Endless;

impl Body {
    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Body {
        Body::Stream(Box::pin(stream))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body::Whole(Some(bytes))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Body::Whole(bytes) => {
                Poll::Ready(bytes.take().filter(|it| !it.is_empty()).map(|it| Ok(Frame::data(it))))
            }
            Body::Stream(stream) => {
                stream.as_mut().poll_next(context).map(|next| next.map(|it| Ok(Frame::data(it))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Whole(bytes) if bytes.as_ref().is_none_or(Bytes::is_empty))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |it| it.len() as u64)),
            Body::Stream(_) => SizeHint::default(),
        }
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

fn response(code: StatusCode, content_type: HeaderValue, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// An encoded JSON document.
pub fn encoded(code: StatusCode, body: impl Into<Body>) -> Response<Body> {
    response(code, JSON, body.into())
}

pub fn json(code: StatusCode, value: &Value) -> Response<Body> {
    encoded(code, Bytes::from(value.to_string()))
}

pub fn text(code: StatusCode, text: String) -> Response<Body> {
    response(code, HeaderValue::from_static("text/plain; charset=utf-8"), Bytes::from(text).into())
}

/// A refusal, in Kubernetes' own shape.
pub fn refusal(status: &Status) -> Response<Body> {
    let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, &status.to_json());
    if let Some(seconds) = status.retry_after_seconds() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    warn_once(&mut response, status.warnings());
    response
}

/// Characters of all warnings beyond which each is cut.
const MAX_WARNINGS: usize = 4 * 1024;
/// Characters that are then left of each.
const CUT_WARNING: usize = 256;

/// Adds warnings, each of them once. Where they are too long together each is cut short, and when that is not enough
/// the rest is dropped, as upstream does.
pub fn warn_once<'a>(response: &mut Response<Body>, warnings: impl IntoIterator<Item = &'a String>) {
    let mut told: Vec<&String> = Vec::new();
    for warning in warnings.into_iter().filter(|warning| !warning.is_empty()) {
        if !told.contains(&warning) {
            told.push(warning);
        }
    }
    let length = |text: &str| text.chars().count();
    if told.iter().map(|text| length(text)).sum::<usize>() <= MAX_WARNINGS {
        return told.iter().for_each(|text| warn(response, text));
    }
    let mut written = 0;
    for text in told {
        if written >= MAX_WARNINGS {
            return;
        }
        let cut: String = text.chars().take(CUT_WARNING).collect();
        written += length(&cut);
        warn(response, &cut);
    }
}

/// As [`warn`], before all other warnings.
pub fn warn_first(response: &mut Response<Body>, text: &str) {
    let others: Vec<HeaderValue> = response.headers().get_all(header::WARNING).iter().cloned().collect();
    response.headers_mut().remove(header::WARNING);
    warn(response, text);
    for value in others {
        response.headers_mut().append(header::WARNING, value);
    }
}

/// Adds a `Warning` header that kubectl shows to its user.
pub fn warn(response: &mut Response<Body>, text: &str) {
    let quoted: String = text
        .chars()
        .filter(|it| !it.is_control())
        .flat_map(|it| matches!(it, '"' | '\\').then_some('\\').into_iter().chain([it]))
        .collect();
    if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
        response.headers_mut().append(header::WARNING, value);
    }
}
