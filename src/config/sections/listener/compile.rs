//! Compiles workers, listeners with their certificates, and bounds for clients.

use std::num::NonZeroUsize;

use rustls_pki_types::UnixTime;
use tracing::warn;

use crate::config::compile::Compiler;
use crate::config::diagnostic::Code;
use crate::config::document::NodeId;
use crate::config::finding::Finding;
use crate::config::schema::{self, Listener, Protocol, TlsVersion};
use crate::config::value::{self, Workers};
use crate::files::VersionedFile;
use crate::server::tls::{Certificate, CertificateSpec, MinVersion, Tls, TlsError};
use crate::server::{ClientSpec, HalfClose, ListenerSpec, Protocols, Spec, Timeouts};

impl Compiler<'_> {
    pub(in crate::config) fn server(&mut self, config: &schema::Config) -> Spec {
        let client = &config.client;
        Spec {
            name: "worker",
            workers: workers(config.workers.value),
            listeners: config
                .listeners
                .iter()
                .map(|listener| self.listener(listener))
                .collect(),
            client: ClientSpec {
                timeouts: Timeouts {
                    head: client.timeouts.head.get(),
                    body: client.timeouts.body.get(),
                    idle: client.timeouts.idle.get(),
                },
                max_head: client.max_head.bytes() as usize,
                max_connections: client.max_connections.get() as usize,
                half_close: match client.half_close.value {
                    value::HalfClose::Grace(grace) => HalfClose::Grace(grace.get()),
                    value::HalfClose::Serve => HalfClose::Serve,
                },
            },
            table: None,
        }
    }

    fn listener(&mut self, listener: &Listener) -> ListenerSpec {
        let speaks = |protocol| listener.protocols.iter().any(|known| **known == protocol);
        let protocols = match (speaks(Protocol::Http1), speaks(Protocol::Http2)) {
            (true, false) => Protocols::Http1,
            (false, true) => Protocols::Http2,
            _ => Protocols::Both,
        };
        ListenerSpec {
            address: listener.address.get(),
            protocols,
            tls: listener
                .tls
                .as_ref()
                .and_then(|tls| self.tls(tls, protocols)),
        }
    }

    fn tls(&mut self, tls: &schema::Tls, protocols: Protocols) -> Option<Tls> {
        let certificates = tls.certificates.iter();
        let certificates: Vec<_> = certificates.map(|one| self.certificate(one)).collect();
        let certificates = certificates.into_iter().collect::<Option<Vec<_>>>()?;
        let min_version = match tls.min_version.value {
            TlsVersion::Tls12 => MinVersion::Tls12,
            TlsVersion::Tls13 => MinVersion::Tls13,
        };
        let loaded = Tls::new(&certificates, min_version, protocols);
        self.readable(tls.certificates.node, loaded)
    }

    fn certificate(&mut self, certificate: &schema::Certificate) -> Option<Certificate> {
        let spec = CertificateSpec {
            certificate: self.loaded.resolve(certificate.certificate.as_path()),
            key: self.loaded.resolve(certificate.key.as_path()),
        };
        let is_first = self.files.iter().all(|file| file.path != spec.certificate);
        let files = [&spec.certificate, &spec.key].map(|path| VersionedFile::new(path.clone()));
        self.files.extend(files);
        // Reports both files if both are missing.
        let unreadable = spec.unreadable();
        for (path, error) in &unreadable {
            let node = match *path == spec.key {
                true => certificate.key.node,
                false => certificate.certificate.node,
            };
            self.unreadable(path, node, error);
        }
        if !unreadable.is_empty() {
            return None;
        }
        let loaded = Certificate::load(&spec, UnixTime::now());
        let expiry = loaded.as_ref().ok().and_then(|one| one.expiry.as_ref());
        if let Some(expiry) = expiry.filter(|_| is_first) {
            warn!(
                "{}; {}",
                expiry.describe(&spec.certificate),
                expiry.advice()
            );
        }
        let node = match &loaded {
            Err(error) if error.file() == Some(&spec.key) => certificate.key.node,
            _ => certificate.certificate.node,
        };
        self.readable(node, loaded)
    }

    /// The loaded value; an error becomes a finding at `node`.
    fn readable<T>(&mut self, node: NodeId, loaded: Result<T, TlsError>) -> Option<T> {
        let unreadable = |error: TlsError| {
            let finding = Finding::error(node, Code::Unreadable, error.to_string());
            self.findings.push(finding.help(error.advice()));
        };
        loaded.map_err(unreadable).ok()
    }
}

/// One worker for each core that the process may use, unless the number is given.
fn workers(workers: Workers) -> NonZeroUsize {
    match workers {
        Workers::Auto => std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        Workers::Fixed(number) => NonZeroUsize::from(number),
    }
}
