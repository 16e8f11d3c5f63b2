//! Compiles the checked configuration to the specs of the layers that run it, with the sections'
//! `compile`. Errors here concern other files that the configuration names.

use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::compiler::{Compiler, KeyFiles};
use super::finding::{conflict, invalid};
use super::lint::certificate_periods;
use super::sections::admin::ShutdownTimes;
use super::sections::policy::Policies;
use super::sections::responses::ResponseCompiler;
use super::sections::traces::ExportSpec;
use super::sections::upstream::Upstreams;
use super::sections::{responses, route};
use super::value::TrustedProxy;
use super::{Document, Loaded, NodeId, Report, schema};
use crate::admin::AdminSpec;
use crate::admin::listener::PROTOCOLS;
use crate::admin::reload_history::ConfigInfo;
use crate::files::VersionedFile;
use crate::http::client_ip::ClientIp;
use crate::net::socket::StreamAddress;
use crate::proxy::ruleset::{CompiledPolicy, Destination, RulesetSpec};
use crate::server::ServerSpec;
use crate::store::Home;
use crate::telemetry::access_log::{AccessLogSpec, LogTarget};

/// A configuration, in the terms of the layers that run it.
#[derive(Debug)]
pub struct Compiled {
    /// Policies, routes, upstreams.
    pub rules: RulesetSpec,
    /// The access log, unless it is disabled.
    pub access_log: Option<AccessLogSpec>,
    /// The export of spans, if there is one.
    pub export: Option<ExportSpec>,
    /// The rest of the process.
    pub process: ProcessSpec,
}

/// The parts of the process around the ruleset.
#[derive(Debug)]
pub struct ProcessSpec {
    /// Workers, listeners, bounds for clients.
    pub server: ServerSpec,
    /// The admin listener, and the tokens of its callers.
    pub admin: AdminSpec,
    /// The snapshot file; `None` if buckets are not saved.
    pub snapshot: Option<SnapshotSpec>,
    /// How the process ends.
    pub shutdown: ShutdownTimes,
    /// The files beside the configuration that it was compiled from.
    pub files: Vec<VersionedFile>,
    /// The text that it was compiled from, and when its certificates are valid.
    pub info: ConfigInfo,
}

/// The snapshot file of the buckets, and its interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSpec {
    /// The path of the file.
    pub path: PathBuf,
    /// The interval between saves; the process also saves when it ends.
    pub every: Duration,
}

/// Compiles a configuration that has been checked.
///
/// # Errors
/// Names the files that cannot be used: certificates, keys, authorities.
pub fn compile(loaded: &Loaded) -> Result<Compiled, Report> {
    let mut compiler = Compiler::new(&loaded.directory, KeyFiles::Needed);
    let config = &loaded.config;
    let client_ip = Arc::new(client_ip(&config.client_ip));
    let server = {
        let changes = ResponseCompiler::new(&config.responses).changes(None);
        compiler.server(config, Arc::clone(&client_ip), &changes)
    };
    let rules = compiler.rules(config, client_ip);
    let admin = AdminSpec {
        address: *config.admin.address.get(),
        access: compiler.access(&config.admin.tokens),
        keys: config.admin.keys.value,
        tls: (config.admin.tls.as_ref()).and_then(|tls| compiler.tls(tls, PROTOCOLS)),
        hosts: config.admin.hosts.values(),
    };
    let export = compiler.export(config);
    compiler.check_written_files(config, &loaded.document);
    let files = [&loaded.included[..], &compiler.files].concat();
    if !compiler.findings.is_empty() {
        return Err(loaded.document.report(compiler.findings).of_files(files));
    }
    let access_log = config.access_log.as_ref();
    let snapshot = config.store.memory.snapshot.as_ref();
    Ok(Compiled {
        rules,
        access_log: access_log.and_then(|log| compiler.access_log(log)),
        export,
        process: ProcessSpec {
            server,
            admin,
            snapshot: snapshot.map(|spec| SnapshotSpec {
                path: loaded.resolve(spec.path.as_path()),
                every: spec.every.get(),
            }),
            shutdown: config.shutdown.value,
            files,
            info: ConfigInfo {
                source: loaded.document.name().to_owned(),
                text: loaded.document.source().masked_text().into(),
                hash: loaded.hash.clone(),
                certificates: certificate_periods(loaded).into(),
                lists: compiler.lists.into(),
                saves_buckets: snapshot.is_some(),
            },
        },
    })
}

/// Compiles only the limits: every upstream becomes `echo`, and the files that the configuration
/// names may be missing.
///
/// # Errors
/// Reports policies whose settings no algorithm can have.
pub fn compile_rules(loaded: &Loaded) -> Result<RulesetSpec, Report> {
    rules(loaded, KeyFiles::Optional)
}

/// Returns the policies of the compiled rules, named and in place. No file is read.
///
/// # Errors
/// As [`compile_rules`].
pub fn compile_policies(loaded: &Loaded) -> Result<Vec<CompiledPolicy>, Report> {
    rules(loaded, KeyFiles::Unread).map(|rules| rules.policies)
}

