//! `sluicegate keys`: the state of one key of a policy of a running proxy, and changes to it. The
//! proxy decides everything; this is a client of its admin API.

mod find;
mod key_text;
mod operator_actions;
mod state_table;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::StatusCode;
use serde_json::{Map, Value};

use self::find::FindArgs;
use self::key_text::KeyTextArgs;
use self::operator_actions::{ListArgs, RevokeArgs};
use self::state_table::{Changed, KeyState};
use super::admin_client::{AdminClient, Answer, CallError};
use super::admin_options::AdminArgs;
use super::{USAGE, WRONG};
use crate::config::TokenRole;

const EXAMPLES: &str = "\
Examples:
  sluicegate keys find alice --config sluicegate.yaml
  sluicegate keys lookup per-key alice
  sluicegate keys grant per-key alice --units 1000 --for 1h --dry-run
  sluicegate keys ban login --for 24h --reason 'ticket 42' --key-file -   # the key from stdin
  sluicegate keys ban login alice --for 24h --all-policies
  sluicegate keys list
  sluicegate keys revoke login k_5f0c1a2b3c4d5e6f ban

A key is a secret: other users of this machine see the arguments of a process, and shells keep
them. --key-file reads it from a file or from stdin instead. Answers name it by its hash.

Exits with 1 if the proxy refuses, or does not answer.";

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
    /// Make the bucket of a key whole
    Reset(ClientChangeArgs),
    /// Grant units beyond the quota; another grant replaces the one before
    Grant(GrantArgs),
    /// Refuse a client for a while
    Ban(BanArgs),
    /// Lift the bans of a key, and forget its strikes
    Unban(ClientChangeArgs),
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

/// A change of a key, or of the client in all its policies.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
struct ClientChangeArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    change: ChangeOptions,
}

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
struct GrantArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// The units; 0 takes the grant back
    #[arg(long, value_parser = units)]
    units: u32,
    #[command(flatten)]
    end: GrantEnd,
    #[command(flatten)]
    change: ChangeOptions,
}

/// # Errors
/// Says how units are written.
fn units(text: &str) -> Result<u32, String> {
    let wrong = |_| format!("write a whole number from 0 to {}, such as 1000", u32::MAX);
    text.parse().map_err(wrong)
}

/// The end of a grant, in one of two ways. A grant of 0 units needs none.
#[derive(Args, Debug)]
#[group(multiple = false)]
struct GrantEnd {
    /// The end of the grant, an instant such as 2026-11-24T18:00:00Z; at most 366 days from now
    #[arg(long, value_name = "INSTANT")]
    until: Option<String>,
    /// The length of the grant, such as 15m, 24h or 7d; at most 366d
    #[arg(long = "for", value_name = "DURATION")]
    length: Option<String>,
}

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
struct BanArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// The length of the ban, such as 15m, 24h or 7d; at most 366d
    #[arg(long = "for", value_name = "DURATION")]
    length: String,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    change: ChangeOptions,
}

#[derive(Args, Debug)]
struct ScopeArgs {
    /// Also in every other policy whose key has the same parts
    #[arg(long)]
    all_policies: bool,
}

impl ScopeArgs {
    fn field(&self) -> (&'static str, Value) {
        ("all_policies", self.all_policies.into())
    }
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
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
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
    /// The key as the API takes it; `None` for a key without parts.
    ///
    /// # Errors
    /// The key cannot be read: a sentence for people.
    fn read_key(&self, key: &KeyTextArgs) -> Result<Option<Value>, String> {
        if key.is_from_stdin() && self.admin.token.is_from_stdin() {
            return Err("stdin has the key or the token, not both: name a file for one".to_owned());
        }
        key.read()
    }
}

/// A call of the admin API.
struct KeyCall<'a> {
    path: &'static str,
    role: TokenRole,
    subject: &'a SubjectArgs,
    change: Option<&'a ChangeOptions>,
    /// Further fields of the body.
    fields: Vec<(&'static str, Value)>,
    call: &'a CallArgs,
}

pub(super) fn keys(options: &KeysArgs) -> ExitCode {
    let said = match &options.action {
        KeyAction::Find(find) => find.run(),
        KeyAction::Lookup(lookup) => lookup.call().run(),
        KeyAction::Reset(one) => one.call("/v1/keys/reset").run(),
        KeyAction::Unban(one) => one.call("/v1/keys/unban").run(),
        KeyAction::Grant(grant) => grant.call().and_then(|call| call.run()),
        KeyAction::Ban(ban) => ban.call().run(),
        KeyAction::List(list) => list.run(),
        KeyAction::Revoke(revoke) => revoke.run(),
    };
    said.unwrap_or_else(|(code, message)| {
        super::tell(message);
        ExitCode::from(code)
    })
}

/// The exit code of a command that failed, and a sentence for people.
type Failure = (u8, String);

