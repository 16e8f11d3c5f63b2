//! Patterns for the methods of gRPC services, and names of services.

use derive_more::{Deref, Display};

use super::{Failure, PathPattern, Segment, TextValue, text_value};
use crate::upstream::MAX_GRPC_SERVICE;

/// A method of a gRPC service, or all of its methods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display)]
#[display("{service}/{}", method.as_deref().unwrap_or("*"))]
pub struct GrpcPattern {
    service: String,
    /// `None` for all methods.
    method: Option<String>,
}

impl GrpcPattern {
    /// The paths of its requests.
    pub fn path(&self) -> PathPattern {
        let segments = [Some(&self.service), self.method.as_ref()];
        let segments = segments.into_iter().flatten().cloned();
        PathPattern {
            segments: segments.map(Segment::Literal).collect(),
            is_prefix: self.method.is_none(),
        }
    }
}

text_value!(GrpcPattern);

impl TextValue for GrpcPattern {
    const EXPECTED: &'static str =
        "a method of gRPC, as in `pkg.Service/Method`, or `pkg.Service` for all methods";
    const PATTERN: &'static str = "[0-9A-Za-z_]+(\\.[0-9A-Za-z_]+)*(/([0-9A-Za-z_]+|\\*))?";

    fn read(text: &str) -> Result<Self, Failure> {
        let is_name = |name: &str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            !name.is_empty() && name.bytes().all(is_part)
        };
        let (service, method) = match text.split_once('/') {
            Some((service, "*")) => (service, None),
            Some((service, method)) => (service, Some(method)),
            None => (text, None),
        };
        if service.split('.').all(is_name) && method.is_none_or(is_name) {
            return Ok(GrpcPattern {
                service: service.to_owned(),
                method: method.map(str::to_owned),
            });
        }
        Err(match text.strip_prefix('/') {
            Some(rest) => format!("without a slash in front: `{rest}`").into(),
            None => "write `pkg.Service/Method`, or `pkg.Service` for all methods".into(),
        })
    }
}

/// The name of a gRPC service; empty for the whole server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display, Deref)]
pub struct GrpcService(String);

text_value!(GrpcService);

impl TextValue for GrpcService {
    const EXPECTED: &'static str =
        "the name of a service, as in `pkg.Service`, or `\"\"` for the whole server";
    const PATTERN: &'static str = "[!-~]{0,127}";

    fn read(text: &str) -> Result<Self, Failure> {
        let is_name = text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_name && text.len() <= MAX_GRPC_SERVICE {
            return Ok(Self(text.to_owned()));
        }
        let help = format!("write at most {MAX_GRPC_SERVICE} visible ASCII characters");
        Err(format!("{help}, or `\"\"` for the whole server").into())
    }
}
