//! kubectl asks for certificates, approves them, logs in with one, and reconciles roles.

use std::{path::Path, process::Command};

use anyhow::{Context, Result};
use serde_json::json;
use testing::{
    hub::{TestHub, eventually},
    real,
};

use crate::{
    authority::request,
    requests::{CLIENT, mk_request, signed},
};

struct Kubectl<'a> {
    binary: &'a Path,
    kubeconfig: &'a Path,
}

impl Kubectl<'_> {
    /// What it says, on either stream, and whether it succeeded.
    async fn run(&self, arguments: &[&str]) -> Result<(bool, String)> {
        let mut command = Command::new(self.binary);
        command.arg("--kubeconfig").arg(self.kubeconfig).args(arguments);
        let output =
            tokio::task::spawn_blocking(move || command.output()).await?.context("kubectl starts")?;
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.success(), said))
    }

    async fn succeeds(&self, arguments: &[&str]) -> Result<String> {
        let (succeeded, said) = self.run(arguments).await?;
        assert!(succeeded, "kubectl {arguments:?}: {said}");
        Ok(said)
    }
}

#[tokio::test]
async fn kubectl_does_it_all() -> Result<()> {
    let binary = real::build(&["kubectl"])?.join("kubectl");
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let directory = tempfile::tempdir()?;
    let file = |name: &str, text: &str| -> Result<String> {
        let path = directory.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let kubeconfig = file("kubeconfig", &hub.peer.admin_kubeconfig(&[("hanse", api::DEFAULT)])?)?;
    let kubectl = Kubectl { binary: &binary, kubeconfig: Path::new(&kubeconfig) };

    // A certificate, asked for, approved, and used.
    let (pem, key) = request("ann", &["team"], &[])?;
    let mut object = mk_request("ann", CLIENT, &pem, &["client auth"]);
    object["apiVersion"] = json!("certificates.k8s.io/v1");
    object["kind"] = json!("CertificateSigningRequest");
    kubectl.succeeds(&["apply", "-f", &file("csr.json", &object.to_string())?]).await?;
    kubectl.succeeds(&["certificate", "approve", "ann"]).await?;
    let certificate = file("ann.crt", &signed(&admin, "", "ann").await?)?;
    let key = file("ann.key", &key)?;
    assert!(kubectl.succeeds(&["get", "csr", "ann"]).await?.contains("Approved,Issued"));
    let credentials = [format!("--client-certificate={certificate}"), format!("--client-key={key}")];
    kubectl.succeeds(&["config", "set-credentials", "ann", &credentials[0], &credentials[1]]).await?;
    let me = kubectl.succeeds(&["--user", "ann", "auth", "whoami"]).await?;
    assert!(me.contains("ann") && me.contains("team"), "{me}");
    assert!(!kubectl.run(&["--user", "ann", "get", "configmaps"]).await?.0);

    // One that is denied.
    object["metadata"]["name"] = json!("bob");
    kubectl.succeeds(&["apply", "-f", &file("csr.json", &object.to_string())?]).await?;
    kubectl.succeeds(&["certificate", "deny", "bob"]).await?;
    assert!(kubectl.succeeds(&["get", "csr", "bob"]).await?.contains("Denied"));

    // Roles, one of which collects the other.
    let group = "rbac.authorization.k8s.io";
    let roles = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": "monitor"},
         "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"monitor": "true"}}]}},
        {"apiVersion": format!("{group}/v1"), "kind": "ClusterRole",
         "metadata": {"name": "monitor-configmaps", "labels": {"monitor": "true"}},
         "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]},
        {"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "monitor"},
         "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "monitor"},
         "subjects": [{"apiGroup": group, "kind": "User", "name": "ann"}]},
    ]});
    let roles = file("roles.json", &roles.to_string())?;
    kubectl.succeeds(&["auth", "reconcile", "-f", &roles]).await?;
    kubectl.succeeds(&["--user", "ann", "get", "configmaps"]).await?;
    eventually("the rules are shown", || async {
        let shown = kubectl.succeeds(&["get", "clusterrole", "monitor", "-o", "jsonpath={.rules}"]).await?;
        Ok(shown.contains("configmaps").then_some(()))
    })
    .await?;
    let again = ["auth", "reconcile", "--remove-extra-permissions", "--remove-extra-subjects", "-f", &roles];
    kubectl.succeeds(&again).await?;
    kubectl.succeeds(&["--user", "ann", "get", "configmaps"]).await?;
    Ok(())
}