impl<'a> KeyCall<'a> {
    /// A change of a key.
    fn of_change(
        path: &'static str,
        subject: &'a SubjectArgs,
        change: &'a ChangeOptions,
        fields: Vec<(&'static str, Value)>,
    ) -> Self {
        Self {
            path,
            role: TokenRole::Write,
            subject,
            change: Some(change),
            fields,
            call: &change.call,
        }
    }
}

impl LookupArgs {
    fn call(&self) -> KeyCall<'_> {
        KeyCall {
            path: "/v1/keys/lookup",
            role: TokenRole::Read,
            subject: &self.subject,
            change: None,
            fields: Vec::new(),
            call: &self.call,
        }
    }
}

impl ClientChangeArgs {
    fn call(&self, path: &'static str) -> KeyCall<'_> {
        KeyCall::of_change(path, &self.subject, &self.change, vec![self.scope.field()])
    }
}

impl GrantArgs {
    /// # Errors
    /// The grant has no end.
    fn call(&self) -> Result<KeyCall<'_>, Failure> {
        let ends = [("until", &self.end.until), ("for", &self.end.length)];
        let ends = ends.into_iter().filter_map(|(name, end)| {
            let end = end.as_deref()?;
            Some((name, end.into()))
        });
        let units = ("units", self.units.into());
        let fields: Vec<_> = [units].into_iter().chain(ends).collect();
        if fields.len() == 1 && self.units > 0 {
            let message = "say when the grant ends: --for DURATION, such as 1h, or --until INSTANT";
            return Err((USAGE, message.to_owned()));
        }
        let path = "/v1/keys/grant";
        Ok(KeyCall::of_change(
            path,
            &self.subject,
            &self.change,
            fields,
        ))
    }
}

impl BanArgs {
    fn call(&self) -> KeyCall<'_> {
        let fields = vec![("for", self.length.as_str().into()), self.scope.field()];
        KeyCall::of_change("/v1/keys/ban", &self.subject, &self.change, fields)
    }
}

impl KeyCall<'_> {
    /// # Errors
    /// The key cannot be read, or the proxy refuses or does not answer.
    fn run(&self) -> Result<ExitCode, Failure> {
        let body = self.body().map_err(|message| (USAGE, message))?;
        let client = self.call.admin.client(self.role);
        let text = client.and_then(|client| {
            let text = self.text(&client, &body);
            text.map_err(|error| match self.advice(&body, &error) {
                Some(advice) => format!("{error}; {advice}"),
                None => error.to_string(),
            })
        });
        let text = text.map_err(|message| (WRONG, message))?;
        Ok(super::finish(self.print(&text), ExitCode::SUCCESS))
    }

    /// The body of the request.
    ///
    /// # Errors
    /// The key cannot be read: a sentence for people.
    fn body(&self) -> Result<Value, String> {
        let mut body = Map::new();
        body.insert("policy".to_owned(), self.subject.policy.as_str().into());
        if let Some(key) = self.call.read_key(&self.subject.key)? {
            body.insert("key".to_owned(), key);
        }
        for (name, value) in &self.fields {
            body.insert((*name).to_owned(), value.clone());
        }
        if let Some(change) = self.change {
            if let Some(reason) = &change.reason {
                body.insert("reason".to_owned(), reason.as_str().into());
            }
            body.insert("dry_run".to_owned(), change.dry_run.into());
        }
        Ok(Value::Object(body))
    }

    /// The answer of the proxy, in the form that the options ask for.
    ///
    /// # Errors
    /// As [`AdminClient::post`].
    fn text(&self, client: &AdminClient, body: &Value) -> Result<String, CallError> {
        let (json, text, doubt) = match self.change {
            Some(_) => {
                let Answer { json, fields } = client.post::<Changed>(self.path, body)?;
                // Its note says what is doubtful.
                (json, state_table::change(&fields), None)
            }
            None => {
                let Answer { json, fields } = client.post::<KeyState>(self.path, body)?;
                (
                    json,
                    state_table::state(&fields),
                    state_table::doubt(&fields),
                )
            }
        };
        if let Some(doubt) = doubt {
            super::tell(doubt);
        }
        Ok(match self.call.json {
            true => format!("{json:#}\n"),
            false => text,
        })
    }

    /// The way to mend a call that the proxy refuses for want of a key.
    fn advice(&self, body: &Value, error: &CallError) -> Option<String> {
        let is_impossible = error.status() == Some(StatusCode::UNPROCESSABLE_ENTITY);
        let lacks_key = body.get("key").is_none();
        let action = self.path.rsplit('/').next()?;
        let policy = &self.subject.policy;
        (is_impossible && lacks_key)
            .then(|| format!("name the key: sluicegate keys {action} {policy} KEY"))
    }

    fn print(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        if self.change.is_some_and(|change| change.dry_run) {
            super::tell("a dry run: nothing is changed");
        }
        Ok(())
    }
}
