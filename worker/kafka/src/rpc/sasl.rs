//! SASL: the exchange of a mechanism, carried by SaslHandshake and SaslAuthenticate (KIP-152).

use std::sync::Arc;

use fencepost_crds::v1alpha1::SaslMechanism;
use rsasl::callback::{Context, Request, SessionCallback, SessionData};
use rsasl::config::SASLConfig;
use rsasl::mechanisms::{plain, scram};
use rsasl::prelude::{Mechanism, Mechname, MessageSent, Registry, SASLClient, Session, SessionError, State};
use rsasl::property::{AuthId, Password};

use crate::error::chain;
use crate::settings::SaslSettings;

static MECHANISMS: &[Mechanism] = &[scram::SCRAM_SHA256, scram::SCRAM_SHA512, plain::PLAIN];

struct Credentials(SaslSettings);

impl SessionCallback for Credentials {
    fn callback(&self, _: &SessionData, _: &Context, request: &mut Request<'_>) -> Result<(), SessionError> {
        request.satisfy::<AuthId>(&self.0.username)?.satisfy::<Password>(self.0.password.expose().as_bytes())?;
        Ok(())
    }
}

/// One exchange. The text of an error says what broke.
pub(super) struct Exchange(Session);

/// What to do after a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Send this; the answer goes into the next step.
    Send(Vec<u8>),
    /// Send this; then this side is satisfied.
    SendLast(Vec<u8>),
    /// This side is satisfied.
    Done,
}

impl Exchange {
    pub(super) fn new(settings: &SaslSettings) -> Result<Self, String> {
        let config = SASLConfig::builder()
            .with_registry(Registry::with_mechanisms(MECHANISMS))
            .with_callback(Credentials(settings.clone()))
            .map_err(|error| chain(&error))?;
        let name: &'static [u8] = match settings.mechanism {
            SaslMechanism::ScramSha256 => b"SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => b"SCRAM-SHA-512",
            SaslMechanism::Plain => b"PLAIN",
        };
        let name = Mechname::parse(name).map_err(|error| error.to_string())?;
        let session = SASLClient::new(Arc::clone(&config)).start_suggested(&[name]).map_err(|error| chain(&error))?;
        Ok(Self(session))
    }

    /// Takes what the broker sent (`None` at first), gives what to send.
    pub(super) fn step(&mut self, input: Option<&[u8]>) -> Result<Step, String> {
        let mut out = Vec::new();
        match self.0.step(input, &mut out).map_err(|error| chain(&error))? {
            State::Running => Ok(Step::Send(out)),
            State::Finished(MessageSent::Yes) => Ok(Step::SendLast(out)),
            State::Finished(MessageSent::No) => Ok(Step::Done),
        }
    }
}

#[cfg(test)]
mod tests;
