//! Verifies certificates of servers, with three additions to webpki. A fixed name may replace the
//! host: servers known by addresses can share a certificate for a common name. A trusted CA
//! certificate may also be the server's own. And certificates may be trusted alone, whatever is in
//! them.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// The verifier of webpki, with these additions.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    /// `None` if the certificates alone are trusted, and no authority.
    usual: Option<Arc<WebPkiServerVerifier>>,
    /// Verified in place of the host.
    name: Option<ServerName<'static>>,
    /// Also accepted as certificates of servers, though they are CA certificates, as `openssl req
    /// -x509` creates.
    trusted: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerVerifier {
    /// Accepts certificates that these authorities have signed, and those that are `trusted`.
    ///
    /// # Errors
    /// When nothing can be verified with them.
    pub(super) fn new(
        roots: RootCertStore,
        name: Option<ServerName<'static>>,
        trusted: Vec<CertificateDer<'static>>,
    ) -> Result<Self, VerifierBuilderError> {
        let usual = WebPkiServerVerifier::builder(Arc::new(roots)).build()?;
        Ok(Self {
            usual: Some(usual),
            name,
            ..Self::only(trusted)
        })
    }

    /// Accepts these certificates and no others, whatever names they have and even if they have
    /// expired.
    pub(super) fn only(trusted: Vec<CertificateDer<'static>>) -> Self {
        Self {
            usual: None,
            name: None,
            trusted,
            algorithms: aws_lc_rs::default_provider().signature_verification_algorithms,
        }
    }

    fn trusts(&self, certificate: &CertificateDer<'_>) -> bool {
        self.trusted.iter().any(|own| own == certificate)
    }
}

/// Returns true if a certificate is refused only as a CA certificate. webpki checks that after its
/// validity period.
fn is_of_authority(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::Other(OtherError(source))) => {
            source.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity)
        }
        _ => false,
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(usual) = &self.usual else {
            return if self.trusts(end_entity) {
                Ok(ServerCertVerified::assertion())
            } else {
                Err(Error::General(
                    "its certificate isn't in the trusted files".to_owned(),
                ))
            };
        };
        let name = self.name.as_ref().unwrap_or(host);
        match usual.verify_server_cert(end_entity, intermediates, name, ocsp_response, now) {
            Err(error) if is_of_authority(&error) && self.trusts(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            evidence => evidence,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;

    /// A certificate for this name, signed by itself, good until 2040 and perhaps an authority's.
    fn certified(name: &str, is_ca: IsCa) -> CertificateDer<'static> {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_after = date_time_ymd(2040, 1, 1);
        params.is_ca = is_ca;
        let certificate = params.self_signed(&key).expect("a certificate");
        certificate.der().clone()
    }

    fn authority() -> IsCa {
        IsCa::Ca(BasicConstraints::Unconstrained)
    }

    fn verifier(name: Option<&'static str>, trusted: &CertificateDer<'static>) -> ServerVerifier {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone()).expect("it is a certificate");
        let name = name.map(|name| ServerName::try_from(name).expect("a name"));
        ServerVerifier::new(roots, name, vec![trusted.clone()]).expect("it can verify")
    }

    /// True if the verifier accepts this certificate of `host` in 2027, or that many years later.
    fn accepts(
        verifier: &ServerVerifier,
        shown: &CertificateDer<'_>,
        host: &str,
        later: u64,
    ) -> bool {
        let host = ServerName::try_from(host).expect("a host");
        let year = Duration::from_secs(365 * 86_400);
        let now = Duration::from_secs(1_800_000_000) + year * u32::try_from(later).expect("a few");
        let now = UnixTime::since_unix_epoch(now);
        let evidence = verifier.verify_server_cert(shown, &[], &host, &[], now);
        evidence.is_ok()
    }

    #[test]
    fn a_certificate_must_match_the_name_not_the_host() {
        for is_ca in [IsCa::NoCa, authority()] {
            let certificate = certified("redis.internal", is_ca);
            for (name, host, is_good) in [
                ("redis.internal", "10.0.0.1", true),
                ("redis.internal", "redis-1", true),
                ("other.internal", "redis.internal", false),
            ] {
                let verifier = verifier(Some(name), &certificate);
                assert_eq!(accepts(&verifier, &certificate, host, 0), is_good);
            }
        }
    }

    #[test]
    fn an_untrusted_certificate_is_refused() {
        for is_ca in [IsCa::NoCa, authority()] {
            let certificate = certified("redis.internal", is_ca);
            let verifier = verifier(None, &certified("redis.internal", is_ca));
            assert!(!accepts(&verifier, &certificate, "redis.internal", 0));
        }
    }

    #[test]
    fn a_trusted_ca_certificate_is_accepted_for_its_name_while_valid() {
        let certificate = certified("api.internal", authority());
        let verifier = verifier(None, &certificate);
        assert!(accepts(&verifier, &certificate, "api.internal", 0));
        assert!(!accepts(&verifier, &certificate, "other.internal", 0));
        assert!(!accepts(&verifier, &certificate, "api.internal", 20));
    }
}
