//! Who is at the other end of a connection, as far as its certificate tells.

use std::{sync::Arc, time::Duration};

use machinery::certificates::WORKSPACE_EXTENSION;
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, UnixTime};
use store::WorkspaceId;
use x509_parser::{asn1_rs::Oid, certificate::X509Certificate};

use super::{Login, LoginMetrics};
use crate::user::User;

/// How long a certificate that was found good is taken to be so.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// The other end of a connection.
pub enum Caller {
    /// Known without a certificate: whoever calls from inside this process.
    Known(Arc<User>),
    Certificate(Presented),
}

/// A certificate whose holder has its key; whether it is good is another question.
pub struct Presented {
    chain: Vec<CertificateDer<'static>>,
    /// What it says, if it says who it is.
    identity: Result<Option<Identity>, String>,
    /// When it was last found good, and by which authorities.
    found_good: Mutex<Option<(u64, Duration)>>,
}

/// Who a certificate is for.
#[derive(Clone, Debug)]
pub struct Identity {
    pub user: Arc<User>,
    /// The only workspace it is good in, if there is one.
    pub workspace: Option<WorkspaceId>,
    not_after: i64,
}

impl Presented {
    pub fn new(chain: Vec<CertificateDer<'static>>) -> Presented {
        let identity = chain.first().map_or(Ok(None), |leaf| read(leaf));
        Presented { chain, identity, found_good: Mutex::default() }
    }

    /// `Ok(None)`: it names nobody.
    pub fn identity(&self, login: &Login, metrics: &LoginMetrics) -> Result<Option<&Identity>, String> {
        let trust = login.trust();
        let (moment, elapsed) = (login.env.clock.now().as_second(), login.env.clock.elapsed());
        let unexpired = matches!(&self.identity, Ok(Some(identity)) if moment <= identity.not_after);
        let found = *self.found_good.lock();
        let recently = found.is_some_and(|(generation, at)| {
            generation == trust.generation && elapsed.saturating_sub(at) < GOOD_FOR
        });
        if !(recently && unexpired) {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(moment).unwrap_or(0)));
            let good = trust.check(&self.chain, now);
            metrics.attempt("certificate", good.is_ok());
            good.map_err(|error| error.to_string())?;
            *self.found_good.lock() = Some((trust.generation, elapsed));
        }
        if let Ok(Some(identity)) = &self.identity {
            metrics.certificate_used(identity.not_after - moment);
        }
        self.identity.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }
}

fn read(der: &[u8]) -> Result<Option<Identity>, String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).map_err(|error| error.to_string())?;
    let workspace = workspace_of(&certificate)?;
    let not_after = certificate.validity().not_after.timestamp();
    let user = User::from_certificate(der, &certificate)?;
    Ok(user.map(|user| Identity { user: Arc::new(user), workspace, not_after }))
}

/// What cannot be read must not be taken for absent: it would be good everywhere.
fn workspace_of(certificate: &X509Certificate<'_>) -> Result<Option<WorkspaceId>, String> {
    let oid = Oid::from(WORKSPACE_EXTENSION).map_err(|_| "no such extension".to_owned())?;
    let Some(extension) = certificate.extensions().iter().find(|it| it.oid == oid) else { return Ok(None) };
    match extension.value {
        [0x0c, length, text @ ..] if usize::from(*length) == text.len() => {
            let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
            Ok(Some(WorkspaceId(text.into())))
        }
        _ => Err("the certificate's workspace cannot be read".to_owned()),
    }
}
