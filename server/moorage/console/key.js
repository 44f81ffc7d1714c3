/** The key of this browser: made once, kept in IndexedDB, its private half cannot be read out. */

import { Moorage } from "../client/moorage.js";

const DATABASE = "moorage", STORE = "keys", NAME = "own";

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** The key, made if there is none. @returns {Promise<CryptoKeyPair>} */
export async function ownKey() {
  const opening = indexedDB.open(DATABASE, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
  const database = await done(opening);
  try {
    const known = await done(database.transaction(STORE).objectStore(STORE).get(NAME));
    if (known) return known;
    const key = await Moorage.generateKey();
    await done(database.transaction(STORE, "readwrite").objectStore(STORE).put(key, NAME));
    return key;
  } finally {
    database.close();
  }
}
