//! A node that runs containers: kubelet, containerd and runc on this machine, apart from all else on it.
//!
//! ```text
//!   unshare ── first process of own process and mount namespaces
//!     │          ├── containerd ── shims ── pods' containers      own root, state, sockets
//!     │          └── kubelet                                      own root, free ports, own cgroup
//!     └ dies: all of them die, and their mounts and network namespaces with them
//!   guard ── then removes what outlives processes: the bridge, the cgroups, the directory
//! ```

use std::{
    fs,
    net::Ipv4Addr,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tempfile::TempDir;

use super::{Guard, Process, free_ports, image};

/// An image that every node has, with busybox and nothing else; it cannot be pulled.
pub const IMAGE: &str = "hanse.test/busybox:1";
const PAUSE: &str = "hanse.test/pause:1";
const SCRIPT: &str = include_str!("node.sh");
/// Where Debian's package puts the plug-ins.
const CNI_PLUGINS: &str = "/usr/lib/cni";

/// Dropping it ends every container and removes every trace.
pub(super) struct RealNode {
    // Dropped in this order.
    process: Process,
    _places: Places,
    _guard: Guard,
    directory: TempDir,
}

impl RealNode {
    /// Starts one; it registers itself when it is up.
    pub fn start(name: &str, binaries: &Path, kubeconfig: &Path, ca_pem: &str) -> Result<RealNode> {
        let directory = tempfile::Builder::new().prefix("hanse-node-").tempdir()?;
        let [port, healthz] = free_ports()?;
        let places = Places::of(port);
        let mut guard = Guard::with(directory.path(), &places.removal())?;
        places.make()?;
        let settings = Settings { directory: directory.path(), places: &places, port, healthz };
        settings.write(ca_pem)?;
        for (file, image, entrypoint) in
            [("busybox", IMAGE, &["/bin/sh"][..]), ("pause", PAUSE, &["/bin/sleep", "2147483647"])]
        {
            let archive = image::write(directory.path(), image, entrypoint)?;
            fs::rename(archive, directory.path().join(format!("{file}.tar")))?;
        }
        let process = Process::spawn(
            "node",
            Path::new("unshare"),
            &settings.command(name, &binaries.join("kubelet"), kubeconfig),
            directory.path(),
        )?;
        guard.watch(process.child.id())?;
        Ok(RealNode { process, _places: places, _guard: guard, directory })
    }

    pub fn log_tail(&self) -> String {
        let mut tail = self.process.log_tail();
        for part in ["containerd", "kubelet"] {
            let log = fs::read(self.directory.path().join(format!("{part}.log"))).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(40)..].join("\n");
            tail.push_str(&format!("\n--- {part}\n{last}"));
        }
        tail
    }
}

/// What a node has beside processes, by names that nobody else has on this machine.
struct Places {
    /// Of the cgroup, the pods' network and its bridge.
    name: String,
    gateway: Ipv4Addr,
    /// The first three numbers of all addresses.
    network: String,
}

impl Places {
    /// Nobody else has this port, so nobody else has these names.
    fn of(port: u16) -> Places {
        let [high, low] = port.to_be_bytes();
        // Ports that are given out lie in the upper half: 10.128 to 10.255.
        let (high, network) = (high | 128, format!("10.{}.{low}", high | 128));
        Places { name: format!("hanse{port}"), gateway: Ipv4Addr::new(10, high, low, 1), network }
    }

    fn make(&self) -> Result<()> {
        let (name, address) = (&self.name, format!("{}/24", self.gateway));
        run("ip", &["link", "add", name, "type", "bridge"])?;
        run("ip", &["address", "add", &address, "dev", name])?;
        run("ip", &["link", "set", name, "up"])?;
        // The kubelet looks into every hierarchy for the group that it is told to use.
        let hierarchies: Vec<_> = fs::read_dir("/sys/fs/cgroup")?.collect::<Result<_, _>>()?;
        if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            fs::create_dir(Path::new("/sys/fs/cgroup").join(name))?;
            return Ok(());
        }
        for hierarchy in hierarchies.into_iter().filter(|it| it.file_type().is_ok_and(|kind| kind.is_dir())) {
            fs::create_dir(hierarchy.path().join(name))?;
        }
        Ok(())
    }

    /// A script that removes them.
    fn removal(&self) -> String {
        let name = &self.name;
        format!(
            "ip link delete {name} 2>/dev/null
             for try in 1 2 3 4 5 6 7 8 9 10; do
                 find /sys/fs/cgroup -depth -type d -path '*/{name}*' -exec rmdir {{}} + 2>/dev/null
                 [ -n \"$(find /sys/fs/cgroup -maxdepth 2 -type d -name {name})\" ] || break
                 sleep 0.5
             done"
        )
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let _ = Command::new("sh").args(["-c", &self.removal()]).stdin(Stdio::null()).status();
    }
}

