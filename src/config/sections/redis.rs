//! `store.redis`: where Redis, or Valkey, is, and what things are called there.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::{ClientConfig, RootCertStore};

use crate::config::sections::algorithm;
use crate::config::sections::prelude::*;
use crate::config::sections::secret_value::{self, SecretForm, TEXT};
use crate::limiter::Secret;
use crate::store::StoreSpec;
use crate::store::redis::client::{self, Address, Login, Password, Spec, Target, Tls};
use crate::store::redis::{KeyFormat, Naming};
use crate::upstream::client_config;

/// `store.redis`: where Redis, or Valkey, is, and what things are called there.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("oneOf" = [{ "required": ["url"] }, { "required": ["cluster"] }, { "required": ["sentinel"] }]))]
pub struct RedisStore {
    /// One server: `redis://user:password@host:6379/0`, or `rediss://` with TLS. User and password
    /// are percent-encoded. A secret: it may also be in a file.
    pub url: Option<Located<SecretValue>>,
    /// Some nodes of a cluster, which know the others; port 6379 unless given.
    #[schemars(length(min = 1))]
    pub cluster: Option<List<ServerAddress>>,
    /// Sentinels, which know the master.
    pub sentinel: Option<Located<Sentinel>>,
    /// As whom to speak to servers, where `url` does not say it.
    pub user: Option<Located<Text>>,
    /// The password, where `url` does not say it; none where it is empty. It may be in a file.
    pub password: Option<Located<SecretValue>>,
    /// The number of the database, with `sentinel`; `url` has it in its path, and a cluster has one
    /// alone.
    pub database: Located<RedisDatabase>,
    /// TLS towards servers, and sentinels too. With `cluster` and `sentinel` `tls: {}` turns it on.
    pub tls: Option<Located<UpstreamTls>>,
    /// The longest that a request waits for Redis, `1ms` to `1s`.
    pub timeout: Located<RedisTimeout>,
    /// The longest that a start waits until Redis is connected, and a reload that names another
    /// Redis, `0s` to `1m`. After that `on_store_error` decides.
    pub startup_timeout: Located<StartupTimeout>,
    /// The beginning of all names in Redis.
    pub prefix: Located<KeyPrefix>,
    /// The secret that keys are hashed under, 16 characters at least and the same on all machines.
    /// Without it, readers of Redis can guess keys by trial. It may be in a file.
    pub secret: Option<Located<SecretValue>>,
    /// `true` writes keys as they are, instead of hashes.
    pub readable_keys: Located<Flag>,
    /// For how long a refusal is remembered here, without asking again, `0s` to `1m`: a larger
    /// quota or a bucket that was reset elsewhere is felt after that at the latest.
    pub refusal_cache: Located<RefusalCache>,
}

/// The deadline of a call.
pub type RedisTimeout = Duration<1, SECOND, 100>;

/// The longest wait of a start for Redis.
pub type StartupTimeout = Duration<0, MINUTE, { 3 * SECOND }>;

/// The interval between synchronisations of buckets in memory.
pub type SyncInterval = Duration<10, SECOND>;

/// The lifetime of remembered refusals.
pub type RefusalCache = Duration<0, MINUTE, SECOND>;

/// The number of a database.
pub type RedisDatabase = Whole<0, 1_000_000>;

/// `store.redis.sentinel`: who knows where the master is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct Sentinel {
    /// Some sentinels; port 26379 unless given.
    #[schemars(length(min = 1))]
    pub addresses: List<ServerAddress>,
    /// The sentinels' name of the master.
    pub master: Located<Text>,
    /// As whom to ask them.
    pub user: Option<Located<Text>>,
    /// The sentinels' password, which is not that of the servers; none where it is empty.
    pub password: Option<Located<SecretValue>>,
}

pub(crate) fn check(config: &Config, findings: &Findings<'_>) {
    let Some(redis) = &config.store.redis else {
        return;
    };
    if redis_policies(config).next().is_none() {
        let finding = Finding::warning(redis.node, Code::Unused, "no policy is in Redis").at_key();
        findings.add(finding.help("write `store: redis` in one, or remove the section"));
    }
    let targets = options!(redis, url, cluster, sentinel);
    let help = "name one server (`url: redis://redis:6379`), nodes of a `cluster`, or a `sentinel`";
    let none = missing(redis.node, "nothing says where Redis is").help(help);
    let target = exactly_one(&targets, none, "keep one of them", findings);
    if let Some(cluster) = &redis.cluster {
        check_addresses(cluster, "name a node at least: `[redis-1:6379]`", findings);
    }
    if let Some(sentinel) = &redis.sentinel {
        let help = "name a sentinel at least: `[sentinel-1:26379]`";
        check_addresses(&sentinel.addresses, help, findings);
        if sentinel.master.as_str().is_empty() {
            let message = "a master without a name";
            let finding = Finding::error(sentinel.master.node, Code::NoValue, message);
            findings.add(finding.help("say what the sentinels call it: `master: mymaster`"));
        }
    }
    if let Some(url) = &redis.url {
        check_url(url, redis, findings);
    }
    findings.extend(needless_database(redis, target));
    check_secret(redis, findings);
    findings.extend(idle_refusal_cache(config, redis));
}

