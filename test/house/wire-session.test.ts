import { Session as Inspector } from 'node:inspector/promises';
import { getHeapSnapshot } from 'node:v8';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { readReplies } from '../conversations/replies.ts';
import type { WireClient } from '../conversations/wire-client.ts';
import { openSession } from '../support/raw-session.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { modules, textOf } from './modules.ts';

const SESSIONS = 40;
const OBJECTS_MAX = 18;
const CLASSES_MAX = 16;
const MUTABLE_FIELDS_MAX = 89;
const FILES_MAX = 27;

let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  service = await startTestService();
  organization = await service.signUp();
});
afterAll(() => service.close());

/** The classes of the product, by name, with the file of each. */
const CLASSES = new Map(
  [...modules().keys()].flatMap((file) => [...textOf(file).matchAll(/^(?:export )?class (\w+)/gm)].map(([, name = '']) => [name, file])),
);

/** How many objects of each of these classes there are in this process. */
async function instances(): Promise<ReadonlyMap<string, number>> {
  let json = '';
  for await (const chunk of getHeapSnapshot()) json += String(chunk);
  const { snapshot, nodes, strings } = JSON.parse(json);
  const { node_fields: fields, node_types: types } = snapshot.meta;
  const [type, name] = [fields.indexOf('type'), fields.indexOf('name')];
  const object = types[type].indexOf('object');
  const counts = new Map<string, number>();
  for (let at = 0; at < nodes.length; at += fields.length) {
    const className = strings[nodes[at + name]];
    if (nodes[at + type] === object && CLASSES.has(className)) counts.set(className, (counts.get(className) ?? 0) + 1);
  }
  return counts;
}

/** Fields of a class that are not readonly, private and inherited ones too; those that only tell something are methods. */
function mutableFields(name: string): number {
  const text = textOf(CLASSES.get(name) ?? '');
  const start = text.search(new RegExp(`^(?:export )?class ${name}\\b`, 'm'));
  const body = text.slice(start, text.indexOf('\n}', start));
  const [, base = ''] = /^.* extends (\w+)/.exec(body) ?? [];
  const inherited = CLASSES.has(base) ? mutableFields(base) : 0;
  return (
    inherited +
    [...body.matchAll(/^ {2}(?!readonly |static |get |set |async |\*|constructor)#?\w+(?:: [^(=\n]+| = .*|: .* = .*);$/gm)].length
  );
}

it('a wire session is made of few objects of few classes, with few fields that change', async () => {
  const warm = await openSession(service, organization);
  await ask(warm);
  const before = await instances();
  const clients: WireClient[] = [];
  for (let i = 0; i < SESSIONS; i += 1) clients.push(await openSession(service, organization));
  const after = await instances();
  for (const client of [warm, ...clients]) client.disconnect();
  const own = [...after].map(([name, count]) => [name, Math.round((count - (before.get(name) ?? 0)) / SESSIONS)] as const);
  const parts = own.filter(([, count]) => count > 0);
  const fields = sum(parts.map(([name]) => mutableFields(name)));
  console.log(`${sum(parts.map(([, count]) => count))} objects, ${parts.length} classes, ${fields} mutable fields`, parts);
  expect(sum(parts.map(([, count]) => count))).toBeLessThanOrEqual(OBJECTS_MAX);
  expect(parts.length).toBeLessThanOrEqual(CLASSES_MAX);
  expect(fields).toBeLessThanOrEqual(MUTABLE_FIELDS_MAX);
});

async function ask(client: WireClient): Promise<void> {
  await client.write(encodeFrontend('Query SELECT 1'));
  await readReplies(client, 'ReadyForQuery', 1);
}

it('SELECT 1 goes through few files', async () => {
  const client = await openSession(service, organization);
  for (let i = 0; i < 20; i += 1) await ask(client);
  const inspector = new Inspector();
  inspector.connect();
  await inspector.post('Profiler.enable');
  await inspector.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  let files = await trace(inspector, client);
  // What happens now and then is not part of it.
  // On a busy machine something of it is nearly always due by the time that the query runs, so that more have to be looked at.
  for (let i = 0; i < 20 || (i < 200 && files.size > FILES_MAX); i += 1) {
    const again = await trace(inspector, client);
    if (again.size < files.size) files = again;
  }
  await inspector.post('Profiler.disable');
  inspector.disconnect();
  client.disconnect();
  console.log(`${files.size} files, ${sum(files.values())} calls`, files);
  expect(files.size).toBeLessThanOrEqual(FILES_MAX);
});

const FILES = [...modules().keys()];

/** @returns the files that one more query goes through, with the number of calls in each */
async function trace(inspector: Inspector, client: WireClient): Promise<ReadonlyMap<string, number>> {
  await service.service.router.catalog.audit.flush();
  await inspector.post('Profiler.takePreciseCoverage');
  await ask(client);
  const { result } = await inspector.post('Profiler.takePreciseCoverage');
  const files = new Map<string, number>();
  for (const { url, functions } of result) {
    const file = FILES.find((path) => url.endsWith(`/${path}`));
    const calls = sum(functions.map(({ functionName, ranges }) => (functionName === '' ? 0 : (ranges[0]?.count ?? 0))));
    if (file !== undefined && calls > 0) files.set(file, calls);
  }
  return files;
}

function sum(values: Iterable<number>): number {
  return [...values].reduce((total, value) => total + value, 0);
}
