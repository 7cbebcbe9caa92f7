//! The wire itself: requests without a length, without an end, or without a beginning.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use server::Options;
use testing::{
    client::Answer,
    hub::{TestHub, eventually},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{CONFIG_MAPS, JSON, Scene, VICTIM};

/// Sends bytes over HTTP/1.1, says no more, and reads one answer.
async fn by_hand(hub: &TestHub, request: &[u8]) -> Result<Answer> {
    let (mut receiver, mut sender) = tokio::io::split(hub.dial("http/1.1").await?);
    // The server may answer and close before it has read everything.
    let sent = async {
        let _ = sender.write_all(request).await;
        let _ = sender.flush().await;
        std::future::pending::<()>().await;
    };
    let answered = tokio::time::timeout(Duration::from_secs(30), read_answer(&mut receiver));
    tokio::select! {
        answer = answered => answer.context("no answer")?,
        () = sent => unreachable!("it waits for ever"),
    }
}

async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> Result<Answer> {
    let mut bytes = Vec::new();
    loop {
        if let Some(answer) = parse(&bytes)? {
            return Ok(answer);
        }
        let read = stream.read_buf(&mut bytes).await?;
        ensure!(read > 0, "closed after {:?}", String::from_utf8_lossy(&bytes));
    }
}

/// An answer of known length, if all of it is there.
fn parse(bytes: &[u8]) -> Result<Option<Answer>> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end])?;
    let mut lines = head.split("\r\n");
    let code = lines.next().and_then(|line| line.split(' ').nth(1)).context("no status line")?;
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        headers.insert(HeaderName::try_from(name)?, HeaderValue::from_str(value)?);
    }
    let length =
        headers.get("content-length").map_or(Ok(0), |value| value.to_str().unwrap_or("").parse::<usize>())?;
    let body = &bytes[end + 4..];
    let whole = body.len() >= length;
    let answer = |body| Answer { code: StatusCode::default(), headers, bytes: Bytes::copy_from_slice(body) };
    Ok(whole.then(|| Answer { code: code.parse().unwrap_or_default(), ..answer(&body[..length]) }))
}

fn start(verb: &str, path: &str) -> String {
    format!("{verb} {path} HTTP/1.1\r\nHost: h\r\nContent-Type: {JSON}\r\n")
}

#[tokio::test]
async fn a_body_may_not_hide_its_length() -> Result<()> {
    let limit = Options::default().max_body_bytes;
    let scene = Scene::set(Options::default()).await?;
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000)).repeat(limit / 0x10000 + 1);
    let chunked = format!("{}Transfer-Encoding: chunked\r\n\r\n{chunk}", start("POST", CONFIG_MAPS));
    let promised = format!("{}Content-Length: 99999999999\r\n\r\n", start("POST", CONFIG_MAPS));
    for (what, request) in [("chunks", chunked), ("a promise", promised)] {
        let answer = by_hand(&scene.hub, request.as_bytes()).await.context(what)?;
        scene.expects(what, &answer, 413, "RequestEntityTooLarge");
    }
    scene.ends_unharmed().await
}

