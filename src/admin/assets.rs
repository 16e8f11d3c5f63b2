//! The files of the dashboard and the playground, which the binary contains. `dashboard/` has them
//! as they are served: no step builds them.
//!
//! They are open to everybody, as the pages hold no data: a page asks the API, which asks for a
//! token.

use std::hash::Hasher;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    IF_NONE_MATCH, REFERRER_POLICY,
};
use http::{HeaderMap, StatusCode};
use siphasher::sip::SipHasher13;

/// A file and its name below `/assets/`.
struct Asset {
    name: &'static str,
    body: &'static str,
}

macro_rules! assets {
    ($($name:literal)*) => {
        &[$(Asset { name: $name, body: include_str!(concat!("dashboard/", $name)) },)*]
    };
}

/// All files; a test of the repository compares the list with the folder.
static ASSETS: &[Asset] = assets![
    "css/base.css"
    "css/cells.css"
    "css/dashboard.css"
    "css/playground.css"
    "css/tables.css"
    "icon.svg"
    "index.html"
    "js/api.js"
    "js/cell/advance.js"
    "js/cell/bucket.js"
    "js/cell/figure.js"
    "js/cell/gcra.js"
    "js/cell/log.js"
    "js/cell/permits.js"
    "js/cell/queue.js"
    "js/cell/sliding.js"
    "js/cell/window.js"
    "js/come_back.js"
    "js/dashboard/banner.js"
    "js/dashboard/chart.js"
    "js/dashboard/dialog.js"
    "js/dashboard/diff.js"
    "js/dashboard/figures.js"
    "js/dashboard/history.js"
    "js/dashboard/host_words.js"
    "js/dashboard/login.js"
    "js/dashboard/main.js"
    "js/dashboard/pages/bans.js"
    "js/dashboard/pages/client.js"
    "js/dashboard/pages/client_card.js"
    "js/dashboard/pages/client_changes.js"
    "js/dashboard/pages/client_explain.js"
    "js/dashboard/pages/client_summary.js"
    "js/dashboard/pages/client_text.js"
    "js/dashboard/pages/configuration.js"
    "js/dashboard/pages/offenders.js"
    "js/dashboard/pages/overview.js"
    "js/dashboard/pages/policies.js"
    "js/dashboard/pages/upstreams.js"
    "js/dashboard/parts.js"
    "js/dashboard/router.js"
    "js/dashboard/session.js"
    "js/dom.js"
    "js/format.js"
    "js/playground/arrivals.js"
    "js/playground/axis.js"
    "js/playground/controls.js"
    "js/playground/decider.js"
    "js/playground/editor.js"
    "js/playground/lane.js"
    "js/playground/main.js"
    "js/playground/model.js"
    "js/playground/moment.js"
    "js/playground/scenarios.js"
    "js/playground/settings.js"
    "js/playground/share.js"
    "js/playground/table.js"
    "js/playground/timeline.js"
    "js/playground/transport.js"
    "js/playground/view.js"
    "js/playground/yaml.js"
    "js/theme.js"
    "js/visible.js"
    "playground.html"
];

/// Scripts, styles and requests of the page's own origin only, nothing inline, and no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// Fields of every answer: browsers ask each time if their copy is the binary's.
const HEADERS: [(HeaderName, &str); 5] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-cache"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

pub(super) async fn dashboard(headers: HeaderMap) -> Response {
    respond("index.html", &headers)
}

pub(super) async fn playground(headers: HeaderMap) -> Response {
    respond("playground.html", &headers)
}

pub(super) async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    respond(&name, &headers)
}

fn respond(name: &str, headers: &HeaderMap) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return (StatusCode::NOT_FOUND, HEADERS, "there is no such file\n").into_response();
    };
    let tag = asset.tag();
    let mut response = if headers.get(IF_NONE_MATCH) == Some(&tag) {
        (StatusCode::NOT_MODIFIED, HEADERS).into_response()
    } else {
        let media_type = [(CONTENT_TYPE, asset.media_type())];
        (HEADERS, media_type, asset.body).into_response()
    };
    response.headers_mut().insert(ETAG, tag);
    response
}

impl Asset {
    fn media_type(&self) -> &'static str {
        match self.name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        }
    }

    /// A hash of the file, in quotes.
    fn tag(&self) -> HeaderValue {
        let mut hasher = SipHasher13::new();
        hasher.write(self.body.as_bytes());
        let tag = format!("\"{:016x}\"", hasher.finish());
        HeaderValue::try_from(tag).expect("quotes and hexadecimal digits")
    }
}
