//! Values that conditions ask for: written in full, as a pattern, or listed in a file.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use serde_json::json;
use siphasher::sip::SipHasher13;

use crate::config::sections::prelude::*;
use crate::rules::{LinearRegex, NetworkSet, PriceList, StringMatcher, StringPattern, TextList};

/// The largest list in a file, in bytes.
const MAX_LIST: u64 = 16 << 20;
/// The most lines of a list.
const MAX_LINES: usize = 100_000;

by_form! {
    /// A value in full, or the pattern of values.
    pub enum ValueMatch("ValueMatch", "a value, a list of values, or a pattern of values: `{ prefix: bot }`") {
        /// This value.
        Exact(Hidden<Text>) = "scalar",
        /// One of these values.
        Listed(List<Hidden<Text>>) = "sequence",
        /// Values of this pattern.
        Pattern(ValuePattern) = "mapping",
    }
}

/// A pattern of values, by one of these options.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("oneOf" = [{ "required": ["exact"] }, { "required": ["prefix"] }, { "required": ["suffix"] }, { "required": ["contains"] }, { "required": ["regex"] }, { "required": ["file"] }]))]
pub struct ValuePattern {
    /// This value.
    pub exact: Option<Located<Hidden<Text>>>,
    /// Values that begin with this text; with an empty one every value that is there.
    pub prefix: Option<Located<Hidden<Text>>>,
    /// Values that end with this text.
    pub suffix: Option<Located<Hidden<Text>>>,
    /// Values that contain this text.
    pub contains: Option<Located<Hidden<Text>>>,
    /// Values in which this regular expression finds something: `^` and `$` anchor it. It has no
    /// back references and no look-around, so that it takes time in proportion to the value.
    pub regex: Option<Located<Hidden<Text>>>,
    /// A file with a value in each line, 100,000 of them at most; lines that begin with `#` and
    /// empty ones don't count. Read again when it changes.
    pub file: Option<Located<FilePath>>,
    /// `true` ignores the case of ASCII letters.
    pub ignore_case: Located<Flag<false>>,
}

by_form! {
    /// One network, or a file that lists networks.
    #[derive(derive_more::Display)]
    pub enum Networks("Networks", "an address, a network such as `10.0.0.0/8`, or a file with one in each line: `{ file: networks.txt }`") {
        /// This network.
        One(Cidr) = "scalar",
        /// The networks in a file, an address or a network in each line, 100,000 of them at most.
        /// Lines that begin with `#` and empty ones don't count.
        #[display("{}", _0.file)]
        File(InFile) = "mapping",
    }
}

impl Networks {
    /// The file that lists networks.
    pub(in crate::config) fn file(&self) -> Option<&Located<FilePath>> {
        let Self::File(file) = self else { return None };
        Some(&file.file)
    }
}

/// The lists of all files that conditions name, by path.
#[derive(Debug, Default)]
pub(crate) struct FileLists {
    /// With and without the case of letters.
    texts: BTreeMap<(PathBuf, bool), TextList>,
    networks: BTreeMap<PathBuf, NetworkSet>,
    /// The prices of language models.
    pub(in crate::config) prices: BTreeMap<PathBuf, Arc<PriceList>>,
}

impl FileLists {
    /// Lists in which the name of each file stands for its contents.
    pub(crate) fn named<'a>(
        texts: impl Iterator<Item = (&'a Located<FilePath>, bool)>,
        networks: impl Iterator<Item = &'a Located<FilePath>>,
    ) -> Self {
        let texts = texts.map(|(file, ignores_case)| {
            let name = file.as_path().to_string_lossy();
            let list = TextList::new([&*name].into_iter(), false);
            ((file.as_path().to_owned(), ignores_case), list)
        });
        // A network of its own for each file, from the end of the range: no client has it.
        let networks = networks.zip(0..).map(|(file, number)| {
            let address = IpAddr::V6((u128::MAX - number).into());
            let networks = std::iter::once(IpNet::from(address)).collect();
            (file.as_path().to_owned(), networks)
        });
        Self {
            texts: texts.collect(),
            networks: networks.collect(),
            prices: BTreeMap::new(),
        }
    }
}

impl ValuePattern {
    /// The given texts, each with its key: one, if the pattern is valid and no file.
    fn texts(&self) -> impl Iterator<Item = (&'static str, &Located<Hidden<Text>>)> {
        let texts = [
            ("exact", &self.exact),
            ("prefix", &self.prefix),
            ("suffix", &self.suffix),
            ("contains", &self.contains),
            ("regex", &self.regex),
        ];
        let texts = texts.into_iter();
        texts.filter_map(|(key, text)| Some((key, text.as_ref()?)))
    }

