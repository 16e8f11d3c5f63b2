//! A scan of JSON documents that come in pieces, for one value, in constant memory.
//!
//! Published parsers keep each string as a whole (actson, picojson) or wait for one
//! (json-event-parser, struson); a string of a response may be megabytes. This scan keeps open
//! containers on the pointer's path, and one key or number. It checks no more of the syntax than it
//! needs to find the value.

use std::sync::Arc;

use smallvec::SmallVec;

use super::json_pointer::JsonPointer;

/// The largest document that is read, in bytes.
pub const LARGEST_DOCUMENT: u64 = 256 * 1024 * 1024;

/// The longest number that is kept, in bytes.
const LONGEST_NUMBER: usize = 64;

/// A search for the value at a pointer. Of several values, in one document or one after the other,
/// the last counts.
#[derive(Debug)]
pub struct JsonScan {
    pointer: Arc<JsonPointer>,
    state: ScanState,
    /// How many containers are open.
    depth: u64,
    /// The open containers from the root on that lie on the pointer's path.
    path: SmallVec<[Container; 4]>,
    /// The key or number that is being read, if it matters.
    text: SmallVec<[u8; 32]>,
    found: Option<JsonValue>,
    bytes: u64,
}

/// A value as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonValue {
    /// A number, as it is written.
    Number(Box<str>),
    /// Another value than a number or `null`.
    Other,
}

/// The input is no JSON, not a whole document, or larger than [`LARGEST_DOCUMENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no JSON document, not all of one, or one of more than 256 MiB")]
pub struct InvalidJson;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanState {
    /// Between tokens.
    Between,
    /// Within a string.
    String { role: Role, is_escaped: bool },
    /// Within a number or a literal.
    Scalar { role: Role },
    /// The input is no JSON.
    Broken,
}

/// The role of a string or scalar in the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The name of a member of an object on the path.
    Key,
    /// The value that is searched.
    Target,
    Irrelevant,
}

/// An open container on the pointer's path.
#[derive(Clone, Copy, Debug)]
enum Container {
    Object {
        /// A value comes next, not a key.
        expects_value: bool,
        /// The member is on the pointer's path.
        is_next: bool,
    },
    Array {
        index: u64,
    },
}

impl JsonScan {
    /// A search for the value that `pointer` points to.
    pub fn new(pointer: Arc<JsonPointer>) -> Self {
        JsonScan {
            pointer,
            state: ScanState::Between,
            depth: 0,
            path: SmallVec::new(),
            text: SmallVec::new(),
            found: None,
            bytes: 0,
        }
    }

