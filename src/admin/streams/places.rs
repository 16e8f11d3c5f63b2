//! The places of readers: a bound in all, for each token and for each address.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::admin::actor::Actor;

/// The most readers of both streams.
pub(super) const MAX_READERS: usize = 64;
/// The most readers with one token: others find a place.
pub(super) const MAX_OF_TOKEN: usize = MAX_READERS / 2;
/// The most readers from one address.
pub(super) const MAX_OF_ADDRESS: usize = MAX_READERS / 4;

/// The callers of all streams. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<Vec<Actor>>>);

/// The place of a reader, which is free when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    caller: Actor,
}

impl Places {
    pub(super) fn take(&self, caller: Actor) -> Result<Place, NoPlace> {
        let mut callers = self.0.lock();
        let has_token = |other: &&Actor| other.token() == caller.token();
        let has_address = |other: &&Actor| other.peer.ip() == caller.peer.ip();
        if callers.len() >= MAX_READERS {
            return Err(NoPlace::All);
        }
        if callers.iter().filter(has_address).count() >= MAX_OF_ADDRESS {
            return Err(NoPlace::Address);
        }
        if callers.iter().filter(has_token).count() >= MAX_OF_TOKEN {
            return Err(NoPlace::Token);
        }
        callers.push(caller.clone());
        Ok(Place {
            places: self.clone(),
            caller,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut callers = self.places.0.lock();
        let own = callers.iter().position(|caller| *caller == self.caller);
        own.map(|own| callers.swap_remove(own));
    }
}

/// The reason why there is no place for a reader.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::admin) enum NoPlace {
    #[error(
        "{MAX_READERS} callers read streams already, which is the most: close one of them, or ask /v1/status and /v1/policies instead"
    )]
    All,
    #[error(
        "{MAX_OF_TOKEN} callers read streams with this token already, which is the most: close one of them"
    )]
    Token,
    #[error(
        "{MAX_OF_ADDRESS} callers read streams from this address already, which is the most: close one of them"
    )]
    Address,
}
