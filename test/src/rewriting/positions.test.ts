import { describe, expect, it } from 'vitest';
import { rewriteSql } from '../../../src/rewriting/rewrite-sql.ts';
import { clientQuery, clientText } from '../../../src/rewriting/rewriter.ts';
import { originalPosition, rewrittenPosition } from '../../../src/syntax/edits.ts';
import { SCHEMA, TARGET } from './marked.ts';

/** Position of `^` in a text, in characters from 1, and the text without it. */
function pointed(text: string): { text: string; position: number } {
  const [before = '', after = ''] = text.split('^');
  return { text: before + after, position: [...before].length + 1 };
}

describe('positions of errors', () => {
  it.each([
    ['SELECT * FROM public.^nothing', `SELECT * FROM ${SCHEMA}.^nothing`],
    ['SELECT * FROM ^public.nothing', `SELECT * FROM ^${SCHEMA}.nothing`],
    ['SELECT ^x FROM public.a', `SELECT ^x FROM ${SCHEMA}.a`],
    ['SELECT * FROM "public"."A" JOIN "public"."B" ON ^x', `SELECT * FROM "${SCHEMA}"."A" JOIN "${SCHEMA}"."B" ON ^x`],
    [`SELECT 'äöü😀', public.f(), ^x`, `SELECT 'äöü😀', ${SCHEMA}.f(), ^x`],
    [`SELECT public.f('äöü😀', ^x), public.g()`, `SELECT ${SCHEMA}.f('äöü😀', ^x), ${SCHEMA}.g()`],
    ['LISTEN ä, ^public', `LISTEN "${SCHEMA}:ä", ^public`],
    [
      `CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT ''x'' FROM public.a ^b'`,
      `CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT ''x'' FROM ${SCHEMA}.a ^b'`,
    ],
  ])('%s', (sent, rewritten) => {
    const client = pointed(sent);
    const server = pointed(rewritten);
    for (const rewriting of [rewriteSql(client.text, TARGET), rewriteSql(Buffer.from(client.text), TARGET)]) {
      expect(rewriting.sql.toString()).toBe(server.text);
      expect(originalPosition(rewriting.edits, server.position)).toBe(client.position);
      expect(rewrittenPosition(rewriting.edits, client.position)).toBe(server.position);
    }
  });

  it('inside of what was put in are at what was taken out', () => {
    const { edits } = rewriteSql('TABLE public.x', TARGET);
    expect([7, 8, 12, 13, 22, 23, 24].map((position) => originalPosition(edits, position))).toEqual([7, 8, 12, 12, 12, 13, 14]);
  });

  it('stay without edits', () => expect(originalPosition([], 17)).toBe(17));
});

describe('clientText', () => {
  it.each([
    [`relation "${SCHEMA}.users" does not exist`, 'relation "public.users" does not exist'],
    [`function ${SCHEMA}.f(integer) does not exist`, 'function public.f(integer) does not exist'],
    [`type "${SCHEMA}"."Mood"[] and ${SCHEMA}."Mood"`, 'type "public"."Mood"[] and public."Mood"'],
    [`operator does not exist: ${SCHEMA}.a + ${SCHEMA}.b`, 'operator does not exist: public.a + public.b'],
    [`permission denied for schema ${SCHEMA}`, 'permission denied for schema public'],
    [`schema "${SCHEMA}" already exists, skipping`, 'schema "public" already exists, skipping'],
    [`SQL statement "INSERT INTO ${SCHEMA} . t VALUES (1)"`, 'SQL statement "INSERT INTO public . t VALUES (1)"'],
    [`view v depends on table shared.${SCHEMA}.t`, 'view v depends on table shared.public.t'],
  ])('%s', (text, wanted) => expect(clientText(text, SCHEMA)).toBe(wanted));

  it.each([
    `role "${SCHEMA}" cannot be dropped`,
    `must be member of role "${SCHEMA}"`,
    `database "${SCHEMA}" does not exist`,
    `owned by ${SCHEMA}.`,
    `relation "${SCHEMA}x.users" or "x${SCHEMA}.users" does not exist`,
    `relation "org_aaaaaaaaaaaa.users" does not exist`,
    'relation "users" does not exist',
  ])('leaves %s', (text) => expect(clientText(text, SCHEMA)).toBe(text));
});

describe('clientQuery', () => {
  it('moves the position with the text', () => {
    const server = pointed(`SELECT * FROM ${SCHEMA}.a, ^${SCHEMA}.b`);
    const client = pointed('SELECT * FROM public.a, ^public.b');
    expect(clientQuery(server.text, server.position, SCHEMA)).toEqual({ query: client.text, position: client.position });
  });
});
