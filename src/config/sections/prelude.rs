//! What nearly every section uses: the traits that its types derive, places, findings and checks,
//! values, and the types of all sections.

pub(in crate::config) use schemars::JsonSchema;
pub(in crate::config) use serde::{Deserialize, Serialize};

pub(in crate::config) use crate::config::checks::{
    OPTIONAL, REMOVE_ONE, exactly_one, given, options, report_empty, report_empty_options,
    report_repeated, report_reserved, report_twice, word, wrong_text,
};
pub(in crate::config) use crate::config::compiler::{Compiler, KeyFiles};
pub(in crate::config) use crate::config::finding::{
    conflict, invalid, missing, no_effect, warn_no_effect,
};
pub(in crate::config) use crate::config::located::by_form;
pub(in crate::config) use crate::config::schema::*;
pub(in crate::config) use crate::config::value::*;
pub(in crate::config) use crate::config::{
    Code, Finding, Findings, Given, List, Located, NodeId, Table,
};
pub(in crate::config) use crate::http::connection::Scheme;
pub(in crate::config) use crate::http::path::EncodedSlashes;
pub(in crate::config) use crate::nearest;
pub(in crate::config) use crate::net::socket::StreamAddress;
pub(in crate::config) use crate::rules::HostPattern;
pub(in crate::config) use crate::upstream::UpstreamProtocol;
// A value has this name, too.
pub(in crate::config) use crate::config::schema::Quota;