    fn regex(&self, text: &Text) -> Result<LinearRegex, String> {
        LinearRegex::new(text.as_str(), self.ignore_case.get())
    }
}

impl ValueMatch {
    /// The text of a value that is written in full.
    pub fn text(&self) -> Option<&Hidden<Text>> {
        let Self::Exact(text) = self else { return None };
        Some(text)
    }

    /// All texts that say which values match.
    pub(in crate::config) fn texts(&self) -> Vec<&str> {
        let texts = match self {
            Self::Exact(text) => vec![text],
            Self::Listed(texts) => texts.iter().map(|text| &text.value).collect(),
            Self::Pattern(pattern) => pattern.texts().map(|(_, text)| &text.value).collect(),
        };
        texts.iter().map(|text| text.reveal().as_str()).collect()
    }

    /// The value as the file has it, with the texts that serialising hides.
    pub(in crate::config) fn shown(&self) -> serde_json::Value {
        match self {
            Self::Exact(text) => json!(text.reveal()),
            Self::Listed(_) => json!(self.texts()),
            Self::Pattern(pattern) => {
                let mut shown = json!(pattern);
                for (key, text) in pattern.texts() {
                    shown[key] = json!(text.reveal());
                }
                shown
            }
        }
    }

    /// The file that lists values, and if it ignores the case of letters.
    pub(in crate::config) fn file(&self) -> Option<(&Located<FilePath>, bool)> {
        match self {
            Self::Exact(_) | Self::Listed(_) => None,
            Self::Pattern(pattern) => Some((pattern.file.as_ref()?, pattern.ignore_case.get())),
        }
    }

    /// True if only values that are written in full or in a file match.
    pub(in crate::config) fn lists(&self) -> bool {
        match self {
            Self::Exact(_) | Self::Listed(_) => true,
            Self::Pattern(pattern) => pattern.exact.is_some() || pattern.file.is_some(),
        }
    }

    /// Compiles a checked value.
    pub(in crate::config) fn compile(&self, lists: &FileLists) -> StringMatcher {
        let pattern = match self {
            Self::Exact(text) => return StringMatcher::exact(text.reveal().as_bytes()),
            Self::Listed(_) => {
                let list = TextList::new(self.texts().into_iter(), false);
                return StringMatcher::new(StringPattern::Listed(list), false);
            }
            Self::Pattern(pattern) => pattern,
        };
        let bytes = |text: &Located<Hidden<Text>>| Box::from(text.reveal().as_bytes());
        let compiled = match pattern.texts().next() {
            Some(("exact", text)) => StringPattern::Exact(bytes(text)),
            Some(("prefix", text)) => StringPattern::Prefix(bytes(text)),
            Some(("suffix", text)) => StringPattern::Suffix(bytes(text)),
            Some(("contains", text)) => StringPattern::Contains(bytes(text)),
            Some((_, text)) => match pattern.regex(text.reveal()) {
                Ok(regex) => StringPattern::Regex(regex),
                // A check has reported it.
                Err(_) => StringPattern::Listed(TextList::default()),
            },
            None => {
                let path = pattern.file.as_ref().map(|file| file.as_path().to_owned());
                let place = (path.unwrap_or_default(), pattern.ignore_case.get());
                StringPattern::Listed(lists.texts.get(&place).cloned().unwrap_or_default())
            }
        };
        StringMatcher::new(compiled, pattern.ignore_case.get())
    }
}

/// Compiles checked networks: one set for those of each file, and one for all others if there are any.
pub(crate) fn network_sets(networks: &List<Networks>, lists: &FileLists) -> Vec<NetworkSet> {
    let files = networks.iter().filter_map(|one| one.file());
    let files = files.filter_map(|file| lists.networks.get(file.as_path()));
    let others = networks.iter().filter_map(|one| match &one.value {
        Networks::One(network) => Some(*network.get()),
        Networks::File(_) => None,
    });
    let others: NetworkSet = others.collect();
    let others = (others != NetworkSet::default()).then_some(others);
    files.cloned().chain(others).collect()
}

