//! Requests, as kube-apiserver counts and times them.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::Stream;
use http::Response;
use http_body::Body as _;
use machinery::resource::Resource;
use parking_lot::RwLock;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::{Counted, OTHER};
use crate::{
    body::Body,
    options::Query,
    request::{ResourceTarget, Verb},
};

/// What a request is about. Every value is of a table of ours, never of a client, so that their number is bounded: kinds
/// that workspaces define are `other`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct About {
    pub verb: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub resource: &'static str,
    pub subresource: &'static str,
    /// `resource`, `namespace` or `cluster`; empty if it is about no object.
    pub scope: &'static str,
    pub component: &'static str,
}

impl About {
    pub fn verb(verb: &'static str) -> About {
        About { verb, component: "apiserver", ..About::default() }
    }

    /// Adds what objects it is about.
    pub fn set(&mut self, resource: &Resource, target: &ResourceTarget) {
        let kind = Kind::of(resource);
        (self.group, self.version, self.resource) = (kind.group, kind.version, kind.resource);
        self.subresource = resource.subresource(&target.subresource).map_or("", |it| it.name);
        self.scope = match (target.name.as_str(), target.namespace.as_str()) {
            ("", "") if target.verb != Verb::Create => "cluster",
            ("", _) if target.verb != Verb::Create => "namespace",
            _ => "resource",
        };
    }
}

/// What a request is about, by where its words are and how long: they are of tables, so that this finds what was found
/// before, without reading them. What has two places is found twice, and is the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Words([(usize, usize); 7]);

impl Words {
    fn of(about: &About) -> Words {
        let About { verb, group, version, resource, subresource, scope, component } = *about;
        let words = [verb, group, version, resource, subresource, scope, component];
        Words(words.map(|word| (word.as_ptr().addr(), word.len())))
    }
}

/// The measures of all requests that are about the same; each is there once it was needed.
#[derive(Default)]
struct Measures {
    /// By `dryRun`.
    durations: [OnceLock<Histogram>; 2],
    sli: OnceLock<Histogram>,
    size: OnceLock<Histogram>,
    /// By `dryRun` and code: few.
    totals: RwLock<Vec<((bool, u16), Counter)>>,
}

/// A kind of object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub resource: &'static str,
}

