import { getEventListeners } from 'node:events';
import { expect, it } from 'vitest';
import { type EndableSession, type OpenSession, OpenSessions } from '../../proxy/open-sessions.ts';
import { ServiceError } from '../../src/errors.ts';

const REVOKED = new ServiceError('key_revoked', 'terminating connection due to API key rotation');
const STOPPING = new ServiceError('shutting_down', 'terminating connection due to administrator command');

/** @returns a session, and what is done to it */
function session(): EndableSession & { readonly did: string[] } {
  const did: string[] = [];
  return {
    did,
    isAtRest: true,
    end: ({ kind }) => did.push(`end ${kind}`),
    endAtRest: ({ kind }) => did.push(`at rest ${kind}`),
  };
}

function entry(session: EndableSession, revoked: AbortSignal): OpenSession {
  return { session, revoked, index: -1 };
}

it('a key that is revoked ends the sessions that were opened with it, and no others', () => {
  const open = new OpenSessions();
  const [key, other] = [new AbortController(), new AbortController()];
  const [first, second, gone, stranger] = [session(), session(), session(), session()];
  for (const own of [first, second]) open.add(entry(own, key.signal));
  const deleted = entry(gone, key.signal);
  open.add(deleted);
  open.add(entry(stranger, other.signal));
  open.delete(deleted);
  expect(getEventListeners(key.signal, 'abort')).toHaveLength(1);
  key.abort(REVOKED);
  expect([first, second, gone, stranger].map(({ did }) => did)).toEqual([['end key_revoked'], ['end key_revoked'], [], []]);
});

it('a session that comes too late is ended at once', () => {
  const open = new OpenSessions();
  const key = new AbortController();
  key.abort(REVOKED);
  const late = session();
  open.add(entry(late, key.signal));
  expect(late.did).toEqual(['end key_revoked']);
});

it('when the service stops, all end at rest, those to come too, and then at once', () => {
  const open = new OpenSessions();
  const key = new AbortController();
  const [before, after] = [session(), session()];
  open.add(entry(before, key.signal));
  open.endAtRest(STOPPING);
  open.add(entry(after, key.signal));
  open.endNow(STOPPING);
  expect([before.did, after.did]).toEqual([
    ['at rest shutting_down', 'end shutting_down'],
    ['at rest shutting_down', 'end shutting_down'],
  ]);
});