#[tokio::test]
async fn what_is_not_http_gets_no_further_than_the_parser() -> Result<()> {
    let scene = Scene::set(Options::default()).await?;
    let long_path = format!("{}\r\n", start("GET", &format!("{CONFIG_MAPS}/{}", "a".repeat(200_000))));
    let long_header = format!("{}X-Long: {}\r\n\r\n", start("GET", CONFIG_MAPS), "a".repeat(1 << 20));
    let many_headers = format!("{}{}\r\n", start("GET", CONFIG_MAPS), "X-Many: 1\r\n".repeat(500));
    let both = format!(
        "{}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET {VICTIM} HTTP/1.1\r\n\r\n",
        start("POST", CONFIG_MAPS)
    );
    let lengths = format!("{}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}", start("POST", CONFIG_MAPS));
    let requests = [
        ("a long path", long_path),
        ("a long header", long_header),
        ("many headers", many_headers),
        ("two lengths", lengths),
        ("two kinds of length", both),
        ("a space in the path", start("GET", "/api/v1 /configmaps") + "\r\n"),
        ("another version", "GET / HTTP/3.0\r\n\r\n".to_owned()),
        ("noise", "\u{1}\u{2}\u{3}\r\n\r\n".repeat(20)),
        ("a tunnel", "CONNECT victim:443 HTTP/1.1\r\nHost: victim\r\n\r\n".to_owned()),
    ];
    for (what, request) in requests {
        // Closing without a word is an answer, too.
        if let Ok(answer) = by_hand(&scene.hub, request.as_bytes()).await {
            assert!(answer.code.is_client_error(), "{what}: {} {}", answer.code, answer.text());
        }
    }
    // HTTP/2 has frames for headers: too many of them are refused as well.
    let long = "a".repeat(100_000);
    if let Ok(answer) = scene.client.call(http::Method::GET, CONFIG_MAPS, &[("x-long", &long)], "").await {
        assert_eq!(answer.code, 431);
    }
    // A path in absolute form, as proxies send it, is a path.
    let absolute = format!("{}\r\n", start("GET", &format!("https://h{VICTIM}")));
    let answer = by_hand(&scene.hub, absolute.as_bytes()).await?;
    assert_eq!(answer.json()["metadata"]["name"], "victim");
    scene.ends_unharmed().await
}

#[tokio::test]
async fn a_body_that_never_ends_is_given_up() -> Result<()> {
    let options = Options { request_timeout: Duration::from_millis(300), ..Options::default() };
    let scene = Scene::set(options).await?;
    let promised = format!("{}Content-Length: 100\r\n\r\n{{\"metadata\":", start("POST", CONFIG_MAPS));
    let chunked = format!("{}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n", start("PUT", VICTIM));
    let waiting =
        format!("{}Content-Length: 100\r\nExpect: 100-continue\r\n\r\n", start("POST", CONFIG_MAPS));
    for (what, request) in [("a length", promised), ("chunks", chunked)] {
        let answer = by_hand(&scene.hub, request.as_bytes()).await.context(what)?;
        scene.expects(what, &answer, 504, "Timeout");
    }
    let answer = by_hand(&scene.hub, waiting.as_bytes()).await?;
    assert_eq!(answer.code, 100, "{}", answer.text());

    // Dripping does not help.
    let (mut receiver, mut sender) = tokio::io::split(scene.hub.dial("http/1.1").await?);
    let head = format!("{}Transfer-Encoding: chunked\r\n\r\n", start("POST", CONFIG_MAPS));
    sender.write_all(head.as_bytes()).await?;
    let drip = async {
        while sender.write_all(b"1\r\n \r\n").await.is_ok() && sender.flush().await.is_ok() {
            tokio::task::yield_now().await;
        }
        std::future::pending::<()>().await;
    };
    let answer = tokio::select! {
        answer = read_answer(&mut receiver) => answer?,
        () = drip => unreachable!("it waits for ever"),
    };
    assert!(matches!(answer.code.as_u16(), 504 | 413), "{}", answer.text());
    scene.ends_unharmed().await
}

#[tokio::test]
async fn who_leaves_in_the_middle_leaves_nothing_behind() -> Result<()> {
    let scene = Scene::set(Options::default()).await?;
    let metrics = &scene.hub.peer.hub.metrics;
    let request = format!("{}Content-Length: 100\r\n\r\n{{", start("POST", CONFIG_MAPS));
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = scene.hub.dial("http/1.1").await?;
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        streams.push(stream);
    }
    eventually("all are being answered", || async { Ok((metrics.requests.in_flight() == 20).then_some(())) })
        .await?;

    drop(streams);

    eventually("nothing is in flight", || async { Ok((metrics.requests.in_flight() == 0).then_some(())) })
        .await?;
    eventually("one connection is open", || async { Ok((metrics.connections.get() == 1).then_some(())) })
        .await?;
    scene.ends_unharmed().await
}

