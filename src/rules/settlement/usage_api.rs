//! Where the APIs of language models report the tokens of a call.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumCount, IntoStaticStr};

use crate::http::json_pointer::JsonPointer;
use crate::rules::TokenUsage;

/// An API whose responses, complete or streamed, report tokens.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum UsageApi {
    /// Chat completions, responses and embeddings of OpenAI, and of those who copy it.
    #[default]
    #[serde(rename = "openai")]
    #[strum(serialize = "openai")]
    OpenAi,
    /// Messages of Anthropic.
    Anthropic,
    /// `generateContent` and `streamGenerateContent` of Gemini.
    Gemini,
}

/// What a value of a response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount)]
pub(super) enum UsageField {
    /// Tokens read; `Anthropic` leaves out those of the cache.
    Input,
    /// Tokens of the results of tools, which Gemini counts apart.
    ToolInput,
    CachedInput,
    CacheWrite,
    CacheWrite1h,
    /// Tokens generated.
    Output,
    /// Tokens of reasoning, which Gemini counts apart.
    Thoughts,
    Total,
    /// The name of the model.
    Model,
}

/// The values of a response. Of several for one field, the largest counts: the API names a field in
/// one way, and counts only grow in the course of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsageFields {
    counts: [u64; UsageField::COUNT],
    /// A field has a value.
    is_stated: bool,
}

impl UsageApi {
    /// The prefixes of all places: of a complete response and of those parts of a stream that wrap
    /// one, or of the items of an array.
    fn prefixes(self) -> [&'static str; 2] {
        match self {
            Self::OpenAi => ["", "/response"],
            Self::Anthropic => ["", "/message"],
            Self::Gemini => ["", "/-"],
        }
    }

    fn fields(self) -> &'static [(UsageField, &'static str)] {
        use UsageField::{
            CacheWrite, CacheWrite1h, CachedInput, Input, Model, Output, Thoughts, ToolInput, Total,
        };
        match self {
            Self::OpenAi => &[
                (Input, "/usage/prompt_tokens"),
                (CachedInput, "/usage/prompt_tokens_details/cached_tokens"),
                (
                    CacheWrite,
                    "/usage/prompt_tokens_details/cache_write_tokens",
                ),
                (Output, "/usage/completion_tokens"),
                (Input, "/usage/input_tokens"),
                (CachedInput, "/usage/input_tokens_details/cached_tokens"),
                (CacheWrite, "/usage/input_tokens_details/cache_write_tokens"),
                (Output, "/usage/output_tokens"),
                (Total, "/usage/total_tokens"),
                (Model, "/model"),
            ],
            Self::Anthropic => &[
                (Input, "/usage/input_tokens"),
                (CachedInput, "/usage/cache_read_input_tokens"),
                (CacheWrite, "/usage/cache_creation_input_tokens"),
                (
                    CacheWrite1h,
                    "/usage/cache_creation/ephemeral_1h_input_tokens",
                ),
                (Output, "/usage/output_tokens"),
                (Model, "/model"),
            ],
            Self::Gemini => &[
                (Input, "/usageMetadata/promptTokenCount"),
                (ToolInput, "/usageMetadata/toolUsePromptTokenCount"),
                (CachedInput, "/usageMetadata/cachedContentTokenCount"),
                (Output, "/usageMetadata/candidatesTokenCount"),
                (Thoughts, "/usageMetadata/thoughtsTokenCount"),
                (Total, "/usageMetadata/totalTokenCount"),
                (Model, "/modelVersion"),
            ],
        }
    }

    /// The field at each pointer, in the order of [`pointers`](Self::pointers).
    pub(super) fn field(self, place: usize) -> UsageField {
        let fields = self.fields();
        fields[place % fields.len()].0
    }

    /// Where a response reports tokens, or its model.
    pub fn pointers(self) -> Arc<[JsonPointer]> {
        let fields = self.fields().iter();
        let places = self.prefixes().into_iter().flat_map(|prefix| {
            fields
                .clone()
                .map(move |(_, place)| [prefix, place].concat())
        });
        places
            .map(|place| JsonPointer::parse(&place).expect("a place is a pointer"))
            .collect()
    }
}

impl UsageFields {
    pub(super) fn add(&mut self, field: UsageField, count: u32) {
        let known = &mut self.counts[field as usize];
        *known = (*known).max(count.into());
        self.is_stated = true;
    }

    /// The tokens; `None` if no field has a value.
    pub(super) fn usage(&self, api: UsageApi) -> Option<TokenUsage> {
        use UsageField::{
            CacheWrite, CacheWrite1h, CachedInput, Input, Output, Thoughts, ToolInput, Total,
        };
        let count = |field: UsageField| self.counts[field as usize];
        let (input, cached) = (count(Input), count(CachedInput));
        let written = count(CacheWrite).max(count(CacheWrite1h));
        // Some leave out reasoning where the total has it.
        let input_of_total = input + count(ToolInput);
        let output =
            (count(Output) + count(Thoughts)).max(count(Total).saturating_sub(input_of_total));
        // Tokens of the cache are among those read, except with Anthropic.
        let (cached, written, among) = match api {
            UsageApi::Anthropic => (cached, written, 0),
            UsageApi::OpenAi | UsageApi::Gemini => {
                let cached = cached.min(input);
                let written = written.min(input - cached);
                (cached, written, cached + written)
            }
        };
        let written_1h = count(CacheWrite1h).min(written);
        self.is_stated.then_some(TokenUsage {
            input: input_of_total - among,
            cached_input: cached,
            cache_write: written - written_1h,
            cache_write_1h: written_1h,
            output,
        })
    }
}

#[cfg(test)]
mod tests;
