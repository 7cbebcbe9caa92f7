//! Certificates change without a restart.

use std::{fs, path::Path};

use anyhow::Result;
use http::StatusCode;
use server::login::LoginOptions;
use testing::{client::Client, hub::eventually};

use crate::{authority::Authority, hub_with, metric, name_of, who};

fn write(directory: &Path, name: &str, text: &str) -> Result<std::path::PathBuf> {
    let path = directory.join(name);
    // As `kubectl` and cert-manager do: a new file takes the old one's place.
    let new = directory.join(format!("{name}.new"));
    fs::write(&new, text)?;
    fs::rename(&new, &path)?;
    Ok(path)
}

#[tokio::test]
async fn a_new_serving_certificate_is_for_new_connections() -> Result<()> {
    // Given a server with a certificate of another authority
    let directory = tempfile::tempdir()?;
    let (first, second) = (Authority::mk("first")?, Authority::mk("second")?);
    let serving = first.server("hub", "127.0.0.1")?;
    let certificate = write(directory.path(), "tls.crt", &serving.certificate)?;
    let key = write(directory.path(), "tls.key", &serving.key)?;
    let hub = hub_with(LoginOptions { serving: Some((certificate, key)), ..Default::default() }).await?;
    let url = hub.peer.url();
    let admin = hub.peer.authority.client("admin", &["system:masters"])?;
    let identity = (admin.certificate_pem.as_str(), admin.key_pem.as_str());
    let old = Client::connect(&url, &first.pem, Some(identity)).await?;
    assert_eq!(name_of(&old).await?, "admin");
    assert!(Client::connect(&url, hub.peer.authority.certificate_pem(), None).await.is_err());

    // When the files change, one after the other
    let serving = second.server("hub", "127.0.0.1")?;
    write(directory.path(), "tls.crt", &serving.certificate)?;
    let failures = "hanse_login_reloads_total{what=\"serving\",status=\"failure\"}";
    eventually("a certificate with another's key is refused", || async {
        Ok((metric(&old, failures).await? > 0.0).then_some(()))
    })
    .await?;
    assert!(Client::connect(&url, &first.pem, None).await.is_ok(), "the old pair is still served");
    write(directory.path(), "tls.key", &serving.key)?;

    // Then new connections see the new one, and old connections go on
    eventually("the new certificate", || async { Ok(Client::connect(&url, &second.pem, None).await.ok()) })
        .await?;
    assert!(Client::connect(&url, &first.pem, None).await.is_err());
    assert_eq!(name_of(&old).await?, "admin");
    assert_eq!(metric(&old, "hanse_login_reloads_total{what=\"serving\",status=\"success\"}").await?, 1.0);

    // When a file is broken or gone, the last good one stays
    for broken in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let before = metric(&old, failures).await?;
        write(directory.path(), "tls.crt", broken)?;
        eventually("it is told of", || async { Ok((metric(&old, failures).await? >= before).then_some(())) })
            .await?;
        assert!(Client::connect(&url, &second.pem, None).await.is_ok(), "{broken:?}");
    }
    Ok(())
}

#[tokio::test]
async fn client_authorities_come_and_go() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (ours, theirs) = (Authority::mk("ours")?, Authority::mk("theirs")?);
    let file = write(directory.path(), "ca.crt", &ours.pem)?;
    let hub = hub_with(LoginOptions { client_ca: Some(file), ..Default::default() }).await?;
    let (url, ca) = (hub.peer.url(), hub.peer.authority.certificate_pem());
    let ann = ours.client("ann", Some("team"))?;
    let bob = theirs.client("bob", None)?;
    let ann = Client::connect(&url, ca, Some(ann.identity())).await?;
    let bob = Client::connect(&url, ca, Some(bob.identity())).await?;
    let answer = who(&ann, "", &[]).await?.json();
    assert_eq!(answer["status"]["userInfo"]["username"], "ann");
    assert_eq!(answer["status"]["userInfo"]["groups"][0], "team");
    assert_eq!(who(&bob, "", &[]).await?.code, StatusCode::UNAUTHORIZED);
    assert_eq!(name_of(&hub.admin().await?).await?, "admin", "the peer's own authority stays");

    // Both authorities, as in a rotation.
    write(directory.path(), "ca.crt", &format!("{}{}", ours.pem, theirs.pem))?;
    eventually("bob is known", || async {
        Ok((who(&bob, "", &[]).await?.code == StatusCode::CREATED).then_some(()))
    })
    .await?;
    assert_eq!(name_of(&ann).await?, "ann");

    // The old one goes: also on connections that exist.
    write(directory.path(), "ca.crt", &theirs.pem)?;
    eventually("ann is not known any more", || async {
        Ok((who(&ann, "", &[]).await?.code == StatusCode::UNAUTHORIZED).then_some(()))
    })
    .await?;
    assert_eq!(name_of(&bob).await?, "bob");

    // A broken bundle changes nothing.
    write(directory.path(), "ca.crt", "nonsense")?;
    let admin = hub.admin().await?;
    eventually("it is told of", || async {
        let failures = "hanse_login_reloads_total{what=\"client_ca\",status=\"failure\"}";
        Ok((metric(&admin, failures).await? == 1.0).then_some(()))
    })
    .await?;
    assert_eq!(name_of(&bob).await?, "bob");
    Ok(())
}

#[tokio::test]
async fn files_that_are_broken_at_the_start_are_told_of() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let missing = directory.path().join("missing");
    let error = hub_with(LoginOptions { client_ca: Some(missing.clone()), ..Default::default() }).await;
    assert!(error.is_err_and(|error| error.to_string().contains("missing")));
    let empty = write(directory.path(), "empty", "")?;
    let error = hub_with(LoginOptions { client_ca: Some(empty.clone()), ..Default::default() }).await;
    assert!(error.is_err_and(|error| error.to_string().contains("has no usable certificates")));
    let error = hub_with(LoginOptions { serving: Some((empty, missing)), ..Default::default() }).await;
    assert!(error.is_err());
    Ok(())
}
