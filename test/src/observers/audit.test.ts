import { describe, expect, test } from 'vitest';
import type { AuditEvent } from '../../../src/catalog/audit/records.ts';
import { fanOut, type Observation, type Origin } from '../../../src/observation.ts';
import { auditObserver } from '../../../src/observers/audit.ts';

const http: Origin = { surface: 'http', sourceIp: '203.0.113.7', requestId: 'req-1' };
const wire: Origin = { surface: 'wire', sourceIp: '203.0.113.8', applicationName: 'psql' };
const actor = { organizationId: 'org_a1b2c3d4e5f6', keyId: 'key_1', keyPrefix: 'pst_abc' };
const nothing = { httpStatus: null, sqlstate: null, rowCount: null, durationMs: null };

function recorded(observation: Observation): AuditEvent | undefined {
  const events: AuditEvent[] = [];
  fanOut(auditObserver({ append: (event) => events.push(event) }))(observation);
  return events[0];
}

describe('an organization finds in its audit log', () => {
  test('its HTTP calls, with their statements', () => {
    const statement = { sql: 'select $1', command: 'SELECT', paramCount: 1 };
    const outcome = { status: 'ok', httpStatus: 200, rowCount: 0, durationMs: 2.5 } as const;
    expect(recorded({ name: 'http.request', action: 'query', origin: http, actor, statement, outcome })).toEqual({
      organizationId: 'org_a1b2c3d4e5f6',
      action: 'query',
      origin: http,
      actor,
      statement,
      outcome: { ...nothing, status: 'ok', httpStatus: 200, rowCount: 0, durationMs: 2.5 },
    });
  });

  test('its wire logins and failed logins', () => {
    expect(recorded({ name: 'login.succeeded', origin: wire, actor })).toEqual({
      organizationId: 'org_a1b2c3d4e5f6',
      action: 'login',
      origin: wire,
      actor,
      outcome: { ...nothing, status: 'ok' },
    });
    const failed = { name: 'login.failed', origin: wire, actor: { organizationId: 'org_a1b2c3d4e5f6' }, sqlstate: '28P01' } as const;
    expect(recorded({ ...failed, kind: 'unauthorized' })).toMatchObject({
      action: 'login.failed',
      outcome: { ...nothing, status: 'error', sqlstate: '28P01' },
    });
    expect(recorded({ ...failed, kind: 'too_many_login_failures' })).toBeUndefined();
  });

  test('its wire sessions with their counts, and the statements that change its schema or roles', () => {
    expect(recorded({ name: 'wire.session.opened', origin: wire, actor })).toMatchObject({ action: 'session.opened' });
    const counts = { statements: 3, bytesIn: 100, bytesOut: 2_000, reason: 'client terminated' };
    expect(recorded({ name: 'wire.session.closed', origin: wire, actor, durationMs: 40, ...counts })).toMatchObject({
      action: 'session.closed',
      session: counts,
      outcome: { ...nothing, status: 'ok', durationMs: 40 },
    });
    const statement = { sql: 'drop table t', command: 'DROP TABLE' };
    const outcome = { status: 'error', sqlstate: '42P01', durationMs: 1 } as const;
    expect(recorded({ name: 'wire.statement', origin: wire, actor, statement, outcome })).toMatchObject({
      action: 'statement',
      statement,
      outcome: { ...nothing, status: 'error', sqlstate: '42P01', durationMs: 1 },
    });
  });
});

describe('an organization does not find', () => {
  test('twice what the catalog records together with the change', () => {
    for (const action of ['auth.signup', 'auth.rotate_key']) {
      const call = { name: 'http.request', action, origin: http, actor } as const;
      expect(recorded({ ...call, outcome: { status: 'ok', httpStatus: 200 } })).toBeUndefined();
      expect(recorded({ ...call, outcome: { status: 'error', httpStatus: 401 } })).toMatchObject({ action });
    }
    expect(recorded({ name: 'login.succeeded', origin: http, actor })).toBeUndefined();
  });

  test('observations without an organization, or that are only counted', () => {
    expect(recorded({ name: 'http.request', action: 'docs', origin: http, outcome: { status: 'ok' } })).toBeUndefined();
    expect(recorded({ name: 'login.failed', origin: http, kind: 'unauthorized', sqlstate: '28P01' })).toBeUndefined();
    expect(recorded({ name: 'wire.query', durationMs: 3 })).toBeUndefined();
    expect(recorded({ name: 'audit.written', entries: 1, lagMs: 1 })).toBeUndefined();
  });
});
