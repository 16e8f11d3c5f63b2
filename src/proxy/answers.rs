//! Responses of the proxy itself: errors, rejections and their bodies, decoys, and rate-limit
//! fields.

pub(super) mod action;
pub mod cors;
pub(super) mod decoy;
pub(super) mod error;
pub mod error_pages;
pub(super) mod grpc;
pub mod limit_headers;
pub(super) mod negotiate;
pub mod redirect;
pub(super) mod rejection;
pub(super) mod respond;
pub mod response_changes;
pub mod route_answer;
pub(super) mod template;
