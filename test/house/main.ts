/** The figures of the house, without a bound: `npm run house`. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { dirname, join, normalize } from 'node:path';
import { getHeapSnapshot } from 'node:v8';
import { readConfig } from '../../src/config.ts';
import { startEmbedded } from '../../src/embedded/embedded.ts';
import { type Service, startService } from '../../src/service.ts';
import { WireClients } from '../bench/wire-login.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { RawClient } from '../http/raw-client.ts';
import { doorsAt, type TestOrganization } from '../support/doors.ts';
import { makeScratch } from '../support/scratch.ts';
import { serverUrl } from '../support/server-url.ts';
import { cycles, modules, ROOT, textOf } from './modules.ts';
import { sharedExports, sizesOf, takersOf } from './sizes.ts';
import { turnsOf, Walks } from './walks.ts';

const SESSIONS = 40;
const ANSWER_TIMEOUT_MS = 10_000;
const READY_FOR_QUERY = 'Z'.charCodeAt(0);
const SIMPLE = encodeFrontend('Query SELECT 1');
const EXTENDED = Buffer.concat(['Parse "" [int4] SELECT $1', 'Bind "" "" [1]', 'Describe P ""', 'Execute ""', 'Sync'].map(encodeFrontend));
const graph = modules();
const files = [...graph.keys()];
const isConsole = (file: string) => file.startsWith('http/console/');

function print(what: string, ...figures: readonly (string | number)[]): void {
  process.stdout.write(`${what.padEnd(66)} ${figures.join(' / ')}\n`);
}

for (const [where, part] of [
  ['', files.filter((file) => !isConsole(file))],
  [' of the console', files.filter(isConsole)],
] as const) {
  const sizes = sizesOf(part);
  print(`source files / folders${where}`, sizes.files, sizes.folders);
  print(`lines${where}`, sizes.lines);
  print(`median file / file in which the median line lives${where}`, sizes.medianFile, sizes.fileOfMedianLine);
  print(`largest file${where}`, sizes.largestFile);
}
const exported = sharedExports(graph, (from, path) => normalize(join(dirname(from), path)));
print('exports that another file uses / by one file only', exported.all, exported.byOneFile);
const takers = takersOf('WireSession', files);
print('functions that take WireSession / files that import it', takers.functions, takers.files);
print('import cycles', cycles(graph).length);

async function walkThrough(service: Service): Promise<void> {
  const doors = doorsAt(service.httpPort, service.wirePort);
  const organization = await doors.signUp();
  const { id, apiKey } = organization;
  const clients = new WireClients({ host: '127.0.0.1', port: service.wirePort, user: id, database: id, password: apiKey });
  const wire = await clients.open();
  const requests: readonly (readonly [string, (http: RawClient) => Promise<unknown>])[] = [
    ['POST /api/query', (http) => http.ask(post(organization))],
    ['POST /api/query through Fastify', (http) => http.ask(post(organization, 'X-Unknown: to the fast path\r\n'))],
    ['GET /api/schema', (http) => http.ask(`GET /api/schema HTTP/1.1\r\n${headers(organization)}\r\n`)],
    ['a login on the wire', async () => (await clients.open()).destroy()],
    ['SELECT 1 on the wire', () => asked(wire, SIMPLE)],
    ['SELECT $1 on the wire, prepared', () => asked(wire, EXTENDED)],
  ];
  const walks = new Walks(join(ROOT, 'dist/'));
  for (const [name, request] of requests) {
    let http = await RawClient.open(service.httpPort);
    const walk = await walks.of(
      () => request(http),
      async () => {
        // Between two attempts it may have been closed because nothing came.
        if (http.socket.readableEnded) http = await RawClient.open(service.httpPort);
        await request(http);
        await service.router.catalog.audit.flush();
      },
    );
    http.socket.destroy();
    print(`files of ${name} / calls`, walk.files.size, sum(walk.files.values()));
    const turns = turnsOf(walk.path);
    print('  next function in another file / in one left before', turns.changes, turns.returns);
  }
  walks.close();

  const before = await instances();
  const sessions: Socket[] = [];
  for (let i = 0; i < SESSIONS; i += 1) sessions.push(await clients.open());
  const after = await instances();
  for (const session of [wire, ...sessions]) session.destroy();
  const parts = [...after]
    .map(([name, count]) => ({ name, count: Math.round((count - (before.get(name) ?? 0)) / SESSIONS) }))
    .filter(({ count }) => count > 0);
  const fields = sum(parts.map(({ name }) => mutableFields(name)));
  print('objects / classes / mutable fields of a wire session', sum(parts.map(({ count }) => count)), parts.length, fields);
}

/** Until ReadyForQuery has come. */
async function asked(socket: Socket, request: Buffer): Promise<void> {
  socket.write(request);
  for (let come: Buffer | undefined; come?.at(-6) !== READY_FOR_QUERY; ) {
    [come] = (await once(socket, 'data', { signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) })) as [Buffer];
  }
}

function headers({ apiKey }: TestOrganization): string {
  return `Host: localhost\r\nAuthorization: Bearer ${apiKey}\r\n`;
}

function post(organization: TestOrganization, more = ''): string {
  const body = '{"sql":"select 1"}';
  return `POST /api/query HTTP/1.1\r\n${headers(organization)}Content-Type: application/json\r\n${more}Content-Length: ${body.length}\r\n\r\n${body}`;
}

/** The classes of the product, by name, with the file of each. */
const CLASSES = new Map(
  files.flatMap((file) => [...textOf(file).matchAll(/^(?:export )?class (\w+)/gm)].map(([, name = '']) => [name, file] as const)),
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

function sum(values: Iterable<number>): number {
  return [...values].reduce((total, value) => total + value, 0);
}

const scratch = await makeScratch();
const server = await startEmbedded({ dataDir: join(scratch.path, 'data'), settings: { fsync: 'off' } });
try {
  const service = await startService(
    readConfig({
      DATABASE_URL: serverUrl({ ...server, ...server.superuser }),
      POSTERN_SECRET: 'a secret for as long as this runs',
      POSTERN_HTTP_PORT: '0',
      POSTERN_PG_PORT: '0',
      POSTERN_OPS_PORT: '0',
    }),
    () => {},
  );
  try {
    await walkThrough(service);
  } finally {
    await service.close();
  }
} finally {
  await server.stop();
  await scratch.remove();
}
