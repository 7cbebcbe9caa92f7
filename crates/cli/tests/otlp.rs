//! A collector sees the spans of requests, as parts of the traces that clients are in.

#![cfg(feature = "otlp")]
#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::{
    convert::Infallible,
    net::SocketAddr,
    process::{Command, Stdio},
    sync::Arc,
};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::json;
use testing::{hub::eventually, process::HubProcess};
use tokio::{net::TcpListener, sync::Mutex};

const TRACE_ID: [u8; 16] = *b"\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c";
const SPAN_ID: [u8; 8] = *b"\xb7\xad\x6b\x71\x69\x20\x33\x31";
const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// What was posted: the path and the bytes.
type Posted = Arc<Mutex<Vec<(String, Bytes)>>>;

/// A collector that keeps everything, and understands nothing.
async fn mk_collector() -> Result<(SocketAddr, Posted)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let posted = Posted::default();
    let kept = posted.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let kept = kept.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let kept = kept.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    let bytes =
                        request.into_body().collect().await.map(|it| it.to_bytes()).unwrap_or_default();
                    kept.lock().await.push((path, bytes));
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    Ok((address, posted))
}

fn mk_command(collector: SocketAddr) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hanse"));
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{collector}"))
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .env("OTEL_SERVICE_NAME", "hanse-under-test");
    command
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_sees_a_requests_span_in_its_clients_trace() -> Result<()> {
    let (collector, posted) = mk_collector().await?;
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    std::fs::create_dir(&data)?;
    let hub = HubProcess::start_as(mk_command(collector), &data)?;
    let client = hub.client().await?;

    let headers = [
        ("content-type", "application/json"),
        ("traceparent", TRACEPARENT),
        ("user-agent", "the-client/1.0"),
    ];
    let object = json!({"metadata": {"name": "traced"}}).to_string();
    let path = "/api/v1/namespaces/default/configmaps";
    let made = client.call(Method::POST, path, &headers, object).await?;
    assert_eq!(made.code, 201, "{}", made.text());

    let span = eventually("the span arrives", || async {
        let posted = posted.lock().await;
        Ok(posted.iter().find(|(_, bytes)| contains(bytes, &TRACE_ID)).cloned())
    })
    .await?;
    assert_eq!(span.0, "/v1/traces");
    let told: [&[u8]; 9] = [
        &SPAN_ID,
        b"hanse-under-test",
        b"POST configmaps",
        b"http.request.method",
        b"the-client/1.0",
        b"workspace",
        b"http.response.status_code",
        b"stage.commit",
        b"stage.authenticate",
    ];
    for part in told {
        assert!(contains(&span.1, part), "{} is missing", String::from_utf8_lossy(part));
    }
    // What is under way at the end is sent before the process ends.
    let before = posted.lock().await.len();
    client.get("/api/v1/namespaces").await?;
    hub.stop()?;
    assert!(posted.lock().await.len() > before);
    Ok(())
}

/// A collector that is not there is no reason to fail, or to be slow.
#[tokio::test(flavor = "multi_thread")]
async fn without_its_collector_a_server_serves() -> Result<()> {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    std::fs::create_dir(&data)?;
    let hub = HubProcess::start_as(mk_command(nobody), &data)?;
    let client = hub.client().await?;
    assert_eq!(client.get("/api/v1/namespaces").await?.code, 200);
    hub.stop()
}

#[test]
fn an_unknown_protocol_is_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let refused = mk_command(SocketAddr::from(([127, 0, 0, 1], 1)))
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(directory.path())
        .stdin(Stdio::null())
        .output()
        .context("starts")?;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("must be http/protobuf"), "{said}");
    Ok(())
}
