//! Names of gRPC services, as health checks ask for them.

use derive_more::{Deref, Display};

use super::{ParseFailure, TextValue, failure, text_value};
use crate::upstream::MAX_GRPC_SERVICE;

/// The name of a gRPC service; empty for the whole server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display, Deref)]
pub struct GrpcService(String);

text_value!(GrpcService);

impl TextValue for GrpcService {
    const NAME: &'static str = "GrpcService";
    const EXPECTED: &'static str =
        "the name of a service, as in `pkg.Service`, or `\"\"` for the whole server";
    const PATTERN: &'static str = "[!-~]{0,127}";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let is_name = text.bytes().all(|byte| byte.is_ascii_graphic());
        match is_name && text.len() <= MAX_GRPC_SERVICE {
            true => Ok(Self(text.to_owned())),
            false => Err(failure(
                format!("`{text}` is no name of a service"),
                format!(
                    "write at most {MAX_GRPC_SERVICE} visible ASCII characters, \
                     or `\"\"` for the whole server"
                ),
            )),
        }
    }
}
