import { listMigrations } from '../../src/sql/migration-history.ts';
import {
  applyMigration,
  applyMigrationOnce,
  type MigrationRequest,
  type RollbackRequest,
  rollBackMigration,
  rollBackMigrationOnce,
} from '../../src/sql/migrations.ts';
import { JSON_TYPE } from '../headers.ts';
import { IDEMPOTENCY_HEADERS, idempotentRequest, REPLAYED_HEADER, sendNewOrReplayed } from '../idempotency-key.ts';
import {
  type Endpoint,
  endpoint,
  IDEMPOTENCY_ERRORS,
  LEASE_ERRORS,
  type Operation,
  type RouteContext,
  SQL_ERRORS,
  timeoutOf,
} from '../operation.ts';
import { sendJson } from '../replies.ts';
import { migrationReply, migrationsReply, rollbackReply } from '../reply-schemas.ts';
import { tenantOf } from '../request-context.ts';
import { migrationRequest, noBody, noQuery, rollbackRequest } from '../request-schemas.ts';

const TAG = 'Migrations';
const EXAMPLE_MIGRATION = {
  name: '2025-01-31-orders',
  status: 'applied',
  appliedAt: '2025-01-31T09:30:00.123456Z',
  checksum: 'sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
  durationMs: 12.5,
  statementCount: 2,
  statementsApplied: 2,
  isReversible: true,
  rolledBackAt: null,
};

const apply = {
  method: 'POST',
  path: '/api/migrations',
  action: 'migrations.apply',
  operationId: 'applyMigration',
  tag: TAG,
  summary: 'Apply a migration',
  description:
    'All its statements run in one transaction together with its entry in the ledger: a failure leaves no trace and names statement, line and column. The same migration again changes nothing, with a warning for each object that is not as it was left; other SQL under the same name is refused.',
  needsKey: true,
  scope: 'write',
  query: noQuery,
  headers: IDEMPOTENCY_HEADERS,
  body: migrationRequest,
  bodyExample: {
    name: '2025-01-31-orders',
    sql: 'create table orders (id bigint primary key, total numeric not null);\ncreate index on orders (total);',
  },
  replies: {
    200: {
      description: 'Applied before, or a dry run.',
      schema: migrationReply,
      example: { migration: EXAMPLE_MIGRATION, alreadyApplied: true, warnings: [] },
    },
    201: {
      description: 'Applied.',
      schema: migrationReply,
      example: { migration: EXAMPLE_MIGRATION, alreadyApplied: false, warnings: [] },
      headers: REPLAYED_HEADER,
    },
  },
  errors: ['migration_checksum_mismatch', ...SQL_ERRORS, ...IDEMPOTENCY_ERRORS, ...LEASE_ERRORS],
} as const satisfies Operation;

const rollback = {
  method: 'POST',
  path: '/api/migrations/{name}/rollback',
  action: 'migrations.rollback',
  operationId: 'rollBackMigration',
  tag: TAG,
  summary: 'Undo a migration',
  description:
    'Runs the rollbackSql that it was applied with, in one transaction together with its entry in the ledger. The newest first, unless force is true. Applied again, it really is.',
  needsKey: true,
  scope: 'write',
  query: noQuery,
  headers: IDEMPOTENCY_HEADERS,
  body: rollbackRequest,
  bodyExample: { dryRun: false },
  replies: {
    200: {
      description: 'Undone, now or before, or a dry run.',
      schema: rollbackReply,
      example: {
        migration: { ...EXAMPLE_MIGRATION, status: 'rolled_back', rolledBackAt: '2025-01-31T10:00:00.123456Z' },
        alreadyRolledBack: false,
        warnings: [],
      },
      headers: REPLAYED_HEADER,
    },
  },
  errors: ['not_found', 'migration_not_reversible', 'migration_not_newest', ...SQL_ERRORS, ...IDEMPOTENCY_ERRORS, ...LEASE_ERRORS],
} as const satisfies Operation;

const list = {
  method: 'GET',
  path: '/api/migrations',
  action: 'migrations.list',
  operationId: 'listMigrations',
  tag: TAG,
  summary: 'List migrations',
  description: 'All of them, in the order applied.',
  needsKey: true,
  scope: 'write',
  query: noQuery,
  body: noBody,
  replies: { 200: { description: 'The ledger.', schema: migrationsReply, example: { migrations: [EXAMPLE_MIGRATION] } } },
  errors: ['response_too_large', 'statement_timeout', ...LEASE_ERRORS],
} as const satisfies Operation;

export function migrationEndpoints({ router, config }: RouteContext): Endpoint[] {
  return [
    endpoint(apply, async ({ body, request, reply }) => {
      const { call } = request;
      call.statement = { sql: body.sql, paramCount: 0 };
      call.atomic = body.transaction;
      const repeatable = idempotentRequest(request, JSON_TYPE);
      const wanted: MigrationRequest = {
        ...body,
        timeoutMs: timeoutOf(body.timeoutMs, config, tenantOf(request)),
        disconnect: call.disconnect,
      };
      const lease = await router.lease(tenantOf(request), { door: 'http', disconnect: call.disconnect });
      if (repeatable !== undefined && !body.dryRun) return sendNewOrReplayed(reply, await applyMigrationOnce(lease, wanted, repeatable));
      const applied = await applyMigration(lease, wanted);
      return reply.code(applied.alreadyApplied || body.dryRun ? 200 : 201).send(applied);
    }),

    endpoint(rollback, async ({ body, request, reply }) => {
      const { call } = request;
      const { name } = request.params as { readonly name: string };
      const { dryRun = false, force = false, timeoutMs } = body ?? {};
      const command = 'ROLLBACK MIGRATION';
      call.statement = { sql: `${command} ${name}`, command };
      call.atomic = true;
      const repeatable = idempotentRequest(request, JSON_TYPE);
      const wanted: RollbackRequest = {
        name,
        dryRun,
        force,
        timeoutMs: timeoutOf(timeoutMs, config, tenantOf(request)),
        disconnect: call.disconnect,
        runs: (sql) => {
          call.statement = { sql, paramCount: 0 };
        },
      };
      const lease = await router.lease(tenantOf(request), { door: 'http', disconnect: call.disconnect });
      if (repeatable !== undefined && !dryRun) return sendNewOrReplayed(reply, await rollBackMigrationOnce(lease, wanted, repeatable));
      return rollBackMigration(lease, wanted);
    }),

    endpoint(list, async ({ request, reply }) => {
      const { disconnect } = request.call;
      const lease = await router.lease(tenantOf(request), { door: 'http', disconnect });
      const migrations = await listMigrations(lease, { timeoutMs: timeoutOf(undefined, config, tenantOf(request)), disconnect });
      return sendJson(request, reply, { migrations });
    }),
  ];
}
