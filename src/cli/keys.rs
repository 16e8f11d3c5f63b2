//! `sluicegate keys`: the state of one key of a policy of a running proxy, and changes to it. The
//! proxy decides everything; this is a client of its admin API.

mod find;
mod key_text;
mod operator_actions;
mod state_table;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::StatusCode;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::find::FindArgs;
use self::key_text::KeyTextArgs;
use self::operator_actions::{ListArgs, RevokeArgs};
use super::Failure;
use super::admin_client::{ApiAnswer, CallError};
use super::admin_options::AdminArgs;
use crate::admin::actor::TokenRole;
use crate::admin::json::Reason;
use crate::admin::keys::LookupRequest;
use crate::admin::keys::change::KeyChanged;
use crate::admin::keys::key_input::Key;
use crate::proxy::inspect::key_state::KeyState;

const EXAMPLES: &str = include_str!("help/keys.txt");
/// Told beside the answer to a dry run.
const DRY_RUN: &str = "a dry run: nothing is changed";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct KeysArgs {
    #[command(subcommand)]
    action: KeyAction,
}

#[derive(Debug, Subcommand)]
enum KeyAction {
    /// Show the limits of a client: its key in every policy that has used units of it, or a ban
    Find(FindArgs),
    /// Show what a key has used, and why it is refused; charges nothing
    Lookup(LookupArgs),
    /// Give a key a full bucket
    Reset(ChangeArgs<ScopeArgs>),
    /// Grant units beyond the quota; another grant replaces the one before
    Grant(ChangeArgs<GrantDetails>),
    /// Refuse a client for a while
    Ban(ChangeArgs<BanDetails>),
    /// Lift the bans of a key, and forget its strikes
    Unban(ChangeArgs<ScopeArgs>),
    /// List the bans and grants of operators that are in force, the newest first
    List(ListArgs),
    /// Lift a ban of an operator, or take a grant back, by its id in `keys list`
    Revoke(RevokeArgs),
}

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
struct LookupArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    call: CallArgs,
}

/// A change of a key. The `details` are what the action alone has, as the API takes it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
struct ChangeArgs<T: Args> {
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    details: T,
    #[command(flatten)]
    change: ChangeOptions,
}

#[derive(Args, Debug, Serialize)]
struct GrantDetails {
    /// The units; 0 takes the grant back
    #[arg(long, value_parser = units)]
    units: u32,
    #[command(flatten)]
    #[serde(flatten)]
    end: GrantEnd,
}

/// # Errors
/// Says how units are written.
fn units(text: &str) -> Result<u32, String> {
    let wrong = |_| format!("write a whole number from 0 to {}, such as 1000", u32::MAX);
    text.parse().map_err(wrong)
}

/// # Errors
/// Says how long a reason may be.
fn reason(text: &str) -> Result<Reason, &'static str> {
    Reason::try_from(text.to_owned())
}

/// The end of a grant, in one of two ways. A grant of 0 units needs none.
#[derive(Args, Debug, Serialize)]
#[group(multiple = false)]
struct GrantEnd {
    /// The end of the grant, an instant such as 2026-11-24T18:00:00Z; at most 366 days from now
    #[arg(long, value_name = "INSTANT")]
    until: Option<String>,
    /// The length of the grant, such as 15m, 24h or 7d; at most 366d
    #[arg(long, value_name = "DURATION")]
    r#for: Option<String>,
}

#[derive(Args, Debug, Serialize)]
struct BanDetails {
    /// The length of the ban, such as 15m, 24h or 7d; at most 366d
    #[arg(long, value_name = "DURATION")]
    r#for: String,
    #[command(flatten)]
    #[serde(flatten)]
    scope: ScopeArgs,
}

/// The scope of a change: one policy, or all of the client.
#[derive(Args, Debug, Serialize)]
struct ScopeArgs {
    /// Also in every other policy whose key has the same parts
    #[arg(long)]
    all_policies: bool,
}

/// A change as the API takes it.
#[derive(Serialize)]
struct ChangeRequest<'a, T> {
    policy: &'a str,
    key: &'a Key,
    #[serde(flatten)]
    details: &'a T,
    reason: &'a Option<Reason>,
    dry_run: bool,
}

/// The key of a policy.
#[derive(Args, Debug)]
struct SubjectArgs {
    /// The policy; an inline limit has the name of its route and position, such as search#0
    policy: String,
    #[command(flatten)]
    key: KeyTextArgs,
}

