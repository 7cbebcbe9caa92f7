//! The command line.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Parser, Subcommand};
use env::Env;
use server::{Options, login::LoginOptions, operate::Tools};
use sync::client::Access;

use crate::{
    backup, clusters,
    dev::{self, DevVerb},
    explain::{self, ExplainArgs},
    kubeconfig::Kubeconfig,
    leftovers, log, migrate,
    run::{self, DevOptions},
    serving::{self, ServingArgs},
    storage::{EtcdArgs, StoreArgs},
    workspace,
};

/// One Kubernetes API over every cluster, in every region, with no cluster above the others.
#[derive(Parser)]
#[command(name = "hanse", version, max_term_width = 100)]
pub struct Args {
    /// What to log, to stderr: error, warn, info, debug, or a filter such as server=debug.
    #[arg(long, global = true, env = "HANSE_LOG", default_value = "warn")]
    pub log: String,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub enum Command {
    /// Run everything on this machine, ready for kubectl.
    ///
    /// Keeps its state in a directory, so that starting again continues. Writes a kubeconfig there once it is ready:
    /// context `hanse` is the workspace `default`, context `root` is the workspace of platform admins, and each simulated
    /// cluster has one of its name.
    #[command(args_conflicts_with_subcommands = true)]
    Dev {
        /// Where state, certificates and the kubeconfig are kept.
        #[arg(long, default_value = ".hanse")]
        dir: PathBuf,
        /// The address to serve on.
        #[arg(long, default_value = "127.0.0.1:7443")]
        listen: SocketAddr,
        /// Simulated member clusters, joined and ready: eu-1, eu-2, us-1 and so on. Each has a context of its name.
        #[arg(long, default_value_t = 3, value_name = "N")]
        clusters: usize,
        /// Simulated nodes in each of them, for 110 pods each.
        #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
        nodes: u16,
        #[command(flatten)]
        login: LoginArgs,
        #[command(flatten)]
        serving: ServingArgs,
        #[command(subcommand)]
        verb: Option<DevVerb>,
    },
    /// Run a peer: the API server of one region.
    ///
    /// Writes DATA/admin.kubeconfig once it is ready. Stops cleanly on SIGINT and SIGTERM.
    Serve {
        /// Where the store, unless it is in etcd, and the certificates are kept.
        #[arg(long)]
        data: PathBuf,
        /// The address to serve on.
        #[arg(long, default_value = "127.0.0.1:6443")]
        listen: SocketAddr,
        /// The name or address, with or without a port, that clients are told to use.
        #[arg(long)]
        advertise: Option<String>,
        /// What the issuers of service account tokens are below, as https://…: the issuer of a workspace is
        /// ISSUER/clusters/NAME, and others look for its public keys there. Where clients reach this server unless
        /// given.
        #[arg(long)]
        issuer: Option<String>,
        #[command(flatten)]
        store: StoreArgs,
        #[command(flatten)]
        login: LoginArgs,
        #[command(flatten)]
        serving: ServingArgs,
    },
    /// Create, list and use workspaces: complete, isolated Kubernetes APIs.
    #[command(alias = "ws")]
    Workspace {
        /// The kubeconfig to use and, with `use`, to change.
        #[arg(long, global = true, env = "KUBECONFIG")]
        kubeconfig: Option<PathBuf>,
        #[command(subcommand)]
        verb: WorkspaceVerb,
    },
    /// Make a Kubernetes cluster a member of a workspace.
    ///
    /// Makes in the cluster the namespace hanse-system with a service account that may do what Hanse does there, keeps
    /// its token in the workspace, and creates the Cluster. What is cut off anywhere is finished by the same command. A
    /// cluster that is joined already, by whatever name, is refused.
    Join {
        /// What the cluster is called in the workspace: lower-case letters, digits and dashes.
        name: String,
        /// The kubeconfig of an admin of the cluster that is to be joined.
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
        /// Its context; the current one unless given.
        #[arg(long, value_name = "NAME")]
        context: Option<String>,
        /// The region that the cluster is in: its label topology.kubernetes.io/region.
        #[arg(long)]
        region: Option<String>,
        /// The zone that the cluster is in: its label topology.kubernetes.io/zone.
        #[arg(long)]
        zone: Option<String>,
        /// Other labels of the cluster, as KEY=VALUE,KEY=VALUE.
        #[arg(long, value_name = "LABELS", value_delimiter = ',')]
        labels: Vec<String>,
        /// How long to wait until the cluster is ready.
        #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = serving::duration)]
        wait: Duration,
        #[command(flatten)]
        hub: HubArgs,
    },
    /// List the clusters of a workspace.
    Clusters {
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        hub: HubArgs,
    },
    /// List what clusters have of Hanse's that nothing in the hub wants. It is kept, and nothing is changed unless asked to.
    ///
    /// For instance after an older backup was restored, or a cluster came back that had been forgotten. With --delete they
    /// are deleted in one cluster: without --yes it is only said what would be.
    Leftovers {
        /// Of this cluster alone.
        cluster: Option<String>,
        /// As JSON, for programs.
        #[arg(long, conflicts_with = "delete")]
        json: bool,
        /// Delete those that are listed, as long as nothing wants them. Show what would go, unless --yes.
        #[arg(long, requires = "cluster")]
        delete: bool,
        /// Do it.
        #[arg(long, requires = "delete", conflicts_with = "dry_run")]
        yes: bool,
        /// Only show what would go, as without --yes.
        #[arg(long, requires = "delete")]
        dry_run: bool,
        /// The kubeconfig of an admin of the cluster. Without it, the session's own credential is used.
        #[arg(long, value_name = "FILE", requires = "delete")]
        kubeconfig: Option<PathBuf>,
        /// Its context; the current one unless given.
        #[arg(long, value_name = "NAME", requires = "kubeconfig")]
        context: Option<String>,
        #[command(flatten)]
        hub: HubArgs,
    },
    /// Say where objects run, or would run, and why.
    ///
    /// Of an object that is applied (KIND/NAME) it tells which clusters have how much of it, by whose policy, what each says
    /// of its copy, and which pods do not run: `hanse explain deployment/web -n shop`, `hanse explain pod/web-0`.
    ///
    /// Of objects that are not applied yet (-f) it decides as the hub would, from files alone or with what the hub knows,
    /// and changes nothing: for each object which clusters get how much of it, by whose policy, and for each other cluster
    /// why not and what would change that: `hanse explain -f web.yaml`, `hanse explain -f web.yaml --clusters clusters.yaml`.
    Explain(ExplainArgs),
    /// Make a cluster leave a workspace. What runs in it goes on.
    ///
    /// Removes what `hanse join` made, in the cluster and in the workspace, and nothing else unless asked to.
    Unjoin {
        /// What the cluster is called in the workspace.
        name: String,
        /// The kubeconfig of an admin of the cluster. Without it, the session's own credential is used.
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        /// Its context; the current one unless given.
        #[arg(long, value_name = "NAME", requires = "kubeconfig")]
        context: Option<String>,
        /// The cluster is gone, or out of reach for good: change the workspace only.
        #[arg(long, visible_alias = "force", conflicts_with_all = ["kubeconfig", "delete_namespaces"])]
        forget: bool,
        /// Also delete what was placed there: the namespaces of the cluster that Hanse made, with all that runs in them,
        /// and copies in all others. Those that others labelled hanse.io/workspace stay, and are named.
        #[arg(long)]
        delete_namespaces: bool,
        #[command(flatten)]
        hub: HubArgs,
    },
    /// Move a stopped peer from its data directory to etcd, or back.
    ///
    /// Everything is written, read back and compared before the place it came from is closed; objects keep their
    /// revisions, so that clients notice nothing but the pause. The authorities that sign for clients move along.
    Migrate {
        /// A data directory, or etcd://HOST:PORT,HOST:PORT/PREFIX.
        #[arg(long, value_name = "PLACE")]
        from: String,
        /// The other kind of place. It must be empty.
        #[arg(long, value_name = "PLACE")]
        to: String,
        #[command(flatten)]
        etcd: EtcdArgs,
    },
    /// Write a backup of a peer's store to one file.
    ///
    /// Of a running peer, over its API: each workspace is as it was at one moment, and the peer goes on meanwhile. With
    /// --data, of one that is stopped. The file is read back and checked before it gets its name.
    Backup {
        /// The data directory of a peer that is not running.
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        #[command(flatten)]
        api: ApiArgs,
        /// The file to write; it must not exist.
        file: PathBuf,
    },
    /// Make a new data directory from a backup.
    ///
    /// A damaged backup is refused as a whole, with the place of the damage. Every workspace begins a new epoch, so that
    /// clients notice and list again. Certificates are not part of a backup: copy DATA/pki if clients are to keep theirs.
    Restore {
        /// The data directory to make; it must not exist.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The backup.
        file: PathBuf,
    },
    /// Verify every checksum of a peer's store or of a backup, and change nothing.
    Check {
        /// The data directory of a peer that is not running.
        #[arg(long, value_name = "DIR", conflicts_with = "file")]
        data: Option<PathBuf>,
        /// A backup.
        file: Option<PathBuf>,
    },
    /// Forget history and give back the room it takes; objects stay.
    ///
    /// Watches and paged lists that are behind must begin again. A peer forgets history by itself after some minutes, so
    /// this is for a disk that is full now.
    Compact {
        /// The data directory of a peer that is not running.
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        #[command(flatten)]
        api: ApiArgs,
        /// Of this workspace alone; its room comes back when the others have forgotten as much.
        #[arg(long, value_name = "NAME")]
        workspace: Option<String>,
    },
    /// Show or change what a running peer logs.
    LogLevel {
        #[command(flatten)]
        api: ApiArgs,
        /// error, warn, info, debug, trace, or a filter such as warn,server=debug. Without it, what is logged is shown.
        level: Option<String>,
        /// Only for this long, as in 10m; then the old level is back.
        #[arg(long = "for", value_name = "DURATION", value_parser = serving::duration)]
        duration: Option<Duration>,
    },
}

impl Command {
    /// Whether it answers requests.
    #[cfg(feature = "otlp")]
    pub fn serves(&self) -> bool {
        matches!(self, Command::Dev { verb: None, .. } | Command::Serve { .. })
    }
}

/// How to reach a running peer. Its operators are admins of the workspace root, whatever workspace a context is for.
#[derive(clap::Args)]
pub struct ApiArgs {
    /// The kubeconfig to use. Without it, that of `hanse dev` in this directory, else kubectl's.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// The context to use; the current one unless given.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ApiArgs {
    pub fn access(self, env: &Env) -> anyhow::Result<Access> {
        let kubeconfig = Kubeconfig::open(env, self.kubeconfig)?;
        match self.context {
            Some(context) => kubeconfig.access_by(env, &context),
            None => kubeconfig.access(env),
        }
    }
}

/// How to reach a workspace of a running peer.
#[derive(clap::Args)]
pub struct HubArgs {
    /// The kubeconfig of the hub. Without it, that of `hanse dev` in this directory, else kubectl's.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    hub_kubeconfig: Option<PathBuf>,
    /// The hub's context; the current one unless given.
    #[arg(long, value_name = "NAME")]
    hub_context: Option<String>,
    /// The workspace; that of the context unless given.
    #[arg(long, value_name = "NAME")]
    workspace: Option<String>,
}

impl HubArgs {
    pub fn access(self, env: &Env) -> anyhow::Result<Access> {
        let kubeconfig = Kubeconfig::open(env, self.hub_kubeconfig)?;
        kubeconfig.workspace(env, self.hub_context.as_deref(), self.workspace.as_deref())
    }
}

/// Who may log in and how. All these files are read again when they change; one that is broken is refused, and the
/// last good one stays.
#[derive(clap::Args)]
pub struct LoginArgs {
    /// The certificate to serve with, PEM, with those that lead to its authority. Without it, the peer makes and
    /// renews its own.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// The key of the certificate to serve with, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Authorities whose client certificates are accepted, PEM, beside the peer's own.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// An AuthenticationConfiguration (apiserver.config.k8s.io/v1): issuers whose tokens are accepted in every
    /// workspace, and whether requests without credentials are answered.
    #[arg(long, value_name = "FILE")]
    authentication_config: Option<PathBuf>,
    /// How long certificates live at most that are signed for a CertificateSigningRequest, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 31_536_000)]
    cluster_signing_duration: u32,
}

impl LoginArgs {
    pub fn options(self) -> LoginOptions {
        LoginOptions {
            serving: self.tls_cert_file.zip(self.tls_private_key_file),
            client_ca: self.client_ca_file,
            authentication_config: self.authentication_config,
            signing_duration: Duration::from_secs(self.cluster_signing_duration.into()),
            ..LoginOptions::default()
        }
    }
}

#[derive(Subcommand)]
pub enum WorkspaceVerb {
    /// Create a workspace.
    Create {
        /// Lower-case letters, digits and dashes.
        name: String,
        /// Also switch the kubeconfig to it.
        #[arg(long)]
        r#use: bool,
    },
    /// List workspaces.
    List {
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
    },
    /// Switch the kubeconfig to a workspace.
    Use { name: String },
    /// Sign a workspace's service account tokens with a new key.
    ///
    /// Tokens that were signed before stay good until the older keys are forgotten, which is to be done when all of
    /// them have been replaced: tokens of pods are within an hour.
    RotateKeys {
        name: String,
        /// Also forget the older keys: every token signed before stops working at once.
        #[arg(long)]
        forget_old: bool,
    },
    /// Forget a workspace's older keys: tokens signed with them stop working at once.
    ForgetKeys { name: String },
}

/// Runs the command to its end.
pub async fn dispatch(command: Command, env: Env, tools: Tools) -> anyhow::Result<()> {
    match command {
        Command::Dev { verb: Some(verb), .. } => dev::run(&env, verb).await,
        Command::Dev { dir, listen, clusters, nodes, login, serving, verb: None } => {
            let server = Options { tools, ..serving.options() };
            let options = DevOptions { clusters, nodes: nodes.into() };
            run::dev(env, &dir, listen, login.options(), server, options).await
        }
        Command::Serve { data, listen, advertise, issuer, store, login, serving } => {
            let server = Options { tools, ..serving.options() };
            run::serve(env, &data, listen, advertise, issuer, &store, login.options(), server).await
        }
        Command::Workspace { kubeconfig, verb } => workspace::run(env, kubeconfig, verb).await,
        Command::Join { name, kubeconfig, context, region, zone, labels, wait, hub } => {
            let labels = clusters::labels(region, zone, &labels)?;
            let hub = hub.access(&env)?;
            let member = clusters::member_access(&env, &kubeconfig, context.as_deref())?;
            clusters::join(&env, &name, labels, &hub, &member, wait).await
        }
        Command::Explain(args) => explain::run(&env, args).await,
        Command::Clusters { json, hub } => clusters::list(&env, &hub.access(&env)?, json).await,
        Command::Leftovers { cluster: Some(name), delete: true, yes, kubeconfig, context, hub, .. } => {
            let hub = hub.access(&env)?;
            let member = match kubeconfig {
                Some(path) => Some(clusters::member_access(&env, &path, context.as_deref())?),
                None => None,
            };
            leftovers::delete(&env, &hub, &name, member.as_ref(), yes).await
        }
        Command::Leftovers { cluster, json, hub, .. } => {
            leftovers::list(&env, &hub.access(&env)?, cluster.as_deref(), json).await
        }
        Command::Unjoin { name, kubeconfig, context, forget, delete_namespaces, hub } => {
            let hub = hub.access(&env)?;
            let member = match kubeconfig {
                Some(path) => Some(clusters::member_access(&env, &path, context.as_deref())?),
                None => None,
            };
            clusters::unjoin(&env, &name, &hub, member.as_ref(), forget, delete_namespaces).await
        }
        Command::Migrate { from, to, etcd } => migrate::run(&env, &from, &to, &etcd).await,
        Command::Backup { data, api, file } => backup::backup(&env, data.as_deref(), api, &file).await,
        Command::Restore { data, file } => backup::restore(&env, &data, &file),
        Command::Check { data, file } => backup::check(&env, data.as_deref(), file.as_deref()),
        Command::Compact { data, api, workspace } => {
            backup::compact(&env, data.as_deref(), api, workspace.as_deref()).await
        }
        Command::LogLevel { api, level, duration } => log::change(&env, api, level, duration).await,
    }
}