    /// Reads the next piece of the input, cut anywhere.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > LARGEST_DOCUMENT {
            self.state = ScanState::Broken;
        }
        while !bytes.is_empty() {
            bytes = match self.state {
                ScanState::Between => self.between(bytes),
                ScanState::String { role, is_escaped } => self.string(bytes, role, is_escaped),
                ScanState::Scalar { role } => self.scalar(bytes, role),
                ScanState::Broken => return,
            };
        }
    }

    /// Ends the input: returns the value of documents that are whole, and begins anew.
    ///
    /// # Errors
    /// When a document is not whole, or the input is none.
    pub fn finish(&mut self) -> Result<Option<JsonValue>, InvalidJson> {
        if let ScanState::Scalar { role } = self.state {
            self.end_scalar(role);
        }
        let is_whole = self.state == ScanState::Between && self.depth == 0;
        let found = self.found.take();
        *self = JsonScan::new(Arc::clone(&self.pointer));
        if is_whole {
            Ok(found)
        } else {
            Err(InvalidJson)
        }
    }

    /// The value that was found so far.
    pub fn found(&self) -> Option<&JsonValue> {
        self.found.as_ref()
    }

    /// Reads up to the beginning of a string or scalar.
    fn between<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        for (at, &byte) in bytes.iter().enumerate() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => {}
                b'{' | b'[' => self.open(byte),
                b'}' | b']' if self.depth == 0 => self.state = ScanState::Broken,
                b'}' | b']' => {
                    self.depth -= 1;
                    self.path
                        .truncate(usize::try_from(self.depth).unwrap_or(usize::MAX));
                }
                b',' => self.next_item(),
                b':' => self.expect_value(),
                b'"' => {
                    self.begin_string();
                    return &bytes[at + 1..];
                }
                b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                    self.text.clear();
                    self.state = ScanState::Scalar {
                        role: self.value_role(),
                    };
                    return &bytes[at..];
                }
                _ => self.state = ScanState::Broken,
            }
            if self.state == ScanState::Broken {
                break;
            }
        }
        &[]
    }

    fn open(&mut self, bracket: u8) {
        if self.is_target() {
            self.found = Some(JsonValue::Other);
        } else if self.is_on_path() {
            self.path.push(match bracket {
                b'{' => Container::Object {
                    expects_value: false,
                    is_next: false,
                },
                _ => Container::Array { index: 0 },
            });
        }
        self.depth += 1;
    }

    /// Behind a comma.
    fn next_item(&mut self) {
        if let Some(container) = self.innermost() {
            match container {
                Container::Object {
                    expects_value,
                    is_next,
                } => (*expects_value, *is_next) = (false, false),
                Container::Array { index } => *index += 1,
            }
        }
    }

    /// Behind a colon.
    fn expect_value(&mut self) {
        if let Some(Container::Object { expects_value, .. }) = self.innermost() {
            *expects_value = true;
        }
    }

    /// The innermost open container, if it lies on the path.
    fn innermost(&mut self) -> Option<&mut Container> {
        let is_innermost = self.path.len() as u64 == self.depth;
        self.path.last_mut().filter(|_| is_innermost)
    }

    /// Returns true if a value that begins here lies on the path.
    fn is_on_path(&self) -> bool {
        if self.path.len() as u64 != self.depth {
            return false;
        }
        let Some(container) = self.path.last() else {
            return true;
        };
        match container {
            Container::Object {
                expects_value,
                is_next,
            } => *expects_value && *is_next,
            Container::Array { index } => {
                let token = &self.pointer.tokens()[self.path.len() - 1];
                let is_canonical = **token == *"0" || !token.starts_with(['0', '+']);
                is_canonical && token.parse() == Ok(*index)
            }
        }
    }

    /// Returns true if a value that begins here is the target.
    fn is_target(&self) -> bool {
        self.path.len() == self.pointer.tokens().len() && self.is_on_path()
    }

    /// The role of a value that begins here.
    fn value_role(&self) -> Role {
        if self.is_target() {
            Role::Target
        } else {
            Role::Irrelevant
        }
    }

    fn begin_string(&mut self) {
        self.text.clear();
        let is_key = match self.innermost() {
            Some(Container::Object { expects_value, .. }) => !*expects_value,
            _ => false,
        };
        self.state = ScanState::String {
            role: if is_key { Role::Key } else { self.value_role() },
            is_escaped: false,
        };
    }

    /// Reads the next bytes of a string.
    fn string<'a>(&mut self, bytes: &'a [u8], role: Role, is_escaped: bool) -> &'a [u8] {
        let length = if is_escaped {
            1
        } else {
            memchr::memchr2(b'"', b'\\', bytes).map_or(bytes.len(), |at| at + 1)
        };
        let (piece, rest) = bytes.split_at(length);
        let last = piece[length - 1];
        if !is_escaped && last == b'"' {
            self.keep(role, &piece[..length - 1]);
            self.end_string(role);
            return rest;
        }
        self.keep(role, piece);
        self.state = ScanState::String {
            role,
            is_escaped: !is_escaped && last == b'\\',
        };
        rest
    }

    /// Keeps a piece of a key, up to the longest spelling of the searched one.
    fn keep(&mut self, role: Role, piece: &[u8]) {
        if role == Role::Key {
            // A byte is written as six at most: `\u0041`.
            let most = 6 * self.token().len() + 1;
            let room = most.saturating_sub(self.text.len()).min(piece.len());
            self.text.extend_from_slice(&piece[..room]);
        }
    }

    /// The reference token that the innermost container is searched for.
    fn token(&self) -> &str {
        &self.pointer.tokens()[self.path.len() - 1]
    }

    fn end_string(&mut self, role: Role) {
        self.state = ScanState::Between;
        match role {
            Role::Key => {
                let matches = is_spelling(&self.text, self.token());
                if let Some(Container::Object { is_next, .. }) = self.innermost() {
                    *is_next = matches;
                }
            }
            Role::Target => self.found = Some(JsonValue::Other),
            Role::Irrelevant => {}
        }
    }

    /// Reads the next bytes of a number or literal.
    fn scalar<'a>(&mut self, bytes: &'a [u8], role: Role) -> &'a [u8] {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let length = bytes.iter().take_while(|byte| is_part(byte)).count();
        let (piece, rest) = bytes.split_at(length);
        let room = (LONGEST_NUMBER + 1).saturating_sub(self.text.len());
        self.text.extend_from_slice(&piece[..room.min(length)]);
        if !rest.is_empty() {
            self.end_scalar(role);
        }
        rest
    }

    fn end_scalar(&mut self, role: Role) {
        self.state = ScanState::Between;
        if role != Role::Target || *self.text == *b"null" {
            return;
        }
        let number = str::from_utf8(&self.text).ok().filter(|text| {
            text.len() <= LONGEST_NUMBER && text.starts_with(|c: char| c != 't' && c != 'f')
        });
        self.found = Some(number.map_or(JsonValue::Other, |text| JsonValue::Number(text.into())));
    }
}

/// Returns true if the content of a quoted string, with its escapes, is `text`.
fn is_spelling(written: &[u8], text: &str) -> bool {
    if !written.contains(&b'\\') {
        return written == text.as_bytes();
    }
    let quoted = [&b"\""[..], written, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).is_ok_and(|read| read == text)
}

#[cfg(test)]
mod tests;
