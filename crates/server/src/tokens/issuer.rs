//! A workspace as an issuer: its names and its keys.

use std::{collections::HashMap, sync::Arc};

use aws_lc_rs::{
    encoding::AsDer,
    rand::SystemRandom,
    rsa::{KeyPair, KeySize},
    signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, UnparsedPublicKey},
};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64URL},
};
use machinery::{
    Draft, Revision,
    status::{Reason, Status},
};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use store::{Change, Commit, Error, Expect, Key, WorkspaceId, Write};

use super::{
    claims::Claims,
    jws::{self, Headed},
    making::{self, Alone, Making},
};
use crate::{hub::Hub, hub::store_refusal, recent::Recent, space::Space};

/// More keys than these are not kept: the older ones have to be forgotten first.
const MOST_KEYS: usize = 8;
/// So many addresses the servers may have, or have had, whose tokens are still good.
const MOST_NAMES: usize = 32;
/// Verified tokens that are remembered; twice as many while one half is being filled.
const REMEMBERED: usize = 4096;
/// Longer ones are not remembered, so that what is holds a bounded number of bytes.
const MAX_REMEMBERED_BYTES: usize = 8 << 10;
const ATTEMPTS: usize = 8;

/// What upstream says of a signature that does not fit.
const BAD_SIGNATURE: &str = "go-jose/go-jose: error in cryptographic primitive";

/// Where the keys of a workspace are, in the group of Hanse's own kinds: not a served resource, and not a name that a
/// definition can have, so no client can reach it.
pub const ISSUERS: &str = "_issuers";

fn key_of_issuer() -> Key {
    Key::new(api::GROUP, ISSUERS, "", "self")
}

/// What is known of one workspace as an issuer.
pub struct Issuer {
    /// What it was read from; `None` if nothing is stored yet.
    stored: Option<Revision>,
    /// The first is what this server calls it; by the others it was called before, or is by other servers.
    names: Vec<String>,
    /// The same as they are to be stored, which is in the same order for all servers.
    listed: Vec<String>,
    /// What it is called now is stored as well, so that its tokens stay good when it is called otherwise.
    settled: bool,
    /// The first signs.
    keys: Vec<Arc<SigningKey>>,
}

struct SigningKey {
    id: String,
    created: String,
    pkcs8: Vec<u8>,
    pair: KeyPair,
}

impl SigningKey {
    fn read(pkcs8: Vec<u8>, created: String) -> Option<SigningKey> {
        let pair = KeyPair::from_pkcs8(&pkcs8).ok()?;
        let public = pair.public_key().as_der().ok()?;
        let id = BASE64URL.encode(Sha256::digest(public.as_ref()));
        Some(SigningKey { id, created, pkcs8, pair })
    }

    fn from_json(value: &Value) -> Option<SigningKey> {
        let pkcs8 = STANDARD.decode(value["pkcs8"].as_str()?).ok()?;
        SigningKey::read(pkcs8, value["created"].as_str().unwrap_or_default().to_owned())
    }

    fn to_json(&self) -> Value {
        json!({"id": self.id, "created": self.created, "pkcs8": STANDARD.encode(&self.pkcs8)})
    }

    fn verifies(&self, signed: &str, signature: &[u8]) -> bool {
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, self.pair.public_key().as_ref());
        public.verify(signed.as_bytes(), signature).is_ok()
    }

    /// As a key set lists it.
    fn public_json(&self) -> Value {
        let public = self.pair.public_key();
        json!({
            "use": "sig", "kty": "RSA", "kid": self.id, "alg": "RS256",
            "n": BASE64URL.encode(public.modulus().big_endian_without_leading_zero()),
            "e": BASE64URL.encode(public.exponent().big_endian_without_leading_zero()),
        })
    }
}

/// Names as they are stored, the latest first. One that is there keeps its place, so that servers that are reached by
/// different addresses do not move each other's. Where there is no room the earliest goes; whoever still signs by it puts
/// it back.
fn listed(before: &[String], now: &str) -> Vec<String> {
    let new = (!before.iter().any(|it| it == now)).then(|| now.to_owned());
    new.into_iter().chain(before.iter().cloned()).take(MOST_NAMES).collect()
}

impl Issuer {
    fn read(hub: &Hub, space: &Space) -> Issuer {
        let object = hub.store.get(space.id(), &key_of_issuer());
        let tree = object.as_ref().and_then(|object| object.tree().ok()).unwrap_or_default();
        let list = |key: &str| tree.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let now = hub.options.issuer_of(space.name());
        let before: Vec<String> =
            list("names").into_iter().filter_map(|it| it.as_str().map(str::to_owned)).collect();
        let settled = before.contains(&now);
        let listed = listed(&before, &now);
        let names = [now.clone()].into_iter().chain(before.into_iter().filter(|it| *it != now)).collect();
        let keys = list("keys").iter().filter_map(SigningKey::from_json).map(Arc::new).collect();
        Issuer { stored: object.map(|object| object.revision), names, listed, settled, keys }
    }