/// The policies with `store: redis`, named and in place.
fn redis_policies(config: &Config) -> impl Iterator<Item = &Policy> {
    let all = config.all_policies();
    all.filter(|policy| policy.store.value == StoreName::Redis)
}

fn check_addresses(list: &List<ServerAddress>, help: &str, findings: &Findings<'_>) {
    report_empty(list, findings, help);
    report_twice(list, findings);
}

fn check_url(written: &Located<SecretValue>, redis: &RedisStore, findings: &Findings<'_>) {
    secret_value::check(written, &URL, findings);
    let url = written.text();
    let spec = url.map(|url| Spec::from_url(url, Some(unverified())));
    // What a file has is seen at the start.
    let Some(Ok(spec)) = spec else { return };
    let user = redis.user.given().filter(|_| spec.login.user.is_some());
    let password = redis.password.given();
    let password = password.filter(|_| spec.login.password.is_some());
    for (key, node) in given([("user", user), ("password", password)]) {
        let finding = conflict(node, format!("`{key}` beside a URL that says it")).at_key();
        let finding = finding.related(written.node, "the URL");
        findings.add(finding.help("write it in one place"));
    }
    if let Some(tls) = redis.tls.as_ref().filter(|_| spec.tls.is_none()) {
        let finding = no_effect(tls.node, "`tls` beside a URL without TLS").at_key();
        let finding = finding.related(written.node, "the URL");
        findings.add(finding.help("write the URL with `rediss://`, or remove `tls`"));
    }
}

/// The finding on a number of a database that stands elsewhere, or can't be chosen.
fn needless_database(redis: &RedisStore, target: Option<&str>) -> Option<Finding> {
    let database = redis.database.given()?;
    let (message, help) = match target {
        Some("url") => (
            "a URL has the number of its database in its path",
            "write it there, as in `redis://redis:6379/2`, and remove `database`",
        ),
        Some("cluster") => ("a cluster has one database", "remove `database`"),
        _ => return None,
    };
    Some(conflict(database, message).at_key().help(help))
}

fn check_secret(redis: &RedisStore, findings: &Findings<'_>) {
    let Some(secret) = &redis.secret else { return };
    secret_value::check(secret, &SECRET, findings);
    if redis.readable_keys.get() {
        let message = "a secret is for keys that are hashed, and these are readable";
        let finding = conflict(secret.node, message).help("remove `secret`, or `readable_keys`");
        findings.add(finding.related(redis.readable_keys.node, "they are written as they are"));
    }
}

pub(crate) fn check_policy(policy: &Policy, config: &Config, findings: &Findings<'_>) {
    if policy.store.value == StoreName::Redis && config.store.redis.is_none() {
        let finding = missing(policy.store.node, "nothing says where Redis is");
        findings.add(finding.help("add it: `store: { redis: { url: redis://redis:6379 } }`"));
    }
    algorithm::check_store(policy, findings);
}

/// The warning of a `refusal_cache` if no policy calls Redis for requests.
fn idle_refusal_cache(config: &Config, redis: &RedisStore) -> Option<Finding> {
    let mut policies = redis_policies(config).peekable();
    let is_called = policies.peek().is_none() || policies.any(|policy| policy.sync.is_none());
    let message = "no policy asks Redis about requests: all are synchronised";
    let finding = warn_no_effect(redis.refusal_cache.node, message);
    (!is_called).then(|| finding.help("remove `refusal_cache`"))
}

/// The default port of servers.
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// The least number of characters of a secret.
const SHORTEST_SECRET: usize = 16;

pub(super) const URL: SecretForm<String> = SecretForm {
    parse: |text| match Spec::from_url(text, Some(unverified())) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    },
    help: "as in `redis://redis:6379/0`, or `rediss://redis:6380/0` with TLS",
    stand_in: "redis://localhost",
};

pub(super) const SECRET: SecretForm<String> = SecretForm {
    parse: |text| match text.chars().count() {
        ..SHORTEST_SECRET => Err(format!(
            "a secret has {SHORTEST_SECRET} characters at least"
        )),
        _ => Ok(text.to_owned()),
    },
    help: "make one with `openssl rand -base64 24`",
    stand_in: "a secret of a file",
};

