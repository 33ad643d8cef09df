import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { type JsonReply, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

interface Example {
  readonly section: string;
  /** As its fence says; `curl` or `text` for an indented block. */
  readonly language: string;
  readonly text: string;
}

const run = promisify(execFile);
const REPOSITORY = new URL('../..', import.meta.url);
const EXAMPLES = examplesOf(readFileSync(new URL('README.md', REPOSITORY), 'utf8'));

/** The README's own organization stands for the one that its first example makes. */
const DOCUMENTED = JSON.parse(textOf('Sign up', 'json'));
let organization: TestOrganization = DOCUMENTED;
let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.close());

describe('the examples of the README, in their order', () => {
  it('are all below', () => {
    const sections = (wanted: string) => EXAMPLES.filter(({ language }) => language === wanted).map(({ section }) => section);
    expect(sections('curl')).toEqual(['Sign up', 'Query over HTTP', 'Several statements, all or none', 'Migrations', 'Audit']);
    expect(sections('js')).toEqual(['An ORM', 'Serverless drivers']);
  });

  it('sign up', async () => {
    const { status, body } = await curl('Sign up');
    expect(status).toBe(201);
    organization = body;
    expect(lasting(body)).toEqual(reply('Sign up'));
    expect(here(textOf('Sign up', 'text'))).toBe(`export ORG=${body.id} API_KEY=${body.apiKey}\n`);
  });

  it('make a table through the wire door', async () => {
    const client = await service.connect(organization);
    await client.query(textOf('psql', 'sql'));
    await client.end();
  });

  it('use an ORM', async () => {
    const printed = await javascript('An ORM');
    expect(printed.match(/customer: '\w+', total: '[\d.]+'/g)).toHaveLength(3);
    expect(printed).toContain("{ id: 3, customer: 'ada', total: '20.00' }");
  });

  it('query over HTTP', async () => {
    const { status, body } = await curl('Query over HTTP');
    expect(status).toBe(200);
    expect(lasting(body)).toEqual(reply('Query over HTTP'));
  });

  it('run several statements', async () => {
    const { status, body } = await curl('Several statements, all or none');
    expect(status).toBe(200);
    expect(body).toMatchObject({ status: 'committed', results: [{ rows: [{ id: '4' }] }, { rowCount: 2 }] });
  });

  it('migrate, once', async () => {
    expect((await curl('Migrations')).body).toMatchObject({ alreadyApplied: false });
    expect((await curl('Migrations')).body).toMatchObject({ alreadyApplied: true });
  });

  it('show what an error looks like', async () => {
    const { status, body } = await service.query(organization, 'selec');
    expect(status).toBe(400);
    expect(lasting(body)).toEqual(reply('The HTTP door'));
  });

  it('use a serverless driver', async () => {
    const printed = await javascript('Serverless drivers');
    for (const row of ["{ id: '1', customer: 'ada' }", "{ id: '2', customer: 'grace' }"]) expect(printed).toContain(row);
    expect(printed).toContain("[ { count: '4' } ]");
  });

  it('read the audit log', async () => {
    const [asked] = /select id, [^"]+/.exec(textOf('Query over HTTP', 'curl')) ?? [];
    await eventually('the query is in the log', async () => JSON.stringify((await curl('Audit')).body).includes(asked ?? 'nothing'));
  });
});

function examplesOf(markdown: string): Example[] {
  const examples: Example[] = [];
  let section = '';
  for (const [block, heading, language, fenced] of markdown.matchAll(/^#+ (.+)$|^```(\w*)\n([\s\S]*?)^```$|(?:^ {4}.*\n)+/gm)) {
    if (heading !== undefined) section = heading;
    else if (fenced !== undefined) examples.push({ section, language: language ?? '', text: fenced });
    else examples.push({ section, language: block.startsWith('    curl ') ? 'curl' : 'text', text: block.replace(/^ {4}/gm, '') });
  }
  return examples;
}

function textOf(section: string, language: string): string {
  const found = EXAMPLES.find((example) => example.section === section && example.language === language);
  if (found === undefined) throw new Error(`the README has no example in ${language} under "${section}"`);
  return found.text;
}

/** The same text for this test's ports and organization. */
function here(text: string): string {
  const { id, apiKey } = organization;
  const local = text.replaceAll(DOCUMENTED.id, id).replaceAll(DOCUMENTED.apiKey, apiKey);
  return local.replace(/\b8080\b/g, new URL(service.httpUrl).port).replace(/\b6432\b/g, String(service.wirePort));
}

const reply = (section: string): unknown => lasting(JSON.parse(here(textOf(section, 'json'))));

/** A reply without what differs from call to call: instants keep their precision, durations and request ids only their type. */
function lasting(body: unknown): unknown {
  const digitless = JSON.stringify(body).replace(/"\d{4}-\d\d-\d\dT[\d:.]+Z"/g, (instant) => instant.replace(/\d/g, '0'));
  return JSON.parse(digitless, (name, value) => (['durationMs', 'requestId'].includes(name) ? typeof value : value));
}

const environment = () => ({
  PATH: process.env.PATH,
  ORG: organization.id,
  API_KEY: organization.apiKey,
  DATABASE_URL: `postgres://${organization.id}:${organization.apiKey}@127.0.0.1:${service.wirePort}/${organization.id}`,
});

/** A real shell reads the line; `curl` itself need not be there. */
async function curl(section: string): Promise<JsonReply> {
  const script = `curl() { printf '%s\\0' "$@"; }\n${here(textOf(section, 'curl'))}`;
  const words = (await run('sh', ['-c', script], { env: environment() })).stdout.split('\0');
  const url = new URL(words.find((word) => word.startsWith('http://')) ?? '');
  const after = (option: string) => words.flatMap((word, i) => (word === option ? [words[i + 1] ?? ''] : []));
  const headers = Object.fromEntries(after('-H').map((header) => header.split(': ', 2)));
  const [body] = after('-d');
  const [method = body === undefined ? 'GET' : 'POST'] = after('-X');
  return service.call(method, `${url.pathname}${url.search}`, { headers, ...(body === undefined ? {} : { body }) });
}

/** What it prints, on one line. A comment says what Node 20 needs besides. */
async function javascript(section: string): Promise<string> {
  const text = here(textOf(section, 'js'));
  const code = 'WebSocket' in globalThis ? text : text.replace(/^\/\/ Node 20 .*?: /m, '');
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', code], { cwd: REPOSITORY, env: environment() });
  return stdout.replace(/\s+/g, ' ');
}