    /// What it is called: the address that its discovery document is below.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// All names: tokens of each are good, and for the API.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub fn is_called(&self, name: &str) -> bool {
        self.names.iter().any(|it| it == name)
    }

    pub fn key_ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| key.id.as_str())
    }

    pub fn public_keys(&self) -> Vec<Value> {
        self.keys.iter().map(|key| key.public_json()).collect()
    }

    /// A token with these claims. There is a key: see [`Issuers::signing`].
    pub fn sign(&self, claims: &Value) -> Result<String, Status> {
        let failed = || Status::internal("failed to generate token: there is no usable key");
        let key = self.keys.first().ok_or_else(failed)?;
        let unsigned = jws::unsigned(&key.id, claims);
        let mut signature = vec![0; key.pair.public_modulus_len()];
        key.pair
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), unsigned.as_bytes(), &mut signature)
            .map_err(|_| failed())?;
        Ok(jws::signed(&unsigned, &signature))
    }

    fn to_tree(&self, uid: &str) -> Map<String, Value> {
        let keys: Vec<Value> = self.keys.iter().map(|key| key.to_json()).collect();
        let tree = json!({
            "kind": "Issuer", "apiVersion": api::API_VERSION,
            "metadata": {"name": "self", "uid": uid},
            "names": self.listed, "keys": keys,
        });
        match tree {
            Value::Object(tree) => tree,
            _ => Map::new(),
        }
    }
}

/// The issuers of all workspaces, each read when it is first needed and again when its keys have changed.
#[derive(Default)]
pub struct Issuers {
    read: Recent<Arc<Issuer>>,
    verified: Mutex<Verified>,
    making: Making,
}

/// Tokens whose signature was found good, by their hash. Two halves: when one is full it becomes the other one, and
/// what nobody asked for since is forgotten.
#[derive(Default)]
struct Verified {
    recent: HashMap<[u8; 32], Arc<Remembered>>,
    older: HashMap<[u8; 32], Arc<Remembered>>,
}

struct Remembered {
    workspace: WorkspaceId,
    key_id: String,
    claims: Arc<Claims>,
}

impl Verified {
    fn get(&mut self, hash: &[u8; 32]) -> Option<Arc<Remembered>> {
        if let Some(found) = self.recent.get(hash) {
            return Some(found.clone());
        }
        let found = self.older.remove(hash)?;
        self.put(*hash, found.clone());
        Some(found)
    }

    fn put(&mut self, hash: [u8; 32], remembered: Arc<Remembered>) {
        if self.recent.len() >= REMEMBERED {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(hash, remembered);
    }
}

impl Issuers {
    /// As it is; it may have no key yet.
    pub fn of(&self, hub: &Hub, space: &Space) -> Arc<Issuer> {
        let stored = hub.store.get(space.id(), &key_of_issuer()).map(|object| object.revision);
        if let Some(issuer) = self.read.get(space.id()).filter(|issuer| issuer.stored == stored) {
            return issuer;
        }
        let issuer = Arc::new(Issuer::read(hub, space));
        // Workspaces that issue nothing are not remembered: there is nothing that was costly to read.
        if issuer.stored.is_some() {
            self.read.insert(space.id(), issuer.clone());
        }
        issuer
    }

    pub fn forget(&self, id: &WorkspaceId) {
        self.read.forget(id);
    }

    /// As it is, with a key to sign with.
    pub async fn signing(&self, hub: &Hub, space: &Space) -> Result<Arc<Issuer>, Status> {
        let usable = |issuer: &Issuer| !issuer.keys.is_empty() && issuer.settled;
        let issuer = self.of(hub, space);
        if usable(&issuer) {
            return Ok(issuer);
        }
        // Whoever waited may find it made.
        let mut alone = self.making.alone(space.id()).await;
        for _ in 0..ATTEMPTS {
            let issuer = self.of(hub, space);
            if usable(&issuer) {
                return Ok(issuer);
            }
            let mut new = None;
            if issuer.keys.is_empty() {
                let (key, still) = self.make_key(hub, alone).await?;
                (new, alone) = (Some(key), still);
            }
            self.store(hub, space, &issuer, new, MOST_KEYS).await?;
        }
        Err(Status::new(Reason::ServiceUnavailable, "the keys of the workspace keep changing; try again"))
    }

    /// A new key signs from now on. The others still verify, unless they are to be forgotten.
    pub async fn rotate(&self, hub: &Hub, space: &Space, forget_old: bool) -> Result<Arc<Issuer>, Status> {
        let has_room = |issuer: &Issuer| match issuer.keys.len() >= MOST_KEYS && !forget_old {
            true => {
                let message = format!("the workspace has {MOST_KEYS} keys; forget the old ones first");
                Err(Status::new(Reason::Conflict, message))
            }
            false => Ok(()),
        };
        let alone = self.making.alone_now(space.id())?;
        has_room(&self.of(hub, space))?;
        let (new, _alone) = self.make_key(hub, alone).await?;
        for _ in 0..ATTEMPTS {
            let issuer = self.of(hub, space);
            if issuer.keys.first().is_some_and(|key| key.id == new.id) {
                return Ok(issuer);
            }
            has_room(&issuer)?;
            let kept = if forget_old { 1 } else { MOST_KEYS };
            self.store(hub, space, &issuer, Some(new.clone()), kept).await?;
        }
        Err(Status::new(Reason::ServiceUnavailable, "the keys of the workspace keep changing; try again"))
    }