fn rules(loaded: &Loaded, key_files: KeyFiles) -> Result<RulesetSpec, Report> {
    let mut compiler = Compiler::new(&loaded.directory, key_files);
    let client_ip = Arc::new(client_ip(&loaded.config.client_ip));
    let rules = compiler.rules(&loaded.config, client_ip);
    if compiler.findings.is_empty() {
        Ok(rules)
    } else {
        Err(loaded.document.report(compiler.findings))
    }
}

impl Compiler<'_> {
    /// Reports a file that two writers share, or that is a directory or the configuration itself.
    fn check_written_files(&mut self, config: &schema::Config, document: &Document) {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let own = document.names().map(|own| absolute(Path::new(own)));
        let mut known: Vec<_> = own.map(|own| (own, NodeId::ABSENT)).collect();
        for (path, node) in written_files(config) {
            let path = absolute(&self.resolve(path));
            // Without a snapshot the proxy starts, and says so.
            let is_snapshot =
                (config.store.memory.snapshot.iter()).any(|one| one.path.node == node);
            let is_directory = path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/");
            if is_directory && !is_snapshot {
                let message = format!("expected a file, found the directory {}", path.display());
                let finding = invalid(node, message);
                self.findings
                    .push(finding.help("add the name of a file to it, as in `logs/access.log`"));
                continue;
            }
            let Some((_, other)) = known.iter().find(|(other, _)| *other == path) else {
                known.push((path, node));
                continue;
            };
            let path = path.display();
            let message = match *other {
                NodeId::ABSENT => format!("{path} is the configuration itself"),
                _ => format!("{path} would be written twice"),
            };
            let finding = conflict(node, message).related(*other, "the other one");
            self.findings.push(finding.help("name another file"));
        }
    }

    fn rules(&mut self, config: &schema::Config, client_ip: Arc<ClientIp>) -> RulesetSpec {
        let error_pages = Arc::new(self.error_pages(config));
        let mut policies = Policies::new(config, Arc::clone(&error_pages));
        let mut upstreams = Upstreams::default();
        let lists = self.file_lists(config);
        let route_compiler = route::RouteCompiler::new(config, &mut policies, &lists);
        let routes = config.routes.iter().zip(route::names(config));
        let routes = routes.map(|(route, name)| {
            let destination = match self.route_answer(route) {
                Some(answer) => Destination::Answer(answer),
                None => {
                    let upstream = route.upstream.clone().unwrap_or_default();
                    Destination::Upstream(self.upstream(config, &mut upstreams, &upstream))
                }
            };
            let mut compiled = route_compiler.route(route, name, &mut policies, destination);
            compiled.spec.rewrite.set_headers = self.set_headers(&route.request);
            compiled
        });
        let mut routes: Vec<_> = routes.collect();
        for upstream in config.limited_upstreams() {
            self.upstream(config, &mut upstreams, upstream);
        }
        let unmatched = route_compiler.unmatched(&policies);
        route_compiler.report_status(&policies, &mut routes, &unmatched.limits);
        self.findings.append(&mut policies.findings);
        let policies = policies.compiled;
        let is_shared = policies.iter().any(|one| one.spec.home != Home::Memory);
        RulesetSpec {
            policies,
            upstreams: upstreams.specs,
            routes,
            unmatched,
            client_ip,
            body_timeout: config.client.timeouts.body.get(),
            max_held_bodies: config.client.max_held_bodies.get(),
            styles: responses::styles(&config.responses),
            error_pages,
            debug: self.debug_header(config),
            max_size: config.store.memory.max_size.get(),
            tokens: self.token_verifier(config),
            clients: self.clients(config),
            store: self.redis(config).filter(|_| is_shared),
        }
    }
}

/// The files that the process makes: the access log, the snapshot, and sockets.
pub(super) fn written_files(config: &schema::Config) -> impl Iterator<Item = (&Path, NodeId)> {
    let log = config.access_log.iter();
    let log = log.filter_map(|log| match &log.path.value {
        LogTarget::File(path) => Some((path.as_path(), log.path.node)),
        LogTarget::Stdout => None,
    });
    let snapshot = config.store.memory.snapshot.iter();
    let addresses = config.listeners.iter().map(|listener| &listener.address);
    let sockets = addresses.filter_map(|address| match &address.value {
        StreamAddress::Unix(path) => Some((&**path, address.node)),
        StreamAddress::Tcp(_) => None,
    });
    log.chain(snapshot.map(|one| (one.path.as_path(), one.path.node)))
        .chain(sockets)
}

fn client_ip(spec: &schema::ClientIp) -> ClientIp {
    let proxies = || spec.trusted_proxies.iter().map(|proxy| proxy.value);
    let network = |proxy| match proxy {
        TrustedProxy::Network(cidr) => Some(*cidr.get()),
        TrustedProxy::Unix => None,
    };
    let depth = spec.depth.as_ref();
    ClientIp {
        trusted: proxies().filter_map(network).collect(),
        trusts_unix: proxies().any(|proxy| proxy == TrustedProxy::Unix),
        header: spec.header.value.clone(),
        depth: depth.and_then(|depth| NonZeroU8::new(depth.get() as u8)),
        ipv6_prefix: spec.ipv6_prefix.get() as u8,
    }
}
