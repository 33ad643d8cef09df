import { expect, test } from 'vitest';
import { statementsOf } from '../../../src/moving/definitions.ts';

test('the statements of a dump, without those about the schema and what a disk quota has added', async () => {
  const dump = `--
-- PostgreSQL database dump
--

\\restrict abc

SET statement_timeout = 0;
CREATE SCHEMA org_a;
CREATE TABLE org_a.t (id integer);
CREATE TRIGGER own BEFORE INSERT ON org_a.t FOR EACH ROW EXECUTE FUNCTION org_a.postern_refuse_write();
CREATE TRIGGER postern_quota_0123456789abcdef_insert BEFORE INSERT ON org_a.t FOR EACH STATEMENT EXECUTE FUNCTION pg_catalog.postern_refuse_write();

\\unrestrict abc
`;
  expect(await statementsOf(dump, 'org_a')).toEqual([
    'SET statement_timeout = 0',
    'CREATE TABLE org_a.t (id integer)',
    'CREATE TRIGGER own BEFORE INSERT ON org_a.t FOR EACH ROW EXECUTE FUNCTION org_a.postern_refuse_write()',
  ]);
});
