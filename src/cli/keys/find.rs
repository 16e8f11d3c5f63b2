//! `sluicegate keys find`: the limits of one client, in all policies that have its key, or its name as a
//! part.

use std::process::ExitCode;

use clap::Args;

use super::key_text::KeyTextArgs;
use super::{CallArgs, state_table};
use crate::admin::actor::TokenRole;
use crate::admin::keys::key_input::Key;
use crate::admin::keys::{FindRequest, FoundKey, FoundKeys};
use crate::cli::admin_client::ApiAnswer;
use crate::cli::{Failure, finish, tell};

#[derive(Args, Debug)]
#[command(after_help = super::EXAMPLES)]
pub(super) struct FindArgs {
    #[command(flatten)]
    key: KeyTextArgs,
    #[command(flatten)]
    call: CallArgs,
}

impl FindArgs {
    /// # Errors
    /// The key cannot be read, no policy takes it, or the proxy or a store does not answer.
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let key = match self.call.read_key(&self.key)? {
            Key::One(any) => Key::Any { any },
            key => key,
        };
        let policies = None;
        let body = FindRequest { key, policies };
        let (role, named) = (TokenRole::Read, ("find", ""));
        let answer: ApiAnswer<FoundKeys> = self.call.post(role, named, &body.key, &body)?;
        let found = &answer.fields;
        if !found.longer.is_empty() {
            let all = found.longer.join(", ");
            tell(format_args!(
                "not looked for in {all}: keys are stored as hashes, so give all parts"
            ));
        }
        let (known, others): (Vec<_>, Vec<_>) = found.items.iter().partition(|one| one.is_known());
        if known.is_empty() {
            let all = others.len();
            tell(format_args!(
                "no bucket, ban or grant in the {all} policies with such keys: is it mistyped, or idle?"
            ));
        }
        let (mut states, mut code) = (Vec::new(), ExitCode::SUCCESS);
        for FoundKey {
            policy,
            state,
            problem,
        } in known
        {
            states.extend(state);
            if let Some(problem) = problem {
                tell(format_args!("{policy}: {problem}"));
                code = ExitCode::FAILURE;
            }
        }
        let printed = answer.print(self.call.json, |_| state_table::overview(&states));
        Ok(finish(printed, code))
    }
}
