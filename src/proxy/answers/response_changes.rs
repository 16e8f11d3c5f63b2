//! Changes to the header fields of all responses of a route, those of the proxy among them.

use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};

use super::cors::{Cors, CorsRequest};
use super::limit_headers::HeaderStyles;
use super::template::{Escape, Template, TemplateError};
use crate::http::headers::Headers;
use crate::rules::Head;

/// Changes to the responses of a route.
#[derive(Clone, Debug, Default)]
pub struct ResponseChanges {
    /// Changes to fields: the top-level ones, then those of the route.
    pub fields: Vec<Arc<FieldChanges>>,
    /// The origins that may read responses.
    pub cors: Option<Arc<Cors>>,
}

/// Changes to the fields of a response, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldChanges {
    /// Fields to remove.
    pub removed: Vec<HeaderName>,
    /// Fields to set, in place of those of their names.
    pub set: Vec<(HeaderName, FieldText)>,
    /// Fields to add.
    pub added: Vec<(HeaderName, FieldText)>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldText {
    /// A constant.
    Constant(HeaderValue),
    /// With values of the request.
    Template(Template),
}

/// The changes to one response.
#[derive(Debug)]
pub(crate) struct PreparedChanges {
    /// The values of templates, in order.
    values: std::vec::IntoIter<HeaderValue>,
    cors: Option<CorsRequest>,
}

impl FieldText {
    /// The names of the placeholders that a field may have.
    pub const NAMES: [&'static str; 6] =
        ["client_ip", "host", "method", "path", "request_id", "route"];

    /// Parses a value without control characters.
    ///
    /// # Errors
    /// An unclosed placeholder, or the name of none that a field may have.
    pub fn parse(value: &HeaderValue) -> Result<Self, TemplateError> {
        let text = value.to_str().unwrap_or_default();
        let template = Template::parse_among(text, &Self::NAMES)?;
        Ok(if text.contains("{{") {
            Self::Template(template)
        } else {
            Self::Constant(value.clone())
        })
    }

    fn render(&self, head: &Head<'_>, route: &str) -> Option<HeaderValue> {
        let Self::Template(template) = self else {
            return None;
        };
        let text = template.render(Escape::Plain, None, None, |placeholder| {
            placeholder.of_request(head, route)
        });
        // Spaces at an end are no part of a value (RFC 9110 section 5.5).
        let value = HeaderValue::try_from(text.trim());
        Some(value.unwrap_or(HeaderValue::from_static("")))
    }
}

impl ResponseChanges {
    /// Returns `None` if nothing is to change.
    pub fn used(self) -> Option<Box<Self>> {
        (!self.fields.is_empty() || self.cors.is_some()).then(|| Box::new(self))
    }

    /// The fields that need nothing of a request, for answers without one; `Content-Type` is that of the
    /// answer.
    pub(crate) fn constants(&self) -> Vec<(HeaderName, HeaderValue)> {
        let changes = self.fields.iter();
        let fields = changes.flat_map(|changes| changes.set.iter().chain(&changes.added));
        let constants = fields.filter_map(|(name, text)| match text {
            FieldText::Constant(value) => Some((name.clone(), value.clone())),
            FieldText::Template(_) => None,
        });
        constants.filter(|(name, _)| name != CONTENT_TYPE).collect()
    }

    /// Reads from a request what the changes to its response need.
    pub(crate) fn prepare(&self, head: &Head<'_>, route: &str) -> PreparedChanges {
        let changes = self.fields.iter();
        let fields = changes.flat_map(|changes| changes.set.iter().chain(&changes.added));
        let values = fields.filter_map(|(_, text)| text.render(head, route));
        PreparedChanges {
            values: values.collect::<Vec<_>>().into_iter(),
            cors: self.cors.as_ref().map(|cors| cors.read(head)),
        }
    }

    /// Passes each name that is removed from responses: also from informational ones and trailers.
    pub(crate) fn remove(&self, remove: impl FnMut(&HeaderName)) {
        let fields = self.fields.iter();
        fields.flat_map(|changes| &changes.removed).for_each(remove);
    }

    /// Changes the fields of a response.
    pub(crate) fn write(
        &self,
        mut prepared: PreparedChanges,
        styles: &HeaderStyles,
        headers: &mut Headers,
    ) {
        let mut value = |text: &FieldText| match text {
            FieldText::Constant(value) => Some(value.clone()),
            // A field without a value stays as it is.
            FieldText::Template(_) => prepared.values.next().filter(|value| !value.is_empty()),
        };
        for changes in &self.fields {
            for name in &changes.removed {
                headers.remove(name);
            }
            for (name, text) in &changes.set {
                if let Some(value) = value(text) {
                    headers.insert(name, value);
                }
            }
            for (name, text) in &changes.added {
                if let Some(value) = value(text) {
                    headers.append(name, value);
                }
            }
        }
        if let (Some(cors), Some(request)) = (&self.cors, prepared.cors) {
            cors.write(request, styles, headers);
        }
    }
}

impl PreparedChanges {
    /// The proxy answers this preflight request.
    pub(crate) fn answers_preflight(&self) -> bool {
        let cors = self.cors.as_ref();
        cors.is_some_and(|request| request.preflight.is_some())
    }
}
