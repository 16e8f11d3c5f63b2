//! Compiles upstreams, named and in place. Each name and each URL is compiled once.

use std::collections::HashMap;

use http::uri::Authority;

use crate::config::compile::{Compiler, MAX_CERTIFICATE_FILE};
use crate::config::diagnostic::Code;
use crate::config::finding::Finding;
use crate::config::located::Located;
use crate::config::schema::{self, UpstreamTls};
use crate::config::value::{OriginUrl, Scheme, UpstreamRef};
use crate::files::{self, VersionedFile};
use crate::upstream::{
    Balance, ClientTls, EndpointSpec, EndpointsSpec, HostHeader, Roots, Spec, TargetSpec, Timeouts,
};

/// The compiled upstreams by name or URL.
#[derive(Default)]
pub(in crate::config) struct Upstreams {
    specs: Vec<Spec>,
    known: HashMap<String, usize>,
    are_stand_ins: bool,
}

impl Upstreams {
    /// Compiles every upstream to `echo`, for callers that forward nothing. No file is read.
    pub(in crate::config) fn stand_ins() -> Self {
        Upstreams {
            are_stand_ins: true,
            ..Upstreams::default()
        }
    }

    pub(in crate::config) fn into_specs(self) -> Vec<Spec> {
        self.specs
    }
}

impl Compiler<'_> {
    /// The index of an upstream; compiles it at first use.
    pub(in crate::config) fn upstream(
        &mut self,
        config: &schema::Config,
        upstreams: &mut Upstreams,
        wanted: &Located<UpstreamRef>,
    ) -> usize {
        let name = wanted.value.to_string();
        if let Some(&index) = upstreams.known.get(&name) {
            return index;
        }
        let target = match &wanted.value {
            _ if upstreams.are_stand_ins => TargetSpec::Echo,
            UpstreamRef::Echo => TargetSpec::Echo,
            UpstreamRef::Url(url) => {
                let endpoint = schema::Endpoint {
                    url: Located {
                        value: url.clone(),
                        node: wanted.node,
                    },
                    weight: Located::default(),
                };
                let in_place = schema::Upstream {
                    endpoints: vec![endpoint.into()].into(),
                    ..schema::Upstream::default()
                };
                self.endpoints(&in_place)
            }
            UpstreamRef::Named(name) => match config.upstreams.get(name.as_str()) {
                Some(upstream) => self.endpoints(upstream),
                // A check has reported the name; nothing compiled beside an error ever runs.
                None => TargetSpec::Echo,
            },
        };
        let index = upstreams.specs.len();
        upstreams.specs.push(Spec {
            name: name.clone(),
            target,
        });
        upstreams.known.insert(name, index);
        index
    }

    fn endpoints(&mut self, upstream: &schema::Upstream) -> TargetSpec {
        let endpoints = upstream.endpoints.iter().filter_map(|endpoint| {
            let spec = self.endpoint(&endpoint.url, &upstream.tls)?;
            Some((spec, endpoint.weight.get() as u16))
        });
        TargetSpec::Endpoints(EndpointsSpec {
            endpoints: endpoints.collect(),
            balance: match upstream.balance.value {
                schema::Balance::RoundRobin => Balance::RoundRobin,
            },
            host: match upstream.preserve_host.get() {
                true => HostHeader::Preserve,
                false => HostHeader::Endpoint,
            },
            timeouts: Timeouts {
                connect: upstream.timeouts.connect.get(),
                response: upstream.timeouts.response.get(),
                idle: upstream.timeouts.idle.get(),
                tunnel: upstream.timeouts.tunnel.get(),
            },
        })
    }

    fn endpoint(&mut self, url: &Located<OriginUrl>, tls: &UpstreamTls) -> Option<EndpointSpec> {
        let text = url.value.to_string();
        let (_, authority) = text.split_once("://")?;
        let tls = match url.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(self.client_tls(url, tls)?),
        };
        match Authority::try_from(authority) {
            Ok(authority) => Some(EndpointSpec { authority, tls }),
            Err(error) => {
                self.findings.push(Finding::error(
                    url.node,
                    Code::InvalidValue,
                    error.to_string(),
                ));
                None
            }
        }
    }

    fn client_tls(&mut self, url: &Located<OriginUrl>, tls: &UpstreamTls) -> Option<ClientTls> {
        let roots = match &tls.ca {
            None => Roots::System,
            Some(ca) => {
                let path = self.loaded.resolve(ca.as_path());
                self.files.push(VersionedFile::new(path.clone()));
                match files::read(&path, MAX_CERTIFICATE_FILE) {
                    Ok(content) => Roots::Pem { path, content },
                    Err(error) => {
                        self.unreadable(&path, ca.node, &error);
                        return None;
                    }
                }
            }
        };
        let name = tls
            .server_name
            .as_ref()
            .map_or(url.host.as_str(), |name| name.as_str());
        let node = tls.ca.as_ref().map_or(url.node, |ca| ca.node);
        ClientTls::new(name, roots)
            .map_err(|error| {
                self.findings
                    .push(Finding::error(node, Code::InvalidValue, error.to_string()));
            })
            .ok()
    }
}