/// Options of every change.
#[derive(Args, Debug)]
struct ChangeOptions {
    /// The reason, for the audit log; at most 200 characters
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<Reason>,
    /// Only say what would change
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    call: CallArgs,
}

/// The proxy to call, and the form of the result.
#[derive(Args, Debug)]
struct CallArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Print the answer of the admin API, as JSON
    #[arg(long)]
    json: bool,
}

impl CallArgs {
    /// The key as the API takes it.
    ///
    /// # Errors
    /// The key cannot be read: a sentence for people.
    fn read_key(&self, key: &KeyTextArgs) -> Result<Key, Failure> {
        if key.is_from_stdin() && self.admin.token.is_from_stdin() {
            let message = "stdin has the key or the token, not both: name a file for one";
            return Err(Failure::wrong_usage(message));
        }
        key.read().map_err(Failure::wrong_usage)
    }

    /// The answer to a question about a key.
    ///
    /// # Errors
    /// The proxy refuses or does not answer.
    fn post<T: DeserializeOwned>(
        &self,
        role: TokenRole,
        (action, policy): (&str, &str),
        key: &Key,
        body: &impl Serialize,
    ) -> Result<ApiAnswer<T>, Failure> {
        let client = self.admin.client(role)?;
        let answer = client.post(&format!("/v1/keys/{action}"), body);
        answer.map_err(|error: CallError| {
            let is_impossible = error.status == Some(StatusCode::UNPROCESSABLE_ENTITY);
            if is_impossible && *key == Key::None {
                let usage = format!("{action} {policy}");
                format!(
                    "{error}; name the key: sluicegate keys {} KEY",
                    usage.trim_end()
                )
                .into()
            } else {
                error.into()
            }
        })
    }
}

impl KeysArgs {
    /// # Errors
    /// A key or a time cannot be read, or the proxy refuses or does not answer.
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        match &self.action {
            KeyAction::Find(find) => find.run(),
            KeyAction::Lookup(lookup) => lookup.run(),
            KeyAction::Reset(one) => one.run("reset"),
            KeyAction::Unban(one) => one.run("unban"),
            KeyAction::Grant(grant) => {
                grant.details.check().map_err(Failure::wrong_usage)?;
                grant.run("grant")
            }
            KeyAction::Ban(ban) => ban.run("ban"),
            KeyAction::List(list) => list.run(),
            KeyAction::Revoke(revoke) => revoke.run(),
        }
    }
}

impl LookupArgs {
    /// # Errors
    /// The key cannot be read, or the proxy refuses or does not answer.
    fn run(&self) -> Result<ExitCode, Failure> {
        let (call, subject) = (&self.call, &self.subject);
        let body = LookupRequest {
            policy: subject.policy.clone(),
            key: call.read_key(&subject.key)?,
        };
        let named = ("lookup", &*body.policy);
        let answer: ApiAnswer<KeyState> = call.post(TokenRole::Read, named, &body.key, &body)?;
        if let Some(doubt) = state_table::doubt(&answer.fields) {
            super::tell(doubt);
        }
        let printed = answer.print(call.json, state_table::state);
        Ok(super::finish(printed, ExitCode::SUCCESS))
    }
}

impl<T: Args + Serialize> ChangeArgs<T> {
    /// Makes a change, and prints the states before and after it.
    ///
    /// # Errors
    /// The key cannot be read, or the proxy refuses or does not answer.
    fn run(&self, action: &str) -> Result<ExitCode, Failure> {
        let (subject, change) = (&self.subject, &self.change);
        let key = change.call.read_key(&subject.key)?;
        let body = ChangeRequest {
            policy: &subject.policy,
            key: &key,
            details: &self.details,
            reason: &change.reason,
            dry_run: change.dry_run,
        };
        let named = (action, body.policy);
        let answer: ApiAnswer<KeyChanged> =
            change.call.post(TokenRole::Write, named, &key, &body)?;
        let printed = answer.print(change.call.json, state_table::change);
        if change.dry_run {
            super::tell(DRY_RUN);
        }
        Ok(super::finish(printed, ExitCode::SUCCESS))
    }
}

impl GrantDetails {
    /// # Errors
    /// The grant has no end.
    fn check(&self) -> Result<(), &'static str> {
        if self.end.until.is_none() && self.end.r#for.is_none() && self.units > 0 {
            Err("say when the grant ends: --for DURATION, such as 1h, or --until INSTANT")
        } else {
            Ok(())
        }
    }
}
