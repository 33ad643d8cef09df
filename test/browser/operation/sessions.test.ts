import { afterEach, describe, expect, it } from 'vitest';
import {
  canCancel,
  describeLock,
  findSessions,
  formatElapsed,
  programOf,
  rootsOf,
  type Session,
  searched,
  shown,
} from '../../../http/console/screens/sessions/sessions.tsx';
import { goTo, useConsole } from '../support/console.ts';

const scene = useConsole();

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
  waitsFor: null,
  blockedBy: [],
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
  waitsFor: {
    lock: 'relation',
    mode: 'AccessShareLock',
    relation: 'public.orders',
    since: '2025-01-31T09:30:00.123Z',
    isHeldElsewhere: false,
  },
  blockedBy: ['ses_2'],
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
    ['lock', [REQUEST]],
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

it('finds who holds others up, and names what these wait for', () => {
  const last: Session = { ...REQUEST, sessionId: 'ses_4', blockedBy: ['ses_3', 'ses_2'] };
  expect(rootsOf([last, ...ALL])).toEqual([{ session: OPEN, blocked: [REQUEST, last] }]);
  const of = (lock: string, relation: string | null) =>
    describeLock({ lock, mode: 'ShareLock', relation, since: null, isHeldElsewhere: false });
  expect([of('relation', 'public.a'), of('transactionid', 'public.a'), of('tuple', null), of('advisory', null)]).toEqual([
    'ShareLock on public.a',
    'a row of public.a',
    'a row',
    'ShareLock (advisory)',
  ]);
});

it('shows the chain of who waits for whom, and ends its root', async () => {
  const { page, organization } = await scene.openSignedIn();
  const { service } = scene;
  await service.query(organization, 'create table orders (id int)');
  const root = await service.connect(organization, { application_name: 'root' });
  root.on('error', () => {});
  await root.query('begin');
  await root.query('lock table orders');
  const waiting = ['first', 'second'].map(async (name) => {
    const client = await service.connect(organization, { application_name: name });
    await client.query('select from orders').finally(() => client.end());
  });
  await goTo(page, 'sessions', 'Sessions');
  const notice = page.locator('.notice.warning').filter({ hasText: /^root, \d+ holds up 2 other sessions\./ });
  await notice.waitFor();
  await expect
    .poll(() => notice.getByRole('listitem').allInnerTexts())
    .toEqual([
      expect.stringMatching(/^(first|second), \d+ waits for AccessShareLock on public\.orders \d+ s$/),
      expect.stringMatching(/^(first|second), \d+ waits for AccessShareLock on public\.orders \d+ s$/),
    ]);
  await page.getByRole('row', { name: /^first/ }).click();
  await page
    .getByRole('dialog', { name: 'first' })
    .getByText(/^held up by root \(\d+\)$/)
    .waitFor();
  await page.keyboard.press('Escape');
  await notice.getByRole('button', { name: 'End its session' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'End the session' }).click();
  await notice.waitFor({ state: 'detached' });
  await Promise.all(waiting);
});
