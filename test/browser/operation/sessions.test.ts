import { afterEach, describe, expect, it } from 'vitest';
import {
  canCancel,
  findSessions,
  formatElapsed,
  programOf,
  type Session,
  searched,
  shown,
} from '../../../http/console/screens/sessions/sessions.tsx';

const IDLE: Session = {
  sessionId: 'ses_1b5c09d27f3a4e60',
  door: 'wire',
  keyId: 'key_8h2f6d0s4p1w',
  keyPrefix: 'pst_4fT9aB',
  sourceIp: '203.0.113.7',
  applicationName: 'psql',
  userAgent: null,
  isEncrypted: true,
  processId: 2_134_527_584,
  connectedAt: '2025-01-31T09:12:00.000Z',
  state: 'idle',
  stateSince: '2025-01-31T09:30:00.123Z',
  pins: [],
  statement: null,
  isOwn: false,
};
const OPEN: Session = {
  ...IDLE,
  sessionId: 'ses_2',
  state: 'idle in transaction',
  pins: [{ reason: 'transaction', explanation: 'It is in a transaction.' }],
};
const REQUEST: Session = {
  ...IDLE,
  sessionId: 'ses_3',
  door: 'http',
  keyId: 'key_2',
  applicationName: null,
  userAgent: 'curl/8.5.0 (x86_64)',
  state: 'active',
  statement: { sql: 'select Total from orders', startedAt: '2025-01-31T09:30:00.123Z', runningMs: 5 },
};
const ALL = [IDLE, OPEN, REQUEST];

describe('findSessions', () => {
  afterEach(() => {
    shown.value = 'all';
    searched.value = '';
  });

  it.each([
    ['all', ALL],
    ['active', [REQUEST]],
    ['transaction', [OPEN]],
    ['pinned', [OPEN]],
    ['http', [REQUEST]],
  ] as const)('%s', (which, found) => {
    shown.value = which;
    expect(findSessions(ALL, new Map())).toEqual(found);
  });

  it.each(['TOTAL curl', 'ses_3', 'nightly', 'key_2'])('finds all words, in whatever case: %s', (text) => {
    searched.value = text;
    expect(findSessions(ALL, new Map([['key_2', 'Nightly job']]))).toEqual([REQUEST]);
  });
});

it('a session that runs nothing, and the request that asks, cannot be canceled', () => {
  expect(ALL.map(canCancel)).toEqual([false, false, true]);
  expect(canCancel({ ...REQUEST, isOwn: true })).toBe(false);
  expect(canCancel({ ...IDLE, state: 'waiting for a backend' })).toBe(true);
});

it('a program has the name that it gives itself', () => {
  expect(ALL.map(programOf)).toEqual(['psql', 'psql', 'curl/8.5.0']);
  expect(programOf({ ...IDLE, applicationName: '' })).toBe('connection');
  expect(programOf({ ...REQUEST, userAgent: 'Mozilla/5.0 (X11) Gecko/20100101 Firefox/131.0' })).toBe('Firefox');
});

it.each([
  [-5_000, '0 s'],
  [59_999, '59 s'],
  [125_000, '2 min 5 s'],
  [11_040_000, '3 h 4 min'],
  [183_600_000, '2 days 3 h'],
])('%d ms are %s', (ms, text) => expect(formatElapsed(ms)).toBe(text));
