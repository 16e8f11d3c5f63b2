//! `sluicegate keys find`: the limits of one client, in all policies whose keys have as many parts.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::key_text::KeyTextArgs;
use super::state_table::{self, KeyState};
use super::{CallArgs, Failure};
use crate::cli::admin_client::{AdminClient, CallError};
use crate::cli::{USAGE, WRONG, finish, tell};
use crate::config::TokenRole;

#[derive(Args, Debug)]
#[command(after_help = super::EXAMPLES)]
pub(super) struct FindArgs {
    #[command(flatten)]
    key: KeyTextArgs,
    #[command(flatten)]
    call: CallArgs,
}

#[derive(Debug, Deserialize)]
struct Policies {
    policies: Vec<Policy>,
}

#[derive(Debug, Deserialize)]
struct Policy {
    name: String,
    /// The parts of its key.
    key: Vec<String>,
}

/// The states of a key in the policies that take it.
#[derive(Default)]
struct Found {
    json: Vec<Value>,
    states: Vec<KeyState>,
    /// The last policy's refusal of the key.
    refusal: Option<CallError>,
}

impl FindArgs {
    /// # Errors
    /// The key cannot be read, no policy takes it, or the proxy does not answer.
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let key = self.call.read_key(&self.key);
        let key = key.map_err(|message| (USAGE, message))?;
        let client = self.call.admin.client(TokenRole::Read);
        let client = client.map_err(|message| (WRONG, message))?;
        let found = look_up(&client, key.as_ref());
        let found = found.map_err(|error| (WRONG, error.to_string()))?;
        let text = match (self.call.json, &found.refusal) {
            (_, Some(refusal)) if found.states.is_empty() => {
                return Err((WRONG, refusal.to_string()));
            }
            _ if found.states.is_empty() => return Err((WRONG, no_policy(key.as_ref()))),
            (true, _) => format!("{:#}\n", Value::Array(found.json)),
            (false, _) => table(&found.states),
        };
        Ok(finish(print(&text), ExitCode::SUCCESS))
    }
}

/// # Errors
/// The proxy refuses for another reason than the key, or does not answer.
fn look_up(client: &AdminClient, key: Option<&Value>) -> Result<Found, CallError> {
    let policies = client.get::<Policies>("/v1/policies")?.fields.policies;
    let mut found = Found::default();
    for policy in policies.iter().filter(|policy| policy.takes(key)) {
        let mut body = json!({ "policy": policy.name });
        if let Some(key) = key {
            body["key"] = key.clone();
        }
        match client.post::<KeyState>("/v1/keys/lookup", &body) {
            Ok(answer) => {
                found.json.push(answer.json);
                found.states.push(answer.fields);
            }
            Err(error) if error.status() == Some(StatusCode::UNPROCESSABLE_ENTITY) => {
                found.refusal = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

impl Policy {
    /// True if its key has as many parts.
    fn takes(&self, key: Option<&Value>) -> bool {
        let parts = self.key.iter().filter(|part| *part != "constant");
        parts.count() == number_of_parts(key)
    }
}

fn number_of_parts(key: Option<&Value>) -> usize {
    match key {
        None => 0,
        Some(Value::Array(parts)) => parts.len(),
        Some(_) => 1,
    }
}

fn no_policy(key: Option<&Value>) -> String {
    match number_of_parts(key) {
        0 => "name the key: sluicegate keys find KEY".to_owned(),
        1 => "no policy has a key of one part".to_owned(),
        parts => format!("no policy has a key of {parts} parts"),
    }
}

/// The policies that have something of the key. The others are counted on stderr.
fn table(states: &[KeyState]) -> String {
    let (stored, others): (Vec<_>, Vec<_>) = states.iter().partition(|state| state.is_stored());
    match (stored.len(), others.len()) {
        (_, 0) => {}
        (0, all) => tell(format_args!(
            "none of the {all} policies with such keys has a bucket, ban or grant of this one: is it \
             typed right? Or it has not asked lately"
        )),
        (_, others) => tell(format_args!(
            "nothing is stored of the key in {others} other policies with such keys"
        )),
    }
    state_table::overview(&stored)
}

fn print(text: &str) -> io::Result<()> {
    io::stdout().lock().write_all(text.as_bytes())
}