/// Checks a value at `node`. `is_field` is true for the value of a header field.
pub(crate) fn check(value: &ValueMatch, node: NodeId, is_field: bool, findings: &Findings<'_>) {
    let check_text = |text: &Hidden<Text>, node: NodeId| {
        if is_field && text.reveal().parse::<FieldValue>().is_err() {
            findings.add(invalid(node, "this isn't a value of a header field").help(NO_VALUE));
        }
    };
    let pattern = match value {
        ValueMatch::Exact(text) => return check_text(text, node),
        ValueMatch::Listed(texts) => {
            report_empty(texts, findings, "name a value at least");
            return texts.iter().for_each(|text| check_text(text, text.node));
        }
        ValueMatch::Pattern(pattern) => pattern,
    };
    let options = options!(pattern, exact, prefix, suffix, contains, regex, file);
    let help = "add one, as in `{ contains: bot }`: `exact`, `prefix`, `suffix`, `contains`, `regex` or `file`";
    let none = missing(node, "the pattern is missing").help(help);
    exactly_one(&options, none, "keep one of them", findings);
    for (key, text) in pattern.texts() {
        if key != "regex" {
            check_text(text, text.node);
        } else if let Err(message) = pattern.regex(text.reveal()) {
            findings.add(not_an_expression(text.node, &message));
        }
    }
}

/// The error for a text that is no regular expression.
pub(crate) fn not_an_expression(node: NodeId, message: &str) -> Finding {
    let message = format!("not a regular expression: {message}");
    invalid(node, message).help(
        "the syntax is that of Rust's `regex`, which has no back references and no look-around",
    )
}

impl Compiler<'_> {
    /// Reads the lists of values.
    pub(crate) fn read_texts<'a>(
        &mut self,
        files: impl Iterator<Item = (&'a Located<FilePath>, bool)>,
        lists: &mut FileLists,
    ) {
        for (file, ignores_case) in files {
            let place = (file.as_path().to_owned(), ignores_case);
            lists.texts.entry(place).or_insert_with(|| {
                let listed = self.read_list(file, |line| Ok(line.to_owned()), "a value");
                let listed = listed.unwrap_or_default();
                TextList::new(listed.iter().map(String::as_str), ignores_case)
            });
        }
    }

    /// Reads the lists of networks.
    pub(crate) fn read_networks<'a>(
        &mut self,
        files: impl Iterator<Item = &'a Located<FilePath>>,
        lists: &mut FileLists,
    ) {
        for file in files {
            let path = file.as_path().to_owned();
            lists.networks.entry(path).or_insert_with(|| {
                let listed = self.read_list(file, network, "a network or an address");
                listed.into_iter().flatten().collect()
            });
        }
    }

    /// Reads a file with an item in each line. `None` with a finding.
    fn read_list<T>(
        &mut self,
        file: &Located<FilePath>,
        parse: impl Fn(&str) -> Result<T, Option<String>>,
        expected: &str,
    ) -> Option<Vec<T>> {
        // It decides about requests, also if nothing is forwarded.
        let (path, content) = self.read_as(file, MAX_LIST, KeyFiles::Needed)?;
        // Without the text: it may be a secret.
        let mut wrong = |message: String, help: Option<&str>| {
            let finding = invalid(file.node, format!("{}: {message}", path.display()));
            let each = format!("write {expected} in each line");
            self.findings.push(finding.help(help.unwrap_or(&each)));
            None
        };
        let hash = SipHasher13::new().hash(&content);
        let Ok(text) = String::from_utf8(content) else {
            return wrong("this isn't text in UTF-8".to_owned(), None);
        };
        let mut items = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if items.len() == MAX_LINES {
                let message =
                    format!("expected {MAX_LINES} items at most, found another in line {number}");
                let help = "put the rest into a second file, in a condition of its own: `any: [{ .. }, { .. }]`";
                return wrong(message, Some(help));
            }
            match parse(line) {
                Ok(item) => items.push(item),
                Err(why) => {
                    let why = why.unwrap_or_else(|| format!("expected {expected}"));
                    return wrong(format!("line {number}: {why}"), None);
                }
            }
        }
        self.lists.insert(path, (items.len(), hash));
        Some(items)
    }
}

/// The network of a line, which a comment may follow. An error has the text of networks alone: another
/// may be a secret.
fn network(line: &str) -> Result<IpNet, Option<String>> {
    let (text, _) = line.split_once('#').unwrap_or((line, ""));
    let network = text.trim_end().parse::<Cidr>();
    let is_network = || text.trim_end().parse::<IpNet>().is_ok();
    let why = |error: ValueError| is_network().then_some(error.message);
    network.map(|network| *network.get()).map_err(why)
}
