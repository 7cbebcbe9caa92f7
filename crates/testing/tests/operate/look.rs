//! Looking into a running peer: profiles, and what it logs.

use std::process::Command;

use anyhow::Result;
use testing::process::{HubProcess, binary};

use super::*;

fn log_of(data: &Path) -> String {
    std::fs::read_to_string(data.with_extension("log")).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_level_is_set_by_the_verb_and_requests_are_logged_with_their_stages() -> Result<()> {
    let (_directory, data) = mk_place()?;
    let hub = HubProcess::start(&data)?;
    let client = hub.client().await?;
    let kubeconfig = hub.kubeconfig();
    let level = ["log-level", "--kubeconfig", text(&kubeconfig)];
    mk_config_map(&client, "unseen").await?;
    assert_eq!(done(&level)?, "warn\n");
    let told = done(&[&level[..], &["warn,hanse::request=debug", "--for", "10m"]].concat())?;
    assert_eq!(told, "logging warn,hanse::request=debug for 600 s, then warn again\n");
    let headers = [
        ("content-type", "application/json"),
        ("user-agent", "the-client/1.0"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ];
    client.call(http::Method::POST, CONFIG_MAPS, &headers, r#"{"metadata":{"name":"seen"}}"#).await?;
    assert!(refused(&[&level[..], &["server=loud"]].concat())?.contains("is no filter"));
    assert_eq!(done(&[&level[..], &["error"]].concat())?, "logging error\n");
    hub.stop()?;

    let log = log_of(&data);
    assert!(!log.contains("unseen"), "{log}");
    let line = log.lines().find(|line| line.contains("POST") && line.contains("answered"));
    let line = line.unwrap_or_else(|| panic!("no line for the request: {log}"));
    for part in [
        "http.request.method=\"POST\"",
        "url.path=\"/api/v1/namespaces/default/configmaps\"",
        "user_agent.original=\"the-client/1.0\"",
        "trace_id=\"0af7651916cd43dd8448eb211c80319c\"",
        "workspace=\"default\"",
        "verb=\"POST\"",
        "resource=\"configmaps\"",
        "http.response.status_code=201",
        "stage.authenticate=",
        "stage.decode=",
        "stage.commit=",
        "duration=",
    ] {
        assert!(line.contains(part), "{part} is missing: {line}");
    }
    assert_eq!(line.matches("stage.check=").count(), 1, "a stage is told once, with all of its time: {line}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_are_taken_under_load() -> Result<()> {
    let (_directory, data) = mk_place()?;
    let mut command = Command::new(binary()?);
    command.env("_RJEM_MALLOC_CONF", "prof:true,lg_prof_sample:16");
    let hub = HubProcess::start_as(command, &data)?;
    let client = hub.client().await?;
    let load = tokio::spawn({
        let client = hub.client().await?;
        async move {
            for count in 0.. {
                if mk_config_map(&client, &format!("c{count}")).await.is_err() {
                    return;
                }
            }
        }
    });
    let (profile, other) = tokio::join!(
        client.get("/debug/pprof/profile?seconds=2"),
        client.get("/debug/pprof/profile?seconds=2")
    );
    let mut answers = [profile?, other?];
    answers.sort_by_key(|answer| answer.code);
    let [profile, other] = answers;
    assert_eq!((profile.code.as_u16(), other.code.as_u16()), (200, 429), "one at a time: {}", other.text());
    // A machine with other work may have looked at this one only where it waits.
    let mut has_names = profile.text().contains("server");
    for _ in 0..20 {
        if !has_names {
            let again = client.get("/debug/pprof/profile?seconds=2").await?;
            has_names = again.text().contains("server");
        }
    }
    assert!(has_names, "functions have names");
    let heap = client.get("/debug/pprof/heap").await?;
    assert_eq!((heap.code.as_u16(), &heap.bytes[..2]), (200, [0x1f, 0x8b].as_slice()), "{}", heap.text());
    for query in ["seconds=0", "seconds=601", "seconds=x"] {
        assert_eq!(client.get(&format!("/debug/pprof/profile?{query}")).await?.code, 400);
    }
    let index = client.get("/debug/pprof/").await?.text();
    assert!(index.contains("/debug/pprof/profile") && index.contains("/debug/pprof/heap"), "{index}");
    load.abort();
    hub.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heap_that_was_not_sampled_says_how_to() -> Result<()> {
    let (_directory, data) = mk_place()?;
    let hub = HubProcess::start(&data)?;
    let heap = hub.client().await?.get("/debug/pprof/heap").await?;
    assert_eq!(heap.code, 400);
    assert!(heap.text().contains("_RJEM_MALLOC_CONF=prof:true"), "{}", heap.text());
    Ok(())
}

#[test]
fn it_has_as_many_files_open_as_it_may() -> Result<()> {
    let (_directory, data) = mk_place()?;
    let mut command = Command::new("bash");
    command.args(["-c", r#"ulimit -Sn 200 && ulimit -Hn 3000 && exec "$0" "$@""#]).arg(binary()?);
    let hub = HubProcess::start_as(command, &data)?;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", hub.pid()))?;
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    assert_eq!(line.split_whitespace().nth(3), Some("3000"), "{line}");
    hub.stop()
}
