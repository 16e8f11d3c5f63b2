//! No secret of a configuration is shown in the log or the answers of a running proxy.

use rustix::process::Signal;

use crate::support::admin::{AdminClient, READER};
use crate::support::client::get;
use crate::support::gateway::Gateway;
use crate::support::wait_for;

/// The halves of a secret. Neither may appear.
const HALVES: [&str; 2] = ["qv7HunTer", "Zx9zeBra44"];

#[test]
fn a_reader_of_a_running_proxy_learns_no_secret() {
    let [a, b] = HALVES;
    let secret = format!("{a}{b}");
    let config = |admin: &str| {
        format!(
            "admin:\n  address: \"127.0.0.1:0\"\n  tokens:\n    read: [{READER}]\n{admin}\nroutes: [{{ upstream: echo }}]\n"
        )
    };
    let gateway = Gateway::start(&config("    write: [writer-0123456789]"));
    let reader = AdminClient::new(&gateway, READER);
    let all = || {
        let of_api = [
            "/v1/status",
            "/v1/reloads",
            "/v1/config",
            "/v1/routes",
            "/v1/policies",
        ];
        let of_api: String = of_api.iter().map(|path| reader.get(path).text()).collect();
        of_api + &get(gateway.admin, "/metrics").text() + &gateway.log()
    };
    let mistakes = [
        format!("    wriite: [{secret}]"),
        format!("    write:\n      -\n        {secret}\n        x: y"),
        format!("    write: [{secret}"),
        format!("    write: [writer-0123456789] # {secret}\n  passwrod: {secret}"),
        format!("    write: {{ {secret} }}"),
    ];
    for mistake in &mistakes {
        let failed = gateway.reloads("failure");
        gateway.replace_config(&config(mistake));
        gateway.signal(Signal::HUP);
        wait_for("the failed reload", || {
            (gateway.reloads("failure") > failed).then_some(())
        });
        let shown = all();
        assert!(
            shown.contains("the last reload failed: sluicegate.yaml:"),
            "{shown}"
        );
        assert!(
            !shown.contains(a) && !shown.contains(b),
            "{mistake}\n{shown}"
        );
    }
    gateway.reload(&config(&format!("    write: [{secret}] # {secret}")));
    let shown = all();
    assert!(!shown.contains(a) && !shown.contains(b), "{shown}");
    assert_eq!(
        AdminClient::new(&gateway, &secret).get("/v1/status").status,
        200
    );
    let candidate = serde_json::json!({ "text": config(&mistakes[0]) });
    let checked = reader.post("/v1/check", &candidate).text();
    assert!(!checked.contains(a) && !checked.contains(b), "{checked}");
}
