//! Workers, listeners and their certificates, bounds for clients.

use std::num::NonZeroUsize;

use rustls_pki_types::UnixTime;

use super::Compiler;
use crate::config::diagnostic::Code;
use crate::config::finding::Finding;
use crate::config::schema::{self, Listener, Protocol, TlsVersion};
use crate::config::value::Workers;
use crate::server::tls::{CertificateSpec, MinVersion, Tls, TlsSpec};
use crate::server::{ClientSpec, ListenerSpec, Protocols, Spec, Timeouts};

impl Compiler<'_> {
    pub(super) fn server(&mut self, config: &schema::Config) -> Spec {
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
            },
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
        let certificates: Vec<_> = tls
            .certificates
            .iter()
            .map(|certificate| CertificateSpec {
                certificate: self.loaded.resolve(certificate.certificate.as_path()),
                key: self.loaded.resolve(certificate.key.as_path()),
            })
            .collect();
        for certificate in &certificates {
            self.files
                .extend([certificate.certificate.clone(), certificate.key.clone()]);
        }
        let spec = TlsSpec {
            certificates,
            min_version: match tls.min_version.value {
                TlsVersion::Tls12 => MinVersion::Tls12,
                TlsVersion::Tls13 => MinVersion::Tls13,
            },
        };
        match Tls::load(&spec, protocols, UnixTime::now()) {
            Ok(tls) => Some(tls),
            Err(error) => {
                let node = tls.certificates.node;
                self.findings
                    .push(Finding::error(node, Code::Unreadable, error.to_string()));
                None
            }
        }
    }
}

/// As many as the process may use cores, unless the number is given.
fn workers(workers: Workers) -> NonZeroUsize {
    match workers {
        Workers::Auto => std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        Workers::Fixed(number) => NonZeroUsize::from(number),
    }
}
