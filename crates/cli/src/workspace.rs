//! `hanse workspace`: create, list and use workspaces, and change the keys of their tokens.

use std::path::PathBuf;

use anyhow::bail;
use env::Env;
use http::Method;
use serde_json::{Value, json};
use sync::client::Access;

use crate::{args::WorkspaceVerb, client, kubeconfig::Kubeconfig};

const PATH: &str = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";

pub async fn run(env: Env, kubeconfig: Option<PathBuf>, verb: WorkspaceVerb) -> anyhow::Result<()> {
    let mut kubeconfig = Kubeconfig::open(&env, kubeconfig)?;
    let access = kubeconfig.access(&env)?;
    match verb {
        WorkspaceVerb::Create { name, r#use } => {
            let workspace =
                json!({"apiVersion": api::API_VERSION, "kind": "Workspace", "metadata": {"name": name}});
            client::call(&env, &access, Method::POST, PATH, Some(&workspace)).await?;
            eprintln!("workspace {name} created");
            if r#use {
                return switch(&env, &mut kubeconfig, &name);
            }
            eprintln!("use it with: hanse workspace use {name}");
            Ok(())
        }
        WorkspaceVerb::List { json } => {
            let list = client::call(&env, &access, Method::GET, PATH, None).await?;
            if json {
                println!("{list}");
                return Ok(());
            }
            println!("{:<32} PHASE", "NAME");
            println!("{:<32} Ready", api::DEFAULT);
            for item in list["items"].as_array().into_iter().flatten() {
                let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                println!("{:<32} {}", text("/metadata/name"), text("/status/phase"));
            }
            println!("{:<32} Ready", api::ROOT);
            Ok(())
        }
        WorkspaceVerb::Use { name } => {
            if name != api::DEFAULT && name != api::ROOT {
                let path = format!("{PATH}/{name}");
                if let Err(error) = client::call(&env, &access, Method::GET, &path, None).await {
                    bail!("{error}; see `hanse workspace list`");
                }
            }
            switch(&env, &mut kubeconfig, &name)
        }
        WorkspaceVerb::RotateKeys { name, forget_old } => {
            let keys = if forget_old { "only-new" } else { "new" };
            let outcome = change_keys(&env, &access, &name, keys).await?;
            eprintln!("workspace {name} signs tokens with the new key {}", text(&outcome, "signs"));
            match outcome["verify"].as_array().map_or(0, Vec::len) {
                0 => eprintln!("no other key is good; tokens that were signed before are refused"),
                older => eprintln!(
                    "{older} older keys still verify; forget them with: hanse workspace forget-keys {name}"
                ),
            }
            Ok(())
        }
        WorkspaceVerb::ForgetKeys { name } => {
            let outcome = change_keys(&env, &access, &name, "forget-old").await?;
            eprintln!("workspace {name} knows only the key {}", text(&outcome, "signs"));
            Ok(())
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

async fn change_keys(env: &Env, access: &Access, workspace: &str, keys: &str) -> anyhow::Result<Value> {
    let path = format!("/clusters/{workspace}/openid/v1/rotation?keys={keys}");
    client::call(env, access, Method::POST, &path, None).await
}

fn switch(env: &Env, kubeconfig: &mut Kubeconfig, name: &str) -> anyhow::Result<()> {
    kubeconfig.use_workspace(env, name)?;
    eprintln!("{} now uses workspace {name}", kubeconfig.path().display());
    Ok(())
}
