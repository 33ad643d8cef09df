import { listCommands } from '../../src/catalog/audit/records.ts';
import { type StatementOutcome, totalOf } from '../../src/sql/result-budget.ts';
import { runTransaction, runTransactionOnce, type TransactionRequest } from '../../src/sql/transaction.ts';
import { optionsSetFirst } from '../../src/syntax/side-effects.ts';
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
import { transactionReply } from '../reply-schemas.ts';
import { tenantOf } from '../request-context.ts';
import { noQuery, transactionRequest } from '../request-schemas.ts';
import { EXAMPLE_QUERY_REPLY } from './query.ts';

const transaction = {
  method: 'POST',
  path: '/api/transaction',
  action: 'transaction',
  operationId: 'transaction',
  tag: 'SQL',
  summary: 'Run statements as one transaction',
  description:
    'All statements are committed together or none is. A failure names the statement in statementIndex. With "rollback": true the results are those of a trial that leaves nothing, except what no transaction takes back, such as the values of a sequence.',
  needsKey: true,
  query: noQuery,
  headers: IDEMPOTENCY_HEADERS,
  body: transactionRequest,
  bodyExample: {
    statements: [{ sql: 'create table if not exists notes (body text)' }, { sql: 'insert into notes values ($1)', params: ['hello'] }],
  },
  replies: {
    200: {
      description: 'Committed, or rolled back as asked.',
      schema: transactionReply,
      example: { results: [EXAMPLE_QUERY_REPLY], status: 'committed', durationMs: 2.417 },
      headers: REPLAYED_HEADER,
    },
  },
  errors: [...SQL_ERRORS, ...IDEMPOTENCY_ERRORS, ...LEASE_ERRORS],
} as const satisfies Operation;

export function transactionEndpoints({ router, config }: RouteContext): Endpoint[] {
  return [
    endpoint(transaction, async ({ body, request, reply }) => {
      const { call } = request;
      const { statements } = body;
      const observed = {
        sql: statements.map(({ sql }) => sql).join(';\n'),
        paramCount: statements.reduce((count, { params }) => count + (params?.length ?? 0), 0),
      };
      call.statement = observed;
      call.traffic.statements = statements.length;
      call.atomic = true;
      const repeatable = idempotentRequest(request, JSON_TYPE);
      const { disconnect, results } = call;
      const wanted: TransactionRequest = { ...body, timeoutMs: timeoutOf(body.timeoutMs, config, tenantOf(request)), disconnect, results };
      const customOptions = optionsSetFirst(statements, body.settings);
      const lease = await router.lease(tenantOf(request), { door: 'http', disconnect, customOptions });
      if (repeatable !== undefined && !body.readOnly && !body.rollback) {
        const once = await runTransactionOnce(lease, wanted, repeatable);
        call.statement = { ...observed, command: commandsOf(once.outcomes ?? []) };
        if (once.outcomes !== undefined) call.outcome = totalOf(once.outcomes, '');
        return sendNewOrReplayed(reply, once);
      }
      const answer = await runTransaction(lease, wanted);
      call.statement = { ...observed, command: commandsOf(answer.results, body.rollback) };
      call.outcome = totalOf(answer.results, '');
      return reply.type(JSON_TYPE).send(answer.body);
    }),
  ];
}

/** What the audit log says was done; at the end, that nothing of it has stayed. */
function commandsOf(outcomes: readonly StatementOutcome[], isRolledBack = false): string | undefined {
  const commands = listCommands(outcomes.map(({ command }) => command));
  return isRolledBack ? [commands, 'ROLLBACK'].filter(Boolean).join(', ') : commands;
}