/// What kubelet and containerd are told.
struct Settings<'a> {
    directory: &'a Path,
    places: &'a Places,
    port: u16,
    healthz: u16,
}

impl Settings<'_> {
    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn write(&self, ca_pem: &str) -> Result<()> {
        let write = |name: &str, content: &str| {
            fs::write(self.directory.join(name), content).with_context(|| format!("cannot write {name}"))
        };
        write("node.sh", SCRIPT)?;
        write("ca.crt", ca_pem)?;
        // Nothing is looked up.
        write("resolv.conf", "nameserver 127.0.0.1\n")?;
        write("containerd.toml", &self.containerd())?;
        write("kubelet.json", &self.kubelet().to_string())?;
        fs::create_dir(self.directory.join("cni"))?;
        write("cni/pods.conflist", &self.network().to_string())
    }

    fn command(&self, name: &str, kubelet: &Path, kubeconfig: &Path) -> Vec<String> {
        let own = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"].map(str::to_owned);
        let script = ["sh".to_owned(), self.path("node.sh"), self.directory.display().to_string()];
        let kubelet = [
            kubelet.display().to_string(),
            format!("--config={}", self.path("kubelet.json")),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--root-dir={}", self.path("kubelet")),
            format!("--cert-dir={}", self.path("kubelet-pki")),
            format!("--hostname-override={name}"),
            // May not be a loopback address.
            format!("--node-ip={}", self.places.gateway),
        ];
        own.into_iter().chain(script).chain(kubelet).collect()
    }

    fn kubelet(&self) -> serde_json::Value {
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": self.places.gateway.to_string(), "port": self.port,
            "healthzBindAddress": "127.0.0.1", "healthzPort": self.healthz,
            "authentication": {"x509": {"clientCAFile": self.path("ca.crt")}, "anonymous": {"enabled": false}},
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": format!("unix://{}", self.path("containerd.sock")),
            "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{}", self.places.name),
            "failCgroupV1": false, "failSwapOn": false,
            // Lowering it is a privilege that root in a container may lack.
            "oomScoreAdj": 0,
            "enforceNodeAllocatable": ["none"],
            "resolvConf": self.path("resolv.conf"),
            "podLogsDir": self.path("pod-logs"), "volumePluginDir": self.path("volume-plugins"),
            // However full this machine is, tests run.
            "evictionHard": {"nodefs.available": "1Mi", "imagefs.available": "1Mi", "memory.available": "1Mi"},
            "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
            "nodeStatusUpdateFrequency": "2s", "syncFrequency": "5s",
        })
    }

    fn containerd(&self) -> String {
        let path = |name: &str| self.path(name);
        format!(
            r#"version = 2
root = "{root}"
state = "{state}"
oom_score = 0
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "native"
  default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = "{runc}"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = "{cni}"
"#,
            root = path("containerd"),
            state = path("containerd-state"),
            socket = path("containerd.sock"),
            runc = path("runc"),
            cni = path("cni"),
        )
    }

    fn network(&self) -> serde_json::Value {
        let Places { name, network, .. } = self.places;
        json!({
            "cniVersion": "1.0.0", "name": name,
            "plugins": [{
                "type": "bridge", "bridge": name, "isGateway": true, "ipMasq": false, "hairpinMode": true,
                "ipam": {
                    "type": "host-local", "dataDir": self.path("cni-addresses"),
                    "ranges": [[{"subnet": format!("{network}.0/24")}]], "routes": [{"dst": "0.0.0.0/0"}],
                },
            }],
        })
    }
}

fn run(program: &str, args: &[&str]) -> Result<()> {
    let output =
        Command::new(program).args(args).output().with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {said}", args.join(" "));
    Ok(())
}
