//! `sluicegate keys list` and `revoke`: the bans and grants of operators that are in force, and the end of
//! one by its id in that list.

use std::process::ExitCode;

use clap::Args;

use super::{CallArgs, ChangeOptions};
use crate::admin::actor::TokenRole;
use crate::admin::keys::operator_actions::{RevokeRequest, Revoked};
use crate::cli::table::table;
use crate::cli::{Failure, finish, tell};
use crate::proxy::inspect::operator_actions::{ActionPage, ListedAction};
use crate::store::OperatorActionKind;

#[derive(Args, Debug)]
#[command(after_help = super::EXAMPLES)]
pub(super) struct ListArgs {
    /// Bans and grants of this policy only
    #[arg(long)]
    policy: Option<String>,
    /// The most bans and grants to print, up to 1000
    #[arg(long, default_value_t = 100)]
    limit: u16,
    /// Continue after another page, at the place that it names
    #[arg(long, value_name = "PLACE")]
    after: Option<String>,
    #[command(flatten)]
    call: CallArgs,
}

#[derive(Args, Debug)]
#[command(after_help = super::EXAMPLES)]
pub(super) struct RevokeArgs {
    /// The policy
    policy: String,
    /// The key's id in `keys list`, such as k_5f0c1a2b3c4d5e6f
    id: String,
    /// The change that ends: `ban` or `grant`
    #[arg(value_name = "WHAT", value_parser = kind)]
    what: OperatorActionKind,
    #[command(flatten)]
    change: ChangeOptions,
}

/// # Errors
/// Names both kinds.
fn kind(text: &str) -> Result<OperatorActionKind, String> {
    text.parse()
        .map_err(|_| "write `ban` or `grant`".to_owned())
}

impl ListArgs {
    /// # Errors
    /// The proxy refuses or does not answer.
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &self.limit.to_string());
        for (name, value) in [("policy", &self.policy), ("after", &self.after)] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        let path = format!("/v1/keys?{}", query.finish());
        let client = self.call.admin.client(TokenRole::Read)?;
        let answer = client.get::<ActionPage>(&path)?;
        let page = &answer.fields;
        let (shown, total) = (page.items.len(), page.total);
        match &page.next {
            Some(next) => tell(format_args!(
                "{shown} of {total}; for the next: --after {next}"
            )),
            None if total == 0 => tell("no ban or grant by an operator is in force"),
            None => {}
        }
        let printed = answer.print(self.call.json, |page| action_table(&page.items));
        Ok(finish(printed, ExitCode::SUCCESS))
    }
}

impl RevokeArgs {
    /// # Errors
    /// The proxy refuses or does not answer.
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let (change, call) = (&self.change, &self.change.call);
        let body = RevokeRequest {
            policy: self.policy.clone(),
            id: self.id.clone(),
            what: self.what,
            reason: change.reason.clone(),
            dry_run: change.dry_run,
        };
        let client = call.admin.client(TokenRole::Write)?;
        let answer = client.post::<Revoked>("/v1/keys/revoke", &body)?;
        let ended = "this has ended";
        tell(if change.dry_run {
            super::DRY_RUN
        } else {
            ended
        });
        let one = |answer: &Revoked| action_table(std::slice::from_ref(&answer.revoked));
        let printed = answer.print(call.json, one);
        Ok(finish(printed, ExitCode::SUCCESS))
    }
}

/// A line for each, below a line of heads.
fn action_table(items: &[ListedAction]) -> String {
    let heads = ["POLICY", "WHAT", "ID", "UNTIL", "BY", "REASON"];
    table(heads, items.iter().map(row).collect(), 0..0)
}

fn row(item: &ListedAction) -> [String; 6] {
    let what = match (item.of_units, item.units) {
        (None, _) => "ban".to_owned(),
        (Some(units), None) => format!("grant of {units}"),
        (Some(units), Some(left)) => format!("grant, {left} of {units} left"),
    };
    let texts = [&item.id, &item.until, &item.actor, &item.reason].map(String::clone);
    let [id, until, actor, reason] = texts;
    [item.policy.clone(), what, id, until, actor, reason]
}
