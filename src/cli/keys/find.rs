//! `sluicegate keys find`: the limits of one client, in all policies whose keys have as many parts, or
//! its name as a part.

use std::process::ExitCode;

use clap::Args;
use http::StatusCode;
use serde_json::Value;

use super::key_text::KeyTextArgs;
use super::{CallArgs, state_table};
use crate::admin::actor::TokenRole;
use crate::admin::keys::LookupRequest;
use crate::admin::keys::key_input::Key;
use crate::admin::policies::PolicyList;
use crate::cli::admin_client::{AdminClient, ApiAnswer, CallError};
use crate::cli::{Failure, finish, tell};
use crate::proxy::inspect::key_state::KeyState;

#[derive(Args, Debug)]
#[command(after_help = super::EXAMPLES)]
pub(super) struct FindArgs {
    #[command(flatten)]
    key: KeyTextArgs,
    #[command(flatten)]
    call: CallArgs,
}

/// The states of a key in the policies that take it.
#[derive(Default)]
struct Found {
    json: Vec<Value>,
    states: Vec<KeyState>,
    /// Policies whose keys have further parts.
    unknown: Vec<String>,
    /// The last policy's refusal of the key.
    refusal: Option<CallError>,
}

impl FindArgs {
    /// # Errors
    /// The key cannot be read, no policy takes it, or the proxy does not answer.
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let key = self.call.read_key(&self.key)?;
        let client = self.call.admin.client(TokenRole::Read)?;
        let found = look_up(&client, &key)?;
        if found.states.is_empty() {
            let refusal = found.refusal.map(Failure::from);
            return Err(refusal.unwrap_or_else(|| no_policy(&key).into()));
        }
        if !found.unknown.is_empty() {
            let all = found.unknown.join(", ");
            tell(format_args!(
                "not looked for in {all}: keys are stored as hashes, so give all parts"
            ));
        }
        let answer = ApiAnswer {
            json: Value::Array(found.json),
            fields: found.states,
        };
        let printed = answer.print(self.call.json, |states| table(states));
        Ok(finish(printed, ExitCode::SUCCESS))
    }
}

/// # Errors
/// The proxy refuses for another reason than the key, or does not answer.
fn look_up(client: &AdminClient, key: &Key) -> Result<Found, CallError> {
    let policies = client.get::<PolicyList>("/v1/policies")?.fields.policies;
    let mut found = Found::default();
    for policy in policies {
        let parts = policy.key.iter().filter(|part| *part != "constant");
        let parts: Vec<_> = parts.map(String::as_str).collect();
        let is_of_client = |part: &&str| *part == "client" || part.starts_with("client:");
        let mut keys = Vec::new();
        if let (Key::One(name), true) = (key, parts.iter().any(is_of_client)) {
            let client = name.clone();
            if parts.iter().all(is_of_client) {
                keys.push(Key::Client { client });
            } else {
                let parts = parts.join(", ");
                found.unknown.push(format!("{} ({parts})", policy.name));
            }
        }
        keys.extend((parts.len() == key.parts()).then(|| key.clone()));
        // The name of a client goes before another text of the part.
        for key in keys {
            let policy = policy.name.to_string();
            match client.post::<KeyState>("/v1/keys/lookup", &LookupRequest { policy, key }) {
                Ok(answer) => {
                    found.json.push(answer.json);
                    found.states.push(answer.fields);
                    break;
                }
                Err(error) if error.status == Some(StatusCode::UNPROCESSABLE_ENTITY) => {
                    found.refusal = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

fn no_policy(key: &Key) -> String {
    match key.parts() {
        0 => "name the key: sluicegate keys find KEY".to_owned(),
        1 => "no policy has a key of one part".to_owned(),
        parts => format!("no policy has a key of {parts} parts"),
    }
}

/// The policies that have something of the key. The others are counted on stderr.
fn table(states: &[KeyState]) -> String {
    let (stored, others): (Vec<_>, Vec<_>) = states
        .iter()
        .partition(|state| state.stored || !state.others.is_empty());
    match (stored.len(), others.len()) {
        (_, 0) => {}
        (0, all) => tell(format_args!(
            "no bucket, ban or grant in the {all} policies with such keys: is it mistyped, or idle?"
        )),
        (_, others) => tell(format_args!(
            "nothing is stored of the key in {others} other policies with such keys"
        )),
    }
    state_table::overview(&stored)
}
