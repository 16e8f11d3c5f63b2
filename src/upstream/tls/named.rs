//! Certificates that are for one name, whatever host is connected to: servers that are known by addresses, or by names of
//! their own, share a certificate for a name that they are known by together.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::ClientTlsError;

/// Everything that the usual verifier does, with another name.
#[derive(Debug)]
pub(super) struct Named {
    usual: Arc<WebPkiServerVerifier>,
    name: ServerName<'static>,
}

impl Named {
    pub(super) fn new(
        roots: RootCertStore,
        name: ServerName<'static>,
    ) -> Result<Self, ClientTlsError> {
        let usual = WebPkiServerVerifier::builder(Arc::new(roots)).build();
        let usual = usual.map_err(|error| ClientTlsError::Unusable(error.to_string()))?;
        Ok(Self { usual, name })
    }
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let usual = &self.usual;
        usual.verify_server_cert(end_entity, intermediates, &self.name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certified(name: &str) -> (RootCertStore, CertificateDer<'static>) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        let mut roots = RootCertStore::empty();
        let der = certificate.der().clone();
        roots.add(der.clone()).expect("it is a certificate");
        (roots, der)
    }

    #[test]
    fn a_certificate_has_to_be_for_the_name_whatever_the_host() {
        let (roots, certificate) = certified("redis.internal");
        for (name, host, is_good) in [
            ("redis.internal", "10.0.0.1", true),
            ("redis.internal", "redis-1", true),
            ("other.internal", "redis.internal", false),
        ] {
            let name = ServerName::try_from(name).expect("a name").to_owned();
            let verifier = Named::new(roots.clone(), name).expect("it can verify");
            let host = ServerName::try_from(host).expect("a host");
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));
            let verdict = verifier.verify_server_cert(&certificate, &[], &host, &[], now);
            assert_eq!(verdict.is_ok(), is_good, "{verdict:?}");
        }
    }

    #[test]
    fn a_certificate_of_somebody_else_is_not_taken() {
        let (_, certificate) = certified("redis.internal");
        let (roots, _) = certified("redis.internal");
        let name = ServerName::try_from("redis.internal").expect("a name");
        let verifier = Named::new(roots, name.to_owned()).expect("it can verify");
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));
        let verdict = verifier.verify_server_cert(&certificate, &[], &name, &[], now);
        assert!(verdict.is_err());
    }
}
