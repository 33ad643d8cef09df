import type { ApiKey } from '../../src/catalog/key-rows.ts';
import type { RotatedKey } from '../../src/catalog/keys.ts';

export const EXAMPLE_KEY = 'pst_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX';

export const ROTATED_EXAMPLE = {
  apiKey: EXAMPLE_KEY,
  id: 'key_1b5n9v3c7x0z',
  keyId: 'key_1b5n9v3c7x0z',
  organizationId: 'org_3k9x2m7q1a5z',
  rotatedAt: '2025-02-01T08:00:00.000Z',
  previousKey: {
    id: 'key_8h2f6d0s4p1w',
    keyId: 'key_8h2f6d0s4p1w',
    prefix: 'pst_4fT9aB',
    invalidatedAt: '2025-02-01T08:00:00.000Z',
  },
};

/** A key as replies show it. */
export function shownKey(key: Omit<ApiKey, 'verifier'>) {
  const { id, prefix, name, scope, createdAt, createdBy, expiresAt, networks, lastUsedAt, replacedBy } = key;
  return { keyId: id, prefix, name, scope, createdAt, createdBy, expiresAt, networks, lastUsedAt, replacedBy };
}

/** The reply to a rotation, at either path. */
export function rotatedReply(organizationId: string, { apiKey, key, previous }: RotatedKey & { readonly apiKey: string }) {
  const ids = { id: key.id, keyId: key.id, organizationId };
  return { apiKey, ...ids, rotatedAt: key.createdAt, previousKey: { ...previous, keyId: previous.id } };
}