impl Kind {
    pub fn of(resource: &Resource) -> Kind {
        match resource.custom() {
            Some(_) => Kind { group: OTHER, version: OTHER, resource: OTHER },
            None => {
                let row = &resource.row;
                Kind { group: row.group, version: row.version, resource: row.plural }
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TotalLabels {
    #[prometheus(flatten)]
    about: About,
    dry_run: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TerminationLabels {
    #[prometheus(flatten)]
    about: About,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    #[prometheus(flatten)]
    about: About,
    dry_run: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SentLabels {
    group: &'static str,
    resource: &'static str,
    verb: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindOfRequest {
    request_kind: &'static str,
}

/// The bounds of upstream, which dashboards ask for by their value, and some below them.
fn durations() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.0025, 0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0,
        5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
    ])
}

fn slis() -> Histogram {
    Histogram::new([
        0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
        45.0, 60.0,
    ])
}

fn response_sizes() -> Histogram {
    Histogram::new([1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9])
}

fn body_sizes() -> Histogram {
    Histogram::new((0..31).map(|step| 50_000.0 + 100_000.0 * f64::from(step)))
}

fn event_sizes() -> Histogram {
    Histogram::new((0..8).map(|step| 1024.0 * f64::from(1 << step)))
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

pub struct Requests {
    known: RwLock<HashMap<Words, Arc<Measures>>>,
    total: Family<TotalLabels, Counter>,
    terminations: Family<TerminationLabels, Counter>,
    durations: Histograms<DurationLabels>,
    slis: Histograms<About>,
    response_sizes: Histograms<About>,
    body_sizes: Histograms<SentLabels>,
    reading: Gauge,
    writing: Gauge,
    long_running: Family<About, Gauge>,
    watch_events: Family<Kind, Counter>,
    event_sizes: Histograms<Kind>,
}

/// How a request was answered.
pub struct Answered {
    pub dry_run: bool,
    pub code: u16,
    pub took: Duration,
    /// The part of it that was spent waiting for a turn or for webhooks.
    pub elsewhere: Duration,
}

/// What an open watch counts.
pub struct WatchMeasures {
    _open: Counted,
    events: Counter,
    sizes: Histogram,
}

impl WatchMeasures {
    pub fn sent(&self, lines: impl Iterator<Item = usize>) {
        for bytes in lines {
            self.events.inc();
            self.sizes.observe(bytes as f64);
        }
    }
}

impl Requests {
    pub(super) fn register(registry: &mut Registry) -> Requests {
        let in_flight: Family<KindOfRequest, Gauge> = Family::default();
        let kind = |request_kind| in_flight.get_or_create(&KindOfRequest { request_kind }).clone();
        let requests = Requests {
            known: RwLock::default(),
            total: Family::default(),
            terminations: Family::default(),
            durations: Family::new_with_constructor(durations as fn() -> Histogram),
            slis: Family::new_with_constructor(slis as fn() -> Histogram),
            response_sizes: Family::new_with_constructor(response_sizes as fn() -> Histogram),
            body_sizes: Family::new_with_constructor(body_sizes as fn() -> Histogram),
            reading: kind("readOnly"),
            writing: kind("mutating"),
            long_running: Family::default(),
            watch_events: Family::default(),
            event_sizes: Family::new_with_constructor(event_sizes as fn() -> Histogram),
        };
        let name = |name: &str| format!("apiserver_{name}");
        registry.register(name("current_inflight_requests"), "Requests being answered", in_flight);
        registry.register(name("request"), "Requests answered", requests.total.clone());
        registry.register(
            name("request_terminations"),
            "Requests turned away because there were too many, or given up because they took too long",
            requests.terminations.clone(),
        );
        registry.register(
            name("request_duration_seconds"),
            "Time to answer a request; for a watch, until it began",
            requests.durations.clone(),
        );
        registry.register(
            name("request_sli_duration_seconds"),
            "Time to answer a request, without what it waited for its turn and for webhooks",
            requests.slis.clone(),
        );
        registry.register(
            name("response_sizes"),
            "Bytes of answers to GET and LIST",
            requests.response_sizes.clone(),
        );
        registry.register(name("request_body_size_bytes"), "Bytes of requests", requests.body_sizes.clone());
        registry.register(
            name("longrunning_requests"),
            "Watches that are open",
            requests.long_running.clone(),
        );
        registry.register(name("watch_events"), "Events sent to watchers", requests.watch_events.clone());
        registry.register(
            name("watch_events_sizes"),
            "Bytes of events sent to watchers",
            requests.event_sizes.clone(),
        );
        requests
    }

    /// A request is being answered until this is dropped.
    pub fn begin(&self, method: &http::Method) -> Counted {
        let reads = matches!(*method, http::Method::GET | http::Method::HEAD | http::Method::OPTIONS);
        Counted::new(if reads { &self.reading } else { &self.writing })
    }

    /// How many are being answered.
    pub fn in_flight(&self) -> i64 {
        self.reading.get() + self.writing.get()
    }

    /// The measures of what is like `about`.
    fn measures(&self, about: &About) -> Arc<Measures> {
        let words = Words::of(about);
        if let Some(known) = self.known.read().get(&words) {
            return known.clone();
        }
        self.known.write().entry(words).or_default().clone()
    }

    pub fn answered(&self, about: &About, answered: &Answered) {
        let measures = self.measures(about);
        self.duration(&measures, about, answered.dry_run).observe(answered.took.as_secs_f64());
        self.count(&measures, about, answered);
        if about.verb != "WATCH" {
            let own = answered.took.saturating_sub(answered.elsewhere);
            let sli = measures.sli.get_or_init(|| self.slis.get_or_create(about).clone());
            sli.observe(own.as_secs_f64());
        }
    }

    fn duration<'a>(&self, measures: &'a Measures, about: &About, dry_run: bool) -> &'a Histogram {
        measures.durations[usize::from(dry_run)].get_or_init(|| {
            let labels = DurationLabels { about: about.clone(), dry_run: dry_run_label(dry_run) };
            self.durations.get_or_create(&labels).clone()
        })
    }

    fn count(&self, measures: &Measures, about: &About, answered: &Answered) {
        let kind = (answered.dry_run, answered.code);
        if let Some((_, total)) = measures.totals.read().iter().find(|(known, _)| *known == kind) {
            total.inc();
            return;
        }
        let dry_run = dry_run_label(answered.dry_run);
        let labels = TotalLabels { about: about.clone(), dry_run, code: answered.code };
        let total = self.total.get_or_create(&labels).clone();
        total.inc();
        measures.totals.write().push((kind, total));
    }

    /// The server did not answer what was asked, to defend itself.
    pub fn terminated(&self, about: &About, code: u16) {
        self.terminations.get_or_create(&TerminationLabels { about: about.clone(), code }).inc();
    }

    /// Measures the answer to a read, now or as it is sent.
    pub fn measure(&self, about: &About, response: Response<Body>) -> Response<Body> {
        if !matches!(about.verb, "GET" | "LIST") || about.resource.is_empty() {
            return response;
        }
        let measures = self.measures(about);
        let sizes = measures.size.get_or_init(|| self.response_sizes.get_or_create(about).clone());
        match response.body().size_hint().exact() {
            Some(bytes) => {
                sizes.observe(bytes as f64);
                response
            }
            None => response.map(|body| match body {
                Body::Stream(stream) => Body::stream(Measured { stream, bytes: 0, sizes: sizes.clone() }),
                whole @ Body::Whole(_) => whole,
            }),
        }
    }

    /// A request with a body of so many bytes.
    pub fn received(&self, resource: &Resource, verb: &'static str, bytes: usize) {
        let Kind { group, resource, .. } = Kind::of(resource);
        self.body_sizes.get_or_create(&SentLabels { group, resource, verb }).observe(bytes as f64);
    }

    pub fn watch(&self, about: &About) -> WatchMeasures {
        let kind = Kind { group: about.group, version: about.version, resource: about.resource };
        WatchMeasures {
            _open: Counted::new(&self.long_running.get_or_create(about)),
            events: self.watch_events.get_or_create(&kind).clone(),
            sizes: self.event_sizes.get_or_create(&kind).clone(),
        }
    }
}

/// A stream whose bytes are counted; what was sent is told when it ends, however that is.
struct Measured {
    stream: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    bytes: usize,
    sizes: Histogram,
}

impl Stream for Measured {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = self.stream.as_mut().poll_next(context);
        if let Poll::Ready(Some(bytes)) = &next {
            self.bytes += bytes.len();
        }
        next
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.sizes.observe(self.bytes as f64);
    }
}

fn dry_run_label(dry_run: bool) -> &'static str {
    if dry_run { "All" } else { "" }
}

/// `dryRun` of a request.
pub fn is_dry_run(query: &Query) -> bool {
    query.get("dryRun").is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same text at another place.
    fn elsewhere(about: &About) -> About {
        let word = |word: &'static str| -> &'static str { Box::leak(word.to_owned().into_boxed_str()) };
        About { verb: word(about.verb), resource: word(about.resource), ..about.clone() }
    }

    #[test]
    fn requests_are_counted_by_what_they_are_about_wherever_that_is_written() {
        let mut registry = Registry::default();
        let requests = Requests::register(&mut registry);
        let gets = About { resource: "pods", ..About::verb("GET") };
        let lists = About { resource: "pods", ..About::verb("LIST") };
        let answered = |dry_run, code| Answered {
            dry_run,
            code,
            took: Duration::from_millis(3),
            elsewhere: Duration::from_millis(1),
        };
        for (about, dry_run, code) in [
            (&gets, false, 200),
            (&elsewhere(&gets), false, 200),
            (&gets, false, 404),
            (&gets, true, 200),
            (&lists, false, 200),
        ] {
            requests.answered(about, &answered(dry_run, code));
        }
        let total = |about: &About, dry_run, code| {
            requests.total.get_or_create(&TotalLabels { about: about.clone(), dry_run, code }).get()
        };
        assert_eq!(
            [total(&gets, "", 200), total(&gets, "", 404), total(&gets, "All", 200), total(&lists, "", 200)],
            [2, 1, 1, 1]
        );
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let counted = |name: &str, verb: &str| -> u64 {
            let lines = text.lines().filter(|it| it.starts_with(&format!("apiserver_{name}_count")));
            let of_verb = lines.filter(|it| it.contains(&format!("verb=\"{verb}\"")));
            of_verb.filter_map(|it| it.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
        };
        assert_eq!(counted("request_duration_seconds", "GET"), 4);
        assert_eq!(counted("request_sli_duration_seconds", "GET"), 4);
        assert_eq!(counted("request_sli_duration_seconds", "LIST"), 1);
    }
}
