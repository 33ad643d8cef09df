import { expect, it } from 'vitest';
import { auditSearch, migrationRequest, transactionRequest } from '../../http/request-schemas.ts';
import { refuseExcess } from '../../http/validation.ts';

const fields = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`field${n}`, n]));

it('names the first five of very many unknown fields, wherever they are', () => {
  const named = (place: string) => `unknown fields ${[0, 1, 2, 3, 4].map((n) => `"${place}field${n}"`).join(', ')}`;
  expect(() => refuseExcess(auditSearch, { action: 'query', ...fields(101) })).toThrow(named(''));
  const statements = [{ sql: 'select 1' }, { sql: 'select 1', ...fields(1_000) }];
  expect(() => refuseExcess(transactionRequest, { statements })).toThrow(named('statements[1].'));
});

it('leaves few of them to the schema, and what a parameter has to itself', () => {
  refuseExcess(auditSearch, fields(90));
  refuseExcess(transactionRequest, { statements: [{ sql: 'select $1', params: [fields(1_000), 'x'.repeat(20_000)] }] });
});

it('refuses long texts of all fields but those that hold SQL', () => {
  const long = 'x'.repeat(16_385);
  refuseExcess(migrationRequest, { name: 'x', sql: long, rollbackSql: long });
  expect(() => refuseExcess(migrationRequest, { name: long, sql: 'select 1' })).toThrow('name: must have at most 16384 characters');
});
