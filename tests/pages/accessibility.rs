//! What every page promises to everybody: no scrolling sideways, and no barrier that axe-core finds.

use std::fs;
use std::path::PathBuf;

use crate::support::browser::Browser;

/// Script of axe-core, which `scripts/axe-core` installs.
fn axe() -> String {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let target = root.join(target.map_or_else(|| "target".into(), PathBuf::from));
    let script = target.join("axe-core/node_modules/axe-core/axe.min.js");
    fs::read_to_string(script).expect("axe-core is installed: ./scripts/test does")
}

/// Asserts that axe-core finds no serious barrier in the open page.
#[track_caller]
pub(crate) fn assert_accessible(browser: &Browser) {
    let found = browser.run(&format!(
        "{}; return axe.run().then(({{ violations }}) => violations
            .filter(({{ impact }}) => ['serious', 'critical'].includes(impact))
            .map(({{ id, nodes }}) => id + ': ' + nodes.map(({{ html }}) => html).join(', ')));",
        axe()
    ));
    assert_eq!(found, serde_json::json!([]));
}

/// Asserts that the open page is no wider than its window.
#[track_caller]
pub(crate) fn assert_fits(browser: &Browser) {
    // Not `innerWidth`: a phone zooms out of a wide page, and it grows with the page.
    let widths = browser.run(
        "const { scrollWidth, clientWidth } = document.documentElement;
         return [scrollWidth, clientWidth];",
    );
    assert!(widths[0].as_u64() <= widths[1].as_u64(), "{widths}");
}
