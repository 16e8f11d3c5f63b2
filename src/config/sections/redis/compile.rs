//! Compiles `store.redis`: addresses, connections, names of buckets.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::{ClientConfig, RootCertStore};

use crate::config::compile::Compiler;
use crate::config::schema::{self, Policy, RedisStore, StoreName, UpstreamTls};
use crate::config::sections::jwt::KeyFiles;
use crate::config::sections::secret_value::{SecretForm, TEXT};
use crate::config::value::{ServerAddress, Text};
use crate::config::{Code, Finding, List, Located, NodeId};
use crate::limiter::Secret;
use crate::store::redis::client::{Address, Login, Password, Spec, Target};
use crate::store::redis::{KeyFormat, Naming};
use crate::store::{HomeSpec, OnStoreError, StoreSpec};
use crate::upstream::client_config;

/// The default port of servers.
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// The least number of characters of a secret.
const SHORTEST_SECRET: usize = 16;

pub(super) const URL: SecretForm<String> = SecretForm {
    parse: |text| {
        let parsed = Spec::from_url(text, Some(unverified()));
        parsed
            .map(|_| text.to_owned())
            .map_err(|error| error.to_string())
    },
    help: "as in `redis://redis:6379/0`, or `rediss://redis:6380/0` with TLS",
};

pub(super) const SECRET: SecretForm<String> = SecretForm {
    parse: |text| match text.chars().count() < SHORTEST_SECRET {
        true => Err(format!(
            "a secret has {SHORTEST_SECRET} characters at least"
        )),
        false => Ok(text.to_owned()),
    },
    help: "make one with `openssl rand -base64 24`",
};

/// The secrets of `store.redis`, those in files read.
struct Secrets {
    url: Option<String>,
    password: Option<String>,
    sentinel_password: Option<String>,
    secret: Option<String>,
}

impl Compiler<'_> {
    /// The Redis store; `None` if it is not configured or, with a finding, not usable.
    pub(in crate::config) fn redis(
        &mut self,
        config: &schema::Config,
        files: KeyFiles,
    ) -> Option<StoreSpec> {
        let redis = config.store.redis.as_ref()?;
        let secrets = self.redis_secrets(redis, files)?;
        let tls = match files {
            KeyFiles::Needed => self.redis_tls(redis, redis.node, secrets.url.as_deref())?,
            KeyFiles::Optional => unverified(),
        };
        let prefix: Arc<str> = redis.prefix.as_str().into();
        let client = Spec {
            timeout: redis.timeout.get(),
            prefix: Arc::clone(&prefix),
            ..client(redis, &secrets, tls)?
        };
        Some(StoreSpec {
            client,
            naming: Naming {
                keys: keys(redis, secrets.secret.as_deref()),
                prefix,
            },
            key_secret: secrets
                .secret
                .map(|secret| derived("secret, for fingerprints", &secret)),
            refusal_cache: redis.refusal_cache.get(),
            startup_timeout: redis.startup_timeout.get(),
        })
    }

    /// Reads the secrets. `None` with findings.
    fn redis_secrets(&mut self, redis: &RedisStore, files: KeyFiles) -> Option<Secrets> {
        let is_optional = matches!(files, KeyFiles::Optional);
        let stand_in = |text: &'static str| is_optional.then_some(text);
        let sentinel = redis.sentinel.as_ref();
        let sentinel_password = sentinel.and_then(|sentinel| sentinel.password.as_ref());
        let url = self.optional_secret(redis.url.as_ref(), &URL, stand_in("redis://localhost"));
        let password = self.optional_secret(redis.password.as_ref(), &TEXT, stand_in(""));
        let sentinel_password = self.optional_secret(sentinel_password, &TEXT, stand_in(""));
        let secret = self.optional_secret(
            redis.secret.as_ref(),
            &SECRET,
            stand_in("a secret of a file"),
        );
        Some(Secrets {
            url: url?,
            password: password?,
            sentinel_password: sentinel_password?,
            secret: secret?,
        })
    }

    /// The TLS settings; no file is read without TLS.
    fn redis_tls(
        &mut self,
        redis: &RedisStore,
        node: NodeId,
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
        client_config(&roots, name)
            .map_err(|error| {
                let node = tls.ca.as_ref().map_or(node, |ca| ca.node);
                let finding = Finding::error(node, Code::InvalidValue, error.to_string());
                self.findings.push(finding);
            })
            .ok()
            .map(Arc::new)
    }
}

/// The home of a policy's buckets.
pub(in crate::config) fn home(policy: &Policy) -> HomeSpec {
    match (policy.store.value, &policy.sync) {
        (StoreName::Memory, _) => HomeSpec::Memory,
        (StoreName::Redis, Some(interval)) => HomeSpec::Synchronised(interval.get()),
        (StoreName::Redis, None) => {
            let on_error = policy.on_store_error.as_ref();
            HomeSpec::Redis(on_error.map_or_else(OnStoreError::default, |on_error| on_error.value))
        }
    }
}

/// TLS settings that no server satisfies, for callers that connect to none.
pub(in crate::config) fn unverified() -> Arc<ClientConfig> {
    let builder = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
    Arc::new(builder.with_no_client_auth())
}

/// The client's settings; `None` after an error that a check has reported.
fn client(redis: &RedisStore, secrets: &Secrets, tls: Arc<ClientConfig>) -> Option<Spec> {
    let login = login(redis.user.as_ref(), secrets.password.as_deref());
    if let Some(url) = &secrets.url {
        let spec = Spec::from_url(url, Some(tls)).ok()?;
        let login = Login {
            user: spec.login.user.clone().or(login.user),
            password: spec.login.password.clone().or(login.password),
        };
        return Some(Spec { login, ..spec });
    }
    let target = match (&redis.cluster, &redis.sentinel) {
        (Some(nodes), _) => Target::Cluster(addresses(nodes, PORT)),
        (None, Some(sentinel)) => Target::Sentinel {
            sentinels: addresses(&sentinel.addresses, SENTINEL_PORT),
            master: sentinel.master.as_str().into(),
            login: self::login(sentinel.user.as_ref(), secrets.sentinel_password.as_deref()),
        },
        (None, None) => return None,
    };
    Some(Spec {
        login,
        database: redis.database.as_ref().map_or(0, |number| number.get()),
        tls: redis.tls.as_ref().map(|_| tls),
        ..Spec::new(target)
    })
}

fn addresses(written: &List<ServerAddress>, port: u16) -> Vec<Address> {
    let all = written.iter();
    all.map(|one| Address::new(one.host(), one.port().unwrap_or(port)))
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
