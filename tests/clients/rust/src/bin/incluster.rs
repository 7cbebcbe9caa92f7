//! In a pod: says what the ConfigMap `note` of its namespace says.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Config};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let config = Config::incluster()?;
    let notes: Api<ConfigMap> = Api::namespaced(Client::try_from(config.clone())?, &config.default_namespace);
    let note = notes.get("note").await?;
    let of = note.data.and_then(|mut data| data.remove("of")).context("it says nothing")?;
    println!("{} in {}", of, config.default_namespace);
    Ok(())
}
