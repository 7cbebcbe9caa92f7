//! Spans of requests to an OpenTelemetry collector, by OTLP over HTTP. Set up as all programs are that speak it: by the
//! environment variables `OTEL_…`.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use env::{Env, Stream};
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider},
};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use server::trace::{TARGET, TraceParent, Traces};
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;
use tracing::{Span, level_filters::LevelFilter};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Layer, filter::FilterFn, registry::LookupSpan};

/// A collector says little.
const MAX_ANSWER: usize = 1 << 20;

/// What exports spans; shut down at the end, so that the last ones arrive.
pub struct Exporting {
    provider: SdkTracerProvider,
}

/// `None` unless the environment names a collector.
pub fn start(env: &Env, runtime: &Handle) -> anyhow::Result<Option<Exporting>> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let endpoint = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"].into_iter();
    let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    if is_off || endpoint.filter_map(variable).next().is_none() {
        return Ok(None);
    }
    let named = |name: &str| {
        variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
            .or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{name}")))
    };
    let protocol = named("PROTOCOL").unwrap_or_else(|| "http/protobuf".to_owned());
    if protocol != "http/protobuf" {
        bail!("OTEL_EXPORTER_OTLP_PROTOCOL={protocol} is not supported: it must be http/protobuf");
    }
    let milliseconds = named("TIMEOUT").and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let collector = Collector {
        env: env.clone(),
        runtime: runtime.clone(),
        timeout: Duration::from_millis(milliseconds),
        authority: named("CERTIFICATE").map(Into::into),
    };
    let exporter = SpanExporter::builder().with_http().with_http_client(collector).build();
    let exporter = exporter.context("spans cannot be exported")?;
    let mut resource = Resource::builder();
    if variable("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name("hanse");
    }
    let provider =
        SdkTracerProvider::builder().with_resource(resource.build()).with_batch_exporter(exporter).build();
    Ok(Some(Exporting { provider }))
}

impl Exporting {
    /// Takes the spans of requests, whatever is logged.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: tracing::Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let is_request = |metadata: &tracing::Metadata<'_>| metadata.is_span() && metadata.target() == TARGET;
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("hanse"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(FilterFn::new(is_request).with_max_level_hint(LevelFilter::DEBUG))
    }

    /// Sends what is left. Not from a thread of the runtime, which has to send it.
    pub fn finish(self) {
        if let Err(error) = self.provider.shutdown() {
            eprintln!("hanse: the last spans were not exported: {error}");
        }
    }
}

/// Ties spans to the traces of clients.
pub struct Continued;

impl Traces for Continued {
    fn continue_from(&self, span: &Span, parent: &TraceParent) {
        let context = SpanContext::new(
            TraceId::from_bytes(parent.trace_id.to_be_bytes()),
            SpanId::from_bytes(parent.span_id.to_be_bytes()),
            TraceFlags::new(parent.flags),
            true,
            TraceState::default(),
        );
        // Refused only for a span that is not exported.
        let _ = span.set_parent(Context::new().with_remote_span_context(context));
    }

    fn parent_of(&self, span: &Span) -> Option<TraceParent> {
        let context = span.context();
        let context = context.span().span_context().clone();
        context.is_valid().then(|| TraceParent {
            trace_id: u128::from_be_bytes(context.trace_id().to_bytes()),
            span_id: u64::from_be_bytes(context.span_id().to_bytes()),
            flags: context.trace_flags().to_u8(),
        })
    }
}

/// Posts to a collector, with a connection for each batch.
struct Collector {
    env: Env,
    runtime: Handle,
    timeout: Duration,
    /// By whom an https collector is verified; by those that this machine trusts unless given.
    authority: Option<std::path::PathBuf>,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collector")
    }
}

#[async_trait::async_trait]
impl HttpClient for Collector {
    /// The exporter has a thread without a runtime.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (env, authority) = (self.env.clone(), self.authority.clone());
        let too_late = self.env.clock.sleep(self.timeout);
        let sent = self.runtime.spawn(async move {
            tokio::select! {
                answer = send(&env, authority.as_deref(), request) => answer,
                () = too_late => Err(anyhow!("the collector does not answer")),
            }
        });
        Ok(sent.await??)
    }
}

async fn send(
    env: &Env,
    authority: Option<&std::path::Path>,
    request: Request<Bytes>,
) -> anyhow::Result<Response<Bytes>> {
    let uri = request.uri().clone();
    let host = uri.host().context("the collector's address has no host")?.trim_matches(['[', ']']).to_owned();
    let secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let addresses = env.network.resolve(host.clone(), port).await?;
    let address = addresses.first().copied().with_context(|| format!("cannot find {host}"))?;
    let mut stream: Box<dyn Stream> = env.network.dial(address).await?;
    if secure {
        let config = Arc::new(tls(env, authority)?);
        stream = Box::new(TlsConnector::from(config).connect(ServerName::try_from(host)?, stream).await?);
    }
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let (mut parts, body) = request.into_parts();
    let named = uri.authority().map(|it| it.as_str()).unwrap_or_default();
    parts.headers.insert(header::HOST, named.parse()?);
    parts.uri = uri.path_and_query().map_or("/", |it| it.as_str()).parse()?;
    let answer = sender.send_request(Request::from_parts(parts, Full::new(body))).await?;
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|error| anyhow!(error))?;
    Ok(Response::from_parts(parts, body.to_bytes()))
}

fn tls(env: &Env, authority: Option<&std::path::Path>) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match authority {
        Some(path) => {
            let pem = env.files.read(path).with_context(|| format!("cannot read {}", path.display()))?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                roots.add(certificate?)?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