    /// Only the key that signs verifies from now on.
    pub async fn forget_old(&self, hub: &Hub, space: &Space) -> Result<Arc<Issuer>, Status> {
        for _ in 0..ATTEMPTS {
            let issuer = self.of(hub, space);
            if issuer.keys.len() <= 1 {
                return Ok(issuer);
            }
            self.store(hub, space, &issuer, None, 1).await?;
        }
        Err(Status::new(Reason::ServiceUnavailable, "the keys of the workspace keep changing; try again"))
    }

    /// Stores `issuer` with a new key, if it is still what it was; otherwise nothing.
    async fn store(
        &self,
        hub: &Hub,
        space: &Space,
        issuer: &Issuer,
        new: Option<Arc<SigningKey>>,
        most: usize,
    ) -> Result<(), Status> {
        let keys = new.into_iter().chain(issuer.keys.iter().cloned()).take(most).collect();
        let (names, listed) = (issuer.names.clone(), issuer.listed.clone());
        let next = Issuer { stored: None, names, listed, settled: true, keys };
        let draft = Draft::encode(&next.to_tree(&hub.new_uid())).map_err(Status::internal)?;
        let expect = issuer.stored.map_or(Expect::Absent, Expect::At);
        let write = Write { key: key_of_issuer(), expect, change: Change::Put { draft, expires: None } };
        match hub.store.commit(space.id(), Commit { guards: vec![], writes: vec![write] }).await {
            Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(store_refusal(error)),
        }
    }

    /// The claims of a token that one of the workspace's keys has signed.
    pub fn verified(
        &self,
        hub: &Hub,
        space: &Space,
        issuer: &Issuer,
        text: &str,
        token: &Headed<'_>,
    ) -> Result<Arc<Claims>, String> {
        let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let known = self.verified.lock().get(&hash);
        // Keys may have been forgotten since.
        let known =
            known.filter(|it| it.workspace == *space.id() && issuer.key_ids().any(|id| id == it.key_id));
        if let Some(known) = known {
            hub.metrics.tokens.remembered.inc();
            return Ok(known.claims.clone());
        }
        let fits = |key: &&Arc<SigningKey>| token.key_id.is_empty() || token.key_id == key.id;
        let mut candidates = issuer.keys.iter().filter(fits).peekable();
        if candidates.peek().is_none() {
            return Err("invalid signature, no keys found".into());
        }
        let verifies =
            |key: &&Arc<SigningKey>| token.understood && key.verifies(token.signed, &token.signature);
        let key = candidates.find(verifies).ok_or(BAD_SIGNATURE)?;
        let claims = Arc::new(Claims::read(&token.payload)?);
        if text.len() <= MAX_REMEMBERED_BYTES {
            let (workspace, key_id) = (space.id().clone(), key.id.clone());
            let remembered = Remembered { workspace, key_id, claims: claims.clone() };
            self.verified.lock().put(hash, Arc::new(remembered));
        }
        hub.metrics.tokens.verified.inc();
        Ok(claims)
    }

    /// A new key, when it is this workspace's turn.
    async fn make_key(&self, hub: &Hub, alone: Alone) -> Result<(Arc<SigningKey>, Alone), Status> {
        let turn = self.making.turn(alone).await?;
        let created = hub.now_text();
        let work = move || {
            let pair = KeyPair::generate(KeySize::Rsa2048).ok()?;
            let pkcs8 = pair.as_der().ok()?.as_ref().to_vec();
            SigningKey::read(pkcs8, created)
        };
        let made = making::on_a_thread(&*hub.env.tasks, turn, work).await;
        match made {
            Some((Some(key), turn)) => Ok((Arc::new(key), turn.end())),
            _ => Err(Status::internal("failed to generate token: no key could be made")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_different_addresses_leave_each_others_names_alone() {
        let servers: Vec<String> = (0..MOST_NAMES).map(|number| format!("https://{number}")).collect();
        let mut stored = Vec::new();
        for name in &servers {
            stored = listed(&stored, name);
            assert_eq!(stored.first(), Some(name), "a new name is stored");
        }
        for name in &servers {
            assert_eq!(listed(&stored, name), stored, "a known one changes nothing, wherever it stands");
        }
        stored = listed(&stored, "https://new");
        assert_eq!(stored.len(), MOST_NAMES);
        assert!(!stored.contains(&servers[0]), "the earliest makes room");
        assert!(servers[1..].iter().all(|name| stored.contains(name)));
    }
}
