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
use include_dir::{Dir, include_dir};
use siphasher::sip::SipHasher13;

/// All files below `dashboard/`, by their names below `/assets/`.
static ASSETS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/src/admin/dashboard");

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
    let Some(asset) = ASSETS.get_file(name) else {
        return (StatusCode::NOT_FOUND, HEADERS, "there is no such file\n").into_response();
    };
    let tag = tag(asset.contents());
    let mut response = if headers.get(IF_NONE_MATCH) == Some(&tag) {
        (StatusCode::NOT_MODIFIED, HEADERS).into_response()
    } else {
        let media_type = [(CONTENT_TYPE, media_type(name))];
        (HEADERS, media_type, asset.contents()).into_response()
    };
    response.headers_mut().insert(ETAG, tag);
    response
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

/// A hash of a file, in quotes.
fn tag(content: &[u8]) -> HeaderValue {
    let mut hasher = SipHasher13::new();
    hasher.write(content);
    let tag = format!("\"{:016x}\"", hasher.finish());
    HeaderValue::try_from(tag).expect("quotes and hexadecimal digits")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use include_dir::DirEntry;

    use super::*;

    /// The number of files below a folder; the binary has each of them as it is.
    fn compare(folder: &Path, embedded: &Dir<'_>) -> usize {
        let entries = fs::read_dir(folder).expect("a folder").count();
        assert_eq!(embedded.entries().len(), entries, "{}", folder.display());
        let files = embedded.entries().iter().map(|entry| match entry {
            DirEntry::Dir(inner) => compare(&folder.join(inner.path().file_name().unwrap()), inner),
            DirEntry::File(file) => {
                let path = folder.join(file.path().file_name().unwrap());
                assert_eq!(fs::read(&path).expect("a file"), file.contents());
                1
            }
        });
        files.sum()
    }

    #[test]
    fn the_binary_has_every_file_of_the_pages() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin/dashboard");
        assert!(compare(&folder, &ASSETS) > 50);
    }
}
