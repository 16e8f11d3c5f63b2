//! `sluicegate client`: new keys of clients, and digests of keys.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{Failure, finish, run, tell};
use crate::config::{add_client, hashed_key};

const EXAMPLES: &str = include_str!("help/client.txt");

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ClientArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key of a client, print it once, and add its digest to the file of clients
    New(NewArgs),
    /// Print the digest of each line of stdin, as a file of clients has it
    Hash,
}

#[derive(Args, Debug)]
struct NewArgs {
    /// The client's name. One that the file has gets a further key
    name: String,
    /// Values of columns, such as plan=pro
    #[arg(value_name = "COLUMN=VALUE", value_parser = assignment)]
    values: Vec<(String, String)>,
    /// The CSV file [default: the first of `clients.files` in the configuration]
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// The configuration [default: the file that run would use]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// # Errors
/// The text is no assignment.
fn assignment(text: &str) -> Result<(String, String), &'static str> {
    let (column, value) = text
        .split_once('=')
        .ok_or("write COLUMN=VALUE, as in plan=pro")?;
    Ok((column.to_owned(), value.to_owned()))
}

impl ClientArgs {
    /// # Errors
    /// The file of clients can't be used or written.
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        match &self.action {
            Action::New(new) => new.run(),
            Action::Hash => Ok(finish(hash(), ExitCode::SUCCESS)),
        }
    }
}

impl NewArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                let loaded = run::find(self.config.clone())?.load()?;
                let file = loaded.clients_file();
                file.ok_or_else(|| {
                    Failure::wrong_usage("no file of clients is configured: --file names one")
                })?
            }
        };
        let key = add_client(&file, &self.name, &self.values)?;
        tell(format_args!(
            "added to {}; the key is shown once:",
            file.display()
        ));
        Ok(finish(writeln!(io::stdout(), "{key}"), ExitCode::SUCCESS))
    }
}

fn hash() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for key in io::stdin().lock().split(b'\n') {
        let key = key?;
        writeln!(
            out,
            "{}",
            hashed_key(key.strip_suffix(b"\r").unwrap_or(&key))
        )?;
    }
    Ok(())
}