impl Compiler<'_> {
    /// The Redis store; `None` if it is not configured or, with a finding, not usable.
    pub(crate) fn redis(&mut self, config: &Config) -> Option<StoreSpec> {
        let redis = config.store.redis.as_ref()?;
        let sentinel = redis.sentinel.as_ref();
        let secrets = [
            (redis.url.as_ref(), &URL),
            (redis.password.as_ref(), &TEXT),
            (sentinel.and_then(|one| one.password.as_ref()), &TEXT),
            (redis.secret.as_ref(), &SECRET),
        ];
        // All of them are read, so that each has its finding.
        let secrets = secrets.map(|(secret, form)| match secret {
            Some(secret) => self.secret(secret, form).map(Some),
            None => Some(None),
        });
        let [Some(url), Some(password), Some(of_sentinel), Some(secret)] = secrets else {
            return None;
        };
        let tls = match self.key_files {
            KeyFiles::Needed => self.redis_tls(redis, url.as_deref())?,
            KeyFiles::Optional | KeyFiles::Unread => unverified(),
        };
        let login = login(redis.user.as_ref(), password.as_deref());
        let client = match &url {
            Some(url) => of_url(url, login, tls)?,
            None => Spec {
                login,
                database: redis.database.get(),
                tls: redis.tls.as_ref().map(|_| Tls(tls)),
                ..Spec::new(target(redis, of_sentinel.as_deref())?)
            },
        };
        let prefix: Arc<str> = redis.prefix.as_str().into();
        let secret = secret.as_deref();
        Some(StoreSpec {
            client: Spec {
                timeout: redis.timeout.get(),
                name: client::NAME,
                prefix: Arc::clone(&prefix),
                ..client
            },
            naming: Naming {
                keys: keys(redis, secret),
                prefix,
            },
            key_secret: secret.map(|secret| derived("secret, for fingerprints", secret)),
            refusal_cache: redis.refusal_cache.get(),
            startup_timeout: redis.startup_timeout.get(),
        })
    }

    /// The TLS settings; no file is read without TLS.
    fn redis_tls(
        &mut self,
        redis: &Located<RedisStore>,
        url: Option<&str>,
    ) -> Option<Arc<ClientConfig>> {
        let says_tls = |url: &str| {
            Spec::from_url(url, Some(unverified())).is_ok_and(|spec| spec.tls.is_some())
        };
        let speaks_tls = redis.tls.is_some() || url.is_some_and(says_tls);
        if !speaks_tls {
            return Some(unverified());
        }
        let default = UpstreamTls::default();
        let tls = redis.tls.as_ref().map_or(&default, |tls| &tls.value);
        let roots = self.roots(tls)?;
        let name = tls.server_name.as_ref().map(|name| name.as_str());
        let node = tls.ca.given().unwrap_or(redis.node);
        let config = self.usable(node, client_config(&roots, name))?;
        Some(Arc::new(config))
    }
}

/// TLS settings that no server satisfies, for callers that connect to none.
pub(crate) fn unverified() -> Arc<ClientConfig> {
    let builder = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
    Arc::new(builder.with_no_client_auth())
}

/// The client's settings by a URL, which goes before `login`; `None` after an error that a check has
/// reported.
fn of_url(url: &str, login: Login, tls: Arc<ClientConfig>) -> Option<Spec> {
    let spec = Spec::from_url(url, Some(tls)).ok()?;
    let login = Login {
        user: spec.login.user.clone().or(login.user),
        password: spec.login.password.clone().or(login.password),
    };
    Some(Spec { login, ..spec })
}

/// The cluster or the sentinels; `None` after an error that a check has reported.
fn target(redis: &RedisStore, sentinel_password: Option<&str>) -> Option<Target> {
    if let Some(nodes) = &redis.cluster {
        return Some(Target::Cluster(addresses(nodes, PORT)));
    }
    let sentinel = redis.sentinel.as_ref()?;
    Some(Target::Sentinel {
        sentinels: addresses(&sentinel.addresses, SENTINEL_PORT),
        master: sentinel.master.as_str().into(),
        login: login(sentinel.user.as_ref(), sentinel_password),
    })
}

fn addresses(written: &List<ServerAddress>, port: u16) -> Vec<Address> {
    let all = written.iter();
    all.map(|one| Address::new(&one.host, one.port.unwrap_or(port)))
        .collect()
}

/// Empty texts count as absent, as in a URL: a variable may be empty.
fn login(user: Option<&Located<Text>>, password: Option<&str>) -> Login {
    let user = user.map(|user| user.as_str());
    Login {
        user: user.filter(|user| !user.is_empty()).map(Into::into),
        password: password.filter(|one| !one.is_empty()).map(Password::new),
    }
}

/// The form of keys in Redis. Without a secret they are hashed with a value derived from the
/// prefix. That separates machines and applications, and hides nothing from a reader of Redis.
fn keys(redis: &RedisStore, secret: Option<&str>) -> KeyFormat {
    match (secret, redis.readable_keys.get()) {
        (_, true) => KeyFormat::Readable,
        (Some(secret), false) => KeyFormat::Hashed(derived("secret", secret)),
        (None, false) => KeyFormat::Hashed(derived("prefix", redis.prefix.as_str())),
    }
}

/// The first 128 bits of SHA-256 over `what` and `text`: equal on all machines and in later
/// versions.
fn derived(what: &str, text: &str) -> Secret {
    let input = format!("sluicegate redis keys, from the {what}\0{text}");
    let hash = digest(&SHA256, input.as_bytes());
    let half = |at: usize| {
        let bytes = hash.as_ref()[at..at + 8].try_into();
        u64::from_le_bytes(bytes.expect("it has 32 bytes"))
    };
    Secret::from_key([half(0), half(8)])
}

#[cfg(test)]
mod tests;