#[tokio::test]
async fn who_says_nothing_is_shown_the_door() -> Result<()> {
    let scene = Scene::set(Options::default()).await?;
    let address = scene.hub.peer.address;
    let beginnings: [&[u8]; 4] =
        [b"", b"PRI * HT", b"GET /version HTTP/1.1\r\nHost: h\r\nX-Slow: ", b"GET /version HTTP/1.1\r\n"];
    let mut silent = Vec::new();
    for beginning in beginnings {
        for alpn in ["http/1.1", "h2"] {
            let mut stream = scene.hub.dial(alpn).await?;
            stream.write_all(beginning).await?;
            stream.flush().await?;
            silent.push((format!("{alpn} after {:?}", String::from_utf8_lossy(beginning)), stream));
        }
    }
    let mut without_tls = Vec::new();
    for _ in 0..20 {
        without_tls.push(TcpStream::connect(address).await?);
    }

    // Meanwhile others are served.
    assert_eq!(scene.client.get("/readyz").await?.text(), "ok");

    let deadline = tokio::time::Instant::now() + Duration::from_secs(40);
    let mut open = Vec::new();
    for (what, mut stream) in silent {
        let mut rest = Vec::new();
        let closed = stream.read_to_end(&mut rest);
        if tokio::time::timeout_at(deadline, closed).await.is_err() {
            open.push(what);
        }
    }
    for mut stream in without_tls {
        let mut rest = Vec::new();
        let closed = stream.read_to_end(&mut rest);
        if tokio::time::timeout_at(deadline, closed).await.is_err() {
            open.push("no TLS".to_owned());
        }
    }
    assert!(open.is_empty(), "still open: {open:#?}");
    scene.ends_unharmed().await
}

#[tokio::test]
async fn more_connections_than_allowed_are_closed_and_others_go_on() -> Result<()> {
    let scene = Scene::set(Options { max_connections: 3, ..Options::default() }).await?;
    // The scene's own client is one of them.
    let mut kept = vec![scene.hub.dial("http/1.1").await?, scene.hub.dial("http/1.1").await?];
    assert!(scene.hub.dial("http/1.1").await.is_err(), "there are three already");
    assert_eq!(scene.client.get(CONFIG_MAPS).await?.code, StatusCode::OK);
    let metrics = scene.client.get("/metrics").await?.text();
    assert!(metrics.contains("hanse_connections_refused_total 1"), "{metrics}");
    kept.pop();
    eventually("a place is free again", async || Ok(scene.hub.dial("http/1.1").await.ok())).await?;
    scene.ends_unharmed().await
}

#[tokio::test]
async fn a_client_says_how_long_it_waits() -> Result<()> {
    let scene = Scene::set(Options::default()).await?;
    for (timeout, why) in [
        ("soon", "time: invalid duration \\\"soon\\\""),
        ("10", "time: missing unit in duration \\\"10\\\""),
        ("1x", "time: unknown unit \\\"x\\\" in duration \\\"1x\\\""),
    ] {
        let answer = scene.client.get(&format!("{CONFIG_MAPS}?timeout={timeout}")).await?;
        assert_eq!(answer.code, StatusCode::BAD_REQUEST, "{timeout}");
        let message = format!("invalid timeout specified in the request URL - {why}");
        assert!(answer.text().contains(&message), "{}", answer.text());
    }
    for timeout in ["", "0s", "30s", "1h"] {
        let answer = scene.client.get(&format!("{CONFIG_MAPS}?timeout={timeout}")).await?;
        assert_eq!(answer.code, StatusCode::OK, "{timeout}");
    }
    // A body that does not come in time.
    let head =
        format!("{}Content-Length: 100\r\n\r\n{{", start("POST", &format!("{CONFIG_MAPS}?timeout=100ms")));
    let answer = by_hand(&scene.hub, head.as_bytes()).await?;
    assert_eq!(answer.code, StatusCode::GATEWAY_TIMEOUT);
    let status = answer.json();
    assert_eq!(status["reason"], "Timeout");
    let message = "Timeout: request did not complete within requested timeout - context deadline exceeded";
    assert_eq!(status["message"], message);
    assert_eq!(answer.headers.get("retry-after"), None);
    scene.ends_unharmed().await
}
