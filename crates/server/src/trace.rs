//! One span for each request: what was asked, what became of it, and where its time went.
//!
//! Spans are of the target `hanse::request` and of the level debug. While nobody listens to those, a request pays one
//! look at a flag for them.

use std::sync::Arc;

use http::{HeaderMap, header, request::Parts};
use tracing::{Level, Span, field::Empty};

use crate::hub::Hub;

/// What filters know the spans by.
pub const TARGET: &str = "hanse::request";

/// Continues traces that began elsewhere. The program that the server runs in knows how they are exported.
pub trait Traces: Send + Sync + 'static {
    /// Makes `span` a part of the trace that its client is in. Called before the span is entered.
    fn continue_from(&self, span: &Span, parent: &TraceParent);
    /// What those are told who are asked on behalf of `span`.
    fn parent_of(&self, span: &Span) -> Option<TraceParent>;
}

/// Where in a trace somebody is, as the header `traceparent` says it (W3C Trace Context).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub trace_id: u128,
    pub span_id: u64,
    pub flags: u8,
}

impl TraceParent {
    /// `00-<32 digits>-<16 digits>-<2 digits>`; later versions may add to it. `None` if it must be ignored.
    pub fn parse(text: &str) -> Option<TraceParent> {
        let mut parts = text.trim().split('-');
        let mut next = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            part.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it)).then_some(part)
        };
        let version = u8::from_str_radix(next(2)?, 16).ok()?;
        let trace_id = u128::from_str_radix(next(32)?, 16).ok().filter(|id| *id != 0)?;
        let span_id = u64::from_str_radix(next(16)?, 16).ok().filter(|id| *id != 0)?;
        let flags = u8::from_str_radix(next(2)?, 16).ok()?;
        let more = parts.next().is_some();
        (version != 0xff && !(version == 0 && more)).then_some(TraceParent { trace_id, span_id, flags })
    }

    /// As a header.
    pub fn header(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

/// The span of a request; disabled unless somebody listens.
pub fn begin(hub: &Hub, parts: &Parts, headers: &HeaderMap) -> Span {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let span = tracing::debug_span!(
        target: TARGET,
        "request",
        otel.kind = "server",
        otel.name = Empty,
        otel.status_code = Empty,
        trace_id = Empty,
        http.request.method = parts.method.as_str(),
        url.path = parts.uri.path(),
        user_agent.original = text(header::USER_AGENT.as_str()),
        http.response.status_code = Empty,
        workspace = Empty,
        verb = Empty,
        resource = Empty,
        stage.authenticate = Empty,
        stage.wait = Empty,
        stage.decode = Empty,
        stage.prepare = Empty,
        stage.track = Empty,
        stage.check = Empty,
        stage.admit = Empty,
        stage.encode = Empty,
        stage.commit = Empty,
        duration = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    if let Some(parent) = text("traceparent").and_then(TraceParent::parse) {
        span.record("trace_id", tracing::field::display(format_args!("{:032x}", parent.trace_id)));
        if let Some(traces) = &hub.options.tools.traces {
            traces.continue_from(&span, &parent);
        }
    }
    span
}

/// Whether the request that is being answered has a span. As cheap as can be when none has.
pub fn is_on() -> bool {
    tracing::span_enabled!(target: TARGET, Level::DEBUG)
}

/// Times parts of a request that has a span; without one it does nothing.
pub struct Laps<'a> {
    clock: Option<(&'a Hub, std::time::Duration)>,
}

impl<'a> Laps<'a> {
    pub fn start(hub: &'a Hub) -> Laps<'a> {
        Laps { clock: is_on().then(|| (hub, hub.env.clock.elapsed())) }
    }

    /// What was done since the last call is what `field` names.
    pub fn lap(&mut self, field: &'static str) {
        if let Some((hub, last)) = &mut self.clock {
            let now = hub.env.clock.elapsed();
            record_micros(field, now.saturating_sub(*last));
            *last = now;
        }
    }
}

/// In a field of the span of the request that is being answered.
pub fn record_micros(field: &'static str, took: std::time::Duration) {
    Span::current().record(field, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
}

/// What became of a request.
pub struct Outcome<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub code: u16,
    pub took: std::time::Duration,
}

/// Ends the story of a request, with one line for those who read the log.
pub fn end(span: &Span, outcome: &Outcome<'_>) {
    if span.is_disabled() {
        return;
    }
    let Outcome { verb, group, resource, code, took } = *outcome;
    span.record("verb", verb);
    if !resource.is_empty() {
        let separator = if group.is_empty() { "" } else { "." };
        span.record("resource", tracing::field::display(format_args!("{resource}{separator}{group}")));
        span.record(
            "otel.name",
            tracing::field::display(format_args!("{verb} {resource}{separator}{group}")),
        );
    } else {
        span.record("otel.name", verb);
    }
    span.record("http.response.status_code", code);
    if code >= 500 {
        span.record("otel.status_code", "ERROR");
    }
    span.record("duration", u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    span.in_scope(|| tracing::debug!(target: TARGET, "answered"));
}

/// The `traceparent` of a request that is made on behalf of the one being answered.
pub fn outgoing(traces: Option<&Arc<dyn Traces>>) -> Option<String> {
    let parent = traces?.parent_of(&Span::current())?;
    Some(parent.header())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_parents_are_those_of_the_standard() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parsed = TraceParent::parse(good).unwrap();
        assert_eq!(parsed.header(), good);
        assert_eq!(parsed.flags, 1);
        let later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future-brings";
        assert_eq!(TraceParent::parse(later), Some(parsed));
        for bad in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "é0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
    }
}
